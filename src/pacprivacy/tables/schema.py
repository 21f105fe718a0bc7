"""Schemas: TOML files that describe the columns of a table, to be edited by hand.

A schema says how a file is read, and declares ranges and levels. What ``pac schema`` guessed from
the records is listed in ``guessed``. Until the curator takes it out of that list, it decides how
the file is read, but counts as published exactly, never as declared.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Self, get_args

import numpy as np

from pacprivacy import stats
from pacprivacy._checks import listed, suggestion
from pacprivacy._system import read_regular
from pacprivacy.errors import DataError
from pacprivacy.mechanism import is_number_text
from pacprivacy.tables.cells import (
    BELOW_LIMIT,
    ColumnKind,
    ColumnSchema,
    LessThan,
    Reading,
    TableColumn,
)
from pacprivacy.tables.table import Table, read_table, table_identities

CHOOSE: Final = "?"  # a choice that the curator must make
GUESSES: Final = ("type", "date_format", "range", "levels")
SUFFIXES: Final = (".csv", ".parquet", ".xlsx", ".sav", ".dta", ".sas7bdat")
_KEPT_TEXTS: Final = ("text", "category")
_MILLISECONDS_A_DAY: Final = 86_400_000
_EXACT: Final = 2.0**53  # below it floats tell whole numbers apart
FEWEST_NUMBERS: Final = 0.5  # share of the levels of a text column with limits such as <5


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The columns of a table, and how its file is read.

    Guarantee
    ---------
    Claim M-7. Ranges, levels and formats of dates that ``guessed`` names are never declared.
    """

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    header_row: int | None = None
    unit: str | None = None
    weights: str | None = None
    missing: tuple[str, ...] = ()
    columns: Mapping[str, ColumnSchema] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a schema from a TOML file; refuse unknown keys."""
        try:
            content = tomllib.loads(read_regular(path).decode())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise DataError(
                f"{path} must be a schema in TOML; got: {reason}. Write one with: pac schema."
            ) from None
        described = content.pop("columns", {})
        if not isinstance(described, dict):
            raise DataError(f"columns in {path} must be tables such as [columns.age]; got another.")
        columns = {}
        for name, entries in described.items():
            if not isinstance(entries, dict):
                raise DataError(f"[columns.{name}] in {path} must be a table; got a value.")
            columns[name] = ColumnSchema(**_checked(ColumnSchema, entries, f"[columns.{name}]"))
        return cls(**_checked(Schema, content, str(path)), columns=columns)

    @classmethod
    def guess(cls, table: Table, reading: Reading) -> Self:
        """Describe the columns of a table; all ranges and levels are guesses."""
        columns = {name: _guess(column) for name, column in table.columns.items()}
        return cls(
            delimiter=reading.delimiter,
            decimal=reading.decimal,
            encoding=reading.encoding,
            sheet=reading.sheet,
            header_row=reading.header_row,
            columns=columns,
        )

    @property
    def reading(self) -> Reading:
        formats = {n: c.date_format for n, c in self.columns.items() if c.date_format is not None}
        return Reading(
            delimiter=self.delimiter,
            decimal=self.decimal,
            encoding=self.encoding,
            date_formats=formats,
            sheet=self.sheet,
            header_row=self.header_row,
            missing=self.missing,
            levels=self.levels,
            columns=self.columns,
        )

    def without_guessed_dates(self) -> Self:
        columns = {
            name: replace(column, type=None, date_format=None)
            if "date_format" in column.guessed
            else column
            for name, column in self.columns.items()
        }
        return replace(self, columns=columns)

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        return {
            name: column.levels
            for name, column in self.columns.items()
            if column.levels is not None and "levels" not in column.guessed
        }

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(n for n, column in self.columns.items() if column.type == "category")

    def ranges(self, names: Sequence[str] | None) -> dict[str, tuple[float, float]] | None:
        """Return the declared ranges of the columns of numbers; None if one of them has none."""
        chosen = [
            name
            for name in (self.columns if names is None else names)
            if name in self.columns
            and self.columns[name].type not in ("category", "id")
            and name not in (self.unit, self.weights)
        ]
        declared = {
            name: pair
            for name in chosen
            if (pair := self.columns[name].range) and "range" not in self.columns[name].guessed
        }
        return declared if declared and len(declared) == len(chosen) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as a dictionary, as the file has it; curator-only."""
        return tomllib.loads(self.to_toml())

    def to_toml(self, *, notes: Sequence[str] = ()) -> str:
        """Return the schema as a file, with comments at its top."""
        lines = [f"# {note}" for note in notes]
        lines += _entries(self, leave_out="columns")
        for name, column in self.columns.items():
            lines += ["", f"[columns.{json.dumps(name)}]", *_entries(column)]
        return "\n".join(lines) + "\n"


def schema_notes(table: Table) -> tuple[str, ...]:
    """Return advice for the curator on a guessed schema."""
    notes = [
        "For the curator: levels and ranges were read from the records.",
        'What "guessed" names is not declared. Check it, and take it out of the list.',
        'Add if they apply: unit = "...", weights = "...", missing = ["-9"].',
    ]
    if any(_has_commas(column) for column in table.columns.values()):
        notes.append('Numbers have a decimal comma. Add decimal = ",": --promise dp needs it.')
    for name in table_identities(table):
        notes.append(f"{json.dumps(name)} says whose row it is, and repeats: unit = ...?")
    if any(_has_limits(column) for column in table.columns.values()):
        notes.append('less_than = "?": choose limit, half, zero or gap for entries such as <5.')
    return tuple(notes)


def _has_commas(column: TableColumn) -> bool:
    return (
        column.numbers is not None
        and column.levels is not None
        and any("," in level for level in column.levels.tolist())
    )


def _has_limits(column: TableColumn) -> bool:
    """Whether a text column has numbers and detection limits, and nothing else."""
    if column.numbers is not None or column.levels is None:
        return False
    levels = [str(level) for level in column.levels.tolist()]
    plain = [level for level in levels if not BELOW_LIMIT.fullmatch(level)]
    return (
        len(plain) < len(levels)
        and len(plain) >= FEWEST_NUMBERS * len(levels)
        and all(is_number_text([level]) for level in plain)
    )


def _guess(column: TableColumn) -> ColumnSchema:
    if column.is_date:
        return ColumnSchema(
            type="date", date_format=column.date_formats[0], guessed=("type", "date_format")
        )
    if column.numbers is not None:
        return ColumnSchema(type="number", range=_coarse(column.numbers), guessed=("type", "range"))
    if _has_limits(column):
        return ColumnSchema(type="number", less_than=CHOOSE, guessed=("type",))  # type: ignore[arg-type]
    if column.is_id or column.levels is None:
        return ColumnSchema(type="id", guessed=("type",))
    if len(column.levels) > stats.MOST_LEVELS or column.date_formats or column.unclear:
        return ColumnSchema()
    levels = tuple(sorted(map(str, column.levels.tolist())))
    return ColumnSchema(type="category", levels=levels, guessed=("type", "levels"))


def _coarse(numbers: Any) -> tuple[float, float] | None:
    """Return a range of one digit around all numbers."""
    there = numbers[np.isfinite(numbers)]
    if not len(there):
        return None
    size = float(np.abs(there).max()) or 1.0
    step = 10.0 ** math.floor(math.log10(size))
    low, high = math.floor(float(there.min()) / step), -math.floor(-float(there.max()) / step)
    return float(f"{step * low:g}"), float(f"{step * max(high, low + 1):g}")


# --- a folder of tables, for queries ----------------------------------------------------------


def read_folder(
    folder: Path, schemas: Path | None, ids: Mapping[str, Collection[str]] | None = None
) -> dict[str, Any]:
    """Return the tables of a folder as Arrow tables, read by their schemas.

    ``schemas`` is a folder with ``NAME.toml`` for each table NAME that has a schema; if ``folder``
    is a file it is a file, or None. ``ids`` are columns by table that say whose row it is. These,
    the unit of a schema, and columns of type ``id``, ``text`` and ``category`` keep their entries
    as texts, as they are written: what others are called never changes the name of a unit.

    Guarantee
    ---------
    Claim C-16. The name of a unit is a function of its own entry, the schema and ``ids``.
    """
    ids = ids or {}
    if folder.is_file() and (schemas is None or schemas.is_file()):
        schema = Schema() if schemas is None else Schema.read(schemas)
        name = folder.name.partition(".")[0]
        return {name: _arrow(folder, schema, ids.get(name, ()))}
    if schemas is None or not (folder.is_dir() and schemas.is_dir()):
        raise DataError(
            f"--schema must be a folder of NAME.toml for a folder of tables, or a file for a file; "
            f"got {schemas} for {folder}. Put people.toml there for people.csv."
        )
    files = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES}
    described = {path.stem: Schema.read(path) for path in sorted(schemas.glob("*.toml"))}
    unknown = sorted(set(described) - set(files))
    if unknown or not files:
        got = f"{unknown[0]}.toml" if unknown else "no tables"
        raise DataError(
            f"each schema must be that of a table in {folder}; got {got}. Name it after the "
            "table's file."
        )
    return {
        name: _arrow(path, described.get(name, Schema()), ids.get(name, ()))
        for name, path in files.items()
    }


def declared_levels(schemas: Path) -> dict[str, tuple[str, ...]]:
    """Return the declared levels of a schema or of a folder of schemas, by column.

    Columns whose levels differ between two schemas are left out.
    """
    files = [schemas] if schemas.is_file() else sorted(schemas.glob("*.toml"))
    pairs = {pair for path in files for pair in Schema.read(path).levels.items()}
    names = [name for name, _ in pairs]
    return {name: levels for name, levels in pairs if names.count(name) == 1}


def _arrow(path: Path, schema: Schema, ids: Collection[str]) -> Any:
    import pyarrow as pa  # slow to import, and needed for queries only

    names = {name for name, column in schema.columns.items() if column.type == "id"}
    names |= set(ids) if schema.unit is None else {schema.unit, *ids}
    table = read_table(path, replace(schema.reading, ids=frozenset(names)))
    texts = names | {name for name, column in schema.columns.items() if column.type in _KEPT_TEXTS}
    return pa.table({name: _plain(table.columns[name], name in texts) for name in table.names})


def _plain(column: TableColumn, as_text: bool) -> Any:
    """Return numbers, dates or texts as Arrow keeps them, with nulls for gaps."""
    import pyarrow as pa

    gaps = column.gaps
    if column.numbers is None or (as_text and column.coded is not None):
        return pa.array(column.labels.tolist(), type=pa.string())
    if column.is_date:
        moments = np.rint(np.nan_to_num(column.numbers) * _MILLISECONDS_A_DAY).astype(np.int64)
        return pa.array(moments, mask=gaps).cast(pa.timestamp("ms"))
    there = np.where(gaps, 0.0, column.numbers)
    whole = bool((np.abs(there) < _EXACT).all() and (there % 1 == 0).all())
    if as_text and whole:  # of a file that has no texts of numbers
        labels = [None if gap else str(int(x)) for gap, x in zip(gaps, there, strict=True)]
        return pa.array(labels, type=pa.string())
    numbers = there.astype(np.int64) if whole else column.numbers
    return pa.array(numbers, mask=gaps)


# --- TOML -------------------------------------------------------------------------------------


def _entries(record: Any, *, leave_out: str = "") -> list[str]:
    lines = []
    for each in fields(record):
        value = getattr(record, each.name)
        if each.name == leave_out or value in (None, ()):
            continue
        written = [json.dumps(item) for item in value] if isinstance(value, tuple) else None
        text = json.dumps(value) if written is None else f"[{', '.join(written)}]"
        lines.append(f"{each.name} = {text}")
    return lines


_CHOICES: Final = {"type": get_args(ColumnKind), "less_than": get_args(LessThan)}
_TEXTS: Final = ("delimiter", "decimal", "encoding", "sheet", "unit", "weights", "date_format")


def _checked(kind: type[Any], entries: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the values of a table of the schema; refuse unknown keys and values of other kinds."""
    known = tuple(each.name for each in fields(kind) if each.name != "columns")
    values = {}
    for key, value in entries.items():
        if key not in known:
            advice = suggestion(key, known, otherwise=f"Use {listed(known)}.")
            raise DataError(f"{place} must have known keys; got {key!r}. {advice}")
        try:
            values[key] = _value(key, value)
        except (TypeError, ValueError) as error:
            raise DataError(f"{key} in {place} must be {error}; got {value!r}.") from None
    return values


def _value(key: str, value: Any) -> Any:
    if key in _CHOICES:
        if value not in _CHOICES[key]:
            raise ValueError(f"one of {', '.join(_CHOICES[key])}")
    elif key == "range":
        low, high = _pair(value)
        return low, high
    elif key == "header_row":
        if type(value) is not int or value < 1:
            raise ValueError("the number of a row, from 1")
    elif key in _TEXTS:
        if not isinstance(value, str) or not value:
            raise ValueError("a text")
    else:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ValueError('a list of texts, such as ["a", "b"]')
        if len(set(value)) != len(value) or (key == "guessed" and set(value) - set(GUESSES)):
            raise ValueError(f"distinct{f', of {listed(GUESSES)}' if key == 'guessed' else ''}")
        return tuple(value)
    return value


def _pair(value: Any) -> tuple[float, float]:
    numbers = [each for each in value if type(each) in (int, float) and math.isfinite(each)]
    if not isinstance(value, list) or len(numbers) != 2 or len(value) != 2 or value[0] >= value[1]:
        raise ValueError("[low, high] with low below high")
    return float(value[0]), float(value[1])
