"""The release of a query: its cells as a frame, each number with its noise and its interval."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
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
from pacprivacy.release import Release


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
        query, cells = self.mechanism.query, self.mechanism.cells or ((),)
        columns: dict[str, Any] = {}
        ends = self.interval(0.95)
        beside = {"": self.value, "_noise": self.noise_std, "_low": ends[0], "_high": ends[1]}
        for i, (column, name) in enumerate(zip(query.columns, column_names(query), strict=True)):
            for suffix, found in beside.items():
                numbers = _numbers(found[name])
                if column.counts and not suffix:
                    numbers = np.rint(numbers) + 0.0
                columns[f"c{i}{suffix}"] = numbers
        return arranged(query, cells, columns)

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
