"""A network as critic of [RPAC]'s Theorem 3, for gaps that linear features miss. Needs jax.

It is trained by jax and evaluated without; :func:`pacprivacy.residual.variational_gap` takes it, as
it takes any bounded function that was fixed before its draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.errors import PacPrivacyError
from pacprivacy.noise import NoisePlan
from pacprivacy.residual import ReleaseSampler
from pacprivacy.residual.gap import CEILINGS, LOWEST, best_critic_ceiling, log_mean_exp

__all__ = ["NeuralCritic", "fit_neural_critic"]

LEARNING_RATE: Final = 3e-3

Layers: TypeAlias = tuple[tuple[Matrix, Vector], ...]


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

    Pass it to :func:`variational_gap`, whose bound holds for any critic that
    was fixed before the held-out draws; those of this training are others.
    """
    seed = coerce_seed(rng)
    sampler = ReleaseSampler.of(outputs, plan, log_belief)
    training = public_generator(seed, "neural critic")
    released = sampler.released(n_train, training)
    sizes = (sampler.n_directions, *[hidden] * n_layers, 1)
    layers = _train_layers(released, sizes, seed=seed, n_steps=n_steps, batch=batch)
    raw = NeuralCritic(layers=layers, offset=0.0, low=-math.inf, high=math.inf)
    gaussian = sampler.gaussian(n_train, training)
    critic = replace(raw, offset=-log_mean_exp(raw(gaussian)), low=LOWEST, high=CEILINGS[-1])
    ours = critic(sampler.released(n_train, training))
    return replace(critic, high=best_critic_ceiling(ours, critic(gaussian)))


def _train_layers(
    released: Matrix, sizes: tuple[int, ...], *, seed: int, n_steps: int, batch: int
) -> Layers:
    """Maximise the bound by Adam, all steps in one compiled loop."""
    try:
        import jax
        import jax.numpy as jnp
        import optax
    except ImportError:
        raise PacPrivacyError(
            "fit_neural_critic needs jax and optax, which are not installed. "
            "Run: pip install '.[jax]'"
        ) from None

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
