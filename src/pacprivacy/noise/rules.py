"""Rules are objects that plan noise; :func:`calibrate` plans it for a budget.

For a secret from the pool there are formulas of the outputs' covariance
(:mod:`pacprivacy.noise.plan`), searches proved on simulated draws, and fixed shapes scaled
until they are proved; for a fresh secret, :mod:`pacprivacy.noise.iid`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import (
    Matrix,
    Vector,
    as_outputs,
    as_told,
    check_log_belief,
    check_positive,
    freeze,
    suggestion,
)
from pacprivacy._random import coerce_seed
from pacprivacy._system import single_threaded
from pacprivacy.adversary import DEFAULT_GAMMA, Heat
from pacprivacy.budget import AnyBudget, Spent, budget_limits
from pacprivacy.errors import BudgetError
from pacprivacy.noise.plan import (
    AxisFrame,
    Formula,
    Frame,
    Kind,
    NoisePlan,
    PlanProblem,
    Spread,
    SpreadFrame,
    axis_spread_variances,
    isotropic,
    isotropic_max,
    log_det_of_plan,
    make_plan,
    plan_caps,
    proportional,
    waterfill,
    weighted_spread_mean,
)
from pacprivacy.noise.proof import prove_shape
from pacprivacy.noise.shapes import Shape, axis_shape, exact_shapes, risk_shapes
from pacprivacy.sample import Pool

LEAST_SHARE = 1e-9  # of the largest variance, for a direction that a given shape leaves out
LARGEST_FULL_DIMENSION = 2048
FLAT = 1e-12  # variances below this share of the largest are rounding error

Terms: TypeAlias = tuple[float | None, Vector | None, Vector | None]


class Rule(ABC):
    """How noise is calibrated.

    ``family`` is the public name, ``kind`` the promise of its plans' certificates,
    ``n_reserve`` the subsets drawn beside the pool for a fresh secret (0 for one from the pool),
    ``is_simulated`` whether its plans are proved on simulated draws.
    """

    family: str
    kind: ClassVar[Kind] = "exact"
    n_reserve: ClassVar[int] = 0
    is_simulated: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Name of the rule in certificates."""
        return self.family

    def terms(
        self, limits: Spent, pool: Pool | None, log_p: Vector, caps: Vector | None = None
    ) -> Terms:
        """Return ``mi_nats``, caps and priors of a problem; refuse limits that cannot be met."""
        return limits.mi_nats, *plan_caps(limits, caps, pool, log_p)

    def pose(
        self,
        outputs: object,
        budget: AnyBudget,
        *,
        pool: Pool | None = None,
        log_belief: Vector | None = None,
        caps: Vector | None = None,
        heat: Heat | None = None,
        gamma: float = DEFAULT_GAMMA,
        rng: np.random.Generator | int | None = None,
        measured: Spread | None = None,
    ) -> PlanProblem:
        """Return the limits of a plan; the arguments are those of :func:`calibrate`."""
        if log_belief is not None and self.n_reserve:
            raise BudgetError(
                f"rule must work for a secret from the pool; got {self.name}, which is for a "
                f"single release of a fresh secret. Leave the rule out in a session."
            )
        values = as_outputs(outputs)
        log_p = check_log_belief(log_belief, len(values))
        limits = budget_limits(budget, len(values))
        if heat is not None:  # the balances limit membership, and nothing else does
            limits = Spent(mi_nats=limits.mi_nats)
        mi_nats, caps, priors = self.terms(limits, pool, log_p, caps)
        return PlanProblem(
            values=values,
            log_p=log_p,
            gamma=gamma,
            seed=coerce_seed(rng),
            mi_nats=mi_nats,
            pool=pool,
            caps=caps,
            priors=priors,
            heat=heat,
            measured=measured,
        )

    @abstractmethod
    def plan(self, problem: PlanProblem) -> NoisePlan: ...

    def propose(self, problem: PlanProblem) -> NoisePlan:
        """Return an estimate of the plan's noise, not for releases."""
        return self.plan(problem)


class PoolRule(Rule):
    """Base class of rules for a secret from the pool; identical outputs get no noise."""

    def plan(self, problem: PlanProblem) -> NoisePlan:
        return problem.noiseless_plan(self.name) or self.noisy_plan(problem)

    @abstractmethod
    def noisy_plan(self, problem: PlanProblem) -> NoisePlan: ...


AnyRule: TypeAlias = str | Rule


def plan_by_formula(plan_for: Callable[[float], NoisePlan], problem: PlanProblem) -> NoisePlan:
    """Return a closed-form plan whose bound, slack included, implies every limit (claim N-4)."""
    weights, mi_nats = np.exp(problem.log_p), problem.gaussian_nats
    budget = mi_nats * (1 - 1e-9)
    for attempt in range(20):
        plan = plan_for(budget)
        plan = replace(plan, log_det_nats=log_det_of_plan(plan, weights))
        if plan.log_det_nats <= mi_nats:
            return plan
        # the lattice moves in steps, so ever larger cuts
        budget *= min(1.0, mi_nats / plan.log_det_nats) * (1 - 1e-9 * 2**attempt)
    raise BudgetError(
        f"budget must leave the release something to say: mi_nats must be large enough for the "
        f"lattice of {plan.n_directions} directions; got {mi_nats:.3g}. Use at least "
        f"Membership(0.51) or Information(1e-4); with less the noise exceeds everything."
    )


@dataclass(frozen=True, slots=True)
class FormulaRule(PoolRule):
    """Noise by a formula of the output's variances along its axes or principal directions."""

    family: str
    formula: Formula
    along_axes: bool = False

    def noisy_plan(self, problem: PlanProblem) -> NoisePlan:
        if self.along_axes:
            weights = np.exp(problem.log_p)
            center = weighted_spread_mean(problem.values, weights)
            variances = axis_spread_variances(problem.values, center, weights)
        else:
            center, variances = problem.spread.center, problem.spread.eigenvalues

        def plan_for(mi_nats: float) -> NoisePlan:
            noise_var = self.formula(variances, mi_nats=mi_nats)
            noisy = noise_var > 0
            frame: Frame = SpreadFrame(spread=problem.spread)
            if self.along_axes:
                frame = AxisFrame(axes=np.flatnonzero(noisy), center=center)
            return make_plan(
                rule=self.name,
                frame=frame,
                center=center,
                noise_std=np.sqrt(noise_var[noisy]),
                values=problem.values,
            )

        return plan_by_formula(plan_for, problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoConfidence(PoolRule):
    """The papers' Auto-PAC with confidence, as a shape of noise.

    The papers relate ``security`` to the number of simulations only up to an unnamed constant, so
    the formula only proposes: the noise is proved by the log-determinant bound, and the certificate
    is *exact*. ``share`` of the budget is the main term; the rest pays for estimation.
    """

    security: float = 1e-3
    share: float = 0.9
    radius: float = 1.0

    family = "confidence"

    def __post_init__(self) -> None:
        check_positive("security", self.security, advice="Use 1e-3.")
        check_positive("radius", self.radius, advice="Use a bound on the output's norm.")
        if not 0 < self.share < 1:
            raise BudgetError(f"share must be between 0 and 1; got {self.share!r}. Use 0.9.")

    def noisy_plan(self, problem: PlanProblem) -> NoisePlan:
        values, weights = problem.values, np.exp(problem.log_p)
        dimension = values.shape[1]
        if dimension > LARGEST_FULL_DIMENSION:
            raise BudgetError(
                f"the rule 'confidence' must decompose a {dimension} by {dimension} matrix; the "
                f"most it does is {LARGEST_FULL_DIMENSION}. Use 'waterfill'."
            )
        center = weighted_spread_mean(values, weights)
        centred = values - center
        eigenvalues, vectors = np.linalg.eigh((centred.T * weights) @ centred)
        eigenvalues = np.maximum(eigenvalues, 0.0)
        gaps = "separated" if self._are_separated(eigenvalues) else "close: isotropic noise"
        basis = np.ascontiguousarray(vectors)
        spread = Spread(
            center=center,
            eigenvalues=eigenvalues,
            coordinates=centred @ basis,
            basis=basis,
            values=values,
        )

        def plan_for(mi_nats: float) -> NoisePlan:
            return make_plan(
                rule=self.name,
                frame=SpreadFrame(spread=spread),
                center=center,
                noise_std=np.sqrt(self.formula(eigenvalues, mi_nats=mi_nats)),
                values=values,
                notes=(f"eigenvalues are {gaps}",),
            )

        return plan_by_formula(plan_for, problem)

    def formula(self, eigenvalues: Vector, *, mi_nats: float) -> Vector:
        """Inflate well-separated eigenvalues; otherwise use isotropic noise."""
        main, rest = self.share * mi_nats, (1 - self.share) * mi_nats
        if self._are_separated(eigenvalues):
            return proportional(eigenvalues + 10 * self.security * main / rest, mi_nats=main)
        dimension = len(eigenvalues)
        return np.full(dimension, (eigenvalues.sum() + dimension * self.security) / (2 * main))

    def _are_separated(self, eigenvalues: Vector) -> bool:
        """Whether every eigenvalue above ``security`` is far from all other eigenvalues."""
        n_large = int((eigenvalues > self.security).sum())
        gap = self.radius * np.sqrt(len(eigenvalues) * self.security) + 2 * self.security
        below = np.diff(np.sort(eigenvalues))[-n_large:]  # the gap below each large one
        return n_large > 0 and bool((below > gap).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """The spread in coordinates with unit cost of noise; ``back`` leads to the original ones."""

    spread: Spread
    plain: Spread
    cost: Matrix
    back: Matrix

    def unweighted(self, shape: Shape) -> Shape:
        """Return a shape in weighted coordinates as a shape of the original spread."""
        factor = self.back @ (shape.rotation * np.sqrt(shape.noise_var))
        rotation, noise_std, _ = np.linalg.svd(factor, full_matrices=False)
        return Shape(rotation=rotation, noise_var=noise_std**2)

    def cost_of(self, plan: NoisePlan) -> float:
        """Return the weighted cost of a plan along directions of the unweighted spread."""
        rotation = plan.frame.rotation if isinstance(plan.frame, SpreadFrame) else None
        turn = np.eye(self.plain.rank) if rotation is None else rotation
        along = np.einsum("rq,rs,sq->q", turn, self.cost, turn)
        return float(np.square(plan.noise_std) @ along)


def weigh(spread: Spread, weights: Vector, cost: Matrix) -> Weighting:
    """Return the spread weighted by the cost of noise."""
    values, vectors = np.linalg.eigh(cost)
    root = (vectors * np.sqrt(values)) @ vectors.T
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    stretched = spread.coordinates @ root
    eigenvalues, turn = np.linalg.eigh((stretched.T * weights) @ stretched)
    order = np.argsort(eigenvalues)[::-1]
    eigenvalues, turn = np.maximum(eigenvalues[order], 0.0), turn[:, order]
    back = inverse @ turn
    weighted = Spread(
        center=spread.center,
        eigenvalues=np.maximum(eigenvalues, FLAT**2 * eigenvalues[0]),
        coordinates=stretched @ turn,
        basis=spread.basis @ back,
        values=spread.values,
    )
    return Weighting(spread=weighted, plain=spread, cost=cost, back=back)


def contrasts(n: int) -> Matrix:
    """Return ``n - 1`` orthonormal rows that span all differences of ``n`` numbers."""
    if n < 2:
        raise BudgetError(f"n must be at least 2; got {n}. Give the number of classes.")
    rows = np.tril(np.ones((n, n)), -1)[1:]
    rows[np.arange(n - 1), np.arange(1, n)] = -np.arange(1.0, n)
    normalised: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normalised


class SearchingRule(PoolRule):
    """The least noise that a search finds and draws prove, or the closed form if less."""

    is_simulated = True
    holds_information: bool = False

    def cost_along(self, spread: Spread) -> Matrix | None:
        """Return the cost of noise along the directions of the spread, ``UᵀWU``; None if even."""
        return None

    def noisy_plan(self, problem: PlanProblem) -> NoisePlan:
        """Try the promising shapes; keep the proved plan of least noise, or of least cost."""
        if problem.mi_nats is None and self.holds_information:
            problem = replace(problem, mi_nats=problem.gaussian_nats)
        spread = problem.spread
        with single_threaded():
            weighting = self._weighting(problem)
            plans = []
            with suppress(BudgetError) if problem.heat is not None else nullcontext():
                plans.append(self._closed(problem, weighting))
            shapes = _promising_shapes(problem, weighting, "shapes")
            gamma = problem.gamma / max(1, len(shapes))
            share = replace(problem, gamma=gamma, measured=spread)
            for shape in shapes:
                with suppress(BudgetError):  # a shape that cannot be proved leaves the others
                    plans.append(prove_shape(shape, share, rule=self.name))
        if not plans:
            raise BudgetError(
                "share must be large enough to be proved; this one is not for some unit of which "
                "much is known already. Ask for a larger share or fewer subsets, or end here."
            )
        return min(plans, key=_total_variance if weighting is None else weighting.cost_of)

    def _weighting(self, problem: PlanProblem) -> Weighting | None:
        cost = self.cost_along(problem.spread)
        return None if cost is None else weigh(problem.spread, np.exp(problem.log_p), cost)

    def _closed(self, problem: PlanProblem, weighting: Weighting | None) -> NoisePlan:
        """Return the least noise, or the least cost, that the log-determinant bound proves."""
        if weighting is None:
            return FormulaRule(self.name, waterfill).noisy_plan(problem)
        return plan_by_formula(partial(_weighted_plan, weighting, self.name), problem)

    def propose(self, problem: PlanProblem) -> NoisePlan:
        """Return the larger of the noises that the limits need, or the closed form if less."""
        if (free := problem.noiseless_plan(self.name)) is not None:
            return free
        weighting = self._weighting(problem)
        closed = self._closed(problem, weighting)
        shapes = []
        with suppress(BudgetError):  # what no search reaches is reached in closed form
            shapes = _promising_shapes(problem, weighting, "propose")
        if len(shapes) < problem.claims:
            return closed
        # Noise that meets two limits is at least the larger of their noises.
        most = max(shapes, key=lambda shape: shape.total_variance)
        return min(most.plan(problem.spread, rule=self.name), closed, key=_total_variance)


def _total_variance(plan: NoisePlan) -> float:
    return plan.total_variance


def _weighted_plan(weighting: Weighting, name: str, mi_nats: float) -> NoisePlan:
    noise_var = waterfill(weighting.spread.eigenvalues, mi_nats=mi_nats)
    return weighting.unweighted(axis_shape(noise_var)).plan(weighting.plain, rule=name)


def _promising_shapes(
    problem: PlanProblem, weighting: Weighting | None, stream: str
) -> list[Shape]:
    """Return the best shape for membership and the best for information."""
    spread = problem.spread if weighting is None else weighting.spread
    log_p, rng, shapes = problem.log_p, problem.rng(stream), []
    if problem.per_unit is not None and problem.pool is not None:
        with suppress(BudgetError):
            shapes = risk_shapes(spread, problem.pool, log_p, problem.per_unit, rng=rng)[:1]
    if problem.mi_nats is not None:
        informed = exact_shapes(spread, log_p, mi_nats=problem.mi_nats, rng=rng)
        shapes += informed[:1] if shapes or len(informed) > 1 else []
    return shapes if weighting is None else [weighting.unweighted(shape) for shape in shapes]


@dataclass(frozen=True, slots=True)
class _LeastNoise(SearchingRule):
    """The rules ``exact`` and ``risk``: every direction costs the same."""

    family: str
    holds_information: bool


class _Default(SearchingRule):
    """The default: ``exact`` for information, ``risk`` if membership is limited."""

    family = "default"

    def plan(self, problem: PlanProblem) -> NoisePlan:
        return RULES["exact" if problem.per_unit is None else "risk"].plan(problem)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact(SearchingRule):
    """The rule ``exact`` for another cost of noise: the least ``tr(W Σ_B)`` that is proved.

    Parameters
    ----------
    cost : array of shape (d,) or (d, d)
        ``W``: a positive weight per output coordinate, or a positive definite matrix. It decides
        where noise goes and nothing else, so it may come from the pool, but not from the secret.
    """

    cost: npt.ArrayLike

    family = "exact weighted"
    holds_information = True

    def __post_init__(self) -> None:
        cost = np.array(self.cost, dtype=np.float64)
        square = cost.ndim == 2 and cost.shape[0] == cost.shape[1] and np.array_equal(cost, cost.T)
        if not ((cost.ndim == 1 or square) and cost.size and np.isfinite(cost).all()):
            raise BudgetError(
                f"cost must be a vector of weights or a symmetric matrix; got shape {cost.shape}. "
                f"Give one weight per output coordinate."
            )
        smallest = float((cost if cost.ndim == 1 else np.linalg.eigvalsh(cost)).min())
        if not smallest > 1e-12 * float(np.abs(cost).max()):
            raise BudgetError(
                f"cost must be positive in every direction; its smallest weight is {smallest:.3g}. "
                f"Add a small multiple of the identity: free noise would have no limit."
            )
        freeze(cost)
        object.__setattr__(self, "cost", cost)

    def cost_along(self, spread: Spread) -> Matrix:
        cost = np.asarray(self.cost, dtype=np.float64)
        _check_rows("cost", cost, len(spread.center))
        directions = np.stack([spread.expand(row) for row in np.eye(spread.rank)])
        applied = directions * cost if cost.ndim == 1 else directions @ cost
        inner: Matrix = applied @ directions.T
        return 0.5 * (inner + inner.T)


@dataclass(frozen=True, slots=True, eq=False)
class Protect(SearchingRule):
    """The least noise on the outputs that matter most.

    Parameters
    ----------
    directions : array of shape (k, d)
        Rows that span what matters, for example :func:`contrasts` for the differences of logits.
    weight : float > 1
        How many times more a unit of noise variance costs inside the subspace.
    """

    directions: npt.ArrayLike
    weight: float = 100.0

    family = "protect"

    def __post_init__(self) -> None:
        rows = np.atleast_2d(np.array(self.directions, dtype=np.float64))
        if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all() or not rows.any():
            raise BudgetError(
                f"directions must be rows of numbers, not all zero; got shape {rows.shape}. "
                f"Give one row per direction."
            )
        if not (np.isfinite(self.weight) and self.weight >= 1):
            raise BudgetError(f"weight must be at least 1; got {self.weight!r}. Use 100.")
        freeze(rows)
        object.__setattr__(self, "directions", rows)

    def _orthonormal(self, dimension: int) -> Matrix:
        rows = np.asarray(self.directions, dtype=np.float64)
        if rows.shape[1] != dimension:
            raise BudgetError(
                f"directions must have {dimension} columns, one per output coordinate; "
                f"got {rows.shape[1]}. Build them for this output."
            )
        _, singular, right = np.linalg.svd(rows, full_matrices=False)
        orthonormal: Matrix = right[singular > 1e-10 * singular[0]]
        return orthonormal

    def cost_along(self, spread: Spread) -> Matrix:
        along = spread.project(self._orthonormal(len(spread.center)))
        cost: Matrix = np.eye(spread.rank) + (self.weight - 1) * (along.T @ along)
        return cost


@dataclass(frozen=True, slots=True, eq=False)
class Shaped(PoolRule):
    """Noise of a fixed shape, scaled until the budget is proved.

    Parameters
    ----------
    covariance : array of shape (d, d)
        Directions and relative sizes of the noise. It may come from anywhere but the secret, for
        example from learning: the proof does not rest on it.
    """

    covariance: npt.ArrayLike

    family = "shaped"

    def __post_init__(self) -> None:
        matrix = np.array(self.covariance, dtype=np.float64)
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.size > 0
        if not square or not np.isfinite(matrix).all():
            raise BudgetError(
                f"covariance must be a square matrix of numbers; got shape {matrix.shape}. "
                f"Give one row and column per output coordinate."
            )
        values = np.linalg.eigvalsh(matrix)
        symmetric = np.allclose(matrix, matrix.T, atol=1e-9 * np.abs(matrix).max())
        if not (symmetric and values[-1] > 0 and values[0] >= -1e-9 * values[-1]):
            raise BudgetError(
                "covariance must be symmetric, not negative in any direction and not zero; "
                f"its eigenvalues go from {values[0]:.3g} to {values[-1]:.3g}. Check its signs."
            )
        freeze(matrix)
        object.__setattr__(self, "covariance", matrix)

    def noisy_plan(self, problem: PlanProblem) -> NoisePlan:
        """Scale the shape; a direction without noise gets a little, since outputs may differ."""
        spread, matrix = problem.spread, np.asarray(self.covariance, dtype=np.float64)
        with single_threaded():
            _check_rows("covariance", matrix, len(spread.center))
            across = np.ascontiguousarray(spread.project(matrix).T)
            noise_var, rotation = np.linalg.eigh(spread.project(across))
            noise_var = np.maximum(noise_var, LEAST_SHARE * noise_var[-1])
            return prove_shape(
                Shape(rotation=rotation, noise_var=noise_var), problem, rule=self.name
            )


# --- one table, and what callers ask -----------------------------------------------------------


RULES: Final[dict[str, Rule]] = {
    "isotropic": FormulaRule("isotropic", isotropic, along_axes=True),
    "isotropic_max": FormulaRule("isotropic_max", isotropic_max, along_axes=True),
    "diagonal": FormulaRule("diagonal", proportional, along_axes=True),
    "spectral": FormulaRule("spectral", proportional),
    "waterfill": FormulaRule("waterfill", waterfill),
    "confidence": AutoConfidence(),
    "exact": _LeastNoise("exact", holds_information=True),
    "risk": _LeastNoise("risk", holds_information=False),
}
DEFAULT: Final = _Default()


def as_rule(rule: AnyRule | None) -> Rule:
    """Return the rule of a name, or the default for None; refuse other objects."""
    if rule is None:
        return DEFAULT
    if isinstance(rule, Rule):
        return rule
    try:
        return RULES[rule]
    except (KeyError, TypeError):
        raise BudgetError(
            f"rule must be one of {', '.join(RULES)}, or AutoConfidence(...), Boxed(...), "
            f"Empirical(...), Exact(cost=...), Protect(directions), Shaped(covariance); "
            f"got {as_told(rule)}. "
            + suggestion(as_told(rule), RULES, otherwise="Leave it out for the default.")
        ) from None


def calibrate(
    outputs: object,
    budget: AnyBudget,
    *,
    rule: AnyRule | None = None,
    pool: Pool | None = None,
    log_belief: Vector | None = None,
    caps: Vector | None = None,
    heat: Heat | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> NoisePlan:
    """Calibrate the noise under which one row of ``outputs`` may be released.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        The mechanism's output on every candidate subset.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        Limits on every attacker.
    rule : str or Rule, optional
        By default ``exact`` for information and ``risk`` where membership is limited.
    pool : Pool, optional
        Needed when membership is limited.
    log_belief : array of shape (m,), optional
        The attacker's belief before this release; uniform by default.
    caps : array of shape (n_units,), optional
        Success allowed per unit in this release, instead of the budget's one number.
    heat : Heat, optional
        Balances that every unit pays from, instead of a limit on success; sessions use it.
    gamma : float
        Failure probability of the Monte-Carlo proof.
    rng : Generator or int, optional
        For simulated draws; never for the secret.

    Guarantee
    ---------
    Claim N-6. For rules of kind *exact*, the secret being drawn from ``log_belief``, the release
    meets every limit of ``budget``: by closed form for the covariance rules, with probability
    ``1 - gamma`` over simulated draws for ``exact`` and ``risk``.
    """
    chosen = as_rule(rule)
    problem = chosen.pose(
        outputs,
        budget,
        pool=pool,
        log_belief=log_belief,
        caps=caps,
        heat=heat,
        gamma=gamma,
        rng=rng,
    )
    return chosen.plan(problem)


def check_rule_feasible(budget: AnyBudget, rule: AnyRule | None, pool: Pool) -> None:
    """Refuse a budget or a rule that cannot work, before the mechanism is run at all."""
    log_p = check_log_belief(None, pool.n_subsets)
    as_rule(rule).terms(budget_limits(budget, pool.n_subsets), pool, log_p)


def propose_rule_noise(
    outputs: object,
    budget: AnyBudget,
    *,
    rule: AnyRule | None = None,
    pool: Pool | None = None,
    rng: np.random.Generator | int | None = None,
) -> NoisePlan:
    """Return about the noise of :func:`calibrate`; nothing may be released on it."""
    chosen = as_rule(rule)
    return chosen.propose(chosen.pose(outputs, budget, pool=pool, rng=rng))


def _check_rows(name: str, array: Matrix, dimension: int) -> None:
    if len(array) != dimension:
        raise BudgetError(
            f"{name} must have one row per output coordinate ({dimension}); got {len(array)}. "
            f"Build it for this output."
        )
