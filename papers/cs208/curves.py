"""The learners of [CS208] and their curves: accuracy against ε, for groups of methods.

Every learner is a function from a promise to released predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from sklearn.linear_model import LogisticRegression

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.dp import (
    DPCertificate,
    DPLogisticRegression,
    DPSGDClassifier,
    MeanAggregator,
    MedianAggregator,
    count_pate_votes,
    label_by_votes,
    subsample_aggregate,
)
from pacprivacy.dp.noise import dp_noise_source
from papers.charts import INK, Line, Panel, Style, draw_panels
from papers.cs208.data import STUDIES, Study, load_study
from papers.page import Page, as_number, write_csv
from papers.run import Job, Settings

DELTA: Final = 1e-5
N_TEACHERS: Final = 250
N_ASKED: Final = 300
N_BLOCKS: Final = 200
RADIUS: Final = 10.0  # of a block's weights
LARGEST_WEIGHT: Final = 3.0  # end of the grid of medians

Learned = tuple[Vector, DPCertificate]

EPSILONS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
QUICK_EPSILONS: Final = (0.1, 1.0, 4.0)
RELATIONS: Final = {"add_remove": "add or remove", "replace": "replace"}
STYLES: Final = (
    Style(colour="#0072B2", marker="o"),
    Style(colour="#D55E00", marker="s", line="--"),
    Style(colour="#009E73", marker="D", line="-."),
    Style(colour="#CC79A7", marker="^", line=":"),
)
BASELINE: Final = Style(colour=INK, line=":")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRow:
    """Accuracy of one method at one promise, over several runs."""

    study: str
    method: str
    neighbours: str
    epsilon: float
    delta: float
    accuracy: float
    standard_error: float
    no_noise: float
    noise_multiplier: float | None
    n_runs: int


def measure_curve(
    study: str, method: str, epsilons: Sequence[float], n_runs: int, seed: int
) -> list[CurveRow]:
    """Measure the accuracy of a method on test rows, for every ``ε``."""
    data, learn = load_study(study), METHODS[method]
    no_noise = non_private_accuracy(study)
    rows = []
    for place, epsilon in enumerate(epsilons):
        scores, certificate = [], None
        for run in range(n_runs):
            generator = public_generator(seed, f"{study} {method}", place, run)
            predicted, certificate = learn(study, epsilon, int(generator.integers(2**31)))
            scores.append(float(np.mean(predicted == data.y_test)))
        assert certificate is not None
        figures = certificate.accounting or {}
        spread = float(np.std(scores, ddof=1)) if n_runs > 1 else 0.0
        rows.append(
            CurveRow(
                study=study,
                method=method,
                neighbours=certificate.neighbours,
                epsilon=epsilon,
                delta=certificate.delta,
                accuracy=float(np.mean(scores)),
                standard_error=spread / float(np.sqrt(n_runs)),
                no_noise=no_noise,
                noise_multiplier=figures.get("noise multiplier"),
                n_runs=n_runs,
            )
        )
    return rows


def non_private_accuracy(study: str) -> float:
    """Return the test accuracy of logistic regression without any noise."""
    data = load_study(study)
    model = LogisticRegression(C=10.0, max_iter=500, tol=1e-3).fit(
        scaled_rows(data, data.X), data.y
    )
    return float(model.score(scaled_rows(data, data.X_test), data.y_test))


def scaled_rows(data: Study, X: Matrix) -> Matrix:
    """Divide by the bound, clip to norm 1, append a constant: what every method is given."""
    scaled = X / data.x_bound
    scaled /= np.maximum(1.0, np.linalg.norm(scaled, axis=1, keepdims=True))
    return np.column_stack([scaled, np.ones(len(scaled))])


# The notes' descent: one step length, neither momentum nor Adam.
PLAIN: Final[dict[str, Any]] = {"learning_rate": 16.0, "momentum": 0.0, "squares": 0.0}


def _declared(data: Study, epsilon: float, seed: int) -> dict[str, Any]:
    return {
        "epsilon": epsilon,
        "delta": DELTA,
        "x_bound": data.x_bound,
        "classes": data.classes,
        "random_state": seed,
        "simulate": True,
    }


def _sgd(**settings: Any) -> Callable[[str, float, int], Learned]:
    def learn(study: str, epsilon: float, seed: int) -> Learned:
        data = load_study(study)
        batch_size = data.n_public // 20
        used = {"n_steps": 300, "batch_size": batch_size} | PLAIN | settings
        model = DPSGDClassifier(
            **_declared(data, epsilon, seed), n_public=data.n_public, **used
        ).fit(data.X, data.y)
        return model.predict(data.X_test), model.certificate_

    return learn


def _logistic(**settings: Any) -> Callable[[str, float, int], Learned]:
    def learn(study: str, epsilon: float, seed: int) -> Learned:
        data = load_study(study)
        model = DPLogisticRegression(
            **_declared(data, epsilon, seed), n_public=data.n_public, **settings
        ).fit(data.X, data.y)
        return model.predict(data.X_test), model.certificate_

    return learn


def _aggregate(median: bool) -> Callable[[str, float, int], Learned]:
    def learn(study: str, epsilon: float, seed: int) -> Learned:
        data = load_study(study)
        rows = scaled_rows(data, data.X)
        aggregator = (
            MedianAggregator(bounds=(-LARGEST_WEIGHT, LARGEST_WEIGHT), n_points=51)
            if median
            else MeanAggregator(clip_norm=RADIUS)
        )
        release = subsample_aggregate(
            _fit_block,
            (rows, 2 * (data.y == data.classes[1]) - 1),
            n_blocks=N_BLOCKS,
            size=rows.shape[1],
            aggregator=aggregator,
            epsilon=epsilon,
            delta=DELTA,
            simulate=seed,
        )
        return _answer(data, scaled_rows(data, data.X_test) @ release.value), release.certificate

    return learn


def _fit_block(rows: Matrix, signs: Vector) -> Vector:
    model = LogisticRegression(C=10.0, fit_intercept=False, tol=1e-2).fit(rows, signs)
    weights: Vector = model.coef_[0]
    return weights


def _pate(study: str, epsilon: float, seed: int) -> Learned:
    data = load_study(study)
    asked = scaled_rows(data, data.questions)[:N_ASKED]
    votes = count_pate_votes(
        LogisticRegression(C=10.0, tol=1e-2, max_iter=300),
        scaled_rows(data, data.X),
        data.y,
        asked,
        classes=data.classes,
        n_teachers=N_TEACHERS,
        neighbours="add_remove",
        source=dp_noise_source(seed),
    )
    release = label_by_votes(
        votes, epsilon=epsilon, delta=DELTA, neighbours="add_remove", simulate=seed + 1
    )
    answers = np.asarray(data.classes)[release.value]
    if len(np.unique(answers)) == 1:
        return np.full(len(data.y_test), answers[0]), release.certificate
    student = LogisticRegression(C=10.0, max_iter=500).fit(asked, answers)
    return student.predict(scaled_rows(data, data.X_test)), release.certificate


def _answer(data: Study, scores: Vector) -> Vector:
    return np.where(scores > 0, data.classes[1], data.classes[0])


METHODS: Final[dict[str, Callable[[str, float, int], Learned]]] = {
    "DP-GD": _logistic(method="descent", n_steps=120, **PLAIN),
    "DP-SGD": _sgd(),
    "DP-SGD, average": _sgd(average=True),
    "DP-SGD, hinge": _sgd(loss="hinge"),
    "Poisson": _sgd(),
    "fixed size": _sgd(sampling="fixed"),
    "with replacement": _sgd(sampling="replacement"),
    "output": _logistic(method="output", C=0.05),
    "objective": _logistic(method="objective", C=0.05),
    "S&A, mean": _aggregate(median=False),
    "S&A, median": _aggregate(median=True),
    "PATE": _pate,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSection:
    """Some methods on both data sets: a plot, and a table for each data set."""

    name: str
    title: str
    covers: str
    notes: tuple[str, ...]
    methods: tuple[str, ...]

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        epsilons = QUICK_EPSILONS if quick else EPSILONS
        return tuple(
            Job(
                name=f"{STUDIES[study]}, {method}",
                function=measure_curve,
                arguments=(study, method, epsilons, settings.n_trials, settings.seed),
                kind=CurveRow,
            )
            for study in STUDIES
            for method in self.methods
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        names = list(dict.fromkeys(row.study for row in rows))
        epsilons = sorted({row.epsilon for row in rows})
        picture = draw_panels(
            stem.with_suffix(".png"),
            [self._panel([row for row in rows if row.study == name]) for name in names],
            title=f"{self.title}: accuracy on test rows",
            xlabel="ε, at δ = 1e-5",
            ticks=[(epsilon, f"{epsilon:g}") for epsilon in epsilons],
        )
        page.image(picture, f"{self.title}: accuracy against ε")
        for name in names:
            self._write_study(page, [row for row in rows if row.study == name])

    def _panel(self, rows: Sequence[CurveRow]) -> Panel:
        lines = [
            Line.of(
                method,
                STYLES[place],
                [row for row in rows if row.method == method],
                "accuracy",
                x="epsilon",
            )
            for place, method in enumerate(self.methods)
        ]
        level = Line.level("no privacy", BASELINE, rows[0].no_noise)
        return Panel(title=STUDIES[rows[0].study], ylabel="accuracy", lines=(*lines, level))

    def _write_study(self, page: Page, rows: Sequence[CurveRow]) -> None:
        cells = {(row.method, row.epsilon): row for row in rows}
        page.heading(STUDIES[rows[0].study], level=3)
        page.text(
            f"Accuracy, mean ± standard error of {rows[0].n_runs} simulated runs. Without privacy: "
            f"{as_number(rows[0].no_noise)}."
        )
        relations = {row.method: RELATIONS[row.neighbours] for row in rows}
        page.table(
            ["ε", *(f"{method} ({relations[method]})" for method in self.methods)],
            [
                [f"{epsilon:g}", *(_measured(cells[method, epsilon]) for method in self.methods)]
                for epsilon in sorted({row.epsilon for row in rows})
            ],
        )
        if all(row.noise_multiplier is not None for row in rows):
            page.text("Noise of a sum of gradients, over the clipping norm:")
            page.table(
                ["ε", *self.methods],
                [
                    [f"{epsilon:g}", *(_noise(cells[method, epsilon]) for method in self.methods)]
                    for epsilon in sorted({row.epsilon for row in rows})
                ],
            )


def _measured(row: CurveRow) -> str:
    return f"{row.accuracy:.4f} ± {row.standard_error:.1g}"


def _noise(row: CurveRow) -> str:
    return as_number(row.noise_multiplier)


DESCENT: Final = CurveSection(
    name="descent",
    title="Private descent",
    covers="the course's DP-GD and DP-SGD, with clipping, noise and averaging",
    notes=(
        "DP-GD looks at all records in each of 120 steps; DP-SGD at a Poisson batch of a twentieth "
        "of them in each of 300. Step length 16 for rows of norm 1, clipping norm 0.5.",
        "Clipping is v · min(1, C/|v|); the slides print max, which bounds nothing.",
        "On Adult the average iterate trails the last one: it contains the first steps from zero.",
    ),
    methods=("DP-GD", "DP-SGD", "DP-SGD, average", "DP-SGD, hinge"),
)
BATCHES: Final = CurveSection(
    name="batches",
    title="Three kinds of batches",
    covers="sampling with and without replacement, and Poisson sampling",
    notes=(
        "The same steps with batches of the same (expected) size. The columns are about different "
        "neighbours: Poisson batches protect against adding or removing a record, the others "
        "against replacing one, which moves a sum twice as far.",
    ),
    methods=("Poisson", "fixed size", "with replacement"),
)
PERTURBATION: Final = CurveSection(
    name="perturbation",
    title="Perturbed outputs and objectives",
    covers="output perturbation and objective perturbation of regularised logistic regression",
    notes=(
        "Logistic regression with penalty 20 |w|²/2 on the sum of losses, rows of norm 1 and a "
        "constant. DP-SGD is repeated for comparison.",
    ),
    methods=("output", "objective", "DP-SGD"),
)
AGGREGATE: Final = CurveSection(
    name="aggregate",
    title="Blocks of records: aggregates and votes",
    covers="subsample and aggregate, and PATE",
    notes=(
        "Subsample and aggregate: logistic regressions on 200 blocks; the mean of weights that "
        "are scaled down to norm 10, or medians from a grid. Medians are chosen for each of 109 "
        "or 197 weights with a share of ε each, which teaches little below ε = 4.",
        "PATE: 250 teachers answer 300 public questions (rows of the test split, not used for "
        "the accuracy); a student learns from the answers. ε is for any votes.",
    ),
    methods=("S&A, mean", "S&A, median", "PATE", "DP-SGD"),
)
