"""An attacker who is told the true membership of a few other units.

The sharp edge of a finite pool: whoever knows the pool and about ``log2 m`` memberships knows
the secret without any release. So the figure is always shown beside the same figure without a
release, and beside what the release adds for any one unit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Count, Share, Vector, check_log_belief
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.membership import BIG_BLOCK, Candidates, SignBlocks
from pacprivacy.adversary.view import Observable, View, draw_blocks, make_view, posterior, view_of


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
    agree with it on the told units, and (5) is computed there for every other unit, before and
    after the release.
    """
    full = view_of(outputs, plan, log_belief)
    generator = public_generator(coerce_seed(rng), "side-knowledge", n_told)
    with_release, without, increments = np.empty((3, n_sets))
    for number in range(n_sets):
        told = generator.choice(pool.n_units, size=min(n_told, pool.n_units - 1), replace=False)
        secret = int(generator.choice(pool.n_subsets, p=np.exp(full.log_prior)))
        known = np.concatenate(
            [pool.signs(int(i), int(i) + 1, dtype=np.int8) for i in told], axis=1
        )
        consistent = (known == known[secret]).all(axis=1)
        log_p = check_log_belief(np.where(consistent, full.log_prior, -np.inf), pool.n_subsets)
        kept = np.flatnonzero(consistent)
        view = make_view(
            full.points[kept],
            log_p[kept],
            groups=None if full.groups is None else full.groups[kept],
            slack=full.slack,
        )
        blind, gains = _gains(view, _Restricted(pool, kept), n_draws=n_draws, rng=generator)
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
