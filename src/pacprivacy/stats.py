"""Statistics of a table by the names of its columns, ready for a private release.

>>> import numpy as np, pacprivacy as pac
>>> people = np.array([("north", 31.0), ("south", np.nan), ("south", 52.0), ("north", 40.0)] * 50,
...                   dtype=[("region", "U5"), ("age", "f8")])
>>> ages = pac.stats.mean("age", by="region", where="age >= 18")
>>> sorted(pac.privatize(ages, people, pac.Membership(0.6)).value)
['north', 'south']

A table is a pandas, polars or Arrow frame, or an array. A row with a gap is dropped, or the gap is
filled by what the used rows say. Names of columns and the levels of categories do not depend on who
is used: they are declared with ``levels``, or those that occur in all records, which the
certificate then lists as published without noise.

Over :class:`pacprivacy.Tables` every function takes ``table``: the name of a table, or joined ones
as SQL has them after FROM. A candidate then has the joined rows of its units:

>>> clinic_costs = pac.stats.mean("cost", by="region", table="visits JOIN people ON person = id")
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import scipy

from pacprivacy._checks import Matrix, as_told
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.mechanism import (
    Batch,
    Data,
    Mechanism,
    MechanismWrapper,
    coerce_data,
    subset_sums,
)
from pacprivacy.queries import CandidateTables, JoinedRows, Tables, joined_rows_plan
from pacprivacy.sample import Pool
from pacprivacy.statistics import (
    MOST_LEVELS,
    OLS,
    POLICIES,
    Compare,
    Histogram,
    LogisticRegression,
    Missing,
    OfficialTable,
    Poisson,
    Ridge,
    Statistic,
    SummedStatistic,
    TableCount,
    TableHistogram,
    TableMean,
    TableQuantiles,
    TableRate,
    TableSum,
    TableVariance,
)

__all__ = [
    "MOST_LEVELS",
    "POLICIES",
    "Missing",
    "Statistic",
    "count",
    "crosstab",
    "histogram",
    "logistic",
    "mean",
    "median",
    "official",
    "ols",
    "poisson",
    "quantiles",
    "rate",
    "ridge",
    "sum",
    "variance",
]

Names = str | Sequence[str] | None


def _names(option: str, names: Any) -> tuple[str, ...] | None:
    """Return names of columns as a tuple; refuse entries of columns without showing them."""
    if names is None or isinstance(names, str):
        return None if names is None else (names,)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise MechanismError(
            f"{option} must name columns; got {as_told(names)}. Write 'age' or ['age', 'income']; "
            "the table itself is passed to pac.privatize."
        )
    return tuple(names)


def _text(option: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise MechanismError(f"{option} must be text; got {as_told(value)}. Write it in quotes.")
    return value


def _mapping(option: str, value: Any, example: str) -> dict[str, tuple[str, ...]]:
    """Return texts by column; refuse entries of columns without showing them."""
    entries = {} if value is None else value
    plain = isinstance(entries, Mapping) and all(isinstance(name, str) for name in entries)
    texts = {} if not plain else {k: (v,) if isinstance(v, str) else v for k, v in entries.items()}
    if not plain or not all(isinstance(v, list | tuple) for v in texts.values()):
        raise MechanismError(
            f"{option} must be texts by column; got {as_told(value)}. Write {option}={example}."
        )
    return {name: tuple(str(item) for item in items) for name, items in texts.items()}


def _ranges(value: Any) -> dict[str, tuple[float, float]]:
    """Return declared ranges by column; refuse anything else without showing entries."""
    pairs = {} if value is None else value
    if isinstance(pairs, Mapping) and all(_is_range(*item) for item in pairs.items()):
        return {name: (float(low), float(high)) for name, (low, high) in pairs.items()}
    raise MechanismError(
        f"ranges must be pairs low < high by column; got {as_told(value)}. Write "
        "ranges={'age': (0, 100)}, known without the records."
    )


def _is_range(name: Any, pair: Any) -> bool:
    if not (isinstance(name, str) and isinstance(pair, list | tuple) and len(pair) == 2):
        return False
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in pair)
    return numbers and -math.inf < pair[0] < pair[1] < math.inf


class StatisticOptions(TypedDict, total=False):
    """Options of every statistic: fields of :class:`Statistic`, and ``table`` for joined tables."""

    by: Names
    where: str | None
    weights: str | None
    levels: Mapping[str, Sequence[Any]] | None
    missing: Missing
    fill: float | None
    categories: Names
    date_formats: Mapping[str, str] | None
    ranges: Mapping[str, tuple[float, float]] | None
    table: str | None


def _with_options(statistic: Statistic, options: StatisticOptions) -> Mechanism:
    """Set the options common to all statistics; refuse records passed as options."""
    known = StatisticOptions.__annotations__
    if wrong := sorted(options.keys() - known.keys()):
        raise MechanismError(
            f"options must be among {', '.join(known)}; got {', '.join(wrong)}. Check the spelling."
        )
    fill = options.get("fill")
    if fill is not None and (isinstance(fill, bool) or not isinstance(fill, int | float)):
        raise MechanismError(f"fill must be a number; got {as_told(fill)}. Write fill=0.")
    missing = options.get("missing", "drop")
    _text("missing", missing)
    formats = _mapping("date_formats", options.get("date_formats"), "{'day': '%d/%m/%Y'}")
    whole = replace(
        statistic,
        by=_names("by", options.get("by")) or statistic.by,
        where=_text("where", options.get("where")),
        weights=_text("weights", options.get("weights")),
        levels=_mapping("levels", options.get("levels"), "{'region': ['a', 'b']}"),
        missing=missing,
        fill=fill,
        categories=_names("categories", options.get("categories")) or (),
        date_formats={name: "".join(texts[:1]) for name, texts in formats.items()},
        ranges=_ranges(options.get("ranges")),
    )
    table = _text("table", options.get("table"))
    return whole if table is None else JoinedStatistic(inner=whole, table=table)


def _shares(q: Any) -> tuple[float, ...]:
    if not isinstance(q, list | tuple) or not all(isinstance(x, int | float) for x in q):
        raise MechanismError(
            f"q must be numbers between 0 and 1; got {as_told(q)}. Write q=(0.25, 0.5, 0.75)."
        )
    return tuple(sorted(map(float, q)))


def mean(columns: Names = None, **options: Unpack[StatisticOptions]) -> Mechanism:
    """Return the means of columns, or of each level of a category (its share).

    Parameters
    ----------
    columns : str or sequence of str, optional
        All columns that are not used otherwise by default.
    **options
        ``by``, ``where``, ``weights``, ``levels``, ``missing``, ``fill``, ``categories``,
        ``date_formats`` and ``ranges`` as in :class:`Statistic`; over several tables ``table``,
        what stands after FROM. So for the other functions here.
    """
    return _with_options(TableMean(columns=_names("columns", columns)), options)


def sum(columns: Names = None, **options: Unpack[StatisticOptions]) -> Mechanism:
    """Return the sums of columns; 0 for an empty group."""
    return _with_options(TableSum(columns=_names("columns", columns)), options)


def count(columns: Names = None, **options: Unpack[StatisticOptions]) -> Mechanism:
    """Return the number of rows, of entries of a column, or of each level of a category."""
    return _with_options(TableCount(columns=_names("columns", columns)), options)


def crosstab(rows: str, columns: str, **options: Unpack[StatisticOptions]) -> Mechanism:
    """Return the number of rows for each pair of levels of two categories."""
    by = _names("rows and columns", [rows, columns])
    return _with_options(TableCount(by=by or ()), options)


def variance(columns: Names = None, **options: Unpack[StatisticOptions]) -> Mechanism:
    """Return the variances of columns, with the divisor n - 1."""
    return _with_options(TableVariance(columns=_names("columns", columns)), options)


def rate(
    numerator: str, denominator: str, *, per: float = 1.0, **options: Unpack[StatisticOptions]
) -> Mechanism:
    """Return the sum of a column over that of another, times ``per``; by group."""
    columns = _names("numerator and denominator", [numerator, denominator])
    return _with_options(TableRate(columns=columns, per=float(per)), options)


def official(
    statistic: Mechanism,
    *,
    standard: Mapping[str, Mapping[str, float]] | None = None,
    compare: tuple[str, str] | None = None,
    how: Compare = "difference",
    margins: bool = False,
    base: float | None = None,
) -> Mechanism:
    """Return a table of a statistic by groups, worked up as offices publish it.

    Parameters
    ----------
    statistic : count, sum, mean or rate of this module
        Its groups (``by``) are the axes of the table.
    standard : mapping of str to mapping, optional
        Direct standardisation: ``{"age": {"0-39": 0.6, "40+": 0.4}}`` averages over age groups.
    compare : (str, str), optional
        ``("sex", "f")`` compares the other levels with ``f``, by their ``how``.
    margins : bool
        Add totals of counts or sums.
    base : float, optional
        Round counts or sums to multiples of it; margins still add up.
    """
    return OfficialTable(
        inner=statistic,  # type: ignore[arg-type]
        standard=standard or {},
        compare=compare,
        how=how,
        margins=margins,
        base=base,
    )


def median(columns: Names = None, **options: Unpack[StatisticOptions]) -> Mechanism:
    """Return the medians of columns."""
    return _with_options(TableQuantiles(columns=_names("columns", columns)), options)


def quantiles(
    columns: Names = None,
    *,
    q: Sequence[float] = (0.25, 0.5, 0.75),
    **options: Unpack[StatisticOptions],
) -> Mechanism:
    """Return quantiles of columns, by linear interpolation as in :func:`numpy.quantile`."""
    return _with_options(TableQuantiles(columns=_names("columns", columns), q=_shares(q)), options)


def histogram(
    column: str,
    *,
    bins: int | Sequence[float],
    ranges: tuple[float, float] | None = None,
    table: str | None = None,
    by: Names = None,
    where: str | None = None,
    weights: str | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
) -> Mechanism:
    """Return the numbers of rows by bins of a column; gaps are left out.

    ``bins`` are edges, or a number of bins of equal width between ``ranges``.
    """
    _text("column", column)
    if table is not None:
        counted = Histogram(bins=bins, ranges=ranges)
        filled = f"{_text('table', table)} WHERE {column} IS NOT NULL"
        return JoinedStatistic(inner=counted, table=filled, columns=column)
    if not isinstance(bins, int):
        edges = tuple(bins)
    elif ranges is None or bins < 1:
        raise MechanismError("ranges must be given with a number of bins, at least 1.")
    else:
        edges = tuple(np.linspace(ranges[0], ranges[1], bins + 1).tolist())
    options: StatisticOptions = {"by": by, "where": where, "weights": weights, "levels": levels}
    return _with_options(TableHistogram(columns=(column,), edges=edges), options)


def ols(target: str, columns: Names = None, **options: Unpack[StatisticOptions]) -> Mechanism:
    """Return the coefficients of least squares, by name, with an intercept.

    Of a category the first level is the reference. Rows with a gap in any column are left out.
    """
    return _with_options(
        OLS(target=_text("target", target), columns=_names("columns", columns)), options
    )


def ridge(
    target: str,
    columns: Names = None,
    *,
    penalty: float = 1.0,
    **options: Unpack[StatisticOptions],
) -> Mechanism:
    """Return the coefficients of a ridge regression, by name, with an intercept.

    ``penalty`` is the weight of the sum of their squares without the intercept's, for all records,
    with columns in deviations over these; a sample has its share of it. Otherwise as :func:`ols`.
    """
    if isinstance(penalty, bool) or not isinstance(penalty, int | float):
        raise MechanismError(f"penalty must be a number; got {as_told(penalty)}. Write penalty=1.")
    fitted = Ridge(
        target=_text("target", target),
        columns=_names("columns", columns),
        penalty=float(penalty),
    )
    return _with_options(fitted, options)


def logistic(target: str, columns: Names = None, **options: Unpack[StatisticOptions]) -> Mechanism:
    """Return the coefficients of a logistic regression: log odds of the target's second level."""
    return _with_options(
        LogisticRegression(target=_text("target", target), columns=_names("columns", columns)),
        options,
    )


def poisson(target: str, columns: Names = None, **options: Unpack[StatisticOptions]) -> Mechanism:
    """Return the coefficients of a Poisson regression with the logarithm as link."""
    return _with_options(
        Poisson(target=_text("target", target), columns=_names("columns", columns)), options
    )


# --- joined tables: the engine joins once, and every candidate has rows of its units -------------

_OURS = ("pac_u", "pac_two", "pac_unit")  # columns that are not the user's


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedStatistic(MechanismWrapper):
    """A statistic of the rows that a FROM clause gives on the tables of a candidate.

    ``rows`` are those of all units, and ``units`` the unit of each; None where rows have none of
    their own (two people in one row, say), and the tables of every candidate are joined anew.

    Guarantee
    ---------
    Claim Q-2. Both ways a candidate has the rows that the clause gives on the tables of Q-1.
    """

    table: str
    columns: str = "*"
    rows: Data | None = field(default=None, repr=False, compare=False)
    units: npt.NDArray[np.int64] | None = field(default=None, repr=False, compare=False)
    plan: JoinedRows | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return f"{self.inner.name} in {' '.join(self.table.split())}"

    def prepare(self, data: Data) -> Self:
        """Join the tables of all units, and fix the statistic on these rows."""
        tables = data.parts[0]
        if not isinstance(tables, Tables):
            raise DataError(
                f"data must be pac.Tables for a statistic of a table; got {type(tables).__name__}. "
                "Leave table out, or make Tables of your frames."
            )
        if self.rows is not None:
            return self
        plan, units = joined_rows_plan(self.table, tables, self.columns), None
        if plan.of_all is not None and not any(tables.ask(q)[0][0] for q in plan.crossings):
            frame = tables.ask(plan.of_all, fetch="to_arrow_table")
            if not any(frame.column("pac_two").to_pylist()):
                units = frame.column("pac_u").to_numpy().astype(np.int64)
        if units is None:
            frame = tables.take(np.arange(tables.n_units)).ask(plan.query, fetch="to_arrow_table")
        rows = coerce_data(_labelled(frame, plan))
        return replace(self, inner=self.inner.prepare(rows), rows=rows, units=units, plan=plan)

    def inner_records(
        self, data: Data, units: npt.NDArray[Any] | None
    ) -> tuple[Data, npt.NDArray[Any] | None]:
        """Return the joined rows of all units; refuse rows that are of two units."""
        if self.rows is None or self.units is None:
            raise DataError(
                "joined rows must each be of one unit where every unit has a coin; got rows of "
                "two. Use a pool: sample=pac.Balanced()."
            )
        return self.rows, self.units if units is None else np.asarray(units)[self.units]

    def coin_obstacle(self) -> str:
        """Return that a joined row may be of two units, which is known only when it is read."""
        return "a row of joined tables may be of two {units}"

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the statistic of one candidate."""
        candidate: CandidateTables = parts[0]
        if self.rows is None or self.units is None:
            plan = self.plan or joined_rows_plan(self.table, candidate.tables, self.columns)
            frame = candidate.ask(plan.query, fetch="to_arrow_table")
            return self.inner.evaluate((_labelled(frame, plan),), rng)
        inside = np.zeros(candidate.tables.n_units, dtype=np.bool_)
        inside[candidate.units] = True
        positions = np.flatnonzero(inside[self.units])
        return self.inner.evaluate(self.rows.take(positions), rng)

    @property
    def batch(self) -> Batch | None:
        """All candidates at once, if the statistic is a function of sums over rows."""
        summed = isinstance(self.inner, SummedStatistic) and self.inner.batch is not None
        return self._batch if summed and self.units is not None else None

    def _batch(self, data: Data, pool: Pool) -> Matrix:
        assert isinstance(self.inner, SummedStatistic)
        assert self.rows is not None  # fixed with the units
        assert self.units is not None
        features = self.inner.features(self.inner.read(self.rows.parts))
        places = (self.units, np.arange(len(self.units)))
        of_unit = scipy.sparse.csr_array(
            (np.ones(len(self.units)), places), shape=(pool.n_units, len(features))
        )
        sums = of_unit @ features
        return self.inner.combine(subset_sums(pool, lambda some: sums[some], sums.shape[1]))


def _labelled(frame: Any, plan: JoinedRows) -> Any:
    """Return the user's columns without names that occur in two tables."""
    labels = plan.labels
    once = [i for i, label in enumerate(labels) if labels.count(label) == 1]
    return frame.select([f"c{i}" for i in once]).rename_columns([labels[i] for i in once])
