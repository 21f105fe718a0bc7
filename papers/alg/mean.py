"""Table 2 of [ALG]: the mean, with noise for all records together and record by record.

The published per-record ("individual") noise looks, for every record, at how far the output
moves to the nearest output of a subset without that record. That is a heuristic: nothing is
proved about it, so its true success is measured here. Our rule ``risk`` is per-record
accounting with a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.spatial.distance import cdist

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.adversary import membership_risk
from pacprivacy.noise import AxisFrame, NoisePlan, calibrate
from pacprivacy.noise.covariance import proportional
from pacprivacy.noise.plan import make_plan
from pacprivacy.sample import Balanced, Pool
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import Mean
from pacprivacy.theory import gaussian_equivalent, gaussian_success, posterior_success
from papers.alg.protocol import DATASETS, load_split
from papers.charts import BUDGET_LABEL, Line, Panel, Style, budget_ticks, draw_panels
from papers.page import Page, as_budget, as_number, as_percent, write_csv
from papers.run import Job, Settings
from papers.simulate import budget_of, simulate_pool

__all__ = ["SECTION", "MeanRow", "individual_variances", "measure_dp_mean", "measure_mean"]

BUDGETS: Final = (1 / 64, 1 / 16, 1 / 4)
STYLES: Final = {
    "diagonal": ("paper's rule", Style(colour="#D55E00", marker="s")),
    "individual": ("paper's per-record noise (no proof)", Style(colour="#E69F00", marker="^")),
    "exact": ("exact, same information", Style(colour="#0072B2", marker="D", line="-.")),
    "risk": ("risk, same guaranteed success", Style(colour="#009E73", marker="o")),
    "risk folds": ("the same, all but a fold", Style(colour="#CC79A7", marker="v")),
    "DP": ("differential privacy, same success", Style(colour="#56B4E9", marker="P", line="--")),
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


def individual_variances(values: Matrix, pool: Pool, *, mi_nats: float) -> Vector:
    """Return the published per-record noise: the largest over records, coordinate by coordinate."""
    distances = cdist(values, values, "sqeuclidean")
    noise_var = np.zeros(values.shape[1])
    for unit in range(pool.n_units):
        member = pool.signs(unit, unit + 1, dtype=np.int8)[:, 0] > 0
        inside, outside = np.flatnonzero(member), np.flatnonzero(~member)
        nearest = outside[distances[np.ix_(inside, outside)].argmin(axis=1)]
        moved = np.square(values[inside] - values[nearest]).mean(axis=0)
        noise_var = np.maximum(noise_var, proportional(moved, mi_nats=mi_nats))
    return noise_var


def measure_mean(dataset: str, settings: Settings) -> Iterator[MeanRow]:
    """Release the mean of the features, scaled to [0, 1], under every rule."""
    universe = load_split(dataset, "min-max").X_train
    goal = universe.mean(axis=0)
    for rule in [rule for rule in STYLES if rule != "DP"]:
        folds = settings.n_folds if rule == "risk folds" else 2
        rng = public_generator(settings.seed, f"{dataset} mean pool")
        pool = Balanced(n_subsets=settings.n_subsets, folds=folds).draw(len(universe), rng=rng)
        values = run_mechanism(Mean(), universe, pool, rng=settings.seed).values
        alone = float(np.linalg.norm(values - goal, axis=1).mean())
        for mi_nats in BUDGETS:
            plan = _plan(rule, values, pool, mi_nats, settings.seed)
            found = membership_risk(plan.view(values), pool, rng=settings.seed)
            stream = public_generator(settings.seed, f"{dataset} mean {rule}", round(1e9 * mi_nats))
            released = simulate_pool(plan, settings.n_releases, stream)
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


def measure_dp_mean(dataset: str, settings: Settings) -> Iterator[MeanRow]:
    """Release the mean of all records by the Gaussian mechanism of the same success.

    Another promise: a record may be replaced by any other in the declared box ``[0, 1]^d``, which
    moves the mean by at most ``sqrt(d)/n``; there is no secret half.
    """
    universe = load_split(dataset, "min-max").X_train
    n, d = universe.shape
    for mi_nats in BUDGETS:
        success = posterior_success(mi_nats)
        parameter = gaussian_equivalent(success)
        noise_std = d**0.5 / n / parameter
        stream = public_generator(settings.seed, f"{dataset} mean DP", round(1e9 * mi_nats))
        noise = noise_std * stream.standard_normal((settings.n_releases, d))
        yield MeanRow(
            dataset=dataset,
            rule="DP",
            mi_nats=mi_nats,
            success=success,
            true_success=gaussian_success(parameter),
            true_success_upper=success,
            noise_variance=d * noise_std**2,
            distance=float(np.linalg.norm(noise, axis=1).mean()),
            distance_no_noise=0.0,
            n_subsets=0,
            n_releases=settings.n_releases,
        )


def _plan(rule: str, values: Matrix, pool: Pool, mi_nats: float, seed: int) -> NoisePlan:
    if rule != "individual":
        used = rule.removesuffix(" folds")
        return calibrate(values, budget_of(used, mi_nats), rule=used, pool=pool, rng=seed)
    center = values.mean(axis=0)
    noise_var = individual_variances(values, pool, mi_nats=mi_nats)
    axes = np.flatnonzero(noise_var > 0).astype(np.int64)
    return make_plan(
        rule="individual",
        frame=AxisFrame(axes=axes, center=center),
        center=center,
        noise_std=np.sqrt(noise_var[axes]),
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
        "The published per-record noise has no proof: its true success is below what the budget "
        "implies here, but nothing guarantees that. `risk` accounts record by record with a proof.",
        "Differential privacy is the Gaussian mechanism on all records, at the same success of the "
        "best attacker; it is told that features are in [0, 1], and hides any replacement of a "
        "record. Without a secret half it has nothing but its noise to pay.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one piece of work per data set."""
        chosen = ("iris",) if quick else ("iris", "rice", "dry_bean")
        return tuple(
            Job(name=f"{DATASETS[name]}, {what}", function=measure, arguments=(name, settings))
            for name in chosen
            for what, measure in (("mean", measure_mean), ("mean under DP", measure_dp_mean))
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV file and the plot, and put both on the page."""
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
