"""Beliefs: what the attacker thinks of every candidate, and of every unit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_log_belief, freeze
from pacprivacy.adversary.candidates import Candidates, Units
from pacprivacy.errors import PoolError
from pacprivacy.theory import entropy


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
        """Return the attacker's success on each unit, had both cases been equally likely."""
        check_belief_size(len(self.log_p), pool)
        tilts = BeliefTilts(pool)
        if not np.ptp(self.log_p):
            return np.full(pool.n_units, 0.5)
        return np.minimum(0.5 + 0.5 * tilts.sizes(np.exp(self.log_p)[None, :]), 1.0)


MASK_CELLS = 1 << 21  # of a block of masks, so that it fits in the cache


class BeliefTilts:
    """Turns posteriors into ``a`` for any units, by one product.

    The ``k`` candidates of a partition hold ``k - 1`` free numbers, since their centred masks add
    up to zero: ``m (k-1)/k`` multiplications for one unit and draw, half of ``m`` for halves.
    """

    def __init__(self, pool: Candidates) -> None:
        self._pool = pool
        self.n_units, self.n_subsets = pool.n_units, pool.n_subsets
        m = self.n_subsets
        self._parts = m // pool.folds if pool.folds > 1 else 0
        self.rows = m - self._parts
        self.share: Vector = pool.counts() / m
        if not ((self.share > 0) & (self.share < 1)).all():
            raise PoolError(
                "pool must have every unit in some subsets and out of others; one is in all or "
                "in none, so there is nothing to guess. Use Balanced, or more subsets."
            )
        self.scale: Vector = 0.5 / (self.share * (1 - self.share))
        self.step = max(8, MASK_CELLS // m // 8 * 8)

    def fold(self, weights: Matrix) -> Matrix:
        """Bring posteriors of shape (N, m) to the rows that the masks have."""
        if not self._parts:
            return weights
        kept = weights[:, : self.rows].reshape(len(weights), -1, self._parts)
        return (kept - weights[:, None, self.rows :]).reshape(len(weights), self.rows)

    def masks(
        self, units: Units | slice, dtype: npt.DTypeLike, *, whole: bool = False
    ) -> npt.NDArray[Any]:
        """Return centred and scaled masks of these units, shape (rows, n_listed), or all ``m``."""
        masks = self._pool.inside(units)[: None if whole else self.rows].astype(dtype)
        masks -= self.share[units].astype(dtype)
        masks *= self.scale[units].astype(dtype)
        return masks

    def blocks(
        self, units: Units, dtype: npt.DTypeLike, *, whole: bool = False
    ) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield places in ``units``, in ascending order, and their masks, in blocks."""
        everyone = len(units) == self.n_units
        for start in range(0, len(units), self.step):
            place = slice(start, min(start + self.step, len(units)))
            yield place, self.masks(place if everyone else units[place], dtype, whole=whole)

    def sizes(self, weights: Matrix) -> Vector:
        """Return the sum of ``|a|`` over the rows of ``weights``, for every unit."""
        folded, found = self.fold(weights), np.empty(self.n_units)
        for place, masks in self.blocks(np.arange(self.n_units), folded.dtype):
            found[place] = np.abs(folded @ masks).sum(axis=0, dtype=np.float64)
        return found

    def weight(self, before: Vector, units: Units) -> Vector:
        """Return ``Σ p_k |mask_k|`` for units with this ``a`` before the release; 1 if it is 0."""
        share, scale = self.share[units], self.scale[units]
        inside = share + before / scale
        found: Vector = (inside * (1 - share) + (1 - inside) * share) * scale
        return found

    def before(self, log_prior: Vector, units: Units) -> Vector:
        """Return ``a`` before the release; zero under a uniform belief."""
        if not np.ptp(log_prior):
            return np.zeros(len(units))
        weights, found = self.fold(np.exp(log_prior)[None, :]), np.empty(len(units))
        for place, masks in self.blocks(units, np.float64):
            found[place] = (weights @ masks)[0]
        return found


def unit_beliefs(pool: Candidates, log_prior: Vector, units: Units) -> tuple[Vector, Vector]:
    """Return the share of the candidates that hold each unit, and the belief that it is in."""
    tilts = BeliefTilts(pool)
    share = tilts.share[units]
    inside = share + tilts.before(log_prior, units) / tilts.scale[units]
    return share, np.clip(inside, 0.0, 1.0)


def check_belief_size(n_outputs: int, pool: Candidates) -> None:
    """Refuse a pool with another number of candidates."""
    if pool.n_subsets != n_outputs:
        raise PoolError(
            f"pool must have one subset per output; got {pool.n_subsets} subsets for "
            f"{n_outputs} outputs. Pass the pool the outputs were computed on."
        )
