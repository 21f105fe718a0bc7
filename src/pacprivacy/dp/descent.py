"""Private descent: batches, steps along noisy sums of clipped gradients, their joint cost.

A batch is a public rule. Which records it picks is secret, and so is their number: sums are divided
by the expected size. The sum of a step is a vector of whole numbers, which is rounded to a coarser
grid and gets discrete Gaussian noise there. Weights, averages and penalties follow from that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import numpy as np
import scipy

from pacprivacy._checks import Integers, Vector, check_positive
from pacprivacy._random import BitSource, ProcessBound
from pacprivacy.dp import accounting
from pacprivacy.dp.certificate import REACH, DPRelease, Neighbours
from pacprivacy.dp.events import (
    FixedSampling,
    GaussianEvent,
    PoissonSampling,
    ReplacementSampling,
    publish_event,
)
from pacprivacy.dp.noise import (
    HAIR,
    UNITS_PER_SCALE,
    check_count,
    check_epsilon_delta,
    check_public_number,
    dp_noise_slack,
    dp_noise_source,
)
from pacprivacy.dp.records import SUM_BITS
from pacprivacy.errors import BudgetError, DataError, MechanismError
from pacprivacy.noise import MAX_UNITS_PER_STD, sample_discrete_gaussian, uniform_lattice_integers
from pacprivacy.theory import gaussian_parameter

_WORD: Final = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonBatch:
    """Every record is in with probability ``size / n_public``, independently of all others.

    Sums are divided by ``size``. ``n_public`` is the number of records as far as it is public; a
    guess will do. The true number is not used, as adding a record changes it.
    """

    neighbours: ClassVar[Neighbours] = "add_remove"
    method: ClassVar[str] = "privacy-loss distribution (dp-accounting)"
    size: float
    n_public: int

    def __post_init__(self) -> None:
        check_count("n_public", self.n_public)
        if not 0 < self.size <= self.n_public:
            raise BudgetError(
                f"size must be above 0 and at most n_public; got {self.size!r} of "
                f"{self.n_public}. Use for example a twentieth of n_public."
            )

    @property
    def rate(self) -> float:
        return self.size / self.n_public

    def size_for(self, n_records: int) -> float:
        return float(self.size)

    def draw(self, n_records: int, source: BitSource) -> Integers:
        if self.size == self.n_public:
            return np.arange(n_records)
        # The rate is rounded down to a multiple of 2^-64.
        limit = np.uint64(min(_WORD - 1, math.floor(self.rate * _WORD)))
        return np.flatnonzero(source.words(n_records) < limit)

    def sampling(self, n_records: int) -> PoissonSampling:
        return PoissonSampling(rate=self.rate)

    def describe(self, n_records: int) -> str:
        return f"Poisson batches of rate {self.rate:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedBatch:
    neighbours: ClassVar[Neighbours] = "replace"
    method: ClassVar[str] = "privacy-loss distribution of the sampled profile"
    size: int

    def __post_init__(self) -> None:
        check_count("size", self.size)

    def size_for(self, n_records: int) -> float:
        _check_any(n_records)
        return float(self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedBatch(_CountedBatch):
    """A uniformly random set of ``size`` different records."""

    def size_for(self, n_records: int) -> float:
        if self.size > n_records:
            raise DataError(
                f"size must be at most the number of records, {n_records}; got {self.size}. "
                "Use smaller batches."
            )
        return float(self.size)

    def draw(self, n_records: int, source: BitSource) -> Integers:
        # Records are drawn one by one, without those that were drawn before. Of a large batch,
        # those left out are fewer.
        n_drawn = min(self.size, n_records - self.size)
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < n_drawn:
            more = np.append(drawn, _draw_places(n_records, n_drawn, source))
            _, first = np.unique(more, return_index=True)
            drawn = more[np.sort(first)][:n_drawn]
        if n_drawn == self.size:
            return drawn
        left = np.ones(n_records, dtype=np.bool_)
        left[drawn] = False
        return np.flatnonzero(left)

    def sampling(self, n_records: int) -> FixedSampling:
        return FixedSampling(n_records=n_records, batch_size=self.size)

    def describe(self, n_records: int) -> str:
        return f"batches of {self.size} of {n_records} records without replacement"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementBatch(_CountedBatch):
    """``size`` independent uniform draws; a record may be drawn several times."""

    def draw(self, n_records: int, source: BitSource) -> Integers:
        return _draw_places(n_records, self.size, source)

    def sampling(self, n_records: int) -> ReplacementSampling:
        return ReplacementSampling(n_records=n_records, batch_size=self.size)

    def describe(self, n_records: int) -> str:
        return f"batches of {self.size} draws with replacement from {n_records} records"


@dataclass(frozen=True, slots=True, kw_only=True)
class FullBatch:
    """All records in every step: DP-GD; replacement needs twice the noise.

    Sums are divided by ``n_public``, the number of records as far as it is public. Under
    ``replace`` the number itself is public and is the default.
    """

    method: ClassVar[str] = "exact curve of the Gaussian mechanism"
    n_public: int | None = None
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        check_public_number(self.n_public, self.neighbours)
        if self.n_public is not None:
            check_count("n_public", self.n_public)

    def size_for(self, n_records: int) -> float:
        if self.n_public is not None:
            return float(self.n_public)
        _check_any(n_records)
        return float(n_records)

    def draw(self, n_records: int, source: BitSource) -> Integers:
        return np.arange(n_records)

    def sampling(self, n_records: int) -> None: ...

    def describe(self, n_records: int) -> str:
        return "all records in every step"


Batch: TypeAlias = PoissonBatch | FixedBatch | ReplacementBatch | FullBatch


def _check_any(n_records: int) -> None:
    if n_records == 0:
        raise DataError("X must have at least one row; got none. Pass one row for each record.")


def _draw_places(n_records: int, size: int, source: BitSource) -> Integers:
    return uniform_lattice_integers(np.full(size, n_records, dtype=np.int64), source)


DRAWN_AHEAD: Final = 1 << 16  # noise numbers at a time
LARGEST_NOISE: Final = 2.0**30
ADAM_REACH: Final = 1.5  # of a weight, for rows of norm 1, over the root of the number of steps
LEAST_SIGNAL: Final = 0.1  # mean square of a gradient in Adam's steps, over that of its noise
SCORE_NOISE: Final = 1.0  # of a row of the largest norm, when all steps are done; in logits
FARTHEST: Final = 100.0  # a row's score in one step, in logits, where there is little noise
LEAST_NOISE: Final = 1 / 16  # of batches; with less, distributions get too long
PRECISION: Final = 1e-4  # of the noise that a search finds, relative
PUBLIC: Final = (
    "Clipping norm, step length, number of steps, batch size, the number of records it is "
    "compared with, and the starting point are public and were fixed without looking at the "
    "records."
)
TOO_MUCH: Final = (
    "epsilon and delta must be large enough for so many steps; no amount of noise was found. "
    "Use fewer steps, or more epsilon."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Settings of a private descent; every number is public and must not come from the data.

    Momentum, Adam and penalties cost no privacy.

    Parameters
    ----------
    learning_rate : float > 0, optional
        Length of a step for a gradient of norm 1. By default linear models go as far as the noise
        of all steps lets them.
    momentum : float in [0, 1)
        A step follows a running mean of the gradients, in which those before the last one weigh
        so much; 0.9 is usual.
    squares : float in [0, 1)
        With it, Adam: the running mean is divided by the root of a running mean of squares, of this
        weight (0.99 is usual), without the variance of the noise.
    average : bool
        Release the mean of all iterates instead of the last one.
    penalty : float >= 0
        Of ``penalty |w|²/2`` beside the *mean* loss.
    """

    n_steps: int
    learning_rate: float | None = None
    clip_norm: float
    average: bool = False
    penalty: float = 0.0
    momentum: float = 0.0
    squares: float = 0.0

    def __post_init__(self) -> None:
        check_count("n_steps", self.n_steps)
        check_positive("clip_norm", self.clip_norm, advice="Use a norm that gradients rarely have.")
        for name, weight in (("momentum", self.momentum), ("squares", self.squares)):
            if not 0.0 <= weight < 1.0:
                raise MechanismError(
                    f"{name} must be at least 0 and below 1; got {weight!r}. Use 0.9, or 0."
                )
        if not 0.0 <= self.penalty < math.inf:
            raise MechanismError(
                f"penalty must be a number of at least 0; got {self.penalty!r}. Use 0."
            )
        if self.learning_rate is None:
            return
        check_positive("learning_rate", self.learning_rate, advice="Use about 1.")
        if not self.learning_rate * self.penalty < 1.0:
            raise MechanismError(
                "learning_rate times penalty must be below 1, or the penalty overshoots; got "
                f"{self.learning_rate * self.penalty:g}. Use smaller steps."
            )

    @property
    def rate(self) -> float:
        if self.learning_rate is None:
            raise MechanismError(
                "learning_rate must be given here, where the length of rows is not declared; got "
                "None. Use about 1."
            )
        return self.learning_rate


class _GradientSums(Protocol):
    """Records as descent sees them: sums of clipped gradients, in whole multiples of 2^-40 C."""

    @property
    def n_records(self) -> int: ...

    def whole_sum(self, weights: Vector, places: Integers) -> Integers: ...


class DPDescentNoise(ProcessBound):
    """Discrete Gaussian noise for sums of clipped gradients, drawn ahead (claims G-1, R-4)."""

    KIND = "noise that was drawn ahead"

    def __init__(
        self,
        noise: float,
        n_weights: int,
        neighbours: Neighbours,
        source: BitSource,
        n_steps: int = 1,
    ) -> None:
        reach = REACH[neighbours]
        # At least 2^29 and, before rounding is paid for, at most 2^30 grid steps in one deviation.
        exponent = math.frexp(noise)[1] - 1
        self.shift = SUM_BITS + exponent - (UNITS_PER_SCALE.bit_length() - 1)
        if self.shift < 0:
            raise BudgetError(
                "epsilon must leave noise of at least a two-thousandth of the clipping norm. "
                "Use a smaller epsilon."
            )
        steps = math.ldexp(reach, SUM_BITS - self.shift) + math.sqrt(n_weights)
        self.units = math.ceil(noise / reach * steps * (1 + 1e-12))
        if self.units > MAX_UNITS_PER_STD:
            raise BudgetError(
                "epsilon must pay for the rounding of so many weights. Use a larger epsilon, or "
                "fewer weights."
            )
        self.std = math.ldexp(self.units, self.shift - SUM_BITS)
        self._shape = (max(1, min(n_steps, DRAWN_AHEAD // n_weights)), n_weights)
        self._ahead: list[Integers] = []
        self._source = source

    def release(self, whole: Integers) -> Vector:
        """Round a sum to the grid, add noise, and return it in clipping norms."""
        self.check_process()
        if not self._ahead:
            units = np.full(self._shape, self.units, dtype=np.int64)
            self._ahead = list(sample_discrete_gaussian(units, self._source))
        # A shift rounds downwards, in integers; half a step more makes it the nearest.
        half = (1 << self.shift) >> 1
        noisy = ((whole + half) >> self.shift) + self._ahead.pop()
        return np.ldexp(noisy.astype(np.float64), self.shift - SUM_BITS)


def release_dp_descent(
    sums: _GradientSums,
    start: Vector,
    restore: Callable[[Vector], Any],
    *,
    batch: Batch,
    steps: Steps,
    epsilon: float,
    delta: float,
    simulate: np.random.Generator | int | None,
    what: str,
    assumptions: tuple[str, ...],
) -> DPRelease:
    """Find the noise that the promise needs, descend, and release the weights, restored."""
    n_records, n_weights, n_steps = sums.n_records, len(start), steps.n_steps
    noise, left = plan_dp_descent_noise(
        batch, n_records, n_steps=n_steps, n_weights=n_weights, epsilon=epsilon, delta=delta
    )
    source = dp_noise_source(simulate)
    weights, std = run_dp_descent(sums, start, batch=batch, steps=steps, noise=noise, source=source)
    event = dp_descent_event(batch, n_records, n_steps=n_steps, noise=noise, n_weights=n_weights)
    figures: dict[str, Any] = {
        "method": batch.method,
        "epsilon": dp_descent_epsilon(batch, n_records, n_steps=n_steps, noise=noise, delta=left),
        "noise multiplier": noise,
        "steps": n_steps,
    }
    by_renyi = _renyi((event,), left, batch.neighbours)
    if by_renyi is not None:
        figures["Rényi epsilon"] = by_renyi
    return publish_event(
        restore(weights),
        (epsilon, delta, batch.neighbours),
        event,
        simulation=source.is_simulation,
        mechanism=f"{what} by {describe_dp_descent(batch, steps, n_records)}",
        assumptions=(*assumptions, PUBLIC),
        advantage=_advantage(event, neighbours=batch.neighbours),
        accounting=figures,
        noise={"sum of gradients": std * steps.clip_norm},
    )


def check_dp_descent_delta(left: float, epsilon: float, delta: float) -> None:
    """Refuse a grid that leaves less than half of ``δ``."""
    if not left > 0.5 * delta:
        raise BudgetError(
            f"delta must be large enough for the grid at epsilon {epsilon:g}; got {delta:g}. "
            "Use a larger delta or a smaller epsilon."
        )


def plan_dp_descent_noise(
    batch: Batch, n_records: int, *, n_steps: int, n_weights: int, epsilon: float, delta: float
) -> tuple[float, float]:
    """Return the noise over the clipping norm, and the part of ``δ`` that discrete noise leaves."""
    epsilon, delta = check_epsilon_delta(epsilon, delta)
    left = delta * (1.0 - HAIR) - dp_noise_slack(epsilon, n_weights * n_steps)
    check_dp_descent_delta(left, epsilon, delta)
    batch.size_for(n_records)
    noise = dp_descent_noise(batch, n_records, n_steps=n_steps, epsilon=epsilon, delta=left)
    return noise, left


def dp_descent_rate(
    batch: Batch,
    n_records: int,
    steps: Steps,
    *,
    x_bound: float,
    n_weights: int,
    epsilon: float,
    delta: float,
) -> float:
    """Return the rate at which noise moves no row's score by more than about 1 in all steps."""
    if steps.squares:
        return ADAM_REACH / math.sqrt(steps.n_steps) / x_bound
    noise, _ = plan_dp_descent_noise(
        batch, n_records, n_steps=steps.n_steps, n_weights=n_weights, epsilon=epsilon, delta=delta
    )
    std = noise * steps.clip_norm / batch.size_for(n_records)
    farthest = FARTHEST / steps.clip_norm
    rate = min(SCORE_NOISE / (std * math.sqrt(steps.n_steps)), farthest) / x_bound
    return min(rate, 0.5 / steps.penalty) if steps.penalty else rate


def run_dp_descent(
    sums: _GradientSums,
    start: Vector,
    *,
    batch: Batch,
    steps: Steps,
    noise: float,
    source: BitSource,
) -> tuple[Vector, float]:
    """Run the steps; return weights, and the noise of a sum over the clipping norm (claim G-3)."""
    size, rate = batch.size_for(sums.n_records), steps.rate
    weights = np.array(start, dtype=np.float64)
    noisy = DPDescentNoise(noise, len(weights), batch.neighbours, source, steps.n_steps)
    total, mean, squares = np.zeros((3, len(weights)))
    unit = steps.clip_norm / size
    for done in range(1, steps.n_steps + 1):
        places = batch.draw(sums.n_records, source)
        gradient = noisy.release(sums.whole_sum(weights, places)) * unit
        mean = steps.momentum * mean + (1.0 - steps.momentum) * gradient
        direction = mean / (1.0 - steps.momentum**done)
        if steps.squares:
            squares = steps.squares * squares + (1.0 - steps.squares) * gradient**2
            variance = (noisy.std * unit) ** 2  # known, so it is taken off
            signal = squares / (1.0 - steps.squares**done) - variance
            direction = direction / np.sqrt(np.maximum(signal, LEAST_SIGNAL * variance))
        weights = weights - rate * (direction + steps.penalty * weights)
        total += weights
    if not np.isfinite(total).all():
        raise MechanismError(
            "learning_rate must be small enough for the weights to stay finite. Use smaller steps; "
            "the budget of this run is spent."
        )
    return (total / steps.n_steps if steps.average else weights), noisy.std


def describe_dp_descent(batch: Batch, steps: Steps, n_records: int) -> str:
    iterate = "average" if steps.average else "last"
    return (
        f"{steps.n_steps} steps of descent on {batch.describe(n_records)}: gradients clipped to "
        f"norm {steps.clip_norm:g}, discrete Gaussian noise, {iterate} iterate"
    )


def dp_descent_event(
    batch: Batch, n_records: int, *, n_steps: int, noise: float, n_weights: int = 0
) -> GaussianEvent:
    """Return the steps as one event, its noise relative to the sensitivity of the relation."""
    return GaussianEvent(
        noise_multiplier=noise / REACH[batch.neighbours],
        count=n_steps,
        sampling=batch.sampling(n_records),
        n_numbers=n_weights,
    )


def dp_descent_epsilon(
    batch: Batch, n_records: int, *, n_steps: int, noise: float, delta: float
) -> float:
    """Return the ``ε`` of a private descent, for continuous Gaussian noise.

    ``noise`` is the standard deviation of a sum over the clipping norm; ``n_records`` is used only
    where it is public.

    Guarantee
    ---------
    Claim G-2. An upper bound under ``batch.neighbours``, from dp-accounting 0.4.4 or later.
    """
    check_positive("noise", noise, advice="Use at least 0.1.")
    event = dp_descent_event(batch, n_records, n_steps=n_steps, noise=noise)
    return _epsilon((event,), delta, batch.neighbours, accounting.FINE)


def dp_descent_noise(
    batch: Batch, n_records: int, *, n_steps: int, epsilon: float, delta: float
) -> float:
    """Return the least noise, over the clipping norm, that keeps ``(ε, δ)``; rounded up."""
    epsilon, delta = check_epsilon_delta(epsilon, delta)
    if isinstance(batch, FullBatch):
        reach = REACH[batch.neighbours] * math.sqrt(n_steps)
        return reach / gaussian_parameter(epsilon, delta) * (1 + 1e-12)

    def epsilon_at(noise: float) -> float:
        event = dp_descent_event(batch, n_records, n_steps=n_steps, noise=noise)
        return _epsilon((event,), delta, batch.neighbours, accounting.COARSE)

    return least_dp_descent_noise(epsilon_at, epsilon)


_advantage = lru_cache(maxsize=256)(accounting.advantage)
_renyi = lru_cache(maxsize=256)(accounting.renyi_epsilon)
_epsilon = lru_cache(maxsize=1024)(accounting.pld_epsilon)


def least_dp_descent_noise(epsilon_at: Callable[[float], float], epsilon: float) -> float:
    """Return the least noise at which a falling ``ε`` is at most the one given, rounded up."""

    def excess(log_noise: float) -> float:
        return min(epsilon_at(math.exp(log_noise)), 1e6) - epsilon

    # Distributions are short where there is much noise: come from there.
    high = math.log(8.0)
    while excess(high) > 0:
        high += math.log(2.0)
        if high > math.log(LARGEST_NOISE):
            raise BudgetError(TOO_MUCH)
    low = high - math.log(2.0)
    while excess(low) <= 0:
        low, high = low - math.log(2.0), low
        if low < math.log(LEAST_NOISE):
            return math.exp(high)
    log_noise = float(scipy.optimize.brentq(excess, low, high, xtol=PRECISION))
    while excess(log_noise) > 0:  # towards more noise, never less
        log_noise += PRECISION
    return math.exp(log_noise)
