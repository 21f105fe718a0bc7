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

from pacprivacy._checks import check_positive
from pacprivacy.dp.accounting import ORDERS, advantage, loss_distribution, renyi_divergences
from pacprivacy.dp.batches import (
    Batch,
    FixedBatch,
    FullBatch,
    PoissonBatch,
    ReplacementBatch,
)
from pacprivacy.dp.events import (
    FixedSampling,
    GaussianEvent,
    PoissonSampling,
    ReplacementSampling,
    Sampling,
)
from pacprivacy.dp.noise import check_epsilon_delta
from pacprivacy.errors import BudgetError
from pacprivacy.theory import gaussian_epsilon, gaussian_parameter

FINE: Final = 1e-4  # of privacy loss, between the atoms of a distribution; dp-accounting's own
COARSE: Final = 1e-3  # for searches; pessimistic as well, so the answer is safe
LARGEST_NOISE: Final = 2.0**30
PRECISION: Final = 1e-4  # of the noise that a search finds, relative
TOO_MUCH: Final = (
    "epsilon and delta must be large enough for so many steps; no amount of noise was found. "
    "Use fewer steps, or more epsilon."
)


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
        return gaussian_epsilon(_reach(batch) * math.sqrt(n_steps) / noise, delta)
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


def descent_advantage(
    batch: Batch, n_records: int, *, n_steps: int, noise: float, n_weights: int
) -> float:
    """Return the best attacker's advantage on all steps, discrete noise for the weights included.

    Guarantee
    ---------
    Claims G-2 and DP-30. An upper bound under ``batch.neighbours``.

    Examples
    --------
    >>> batch = PoissonBatch(size=20, n_public=1000)
    >>> round(descent_advantage(batch, 1000, n_steps=500, noise=2.0, n_weights=3), 3)
    0.094
    """
    known = 0 if isinstance(batch, PoissonBatch) else n_records
    return _advantage(batch, known, n_steps, noise, n_weights)


def descent_figures(
    batch: Batch, n_records: int, *, n_steps: int, noise: float, delta: float
) -> dict[str, Any]:
    """Return how ``ε`` was found, with dp-accounting's Rényi figure beside it where it has one."""
    known = 0 if isinstance(batch, PoissonBatch) else n_records
    return dict(_figures(batch, known, n_steps, noise, delta))


def descent_event(
    batch: Batch, n_records: int, *, n_steps: int, noise: float, n_weights: int = 0
) -> GaussianEvent:
    """Return the steps as one event, its noise relative to the sensitivity of the relation.

    ``n_weights`` is the number of weights that get discrete noise in every step.
    """
    sampling: Sampling | None = None
    if isinstance(batch, PoissonBatch):
        sampling = PoissonSampling(rate=batch.rate)
    elif isinstance(batch, FixedBatch):
        sampling = FixedSampling(n_records=n_records, batch_size=batch.size)
    elif isinstance(batch, ReplacementBatch):
        sampling = ReplacementSampling(n_records=n_records, batch_size=batch.size)
    return GaussianEvent(
        noise_multiplier=noise / _reach(batch),
        count=n_steps,
        sampling=sampling,
        n_numbers=n_weights,
    )


def _reach(batch: Batch) -> float:
    """Return how far one record moves a sum, in clipping norms."""
    return 1.0 if batch.neighbours == "add_remove" else 2.0


def _epsilon(
    batch: Batch, n_records: int, n_steps: int, noise: float, delta: float, interval: float
) -> float:
    event = descent_event(batch, n_records, n_steps=n_steps, noise=noise)
    losses = loss_distribution(event, batch.neighbours, interval, delta)
    return float(losses.get_epsilon_for_delta(delta))


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
    event = descent_event(batch, n_records, n_steps=n_steps, noise=noise)
    divergences = renyi_divergences(event, batch.neighbours)
    if divergences is not None:
        from dp_accounting.rdp import compute_epsilon

        figures.append(("Rényi epsilon", float(compute_epsilon(ORDERS, divergences, delta)[0])))
    return tuple(figures)


@lru_cache(maxsize=256)
def _advantage(batch: Batch, n_records: int, n_steps: int, noise: float, n_weights: int) -> float:
    event = descent_event(batch, n_records, n_steps=n_steps, noise=noise, n_weights=n_weights)
    return advantage(event, neighbours=batch.neighbours)


@lru_cache(maxsize=256)
def _search(batch: Batch, n_records: int, n_steps: int, epsilon: float, delta: float) -> float:
    from scipy.optimize import brentq

    known: dict[float, float] = {}

    def excess(log_noise: float) -> float:
        if log_noise not in known:
            noise = math.exp(log_noise)
            found = _epsilon(batch, n_records, n_steps, noise, delta, COARSE)
            known[log_noise] = min(found, 1e6) - epsilon
        return known[log_noise]

    # Distributions are short where there is much noise: come from there.
    high = math.log(8.0)
    while excess(high) > 0:
        high += math.log(2.0)
        if high > math.log(LARGEST_NOISE):
            raise BudgetError(TOO_MUCH)
    low = high - math.log(2.0)
    while excess(low) <= 0:
        low, high = low - math.log(2.0), low
    found = float(brentq(excess, low, high, xtol=PRECISION))
    while excess(found) > 0:  # towards more noise, never less
        found += PRECISION
    return math.exp(found)


def least_number(keeps: Callable[[float], bool], precision: float) -> float:
    """Return a number at which a monotone condition holds, within ``precision`` of the least."""
    high = 8.0
    while not keeps(high):
        high *= 2.0
        if high > LARGEST_NOISE:
            raise BudgetError(TOO_MUCH)
    low = high / 2.0
    while keeps(low) and low > 1e-9:
        low, high = low / 2.0, low
    while high > low * (1 + precision):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high
