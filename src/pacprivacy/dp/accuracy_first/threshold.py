"""AboveThreshold: which level is good enough, by one noisy threshold and one noisy look at each."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import scipy

from pacprivacy._checks import check_positive
from pacprivacy._random import BitSource, ProcessBound, SystemSource
from pacprivacy.dp.accuracy_first.noise_levels import FARTHEST
from pacprivacy.errors import BudgetError, BudgetExceededError, DataError
from pacprivacy.noise import MAX_UNITS_PER_SCALE, sample_discrete_laplace

Calibration = Literal["tight", "theorem"]

THRESHOLD_UNITS: Final = 1 << 30  # grid steps in the sensitivity and in the threshold's noise scale
FIRST_DRAWS: Final = 4
# Queries are computed in float64: sums of n terms are off by less than 1e-9 of what one term can
# move them. The sensitivity is taken larger by a millionth.
FLOAT_MARGIN: Final = 1 + 1e-6


class InteractiveAboveThreshold(ProcessBound):
    """Answer "is this query above the threshold?" until the first yes.

    Queries may be chosen while the answers come in, and may depend on other releases: what those
    cost is added to what this costs. ``sensitivity`` is how far one record can move any single
    query.

    Guarantee
    ---------
    Claim AF-3. All answers up to and with the first yes are ``epsilon``-differentially private,
    for as many queries as are asked; exact, since threshold, queries and noise are whole numbers.
    Claim AF-4 adds releases on which the queries depend.
    Claim R-4. A fork, which has the same threshold and the same noise, gets no answer.

    Examples
    --------
    >>> search = InteractiveAboveThreshold(threshold=-0.1, sensitivity=0.001, epsilon=2.0)
    >>> search.ask(-5.0), search.ask(0.0), search.is_over
    (False, True, True)
    """

    KIND = "a threshold with its noise"

    def __init__(
        self,
        *,
        threshold: float,
        sensitivity: float,
        epsilon: float,
        source: BitSource | None = None,
    ) -> None:
        reach = check_positive(
            "sensitivity", sensitivity, advice="Bound what one record contributes, by clipping."
        )
        self.epsilon = check_positive("epsilon", epsilon, advice="Use about 1.")
        reach *= FLOAT_MARGIN
        _, exponent = np.frexp(reach * min(1.0, 2.0 / self.epsilon) / THRESHOLD_UNITS)
        self._step = float(np.ldexp(1.0, int(exponent) - 1))
        # Rounding to whole steps adds one to how far a query can move.
        steps = Fraction(reach) / Fraction(self._step) + 1
        self._units = math.ceil(4 * steps / Fraction(self.epsilon))
        if self._units > MAX_UNITS_PER_SCALE:
            raise BudgetError(f"epsilon must be at least 1e-5; got {epsilon!r}. Use about 1.")
        self._source = SystemSource() if source is None else source
        scales = [self._units] * FIRST_DRAWS + [math.ceil(2 * steps / Fraction(self.epsilon))]
        self._drawn = self._draw(scales)
        self._n_drawn = FIRST_DRAWS
        self._noisy_threshold = self._whole(threshold) + self._drawn.pop()
        self._over = False

    @property
    def is_over(self) -> bool:
        """Whether a query was above the threshold."""
        return self._over

    @property
    def noise_scales(self) -> tuple[float, float]:
        """Scales of the noise on the threshold and on each query: ``2Δ/ε`` and ``4Δ/ε``."""
        return 0.5 * self._step * self._units, self._step * self._units

    def ask(self, query: float) -> bool:
        """Return whether the query, with its noise, is above the noisy threshold."""
        self.check_process()
        if self._over:
            raise BudgetExceededError(
                "ask must stop at the first yes; it was given. Make a new one with its own budget."
            )
        if not self._drawn:  # as many as so far: few calls, and what is not used never leaves
            self._drawn = self._draw([self._units] * self._n_drawn)
            self._n_drawn *= 2
        noisy = self._whole(query) + self._drawn.pop()
        self._over = noisy >= self._noisy_threshold
        return self._over

    def _draw(self, units: list[int]) -> list[int]:
        draws = sample_discrete_laplace(np.array(units, dtype=np.int64), self._source)
        return [int(draw) for draw in draws]

    def _whole(self, number: float) -> int:
        if not math.isfinite(number):
            raise DataError("a query must be a finite number. Clip it to the loss's range.")
        return round(min(max(number / self._step, -FARTHEST), FARTHEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdPlan:
    """How to test "excess risk is at most α" so that a wrong yes has probability at most γ.

    ``threshold`` is of the negative excess risk, ``epsilon`` what the test costs, however many
    levels are tried, and ``gamma`` the probability of a wrong yes.
    """

    threshold: float
    epsilon: float
    gamma: float


def plan_threshold(
    alpha: float,
    *,
    gamma: float,
    n_levels: int,
    sensitivity: float,
    calibration: Calibration = "tight",
) -> ThresholdPlan:
    """Return threshold ``-α/2`` and the least ε that keeps wrong answers rare.

    ``calibration="theorem"`` is ``ε = 16 Δ ln(2T/γ)/α``: neither side errs by more than ``α/2``, at
    the excess risk ``alpha`` that is asked for. ``"tight"`` bounds a wrong yes only, and computes
    its probability.

    Guarantee
    ---------
    Claim AF-5. With probability ``1 - gamma`` the candidate that is accepted, if one is, has an
    excess risk of at most ``alpha``.
    """
    alpha = check_positive("alpha", alpha, advice="Use the excess risk that you can bear.")
    reach = check_positive("sensitivity", sensitivity, advice="Bound the loss of one record.")
    if not 0.0 < gamma < 1.0:
        raise BudgetError(f"gamma must be between 0 and 1; got {gamma!r}. Use 0.1.")
    if calibration == "theorem":
        units = 8.0 * math.log(2.0 * n_levels / gamma)
    elif calibration == "tight":
        units = 2.0 * _reach_of_noise(n_levels, gamma)
    else:
        raise BudgetError(
            f"calibration must be 'tight' or 'theorem'; got {calibration!r}. Leave it out."
        )
    epsilon = units * reach / (0.5 * alpha)
    return ThresholdPlan(threshold=-0.5 * alpha, epsilon=epsilon, gamma=gamma)


def threshold_wrong_yes(margin: float, n_levels: int) -> float:
    """``P[max_t ν_t - ρ > margin]`` for ``n_levels`` of ``ν ~ Lap(2)`` and ``ρ ~ Lap(1)``."""

    def integrand(shift: float) -> float:
        # Over the threshold's noise ρ = -shift; the tail of one query beyond margin - shift.
        left = margin - shift
        below = math.log1p(-0.5 * math.exp(-left / 2)) if left >= 0 else left / 2 - math.log(2)
        return -math.expm1(n_levels * below) * 0.5 * math.exp(-abs(shift))

    kinks = sorted({-60.0, 0.0, margin, 60.0 + margin})
    pieces = [
        scipy.integrate.quad(integrand, a, b, epsabs=1e-12, epsrel=1e-10, limit=200)[0]
        for a, b in pairwise(kinks)
    ]
    return float(sum(pieces))


def _reach_of_noise(n_levels: int, gamma: float) -> float:
    """Return the margin, in units of the threshold's noise, with a wrong yes of at most gamma."""
    high = 1.0
    while threshold_wrong_yes(high, n_levels) > gamma:
        high *= 2.0
    if high == 1.0:
        return high
    root = scipy.optimize.brentq(
        lambda x: threshold_wrong_yes(x, n_levels) - gamma, 0.5 * high, high, xtol=1e-9
    )
    # Covers quadrature, the margin for floats, and the grid: less than a part in 2^28.
    return float(root) * (1 + 2e-6)
