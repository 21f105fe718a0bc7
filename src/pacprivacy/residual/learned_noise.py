"""Learned noise: the game of [RPAC] between a law of noise and a decoder. Needs ``[jax]``.

What is learned is *not certified*. The optimal decoder on a pool is the posterior
``P_k(z) ∝ p_k q(z - y_k)``: :func:`check_learned_noise` measures with it what a learned decoder
missed, and :func:`plan_learned_noise` turns the shape of Gaussian noise into a proved plan.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypedDict, Unpack

import numpy as np

from pacprivacy._checks import Matrix, Vector, as_outputs, check_log_belief, check_positive, freeze
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary import DEFAULT_GAMMA, View, draw_views
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
from pacprivacy.residual import noise_families as families
from pacprivacy.theory import Estimate, bernstein_estimate, entropy

FOLLOWERS: Final = ("mlp", "transformer", "exact")
MOMENT_DRAWS: Final = 200_000
BLOCK_ELEMENTS: Final = 1 << 19
CHECK_DRAWS: Final = 200_000
LEARNED_NOTE: Final = "the shape of the noise was learned; the proof does not rest on the learning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Steps, rates and sizes of Algorithm 2 of [RPAC].

    Attributes
    ----------
    n_steps, batch : int
        Most steps of the leader, and simulated releases per estimate, an even number.
    follower_steps, warm_up : int
        Steps of the decoder before each step of the leader, and rounds of them before the first.
    leader_rate, follower_rate : float
        First step sizes of Adam; both fall to nothing along a cosine.
    penalty_start, penalty_end : float
        Weight of the squared miss of the budget, relative to it; grows over half of the steps.
    hidden, n_layers, n_slices : int
        Size of the decoder, and how many random projections it sees; 0 for the whole release.
    chunk, patience, tolerance : int, int, float
        Training stops when noise and claim move by less over ``patience`` chunks.
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
    chunk: int = 100
    patience: int = 4
    tolerance: float = 2e-3
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
class History:
    """Loss curves, one entry per step: noise, the follower's claimed information, penalty."""

    noise: Vector
    claimed_nats: Vector
    penalty: Vector

    def __post_init__(self) -> None:
        for array in (self.noise, self.claimed_nats, self.penalty):
            freeze(array)

    def __len__(self) -> int:
        return len(self.noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedNoise:
    """A learned law of noise, *not certified*: its information is what a decoder claims.

    A decoder that guesses badly makes a leaky release look private: ``claimed_nats``, with standard
    error ``claimed_error``, is a lower bound of the truth on fresh draws and never a promise.

    ``family``, ``follower``, the budget ``mi_nats`` and the claim are public. Curator-only are the
    ``params`` of the law along the principal directions, the ``spread`` of the outputs, the belief
    ``log_p`` and the loss curves ``history``.
    """

    family: families.NoiseFamily
    follower: str
    mi_nats: float
    claimed_nats: float
    claimed_error: float
    params: families.Params
    spread: Spread
    log_p: Vector
    history: History
    seed: int

    def __post_init__(self) -> None:
        for array in self.params.values():
            freeze(array)

    def __repr__(self) -> str:
        return (
            f"LearnedNoise(family={self.family.name!r}, follower={self.follower!r}, "
            f"mi_nats={self.mi_nats:g}, claimed_nats={self.claimed_nats:.4g}, "
            f"total_variance={self.total_variance:.4g}, not certified)"
        )

    @property
    def total_variance(self) -> float:
        """Expected squared length of the noise (from simulated draws for a flow)."""
        rng = public_generator(self.seed, "learned noise moments")
        n_draws = MOMENT_DRAWS if isinstance(self.family, families.FlowNoise) else 1
        noise = self.family.draw(self.params, n_draws, rng)
        second = self.family.second_moments(self.params, noise, np.ones(len(noise)), np)
        return float(second.sum())

    def covariance(self) -> Matrix:
        """Return the covariance of a Gaussian in the output's coordinates, shape (d, d)."""
        shape = self.covariance_shape()
        columns = [
            self.spread.expand(np.sqrt(variance) * direction)
            for variance, direction in zip(shape.noise_var, shape.rotation.T, strict=True)
        ]
        factor = np.stack(columns)
        return np.asarray(factor.T @ factor, dtype=np.float64)

    def covariance_shape(self) -> Shape:
        """Return the directions and variances of a Gaussian; refuse other laws."""
        if not isinstance(self.family, families.GaussianNoise):
            raise BudgetError(
                f"family must be Gaussian to become a certified plan; got {self.family.name!r}. "
                f"Learn with family='gaussian_full'."
            )
        factor = self.family.factor(self.params, np)
        directions, std, _ = np.linalg.svd(factor)
        return Shape(rotation=directions, noise_var=np.square(std))


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningStep:
    """How far the training of one budget is: the last chunk's means; curator-only."""

    mi_nats: float
    step: int
    n_steps: int
    noise: float
    claimed_nats: float


Report = Callable[[LearningStep], None]


class LearningOptions(TypedDict, total=False):
    """Options of :func:`learn_noise` and :func:`learn_noise_curve`.

    ``family`` is ``gaussian_diagonal``, ``gaussian_full``, ``mixture``, ``flow``, or an object of
    these. ``follower`` is ``mlp`` or ``transformer``, a decoder that is trained along, or
    ``exact``, the posterior, the best decoder there is. ``training`` has steps, rates and sizes,
    ``log_belief`` the attacker's belief before the release, uniform by default. ``report`` is
    called with every chunk of steps. The same seed ``rng`` gives the same noise on one machine.
    """

    family: str | families.NoiseFamily
    follower: str
    training: Training | None
    log_belief: Vector | None
    report: Report | None
    rng: np.random.Generator | int | None


def learn_noise(
    outputs: object, mi_nats: float, **options: Unpack[LearningOptions]
) -> LearnedNoise:
    """Learn noise for one information budget; needs ``pacprivacy[jax]``.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        The mechanism's output on every candidate.
    mi_nats : float
        What the follower may learn about the index, in nats.
    **options
        Those of :class:`LearningOptions`.

    Returns
    -------
    LearnedNoise
        Marked *not certified*: the budget is met in the follower's eyes only.
    """
    return learn_noise_curve(outputs, [mi_nats], **options)[0]


def learn_noise_curve(
    outputs: object,
    mi_budgets: Sequence[float],
    *,
    family: str | families.NoiseFamily = "gaussian_diagonal",
    follower: str = "mlp",
    training: Training | None = None,
    log_belief: Vector | None = None,
    report: Report | None = None,
    rng: np.random.Generator | int | None = None,
) -> tuple[LearnedNoise, ...]:
    """Learn noise for several budgets side by side; options are those of :func:`learn_noise`."""
    values = as_outputs(outputs)
    log_p = check_log_belief(log_belief, len(values))
    spread = spread_of(values, np.exp(log_p))
    budgets = _check_budgets(mi_budgets, spread, log_p)
    law = families.find_family(family)
    if follower not in FOLLOWERS:
        raise BudgetError(
            f"follower must be one of {', '.join(FOLLOWERS)}; got {follower!r}. Use 'exact'."
        )
    seed = coerce_seed(rng)
    run = _Run(spread, log_p, budgets, law, follower, training or Training(), seed, report)
    return run.learn()


class _Run:
    """The training of all budgets, chunk by chunk."""

    def __init__(
        self,
        spread: Spread,
        log_p: Vector,
        budgets: Vector,
        family: families.NoiseFamily,
        follower: str,
        training: Training,
        seed: int,
        report: Report | None,
    ) -> None:
        self._spread, self._log_p, self._budgets = spread, log_p, budgets
        self._family, self._follower, self._training = family, follower, training
        self._seed, self._report = seed, report
        # one unit of length for all directions, so that a step size means the same everywhere
        self._length = math.sqrt(float(spread.eigenvalues.mean()))
        starts = [
            waterfill(spread.eigenvalues / self._length**2, mi_nats=float(mi)) for mi in budgets
        ]
        self._units = np.array([start.sum() for start in starts])
        self._leaders = [
            family.start(start, public_generator(seed, "learned noise start")) for start in starts
        ]

    def learn(self) -> tuple[LearnedNoise, ...]:
        """Play until nothing moves or the steps are used up."""
        jax, game = _import_game()
        words = public_generator(self._seed, "learned noise").integers(2**32, size=3)
        first, middle, last = (jax.random.key(int(word)) for word in words)
        training, n = self._training, len(self._budgets)
        rules = game.Rules(
            family=self._family,
            follower=self._follower,
            training=self._compiled_training(),
            uniform=bool(np.ptp(self._log_p) == 0),
        )
        points = self._spread.coordinates / self._length
        pool = game.make_game_candidates(points, self._log_p, self._slices())
        goal = game.Goal(self._budgets.astype(np.float32), self._units.astype(np.float32))
        stacked = {
            name: np.stack([leader[name] for leader in self._leaders]).astype(np.float32)
            for name in self._leaders[0]
        }
        state = game.begin_game(rules, pool, stacked, first)
        active, curves = np.ones(n, dtype=bool), [_Curve(training) for _ in range(n)]
        for step in self._steps():
            state, measured = game.run_game(rules, pool, state, goal, active, step, middle)
            if step < 0:
                continue
            noise = np.asarray(measured["noise"], dtype=np.float64) * self._length**2
            claimed = np.asarray(measured["claimed"], dtype=np.float64)
            for i in np.flatnonzero(active):
                active[i] = curves[i].add(step, noise[i], claimed[i])
                if self._report is not None:
                    progress = LearningStep(
                        mi_nats=float(self._budgets[i]),
                        step=step + len(noise[i]),
                        n_steps=training.n_steps,
                        noise=float(noise[i].mean()),
                        claimed_nats=float(claimed[i].mean()),
                    )
                    self._report(progress)
            if not active.any():
                break
        claims = np.asarray(game.game_claim(rules, pool, state, last), dtype=np.float64)
        leader = {name: np.asarray(a, dtype=np.float64) for name, a in state["leader"].items()}
        return tuple(
            LearnedNoise(
                family=self._family,
                follower=self._follower,
                mi_nats=float(self._budgets[i]),
                claimed_nats=max(0.0, float(claims[0, i])),
                claimed_error=float(claims[1, i]),
                params=self._family.rescaled(
                    {name: a[i] for name, a in leader.items()}, self._length
                ),
                spread=self._spread,
                log_p=self._log_p,
                history=curves[i].history(),
                seed=self._seed,
            )
            for i in range(n)
        )

    def _compiled_training(self) -> Training:
        """Return the settings without what is decided here: that needs no compiler."""
        chunk = self._training.chunk
        warm_up = math.ceil(self._training.warm_up / chunk) * chunk
        return replace(self._training, patience=1, tolerance=1.0, warm_up=warm_up)

    def _steps(self) -> range:
        """Return where the chunks begin; those of the decoder's warm-up are below 0."""
        chunk = self._training.chunk
        n_warm = 0 if self._follower == "exact" else math.ceil(self._training.warm_up / chunk)
        return range(-n_warm * chunk, self._training.n_steps, chunk)

    def _slices(self) -> Matrix | None:
        """Return random unit directions for the sliced follower, one per column."""
        if self._training.n_slices == 0:
            return None
        rng = public_generator(self._seed, "learned noise slices")
        directions = rng.standard_normal((self._spread.rank, self._training.n_slices))
        unit: Matrix = directions / np.linalg.norm(directions, axis=0)
        return unit


class _Curve:
    """What one budget went through, and whether it still moves."""

    def __init__(self, training: Training) -> None:
        self._training, self._calm = training, 0
        self._noise: list[Vector] = []
        self._claimed: list[Vector] = []

    @property
    def n_steps(self) -> int:
        """Steps taken."""
        return sum(map(len, self._noise))

    def add(self, step: int, noise: Vector, claimed: Vector) -> bool:
        """Store a chunk; return whether to go on."""
        if self._noise and step >= self._training.n_steps // 2:
            moved = [
                abs(float(new.mean()) / max(float(old.mean()), 1e-300) - 1)
                for new, old in ((noise, self._noise[-1]), (claimed, self._claimed[-1]))
            ]
            self._calm = self._calm + 1 if max(moved) < self._training.tolerance else 0
        self._noise.append(noise)
        self._claimed.append(claimed)
        return self._calm < self._training.patience

    def history(self) -> History:
        """Return the curves."""
        training, steps = self._training, np.arange(self.n_steps)
        growth = training.penalty_end / training.penalty_start
        share = np.minimum(steps / max(1, training.n_steps // 2), 1.0)
        return History(
            noise=np.concatenate(self._noise),
            claimed_nats=np.concatenate(self._claimed),
            penalty=training.penalty_start * growth**share,
        )


def _import_game() -> tuple[Any, Any]:
    """Return jax and the compiled game; say what to install where there is no jax."""
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
    """What learned noise really gives away, beside what its decoder claimed; public."""

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
    noise_scale: float = 1.0,
    rng: np.random.Generator | int | None = None,
) -> NoiseShortfall:
    """Evaluate learned noise, or ``noise_scale`` times it, with the optimal adversary.

    Guarantee
    ---------
    Claim W-1. The interval holds the mutual information between the secret index and the output
    plus this noise, in real numbers, with probability ``1 - gamma`` over fresh draws. It certifies
    no release: nothing is released with float noise.
    """
    generator = public_generator(coerce_seed(rng), "learned information")
    m = len(learned.log_p)
    params = learned.family.rescaled(learned.params, noise_scale)
    points = learned.spread.coordinates
    view = View(points=points, log_prior=learned.log_p)
    prior = float(entropy(learned.log_p))
    n_numbers = points.shape[1] if isinstance(learned.family, families.FlowNoise) else 1  # per pair
    width = max(1, math.ceil(BLOCK_ELEMENTS / (m * n_numbers)))
    gains = []
    for start in range(0, n_draws, width):
        size = min(width, n_draws - start)
        index = draw_views(view, size, generator).indices
        z = points[index] + learned.family.draw(params, size, generator)
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
    true_nats = replace(
        estimate,
        value=max(0.0, estimate.value),
        lower=max(0.0, estimate.lower),
        upper=max(0.0, estimate.upper),
    )
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


def _entropies(log_joint: Matrix) -> Vector:
    """Return the entropy of each posterior, from log weights up to a constant."""
    log_joint = log_joint - log_joint.max(axis=1, keepdims=True)
    p = np.exp(log_joint)
    total = p.sum(axis=1)
    weighted = np.einsum("ij,ij->i", p, np.maximum(log_joint, -800.0))
    entropies: Vector = np.log(total) - weighted / total
    return np.maximum(entropies, 0.0)
