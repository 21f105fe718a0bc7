"""The best possible guess of one unit's membership: the definition of PAC privacy itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.information import DEFAULT_GAMMA, information_draws
from pacprivacy.adversary.view import Observable, View, draw_blocks, posterior, view_of
from pacprivacy.errors import PoolError
from pacprivacy.theory import Estimate, bernstein_estimate, empirical_bernstein

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


def risk_of_view(
    view: View, pool: Candidates, *, n_draws: int, gamma: float, rng: np.random.Generator
) -> MembershipRisk:
    """Estimate (5) on a view; see :func:`membership_risk`."""
    _check_same_subsets(view, pool)
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
    mean = Estimate(
        value=mean.value,
        lower=max(0.5, mean.lower - slack),
        upper=min(1.0, mean.upper + slack),
        confidence=1 - gamma,
        n_draws=n_draws,
    )
    return MembershipRisk(worst=worst, mean=mean, per_unit=value, upper_per_unit=upper)


def membership_draws(n_subsets: int, n_units: int) -> int:
    """Draws that take a few seconds at most."""
    return int(np.clip(5 * 10**10 // (n_subsets * n_units), 2048, 100_000))


def membership_risk(
    outputs: object,
    pool: Candidates,
    plan: Observable,
    *,
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> MembershipRisk:
    """Success of the best attacker in telling whether a unit was in the secret subset.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        One row per candidate subset.
    pool : Pool
        The candidate subsets.
    plan : NoisePlan
        The noise under which one row is released.
    log_belief : array of shape (m,), optional
        What the attacker believed before; uniform by default.
    n_draws : int, optional
        Simulated releases; by default as many as a few seconds allow.
    gamma : float
        Probability that any of the intervals is wrong (union over units).

    Returns
    -------
    MembershipRisk
        The worst-placed unit (``value``, ``lower``, ``upper``), the mean, and arrays per unit.

    Guarantee
    ---------
    Claim A-2. With probability ``1 - gamma`` over the simulated draws, *no* attacker who knows
    the universe, the pool, the mechanism and the noise law guesses the membership of any unit
    with success above ``upper``.
    """
    view = view_of(outputs, plan, log_belief)
    draws = n_draws or membership_draws(pool.n_subsets, pool.n_units)
    generator = public_generator(coerce_seed(rng), "membership")
    return risk_of_view(view, pool, n_draws=draws, gamma=gamma, rng=generator)


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
    outputs: object,
    plan: Observable,
    score: Matrix,
    *,
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Estimate:
    """Best expected score of an attacker who picks one guess from a finite list.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        One row per candidate subset.
    plan : NoisePlan
        The noise under which one row is released.
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
    view = view_of(outputs, plan, log_belief)
    table = np.asarray(score, dtype=np.float64)
    if table.ndim != 2 or len(table) != view.n_subsets or not ((table >= 0) & (table <= 1)).all():
        raise PoolError(
            f"score must be an array of shape ({view.n_subsets}, n_guesses) with entries in "
            f"[0, 1]; got shape {table.shape}. Rescale the scores."
        )
    n_draws = n_draws or information_draws(view.n_subsets)
    generator = public_generator(coerce_seed(rng), "criterion")
    total = total_sq = 0.0
    for draws in draw_blocks(view, n_draws, generator):
        best = (posterior(view, draws) @ table).max(axis=1)
        total += float(best.sum())
        total_sq += float(best @ best)
    mean = total / n_draws
    variance = max(0.0, (total_sq - n_draws * mean**2) / (n_draws - 1))
    found = bernstein_estimate(mean, variance, n_draws, low=0.0, high=1.0, gamma=gamma)
    return Estimate(
        value=found.value,
        lower=max(0.0, found.lower - view.slack),
        upper=min(1.0, found.upper + view.slack),
        confidence=found.confidence,
        n_draws=n_draws,
    )
