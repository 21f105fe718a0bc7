"""Noise of every rule on the same outputs: what it claims, what it really gives away.

A :class:`Law` is the noise; a :class:`NoiseRow` is what was measured of it, one cell of the
figures of [RPAC].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import public_generator
from pacprivacy.adversary import View, exact_information, make_view
from pacprivacy.budget import Information
from pacprivacy.noise import AnyRule, calibrate
from pacprivacy.noise.shapes import ShapeProbe, shape_scale
from pacprivacy.residual import LearnedNoise, Training
from pacprivacy.theory import (
    Estimate,
    epsilon_equivalent,
    gaussian_equivalent,
    gaussian_parameter,
    posterior_success,
)
from papers.charts import Line, Panel, Style
from papers.page import as_budget

GAMMA = 1e-6
FLAT = 1e-13  # eigenvalues of a covariance below this share of the largest are rounding error

Version = Literal["equal claim", "equal truth"]
VERSIONS: Final[tuple[Version, ...]] = ("equal claim", "equal truth")

# A decoder's cross-entropy is noisy at small budgets; a lower penalty passes less of it on.
QUICK_TRAINING: Final = Training(
    n_steps=300, warm_up=100, hidden=32, batch=256, penalty_end=50.0, n_check=1 << 15
)
FULL_TRAINING: Final = Training(
    n_steps=500, warm_up=100, batch=256, penalty_end=50.0, n_check=1 << 17
)
BLOCK: Final = 50_000

STYLES: Final[dict[str, Style]] = {
    "DP Gaussian": Style(colour="#999999", marker="x"),
    "DP, as printed": Style(colour="#999999", marker="x", line=":"),
    "Efficient-PAC": Style(colour="#D55E00", marker="s"),
    "Auto-PAC (A.2)": Style(colour="#E69F00", marker="^"),
    "Auto-PAC (least trace)": Style(colour="#56B4E9", marker="v", line="--"),
    "SR-PAC, learned": Style(colour="#CC79A7", marker="P"),
    "exact": Style(colour="#0072B2", marker="D", line="-."),
    "protect": Style(colour="#009E73", marker="o"),
    "risk": Style(colour="#000000", marker="*", line=":"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Gaussian noise in the output's coordinates, and the information its rule claims."""

    method: str
    covariance: Matrix
    claimed_nats: float | None

    def __post_init__(self) -> None:
        freeze(self.covariance)

    @property
    def total_variance(self) -> float:
        """Expected squared length of the noise."""
        return float(np.trace(self.covariance))

    def scaled(self, noise_scale: float) -> Law:
        """Return the law of ``noise_scale`` times the noise."""
        return replace(self, covariance=self.covariance * noise_scale**2)

    def view(self, values: Matrix) -> View:
        """Return what the attacker compares under this noise."""
        variances, directions = _decompose(self.covariance)
        return make_view((values - values.mean(axis=0)) @ directions / np.sqrt(variances))

    def at_true_information(self, values: Matrix, mi_nats: float, seed: int) -> Law:
        """Return the law scaled until the exact adversary learns ``mi_nats``."""
        probe = ShapeProbe(self.view(values), public_generator(seed, "residual scale"))
        scale = shape_scale(lambda c: probe.information(c)[0] - mi_nats)
        return replace(self.scaled(scale), claimed_nats=mi_nats)


def law_of_rule(method: str, values: Matrix, rule: AnyRule, mi_nats: float, seed: int) -> Law:
    """Return the noise of one of the library's rules at an information budget."""
    plan = calibrate(values, Information(mi_nats), rule=rule, rng=seed)
    return Law(method=method, covariance=plan.noise_covariance(), claimed_nats=plan.mi_upper)


def law_of_dp(dimension: int, mi_nats: float, *, sensitivity: float) -> Law:
    """Return the Gaussian mechanism of differential privacy at the success that a budget allows.

    An information budget bounds any guess with prior 1/2 by some success ``q``; this is the noise
    under which the best guess whether a record is in has the same: ``Φ(μ/2) = q``, ``μ`` the
    sensitivity over the standard deviation. It is another promise, about whether a record is in
    the data at all.
    """
    variance = (sensitivity / gaussian_equivalent(posterior_success(mi_nats))) ** 2
    return Law(method="DP Gaussian", covariance=variance * np.eye(dimension), claimed_nats=None)


def law_of_printed_dp(
    dimension: int, n_records: int, mi_nats: float, *, clip: float, delta: float = 1e-5
) -> Law:
    """Return the line of differential privacy of Figure 2, as printed; a comparison only.

    The success that a budget allows gives an ``ε`` by Eq 15, loose for Gaussian noise. That noise
    is on the sum of rows of norm ``clip``, divided by ``S``, the number of members: a coin for
    each record. ``S`` is private, so the mean of the sum over ``S`` is not ``(ε, δ)``-private.
    """
    epsilon = epsilon_equivalent(posterior_success(mi_nats), delta)
    noise_std = clip / gaussian_parameter(epsilon, delta)
    counts = np.arange(1, n_records + 1)
    inverse_squares = float(binom.pmf(counts, n_records, 0.5) @ (1.0 / counts**2))
    variance = noise_std**2 * inverse_squares
    return Law(method="DP, as printed", covariance=variance * np.eye(dimension), claimed_nats=None)


def law_of_learned(method: str, learned: LearnedNoise) -> Law:
    """Return learned Gaussian noise in the output's coordinates, with the decoder's claim."""
    return Law(
        method=method, covariance=learned.covariance(), claimed_nats=float(learned.claimed_nats)
    )


def true_information(law: Law, values: Matrix, *, n_draws: int, seed: int) -> Estimate:
    """Return what the optimal adversary learns, on fresh draws."""
    rng = public_generator(seed, "residual truth")
    return exact_information(law.view(values), n_draws=n_draws, gamma=GAMMA, rng=rng)


def simulate_noise(law: Law, n_draws: int, rng: np.random.Generator) -> Matrix:
    """Draw float noise, shape (n_draws, d); it protects nobody."""
    variances, directions = _decompose(law.covariance)
    normals = rng.standard_normal((n_draws, len(variances)))
    noise: Matrix = (normals * np.sqrt(variances)) @ directions.T
    return noise


def _decompose(covariance: Matrix) -> tuple[Vector, Matrix]:
    variances, directions = np.linalg.eigh(covariance)
    keep = variances > FLAT * variances.max()
    return variances[keep], directions[:, keep]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRow:
    """Noise of one rule on one pool of outputs.

    ``equal claim``: the rule meets the budget in its own reckoning, ``claimed_nats``, which is None
    where it promises something else. ``equal truth``: its noise is scaled until the exact adversary
    learns the budget. ``true_nats`` and ``true_upper`` are what the exact adversary learns
    (confidence ``1 - 1e-6``). For logits, ``accuracy`` is how often the largest released one is
    right.
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
        line = Line.of(method, style, [row for row in rows if row.method == method], field)
        if line.y:
            lines.append(line)
    return Panel(title=title, ylabel=ylabel, lines=tuple(lines), log_y=field != "accuracy")
