"""The release of a query: its cells as a frame, each number with its noise and its interval."""

from __future__ import annotations

import csv
import html
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from pacprivacy._values import NONE, SHOWN_ROWS, Row, row_texts
from pacprivacy.errors import CertificateError, DataError
from pacprivacy.mechanism import Data
from pacprivacy.queries import (
    QueryMechanism,
    Tables,
    cell_column,
    make_query_mechanism,
    refuse_deep_nesting,
)
from pacprivacy.release import Release


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueryAnswer:
    """The answer to a query as people read it, in the order of the query; public.

    A cell of ``rows`` is a number with its error bars, or the text of a key.
    """

    query: str
    plan: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str | Row, ...], ...]

    def lines(self) -> list[list[str]]:
        """Return every number as ``1,234 ± 56``: with its standard error."""
        return [[_text(cell) for cell in row] for row in self.rows]

    def __str__(self) -> str:
        lines = [list(self.headings), *self.lines()[:SHOWN_ROWS]]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        right = [isinstance(cell, Row) for cell in self.rows[0]] if self.rows else []
        right += [False] * (len(widths) - len(right))
        shown = [
            "  ".join(
                text.rjust(width) if number else text.ljust(width)
                for text, width, number in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*shown, *self._rest()])

    def _repr_html_(self) -> str:
        """Return the first rows as a table in HTML."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.headings)
        body = ""
        for line in self.lines()[:SHOWN_ROWS]:
            body += "".join(["<tr>", *(f"<td>{html.escape(text)}</td>" for text in line), "</tr>"])
        rest = "".join(f"<p>{line}</p>" for line in self._rest())
        return f"<pre>{html.escape(self.query)}</pre><table><tr>{head}</tr>{body}</table>{rest}"

    def _rest(self) -> list[str]:
        more = len(self.rows) - SHOWN_ROWS
        return [f"and {more} more rows"] if more > 0 else []


def _text(cell: str | Row) -> str:
    if isinstance(cell, str):
        return cell
    value, error = row_texts(cell)
    return value if error == NONE else f"{value} ± {error}"


def query_answer(release: Release) -> QueryAnswer | None:
    """Return the answer of a release as its query arranges it; None without a query.

    Guarantee
    ---------
    Claim R-9. A function of published values.
    """
    table = release.table
    if table is None:
        return None
    parts = (release.value, *release.errors())
    try:
        figures = {
            name: [_numbers(part[name]) for part in (*parts, release.noise_std)]
            for _, name, _ in table["columns"]
            if name is not None
        }
        rows = []
        for place, *texts in table["rows"]:
            keys = iter(texts)
            cells: list[str | Row] = []
            for name, column, counts in table["columns"]:
                if column is None:
                    cells.append(str(next(keys)))
                    continue
                value, *bars = (float(numbers[place]) for numbers in figures[column])
                error, lower, upper, noise = bars
                value = float(np.rint(value)) + 0.0 if counts else value
                cells.append(Row(name, value, error, lower, upper, noise_std=noise))
            rows.append(tuple(cells))
        return QueryAnswer(
            query=str(table["query"]),
            plan=str(table["plan"]),
            headings=tuple(str(name) for name, _, _ in table["columns"]),
            rows=tuple(rows),
        )
    except (KeyError, TypeError, ValueError, IndexError, StopIteration):
        raise CertificateError(
            "table must be that of the released value; got another. Use the file as it was written."
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class QueryRelease(Release):
    """Released cells of a query.

    Parameters
    ----------
    mechanism : QueryMechanism
        The query; its text, its cells and its plan are public.
    """

    mechanism: QueryMechanism = field(repr=False)

    @classmethod
    def of(cls, release: Release, mechanism: QueryMechanism) -> Self:
        """Return a release as that of a query."""
        parts = {part.name: getattr(release, part.name) for part in fields(release)}
        answer = cls(**parts, mechanism=mechanism)
        return replace(answer, table=answer._table())

    @property
    def query(self) -> str:
        """Text of the query."""
        return self.mechanism.query.text

    @property
    def plan(self) -> str:
        """Plan of the cells, and its reason."""
        return self.mechanism.plan

    @property
    def answer(self) -> QueryAnswer:
        """The answer as people read it: every number as ``1,234 ± 56``."""
        answer = query_answer(self)
        assert answer is not None  # set with the release
        return answer

    @property
    def frame(self) -> Any:
        """The rows of the answer, with rounded counts, noise and 95 % intervals.

        HAVING, ORDER BY and LIMIT are taken of released numbers.
        """
        _, low, high = self.errors()
        beside = {
            f"c{i}_{name}": numbers
            for name, released in (("noise", self.noise_std), ("low", low), ("high", high))
            for i, numbers in enumerate(self._columns(released))
        }
        return self.mechanism.query.frame(self._cells, self._shown() | beside)

    @property
    def _cells(self) -> tuple[tuple[Any, ...], ...]:
        return self.mechanism.cells or ((),)

    def _columns(self, released: Any) -> list[Any]:
        """Return the numbers of every cell, column by column, in the order of the cells.

        Released numbers with names are in the order of these, which is another one.
        """
        columns = [released[name] for name in self.mechanism.query.column_names]
        labels = self._labels()
        return [
            _numbers([column[label] for label in labels] if labels else column)
            for column in columns
        ]

    def _labels(self) -> list[str]:
        """Return the names of the cells in the released value; empty if they have none."""
        query = self.mechanism.query
        named = isinstance(self.value[query.column_names[0]], Mapping)
        return query.cell_names(self._cells) if named else []

    def _shown(self) -> dict[str, Any]:
        """Return the released numbers, counts as whole ones."""
        values = zip(self.mechanism.query.columns, self._columns(self.value), strict=True)
        rounded = [np.rint(n).astype(np.int64) if column.counts else n for column, n in values]
        return {f"c{i}": numbers for i, numbers in enumerate(rounded)}

    def _table(self) -> dict[str, Any]:
        query, shown = self.mechanism.query, self._shown()
        pairs = zip(query.column_names, query.columns, strict=True)
        columns = {f"c{i}": [name, column.counts] for i, (name, column) in enumerate(pairs)}
        named = [
            [name, *columns.get(cell_column(value), [None, False])] for value, name in query.shown
        ]
        order = {label: place for place, label in enumerate(sorted(self._labels()))}
        places = [order[label] for label in self._labels()] or range(len(self._cells))
        rows = [[places[at], *texts] for at, *texts in query.rows(self._cells, shown)]
        return {"query": query.text, "plan": self.plan, "columns": named, "rows": rows}

    def to_csv(self, path: str | Path) -> None:
        """Write the answer with its noise and intervals; may be published."""
        frame = self.frame
        if hasattr(frame, "to_pylist"):  # of Arrow: pandas is not installed
            rows = [frame.column_names, *(list(row.values()) for row in frame.to_pylist())]
        else:
            rows = [frame.columns.tolist(), *frame.to_numpy(dtype=object).tolist()]
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)

    def to_frame(self) -> Any:
        """Return the answer as a frame; see :attr:`frame`."""
        return self.frame

    def write_values(self, folder: Path) -> None:
        """Write ``values.csv``: the answer with its noise and intervals."""
        self.to_csv(folder / "values.csv")

    def lines(self, most: int = SHOWN_ROWS) -> list[str]:
        """Return the answer as the lines of a table, with its plan."""
        legend = "Estimates for all records, ± standard error; values.csv has the intervals."
        return [
            *str(self.answer).splitlines(),
            "",
            legend,
            *textwrap.wrap(f"Plan: {self.plan}.", 80),
        ]

    def _repr_html_(self) -> str:
        return f"{self.answer._repr_html_()}{self.certificate._repr_html_()}"


def released_query(
    text: str,
    data: Data,
    *,
    kind: type[QueryMechanism],
    keys: Any,
    at_least: int,
    fill: float | None,
    edges: Mapping[str, Sequence[float]] | None,
) -> QueryMechanism:
    """Return a query over a session's tables; refusals depend on no private row (Q-4)."""
    tables = data.parts[0]
    if not isinstance(tables, Tables):
        raise DataError(
            f"data must be pac.Tables to be asked in SQL; got {type(tables).__name__}. "
            "Make them of your frames: pac.Tables({'people': frame}, unit='people.id')."
        )
    return make_query_mechanism(
        text, tables, kind=kind, keys=keys, at_least=at_least, fill=fill, edges=edges
    )


def prepared_query(query: QueryMechanism, data: Data) -> QueryMechanism:
    """Return a query with its cells and its plan, for which its rows are read."""
    with refuse_deep_nesting():
        return query.prepare(data)


def _numbers(column: Any) -> Any:
    if isinstance(column, Mapping):
        return np.array(list(column.values()), dtype=np.float64)
    return np.atleast_1d(np.asarray(column, dtype=np.float64))
