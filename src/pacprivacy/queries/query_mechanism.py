"""A query as a mechanism: its cells on the rows of one candidate, in the order of the keys.

The engine runs the query once for every candidate, in threads. Queries that are functions of sums
over units need no candidates: see :mod:`pacprivacy.queries.query_sums`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np

from pacprivacy._checks import Matrix, as_floats
from pacprivacy.errors import QueryError
from pacprivacy.mechanism import Data, Mechanism, Parts, Value, fixed_mechanism
from pacprivacy.queries import tree as sql
from pacprivacy.queries.engines import (
    Row,
)
from pacprivacy.queries.grammar import empty_engine, refuse
from pacprivacy.queries.query import CellQuery, parse_query
from pacprivacy.queries.sums_plan import Edges, SumsPlan, sums_plan, units_behind
from pacprivacy.queries.tables import CandidateTables, Tables

Cells = tuple[Row, ...]
Keys = Literal["universe"] | Mapping[str, Sequence[Any]] | Sequence[Any] | None

AT_LEAST: Final = 20  # units behind a key that is found in the universe
NAMES_LISTED: Final = 20  # groups that a certificate names
SHOWN_TEXT: Final = 200  # of a query, in certificates and ledgers
NAMED_CELLS: Final = 1000  # more are arrays, without a name for each
WIDTHS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
NUMERIC: Final = {*WIDTHS, *(f"U{w}" for w in WIDTHS), "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN"}
KEYS: Final = {*NUMERIC, "VARCHAR", "ENUM", "UUID", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S"}
TWO_UNITS: Final = "rows of the join belong to two units"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueryMechanism(Mechanism):
    """Computes the cells of a query on one candidate of ``tables``, in the order of the keys.

    ``keys``, ``at_least`` and ``fill`` are those of :func:`pacprivacy.sql`; ``cells``, the group
    keys of every cell, are fixed by :meth:`prepare`.
    """

    prefer: ClassVar = "threads"  # the engine works outside Python, and they share one
    own_units: ClassVar[bool] = True

    query: CellQuery
    name: str = field()  # the query, on one line
    tables: Tables = field(repr=False)
    keys: Keys = None
    at_least: int = AT_LEAST
    fill: float | None = None
    edges: Edges | None = None
    cells: Cells | None = None
    sums: SumsPlan | None = field(default=None, repr=False)
    nothing: tuple[float, ...] | None = None
    plan: str = ""
    published: tuple[str, ...] = ()

    def checked(self) -> Self:
        """Refuse what its words, types and declared keys forbid; no private row is read (Q-4)."""
        self._check_numbers()
        self._check_edges()
        cells = self._declared_cells()
        if cells is not None:
            self.query.check_arranged(cells)
        return replace(self, cells=cells)

    def prepare(self, data: Data) -> Self:
        if self.plan:
            return self
        sums, why = self._sums()
        plan = "one query per candidate" + (f", since {why}" if why else "")
        cells, published = (self.cells, ()) if self.cells is not None else self._supported(sums)
        published = (*published, f"the plan of the query: {plan}")
        ready = replace(self, cells=cells, plan=plan, published=published)
        return replace(ready, nothing=self._nothing())

    def _sums(self) -> tuple[SumsPlan | None, str]:
        """Return sums per unit where they give the query's cells; else None, and why not."""
        sums = sums_plan(self.query, self.tables, edges=self.edges)
        why = sums if isinstance(sums, str) else _why_not(sums, self.tables)
        return (sums, "") if isinstance(sums, SumsPlan) and not why else (None, why)

    @property
    def public(self) -> tuple[str, ...]:
        """Declared options, and how to read totals."""
        facts = [
            "counts and sums are estimates for all units: those of a candidate divided by its "
            "share of the units"
        ]
        if TWO_UNITS in self.plan:
            facts.append(
                f"{TWO_UNITS}, and a candidate has few of those: counts and sums over them are "
                "below those of all units, by about a candidate's share"
            )
        if self.fill is not None:
            facts.append(f"cells without a value are {self.fill:g}, as declared")
        return tuple(facts)

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        candidate: CandidateTables = parts[0]
        rows = candidate.ask(self.query.core(sql.number(candidate.share)))
        return self._shaped(self._aligned(rows))

    def _aligned(self, rows: list[Row]) -> Matrix:
        """Put the rows of a candidate in the order of the cells; others are left out."""
        cells, k = fixed_mechanism(self.cells, self.name), self.query.n_keys
        places = {cell: i for i, cell in enumerate(cells)}
        table = np.tile(np.array(fixed_mechanism(self.nothing, self.name)), (len(cells), 1))
        for row in rows:
            place = places.get(_same(row[:k]))
            if place is not None:
                table[place] = [np.nan if v is None else float(v) for v in row[k:]]
        return np.asarray(self._checked(table[None])[0])

    def _checked(self, values: Matrix) -> Matrix:
        """Refuse cells without a value, or put in the declared value."""
        bad = ~np.isfinite(values)
        if not bad.any():
            return values
        if self.fill is None:
            column = self.query.columns[int(np.flatnonzero(bad.any(axis=(0, 1)))[0])]
            raise refuse(
                self.query.text,
                column.name,
                "every cell must have a value in every candidate, also where a group has no rows",
                "Give fill=0, use count or sum, or ask for larger groups.",
            )
        return np.asarray(np.where(bad, self.fill, values))

    def _shaped(self, values: Matrix) -> dict[str, Any]:
        """Return one entry for each column: a number, or numbers by the name of their cell."""
        cells = fixed_mechanism(self.cells, self.name)
        names = self.query.column_names
        if not self.query.keys:
            return {name: float(values[0, j]) for j, name in enumerate(names)}
        if len(cells) > NAMED_CELLS:
            return {name: values[:, j] for j, name in enumerate(names)}
        labels = self.query.cell_names(cells)
        return {
            name: {label: float(v) for label, v in zip(labels, values[:, j], strict=True)}
            for j, name in enumerate(names)
        }

    def _types(self) -> list[str]:
        return self.tables.describe(self.query.core(sql.number(1.0)))

    def _nothing(self) -> tuple[float, ...]:
        """Return the cells of a group without rows, which no candidate shows."""
        try:
            rows = self.tables.take(np.arange(0)).ask(self.query.empty())
        except QueryError:  # an expression of keys beside aggregates has no value without a key
            rows = []
        row = rows[0] if rows else (None,) * len(self.query.columns)
        return tuple(np.nan if value is None else float(value) for value in row)

    def _check_numbers(self) -> None:
        types = self._types()
        for name, kind in zip(self.query.key_names, map(_kind, types), strict=False):
            if kind not in KEYS:
                reason = f"group keys must be text, numbers, days or times, not {kind}"
                raise refuse(self.query.text, name, reason, "Group by a part of it.")
        kinds = map(_kind, types[self.query.n_keys :])
        for column, kind in zip(self.query.columns, kinds, strict=True):
            if kind not in NUMERIC:
                reason = f"every output must be a number or a group key, not {kind}"
                advice = "Count it, or group by it."
                raise refuse(self.query.text, column.name, reason, advice)

    def _check_edges(self) -> None:
        names = [column.name for column in self.query.columns]
        for name, edges in (self.edges or {}).items():
            if name not in names:
                raise QueryError(
                    f"edges must be of an output of the query; got {name!r}. They are "
                    f"{', '.join(names)}."
                )
            points = as_floats("edges", list(edges))
            if points.ndim != 1 or len(points) < 3 or not (np.diff(points) > 0).all():
                raise QueryError(
                    f"edges of {name!r} must be three numbers or more, in order; got others. "
                    "Write edges={'middle': [0, 10, 20]}."
                )

    def _declared_cells(self) -> Cells | None:
        """Return the group keys that were declared; None if those of the universe are meant."""
        if not self.query.keys:
            return ((),)
        if self.keys is None:
            raise refuse(
                self.query.text,
                self.query.key_names[0],
                "group keys must be declared, or be published as the data have them",
                f"Give keys={{{self.query.key_names[0]!r}: [...]}} or keys='universe'.",
            )
        if not isinstance(self.keys, str):
            return _declared(self.query, self.keys, self._types())
        if self.keys != "universe":
            raise QueryError(f"keys must be 'universe', lists or a mapping; got {self.keys!r}.")
        return None

    def _supported(self, sums: SumsPlan | None) -> tuple[Cells, tuple[str, ...]]:
        counted = units_behind(self.query, self.tables) if sums is None else sums.query
        if counted is None:
            raise refuse(
                self.query.text,
                self.query.key_names[0],
                "group keys must be declared where units behind a group cannot be counted",
                f"Give keys={{{self.query.key_names[0]!r}: [...]}}.",
            )
        k = self.query.n_keys
        keys = ", ".join(f"k{i}" for i in range(k))
        units = [item.name for item in counted.items if re.fullmatch(r"u\d*", item.name)]
        fewest = ", ".join(f"count(DISTINCT {unit})" for unit in units)
        rows = self.tables.ask_kept(
            counted, f"SELECT {keys}, least({fewest}) FROM {{}} GROUP BY ALL ORDER BY ALL"
        )
        kept = tuple(_same(row[:k]) for row in rows if row[k] >= self.at_least)
        if not kept:
            raise refuse(
                self.query.text,
                self.query.key_names[0],
                f"groups must have at least {self.at_least} units",
                "Group by something coarser, or lower at_least.",
            )
        self.query.check_arranged(kept)
        dropped = len(rows) - len(kept)
        listed = _listed(self.query.cell_names(kept))
        published = (
            f"the {len(kept)} groups of {', '.join(self.query.key_names)} with at least "
            f"{self.at_least} units in the whole table: {listed}"
            + (f"; that {dropped} others were left out" if dropped else ""),
        )
        return kept, published


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_LISTED
    return "; ".join(names[:NAMES_LISTED]) + (f"; and {more} more" if more > 0 else "")


def _same(key: Sequence[Any]) -> Row:
    """Return the keys of a cell so that equal ones are equal in Python: one NaN for all."""
    return tuple(np.nan if isinstance(v, float) and np.isnan(v) else v for v in key)


def _declared(query: CellQuery, keys: Any, types: Sequence[str]) -> tuple[Row, ...]:
    """Return the cells of declared keys, combined or listed; values are read as the engine does."""
    if isinstance(keys, Mapping):
        lowered = {str(name).lower(): list(values) for name, values in keys.items()}
        lists = []
        for name in query.key_names:
            values = lowered.get(name.lower())
            if values is None:
                raise QueryError(
                    f"keys must say the values of {name!r}; got {', '.join(map(str, keys))}. "
                    "Add it, or use keys='universe'."
                )
            lists.append(values)
        cells = _combined(query, lists)
    elif query.sets:
        raise QueryError("keys must be a mapping or 'universe' where there are subtotals.")
    elif not isinstance(keys, Iterable):
        raise QueryError(f"keys must be 'universe', lists or a mapping; got {keys!r}.")
    else:
        cells = [tuple(cell) if isinstance(cell, tuple | list) else (cell,) for cell in keys]
    if not cells or any(len(cell) != query.n_keys for cell in cells):
        raise QueryError(
            f"keys must have {len(query.keys)} values for each group; got another number. "
            f"They are the values of {', '.join(query.key_names)}."
        )
    cells = [_same([_cast(v, kind) for v, kind in zip(c, types, strict=False)]) for c in cells]
    if len(set(cells)) < len(cells):
        raise QueryError("keys must name every group once; got one twice. Leave it out.")
    return tuple(cells)


def _combined(query: CellQuery, lists: list[list[Any]]) -> list[Row]:
    """Return all groups of the values of each key: those of every grouping set, if there are."""
    if not query.sets:
        return list(itertools.product(*lists))
    cells: list[Row] = []
    for chosen in query.sets:
        over = [i for i in range(len(lists)) if i not in chosen]
        number = sum(1 << (len(lists) - 1 - i) for i in over)
        values = [lists[i] if i in chosen else [None] for i in range(len(lists))]
        cells += itertools.product(*values, [number])
    return cells


def _kind(kind: str) -> str:
    return re.sub(r"\(.*\)", "", kind, flags=re.DOTALL)


def _cast(value: Value, kind: str) -> Any:
    import duckdb

    try:
        return empty_engine().execute(f"SELECT CAST(? AS {kind})", [value]).fetchall()[0][0]
    except duckdb.Error:
        raise QueryError(f"keys must be of type {_kind(kind)}; got {str(value)[:40]!r}.") from None


@contextmanager
def refuse_deep_nesting() -> Iterator[None]:
    """Refuse a query nested deeper than Python's stack."""
    try:
        yield
    except RecursionError:
        raise QueryError(
            "the query must have fewer brackets, functions or queries inside each other; got too "
            "many. Write it flat."
        ) from None


# --- sums per unit -------------------------------------------------------------------------------


def _why_not(sums: SumsPlan, tables: Tables) -> str:
    """Return why sums per unit do not give the query's cells; empty if they do."""
    # A number that is none is above infinity in every engine.
    floats = [i for i, counts in enumerate(sums.counts) if not counts]
    finite = " AND ".join(f"abs(s{i}::DOUBLE) < 'infinity'::DOUBLE" for i in floats) or "true"
    try:
        tables.describe(sums.query)
    except QueryError:
        return "it cannot be written as sums"
    ((two, wild),) = tables.ask_kept(
        sums.query, f"SELECT bool_or(pac_two), bool_or(NOT ({finite})) FROM {{}}"
    )
    if two or any(tables.ask(crossing)[0][0] for crossing in sums.crossings):
        return TWO_UNITS
    return "sums of some units are infinite" if wild else ""


def make_query_mechanism(
    text: str,
    tables: Tables,
    *,
    keys: Keys = None,
    at_least: int = AT_LEAST,
    fill: float | None = None,
    edges: Edges | None = None,
    kind: type[QueryMechanism] = QueryMechanism,
) -> QueryMechanism:
    """Return a query as a mechanism of a kind; no private row is read."""
    if at_least < 2:
        raise QueryError(
            f"at_least must be 2 or more, since a group of one unit singles it out; got {at_least}."
        )
    with refuse_deep_nesting():
        query = parse_query(text, tables)
        line = " ".join(text.split())
        name = line if len(line) <= SHOWN_TEXT else f"{line[:SHOWN_TEXT]} ..."
        mechanism = kind(
            query=query,
            name=name,
            tables=tables,
            keys=keys,
            at_least=at_least,
            fill=fill,
            edges=edges,
        )
        return mechanism.checked()
