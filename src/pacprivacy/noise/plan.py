"""The noise plan: which law of noise a release will use, on an integer lattice.

Along each direction the outputs are rounded to multiples of a power of two (the grid step) and
the noise is a discrete Gaussian in those multiples, so the release is a function of integers
whose law is known exactly (math §11).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import BitSource
from pacprivacy.adversary import MembershipRisk
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.noise.lattice import sample_discrete_gaussian
from pacprivacy.noise.rules import IidRule
from pacprivacy.noise.spread import Frame
from pacprivacy.theory import Estimate, lattice_total_variation

Kind = Literal["exact", "confidence", "empirical"]
Integers = npt.NDArray[np.int64]

UNITS_PER_STD = 1 << 20  # the grid is at most a millionth of the noise
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
class Proof:
    """The simulated draws behind one Monte-Carlo claim, so that it can be recomputed."""

    claim: Literal["information", "membership"]
    stream: str
    seed: int
    attempt: int
    n_draws: int
    gamma: float


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

    def revealed_groups(self, outputs: Matrix) -> Integers | None:
        """Return the group of each candidate that the release reveals without noise."""
        return None if self.revealed is None else self.revealed.groups

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


def lattice_grid(noise_std: Vector) -> tuple[Vector, Integers]:
    """Choose a power-of-two grid step per direction, and the noise in multiples of it.

    The noise is rounded up to a whole number of steps, at least ``UNITS_PER_STD`` of them.
    """
    if not (np.isfinite(noise_std).all() and (noise_std > 1e-280).all()):
        raise BudgetError(
            "noise_std must be positive, finite and not below 1e-280 in every direction. "
            "Rescale the mechanism's output."
        )
    _, exponent = np.frexp(noise_std / UNITS_PER_STD)
    grid_step = np.ldexp(1.0, exponent - 1)
    units = np.ceil(noise_std / grid_step).astype(np.int64)
    return grid_step, units


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
