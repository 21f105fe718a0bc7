"""What curators' bundles of releases with coins share: the file, the session, common checks.

A kind of evidence is a bundle with its own arrays and checks: sums, steps of a descent, or
influence on average. Its fields are the layout of its file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, Self, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Vector, freeze
from pacprivacy.adversary import SESSION_SLACK, influence_parameter
from pacprivacy.budget import Membership, Spent
from pacprivacy.errors import CertificateError
from pacprivacy.mechanism import Data, Mechanism, as_mechanism, coerce_data, split_data_units
from pacprivacy.release.bundle import Arrays, CuratorBundle, CuratorStatements, Record
from pacprivacy.release.certificate import CertificateNoise
from pacprivacy.sample import code_units
from pacprivacy.statistics import Declaration
from pacprivacy.theory import lattice_total_variation_bound

LEDGER_ROUNDING: Final = 1e-9  # of squared influence: more than a ledger rounds a charge up
ROUNDING: Final = 1 + 1e-12
RELATIVE: Final = 1e-6  # other processors round sums differently

Above0: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Shape: TypeAlias = tuple[type[np.generic], tuple[int, ...]]


def unproved(reason: str) -> CertificateError:
    """Return the error of a bundle that does not show what a certificate says."""
    return CertificateError(
        f"bundle must prove the budget; {reason}. Do not rely on this certificate."
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinSession:
    """Where a release stands in its session; public but for what is said of each unit.

    ``charge`` is what the release adds to the busiest clock. ``clocks`` are what every unit had
    paid before it, ``allowed`` is the influence that each may have in it. ``absent`` is the largest
    clock of a unit that is no longer in the table; ``data_digest`` is of all records, as they were.
    """

    total: Spent
    before: Spent
    charge: Spent
    clocks: Vector = field(repr=False)
    allowed: Vector = field(repr=False)
    absent: Amount = field(default=0.0, repr=False)
    data_digest: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        freeze(self.clocks)
        freeze(self.allowed)


_OF_SESSION: Final = tuple(item.name for item in fields(CoinSession))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinEvidence(CuratorBundle):
    """Evidence for a release in which every unit has a coin; curator-only.

    ``keep`` is the probability with which a unit is used.
    """

    n_units: Positive
    keep: Annotated[float, msgspec.Meta(gt=0, le=1)]
    dimension: Number
    unit: str
    simulation: bool
    budget: Membership
    stated: CuratorStatements
    session: CoinSession | None = None

    def __post_init__(self) -> None:
        for name in self._shapes():
            freeze(getattr(self, name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(curator-only, {self.n_units} units)"

    @abstractmethod
    def _shapes(self) -> dict[str, Shape]:
        """Return dtype and shape of each array."""

    @abstractmethod
    def _check_arrays(self) -> None:
        """Raise ValueError for arrays that say nothing; ``verify`` judges what they say."""

    @property
    @abstractmethod
    def lattice(self) -> tuple[Vector, Integers]:
        """Grid step of every number with noise, and how many of them a deviation is."""

    @property
    def total_variation(self) -> float:
        """Distance of the sampled noise from a function of a continuous one (claim L-2)."""
        units = self.lattice[1].astype(np.float64)
        return lattice_total_variation_bound(len(units), units)

    @property
    def noise(self) -> CertificateNoise:
        """The noise in a few numbers."""
        return CertificateNoise.of(*self.lattice)

    def _contents(self) -> dict[str, Any]:
        """Return everything by name, as a file has it."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def to_archive(self) -> tuple[Arrays, Record]:
        """Return the arrays, and a record of plain JSON types."""
        content = self._contents()
        session, content["success"] = content.pop("session"), content.pop("budget").success
        content |= {name: session and getattr(session, name) for name in _OF_SESSION}
        arrays = {k: _narrow(item) for k, item in content.items() if isinstance(item, np.ndarray)}
        rest = {k: item for k, item in content.items() if k not in arrays and item is not None}
        return arrays, msgspec.to_builtins(rest)

    @classmethod
    def from_archive(cls, arrays: Arrays, record: Record) -> Self:
        """Rebuild a bundle; whatever does not fit together raises."""
        content = record | {name: _widen(array) for name, array in arrays.items()}
        content["budget"] = {"success": record["success"]}
        session = {name: content[name] for name in _OF_SESSION if content.get(name) is not None}
        content["session"] = msgspec.convert(session, CoinSession) if session else None
        bundle = msgspec.convert(content, cls)
        bundle._check_fit()
        bundle._check_arrays()
        return bundle

    def _check_fit(self) -> None:
        for name, (kind, shape) in self._shapes().items():
            array = getattr(self, name)
            if array.dtype != kind or array.shape != shape:
                raise ValueError(name)
        if self.session is not None:
            for each in (self.session.clocks, self.session.allowed):
                check_amounts(each, self.n_units)


def check_amounts(array: npt.NDArray[Any], n_units: int) -> None:
    """Raise ValueError unless there is one amount for each unit."""
    if array.dtype != np.float64 or array.shape != (n_units,):
        raise ValueError("session")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise ValueError("session")


def _narrow(array: np.ndarray) -> np.ndarray:
    """Return integers in half their size, where they fit."""
    if array.dtype != np.int64 or not array.size:
        return array
    limits = np.iinfo(np.int32)
    fits = limits.min <= array.min() and array.max() <= limits.max
    return array.astype(np.int32) if fits else array


def _widen(array: np.ndarray) -> np.ndarray:
    return array.astype(np.int64) if array.dtype == np.int32 else array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinProof(CoinEvidence):
    """Evidence that holds against whoever knows all other units.

    ``parameter`` is the influence that a unit may have, in deviations of the noise. With a
    ``declaration`` the noise follows from it alone.
    """

    parameter: Above0
    declaration: Declaration | None = None

    @property
    @abstractmethod
    def not_checkable(self) -> Mapping[str, str]:
        """Fields of the certificate that the bundle does not prove, besides the usual ones."""

    @abstractmethod
    def influence_text(self, largest: str) -> str:
        """Say whose influence was computed again; ``largest`` is the most that was allowed."""

    @abstractmethod
    def check(self) -> None:
        """Refuse a bundle whose noise does not hide every unit."""

    def limits(self) -> Vector:
        """Return the influence that each unit may have."""
        limits: Vector = np.full(self.n_units, self.parameter)
        return limits if self.session is None else np.minimum(limits, self.session.allowed)

    def _check_parameter(self) -> None:
        """Refuse noise with too few steps, and more influence than the budget stands for."""
        slack = self.total_variation
        if not slack < self.budget.success - 0.5:
            raise unproved("the noise has too few steps")
        if not self.parameter <= influence_parameter(self.budget.success, slack) * ROUNDING:
            raise unproved("the influence that is allowed is more than the budget stands for")

    def _check_session(self, charges: Vector) -> None:
        """Refuse clocks that pass the total, and a charge that does not follow from them (C-8)."""
        part = self.session
        if part is None:
            return
        total, charge = part.total.mu_squared, part.charge.mu_squared
        if total is None or charge is None or part.charge.n_releases != 1:
            raise unproved("the session has no total")
        if self.total_variation > SESSION_SLACK:
            raise unproved("the noise has too few steps for a session")
        before = part.before.mu_squared or 0.0
        latest = float((part.clocks + np.square(part.allowed)).max(initial=part.absent))
        if not max(latest, before + charge) <= total * ROUNDING + LEDGER_ROUNDING:
            raise unproved("the session's total is passed")
        busiest = float(part.clocks.max(initial=part.absent))
        added = float((part.clocks + np.square(charges)).max(initial=part.absent)) - busiest
        if not charge >= added * (1 - RELATIVE) - LEDGER_ROUNDING:
            raise unproved("the release costs more than it was charged")


def records_of(
    bundle: CoinEvidence, mechanism: Any, data: Any, units: Any
) -> tuple[Mechanism, Data, npt.NDArray[Any] | None]:
    """Return the prepared mechanism, all records and the number of the unit of each row.

    Refuses records of another number of units.
    """
    rows, labels = split_data_units(data, units)
    records = coerce_data(rows)
    codes, n_units = None, records.n_rows
    if labels is not None:
        codes, ids = code_units(labels, records.n_rows)
        n_units = len(ids)
    if n_units != bundle.n_units:
        raise unproved(f"it has {bundle.n_units} units and the data {n_units}")
    whole = as_mechanism(mechanism)
    if isinstance(bundle, CoinProof) and bundle.declaration is not None:
        whole = whole.reading_by_entry()
    return whole.prepare(records), records, codes
