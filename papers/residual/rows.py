"""The records of [RPAC]'s figures: noise of one rule at one budget, and one learned decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix
from pacprivacy._random import public_generator
from pacprivacy.residual.learned import Training
from papers.charts import Line, Panel, Style
from papers.page import as_budget
from papers.residual.laws import Law, simulate_noise, true_information

__all__ = [
    "FULL_TRAINING",
    "QUICK_TRAINING",
    "STYLES",
    "VERSIONS",
    "Measure",
    "NoiseRow",
    "Version",
    "measure_law",
    "noise_order",
    "panel",
]

Version = Literal["equal claim", "equal truth"]
VERSIONS: Final[tuple[Version, ...]] = ("equal claim", "equal truth")

# A decoder's cross-entropy is noisy at small budgets; a lower penalty passes less of it on.
QUICK_TRAINING: Final = Training(
    n_steps=300, chunk=50, warm_up=100, hidden=32, batch=256, penalty_end=50.0, n_check=1 << 15
)
FULL_TRAINING: Final = Training(
    n_steps=500, warm_up=100, batch=256, penalty_end=50.0, n_check=1 << 17
)
BLOCK: Final = 50_000

STYLES: Final[dict[str, Style]] = {
    "DP Gaussian": Style(colour="#999999", marker="x"),
    "Efficient-PAC": Style(colour="#D55E00", marker="s"),
    "Auto-PAC": Style(colour="#E69F00", marker="^"),
    "waterfill": Style(colour="#56B4E9", marker="v", line="--"),
    "SR-PAC, learned": Style(colour="#CC79A7", marker="P"),
    "exact": Style(colour="#0072B2", marker="D", line="-."),
    "protect": Style(colour="#009E73", marker="o"),
    "risk": Style(colour="#000000", marker="*", line=":"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRow:
    """Noise of one rule on one pool of outputs.

    Attributes
    ----------
    dataset, method : str
        The data and the rule.
    version : str
        ``equal claim``: the rule meets the budget in its own reckoning. ``equal truth``: its
        noise is scaled until the exact adversary learns exactly the budget.
    mi_nats : float
        The budget.
    claimed_nats : float or None
        Information that the rule proves, or that its decoder claims; none where the rule promises
        something else.
    true_nats, true_upper : float
        What the exact adversary learns: estimate and upper bound (confidence ``1 - 1e-6``).
    noise_variance : float
        Total variance.
    accuracy, standard_error, no_noise : float or None
        For logits: how often the largest released one is right, and without noise.
    n_candidates, n_train : int
        Size of the pool; records the classifier was trained on.
    """

    dataset: str
    method: str
    version: Version
    mi_nats: float
    claimed_nats: float | None
    true_nats: float
    true_upper: float
    noise_variance: float
    accuracy: float | None = None
    standard_error: float | None = None
    no_noise: float | None = None
    n_candidates: int = 0
    n_train: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """On which outputs laws are measured, and how much work that is."""

    dataset: str
    values: Matrix
    n_draws: int
    n_releases: int
    seed: int
    labels: npt.NDArray[np.int64] | None = None
    n_train: int = 0


def measure_law(law: Law, mi_nats: float, version: Version, measure: Measure) -> NoiseRow:
    """Return what a law gives away and, for logits, what it leaves of the accuracy."""
    values, labels = measure.values, measure.labels
    truth = true_information(law, values, n_draws=measure.n_draws, seed=measure.seed)
    rates = (None, None, None) if labels is None else _accuracy(law, measure, labels)
    return NoiseRow(
        dataset=measure.dataset,
        method=law.method,
        version=version,
        mi_nats=mi_nats,
        claimed_nats=law.claimed_nats,
        true_nats=truth.value,
        true_upper=truth.upper,
        noise_variance=law.total_variance,
        accuracy=rates[0],
        standard_error=rates[1],
        no_noise=rates[2],
        n_candidates=len(values),
        n_train=measure.n_train,
    )


def _accuracy(
    law: Law, measure: Measure, labels: npt.NDArray[np.int64]
) -> tuple[float, float, float]:
    """Release simulated logits of random candidates; the same draws for every law."""
    values, hits = measure.values, 0
    rng = public_generator(measure.seed, f"{measure.dataset} logit releases")
    for size in _blocks(measure.n_releases):
        chosen = rng.integers(len(values), size=size)
        released = values[chosen] + simulate_noise(law, size, rng)
        hits += int((released.argmax(axis=1) == labels[chosen]).sum())
    rate = hits / measure.n_releases
    error = float(np.sqrt(rate * (1 - rate) / measure.n_releases))
    return rate, error, float((values.argmax(axis=1) == labels).mean())


def _blocks(total: int) -> Iterator[int]:
    for start in range(0, total, BLOCK):
        yield min(BLOCK, total - start)


def noise_order(rows: Sequence[NoiseRow], version: Version, mi_nats: float) -> str:
    """Say which rule needs how much noise at one budget, least first."""
    chosen = [row for row in rows if row.version == version and row.mi_nats == mi_nats]
    ordered = sorted(chosen, key=lambda row: row.noise_variance)
    named = ", ".join(f"{row.method} {row.noise_variance:.4g}" for row in ordered)
    return f"Noise at {as_budget(mi_nats)} nats, {version}, least first: {named}."


def panel(
    rows: Sequence[NoiseRow],
    *,
    title: str,
    ylabel: str,
    field: Literal["noise_variance", "accuracy", "true_nats"],
) -> Panel:
    """Return one plot of a measured field against the budget, a line for each rule."""
    lines = []
    for method, style in STYLES.items():
        mine = [row for row in rows if row.method == method and getattr(row, field) is not None]
        if mine:
            lines.append(
                Line(
                    label=method,
                    style=style,
                    x=tuple(row.mi_nats for row in mine),
                    y=tuple(float(getattr(row, field)) for row in mine),
                )
            )
    return Panel(title=title, ylabel=ylabel, lines=tuple(lines), log_y=field != "accuracy")
