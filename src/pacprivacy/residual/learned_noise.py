"""Learned noise: the game of [RPAC] between a law of noise and a decoder. Needs ``[jax]``.

Learned noise is *not certified*. The optimal decoder on a pool is the posterior
``P_k(z) ∝ p_k q(z - y_k)``: :func:`check_learned_noise` measures with it what a learned decoder
missed, and :func:`plan_learned_noise` turns the shape of the noise into a proved plan. The noise is
Gaussian, because no other law can become a release.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from pacprivacy._checks import Matrix, Vector, as_outputs, check_log_belief, check_positive, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary import DEFAULT_GAMMA, View, exact_information
from pacprivacy.errors import BudgetError, PacPrivacyError
from pacprivacy.noise import (
    NoisePlan,
    PlanProblem,
    Shape,
    Spread,
    prove_shape,
    spread_of,
    waterfill,
)
from pacprivacy.theory import Estimate, entropy

Family: TypeAlias = Literal["gaussian_diagonal", "gaussian_full"]
Follower: TypeAlias = Literal["mlp", "exact"]
Params: TypeAlias = dict[str, Any]  # arrays of numpy or jax
UtilityLoss: TypeAlias = Callable[[Any], Any]

CHECK_DRAWS: Final = 200_000
LOSS_DRAWS: Final = 4096
LEARNED_NOTE: Final = "the shape of the noise was learned; the proof does not rest on the learning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Steps, rates and sizes of Algorithm 2 of [RPAC].

    Attributes
    ----------
    n_steps, batch : int
        Steps of the leader, and simulated releases per estimate, an even number.
    follower_steps, warm_up : int
        Steps of the decoder before each step of the leader, and rounds of them before the first.
    leader_rate, follower_rate : float
        First step sizes of Adam; both fall to nothing along a cosine.
    penalty_start, penalty_end : float
        Weight of the squared miss of the budget, relative to it; grows over half of the steps.
    hidden, n_layers, n_slices : int
        Size of the decoder, and how many random projections it sees; 0 for the whole release.
    n_check : int
        Fresh draws on which the follower's claim is evaluated in the end.
    """

    n_steps: int = 2000
    batch: int = 512
    follower_steps: int = 4
    warm_up: int = 200
    leader_rate: float = 0.03
    follower_rate: float = 2e-3
    penalty_start: float = 5.0
    penalty_end: float = 200.0
    hidden: int = 64
    n_layers: int = 2
    n_slices: int = 0
    n_check: int = 1 << 18

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, float):
                check_positive(field.name, value, advice="Leave it out.")
            elif value < (least := 0 if field.name in ("warm_up", "n_slices") else 1):
                raise BudgetError(
                    f"{field.name} must be at least {least}; got {value}. Leave it out."
                )
        if self.batch % 2:
            raise BudgetError(f"batch must be even; got {self.batch}. Use {self.batch + 1}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedNoise:
    """Learned Gaussian noise, *not certified*: its information is the claim of a decoder.

    A decoder that guesses badly makes a leaky release look private: ``claimed_nats``, with standard
    error ``claimed_error``, is a lower bound of the truth on fresh draws and never a promise.

    ``follower``, the budget ``mi_nats`` and the claim are public. Curator-only are the ``factor``
    ``L`` of the covariance ``L Lᵀ`` along the principal directions, the ``spread`` of the outputs
    and the belief ``log_p``.
    """

    follower: Follower
    mi_nats: float
    claimed_nats: float
    claimed_error: float
    factor: Matrix
    spread: Spread
    log_p: Vector

    def __post_init__(self) -> None:
        freeze(self.factor)

    def __repr__(self) -> str:
        return (
            f"LearnedNoise(follower={self.follower!r}, mi_nats={self.mi_nats:g}, "
            f"claimed_nats={self.claimed_nats:.4g}, total_variance={self.total_variance:.4g}, "
            "not certified)"
        )

    @property
    def total_variance(self) -> float:
        """Expected squared length of the noise."""
        return float(np.square(self.factor).sum())

    def covariance(self) -> Matrix:
        """Return the covariance in the output's coordinates, shape (d, d)."""
        shape = self.covariance_shape()
        columns = [
            self.spread.expand(np.sqrt(variance) * direction)
            for variance, direction in zip(shape.noise_var, shape.rotation.T, strict=True)
        ]
        factor = np.stack(columns)
        return np.asarray(factor.T @ factor, dtype=np.float64)

    def covariance_shape(self) -> Shape:
        """Return the directions and variances of the noise."""
        directions, std, _ = np.linalg.svd(self.factor)
        return Shape(rotation=directions, noise_var=np.square(std))


def noise_factor(params: Params, xp: Any) -> Any:
    """Return the lower triangular ``L`` with covariance ``L Lᵀ``; ``xp`` is numpy or jax.numpy.

    Training is in single precision, checks and proofs in double.
    """
    std = xp.exp(params["log_std"])
    if "lower" not in params:
        return xp.diag(std)
    return std[:, None] * (xp.eye(len(std)) + xp.tril(params["lower"], -1))


def learn_noise(
    outputs: object,
    mi_nats: float,
    *,
    family: Family = "gaussian_diagonal",
    follower: Follower = "mlp",
    loss: UtilityLoss | None = None,
    training: Training | None = None,
    log_belief: Vector | None = None,
    rng: np.random.Generator | int | None = None,
) -> LearnedNoise:
    """Learn noise for one information budget; needs ``pacprivacy[jax]``.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        The mechanism's output on every candidate.
    mi_nats : float
        Information that the follower may learn about the index, in nats.
    family : {"gaussian_diagonal", "gaussian_full"}
        Gaussian noise along the principal directions, or with any covariance.
    follower : {"mlp", "exact"}
        A decoder that is trained along, or the posterior, the best decoder there is.
    loss : callable, public, optional
        Cost of noise: from draws of shape (n, d), on the output, to n numbers, in operations of
        ``jax.numpy``. Its mean is minimised; by default the squared length.
    training : Training, optional
        Steps, rates and sizes.
    log_belief : array of shape (m,), optional
        The attacker's belief before the release, uniform by default.
    rng : int or Generator, optional
        The same seed gives the same noise on one machine.

    Returns
    -------
    LearnedNoise
        Marked *not certified*: the budget is met in the follower's eyes only.
    """
    return learn_noise_curve(
        outputs,
        [mi_nats],
        family=family,
        follower=follower,
        loss=loss,
        training=training,
        log_belief=log_belief,
        rng=rng,
    )[0]


def learn_noise_curve(
    outputs: object,
    mi_budgets: Sequence[float],
    *,
    family: Family = "gaussian_diagonal",
    follower: Follower = "mlp",
    loss: UtilityLoss | None = None,
    training: Training | None = None,
    log_belief: Vector | None = None,
    rng: np.random.Generator | int | None = None,
) -> tuple[LearnedNoise, ...]:
    """Learn noise for several budgets at once; options are those of :func:`learn_noise`."""
    values = as_outputs(outputs)
    log_p = check_log_belief(log_belief, len(values))
    spread = spread_of(values, np.exp(log_p))
    budgets = _check_budgets(mi_budgets, spread, log_p)
    for name, choice, known in (("family", family, Family), ("follower", follower, Follower)):
        if choice not in get_args(known):
            raise BudgetError(
                f"{name} must be one of {', '.join(get_args(known))}; got {choice!r}. "
                f"Use {get_args(known)[-1]!r}."
            )
    return _LearningRun(
        spread=spread,
        log_p=log_p,
        budgets=budgets,
        full=family == "gaussian_full",
        follower=follower,
        loss=loss,
        training=training or Training(),
        seed=coerce_seed(rng),
    ).learn()


@dataclass(frozen=True, slots=True, kw_only=True)
class _LearningRun:
    """The training of all budgets."""

    spread: Spread
    log_p: Vector
    budgets: Vector
    full: bool
    follower: Follower
    loss: UtilityLoss | None
    training: Training
    seed: int

    @property
    def unit_length(self) -> float:
        """One unit for all directions, so that a step size means the same everywhere."""
        return math.sqrt(float(self.spread.eigenvalues.mean()))

    def learn(self) -> tuple[LearnedNoise, ...]:
        jax, game = _import_game()
        words = public_generator(self.seed, "learned noise").integers(2**32, size=3)
        rules = game.Rules(
            follower=self.follower,
            training=self.training,
            loss=self.loss,
        )
        points = self.spread.coordinates / self.unit_length
        pool = game.make_game_candidates(points, self._basis(), self.log_p, self._slices())
        leaders, units = self._start()
        goal = game.Goal(self.budgets.astype(np.float32), units.astype(np.float32))
        keys = jax.numpy.stack([jax.random.key(int(word)) for word in words])
        played, claims, errors = game.play_game(rules, pool, leaders, goal, keys)
        learned = {name: np.asarray(a, dtype=np.float64) for name, a in played.items()}
        return tuple(
            LearnedNoise(
                follower=self.follower,
                mi_nats=float(budget),
                claimed_nats=max(0.0, float(claims[i])),
                claimed_error=float(errors[i]),
                factor=self.unit_length
                * noise_factor({name: a[i] for name, a in learned.items()}, np),
                spread=self.spread,
                log_p=self.log_p,
            )
            for i, budget in enumerate(self.budgets)
        )

    def _start(self) -> tuple[Params, Vector]:
        """Return the initial noise of each budget, and the unit of its cost."""
        eigenvalues = self.spread.eigenvalues / self.unit_length**2
        noise_vars = np.stack([waterfill(eigenvalues, mi_nats=float(mi)) for mi in self.budgets])
        leaders = {"log_std": (0.5 * np.log(noise_vars)).astype(np.float32)}
        if self.full:
            rank = len(eigenvalues)
            leaders["lower"] = np.zeros((len(self.budgets), rank, rank), dtype=np.float32)
        if self.loss is None:
            return leaders, noise_vars.sum(axis=1)
        rng = public_generator(self.seed, "learned noise loss")
        normals = rng.standard_normal((LOSS_DRAWS, len(eigenvalues)))
        as_jax, basis = _import_game()[0].numpy.asarray, self._basis()
        costs = [self.loss(as_jax((normals * np.sqrt(var)) @ basis)) for var in noise_vars]
        units = np.array([float(np.mean(np.asarray(cost))) for cost in costs])
        if not (np.isfinite(units) & (units > 0)).all():
            raise BudgetError(
                "loss must be finite, and positive on average; got another mean at the noise of "
                "'waterfill'. Add a constant, or use squares."
            )
        return leaders, units

    def _basis(self) -> Matrix:
        """Return the map from noise of the game to noise on the output, shape (r, d)."""
        if self.loss is None:  # not needed, and large where outputs are
            return np.empty((self.spread.rank, 0))
        rows = [self.spread.expand(self.unit_length * e) for e in np.eye(self.spread.rank)]
        return np.stack(rows)

    def _slices(self) -> Matrix | None:
        """Return random unit directions for the sliced follower, one per column."""
        if self.training.n_slices == 0:
            return None
        rng = public_generator(self.seed, "learned noise slices")
        directions = rng.standard_normal((self.spread.rank, self.training.n_slices))
        unit: Matrix = directions / np.linalg.norm(directions, axis=0)
        return unit


def _import_game() -> tuple[Any, Any]:
    """Return jax and the compiled game; raise with advice if jax is missing."""
    try:
        import jax

        from pacprivacy.residual import decoder_game as game
    except ImportError as error:
        raise PacPrivacyError(
            "learned noise needs jax and optax, which are not installed. "
            "Run in a checkout: pip install '.[jax]'"
        ) from error
    return jax, game


def _check_budgets(mi_budgets: Sequence[float], spread: Spread, log_p: Vector) -> Vector:
    for mi_nats in mi_budgets:
        check_positive("mi_nats", mi_nats, advice="Use 0.25.")
    most = float(entropy(log_p))
    if max(mi_budgets) >= most or spread.rank == 0:
        raise BudgetError(
            f"mi_nats must be below the entropy of the secret, {most:.4g}, and the outputs must "
            f"differ; got {max(mi_budgets):g}. No noise is needed there."
        )
    return np.asarray(mi_budgets, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseShortfall:
    """True information of learned noise, and the claim of its decoder; public."""

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


def check_learned_noise(
    learned: LearnedNoise,
    *,
    n_draws: int = CHECK_DRAWS,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> NoiseShortfall:
    """Evaluate learned noise with the optimal adversary.

    Guarantee
    ---------
    Claim W-1. The interval holds the mutual information between the secret index and the output
    plus this noise, in real numbers, with probability ``1 - gamma`` over fresh draws. It certifies
    no release: nothing is released with float noise.
    """
    whitened = np.asarray(
        np.linalg.solve(learned.factor, learned.spread.coordinates.T).T, dtype=np.float64
    )
    view = View(points=whitened, log_prior=learned.log_p)
    true_nats = exact_information(view, n_draws=n_draws, gamma=gamma, rng=rng)
    return NoiseShortfall(claimed_nats=learned.claimed_nats, true_nats=true_nats)


def plan_learned_noise(
    learned: LearnedNoise,
    *,
    mi_nats: float | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> NoisePlan:
    """Turn the shape of learned Gaussian noise into a certified plan of kind *exact*.

    The covariance is scaled until the exact adversary proves ``mi_nats``, by default the budget of
    the training, on fresh draws. Neither the training nor the decoder's claim is part of the proof.

    Guarantee
    ---------
    Claim N-5, with the learned covariance as the shape.
    """
    budget = learned.mi_nats if mi_nats is None else mi_nats
    if not 0 < budget < math.inf:
        raise BudgetError(f"mi_nats must be a positive finite number; got {budget}. Use 0.25.")
    problem = PlanProblem(
        values=learned.spread.values,
        measured=learned.spread,
        log_p=learned.log_p,
        gamma=gamma,
        seed=coerce_seed(rng),
        mi_nats=budget,
    )
    return prove_shape(learned.covariance_shape(), problem, rule="learned", notes=(LEARNED_NOTE,))
