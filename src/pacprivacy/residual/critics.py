"""Critics: bounded functions that tell a release from the Gaussian of equal moments.

:func:`pacprivacy.residual.variational_gap` turns any critic that was fixed beforehand into a lower
bound of the Gaussianity gap. The one that is linear in random features is quick; the network needs
jax for its training, and nothing for its evaluation.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np
from scipy.optimize import minimize

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary import View, draw_releases
from pacprivacy.errors import BudgetError, PacPrivacyError
from pacprivacy.noise import NoisePlan

FLAT: Final = 1e-12
BANDWIDTHS: Final = (0.7, 1.4, 2.8, 5.6)
RIDGE: Final = 1e-6
LOWEST: Final = -8.0
CEILINGS: Final = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
MAX_STEPS: Final = 120
WIDTH_COST: Final = 7 * 22 / 3 / 1e6  # of the range, in an interval of a million draws
MOST_QUADRATIC: Final = 24  # above so many directions, squares without products
LEARNING_RATE: Final = 3e-3

Layers: TypeAlias = tuple[tuple[Matrix, Vector], ...]


def noisy_view(outputs: object, plan: NoisePlan, log_belief: Vector | None) -> View:
    """Return the view of a plan in which everything is released with noise."""
    view = plan.view(outputs, log_belief)
    if view.groups is not None:
        raise BudgetError(
            "plan must add noise in every direction that moves: where a part of the output is "
            "released without noise there is no Gaussian of equal covariance. Use another rule."
        )
    return view


def principal_axes(view: View) -> tuple[Matrix, Vector, Matrix]:
    """Return centred points, and the variances and axes along which they move, in rising order."""
    weights = np.exp(view.log_prior)
    centered = view.points - weights @ view.points
    spread, axes = np.linalg.eigh((centered.T * weights) @ centered)
    moving = spread > FLAT * max(float(spread.max(initial=0.0)), 1e-300)
    if not moving.any():
        moving[:1] = True
    return centered, np.maximum(spread[moving], 0.0), axes[:, moving]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSampler:
    """Draws of a release and of the Gaussian of equal moments, standardised; curator-only.

    Standardised means that the Gaussian is the standard normal in ``q`` coordinates.
    """

    view: View
    axes: Matrix
    scale: Vector

    @classmethod
    def of(cls, outputs: object, plan: NoisePlan, log_belief: Vector | None = None) -> Self:
        """Return the sampler of a plan in which everything is released with noise."""
        view = noisy_view(outputs, plan, log_belief)
        centered, spread, axes = principal_axes(view)
        return cls(
            view=View(points=centered, log_prior=view.log_prior),
            axes=np.ascontiguousarray(axes[:, ::-1]),
            scale=np.sqrt(1 + spread[::-1]),
        )

    @property
    def n_directions(self) -> int:
        """Number of directions in which the release moves."""
        return len(self.scale)

    def released(self, n_draws: int, rng: np.random.Generator) -> Matrix:
        """Draw releases."""
        draws = draw_releases(self.view, n_draws, rng)
        z = self.view.points[draws.indices] + draws.noise
        standard: Matrix = (z @ self.axes) / self.scale
        return standard

    def gaussian(self, n_draws: int, rng: np.random.Generator) -> Matrix:
        """Draw from the Gaussian of equal moments."""
        return rng.standard_normal((n_draws, self.n_directions))


class BoundedCritic(Protocol):
    """A function of the release with known bounds; a network may be one."""

    @property
    def low(self) -> float:
        """A number that no value is below."""

    @property
    def high(self) -> float:
        """A number that no value is above."""

    def __call__(self, releases: Matrix) -> Vector:
        """Return one number per release; releases are standardised, shape (N, q)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCritic:
    """``clip(θ·φ(u), low, high)`` with squares, products and cosines ``φ``."""

    frequencies: Matrix
    phases: Vector
    coefficients: Vector
    offset: float
    low: float
    high: float

    def features(self, releases: Matrix) -> Matrix:
        """Return squares, products and cosines of standardised releases."""
        n_directions = releases.shape[1]
        if n_directions <= MOST_QUADRATIC:
            rows, cols = np.triu_indices(n_directions)
            second = releases[:, rows] * releases[:, cols]
        else:
            second = np.square(releases)
        waves = np.cos(releases @ self.frequencies.T + self.phases)
        return np.concatenate([releases, second, waves], axis=1)

    def __call__(self, releases: Matrix) -> Vector:
        """Return the critic's value on each standardised release."""
        value = self.features(releases) @ self.coefficients + self.offset
        clipped: Vector = np.clip(value, self.low, self.high)
        return clipped


def fit_linear_critic(
    released: Matrix, gaussian: Matrix, *, n_features: int, rng: np.random.Generator
) -> LinearCritic:
    """Maximise the bound over coefficients on training draws; then choose where to clip."""
    n_directions = released.shape[1]
    frequencies = rng.standard_normal((n_features, n_directions))
    frequencies *= np.resize(BANDWIDTHS, n_features)[:, None]
    for row in range(n_features // 2):
        alone = np.zeros(n_directions)
        axis = row % n_directions
        alone[axis] = np.linalg.norm(frequencies[row])
        frequencies[row] = alone
    blank = LinearCritic(
        frequencies=frequencies,
        phases=rng.uniform(0, 2 * np.pi, n_features),
        coefficients=np.zeros(0),
        offset=0.0,
        low=LOWEST,
        high=CEILINGS[-1],
    )
    ours, theirs = blank.features(released), blank.features(gaussian)
    scale = theirs.std(axis=0) + 1e-9
    mean = ours.mean(axis=0) / scale
    theirs = theirs / scale

    def loss(theta: Vector) -> tuple[float, Vector]:
        scores = theirs @ theta
        top = float(scores.max())
        weights = np.exp(scores - top)
        total = float(weights.sum())
        value = top + np.log(total / len(weights)) - float(mean @ theta)
        slope = theirs.T @ (weights / total) - mean + 2 * RIDGE * theta
        return value + RIDGE * float(theta @ theta), slope

    start = np.zeros(theirs.shape[1])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_STEPS})
    theta = found.x / scale
    offset = -_log_mean_exp(blank.features(gaussian) @ theta)
    critic = replace(blank, coefficients=theta, offset=offset)
    return replace(critic, high=_best_ceiling(critic(released), critic(gaussian)))


def _log_mean_exp(scores: Vector) -> float:
    top = float(scores.max())
    return top + math.log(float(np.exp(scores - top).mean()))


def _best_ceiling(released: Vector, gaussian: Vector) -> float:
    """Return where to clip: the training bound, less what the width costs, is largest there."""

    def worth(ceiling: float) -> float:
        kept = float(np.minimum(released, ceiling).mean())
        mass = float(np.exp(np.minimum(gaussian, ceiling)).mean())
        return kept - math.log(mass) - WIDTH_COST * math.exp(ceiling)

    return max(CEILINGS, key=worth)


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
    critic = replace(raw, offset=-_log_mean_exp(raw(gaussian)), low=LOWEST, high=CEILINGS[-1])
    ours = critic(sampler.released(n_train, training))
    return replace(critic, high=_best_ceiling(ours, critic(gaussian)))


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
            "Run: pip install 'pacprivacy[jax]'"
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
