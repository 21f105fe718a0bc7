"""Curators' bundles of releases with coins: their file and session, descents, and averages.

A kind of evidence is a bundle with its own arrays and checks: sums (in
:mod:`pacprivacy.release.sums_bundle`), steps of a descent, or influence on average. Its fields are
the layout of its file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Vector, freeze
from pacprivacy._system import single_threaded
from pacprivacy.adversary import SESSION_SLACK, InfluenceProof, influence_parameter
from pacprivacy.budget import Membership, Spent
from pacprivacy.errors import CertificateError, PacPrivacyError
from pacprivacy.mechanism import (
    Data,
    Mechanism,
    as_mechanism,
    coerce_data,
    plain_value,
    split_data_units,
    steps_of,
)
from pacprivacy.noise import (
    LEAST_STEPS_PER_STD,
    DescentPlan,
    StepNoise,
    plan_average,
    split_descent_units,
)
from pacprivacy.release.bundle import RELATIVE, Arrays, CuratorBundle, CuratorStatements, Record
from pacprivacy.release.certificate import CertificateNoise, compare_verified
from pacprivacy.sample import code_units
from pacprivacy.statistics import (
    AveragedStatistic,
    CoinUnits,
    Declaration,
    OrderStatistics,
    statistic_with_coins,
)
from pacprivacy.theory import lattice_total_variation_bound

LEDGER_ROUNDING: Final = 1e-9  # of squared influence: more than a ledger rounds a charge up
ROUNDING: Final = 1 + 1e-12
_PREFIX: Final = "proof_"  # of the arrays of a proof in a file

Above0: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Shape: TypeAlias = tuple[type[np.generic], tuple[int, ...]]


def unproved(reason: str) -> CertificateError:
    """Return the error of a bundle that contradicts its certificate."""
    return CertificateError(
        f"bundle must prove the budget; {reason}. Do not rely on this certificate."
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinSession:
    """Place of a release in its session; public but for figures of each unit.

    ``charge`` is added to the busiest clock. ``clocks`` are those of all units before the release,
    ``allowed`` the largest influence of each in it. ``absent`` is the largest clock of a unit that
    is no longer in the table; ``data_digest`` is of all records at the time.
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
        return CertificateNoise.of(*self.lattice)

    def _contents(self) -> dict[str, Any]:
        """Return everything by name, as a file has it."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def to_archive(self) -> tuple[Arrays, Record]:
        content = self._contents()
        session, content["success"] = content.pop("session"), content.pop("budget").success
        content |= {name: session and getattr(session, name) for name in _OF_SESSION}
        arrays = {k: _narrow(item) for k, item in content.items() if isinstance(item, np.ndarray)}
        rest = {k: item for k, item in content.items() if k not in arrays and item is not None}
        return arrays, msgspec.to_builtins(rest)

    @classmethod
    def from_archive(cls, arrays: Arrays, record: Record) -> Self:
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
    """Evidence that holds against an attacker who knows all other units.

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


# --- a descent -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentBundle(CoinProof):
    """Released integers and noise of every step, and the clock of every unit; curator-only.

    ``integers`` has shape (steps, features, scores), in steps of ``2^-bits``; before the draw there
    are none. ``spent`` is squared influence; ``rate`` of k-means is the number of its start. With
    the records, the steps can be replayed: they are a function of ``integers``.
    """

    KIND: ClassVar[str] = "descent"

    integers: Integers = field(repr=False)
    spent: Vector = field(repr=False)
    bits: Integers = field(repr=False)
    step_units: Integers = field(repr=False)
    n_features: Positive
    n_scores: Positive
    rate: Amount
    rows_digest: str

    def _shapes(self) -> dict[str, Shape]:
        n_steps = len(self.bits)
        return {
            "integers": (np.int64, (n_steps, self.n_features, self.n_scores)),
            "spent": (np.float64, (self.n_units,)),
            "bits": (np.int64, (n_steps,)),
            "step_units": (np.int64, (n_steps,)),
        }

    def _check_arrays(self) -> None:
        sensible = (self.step_units > 0).all() and (np.abs(self.bits) < 200).all()
        if not (len(self.bits) and sensible) or self.declaration is not None:
            raise ValueError("step_units")
        check_amounts(self.spent, self.n_units)

    @property
    def lattice(self) -> tuple[Vector, Integers]:
        n_numbers = self.n_features * self.n_scores
        return np.repeat(np.ldexp(1.0, -self.bits), n_numbers), np.repeat(
            self.step_units, n_numbers
        )

    @property
    def not_checkable(self) -> dict[str, str]:
        return {
            "influence": "that clocks are those of the records: with the data, recompute_descent "
            "replays the steps"
        }

    def check(self) -> None:
        """Refuse clocks above what the budget allows, and steps without their noise."""
        self._check_parameter()
        if not (self.step_units >= LEAST_STEPS_PER_STD).all():
            raise unproved("the noise has too few steps")
        limits = self.limits()
        self._check_session(limits)
        if not (self.spent <= np.square(limits) * ROUNDING).all():
            raise unproved("a unit paid more than is allowed")
        if len(self.integers) != len(self.bits):
            raise unproved("steps are missing")


def recompute_descent(
    bundle: DescentBundle | str | Path,
    mechanism: Any,
    data: Any,
    units: Any = None,
    *,
    value: Any = None,
) -> None:
    """Replay the steps of a descent from all records, and refuse a bundle that says otherwise.

    Takes the mechanism, the data and the units of the release, and its ``value``.

    Guarantee
    ---------
    Claim R-1. Returns only if features, targets and units are those of the digest, and the clock of
    every unit, computed again from its own gradients along the released steps, stays within what is
    allowed and is the one in the bundle, but for a millionth. A released value must follow from the
    steps, the last of which no clock shows.
    """
    held = DescentBundle.load(bundle) if isinstance(bundle, str | Path) else bundle
    held.check()
    prepared, records, codes = records_of(held, mechanism, data, units)
    steps = steps_of(prepared, records, codes)
    if steps is None:
        raise unproved("the mechanism is no descent")
    settings, records, codes = steps
    with single_threaded():
        problem = settings.problem(records.parts)
        plan = DescentPlan(
            settings=settings,
            batches=split_descent_units(problem, codes, held.n_units, settings.n_batches),
            rate=held.rate,
            noise=tuple(
                StepNoise(bits=int(bits), units_per_std=int(each))
                for bits, each in zip(held.bits, held.step_units, strict=True)
            ),
            keep=held.keep,
            parameter=held.parameter,
            allowed=np.square(held.limits()) * ROUNDING,
            rehearsed=np.zeros(problem.shape),
        )
        shape = (held.n_features, held.n_scores)
        if plan.rows_digest != held.rows_digest or problem.shape != shape:
            raise unproved("other features follow from these records")
        replayed = plan.replay(held.integers)
    if not np.allclose(replayed.spent, held.spent, rtol=RELATIVE, atol=1e-12):
        raise unproved("clocks are not those of the records")
    if value is not None:
        again = prepared.finish(replayed.weights)
        compare_verified(plain_value(value), plain_value(again), "value of the release")


# --- influence on average ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AverageBundle(CoinEvidence):
    """Evidence for the influence of units, and the noise; curator-only."""

    KIND: ClassVar[str] = "average"

    proof: InfluenceProof = field(repr=False)
    grid: Vector = field(repr=False)
    units_per_std: Integers = field(repr=False)

    def _shapes(self) -> dict[str, Shape]:
        shape = (self.grid.size,)
        return {"grid": (np.float64, shape), "units_per_std": (np.int64, shape)}

    def _check_arrays(self) -> None:
        if not ((self.units_per_std > 0).all() and (self.grid > 0).all()):
            raise ValueError("units_per_std")
        if not (len(self.grid) and np.isfinite(self.grid).all()):  # no noise hides nothing
            raise ValueError("grid")
        if self.session is not None or self.keep == 1.0:
            raise ValueError("session")

    @property
    def lattice(self) -> tuple[Vector, Integers]:
        return self.grid, self.units_per_std

    def _contents(self) -> dict[str, Any]:
        proof = {_PREFIX + name: array for name, array in self.proof.arrays.items()}
        return super(AverageBundle, self)._contents() | {"proof": self.proof.kind} | proof

    @classmethod
    def from_archive(cls, arrays: Arrays, record: Record) -> Self:
        parts = {k.removeprefix(_PREFIX): v for k, v in arrays.items() if k.startswith(_PREFIX)}
        proof = InfluenceProof.KINDS[record["proof"]].of_arrays(parts, record["keep"])
        return super(AverageBundle, cls).from_archive(arrays, record | {"proof": proof})


def recompute_average(
    bundle: AverageBundle | str | Path, mechanism: Any, data: Any, units: Any = None
) -> None:
    """Recompute the records around each quantile, and the noise; refuse a bundle that differs.

    Takes the mechanism, the data and the units of the release. A proof by draws is not recomputed:
    the file does not hold its seed.

    Guarantee
    ---------
    Claim R-1. Returns only if windows and noise are those that follow from all records.
    """
    held = AverageBundle.load(bundle) if isinstance(bundle, str | Path) else bundle
    statistic, records, codes = statistic_with_coins(*records_of(held, mechanism, data, units))
    if not isinstance(statistic, AveragedStatistic):
        raise unproved("the statistic is another")
    coins = CoinUnits(n_units=held.n_units, unit=held.unit, keep=held.keep, clip="auto", seed=0)
    value = statistic.on_samples(records, codes, coins)
    if not isinstance(value, OrderStatistics):
        raise CertificateError(
            "bundle must be that of quantiles, one row a unit; got a proof by draws, whose seed is "
            "in no file. Leave the data out."
        )
    with single_threaded():
        try:
            plan = plan_average(value, success=held.budget.success, keep=held.keep, seed=0)
        except PacPrivacyError:
            raise unproved("no noise follows from these records") from None
    again, stored = plan.proof.arrays, held.proof.arrays
    if again.keys() != stored.keys() or not all(
        np.array_equal(again[name], stored[name]) for name in again
    ):
        raise unproved("other records are around the quantiles")
    lattice = (plan.lattice.grid, plan.lattice.units_per_std)
    if not all(map(np.array_equal, lattice, held.lattice)):
        raise unproved("its noise does not follow from these records")
