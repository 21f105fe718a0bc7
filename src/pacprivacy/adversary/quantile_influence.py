"""Exact influence of one unit on a quantile of the used units.

The quantile is an order statistic: of ``k`` used records the one at place ``ceil(q k)``. A unit
that joins them leaves it, or moves it to the used record next to it, or to itself. Which record is
at that place, which used one is next to it and how many are used have a joint law that is a product
of binomials, over a window of ranks around ``q n``; records outside the window count as a move by
any distance. So the attacker's success is a sum, and nothing is simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Matrix, Vector, freeze
from pacprivacy.adversary.influence import MOVES, AverageRisk, InfluenceProof, average_gains
from pacprivacy.errors import BudgetError
from pacprivacy.statistics import quantile_places

WINDOW_STD: Final = 8.0  # deviations of ranks and of numbers of used records, to either side
WINDOW_MORE: Final = 24  # ranks beyond them, for few records
GAP_CHANCE: Final = 1e-16  # of so many consecutive records being left out
_COUNTS_AT_ONCE: Final = 1 << 22  # numbers in a table of probabilities
_MASS_ROUNDING: Final = 1e-14  # times n log n: of logarithms of factorials

Gain = Callable[[Vector], Vector]


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantileWindow:
    """The records around a quantile, in increasing order; curator-only.

    ``values`` are those of ranks ``first``, ``first + 1``, ..., counted from 1, of ``n_rows``
    records, one for each unit.
    """

    values: Vector = field(repr=False)
    first: int
    n_rows: int
    probability: float
    keep: float

    def __post_init__(self) -> None:
        last = self.first + len(self.values) - 1
        if not (
            1 <= self.first <= last <= self.n_rows
            and 0 <= self.probability <= 1
            and 0 < self.keep < 1
            and np.isfinite(self.values).all()
            and (np.diff(self.values) >= 0).all()
        ):
            raise BudgetError(
                "values must be increasing numbers of ranks from 1 to n_rows, and keep between 0 "
                f"and 1; got {len(self.values)} from rank {self.first} on, of {self.n_rows}. Use "
                "QuantileWindow.of."
            )
        freeze(self.values)

    @classmethod
    def of(cls, ordered: Vector, *, probability: float, keep: float) -> Self:
        """Return the window of a quantile of records in increasing order."""
        n = len(ordered)
        if n == 0:
            raise BudgetError("records must be at least one; got none. Leave the group out.")
        low, high = _used_range(n - 1, keep)
        below = int(quantile_places(probability, np.array([low]))[0]) - 1
        above = int(quantile_places(probability, np.array([high]))[0]) + 1
        reach = WINDOW_STD * math.sqrt(1 - keep)
        first = math.floor((below - reach * math.sqrt(below)) / keep) - WINDOW_MORE
        last = math.ceil((above + reach * math.sqrt(above)) / keep) + WINDOW_MORE
        first, last = max(1, min(first, n)), min(n, last)
        return cls(
            values=np.array(ordered[first - 1 : last], dtype=np.float64),
            first=first,
            n_rows=n,
            probability=probability,
            keep=keep,
        )

    # --- the influence of one unit --------------------------------------------------------------

    def expect(self, gain: Gain) -> Vector:
        """Return the mean over coins of a function of every unit's influence on the quantile.

        ``gain`` grows from 0 at no distance to 1 at most. The first entries are those of units in
        the window, in order; then that of units below it, and of units above it, where there are.

        Guarantee
        ---------
        Claim C-10. Rounded up: at least the mean over the coins of all others.
        """
        law, n = self._law, len(self.values)
        from_above, from_below = np.zeros(n), np.zeros(n)  # by the record that is moved to
        to_itself = np.zeros(n)
        for step in range(1, len(law.down) + 1):
            if step >= n:
                break
            reached = gain(self.values[step:] - self.values[:-step])
            from_above[:-step] += law.down[step - 1, :-step] * reached
            to_itself[:-step] += law.own_down[step - 1, :-step] * reached
            from_below[step:] += law.up[step - 1, :-step] * reached
            to_itself[step:] += law.own_up[step - 1, :-step] * reached
        higher = np.concatenate([np.cumsum(from_above[::-1])[::-1], [0.0]])
        lower = np.concatenate([[0.0], np.cumsum(from_below)])
        means = [to_itself + higher[1:] + lower[:-1]]
        if self.first > 1:
            means.append(higher[:1])
        if self.first + n - 1 < self.n_rows:
            means.append(lower[-1:])
        rounding = 1 + _MASS_ROUNDING * self.n_rows * (1 + math.log(self.n_rows))
        return np.minimum(1.0, np.concatenate(means) * rounding + self.missed)

    @cached_property
    def missed(self) -> float:
        """Probability of moves outside the window, rounded up."""
        n, keep = self.n_rows, self.keep
        last = self.first + len(self.values) - 1
        low, high = _used_range(n - 1, keep)
        places = quantile_places(self.probability, np.array([low, high]))
        chances = [_at_most(low - 1, n - 1, keep), _above(high, n - 1, keep)]
        if self.first > 1:
            chances.append(_above(int(places[0]) - 2, self.first - 1, keep))
        if last < n:
            chances.append(_at_most(int(places[1]), last - 1, keep))
        steps = _longest_gap(len(self.values), keep)
        if steps < len(self.values):
            chances.append(len(self.values) * (1 - keep) ** (steps - 1))
        return min(1.0, math.fsum(chances) * (1 + 1e-9))

    def spread(self, centre: float) -> float:
        """Return the deviation of the quantile from a number, by the coins of all."""
        n, keep = self.n_rows, self.keep
        low, high = _used_range(n, keep)
        counts = np.arange(low, high + 1, dtype=np.int64)
        places = quantile_places(self.probability, counts)
        ranks = self.first + np.arange(len(self.values))
        law = np.zeros(len(ranks))
        for piece in _pieces(len(counts), len(ranks)):
            p, k = places[piece, None], counts[piece, None]
            law += (binomial_mass(p - 1, ranks - 1, keep) * binomial_mass(k - p, n - ranks, keep)
                    ).sum(axis=0) * keep  # fmt: skip
        return math.sqrt(float(law @ np.square(self.values - centre)))

    @cached_property
    def _law(self) -> _MoveLaw:
        return _move_law(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantileInfluence(InfluenceProof):
    """Several quantiles, one noise direction each; curator-only.

    ``cells`` numbers the group of every quantile. With ``one_cell_each`` a unit is in one of them
    at most, and its exposures in several groups do not add up.
    """

    kind: ClassVar[str] = "quantiles"
    windows: tuple[QuantileWindow, ...]
    cells: tuple[int, ...]
    one_cell_each: bool

    def __post_init__(self) -> None:
        if len(self.windows) != len(self.cells):
            raise BudgetError(
                f"cells must be one for each of {len(self.windows)} quantiles; got "
                f"{len(self.cells)}. Use plan_average."
            )

    def together(self, figures: Vector) -> float:
        """Return the largest sum of a unit's exposures over the quantiles of its group."""
        if not self.one_cell_each:
            return math.fsum(figures.tolist())
        cells = np.unique(np.array(self.cells), return_inverse=True)[1]
        return float(np.bincount(cells, weights=figures).max(initial=0.0)) * (1 + 1e-12)

    @property
    def most_together(self) -> int:
        """Largest number of quantiles that one unit affects."""
        return round(self.together(np.ones(len(self.windows))))

    def advantages(self, number: int, noise_std: float, rounding: float) -> float:
        """Return the advantage on one quantile alone."""
        means = self.windows[number].expect(
            lambda distance: average_gains(_in_deviations(distance, noise_std, rounding))
        )
        return float(means.max())

    def moves(self, number: int, noise_std: float, rounding: float, more_than: float) -> float:
        """Return the probability, for one quantile, of a move beyond a number of deviations.

        Of one, that chance; of several, the mean of the square of the distance, cut off: their
        squares add up, and Markov's inequality takes the sum.
        """
        alone = self.most_together == 1

        def chance(distance: Vector) -> Vector:
            moved = _in_deviations(distance, noise_std, rounding) / more_than
            return (moved > 1).astype(np.float64) if alone else np.minimum(np.square(moved), 1.0)

        return float(self.windows[number].expect(chance).max())

    def risk(self, noise_std: Vector, rounding: float) -> AverageRisk:
        """Return bounds on the success of attackers; 1 unless every number has its records.

        Guarantee
        ---------
        Claim C-10.
        """
        if not 0 < len(self.windows) == len(noise_std):  # a number that nothing is known of
            return AverageRisk(advantage=1.0, moves=tuple((move, 1.0) for move in MOVES))
        numbers = range(len(self.windows))
        advantages = np.array([self.advantages(i, noise_std[i], rounding) for i in numbers])
        moves = []
        for more_than in MOVES:
            chances = [self.moves(i, noise_std[i], rounding, more_than) for i in numbers]
            moves.append((more_than, min(1.0, self.together(np.array(chances)))))
        return AverageRisk(advantage=min(1.0, self.together(advantages)), moves=tuple(moves))

    @property
    def not_checkable(self) -> dict[str, str]:
        return {
            "n_draws": "none were needed; that the stored records around each quantile are those "
            "of the table"
        }

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        sizes = [len(window.values) for window in self.windows]
        described = [
            (w.first, w.n_rows, cell) for w, cell in zip(self.windows, self.cells, strict=True)
        ]
        return {
            "values": np.concatenate([np.zeros(0), *(w.values for w in self.windows)]),
            "sizes": np.array(sizes, dtype=np.int64),
            "ranks": np.array(described, dtype=np.int64).reshape(-1, 3),
            "probabilities": np.array([w.probability for w in self.windows], dtype=np.float64),
            "one_cell_each": np.array([int(self.one_cell_each)]),
        }

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], keep: float) -> Self:
        sizes, ranks = _whole(arrays["sizes"]), _whole(arrays["ranks"]).reshape(-1, 3)
        values = np.asarray(arrays["values"], dtype=np.float64)
        ends = np.cumsum(sizes)
        if not len(sizes) == len(ranks) == len(arrays["probabilities"]) or (sizes < 1).any():
            raise ValueError("sizes")
        if int(sizes.sum()) != len(values):
            raise ValueError("values")
        windows = tuple(
            QuantileWindow(
                values=np.array(values[end - size : end]),
                first=int(first),
                n_rows=int(n_rows),
                probability=float(q),
                keep=keep,
            )
            for end, size, (first, n_rows, _), q in zip(
                ends, sizes, ranks, arrays["probabilities"], strict=True
            )
        )
        return cls(
            windows=windows,
            cells=tuple(int(cell) for cell in ranks[:, 2]),
            one_cell_each=bool(arrays["one_cell_each"][0]),
        )


InfluenceProof.KINDS["quantiles"] = QuantileInfluence


def _whole(array: np.ndarray) -> Integers:
    if array.dtype.kind not in "iu":
        raise ValueError("integers")
    return array.astype(np.int64)


def _in_deviations(distance: Vector, noise_std: float, rounding: float) -> Vector:
    """Return distances in deviations; records that are equal are rounded alike."""
    moved: Vector = np.where(distance > 0, distance / noise_std * (1 + 2.0**-50) + rounding, 0.0)
    return moved


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _MoveLaw:
    """Probabilities that the quantile is moved from one record to another; curator-only.

    Line ``g - 1``, entry ``j`` is about ranks ``j`` and ``j + g`` of the window. ``down``: from the
    higher to the lower, for units below both; ``own_down``: to a unit that is the lower itself;
    ``up`` and ``own_up``: from the lower to the higher, for units above both, or the higher itself.
    """

    down: Matrix
    own_down: Matrix
    up: Matrix
    own_up: Matrix


def binomial_mass(
    hits: npt.NDArray[np.int64], n: npt.NDArray[np.int64], chance: float
) -> npt.NDArray[np.float64]:
    """Return binomial probabilities, 0 for impossible counts."""
    from scipy.special import gammaln  # slow to import, not always needed

    possible = (hits >= 0) & (hits <= n)
    hits, n = np.where(possible, hits, 0), np.where(possible, n, 0)
    log_mass = gammaln(n + 1.0) - gammaln(hits + 1.0) - gammaln(n - hits + 1.0)
    log_mass += hits * math.log(chance) + (n - hits) * math.log1p(-chance)
    return np.asarray(np.where(possible, np.exp(log_mass), 0.0))


def _at_most(hits: int, n: int, chance: float) -> float:
    """Return the probability of so many of ``n`` at most."""
    from scipy.special import bdtr  # slow to import, not always needed

    if hits < 0 or hits >= n:
        return 0.0 if hits < 0 else 1.0
    return float(bdtr(hits, n, chance))


def _above(hits: int, n: int, chance: float) -> float:
    """Return the probability of more than so many of ``n``."""
    from scipy.special import bdtrc  # slow to import, not always needed

    if hits < 0 or hits >= n:
        return 1.0 if hits < 0 else 0.0
    return float(bdtrc(hits, n, chance))


def _used_range(n: int, keep: float) -> tuple[int, int]:
    """Return the least and the largest number of ``n`` used, but for a negligible chance."""
    reach = WINDOW_STD * math.sqrt(n * keep * (1 - keep)) + WINDOW_MORE
    return max(1, math.floor(n * keep - reach)), max(1, min(n, math.ceil(n * keep + reach)))


def _longest_gap(n_values: int, keep: float) -> int:
    """Return the largest distance of neighbours, but for a negligible chance."""
    steps = math.log(GAP_CHANCE / n_values) / math.log1p(-keep)
    return min(n_values, 2 + math.ceil(steps))


def _pieces(n_counts: int, n_values: int) -> list[slice]:
    size = max(1, _COUNTS_AT_ONCE // n_values)
    return [slice(start, start + size) for start in range(0, n_counts, size)]


def _move_law(window: QuantileWindow) -> _MoveLaw:
    """Sum the products of binomials over the number of other used units."""
    n, keep, width = window.n_rows, window.keep, len(window.values)
    steps = _longest_gap(width, keep)
    low, high = _used_range(n - 1, keep)
    counts = np.arange(low, high + 1, dtype=np.int64)
    places = quantile_places(window.probability, np.arange(low, high + 2))
    stays, place = np.diff(places) == 0, places[:-1]
    ranks = window.first + np.arange(width)
    tables = [np.zeros((steps, width)) for _ in range(4)]
    for piece in _pieces(len(counts), width):
        for stay in (True, False):
            chosen = stays[piece] == stay
            k, p = counts[piece][chosen, None], place[piece][chosen, None]
            # Numbers of records below and above ``ranks``, without the unit itself.
            if stay:  # the place is the same: units below move it down
                others = binomial_mass(k - p, n - ranks, keep)
                _add_products(tables[0], binomial_mass(p - 2, ranks - 2, keep), others)
                _add_products(tables[1], binomial_mass(p - 1, ranks - 1, keep), others)
            else:  # the place is the next one: units above move it up
                start = binomial_mass(p - 1, ranks - 1, keep)
                _add_products(tables[2], start, binomial_mass(k - p - 1, n - ranks - 1, keep))
                _add_products(tables[3], start, binomial_mass(k - p, n - ranks, keep))
    between = (1 - keep) ** np.arange(steps)[:, None]
    down, own_down, up, own_up = (table * between * keep for table in tables)
    return _MoveLaw(down=down * keep, own_down=own_down, up=up * keep, own_up=own_up)


def _add_products(table: Matrix, lower: Matrix, higher: Matrix) -> None:
    """Add sums over counts of products of the probabilities of two ranks."""
    width = lower.shape[1]
    for step in range(1, min(len(table) + 1, width)):
        table[step - 1, :-step] += np.einsum("kj,kj->j", lower[:, :-step], higher[:, step:])
