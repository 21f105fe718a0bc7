"""The cost of a release for each unit under one membership budget (math §14).

A unit's tilt ``a`` (:mod:`pacprivacy.adversary.advantage`) is a martingale under the belief that
the releases leave, 0 at the start, with ``E |a|`` the advantage at the end. The heat potential
``Phi(a, V) = E |a + sqrt(V) Z|``, ``Z`` normal, grows in ``V`` from ``|a|``. A unit with balance
``V`` pays any ``c`` with ``E Phi(a', V - c) <= Phi(a, V) + e``; then ``E |a|`` never passes
``Phi(0, V_0)`` plus the sum of the ``e``, however releases are chosen (claim H-1). The ``e`` are a
small reserve for what draws cannot resolve. Every charge is also at least the mean square of the
move, less a part of the reserve, so that no run goes far (claim H-2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy.adversary.advantage import (
    CURVATURE,
    RATES,
    REACH,
    advantage_deviation,
    has_line_advantage,
    line_advantage_posteriors,
    normal_tail,
)
from pacprivacy.adversary.view_and_belief import (
    Units,
    View,
    ViewTilts,
    draw_view_blocks,
    view_posterior,
)
from pacprivacy.sample import Pool

RESERVE = 0.02  # of the advantage, kept for errors that the proofs cannot resolve
TOP: float = 1 / math.sqrt(2 * math.pi)  # of the normal density
HEAT_PILOT = 4096  # simulated releases that tell who needs a test of their own
NODES = 8000  # of a grid, for outputs of rank 1
FINEST, COARSEST = 1 / 400, 1 / 20  # of the noise's standard deviation
TIGHT = 1.02  # a quick charge further above the mean square is worth a test
HEAVY = 0.3  # of the worst-placed unit's burden: less is not worth a test
MOST_TESTED = 48  # units, beyond those that could not pay a quick charge
LADDER = (1.0, 1.05, 1.3, 2.0)  # of the mean square: charges that are tested
CLOSE = (0.01, 0.07)  # beyond what draws should prove, and one that leaves room
N_BOUNDS = 2 + len(CLOSE)  # that one unit's charge rests on: the mean square and the tests
CHUNK = 1 << 22
TESTED_AT_ONCE = 1 << 14  # numbers


def heat_potential(tilt: npt.ArrayLike, balance: npt.ArrayLike) -> Vector:
    """Return ``Phi(a, V) = E |a + sqrt(V) Z|``; arguments broadcast."""
    from scipy.special import ndtr  # slow to import, not always needed

    size, root = np.abs(np.asarray(tilt, dtype=np.float64)), np.sqrt(balance)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(root > 0, size / root, np.inf)
    potential: Vector = size + 2 * (root * TOP * np.exp(-0.5 * z * z) - size * ndtr(-z))
    return potential


def heat_slope(tilt: npt.ArrayLike, balance: npt.ArrayLike) -> Vector:
    """Return the derivative of ``Phi`` in ``a``, the sign of ``a`` if ``V = 0``."""
    from scipy.special import ndtr  # slow to import, not always needed

    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(np.asarray(balance) > 0, np.abs(tilt) / np.sqrt(balance), np.inf)
    slope: Vector = np.sign(tilt) * (1 - 2 * ndtr(-z))
    return slope


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """State of every unit before a release, and the amounts that it may take; curator-only.

    Per unit: the tilt ``before``, the ``balance`` and the most ``allowed`` to be charged. ``extra``
    and ``extra_square`` may be taken from the reserve: beyond the potential, and beyond the mean
    square.
    """

    before: Vector
    balance: Vector
    allowed: Vector
    extra: float = 0.0
    extra_square: float = 0.0

    def __post_init__(self) -> None:
        for array in (self.before, self.balance, self.allowed):
            freeze(array)

    def of(self, units: Units) -> Self:
        return replace(
            self,
            before=self.before[units],
            balance=self.balance[units],
            allowed=self.allowed[units],
        )

    def quick(self, square: Vector) -> Vector:
        """Return a valid charge from ``E (a' - a)² <= square`` alone, or inf (claim H-1)."""
        least = np.maximum(square - self.extra_square, 0.0)
        goal = heat_potential(self.before, self.balance) + self.extra
        by_jensen = np.maximum(self.before**2 + square + self.balance - goal**2, least)
        best = np.where(by_jensen <= self.balance, by_jensen, np.inf)
        low, high = np.zeros(len(square)), np.full(len(square), np.inf)
        tried = np.maximum(least, 1e-12 * self.balance)
        for step in range(30):  # doubled until it will do, then halved back
            rest = self.balance - tried
            inside = rest > 0
            rest = np.where(inside, rest, 1.0)
            bent = heat_potential(self.before, rest) + TOP * square / np.sqrt(rest)
            fits = inside & (bent <= goal)
            if step == 0 and fits.all():
                return np.minimum(best, tried)
            high = np.where(fits, tried, high)
            low = np.where(fits, low, tried)
            bracketed = np.isfinite(high)
            if step > 18 and not (bracketed & (high > 1.005 * low)).any():
                break
            tried = np.where(bracketed, 0.5 * (low + np.where(bracketed, high, 0.0)), 1.5 * low)
        proved: Vector = np.minimum(best, np.maximum(high, least))
        return proved

    def room(self) -> tuple[Vector, Vector]:
        """Return the growth of potential and mean square allowed by the charge."""
        after = np.maximum(self.balance - self.allowed, 0.0)
        gain = heat_potential(self.before, self.balance) - heat_potential(self.before, after)
        return gain + self.extra, self.allowed + self.extra_square

    def implied_nats(self, share: Vector) -> float:
        """Return information below which no unit is charged more than is allowed (Pinsker)."""
        after = self.balance - self.allowed
        gain, square = self.room()
        by_bend = gain * np.sqrt(np.maximum(after, 0.0)) / TOP
        goal = heat_potential(self.before, self.balance) + self.extra
        by_jensen = goal**2 - self.before**2 - np.maximum(after, 0.0)
        most = np.minimum(square, np.maximum(by_bend, by_jensen))
        return float((2 * most * (2 * share * (1 - share)) ** 2).min()) * (1 - 1e-9)


def heat_by_information(heat: Heat, share: Vector, nats: float) -> Vector:
    """Return charges that ``nats`` of information imply: ``E (Q' - Q)² <= nats/2`` (Pinsker)."""
    return heat.quick(0.5 * nats * (0.5 / (share * (1 - share))) ** 2)


def heat_charges(
    view: View,
    pool: Pool,
    heat: Heat,
    *,
    n_draws: int,
    gamma: float,
    rng: np.random.Generator,
) -> Vector:
    """Return the charge of every unit for a release; inf if nothing was proved.

    Claim H-1: for each unit, with probability ``1 - gamma`` over the draws, or for certain where
    the output has rank 1, ``E (a' - a)² <= c + extra_square`` and ``E Phi(a', V - c) <= Phi(a, V) +
    extra``.
    """
    tilts = ViewTilts(pool)
    if view.points.shape[1] and not has_line_advantage(view):
        return _bound_by_simulation(view, tilts, heat, n_draws=n_draws, gamma=gamma, rng=rng)
    if view.points.shape[1] and view.groups is None:
        span = float(np.ptp(view.points)) + 2 * REACH
        step = min(max(span / NODES, FINEST), COARSEST)
        return _charge_by_sums(tilts, heat, line_advantage_posteriors(view, step), view.slack, step)
    return noiseless_heat_charges(view, pool, heat)


def noiseless_heat_charges(view: View, pool: Pool, heat: Heat) -> Vector:
    """Return the charge of every unit for a release without noise: exact sums over its values."""
    return _charge_by_sums(ViewTilts(pool), heat, _group_posteriors(view), 0.0, 0.0)


def heat_room(variance: float, n_draws: int, *, width: float, gamma: float) -> float:
    """Estimate the gap between a proved charge and the truth, relative to ``width``."""
    level = math.log(len(RATES) * N_BOUNDS / gamma) / n_draws
    return float(advantage_deviation(np.array([variance]), np.array([1.2 * width]), level)[0])


def heat_draws(heat: Heat, gamma: float) -> int:
    """Return the number of draws that prove a well-known unit within the reserve."""
    if not (np.abs(heat.before) > np.sqrt(heat.balance)).any() or heat.extra <= 0:
        return HEAT_PILOT
    level = math.log(len(RATES) * N_BOUNDS / gamma)
    return math.ceil(3.2 * level / heat.extra)


def _group_posteriors(view: View) -> Iterable[tuple[Matrix, Vector]]:
    """Yield the belief left by each exact observation, and its probability."""
    p = np.exp(view.log_prior)
    groups = np.zeros(len(p), dtype=np.int64) if view.groups is None else view.groups
    for start in range(0, int(groups.max()) + 1, 256):
        rows = np.arange(start, min(start + 256, int(groups.max()) + 1))
        joint = np.where(groups[None, :] == rows[:, None], p, 0.0)
        mass = joint.sum(axis=1)
        yield joint[mass > 0] / mass[mass > 0, None], mass[mass > 0]


def _charge_by_sums(
    tilts: ViewTilts,
    heat: Heat,
    rows: Iterable[tuple[Matrix, Vector]],
    slack: float,
    step: float,
) -> Vector:
    """Charge by sums over a grid or over exact observations; ``step`` bounds their error."""
    parts = [(tilts.fold(weights), mass) for weights, mass in rows]
    folded = np.concatenate([part for part, _ in parts])
    mass = np.concatenate([part for _, part in parts])
    most = 0.5 / np.minimum(tilts.share, 1 - tilts.share)
    error = step**2 / 4 * CURVATURE
    lost = slack + (2 * normal_tail(REACH) if step else 0.0)
    span = tilts.scale  # of a
    typical = np.abs(heat.before) + most  # of |s|, and more than enough
    per_chunk = max(1, CHUNK // len(mass))

    def chunks(units: Units) -> Iterator[tuple[Units, Matrix]]:
        for start in range(0, len(units), per_chunk):
            chosen = units[start : start + per_chunk]
            yield chosen, folded @ tilts.masks(chosen, np.float64)

    square = error * (typical**2 + 2 * most**2) + lost * span**2 + 1e-14
    for chosen, tilted in chunks(np.arange(tilts.n_units)):
        square[chosen] += mass @ np.square(tilted - heat.before[chosen])
    floor, charges = np.maximum(square - heat.extra_square, 0.0), heat.quick(square)
    for chosen, tilted in chunks(_worth_a_test(heat, floor, charges)):
        here = heat.of(chosen)
        slope = heat_slope(here.before, here.balance)
        wide = typical[chosen] + np.sqrt(here.balance)
        bound = error * (wide + most[chosen]) + lost * 2 * (wide + span[chosen]) + 1e-12
        bound -= heat_potential(here.before, here.balance) - slope * here.before * mass.sum()
        bound -= slope * (mass @ tilted)
        for step_up in (*LADDER, None):
            tried = here.allowed if step_up is None else step_up * floor[chosen]
            tried = np.maximum(tried, floor[chosen])
            undecided = np.flatnonzero(tried < charges[chosen])
            after = np.maximum(here.balance - tried, 0.0)[undecided]
            over = mass @ heat_potential(tilted[:, undecided], after) + bound[undecided]
            proved = undecided[over <= here.extra]
            charges[chosen[proved]] = tried[proved]
    return charges


def _worth_a_test(heat: Heat, floor: Vector, quick: Vector) -> Units:
    """Return the units whose quick charge is too large or wasteful."""
    with np.errstate(divide="ignore", invalid="ignore"):
        burden = np.nan_to_num(quick / heat.balance, nan=0.0)
        most = np.nanmax(floor / heat.balance)
    wasted = (quick > TIGHT * floor) & (burden > HEAVY * most)
    wasted[np.argsort(burden)[:-MOST_TESTED]] = False
    return np.flatnonzero(wasted | (quick > 0.8 * heat.allowed))


def _bound_by_simulation(
    view: View,
    tilts: ViewTilts,
    heat: Heat,
    *,
    n_draws: int,
    gamma: float,
    rng: np.random.Generator,
) -> Vector:
    n = tilts.n_units
    pilot = _squares(view, tilts, np.arange(n), HEAT_PILOT, rng)
    per_test = gamma / N_BOUNDS
    widest = (0.5 / np.minimum(tilts.share, 1 - tilts.share) + np.abs(heat.before)) ** 2
    room = widest * math.log(1 / per_test) / (2 * n_draws)
    slack = view.slack * tilts.scale**2

    def plain(square: Vector) -> Vector:
        bound: Vector = (np.sqrt(room) + np.sqrt(square + room)) ** 2 + slack
        return bound

    near = _worth_a_test(heat, pilot, heat.quick(plain(1.05 * pilot)))
    far = np.setdiff1d(np.arange(n), near)
    tested = heat.of(near)
    finer = _squares(view, tilts, near, max(HEAT_PILOT, min(8 * HEAT_PILOT, n_draws // 8)), rng)
    level = math.log(len(RATES) / per_test) / n_draws
    tests = _Tests(tested, tilts.share[near], finer, level)
    kernel = np.zeros((tilts.rows, tilts.rows)) if len(far) > 2 * tilts.rows else None
    sums = np.zeros(len(far))
    center = tilts.fold(np.exp(view.log_prior)[None, :])
    masks = tilts.masks(near, np.float64)
    for draws in draw_view_blocks(view, n_draws, rng):
        moved = tilts.fold(view_posterior(view, draws)) - center
        tests.add(moved @ masks)
        if kernel is not None:
            kernel += moved.T @ moved
        elif len(far):
            for place, others in tilts.blocks(far, np.float64):
                sums[place] += np.square(moved @ others).sum(axis=0)
    if kernel is not None:
        for place, others in tilts.blocks(far, np.float64):
            sums[place] = np.einsum("ij,ij->j", others, kernel @ others)
    charges = np.empty(n)
    if len(near):
        charges[near] = tests.charges(n_draws, view.slack)
    if len(far):
        room, slack = room[far], slack[far]
        charges[far] = heat.of(far).quick(plain(sums / n_draws) + 1e-14)
    return charges


def _squares(
    view: View, tilts: ViewTilts, units: Units, n_draws: int, rng: np.random.Generator
) -> Vector:
    sums = np.zeros(len(units))
    center = tilts.fold(np.exp(view.log_prior)[None, :])
    for draws in draw_view_blocks(view, n_draws, rng):
        moved = (tilts.fold(view_posterior(view, draws)) - center).astype(np.float32)
        for place, masks in tilts.blocks(units, np.float32):
            sums[place] += np.square(moved @ masks).sum(axis=0, dtype=np.float64)
    return sums / n_draws


class _Tests:
    def __init__(self, heat: Heat, share: Vector, pilot: Vector, level: float) -> None:
        self._heat, self._level = heat, level
        roomy = np.maximum(2.1 * pilot, heat.allowed / 16)
        roomy = np.where(roomy < heat.allowed / 2, roomy, heat.allowed)
        self._span = 0.5 / (share * (1 - share))
        self._ends: Matrix = np.stack([-0.5 / (1 - share), 0.5 / share]) - heat.before
        self._slope = heat_slope(heat.before, heat.balance)
        self._goal = heat_potential(heat.before, heat.balance)
        start = np.zeros((1, len(pilot)))
        # the charge that the reserve and the width of the interval suggest, and a little more
        rest = np.maximum(heat.balance - pilot, 0.01 * heat.balance + 1e-300)
        bend = TOP * np.exp(-0.5 * heat.before**2 / rest) / np.sqrt(rest) + 1e-300
        width = np.maximum(self._over(self._ends, pilot).max(axis=0), 1e-9)
        wide = advantage_deviation(3 * np.square(bend * pilot), width, level)
        need = pilot + np.clip((wide - heat.extra) / bend, -0.1 * pilot, pilot)
        self._tried = [*(np.minimum(need + more * pilot, heat.allowed) for more in CLOSE), roomy]
        self._guess = [pilot, *(self._over(start, tried)[0] for tried in self._tried)]
        self._sums = np.zeros((N_BOUNDS, 2, len(pilot)))

    def _over(self, moved: Matrix, tried: Vector) -> Matrix:
        """Return the growth of the potential, less a part with mean zero."""
        balance = np.maximum(self._heat.balance - tried, 0.0)
        after: Matrix = heat_potential(self._heat.before + moved, balance)
        return after - self._slope * moved - self._goal

    def add(self, moved: Matrix) -> None:
        step = max(1, TESTED_AT_ONCE // max(1, moved.shape[1]))  # there may be no unit to test
        for start in range(0, len(moved), step):
            rows = moved[start : start + step]
            columns = [np.square(rows), *(self._over(rows, tried) for tried in self._tried)]
            for place, (values, guess) in enumerate(zip(columns, self._guess, strict=True)):
                values -= guess
                self._sums[place, 0] += values.sum(axis=0)
                self._sums[place, 1] += np.einsum("ij,ij->j", values, values)

    def charges(self, n_draws: int, slack: float) -> Vector:
        """Return the least charge of each unit that is proved, by tests of the given level."""

        def upper(place: int, highest: Vector) -> Vector:
            mean, squares = self._sums[place] / n_draws
            guess = self._guess[place]
            width = np.maximum(np.maximum(highest, 0.0) - guess, 1e-9)
            bound: Vector = guess + mean + advantage_deviation(squares, width, self._level)
            return bound

        span = self._span
        square = upper(0, np.square(self._ends).max(axis=0)) + slack * span**2
        floor = np.maximum(square - self._heat.extra_square, 0.0)
        charges = self._heat.quick(square)
        for place, tried in enumerate(self._tried, start=1):
            over = upper(place, self._over(self._ends, tried).max(axis=0))  # convex: at an end
            over += 2 * slack * span
            enough = np.where(over <= self._heat.extra, np.maximum(tried, floor), np.inf)
            charges = np.minimum(charges, enough)
        return charges


# --- balances -----------------------------------------------------------------------------------


def first_balance(advantage: float) -> float:
    """Return ``V_0 = (pi/2) adv²``, with which ``Phi(0, V_0)`` is the advantage."""
    return 0.5 * math.pi * advantage**2


def balance_advantage(balance: float) -> float:
    """Return the advantage that a balance allows from the start: the inverse of the above."""
    return math.sqrt(max(balance, 0.0) * 2 / math.pi)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Balances:
    """The membership budget that remains for each unit; curator-only.

    ``per_unit`` is ``V`` of every unit, updated at each release and never recomputed from the
    belief. ``advantage`` is the limit of all releases together, ``reserve`` the remaining share of
    the reserve.
    """

    per_unit: Vector
    advantage: float
    reserve: float = 1.0

    def __post_init__(self) -> None:
        freeze(self.per_unit)

    @classmethod
    def begin(cls, advantage: float, n_units: int) -> Self:
        full = first_balance((1 - RESERVE) * advantage)
        return cls(per_unit=np.full(n_units, full), advantage=advantage)

    @property
    def worst(self) -> float:
        return float(self.per_unit.min())

    @property
    def increment_left(self) -> float:
        """The gain over a blind guess that the smallest balance allows; public."""
        return 0.5 * balance_advantage(self.worst) / (1 - RESERVE)

    def least_after(self, increment: float) -> float:
        """Return the balance below which more than ``increment`` of that would be gone."""
        return first_balance(2 * (1 - RESERVE) * max(self.increment_left - increment, 0.0))

    def planned(self, n_left: int, n_done: int) -> Vector:
        """Return the allowance of units for the next of ``n_left`` releases, after ``n_done``.

        The geometric mean of two ways to use a unit's savings: over all of them, and at once.
        """
        full = Balances.begin(self.advantage, 1).worst
        even = self.per_unit / n_left
        ahead = self.per_unit - full * ((n_left - 1) / (n_left + n_done))
        return np.minimum(np.sqrt(even * np.maximum(even, ahead)), self.per_unit)

    def heat(self, before: Vector, allowed: Vector, part: float) -> Heat:
        """Return the terms of a release that takes a ``part`` of the remaining reserve."""
        used = part * self.reserve
        full_reserve = first_balance(self.advantage) - first_balance((1 - RESERVE) * self.advantage)
        return Heat(
            before=before,
            balance=self.per_unit,
            allowed=allowed,
            extra=used * RESERVE * self.advantage,
            extra_square=used * full_reserve,
        )

    def after(self, charges: Vector, part: float) -> Self:
        remaining = np.maximum(self.per_unit - charges * (1 + 1e-12), 0.0)
        return replace(self, per_unit=remaining, reserve=self.reserve * (1 - part))
