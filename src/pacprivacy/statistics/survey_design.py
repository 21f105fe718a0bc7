"""How a sample was drawn: strata, clusters, and the variance of estimates for the population.

Clusters count as drawn with replacement within strata, as in most survey programs. The variance of
a smooth function of sums is that of its linearisation: what every unit changes is added up by
cluster, and clusters are compared within their stratum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from pacprivacy._checks import Integers, Matrix, Vector
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Columns, Data


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SurveyDesign:
    """The cluster of every unit and the stratum of every cluster; curator-only."""

    clusters: Integers = field(repr=False)
    strata: Integers = field(repr=False)

    @classmethod
    def read(
        cls, data: Data, units: Integers | None, *, strata: str | None, cluster: str | None
    ) -> Self:
        """Read the design off the columns of a table; every unit is in one cluster and stratum."""
        frame = Columns(data.parts, wanted_by="a survey")
        rows = np.arange(frame.n_rows) if units is None else np.asarray(units)
        n_units = int(rows.max(initial=-1)) + 1
        of_stratum = np.zeros(n_units, dtype=np.int64)
        of_cluster = np.arange(n_units)
        if strata is not None:
            of_stratum = _codes_of_units(frame, strata, rows, n_units)
        if cluster is not None:
            of_cluster = _codes_of_units(frame, cluster, rows, n_units)
        # Names of clusters may be used again in another stratum.
        pairs = of_stratum * (int(of_cluster.max(initial=0)) + 1) + of_cluster
        _, first, clusters = np.unique(pairs, return_index=True, return_inverse=True)
        design = cls(clusters=clusters, strata=of_stratum[first])
        lonely = int(np.count_nonzero(np.bincount(design.strata) == 1))
        if lonely:
            raise MechanismError(
                f"every stratum must have at least two clusters; got {lonely} with one. Merge "
                "strata."
            )
        return design

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the variances: clusters less strata."""
        return len(self.strata) - len(np.unique(self.strata))

    def variances(self, moved: Matrix) -> Vector:
        """Return the variance of every estimate, given what every unit changes in it."""
        sizes = np.bincount(self.strata)
        variances = np.empty(moved.shape[1])
        for output, changes in enumerate(moved.T):
            totals = np.bincount(self.clusters, changes, minlength=len(self.strata))
            means = np.bincount(self.strata, totals) / np.maximum(sizes, 1)
            squares = np.bincount(self.strata, np.square(totals - means[self.strata]))
            variances[output] = squares @ (sizes / np.maximum(sizes - 1, 1))
        return variances


def _codes_of_units(frame: Columns, name: str, rows: Integers, n_units: int) -> Integers:
    """Return the code of every unit in a column; refuse gaps and units with several."""
    column = frame.column(name)
    gaps = column == None if column.dtype.kind == "O" else np.isnan(column)  # noqa: E711
    if gaps.any():
        raise MechanismError(f"column {name!r} must have no gaps for a survey; got some. Fill it.")
    codes = np.unique(column.astype(str), return_inverse=True)[1]
    of_unit = np.zeros(n_units, dtype=np.int64)
    of_unit[rows] = codes
    if (of_unit[rows] != codes).any():
        raise MechanismError(
            f"every unit must have one entry in column {name!r}; got units with several. Protect "
            f"whole clusters: units={name!r}."
        )
    return of_unit
