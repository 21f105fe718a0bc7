"""Noise from an invertible network: affine coupling layers on a Gaussian.

Each layer leaves every other coordinate as it is and moves the rest by a scale and a shift that
depend on those. It can be undone exactly and its volume factor is a product of the scales, so the
density of the noise is known and the exact adversary can be computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy.errors import BudgetError
from pacprivacy.residual.learned.families import LOG_TWO_PI, Array, Params

__all__ = ["Flow"]

MOST_LAYERS = 32
FIRST_WEIGHT = 0.01  # of the last matrix: the flow starts close to the identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Affine coupling layers on a Gaussian along the principal directions.

    Parameters
    ----------
    n_layers : int
        Coupling layers; two move every coordinate once.
    hidden : int
        Units of the network that gives scales and shifts.

    Examples
    --------
    >>> Flow(n_layers=2).name
    'flow'
    """

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

    @property
    def n_components(self) -> int:
        """One: this is not a mixture."""
        return 1

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

    def log_weights(self, params: Params, xp: Any) -> Array:
        """Return the log probability of the only component."""
        return xp.zeros(1)

    def _move(self, params: Params, layer: int, x: Array, xp: Any) -> tuple[Array, Array]:
        """Return log scale and shift of a layer; zero on the coordinates it leaves alone."""
        r = x.shape[-1]
        kept = (xp.arange(r) + layer) % 2
        hidden = xp.tanh((x * kept) @ params[f"inner_{layer}"] + params[f"bias_{layer}"])
        both = hidden @ params[f"outer_{layer}"]
        return xp.tanh(both[..., :r]) * (1 - kept), both[..., r:] * (1 - kept)

    def shape(self, params: Params, normals: Array, component: Array, xp: Any) -> Array:
        """Turn standard normals into noise."""
        x = normals
        for layer in range(self.n_layers):
            log_scale, shift = self._move(params, layer, x, xp)
            x = x * xp.exp(log_scale) + shift
        return x * xp.exp(params["log_std"])

    def second_moments(self, params: Params, noise: Array, weights: Array, xp: Any) -> Array:
        """Return the mean squares of the draws."""
        return (weights[:, None] * xp.square(noise)).mean(axis=0)

    def pair_log_density(self, params: Params, z: Array, points: Array, xp: Any) -> Array:
        """Return ``ln q(z_i - y_k)``: every difference is taken back through the layers."""
        x = (z[:, None, :] - points[None, :, :]) / xp.exp(params["log_std"])
        volume = -params["log_std"].sum() * xp.ones(x.shape[:2])
        for layer in reversed(range(self.n_layers)):
            log_scale, shift = self._move(params, layer, x, xp)
            x = (x - shift) * xp.exp(-log_scale)
            volume = volume - log_scale.sum(axis=-1)
        return volume - 0.5 * xp.square(x).sum(axis=-1) - 0.5 * LOG_TWO_PI * x.shape[-1]

    def rescaled(self, params: Params, noise_scale: float) -> Params:
        """Return the parameters of ``noise_scale`` times the noise."""
        return {**params, "log_std": params["log_std"] + math.log(noise_scale)}
