"""The spread of outputs, noise along its directions, and the plan of a release.

Outputs are measured, and noise is added, along a *frame*: the output's own axes, or the principal
directions over the pool (the *spread*). A formula maps variances to noise *variances*, one per
direction; a direction along which the output never moves gets none. Rules apply formulas and prove
them by the log-determinant bound.

Along each direction of a frame the outputs are rounded to multiples of a power of two, and the
noise is a discrete Gaussian in those multiples: integers of exactly known law (math §11).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import (
    SMALLEST_RANGE,
    Matrix,
    Vector,
    as_outputs,
    check_positive,
    freeze,
)
from pacprivacy._random import BitSource, public_generator
from pacprivacy.adversary import (
    Belief,
    Heat,
    MembershipRisk,
    View,
    make_view,
    noiseless_heat_charges,
    noiseless_membership,
    unit_beliefs_of_view,
)
from pacprivacy.budget import Spent
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.noise.lattice import Integers, lattice_grid, sample_discrete_gaussian
from pacprivacy.sample import Pool
from pacprivacy.theory import (
    Estimate,
    entropy,
    information_slack_bound,
    lattice_total_variation_bound,
    mi_for_membership,
    water_filled_noise,
)

if TYPE_CHECKING:
    from pacprivacy.noise.iid import IidRule
    from pacprivacy.noise.proof import Proof

ADVICE = "Use about 0.02 to keep any membership guess below 60 %."
ROUND_UP = 1 + 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Belief-weighted mean and principal directions of the outputs; curator-only.

    ``eigenvalues`` are the ``r`` variances, largest first, all positive; ``coordinates``, shape (m,
    r), the centred outputs. Directions are the columns of ``basis``.
    """

    center: Vector
    eigenvalues: Vector
    coordinates: Matrix
    basis: Matrix
    values: Matrix

    def __post_init__(self) -> None:
        for array in (self.center, self.eigenvalues, self.coordinates, self.basis):
            freeze(array)

    @property
    def rank(self) -> int:
        return len(self.eigenvalues)

    def expand(self, coordinates: Vector) -> Vector:
        """Return the vector of length ``d`` with these coordinates (without the centre)."""
        expanded: Vector = self.basis @ coordinates
        return expanded

    def project(self, vectors: Matrix) -> Matrix:
        """Return coordinates of centred vectors of shape (n, d) along the directions."""
        projected: Matrix = vectors @ self.basis
        return projected


def weighted_spread_mean(values: Matrix, weights: Vector) -> Vector:
    """Return the weighted mean of the rows; a column that never moves keeps its exact value."""
    anchor = values[int(np.argmax(weights))]
    mean: Vector = anchor + weights @ (values - anchor)
    return mean


def axis_spread_variances(values: Matrix, center: Vector, weights: Vector) -> Vector:
    """Return the belief-weighted variance of each output coordinate; zero where it is constant."""
    return np.asarray(weights @ np.square(values - center))


def spread_of(values: Matrix, weights: Vector) -> Spread:
    """Return the principal directions of the outputs, but for those within rounding error."""
    center, root = weighted_spread_mean(values, weights), np.sqrt(weights)
    centred = values - center
    centred -= weights @ centred  # what rounding left of a centre far from the origin
    _, singular, right = np.linalg.svd(root[:, None] * centred, full_matrices=False)
    tiny = max(centred.shape) * np.finfo(np.float64).eps * singular.max(initial=0.0)
    keep = singular > tiny
    basis = np.ascontiguousarray(right[keep].T)
    return Spread(
        center=center,
        eigenvalues=singular[keep] ** 2,
        coordinates=centred @ basis,
        basis=basis,
        values=values,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisFrame:
    """A selection of the output's own coordinates."""

    axes: npt.NDArray[np.int64]
    center: Vector

    def coordinates(self, values: Matrix) -> Matrix:
        return values[:, self.axes] - self.center[self.axes]

    def expand(self, coordinates: Vector) -> Vector:
        full = np.zeros(len(self.center))
        full[self.axes] = coordinates
        return full

    def variances(self, along: Vector) -> Vector:
        full = np.zeros(len(self.center))
        full[self.axes] = along
        return full


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadFrame:
    """The principal directions of the outputs, or the combinations that ``rotation`` gives."""

    spread: Spread
    rotation: Matrix | None = None

    def coordinates(self, values: Matrix) -> Matrix:
        """Return centred coordinates; known ones for the calibrated outputs."""
        if values is self.spread.values:
            along = self.spread.coordinates
        else:
            along = self.spread.project(values - self.spread.center)
        return along if self.rotation is None else along @ self.rotation

    def expand(self, coordinates: Vector) -> Vector:
        along = coordinates if self.rotation is None else self.rotation @ coordinates
        return self.spread.expand(along)

    def variances(self, along: Vector) -> Vector:
        """Return the variance per coordinate of noise with these variances along the directions."""
        basis = self.spread.basis if self.rotation is None else self.spread.basis @ self.rotation
        return np.asarray(np.square(basis) @ along)


Frame: TypeAlias = AxisFrame | SpreadFrame


Formula: TypeAlias = Callable[..., Vector]


def isotropic(variances: Vector, *, mi_nats: float) -> Vector:
    """Return the same noise in every direction: ``tr Σ / 2β`` (claim N-1, by ``ln(1+x) <= x``)."""
    beta = check_positive("mi_nats", mi_nats, advice=ADVICE)
    return np.full(len(variances), ROUND_UP * float(variances.sum()) / (2 * beta))


def isotropic_max(variances: Vector, *, mi_nats: float) -> Vector:
    """Return the papers' baseline: the largest ``proportional`` variance everywhere (claim N-1)."""
    return np.full(len(variances), float(proportional(variances, mi_nats=mi_nats).max(initial=0.0)))


def proportional(variances: Vector, *, mi_nats: float) -> Vector:
    """Return noise in proportion to each direction's standard deviation ``s_i`` (claim N-2).

    ``s_i Σ_j s_j / 2β``: the least total noise with ``Σ_i s_i² / 2 e_i <= β``. Along the coordinate
    axes this is the papers' rule.
    """
    beta = check_positive("mi_nats", mi_nats, advice=ADVICE)
    std = np.sqrt(variances)
    noise_var: Vector = ROUND_UP * std * std.sum() / (2 * beta)
    return noise_var


def waterfill(variances: Vector, *, mi_nats: float) -> Vector:
    """Return the least noise *variance* along each axis that the log-determinant bound can certify.

    Guarantee
    ---------
    Claim N-3. Assumes ``variances`` are exact for the pool (divisor m). Ensures
    ``log_det_bound(variances, result) <= mi_nats``; the root is approached from the side of more
    noise.
    """
    beta = check_positive("mi_nats", mi_nats, advice=ADVICE)
    noise_var = np.zeros(len(variances))
    moving = variances > 0
    if not moving.any():
        return noise_var
    top = float(variances.max())
    scaled = np.maximum(variances[moving] / top, 1e-300)  # a quotient must not become zero
    noise_var[moving] = top * water_filled_noise(scaled, beta)
    return noise_var


def log_det_of_points(
    points: Matrix, weights: Vector, groups: npt.NDArray[np.int64] | None
) -> float:
    """Bound the information of whitened points: ``H(G) + 1/2 ln det(I + E[Cov(W | G)])``."""
    group_nats = 0.0
    if groups is None:
        centred = points - weights @ points
    else:
        mass = np.bincount(groups, weights)
        alive = mass > 0
        group_nats = float(entropy(np.log(mass[alive])))
        sums = np.zeros((len(mass), points.shape[1]))
        np.add.at(sums, groups, weights[:, None] * points)
        centred = points - (sums / np.where(alive, mass, 1.0)[:, None])[groups]
    weighted = np.sqrt(weights)[:, None] * centred
    small = weighted.T @ weighted if weighted.shape[1] <= len(weighted) else weighted @ weighted.T
    eigenvalues = np.maximum(np.linalg.eigvalsh(small), 0.0) if small.size else np.zeros(0)
    return group_nats + 0.5 * float(np.log1p(eigenvalues).sum())


Kind = Literal["exact", "confidence", "empirical"]

LARGEST_POINT = 2.0**61
NOISELESS = "the output meets the budget as it is; no noise was added"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """A part of the output released exactly, one of ``bases`` per group; curator-only."""

    groups: Integers
    bases: Matrix

    def __post_init__(self) -> None:
        freeze(self.groups)
        freeze(self.bases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The integers (and the group) that the released value is a function of."""

    integers: Integers
    group: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisePlan:
    """Noise law of one release, with its proved bounds.

    ``rule``, ``kind``, ``total_variance``, the bounds and ``notes`` are public; the frame, the
    lattice points, the revealed part and the outputs are curator-only.
    """

    rule: str
    kind: Kind
    frame: Frame
    center: Vector
    grid_step: Vector
    units_per_std: Integers
    points: Integers
    revealed: Revealed | None = None
    outputs: Matrix | None = None
    first_secret: int = 0
    iid_rule: IidRule | None = None
    log_det_nats: float = math.inf
    information: Estimate | None = None
    membership: MembershipRisk | None = None
    charges: Vector | None = None
    notes: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.center, self.grid_step, self.units_per_std, self.points):
            freeze(array)

    def __repr__(self) -> str:
        return (
            f"NoisePlan(rule={self.rule!r}, kind={self.kind!r}, directions={self.n_directions}, "
            f"total_variance={self.total_variance:.6g}, mi_upper={self.mi_upper:.6g})"
        )

    @property
    def n_directions(self) -> int:
        """Number of directions that carry noise."""
        return len(self.units_per_std)

    @property
    def n_subsets(self) -> int:
        """Number of candidates the plan was calibrated for."""
        return len(self.points)

    @property
    def noise_std(self) -> Vector:
        """Standard deviation of the noise along each direction (exact products)."""
        return self.grid_step * self.units_per_std

    @property
    def total_variance(self) -> float:
        """Expected squared length of the noise."""
        return float(np.square(self.noise_std).sum())

    def noise_covariance(self) -> Matrix:
        """Return the covariance of the noise in the output's own coordinates; curator-only."""
        factor = self.noise_factor()
        covariance: Matrix = factor.T @ factor
        return covariance

    def noise_factor(self) -> Matrix:
        """Return one row of length d per direction: its noise, one standard deviation long."""
        columns = [
            self.frame.expand(std * row)
            for std, row in zip(self.noise_std, np.eye(self.n_directions), strict=True)
        ]
        return np.stack(columns) if columns else np.zeros((0, len(self.center)))

    def noise_variances(self) -> Vector:
        """Return the variance of the noise in each of the output's own coordinates."""
        return self.frame.variances(np.square(self.noise_std))

    @property
    def is_noiseless(self) -> bool:
        """Whether the output is released without noise."""
        return self.n_directions == 0

    @property
    def mi_upper(self) -> float:
        """The best proved upper bound on the mutual information, in nats."""
        upper = math.inf if self.information is None else self.information.upper
        return min(self.log_det_nats, upper)

    @property
    def total_variation_slack(self) -> float:
        """Distance of the sampled law from the continuous one (claim L-2)."""
        return lattice_total_variation_bound(self.n_directions, self.units_per_std)

    def lattice_points(self, outputs: Matrix) -> Integers:
        """Return the integer position of every output along each direction."""
        if self._is_calibrated_on(outputs):
            return self.points
        if self.revealed is not None:
            raise MechanismError(
                "outputs must be those the plan was calibrated on, because a part of them is "
                "released without noise; got other outputs. Calibrate on these outputs."
            )
        return _round_to_grid(self.frame.coordinates(outputs), self.grid_step)

    def whitened(self, outputs: Matrix) -> Matrix:
        """Return each output's position in units of the noise."""
        scaled: Matrix = self.lattice_points(outputs) / self.units_per_std
        return scaled

    def view(self, outputs: object, log_belief: Vector | None = None) -> View:
        """Return the attacker's view of a release of one of ``outputs``."""
        return make_view(
            self.whitened(as_outputs(outputs)),
            log_belief,
            groups=self.groups,
            slack=self.total_variation_slack,
        )

    @property
    def groups(self) -> Integers | None:
        """Groups of candidates that the release tells apart without noise."""
        return None if self.revealed is None else self.revealed.groups

    def _is_calibrated_on(self, outputs: Matrix) -> bool:
        calibrated = self.outputs
        if calibrated is None or outputs is calibrated:
            return calibrated is not None
        return outputs.shape == calibrated.shape and all(map(np.array_equal, outputs, calibrated))

    def observe(self, index: int, source: BitSource) -> Observation:
        """Draw the noise for candidate ``index``: the only use of the secret."""
        noise = sample_discrete_gaussian(self.units_per_std, source)
        group = None if self.revealed is None else int(self.revealed.groups[index])
        return Observation(integers=self.points[index] + noise, group=group)

    def value_of(self, observation: Observation) -> Vector:
        """Return the released vector: post-processing of the observation."""
        base = self.center
        if self.revealed is not None and observation.group is not None:
            base = self.revealed.bases[observation.group]
        if self.is_noiseless:
            return base.copy()
        released: Vector = base + self.frame.expand(self.grid_step * observation.integers)
        return released

    def log_likelihood(self, observation: Observation) -> Vector:
        """Return the log likelihood of an observation under every candidate, up to a constant."""
        offset = (observation.integers - self.points) / self.units_per_std
        log_likelihood: Vector = -0.5 * np.einsum("kq,kq->k", offset, offset)
        if self.revealed is not None and observation.group is not None:
            log_likelihood[self.revealed.groups != observation.group] = -np.inf
        return log_likelihood


def _round_to_grid(coordinates: Matrix, grid_step: Vector) -> Integers:
    scaled = coordinates / grid_step
    if scaled.size and float(np.abs(scaled).max()) > LARGEST_POINT:
        raise BudgetError(
            "budget must leave noise of at least a trillionth of the output's range. "
            "Use a smaller budget."
        )
    return np.rint(scaled).astype(np.int64)


def make_plan(
    *,
    rule: str,
    frame: Frame,
    center: Vector,
    noise_std: Vector,
    values: Matrix,
    revealed: Revealed | None = None,
    kind: Kind = "exact",
    notes: tuple[str, ...] = (),
) -> NoisePlan:
    """Put a noise law on its lattice: grid, integer noise, integer points."""
    grid_step, units = lattice_grid(noise_std)
    return NoisePlan(
        rule=rule,
        kind=kind,
        frame=frame,
        center=center,
        grid_step=grid_step,
        units_per_std=units,
        points=_round_to_grid(frame.coordinates(values), grid_step),
        revealed=revealed,
        outputs=values,
        notes=notes,
    )


def log_det_of_plan(plan: NoisePlan, weights: Vector) -> float:
    """Return bound (2) for the integer noise of a plan, lattice slack included (claim N-4)."""
    points = plan.points / plan.units_per_std
    bound = log_det_of_points(points, weights, plan.groups)
    return bound * (1 + 1e-12) + information_slack_bound(plan.total_variation_slack, plan.n_subsets)


@dataclass(frozen=True, kw_only=True)
class PlanProblem:
    """One release to be calibrated; curator-only.

    ``caps`` and ``priors`` are the success per unit allowed by the release and possible before it;
    ``heat`` the balances that a release in a session is charged to; ``measured`` the spread, if
    known.
    """

    values: Matrix
    log_p: Vector
    gamma: float
    seed: int
    mi_nats: float | None = None
    pool: Pool | None = None
    caps: Vector | None = None
    priors: Vector | None = None
    heat: Heat | None = None
    measured: Spread | None = None

    def rng(self, stream: str, *indices: int) -> np.random.Generator:
        """Return the generator of a named stream of simulated draws."""
        return public_generator(self.seed, stream, *indices)

    @cached_property
    def spread(self) -> Spread:
        """Spread of the outputs over the pool, under the belief."""
        return self.measured or spread_of(self.values, np.exp(self.log_p))

    @property
    def claims(self) -> int:
        """Number of Monte-Carlo claims that share the failure probability."""
        return (self.mi_nats is not None) + (self.per_unit is not None)

    @property
    def per_unit(self) -> Vector | Heat | None:
        """Limits on each unit's membership: caps on success, or balances; None without limits."""
        return self.caps if self.heat is None else self.heat

    @cached_property
    def gaussian_nats(self) -> float:
        """The information budget that implies every limit (claim T-6)."""
        budgets = [] if self.mi_nats is None else [self.mi_nats]
        if self.caps is not None and self.pool is not None:
            limited = np.isfinite(self.caps)
            units = slice(None) if limited.all() else np.flatnonzero(limited)
            share, inside = unit_beliefs_of_view(self.pool, self.log_p, units)
            columns = [self.caps[units], share, inside]
            alike = len(share) > 0 and not any(map(np.ptp, columns))
            distinct = [x[:1] for x in columns] if alike else np.unique(np.stack(columns), axis=1)
            budgets += [mi_for_membership(*distinct)] if len(share) else []
        if self.heat is not None and self.pool is not None:
            budgets.append(self.heat.implied_nats(self.pool.counts() / self.pool.n_subsets))
        return min(budgets)

    def is_met(self, plan: NoisePlan) -> bool:
        """Whether every limit is proved for the plan."""
        if self.mi_nats is not None and plan.mi_upper > self.mi_nats:
            return False
        if self.heat is not None:
            return plan.charges is not None and bool((plan.charges <= self.heat.allowed).all())
        if self.caps is None:
            return True
        return plan.membership is not None and bool(
            (plan.membership.upper_per_unit <= self.caps).all()
        )

    def noiseless_plan(self, rule: str) -> NoisePlan | None:
        """Return the plan without noise; None if the limits forbid it."""
        values = self.values
        groups, nats = distinct_plan_outputs(values, self.log_p)
        if not self._allows(groups, nats):
            if float((values.max(axis=0) - values.min(axis=0)).max()) < SMALLEST_RANGE:
                raise MechanismError(
                    f"outputs must differ by at least {SMALLEST_RANGE:g} somewhere, so that the "
                    f"difference can be squared; they differ by less. Rescale them inside the "
                    f"mechanism."
                )
            return None
        _, first = np.unique(groups, return_index=True)
        return NoisePlan(
            rule=rule,
            kind="exact",
            frame=AxisFrame(axes=np.zeros(0, dtype=np.int64), center=values[0]),
            center=values[0].copy(),
            grid_step=np.zeros(0),
            units_per_std=np.zeros(0, dtype=np.int64),
            points=np.zeros((len(values), 0), dtype=np.int64),
            revealed=Revealed(groups=groups, bases=values[first]),
            outputs=values,
            log_det_nats=nats,
            information=Estimate.exact(nats),
            notes=(NOISELESS,),
        )

    def _allows(self, groups: Integers, nats: float) -> bool:
        if self.mi_nats is not None and nats > self.mi_nats:
            return False
        if self.pool is None or self.per_unit is None:
            return True
        view = make_view(np.zeros((len(groups), 1)), self.log_p, groups=groups)
        if self.heat is not None:
            paid = noiseless_heat_charges(view, self.pool, self.heat)
            return bool((paid <= self.heat.allowed).all())
        assert self.caps is not None  # one of the two limits membership
        if int(groups.max()) + 1 == len(groups) and not np.ptp(self.log_p):
            return not np.isfinite(self.caps).any()  # the output names the subset
        return bool((noiseless_membership(view, self.pool).per_unit <= self.caps).all())


def distinct_plan_outputs(values: Matrix, log_p: Vector) -> tuple[Integers, float]:
    """Group candidates whose outputs agree bit for bit; return the groups and their entropy."""
    group_of: dict[bytes, int] = {}
    rows = [(row + 0.0).tobytes() for row in values]  # +0.0 turns -0.0 to 0.0
    groups = np.array([group_of.setdefault(row, len(group_of)) for row in rows], dtype=np.int64)
    mass = np.bincount(groups, np.exp(log_p))
    return groups, float(entropy(np.log(mass[mass > 0]))) if len(group_of) > 1 else 0.0


def plan_caps(
    limits: Spent, caps: Vector | None, pool: Pool | None, log_p: Vector
) -> tuple[Vector | None, Vector | None]:
    """Return success caps and priors per unit; infinite caps do not bind, None without a limit."""
    if caps is None and limits.success_level is None:
        return None, None
    if pool is None:
        raise BudgetError(
            "pool must be given when membership is limited; got None. "
            "Pass the pool the outputs were computed on."
        )
    priors = Belief(log_p=log_p).success_per_unit(pool)
    if caps is None:
        assert limits.success_level is not None  # one of the two is given
        caps = np.broadcast_to(limits.success_level, pool.n_units)
    if np.shape(caps) != (pool.n_units,):
        raise BudgetError(
            f"caps must hold one success per unit ({pool.n_units}); got shape {np.shape(caps)}. "
            f"Pass None to use the budget's one number."
        )
    caps = np.where(np.asarray(caps) >= 1, np.inf, caps)
    if (caps <= priors).any():
        worst = float(priors.max())
        raise BudgetError(
            f"success must be above {worst:.4g}, the best guess that this pool allows on its "
            f"worst-placed unit before any release; got {float(caps.min()):.4g}. "
            f"Use a Balanced pool (prior exactly 1/2), more subsets, or a larger success."
        )
    return caps, priors
