"""Balances of every unit under very many small answers (math §14)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy.adversary.heat import TOP, first_balance
from pacprivacy.adversary.view_and_belief import Floats, Units, ViewTilts
from pacprivacy.sample import Pool

CUBES = 5.3  # of the largest move of a vote, in units of its information's root
WORST_VOTE = 1.3  # (e^x - 1)/x at WIDEST_VOTE
WIDEST_VOTE = 0.5  # squared distance of two votes in units of the noise, at most
WIDEST_ANSWER = 0.044  # the same for other answers: e^(3x) (1 + 3x) <= WORST_VOTE
LEAST_RESERVE = 0.005
MOST_OF_VOTES = 0.015  # of the advantage, kept where all answers are votes between two classes
STRAY = 0.004  # of a vote's charge: what its path may need beyond it, on average
STEADIEST = 1.25  # a vote that would be charged more by its path is charged by its moments
FINENESS, LONGEST = 2048, 0.3  # of the table of path charges
LATTICE = 2.0**-64  # total variation of an answer's noise from a continuous one (L-2)
WATCHED = 1024  # units that are worst off, and pay at every batch of votes


class VoteBalances:
    """Membership balances of every unit under very many small answers; curator-only.

    The mean squares of a batch are one quadratic form in the masks. The worst-placed units pay it
    at once; the others owe it until a bound of their debts no longer shows that they are better
    placed.

    Claim H-3: with ``square`` the sum of ``E (a' - a)²`` over answers and ``cubes`` a bound of
    ``E |a' - a|³ / E (a' - a)²`` of each, a unit's payment is enough for (7). H-4: so is ``square``
    alone, where it is the sum of path charges.
    """

    def __init__(
        self, pool: Pool, advantage: float, query_nats: float, *, two_votes: bool = False
    ) -> None:
        self._tilts, self.advantage = ViewTilts(pool), advantage
        share = self._tilts.share
        self.most = float((0.5 / np.minimum(share, 1 - share)).max())
        self._scale = float(self._tilts.scale.max())
        self.cubes = CUBES * math.sqrt(math.expm1(2 * query_nats)) * self.most
        # 2k of the balance goes into a reserve k, and e^(-k/cost) is left over when it is empty
        cost = min(BEND * self.cubes / (3 * advantage), 0.1)
        reserved = max(cost * math.log(0.5 / cost), LEAST_RESERVE)
        nominal = 0.25 * self._scale**2 * math.expm1(2 * query_nats) / first_balance(advantage)
        if two_votes and nominal < 0.1:  # of the balance, for an even vote about one unit
            reserved = min(reserved, max(0.5 * nominal, MOST_OF_VOTES))
        self._full = first_balance((1 - reserved) * advantage)
        # for the lattice, so much of a charge that its part of the reserve is enough
        lattice = 2 * self._scale * LATTICE * math.sqrt(self._full) / (TOP * STRAY)
        self._lattice = max(lattice, self._scale**2 * LATTICE)
        n_units = pool.n_units
        self._watch(np.full(n_units, self._full), np.full(n_units, reserved * advantage))

    def _watch(self, balance: Vector, reserve: Vector) -> None:
        """Choose the worst-placed units in one uninterruptible step; others pay later."""
        order = np.argsort(balance)
        watched, others = order[:WATCHED], np.sort(order[WATCHED:])
        lowest, masks = (
            _lowest_balance(balance, reserve, others),
            self._tilts.masks(watched, np.float64),
        )
        owed = np.zeros((self._tilts.rows, self._tilts.rows))
        self.balance, self.reserve, self._watched, self._others = balance, reserve, watched, others
        self._others_lowest, self._masks, self._owed = lowest, masks, owed
        self._owed_cubes = self._owed_more = self._booked = 0.0

    def to_arrays(self) -> dict[str, Floats | Units]:
        """Return the state of the balances as arrays, for the curator's file."""
        rest = np.array([self._owed_cubes, self._owed_more, self._booked])
        arrays = {"balance": self.balance, "reserve": self.reserve, "watched": self._watched}
        return {**arrays, "owed": self._owed, "rest": rest}

    def restore(self, arrays: Mapping[str, Floats | Units]) -> None:
        """Restore the balances from a file; raise ``ValueError`` if it has none."""
        balance, reserve, watched, owed, rest = (
            np.array(arrays[name]) for name in ("balance", "reserve", "watched", "owed", "rest")
        )
        kinds = (balance.dtype, reserve.dtype, owed.dtype, rest.dtype)
        if watched.dtype.kind != "i" or any(kind != np.float64 for kind in kinds):
            raise ValueError("dtype")
        others = np.setdiff1d(np.arange(len(self.balance)), watched)
        shapes = (balance.shape, reserve.shape, owed.shape, rest.shape)
        if shapes != (self.balance.shape, self.reserve.shape, self._owed.shape, (3,)):
            raise ValueError("shape")
        if len(watched) + len(others) != len(balance) or len(watched) != len(self._watched):
            raise ValueError("watched")
        if not (0 <= balance.min() <= balance.max() <= self._full and (rest >= 0).all()):
            raise ValueError("balance")
        if not (np.sqrt(balance * 2 / math.pi) + reserve <= self.advantage * (1 + 1e-9)).all():
            raise ValueError("reserve")
        self.balance, self.reserve, self._owed = balance, reserve, owed
        self._watched, self._others = watched, others
        self._others_lowest = _lowest_balance(balance, reserve, others)
        self._masks = self._tilts.masks(watched, np.float64)
        self._owed_cubes, self._owed_more, self._booked = rest.tolist()

    def worst_increment(self, n_answers: int, query_nats: float) -> float:
        """Return the most that so many answers can take of :attr:`increment_left`."""
        if not n_answers:
            return 0.0
        before, square = self.increment_left, self._worst_square(n_answers, query_nats) * (1 + 1e-6)
        mine, (others, _) = float(self.balance[self._watched].min()), self._others_lowest
        if len(self._others) and _after(others, square + self._most_owed()) < _after(mine, square):
            self.settle()
            mine = float(self.balance.min())
        return before - self._increment(max(_after(mine, square), 0.0))

    def _increment(self, balance: float) -> float:
        return 0.5 * self.advantage * math.sqrt(balance / self._full)

    def fits(self, n_answers: int, query_nats: float) -> bool:
        square = self._worst_square(n_answers, query_nats)
        if not n_answers or (not self._booked and self._holds(square)):
            return True
        self.settle()
        return self._all_can_pay(np.full(len(self.balance), square), self.cubes)

    def _holds(self, square: float) -> bool:
        for (worst, reserve), owed in (
            (_lowest_balance(self.balance, self.reserve, self._watched), 0.0),
            (self._others_lowest, self._most_owed()),
        ):
            if math.isinf(worst):  # there are no others
                continue
            if square + owed > 0.38 * worst:
                return False
            after = worst - float(_vote_price(worst, square + owed))
            if _from_reserve(square + owed, after, self.cubes) > reserve * (1 - 1e-6):
                return False
        return True

    def holds(self, moves: Matrix, cubes: float) -> bool:
        """Whether every unit can pay for answers that change the belief this much."""
        folded = self._tilts.fold(moves)
        size, more = float(np.abs(folded.T @ folded).sum()), len(moves) * self._lattice
        if not self._booked and self._others_pay(size, more, cubes):
            square = self._rounded(np.square(folded @ self._masks).sum(axis=0) + more, size)
            balance, reserve = self.balance[self._watched], self.reserve[self._watched]
            if _can_pay(balance, reserve, square, cubes).all():
                return True
        self.settle()
        square = np.empty(len(self.balance))
        for place, masks in self._tilts.blocks(np.arange(len(square)), np.float64):
            square[place] = np.square(folded @ masks).sum(axis=0)
        return self._all_can_pay(self._rounded(square + more, size), cubes)

    def _all_can_pay(self, square: Vector, cubes: float) -> bool:
        return bool(_can_pay(self.balance, self.reserve, square, cubes).all())

    def _others_pay(self, size: float, more: float, cubes: float) -> bool:
        if not len(self._others):
            return True
        square = self._rounded(np.array([self.most**2 * size + more]), size) + self._most_owed()
        balance, reserve = (np.array([least]) for least in self._others_lowest)
        return bool(_can_pay(balance, reserve, square, max(cubes, self._owed_cubes)).all())

    def book(self, n_answers: int, query_nats: float) -> None:
        """Write down the worst of a batch before its first draw; :meth:`pay` replaces it."""
        self._booked += self._worst_square(n_answers, query_nats)

    def unbook(self) -> None:
        """Undo the bookings of a batch that was refused before its first draw."""
        self._booked = 0.0

    def _worst_square(self, n_answers: int, query_nats: float) -> float:
        # Var(s) <= scale²/4, and the distance of two votes is set by their information
        return n_answers * WORST_VOTE * 0.25 * self._scale**2 * math.expm1(2 * query_nats)

    def _most_owed(self) -> float:
        """Return a bound on the debt of any unit, with mask entries of at most ``most``."""
        return self.most**2 * float(np.abs(self._owed).sum()) * (1 + 1e-9) + self._owed_more

    @property
    def increment_left(self) -> float:
        if self._booked:
            self.settle()
        return self._increment(float(self.balance[self._watched].min()))

    def pay(self, moves: Matrix, cubes: float, more: float = 0.0) -> None:
        """Charge a batch: rows of its moves, and ``more`` times the largest variance of ``s``."""
        folded = self._tilts.fold(moves)
        more = 0.25 * self._scale**2 * more + len(moves) * self._lattice
        kernel = folded.T @ folded
        if len(folded) < self._tilts.rows:
            square = np.square(folded @ self._masks).sum(axis=0)
        else:
            square = np.einsum("ij,ij->j", self._masks, kernel @ self._masks)
        self._charge(self._watched, square + more, float(np.abs(kernel).sum()), cubes)
        self._owed += kernel
        self._owed_more += more
        self._owed_cubes, self._booked = max(self._owed_cubes, cubes), 0.0
        if len(self._others):
            lowest = _after(self._others_lowest[0], self._most_owed())
            if lowest < float(self.balance[self._watched].min()):
                self.settle()

    def settle(self) -> None:
        """Charge all units their debts and the bookings that were never replaced."""
        booked, cubes = self._booked, self._owed_cubes
        if booked:  # an interruption: the charge is unknown
            cubes = self.cubes
            self._charge(self._watched, np.full(len(self._watched), booked), 0.0, cubes)
        size, more = float(np.abs(self._owed).sum()), booked + self._owed_more
        if len(self._others) and (size or more):
            for place, masks in self._tilts.blocks(self._others, np.float64):
                square = np.einsum("ij,ij->j", masks, self._owed @ masks) + more
                self._charge(self._others[place], square, size, cubes)
        self._watch(self.balance, self.reserve)

    def _charge(self, units: Units, square: Vector, size: float, cubes: float) -> None:
        """Charge units for mean squares; ``size`` bounds the sum, for its rounding."""
        square, had = self._rounded(square, size), self.balance[units]
        after = np.maximum(
            had - _charge_of_square(had, square, cubes), 0.0
        )  # below 0 if booked at the worst
        self.reserve[units] -= _from_reserve(square, after, cubes)
        self.balance[units] = after

    def _rounded(self, square: Vector, size: float) -> Vector:
        rounded: Vector = np.maximum(square, 0.0) * (1 + 1e-9) + 1e-12 * self.most**2 * size + 1e-18
        return rounded


def _lowest_balance(balance: Vector, reserve: Vector, units: Units) -> tuple[float, float]:
    least = (float(array[units].min(initial=math.inf)) for array in (balance, reserve))
    return next(least), next(least)


def _charge_of_square(balance: Vector, square: Vector, cubes: float) -> Vector:
    """Return the charge of mean squares; without cubes it is the mean square itself."""
    return _vote_price(balance, square) if cubes else square


def _from_reserve(square: npt.ArrayLike, balance: npt.ArrayLike, cubes: float) -> Vector:
    """Return the charge of answers to the reserve of a balance (claims H-3, H-4)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        each: Vector = BEND * cubes / np.asarray(balance) + TOP * STRAY / np.sqrt(balance)
    return np.asarray(square) * each


def _can_pay(
    balance: Vector, reserve: Vector, square: Vector, cubes: float
) -> npt.NDArray[np.bool_]:
    after = np.maximum(balance - _charge_of_square(balance, square, cubes), 0.0)
    enough: npt.NDArray[np.bool_] = _from_reserve(square, after, cubes) <= reserve * (1 - 1e-6)
    return enough & (square <= 0.38 * balance if cubes else after > 0)


def vote_path_charges(ones: Vector, apart: Vector) -> Vector:
    """Return the charge of votes over squared ``Cov(s, vote)``, or inf (claim H-4)."""
    lean, table = np.abs(1 - 2 * ones), _path_table()
    place = np.ceil(2 * lean * np.sqrt(apart) * FINENESS * (1 + 1e-9)).astype(np.int64)
    steady = np.exp(lean * apart) * table[np.minimum(place, len(table) - 1)]
    never_more = 1 / np.maximum(4 * ones * (1 - ones), 0.5) ** 2  # of any path
    charge: Vector = np.minimum(steady, never_more) * (1 + 1e-9)
    return np.where(charge <= STEADIEST, charge * apart, np.where(apart > 0, np.inf, 0.0))


@cache
def _path_table() -> Vector:
    """Return ``k``, by steps of ``s`` from 0, with ``E (e^(s W) - k)+ <= STRAY k`` along a path."""
    from scipy.special import ndtr  # slow to import, not always needed

    steps = np.arange(1, math.ceil(LONGEST * FINENESS))[:, None] / FINENESS
    size = steps * np.sqrt(np.arange(1, 17) / 16)
    low, high = np.ones(len(size)), np.full(len(size), 4.0)
    for _ in range(40):
        middle = 0.5 * (low + high)
        strike = np.log(middle)[:, None] / size
        beyond = np.exp(0.5 * size**2) * ndtr(size - strike) - middle[:, None] * ndtr(-strike)
        fits = beyond.mean(axis=1) <= STRAY * (1 - 1e-9) * middle
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    table = np.concatenate([[1.0], high, [math.inf]])
    freeze(table)
    return table


def _after(balance: float, square: float) -> float:
    return balance - float(_vote_price(balance, square))


def _vote_price(balance: npt.ArrayLike, square: npt.ArrayLike) -> Vector:
    """Return the least ``c``, rounded up, with ``c sqrt((V - c)/V) >= square``; else ``V``."""
    whole = np.asarray(balance, dtype=np.float64)
    goal: Vector = np.minimum(np.asarray(square, dtype=np.float64) / np.maximum(whole, 1e-300), 1.0)
    x = np.minimum(goal, 0.38)
    for _ in range(5):
        root = np.sqrt(1 - x)
        x = np.minimum(x + (goal - x * root) * 2 * root / (2 - 3 * x), 0.66)
    x = x * (1 + 1e-6)
    x = np.where(x * np.sqrt(1 - x) >= goal, x, np.minimum(math.sqrt(3) * goal, 2 / 3))
    price: Vector = np.where(goal <= 0.3849, x, 1.0) * whole
    return price


BEND = 2 * TOP * math.exp(-0.5) / 6  # sup |d³Phi/da³| V / 6: growth of the potential by a cube
