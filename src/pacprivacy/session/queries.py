"""The release of a query: its cells as a frame, each number with its noise and its interval."""

from __future__ import annotations

import csv
import html
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from pacprivacy.errors import DataError
from pacprivacy.mechanism import Data
from pacprivacy.queries import (
    QueryMechanism,
    Tables,
    arranged,
    column_names,
    query_mechanism,
)
from pacprivacy.release import Release, Row, error_bar_plus_minus


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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
        return cls(**parts, mechanism=mechanism)

    @property
    def query(self) -> str:
        """The query, as it was written."""
        return self.mechanism.query.text

    @property
    def plan(self) -> str:
        """How the cells of all worlds were computed, and why so."""
        return self.mechanism.plan

    @property
    def frame(self) -> Any:
        """The answer as the query arranges it: counts rounded, noise and 95 % interval beside.

        HAVING, ORDER BY and LIMIT are taken of released numbers.
        """
        low, high = self.interval(0.95)
        beside = {"noise": self.noise_std, "low": low, "high": high}
        return self._arranged(
            {
                f"c{i}_{name}": numbers
                for name, found in beside.items()
                for i, numbers in enumerate(self._columns(found))
            }
        )

    def _columns(self, found: Any) -> list[Any]:
        """Return what is known of every cell, column by column."""
        return [_numbers(found[name]) for name in column_names(self.mechanism.query)]

    def _arranged(self, beside: Mapping[str, Any]) -> Any:
        query, cells = self.mechanism.query, self.mechanism.cells or ((),)
        values = zip(query.columns, self._columns(self.value), strict=True)
        shown = [np.rint(n) + 0.0 if column.counts else n for column, n in values]
        return arranged(query, cells, {**{f"c{i}": n for i, n in enumerate(shown)}, **beside})

    def to_csv(self, path: str | Path) -> None:
        """Write the answer with its noise and intervals; may be published."""
        frame = self.frame
        rows = [frame.columns.tolist(), *frame.to_numpy(dtype=object).tolist()]
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)

    def lines(self) -> tuple[list[str], list[list[str]]]:
        """Return the answer for people: headings, and every number as ``1,234 ± 56``."""
        error = {f"c{i}_error": e for i, e in enumerate(self._columns(self.std_error))}
        frame = self._arranged(error)
        names = [name for _, name in self.mechanism.query.shown]
        rows = []
        for row in frame.to_dict("records"):
            cells = []
            for name in names:
                if f"{name} error" in row:
                    numbers = Row(name, row[name], row[f"{name} error"], 0.0, 0.0)
                    cells.append(" ± ".join(error_bar_plus_minus(numbers)))
                else:
                    cells.append(str(row[name]))
            rows.append(cells)
        return names, rows

    def _repr_html_(self) -> str:
        frame = self.frame
        shown = frame._repr_html_() if hasattr(frame, "_repr_html_") else repr(frame)
        text = html.escape(self.query)
        return f"<pre>{text}</pre>{shown}{self.certificate._repr_html_()}"

    def __str__(self) -> str:
        return f"{self.frame}\nplan: {self.plan}"


def query_of(text: str, data: Data, keys: Any, at_least: int, fill: float | None) -> QueryMechanism:
    """Return a query over a session's tables, with its cells and its plan."""
    tables = data.parts[0]
    if not isinstance(tables, Tables):
        raise DataError(
            f"data must be pac.Tables to be asked in SQL; got {type(tables).__name__}. "
            "Make them of your frames: pac.Tables({'people': frame}, unit='people.id')."
        )
    asked = query_mechanism(text, tables, keys=keys, at_least=at_least, fill=fill)
    return asked.prepare(data)


def _numbers(column: Any) -> Any:
    if isinstance(column, Mapping):
        return np.array(list(column.values()), dtype=np.float64)
    return np.atleast_1d(np.asarray(column, dtype=np.float64))
