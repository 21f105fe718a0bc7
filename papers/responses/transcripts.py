"""The tables of [RESP] on Adult and Bank: accuracy of private answers, and what they give away.

A transcript asks every test row once, in random order, with one secret model; seeded secrets and
noise on public data, which protect nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._random import SimulatedSource, public_generator
from pacprivacy.session.responder import Responder
from pacprivacy.theory import posterior_success
from papers.page import Page, as_number, as_percent, write_csv
from papers.published import Published
from papers.responses.models import N_SUBSETS, Answers, load_answers
from papers.run import Job, Settings

ACCURACY_TABLE: Final = "responses_accuracy.csv"
BOUND_TABLE: Final = "responses_mi_to_posterior.csv"
BOUND_POWERS: Final = tuple(range(4, 33, 4))
BOUND_QUESTIONS: Final = tuple(10**k for k in range(7))
POWERS: Final = {"one_hot": tuple(range(2, 33, 2)), "score": tuple(range(4, 33, 4))}
N_TRANSCRIPTS: Final = {"one_hot": 40, "score": 4}
QUICK_SUBSETS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRow:
    """What private answers at one budget per question are worth, and what they cost.

    A question has ``2**-neg_log2_b`` nats. ``nonprivate`` is the accuracy of a model of all
    training rows. ``spent_nats`` is the mean sum of charges, ``success`` the bound that it gives;
    the ``counted`` ones charge every question in full, as published. ``attacker`` is the success of
    the optimal attacker, mean over transcripts and units.
    """

    dataset: str
    output: str
    neg_log2_b: int
    n_queries: int
    n_transcripts: int
    accuracy: float
    standard_error: float
    no_noise: float
    nonprivate: float
    free_share: float
    spent_nats: float
    success: float
    counted_nats: float
    counted_success: float
    attacker: float
    published: float | None
    published_nonprivate: float | None

    @property
    def gap(self) -> float:
        """Accuracy lost to the non-private model."""
        return self.nonprivate - self.accuracy

    @property
    def published_gap(self) -> float | None:
        """The same, as published."""
        if self.published is None or self.published_nonprivate is None:
            return None
        return self.published_nonprivate - self.published


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCell:
    """The bound on membership success after many questions charged in full."""

    neg_log2_b: int
    n_queries: int
    success: float
    published: float | None


def bound_cells() -> list[BoundCell]:
    """Return the published table of bounds, recomputed."""
    table = Published(BOUND_TABLE)
    return [
        BoundCell(
            neg_log2_b=power,
            n_queries=count,
            success=posterior_success(count * 2.0**-power),
            published=table.value(
                "posterior_success_bound_prior_0.5", log2_b=float(-power), T=float(count)
            ),
        )
        for power in BOUND_POWERS
        for count in BOUND_QUESTIONS
    ]


def measure_responses(
    dataset: str,
    output: str,
    powers: Sequence[int],
    *,
    n_transcripts: int,
    answers: Answers,
    seed: int = 0,
) -> list[ResponseRow]:
    """Simulate transcripts, with fresh secrets and orders, at ``2**-power`` nats a question."""
    rows = []
    for power in powers:
        runs = [
            _transcript(
                answers,
                output,
                power,
                public_generator(seed, f"{dataset} {output} {power}", trial),
            )
            for trial in range(n_transcripts)
        ]
        rows.append(_row(dataset, output, power, runs, answers))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    accuracy: float
    spent_nats: float
    free_share: float
    attacker: float


def _transcript(answers: Answers, output: str, power: int, rng: np.random.Generator) -> _Run:
    n_queries, budget = len(answers.truth), 2.0**-power
    order = rng.permutation(n_queries)
    responder = Responder(
        answers.pool,
        query_nats=budget,
        total_nats=n_queries * budget,
        source=SimulatedSource(rng),
    )
    if output == "one_hot":
        released = responder.reply_votes(answers.labels[:, order], n_classes=2).values
    else:
        ones = answers.scores[:, order]
        released = responder.reply_scores(np.stack([1.0 - ones, ones], axis=2)).values
    tilt = np.abs(np.exp(responder.belief.log_p) @ answers.signs)
    return _Run(
        accuracy=float((released.argmax(axis=1) == answers.truth[order]).mean()),
        spent_nats=responder.spent.mi_nats or 0.0,
        free_share=responder.n_free / n_queries,
        attacker=float(0.5 + 0.5 * tilt.mean()),
    )


def _row(dataset: str, output: str, power: int, runs: list[_Run], answers: Answers) -> ResponseRow:
    n_queries = len(answers.truth)
    accuracies = np.array([run.accuracy for run in runs])
    spent = float(np.mean([run.spent_nats for run in runs]))
    counted = n_queries * 2.0**-power
    table = Published(ACCURACY_TABLE)
    keys: dict[str, str | float] = {
        "dataset": dataset,
        "output": output,
        "neg_log2_b": float(power),
    }
    spread = float(accuracies.std(ddof=1)) if len(runs) > 1 else float("nan")
    return ResponseRow(
        dataset=dataset,
        output=output,
        neg_log2_b=power,
        n_queries=n_queries,
        n_transcripts=len(runs),
        accuracy=float(accuracies.mean()),
        standard_error=spread / float(np.sqrt(len(runs))),
        no_noise=answers.mean_accuracy,
        nonprivate=answers.nonprivate,
        free_share=float(np.mean([run.free_share for run in runs])),
        spent_nats=spent,
        success=posterior_success(spent),
        counted_nats=counted,
        counted_success=posterior_success(counted),
        attacker=float(np.mean([run.attacker for run in runs])),
        published=table.value("top1_mean", **keys),
        published_nonprivate=table.value("nonprivate_full_U", **keys),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses:
    """The section on private answers."""

    name: str = "responses"
    title: str = "Private answers, one secret"
    covers: str = "[RESP]: accuracy and bound tables on Adult and Bank"
    notes: tuple[str, ...] = (
        "128 models (16 in a quick run), each on a random half of the training rows (every row in "
        "half of them); "
        "histogram gradient boosting, depth 4, rate 0.1, 200 trees, where the paper tunes "
        "XGBoost on every subset. The test rows are the questions.",
        "Bank here is bank-full (45211 rows), published: bank-additional-full (41188 rows).",
        "Spent: the sum of what was proved for each answer; a question on which all models agree "
        "is free. Counted in full: every question charged, as published.",
        "Best attacker: mean over units and transcripts of the exact posterior's success.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        return tuple(
            Job(
                name=f"answers, {name}",
                function=measure_dataset,
                arguments=(name, quick),
                kind=ResponseRow,
            )
            for name in (("adult",) if quick else ("adult", "bank"))
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        page.table(
            [
                "data, output, questions",
                "b",
                "accuracy",
                "published",
                "gap",
                "published gap",
                "spent, nats",
                "success at most",
                "counted in full",
                "best attacker",
            ],
            [_cells(row) for row in rows],
        )
        cells = bound_cells()
        page.text("Success at most, after T questions of b nats each; beside the published bounds:")
        page.table(
            ["b", *[f"T = {count}" for count in BOUND_QUESTIONS], "largest difference"],
            [_bound_cells(cells, power) for power in BOUND_POWERS],
        )


def measure_dataset(dataset: str, quick: bool) -> list[ResponseRow]:
    """Return the rows of one data set."""
    answers = load_answers(dataset, n_subsets=QUICK_SUBSETS if quick else N_SUBSETS)
    rows = []
    for output, powers in POWERS.items():
        rows += measure_responses(
            dataset,
            output,
            (4, 20) if quick else powers,
            n_transcripts=2 if quick else N_TRANSCRIPTS[output],
            answers=answers,
        )
    return rows


def _cells(row: ResponseRow) -> list[str]:
    return [
        f"{row.dataset}, {row.output}, {row.n_queries}",
        f"2^-{row.neg_log2_b}",
        f"{row.accuracy:.4f} ± {row.standard_error:.4f}",
        as_number(row.published, 4),
        f"{100 * row.gap:.2f}",
        "not available" if row.published_gap is None else f"{100 * row.published_gap:.2f}",
        as_number(row.spent_nats, 3),
        as_percent(row.success),
        as_percent(row.counted_success),
        as_percent(row.attacker),
    ]


def _bound_cells(cells: Sequence[BoundCell], power: int) -> list[str]:
    chosen = [cell for cell in cells if cell.neg_log2_b == power]
    known = [abs(cell.success - cell.published) for cell in chosen if cell.published is not None]
    return [
        f"2^-{power}",
        *[f"{100 * cell.success:.4f} %" for cell in chosen],
        f"{max(known):.1e}" if known else "not available",
    ]


SECTION: Final = Responses()
