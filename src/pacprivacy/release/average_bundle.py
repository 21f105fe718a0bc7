"""Evidence of a release with coins that is no function of sums: influence on average."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np

from pacprivacy._checks import Integers, Vector
from pacprivacy._system import single_threaded
from pacprivacy.adversary import InfluenceProof
from pacprivacy.errors import CertificateError, PacPrivacyError
from pacprivacy.noise import plan_average
from pacprivacy.release.bundle import Arrays, Record
from pacprivacy.release.coin_bundle import CoinEvidence, Shape, records_of, unproved
from pacprivacy.statistics import (
    AveragedStatistic,
    CoinUnits,
    OrderStatistics,
    statistic_with_coins,
)

_PREFIX: Final = "proof_"


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
        """Grid step of every number with noise, and how many of them a deviation is."""
        return self.grid, self.units_per_std

    def _contents(self) -> dict[str, Any]:
        proof = {_PREFIX + name: array for name, array in self.proof.arrays.items()}
        return super(AverageBundle, self)._contents() | {"proof": self.proof.kind} | proof

    @classmethod
    def from_archive(cls, arrays: Arrays, record: Record) -> Self:
        """Rebuild a bundle; whatever does not fit together raises."""
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
