"""The noise plan: which law of noise a release will use, on an integer lattice.

Along each direction the outputs are rounded to multiples of a power of two (the grid step) and
the noise is a discrete Gaussian in those multiples, so the release is a function of integers
whose law is known exactly (math §11). The directions are those of a frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from pacprivacy._checks import Matrix, Vector, as_outputs, freeze
from pacprivacy._random import BitSource
from pacprivacy.adversary import (
    Candidates,
    Heat,
    MembershipRisk,
    View,
    make_view,
)
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.noise.lattice import Integers, lattice_grid, sample_discrete_gaussian
from pacprivacy.noise.spread_frames import Frame
from pacprivacy.theory import Estimate, lattice_total_variation

if TYPE_CHECKING:
    from pacprivacy.noise.iid import IidRule
    from pacprivacy.noise.proof import Proof

Kind = Literal["exact", "confidence", "empirical"]

LARGEST_POINT = 2.0**61


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """A part of the output that leaves without noise; curator-only.

    Candidates of one group agree on that part. ``bases[g]`` is the vector, of full length, that
    the noise is added to when the secret is in group ``g``.
    """

    groups: Integers
    bases: Matrix

    def __post_init__(self) -> None:
        freeze(self.groups)
        freeze(self.bases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What leaves: the integers (and the group) that the released value is a function of."""

    integers: Integers
    group: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisePlan:
    """Noise law for one release, with what was proved about it.

    ``rule``, ``kind``, ``total_variance``, the bounds and ``notes`` are public. The frame, the
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
        """Whether the output is released as it is."""
        return self.n_directions == 0

    @property
    def mi_upper(self) -> float:
        """The best proved upper bound on the mutual information, in nats."""
        upper = math.inf if self.information is None else self.information.upper
        return min(self.log_det_nats, upper)

    @property
    def total_variation_slack(self) -> float:
        """Distance of the sampled law from the continuous one (claim L-2)."""
        return lattice_total_variation(self.n_directions, self.units_per_std)

    def lattice_points(self, outputs: Matrix) -> Integers:
        """Return the integer position of every output along each direction."""
        if self._is_calibrated_on(outputs):
            return self.points
        if self.revealed is not None:
            raise MechanismError(
                "outputs must be those the plan was calibrated on, because a part of them is "
                "released without noise; got others. Calibrate on these outputs."
            )
        return _round_to_grid(self.frame.coordinates(outputs), self.grid_step)

    def whitened(self, outputs: Matrix) -> Matrix:
        """Return each output's position in units of the noise."""
        scaled: Matrix = self.lattice_points(outputs) / self.units_per_std
        return scaled

    def view(self, outputs: object, log_belief: Vector | None = None) -> View:
        """Return what the attacker compares when one of ``outputs`` is released."""
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

    def proved(
        self,
        proof: Proof,
        view: View,
        pool: Candidates | None = None,
        limit: Heat | Vector | None = None,
    ) -> NoisePlan:
        """Return the plan with the claim of a proof, computed on the draws that it names."""
        proofs = (*self.proofs, proof)
        if proof.claim == "information":
            return replace(self, information=proof.information(view), proofs=proofs)
        assert pool is not None  # a claim about membership is about a pool
        if proof.claim == "charges":
            assert isinstance(limit, Heat)  # a claim about charges is about balances
            return replace(self, charges=proof.charges(view, pool, limit), proofs=proofs)
        assert not isinstance(limit, Heat)  # a claim about membership has caps, or no limit
        return replace(self, membership=proof.membership(view, pool, limit), proofs=proofs)

    def _is_calibrated_on(self, outputs: Matrix) -> bool:
        mine = self.outputs
        if mine is None or outputs is mine:
            return mine is not None
        return outputs.shape == mine.shape and all(map(np.array_equal, outputs, mine))

    def observe(self, index: int, source: BitSource) -> Observation:
        """Draw the noise for candidate ``index``: the only place where the secret is used."""
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
