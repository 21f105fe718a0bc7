"""Conditions on single rows of a table, written as text."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.columns import DAY, Mask, Texts, column_level_name, is_text_column

_COMPARE: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


class Condition:
    """A condition on single rows, such as ``age >= 18 and region in ('north', 'south')``.

    Names are columns; those that are no identifiers go in backticks. Texts are in quotes, dates
    are texts such as ``'2024-05-31'``. A row with a gap in a column that is named is not taken.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._quoted: list[str] = []

        def take_out(match: re.Match[str]) -> str:
            self._quoted.append(match[1])
            return f"_quoted_{len(self._quoted) - 1}"

        try:
            plain = re.sub(r"`([^`]+)`", take_out, text)
            plain = re.sub(r"(?<![<>=!])=(?!=)", "==", plain.strip())
            self._tree = ast.parse(plain, mode="eval").body
            self._check(self._tree)
        except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
            raise self._wrong() from None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are named."""
        names = (self._name(node) for node in ast.walk(self._tree) if isinstance(node, ast.Name))
        return tuple(dict.fromkeys(names))

    def rows(self, columns: Mapping[str, Vector | Texts]) -> Mask:
        """Return which rows meet the condition."""
        met: Mask = np.asarray(self._evaluate(self._tree, columns), dtype=np.bool_)
        for name in self.columns:
            column = columns[name]
            there = column != None if is_text_column(column) else ~np.isnan(column)  # noqa: E711
            met = met & np.asarray(there, dtype=np.bool_)
        return met

    def _wrong(self) -> MechanismError:
        return MechanismError(
            f"where must be a condition on columns; got {self.text[:80]!r}. Write it as "
            "\"age >= 18 and region in ('north', 'south')\"; odd names go in `backticks`."
        )

    def _name(self, node: ast.Name) -> str:
        number = node.id.removeprefix("_quoted_")
        return self._quoted[int(number)] if number != node.id else node.id

    def _check(self, node: ast.expr) -> None:
        """Refuse everything but comparisons of columns with constants, and, or, not."""
        match node:
            case ast.BoolOp(values=values):
                for value in values:
                    self._check(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._check(operand)
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [self._name(s) if isinstance(s, ast.Name) else s for s in (left, *others)]
                for op, a, b in zip(ops, sides, sides[1:], strict=False):
                    among = isinstance(op, ast.In | ast.NotIn)
                    lists = [
                        not isinstance(s, str) and isinstance(_constant(s, self._wrong), tuple)
                        for s in (a, b)
                    ]
                    if lists != [False, among] or not (among or type(op) in _COMPARE):
                        raise self._wrong()
                if not any(isinstance(side, str) for side in sides):
                    raise self._wrong()
            case _:
                raise self._wrong()

    def _evaluate(self, node: ast.expr, columns: Mapping[str, Any]) -> Any:
        match node:
            case ast.BoolOp(op=op, values=values):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return join.reduce([self._evaluate(value, columns) for value in values])
            case ast.UnaryOp(operand=operand):
                return ~self._evaluate(operand, columns)
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                found = [
                    self._compare(op, a, b, columns)
                    for op, a, b in zip(ops, sides, sides[1:], strict=False)
                ]
                return np.logical_and.reduce(found)
        raise self._wrong()

    def _compare(
        self, op: ast.cmpop, left: ast.expr, right: ast.expr, columns: Mapping[str, Any]
    ) -> Any:
        a, b = (
            columns[self._name(side)]
            if isinstance(side, ast.Name)
            else _constant(side, self._wrong)
            for side in (left, right)
        )
        text = any(isinstance(side, np.ndarray) and is_text_column(side) for side in (a, b))
        ordered = not isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn)
        for side in (a, b) if text else ():
            column = isinstance(side, np.ndarray)
            if not is_text_column(side) if column else ordered and not isinstance(side, str):
                raise MechanismError(
                    "where must compare text with text; got a number beside a column of text, in "
                    f"{self.text[:80]!r}. Clean that column of entries that are no numbers, or "
                    "write the text in quotes."
                )
        a, b = (self._fit(side, text) for side in (a, b))
        if isinstance(op, ast.In | ast.NotIn):
            met = np.isin(a, list(b))
            return met if isinstance(op, ast.In) else ~met
        if text and ordered:
            a, b = (_blank_gaps(side) for side in (a, b))
        with np.errstate(invalid="ignore"):
            return np.asarray(_COMPARE[type(op)](a, b), dtype=np.bool_)

    def _fit(self, side: Any, text: bool) -> Any:
        """Make a constant fit the column beside it: text, number, or date as a number."""
        if isinstance(side, np.ndarray):
            return side
        if isinstance(side, tuple):
            return tuple(self._fit(item, text) for item in side)
        if text:
            return side if isinstance(side, str) else column_level_name(side)
        if not isinstance(side, str):
            return float(side)
        try:
            return float((np.datetime64(side, "ms") - np.datetime64(0, "ms")) / DAY)
        except ValueError:
            raise MechanismError(
                f"where must compare numbers with numbers and dates; got {side[:40]!r} beside a "
                "column of numbers. Write a date as '2024-05-31'."
            ) from None


def _blank_gaps(side: Any) -> Any:
    return np.where(side == None, "", side) if isinstance(side, np.ndarray) else side  # noqa: E711


def _constant(node: ast.expr, wrong: Callable[[], MechanismError]) -> Any:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise wrong() from None
    items = value if isinstance(value, tuple | list) else (value,)
    if not items or not all(isinstance(item, int | float | str) for item in items):
        raise wrong()
    return tuple(items) if isinstance(value, tuple | list) else value
