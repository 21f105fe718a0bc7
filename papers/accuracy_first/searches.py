"""The searches of [AF], many times: what they cost and reach, against the accuracy asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._random import SimulatedSource, public_generator
from pacprivacy.dp.accuracy_first import (
    Calibration,
    LogisticProblem,
    RidgeProblem,
    SearchCandidates,
    SearchOutcome,
    search_by_doubling,
    search_by_reduction,
    search_by_theory,
)
from papers.accuracy_first.data import STUDIES, Study, printed_epsilon, sure_epsilon
from papers.agreement import Cell, Comparison
from papers.charts import Line, Panel, Style, draw_panels
from papers.page import Page, as_number, write_csv
from papers.run import Job, Settings

GAMMA: Final = 0.1
N_LEVELS: Final = 1000
CALIBRATIONS: Final[tuple[Calibration, ...]] = ("tight", "theorem")
METHODS: Final = (*CALIBRATIONS, "doubling", "printed", "sure")
LABELS: Final = {
    "tight": "noise reduction, tight test",
    "theorem": "noise reduction, theorem's test",
    "doubling": "doubling",
    "printed": "theory, as printed (on average)",
    "sure": "theory, ours (probability 0.9)",
}
STYLES: Final = {
    "tight": Style(colour="#0072B2", marker="o"),
    "theorem": Style(colour="#56B4E9", marker="D", line="-."),
    "doubling": Style(colour="#D55E00", marker="s"),
    "printed": Style(colour="#777777", marker="^", line="--"),
    "sure": Style(colour="#CC79A7", marker="v", line=":"),
}
PARTS: Final = {
    ("tight", "test_epsilon"): ("noise reduction: its test", Style(colour="#0072B2", marker="x")),
    ("tight", "level_epsilon"): (
        "noise reduction: its level",
        Style(colour="#009E73", marker="o", line="-."),
    ),
    ("doubling", "test_epsilon"): (
        "doubling: its tests",
        Style(colour="#D55E00", marker="+", line="--"),
    ),
    ("doubling", "level_epsilon"): (
        "doubling: its releases",
        Style(colour="#E69F00", marker="s", line=":"),
    ),
}
ASKED: Final = Style(colour="#333333", line=":")
N_CHUNKS: Final = 4
PRINTED_FACTORS: Final = {0.05: 10.0, 0.075: 4.65}  # e^ε of noise reduction
ALPHAS: Final = tuple(round(0.005 * i, 3) for i in range(1, 41))  # the paper's


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """What one method cost and reached at one accuracy, over some runs.

    ``epsilon`` is the mean ex-post loss, the sum of ``test_epsilon`` and ``level_epsilon``;
    ``share_accurate`` the share of runs with an excess risk of at most ``alpha``. ``norm`` is of
    the models released, ``norm_without_noise`` of the optimum.
    """

    study: str
    n_records: int
    n_features: int
    penalty: float
    method: str
    alpha: float
    gamma: float
    epsilon: float
    standard_error: float
    test_epsilon: float
    level_epsilon: float
    excess_risk: float
    largest_excess: float
    share_accurate: float
    share_accepted: float
    level: float
    n_levels: int
    norm: float
    norm_without_noise: float
    n_runs: int

    @property
    def relative_excess(self) -> float:
        """Excess risk over what was asked for."""
        return self.excess_risk / self.alpha


def end_as_printed(
    outcome: SearchOutcome, problem: RidgeProblem | LogisticProblem
) -> SearchOutcome:
    """Return what Algorithms 3 and 5 do where nothing passes: (⊥, θ*), with an infinite loss.

    The optimum leaves without noise. The library releases the last level in its place, whose loss
    is known beforehand.
    """
    if outcome.accepted:
        return outcome
    return replace(outcome, model=problem.best.copy(), level_epsilon=math.inf)


def measure_study(name: str, alphas: tuple[float, ...], n_runs: int, seed: int) -> list[SearchRow]:
    """Return one row for every accuracy and method."""
    study = STUDIES[name]
    problem = study.prepare(seed)
    return [row for alpha in alphas for row in _measure(study, problem, alpha, n_runs, seed)]


def _measure(
    study: Study,
    problem: RidgeProblem | LogisticProblem,
    alpha: float,
    n_runs: int,
    seed: int,
) -> Iterator[SearchRow]:
    printed = printed_epsilon(problem, alpha)
    sure = sure_epsilon(problem, alpha, GAMMA)
    outcomes: dict[str, list[SearchOutcome]] = {method: [] for method in METHODS}
    for run in range(n_runs):
        # The stream is named by its cell, so results do not depend on which others are run.
        stream = public_generator(seed, study.name, round(1e6 * alpha), run)
        source = SimulatedSource(stream)
        # The two tests look at the same candidates: half the work, and a paired comparison.
        candidates = SearchCandidates(problem, alpha=alpha, n_levels=N_LEVELS, source=source)
        for calibration in CALIBRATIONS:
            outcomes[calibration].append(
                search_by_reduction(
                    candidates, alpha=alpha, gamma=GAMMA, calibration=calibration, source=source
                )
            )
        outcomes["doubling"].append(
            search_by_doubling(problem, alpha=alpha, gamma=GAMMA, source=source)
        )
        outcomes["printed"].append(search_by_theory(problem, epsilon=printed, source=source))
        outcomes["sure"].append(search_by_theory(problem, epsilon=sure, source=source))
    for method in METHODS:
        yield _summarise(study, problem, method, alpha, outcomes[method])


def _summarise(
    study: Study,
    problem: RidgeProblem | LogisticProblem,
    method: str,
    alpha: float,
    outcomes: list[SearchOutcome],
) -> SearchRow:
    losses = np.array([run.epsilon for run in outcomes])
    models = np.array([run.model for run in outcomes])
    excess = problem.excess_risk(models)
    return SearchRow(
        study=study.name,
        n_records=problem.n_records,
        n_features=len(problem.best),
        penalty=problem.penalty,
        method=method,
        alpha=alpha,
        gamma=GAMMA,
        epsilon=float(losses.mean()),
        standard_error=float(losses.std(ddof=1) / np.sqrt(len(losses))),
        test_epsilon=float(np.mean([run.test_epsilon for run in outcomes])),
        level_epsilon=float(np.mean([run.level_epsilon for run in outcomes])),
        excess_risk=float(excess.mean()),
        largest_excess=float(excess.max()),
        share_accurate=float((excess <= alpha).mean()),
        share_accepted=float(np.mean([run.accepted for run in outcomes])),
        level=float(np.mean([run.level for run in outcomes])),
        n_levels=outcomes[0].n_levels,
        norm=float(np.linalg.norm(models, axis=1).mean()),
        norm_without_noise=float(np.linalg.norm(problem.best)),
        n_runs=len(outcomes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSection:
    """One or two data sets: loss, its parts, and the excess risk, for every accuracy."""

    name: str
    title: str
    covers: str
    notes: tuple[str, ...]
    studies: tuple[tuple[str, int], ...]  # names, and how many times fewer runs
    alphas: tuple[float, ...]
    quick_studies: tuple[str, ...]
    quick_alphas: tuple[float, ...]

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        jobs = []
        for name, fewer in self.studies:
            if quick and name not in self.quick_studies:
                continue
            alphas = self.quick_alphas if quick else self.alphas
            n_runs = max(3, settings.n_releases // fewer)
            chunks = [alphas[i::N_CHUNKS] for i in range(N_CHUNKS)]
            jobs += [
                Job(
                    name=f"{STUDIES[name].title}, {len(chunk)} accuracies from {chunk[0]}",
                    function=measure_study,
                    arguments=(name, chunk, n_runs, settings.seed),
                    kind=SearchRow,
                )
                for chunk in ([alphas] if quick else chunks)
            ]
        return tuple(jobs)

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        ordered = sorted(rows, key=lambda row: (list(STUDIES).index(row.study), row.alpha))
        write_csv(stem.with_suffix(".csv"), ordered)
        names = list(dict.fromkeys(row.study for row in ordered))
        alphas = sorted({row.alpha for row in ordered})
        picture = draw_panels(
            stem.with_suffix(".png"),
            [p for name in names for p in _panels([row for row in ordered if row.study == name])],
            title=self.title,
            xlabel="excess risk asked for, α",
            ticks=[(alpha, f"{alpha:g}") for alpha in alphas if _shown(alpha)],
        )
        page.image(picture, "privacy loss, its parts and excess risk against the accuracy")
        for name in names:
            _write_study(page, [row for row in ordered if row.study == name])

    def compare(self, rows: Sequence[SearchRow]) -> tuple[Comparison, ...]:
        cells = tuple(
            Cell(
                name=f"noise reduction at α = {row.alpha:g}",
                printed=PRINTED_FACTORS[row.alpha],
                ours=math.exp(row.epsilon),
            )
            for row in rows
            if row.study == "kdd99_ridge"
            and row.method == "theorem"
            and row.alpha in PRINTED_FACTORS
        )
        if not cells:
            return ()
        n_runs = min(row.n_runs for row in rows)
        item = Comparison(
            section=self.name,
            item="Section 4, e^ε",
            trials=f"{n_runs} runs on KDD-99",
            cells=cells,
            reason="the printed factors contradict Theorem 3.2 (errata)",
        )
        return (item,)


def _shown(alpha: float) -> bool:
    """Whether there is room for a tick: 0.005, 0.01, 0.02, 0.05, 0.075, 0.1, 0.2."""
    rounded = f"{alpha:.0e}"
    has_tick = rounded[0] in "125" and abs(alpha - float(rounded)) < 1e-12
    return has_tick or alpha in PRINTED_FACTORS


def _panels(rows: Sequence[SearchRow]) -> tuple[Panel, ...]:
    title = STUDIES[rows[0].study].title
    chosen = {method: [row for row in rows if row.method == method] for method in METHODS}
    losses, excesses = (
        tuple(Line.of(LABELS[m], STYLES[m], chosen[m], field, x="alpha") for m in METHODS)
        for field in ("epsilon", "relative_excess")
    )
    parts = tuple(
        Line.of(label, style, chosen[method], part, x="alpha")
        for (method, part), (label, style) in PARTS.items()
    )
    goal = Line.level("asked for", ASKED, 1.0)
    return (
        Panel(title=title, ylabel="mean privacy loss ε", lines=losses, log_y=True),
        Panel(title="parts of the loss", ylabel="mean privacy loss ε", lines=parts, log_y=True),
        Panel(title="accuracy", ylabel="mean excess risk / α", lines=(*excesses, goal), log_y=True),
    )


def _write_study(page: Page, rows: Sequence[SearchRow]) -> None:
    first = rows[0]
    page.heading(STUDIES[first.study].title, level=3)
    page.text(
        f"n = {first.n_records}, λ = {first.penalty:g}; {first.n_runs} runs for each cell. Without "
        f"noise the model has norm {as_number(first.norm_without_noise)}."
    )
    # The file has all accuracies; the table those with a tick.
    page.table(
        ["α, method", "loss ε", "± s.e.", "tests", "level", "excess risk", "runs <= α", "norm"],
        [
            [
                f"{row.alpha:g}, {LABELS[row.method]}",
                as_number(row.epsilon),
                as_number(row.standard_error),
                as_number(row.test_epsilon),
                as_number(row.level_epsilon),
                as_number(row.excess_risk, 4),
                f"{100 * row.share_accurate:.0f} %",
                as_number(row.norm),
            ]
            for row in rows
            if _shown(row.alpha)
        ],
    )


LOGISTIC: Final = SearchSection(
    name="logistic",
    title="Logistic regression by output perturbation",
    covers="the logistic halves of Figures 1 to 4",
    notes=(
        "KDD-99: 100 000 rows drawn at random from the published tenth; the 38 columns that are "
        "numbers, the three longest-tailed as logarithms; attack or not. Rows are divided by the "
        "largest sum of absolute entries, as published: a bound that is read off the data, which a "
        "real release must not do.",
        "The radius is sqrt(0.2785/λ) instead of the paper's sqrt(2 ln 2/λ) (claim AF-9): smaller "
        "by 2.2, and with it the sensitivity of every test.",
    ),
    studies=(("kdd99", 2),),
    alphas=ALPHAS,
    quick_studies=("kdd99",),
    quick_alphas=(0.01, 0.1),
)
RIDGE: Final = SearchSection(
    name="ridge",
    title="Ridge regression from perturbed sums",
    covers="the ridge halves of Figures 1 to 4",
    notes=(
        "The paper's Twitter data are **not available**. In their place: white wine with products "
        "of two features (p = 77, the paper's p) and California housing with products of up to "
        "three (p = 164). With 4898 and 20 640 records instead of 100 000, all losses are larger.",
        "Features are scaled to [0, 1], rows shrunk to the median sum of absolute entries, targets "
        "divided by the largest: bounds that are read off the data, which a real release must not "
        "do.",
        "The ball has radius 1/(2 sqrt(λ)) instead of the paper's 1/sqrt(λ), and products of two "
        "features are perturbed once instead of twice (claim AF-8). `theory, as printed` keeps the "
        "paper's constants.",
    ),
    studies=(("wine_2", 4), ("california_3", 16)),
    alphas=(0.01, 0.02, 0.05, 0.1, 0.2),
    quick_studies=("wine_2",),
    quick_alphas=(0.02, 0.1),
)
HEADLINE: Final = SearchSection(
    name="headline",
    title="Ridge regression with the numbers of Appendix B.1",
    covers="Section 4's privacy risk factors, and the ridge halves of Figures 1 to 4 on other data",
    notes=(
        "The paper's n = 100 000, λ = 0.005, γ = 0.1, T = 1000, 40 accuracies and 80 trials, its "
        "ball of radius 1/sqrt(λ) and its noise, on KDD-99: the bytes sent, in logarithms, from "
        "the other 37 columns. The Twitter data are not available. What a test costs does not "
        "depend on the data: the theorem's tests cost exactly what they must cost in the paper.",
        "The radius 1/(2 sqrt(λ)) of `CovNR` makes every test 3.5 times cheaper than on this page.",
    ),
    studies=(("kdd99_ridge", 1),),
    alphas=ALPHAS,
    quick_studies=("kdd99_ridge",),
    quick_alphas=(0.05, 0.075),
)
