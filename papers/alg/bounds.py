"""Table 1 of [ALG] and its general form: what a budget allows, by formula alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy.theory import epsilon_equivalent, gaussian_equivalent, posterior_success
from papers.agreement import Cell, Comparison
from papers.charts import Line, Panel, Style, draw_panels
from papers.page import Page, as_budget, write_csv
from papers.run import MI_BUDGETS, Job, Settings

N_RECORDS: Final = 100  # of the question "at least k of the members": the universe of Iris
GUESSED: Final = (29, 32, 35)
SINGLE_PRIORS: Final = (0.5, 0.01)
# Table 1 in percent, from 1/64 nats on, and a figure of section 8.2.
PRINTED_SUCCESS: Final = {
    0.5: (58.815, 62.434, 67.490, 74.464, 83.789, 95.181, 100.0, 100.0, 100.0),
    0.01: (3.213, 4.364, 6.200, 9.171, 14.057, 22.177, 35.729, 58.103, 92.582),
}
PRINTED_WIDE: Final = 14.56  # at least 35 members, 1 nat
STYLES: Final = (
    Style(colour="#D55E00", marker="s"),
    Style(colour="#0072B2", marker="D", line="-."),
    Style(colour="#009E73", marker="o"),
    Style(colour="#CC79A7", marker="^", line="--"),
    Style(colour="#E69F00", marker="v", line=":"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRow:
    """What one budget allows for one question.

    ``epsilon_equivalent`` is the ε of pure differential privacy with the same bound on membership,
    ``gaussian_mu`` the μ of the Gaussian mechanism with it; only for a prior of one half, and not
    a claim of differential privacy.
    """

    question: str
    prior: float
    mi_nats: float
    success: float
    epsilon_equivalent: float | None
    gaussian_mu: float | None


def overlap_prior(n_records: int, n_guessed: int) -> float:
    """Chance that a blind guess of half the records names at least ``n_guessed`` members.

    ``P[X >= k]`` for ``X ~ Hypergeom(n, n/2, n/2)``, never zero; the secret is a uniform half.
    """
    half = n_records // 2
    if n_guessed == 0:
        return 1.0
    hits = np.arange(half, dtype=np.float64)
    # Weight of j+1 hits over weight of j hits: the weights are C(n/2, j)^2.
    steps = 2.0 * (np.log(half - hits) - np.log(hits + 1.0))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    tail = np.logaddexp.reduce(logs[n_guessed:]) - np.logaddexp.reduce(logs)
    return min(1.0, max(math.exp(tail), float(np.finfo(np.float64).tiny)))


def bound_rows() -> Iterator[BoundRow]:
    """Return the bounds for two priors, and for naming many of the members."""
    questions = [(f"any guess with prior {100 * p:g} %", p) for p in SINGLE_PRIORS]
    questions += [
        (f"at least {k} of {N_RECORDS // 2} members of {N_RECORDS}", overlap_prior(N_RECORDS, k))
        for k in GUESSED
    ]
    for question, prior in questions:
        for mi_nats in MI_BUDGETS:
            success = posterior_success(mi_nats, prior)
            binary = prior == 0.5 and success < 1.0
            yield BoundRow(
                question=question,
                prior=prior,
                mi_nats=mi_nats,
                success=success,
                epsilon_equivalent=epsilon_equivalent(success) if binary else None,
                gaussian_mu=gaussian_equivalent(success) if binary else None,
            )


PRIOR_COUNTS: Final = tuple(range(20, 41))  # of Figure 12
PRIORS: Final = Line(
    label="hypergeometric prior",
    style=STYLES[0],
    x=PRIOR_COUNTS,
    y=tuple(overlap_prior(N_RECORDS, k) for k in PRIOR_COUNTS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The section on what a budget allows."""

    name: str = "bounds"
    title: str = "What a budget allows"
    covers: str = "Table 1, Figure 12, and the bound on naming many members"
    notes: tuple[str, ...] = (
        "From kl(posterior, prior) <= MI; no data and no simulation. The ε of pure differential "
        "privacy with the same bound on membership is printed beside it, and the μ of a Gaussian "
        "mechanism; they are not promises of differential privacy.",
        "The prior of naming at least k members is hypergeometric, with the square of the "
        "binomial that the printed formula lacks.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        return (Job(name="bounds", function=bound_rows),)

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        questions = list(dict.fromkeys(row.question for row in rows))
        lines = tuple(
            Line.of(question, style, [row for row in rows if row.question == question], "success")
            for question, style in zip(questions, STYLES, strict=True)
        )
        panel = Panel(title="", ylabel="success at most, %", lines=lines, percent=True)
        ticks = [(mi, as_budget(mi)) for mi in MI_BUDGETS]
        picture = draw_panels(
            stem.with_suffix(".png"),
            [panel],
            title=self.title,
            xlabel="budget, nats",
            ticks=ticks,
        )
        page.image(picture, "largest success that a budget allows, for five questions")
        drawn = draw_panels(
            stem.with_name(f"{stem.name}_priors").with_suffix(".png"),
            [Panel(title="", ylabel="prior, %", lines=(PRIORS,), percent=True)],
            title=f"Prior of naming at least k of {N_RECORDS // 2} members, n = {N_RECORDS}",
            xlabel="k",
            ticks=[(k, str(k)) for k in PRIOR_COUNTS[::5]],
        )
        page.image(drawn, "the prior of naming at least k members, against k")
        cells = {(row.question, row.mi_nats): row for row in rows}
        page.table(
            ["budget, nats", *questions, "same membership bound as pure ε", "as Gaussian μ"],
            [_cells(cells, questions, mi) for mi in MI_BUDGETS],
        )

    def compare(self, rows: Sequence[BoundRow]) -> tuple[Comparison, ...]:
        success = {(row.prior, row.mi_nats): 100 * row.success for row in rows}
        wide = overlap_prior(N_RECORDS, GUESSED[-1])
        table = [
            Cell(
                name=f"prior {100 * prior:g} %, {as_budget(mi)}",
                printed=figure,
                ours=success[prior, mi],
                spread=0.0005,
            )
            for prior, figures in PRINTED_SUCCESS.items()
            for mi, figure in zip(MI_BUDGETS[1:], figures, strict=True)
        ]
        many = Cell(name="1 nat, k = 35", printed=PRINTED_WIDE, ours=success[wide, 1.0])
        below = (("k = 30", 0.05, 30), ("k = 32", 0.01, 32))
        priors = tuple(
            Cell(name=name, printed=figure, ours=overlap_prior(N_RECORDS, k), relation="<=")
            for name, figure, k in below
        )
        return (
            Comparison(section=self.name, item="Table 1", trials="formula", cells=tuple(table)),
            Comparison(section=self.name, item="Figure 12, text", trials="formula", cells=priors),
            Comparison(section=self.name, item="Section 8.2", trials="formula", cells=(many,)),
        )


def _cells(
    cells: dict[tuple[str, float], BoundRow], questions: Sequence[str], mi: float
) -> list[str]:
    answers = [cells[question, mi] for question in questions]
    readings = (answers[0].epsilon_equivalent, answers[0].gaussian_mu)
    return [
        as_budget(mi),
        *[f"{100 * row.success:.3g} %" for row in answers],
        *["none" if value is None else f"{value:.2f}" for value in readings],
    ]


SECTION: Final = Bounds()
