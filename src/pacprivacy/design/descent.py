"""Private gradient descent: the gradients of one secret subset, with noise, step after step.

The loss, the step sizes and the budget of every step are fixed on the whole universe before the
first step; every gradient is calibrated to the belief that the ones before it leave.

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
    Integers,
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
from pacprivacy.design.objective import Objective, read_objective_targets
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
from pacprivacy.noise import (
    AxisFrame,
    NoisePlan,
    axis_spread_variances,
    calibrate,
    log_det_of_plan,
    make_plan,
    weighted_spread_mean,
)
from pacprivacy.release import CertificateNoise, PoolCertificate, ReleaseSecret, open_parts_text
from pacprivacy.sample import Pool, PoolStrategy
from pacprivacy.session import DryRun, SampleOptions
from pacprivacy.theory import membership_success

Split: TypeAlias = Literal["waterfill", "uniform"]
Gradients: TypeAlias = Callable[[Matrix], Matrix]

_MOST_TRIES: Final = 20
_NEWTON_STEPS: Final = 3  # from the Wright omega function's 1e-16 these only remove cancellation
_TAIL_STDS: Final = 12.0  # a binomial is beyond these with probability below 1e-30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentStepRule:
    """One step size for each coordinate, from the error bound ``J`` (claim D-4); all public.

    Parameters
    ----------
    mi_nats : float, optional
        The information budget of the whole descent; None gives the *post-hoc* step sizes, which
        are best without privacy.
    start_error : "universe", float or array
        Squared distance of each coordinate from its optimum at the start: that of the fit on the
        whole universe (default; the certificate says so), or given.
    exact : bool
        Minimise ``J`` itself instead of the paper's approximation.
    """

    mi_nats: float | None = None
    start_error: Literal["universe"] | ArrayLike = "universe"
    exact: bool = False

    def __post_init__(self) -> None:
        if self.mi_nats is not None:
            check_positive("mi_nats", self.mi_nats, advice="Use the budget of the descent.")

    def choose(self, objective: Objective, X: Matrix, targets: Matrix, *, n_steps: int) -> Matrix:
        """Return step sizes of the shape of the weights, at most ``1/L``, from all records."""
        start = np.zeros((X.shape[1], *targets.shape[1:]))
        spread = objective.gradient_spread(X, targets, start)
        ratio = 0.0
        if self.mi_nats is not None:
            ratio = float(noise_ratio(self.mi_nats, n_dimensions=start.size, n_steps=n_steps))
        steps = descent_step(
            start_error=self._start_error(objective, X, targets),
            gradient_var=subset_gradient_variance(spread, len(X)),
            convexity=objective.penalty,
            n_steps=n_steps,
            ratio=ratio,
            largest=1.0 / objective.smoothness(X),
            exact=self.exact,
        )
        return np.broadcast_to(steps, start.shape).copy()

    def describe(self) -> str:
        aim = "without regard to the noise" if self.mi_nats is None else "for the noise to come"
        known = "given from outside"
        if isinstance(self.start_error, str):
            known = "that of the fit on the whole universe"
        return (
            f"step sizes: chosen {aim}, from the gradient's variance and the smoothness over the "
            f"whole universe and a distance to go, {known}; they do not depend on the secret"
        )

    def _start_error(self, objective: Objective, X: Matrix, targets: Matrix) -> ArrayLike:
        if not isinstance(self.start_error, str):
            return self.start_error
        if self.start_error != "universe":
            raise MechanismError(
                f"start_error must be 'universe' or numbers; got {self.start_error!r}. "
                "Leave it out to take it from the universe."
            )
        return np.square(objective.minimise(X, targets))


def split_descent_budget(mi_nats: float, n_steps: int) -> Vector:
    """Return the same budget for each step; they sum to at most ``mi_nats``."""
    total = check_positive("mi_nats", mi_nats, advice="Use about 0.02.")
    # A little less than all, so that the rounded sum does not exceed the total.
    return np.full(_check_steps(n_steps), (1.0 - 1e-12) * total * (1.0 / n_steps))


def uniform_descent_plan(values: Matrix, log_p: Vector, *, mi_nats: float) -> NoisePlan:
    """Give every coordinate that moves the same share: noise of ``d/2b`` times its variance.

    Guarantee
    ---------
    Claim D-6. The log-determinant bound of the integer noise, lattice slack included, is at most
    ``mi_nats``.
    """
    weights = np.exp(log_p)
    center = weighted_spread_mean(values, weights)
    variances = axis_spread_variances(values, center, weights)
    axes = np.flatnonzero(variances > 0).astype(np.int64)
    budget = mi_nats * (1 - 1e-9)
    for _ in range(_MOST_TRIES):
        ratio = noise_ratio(budget, n_dimensions=max(1, len(axes)))
        plan = make_plan(
            rule="uniform",
            frame=AxisFrame(axes=axes, center=center),
            center=center,
            noise_std=np.sqrt(ratio * variances[axes]),
            values=values,
        )
        plan = replace(plan, log_det_nats=log_det_of_plan(plan, weights))
        if plan.log_det_nats <= mi_nats:
            return plan
        # The lattice's slack hardly depends on the budget: leave room for what was too much.
        budget -= max(1.1 * (plan.log_det_nats - mi_nats), 1e-6 * budget)
        if budget <= 0:
            break
    raise BudgetError(
        f"mi_nats must be large enough for the lattice of {len(axes)} directions; got {mi_nats}. "
        "Use a larger budget, or fewer steps."
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Descent:
    """How to descend on an :class:`Objective` in ``n_steps`` steps; every field is public.

    Parameters
    ----------
    step : DescentStepRule, float or array
        Step sizes; by default chosen for the noise to come (``conscious``), one for each
        coordinate.
    split : "waterfill" or "uniform"
        How the budget of a step is spread over directions: least total noise, or evenly over the
        coordinates as in the paper.
    """

    objective: Objective = field(default_factory=Objective)
    n_steps: int = 50
    step: Literal["conscious", "post-hoc"] | DescentStepRule | float | Matrix = "conscious"
    split: Split = "waterfill"

    def __post_init__(self) -> None:
        if self.split not in ("waterfill", "uniform"):
            raise BudgetError(
                f"split must be 'waterfill' or 'uniform'; got {self.split!r}. Use 'waterfill'."
            )
        if isinstance(self.step, str) and self.step not in ("conscious", "post-hoc"):
            raise BudgetError(
                f"step must be 'conscious', 'post-hoc', a DescentStepRule or numbers; got "
                f"{self.step!r}. Use 'conscious'."
            )

    def rule(self, mi_nats: float) -> DescentStepRule | None:
        """Return the rule of the step sizes, None where they are given as numbers."""
        if isinstance(self.step, DescentStepRule):
            return self.step
        if isinstance(self.step, str):
            return DescentStepRule(mi_nats=mi_nats if self.step == "conscious" else None)
        return None

    def steps(self, X: Matrix, targets: Matrix, mi_nats: float) -> Matrix:
        rule = self.rule(mi_nats)
        if rule is not None:
            return rule.choose(self.objective, X, targets, n_steps=self.n_steps)
        sizes = np.asarray(self.step, dtype=np.float64)
        if not (np.isfinite(sizes).all() and (sizes > 0).all()):
            raise BudgetError("step must be positive finite numbers. Use 'conscious'.")
        return np.broadcast_to(sizes, (X.shape[1], *targets.shape[1:])).copy()

    def describe(self, mi_nats: float) -> str:
        rule = self.rule(mi_nats)
        return "step sizes: given" if rule is None else rule.describe()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentRun:
    """What a descent released; all is public, the belief for whoever knows the pool.

    ``path`` holds all iterates, the start included. ``budgets`` were fixed before the first step.
    ``charges`` are what each release really needed, given the ones before: an odometer. It depends
    on the releases, so its sum is not the bound; the budgets are.
    """

    weights: Matrix
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


def descend_secretly(
    gradients: Gradients,
    steps: Matrix,
    budgets: Vector,
    *,
    n_subsets: int,
    source: BitSource,
    split: Split = "waterfill",
) -> DescentRun:
    """Descend along the noisy gradients of one secret candidate, drawn from ``source``.

    Guarantee
    ---------
    Claim D-7. ``MI(secret; all releases) <= Σ budgets``.
    """
    weights = np.zeros(steps.shape)
    path, charges, noise = [weights], [], []
    belief, secret = Belief.uniform(n_subsets), None
    for mi_nats in budgets:
        values = gradients(weights)
        if split == "uniform":
            plan = uniform_descent_plan(values, belief.log_p, mi_nats=float(mi_nats))
        else:
            budget = Information(float(mi_nats))
            plan = calibrate(values, budget, rule="waterfill", log_belief=belief.log_p)
        if secret is None:  # drawn only after every candidate was evaluated
            secret = ReleaseSecret(n_subsets, source)
        observation = secret.observe(plan, source)
        belief = belief.updated(plan.log_likelihood(observation))
        weights = weights - steps * plan.value_of(observation).reshape(steps.shape)
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
        The universe: features, centred since there is no intercept, and targets of shape (n,) or
        (n, k); -1 and 1 for the logistic loss.
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
    universe = coerce_data(data)
    X, targets = read_objective_targets(universe.parts, "gradient descent")
    plan.objective.check_targets(targets)
    steps = plan.steps(X, targets, limit.mi_nats)
    template = DescentGradient(objective=plan.objective, weights=np.zeros(steps.shape))
    options = SampleOptions(sample=sample, n_subsets=n_subsets, units=units, rng=rng)
    dry_run = DryRun(universe, options)
    candidates, notes = dry_run.draw(template)

    def gradients(weights: Matrix) -> Matrix:
        here = DescentGradient(objective=plan.objective, weights=weights)
        return here.batch(universe, candidates)

    run = descend_secretly(
        gradients,
        steps,
        split_descent_budget(limit.mi_nats, plan.n_steps),
        n_subsets=candidates.n_subsets,
        source=secret_source(dry_run.seed, simulate=simulate),
        split=plan.split,
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
    """Write down what the budgets of all steps add up to, which bounds everything released."""
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
        rule=f"{plan.split} at each of {plan.n_steps} steps",
        mechanism=f"gradient descent on the {plan.objective.loss} loss",
        output="the weights after every step",
        dimension=dimension,
        log_det_nats=total,
        noise=noise,
        confidence=1.0,
        public=(plan.describe(budget.mi_nats),),
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
    """Mean gradient over a subset, at public ``weights`` of shape (d,) or (d, k)."""

    objective: Objective
    weights: Matrix = field(repr=False)

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        freeze(weights)
        object.__setattr__(self, "weights", weights)

    @property
    def name(self) -> str:
        return f"mean gradient of the {self.objective.loss} loss"

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Matrix:
        X, targets = self._read(parts)
        return self.objective.gradient(X, targets, self.weights)

    def batch(self, data: Data, pool: Pool) -> Matrix:
        X, targets = self._read(data.parts)
        slopes = self.objective.slopes(X @ self.weights, targets).reshape(len(X), 1, -1)

        def features(rows: Integers) -> Matrix:
            gradients: Matrix = X[rows][:, :, None] * slopes[rows]
            return gradients.reshape(len(gradients), -1)

        sums = subset_sums(pool, features, self.weights.size)
        shrink = self.objective.penalty * self.weights.ravel()
        gradients: Matrix = sums / subset_sizes(pool)[:, None] + shrink
        return gradients

    def _read(self, parts: Parts) -> tuple[Matrix, Matrix]:
        X, targets = read_objective_targets(parts, self.name)
        self.objective.check_targets(targets)
        if self.weights.shape != (X.shape[1], *targets.shape[1:]):
            raise MechanismError(
                f"weights must have shape {(X.shape[1], *targets.shape[1:])}; got "
                f"{self.weights.shape}. Pass one weight for each feature and target."
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
    Claim D-5. Exact: no estimate, whatever the values are.
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
