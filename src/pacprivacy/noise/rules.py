"""The rules by name, the searching ones, and :func:`calibrate`: budget and outputs in, plan out.

Three families of rules are for a secret from the pool: formulas of the outputs' covariance
(:mod:`pacprivacy.noise.formulas`); searches, proved on simulated draws; and a given shape of
noise, scaled until it is proved. A fourth is for a fresh secret (:mod:`pacprivacy.noise.iid`).
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_log_belief, freeze
from pacprivacy._system import few_threads
from pacprivacy.adversary import DEFAULT_GAMMA, Candidates, Heat
from pacprivacy.budget import AnyBudget, limits_of
from pacprivacy.errors import BudgetError
from pacprivacy.noise.formulas import (
    AutoConfidence,
    AxisRule,
    SpreadRule,
    check_rows,
    closed_plan,
    isotropic,
    isotropic_max,
    proportional,
    waterfill,
)
from pacprivacy.noise.frames import Spread
from pacprivacy.noise.plan import NoisePlan
from pacprivacy.noise.problem import PoolRule, Problem, Rule
from pacprivacy.noise.proof import certify
from pacprivacy.noise.search import Shape, axis_shape, exact_shapes, risk_shapes

FLAT = 1e-12  # variances below this share of the largest are rounding error
LEAST_SHARE = 1e-9  # of the largest variance, for a direction that a given shape leaves out

AnyRule: TypeAlias = str | Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """The spread in coordinates in which the cost of noise is its total variance.

    ``back`` maps a direction of the weighted coordinates to those of the unweighted spread.
    """

    spread: Spread
    plain: Spread
    cost: Matrix
    back: Matrix

    def unweighted(self, shape: Shape) -> Shape:
        """Return a shape found in the weighted coordinates as one of the unweighted spread."""
        factor = self.back @ (shape.rotation * np.sqrt(shape.noise_var))
        rotation, noise_std, _ = np.linalg.svd(factor, full_matrices=False)
        return Shape(rotation=rotation, noise_var=noise_std**2, groups=shape.groups)

    def cost_of(self, plan: NoisePlan) -> float:
        """Return the weighted cost of a plan along directions of the unweighted spread."""
        rotation = getattr(plan.frame, "rotation", None)
        turn = np.eye(self.plain.rank) if rotation is None else rotation
        along = np.einsum("rq,rs,sq->q", turn, self.cost, turn)
        return float(np.square(plan.noise_std) @ along)


def weigh(spread: Spread, weights: Vector, cost: Matrix) -> Weighting:
    """Return the spread seen through a cost of noise along its directions."""
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
        basis=None if spread.basis is None else spread.basis @ back,
        mixing=spread.mixing,
        values=spread.values,
    )
    return Weighting(spread=weighted, plain=spread, cost=cost, back=back)


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

    def noisy_plan(self, problem: Problem) -> NoisePlan:
        """Try the promising shapes; keep the proved plan of least noise, or of least cost."""
        if problem.mi_nats is None and self.holds_information:
            problem = replace(problem, mi_nats=problem.gaussian_nats)
        spread = problem.spread
        with few_threads(_size(problem)):
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
                    plans.append(certify(shape, share, rule=self.name))
        if not plans:
            raise BudgetError(
                "share must be large enough to be proved; this one is not for some unit of which "
                "much is known already. Ask for a larger share or fewer subsets, or end here."
            )
        if weighting is None:
            return min(plans, key=lambda plan: plan.total_variance)
        return min(plans, key=weighting.cost_of)

    def _weighting(self, problem: Problem) -> Weighting | None:
        cost = self.cost_along(problem.spread)
        return None if cost is None else weigh(problem.spread, np.exp(problem.log_p), cost)

    def _closed(self, problem: Problem, weighting: Weighting | None) -> NoisePlan:
        """Return the least noise, or the least cost, that the log-determinant bound proves."""
        if weighting is None:
            return SpreadRule(self.name, waterfill).noisy_plan(problem)
        return closed_plan(partial(_weighted_plan, weighting, self.name), problem)

    def propose(self, problem: Problem) -> float:
        """Return the larger of what each limit asks for, or the closed form if less."""
        if problem.noiseless_plan(self.name) is not None:
            return 0.0
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
            return min(closed.total_variance, max(shape.total_variance for shape in asked))
        return closed.total_variance


def _size(problem: Problem) -> int:
    n_columns = problem.values.shape[1] if problem.pool is None else problem.pool.n_units
    return len(problem.values) * n_columns


def _weighted_plan(weighting: Weighting, name: str, mi_nats: float) -> NoisePlan:
    noise_var = waterfill(weighting.spread.eigenvalues, mi_nats=mi_nats)
    return weighting.unweighted(axis_shape(noise_var)).plan(weighting.plain, rule=name)


def _promising_shapes(problem: Problem, spread: Spread) -> list[Shape]:
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

    def plan(self, problem: Problem) -> NoisePlan:
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
        check_rows("cost", cost, dimension)
        return np.diag(cost) if cost.ndim == 1 else cost

    def cost_along(self, spread: Spread) -> Matrix:
        """Return ``UᵀWU``."""
        cost = np.asarray(self.cost, dtype=np.float64)
        check_rows("cost", cost, len(spread.center))
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


def contrasts(n: int) -> Matrix:
    """Return ``n - 1`` orthonormal rows that span all differences of ``n`` numbers."""
    if n < 2:
        raise BudgetError(f"n must be at least 2; got {n}. Give the number of classes.")
    rows = np.tril(np.ones((n, n)), -1)[1:]
    rows[np.arange(n - 1), np.arange(1, n)] = -np.arange(1.0, n)
    normalised: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normalised


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

    def noisy_plan(self, problem: Problem) -> NoisePlan:
        """Scale the shape; a direction without noise gets a little, since outputs may differ."""
        spread, matrix = problem.spread, np.asarray(self.covariance, dtype=np.float64)
        with few_threads(_size(problem)):
            check_rows("covariance", matrix, len(spread.center))
            across = np.ascontiguousarray(spread.project(matrix).T)
            noise_var, rotation = np.linalg.eigh(spread.project(across))
            noise_var = np.maximum(noise_var, LEAST_SHARE * noise_var[-1])
            return certify(Shape(rotation=rotation, noise_var=noise_var), problem, rule=self.name)


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
            f"Shaped(covariance); got {rule!r}. Leave it out for the default."
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


def check_feasible(budget: AnyBudget, rule: AnyRule | None, pool: Candidates) -> None:
    """Refuse a budget or a rule that cannot work, before the mechanism is run at all."""
    log_p = check_log_belief(None, pool.n_subsets)
    as_rule(rule).terms(limits_of(budget, pool.n_subsets), pool, log_p)


def propose_variance(
    outputs: object,
    budget: AnyBudget,
    *,
    pool: Candidates | None = None,
    rule: AnyRule | None = None,
    log_belief: Vector | None = None,
    rng: np.random.Generator | int | None = None,
) -> float:
    """Return about the total variance of the noise that :func:`calibrate` will find.

    An estimate for people who choose a budget; nothing may be released on it. No secret is
    involved: it is a function of the outputs on all candidates.
    """
    chosen = as_rule(rule)
    return chosen.propose(chosen.pose(outputs, budget, pool=pool, log_belief=log_belief, rng=rng))
