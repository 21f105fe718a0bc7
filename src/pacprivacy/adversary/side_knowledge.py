"""An attacker who is told the true membership of a few other units.

The sharp edge of a finite pool: whoever knows the pool and about ``log2 m`` memberships knows
the secret without any release. So the figure is always shown beside the same figure without a
release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Vector, check_log_belief
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.belief import Belief
from pacprivacy.adversary.membership import Candidates, risk_of_view
from pacprivacy.adversary.view import Observable, make_view, view_of

__all__ = ["SideKnowledge", "side_knowledge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideKnowledge:
    """Success on the worst-placed other unit, for an attacker told ``n_told`` memberships.

    Averages and maxima run over sampled sets of told units; these are Monte-Carlo estimates
    for information, not part of the promise.

    Examples
    --------
    >>> told = SideKnowledge(
    ...     n_told=1,
    ...     mean_success=0.75,
    ...     worst_success=0.8,
    ...     mean_without_release=0.7,
    ...     worst_without_release=0.75,
    ...     n_sets=8,
    ... )
    >>> round(told.mean_increment, 3)
    0.05
    """

    n_told: int
    mean_success: float
    worst_success: float
    mean_without_release: float
    worst_without_release: float
    n_sets: int

    @property
    def mean_increment(self) -> float:
        """What the release adds on average."""
        return self.mean_success - self.mean_without_release


def side_knowledge(
    outputs: object,
    pool: Candidates,
    plan: Observable,
    *,
    n_told: int,
    log_belief: Vector | None = None,
    n_sets: int = 8,
    n_draws: int = 1024,
    rng: np.random.Generator | int | None = None,
) -> SideKnowledge:
    """Membership success when the attacker is told the membership of ``n_told`` other units.

    For each sampled set a made-up secret is drawn, the pool is restricted to the candidates that
    agree with it on the told units, and (5) is computed there for every other unit.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> pool = pac.Balanced(n_subsets=8).draw(20, rng=0)
    >>> outputs = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> from pacprivacy.noise import calibrate
    >>> plan = calibrate(outputs, pac.Information(0.1), rule="waterfill")
    >>> found = side_knowledge(outputs, pool, plan, n_told=2, rng=0)
    >>> found.mean_success >= found.mean_without_release > 0.5
    True
    """
    full = view_of(outputs, plan, log_belief)
    generator = public_generator(coerce_seed(rng), "side-knowledge", n_told)
    with_release, without = [], []
    for _ in range(n_sets):
        told = generator.choice(pool.n_units, size=min(n_told, pool.n_units - 1), replace=False)
        secret = int(generator.choice(pool.n_subsets, p=np.exp(full.log_prior)))
        known = np.concatenate(
            [pool.signs(int(i), int(i) + 1, dtype=np.int8) for i in told], axis=1
        )
        consistent = (known == known[secret]).all(axis=1)
        log_p = check_log_belief(np.where(consistent, full.log_prior, -np.inf), pool.n_subsets)
        others = np.setdiff1d(np.arange(pool.n_units), told)
        kept = np.flatnonzero(consistent)
        view = make_view(
            full.points[kept],
            log_p[kept],
            groups=None if full.groups is None else full.groups[kept],
            slack=full.slack,
        )
        restricted = _Restricted(pool, kept)
        risk = risk_of_view(view, restricted, n_draws=n_draws, gamma=0.01, rng=generator)
        with_release.append(float(risk.per_unit[others].max()))
        blind = Belief(log_p=log_p[kept]).success_per_unit(restricted)
        without.append(float(blind[others].max()))
    return SideKnowledge(
        n_told=n_told,
        mean_success=float(np.mean(with_release)),
        worst_success=float(np.max(with_release)),
        mean_without_release=float(np.mean(without)),
        worst_without_release=float(np.max(without)),
        n_sets=n_sets,
    )


class _Restricted:
    """The candidates of a pool that agree with what the attacker was told."""

    complement_pairs = False

    def __init__(self, pool: Candidates, kept: npt.NDArray[np.int64]):
        self._pool, self._kept = pool, kept
        self.n_subsets, self.n_units = len(kept), pool.n_units

    def signs(self, start: int, stop: int, dtype: Any = np.float32) -> npt.NDArray[Any]:
        """Return the signs of the kept candidates."""
        return self._pool.signs(start, stop, dtype=dtype)[self._kept]
