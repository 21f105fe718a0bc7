"""Laws of noise that can be learned: a reparameterised draw, and a density.

Every density is known, so that the exact adversary can check a law. Formulas are written once for
numpy and jax, ``xp``: training is in single precision, what a proof rests on in double.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.errors import BudgetError

Library: TypeAlias = Any  # numpy, or jax.numpy, which is not always installed
Array: TypeAlias = Any  # of either
Params: TypeAlias = dict[str, Array]

MOST_COMPONENTS = 64
MOST_LAYERS = 32
FIRST_WEIGHT = 0.01  # of the last matrix of a flow, which starts close to the identity
LOG_TWO_PI = math.log(2 * math.pi)


class NoiseFamily(ABC):
    """A parameterised law of noise on ``r`` coordinates."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """Public name."""

    @property
    def n_components(self) -> int:
        """Number of laws that are mixed; 1 for a law that is not a mixture."""
        return 1

    @abstractmethod
    def start(self, noise_var: Vector, rng: np.random.Generator) -> Params:
        """Return parameters of a law close to the Gaussian with these variances."""

    def log_weights(self, params: Params, xp: Library) -> Array:
        """Return the log probability of each component, shape (n_components,)."""
        return xp.zeros(1)

    @abstractmethod
    def shape(self, params: Params, normals: Array, component: Array, xp: Library) -> Array:
        """Turn standard normals of shape (n, r) into noise, row ``i`` from ``component[i]``."""

    @abstractmethod
    def second_moments(self, params: Params, noise: Array, weights: Array, xp: Library) -> Array:
        """Return ``E[B_i²]``, shape (r,); from weighted draws where there is no formula."""

    @abstractmethod
    def pair_log_density(self, params: Params, z: Array, points: Array, xp: Library) -> Array:
        """Return ``ln q(z_i - y_k)``, shape (n, m)."""

    def rescaled(self, params: Params, noise_scale: float) -> Params:
        """Return the parameters of ``noise_scale`` times the noise."""
        return {**params, "log_std": params["log_std"] + math.log(noise_scale)}

    def draw(self, params: Params, n_draws: int, rng: np.random.Generator) -> Matrix:
        """Draw independent noise in double precision, shape (n_draws, r)."""
        weights = np.exp(self.log_weights(params, np))
        component = rng.choice(self.n_components, size=n_draws, p=weights / weights.sum())
        normals = rng.standard_normal((n_draws, params["log_std"].shape[-1]))
        noise: Matrix = self.shape(params, normals, component, np)
        return noise


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianNoise(NoiseFamily):
    """Gaussian noise along the principal directions, or, if ``full``, with any covariance."""

    full: bool = False

    @property
    def name(self) -> str:
        """Public name."""
        return "gaussian_full" if self.full else "gaussian_diagonal"

    def start(self, noise_var: Vector, rng: np.random.Generator) -> Params:
        """Return the parameters of exactly this Gaussian."""
        params: Params = {"log_std": 0.5 * np.log(noise_var)}
        if self.full:
            params["lower"] = np.zeros((len(noise_var), len(noise_var)))
        return params

    def factor(self, params: Params, xp: Library) -> Array:
        """Return the lower triangular ``L`` with covariance ``L Lᵀ``."""
        std = xp.exp(params["log_std"])
        if not self.full:
            return xp.diag(std)
        unit = xp.eye(len(std)) + xp.tril(params["lower"], -1)
        return std[:, None] * unit

    def shape(self, params: Params, normals: Array, component: Array, xp: Library) -> Array:
        """Turn standard normals into noise."""
        if not self.full:
            return normals * xp.exp(params["log_std"])
        return normals @ self.factor(params, xp).T

    def second_moments(self, params: Params, noise: Array, weights: Array, xp: Library) -> Array:
        """Return the variances."""
        return xp.square(self.factor(params, xp)).sum(axis=1)

    def pair_log_density(self, params: Params, z: Array, points: Array, xp: Library) -> Array:
        """Return ``ln q(z_i - y_k)``."""
        if self.full:
            factor = self.factor(params, xp)
            z, points = xp.linalg.solve(factor, z.T).T, xp.linalg.solve(factor, points.T).T
        else:
            std = xp.exp(params["log_std"])
            z, points = z / std, points / std
        constant = params["log_std"].sum() + 0.5 * LOG_TWO_PI * z.shape[1]
        return -0.5 * _square_distances(z, points, xp) - constant


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureNoise(NoiseFamily):
    """A mixture of ``size`` Gaussians along the principal directions, with mean zero."""

    size: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MOST_COMPONENTS:
            raise BudgetError(
                f"size must be between 1 and {MOST_COMPONENTS}; got {self.size}. Use 4."
            )

    @property
    def name(self) -> str:
        """Public name."""
        return "mixture"

    @property
    def n_components(self) -> int:
        """Number of Gaussians."""
        return self.size

    def start(self, noise_var: Vector, rng: np.random.Generator) -> Params:
        """Return components that differ a little."""
        std = np.sqrt(noise_var)
        jitter = rng.standard_normal((2, self.size, len(std)))
        return {
            "logits": np.zeros(self.size),
            "means": 0.1 * std * jitter[0],
            "log_std": np.log(std) + 0.1 * jitter[1],
        }

    def log_weights(self, params: Params, xp: Library) -> Array:
        """Return the log probability of each component."""
        logits = params["logits"]
        return logits - _log_sum_exp(logits, 0, xp)

    def _means(self, params: Params, xp: Library) -> Array:
        weights = xp.exp(self.log_weights(params, xp))
        return params["means"] - weights @ params["means"]

    def shape(self, params: Params, normals: Array, component: Array, xp: Library) -> Array:
        """Turn standard normals into noise, row by row from the component named."""
        std = xp.exp(params["log_std"])
        return self._means(params, xp)[component] + normals * std[component]

    def second_moments(self, params: Params, noise: Array, weights: Array, xp: Library) -> Array:
        """Return the variances of the mixture."""
        inside = xp.square(self._means(params, xp)) + xp.exp(2 * params["log_std"])
        return xp.exp(self.log_weights(params, xp)) @ inside

    def pair_log_density(self, params: Params, z: Array, points: Array, xp: Library) -> Array:
        """Return ``ln q(z_i - y_k)``."""
        means, log_std = self._means(params, xp), params["log_std"]
        log_weights = self.log_weights(params, xp)
        parts = []
        for c in range(self.size):
            std = xp.exp(log_std[c])
            far = _square_distances((z - means[c]) / std, points / std, xp)
            constant = log_std[c].sum() + 0.5 * LOG_TWO_PI * z.shape[1]
            parts.append(log_weights[c] - constant - 0.5 * far)
        return _log_sum_exp(xp.stack(parts), 0, xp)

    def rescaled(self, params: Params, noise_scale: float) -> Params:
        """Return the parameters of ``noise_scale`` times the noise."""
        log_std = params["log_std"] + math.log(noise_scale)
        return {**params, "means": params["means"] * noise_scale, "log_std": log_std}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowNoise(NoiseFamily):
    """Affine coupling layers on a Gaussian along the principal directions; two move everything."""

    n_layers: int = 4
    hidden: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.n_layers <= MOST_LAYERS:
            raise BudgetError(
                f"n_layers must be between 1 and {MOST_LAYERS}; got {self.n_layers}. Use 4."
            )
        if self.hidden < 1:
            raise BudgetError(f"hidden must be at least 1; got {self.hidden}. Use 16.")

    @property
    def name(self) -> str:
        """Public name."""
        return "flow"

    def start(self, noise_var: Vector, rng: np.random.Generator) -> Params:
        """Return a flow that is close to this Gaussian."""
        r = len(noise_var)
        if r < 2:
            raise BudgetError(
                "family must be a Gaussian or a mixture where the output moves along one "
                "direction only; got 'flow', whose layers need two coordinates."
            )
        params: Params = {"log_std": 0.5 * np.log(noise_var)}
        for layer in range(self.n_layers):
            params[f"inner_{layer}"] = rng.standard_normal((r, self.hidden)) / math.sqrt(r)
            params[f"bias_{layer}"] = np.zeros(self.hidden)
            last = rng.standard_normal((self.hidden, 2 * r)) / math.sqrt(self.hidden)
            params[f"outer_{layer}"] = FIRST_WEIGHT * last
        return params

    def _move(self, params: Params, layer: int, x: Array, xp: Library) -> tuple[Array, Array]:
        """Return log scale and shift of a layer; zero on the coordinates it leaves alone."""
        r = x.shape[-1]
        fixed = (xp.arange(r) + layer) % 2
        hidden = xp.tanh((x * fixed) @ params[f"inner_{layer}"] + params[f"bias_{layer}"])
        both = hidden @ params[f"outer_{layer}"]
        return xp.tanh(both[..., :r]) * (1 - fixed), both[..., r:] * (1 - fixed)

    def shape(self, params: Params, normals: Array, component: Array, xp: Library) -> Array:
        """Turn standard normals into noise."""
        x = normals
        for layer in range(self.n_layers):
            log_scale, shift = self._move(params, layer, x, xp)
            x = x * xp.exp(log_scale) + shift
        return x * xp.exp(params["log_std"])

    def second_moments(self, params: Params, noise: Array, weights: Array, xp: Library) -> Array:
        """Return the mean squares of the draws."""
        return (weights[:, None] * xp.square(noise)).mean(axis=0)

    def pair_log_density(self, params: Params, z: Array, points: Array, xp: Library) -> Array:
        """Return ``ln q(z_i - y_k)``: every difference is taken back through the layers."""
        x = (z[:, None, :] - points[None, :, :]) / xp.exp(params["log_std"])
        volume = -params["log_std"].sum() * xp.ones(x.shape[:2])
        for layer in reversed(range(self.n_layers)):
            log_scale, shift = self._move(params, layer, x, xp)
            x = (x - shift) * xp.exp(-log_scale)
            volume = volume - log_scale.sum(axis=-1)
        return volume - 0.5 * xp.square(x).sum(axis=-1) - 0.5 * LOG_TWO_PI * x.shape[-1]


FAMILIES: Final[dict[str, NoiseFamily]] = {
    "gaussian_diagonal": GaussianNoise(),
    "gaussian_full": GaussianNoise(full=True),
    "mixture": MixtureNoise(),
    "flow": FlowNoise(),
}


def find_family(family: str | NoiseFamily) -> NoiseFamily:
    """Return a family by its name; an object is returned as it is."""
    if not isinstance(family, str):
        return family
    if family not in FAMILIES:
        raise BudgetError(
            f"family must be one of {', '.join(FAMILIES)}; got {family!r}. Use 'gaussian_full'."
        )
    return FAMILIES[family]


def _log_sum_exp(values: Array, axis: int, xp: Library) -> Array:
    """Return ``ln Σ exp`` along an axis, without overflow."""
    top = values.max(axis=axis, keepdims=True)
    return (top + xp.log(xp.exp(values - top).sum(axis=axis, keepdims=True))).squeeze(axis)


def _square_distances(points: Array, others: Array, xp: Library) -> Array:
    """Return ``|a_i - b_k|²``, shape (n, m)."""
    squares = xp.square(points).sum(axis=1)[:, None] + xp.square(others).sum(axis=1)
    return xp.maximum(squares - 2 * points @ others.T, 0.0)
