"""Evidence of a release of sums with coins: the contribution of every unit, in whole numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Mask, Matrix, Vector
from pacprivacy._system import single_threaded
from pacprivacy.errors import PacPrivacyError
from pacprivacy.mechanism import Data
from pacprivacy.noise import SumPlan, charge_integers, plan_declared, plan_sums
from pacprivacy.release.coin_bundle import (
    ROUNDING,
    Above0,
    CoinProof,
    Number,
    Shape,
    records_of,
    unproved,
)
from pacprivacy.statistics import SumStatistic, UnitSums, declared_sums, statistic_with_coins

MAX_STORED_NUMBERS: Final = 10**6  # above it, the units that cost most and a digest of all
STORED_UNITS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinBundle(CoinProof):
    """Contribution of every unit, in whole numbers, and the noise; curator-only.

    ``integers`` has a line for every entry of a unit in a cell, ordered by cell (``starts``);
    ``units`` says whose it is. Of more than a million numbers only the entries of the thousand
    units that cost most are there; ``contributions_digest`` is of all ``n_entries``. ``clip`` is
    what :class:`~pacprivacy.Coins` says.
    """

    KIND: ClassVar[str] = "coins"

    integers: Integers
    units: Integers
    starts: Integers
    grid: Matrix
    units_per_std: Integers
    n_entries: Number
    clip: Above0 | Literal["auto"] | None = None
    contributions_digest: str

    def _shapes(self) -> dict[str, Shape]:
        (n_cells, rank), n_entries = self.grid.shape, len(self.integers)
        return {
            "integers": (np.int64, (n_entries, rank)),
            "units": (np.int64, (n_entries,)),
            "starts": (np.int64, (n_cells + 1,)),
            "grid": (np.float64, (n_cells, rank)),
            "units_per_std": (np.int64, (n_cells, rank)),
        }

    def _check_arrays(self) -> None:
        steps, starts, n_entries = self.units_per_std, self.starts, len(self.integers)
        if not ((steps > 0).all() and np.isfinite(self.grid).all() and (self.grid > 0).all()):
            raise ValueError("units_per_std")
        if starts[0] != 0 or starts[-1] != n_entries or (np.diff(starts) < 0).any():
            raise ValueError("starts")
        if n_entries and not 0 <= self.units.min() <= self.units.max() < self.n_units:
            raise ValueError("units")
        places = np.repeat(np.arange(len(starts) - 1), np.diff(starts)) * self.n_units + self.units
        if (np.diff(places) <= 0).any():  # squares of two entries in a cell would be added up
            raise ValueError("units")
        if self.n_entries < n_entries:
            raise ValueError("n_entries")

    @property
    def is_whole(self) -> bool:
        return self.n_entries == len(self.integers)

    @property
    def n_stored(self) -> int:
        """Number of units of which all entries are stored."""
        return self.n_units if self.is_whole else len(np.unique(self.units))

    @property
    def charges(self) -> Vector:
        """Charge of every stored unit, 0 for the others."""
        return charge_integers(
            self.integers, self.units, self.starts, self.units_per_std, self.n_units
        )

    @property
    def lattice(self) -> tuple[Vector, Integers]:
        return self.grid.ravel(), self.units_per_std.ravel()

    @property
    def not_checkable(self) -> Mapping[str, str]:
        if self.is_whole:
            return {}
        missing = self.n_units - self.n_stored
        return {
            "influence": f"that of {missing} of {self.n_units} units: the file has those that cost "
            f"most and a digest of all"
        }

    def check(self) -> None:
        """Refuse a bundle whose noise does not hide every stored unit."""
        self._check_parameter()
        charges = self.charges
        if not (charges <= self.limits() * ROUNDING).all():
            raise unproved("a unit changes the sums by more than is allowed")
        self._check_stored()
        self._check_declaration(charges)
        self._check_session(charges)

    def _check_stored(self) -> None:
        """Refuse other contributions than those of the digest, and fewer than a file can hold."""
        if not self.is_whole:
            n_numbers = self.n_entries * self.grid.shape[1]
            if n_numbers <= MAX_STORED_NUMBERS or self.n_stored != STORED_UNITS:
                raise unproved("contributions are missing")
            return
        digest = contributions_digest(self.units, self.starts, [self.integers.astype(np.float64)])
        if digest != self.contributions_digest:
            raise unproved("the digest is of other contributions")

    def _check_declaration(self, charges: Vector) -> None:
        """Refuse a promise about presence that noise, sums or published facts do not bear out."""
        declaration = self.declaration
        if declaration is None:
            return
        coordinates = sum(1 if axis.merged else len(axis.places) for axis in declaration.axes())
        if self.grid.shape != (declaration.n_cells, coordinates):
            raise unproved("the noise is of other sums than the declared ones")
        largest = declaration.unit_influence(self.grid, self.units_per_std)
        if largest > self.parameter:
            raise unproved(
                "a unit within the declaration may change the sums by more than is allowed"
            )
        if (charges > largest).any():
            raise unproved("a unit is outside the declaration")
        if self.stated.published or self.session is not None:
            raise unproved("facts of all records are published")


def contributions_digest(units: Integers, starts: Integers, blocks: Iterable[Matrix]) -> str:
    """Return the SHA-256 of all contributions: whole numbers, given in blocks of entries."""
    digest = hashlib.sha256()
    for array in (starts, units):
        digest.update(np.ascontiguousarray(array, dtype="<i8").data)
    for block in blocks:
        digest.update(np.ascontiguousarray(block, dtype="<f8").data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredContributions:
    """Contributions in a bundle, and the digest of all; curator-only."""

    integers: Integers
    units: Integers
    starts: Integers
    digest: str

    @classmethod
    def of(cls, plan: SumPlan, sums: UnitSums) -> Self:
        """Collect all entries; of more than a million numbers, those of the largest units."""
        units = np.asarray(sums.entry_units, dtype=np.int64)
        starts = np.asarray(sums.starts, dtype=np.int64)
        chosen = _chosen_entries(plan, units)
        kept: list[Integers] = []

        def blocks() -> Iterator[Matrix]:
            for entries, block in plan.integer_blocks(sums):
                stored = block if chosen is None else block[chosen[entries]]
                kept.append(stored.astype(np.int64))
                yield block

        digest = contributions_digest(units, starts, blocks())
        rank = plan.lattice.grid.shape[1]
        integers = np.concatenate(kept) if kept else np.zeros((0, rank), dtype=np.int64)
        if chosen is not None:
            starts = np.concatenate([[0], np.cumsum(chosen)])[starts].astype(np.int64)
            units = units[chosen]
        return cls(integers=integers, units=units, starts=starts, digest=digest)


def _chosen_entries(plan: SumPlan, units: Integers) -> Mask | None:
    """Return the stored entries: those of the units with the largest costs; None for all."""
    if len(units) * plan.lattice.grid.shape[1] <= MAX_STORED_NUMBERS:
        return None
    charges = np.where(np.bincount(units, minlength=len(plan.charges)) > 0, plan.charges, -1.0)
    if np.count_nonzero(charges >= 0) <= STORED_UNITS:
        return None
    largest = np.zeros(len(charges), dtype=np.bool_)
    largest[np.argpartition(charges, -STORED_UNITS)[-STORED_UNITS:]] = True
    return np.asarray(largest[units])


def recompute_contributions(
    bundle: CoinBundle | str | Path, mechanism: Any, data: Any, units: Any = None
) -> None:
    """Recompute the contribution of every unit from all records; refuse a bundle that differs.

    It also checks the units that the bundle of a large table does not hold. Takes the mechanism,
    the data and the units of the release.

    Guarantee
    ---------
    Claim R-1. Returns only if the charge of every unit, computed again, is within what is allowed,
    the noise is the one that follows from all records, and the digest is that of all integers.
    Another processor may round a matrix product to another integer; then this refuses.
    """
    held = CoinBundle.load(bundle) if isinstance(bundle, str | Path) else bundle
    held.check()
    statistic, records, codes = statistic_with_coins(*records_of(held, mechanism, data, units))
    if not isinstance(statistic, SumStatistic):
        raise unproved("the statistic is no function of sums")
    with single_threaded():
        try:
            plan, sums = _plan_again(held, statistic, records, codes)
        except PacPrivacyError:
            raise unproved("no noise follows from these records") from None
        digest = StoredContributions.of(plan, sums).digest
    lattice = plan.lattice
    if not np.array_equal(lattice.grid, held.grid):
        raise unproved("its grid does not follow from these records")
    if not np.array_equal(lattice.units_per_std, held.units_per_std):
        raise unproved("its noise does not follow from these records")
    if digest != held.contributions_digest:
        raise unproved("other contributions follow from these records")
    if not (plan.charges <= held.parameter * ROUNDING).all():
        raise unproved("a unit changes the sums by more than is allowed")


def _plan_again(
    held: CoinBundle, statistic: SumStatistic, records: Data, codes: npt.NDArray[Any] | None
) -> tuple[SumPlan, UnitSums]:
    """Find the noise of a bundle again, by the declarations or by all records."""
    success, keep = held.budget.success, held.keep
    if held.declaration is not None:
        rows = held.declaration.rows_per_unit
        _, declaration, sums = declared_sums(statistic, records, codes, rows)
        if declaration != held.declaration:
            raise unproved("its declaration is not that of the statistic")
        sums = sums.with_units(held.n_units)
        return plan_declared(sums, declaration, success=success, keep=keep), sums
    sums = statistic.contributions(records, codes).with_units(held.n_units)
    plan = plan_sums(
        sums,
        success=success,
        keep=keep,
        slopes=statistic.output_slopes(sums),
        clip=held.clip,
        allowed=None if held.session is None else held.session.allowed,
    )
    return plan, sums
