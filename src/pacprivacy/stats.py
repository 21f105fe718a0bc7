"""Statistics of a table by the names of its columns, ready for a private release.

>>> import numpy as np, pacprivacy as pac
>>> people = np.array([("north", 31.0), ("south", np.nan), ("south", 52.0), ("north", 40.0)] * 50,
...                   dtype=[("region", "U5"), ("age", "f8")])
>>> ages = pac.stats.mean("age", by="region", where="age >= 18")
>>> sorted(pac.privatize(ages, people, pac.Membership(0.6)).value)
['north', 'south']

A table is a pandas, polars or Arrow frame, or an array. A row with a gap is dropped, or the gap is
filled from the used rows. Names of columns and levels of categories are the same for every
sample. Levels are declared with ``levels``; otherwise all records decide, and the certificate lists
them as published without noise.

Rows of several tables are joined before, and ``units`` names the person; or ask
:func:`pacprivacy.sql`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np

from pacprivacy._checks import as_told
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Mechanism
from pacprivacy.statistics import (
    MOST_LEVELS,
    OLS,
    POLICIES,
    Compare,
    LogisticRegression,
    Missing,
    OfficialTable,
    Poisson,
    Ridge,
    Statistic,
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


def _names(option: str, names: object) -> tuple[str, ...] | None:
    """Return names of columns as a tuple; refuse entries of columns without showing them."""
    if names is None or isinstance(names, str):
        return None if names is None else (names,)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise MechanismError(
            f"{option} must name columns; got {as_told(names)}. Write 'age' or ['age', 'income']; "
            "the table itself is passed to pac.privatize."
        )
    return tuple(names)


def _text(option: str, value: object) -> str | None:
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


def _ranges(value: object) -> dict[str, tuple[float, float]]:
    """Return declared ranges by column; refuse anything else without showing entries."""
    pairs = {} if value is None else value
    if isinstance(pairs, Mapping) and all(_is_range(*item) for item in pairs.items()):
        return {name: (float(low), float(high)) for name, (low, high) in pairs.items()}
    raise MechanismError(
        f"ranges must be pairs low < high by column; got {as_told(value)}. Write "
        "ranges={'age': (0, 100)}, known without the records."
    )


def _is_range(name: object, pair: object) -> bool:
    if not (isinstance(name, str) and isinstance(pair, list | tuple) and len(pair) == 2):
        return False
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in pair)
    return numbers and -math.inf < pair[0] < pair[1] < math.inf


class StatisticOptions(TypedDict, total=False):
    """Options of every statistic: fields of :class:`Statistic`."""

    by: Names
    where: str | None
    weights: str | None
    levels: Mapping[str, Sequence[Any]] | None
    missing: Missing
    fill: float | None
    categories: Names
    date_formats: Mapping[str, str] | None
    ranges: Mapping[str, tuple[float, float]] | None


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
    return replace(
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


def _shares(q: object) -> tuple[float, ...]:
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
        ``date_formats`` and ``ranges`` as in :class:`Statistic`; so for the other functions here.
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
    by: Names = None,
    where: str | None = None,
    weights: str | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
) -> Mechanism:
    """Return the numbers of rows by bins of a column; gaps are left out.

    ``bins`` are edges, or a number of bins of equal width between ``ranges``.
    """
    _text("column", column)
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
