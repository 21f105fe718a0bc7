"""Conditions on single rows of a table, written as text.

Types decide what may be compared: numbers with numbers, dates with dates, texts with texts, and
texts for equality alone. Everything else is refused, and by all records: no refusal depends on the
rows of a sample.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.columns import (
    ISO,
    ComparedColumn,
    Mask,
    is_text_column,
    plain_level,
    read_dates,
)

_COMPARE: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
_ORDER: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_MIRRORED: Final = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_REWRITTEN: Final = re.compile(  # texts stay, names are taken out, a single = is made a double
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|`(?P<name>[^`]+)`|(?<![<>=!])=(?!=)"""
)
_ZONE: Final = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
_HOLDS: Final = {"number": "numbers", "boolean": "true and false", "date": "dates", "text": "text"}
_LARGEST_WHOLE: Final = 2**53  # from here on neighbours are one float


class Condition:
    """A condition on single rows, such as ``age >= 18 and region in ('north', 'south')``.

    Names are columns; those that are no identifiers go in backticks. Texts are in quotes, dates
    are texts such as ``'2024-05-31'``, or as the column has them. A row with a gap in a column that
    is named is not taken.

    Where presence is hidden, entries are read one by one. A column without a declared kind holds
    numbers where it is compared with numbers, else texts, and 01, 1.0 and 1 are one text; a date
    with a time is compared with a day as its day. An entry of another kind is a gap.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if not isinstance(text, str):
            raise self._wrong()
        self._quoted: list[str] = []

        def rewrite(match: re.Match[str]) -> str:
            if match["text"] is not None:
                return match[0]
            if match["name"] is None:
                return "=="
            self._quoted.append(match["name"])
            return f"_quoted_{len(self._quoted) - 1}"

        try:
            plain = _REWRITTEN.sub(rewrite, text.strip())
            self._tree = ast.parse(plain, mode="eval").body
            self._check(self._tree)
        except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
            raise self._wrong() from None

    @property
    def columns(self) -> tuple[str, ...]:
        names = (self._name(node) for node in ast.walk(self._tree) if isinstance(node, ast.Name))
        return tuple(dict.fromkeys(names))

    def check(self, columns: Mapping[str, ComparedColumn]) -> None:
        """Refuse comparisons of different kinds; ``columns`` are those of all records."""
        columns = self._settled(columns)
        for op, left, right in self._comparisons(self._tree):
            a, b = self._side(left), self._side(right)
            if isinstance(a, str) and isinstance(b, str):
                _check_columns(op, (a, columns[a]), (b, columns[b]))
                continue
            name, constant = (a, right) if isinstance(a, str) else (b, left)
            operator = op if isinstance(a, str) else _MIRRORED.get(type(op), type(op))()
            for literal in _items(_constant(constant, self._wrong)):
                _fit(literal, str(name), columns[str(name)])
                _check_operator(operator, literal, str(name), columns[str(name)])

    def rows(self, columns: Mapping[str, ComparedColumn]) -> Mask:
        """Return the rows that meet the condition, checked with all records before."""
        columns = self._settled(columns)
        met: Mask = np.asarray(self._evaluate(self._tree, columns), dtype=np.bool_)
        for name in self.columns:
            entries = columns[name].entries
            there = entries != None if is_text_column(entries) else ~np.isnan(entries)  # noqa: E711
            met = met & np.asarray(there, dtype=np.bool_)
        return met

    def _settled(self, columns: Mapping[str, ComparedColumn]) -> Mapping[str, ComparedColumn]:
        numbers: set[str] = set()
        texts: set[str] = set()
        for op, left, right in self._comparisons(self._tree):
            for side, other in ((left, right), (right, left)):
                name, beside = self._side(side), self._side(other)
                if name is None:
                    continue
                if beside is not None:
                    number = isinstance(op, _ORDER) or columns[beside].kind in ("number", "boolean")
                else:
                    literals = _items(_constant(other, self._wrong))
                    number = not any(isinstance(literal, str) for literal in literals)
                (numbers if number else texts).add(name)
        return {
            name: _settle(column, as_numbers=name in numbers - texts)
            for name, column in columns.items()
        }

    def _wrong(self) -> MechanismError:
        text: object = self.text
        shown = repr(text[:80]) if isinstance(text, str) else type(text).__name__
        return MechanismError(
            f"where must be a condition on columns; got {shown}. Write it as "
            "\"age >= 18 and region in ('north', 'south')\"; odd names go in `backticks`."
        )

    def _name(self, node: ast.Name) -> str:
        number = node.id.removeprefix("_quoted_")
        return self._quoted[int(number)] if number != node.id else node.id

    def _side(self, node: ast.expr) -> str | None:
        return self._name(node) if isinstance(node, ast.Name) else None

    def _check(self, node: ast.expr) -> None:
        """Refuse everything but comparisons of columns with constants, and, or, not."""
        match node:
            case ast.BoolOp(values=values):
                for value in values:
                    self._check(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._check(operand)
            case ast.Compare():
                for op, left, right in self._comparisons(node):
                    among = isinstance(op, ast.In | ast.NotIn)
                    constants = [
                        None if self._side(side) is not None else _constant(side, self._wrong)
                        for side in (left, right)
                    ]
                    lists = [isinstance(constant, tuple) for constant in constants]
                    if lists != [False, among] or not (among or type(op) in _COMPARE):
                        raise self._wrong()
                    if None not in constants:
                        raise self._wrong()
            case _:
                raise self._wrong()

    def _comparisons(self, node: ast.expr) -> Iterator[tuple[ast.cmpop, ast.expr, ast.expr]]:
        for part in ast.walk(node):
            if isinstance(part, ast.Compare):
                sides = [part.left, *part.comparators]
                yield from zip(part.ops, sides, sides[1:], strict=False)

    def _evaluate(self, node: ast.expr, columns: Mapping[str, ComparedColumn]) -> Any:
        match node:
            case ast.BoolOp(op=op, values=values):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return join.reduce([self._evaluate(value, columns) for value in values])
            case ast.UnaryOp(operand=operand):
                return ~self._evaluate(operand, columns)
            case ast.Compare():
                return np.logical_and.reduce(
                    [self._compare(*sides, columns) for sides in self._comparisons(node)]
                )
        raise self._wrong()

    def _compare(
        self,
        op: ast.cmpop,
        left: ast.expr,
        right: ast.expr,
        columns: Mapping[str, ComparedColumn],
    ) -> Any:
        name = self._side(left) or self._side(right)
        assert name is not None  # _check refuses two constants
        a, b = (self._read(side, name, columns) for side in (left, right))
        if columns[name].by_entry and columns[name].kind == "date":
            a, b = _by_day(a, b, (left, right), self._side)
        if isinstance(op, ast.In | ast.NotIn):
            met = np.isin(a, b)
            return met if isinstance(op, ast.In) else ~met
        with np.errstate(invalid="ignore"):
            return np.asarray(_COMPARE[type(op)](a, b), dtype=np.bool_)

    def _read(self, side: ast.expr, beside: str, columns: Mapping[str, ComparedColumn]) -> Any:
        """Return the entries of a column, or a constant in the form of the column beside it."""
        if isinstance(side, ast.Name):
            return columns[self._name(side)].entries
        constant = _constant(side, self._wrong)
        values = [_fit(literal, beside, columns[beside]) for literal in _items(constant)]
        return values if isinstance(constant, tuple) else values[0]


def _items(constant: object) -> tuple[Any, ...]:
    return constant if isinstance(constant, tuple) else (constant,)


def _settle(column: ComparedColumn, *, as_numbers: bool) -> ComparedColumn:
    if not column.by_entry or column.kind != "text":
        return column
    plain = {text: plain_level(text) for text in set(column.entries.tolist()) if text is not None}
    if as_numbers:
        number = {text: _number(level) for text, level in plain.items()}
        numbers = [number.get(text, np.nan) for text in column.entries.tolist()]
        return replace(column, kind="number", entries=np.array(numbers, dtype=np.float64))
    levels = np.empty(len(column.entries), dtype=object)
    levels[:] = [plain.get(text) for text in column.entries.tolist()]
    return replace(column, entries=levels)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _by_day(
    a: Any, b: Any, sides: tuple[ast.expr, ast.expr], is_column: Callable[[ast.expr], str | None]
) -> tuple[Any, Any]:
    """Return the days of a column of dates where it is compared with whole days."""
    left, right = (is_column(side) is not None for side in sides)
    if left and right:
        return a, b
    constant, days = (sides[1], b) if left else (sides[0], a)
    timed = any(":" in literal for literal in _items(ast.literal_eval(constant)))
    if timed or (np.asarray(days) % 1 != 0).any():
        return a, b
    return (np.floor(a), b) if left else (a, np.floor(b))


def _fit(literal: Any, name: str, column: ComparedColumn) -> Any:
    """Return a constant in the form of the column beside it; refuse another kind."""
    text, truth = isinstance(literal, str), isinstance(literal, bool)
    if column.kind == "text" and column.by_entry:
        return plain_level(str(literal))
    if column.kind == "text":
        if text:
            return literal
        raise _mismatch(name, column, literal, f"Write it in quotes: '{literal}'.")
    if column.kind == "date":
        if text and (days := _read_date(literal, column.date_format)) is not None:
            return days
        raise _mismatch(name, column, literal, f"Write a date {_as_written(column)}.")
    if text or (truth and not _is_truth(column)):
        plain = text and re.fullmatch(r"[+-]?[\d.]+", literal)
        advice = f"Write it without quotes: {literal}." if plain else "Write a number."
        raise _mismatch(name, column, literal, advice)
    if abs(literal) >= _LARGEST_WHOLE:
        raise _mismatch(
            name, column, literal, "Numbers that large are not exact: keep such a column as text."
        )
    return float(literal)


def _check_operator(op: ast.cmpop, literal: Any, name: str, column: ComparedColumn) -> None:
    """Refuse to order texts, and to compare times within days with a day."""
    if column.kind == "text" and isinstance(op, _ORDER):
        if column.by_entry and _read_date(str(literal), ISO) is not None:
            raise MechanismError(
                "formats of dates must be declared where presence is hidden; got none for "
                f"{name!r}, compared by {_sign(op)} with {str(literal)[:40]!r}. Write "
                f"date_formats={{{name!r}: 'ISO'}} for 2024-05-31, --date-format \"{name}=ISO\" on "
                "the command line."
            )
        raise MechanismError(
            f"where must compare column {name!r} (text) by == or in; got {_sign(op)} "
            f"{str(literal)[:40]!r}. Text has no order here: list what is meant, "
            f"{name} in ('a', 'b')."
        )
    if column.kind != "date" or isinstance(op, ast.Lt | ast.GtE) or ":" in literal:
        return
    if column.by_entry:
        return  # a refusal would tell of times
    days = column.entries[~np.isnan(column.entries)]
    if (days % 1 != 0).any():
        raise MechanismError(
            f"where must compare column {name!r} (dates with times) with a time for {_sign(op)}; "
            f"got {literal[:40]!r}. Write '2024-05-31 00:00', or a whole day as "
            f"'2024-05-31' <= {name} < '2024-06-01'."
        )


def _check_columns(
    op: ast.cmpop, left: tuple[str, ComparedColumn], right: tuple[str, ComparedColumn]
) -> None:
    (a, first), (b, second) = left, right
    kinds = {"number" if side.kind == "boolean" else side.kind for side in (first, second)}
    if len(kinds) > 1:
        raise MechanismError(
            f"where must compare columns of one kind; got {a!r} ({_HOLDS[first.kind]}) beside "
            f"{b!r} ({_HOLDS[second.kind]}). Compare numbers with numbers, dates with dates."
        )
    if kinds == {"text"} and not isinstance(op, ast.Eq | ast.NotEq):
        raise MechanismError(
            f"where must compare columns of text by == or !=; got {a!r} {_sign(op)} {b!r}. "
            "Text has no order here."
        )


def _mismatch(name: str, column: ComparedColumn, literal: object, advice: str) -> MechanismError:
    must = {"number": "a number", "boolean": "True or False", "date": "a date", "text": "a text"}
    return MechanismError(
        f"where must compare column {name!r} ({_HOLDS[column.kind]}) with {must[column.kind]}; got "
        f"{repr(literal)[:40]}. {advice}"
    )


def _as_written(column: ComparedColumn) -> str:
    written = "such as '2024-05-31'"
    return written if column.date_format == ISO else f"{written}, or as {column.date_format}"


def _is_truth(column: ComparedColumn) -> bool:
    if column.by_entry or column.kind == "boolean":
        return True
    return bool(np.isin(column.entries[~np.isnan(column.entries)], (0.0, 1.0)).all())


def _read_date(literal: str, date_format: str) -> float | None:
    if ":" in literal and _ZONE.search(literal):
        return None  # columns have days and hours as they are written, in no zone
    for written in dict.fromkeys((ISO, date_format)):
        try:
            return float(read_dates([literal.strip()], written)[0])
        except ValueError:
            continue
    return None


def _sign(op: ast.cmpop) -> str:
    signs = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">="}
    return {**signs, "In": "in", "NotIn": "not in"}[type(op).__name__]


def _constant(node: ast.expr, wrong: Callable[[], MechanismError]) -> Any:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise wrong() from None
    items = value if isinstance(value, tuple | list) else (value,)
    if not items or not all(isinstance(item, int | float | str) for item in items):
        raise wrong()
    return tuple(items) if isinstance(value, tuple | list) else value
