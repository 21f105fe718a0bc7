"""The follower's decoders: networks that guess the secret index from a release. Needs jax.

A decoder is a pair of plain functions on a dictionary of arrays, so that it can be compiled,
differentiated and trained for many budgets at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import jax
import jax.numpy as jnp

from pacprivacy.residual.learned.families import Params

__all__ = ["Decoder", "make_decoder"]

Initialise: TypeAlias = Callable[[jax.Array], Params]
Apply: TypeAlias = Callable[[Params, jax.Array], jax.Array]

N_HEADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A network from releases of shape (n, r) to log probabilities of shape (n, m)."""

    initialise: Initialise
    apply: Apply


def make_decoder(
    kind: str, *, n_inputs: int, n_outputs: int, hidden: int, n_layers: int
) -> Decoder:
    """Return an ``mlp`` or a small ``transformer`` with one token per coordinate."""
    if kind == "transformer":
        return _transformer(n_inputs, n_outputs, hidden, n_layers)
    return _mlp(n_inputs, n_outputs, hidden, n_layers)


def _mlp(n_inputs: int, n_outputs: int, hidden: int, n_layers: int) -> Decoder:
    sizes = [n_inputs, *[hidden] * n_layers, n_outputs]

    def initialise(key: jax.Array) -> Params:
        keys = jax.random.split(key, len(sizes) - 1)
        params: Params = {}
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            params[f"w{layer}"] = _normal(keys[layer], fan_in, fan_out)
            params[f"b{layer}"] = jnp.zeros(fan_out)
        params[f"w{len(sizes) - 2}"] *= 0.1  # the first guess is close to uniform
        return params

    def apply(params: Params, z: jax.Array) -> jax.Array:
        x = z
        for layer in range(len(sizes) - 2):
            x = jax.nn.gelu(x @ params[f"w{layer}"] + params[f"b{layer}"])
        last = len(sizes) - 2
        return jax.nn.log_softmax(x @ params[f"w{last}"] + params[f"b{last}"])

    return Decoder(initialise=initialise, apply=apply)


def _transformer(n_inputs: int, n_outputs: int, hidden: int, n_layers: int) -> Decoder:
    width = max(N_HEADS, hidden // N_HEADS * N_HEADS)

    def initialise(key: jax.Array) -> Params:
        keys = iter(jax.random.split(key, 4 * n_layers + 3))
        params: Params = {
            "value": _normal(next(keys), 1, width) * jnp.ones((n_inputs, 1)),
            "place": _normal(next(keys), 1, n_inputs * width).reshape(n_inputs, width),
            "head": 0.1 * _normal(next(keys), width * n_inputs, n_outputs),
            "bias": jnp.zeros(n_outputs),
        }
        for layer in range(n_layers):
            params[f"attend{layer}"] = _normal(next(keys), width, 3 * width)
            params[f"join{layer}"] = _normal(next(keys), width, width)
            params[f"up{layer}"] = _normal(next(keys), width, 2 * width)
            params[f"down{layer}"] = _normal(next(keys), 2 * width, width)
        return params

    def apply(params: Params, z: jax.Array) -> jax.Array:
        x = z[:, :, None] * params["value"] + params["place"]
        for layer in range(n_layers):
            x = x + _attention(_normalised(x) @ params[f"attend{layer}"]) @ params[f"join{layer}"]
            x = x + jax.nn.gelu(_normalised(x) @ params[f"up{layer}"]) @ params[f"down{layer}"]
        flat = _normalised(x).reshape(len(z), -1)
        return jax.nn.log_softmax(flat @ params["head"] + params["bias"])

    return Decoder(initialise=initialise, apply=apply)


def _attention(projected: jax.Array) -> jax.Array:
    """Return attention between the coordinates, from joined queries, keys and values."""
    n, tokens, width = projected.shape[0], projected.shape[1], projected.shape[2] // 3
    query, key, value = jnp.split(projected.reshape(n, tokens, N_HEADS, -1), 3, axis=-1)
    scores = jnp.einsum("nthd,nshd->nhts", query, key) / math.sqrt(width // N_HEADS)
    mixed = jnp.einsum("nhts,nshd->nthd", jax.nn.softmax(scores), value)
    return mixed.reshape(n, tokens, width)


def _normalised(x: jax.Array) -> jax.Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + 1e-6)


def _normal(key: jax.Array, fan_in: int, fan_out: int) -> jax.Array:
    return jax.random.normal(key, (fan_in, fan_out)) / math.sqrt(fan_in)
