"""What an accountant is told: which mechanism ran, how often, on which sample of the records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from scipy import special

from pacprivacy._checks import Vector, check_positive
from pacprivacy.errors import BudgetError

__all__ = [
    "Event",
    "FixedSampling",
    "GaussianEvent",
    "LaplaceEvent",
    "PoissonSampling",
    "PureEvent",
    "ReplacementSampling",
    "Sampling",
]

_TAIL = 1e-18  # mass of rare repetitions that is counted as lost entirely


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonSampling:
    """Each record is in the batch with probability ``rate``, independently; either relation.

    Examples
    --------
    >>> PoissonSampling(rate=0.01).rate
    0.01
    """

    rate: float

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise BudgetError(f"rate must be in (0, 1]; got {self.rate!r}. Use batch size / n.")

    @property
    def repetitions(self) -> dict[int, float]:
        """Probability that a record is in the batch so many times."""
        return {1: self.rate}


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSampling:
    """A uniform subset of ``batch_size`` of ``n_records``; for the relation ``replace``.

    Examples
    --------
    >>> FixedSampling(n_records=1000, batch_size=10).rate
    0.01
    """

    n_records: int
    batch_size: int

    def __post_init__(self) -> None:
        _check_batch(self.n_records, self.batch_size)

    @property
    def rate(self) -> float:
        """Probability that a record is in the batch."""
        return self.batch_size / self.n_records

    @property
    def repetitions(self) -> dict[int, float]:
        """Probability that a record is in the batch so many times."""
        return {1: self.rate}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementSampling:
    """``batch_size`` independent draws from ``n_records``; for the relation ``replace``.

    Examples
    --------
    >>> round(ReplacementSampling(n_records=1000, batch_size=10).rate, 6)
    0.009955
    """

    n_records: int
    batch_size: int

    def __post_init__(self) -> None:
        _check_batch(self.n_records, self.batch_size)

    @property
    def rate(self) -> float:
        """Probability that a record is in the batch at all."""
        return -math.expm1(self.batch_size * math.log1p(-1.0 / self.n_records))

    @property
    def repetitions(self) -> dict[int, float]:
        """Probability that a record is in the batch so many times; the far tail is left out."""
        from scipy import stats

        law = stats.binom(self.batch_size, 1.0 / self.n_records)
        most = 1
        while most < self.batch_size and law.sf(most) > _TAIL:
            most += 1
        return {k: float(law.pmf(k)) for k in range(1, most + 1)}


Sampling: TypeAlias = PoissonSampling | FixedSampling | ReplacementSampling


class Event(Protocol):
    """A mechanism that ran ``count`` times, each time on a fresh sample if there is sampling."""

    @property
    def count(self) -> int:
        """How many times it ran."""
        ...

    @property
    def sampling(self) -> Sampling | None:
        """How the records of each run were drawn; None for all records."""
        ...

    @property
    def pure_epsilon(self) -> float | None:
        """Privacy loss of one run without sampling that is never exceeded, if there is one."""
        ...

    def profile(self, epsilon: Vector, repeats: int = 1) -> Vector:
        """Least ``δ`` of one run without sampling, for a record that enters ``repeats`` times."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvent:
    """Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation over Euclidean sensitivity, of the relation that is accounted for. For
        sums of contributions of norm up to ``C`` that sensitivity is ``C`` under ``add_remove``
        and ``2C`` under ``replace``.
    count : int
        How many times.
    sampling : PoissonSampling, FixedSampling or ReplacementSampling, optional
        How the records of each run were drawn.

    Examples
    --------
    >>> GaussianEvent(noise_multiplier=2.0, count=10).profile(np.array([1.0])).round(5)
    array([0.00683])
    """

    noise_multiplier: float
    count: int = 1
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier, advice="Use about 1.")
        _check_count(self.count)

    @property
    def pure_epsilon(self) -> float | None:
        """None: the loss has no bound."""
        return None

    def profile(self, epsilon: Vector, repeats: int = 1) -> Vector:
        """Least ``δ`` of one run without sampling, for a record that enters ``repeats`` times."""
        parameter = repeats / self.noise_multiplier
        first = special.log_ndtr(parameter / 2 - epsilon / parameter)
        second = epsilon + special.log_ndtr(-parameter / 2 - epsilon / parameter)
        return np.asarray(-np.exp(first) * np.expm1(np.minimum(0.0, second - first)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceEvent:
    """Laplace noise, on one number or on several that move together.

    Several numbers with one noise scale, and a sensitivity in the sum of absolute changes, are at
    least as private as one number that moves by all of it (claim DP-30).

    Parameters
    ----------
    noise_multiplier : float
        Scale ``b`` over the sensitivity, under the relation that is accounted for; ``1 / ε``.
    count : int
        How many times.
    sampling : PoissonSampling, FixedSampling or ReplacementSampling, optional
        How the records of each run were drawn.

    Examples
    --------
    >>> LaplaceEvent(noise_multiplier=2.0).pure_epsilon
    0.5
    """

    noise_multiplier: float
    count: int = 1
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier, advice="Use about 1.")
        _check_count(self.count)

    @property
    def pure_epsilon(self) -> float | None:
        """``1 / noise_multiplier``."""
        return 1.0 / self.noise_multiplier

    def profile(self, epsilon: Vector, repeats: int = 1) -> Vector:
        """Least ``δ`` of one run without sampling, for a record that enters ``repeats`` times."""
        largest = repeats / self.noise_multiplier
        return np.asarray(-np.expm1(np.minimum(0.0, (epsilon - largest) / 2.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PureEvent:
    """Any mechanism that is ``(epsilon, 0)``-private, such as the exponential mechanism.

    Examples
    --------
    >>> PureEvent(epsilon=0.1, count=20).pure_epsilon
    0.1
    """

    epsilon: float
    count: int = 1
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, advice="Use about 1.")
        _check_count(self.count)

    @property
    def pure_epsilon(self) -> float | None:
        """``epsilon``."""
        return self.epsilon

    def profile(self, epsilon: Vector, repeats: int = 1) -> Vector:
        """Largest ``δ`` of one run without sampling, for a record that enters ``repeats`` times."""
        largest = repeats * self.epsilon
        # (e^L - e^ε) / (1 + e^L), in a form that does not overflow.
        return np.asarray(
            -np.expm1(np.minimum(0.0, epsilon - largest)) / (1.0 + math.exp(-largest))
        )


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not count >= 1 or int(count) != count:
        raise BudgetError(f"count must be a whole number of at least 1; got {count!r}.")


def _check_batch(n_records: int, batch_size: int) -> None:
    if not 1 <= batch_size <= n_records or n_records < 2:
        raise BudgetError(
            f"batch_size must be from 1 to n_records; got {batch_size} of {n_records}. "
            "Use a smaller batch."
        )
