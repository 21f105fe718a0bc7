"""What the steps of a private descent cost together, and how much noise a promise needs.

Poisson batches are accounted by dp-accounting's privacy-loss distributions, full batches by the
exact curve of the Gaussian mechanism. For batches of a fixed size, with or without replacement,
the privacy profile of one step is a theorem, and dp-accounting's distributions compose it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
from scipy import special, stats

from pacprivacy._checks import Vector, check_positive
from pacprivacy.dp.descent_batches import (
    Batch,
    FixedBatch,
    FullBatch,
    PoissonBatch,
    ReplacementBatch,
)
from pacprivacy.dp.gaussian import gaussian_delta, gaussian_parameter
from pacprivacy.dp.noise import check_epsilon_delta
from pacprivacy.errors import BudgetError

__all__ = ["descent_epsilon", "descent_figures", "descent_noise", "renyi_event"]

FINE: Final = 1e-4  # of privacy loss, between the atoms of a distribution; dp-accounting's own
COARSE: Final = 1e-3  # for searches; pessimistic as well, so the answer is safe
LARGEST_NOISE: Final = 2.0**30
PRECISION: Final = 1e-4  # of the noise that a search finds, relative
SPARED: Final = 1e-4  # share of δ that goes to what is cut off: many draws of one record, tails


def descent_epsilon(
    batch: Batch, n_records: int, *, n_steps: int, noise: float, delta: float
) -> float:
    """Return the ``ε`` of a private descent, for continuous Gaussian noise.

    Parameters
    ----------
    batch : Batch, public
        How the records of a step are picked.
    n_records : int
        Number of records; used only where it is public.
    n_steps : int, public
        Number of steps.
    noise : float > 0, public
        Standard deviation of the noise of a sum, over the clipping norm.
    delta : float, public
        The ``δ`` to find ``ε`` for.

    Guarantee
    ---------
    Claim G-2. An upper bound under ``batch.neighbours``, from dp-accounting 0.4.4 or later.

    Examples
    --------
    >>> batch = PoissonBatch(size=20, n_public=1000)
    >>> round(descent_epsilon(batch, 1000, n_steps=500, noise=2.0, delta=1e-5), 2)
    0.92
    """
    check_positive("noise", noise, advice="Use at least 0.1.")
    if isinstance(batch, FullBatch):
        return _full_epsilon(batch, n_steps, noise, delta)
    return _epsilon(batch, n_records, n_steps, noise, delta, FINE)


def descent_noise(
    batch: Batch, n_records: int, *, n_steps: int, epsilon: float, delta: float
) -> float:
    """Return the least noise, over the clipping norm, that keeps ``(ε, δ)``; rounded up.

    Raises
    ------
    BudgetError
        If ``epsilon`` or ``delta`` are out of range, or too small for so many steps.

    Examples
    --------
    >>> batch = PoissonBatch(size=20, n_public=1000)
    >>> round(descent_noise(batch, 1000, n_steps=500, epsilon=1.0, delta=1e-5), 2)
    1.88
    """
    epsilon, delta = check_epsilon_delta(epsilon, delta)
    if isinstance(batch, FullBatch):
        reach = _reach(batch) * math.sqrt(n_steps)
        return reach / gaussian_parameter(epsilon, delta) * (1 + 1e-12)
    known = n_records if not isinstance(batch, PoissonBatch) else 0
    return _search(batch, known, n_steps, epsilon, delta)


def descent_figures(
    batch: Batch, n_records: int, *, n_steps: int, noise: float, delta: float
) -> dict[str, Any]:
    """Return how ``ε`` was found, with dp-accounting's Rényi figure beside it where it has one.

    Examples
    --------
    >>> batch = FullBatch(n_public=100)
    >>> descent_figures(batch, 100, n_steps=4, noise=8.0, delta=1e-5)["method"]
    'exact curve of the Gaussian mechanism'
    """
    known = 0 if isinstance(batch, PoissonBatch) else n_records
    return dict(_figures(batch, known, n_steps, noise, delta))


def renyi_event(batch: Batch, n_records: int, noise: float) -> tuple[Any, Any] | None:
    """Return a fresh Rényi accountant and one step's event; None where there is no such event."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    relation = dp_accounting.NeighboringRelation
    if isinstance(batch, ReplacementBatch):
        return None
    if isinstance(batch, FixedBatch):
        # dp-accounting reads this noise as a multiple of the sensitivity: a record that is
        # replaced moves the sum by twice the clipping norm.
        event = dp_accounting.SampledWithoutReplacementDpEvent(
            n_records, batch.size, dp_accounting.GaussianDpEvent(noise / 2)
        )
        return RdpAccountant(neighboring_relation=relation.REPLACE_ONE), event
    inner = dp_accounting.GaussianDpEvent(noise / _reach(batch))
    if isinstance(batch, PoissonBatch):
        inner = dp_accounting.PoissonSampledDpEvent(batch.rate, inner)
    return RdpAccountant(neighboring_relation=relation.ADD_OR_REMOVE_ONE), inner


def _reach(batch: Batch) -> float:
    """Return how far one record moves a sum, in clipping norms."""
    return 1.0 if batch.neighbours == "add_remove" else 2.0


def _full_epsilon(batch: FullBatch, n_steps: int, noise: float, delta: float) -> float:
    parameter = _reach(batch) * math.sqrt(n_steps) / noise
    return _least(lambda epsilon: gaussian_delta(epsilon, parameter) <= delta, 1e-12)


def _epsilon(
    batch: Batch, n_records: int, n_steps: int, noise: float, delta: float, interval: float
) -> float:
    if isinstance(batch, PoissonBatch):
        import dp_accounting
        from dp_accounting.pld import PLDAccountant

        event = dp_accounting.PoissonSampledDpEvent(
            batch.rate, dp_accounting.GaussianDpEvent(noise)
        )
        accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, interval)
        return float(accountant.compose(event, n_steps).get_epsilon(delta))
    tail = SPARED * delta / n_steps
    chances, times, missing = _draws(batch, n_records, tail)
    shifts = 2.0 * times / noise
    step = sampled_distribution(chances, shifts, interval, missing=missing, tail=tail)
    return float(step.self_compose(n_steps).get_epsilon_for_delta(delta))


def _draws(batch: Batch, n_records: int, tail: float) -> tuple[Vector, Vector, float]:
    """Return the probabilities of one or more draws of a given record, and what they leave out."""
    assert isinstance(batch, FixedBatch | ReplacementBatch)
    if isinstance(batch, FixedBatch):
        return np.array([batch.size / n_records]), np.array([1.0]), 0.0
    law = stats.binom(batch.size, 1 / n_records)
    most = max(1, int(law.isf(tail)))
    times = np.arange(1.0, most + 1)
    return law.pmf(times), times, float(law.sf(most))


def sampled_distribution(
    chances: Vector, shifts: Vector, interval: float, *, missing: float = 0.0, tail: float = 1e-15
) -> Any:
    """Return a distribution of privacy loss that dominates one sampled Gaussian step.

    Parameters
    ----------
    chances : array
        Probability that the record at stake is drawn once, twice, and so on.
    shifts : array
        How far the sum then moves, in standard deviations of the noise.
    interval : float
        Distance of the atoms.
    missing : float
        Probability of more draws than are listed; it counts as if all were lost then.
    tail : float
        Where the curve may be cut off; the rest counts as lost as well.

    Guarantee
    ---------
    Claim G-2. The curve ``h(α) = Σ p_k H_{1+(α-1)/γ}(N(μ_k, 1), N(0, 1))``, ``γ = Σ p_k``,
    bounds the hockey-stick divergences of a step for ``α >= 1``; its reflection
    ``1 - α + α h(1/α)`` bounds them below 1. Both are convex, and so is the join.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    def profile(epsilons: Vector) -> Vector:
        inner = np.log1p(np.expm1(epsilons) / (chances.sum() + missing))
        parts = [p * _hockey_stick(inner, mu) for p, mu in zip(chances, shifts, strict=True)]
        return np.asarray(missing + np.sum(parts, axis=0))

    top = interval
    while profile(np.array([top]))[0] > missing + tail:
        top *= 1.2
    n_atoms = math.ceil(top / interval)
    above: Vector = interval * np.arange(n_atoms + 1, dtype=np.float64)
    deltas = profile(above)
    mirrored = -np.expm1(-above) + np.exp(-above) * deltas
    curve = np.minimum(1.0, np.concatenate([mirrored[:0:-1], deltas]))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -n_atoms, n_atoms, curve)
    return PrivacyLossDistribution(pmf)


def _hockey_stick(epsilons: Vector, parameter: float) -> Vector:
    """Return the curve of the Gaussian mechanism; as :func:`gaussian_delta`, for arrays."""
    first = special.log_ndtr(parameter / 2 - epsilons / parameter)
    second = epsilons + special.log_ndtr(-parameter / 2 - epsilons / parameter)
    return np.asarray(-np.exp(first) * np.expm1(np.minimum(0.0, second - first)))


@lru_cache(maxsize=256)
def _figures(
    batch: Batch, n_records: int, n_steps: int, noise: float, delta: float
) -> tuple[tuple[str, Any], ...]:
    methods = {
        FullBatch: "exact curve of the Gaussian mechanism",
        PoissonBatch: "privacy-loss distribution (dp-accounting)",
        FixedBatch: "privacy-loss distribution of the sampled profile",
        ReplacementBatch: "privacy-loss distribution of the sampled profile",
    }
    found = descent_epsilon(batch, n_records, n_steps=n_steps, noise=noise, delta=delta)
    figures: list[tuple[str, Any]] = [("method", methods[type(batch)]), ("epsilon", found)]
    figures += [("noise multiplier", noise), ("steps", n_steps)]
    renyi = renyi_event(batch, n_records, noise)
    if renyi is not None:
        accountant, event = renyi
        beside = float(accountant.compose(event, n_steps).get_epsilon(delta))
        figures.append(("Rényi epsilon", beside))
    return tuple(figures)


@lru_cache(maxsize=256)
def _search(batch: Batch, n_records: int, n_steps: int, epsilon: float, delta: float) -> float:
    def keeps(noise: float) -> bool:
        return _epsilon(batch, n_records, n_steps, noise, delta, COARSE) <= epsilon

    return _least(keeps, PRECISION)


def _least(keeps: Callable[[float], bool], precision: float) -> float:
    """Return a number at which a monotone condition holds, within ``precision`` of the least."""
    high = 8.0  # distributions are short where there is much noise: come from there
    while not keeps(high):
        high *= 2.0
        if high > LARGEST_NOISE:
            raise BudgetError(
                "epsilon and delta must be large enough for so many steps; no amount of noise "
                "was found. Use fewer steps, or more epsilon."
            )
    low = high / 2.0
    while keeps(low) and low > 1e-9:
        low, high = low / 2.0, low
    while high > low * (1 + precision):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high
