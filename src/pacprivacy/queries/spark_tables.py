"""Frames of Spark as tables: what reads their rows runs in Spark, and sums over subsets come home.

DuckDB has the same tables without rows: it reads queries, knows their types, and makes cells of
sums. Numbers are added by Spark as whole ones: in any order, over any partitions and after any
loss they are the same to the last bit.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Vector
from pacprivacy.errors import DataError, QueryError
from pacprivacy.queries.engines import Row

SENT_AT_ONCE: Final = 2**16  # numbers in a row that Spark adds up
# What sessions may have changed: errors are errors and not NULL, and no digit is dropped.
SETTINGS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
}
LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")  # of errors, with values
PARTS: Final = ("year", "month", "day")
# What means the same in both engines; anything else is to be a column of a frame.
ALIKE: Final = (
    "Select From Join Table TableAlias Where Group Column Identifier Alias Paren Literal Boolean "
    "Null Star Subquery With CTE Tuple Placeholder Filter Distinct DataType EQ NEQ GT GTE LT LTE "
    "And Or Not In Between Is Like NullSafeEQ NullSafeNEQ Add Sub Mul Div Neg Case If Coalesce "
    "Nullif Abs Cast Extract Var Year Month Day RegrSlope"
)


_NUMBERS = itertools.count()  # of views, each of which is there for one query
_ONE = threading.RLock()  # settings are of a session and of a process


def is_spark_frame(frame: Any) -> bool:
    """Whether a frame is one of Spark; nothing is imported."""
    return type(frame).__module__.startswith("pyspark.sql")


class SparkTables:
    """Queries of ours over frames of Spark, which must stay as they are, and Arrow tables."""

    def __init__(self, frames: Mapping[str, Any], base: str) -> None:
        self.session = next(filter(is_spark_frame, frames.values())).sparkSession
        if type(self.session).__module__.startswith("pyspark.sql.connect"):
            raise DataError(
                "frames of Spark must be those of a session in this process; got Spark Connect. "
                "Run the program as a driver of the cluster."
            )
        self._base, self._kept = base, ""
        self._frames: dict[str, Any] = {}
        self._held: list[Any] = []
        weakref.finalize(self, _release, self._held).atexit = False
        self.empty = {}  # for DuckDB
        for name, frame in frames.items():
            there = is_spark_frame(frame)
            converted = frame if there else self.session.createDataFrame(frame)
            self._frames[f"{base}.{name}".lower()] = converted
            self.empty[name] = frame.limit(0).toArrow() if there else frame.slice(0, 0)

    def __reduce__(self) -> NoReturn:
        raise DataError("tables of Spark frames stay in the process of their session; got a copy.")

    def create(self, kind: str, name: str, query: str) -> None:
        """Call the answer to a query by a name; that of a table is computed once."""
        plain = name.replace('"', "").lower()
        if plain not in self._frames or not kind.endswith("EXISTS"):
            self._frames[plain] = self.frame(query, keep=kind.startswith("TABLE"))

    def frame(
        self,
        query: str,
        values: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None,
        *,
        keep: bool = False,
    ) -> Any:
        """Return the answer to a query in DuckDB's SQL as a frame; ``local`` tables are there."""
        from sqlglot import exp, parse_one

        frames = {**self._frames, **(local or {})}
        views: dict[str, str] = {}
        tree = parse_one(query, dialect="duckdb")
        for table in tree.find_all(exp.Table):
            name = ".".join(filter(None, (table.db, table.name))).lower()
            if name in frames:
                view = views.setdefault(name, f"pac_view_{next(_NUMBERS)}")
                alias = exp.to_identifier(table.alias_or_name, quoted=True)
                table.set("alias", exp.TableAlias(this=alias))
                table.set("this", exp.to_identifier(view))
                table.set("db", None)
        for node in tree.find_all(exp.Div, exp.Avg):  # of doubles, as DuckDB has them
            for side in ("this", "expression"):
                if node.args.get(side) is not None:
                    node.set(side, exp.cast(node.args[side].copy(), "double"))
        with self._asking():
            for name, view in views.items():
                source = frames[name]
                converted = (
                    source if is_spark_frame(source) else self.session.createDataFrame(source)
                )
                converted.createTempView(view)
            try:
                result = self.session.sql(tree.sql(dialect="spark"), args=dict(values or {}))
                if keep:
                    self._held.append(result.persist())
                return result
            finally:
                for view in views.values():
                    self.session.catalog.dropTempView(view)

    def rows(
        self,
        query: str,
        values: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None,
    ) -> list[Row]:
        """Return the answer to a query of ours; curator-only."""
        frame = self.frame(query, values, local)
        with self._asking():
            return [tuple(row) for row in frame.collect()]

    def ask_world(
        self,
        query: str,
        values: Mapping[str, Any] | None,
        units: npt.NDArray[np.int64],
        private: Sequence[str],
    ) -> list[Row]:
        """Return the answer to a query over the private tables cut to some units."""
        import pyarrow

        world = {"pac_world": pyarrow.table({"code": units.astype(np.int32)})}
        cut = "SELECT t.* EXCLUDE (pac_unit) FROM {} t SEMI JOIN pac_world w ON t.pac_unit = w.code"
        local = {
            name.lower(): self.frame(cut.format(f'pac_whole."{name}"'), None, world)
            for name in private
        }
        return self.rows(query, values, local)

    def kept(self, query: str) -> str:
        """Run a query of ours once; return the name of the table with its answer."""
        name = f"pac_kept_{hashlib.sha256(query.encode()).hexdigest()}"
        if self._kept != name:
            self.forget()
            self._kept, self._frames[name] = name, self.frame(query, keep=True)
        return name

    def forget(self) -> None:
        """Let Spark drop what :meth:`kept` keeps."""
        frame = self._frames.get(self._kept)
        self._kept = ""
        if frame in self._held:
            self._held.remove(frame)
            _release([frame])

    def digest(self, name: str) -> str:
        """Return a hash of the rows of a table, whatever their order."""
        with self._asking():
            return _frame_digest(self._frames[f"{self._base}.{name}".lower()])

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask Spark with settings of ours; its errors, which may show values, are not repeated."""
        from pyspark.logger import PySparkLogger

        config = self.session.conf
        log4j = self.session.sparkContext._jvm.org.apache.logging.log4j
        set_level = log4j.core.config.Configurator.setRootLevel
        with _ONE, ExitStack() as after:
            for name, value in SETTINGS.items():
                after.callback(config.set, name, config.get(name))
                config.set(name, value)
            for logger in map(PySparkLogger.getLogger, LOGGERS):
                after.callback(setattr, logger, "disabled", logger.disabled)
                logger.disabled = True
            after.callback(set_level, log4j.LogManager.getRootLogger().getLevel())
            set_level(log4j.Level.OFF)  # of the driver, where analysts may be looking
            try:
                yield
            except Exception as error:
                raise QueryError(
                    "the query must have a value on every subset of the units; Spark stopped with "
                    f"an error of the kind {type(error).__name__!r}. Its words may show values, "
                    "so they are left out: look for a cast, a division or a sum that fails on "
                    "some rows, or a worker without pacprivacy."
                ) from None

    def added(
        self,
        query: str,
        function: Callable[[Iterator[Any]], Vector],
        local: Mapping[str, Any] | None = None,
    ) -> Vector:
        """Return the whole numbers that a function makes of every partition, added up by Spark."""
        import pyarrow

        def make(batches: Iterator[Any]) -> Iterator[Any]:
            vector = function(batches)
            cuts = range(0, vector.size, SENT_AT_ONCE)
            values = [vector[cut : cut + SENT_AT_ONCE].tobytes() for cut in cuts]
            rows = {"block": list(range(len(cuts))), "value": values}
            yield pyarrow.RecordBatch.from_pydict(rows)

        def add(table: Any) -> Any:
            values = [np.frombuffer(value) for value in table.column("value").to_pylist()]
            total = np.sum(values, axis=0).tobytes()
            return pyarrow.table({"block": table.column("block")[:1], "value": [total]})

        kind, frame = "block long, value binary", self.frame(query, None, local)
        with self._asking():
            parts = frame.mapInArrow(make, kind).groupBy("block").applyInArrow(add, kind)
            blocks = sorted(parts.collect(), key=lambda row: row.block)
        # Without a partition nothing was made: as of one without rows.
        values = [np.frombuffer(bytes(row.value)) for row in blocks] or [function(iter(()))]
        return np.concatenate(values)


def spark_refusal(query: str) -> str:
    """Return what of a query, aggregates aside, may mean something else in Spark; or nothing."""
    from sqlglot import exp, parse_one

    alike = ALIKE.split()
    for node in parse_one(query, dialect="duckdb").walk():
        kind = type(node).__name__
        wrong = kind not in alike and not isinstance(node, exp.AggFunc)
        if kind == "Cast":
            wrong = not (node.this.key == "literal" or node.args["to"].sql("duckdb") == "DOUBLE")
        elif kind == "Extract":
            wrong = node.name.lower() not in PARTS
        elif kind == "Literal":
            wrong = "\\" in node.name
        elif kind == "Group":
            wrong = any(value for name, value in node.args.items() if name != "expressions")
        if wrong:
            for column in node.find_all(exp.Column):  # names of ours, which nobody wrote
                column.set("table", None)
            return str(node.sql("duckdb")).replace('"', "").lower()
    return ""


def _release(frames: list[Any]) -> None:
    """Let Spark drop frames that it keeps; a session that has ended has none."""
    for frame in frames:
        with suppress(Exception):
            frame.unpersist()


def _frame_digest(frame: Any) -> str:
    """Return a hash of columns and rows in any order, against accidents; curator-only."""
    from pyspark.sql import functions

    parts = []
    for name in frame.columns:
        column = functions.col("`" + name.replace("`", "``") + "`")
        parts += [column, column.isNull()]  # what is missing has no hash of its own
    row = functions.xxhash64(*parts)
    total = functions.sum(row.cast("decimal(20, 0)"))
    summary = frame.agg(functions.count("*"), functions.bit_xor(row), total).collect()
    return hashlib.blake2b(f"{frame.dtypes} {tuple(summary[0])}".encode()).hexdigest()
