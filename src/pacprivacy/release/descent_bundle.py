"""The curator's bundle of a descent with coins: what the steps released, and what units paid."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Vector, freeze
from pacprivacy.budget import Membership, Spent
from pacprivacy.noise import LEAST_STEPS_PER_STD
from pacprivacy.release.bundle import (
    Arrays,
    CuratorBundle,
    CuratorStatements,
    Record,
    read_bundle_archive,
    write_bundle_archive,
)
from pacprivacy.release.certificate import CertificateNoise
from pacprivacy.release.coin_certificate import (
    COIN_READERS,
    CoinProof,
    CoinSession,
    check_coin_parameter,
    check_coin_session,
    unproved,
)
from pacprivacy.release.verification import READERS
from pacprivacy.theory import lattice_total_variation_bound

KIND: Final = "descent"
_ARRAYS: Final = ("integers", "spent", "bits", "step_units")
_ROUNDING: Final = 1 + 1e-12


class _Record(msgspec.Struct, kw_only=True):
    """What a file says besides its arrays."""

    n_features: Annotated[int, msgspec.Meta(ge=1)]
    n_scores: Annotated[int, msgspec.Meta(ge=1)]
    n_units: Annotated[int, msgspec.Meta(ge=1)]
    keep: Annotated[float, msgspec.Meta(gt=0, le=1)]
    parameter: Annotated[float, msgspec.Meta(gt=0)]
    rate: Annotated[float, msgspec.Meta(gt=0)]
    dimension: Annotated[int, msgspec.Meta(ge=1)]
    unit: str
    rows_digest: str
    simulation: bool
    stated: CuratorStatements
    success: Annotated[float, msgspec.Meta(gt=0.5, lt=1)]
    total: Spent | None
    before: Spent | None
    charge: Spent | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentBundle(CoinProof):
    """What every step released, its noise, and what every unit paid in all; curator-only.

    ``integers`` has shape (steps, features, scores), in steps of ``2^-bits``; before the draw there
    are none. ``spent`` is squared influence. With the records, the steps can be replayed: they are
    a function of ``integers``.
    """

    integers: npt.NDArray[np.int64] = field(repr=False)
    spent: Vector = field(repr=False)
    bits: Integers = field(repr=False)
    step_units: Integers = field(repr=False)
    n_features: int
    n_scores: int
    n_units: int
    keep: float
    parameter: float
    rate: float
    dimension: int
    unit: str
    rows_digest: str
    simulation: bool
    budget: Membership
    stated: CuratorStatements
    session: CoinSession | None = None
    declaration: None = None

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            freeze(getattr(self, name))

    def __repr__(self) -> str:
        return f"DescentBundle(curator-only, {len(self.bits)} steps, {self.n_units} units)"

    @property
    def noise(self) -> CertificateNoise:
        """The noise in a few numbers."""
        n_numbers = self.n_features * self.n_scores
        grid = np.repeat(np.ldexp(1.0, -self.bits), n_numbers)
        return CertificateNoise.of(grid, np.repeat(self.step_units, n_numbers))

    @property
    def total_variation(self) -> float:
        """Distance of the sampled noise from a function of a continuous one (claim L-2)."""
        units = np.repeat(self.step_units.astype(np.float64), self.n_features * self.n_scores)
        return lattice_total_variation_bound(len(units), units)

    @property
    def not_checkable(self) -> dict[str, str]:
        """What every unit paid: it takes the records to compute gradients again."""
        return {"influence": "that clocks are those of the records; recompute them with the data"}

    def influence_text(self, largest: str) -> str:
        """Say whose influence was compared."""
        return f"the clock of every unit is at most at the square of {largest}"

    def check(self) -> None:
        """Refuse clocks above what the budget allows, and steps without their noise."""
        check_coin_parameter(self)
        if not (self.step_units >= LEAST_STEPS_PER_STD).all():
            raise unproved("the noise has too few steps")
        limits = np.full(self.n_units, self.parameter)
        if self.session is not None:
            limits = np.minimum(limits, self.session.allowed)
            check_coin_session(self, self.session, self.session.allowed)
        if not (self.spent <= np.square(limits) * _ROUNDING).all():
            raise unproved("a unit paid more than is allowed")
        if len(self.integers) != len(self.bits):
            raise unproved("steps are missing")

    def save(self, path: str | Path) -> None:
        """Write the bundle to a file that only its owner can read."""
        arrays: Arrays = {name: getattr(self, name) for name in _ARRAYS}
        part = self.session
        if part is not None:
            arrays |= {"clocks": part.clocks, "allowed": part.allowed}
        record: Record = {
            name: getattr(self, name)
            for name in (
                *("n_features", "n_scores", "n_units", "keep", "parameter", "rate", "dimension"),
                *("unit", "rows_digest", "simulation"),
            )
        }
        record |= {
            "stated": asdict(self.stated),
            "success": self.budget.success,
            "total": None if part is None else asdict(part.total),
            "before": None if part is None else asdict(part.before),
            "charge": None if part is None else asdict(part.charge),
        }
        write_bundle_archive(path, KIND, arrays, record)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a bundle; refuse damaged files."""
        return read_bundle_archive(path, {KIND: cls.from_archive})

    @classmethod
    def from_archive(cls, arrays: Arrays, record: Record) -> Self:
        """Rebuild a bundle; whatever does not fit together raises."""
        read = msgspec.convert(record, _Record)
        session = None
        if read.total is not None and read.before is not None and read.charge is not None:
            session = CoinSession(
                total=read.total,
                before=read.before,
                charge=read.charge,
                clocks=arrays["clocks"],
                allowed=arrays["allowed"],
            )
        elif (read.total, read.before, read.charge) != (None, None, None) or "clocks" in arrays:
            raise ValueError("session")
        bundle = cls(
            **{name: arrays[name] for name in _ARRAYS},
            n_features=read.n_features,
            n_scores=read.n_scores,
            n_units=read.n_units,
            keep=read.keep,
            parameter=read.parameter,
            rate=read.rate,
            dimension=read.dimension,
            unit=read.unit,
            rows_digest=read.rows_digest,
            simulation=read.simulation,
            budget=Membership(read.success),
            stated=read.stated,
            session=session,
        )
        _check_shapes(bundle)
        return bundle


READERS[KIND] = COIN_READERS[KIND] = DescentBundle.from_archive


def _check_shapes(bundle: DescentBundle) -> None:
    """Refuse arrays that do not fit together; what they say is for ``verify`` to judge."""
    n_steps = len(bundle.bits)
    wanted = {
        "integers": (np.int64, (n_steps, bundle.n_features, bundle.n_scores)),
        "spent": (np.float64, (bundle.n_units,)),
        "bits": (np.int64, (n_steps,)),
        "step_units": (np.int64, (n_steps,)),
    }
    for name, (kind, shape) in wanted.items():
        array = getattr(bundle, name)
        if array.dtype != kind or array.shape != shape:
            raise ValueError(name)
    if not (n_steps and (bundle.step_units > 0).all() and (np.abs(bundle.bits) < 200).all()):
        raise ValueError("step_units")
    clocks = [bundle.spent]
    if bundle.session is not None:
        clocks += [bundle.session.clocks, bundle.session.allowed]
    for each in clocks:
        if each.dtype != np.float64 or each.shape != (bundle.n_units,):
            raise ValueError("clocks")
        if not (np.isfinite(each).all() and (each >= 0).all()):
            raise ValueError("clocks")
