"""The game of learned noise, compiled: a leader's law of noise against a follower's decoder.

A decoder is a pair of plain functions on a dictionary of arrays, to be compiled and differentiated
for many budgets at once. Needs jax.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from pacprivacy._checks import Matrix, Vector
from pacprivacy.residual.learned_noise import Training
from pacprivacy.residual.noise_families import NoiseFamily, Params

State: TypeAlias = dict[str, Any]

N_HEADS = 2
LOWEST_LOG = -1e30  # where a probability is 0 its product with the logarithm must be 0, not NaN


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A network from releases of shape (n, r) to log probabilities of shape (n, m)."""

    initialise: Callable[[jax.Array], Params]
    apply: Callable[[Params, jax.Array], jax.Array]


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
    centered = x - x.mean(axis=-1, keepdims=True)
    return centered * jax.lax.rsqrt(jnp.square(centered).mean(axis=-1, keepdims=True) + 1e-6)


def _normal(key: jax.Array, fan_in: int, fan_out: int) -> jax.Array:
    return jax.random.normal(key, (fan_in, fan_out)) / math.sqrt(fan_in)


class Candidates(NamedTuple):
    """The pool: outputs along their principal directions, the belief, and its entropy."""

    points: jax.Array
    log_p: jax.Array
    entropy: jax.Array
    variance: jax.Array
    slices: jax.Array | None


class Goal(NamedTuple):
    """What one budget asks for: the budget in nats, and the unit that noise is counted in."""

    mi_nats: jax.Array
    unit: jax.Array


class Draws(NamedTuple):
    """Simulated secrets, components of the noise and standard normals."""

    chosen: jax.Array
    component: jax.Array
    normals: jax.Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the compiled code depends on besides sizes."""

    family: NoiseFamily
    follower: str
    training: Training
    uniform: bool


def make_game_candidates(points: Matrix, log_p: Vector, slices: Matrix | None) -> Candidates:
    """Put a pool on the device."""
    weights = jnp.exp(jnp.asarray(log_p, dtype=jnp.float32))
    places = jnp.asarray(points, dtype=jnp.float32)
    logs = jnp.maximum(jnp.asarray(log_p, dtype=jnp.float32), LOWEST_LOG)
    return Candidates(
        points=places,
        log_p=logs,
        entropy=-(weights @ logs),
        variance=weights @ jnp.square(places),
        slices=None if slices is None else jnp.asarray(slices, dtype=jnp.float32),
    )


@partial(jax.jit, static_argnames=("rules",))
def begin_game(rules: Rules, pool: Candidates, leaders: Params, key: jax.Array) -> State:
    """Return the state of all budgets, from stacked first parameters."""
    state: State = jax.vmap(_Game(rules, pool).begin, in_axes=(0, None))(leaders, key)
    return state


@partial(jax.jit, static_argnames=("rules",))
def run_game(
    rules: Rules,
    pool: Candidates,
    state: State,
    goal: Goal,
    active: jax.Array,
    step: jax.Array,
    key: jax.Array,
) -> tuple[State, dict[str, jax.Array]]:
    """Train for one chunk where active; before step 0 only the decoder warms up."""
    over = jax.vmap(_Game(rules, pool).chunk, in_axes=(0, 0, 0, None, None))
    done: tuple[State, dict[str, jax.Array]] = over(state, goal, active, step, key)
    return done


@partial(jax.jit, static_argnames=("rules",))
def game_claim(
    rules: Rules, pool: Candidates, state: State, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return claimed information and its standard error for every budget, on fresh draws."""
    over = jax.vmap(_Game(rules, pool).claim, in_axes=(0, None))
    claims: tuple[jax.Array, jax.Array] = over(state, key)
    return claims


class _Game:
    """The game of one budget; everything here is traced, and mapped over the budgets."""

    def __init__(self, rules: Rules, pool: Candidates) -> None:
        self._pool, self._family, self._training = pool, rules.family, rules.training
        self._uniform = rules.uniform
        self._decoder = _decoder(rules, pool)
        training = rules.training
        growth = training.penalty_end / training.penalty_start
        self._penalty = optax.exponential_decay(
            training.penalty_start,
            max(1, training.n_steps // 2),
            growth,
            end_value=training.penalty_end,
        )
        self._leader_step = optax.adam(_falling(training.leader_rate, training.n_steps))
        n_guesses = (training.n_steps + training.warm_up) * training.follower_steps
        self._follower_step = optax.adam(_falling(training.follower_rate, n_guesses))

    def begin(self, leader: Params, key: jax.Array) -> State:
        state: State = {"leader": leader, "leader_memory": self._leader_step.init(leader)}
        if self._decoder is None:
            return state
        follower = self._decoder.initialise(key)
        return state | {
            "follower": follower,
            "follower_memory": self._follower_step.init(follower),
        }

    def chunk(
        self, state: State, goal: Goal, active: jax.Array, step: jax.Array, key: jax.Array
    ) -> tuple[State, dict[str, jax.Array]]:
        def one(state: State, number: jax.Array) -> tuple[State, dict[str, jax.Array]]:
            draws = jax.random.fold_in(key, number + self._training.warm_up)
            taught, led = jax.random.split(draws)
            if self._decoder is not None:
                state = self._teach(state, taught)
            after, measured = self._lead(state, goal, number, led)
            return jax.tree.map(lambda a, b: jnp.where(number < 0, b, a), after, state), measured

        moved, measured = jax.lax.scan(one, state, step + jnp.arange(self._training.chunk))
        merged = jax.tree.map(lambda new, old: jnp.where(active, new, old), moved, state)
        return merged, measured

    def claim(self, state: State, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        batch = self._training.batch
        n_batches = max(2, math.ceil(self._training.n_check / batch))

        def one(carry: None, k: jax.Array) -> tuple[None, jax.Array]:
            summands, _ = self._terms(state["leader"], state.get("follower"), self._draw(k, 1))
            return carry, summands.mean()

        entropies = jax.lax.scan(one, None, jax.random.split(key, n_batches))[1]
        return self._pool.entropy - entropies.mean(), entropies.std(ddof=1) / math.sqrt(n_batches)

    def _draw(self, key: jax.Array, n_batches: int) -> Draws:
        """Draw batches with evenly spread secrets and normals in pairs of opposite sign."""
        jitter, mixed, normal = jax.random.split(key, 3)
        half, m, r = self._training.batch // 2, *self._pool.points.shape
        places = (jax.random.uniform(jitter, (n_batches, half)) + jnp.arange(half)) / half
        if self._uniform:
            chosen = jnp.floor(places * m).astype(jnp.int32)
        else:
            cumulative = jnp.cumsum(jnp.exp(self._pool.log_p))
            chosen = jnp.searchsorted(cumulative, places * cumulative[-1], side="right")
        kinds = jnp.arange(n_batches * half) % self._family.n_components
        if self._family.n_components > 1:
            kinds = jax.random.permutation(mixed, kinds)
        normals = jax.random.normal(normal, (n_batches, half, r))
        return Draws(
            jnp.tile(jnp.minimum(chosen, m - 1), 2).ravel(),
            jnp.tile(kinds.reshape(n_batches, half), 2).ravel(),
            jnp.concatenate([normals, -normals], axis=1).reshape(-1, r),
        )

    def _terms(
        self, leader: Params, follower: Params | None, draws: Draws
    ) -> tuple[jax.Array, jax.Array]:
        """Return each draw's term of the exact or cross-entropy, and the noise's second moments."""
        noise = self._family.shape(leader, draws.normals, draws.component, jnp)
        weights = jnp.exp(self._family.log_weights(leader, jnp))[draws.component]
        weights = weights * self._family.n_components
        second = self._family.second_moments(leader, noise, weights, jnp)
        z = self._pool.points[draws.chosen] + noise
        if self._decoder is None or follower is None:
            log_q = self._family.pair_log_density(leader, z, self._pool.points, jnp)
            log_post = jax.nn.log_softmax(self._pool.log_p + log_q)
            summands = -(jnp.exp(log_post) * jnp.maximum(log_post, LOWEST_LOG)).sum(axis=1)
            return weights * summands, second
        inputs = z / jnp.sqrt(self._pool.variance + jax.lax.stop_gradient(second))
        if self._pool.slices is not None:
            inputs = inputs @ self._pool.slices
        log_guess = self._decoder.apply(follower, inputs)
        summands = -jnp.take_along_axis(log_guess, draws.chosen[:, None], axis=1)[:, 0]
        return weights * summands, second

    def _teach(self, state: State, key: jax.Array) -> State:
        """Let the decoder take its steps against the noise as it is."""

        def one(state: State, key: jax.Array) -> tuple[State, None]:
            draws = self._draw(key, 1)
            slope = jax.grad(lambda f: self._terms(state["leader"], f, draws)[0].mean())(
                state["follower"]
            )
            updates, memory = self._follower_step.update(slope, state["follower_memory"])
            follower = optax.apply_updates(state["follower"], updates)
            return {**state, "follower": follower, "follower_memory": memory}, None

        keys = jax.random.split(key, self._training.follower_steps)
        return jax.lax.scan(one, state, keys)[0]

    def _lead(
        self, state: State, goal: Goal, step: jax.Array, key: jax.Array
    ) -> tuple[State, dict[str, jax.Array]]:
        """Let the leader take one step against the follower as it is."""
        draws = self._draw(key, 2)

        def objective(leader: Params) -> tuple[jax.Array, dict[str, jax.Array]]:
            summands, second = self._terms(leader, state.get("follower"), draws)
            informed = self._pool.entropy - summands.reshape(2, -1).mean(axis=1)
            miss = ((informed - goal.mi_nats) / goal.mi_nats).prod()
            noise = second.sum()
            measured = {"noise": noise, "claimed": informed.mean()}
            return noise / goal.unit + self._penalty(step) * miss, measured

        slope, measured = jax.grad(objective, has_aux=True)(state["leader"])
        updates, memory = self._leader_step.update(slope, state["leader_memory"])
        leader = optax.apply_updates(state["leader"], updates)
        return {**state, "leader": leader, "leader_memory": memory}, measured


def _decoder(rules: Rules, pool: Candidates) -> Decoder | None:
    """Return an ``mlp``, or a small ``transformer`` with one token per coordinate."""
    if rules.follower == "exact":
        return None
    make = _transformer if rules.follower == "transformer" else _mlp
    n_inputs = (pool.points if pool.slices is None else pool.slices).shape[1]
    return make(n_inputs, len(pool.points), rules.training.hidden, rules.training.n_layers)


def _falling(rate: float, n_steps: int) -> Any:
    return optax.cosine_decay_schedule(rate, n_steps, alpha=0.01)
