"""The exact adversary against learned noise: what it really gives away, and a certified plan.

The optimal decoder on a pool is the posterior ``P_k(z) ∝ p_k q(z - y_k)``; with a density ``q``
it can be computed, so the information that a learned decoder failed to see can be measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary import DEFAULT_GAMMA, View, draw_releases
from pacprivacy.errors import BudgetError, PacPrivacyError
from pacprivacy.noise import NoisePlan, Problem, certify
from pacprivacy.residual.gap import CEILINGS, LOWEST, WIDTH_COST, ReleaseSampler
from pacprivacy.residual.learned.families import draw_noise
from pacprivacy.residual.learned.learn import LearnedNoise
from pacprivacy.theory import Estimate, bernstein_estimate, entropy

if TYPE_CHECKING:
    import jax

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
    """
    budget = learned.mi_nats if mi_nats is None else mi_nats
    if not 0 < budget < math.inf:
        raise BudgetError(f"mi_nats must be a positive finite number; got {budget}. Use 0.25.")
    problem = Problem(
        values=learned.spread.values,
        measured=learned.spread,
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


Layers = tuple[tuple[Matrix, Vector], ...]
LEARNING_RATE: Final = 3e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NeuralCritic:
    """A network of standardised releases, clipped to ``[low, high]``; evaluated without jax."""

    layers: Layers
    offset: float
    low: float
    high: float

    def __post_init__(self) -> None:
        for weights, biases in self.layers:
            freeze(weights)
            freeze(biases)

    def __call__(self, releases: Matrix) -> Vector:
        """Return the critic's value on each standardised release."""
        x = np.asarray(releases, dtype=np.float64)
        for weights, biases in self.layers[:-1]:
            x = np.tanh(x @ weights + biases)
        weights, biases = self.layers[-1]
        value = (x @ weights + biases)[:, 0] + self.offset
        clipped: Vector = np.clip(value, self.low, self.high)
        return clipped


def fit_neural_critic(
    outputs: object,
    plan: NoisePlan,
    *,
    log_belief: Vector | None = None,
    hidden: int = 64,
    n_layers: int = 2,
    n_steps: int = 1500,
    batch: int = 2048,
    n_train: int = 100_000,
    rng: np.random.Generator | int | None = None,
) -> NeuralCritic:
    """Fit a network to tell a release from the Gaussian of equal moments.

    Pass it to :func:`pacprivacy.residual.variational_gap`, whose bound holds for any critic that
    was fixed before the held-out draws.

    Parameters
    ----------
    outputs, plan, log_belief
        As in :func:`pacprivacy.residual.exact_gap`.
    hidden, n_layers, n_steps, batch, n_train : int
        Size of the network, steps and draws of its training.
    rng : Generator or int, optional
        Seed of the training; its draws are not those of the bound.
    """
    _need_jax()
    seed = coerce_seed(rng)
    sampler = ReleaseSampler.of(outputs, plan, log_belief)
    training = public_generator(seed, "neural critic")
    released = sampler.released(n_train, training)
    sizes = (sampler.n_directions, *[hidden] * n_layers, 1)
    layers = _train(released, sizes, seed=seed, n_steps=n_steps, batch=batch)
    raw = NeuralCritic(layers=layers, offset=0.0, low=-math.inf, high=math.inf)
    gaussian = sampler.gaussian(n_train, training)
    scores = raw(gaussian)
    top = float(scores.max())
    offset = -(top + math.log(float(np.exp(scores - top).mean())))
    critic = replace(raw, offset=offset, low=LOWEST, high=CEILINGS[-1])
    ours, theirs = critic(sampler.released(n_train, training)), critic(gaussian)

    def worth(ceiling: float) -> float:
        mass = float(np.exp(np.minimum(theirs, ceiling)).mean())
        kept = float(np.minimum(ours, ceiling).mean())
        return kept - math.log(mass) - WIDTH_COST * math.exp(ceiling)

    return replace(critic, high=max(CEILINGS, key=worth))


def _need_jax() -> None:
    try:
        import jax  # noqa: F401
        import optax  # noqa: F401
    except ImportError:
        raise PacPrivacyError(
            "fit_neural_critic needs jax and optax, which are not installed. "
            "Run: pip install 'pacprivacy[jax]'"
        ) from None


def _train(
    released: Matrix, sizes: tuple[int, ...], *, seed: int, n_steps: int, batch: int
) -> Layers:
    """Maximise the bound by Adam, all steps in one compiled loop."""
    import jax
    import jax.numpy as jnp
    import optax

    rows = jnp.asarray(released, dtype=jnp.float32)
    key = jax.random.PRNGKey(seed % 2**32)
    start, key = jax.random.split(key)
    params = [
        (jax.random.normal(k, pair) / math.sqrt(pair[0]), jnp.zeros(pair[1]))
        for k, pair in zip(jax.random.split(start, len(sizes) - 1), pairwise(sizes), strict=True)
    ]
    rate = optax.cosine_decay_schedule(LEARNING_RATE, n_steps)
    optimiser = optax.adam(rate)

    def score(layers: Any, x: jax.Array) -> jax.Array:
        for weights, biases in layers[:-1]:
            x = jnp.tanh(x @ weights + biases)
        value: jax.Array = (x @ layers[-1][0] + layers[-1][1])[:, 0]
        return value

    def loss(layers: Any, ours: jax.Array, theirs: jax.Array) -> jax.Array:
        mass = jax.scipy.special.logsumexp(score(layers, theirs)) - math.log(batch)
        return mass - score(layers, ours).mean()

    def step(state: Any, key: jax.Array) -> tuple[Any, None]:
        layers, memory = state
        pick, draw = jax.random.split(key)
        ours = rows[jax.random.randint(pick, (batch,), 0, len(rows))]
        theirs = jax.random.normal(draw, (batch, sizes[0]))
        slope = jax.grad(loss)(layers, ours, theirs)
        change, memory = optimiser.update(slope, memory)
        return (optax.apply_updates(layers, change), memory), None

    run = jax.jit(lambda state, keys: jax.lax.scan(step, state, keys)[0])
    layers, _ = run((params, optimiser.init(params)), jax.random.split(key, n_steps))
    return tuple(
        (np.array(weights, dtype=np.float64), np.array(biases, dtype=np.float64))
        for weights, biases in layers
    )
