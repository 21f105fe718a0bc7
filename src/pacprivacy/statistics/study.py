"""Several statistics in one release: one vector of sums, one noise, one promise.

The contributions of a unit to all statistics are one vector, and one noise hides it. So a unit pays
for its contributions together, not for the largest to each statistic. Sums that two statistics
share are released once, and tables that follow from each other agree after noise, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import scipy

from pacprivacy._checks import Integers, Matrix, Vector, as_told
from pacprivacy._values import SURVEY
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Columns, Data
from pacprivacy.statistics.binned import CountQuantiles
from pacprivacy.statistics.joint_sums import (
    JointStatistic,
    JointSums,
    TablePlace,
    least_deviation,
    shaping_slopes,
    sums_of_table,
)
from pacprivacy.statistics.official import OfficialTable
from pacprivacy.statistics.quantiles import TableQuantiles
from pacprivacy.statistics.regressions import OLS, MomentOLS, Ridge
from pacprivacy.statistics.table import Statistic
from pacprivacy.statistics.unit_sums import Sums, SumStatistic, UnitSums

LONGEST_LIST: Final = 80  # characters of names in the name of a study


@dataclass(frozen=True, slots=True, eq=False)
class Study(JointStatistic):
    """Several statistics in one release, under one budget and on one sample of coins.

    Parameters
    ----------
    statistics : mapping of str to statistic, or one statistic
        Statistics of :mod:`pacprivacy.stats`, by the names of their tables. Medians, quantiles and
        least squares are computed of noisy counts and products.
    importance : mapping of str to float, optional
        Weight of the squared error of a table; 1 by default. Errors are compared with those of a
        release of the table alone.
    weights : str, optional
        Column of survey weights, for all statistics without one.
    strata, cluster : str, optional
        Columns of the survey's design; intervals are then for the population.
    suppress : float, optional
        Show a number as ``..`` if its 95 % interval reaches further than this share of it to either
        side. Released values decide; the file of the release has all numbers.

    Examples
    --------
    >>> import numpy as np, pandas as pd, pacprivacy as pac
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"age": rng.integers(18, 90, 2000), "pay": rng.gamma(4, 500, 2000)})
    >>> study = pac.Study({"age": pac.stats.mean("age"), "pay": pac.stats.median("pay")})
    >>> sorted(pac.privatize(study, people, "membership<=0.6").value)
    ['age', 'pay']

    Guarantee
    ---------
    Claim C-31. The value is a function of noisy sums over units alone, so the promise of one
    release of sums (claim C-3) holds for all tables together.
    """

    statistics: Any
    _: KW_ONLY
    importance: Mapping[str, float] = field(default_factory=dict)
    weights: str | None = None
    strata: str | None = None
    cluster: str | None = None
    suppress: float | None = None
    places: tuple[TablePlace, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        named: Any = self.statistics
        if not isinstance(named, Mapping):
            named = {"value": named}
        if not (named and all(isinstance(name, str) for name in named)):
            raise MechanismError(
                f"statistics must be statistics by name; got {as_told(self.statistics)}. Write "
                "pac.Study({'age': pac.stats.mean('age')})."
            )
        tables = {name: self._weighted(name, each) for name, each in named.items()}
        object.__setattr__(self, "statistics", tables)
        if self.suppress is not None and not self.suppress > 0:
            raise MechanismError(f"suppress must be positive; got {self.suppress}. Write 0.3.")
        wrong = [name for name in self.importance if name not in tables]
        sizes = self.importance.values()
        if wrong or not all(0 < x < math.inf for x in sizes):
            raise MechanismError(
                f"importance must be positive numbers by the names of tables, {list(tables)}; got "
                f"{as_told(self.importance)}."
            )

    def _weighted(self, name: str, statistic: Any) -> Any:
        """Return a statistic as a function of sums, with the weights of the study."""
        joint = as_sums(statistic)
        if joint is None:
            raise MechanismError(
                f"a study must be of statistics of pac.stats that are functions of sums, medians, "
                f"quantiles or ols; got {type(statistic).__name__} for {name!r}. Release it by "
                "itself."
            )
        return with_weights(joint, self.weights)

    @property
    def name(self) -> str:
        names = ", ".join(self.tables)
        return f"study of {names if len(names) <= LONGEST_LIST else f'{len(self.tables)} tables'}"

    @property
    def tables(self) -> dict[str, Any]:
        return dict(self.statistics)

    @property
    def public(self) -> tuple[str, ...]:
        lines = [f"table {name!r}: {each.name}" for name, each in self.tables.items()]
        lines += [line for each in self.tables.values() for line in each.public]
        lines += [
            f"the error of {name!r} counts {size:g} times"
            for name, size in sorted(self.importance.items())
        ]
        if self.strata is not None or self.cluster is not None:
            drawn = [f"strata by {self.strata!r}"] if self.strata else []
            drawn += [f"clusters by {self.cluster!r}"] if self.cluster else []
            lines.append(
                f"{SURVEY}{', '.join(drawn)}; standard errors and intervals are for the population"
            )
        return tuple(dict.fromkeys(lines))

    @property
    def published(self) -> tuple[str, ...]:
        lines = [line for each in self.tables.values() for line in each.published]
        return tuple(dict.fromkeys((*lines, "how noise is shared out among tables")))

    @property
    def model(self) -> dict[str, Any]:
        return {"kind": "study", "tables": list(self.tables), "suppress": self.suppress}

    def prepare(self, data: Data) -> Self:
        prepared = {name: each.prepare(data) for name, each in self.tables.items()}
        places: list[TablePlace] = []
        start = first_centre = 0
        for each in prepared.values():
            sums = each.contributions(data)
            place = TablePlace(
                cells=sums.n_cells,
                block=sums.block,
                centres=len(sums.centre),
                numbers=len(each.value(sums.total())),
                start=start,
                first_centre=first_centre,
            )
            start, first_centre = start + place.cells * place.block, first_centre + place.centres
            places.append(place)
        return replace(self, statistics=prepared, places=tuple(places))

    def coin_obstacle(self) -> str | None:
        obstacles = (each.coin_obstacle() for each in self.tables.values())
        return next((obstacle for obstacle in obstacles if obstacle is not None), None)

    def contributions(self, data: Data, units: Integers | None = None) -> JointSums:
        return JointSums.of(tuple(each.contributions(data, units) for each in self.tables.values()))

    def output_slopes(self, contributions: UnitSums) -> npt.NDArray[np.float64]:
        """Return the derivatives of all tables, each over the noise that it would have alone.

        That is the least noise that hides all units but the ten largest.
        """
        assert isinstance(contributions, JointSums)
        rows, start = [], 0
        for (name, each), part in zip(self.tables.items(), contributions.parts, strict=True):
            stop = start + part.n_cells * part.block
            flat = shaping_slopes(each.output_slopes(part), part)
            size = least_deviation(contributions.values[:, start:stop], flat)
            if size > 0:
                whole = np.zeros((len(flat), contributions.block))
                whole[:, start:stop] = flat * (math.sqrt(self.importance.get(name, 1.0)) / size)
                rows.append(whole)
            start = stop
        return np.vstack([*rows, np.zeros((1, contributions.block))])[None]

    def _split(self, sums: Sums) -> Iterator[tuple[Any, Sums]]:
        for each, place in zip(self.tables.values(), self.places, strict=True):
            yield each, sums_of_table(sums, place)

    def value(self, sums: Sums, keep: float = 1.0) -> Vector:
        return np.concatenate([each.value(part, keep) for each, part in self._split(sums)])

    def own_deviations(self, sums: Sums) -> Vector:
        return np.concatenate([each.own_deviations(part) for each, part in self._split(sums)])

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        blocks = [each.flat_slopes(part) for each, part in self._split(sums)]
        return np.asarray(scipy.linalg.block_diag(*blocks))[None]

    def design_spread(
        self, moved: Callable[[], Matrix], data: Data, units: Integers | None
    ) -> tuple[Vector, int] | None:
        if self.strata is None and self.cluster is None:
            return None
        design = _SurveyDesign.read(data, units, strata=self.strata, cluster=self.cluster)
        return np.sqrt(design.variances(moved())), design.freedom

    def finish(self, value: Any) -> dict[str, Any]:
        tables, start = {}, 0
        numbers = np.asarray(value, dtype=np.float64)
        for (name, each), place in zip(self.tables.items(), self.places, strict=True):
            tables[name] = each.finish(numbers[start : start + place.numbers])
            start += place.numbers
        return tables


def as_sums(statistic: Any) -> Any:
    """Return a statistic as a function of sums; None if it cannot be one."""
    if isinstance(statistic, Ridge):
        return None
    if isinstance(statistic, OLS) and not isinstance(statistic, MomentOLS):
        return MomentOLS(**_fields(statistic))
    if isinstance(statistic, TableQuantiles):
        return CountQuantiles(q=statistic.q, **_fields(statistic))
    return statistic if isinstance(statistic, SumStatistic) else None


def _fields(statistic: Statistic) -> dict[str, Any]:
    return {each.name: getattr(statistic, each.name) for each in fields(Statistic)}


def with_weights(statistic: Any, weights: str | None) -> Any:
    if weights is None:
        return statistic
    if isinstance(statistic, OfficialTable):
        return replace(statistic, inner=with_weights(statistic.inner, weights))
    if not isinstance(statistic, Statistic) or statistic.weights is not None:
        return statistic
    return replace(statistic, weights=weights)


# --- intervals for the population ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _SurveyDesign:
    """The cluster of every unit and the stratum of every cluster; curator-only.

    Clusters count as drawn with replacement within strata, as in most survey programs. The variance
    of a smooth function of sums is that of its linearisation: each unit's influence is added up
    by cluster, and clusters are compared within their stratum.
    """

    clusters: Integers = field(repr=False)
    strata: Integers = field(repr=False)

    @classmethod
    def read(
        cls, data: Data, units: Integers | None, *, strata: str | None, cluster: str | None
    ) -> Self:
        """Read the design; every unit must be in one cluster and stratum."""
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
        return len(self.strata) - len(np.unique(self.strata))

    def variances(self, moved: Matrix) -> Vector:
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
