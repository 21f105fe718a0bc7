"""Table 2 of [ALG]: the mean, with noise for all records together and record by record.

The published per-record ("individual") noise looks, for every record, at how far the mean of a
half moves when that record takes another one's place. Nothing is proved about it, so its true
success is measured here. Our rule ``risk`` is per-record accounting with a proof. The printed PAC
column used this variance as a *standard deviation*, and the printed DP column adds Laplace noise
to each coordinate for a bound on the Euclidean norm: both are recomputed as printed, and labelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.special import expit

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.adversary import membership_risk
from pacprivacy.noise import AxisFrame, NoisePlan, calibrate
from pacprivacy.noise.plan import make_plan, proportional
from pacprivacy.sample import Balanced, Pool
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import Mean
from pacprivacy.theory import (
    epsilon_equivalent,
    posterior_success,
)
from papers.agreement import Cell, Comparison
from papers.alg.protocol import DATASETS, load_split
from papers.charts import BUDGET_LABEL, Line, Panel, Style, budget_ticks, draw_panels
from papers.page import Page, as_budget, as_number, as_percent, write_csv
from papers.run import Job, Settings
from papers.simulate import budget_of, simulate_fresh, simulate_pool

BUDGETS: Final = (1 / 64, 1 / 16, 1 / 4)
CLIP_STEPS: Final = 100  # thresholds that the printed DP row chooses from
AS_PRINTED: Final = "individual, as printed"
DP_AS_PRINTED: Final = "DP, as printed"
STYLES: Final = {
    "diagonal": ("paper's rule", Style(colour="#D55E00", marker="s")),
    "individual": ("one record swapped (no proof)", Style(colour="#E69F00", marker="^")),
    AS_PRINTED: (
        "as printed: that variance as standard deviation (unsound)",
        Style(colour="#E69F00", marker="^", line=":", hollow=True),
    ),
    "exact": ("exact, same information", Style(colour="#0072B2", marker="D", line="-.")),
    "risk": ("risk, same guaranteed success", Style(colour="#009E73", marker="o")),
    "risk folds": ("the same, all but a fold", Style(colour="#CC79A7", marker="v")),
    DP_AS_PRINTED: (
        "DP as printed: Laplace for a Euclidean clip (unsound)",
        Style(colour="#56B4E9", marker="P", line=":", hollow=True),
    ),
}
# Printed pairs at 1/4, 1/16 and 1/64: distance after clipping (DP) or subsampling (PAC), and after
# the noise. The spread is what the table itself shows, since subsampling knows of no budget; for
# Dry Bean half a digit and two standard errors of 1000 releases.
PRINTED_BUDGETS: Final = (1 / 4, 1 / 16, 1 / 64)
PRINTED: Final = {
    ("iris", DP_AS_PRINTED): ((0.004, 0.02), (0.012, 0.05), (0.012, 0.09)),
    ("iris", AS_PRINTED): ((0.043, 0.043), (0.046, 0.046), (0.043, 0.048)),
    ("rice", DP_AS_PRINTED): ((0.002, 0.002), (0.002, 0.004), (0.002, 0.007)),
    ("rice", AS_PRINTED): ((0.008, 0.008), (0.007, 0.007), (0.008, 0.008)),
    ("dry_bean", DP_AS_PRINTED): ((0.0, 0.001), (0.0, 0.002), (0.0, 0.004)),
    ("dry_bean", AS_PRINTED): ((0.005, 0.005), (0.005, 0.005), (0.005, 0.005)),
}
PRINTED_SPREAD: Final = {"iris": 0.003, "rice": 0.001, "dry_bean": 0.0007}
ROUNDING: Final = 0.0005
COARSE_ROUNDING: Final = 0.005  # of the noisy DP distances of Iris, which have two decimals

REASONS: Final = {
    AS_PRINTED: "what is swapped, and how often, is not printed",
    DP_AS_PRINTED: "distance is flat in the clip: the best clip varies",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanRow:
    """The mean of one data set under one rule.

    ``success`` is what the budget implies; ``true_success`` what the best attacker achieves on
    the worst-placed record (the estimate and its upper bound). ``distance`` is from the mean of
    the universe; ``distance_no_noise`` that of the subset alone.
    """

    dataset: str
    rule: str
    mi_nats: float
    success: float
    true_success: float
    true_success_upper: float
    noise_variance: float
    distance: float
    distance_no_noise: float
    n_subsets: int
    n_releases: int


def _release(
    plan: NoisePlan, universe: Matrix, values: Matrix, n_releases: int, rng: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """Return releases and the means they are of: fresh halves in the paper's own protocol."""
    if plan.rule != "individual":
        return simulate_pool(plan, n_releases, rng), values
    half = len(universe) // 2
    orders = (rng.permutation(len(universe))[:half] for _ in range(n_releases))
    fresh = np.array([universe[order].mean(axis=0) for order in orders])
    assert isinstance(plan.frame, AxisFrame)
    noise_var = np.zeros(universe.shape[1])
    noise_var[plan.frame.axes] = plan.noise_std**2
    return simulate_fresh(fresh, noise_var, 1, rng), fresh


def swap_variances(universe: Matrix, *, mi_nats: float) -> Vector:
    """Return the published per-record noise: the largest over records, coordinate by coordinate.

    A record takes the place of a random member of a random half; the mean square of what that
    moves, over the square of the half's size, stands for the variance.
    """
    half = len(universe) // 2
    others = universe.var(axis=0)
    moved = (np.square(universe - universe.mean(axis=0)) + others) / half**2
    largest: Vector = np.max([proportional(row, mi_nats=mi_nats) for row in moved], axis=0)
    return largest


def measure_mean(dataset: str, settings: Settings) -> Iterator[MeanRow]:
    """Release the mean of the features, scaled to [0, 1], under every rule."""
    universe = load_split(dataset, "min-max").X_train
    goal = universe.mean(axis=0)
    for rule in [rule for rule in STYLES if not rule.startswith("DP")]:
        folds = settings.n_folds if rule == "risk folds" else 2
        rng = public_generator(settings.seed, f"{dataset} mean pool")
        pool = Balanced(n_subsets=settings.n_subsets, folds=folds).draw(len(universe), rng=rng)
        values = run_mechanism(Mean(), universe, pool, rng=settings.seed).values
        for mi_nats in BUDGETS:
            plan = _plan(rule, universe, (values, pool), mi_nats, settings.seed)
            found = membership_risk(plan.view(values), pool, rng=settings.seed)
            stream = public_generator(settings.seed, f"{dataset} mean {rule}", round(1e9 * mi_nats))
            released, subsets = _release(plan, universe, values, settings.n_releases, stream)
            alone = float(np.linalg.norm(subsets - goal, axis=1).mean())
            yield MeanRow(
                dataset=dataset,
                rule=rule,
                mi_nats=mi_nats,
                success=posterior_success(mi_nats),
                true_success=found.value,
                true_success_upper=found.upper,
                noise_variance=plan.total_variance,
                distance=float(np.linalg.norm(released - goal, axis=1).mean()),
                distance_no_noise=alone,
                n_subsets=settings.n_subsets,
                n_releases=settings.n_releases,
            )


def measure_printed_dp_mean(dataset: str, settings: Settings) -> Iterator[MeanRow]:
    """Release the mean as the printed DP row has it: the best Euclidean clip, Laplace noise.

    Unsound: not ε-DP beyond one dimension, since a record of norm C may move the sum of absolute
    entries by ``C sqrt(d)/n`` and each coordinate has noise for ``C/n``. ``true_success`` is that
    of the best attacker on such a record, added or not, and its upper bound follows from the loss
    ``ε sqrt(d)`` that the release does keep to. The choice of the clip is not paid for either.
    """
    universe = load_split(dataset, "min-max").X_train
    n, d = universe.shape
    goal, norms = universe.mean(axis=0), np.linalg.norm(universe, axis=1)
    for mi_nats in BUDGETS:
        success = posterior_success(mi_nats)
        epsilon = epsilon_equivalent(success)
        stream = public_generator(settings.seed, f"{dataset} mean DP printed", round(1e9 * mi_nats))
        unit = stream.laplace(size=(settings.n_releases, d)) / (n * epsilon)
        best = (np.inf, 0.0, 0.0)
        for clip in np.linspace(norms.max() / CLIP_STEPS, norms.max(), CLIP_STEPS):
            clipped = (universe * np.minimum(1.0, clip / norms)[:, None]).mean(axis=0)
            distance = float(np.linalg.norm(clipped + clip * unit - goal, axis=1).mean())
            best = min(best, (distance, float(clip), float(np.linalg.norm(clipped - goal))))
        distance, clip, alone = best
        draws = stream.laplace(size=(200_000, d))
        loss = (np.abs(draws + epsilon / d**0.5) - np.abs(draws)).sum(axis=1)
        yield MeanRow(
            dataset=dataset,
            rule=DP_AS_PRINTED,
            mi_nats=mi_nats,
            success=success,
            true_success=0.5 + 0.5 * float(np.maximum(0.0, -np.expm1(-loss)).mean()),
            true_success_upper=float(expit(epsilon * d**0.5)),
            noise_variance=2 * d * (clip / (n * epsilon)) ** 2,
            distance=distance,
            distance_no_noise=alone,
            n_subsets=0,
            n_releases=settings.n_releases,
        )


def _plan(
    rule: str, universe: Matrix, outputs: tuple[Matrix, Pool], mi_nats: float, seed: int
) -> NoisePlan:
    values, pool = outputs
    if not rule.startswith("individual"):
        used = rule.removesuffix(" folds")
        return calibrate(values, budget_of(used, mi_nats), rule=used, pool=pool, rng=seed)
    center = values.mean(axis=0)
    noise_var = swap_variances(universe, mi_nats=mi_nats)
    axes = np.flatnonzero(noise_var > 0).astype(np.int64)
    return make_plan(
        rule="individual",
        frame=AxisFrame(axes=axes, center=center),
        center=center,
        noise_std=noise_var[axes] if rule == AS_PRINTED else np.sqrt(noise_var[axes]),
        values=values,
        kind="empirical",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTable:
    """The section on the mean."""

    name: str = "mean"
    title: str = "Mean"
    covers: str = "Table 2"
    notes: tuple[str, ...] = (
        "Features are scaled to [0, 1]; all rules release from the same halves, and `risk` "
        "from all but a fold as well.",
        "Distance is |released - mean of the universe|, averaged over simulated releases; noise "
        "is its total variance.",
        "The published per-record noise swaps one record and has no proof: nothing guarantees what "
        "its true success is. `risk` accounts record by record with a proof. The printed PAC cells "
        "are met only where its variance is used as a standard deviation, as the public script of "
        "this table does: less noise than Algorithm 1 asks for.",
        "*DP as printed* clips Euclidean norms (the best of 100 thresholds, chosen for free) and "
        "adds Laplace noise to each coordinate. That is ε-DP in one dimension only: for d features "
        "the loss reaches ε √d, though the success of guessing one record stays below the promise.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        chosen = ("iris",) if quick else ("iris", "rice", "dry_bean")
        return tuple(
            Job(name=f"{DATASETS[name]}, {what}", function=measure, arguments=(name, settings))
            for name in chosen
            for what, measure in (
                ("mean", measure_mean),
                ("mean under DP as printed", measure_printed_dp_mean),
            )
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        names = list(dict.fromkeys(row.dataset for row in rows))
        picture = draw_panels(
            stem.with_suffix(".png"),
            [_panel([row for row in rows if row.dataset == name]) for name in names],
            title="Mean: total noise variance",
            xlabel=BUDGET_LABEL,
            ticks=budget_ticks(BUDGETS),
        )
        page.image(picture, "total noise variance of the mean against the budget")
        for name in names:
            page.heading(DATASETS[name], level=3)
            _write_table(page, [row for row in rows if row.dataset == name])

    def compare(self, rows: Sequence[MeanRow]) -> tuple[Comparison, ...]:
        found = {(row.dataset, row.rule, row.mi_nats): row for row in rows}
        comparisons = []
        for rule, item in ((AS_PRINTED, "Table 2, PAC"), (DP_AS_PRINTED, "Table 2, DP")):
            cells = []
            for (dataset, printed_rule), pairs in PRINTED.items():
                if printed_rule != rule or (dataset, rule, PRINTED_BUDGETS[-1]) not in found:
                    continue
                for mi_nats, (alone, noisy) in zip(PRINTED_BUDGETS, pairs, strict=True):
                    row = found[dataset, rule, mi_nats]
                    fine, coarse = _spreads(dataset, rule)
                    name = f"{DATASETS[dataset]}, {as_budget(mi_nats)}"
                    cells += [
                        Cell(
                            name=f"{name}, before noise",
                            printed=alone,
                            ours=row.distance_no_noise,
                            spread=fine,
                        ),
                        Cell(name=name, printed=noisy, ours=row.distance, spread=coarse),
                    ]
            if not cells:
                continue
            comparisons.append(
                Comparison(
                    section=self.name,
                    item=item,
                    trials=f"{rows[0].n_releases} releases",
                    cells=tuple(cells),
                    reason=REASONS[rule],
                )
            )
        return tuple(comparisons)


def _spreads(dataset: str, rule: str) -> tuple[float, float]:
    """Return how much the table leaves open before the noise and after it."""
    if rule == AS_PRINTED:
        return PRINTED_SPREAD[dataset], PRINTED_SPREAD[dataset]
    return ROUNDING, COARSE_ROUNDING if dataset == "iris" else ROUNDING


def _panel(rows: Sequence[MeanRow]) -> Panel:
    lines = tuple(
        Line.of(label, style, [row for row in rows if row.rule == rule], "noise_variance")
        for rule, (label, style) in STYLES.items()
    )
    title = f"{DATASETS[rows[0].dataset]}, mean"
    return Panel(title=title, ylabel="noise variance", lines=lines, log_y=True)


def _write_table(page: Page, rows: Sequence[MeanRow]) -> None:
    alone = {row.rule: row.distance_no_noise for row in rows}
    half, fold = alone["diagonal"], alone["risk folds"]
    page.text(
        f"Distance without noise: {as_number(half)} for half the data, {as_number(fold)} for all "
        "but a fold."
    )
    page.table(
        ["rule", "budget, nats", "success <=", "true worst success", "noise", "distance"],
        [
            [
                STYLES[row.rule][0],
                as_budget(row.mi_nats),
                as_percent(row.success),
                f"{100 * row.true_success:.1f} %",
                f"{row.noise_variance:.3g}",
                as_number(row.distance),
            ]
            for row in rows
        ],
    )


SECTION: Final = MeanTable()
