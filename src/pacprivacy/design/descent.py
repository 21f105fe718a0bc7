"""Private gradient descent: the gradients of one secret subset, with noise, step after step.

Step sizes and the budget of every step are fixed with all records before the first step; every
gradient is calibrated to the belief that the ones before it leave.

A release whose every coordinate gets noise of ``C`` times its own variance over subsets has the
error ``Bias² + (1 + C) Variance + floor``. ``C``, the *noise ratio*, grows as the budget shrinks,
so a private release wants more regularisation and smaller steps than a public one. ``J`` is the
bound of claim D-3 on the error of noisy gradient descent. The formulas at the end broadcast over
dimensions and budgets.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import scipy

from pacprivacy import _version
from pacprivacy._checks import (
    Array,
    ArrayLike,
    Matrix,
    Vector,
    check_above_zero,
    check_not_negative,
    check_positive,
    freeze,
)
from pacprivacy._random import BitSource, secret_source
from pacprivacy.adversary import Belief
from pacprivacy.budget import Information, as_budget
from pacprivacy.design.objective import Objective, read_signs
from pacprivacy.design.ridge import noise_ratio
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.mechanism import (
    Data,
    Mechanism,
    Parts,
    UnitLabels,
    coerce_data,
    subset_sizes,
    subset_sums,
)
from pacprivacy.noise import NoisePlan, calibrate
from pacprivacy.release import CertificateNoise, PoolCertificate, open_parts_text
from pacprivacy.sample import Pool, PoolStrategy
from pacprivacy.session import DryRun, ReleaseSecret, SampleOptions
from pacprivacy.theory import membership_success

Gradients: TypeAlias = Callable[[Vector], Matrix]
StepPlanner: TypeAlias = Callable[[Matrix, Vector, float], NoisePlan]

_NEWTON_STEPS: Final = 3  # from the Wright omega function's 1e-16 these only remove cancellation
_TAIL_STDS: Final = 12.0  # a binomial is beyond these with probability below 1e-30


def split_descent_budget(mi_nats: float, n_steps: int) -> Vector:
    """Return the same budget for each step; they sum to at most ``mi_nats``."""
    total = check_positive("mi_nats", mi_nats, advice="Use about 0.02.")
    # A little less than all, so that the rounded sum does not exceed the total.
    return np.full(_check_steps(n_steps), (1.0 - 1e-12) * total * (1.0 / n_steps))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Descent:
    """Settings of a descent on an :class:`Objective` in ``n_steps`` steps; every field is public.

    Parameters
    ----------
    step : "conscious", "post-hoc", float or array
        Step sizes: one for each coordinate, chosen for the noise to come or as is best without
        privacy (claim D-4), or given.
    """

    objective: Objective = field(default_factory=Objective)
    n_steps: int = 50
    step: Literal["conscious", "post-hoc"] | float | Vector = "conscious"

    def __post_init__(self) -> None:
        if isinstance(self.step, str) and self.step not in ("conscious", "post-hoc"):
            raise BudgetError(
                f"step must be 'conscious', 'post-hoc' or numbers; got {self.step!r}. "
                "Use 'conscious'."
            )

    def steps(self, X: Matrix, targets: Vector, mi_nats: float) -> Vector:
        """Return one step size for each coordinate, from all records; chosen ones at most 1/L."""
        if not isinstance(self.step, str):
            sizes = np.asarray(self.step, dtype=np.float64)
            if not (np.isfinite(sizes).all() and (sizes > 0).all()):
                raise BudgetError("step must be positive finite numbers. Use 'conscious'.")
            return np.broadcast_to(sizes, X.shape[1]).copy()
        objective, start, ratio = self.objective, np.zeros(X.shape[1]), 0.0
        if self.step == "conscious":
            ratio = float(noise_ratio(mi_nats, n_dimensions=len(start), n_steps=self.n_steps))
        spread = objective.gradient_spread(X, targets, start)
        return descent_step(
            start_error=np.square(objective.minimise(X, targets)),
            gradient_var=subset_gradient_variance(spread, len(X)),
            convexity=objective.penalty,
            n_steps=self.n_steps,
            ratio=ratio,
            largest=1.0 / objective.smoothness(X),
        )

    def describe(self) -> str:
        """Return one public sentence for the certificate."""
        if not isinstance(self.step, str):
            return "step sizes: given"
        aim = "for the noise to come" if self.step == "conscious" else "without regard to the noise"
        return (
            f"step sizes: chosen {aim}, from the gradient's variance, the smoothness and the "
            "distance to the optimum over all records; they do not depend on the secret"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentRun:
    """Releases of a descent; all is public, the belief only for readers who know the pool.

    ``path`` holds all iterates, the start included. ``budgets`` were fixed before the first step.
    ``charges`` are the true costs of the releases, given those before: an odometer. It depends
    on the releases, so its sum is not the bound; the budgets are.
    """

    weights: Vector
    path: Matrix
    budgets: Vector
    charges: Vector
    belief: Belief = field(repr=False)
    noise: tuple[CertificateNoise, ...] = field(repr=False)
    certificate: PoolCertificate | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for array in (self.weights, self.path, self.budgets, self.charges):
            freeze(array)

    @property
    def mi_nats(self) -> float:
        """Proved bound on the information of everything released, in nats."""
        return math.fsum(self.budgets.tolist())


def plan_least_noise(values: Matrix, log_p: Vector, mi_nats: float) -> NoisePlan:
    """Return the plan of a step with the least total noise for the log-determinant bound."""
    return calibrate(values, Information(mi_nats), rule="waterfill", log_belief=log_p)


def descend_secretly(
    gradients: Gradients,
    steps: Vector,
    budgets: Vector,
    *,
    n_subsets: int,
    source: BitSource,
    plan_step: StepPlanner = plan_least_noise,
) -> DescentRun:
    """Descend along the noisy gradients of one secret candidate, drawn from ``source``.

    ``plan_step`` returns a plan of at most the step's budget, given the gradients of all candidates
    and the belief.

    Guarantee
    ---------
    Claim D-7. ``MI(secret; all releases) <= Σ budgets``.
    """
    weights = np.zeros(steps.shape)
    path, charges, noise = [weights], [], []
    belief, secret = Belief.uniform(n_subsets), None
    for mi_nats in budgets:
        plan = plan_step(gradients(weights), belief.log_p, float(mi_nats))
        if secret is None:  # drawn only after every candidate was evaluated
            secret = ReleaseSecret(n_subsets, source)
        observation = secret.observe(plan, source)
        belief = belief.updated(plan.log_likelihood(observation))
        weights = weights - steps * plan.value_of(observation)
        path.append(weights)
        charges.append(max(0.0, plan.mi_upper))
        noise.append(CertificateNoise.of(plan.grid_step, plan.units_per_std))
    return DescentRun(
        weights=weights.copy(),
        path=np.stack(path),
        budgets=np.array(budgets, dtype=np.float64),
        charges=np.array(charges),
        belief=belief,
        noise=tuple(noise),
    )


def descend(
    data: Any,
    budget: Information | str,
    descent: Descent | None = None,
    *,
    sample: Pool | PoolStrategy | None = None,
    n_subsets: int | None = None,
    units: UnitLabels = None,
    rng: np.random.Generator | int | None = None,
    simulate: bool = False,
) -> DescentRun:
    """Train by private gradient descent: one secret subset throughout, one certificate.

    Parameters
    ----------
    data : tuple (X, y)
        All records: features, centred since there is no intercept, and targets -1 and 1.
    budget : Information
        Total over all steps. For other budgets release :class:`DescentGradient` in a session.
    sample, n_subsets, units, rng, simulate
        As in :func:`pacprivacy.privatize`.

    Guarantee
    ---------
    Claim D-7.
    """
    limit = as_budget(budget)
    if not isinstance(limit, Information):
        raise BudgetError(
            f"budget must be Information for a descent without a session; got "
            f"{type(limit).__name__}. Release DescentGradient step by step in a Session."
        )
    plan = Descent() if descent is None else descent
    records = coerce_data(data)
    X, targets = read_signs(records.parts, "gradient descent")
    steps = plan.steps(X, targets, limit.mi_nats)
    template = DescentGradient(objective=plan.objective, weights=np.zeros(steps.shape))
    options = SampleOptions(sample=sample, n_subsets=n_subsets, units=units, rng=rng)
    dry_run = DryRun(records, options)
    candidates, notes = dry_run.draw(template)

    def gradients(weights: Vector) -> Matrix:
        here = DescentGradient(objective=plan.objective, weights=weights)
        return here.batch(records, candidates)

    run = descend_secretly(
        gradients,
        steps,
        split_descent_budget(limit.mi_nats, plan.n_steps),
        n_subsets=candidates.n_subsets,
        source=secret_source(dry_run.seed, simulate=simulate),
    )
    certificate = _certify(
        run, plan, candidates, limit, notes=(*notes, *candidates.notes), simulation=simulate
    )
    return replace(run, certificate=certificate)


def _certify(
    run: DescentRun,
    plan: Descent,
    pool: Pool,
    budget: Information,
    *,
    notes: tuple[str, ...],
    simulation: bool,
) -> PoolCertificate:
    """Write the sum of the budgets of all steps, which bounds everything released."""
    total, dimension = run.mi_nats, run.weights.size
    success = membership_success(total, pool.worst_prior)
    noisy = [step for step in run.noise if step.n_directions] or list(run.noise)
    noise = CertificateNoise(
        total_variance=sum(step.total_variance for step in run.noise),
        smallest_std=min(step.smallest_std for step in noisy),
        largest_std=max(step.largest_std for step in noisy),
        n_directions=max(step.n_directions for step in noisy),
        smallest_grid_step=min(step.smallest_grid_step for step in noisy),
        smallest_units_per_std=min(step.smallest_units_per_std for step in noisy),
    )
    return PoolCertificate.about(
        pool,
        mi_upper=total,
        bound=success,
        exact_facts=open_parts_text(noise.n_directions, dimension),
        kind="exact",
        budget=str(budget),
        rule=f"waterfill at each of {plan.n_steps} steps",
        mechanism="gradient descent on the logistic loss",
        output="the weights after every step",
        dimension=dimension,
        log_det_nats=total,
        noise=noise,
        confidence=1.0,
        public=(plan.describe(),),
        notes=notes,
        simulation=simulation,
        composition={
            "release_number": len(run.budgets),
            "secrets": "one for all releases",
            "spent_nats_so_far": total,
            "total_nats": budget.mi_nats,
            "session_success_bound": success,
        },
        software=_version.__version__,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentGradient(Mechanism):
    """Mean gradient over a subset, at public ``weights`` of shape (d,)."""

    name = "mean gradient of the logistic loss"
    objective: Objective
    weights: Vector = field(repr=False)

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        freeze(weights)
        object.__setattr__(self, "weights", weights)

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Vector:
        X, targets = self._read(parts)
        return self.objective.gradient(X, targets, self.weights)

    def batch(self, data: Data, pool: Pool) -> Matrix:
        X, targets = self._read(data.parts)
        slopes = self.objective.slopes(X @ self.weights, targets)[:, None]
        sums = subset_sums(pool, lambda rows: X[rows] * slopes[rows], self.weights.size)
        gradients: Matrix = sums / subset_sizes(pool)[:, None]
        return gradients + self.objective.penalty * self.weights

    def _read(self, parts: Parts) -> tuple[Matrix, Vector]:
        X, targets = read_signs(parts, self.name)
        if self.weights.shape != X.shape[1:]:
            raise MechanismError(
                f"weights must have shape {X.shape[1:]}; got {self.weights.shape}. Pass one weight "
                "for each feature."
            )
        return X, targets


# --- formulas of the steps ---------------------------------------------------------------------


def descent_step(
    *,
    start_error: ArrayLike,
    gradient_var: ArrayLike,
    convexity: ArrayLike,
    n_steps: int,
    ratio: ArrayLike = 0.0,
    largest: ArrayLike = np.inf,
    exact: bool = False,
) -> Array:
    """Step size by formula: the minimiser of ``J`` with ``(1-ημ)^T`` replaced by ``exp(-ημT)``.

    If ``exact``, the minimiser of ``J`` itself, on ``[0, min(largest, 1/μ)]``.

    Guarantee
    ---------
    Claim D-4. ``J`` has one stationary point on ``(0, 1/μ)``, a minimum; exactly, it is bracketed
    and halved down to neighbouring doubles.
    """
    pull, alpha = _pull(start_error, gradient_var, convexity, n_steps=n_steps, ratio=ratio)
    most, mu = check_above_zero("largest", largest, advice="Pass 1/L."), _convexity(convexity)
    if exact:
        return np.asarray(_least_point(pull, np.minimum(most * mu, 1.0), n_steps) / mu)
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.log(np.real(scipy.special.wrightomega(pull + 1.0)))
        # e^u + u = z; near u = 0 the logarithm has lost digits that Newton's steps bring back.
        for _ in range(_NEWTON_STEPS):
            scaled = scaled - np.where(
                scaled < 1.0, (np.expm1(scaled) + scaled - pull) / (np.exp(scaled) + 1.0), 0.0
            )
    scaled = np.where(np.isinf(pull), np.inf, scaled)
    return np.asarray(np.minimum(scaled / alpha, most))


def _least_point(pull: Array, cap: Array, n_steps: int) -> Array:
    pull, cap = np.broadcast_arrays(pull, cap)
    flat, edge = pull.ravel(), cap.ravel()
    # Non-negative doubles are ordered like their bit patterns: bisecting those ends on the
    # smallest double at which J no longer falls, in at most 62 steps.
    low, high = np.zeros_like(edge).view(np.int64), edge.copy().view(np.int64)
    while np.any(high - low > 1):
        middle = low + (high - low) // 2
        falls = _stationarity(middle.view(np.float64), n_steps) < flat
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    return np.where(flat > 0.0, high.view(np.float64), 0.0).reshape(pull.shape)


def _mean_inverse_size(n_records: int) -> float:
    """Return ``E[1/k | k >= 1]`` for ``k ~ Binomial(n, 1/2)``, the size of a Poisson subset."""
    from scipy.stats import binom  # slow to import, not always needed

    middle = n_records / 2
    reach = _TAIL_STDS * np.sqrt(middle / 2) + 50.0
    sizes = np.arange(max(1, int(middle - reach)), min(n_records, int(middle + reach) + 1) + 1)
    weights = binom.pmf(sizes, n_records, 0.5)
    return float((weights / sizes).sum() / weights.sum())


def subset_gradient_variance(sample_variance: ArrayLike, n_records: int) -> Array:
    """Variance of the mean over a Poisson(1/2) subset, given that it is not empty.

    Guarantee
    ---------
    Claim D-5. Exact for all values, no estimate.
    """
    if n_records < 2:
        raise BudgetError(f"n_records must be at least 2; got {n_records}. Pass more records.")
    spread = check_not_negative("sample_variance", sample_variance)
    return np.asarray(spread * (_mean_inverse_size(n_records) - 1.0 / n_records))


def _pull(
    start_error: ArrayLike,
    gradient_var: ArrayLike,
    convexity: ArrayLike,
    *,
    n_steps: int,
    ratio: ArrayLike,
) -> tuple[Array, Array]:
    """Return ``α e0²/β`` and ``α``; without gradient variance the first is infinite."""
    mu = _convexity(convexity)
    spread = (1.0 + check_not_negative("ratio", ratio)) * check_not_negative(
        "gradient_var", gradient_var
    )
    alpha = mu * _check_steps(n_steps)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        pull = alpha * mu * check_not_negative("start_error", start_error) / spread
    return np.where(np.isnan(pull), 0.0, pull), np.asarray(alpha)


def _stationarity(shrink: Array, n_steps: int) -> Array:
    """Return ``T h + (1-h)((1-h)^-T - 1)`` at ``h = ημ``: ``α e0²/β`` at the minimum of ``J``."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_keep = np.log1p(-shrink)
        # One power is kept apart so that the end h = 1 is T for T = 1 and infinite beyond.
        powers = np.exp((1 - n_steps) * log_keep) if n_steps > 1 else np.ones_like(shrink)
        grown = np.where(shrink < 0.5, (1.0 - shrink) * np.expm1(-n_steps * log_keep), 0.0)
        grown = np.where(shrink < 0.5, grown, powers - (1.0 - shrink))
    return np.asarray(n_steps * shrink + grown)


def _convexity(value: ArrayLike) -> Array:
    return check_above_zero(
        "convexity", value, advice="Use an l2 penalty: it is the strong convexity."
    )


def _check_steps(n_steps: int) -> int:
    if n_steps < 1:
        raise BudgetError(f"n_steps must be at least 1; got {n_steps}. Take one step.")
    return n_steps
