"""Lower bounds on the variance of any noise that meets a budget, for the curator.

With ``c_k = p_k (s_k - f) / (2 f (1 - f))`` for a unit in the candidates ``s``, its advantage under
noise ``N`` of any law is the total mass of ``Σ_k c_k δ(Y_k) * N``; integrating a function of size
at most 1 against it gives no more. A wave ``exp(i ω·z)`` gives the Fourier bound along any
direction. Along a line a linear program on a grid proposes the best function; the bound is then
evaluated for the outputs themselves and every law, so rounding has no say in it. Bounds along
orthogonal directions add up: for one number within a few per cent of the truth, for many maybe far
below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary import Candidates, ViewTilts
from pacprivacy.budget import AnyBudget
from pacprivacy.noise.rules import RULES
from pacprivacy.noise.spread_frames import Spread

WAVES = 3.0 * np.geomspace(1 / 4, 6, 28)  # the best is 3 for a small advantage on a shift
UNITS_PER_DIRECTION = 8
MOST_UNIT_DIRECTIONS = 64
RANKED_UNITS, LINE_UNITS = 256, 4
MOST_LINES = 4  # axes along which the linear program is tried
LOOKS, CLOSE = 2, 4.0
CELLS_PER_STD = 10.0
REACH = 4.0  # of a law that the linear program may choose, in standard deviations
LAW_POINTS = 3  # of a law, for every node of a test function
CELLS_OF_OUTPUTS = 12
MOST_CELLS = 800
GAUSSIAN_LOSS = 6 / np.pi  # of a Gaussian against the best law, for a small shift
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The least total variance that noise of any law must have; curator-only."""

    least_variance: float

    def times_least(self, total_variance: float) -> float | None:
        """Return how many times the least a variance is, at most; None where nothing is known."""
        return total_variance / self.least_variance if self.least_variance > 0 else None


def noise_limit(
    outputs: object,
    budget: AnyBudget,
    *,
    pool: Candidates,
    enough: float,
) -> Limit:
    """Return a lower bound on the total variance of any noise that meets a budget.

    ``enough`` is a total variance that meets the budget. Nothing is known of a budget that does not
    limit membership.

    Guarantee
    ---------
    Claim N-9. Noise that is independent of the secret, of any law, with a smaller total variance
    breaks the limit of some unit.
    """
    problem = RULES["risk"].pose(outputs, budget, pool=pool, rng=0)
    spread, caps = problem.spread, problem.caps
    if caps is None or not spread.rank or not enough > 0:
        return Limit(least_variance=0.0)
    contrast = _Contrast(ViewTilts(pool), problem.log_p, 2 * caps - 1)
    shifts = contrast.tilts.shifts(spread.coordinates, problem.log_p)
    waves = _along_axes(spread, contrast, shifts)
    along = waves.copy()
    for axis in range(min(spread.rank, MOST_LINES)):
        units = _largest(np.abs(shifts[:, axis]) / contrast.allowed, RANKED_UNITS)
        scale = float(np.sqrt(max(enough / spread.rank / GAUSSIAN_LOSS, waves[axis])))
        for _ in range(LOOKS):  # the noise along an axis may be far less than its share
            bound = _on_a_line(spread.coordinates[:, axis], contrast, units, scale)
            along[axis] = max(along[axis], bound)
            if bound > (scale / CLOSE) ** 2:
                break
            scale /= CLOSE
    towards = _along_units(spread, contrast, shifts)
    return Limit(least_variance=max(float(along.sum()), towards))


@dataclass(frozen=True, slots=True)
class _Contrast:
    """The weights ``c_k`` of any units, and their limits."""

    tilts: ViewTilts
    log_p: Vector
    allowed: Vector

    def weights(self, units: npt.NDArray[np.int64]) -> Matrix:
        """Return ``c`` of shape (m, n_listed)."""
        masks: Matrix = self.tilts.masks(units, np.float64, whole=True)
        return masks * np.exp(self.log_p)[:, None]

    def worst(
        self, positions: Vector, units: npt.NDArray[np.int64], scale: float
    ) -> npt.NDArray[np.int64]:
        """Return the units that are farthest above their limits under normal noise, roughly."""
        z = np.arange(positions.min() - 3 * scale, positions.max() + 3 * scale, scale / 4)
        z = z[:: -(-len(z) // MOST_CELLS)]
        density = np.exp(-0.5 * np.square((z[:, None] - positions) / scale))
        above = np.abs(density @ self.weights(units)).sum(axis=0) / self.allowed[units]
        return units[_largest(above, LINE_UNITS)]

    def least_along(self, positions: Vector, units: npt.NDArray[np.int64], shifts: Vector) -> float:
        """Return the most that these units and a few waves give for the variance along a line."""
        allowed = self.allowed[units]
        keep = np.isfinite(allowed) & (np.abs(shifts) > 0)
        if not keep.any():
            return 0.0
        units, allowed, shifts = units[keep], allowed[keep], np.abs(shifts[keep])
        weights = self.weights(units)
        slowest, fastest = float((allowed / shifts).min()), float((allowed / shifts).max())
        waves = np.unique(np.concatenate([WAVES * slowest, WAVES * fastest]))
        sizes = np.abs(np.exp(1j * waves[:, None] * positions) @ weights)
        share = 1 - (1 + ROUNDING) * allowed / np.maximum(sizes, 1e-300)
        return max(0.0, float((2 / waves[:, None] ** 2 * share).max()))


def _along_axes(spread: Spread, contrast: _Contrast, shifts: Matrix) -> Vector:
    """Return the least variance along each principal direction: they add up."""
    least = np.zeros(spread.rank)
    for axis in range(spread.rank):
        along = shifts[:, axis]
        units = _largest(np.abs(along) / contrast.allowed, UNITS_PER_DIRECTION)
        least[axis] = contrast.least_along(spread.coordinates[:, axis], units, along[units])
    return least


def _along_units(spread: Spread, contrast: _Contrast, shifts: Matrix) -> float:
    """Return a least total variance from directions towards units, by the trace inequality."""
    lengths = np.linalg.norm(shifts, axis=1)
    units = _largest(lengths / contrast.allowed, MOST_UNIT_DIRECTIONS)
    units = units[lengths[units] > 0]
    if not len(units):
        return 0.0
    directions = shifts[units] / lengths[units][:, None]
    least = np.array(
        [
            contrast.least_along(
                spread.coordinates @ v, units[i : i + 1], lengths[units[i : i + 1]]
            )
            for i, v in enumerate(directions)
        ]
    )
    largest = float(np.linalg.eigvalsh(directions @ directions.T)[-1])
    return float(least.sum()) / (largest * (1 + ROUNDING))


def _largest(size: Vector, count: int) -> npt.NDArray[np.int64]:
    return np.argsort(-size, kind="stable")[:count].astype(np.int64)


# --- outputs along a line ------------------------------------------------------------------------


def _on_a_line(
    positions: Vector, contrast: _Contrast, units: npt.NDArray[np.int64], scale: float
) -> float:
    """Return the bound by a linear program; ``scale`` is about the standard deviation."""
    units = contrast.worst(positions, units[np.isfinite(contrast.allowed[units])], scale)
    weights, allowed = contrast.weights(units), contrast.allowed[units]
    low, span = float(positions.min()), float(np.ptp(positions))
    step = min(scale / CELLS_PER_STD, span / CELLS_OF_OUTPUTS)
    step = max(step, (span + 2 * REACH * scale) / MOST_CELLS)
    step = span / max(1, round(span / step))  # both ends on the grid
    reach = int(np.ceil(REACH * scale / step))
    multipliers, tests = _program((positions - low) / step, weights, allowed, reach)
    multipliers, tests = step**2 * multipliers, step**2 * tests
    value = _least_of_law(positions - low, weights, tests, step, reach)
    charge = float(allowed @ multipliers)
    return max(0.0, value - charge - ROUNDING * (abs(value) + charge))


def _program(places: Vector, weights: Matrix, allowed: Vector, reach: int) -> tuple[Vector, Matrix]:
    """Return the multiplier of each unit, and its test function on the grid."""
    from scipy.optimize import linprog  # slow to import, not always needed
    from scipy.sparse import block_diag, csr_array, eye_array, hstack, vstack

    spots = np.arange(2 * reach * LAW_POINTS + 1) / LAW_POINTS
    n_units, n_law = weights.shape[1], len(spots)
    n_cells = int(np.ceil(places.max())) + 2 * reach + 2
    below = np.floor(places + spots[:, None]).astype(np.int64)
    part = places + spots[:, None] - below
    cells = (below + n_cells * np.arange(n_law)[:, None]).ravel()
    blocks = []
    for column in weights.T:
        dense = np.bincount(cells, (column * (1 - part)).ravel(), n_law * n_cells)
        dense += np.bincount(cells + 1, (column * part).ravel(), n_law * n_cells)
        nonzero = np.flatnonzero(dense)
        where = (nonzero % n_cells, nonzero // n_cells)
        blocks.append(csr_array((dense[nonzero], where), shape=(n_cells, n_law)))
    excess = hstack([vstack(blocks), -eye_array(n_units * n_cells)])
    ones = block_diag([csr_array(np.ones((1, n_cells)))] * n_units)
    total = hstack([csr_array((n_units, n_law)), 2 * ones])
    cost = np.concatenate([np.square(spots - reach), np.zeros(n_units * n_cells)])
    once = np.concatenate([np.ones(n_law), np.zeros(n_units * n_cells)])[None, :]
    solution = linprog(
        cost,
        A_ub=vstack([excess, total]).tocsr(),
        b_ub=np.concatenate([np.zeros(n_units * n_cells), allowed + weights.sum(axis=0)]),
        A_eq=csr_array(once),
        b_eq=np.ones(1),
        method="highs",
    )
    if solution.status != 0:  # nothing is proposed, so nothing is bounded
        return np.zeros(n_units), np.zeros((n_units, n_cells))
    dual = -np.asarray(solution.ineqlin.marginals)
    multipliers = np.maximum(dual[n_units * n_cells :], 0.0)
    tests = dual[: n_units * n_cells].reshape(n_units, n_cells) - multipliers[:, None]
    return multipliers, np.clip(tests, -multipliers[:, None], multipliers[:, None])


def _least_of_law(
    positions: Vector, weights: Matrix, tests: Matrix, step: float, reach: int
) -> float:
    """Return the infimum of ``x² + Σ_u Σ_k c_uk w_u(x + y_k)``, a parabola between kinks."""
    nodes = step * (np.arange(tests.shape[1]) - reach)
    slopes = np.diff(tests, axis=1) / step
    bends = np.diff(np.pad(slopes, ((0, 0), (1, 1))), axis=1)
    kinks = (nodes[:, None] - positions).ravel()
    order = np.argsort(kinks)
    kinks = kinks[order]
    slope = np.cumsum((bends.T @ weights.T).ravel()[order])
    start = float(weights.sum(axis=0) @ tests[:, 0])
    height = start + np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(kinks))])
    ends = np.append(kinks[1:], np.inf)
    lowest = np.clip(-slope / 2, kinks, ends)
    inside = np.square(lowest) + height + slope * (lowest - kinks)
    return min(float(inside.min()), start + min(0.0, float(kinks[0])) ** 2)
