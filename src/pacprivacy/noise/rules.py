"""What a rule is: an object that plans. The rules by name; :func:`calibrate`: a plan for a budget.

Three families of rules are for a secret from the pool: formulas of the outputs' covariance
(:mod:`pacprivacy.noise.formulas`); searches, proved on simulated draws; and a given shape of
noise, scaled until it is proved. A fourth is for a fresh secret (:mod:`pacprivacy.noise.iid`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

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
)
from pacprivacy._random import coerce_seed
from pacprivacy._system import single_threaded
from pacprivacy.adversary import DEFAULT_GAMMA, Candidates, Heat
from pacprivacy.budget import AnyBudget, Spent, budget_limits
from pacprivacy.errors import BudgetError
from pacprivacy.noise.formulas import (
    Formula,
    isotropic,
    isotropic_max,
    plan_by_formula,
    proportional,
    waterfill,
)
from pacprivacy.noise.plan import Kind, NoisePlan, PlanProblem, make_plan, plan_caps
from pacprivacy.noise.proof import prove_shape
from pacprivacy.noise.shapes import Shape, axis_shape, exact_shapes, risk_shapes
from pacprivacy.noise.spread_frames import (
    AxisFrame,
    Frame,
    PublicFrame,
    Spread,
    SpreadFrame,
    axis_spread_variances,
    weighted_spread_mean,
)
from pacprivacy.noise.weighting import Weighting, weigh

LEAST_SHARE = 1e-9  # of the largest variance, for a direction that a given shape leaves out
LARGEST_FULL_DIMENSION = 2048

Terms: TypeAlias = tuple[float | None, Vector | None, Vector | None]


class Rule(ABC):
    """How noise is found.

    Attributes
    ----------
    family : str
        Public name of the rule, without its settings.
    kind : {"exact", "confidence", "empirical"}
        What a certificate of its plans can promise.
    n_reserve : int
        Subsets that must be drawn beside the pool, for a fresh secret; 0 for a secret from the
        pool.
    is_simulated : bool
        Whether its plans are proved on simulated draws.
    """

    family: str
    kind: ClassVar[Kind] = "exact"
    n_reserve: ClassVar[int] = 0
    is_simulated: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What certificates call the rule."""
        return self.family

    def terms(
        self, limits: Spent, pool: Candidates | None, log_p: Vector, caps: Vector | None = None
    ) -> Terms:
        """Return ``mi_nats``, caps and priors of a problem; refuse limits that cannot be met."""
        return limits.mi_nats, *plan_caps(limits, caps, pool, log_p)

    def pose(
        self,
        outputs: object,
        budget: AnyBudget,
        *,
        pool: Candidates | None = None,
        log_belief: Vector | None = None,
        caps: Vector | None = None,
        heat: Heat | None = None,
        gamma: float = DEFAULT_GAMMA,
        rng: np.random.Generator | int | None = None,
        measured: Spread | None = None,
    ) -> PlanProblem:
        """Return what a plan must satisfy; the arguments are those of :func:`calibrate`."""
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
    def plan(self, problem: PlanProblem) -> NoisePlan:
        """Return noise that meets the problem's limits."""

    def propose(self, problem: PlanProblem) -> NoisePlan:
        """Return about the noise of the plan; nothing may be released on it."""
        return self.plan(problem)


class PoolRule(Rule):
    """A rule for a secret from the pool: an output that may leave as it is gets no noise."""

    def plan(self, problem: PlanProblem) -> NoisePlan:
        """Return the plan without noise where the limits allow it, or else one with noise."""
        return problem.noiseless_plan(self.name) or self.noisy_plan(problem)

    @abstractmethod
    def noisy_plan(self, problem: PlanProblem) -> NoisePlan:
        """Return noise that meets the problem's limits."""


AnyRule: TypeAlias = str | Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Variances of the outputs along directions, and the frame of those that get noise."""

    center: Vector
    variances: Vector
    frame: Callable[[npt.NDArray[np.bool_]], Frame]
    notes: tuple[str, ...] = ()


class CovarianceRule(PoolRule):
    """Noise from the covariance of the outputs over the pool, by a formula."""

    formula: Formula

    @abstractmethod
    def measure(self, problem: PlanProblem) -> Measured:
        """Measure the outputs along the directions of the rule."""

    def noisy_plan(self, problem: PlanProblem) -> NoisePlan:
        """Return noise that the log-determinant bound proves."""
        measured = self.measure(problem)

        def plan_for(mi_nats: float) -> NoisePlan:
            noise_var = self.formula(measured.variances, mi_nats=mi_nats)
            noisy = noise_var > 0
            return make_plan(
                rule=self.name,
                frame=measured.frame(noisy),
                center=measured.center,
                noise_std=np.sqrt(noise_var[noisy]),
                values=problem.values,
                notes=measured.notes,
            )

        return plan_by_formula(plan_for, problem)


@dataclass(frozen=True, slots=True)
class AxisRule(CovarianceRule):
    """A formula of the variances along the output's own coordinates."""

    family: str
    formula: Formula

    def measure(self, problem: PlanProblem) -> Measured:
        """Measure the variance of every coordinate."""
        weights = np.exp(problem.log_p)
        center = weighted_spread_mean(problem.values, weights)
        return Measured(
            center=center,
            variances=axis_spread_variances(problem.values, center, weights),
            frame=lambda noisy: AxisFrame(axes=np.flatnonzero(noisy), center=center),
        )


@dataclass(frozen=True, slots=True)
class SpreadRule(CovarianceRule):
    """A formula of the variances along the principal directions of the outputs."""

    family: str
    formula: Formula

    def measure(self, problem: PlanProblem) -> Measured:
        """Find the principal directions; the outputs move along all of them."""
        spread = problem.spread
        return Measured(
            center=spread.center,
            variances=spread.eigenvalues,
            frame=lambda noisy: SpreadFrame(spread=spread),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Basis(CovarianceRule):
    """Noise in proportion to the spread along the columns of a public orthogonal matrix.

    The matrix must be fixed without looking at the outputs.
    """

    matrix: Matrix

    family = "basis"

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, dtype=np.float64)
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
        if not square or np.abs(matrix.T @ matrix - np.eye(len(matrix))).max() > 1e-9:
            raise BudgetError(
                f"matrix must be square and orthogonal; got shape {matrix.shape}. "
                f"Orthogonalise it first, for example with numpy.linalg.qr."
            )
        freeze(matrix)
        object.__setattr__(self, "matrix", matrix)

    def formula(self, variances: Vector, *, mi_nats: float) -> Vector:
        """Return noise in proportion to the spread."""
        return proportional(variances, mi_nats=mi_nats)

    def measure(self, problem: PlanProblem) -> Measured:
        """Measure the variance along each column."""
        values, weights = problem.values, np.exp(problem.log_p)
        _check_rows("matrix", self.matrix, values.shape[1])
        center = weighted_spread_mean(values, weights)
        return Measured(
            center=center,
            variances=weights @ np.square((values - center) @ self.matrix),
            frame=lambda noisy: PublicFrame(
                basis=np.ascontiguousarray(self.matrix[:, noisy]), center=center
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoConfidence(CovarianceRule):
    """The papers' Auto-PAC with confidence, as a shape of noise.

    The papers relate ``security`` to the number of simulations only up to an unnamed constant,
    so their formula proves nothing by itself. Here it only proposes: the secret is one of the
    pool, whose covariance is known, and the noise is checked with the log-determinant bound like
    that of any other rule. So the certificate is of kind *exact*, without failure probability, and
    not of kind *confidence* or *empirical* (:class:`Boxed`, :class:`Empirical`). ``share`` of the
    budget is the main term; the rest pays for estimation.
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

    def measure(self, problem: PlanProblem) -> Measured:
        """Decompose the covariance."""
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
        found = "separated" if self._are_separated(eigenvalues) else "close: isotropic noise"
        return Measured(
            center=center,
            variances=eigenvalues,
            frame=lambda noisy: PublicFrame(basis=np.ascontiguousarray(vectors), center=center),
            notes=(f"eigenvalues are {found}",),
        )

    def formula(self, eigenvalues: Vector, *, mi_nats: float) -> Vector:
        """Inflate the eigenvalues where they are well separated; else isotropic noise."""
        main, rest = self.share * mi_nats, (1 - self.share) * mi_nats
        if self._are_separated(eigenvalues):
            return proportional(eigenvalues + 10 * self.security * main / rest, mi_nats=main)
        dimension = len(eigenvalues)
        return np.full(dimension, (eigenvalues.sum() + dimension * self.security) / (2 * main))

    def _are_separated(self, eigenvalues: Vector) -> bool:
        large = np.sort(eigenvalues[eigenvalues > self.security])
        gap = self.radius * np.sqrt(len(eigenvalues) * self.security) + 2 * self.security
        return len(large) > 0 and (len(large) == 1 or float(np.diff(large).min()) > gap)


class SearchingRule(PoolRule):
    """The least noise that a search finds and simulated draws prove, or the closed form if less.

    With ``holds_information`` a plan also keeps the information that implies a limit on
    membership.
    """

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
            if weighting is None:
                shapes = _promising_shapes(problem, spread)
            else:
                found = _promising_shapes(problem, weighting.spread)
                shapes = [weighting.unweighted(shape) for shape in found]
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
        if weighting is None:
            return min(plans, key=lambda plan: plan.total_variance)
        return min(plans, key=weighting.cost_of)

    def _weighting(self, problem: PlanProblem) -> Weighting | None:
        cost = self.cost_along(problem.spread)
        return None if cost is None else weigh(problem.spread, np.exp(problem.log_p), cost)

    def _closed(self, problem: PlanProblem, weighting: Weighting | None) -> NoisePlan:
        """Return the least noise, or the least cost, that the log-determinant bound proves."""
        if weighting is None:
            return SpreadRule(self.name, waterfill).noisy_plan(problem)
        return plan_by_formula(partial(_weighted_plan, weighting, self.name), problem)

    def propose(self, problem: PlanProblem) -> NoisePlan:
        """Return the larger of what each limit asks for, or the closed form if less."""
        if (free := problem.noiseless_plan(self.name)) is not None:
            return free
        weighting = self._weighting(problem)
        spread = problem.spread if weighting is None else weighting.spread
        closed = self._closed(problem, weighting)
        rng, log_p, asked = problem.rng("propose"), problem.log_p, []
        with suppress(BudgetError):  # what cannot be reached by a search is reached in closed form
            if problem.per_unit is not None and problem.pool is not None:
                asked.append(risk_shapes(spread, problem.pool, log_p, problem.per_unit, rng=rng)[0])
            if problem.mi_nats is not None:
                asked.append(exact_shapes(spread, log_p, mi_nats=problem.mi_nats, rng=rng)[0])
            if weighting is not None:
                asked = [weighting.unweighted(shape) for shape in asked]
            # Noise that meets two limits is at least the larger of what each asks for.
            most = max(asked, key=lambda shape: shape.total_variance)
            if most.total_variance < closed.total_variance:
                return most.plan(problem.spread, rule=self.name)
        return closed


def _weighted_plan(weighting: Weighting, name: str, mi_nats: float) -> NoisePlan:
    noise_var = waterfill(weighting.spread.eigenvalues, mi_nats=mi_nats)
    return weighting.unweighted(axis_shape(noise_var)).plan(weighting.plain, rule=name)


def _promising_shapes(problem: PlanProblem, spread: Spread) -> list[Shape]:
    """Return the best shape for membership and the best for information, where both count."""
    log_p, rng, shapes = problem.log_p, problem.rng("shapes"), []
    if problem.per_unit is not None and problem.pool is not None:
        with suppress(BudgetError):
            shapes = risk_shapes(spread, problem.pool, log_p, problem.per_unit, rng=rng)[:1]
    if problem.mi_nats is not None:
        found = exact_shapes(spread, log_p, mi_nats=problem.mi_nats, rng=rng)
        shapes += found[:1] if shapes or len(found) > 1 else []
    return shapes


@dataclass(frozen=True, slots=True)
class _LeastNoise(SearchingRule):
    """The rules ``exact`` and ``risk``: every direction costs the same."""

    family: str
    holds_information: bool


class _Default(SearchingRule):
    """``exact`` for information, ``risk`` where membership is limited."""

    family = "default"

    def plan(self, problem: PlanProblem) -> NoisePlan:
        """Ask the rule that fits the limits."""
        return RULES["exact" if problem.per_unit is None else "risk"].plan(problem)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact(SearchingRule):
    """The rule ``exact`` with a cost of its own: the least ``tr(W Σ_B)`` found and proved.

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

    def cost_matrix(self, dimension: int) -> Matrix:
        """Return ``W`` as a matrix."""
        cost = np.asarray(self.cost, dtype=np.float64)
        _check_rows("cost", cost, dimension)
        return np.diag(cost) if cost.ndim == 1 else cost

    def cost_along(self, spread: Spread) -> Matrix:
        """Return ``UᵀWU``."""
        cost = np.asarray(self.cost, dtype=np.float64)
        _check_rows("cost", cost, len(spread.center))
        directions = np.stack([spread.expand(row) for row in np.eye(spread.rank)])
        applied = directions * cost if cost.ndim == 1 else directions @ cost
        inner: Matrix = applied @ directions.T
        return 0.5 * (inner + inner.T)


@dataclass(frozen=True, slots=True, eq=False)
class Protect(SearchingRule):
    """Least noise where a task-critical subspace of the output gets noise last.

    The cost of noise is ``weight`` inside the subspace and 1 outside. Budgets keep their rule:
    ``exact`` for information, ``risk`` where membership is limited.

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
        kept: Matrix = right[singular > 1e-10 * singular[0]]
        return kept

    def cost_matrix(self, dimension: int) -> Matrix:
        """Return the cost as a matrix: the identity, plus ``weight - 1`` inside the subspace."""
        rows = self._orthonormal(dimension)
        cost: Matrix = np.eye(dimension) + (self.weight - 1) * (rows.T @ rows)
        return cost

    def cost_along(self, spread: Spread) -> Matrix:
        """Return ``UᵀWU``."""
        along = spread.project(self._orthonormal(len(spread.center)))
        cost: Matrix = np.eye(spread.rank) + (self.weight - 1) * (along.T @ along)
        return cost


@dataclass(frozen=True, slots=True, eq=False)
class Shaped(PoolRule):
    """Noise of a given shape, scaled until the budget is proved.

    Parameters
    ----------
    covariance : array of shape (d, d)
        Directions and relative sizes of the noise; its scale does not matter. It may come from
        anywhere but the secret, for example from learning: the proof does not rest on it.
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
    "isotropic": AxisRule("isotropic", isotropic),
    "isotropic_max": AxisRule("isotropic_max", isotropic_max),
    "diagonal": AxisRule("diagonal", proportional),
    "spectral": SpreadRule("spectral", proportional),
    "waterfill": SpreadRule("waterfill", waterfill),
    "confidence": AutoConfidence(),
    "exact": _LeastNoise("exact", holds_information=True),
    "risk": _LeastNoise("risk", holds_information=False),
}
DEFAULT: Final = _Default()


def as_rule(rule: AnyRule | None) -> Rule:
    """Return the rule of a name, or the default for None; refuse what is no rule."""
    if rule is None:
        return DEFAULT
    if isinstance(rule, Rule):
        return rule
    try:
        return RULES[rule]
    except (KeyError, TypeError):
        raise BudgetError(
            f"rule must be one of {', '.join(RULES)}, or Basis(matrix), AutoConfidence(...), "
            f"Boxed(...), Empirical(...), Exact(cost=...), Protect(directions), "
            f"Shaped(covariance); got {as_told(rule)}. Leave it out for the default."
        ) from None


def calibrate(
    outputs: object,
    budget: AnyBudget,
    *,
    rule: AnyRule | None = None,
    pool: Candidates | None = None,
    log_belief: Vector | None = None,
    caps: Vector | None = None,
    heat: Heat | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> NoisePlan:
    """Find the noise under which one row of ``outputs`` may be released.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        The mechanism's output on every candidate subset.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        What every attacker is held to.
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

    Returns
    -------
    NoisePlan
        ``total_variance``, the proved bounds, and how to sample.

    Guarantee
    ---------
    Claim N-6. For rules of kind *exact*, the secret being drawn from ``log_belief``, the release
    meets every limit of ``budget``: by closed form for the covariance rules, with probability
    ``1 - gamma`` over simulated draws for ``exact`` and ``risk``.
    """
    chosen = as_rule(rule)
    settings: Any = {"pool": pool, "log_belief": log_belief, "caps": caps, "heat": heat}
    return chosen.plan(chosen.pose(outputs, budget, **settings, gamma=gamma, rng=rng))


def check_rule_feasible(budget: AnyBudget, rule: AnyRule | None, pool: Candidates) -> None:
    """Refuse a budget or a rule that cannot work, before the mechanism is run at all."""
    log_p = check_log_belief(None, pool.n_subsets)
    as_rule(rule).terms(budget_limits(budget, pool.n_subsets), pool, log_p)


def propose_rule_noise(
    outputs: object, budget: AnyBudget, *, rule: AnyRule | None = None, **given: Any
) -> NoisePlan:
    """Return about the noise that :func:`calibrate` will find.

    An estimate for people who choose a budget; nothing may be released on it. No secret is
    involved: it is a function of the outputs on all candidates. Takes ``pool``, ``log_belief`` and
    ``rng`` besides.
    """
    chosen = as_rule(rule)
    return chosen.propose(chosen.pose(outputs, budget, **given))


def propose_rule_variance(
    outputs: object,
    budget: AnyBudget,
    *,
    pool: Candidates | None = None,
    rule: AnyRule | None = None,
    log_belief: Vector | None = None,
    rng: np.random.Generator | int | None = None,
) -> float:
    """Return about the total variance of the noise that :func:`calibrate` will find."""
    plan = propose_rule_noise(outputs, budget, pool=pool, rule=rule, log_belief=log_belief, rng=rng)
    return plan.total_variance


def _check_rows(name: str, array: Matrix, dimension: int) -> None:
    """Refuse an array for outputs of another dimension."""
    if len(array) != dimension:
        raise BudgetError(
            f"{name} must have one row per output coordinate ({dimension}); got {len(array)}. "
            f"Build it for this output."
        )
