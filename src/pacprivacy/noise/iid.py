"""Noise for a fresh, independent secret subset: certificates of kind *confidence* and *empirical*.

The secret is no member of a known pool but a new draw, so the covariance of its output is
estimated. The last few subsets have no part in the estimate and the centre; one of them is the
secret.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import LARGEST_OUTPUT, SMALLEST_RANGE, Matrix, Vector, check_positive
from pacprivacy.budget import Spent
from pacprivacy.errors import BudgetError, PoolError
from pacprivacy.noise.plan import (
    AxisFrame,
    Kind,
    NoisePlan,
    PlanProblem,
    isotropic,
    isotropic_max,
    make_plan,
    proportional,
)
from pacprivacy.noise.rules import Rule, Terms
from pacprivacy.sample import Pool
from pacprivacy.theory import (
    information_slack_bound,
    lattice_total_variation_bound,
    log_det_bound,
    mi_for_membership,
    std_upper_bound,
)

N_RESERVE = 16
SHRINKS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # shares of the budget left to the lattice
CHECK_EVERY = 10
FORMULAS = {"diagonal": proportional, "isotropic": isotropic, "isotropic_max": isotropic_max}


@dataclass(frozen=True, kw_only=True)
class IidRule(Rule):
    """Noise for a secret that is independent of the subsets used to estimate its spread.

    The secret is one of the last ``n_reserve`` subsets.

    Guarantee
    ---------
    Claim N-7. For ``Boxed``, with probability ``1 - gamma`` over the simulation, the mutual
    information between the secret subset and the release is at most the budget. For
    ``Empirical`` nothing is claimed.
    """

    shape: str = "diagonal"

    n_reserve = N_RESERVE

    @property
    def name(self) -> str:
        return f"{self.family} {self.shape}"

    @property
    @abstractmethod
    def confidence(self) -> float:
        """Probability, over the simulation, that the claim holds; 0 without a claim."""

    def clipped(self, values: Matrix) -> Matrix:
        return values

    @abstractmethod
    def variances(self, values: Matrix) -> Vector:
        """Return bounds or estimates of the variance of each coordinate of clipped outputs."""

    @abstractmethod
    def _notes(self, values: Matrix) -> tuple[str, ...]: ...

    def terms(
        self, limits: Spent, pool: Pool | None, log_p: Vector, caps: Vector | None = None
    ) -> Terms:
        if pool is None or not pool.independent:
            raise PoolError(
                "pool must hold independent subsets for this rule: a confidence or empirical "
                "certificate speaks of a fresh draw. Use Half(...) or Poisson(...)."
            )
        budgets = [] if limits.mi_nats is None else [limits.mi_nats]
        if limits.success_level is not None:
            budgets.append(mi_for_membership(limits.success_level, pool.prior))
        return min(budgets), None, None

    def plan(self, problem: PlanProblem) -> NoisePlan:
        """Plan the noise for the last ``n_reserve`` outputs from the other outputs."""
        values, mi_nats = self.clipped(problem.values), problem.mi_nats
        assert mi_nats is not None  # the terms of this rule
        assert problem.pool is not None  # likewise
        if len(values) < N_RESERVE + 2:
            raise PoolError(
                f"outputs must have at least {N_RESERVE + 2} rows for an independent secret; got "
                f"{len(values)}. Use more subsets."
            )
        variances = self.variances(values)
        axes = np.flatnonzero(variances > 0).astype(np.int64)
        if np.ptp(values[:, variances == 0], axis=0).any():
            raise BudgetError(
                "a coordinate that moves must have a variance in the simulation; one has none. "
                "Use more subsets, rescale the output, or use the rule Boxed(...)."
            )
        center = _center(values[:-N_RESERVE])
        for shrink in SHRINKS:
            noise_var = FORMULAS[self.shape](variances, mi_nats=mi_nats * (1 - shrink))
            plan = make_plan(
                rule=self.name,
                frame=AxisFrame(axes=axes, center=center),
                center=center,
                noise_std=np.sqrt(noise_var[axes]),
                values=values,
                kind=self.kind,
                notes=self._notes(values),
            )
            law = plan.grid_step, plan.units_per_std
            bound = iid_log_det(*law, variances[axes], problem.pool.n_units)
            if bound <= mi_nats:
                first = len(values) - N_RESERVE
                return replace(plan, log_det_nats=bound, first_secret=first, iid_rule=self)
        raise BudgetError(
            f"mi_nats must be large enough for the lattice of {len(axes)} directions; got "
            f"{mi_nats}. Use a larger budget."
        )


def iid_log_det(
    grid_step: Vector, units_per_std: npt.NDArray[np.int64], variances: Vector, n_units: int
) -> float:
    """Return the log-determinant bound (Hadamard) of outputs that were rounded to the lattice."""
    rounded = np.square(np.sqrt(variances) + 0.5 * grid_step)
    bound = log_det_bound(rounded, np.square(grid_step * units_per_std))
    slack = lattice_total_variation_bound(len(grid_step), units_per_std)
    return bound * (1 + 1e-12) + information_slack_bound(slack, 2**n_units)


def _center(simulated: Matrix) -> Vector:
    """Return the mean of the unreserved outputs; constants stay exact."""
    center: Vector = simulated.mean(axis=0)
    still = np.ptp(simulated, axis=0) == 0
    center[still] = simulated[0, still]
    return center


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxed(IidRule):
    """A *confidence* certificate for a fresh independent subset.

    Parameters
    ----------
    low, high : float
        Every output coordinate is clipped into ``[low, high]``.
    shape : {"diagonal", "isotropic"}
        How the noise is spread over the coordinates.
    gamma : float
        Probability, over the simulation, that the claim is wrong.
    """

    low: float
    high: float
    gamma: float = 1e-6

    family = "boxed"
    kind: ClassVar[Kind] = "confidence"

    def __post_init__(self) -> None:
        ends = np.array([self.low, self.high], dtype=np.float64)
        if not (np.isfinite(ends).all() and self.low < self.high):
            raise BudgetError(
                f"low must be below high and both finite; got {self.low!r} and {self.high!r}. "
                f"Declare the range that the output is clipped to."
            )
        if np.abs(ends).max() > LARGEST_OUTPUT or self.high - self.low < SMALLEST_RANGE:
            raise BudgetError(
                f"high - low must be at least {SMALLEST_RANGE:g} and both below {LARGEST_OUTPUT:g} "
                f"in size, so that the range can be squared; got {self.low!r} and {self.high!r}. "
                f"Rescale the mechanism's output."
            )
        if self.shape not in {"diagonal", "isotropic"}:
            raise BudgetError(
                f"shape must be 'diagonal' or 'isotropic'; got {self.shape!r}. "
                f"Directions computed from the same outputs are not allowed here."
            )
        if not 0 < self.gamma < 1:
            raise BudgetError(f"gamma must be between 0 and 1; got {self.gamma!r}. Use 1e-6.")

    @property
    def confidence(self) -> float:
        return 1 - self.gamma

    def clipped(self, values: Matrix) -> Matrix:
        return np.clip(values, self.low, self.high)

    def variances(self, values: Matrix) -> Vector:
        simulated = values[:-N_RESERVE]
        std = std_upper_bound(
            simulated.std(axis=0, ddof=1),
            self.high - self.low,
            n_subsets=len(simulated),
            n_dimensions=values.shape[1],
            gamma=self.gamma,
        )
        return np.square(std)

    def _notes(self, values: Matrix) -> tuple[str, ...]:
        return (
            f"outputs are clipped into [{self.low:g}, {self.high:g}]",
            f"holds with probability 1 - {self.gamma:.1g} over the simulated subsets",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical(IidRule):
    """The papers' practice for a fresh independent subset: estimated variances, no proof.

    Parameters
    ----------
    shape : {"diagonal", "isotropic", "isotropic_max"}
        How the noise is spread over the coordinates.
    tolerance : float
        The certificate says whether the variances moved by less over the last ten subsets.
    """

    tolerance: float = 1e-6

    family = "empirical"
    kind: ClassVar[Kind] = "empirical"

    def __post_init__(self) -> None:
        if self.shape not in FORMULAS:
            raise BudgetError(
                f"shape must be 'diagonal', 'isotropic' or 'isotropic_max'; got {self.shape!r}. "
                f"Use 'diagonal'."
            )
        check_positive("tolerance", self.tolerance, advice="Use 1e-6.")

    @property
    def confidence(self) -> float:
        return 0.0

    def variances(self, values: Matrix) -> Vector:
        return np.asarray(values[:-N_RESERVE].var(axis=0))

    def _notes(self, values: Matrix) -> tuple[str, ...]:
        simulated = values[:-N_RESERVE]
        earlier = simulated[: max(2, len(simulated) - CHECK_EVERY)].var(axis=0)
        moved = float(np.abs(simulated.var(axis=0) - earlier).max())
        met = "met" if moved < self.tolerance else "NOT met"
        return (
            f"variances moved by {moved:.2g} over the last {CHECK_EVERY} subsets; the papers' "
            f"stopping rule (tolerance {self.tolerance:.1g}) was {met}",
            "this is a heuristic, not a proof",
        )
