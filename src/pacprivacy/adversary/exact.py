"""Gain of the exact attacker from one release: information, and the best guess of membership.

Information and other divergences are means, over simulated releases, of bounded functions of the
attacker's posterior. The best guess of one unit's membership is the definition of PAC privacy
itself; with it come its trade-off of errors, and the guess of an attacker who knows the membership
of a few others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import (
    Count,
    Matrix,
    Share,
    Vector,
    check_log_belief,
    freeze,
)
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.advantage import RATES, advantage_bounds, advantage_deviation
from pacprivacy.adversary.view_and_belief import (
    EVERYONE,
    View,
    ViewTilts,
    check_view_size,
    draw_view_blocks,
    make_view,
    view_entropy,
    view_generator,
    view_posterior,
)
from pacprivacy.sample import Pool
from pacprivacy.theory import (
    DivergenceName,
    Estimate,
    bernstein_estimate,
    divergence_success,
    information_slack_bound,
)

DEFAULT_GAMMA = 1e-9


def information_draws(n_subsets: int) -> int:
    """Draws that take a few seconds at most."""
    return int(np.clip(4 * 10**7 // n_subsets, 4096, 400_000))


def exact_information(
    view: View,
    *,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Estimate:
    """Estimate the mutual information between the secret index and the release, in nats.

    ``view`` holds the candidates as the attacker compares them, as from
    :meth:`pacprivacy.noise.NoisePlan.view`; by default as many releases are simulated as a few
    seconds allow.

    Guarantee
    ---------
    Claim A-1. ``upper`` is at least the true mutual information with probability ``1 - gamma``
    over the simulated draws, for the integer noise that is actually sampled (claim L-2).
    """
    n_draws = n_draws or information_draws(view.n_subsets)
    rng, prior = view_generator(rng, "information"), view.prior_entropy
    total = total_sq = 0.0
    shift: float | None = None  # differences keep digits in the squares
    for draws in draw_view_blocks(view, n_draws, rng):
        gains = prior - view_entropy(view, draws)
        shift = float(gains.mean()) if shift is None else shift
        gains -= shift
        total += float(gains.sum())
        total_sq += float(gains @ gains)
    mean = total / n_draws
    variance = max(0.0, (total_sq - n_draws * mean**2) / (n_draws - 1))
    estimate = bernstein_estimate(
        (shift or 0.0) + mean,
        variance,
        n_draws,
        low=prior - math.log(view.n_subsets),
        high=prior,
        gamma=gamma,
    )
    slack = information_slack_bound(view.slack, view.n_subsets)
    return replace(
        estimate,
        value=min(max(estimate.value, 0.0), prior),
        lower=max(0.0, estimate.lower - slack),
        upper=min(prior, max(estimate.upper, 0.0) + slack),
    )


ROUND_UP: Final = 1 + 1e-12
LEAST_PRIOR: Final = float(np.finfo(np.float64).tiny)  # the inverse of less overflows
Summand = Callable[[Matrix, Vector], Vector]


@dataclass(frozen=True, slots=True, kw_only=True)
class InformationDivergence:
    """A divergence from independence, and the largest ``success`` that it leaves at each prior."""

    name: DivergenceName
    estimate: Estimate
    success: dict[str, Share]

    @classmethod
    def of(cls, name: DivergenceName, estimate: Estimate) -> InformationDivergence:
        success = {p: divergence_success(name, estimate.upper, float(p)) for p in ("0.5", "0.01")}
        return cls(name=name, estimate=estimate, success=success)


SUMMANDS: Final[Mapping[DivergenceName, Summand]] = {
    "total variation": lambda p, prior: 0.5 * np.abs(p - prior).sum(axis=1),
    "chi-square": lambda p, prior: np.maximum(np.square(p) @ (1 / prior) - 1, 0.0),
    "squared Hellinger": lambda p, prior: np.maximum(1 - np.sqrt(p) @ np.sqrt(prior), 0.0),
}


def information_divergences(
    view: View,
    *,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> tuple[InformationDivergence, ...]:
    """Estimate three distances from independence, which hold together (claim RP-2)."""
    n_draws = n_draws or information_draws(view.n_subsets)
    rng = view_generator(rng, "divergences")
    prior = np.exp(view.log_prior)
    alive = prior >= LEAST_PRIOR
    law, n_faint = prior[alive], int(((prior > 0) & ~alive).sum())
    widest = float(1 / law.min()) - 1
    # The mean of a candidate's P²/p is at most 1, so chi-square is at most their number less one.
    most = {"chi-square": len(law) + n_faint - 1.0 if n_faint else widest}
    sums = np.zeros((len(SUMMANDS), 2))
    for draws in draw_view_blocks(view, n_draws, rng):
        p = view_posterior(view, draws)[:, alive]
        for row, summand in enumerate(SUMMANDS.values()):
            values = summand(p, law)
            sums[row] += values.sum(), values @ values
    tau = view.slack
    slack = {
        "total variation": 2 * tau,
        "chi-square": 4 * len(law) * tau + 2 * tau * float((1 / law).sum()) + n_faint,
        "squared Hellinger": 4 * math.sqrt(tau) + 4 * tau,
    }
    result = []
    for (name, _), (total, total_sq) in zip(SUMMANDS.items(), sums, strict=True):
        high = widest if name == "chi-square" else 1.0
        mean = min(total / n_draws, high)
        variance = max(0.0, (total_sq - n_draws * mean**2) / (n_draws - 1))
        estimate = bernstein_estimate(
            mean, variance, n_draws, low=0.0, high=max(high, 1e-300), gamma=gamma / len(SUMMANDS)
        )
        lower = max(0.0, estimate.lower - slack[name])
        upper = max(estimate.value, min(most.get(name, high), estimate.upper + slack[name]))
        result.append(InformationDivergence.of(name, replace(estimate, lower=lower, upper=upper)))
    return tuple(result)


def noiseless_information_divergences(view: View) -> tuple[InformationDivergence, ...]:
    """Return the divergences of a release without noise: its group alone is learned."""
    prior = np.exp(view.log_prior)
    groups = np.zeros(len(prior), dtype=np.int64) if view.groups is None else view.groups
    mass = np.bincount(groups, prior)
    mass = mass[mass > 0]
    divergences: dict[DivergenceName, float] = {
        "total variation": float(mass @ (1 - mass)),
        "chi-square": float(len(mass) - 1),
        "squared Hellinger": float(mass @ (1 - np.sqrt(mass))),
    }
    return tuple(
        InformationDivergence.of(name, Estimate.exact(max(0.0, value), max(0.0, value) * ROUND_UP))
        for name, value in divergences.items()
    )


ROUNDING = 1e-12  # sums of a few thousand weights that add up to one
SIDE_UNITS = 2048  # units whose success is computed under side knowledge; sampled from more
SIDE_PILOT = 128  # draws that rank them
SIDE_BEST = 128  # of them, by gain and by success: looked at closely
SIDE_BLOCK = 1 << 20  # posterior entries at a time
SINGLE = 1e-6  # what sums in single precision may show where there is nothing

Direction = Literal["in", "out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRisk:
    """Success of the optimal attacker on each unit, with intervals.

    ``value``, ``lower`` and ``upper`` speak of the worst-placed unit. ``worst`` and ``mean``
    are public; the arrays per unit are curator-only, and their bounds hold one by one (claim A-2).
    """

    worst: Estimate
    mean: Estimate
    per_unit: Vector
    lower_per_unit: Vector
    upper_per_unit: Vector

    def __post_init__(self) -> None:
        freeze(self.per_unit)
        freeze(self.lower_per_unit)
        freeze(self.upper_per_unit)

    @property
    def worst_unit(self) -> int:
        """The unit with the largest lower bound, since upper bounds may be loose; curator-only."""
        return int(self.lower_per_unit.argmax())

    @property
    def value(self) -> float:
        return self.worst.value

    @property
    def lower(self) -> float:
        return self.worst.lower

    @property
    def upper(self) -> float:
        return self.worst.upper

    def __repr__(self) -> str:
        return f"MembershipRisk(worst={self.worst}, mean={self.mean})"


def membership_risk(
    view: View,
    pool: Pool,
    *,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
    caps: Vector | None = None,
) -> MembershipRisk:
    """Bound the success of the best attacker in telling whether a unit was used.

    The worst-placed unit or the mean is outside its interval with probability ``gamma``; the bounds
    per unit hold one by one, not all at once. Once a unit is above its entry of ``caps``, the
    others are bounded less sharply. The rest is as in :func:`exact_information`.

    Guarantee
    ---------
    Claim A-2. With probability ``1 - gamma`` over the simulated draws, *no* attacker who knows
    the universe, the pool, the mechanism and the noise law guesses the membership of any unit
    with success above ``upper``.
    """
    check_view_size(view.n_subsets, pool)
    n_draws = n_draws or membership_draws(pool.n_subsets)
    rng = view_generator(rng, "membership")
    allowed = None if caps is None else 2 * caps - 1
    bounds = advantage_bounds(view, pool, n_draws=n_draws, gamma=gamma, rng=rng, allowed=allowed)
    value, lower, upper = (
        0.5 + 0.5 * np.minimum(a, 1.0) for a in (bounds.value, bounds.lower, bounds.upper)
    )

    def estimate(*ends: float) -> Estimate:
        low, middle, high = sorted(ends)
        return Estimate(
            value=middle, lower=low, upper=high, confidence=1 - gamma, n_draws=bounds.n_draws
        )

    return MembershipRisk(
        worst=estimate(float(value.max()), float(lower.max()), float(upper.max())),
        mean=estimate(*(0.5 + 0.5 * min(a, 1.0) for a in bounds.mean)),
        per_unit=value,
        lower_per_unit=lower,
        upper_per_unit=upper,
    )


def membership_draws(n_subsets: int) -> int:
    """Draws that take a second or two."""
    return int(np.clip(5 * 10**7 // n_subsets, 8192, 1 << 17))


def noiseless_membership(view: View, pool: Pool) -> MembershipRisk:
    """Return the membership success when only the secret's group is released; exact, no draws."""
    check_view_size(view.n_subsets, pool)
    tilts = ViewTilts(pool)
    weights = np.exp(view.log_prior)
    groups = view.groups if view.groups is not None else np.zeros(view.n_subsets, dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    advantage = np.empty(pool.n_units)
    for place, masks in tilts.blocks(EVERYONE, np.float64, whole=True):
        sums = np.add.reduceat(masks[order] * weights[order][:, None], starts, axis=0)
        advantage[place] = np.abs(sums).sum(axis=0)
    per_unit = np.minimum(0.5 + 0.5 * advantage + ROUNDING, 1.0)
    return MembershipRisk(
        worst=Estimate.exact(float(per_unit.max())),
        mean=Estimate.exact(float(per_unit.mean())),
        per_unit=per_unit,
        lower_per_unit=per_unit.copy(),
        upper_per_unit=per_unit.copy(),
    )


FALSE_POSITIVES = (0.001, 0.01, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeOff:
    """Most true positives of any test on the worst-placed unit, by false positives; public."""

    false_positives: Share
    true_positives: Share
    confidence: Share
    n_draws: Count


def membership_trade_off(
    view: View,
    pool: Pool,
    *,
    unit: int,
    n_draws: int,
    gamma: float,
    rng: np.random.Generator,
) -> tuple[TradeOff, ...]:
    """Bound the true positives of every test whether one unit was used, under a uniform belief.

    ``unit`` was chosen on other draws. Claim A-7: with probability ``1 - gamma`` over the draws no
    test that says *in* of a unit that is out as rarely as ``false_positives`` says it of one that
    is in more often than ``true_positives``.
    """
    inside = pool.inside(np.array([unit]))[:, 0].astype(np.float64)
    share = float(inside.mean())

    def densities(n: int) -> tuple[Vector, Vector]:
        draws = draw_view_blocks(view, n, rng)
        belief = np.concatenate([view_posterior(view, block) @ inside for block in draws])
        belief = np.clip(belief, 0.0, 1.0)
        return belief / share, (1 - belief) / (1 - share)

    n_pilot = n_draws // 4
    with_it, without = densities(n_pilot)
    order = np.argsort(-with_it)  # the largest likelihood ratios first
    reached = np.searchsorted(np.cumsum(without[order]) / n_pilot, FALSE_POSITIVES)
    at = order[np.minimum(reached, n_pilot - 1)]
    cuts = np.minimum(with_it[at] / np.maximum(without[at], 1e-12), 1e6)
    center = np.maximum(with_it[:, None] - without[:, None] * cuts, 0.0).mean(axis=0)
    n_draws -= n_pilot
    with_it, without = densities(n_draws)
    excess = np.maximum(with_it[:, None] - without[:, None] * cuts, 0.0)
    level = math.log(len(cuts) * len(RATES) / gamma) / n_draws
    squares = np.square(excess - center).mean(axis=0)
    most = excess.mean(axis=0) + advantage_deviation(squares, 1 / share - center + SINGLE, level)
    most += view.slack * (1 + cuts) + ROUNDING
    return tuple(
        TradeOff(
            false_positives=rate,
            true_positives=min(1.0, float((rate * cuts + most).min())),
            confidence=1 - gamma,  # of all together: each takes the least of all cuts
            n_draws=n_draws,
        )
        for rate in FALSE_POSITIVES
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SideKnowledge:
    """Gain from a release for an attacker who knows ``n_told`` memberships.

    Success is that on the best-guessed other unit, without the release and with it: often two
    different units. So the increment is that of *one* unit, the largest. ``mean_`` averages over
    the sampled sets of known units; ``worst_`` and ``largest_`` are the largest of these
    ``n_sets``. All are Monte-Carlo estimates, rather too large, and no part of the promise. Records
    of version 0.1 have no increments.
    """

    n_told: Count
    mean_success: Share
    worst_success: Share
    mean_without_release: Share
    worst_without_release: Share
    n_sets: Count
    direction: Direction | None = None
    n_looked_at: Count | None = None
    mean_increment: Share | None = None
    largest_increment: Share | None = None

    def __post_init__(self) -> None:
        if (self.mean_increment is None) != (self.largest_increment is None):
            raise ValueError("increments must both be known, or neither. Record both.")

    def to_public_dict(self) -> dict[str, float | int | str]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def side_knowledge(
    view: View,
    pool: Pool,
    *,
    n_told: int,
    direction: Direction | None = None,
    n_sets: int = 8,
    n_draws: int = 1024,
    rng: np.random.Generator | int | None = None,
) -> SideKnowledge:
    """Estimate membership success for an attacker who knows ``n_told`` other memberships.

    The sharp edge of a finite pool: an attacker who knows the pool and a few memberships knows
    the secret without any release. For each of ``n_sets`` sampled sets of units a secret is drawn,
    the pool is restricted to the candidates that agree with it on the set, and the best guess about
    other units (at most ``SIDE_UNITS``) is computed before and after the release.
    """
    generator = public_generator(coerce_seed(rng), "side-knowledge", n_told)
    with_release, without, increments = np.empty((3, n_sets))
    looked_at, units = min(pool.n_units, SIDE_UNITS), np.arange(pool.n_units)
    if looked_at < pool.n_units:
        units = np.sort(generator.choice(pool.n_units, looked_at, replace=False))
    memberships = pool.inside(units)
    for number in range(n_sets):
        secret = int(generator.choice(pool.n_subsets, p=np.exp(view.log_prior)))
        known_units = _told_units(pool, secret, n_told, direction, generator)
        memberships_known = pool.inside(known_units)
        consistent = (memberships_known == memberships_known[secret]).all(axis=1)
        log_p = check_log_belief(np.where(consistent, view.log_prior, -np.inf), pool.n_subsets)
        places = np.flatnonzero(consistent)
        restricted = make_view(
            view.points[places],
            log_p[places],
            groups=None if view.groups is None else view.groups[places],
            slack=view.slack,
        )
        inside, others = memberships[places], ~np.isin(units, known_units)
        inside = inside if others.all() else inside[:, others]
        blind, gains = _gains(restricted, inside, n_draws=n_draws, rng=generator)
        without[number] = blind.max()
        with_release[number] = min(1.0, float((blind + gains).max()))
        increments[number] = gains.max()
    return SideKnowledge(
        n_told=n_told,
        direction=direction,
        mean_success=float(with_release.mean()),
        worst_success=float(with_release.max()),
        mean_without_release=float(without.mean()),
        worst_without_release=float(without.max()),
        n_sets=n_sets,
        n_looked_at=looked_at if looked_at < pool.n_units else None,
        mean_increment=float(increments.mean()),
        largest_increment=float(increments.max()),
    )


def _told_units(
    pool: Pool,
    secret: int,
    n_told: int,
    direction: Direction | None,
    rng: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """Draw the units that the attacker knows: any units, used ones, or left-out ones."""
    n_told = min(n_told, pool.n_units - 1)
    if direction is None:
        return rng.choice(pool.n_units, size=n_told, replace=False).astype(np.int64)
    matches = pool.inside(slice(0, pool.n_units), secret) == (direction == "in")
    fitting = np.flatnonzero(matches)
    return rng.choice(fitting, size=min(n_told, len(fitting)), replace=False).astype(np.int64)


def _gains(
    view: View, inside: npt.NDArray[np.uint8], *, n_draws: int, rng: np.random.Generator
) -> tuple[Vector, Vector]:
    """Return the success on each unit before a release, and the estimated gain from it.

    With ``x = 2Q - 1`` of mean ``a`` and sign ``s`` it adds ``E max(0, -s x)``; few draws select
    units.
    """
    before = 2.0 * (np.exp(view.log_prior) @ inside) - 1.0
    sign = np.where(before < 0, 2.0, -2.0)

    def mean_gain(units: npt.NDArray[np.int64] | slice, n: int) -> Vector:
        against = (inside[:, units] - 0.5) * sign[units]
        total = np.zeros(against.shape[1])
        for draws in draw_view_blocks(view, n, rng, block_elements=SIDE_BLOCK):
            change = view_posterior(view, draws) @ against
            total += np.maximum(change, 0.0, out=change).sum(axis=0)
        return np.where(total < n * SINGLE, 0.0, total / n)

    blind = np.minimum(0.5 + 0.5 * np.abs(before), 1.0)
    gains = mean_gain(slice(None), min(n_draws, SIDE_PILOT))
    if n_draws > SIDE_PILOT:
        best = np.union1d(np.argsort(gains)[-SIDE_BEST:], np.argsort(blind + gains)[-SIDE_BEST:])
        gains = np.where(np.isin(np.arange(len(gains)), best), gains, 0.0)
        gains[best] = mean_gain(best, n_draws)
    return blind, gains
