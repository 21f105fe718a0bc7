"""Rows of a table as numbers: to fit a model, and to apply a released model.

Every candidate leaves out its gaps, or fills them from its own rows. Levels of categories are
declared, or those of all records: the same for every candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import scipy

from pacprivacy import stats
from pacprivacy._checks import Array, Matrix, listed, quoted
from pacprivacy.errors import DataError, PacPrivacyError
from pacprivacy.mechanism import (
    GAP_LEVEL,
    MINIMUM_ROWS,
    SECONDS_A_DAY,
    AppliedModel,
    Condition,
    Forest,
    LinearSVM,
    Value,
    code_column_levels,
    column_levels,
    declared_column_levels,
    is_number_text,
    plain_level,
)
from pacprivacy.release import Release
from pacprivacy.tables.table import Table, check_table_columns, check_table_finite

Ranges = tuple[float, float] | dict[str, tuple[float, float]]
Term = tuple[str, str, str | None]  # name of a number, its column, its level if it has one
Codes = npt.NDArray[np.int64]  # which level each row has; below 0 is a gap

RARE: Final = 20  # records; the name of a level with fewer may single somebody out
GAPS: Final = "missing values: "  # begins the note that counts them
SHOWN_COUNTS: Final = 12  # columns whose gaps are counted before the others only are


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Options of the user, besides budget and pool."""

    target: str | None = None
    columns: tuple[str, ...] | None = None
    unit: str | None = None
    bins: int | None = None
    ranges: Ranges | None = None
    clusters: int | None = None
    components: int | None = None
    C: float | None = None
    trees: int | None = None
    depth: int | None = None
    mi_nats: float | None = None
    universe_facts: bool = False
    by: tuple[str, ...] | None = None
    weights: str | None = None
    where: str | None = None
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: stats.Missing = "drop"
    fill: float | None = None
    q: tuple[float, ...] | None = None
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """Levels of the text columns in use; public."""

    levels: Mapping[str, tuple[str, ...]]
    declared: tuple[str, ...]
    reference: bool
    missing: str

    @classmethod
    def find(
        cls,
        table: Table,
        names: Sequence[str],
        options: ModelOptions,
        *,
        reference: bool = False,
        grouped: Sequence[str] = (),
    ) -> Self:
        """Return declared levels, or those of all records; refuse all unusable columns at once."""
        check_table_columns(table, (*options.levels, *options.categories))
        chosen = {*options.levels, *options.categories, *grouped}
        text = [n for n in names if table.columns[n].numbers is None or n in chosen]
        text += [name for name in grouped if name not in text]
        for name in text:
            if table.columns[name].by_entry and name not in options.levels:
                raise DataError(
                    f"--levels must name those of {name!r} where presence is hidden; got none for "
                    f'{name!r}. Write --levels "{name}=A,B"; of numbers, --ranges "{name}=0,100".'
                )
        _check_categories(table, names, text, options, grouped)
        if options.missing == "error":
            _refuse_gaps(table, (*names, options.target, options.weights))
        levels = {}
        for name in text:
            entries = _levels_of(table, name)
            if name in options.levels:
                kind = table.columns[name].compared().kind
                entries = declared_column_levels(name, options.levels[name], kind)
            gap = options.missing == "category" and table.columns[name].gaps.any()
            levels[name] = (*entries, GAP_LEVEL) if gap else tuple(entries)
        declared = tuple(name for name in text if name in options.levels)
        return cls(levels=levels, declared=declared, reference=reference, missing=options.missing)

    def expand(self, table: Table, names: Sequence[str]) -> tuple[tuple[str, ...], Matrix]:
        numbers, coded = self.terms(names), {}
        for name in (name for name in names if name in self.levels):
            levels = self.levels[name]
            gap_level = levels[-1] == GAP_LEVEL
            known = levels[:-1] if gap_level else levels
            entries = table.columns[name].entries
            coded[name] = code_column_levels(entries, known, gap_level=gap_level)
        X = _term_columns(table, numbers, self.levels, coded)
        return tuple(label for label, _, _ in numbers), X

    def terms(self, names: Sequence[str]) -> list[Term]:
        numbers: list[Term] = []
        for name in names:
            if name not in self.levels:
                numbers.append((name, name, None))
                continue
            levels = self.levels[name][1:] if self.reference else self.levels[name]
            numbers += [(f"{name}={level}", name, level) for level in levels]
        return numbers

    @property
    def declarations(self) -> tuple[str, ...]:
        notes = [f"levels of {name!r}: declared by the curator" for name in self.declared]
        if self.missing in ("drop", "mean"):
            how = "left out" if self.missing == "drop" else "filled by the mean of the rows used"
            notes.append(f"rows with a gap are {how}")
        return tuple(notes)

    def rare_notes(self, table: Table) -> tuple[str, ...]:
        """Return notes on levels with few records, for the curator alone."""
        rare: dict[str, int] = {}
        for name in self.levels:
            codes = table.columns[name].codes
            if name in self.declared or codes is None:
                continue
            counts = np.bincount(codes[codes >= 0])
            rare[name] = int(((counts > 0) & (counts < RARE)).sum())
        counted = [f"{name} {n:,}" for name, n in rare.items() if n]
        if not counted:
            return ()
        return (
            f"levels with fewer than {RARE} records, whose names are published: "
            f"{', '.join(counted[:SHOWN_COUNTS])}; --levels declares those to be shown",
        )

    @property
    def facts(self) -> tuple[str, ...]:
        measured = (name for name in self.levels if name not in self.declared)
        gaps = self.declared if self.missing == "category" else ()
        return (
            *(f"levels of {name!r}: those that occur in the table" for name in measured),
            *(f"whether {name!r} has gaps" for name in gaps),
        )


def _term_columns(
    table: Table,
    terms: Sequence[Term],
    levels: Mapping[str, Sequence[str]],
    coded: Mapping[str, Codes],
) -> Matrix:
    X = np.empty((table.n_rows, len(terms)))
    for j, (_, name, level) in enumerate(terms):
        if level is None:
            X[:, j] = table.columns[name].numbers
        else:
            codes, place = coded[name], levels[name].index(level)
            X[:, j] = np.where(codes < 0, np.nan, codes == place)
    return X


def _levels_of(table: Table, name: str) -> tuple[str, ...]:
    return column_levels(table.columns[name].entries)


def _check_categories(
    table: Table,
    names: Sequence[str],
    text: Sequence[str],
    options: ModelOptions,
    grouped: Sequence[str],
) -> None:
    """Refuse text that is neither numbers nor a category, for all columns in one message."""
    open_ = [name for name in text if name not in options.levels]
    unsure = [name for name in open_ if name not in options.categories]
    unclear = [name for name in unsure if table.columns[name].unclear]
    dates = [name for name in unsure if table.columns[name].is_unclear_date]
    rest = [name for name in open_ if name not in (*unclear, *dates)]
    numbers = [n for n in rest if n in unsure and n not in grouped and _is_number_text(table, n)]
    rest = [name for name in rest if name not in numbers]
    ids = [name for name in rest if table.columns[name].is_id]
    many = [n for n in rest if n not in ids and len(_levels_of(table, n)) > stats.MOST_LEVELS]
    wrong = (*numbers, *ids, *many, *unclear, *dates)
    if not wrong:
        return
    problems, advice = [], []
    if ids or many:
        name = (*ids, *many)[0]
        advice.append(
            f"If {name!r} says whose row it is, add --unit {quoted([name])}: without it rows are "
            "protected, not people."
        )
    if numbers:
        problems.append(f"numbers among the texts in {listed(numbers)}")
        advice.append(
            "Write numbers as 12.5 and gaps as NA in the file; or, if all entries may be published "
            f"as levels: --categories {quoted(numbers[:1])}. A schema reads entries such as <5 as "
            "numbers: pac schema."
        )
    if ids:
        problems.append(f"ids in {listed(ids)} (most records have an entry of their own)")
    if many:
        problems.append(f"more than {stats.MOST_LEVELS} levels in {listed(many)}")
        advice.append(f'Declare levels that matter: --levels "{many[0]}=A,B".')
    if unclear:
        problems.append(
            f"numbers such as 1,234 in {listed(unclear)}, which can be read in two ways"
        )
        advice.append("Say --decimal , or --decimal . .")
    if dates:
        problems.append(f"dates in {listed(dates)}, which can be read in more than one way")
        advice.append(date_format_advice(table, dates[0]))
    usable = [name for name in names if name not in wrong]
    if usable and not (unclear or dates):
        advice.append(f"Or leave them out: --columns {quoted(usable)}.")
    raise DataError(
        f"columns must hold numbers, dates or categories; got {' and '.join(problems)}. "
        + " ".join(advice)
    )


def _is_number_text(table: Table, name: str) -> bool:
    return table.columns[name].numbers is None and is_number_text(_levels_of(table, name))


def date_format_advice(table: Table, name: str) -> str:
    formats = table.columns[name].date_formats
    written = " or ".join(f'--date-format "{name}={each}"' for each in formats)
    return f"Say {written}."


def _refuse_gaps(table: Table, names: Sequence[str | None]) -> None:
    used = dict.fromkeys(name for name in names if name is not None)
    check_table_columns(table, tuple(used))
    wrong = [name for name in used if table.columns[name].gaps.any()]
    if wrong:
        raise DataError(
            f"columns must have no missing values with --missing error; got some in "
            f"{listed(wrong)}. Choose --missing drop, mean or category."
        )


def check_category_numbers(table: Table, names: Sequence[str]) -> None:
    for name in names:
        if table.columns[name].numbers is None:
            raise DataError(f"column {name!r} must hold numbers; got text. Choose another.")


def category_rows_where(table: Table, where: str | None) -> npt.NDArray[np.bool_]:
    """Return which rows meet the condition."""
    if where is None:
        return np.ones(table.n_rows, dtype=np.bool_)
    condition = Condition(where)
    check_table_columns(table, condition.columns)
    for name in condition.columns:
        if table.columns[name].unclear or table.columns[name].is_unclear_date:
            what, advice = "numbers such as 1,234", "Say --decimal , or --decimal . ."
            if not table.columns[name].unclear:
                what, advice = "dates", date_format_advice(table, name)
            raise DataError(
                f"where must compare columns that can be read in one way; got {what} in {name!r}, "
                f"which can be read in more than one. {advice}"
            )
    columns = {name: table.columns[name].compared() for name in condition.columns}
    condition.check(columns)
    return condition.rows(columns)


def category_gap_notes(
    table: Table,
    used: Sequence[str],
    kept: npt.NDArray[np.bool_],
    *,
    dropped: bool = True,
    where: str | None = None,
) -> tuple[str, ...]:
    """Return the numbers of gaps and of remaining rows, for the curator alone."""
    counts = {name: int(np.count_nonzero(table.columns[name].gaps)) for name in used}
    gaps = [f"{name} {number:,}" for name, number in counts.items() if number]
    notes = []
    if gaps:
        more = f" and {len(gaps) - SHOWN_COUNTS} more columns" if len(gaps) > SHOWN_COUNTS else ""
        notes.append(f"{GAPS}{', '.join(gaps[:SHOWN_COUNTS])}{more}")
    n_kept = int(kept.sum())
    if n_kept < table.n_rows or where is not None:
        met = [] if where is None else ["meet the condition"]
        how = " and ".join([*met, *(["are complete"] if dropped else [])])
        notes.append(f"{n_kept:,} of {table.n_rows:,} records {how}")
    return tuple(notes)


def category_range_notes(table: Table, options: ModelOptions) -> tuple[str, ...]:
    """Return the numbers of entries outside their declared ranges, for the curator alone."""
    ranges = options.ranges
    if ranges is None:
        return ()
    if isinstance(ranges, tuple):
        named = options.columns or ((options.target,) if options.target else tuple(table.columns))
        ranges = {name: ranges for name in named if name != options.unit}
    outside = []
    for name, (low, high) in ranges.items():
        numbers = table.columns[name].numbers if name in table.columns else None
        if numbers is not None and (n := int(((numbers < low) | (numbers > high)).sum())):
            outside.append(f"{name} {n:,}")
    if not outside:
        return ()
    more = f" and {len(outside) - SHOWN_COUNTS} more columns" if len(outside) > SHOWN_COUNTS else ""
    return (f"values outside the declared range: {', '.join(outside[:SHOWN_COUNTS])}{more}",)


def categories_as_fields(
    table: Table, names: Sequence[str], levels: Mapping[str, tuple[str, ...]]
) -> Array:
    """Return the columns as one structured array; gaps in text are empty texts."""
    fields: dict[str, Array] = {}
    for name in names:
        column = table.columns[name]
        if column.numbers is not None and column.is_date:
            moments = np.rint(np.nan_to_num(column.numbers) * (1000 * SECONDS_A_DAY))
            fields[name] = moments.astype("datetime64[ms]")
            fields[name][column.gaps] = np.datetime64("NaT")
            continue
        if column.numbers is not None:
            fields[name] = column.numbers
            continue
        assert column.levels is not None
        assert column.codes is not None
        written = column.levels.tolist()
        if name in levels:  # levels that are not declared are gaps
            known = {plain_level(level) for level in levels[name]}
            written = [text if plain_level(text) in known else "" for text in written]
        fields[name] = np.array([*written, ""])[column.codes]
    kinds = [(name, array.dtype) for name, array in fields.items()]
    data = np.empty(table.n_rows, dtype=kinds)
    for name, array in fields.items():
        data[name] = array
    return data


def check_category_rows(complete: npt.NDArray[np.bool_]) -> None:
    if np.count_nonzero(complete) < MINIMUM_ROWS:
        raise DataError(
            f"the columns must have at least {MINIMUM_ROWS} records without gaps; got "
            f"{np.count_nonzero(complete)}. Use fewer columns, or --missing mean."
        )


# --- a released model on new rows: post-processing, which costs no privacy ------------------------

# Predictions tell about the *new* rows, which are not protected.
Predicted = dict[str, Array]
MAX_EXPONENT: Final = 700.0  # exponentials beyond are infinite


def predict(release: Release, table: Table) -> tuple[Predicted, npt.NDArray[np.bool_]]:
    """Return the predictions of a released model, and the rows of the table that have one.

    Guarantee
    ---------
    Claim M-1. A function of the released value and of the new rows alone.
    """
    model = release.model
    if model is None:
        raise DataError(
            f"release must be of a model that predicts ({', '.join(sorted(APPLIES))}); got "
            f"{release.certificate.mechanism!r}. Release one with 'pac release --model ols'."
        )
    try:
        X = _design(model, table)
        known: npt.NDArray[np.bool_] = np.logical_not(np.isnan(X).any(axis=1))
        predictions = APPLIES[model["kind"]](model, release.value, X[known])
    except PacPrivacyError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise DataError(
            "release must hold the value of its model; got another. Use the file as it was written."
        ) from None
    predicted: Predicted = {}
    for name, column in predictions.items():
        predicted[name] = np.full(len(X), None, dtype=object)
        predicted[name][known] = column.tolist()
    return predicted, known


def _design(model: AppliedModel, table: Table) -> Matrix:
    """Return the terms of the model for every row, NaN for gaps."""
    numbers, levels = model["terms"], model["levels"]
    used = list(dict.fromkeys(column for _, column, _ in numbers))
    check_table_columns(table, used)
    text = [name for name in used if name not in levels and table.columns[name].numbers is None]
    if text:
        raise DataError(
            f"columns must hold numbers, as when the model was fitted; got text in {listed(text)}. "
            "Correct the file, or say --decimal."
        )
    coded = {name: _codes(table, name, levels[name]) for name in used if name in levels}
    X = _term_columns(table, numbers, levels, coded)
    check_table_finite(X, [label for label, _, _ in numbers])
    return X


def _codes(table: Table, name: str, levels: Sequence[str]) -> Codes:
    gap_level, column = levels[-1] == GAP_LEVEL, table.columns[name]
    codes = code_column_levels(
        column.labels, levels[:-1] if gap_level else levels, gap_level=gap_level
    )
    new = (codes < 0) & ~column.gaps
    if new.any():
        raise DataError(
            f"column {name!r} must hold levels that the model knows, {listed(levels)}; got another "
            f"in record {int(np.flatnonzero(new)[0]) + 1}. Leave those records out, or empty."
        )
    return codes


def _line(model: AppliedModel, value: Value, X: Matrix) -> Any:
    if "coef" in value:
        return value["intercept"] + X @ np.asarray(value["coef"])
    return value["intercept"] + X @ np.array([value[label] for label, _, _ in model["terms"]])


def _named(model: AppliedModel, predicted: Any) -> Predicted:
    return {f"predicted_{model['target']}": predicted}


def _odds(model: AppliedModel, value: Value, X: Matrix) -> Predicted:
    probability, classes = scipy.special.expit(_line(model, value, X)), np.array(model["classes"])
    likely = classes[(probability >= 0.5).astype(np.int64)]
    return {**_named(model, likely), f"probability_{classes[1]}": probability}


def _cluster(model: AppliedModel, value: Value, X: Matrix) -> Predicted:
    scales = np.asarray(model["scales"])
    apart = (X / scales)[:, None, :] - (np.asarray(value["centres"]) / scales)[None]
    return {"cluster": np.square(apart).sum(axis=2).argmin(axis=1)}


def _scores(model: AppliedModel, value: Value, X: Matrix) -> Predicted:
    scaled = (X - np.asarray(value["mean"])) / np.asarray(value["scales"])
    scores = scaled @ np.asarray(value["components"]).T
    return {f"component_{j + 1}": scores[:, j] for j in range(scores.shape[1])}


APPLIES: Final = {
    "ols": lambda m, v, X: _named(m, _line(m, v, X)),
    "ridge": lambda m, v, X: _named(m, _line(m, v, X)),
    "poisson": lambda m, v, X: _named(m, np.exp(np.minimum(_line(m, v, X), MAX_EXPONENT))),
    "logistic": _odds,
    "svm": lambda m, v, X: _named(m, LinearSVM().predict(v, X)),
    "forest": lambda m, v, X: _named(m, Forest().predict(v, X)),
    "kmeans": _cluster,
    "pca": _scores,
}
