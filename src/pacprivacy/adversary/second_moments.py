"""Second moments of units: bounds of all by one quadratic form, and a regression on squares.

The form needs no draws (claim A-6). The regression bounds many units on few draws (claim A-2):
``y = |a| - b a²`` varies far less than ``|a|`` over draws, and is at most ``1/(4b)``. Its mean is
found on few draws; the mean of ``a²`` over many is one quadratic form of the masks, whose cost does
not grow with the number of draws. For units that are in half of the candidates.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, shortened
from pacprivacy.adversary.candidates import Units
from pacprivacy.adversary.view_and_belief import (
    EVERYONE,
    HALF_PRECISION,
    View,
    ViewTilts,
    single_loss,
)

SCREEN_SPREADS = (2.0, 4.0, 6.0, 10.0)  # times the candidates' variance
SCREEN_REST = 1e-4  # of a squared advantage, for what a root of few rows leaves out
LARGEST_TRACE = 1e3
SLOPES = (0.2, 0.25, 0.3, 0.35, 0.4)  # over the root mean square of a
LOOKS = 3  # each on twice the draws of the last
LEAST_LOOKED, MOST_LOOKED = 256, 4096  # rounding of sums of squares is counted for no more
RATES_TRIED = np.geomspace(0.5, 20.0, 60)  # over level / room
FORM_ROWS = 1024  # posteriors that are added to the form at once
BOUNDED = 1 << 16  # units that are bounded at a time
STRIPES = 16  # of the form's upper triangle: it costs 17/32 of the whole
SPREADS = 2.0  # standard deviations of the few draws that are left as room for most units


def advantage_moments(
    view: View, tilts: ViewTilts, *, most: float = math.inf, tail: float = 0.0
) -> Vector | None:
    """Bound ``E |a|`` for all units by one quadratic form, without draws (math §18).

    None where candidates are told apart exactly, or are so uneven that the form overflows, or where
    a typical bound is above ``most``. A ``tail`` of the squared bound makes it wider and faster.

    Guarantee
    ---------
    Claim A-6. No unit's advantage is above its bound.
    """
    screen = MomentScreen.of(view, tilts, most)
    if screen is None:
        return None
    return screen.bounds(EVERYONE, screen.rank(tail))


class MomentScreen:
    """Second moments of units by one quadratic form, its strongest directions first (claim A-6)."""

    def __init__(self, tilts: ViewTilts, form: Matrix, lost: float) -> None:
        root, rest = _root(form)
        few = 2 * len(root) <= tilts.rows
        strengths, vectors = np.linalg.eigh(root @ root.T if few else form)
        self._strengths, turned = np.maximum(strengths[::-1], 0.0), vectors[:, ::-1].T
        turned = turned @ root if few else turned * np.sqrt(self._strengths)[:, None]
        self._along = tilts.fold(tilts.turn_back(turned))
        self._rest = rest + (tilts.rows + 64) * 2.0**-48 * float(self._strengths.sum())
        self._tilts, self._lost = tilts, lost

    @classmethod
    def of(cls, view: View, tilts: ViewTilts, most: float = math.inf) -> "MomentScreen | None":
        """Return the form of a view; None if there is none, or a typical bound is above most."""
        most = most**2 * tilts.rows / tilts.length
        kernel = _kernel(view, tilts.turn_steps, most)
        if kernel is None:
            return None
        largest = float(np.square(view.points).sum(axis=1).max())
        steps = view.points.shape[1] + 8 + 4 * tilts.turn_steps
        lost = float(kernel.sum()) * steps * 2.0**-51 * (1 + largest)
        return cls(tilts, tilts.turn(np.ascontiguousarray(tilts.turn(kernel).T)), lost)

    def rank(self, tail: float) -> int:
        """Return how many directions leave no more than ``tail`` of a squared advantage."""
        weak = self._strengths * float(self._tilts.lengths.max()) <= tail
        return int(np.argmax(weak)) if weak.any() else len(weak)

    def bounds(self, units: Units | slice, rank: int | None = None) -> Vector:
        """Return bounds by the first directions, the others being as strong as the next."""
        tilts, first = self._tilts, slice(0, len(self._strengths) if rank is None else rank)
        following = self._strengths[first.stop :].max(initial=0.0)
        strengths = self._strengths[first]
        kept = np.sqrt(1 - following / np.maximum(strengths, max(following, 1e-300)))
        along = self._along[first] * kept[:, None]
        rounding = tilts.rows * float(np.square(along).sum())
        rounding = (tilts.rows + 8) * HALF_PRECISION * math.sqrt(rounding)
        worst, lengths = tilts.most[units], tilts.lengths[units]
        moment = np.zeros(len(worst))
        for _, place, image in tilts.products(along.astype(np.float32), units):
            moment[place] += np.einsum("ij,ij->j", image, image)
        moment *= 1 + 2 * tilts.rows * HALF_PRECISION
        np.sqrt(moment, out=moment)
        moment += rounding * shortened(worst)[0]
        moment *= moment
        left, lost = following + self._rest, self._lost
        length, most = shortened(lengths, worst)
        moment += left * length + lost * most**2
        return np.sqrt(moment, out=moment)


def _kernel(view: View, folds: int = 0, most: float = math.inf) -> Matrix | None:
    """Return ``p_j p_k ∫ φ(z - w_j) φ(z - w_k) / ρ(z) dz`` for the best of a few normal ``ρ``.

    None also where its trace, among rows that add up to zero in each partition, is above ``most``.
    """
    if view.groups is not None or view.gaps is not None:
        return None
    points, weights = view.points, np.exp(view.log_prior)
    squares = np.square(points)
    spread, best = weights @ squares, (math.inf, np.ones(points.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for times in SCREEN_SPREADS:
            width = 1 + times * spread  # twice the variance of ρ, less 1
            log_factor = float(np.log((1 + width) / (2 * np.sqrt(width))).sum())
            diagonal = np.exp(squares @ (1 / width) + 2 * view.log_prior + log_factor)
            best = min(best, (float(diagonal.sum()), width), key=lambda pair: pair[0])
        if not best[0] < LARGEST_TRACE:
            return None
        width = best[1]
        log_factor = float(np.log((1 + width) / (2 * np.sqrt(width))).sum())
        half = view.log_prior - 0.25 * (squares @ (1 - 1 / width)) + 0.5 * log_factor
        inner = points * (0.5 + 0.5 / width)
        trace = np.exp(2 * half + np.einsum("ij,ij->i", inner, points)).sum()
        for step in range(0, len(half) if folds else 0, len(half) // max(folds, 1)):
            beside = np.einsum("ij,ij->i", inner, np.roll(points, step, axis=0))
            trace -= np.exp(half + np.roll(half, step) + beside).sum() / folds
        if trace > most:
            return None
        kernel: Matrix = inner @ points.T
        kernel += half
        kernel += half[:, None]
        np.exp(kernel, out=kernel)
    return kernel


def _root(kernel: Matrix) -> tuple[Matrix, float]:
    """Return ``R`` with ``v'Kv <= |Rv|² + rest · |v|²`` for every ``v``, with few rows."""
    from scipy.linalg.lapack import dpstrf  # slow to import, not always needed

    n, diagonal = len(kernel), kernel.diagonal()
    largest = float(diagonal.max(initial=0.0))
    upper, order, rank, _ = dpstrf(kernel, tol=SCREEN_REST / n**2)
    root = np.zeros((rank, n))
    root[:, order - 1] = np.triu(upper)[:rank]
    left = np.maximum(diagonal - np.square(root).sum(axis=0), 0.0)
    return root, float(left.sum()) + 4.0 * n**2 * 2.0**-53 * largest


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageRegression:
    """How ``E |a|`` will be bounded: all of it is fixed before the draws."""

    n_draws: int
    slope: float
    centers: tuple[float, float]  # guesses of the means of |a| and of y
    level: float
    looks: tuple[tuple[int, float], ...] = ()  # on so many of the draws, and at what rate

    @classmethod
    def planned(
        cls, a: Matrix, *, room: float, n_draws: int, level: float
    ) -> "AdvantageRegression | None":
        """Return the least effort that should put bounds no more than ``room`` above the mean.

        ``a`` is that of a few units on the draws of a pilot; None where too many would be needed.
        """
        size, square = np.abs(a), np.square(a)
        mean, mean_square = float(size.mean()), float(square.mean())
        most = min(MOST_LOOKED, n_draws)
        if not (room > 0 and mean_square > 0 and most > LEAST_LOOKED):
            return None
        level += math.log(LOOKS)
        rates = RATES_TRIED * level / room
        for n in np.geomspace(LEAST_LOOKED, most, 25).astype(int).tolist():
            for slope in (part / math.sqrt(mean_square) for part in SLOPES):
                y = size - slope * square
                spread, centers = float(y.var(axis=0).mean()), (mean, float(y.mean()))
                plan = cls(n_draws=n_draws, slope=slope, centers=centers, level=level)

                def best(n: int) -> tuple[float, float]:
                    tried = (
                        (plan.upper((n, rate), centers[1], spread, mean_square), rate)  # noqa: B023
                        for rate in rates.tolist()
                    )
                    return min(tried)

                if best(n)[0] + SPREADS * math.sqrt(spread / n) <= mean + room:
                    later = sorted({min(n << k, most) for k in range(LOOKS)})
                    return replace(plan, looks=tuple((k, best(k)[1]) for k in later))
        return None

    def cost(self, rows: int, n_units: int) -> float:
        """Return what the first look takes, in draws that all units are looked at on."""
        form = rows * (STRIPES + 1) / (2 * STRIPES)
        return self.looks[0][0] + form + self.n_draws * rows / n_units

    def upper(self, look: tuple[int, float], mean: Any, squares: Any, mean_square: Any) -> Any:
        """Return the bound of ``E |a|``; ``squares`` are those of ``y`` around its center."""
        (n_looked, rate), (center, other) = look, self.centers
        whole = max(1.0 - center, 1e-3)
        paid = self.n_draws * _penalty(rate * whole / self.n_draws) / whole**2
        left = rate - 2 * center * paid
        if not left > 0:
            return mean + math.inf
        whole = max(0.25 / self.slope - other, 1e-3)
        looked = n_looked * _penalty(left * whole / n_looked) / whole**2
        total = left * (mean + self.slope * mean_square) + paid * (mean_square + center**2)
        return (total + looked * squares + self.level) / rate


def _penalty(rate: float) -> float:
    return -math.log1p(-rate) - rate if rate < 1 else math.inf


class RegressedSums:
    """What the draws of a regression show, and bounds by it; curator-only."""

    def __init__(self, plan: AdvantageRegression, tilts: ViewTilts) -> None:
        self._plan, self._tilts = plan, tilts
        self._form = np.zeros((tilts.rows, tilts.rows))
        self._looked: list[npt.NDArray[np.float32]] = []
        self._held: list[npt.NDArray[np.float32]] = []
        self._n_looked, self._mass = 0, 0.0

    def add(self, folded: npt.NDArray[np.float32]) -> None:
        """Add folded posteriors, in single precision: the next draws of the row."""
        if (left := self._plan.looks[-1][0] - self._n_looked) > 0:
            self._looked.append(folded[:left])
            self._n_looked += min(left, len(folded))
        self._held.append(folded)
        if sum(map(len, self._held)) >= FORM_ROWS:
            self._settle()

    def _settle(self) -> None:
        for start in range(0, len(rows := np.concatenate(self._held)), FORM_ROWS):
            some = rows[start : start + FORM_ROWS]
            self._form += some.T @ some
            self._mass += float(np.square(np.abs(some).sum(axis=1, dtype=np.float64)).sum())
        self._held = []

    def bounds(self, units: Units | slice, limit: Vector) -> tuple[Vector, Vector]:
        """Return estimates and upper bounds of ``E |a|``, sharper while they are above a limit."""
        plan, tilts, slope, form = self._plan, self._tilts, self._plan.slope, self._upper_half()
        single, looked = form.astype(np.float32), np.concatenate(self._looked)
        value, upper, mean_square, total, squares = (np.zeros(len(limit)) for _ in range(5))
        posterior = single_loss(tilts.n_subsets) * HALF_PRECISION
        lost = (tilts.rows + 8) * HALF_PRECISION * float(np.abs(looked).sum(axis=1).max())
        lost = (lost + posterior) * (1 + 2.1 * slope) + 8 * (1 + slope) * HALF_PRECISION
        most = max(0.25 / slope, abs(1 - slope)) + abs(plan.centers[1])
        rounding = (2 * tilts.rows + 16) * HALF_PRECISION * float(np.abs(form).sum())
        rounding += (FORM_ROWS + 8) * HALF_PRECISION * self._mass / plan.n_draws + 2.1 * posterior
        first, left = 0, np.arange(len(limit), dtype=np.int64)
        for n, rate in plan.looks:
            listed = left if isinstance(units, slice) else units[left]
            for place, masks in tilts.blocks(listed, np.float32):
                some = left[place]
                if not first:
                    mean_square[some] = _form_at(single, masks) + rounding
                y = looked[first:n] @ masks
                y = np.abs(y) - np.float32(slope) * np.square(y)
                total[some] += y.sum(axis=0, dtype=np.float64)
                y -= np.float32(plan.centers[1])
                squares[some] += np.einsum("ij,ij->j", y, y)
            for start in range(0, len(left), BOUNDED):
                some = left[start : start + BOUNDED]
                mean = total[some] / n
                rounded = 1 + 2 * MOST_LOOKED * HALF_PRECISION
                second = squares[some] / n * rounded + 2.1 * most * lost
                high = plan.upper((n, rate), mean + lost, second, mean_square[some])
                value[some] = mean + slope * mean_square[some]
                upper[some] = np.minimum(upper[some], high) if first else high
            first, left = n, left[upper[left] > limit[left]]
        return value, upper

    def _upper_half(self) -> Matrix:
        """Return the mean of ``P P'`` over all draws, what is below the diagonal put above it."""
        if self._held:
            self._settle()
        form: Matrix = np.triu(self._form / self._plan.n_draws)
        form += np.triu(form, 1)
        return form


def _form_at(upper_half: npt.NDArray[np.float32], masks: npt.NDArray[Any]) -> Vector:
    """Return the form of every column of masks."""
    found, width = np.zeros(masks.shape[1]), -(-len(masks) // STRIPES)
    for start in range(0, len(masks), width):
        stripe = slice(start, start + width)
        image = upper_half[stripe, start:] @ masks[start:]
        found += np.einsum("ij,ij->j", image, masks[stripe])
    return found
