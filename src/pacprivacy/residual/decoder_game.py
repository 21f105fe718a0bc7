"""The game of learned noise, compiled: a leader's Gaussian noise against a follower's decoder.

Plain functions on dictionaries of arrays, to be compiled and differentiated for many budgets at
once. Needs jax.
"""

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from pacprivacy._checks import Matrix, Vector
from pacprivacy.residual.learned_noise import (
    Follower,
    Params,
    Training,
    UtilityLoss,
    noise_factor,
)

State: TypeAlias = dict[str, Any]

LOWEST_LOG = -1e30  # where a probability is 0 its product with the logarithm must be 0, not NaN


def _start_decoder(key: jax.Array, sizes: tuple[int, ...]) -> Params:
    """Return initial weights of a network whose first guess is close to uniform."""
    keys = jax.random.split(key, len(sizes) - 1)
    params: Params = {}
    for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        weights = jax.random.normal(keys[layer], (fan_in, fan_out)) / math.sqrt(fan_in)
        params[f"w{layer}"] = weights
        params[f"b{layer}"] = jnp.zeros(fan_out)
    params[f"w{len(sizes) - 2}"] *= 0.1
    return params


def _decode(params: Params, z: jax.Array) -> jax.Array:
    """Return log probabilities of the candidates, shape (n, m), given releases of shape (n, r)."""
    last = len(params) // 2 - 1
    for layer in range(last):
        z = jax.nn.gelu(z @ params[f"w{layer}"] + params[f"b{layer}"])
    return jax.nn.log_softmax(z @ params[f"w{last}"] + params[f"b{last}"])


class Candidates(NamedTuple):
    """The pool: outputs along their principal directions, the belief, and its entropy.

    ``basis`` turns noise along these directions into noise on the output.
    """

    points: jax.Array
    basis: jax.Array
    log_p: jax.Array
    entropy: jax.Array
    variance: jax.Array
    slices: jax.Array | None


class Goal(NamedTuple):
    """One budget in nats, and the unit of the cost of noise."""

    mi_nats: jax.Array
    unit: jax.Array


class Draws(NamedTuple):
    """Simulated secrets and standard normals."""

    chosen: jax.Array
    normals: jax.Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Static arguments of the compiled code besides sizes."""

    follower: Follower
    training: Training
    loss: UtilityLoss | None


def make_game_candidates(
    points: Matrix, basis: Matrix, log_p: Vector, slices: Matrix | None
) -> Candidates:
    """Put a pool on the device."""
    weights = jnp.exp(jnp.asarray(log_p, dtype=jnp.float32))
    places = jnp.asarray(points, dtype=jnp.float32)
    logs = jnp.maximum(jnp.asarray(log_p, dtype=jnp.float32), LOWEST_LOG)
    return Candidates(
        points=places,
        basis=jnp.asarray(basis, dtype=jnp.float32),
        log_p=logs,
        entropy=-(weights @ logs),
        variance=weights @ jnp.square(places),
        slices=None if slices is None else jnp.asarray(slices, dtype=jnp.float32),
    )


@partial(jax.jit, static_argnames=("rules",))
def play_game(
    rules: Rules, pool: Candidates, leaders: Params, goal: Goal, keys: jax.Array
) -> tuple[Params, jax.Array, jax.Array]:
    """Return the noise of every budget, the information claimed, and that claim's standard error.

    ``leaders`` are stacked first parameters; the keys are for the decoder, the draws of the
    training, and those of the claim.
    """
    over = jax.vmap(_Game(rules, pool).play, in_axes=(0, 0, None))
    played: tuple[Params, jax.Array, jax.Array] = over(leaders, goal, keys)
    return played


class _Game:
    """The game of one budget; everything here is traced, and mapped over the budgets."""

    def __init__(self, rules: Rules, pool: Candidates) -> None:
        self._pool, self._exact = pool, rules.follower == "exact"
        self._training = training = rules.training
        self._loss = rules.loss
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

    def play(
        self, leader: Params, goal: Goal, keys: jax.Array
    ) -> tuple[Params, jax.Array, jax.Array]:
        """Let the decoder warm up, then train both sides in turns; evaluate on fresh draws."""
        first, middle, last = keys
        training, state = self._training, self._begin(leader, first)

        def warm_up(state: State, number: jax.Array) -> tuple[State, None]:
            return self._teach(state, jax.random.fold_in(middle, number)), None

        def step(state: State, number: jax.Array) -> tuple[State, None]:
            draws = jax.random.fold_in(middle, number + training.warm_up)
            taught, led = jax.random.split(draws)
            if not self._exact:
                state = self._teach(state, taught)
            return self._lead(state, goal, number, led), None

        if not self._exact:
            state = jax.lax.scan(warm_up, state, jnp.arange(training.warm_up))[0]
        state = jax.lax.scan(step, state, jnp.arange(training.n_steps))[0]
        return state["leader"], *self._claim(state, last)

    def _begin(self, leader: Params, key: jax.Array) -> State:
        state: State = {"leader": leader, "leader_memory": self._leader_step.init(leader)}
        if self._exact:
            return state
        n_inputs = (self._pool.points if self._pool.slices is None else self._pool.slices).shape[1]
        hidden = (self._training.hidden,) * self._training.n_layers
        follower = _start_decoder(key, (n_inputs, *hidden, len(self._pool.points)))
        memory = self._follower_step.init(follower)
        return state | {"follower": follower, "follower_memory": memory}

    def _claim(self, state: State, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        batch = self._training.batch
        n_batches = max(2, math.ceil(self._training.n_check / batch))

        def one(carry: None, k: jax.Array) -> tuple[None, jax.Array]:
            summands, *_ = self._terms(state["leader"], state.get("follower"), self._draw(k, 1))
            return carry, summands.mean()

        entropies = jax.lax.scan(one, None, jax.random.split(key, n_batches))[1]
        return self._pool.entropy - entropies.mean(), entropies.std(ddof=1) / math.sqrt(n_batches)

    def _draw(self, key: jax.Array, n_batches: int) -> Draws:
        """Draw batches with evenly spread secrets and normals in pairs of opposite sign."""
        jitter, _, normal = jax.random.split(key, 3)
        half, m, r = self._training.batch // 2, *self._pool.points.shape
        places = (jax.random.uniform(jitter, (n_batches, half)) + jnp.arange(half)) / half
        cumulative = jnp.cumsum(jnp.exp(self._pool.log_p))
        chosen = jnp.searchsorted(cumulative, places * cumulative[-1], side="right")
        normals = jax.random.normal(normal, (n_batches, half, r))
        return Draws(
            jnp.tile(jnp.minimum(chosen, m - 1), 2).ravel(),
            jnp.concatenate([normals, -normals], axis=1).reshape(-1, r),
        )

    def _terms(
        self, leader: Params, follower: Params | None, draws: Draws
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return each draw's term of the exact or cross-entropy, the noise, and its variances."""
        factor = noise_factor(leader, jnp)
        noise_var = jnp.square(factor).sum(axis=1)
        diagonal = "lower" not in leader
        std = jnp.exp(leader["log_std"])
        noise = draws.normals * std if diagonal else draws.normals @ factor.T
        z = self._pool.points[draws.chosen] + noise
        if follower is None:
            log_post = jax.nn.log_softmax(self._pool.log_p + self._log_density(leader, z))
            summands = -(jnp.exp(log_post) * jnp.maximum(log_post, LOWEST_LOG)).sum(axis=1)
            return summands, noise, noise_var
        inputs = z / jnp.sqrt(self._pool.variance + jax.lax.stop_gradient(noise_var))
        if self._pool.slices is not None:
            inputs = inputs @ self._pool.slices
        log_guess = _decode(follower, inputs)
        return (
            -jnp.take_along_axis(log_guess, draws.chosen[:, None], axis=1)[:, 0],
            noise,
            noise_var,
        )

    def _log_density(self, leader: Params, z: jax.Array) -> jax.Array:
        """Return ``ln q(z_i - y_k)`` up to a constant, shape (n, m)."""
        if "lower" in leader:
            factor = noise_factor(leader, jnp)
            z = jnp.linalg.solve(factor, z.T).T
            points = jnp.linalg.solve(factor, self._pool.points.T).T
        else:
            std = jnp.exp(leader["log_std"])
            z, points = z / std, self._pool.points / std
        squares = jnp.square(z).sum(axis=1)[:, None] + jnp.square(points).sum(axis=1)
        return -0.5 * jnp.maximum(squares - 2 * z @ points.T, 0.0)

    def _teach(self, state: State, key: jax.Array) -> State:
        """Train the decoder for its steps against fixed noise."""

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

    def _lead(self, state: State, goal: Goal, step: jax.Array, key: jax.Array) -> State:
        """Take one step of the leader against a fixed follower."""
        draws = self._draw(key, 2)

        def objective(leader: Params) -> jax.Array:
            summands, noise, noise_var = self._terms(leader, state.get("follower"), draws)
            informed = self._pool.entropy - summands.reshape(2, -1).mean(axis=1)
            miss = ((informed - goal.mi_nats) / goal.mi_nats).prod()
            cost = noise_var.sum()
            if self._loss is not None:
                cost = self._loss(noise @ self._pool.basis).mean()
            return jnp.asarray(cost / goal.unit + self._penalty(step) * miss)

        slope = jax.grad(objective)(state["leader"])
        updates, memory = self._leader_step.update(slope, state["leader_memory"])
        leader = optax.apply_updates(state["leader"], updates)
        return {**state, "leader": leader, "leader_memory": memory}


def _falling(rate: float, n_steps: int) -> Any:
    return optax.cosine_decay_schedule(rate, n_steps, alpha=0.01)
