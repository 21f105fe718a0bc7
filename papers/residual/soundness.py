"""What a decoder's word is worth: true information of noise that was calibrated to a decoder.

The pool is small enough to enumerate: 16 halves of Iris. The exact posterior is then the best
decoder there is, and what a learned one missed can be measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pacprivacy._checks import Matrix
from pacprivacy._random import public_generator
from pacprivacy.noise import spread_of
from pacprivacy.noise.plan import waterfill
from pacprivacy.noise.shapes import axis_shape, refine_shape
from pacprivacy.residual import Training, check_learned_noise, learn_noise_curve
from pacprivacy.residual.learned_noise import Follower
from pacprivacy.sample import Balanced
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import Mean
from papers.alg.protocol import load_split

N_SUBSETS: Final = 16
BUDGETS: Final = (1 / 128, 1 / 16, 1 / 4, 1.0, 2.0)
BASE: Final = Training(n_steps=500)
DECODERS: Final[dict[str, tuple[Follower, dict[str, int]]]] = {
    "exact posterior": ("exact", {}),
    "network": ("mlp", {}),
    "network, briefly taught": ("mlp", {"warm_up": 0, "follower_steps": 1, "hidden": 16}),
    "network, two projections": ("mlp", {"n_slices": 2}),
    "network, one projection": ("mlp", {"n_slices": 1}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundRow:
    """Gaussian noise that was learned against one decoder, seen by the exact adversary.

    ``fixed_point`` is the noise of the exact fixed point at the same budget.
    """

    decoder: str
    mi_nats: float
    claimed_nats: float
    claimed_error: float
    true_nats: float
    true_lower: float
    true_upper: float
    noise_variance: float
    fixed_point: float

    @property
    def shortfall(self) -> float:
        """What the decoder missed, in nats."""
        return self.true_nats - self.claimed_nats


def enumerable_means(seed: int) -> Matrix:
    """Return the means of 16 halves of Iris, scaled to [0, 1]."""
    universe = load_split("iris", "min-max").X_train
    rng = public_generator(seed, "iris residual soundness")
    pool = Balanced(n_subsets=N_SUBSETS).draw(len(universe), rng=rng)
    return run_mechanism(Mean(), universe, pool, rng=seed).values


def measure_decoder(
    decoder: str, budgets: Sequence[float], base: Training, seed: int
) -> Iterator[SoundRow]:
    """Learn noise against one kind of decoder and look at it with the exact adversary."""
    values = enumerable_means(seed)
    follower, changes = DECODERS[decoder]
    learned = learn_noise_curve(
        values,
        budgets,
        family="gaussian_full",
        follower=follower,
        training=replace(base, **changes),
        rng=seed,
    )
    for noise in learned:
        truth = check_learned_noise(noise, rng=seed + 1).true_nats
        yield SoundRow(
            decoder=decoder,
            mi_nats=noise.mi_nats,
            claimed_nats=noise.claimed_nats,
            claimed_error=noise.claimed_error,
            true_nats=truth.value,
            true_lower=truth.lower,
            true_upper=truth.upper,
            noise_variance=noise.total_variance,
            fixed_point=_fixed_point(values, noise.mi_nats, seed),
        )


def _fixed_point(values: Matrix, mi_nats: float, seed: int) -> float:
    spread = spread_of(values, np.full(N_SUBSETS, 1 / N_SUBSETS))
    start = axis_shape(waterfill(spread.eigenvalues, mi_nats=mi_nats))
    rng = public_generator(seed, "iris residual fixed point")
    log_p = np.full(N_SUBSETS, -np.log(N_SUBSETS))
    shape = refine_shape(start, spread, log_p, mi_nats=mi_nats, rng=rng, n_steps=24)
    return shape.total_variance
