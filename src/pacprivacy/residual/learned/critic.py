"""A small network as the critic of the Donsker–Varadhan bound. Needs jax to be fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.view import Observable
from pacprivacy.errors import PacPrivacyError
from pacprivacy.residual.critic import CEILINGS, LOWEST, WIDTH_COST
from pacprivacy.residual.variational import ReleaseSampler

if TYPE_CHECKING:
    import jax

__all__ = ["NeuralCritic", "fit_neural_critic"]

Layers = tuple[tuple[Matrix, Vector], ...]
LEARNING_RATE: Final = 3e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NeuralCritic:
    """A network of standardised releases, clipped to ``[low, high]``; evaluated without jax.

    Examples
    --------
    >>> layers = ((np.ones((2, 1)), np.zeros(1)), (np.ones((1, 1)), np.zeros(1)))
    >>> NeuralCritic(layers=layers, offset=0.0, low=-1.0, high=0.5)(np.array([[3.0, 4.0]]))
    array([0.5])
    """

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
    plan: Observable,
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

    Examples
    --------
    >>> import pacprivacy as pac
    >>> from pacprivacy.noise import calibrate
    >>> from pacprivacy.residual import variational_gap
    >>> outputs = np.repeat([[-1.0], [1.0]], 16, axis=0)
    >>> plan = calibrate(outputs, pac.Information(0.6), rule="waterfill")
    >>> critic = fit_neural_critic(outputs, plan, hidden=8, n_steps=200, n_train=5000, rng=0)
    >>> found = variational_gap(outputs, plan, critic=critic, n_draws=50_000, gamma=1e-3, rng=0)
    >>> found.lower > 0
    True
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
