"""Noise for one answer out of very many: the law of a plan, calibrated in microseconds.

All noise has one integer scale, ``UNITS`` steps per standard deviation, and is drawn ahead in
blocks; from answer to answer only the number of steps between the outputs changes. The grid step
need be no power of two: the integers are computed from the pool and the belief alone.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import BitSource, ProcessBound
from pacprivacy.errors import BudgetError
from pacprivacy.noise.lattice import Integers, sample_discrete_gaussian
from pacprivacy.noise.plan import LARGEST_POINT
from pacprivacy.theory import (
    information_slack_bound,
    lattice_total_variation_bound,
    water_filled_noise,
)

UNITS: Final = 1 << 30
LEAST_NATS: Final = 2.0**-44  # below, the integers are too few steps apart
ROUND_UP: Final = 1 + 1e-12
_FIRST_BLOCK: Final = 1 << 8
_LARGEST_BLOCK: Final = 1 << 13
_RANK_TOLERANCE: Final = 2.0**-44
_LARGEST: Final = LARGEST_POINT / 2


class AnswerNoise(ProcessBound):
    """Discrete Gaussians of scale ``UNITS``, drawn ahead; a fork gets none (R-4); curator-only."""

    __slots__ = ("_next", "_source", "_values")
    KIND = "noise that was drawn ahead"

    def __init__(self, source: BitSource) -> None:
        self._source, self._values, self._next = source, np.zeros(0, dtype=np.int64), 0

    def take(self, size: int) -> Integers:
        """Return ``size`` draws that were never returned before."""
        self.check_process()
        if self._next + size > len(self._values):
            unused = self._values[self._next :]
            # from few to many, so that few answers do not wait for a large block
            count = max(size, _FIRST_BLOCK, min(_LARGEST_BLOCK, 2 * len(self._values)))
            fresh = sample_discrete_gaussian(np.full(count, UNITS, dtype=np.int64), self._source)
            self._values, self._next = np.concatenate([unused, fresh]), 0
        start, self._next = self._next, self._next + size
        return self._values[start : self._next]


def usable_answer_nats(mi_nats: float, *, n_directions: int, n_subsets: int) -> tuple[float, float]:
    """Return the budget less the lattice's slack, for the log-determinant bound; and the slack."""
    if not mi_nats >= LEAST_NATS:
        raise BudgetError(
            f"mi_nats must be at least 2**-44 for one answer; got {mi_nats!r}. Use 2**-20."
        )
    slack = information_slack_bound(
        lattice_total_variation_bound(n_directions, float(UNITS)), n_subsets
    )
    return (mi_nats - slack) * (1 - 1e-9), slack


def answer_vote_gap(ones: float, zeros: float, usable: float) -> int:
    """Return the largest distance of two votes in noise steps, rounded down (claim F-1)."""
    return int(UNITS * math.sqrt(math.expm1(2.0 * usable) / (ones * zeros)))


def answer_vote_charge(ones: float, zeros: float, gap: int, slack: float) -> float:
    """Return the proved bound on the information of one vote, in nats."""
    ratio = gap / UNITS
    return 0.5 * math.log1p(ones * zeros * ratio * ratio) * ROUND_UP + slack


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlan:
    """Noise of one answer in several dimensions; curator-only.

    ``points``, shape (g, r), are the integer positions of the possible outputs along ``basis``,
    shape (c, r); a step along direction ``i`` is ``grid_step[i]`` long.
    """

    center: Vector
    basis: Matrix
    grid_step: Vector
    points: Integers
    charge: float

    @property
    def noise_var(self) -> Vector:
        variances: Vector = np.square(self.grid_step * UNITS)
        return variances

    def value_of(self, integers: Integers) -> Vector:
        released: Vector = self.center + self.basis @ (self.grid_step * integers)
        return released

    def log_likelihood(self, integers: Integers) -> Vector:
        """Return the log likelihood of the integers under every output, up to a constant."""
        offset = (integers - self.points) / UNITS
        log_likelihood: Vector = -0.5 * np.einsum("kq,kq->k", offset, offset)
        return log_likelihood


def plan_answer(
    values: Matrix,
    weights: Vector,
    *,
    mi_nats: float,
    n_subsets: int,
    widest: float = math.inf,
) -> AnswerPlan:
    """Calibrate the noise of one answer by the rule ``waterfill`` (claim F-1).

    ``values``, shape (g, c), are the possible outputs, not all equal, and ``weights`` the belief in
    each; no two are further apart than ``widest``, squared, in units of the noise.
    """
    center = weights @ values
    centred = values - center
    eigenvalues, vectors = np.linalg.eigh((centred.T * weights) @ centred)
    keep = eigenvalues > _RANK_TOLERANCE * eigenvalues[-1]
    basis, variances = vectors[:, keep], eigenvalues[keep]
    coordinates = centred @ basis
    usable, slack = usable_answer_nats(mi_nats, n_directions=len(variances), n_subsets=n_subsets)
    for attempt in range(40):
        grid_step = np.sqrt(water_filled_noise(variances, usable)) / UNITS
        grid_step *= _too_wide(coordinates / (grid_step * UNITS), widest)
        points = _round(coordinates / grid_step)
        charge = _charge(points, weights) + slack
        if charge <= mi_nats:
            return AnswerPlan(
                center=center, basis=basis, grid_step=grid_step, points=points, charge=charge
            )
        usable *= min(1.0, mi_nats / charge) * (1 - 1e-9 * 2**attempt)
    raise BudgetError(f"mi_nats must be large enough for the lattice; got {mi_nats!r}. Use 2**-20.")


def _too_wide(points: Matrix, widest: float) -> float:
    """Return the factor, at least 1, by which points must be drawn together, with room to round."""
    if math.isinf(widest):
        return 1.0
    size = np.square(points).sum(axis=1)
    apart = float((size[:, None] + size - 2 * points @ points.T).max())
    return max(1.0, math.sqrt(apart / widest) * (1 + 1e-6))


def _round(scaled: Matrix) -> Integers:
    # What lies absurdly far out (a candidate that is as good as excluded) is moved in. That is a
    # contraction along each direction, so no variance grows.
    return np.rint(np.clip(scaled, -_LARGEST, _LARGEST)).astype(np.int64)


def _charge(points: Integers, weights: Vector) -> float:
    scaled = points / UNITS
    scaled -= weights @ scaled
    return 0.5 * float(np.log1p(weights @ np.square(scaled)).sum()) * ROUND_UP
