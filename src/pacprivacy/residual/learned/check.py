"""The exact adversary against learned noise: what it really gives away, and a certified plan.

The optimal decoder on a pool is the posterior ``P_k(z) ∝ p_k q(z - y_k)``; with a density ``q``
it can be computed, so the information that a learned decoder failed to see can be measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.draws import draw_releases
from pacprivacy.adversary.information import DEFAULT_GAMMA
from pacprivacy.adversary.view import View
from pacprivacy.errors import BudgetError
from pacprivacy.noise.certify import Problem, certify
from pacprivacy.noise.plan import NoisePlan
from pacprivacy.residual.learned.families import draw_noise
from pacprivacy.residual.learned.record import LearnedNoise
from pacprivacy.theory.concentration import Estimate, bernstein_estimate
from pacprivacy.theory.information import entropy

__all__ = ["Shortfall", "check_learned", "plan_from"]

BLOCK_ELEMENTS = 1 << 19
DEFAULT_DRAWS = 200_000
LEARNED_NOTE = "the shape of the noise was learned; the proof does not rest on the learning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """What learned noise really gives away, beside what its decoder claimed.

    Attributes
    ----------
    claimed_nats : float, public
        What the decoder saw.
    true_nats : Estimate, public
        The true mutual information, with its interval.

    Examples
    --------
    >>> true = Estimate(value=0.30, lower=0.29, upper=0.31, confidence=0.99, n_draws=1000)
    >>> round(Shortfall(claimed_nats=0.25, true_nats=true).value, 3)
    0.05
    """

    claimed_nats: float
    true_nats: Estimate

    @property
    def value(self) -> float:
        """The true information less the claimed one, in nats."""
        return self.true_nats.value - self.claimed_nats

    @property
    def upper(self) -> float:
        """The most that the decoder can have missed, at the interval's confidence."""
        return self.true_nats.upper - self.claimed_nats

    def __str__(self) -> str:
        return (
            f"claimed {self.claimed_nats:.6g} nats, true {self.true_nats}; "
            f"the decoder missed {self.value:.6g} nats"
        )


def check_learned(
    learned: LearnedNoise,
    *,
    n_draws: int = DEFAULT_DRAWS,
    gamma: float = DEFAULT_GAMMA,
    noise_scale: float = 1.0,
    rng: np.random.Generator | int | None = None,
) -> Shortfall:
    """Evaluate learned noise with the optimal adversary.

    Parameters
    ----------
    learned : LearnedNoise
        The law to look at.
    n_draws : int
        Simulated releases, independent of those of the training.
    gamma : float
        Probability that the interval is wrong.
    noise_scale : float
        Look at this multiple of the noise instead.
    rng : Generator or int, optional
        For simulated draws.

    Returns
    -------
    Shortfall
        The true information with its interval, and what the decoder missed.

    Guarantee
    ---------
    Claim W-1. The interval holds the mutual information between the secret index and the
    output plus this noise, in real numbers, with probability ``1 - gamma`` over the simulated
    draws. It certifies no release: nothing is released with float noise.

    Examples
    --------
    >>> import numpy as np
    >>> from pacprivacy.residual.learned import Training, learn_noise
    >>> outputs = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> brief = Training(n_steps=20, chunk=20, batch=64, n_check=4096)
    >>> learned = learn_noise(outputs, 0.5, follower="exact", training=brief, rng=0)
    >>> found = check_learned(learned, n_draws=20_000, rng=0)
    >>> abs(found.value) < 0.05
    True
    """
    generator = public_generator(coerce_seed(rng), "learned information")
    m = len(learned.log_p)
    params = learned.family.rescaled(learned.params, noise_scale)
    points = learned.spread.coordinates
    view = View(points=points, log_prior=learned.log_p)
    prior = float(entropy(learned.log_p))
    width = max(1, math.ceil(BLOCK_ELEMENTS / (m * (points.shape[1] if _is_flow(learned) else 1))))
    gains = []
    for start in range(0, n_draws, width):
        size = min(width, n_draws - start)
        index = draw_releases(view, size, generator).indices
        z = points[index] + draw_noise(learned.family, params, size, generator)
        log_q = learned.family.pair_log_density(params, z, points, np)
        gains.append(prior - _entropies(learned.log_p + log_q))
    gain = np.concatenate(gains)
    estimate = bernstein_estimate(
        float(gain.mean()),
        float(gain.var(ddof=1)),
        n_draws,
        low=prior - math.log(m),
        high=prior,
        gamma=gamma,
    )
    return Shortfall(claimed_nats=learned.claimed_nats, true_nats=_at_least_zero(estimate))


def plan_from(
    learned: LearnedNoise,
    *,
    mi_nats: float | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> NoisePlan:
    """Turn the shape of learned Gaussian noise into a certified plan.

    The learned covariance is a proposal like any other: it is scaled until the exact adversary
    proves the budget on fresh draws, and put on the integer lattice. Neither the training nor
    the decoder's claim is part of the proof.

    Parameters
    ----------
    learned : LearnedNoise
        Of a Gaussian family.
    mi_nats : float, optional
        The budget to prove; that of the training by default.
    gamma : float
        Failure probability of the proof.
    rng : Generator or int, optional
        For simulated draws; never for the secret.

    Returns
    -------
    NoisePlan
        Of kind *exact*.

    Guarantee
    ---------
    Claim N-5, with the learned covariance as the shape.

    Examples
    --------
    >>> import numpy as np
    >>> from pacprivacy.residual.learned import Training, learn_noise
    >>> outputs = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> brief = Training(n_steps=20, chunk=20, batch=64, n_check=4096)
    >>> learned = learn_noise(outputs, 0.5, follower="exact", training=brief, rng=0)
    >>> plan_from(learned, rng=0).mi_upper <= 0.5
    True
    """
    budget = learned.mi_nats if mi_nats is None else mi_nats
    if not 0 < budget < math.inf:
        raise BudgetError(f"mi_nats must be a positive finite number; got {budget}. Use 0.25.")
    problem = Problem(
        spread=learned.spread,
        log_p=learned.log_p,
        gamma=gamma,
        seed=coerce_seed(rng),
        mi_nats=budget,
    )
    return certify(learned.covariance_shape(), problem, rule="learned", notes=(LEARNED_NOTE,))


def _is_flow(learned: LearnedNoise) -> bool:
    return learned.family.name == "flow"


def _entropies(log_joint: Matrix) -> Vector:
    """Return the entropy of each posterior, from log weights up to a constant."""
    log_joint = log_joint - log_joint.max(axis=1, keepdims=True)
    p = np.exp(log_joint)
    total = p.sum(axis=1)
    weighted = np.einsum("ij,ij->i", p, np.maximum(log_joint, -800.0))
    entropies: Vector = np.log(total) - weighted / total
    return np.maximum(entropies, 0.0)


def _at_least_zero(found: Estimate) -> Estimate:
    """Clip an information into what it can be."""
    return Estimate(
        value=max(found.value, 0.0),
        lower=max(found.lower, 0.0),
        upper=max(found.upper, 0.0),
        confidence=found.confidence,
        n_draws=found.n_draws,
    )
