"""The curator's bundle of a descent with coins: what the steps released, and what units paid."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Vector, freeze
from pacprivacy._system import single_threaded
from pacprivacy.budget import Membership, Spent
from pacprivacy.mechanism import as_mechanism, coerce_data, split_data_units, steps_of
from pacprivacy.noise import LEAST_STEPS_PER_STD, DescentPlan, DescentUnits, StepNoise
from pacprivacy.release.bundle import (
    Arrays,
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
from pacprivacy.release.verification import READERS, RELATIVE
from pacprivacy.sample import code_units
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
    rate: Annotated[float, msgspec.Meta(ge=0)]  # of k-means: the number of its start
    dimension: Annotated[int, msgspec.Meta(ge=1)]
    unit: str
    rows_digest: str
    simulation: bool
    stated: CuratorStatements
    success: Annotated[float, msgspec.Meta(gt=0.5, lt=1)]
    total: Spent | None
    before: Spent | None
    charge: Spent | None
    absent: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    data_digest: str = ""


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
        """Claims that need the records to check: the charges follow from the gradients."""
        return {
            "influence": "that clocks are those of the records: with the data, recompute_descent "
            "replays the steps"
        }

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
            check_coin_session(self, self.session, limits)
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
        if part is not None:
            record |= {"absent": part.absent, "data_digest": part.data_digest}
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
                absent=read.absent,
                data_digest=read.data_digest,
            )
        elif (read.total, read.before, read.charge) != (None, None, None) or "clocks" in arrays:
            raise ValueError("session")
        bundle = cls(
            integers=arrays["integers"],
            spent=arrays["spent"],
            bits=arrays["bits"],
            step_units=arrays["step_units"],
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


def recompute_descent(
    bundle: DescentBundle | str | Path, mechanism: Any, data: Any, units: Any = None
) -> None:
    """Replay the steps of a descent from all records, and refuse a bundle that says otherwise.

    Takes the mechanism, the data and the units of the release.

    Guarantee
    ---------
    Claim R-1. Returns only if features, targets and units are those of the digest, and the clock of
    every unit, computed again from its own gradients along the released steps, stays within what is
    allowed and is the one in the bundle, but for a millionth.
    """
    held = DescentBundle.load(bundle) if isinstance(bundle, str | Path) else bundle
    held.check()
    rows, labels = split_data_units(data, units)
    records = coerce_data(rows)
    codes, n_units = None, records.n_rows
    if labels is not None:
        codes, ids = code_units(labels, records.n_rows)
        n_units = len(ids)
    if n_units != held.n_units:
        raise unproved(f"it has {held.n_units} units and the data {n_units}")
    prepared = as_mechanism(mechanism).prepare(records)
    steps = steps_of(prepared, records, codes)
    if steps is None:
        raise unproved("the mechanism is no descent")
    settings, records, codes = steps
    limits = np.full(n_units, held.parameter)
    if held.session is not None:
        limits = np.minimum(limits, held.session.allowed)
    with single_threaded():
        sorted_units, problem = DescentUnits.sort(settings.problem(records.parts), codes, n_units)
        plan = DescentPlan(
            settings=settings,
            problem=problem,
            units=sorted_units,
            rate=held.rate,
            noise=tuple(
                StepNoise(bits=int(bits), units_per_std=int(units))
                for bits, units in zip(held.bits, held.step_units, strict=True)
            ),
            keep=held.keep,
            parameter=held.parameter,
            allowed=np.square(limits) * _ROUNDING,
            rehearsed=np.zeros(problem.shape),
        )
        if plan.rows_digest != held.rows_digest or problem.shape != (
            held.n_features,
            held.n_scores,
        ):
            raise unproved("other features follow from these records")
        spent = plan.replay(held.integers).spent
    if not np.allclose(spent, held.spent, rtol=RELATIVE, atol=1e-12):
        raise unproved("clocks are not those of the records")
