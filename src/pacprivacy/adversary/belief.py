"""The attacker's belief over the pool, kept across many releases of one secret."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Vector, check_log_belief, freeze
from pacprivacy.adversary.membership import Candidates, SignBlocks
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
        """Return the attacker's current success on each unit, ``max(Q, 1-Q)``."""
        blocks = SignBlocks(pool, np.float64, None)
        weights = blocks.fold(np.exp(self.log_p)[None, :])
        success = np.empty(pool.n_units)
        for units, signs in blocks:
            success[units] = 0.5 + 0.5 * np.abs(weights @ signs)[0]
        return np.minimum(success, 1.0)
