"""Figure 2 of [RPAC]: noise on the mean of Iris and Rice, rule by rule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix
from pacprivacy._random import public_generator
from pacprivacy.noise import calibrate
from pacprivacy.residual import LearnedNoise, Training, learn_noise_curve
from pacprivacy.sample import Balanced, Pool
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import Mean
from papers.alg.protocol import DATASETS, load_split
from papers.charts import Panel, draw_panels
from papers.page import Page, as_budget, as_number, write_csv
from papers.residual.laws import (
    FULL_TRAINING,
    QUICK_TRAINING,
    STYLES,
    VERSIONS,
    Law,
    Measure,
    NoiseRow,
    law_of_dp,
    law_of_learned,
    law_of_printed_dp,
    law_of_rule,
    measure_law,
    noise_order,
    panel,
)
from papers.run import Job, Settings
from papers.simulate import budget_of

RULES: Final = {
    "Efficient-PAC": "diagonal",
    "Auto-PAC (A.2)": "spectral",
    "Auto-PAC (least trace)": "waterfill",
    "exact": "exact",
}


def measure_means(dataset: str, settings: Settings, training: Training) -> Iterator[NoiseRow]:
    """Measure every rule on the means of one data set, at equal claims and at equal truth."""
    universe = load_split(dataset, "min-max").X_train
    rng = public_generator(settings.seed, f"{dataset} residual mean")
    pool = Balanced(n_subsets=settings.n_subsets).draw(len(universe), rng=rng)
    values = run_mechanism(Mean(), universe, pool, rng=settings.seed).values
    measure = Measure(
        dataset=dataset,
        values=values,
        n_draws=settings.n_releases,
        n_releases=0,
        seed=settings.seed,
    )
    learned: Sequence[LearnedNoise | None] = [None] * len(settings.mi_budgets)
    if find_spec("optax") is not None:  # of the extra [jax], as is jax
        learned = learn_noise_curve(
            values, settings.mi_budgets, training=training, rng=settings.seed
        )
    for mi_nats, noise in zip(settings.mi_budgets, learned, strict=True):
        laws = [
            law_of_rule(method, values, rule, mi_nats, settings.seed)
            for method, rule in RULES.items()
        ]
        if noise is not None:
            laws.append(law_of_learned("SR-PAC, learned", noise))
        for law in laws:
            yield measure_law(law, mi_nats, "equal claim", measure)
            scaled = law.at_true_information(values, mi_nats, settings.seed)
            yield measure_law(scaled, mi_nats, "equal truth", measure)
        if mi_nats < math.log(2):
            clip = float(
                np.linalg.norm(universe, axis=1).max()
            )  # the largest row: nothing is clipped
            for law in (
                _differential(values, len(universe) // 2, mi_nats),
                law_of_printed_dp(values.shape[1], len(universe), mi_nats, clip=clip),
                _risk(values, pool, mi_nats, settings.seed),
            ):
                yield measure_law(law, mi_nats, "equal claim", measure)


def _differential(values: Matrix, n_records: int, mi_nats: float) -> Law:
    """Return DP's Gaussian noise; features in [0, 1] about 1/2 have norm at most sqrt(d)/2."""
    dimension = values.shape[1]
    reach = 2 * (math.sqrt(dimension) / 2) / n_records  # a record is replaced by another
    return law_of_dp(dimension, mi_nats, sensitivity=reach)


def _risk(values: Matrix, pool: Pool, mi_nats: float, seed: int) -> Law:
    plan = calibrate(values, budget_of("risk", mi_nats), rule="risk", pool=pool, rng=seed)
    return Law(method="risk", covariance=plan.noise_covariance(), claimed_nats=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanFigure:
    """The section on means."""

    name: str = "mean"
    title: str = "Noise on a mean"
    covers: str = "Figure 2"
    notes: tuple[str, ...] = (
        "Features are scaled to [0, 1]; the secret is one of the halves of a balanced pool.",
        "*Equal claim*: every rule meets the budget in its own reckoning: the proved bound of a "
        "PAC rule, or what the decoder of SR-PAC sees. The last is **not a proof**, and the true "
        "information stands beside it.",
        "Noise is learned with the extra `[jax]` only.",
        "*Equal truth*: each rule's noise is scaled until the exact adversary learns the budget.",
        "`DP, as printed` is the paper's line: ε from Eq 15 at δ = 1e-5, noise on the sum of rows "
        "of the largest norm, divided by a random number of members. That number is private, so "
        "the line promises nothing.",
        "`DP Gaussian` is the Gaussian mechanism (no record clipped) whose own membership success "
        "is what the budget implies, and `risk` bounds the guess of one record's membership at "
        "that success: other promises than the budget, so they are not scaled. From ln 2 nats on "
        "they have nothing to limit.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        training = QUICK_TRAINING if quick else FULL_TRAINING
        return tuple(
            Job(
                name=f"{DATASETS[name]}, noise on the mean",
                function=measure_means,
                arguments=(name, settings, training),
                kind=NoiseRow,
            )
            for name in (("iris",) if quick else ("iris", "rice"))
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        names = list(dict.fromkeys(row.dataset for row in rows))
        budgets = sorted({row.mi_nats for row in rows})
        picture = draw_panels(
            stem.with_suffix(".png"),
            [one for name in names for one in _panels(rows, name)],
            title="Mean: total noise variance",
            xlabel="budget in nats",
            ticks=[(mi, as_budget(mi)) for mi in budgets],
        )
        page.image(picture, "noise on the mean against the budget")
        for name in names:
            page.heading(DATASETS[name], level=3)
            mine = [row for row in rows if row.dataset == name]
            page.bullets([noise_order(mine, version, budgets[0]) for version in VERSIONS])
            _write_table(page, mine)


def _panels(rows: Sequence[NoiseRow], name: str) -> list[Panel]:
    """Return noise at equal claims and at equal truth, and the first relative to ``exact``."""
    panels = []
    for version in VERSIONS:
        mine = [row for row in rows if (row.dataset, row.version) == (name, version)]
        title = f"{DATASETS[name]}, {version}"
        panels.append(panel(mine, title=title, ylabel="noise variance", field="noise_variance"))
    mine = [row for row in rows if (row.dataset, row.version) == (name, "equal claim")]
    least = {row.mi_nats: row.noise_variance for row in mine if row.method == "exact"}
    ratios = [
        replace(row, noise_variance=row.noise_variance / least[row.mi_nats])
        for row in mine
        if row.claimed_nats is not None and row.mi_nats in least
    ]
    if ratios:
        title = f"{DATASETS[name]}, equal claim"
        panels.append(panel(ratios, title=title, ylabel="noise / exact", field="noise_variance"))
    return panels


def _write_table(page: Page, rows: Sequence[NoiseRow]) -> None:
    """Put noise, claim and truth of every rule and budget on the page."""
    truth = {(r.method, r.mi_nats): r for r in rows if r.version == "equal truth"}
    order = list(STYLES)
    claimed = sorted(
        (r for r in rows if r.version == "equal claim"),
        key=lambda r: (r.mi_nats, order.index(r.method)),
    )
    page.table(
        ["rule", "budget", "claimed, nats", "true, nats", "noise", "noise at equal truth"],
        [
            [
                row.method,
                as_budget(row.mi_nats),
                "another promise" if row.claimed_nats is None else as_number(row.claimed_nats, 4),
                as_number(row.true_nats, 4),
                f"{row.noise_variance:.3g}",
                f"{truth[row.method, row.mi_nats].noise_variance:.3g}"
                if (row.method, row.mi_nats) in truth
                else "not scaled",
            ]
            for row in claimed
        ],
    )


SECTION: Final = MeanFigure()
