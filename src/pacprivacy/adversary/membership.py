"""The best possible guess of one unit's membership: the definition of PAC privacy itself.

Also the belief that the guess rests on, kept across releases, and what an attacker gains who is
told the membership of a few others.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Count, Matrix, Share, Vector, check_log_belief, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.information import DEFAULT_GAMMA, information_draws
from pacprivacy.adversary.view import View, draw_blocks, draws_generator, make_view, posterior
from pacprivacy.errors import PoolError
from pacprivacy.theory import Estimate, bernstein_estimate, empirical_bernstein, entropy

CACHE_ELEMENTS = 1 << 24
UNIT_BLOCK = 4096
BIG_BLOCK = 1 << 23  # posterior entries at a time when unpacking signs is what costs
ROUNDING = 1e-12  # sums of a few thousand weights that add up to one


class Candidates(Protocol):
    """A pool, as far as the attacker cares."""

    @property
    def n_subsets(self) -> int:
        """Number of candidate subsets."""
        ...

    @property
    def n_units(self) -> int:
        """Number of units."""
        ...

    @property
    def complement_pairs(self) -> bool:
        """Whether subset ``k + m/2`` is the complement of subset ``k``."""
        ...

    def signs(self, start: int, stop: int, dtype: Any = ...) -> npt.NDArray[Any]:
        """Return +1 where a unit is in a subset and -1 where not, shape (m, stop-start)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRisk:
    """Success of the optimal attacker on each unit, with intervals.

    ``value``, ``lower`` and ``upper`` speak of the worst-placed unit. ``worst`` and ``mean``
    are public; the arrays per unit are curator-only.
    """

    worst: Estimate
    mean: Estimate
    per_unit: Vector
    upper_per_unit: Vector

    def __post_init__(self) -> None:
        freeze(self.per_unit)
        freeze(self.upper_per_unit)

    @property
    def value(self) -> float:
        """Estimated success on the worst-placed unit."""
        return self.worst.value

    @property
    def lower(self) -> float:
        """Lower end for the worst-placed unit."""
        return self.worst.lower

    @property
    def upper(self) -> float:
        """Upper end for the worst-placed unit."""
        return self.worst.upper

    def __repr__(self) -> str:
        return f"MembershipRisk(worst={self.worst}, mean={self.mean})"


class SignBlocks:
    """Membership signs in blocks of units, kept in memory when they fit.

    With complement pairs the second half of the pool is the negative of the first, so half of
    the products are enough.
    """

    def __init__(self, pool: Candidates, dtype: npt.DTypeLike, units: npt.NDArray[np.int64] | None):
        self._pool, self._dtype, self._units = pool, dtype, units
        self.n_units = pool.n_units if units is None else len(units)
        self._rows = pool.n_subsets // 2 if pool.complement_pairs else pool.n_subsets
        self._paired = pool.complement_pairs
        self._step = UNIT_BLOCK if units is None else max(1, self.n_units)
        small = self._rows * self.n_units <= CACHE_ELEMENTS
        self._cache = [self._load(a) for a in self._starts()] if small else None

    @property
    def is_streamed(self) -> bool:
        """Whether blocks are unpacked again on every pass, because they do not fit in memory."""
        return self._cache is None

    def _starts(self) -> range:
        return range(0, self.n_units, self._step)

    def _load(self, start: int) -> npt.NDArray[Any]:
        if self._units is not None:
            columns = [self._pool.signs(int(i), int(i) + 1, dtype=self._dtype) for i in self._units]
            return np.ascontiguousarray(np.concatenate(columns, axis=1)[: self._rows])
        stop = min(start + self._step, self.n_units)
        return self._pool.signs(start, stop, dtype=self._dtype)[: self._rows]

    def fold(self, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Bring posteriors of shape (N, m) to the rows that the blocks have."""
        if self._paired:
            weights = weights[:, : self._rows] - weights[:, self._rows :]
        return weights.astype(self._dtype, copy=False)

    def __iter__(self) -> Any:
        for number, start in enumerate(self._starts()):
            block = self._cache[number] if self._cache is not None else self._load(start)
            yield slice(start, start + block.shape[1]), block


def membership_risk(
    view: View,
    pool: Candidates,
    *,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> MembershipRisk:
    """Success of the best attacker in telling whether a unit was in the secret subset.

    Parameters
    ----------
    view : View
        What the attacker compares, as from :meth:`pacprivacy.noise.NoisePlan.view`.
    pool : Pool
        The candidate subsets.
    n_draws : int, optional
        Simulated releases; by default as many as a few seconds allow.
    gamma : float
        Probability that any of the intervals is wrong (union over units).

    Guarantee
    ---------
    Claim A-2. With probability ``1 - gamma`` over the simulated draws, *no* attacker who knows
    the universe, the pool, the mechanism and the noise law guesses the membership of any unit
    with success above ``upper``.
    """
    _check_same_subsets(view, pool)
    n_draws = n_draws or membership_draws(pool.n_subsets, pool.n_units)
    rng = draws_generator(rng, "membership")
    blocks = SignBlocks(pool, np.float64, None)
    total, total_sq = np.zeros(pool.n_units), np.zeros(pool.n_units)
    mean_total = mean_sq = 0.0
    block = BIG_BLOCK if blocks.is_streamed else None
    for draws in draw_blocks(view, n_draws, rng, block_elements=block):
        folded = blocks.fold(posterior(view, draws))
        row_sum = np.zeros(len(folded))
        for units, signs in blocks:
            tilt = np.abs(folded @ signs)
            np.minimum(tilt, 1.0, out=tilt)
            total[units] += tilt.sum(axis=0)
            total_sq[units] += np.einsum("ij,ij->j", tilt, tilt)
            row_sum += tilt.sum(axis=1)
        row_mean = row_sum / pool.n_units
        mean_total += float(row_mean.sum())
        mean_sq += float(row_mean @ row_mean)
    return _summarise(
        (total / n_draws, _variance(total, total_sq, n_draws)),
        (mean_total / n_draws, float(_variance(mean_total, mean_sq, n_draws))),
        n_draws=n_draws,
        gamma=gamma,
        slack=view.slack,
    )


def _check_same_subsets(view: View, pool: Candidates) -> None:
    if pool.n_subsets != view.n_subsets:
        raise PoolError(
            f"pool must have one subset per output; got {pool.n_subsets} subsets for "
            f"{view.n_subsets} outputs. Pass the pool the outputs were computed on."
        )


def _variance(total: Any, total_sq: Any, n_draws: int) -> Any:
    return np.maximum(total_sq - total**2 / n_draws, 0.0) / (n_draws - 1)


def _summarise(
    tilt: tuple[Vector, Vector],
    mean_tilt: tuple[float, float],
    *,
    n_draws: int,
    gamma: float,
    slack: float,
) -> MembershipRisk:
    """Turn means and variances of ``|2Q - 1|`` into success rates with intervals."""
    value = 0.5 + 0.5 * tilt[0]
    n_units = len(value)
    half = empirical_bernstein(tilt[1] / 4, n_draws, width=0.5, gamma=gamma / (4 * n_units))
    upper = np.minimum(1.0, value + half + slack)
    lower = np.maximum(0.5, value - half - slack)
    worst = Estimate(
        value=float(value.max()),
        lower=float(lower.max()),
        upper=float(upper.max()),
        confidence=1 - gamma,
        n_draws=n_draws,
    )
    mean = bernstein_estimate(
        0.5 + 0.5 * mean_tilt[0], mean_tilt[1] / 4, n_draws, low=0.5, high=1.0, gamma=gamma / 2
    )
    mean = replace(
        mean,
        lower=max(0.5, mean.lower - slack),
        upper=min(1.0, mean.upper + slack),
        confidence=1 - gamma,
    )
    return MembershipRisk(worst=worst, mean=mean, per_unit=value, upper_per_unit=upper)


def membership_draws(n_subsets: int, n_units: int) -> int:
    """Draws that take a few seconds at most."""
    return int(np.clip(5 * 10**10 // (n_subsets * n_units), 2048, 100_000))


def noiseless_risk(view: View, pool: Candidates) -> Vector:
    """Success per unit when nothing but the group of the secret is seen; exact, no draws."""
    _check_same_subsets(view, pool)
    weights = np.exp(view.log_prior)
    groups = view.groups if view.groups is not None else np.zeros(view.n_subsets, dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    step = max(1, CACHE_ELEMENTS // (4 * view.n_subsets))
    success = np.empty(pool.n_units)
    for start in range(0, pool.n_units, step):
        stop = min(start + step, pool.n_units)
        weighted = pool.signs(start, stop, dtype=np.float64)[order] * weights[order][:, None]
        tilts = np.abs(np.add.reduceat(weighted, starts, axis=0))
        success[start:stop] = 0.5 + 0.5 * tilts.sum(axis=0)
    return np.minimum(success + ROUNDING, 1.0)


def criterion_success(
    view: View,
    score: Matrix,
    *,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Estimate:
    """Best expected score of an attacker who picks one guess from a finite list.

    Parameters
    ----------
    view : View
        What the attacker compares.
    score : array of shape (m, n_guesses)
        ``score[k, a]`` in [0, 1]: how well guess ``a`` does when subset ``k`` is the secret.

    Returns
    -------
    Estimate
        ``E_z[max_a Σ_k P_k(z) score[k, a]]`` with an interval at confidence ``1 - gamma``.

    Guarantee
    ---------
    Claim A-3. No attacker limited to these guesses scores above ``upper`` on average.
    """
    table = np.asarray(score, dtype=np.float64)
    if table.ndim != 2 or len(table) != view.n_subsets or not ((table >= 0) & (table <= 1)).all():
        raise PoolError(
            f"score must be an array of shape ({view.n_subsets}, n_guesses) with entries in "
            f"[0, 1]; got shape {table.shape}. Rescale the scores."
        )
    n_draws = n_draws or information_draws(view.n_subsets)
    generator = draws_generator(rng, "criterion")
    total = total_sq = 0.0
    for draws in draw_blocks(view, n_draws, generator):
        best = (posterior(view, draws) @ table).max(axis=1)
        total += float(best.sum())
        total_sq += float(best @ best)
    mean = total / n_draws
    variance = max(0.0, (total_sq - n_draws * mean**2) / (n_draws - 1))
    found = bernstein_estimate(mean, variance, n_draws, low=0.0, high=1.0, gamma=gamma)
    upper = min(1.0, found.upper + view.slack)
    return replace(found, lower=max(0.0, found.lower - view.slack), upper=upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Log probabilities over the candidates, given everything released so far.

    A function of the pool and of what was released, so showing it to whoever knows the pool
    leaks nothing more.
    """

    log_p: Vector

    def __post_init__(self) -> None:
        freeze(self.log_p)

    @classmethod
    def uniform(cls, n_subsets: int) -> Belief:
        """Return the belief before any release."""
        return cls(log_p=check_log_belief(None, n_subsets))

    def updated(self, log_likelihood: Vector) -> Belief:
        """Return the belief after an observation with this log likelihood per candidate."""
        return Belief(log_p=check_log_belief(self.log_p + log_likelihood, len(self.log_p)))

    @property
    def learned_nats(self) -> float:
        """``KL(belief || uniform)``: what has been learned about the secret so far."""
        return max(0.0, math.log(len(self.log_p)) - float(entropy(self.log_p)))

    def success_per_unit(self, pool: Candidates) -> Vector:
        """Return the attacker's current success on each unit, ``max(Q, 1-Q)``."""
        blocks = SignBlocks(pool, np.float64, None)
        weights = blocks.fold(np.exp(self.log_p)[None, :])
        success = np.empty(pool.n_units)
        for units, signs in blocks:
            success[units] = 0.5 + 0.5 * np.abs(weights @ signs)[0]
        return np.minimum(success, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideKnowledge:
    """What an attacker who is told ``n_told`` memberships knows of the others, and gains.

    Success is that on the best-guessed other unit, without the release and with it. These are often
    two different units: what side knowledge alone gives away has nothing to gain. So the increment
    is taken unit by unit: the most that the release adds for any *one* unit.

    ``mean_`` is the average over the sampled sets of told units; ``worst_`` and ``largest_`` are
    the largest of these ``n_sets``, a sample and not a maximum over all sets. All are Monte-Carlo
    estimates for information, not part of the promise. The unit that gains most is found on the
    same draws, so its increment is overstated rather than understated.

    Records of version 0.1 have no increments; theirs are None.
    """

    n_told: Count
    mean_success: Share
    worst_success: Share
    mean_without_release: Share
    worst_without_release: Share
    n_sets: Count
    mean_increment: Share | None = None
    largest_increment: Share | None = None

    def __post_init__(self) -> None:
        if (self.mean_increment is None) != (self.largest_increment is None):
            raise ValueError("increments must both be known, or neither. Record both.")

    def to_public_dict(self) -> dict[str, float | int]:
        """Return every field that is known."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def side_knowledge(
    view: View,
    pool: Candidates,
    *,
    n_told: int,
    n_sets: int = 8,
    n_draws: int = 1024,
    rng: np.random.Generator | int | None = None,
) -> SideKnowledge:
    """Membership success when the attacker is told the membership of ``n_told`` other units.

    The sharp edge of a finite pool: whoever knows the pool and about ``log2 m`` memberships knows
    the secret without any release. So the figure is always shown beside the same figure without a
    release, and beside what the release adds for any one unit.

    For each sampled set a made-up secret is drawn, the pool is restricted to the candidates that
    agree with it on the told units, and (5) is computed there for every other unit, before and
    after the release.
    """
    generator = public_generator(coerce_seed(rng), "side-knowledge", n_told)
    with_release, without, increments = np.empty((3, n_sets))
    for number in range(n_sets):
        told = generator.choice(pool.n_units, size=min(n_told, pool.n_units - 1), replace=False)
        secret = int(generator.choice(pool.n_subsets, p=np.exp(view.log_prior)))
        known = np.concatenate(
            [pool.signs(int(i), int(i) + 1, dtype=np.int8) for i in told], axis=1
        )
        consistent = (known == known[secret]).all(axis=1)
        log_p = check_log_belief(np.where(consistent, view.log_prior, -np.inf), pool.n_subsets)
        kept = np.flatnonzero(consistent)
        left = make_view(
            view.points[kept],
            log_p[kept],
            groups=None if view.groups is None else view.groups[kept],
            slack=view.slack,
        )
        blind, gains = _gains(left, _Restricted(pool, kept), n_draws=n_draws, rng=generator)
        blind, gains = np.delete(blind, told), np.delete(gains, told)
        without[number] = blind.max()
        with_release[number] = min(1.0, float((blind + gains).max()))
        increments[number] = gains.max()
    return SideKnowledge(
        n_told=n_told,
        mean_success=float(with_release.mean()),
        worst_success=float(with_release.max()),
        mean_without_release=float(without.mean()),
        worst_without_release=float(without.max()),
        n_sets=n_sets,
        mean_increment=float(increments.mean()),
        largest_increment=float(increments.max()),
    )


def _gains(
    view: View, pool: Candidates, *, n_draws: int, rng: np.random.Generator
) -> tuple[Vector, Vector]:
    """Return the success on each unit before a release, and an estimate of what the release adds.

    With ``x = 2Q - 1``, ``a`` its mean and ``s`` the sign of ``a``: success is ``(1 + |a|)/2``
    before and ``E (1 + |x|)/2`` after, and since ``E x = a`` the difference is ``E max(0, -s x)``.
    Only draws on which the attacker changes their mind count; where none can, it is exactly zero.
    """
    blocks = SignBlocks(pool, np.float64, None)
    prior, before = blocks.fold(np.exp(view.log_prior)[None, :]), np.empty(pool.n_units)
    for units, signs in blocks:
        before[units] = (prior @ signs)[0]
    against = np.where(before < 0, 1.0, -1.0)
    total = np.zeros(pool.n_units)
    size = BIG_BLOCK if blocks.is_streamed else None
    for draws in draw_blocks(view, n_draws, rng, block_elements=size):
        folded = blocks.fold(posterior(view, draws))
        for units, signs in blocks:
            change = folded @ signs
            change *= against[units]
            total[units] += np.maximum(change, 0.0, out=change).sum(axis=0)
    return np.minimum(0.5 + 0.5 * np.abs(before), 1.0), total / n_draws


class _Restricted:
    """The candidates of a pool that agree with what the attacker was told."""

    complement_pairs = False

    def __init__(self, pool: Candidates, kept: npt.NDArray[np.int64]):
        self._pool, self._kept = pool, kept
        self.n_subsets, self.n_units = len(kept), pool.n_units

    def signs(self, start: int, stop: int, dtype: Any = np.float32) -> npt.NDArray[Any]:
        """Return the signs of the kept candidates."""
        return self._pool.signs(start, stop, dtype=dtype)[self._kept]
