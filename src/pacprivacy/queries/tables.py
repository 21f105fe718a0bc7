"""Several tables that belong together: where their rows are, and which unit each row is about.

A pool is drawn over the units of one declared key. Every *private* table reaches that key, by a
column of its own or through another private table; every other table is public by declaration. A
candidate sees the private tables with the rows of its units, and the public ones whole.
"""

from __future__ import annotations

import hashlib
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import DataError, QueryError
from pacprivacy.mechanism import KeyedRecords
from pacprivacy.queries import tree as sql
from pacprivacy.queries.engines import (
    BASE,
    CANDIDATE,
    KEPT,
    RESERVED,
    SHARE,
    UNIT,
    UNITS,
    WHOLE,
    Columns,
    Connections,
    Engines,
    Path_,
    Row,
    TablesSource,
    UnitPaths,
    arrow_of_tables,
    engine_unquoted,
    frame_of_tables,
    is_broken,
    kind_of_error,
    read_tables_source,
    run_quietly,
    type_family,
)
from pacprivacy.queries.grammar import checked_sql
from pacprivacy.queries.servers import Server, open_server

SUMS: Final = "pac_sums"


def split_column(text: str, name: str) -> tuple[str, str]:
    table, dot, column = text.partition(".")
    if not (table and dot and column):
        raise DataError(f"{name} must name a column as 'table.column'; got {text!r}.")
    return table, column


def cut_tables(query: sql.Select, tables: Tables) -> sql.Select:
    """Replace every private table by its rows that the candidate at hand holds."""
    rows: dict[sql.Node, sql.Node] = {}
    for table, columns in sql.columns_read(query).items():
        if table.path[-1] in tables.private:
            inner = sql.Table(path=(WHOLE, table.path[-1]), alias=f"p{table.alias}")
            rows[table] = sql.Derived(query=_of_candidate(inner, columns), alias=table.alias)
    whole = sql.substitute(query, rows)
    assert isinstance(whole, sql.Select)
    return whole


def _of_candidate(table: sql.Table, columns: Iterable[str]) -> sql.Select:
    """Return the rows of a private table whose units the candidate at hand holds."""
    items = [sql.Item(value=sql.Column(name=c, source=table.alias), name=c) for c in columns]
    codes = sql.Select(
        items=(sql.Item(value=sql.Column(name="code", source="w"), name="c0"),),
        source=sql.Table(path=(CANDIDATE,), alias="w"),
    )
    unit = sql.Column(name=UNIT, source=table.alias)
    return sql.Select(
        items=tuple(items) or (sql.Item(value=sql.number(1), name="c0"),),
        source=table,
        where=sql.Nested(kind="ANY", query=codes, operand=unit, symbol="="),
    )


class Tables(KeyedRecords):
    """Tables with keys, some private: data for :func:`pacprivacy.sql` and for any function.

    Parameters
    ----------
    source : path, connection, or mapping of names to frames
        A DuckDB file, a folder of Parquet or CSV files (one table each), a DuckDB connection,
        frames of pandas, polars or pyarrow by name; or a server that keeps its rows and hands out
        sums per unit: ``postgresql://user@host/name``, or a ``SparkSession``.
    unit : str
        ``"table.column"``: who is protected, one value of this column each.
    via : mapping, optional
        How every other private table reaches the unit: ``{"orders": "customer_id"}`` by a column
        that holds the unit's key, ``{"lines": ("order_id", "orders.id")}`` through the rows of
        another private table. A table that is not named is public; a view that is not named is
        left out.

    Raises
    ------
    DataError
        If a table or column is not there, if rows have no unit or reach two; with their number.

    Guarantee
    ---------
    Claim Q-1. A candidate holds a private row if and only if the row's unit is in the candidate.

    Examples
    --------
    >>> import pandas as pd
    >>> import pacprivacy as pac
    >>> people = pd.DataFrame({"id": range(8), "region": list("nnnnssss")})
    >>> visits = pd.DataFrame({"person": [0, 0, 1, 5, 7], "cost": [3.0, 4.0, 5.0, 1.0, 2.0]})
    >>> clinic = pac.Tables({"people": people, "visits": visits}, unit="people.id",
    ...                     via={"visits": "person"})
    >>> clinic
    Tables(unit='people.id', n_units=8, private=['people', 'visits'], public=[])
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any] | Any,
        *,
        unit: str,
        via: Mapping[str, str | tuple[str, str]] | None = None,
    ) -> None:
        self._key = table, column = split_column(unit, "unit")
        self._paths: dict[str, Path_] = {table: (column, None)}
        for name, path in dict(via or {}).items():
            key, other = (path, None) if isinstance(path, str) else path
            self._paths[name] = (key, None if other is None else split_column(other, "via"))
        declared = frozenset(self._paths)
        server = open_server(source, declared)
        self._source: TablesSource | Server = server or read_tables_source(source, declared)
        self.unit = unit
        self._open()
        store = self._source.open()
        self._whole_floats: set[str] = set()
        self._types = self._source.types(store)
        self._check_names()
        self._check_keys()
        self._start(store)
        (n,) = self.rows(f"SELECT count(*) FROM {UNITS}")[0]
        self.n_units = int(n)
        self._check_rows()
        self._check_twins()

    def __repr__(self) -> str:
        public = sorted(set(self.names) - set(self.private))
        return (
            f"Tables(unit={self.unit!r}, n_units={self.n_units}, private={list(self.private)}, "
            f"public={public})"
        )

    def __len__(self) -> int:
        return self.n_units

    def __getstate__(self) -> dict[str, Any]:
        here = ("_local", "_locks", "_engines")
        return {name: value for name, value in vars(self).items() if name not in here}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def _open(self) -> None:
        # By process: a fork has engines and locks of its own, and leaves those of its parent alone.
        self._local = threading.local()
        self._locks: dict[int, threading.RLock] = {}
        self._engines: dict[int, Engines] = {}

    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(os.getpid(), threading.RLock())

    # what is known without reading a row: names, types, keys, and who is private

    @property
    def names(self) -> tuple[str, ...]:
        return self._source.names

    @property
    def private(self) -> tuple[str, ...]:
        return tuple(self._paths)

    def unit_keys(self) -> list[Any]:
        """Return the key of every unit, in the order of their numbers; curator-only."""
        return [key for (key,) in self.rows(f"SELECT key FROM {UNITS} ORDER BY code")]

    def is_key(self, table: str, column: str) -> bool:
        """Whether a column of a table holds the unit's key, so that it tells units apart."""
        key, other = self._paths.get(table, ("", None))
        return other is None and sql.folded(key) == sql.folded(column) and key != ""

    def find_table(self, name: str) -> str | None:
        """Return a table's declared name, in any case; None if there is none."""
        return next((known for known in self.names if sql.folded(known) == sql.folded(name)), None)

    def table_columns(self, table: str) -> Mapping[str, str]:
        """Return the types of a table's columns; text in the place of lists of levels."""
        return self._types[table]

    def _described(self, query: sql.Select) -> str:
        """Name the columns that a query reads, with their types."""
        shown = [
            f"{column} {self._types[table.path[-1]][column]}"
            for table, columns in sql.columns_read(query).items()
            for column in columns
            if column != UNIT
        ]
        return ", ".join(shown[:12]) or "none"

    # rows

    def take(self, rows: npt.NDArray[np.int64]) -> CandidateTables:
        """Return the tables as a candidate of these units sees them."""
        self._here().engines.check_candidates()
        return CandidateTables(tables=self, units=np.asarray(rows, dtype=np.int64))

    def digest(self) -> str:
        """Return a hash of names, keys and contents, whatever the order of rows; curator-only."""
        state = hashlib.blake2b(f"{self.unit} {sorted(self._paths.items())}".encode())
        for name in sorted(self.names):
            contents = self._here().engines.contents(name)
            state.update(f"{name} {list(self._types[name])} {contents}".encode())
        return state.hexdigest()

    def _here(self) -> Connections:
        """Return this thread's connections: threads share engines, and have candidates apart."""
        process = os.getpid()
        here: Connections | None = getattr(self._local, "here", None)
        broken = here is not None and (is_broken(here.asked) or is_broken(here.store))
        if here is None or here.process != process or broken:
            with self._lock():
                if broken and here is not None and here.engines is self._engines.get(process):
                    self._engines.pop(process, None)
                if process not in self._engines:
                    self._start(self._source.open())
                here = Connections(process, self._engines[process])
                self._local.here = here
        return here

    def _start(self, store: Any) -> None:
        paths = UnitPaths(unit=self._key, paths=self._paths, whole_floats=self._whole_floats)
        paths.check_circles()
        self._engines[os.getpid()] = self._source.engines(store, self._types, paths)

    def rows(self, text: str) -> list[Row]:
        """Return the answer to a query of ours over all units; curator-only."""
        return list(run_quietly(self._here().store, text))

    def ask(self, query: sql.Select) -> list[Row]:
        """Return the answer to a query that came through the door, over all units; curator-only."""
        here = self._here()
        with self._lock():
            here.engines.load(query)
        return here.engines.ask(here.asked, query)

    def ask_kept(self, query: sql.Select, text: str, *, arrays: bool = False) -> Any:
        """Run a query once, and return the answer to a text of ours over its rows, ``{}``.

        They are in a table, since rows of joins have no order of their own.
        """
        here = self._here()
        if here.query != query:
            here.query = None
            with self._lock():
                here.engines.load(query)
            here.engines.keep(here.asked, query)
            here.query = query
        return run_quietly(here.asked, text.format(KEPT), arrays=arrays)

    @contextmanager
    def lend(self, name: str, columns: Columns) -> Iterator[None]:
        """Let queries of this thread read a table of ours."""
        connection = self._here().asked
        connection.register(name, arrow_of_tables(columns))
        try:
            yield
        finally:
            connection.unregister(name)

    def compute(self, values: Sequence[sql.Node], columns: Columns) -> npt.NDArray[np.float64]:
        """Return expressions of the columns of a table of ours, line by line; NaN where one fails.

        ``columns`` hold released numbers, or sums of all units. No table is read.
        """
        source = sql.Table(path=(SUMS,))
        checked_sql(
            sql.Select(items=tuple(sql.Item(value=value) for value in values), source=source)
        )
        shown = (f"TRY(CAST({sql.write_sql(value)} AS DOUBLE))" for value in values)
        text = ", ".join(f"{value} AS c{i}" for i, value in enumerate(shown))
        lines = len(next(iter(columns.values())))
        with self.lend(SUMS, {**columns, SHARE: np.ones(lines)}):
            result = run_quietly(self._here().asked, f"SELECT {text} FROM {SUMS}", arrays=True)
        filled = [np.ma.filled(result[f"c{i}"].astype(float), np.nan) for i in range(len(values))]
        return np.stack(filled, axis=1)

    def describe(self, query: sql.Select) -> list[str]:
        """Return the types of a query's outputs; refuse one that cannot be bound. Reads no row."""
        import duckdb

        bare = self._here().bare
        try:
            rows = bare.execute(f"DESCRIBE {checked_sql(query)}").fetchall()
        except duckdb.Error as error:
            raise QueryError(
                "the query must be one that DuckDB can run; it cannot "
                f"({kind_of_error(error)}): a function or a comparison does not fit the types "
                f"of its columns. They are {self._described(query)}. Cast one, or mend it."
            ) from None
        return [str(row[1]) for row in rows]

    def query_stop(self) -> Callable[[], None]:
        """Return a function by which another thread stops a query of this one."""
        here, thread = self._here(), threading.get_ident()

        def stop() -> None:
            here.engines.interrupt(thread)
            for connection in (here.store, here.asked):
                connection.interrupt()

        return stop

    def close(self) -> None:
        """End the connection to a server, whose tables are locked against changes of columns."""
        self._here().engines.close()

    def forget(self) -> None:
        """Drop the rows of the query that was kept last."""
        self._here().query = None

    def _frame_of(self, name: str, units: npt.NDArray[np.int64]) -> Any:
        """Return the rows of a table that some units have, as a frame; curator-only."""
        text = f"SELECT * FROM {BASE}.{sql.quote(name)}"
        if name in self._paths:
            self._set_candidate(units, store=True)
            text = (
                f"SELECT * EXCLUDE ({UNIT}) FROM {WHOLE}.{sql.quote(name)} "
                f"WHERE {UNIT} IN (SELECT code FROM {CANDIDATE})"
            )
        store = self._here().store
        with engine_unquoted(store):
            return frame_of_tables(store.sql(text), self._source.libraries.get(name, "pandas"))

    def _set_candidate(self, units: npt.NDArray[np.int64], *, store: bool = False) -> None:
        here = self._here()
        codes = arrow_of_tables({"code": units.astype(np.int32)})
        (here.store if store else here.asked).register(CANDIDATE, codes)

    def _check_names(self) -> None:
        for name, (key, other) in self._paths.items():
            for table, column in ((name, key), *([other] if other else [])):
                if table not in self.names:
                    raise DataError(
                        f"tables must hold {table!r}; got {', '.join(self.names)}. "
                        "Check the names in unit and via."
                    )
                if other is not None and other[0] not in self._paths:
                    raise DataError(
                        f"via must lead through private tables; got {other[0]!r} for {name!r}, "
                        "which is not in via. Say how it reaches the unit."
                    )
                columns = self._types[table]
                if column not in columns:
                    raise DataError(
                        f"table {table!r} must have a column {column!r}; got "
                        f"{', '.join(list(columns)[:12])}. Check the names in unit and via."
                    )
        for name in self.names:
            if any(n.lower().startswith(RESERVED) for n in (name, *self._types[name])):
                raise DataError(
                    f"names must not begin with {RESERVED}; got one in table {name!r}. Rename it."
                )

    def _check_keys(self) -> None:
        """Refuse keys of two types: what is equal would be the engine's to say, row by row."""
        table, column = self._key
        for name, (key, other) in self._paths.items():
            target = (table, column) if other is None else other
            kinds = [type_family(self._types[t][c]) for t, c in ((name, key), target)]
            if kinds == ["DOUBLE", "whole numbers"]:  # what pandas makes of whole ones with gaps
                self._whole_floats.add(name)
            elif kinds[0] != kinds[1]:
                raise DataError(
                    f"keys must be of one type on both sides; got {kinds[0]} in {key!r} of "
                    f"{name!r} and {kinds[1]} in {target[1]!r} of {target[0]!r}. Make both text, "
                    "or both whole numbers."
                )

    def _check_rows(self) -> None:
        engines = self._here().engines
        for name, (key, other) in self._paths.items():
            rows = engines.relation(name)
            if name in self._whole_floats:
                column = sql.quote(key)
                exact = f"abs({column}) < {2**53} AND {column} = trunc({column})"
                ((odd,),) = engines.rows(
                    f"SELECT count(*) FROM {rows} t WHERE {column} IS NOT NULL AND NOT ({exact})"
                )
                if odd:
                    raise DataError(
                        f"keys must be whole numbers below 2^53 where they are floats; got {odd} "
                        f"others in {key!r} of {name!r}. Make them whole numbers, or text."
                    )
            ((lost, several),) = engines.rows(
                "SELECT count(*) FILTER (WHERE coalesce(c.n, 0) = 0), "
                f"count(*) FILTER (WHERE c.n > 1) FROM {rows} t LEFT JOIN "
                f"(SELECT key, count(*) AS n FROM {engines.pairs(name)} p GROUP BY key) c "
                f"ON {engines.key(name)} = c.key"
            )
            if several and other is not None:
                raise DataError(
                    f"every row of {name!r} must reach one unit; got {several} rows that reach "
                    f"several through {other[0]}.{other[1]}. Use a key that does not."
                )
            if lost or several:
                raise DataError(
                    f"every row of {name!r} must belong to a unit of {self.unit}; got {lost} rows "
                    f"whose {key!r} is missing or leads to none. Drop them or mend the key."
                )

    def _check_twins(self) -> None:
        """Warn of a public table that is a private one under another name."""
        contents = self._here().engines.contents
        for name in self.names:
            for private in self.private if name not in self.private else ():
                alike = sorted(self._types[name]) == sorted(self._types[private])
                if alike and contents(name) == contents(private):
                    warnings.warn(
                        f"table {name!r} is public and has the rows of the private table "
                        f"{private!r}: queries of it show everybody's. Name it in via, or leave "
                        "it out.",
                        stacklevel=3,
                    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateTables(Mapping[str, Any]):
    """View of the candidate with these ``units``: frames by name, or answers; curator-only."""

    tables: Tables
    units: npt.NDArray[np.int64]

    def __getitem__(self, name: str) -> Any:
        if name not in self.tables.names:
            raise KeyError(name)
        return self.tables._frame_of(name, self.units)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables.names)

    def __len__(self) -> int:
        return len(self.tables.names)

    @property
    def share(self) -> float:
        return len(self.units) / self.tables.n_units

    def ask(self, query: sql.Select) -> list[Row]:
        self.tables._set_candidate(self.units)
        return self.tables.ask(cut_tables(query, self.tables))
