"""Input of mechanisms: rows in arrays, pandas or polars, their units, and class labels."""

from __future__ import annotations

import hashlib
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import narwhals as nw
import numpy as np
from narwhals.exceptions import NarwhalsError

from pacprivacy._checks import Array, Integers, Matrix, shorten
from pacprivacy._rounding import power_of_two
from pacprivacy.errors import DataError, MechanismError, UnitWarning
from pacprivacy.mechanism.columns import (
    data_table_columns,
    find_date_formats,
    is_data_table,
    read_data_table,
)
from pacprivacy.sample import Balanced, Pool, encode_pool_labels, named_pool_units

Labels = Array
Entries = tuple[Array, Array | None]  # of a column, and of texts the distinct ones
Features = Callable[[Integers], Matrix]
Classes = tuple[Any, ...]
Parts: TypeAlias = tuple[Any, ...]  # of the records, in their native types
MatrixLike: TypeAlias = Any  # an array, or a frame of any library
UnitLabels: TypeAlias = Any  # labels of the records, or the name of a column; None: each its own
Value: TypeAlias = Any  # what a mechanism returns: numbers, arrays, frames, estimators, nested

MINIMUM_ROWS: Final = 4
_NAMED: Final = 5  # columns that an error names before it only counts them
_PLAIN_KINDS: Final = "biufcUSMm"
_FEW: Final = 10  # levels that are too few for names
_MOST_ROWS_EACH: Final = 50  # on average; more are places or products, not people
_MOST_COLUMNS: Final = 1000  # whose entries are looked at; of more, those with such a name
_LAST_WORDS: Final = re.compile(
    r"ids?|uuid|guid|key|pseudonym|hash|mrn|ssn|pid|uid|email|login|username|people|nr|no|num|number"
    r"|(person|patient|customer|client|user|subject|member|employee|participant|respondent|student"
    r"|pupil|household|account|individual|citizen|resident|worker|driver|player|passenger|buyer"
    r"|owner|donor|child|mother|guest|tenant|borrower|insured|policyholder)(s|id)?"
)
_CODE: Final = re.compile(r"[A-Za-z]{1,6}[-_ ]?\d{4,}|\d{6,}|(?=.*\d)[0-9a-fA-F-]{8,}")
_CHUNK_NUMBERS: Final = 2**21  # float64 numbers held at a time, about 16 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """All records: arrays, frames or series of the same rows; one object if ``single``."""

    parts: Parts = field(repr=False)
    n_rows: int
    single: bool

    def take(self, rows: Integers) -> Parts:
        """Return copies of the chosen rows of every part; arrays are C-contiguous."""

        def of_part(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                return np.take(part, rows, axis=0)
            return (
                part.take(rows)
                if isinstance(part, KeyedRecords)
                else read_data_table(part)[rows].to_native()
            )

        return tuple(map(of_part, self.parts))

    def digest(self) -> str:
        """Return a hash of types, shapes and contents (hexadecimal, curator-only)."""
        state = hashlib.blake2b(digest_size=16)
        for part in self.parts:
            if isinstance(part, KeyedRecords):
                state.update(part.digest().encode())
            elif is_data_table(part):
                _digest_table(state, part)
            else:
                _digest_array(state, part)
        return state.hexdigest()


def coerce_data(data: Any) -> Data:
    """Check the data once and put it in a :class:`Data` record.

    A tuple means several parts with the same number of rows, such as ``(X, y)``. Plain numbers go
    in a list. Arrays must have no missing or infinite values. Frames may have gaps: they reach the
    function as they are, and mechanisms check what they use of them.
    """
    if isinstance(data, Data):
        return data
    single = not isinstance(data, tuple)
    sources = (data,) if single else data
    if not sources:
        raise DataError("data must have at least one part; got an empty tuple. Pass (X, y) or X.")
    names = ["data"] if single else [f"data[{i}]" for i in range(len(sources))]
    parts = tuple(_coerce_part(part, name) for part, name in zip(sources, names, strict=True))
    lengths = [len(part) for part in parts]
    for name, length in zip(names, lengths, strict=True):
        if length != lengths[0]:
            raise DataError(
                f"{name} must have as many rows as {names[0]} ({lengths[0]}); got {length}. "
                "Pass parts that describe the same records in the same order."
            )
    if lengths[0] < MINIMUM_ROWS:
        raise DataError(
            f"data must have at least {MINIMUM_ROWS} rows; got {lengths[0]}. "
            "Privacy comes from not knowing which rows were used: pass more records."
        )
    return Data(parts=parts, n_rows=lengths[0], single=single)


def split_data_units(data: Any, units: UnitLabels) -> tuple[Any, Any]:
    """Take the column of units out of a frame; without one, warn of columns that look like it."""
    parts = data if isinstance(data, tuple) else (data,)
    if units is None:
        names = tuple(dict.fromkeys(name for part in parts for name in _identities(part)))
        if names:
            warnings.warn(f"{identity_warning(names)} Pass units={names[0]!r}.", UnitWarning, 2)
    if not isinstance(units, str):
        return data, units
    for i, part in enumerate(parts):
        frame = read_data_table(part) if is_data_table(part) else None
        if isinstance(frame, nw.DataFrame) and units in frame.columns:
            rest = (*parts[:i], frame.drop(units).to_native(), *parts[i + 1 :])
            labels = named_pool_units(frame[units].to_numpy(), units)
            return rest if isinstance(data, tuple) else rest[0], labels
    raise DataError(
        f"units must hold a label for each row, or name a column of a frame; got {units[:60]!r}, "
        "which is no column. Pass an array, or check the name."
    )


def _identities(part: Any) -> tuple[str, ...]:
    if not is_data_table(part):
        return ()
    try:
        frame = read_data_table(part)
    except NarwhalsError:  # it is refused where it is read
        return ()
    if not isinstance(frame, nw.DataFrame) or len(set(frame.columns)) < len(frame.columns):
        return ()  # two columns of a name are refused where they are read

    def read(name: str) -> tuple[Array, Array | None]:
        column = frame[name].drop_nulls()
        text = column.dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object)
        return column.to_numpy(), column.unique().to_numpy() if text else None

    columns: list[Any] = frame.columns
    named = identity_names([name for name in columns if isinstance(name, str)])  # or numbers
    return tuple(name for name in named if is_repeated_identity(name, *read(name)))


# --- columns that say whose row it is -----------------------------------------------------------
#
# Where such a column repeats and is not declared as the unit, a promise about rows would pass for
# one about people. Nobody is refused for it: the curator is warned, and shown names alone.


def is_identity_column(n_levels: int, n_entries: int) -> bool:
    """Whether texts identify people: unique entries for all rows, or for most of many."""
    return n_levels == n_entries or (n_levels > _FEW and n_levels >= n_entries / 2)


def is_identity_name(name: str) -> bool:
    """Whether a column of this name may identify units."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower()
    return _LAST_WORDS.fullmatch((re.findall(r"[a-z]+", words) or [""])[-1]) is not None


def identity_names(columns: Sequence[str]) -> list[str]:
    """Return the columns to be looked at: all, or of many those with such a name."""
    return [name for name in columns if len(columns) <= _MOST_COLUMNS or is_identity_name(name)]


def is_repeated_identity(name: str, entries: Array, texts: Array | None) -> bool:
    """Whether a column identifies units, by its name or by codes in it, and repeats.

    ``texts`` are its distinct entries, if it has texts.
    """
    by_name = is_identity_name(name)
    if texts is None:
        whole = by_name and entries.dtype.kind in "iuf" and not (entries % 1 != 0).any()
        texts = np.unique(entries) if whole else entries
    n_texts = len(texts)
    if n_texts <= _FEW or not n_texts < len(entries) <= _MOST_ROWS_EACH * n_texts:
        return False
    written = [] if by_name else [str(text) for text in texts]
    return by_name or (all(map(_CODE.fullmatch, written)) and not find_date_formats(written))


def identity_warning(names: tuple[str, ...]) -> str:
    """Return the warning about columns of which :func:`is_repeated_identity` is true."""
    says = "seems to say whose row it is, and repeats"
    if len(names) > 1:
        says = "seem to say whose row it is, and repeat"
    return (
        f"{shorten(names)} {says}: each row is protected, not each person with all of their rows."
    )


# --- rows, numbers and labels --------------------------------------------------------------------


class KeyedRecords(ABC):
    """Data whose rows are units already, such as tables with keys."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, rows: Integers) -> Any:
        """Return the records of these units."""

    @abstractmethod
    def digest(self) -> str:
        """Return a hash of the contents; curator-only."""


def _coerce_part(part: Any, name: str) -> Any:
    if isinstance(part, KeyedRecords):
        return part
    if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
        raise DataError(
            f"{name} must have no missing values; got a masked array with masked entries. "
            "Fill or drop them first."
        )
    if is_data_table(part):
        try:
            read_data_table(part)
        except Exception as error:
            raise DataError(
                f"{name} must be a frame with distinct column names; got one that cannot be read "
                f"({type(error).__name__}). Rename the columns."
            ) from error
        return part
    if not isinstance(part, list | np.ndarray):
        raise DataError(
            f"{name} must be an array, a list, a pandas or polars frame or series; "
            f"got {type(part).__name__}. Convert it first, for example with np.asarray "
            "(a sparse matrix with .toarray(), a lazy frame with .collect())."
        )
    try:
        array = np.asarray(part)
    except ValueError as error:
        raise DataError(
            f"{name} must be rectangular; got rows of unequal length. Pad them or pass a frame."
        ) from error
    if array.ndim < 1:
        raise DataError(f"{name} must have rows; got a single number. Pass an array of records.")
    if array.dtype.kind in "OT":
        if not all(isinstance(item, str) for item in array.flat):
            raise DataError(
                f"{name} must hold numbers or strings without missing values; got an object array "
                "with something else. Convert it to a numeric dtype and fill or drop None."
            )
    elif array.dtype.names is not None and all(
        array.dtype[field].kind in _PLAIN_KINDS for field in array.dtype.names
    ):
        return array  # named columns, such as a frame has, and gaps as it may have them
    elif array.dtype.kind not in _PLAIN_KINDS:
        raise DataError(
            f"{name} must hold numbers, strings or dates; got dtype {array.dtype}. "
            "Pass one plain array per field, as a tuple or a frame."
        )
    elif not _is_complete(array):
        raise DataError(
            f"{name} must be finite everywhere; got NaN or infinite entries. "
            "Fill or drop them in the function: how to do so is part of it. A frame may have gaps."
        )
    return array


def _is_complete(array: Array) -> bool:
    if array.dtype.kind in "fc":
        return bool(np.isfinite(array).all())
    if array.dtype.kind in "Mm":
        return not bool(np.isnat(array).any())
    return True


def _digest_array(state: Any, array: Array) -> None:
    state.update(f"array {array.dtype.str} {array.shape}".encode())
    if array.dtype.kind in "OT":
        _digest_items(state, array.ravel().tolist())
    else:
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _digest_table(state: Any, part: Any) -> None:
    table = read_data_table(part)
    state.update(f"{type(table).__name__} {len(table)}".encode())
    for label, column in data_table_columns(table):
        state.update(f"column {label!r} {column.dtype}".encode())
        values = column.to_numpy()
        if values.dtype.kind in _PLAIN_KINDS:
            _digest_array(state, values)
        else:
            _digest_items(state, column.to_list())


def _digest_items(state: Any, items: list[Any]) -> None:
    for item in items:
        text = repr(item).encode()
        state.update(len(text).to_bytes(8, "little") + text)


def read_data_numbers(parts: Parts, name: str) -> Matrix:
    """Return the only part as float64, in its own shape; a frame as a matrix."""
    if len(parts) != 1:
        raise MechanismError(
            f"{name} must be given one part; got {len(parts)}. Pass X alone, or stack the columns."
        )
    part = parts[0]
    if is_data_table(part):
        table = read_data_table(part)
        columns = data_table_columns(table)
        _check_usable(columns, name)
        numbers = [_as_float(column.to_numpy(), name) for _, column in columns]
        return numbers[0] if isinstance(table, nw.Series) else np.column_stack(numbers)
    return _as_float(np.asarray(part), name)


def _check_usable(columns: list[tuple[str, nw.Series[Any]]], name: str) -> None:
    text = [label for label, c in columns if not (c.dtype.is_numeric() or c.dtype == nw.Boolean)]
    gaps = [label for label, c in columns if label not in text and not _is_whole(c)]
    for wrong, must, what in (
        (text, "numbers", "text or dates"),
        (gaps, "finite numbers without gaps", "missing or infinite values"),
    ):
        if wrong:
            listed = ", ".join(repr(label) for label in wrong[:_NAMED])
            more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            raise MechanismError(
                f"{name} must be given {must}; got {what} in {listed}{more}. Drop, fill or encode "
                "those columns inside your function, or use pacprivacy.stats, which can."
            )


def _is_whole(column: nw.Series[Any]) -> bool:
    if column.null_count() > 0:
        return False
    values = column.to_numpy()
    return values.dtype.kind not in "fc" or bool(np.isfinite(values).all())


def _as_float(array: Array, name: str) -> Matrix:
    if array.dtype.kind not in "biuf":
        raise MechanismError(
            f"{name} must be given numbers; got dtype {array.dtype}. Drop or encode that column."
        )
    return array.astype(np.float64, copy=False)


def read_data_columns(parts: Parts, name: str) -> Matrix:
    """Return the only part as a float64 matrix of rows and columns."""
    X = read_data_numbers(parts, name)
    if X.ndim > 2:
        raise MechanismError(
            f"{name} must be given a table of rows and columns; got {X.ndim} axes. Reshape it."
        )
    return X.reshape(len(X), 1) if X.ndim == 1 else X


# --- class labels ------------------------------------------------------------------------------


def read_labelled_data(parts: Parts, name: str) -> tuple[Matrix, Labels]:
    """Return the features as a float64 matrix and the labels as a vector."""
    if len(parts) != 2:
        raise MechanismError(
            f"{name} must be given features and labels; got {len(parts)} part"
            f"{'' if len(parts) == 1 else 's'}. Pass the tuple (X, y)."
        )
    X = read_data_columns(parts[:1], name)
    y = _read_labels(parts[1], name)
    if len(y) != len(X):
        raise MechanismError(
            f"{name} must be given one label for each of {len(X)} rows; got {len(y)}. "
            "Pass (X, y) with as many labels as rows."
        )
    return X, y


CLASS_LABELS: Final[tuple[str, ...]] = ("class labels: those that occur in the table",)


def find_data_classes(y: Labels, name: str, declared: Classes | None = None) -> Classes:
    """Return the sorted classes of all labels; declared classes keep their order and must occur."""
    distinct = np.unique(y)
    if distinct.dtype.kind == "f" and not (distinct == np.floor(distinct)).all():
        raise MechanismError(
            f"{name} must be given class labels; got fractional numbers. "
            "Bin a continuous target first, or use a regression."
        )
    classes: Classes = tuple(distinct.tolist())
    if declared is not None:
        if len(set(declared)) != len(declared) or set(declared) != set(classes):
            raise MechanismError(
                f"classes must be the {len(classes)} distinct labels of all records; got "
                f"{len(declared)} that differ from them. Leave classes=None to take them from it."
            )
        classes = tuple(declared)
    if len(classes) < 2:
        raise MechanismError(
            f"{name} must be given at least two classes; got {len(classes)}. "
            "Pass labels that differ between records."
        )
    return classes


def code_data_labels(
    y: Labels, classes: Classes, name: str, *, every_class: bool = True
) -> Integers:
    """Return the position of every label in the list of classes; refuse unknown labels."""
    order = np.argsort(np.asarray(classes), kind="stable")
    ordered = np.asarray(classes)[order]
    place = np.minimum(np.searchsorted(ordered, y), len(classes) - 1)
    if not (ordered[place] == y).all():
        raise MechanismError(
            f"{name} must be given labels of all records only; got another one. "
            "Call prepare(data) with all records first."
        )
    codes: Integers = order[place].astype(np.int64)
    counts = np.bincount(codes, minlength=len(classes))
    if every_class and not counts.all():
        raise MechanismError(
            f"{name} must see every one of the {len(classes)} classes in every subset; got a "
            f"subset without {np.count_nonzero(counts == 0)} of them. Draw the pool with "
            "Balanced(stratify=True) or Half(every_class=True), or merge rare classes."
        )
    return codes


def coarse_data_ranges(X: Matrix) -> Matrix:
    """Return a range for every column that shows no record: pairs low < high, shape (p, 2).

    The first and the last percentile, or the extremes where those are equal, rounded outwards to
    an eighth of the power of two above their distance.
    """
    ends = np.quantile(X, (0.01, 0.99), axis=0, method="nearest")
    ends = np.where(ends[0] < ends[1], ends, [X.min(axis=0), X.max(axis=0)])
    with np.errstate(over="ignore", invalid="ignore"):
        step = power_of_two(ends[1] - ends[0]) / 8.0
        return np.stack([np.floor(ends[0] / step) * step, np.ceil(ends[1] / step) * step], axis=1)


def check_data_varying(X: Matrix, name: str) -> None:
    flat = np.flatnonzero(X.min(axis=0) == X.max(axis=0))
    if flat.size:
        listed = ", ".join(str(column) for column in flat[:_NAMED])
        more = ", ..." if flat.size > _NAMED else ""
        raise MechanismError(
            f"{name} must be given features that vary; got {flat.size} constant "
            f"({'column' if flat.size == 1 else 'columns'} {listed}{more}, counted from 0). "
            "Drop them: they say nothing."
        )


def _read_labels(part: Any, name: str) -> Labels:
    if is_data_table(part):
        columns = data_table_columns(read_data_table(part))
        if len(columns) != 1:
            raise MechanismError(
                f"{name} must be given one column of labels; got {len(columns)}. Choose one."
            )
        y: Labels = columns[0][1].to_numpy()
    else:
        y = np.asarray(part)
        y = y.reshape(-1) if y.shape[1:] == (1,) else y
    if y.ndim != 1 or y.dtype.kind not in "biufUSOT":
        raise MechanismError(
            f"{name} must be given one label for each row, a number or a string; got shape "
            f"{y.shape} and dtype {y.dtype}. Pass a vector of classes."
        )
    return y


def check_data_classes(y: Labels) -> None:
    """Refuse targets of a classifier with one class, or with a class of one record."""
    from sklearn.utils.multiclass import check_classification_targets

    check_classification_targets(y)
    counts = np.unique(y, return_counts=True)[1]
    if len(counts) < 2:
        raise DataError(
            f"y must hold at least two classes; got {len(counts)} class. "
            "Pass labels that differ between records."
        )
    if counts.min() < 2:
        raise DataError(
            "y must hold at least two records of every class; got a class with one. That record "
            "could not be hidden: merge rare classes, or drop them."
        )


def choose_data_pool(y: Labels, units: UnitLabels) -> Balanced:
    """Return a pool that keeps a share of every class, if possible.

    Records of one unit are in or out together. If their labels differ, classes cannot be shared
    out and plain subsets are taken; a subset without some class is then refused when it is met.
    """
    if units is None:
        return Balanced(stratify=True, folds="auto")
    codes, n_units = encode_pool_labels(units, len(y), name="units")
    labels, _ = encode_pool_labels(y, len(y), name="y")
    pairs = np.unique(np.stack([codes, labels]), axis=1).shape[1]
    return Balanced(stratify=pairs == n_units, folds="auto")


# --- sums over the rows of every candidate, by matrix products in bounded memory ----------------


def row_blocks(pool: Pool, n_features: int) -> Iterator[tuple[Integers, Matrix]]:
    """Yield numbers of rows, and which candidates use them, for sums of so many features."""
    width = max(1, _CHUNK_NUMBERS // (pool.n_subsets + 2 * n_features))
    for start in range(0, pool.n_rows, width):
        rows = np.arange(start, min(start + width, pool.n_rows))
        yield rows, pool.rows_inside(start, int(rows[-1]) + 1).astype(np.float64)


def subset_sums(pool: Pool, features: Features, n_features: int) -> Matrix:
    """Return the sum of the features over the rows of every candidate, shape (m, n_features).

    ``features`` maps row numbers to a float64 matrix with one line per row.
    """
    sums = np.zeros((pool.n_subsets, n_features))
    for rows, inside in row_blocks(pool, n_features):
        sums += inside @ features(rows)
    return sums


def subset_sizes(pool: Pool) -> Matrix:
    """Return the number of rows of every subset, shape (m,)."""
    if pool.row_units is None:
        return pool.sizes().astype(np.float64)
    sizes = subset_sums(pool, lambda rows: np.ones((len(rows), 1)), 1)
    return sizes[:, 0]


def products_of_columns(X: Matrix) -> Matrix:
    """Return the products of every two columns, in the order of an upper triangle."""
    left, right = np.triu_indices(X.shape[1])
    products: Matrix = X[:, left] * X[:, right]
    return products


def symmetric_matrices(triangles: Matrix) -> Matrix:
    """Return the symmetric matrices with these upper triangles, shape (m, p, p)."""
    p = int((np.sqrt(8.0 * triangles.shape[1] + 1.0) - 1.0) / 2.0 + 0.5)
    left, right = np.triu_indices(p)
    full = np.zeros((len(triangles), p, p))
    full[:, left, right] = full[:, right, left] = triangles
    return full
