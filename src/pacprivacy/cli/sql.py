"""``pac sql``: a private answer to a query over tables in a file or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pacprivacy.cli import options
from pacprivacy.cli.console import Screen, Verb, option, typed_option
from pacprivacy.cli.release import (
    Full,
    Seed,
    Simulate,
    check_release_folder,
    save_release,
    show_release,
)
from pacprivacy.errors import DataError
from pacprivacy.privatizing import sql as answer
from pacprivacy.queries import AT_LEAST, Tables
from pacprivacy.session import Session
from pacprivacy.tables import SUFFIXES, declared_levels, read_folder

_Source = Annotated[
    str,
    typer.Argument(
        metavar="TABLES",
        help="DuckDB file, one table as .csv or .parquet, a folder of them, or postgresql://...",
    ),
]
_Query = Annotated[str, typer.Argument(metavar="QUERY", help="A SELECT of aggregates.")]
_Key = Annotated[str, typed_option("TABLE.COLUMN", "Who is protected: one value each.")]
Via = Annotated[
    list[str] | None,
    typed_option(
        "TABLE=COLUMN",
        "How a private table reaches the unit: orders=customer_id, or "
        "lines=order_id:orders.id through another. Repeat it; other tables are public.",
    ),
]
_Keys = Annotated[
    list[str] | None,
    typed_option(
        "KEY=A,B,...",
        "Groups of a GROUP BY: values of a key (repeat it), or 'universe' to publish the "
        "groups in the data.",
    ),
]
Schemas = Annotated[
    Path | None,
    typed_option(
        "PLACE", "Folder of NAME.toml, how each table is read, or a file for a file: pac schema."
    ),
]


def _sql(
    *,
    source: _Source,
    query: _Query,
    unit: _Key,
    account: options.AccountOptions,
    output: options.Folder,
    via: Via = None,
    schema: Schemas = None,
    keys: _Keys = None,
    at_least: int = option(
        "N", "With --keys universe: units that a group must have.", default=AT_LEAST
    ),
    fill: options.Fill = None,
    subsets: options.Subsets = None,
    jobs: options.Jobs = None,
    checkpoint: options.Checkpoint = None,
    name: options.Name = None,
    seed: Seed = None,
    simulate: Simulate = False,
    full: Full = False,
    screen: Screen,
) -> None:
    """Answer a query over tables, every cell with noise and an interval, under one certificate.

    Three files are written: release.json and values.csv, the answer, may be published; curator.npz
    is for the curator alone. With --ledger it is one more release of a session, under one total
    budget.
    """
    limits, total, share = account.limits(), account.read_total(), account.part
    check_release_folder(output)
    tables = open_sql_tables(source, schema, unit=unit, via=via or [])
    declared = _read_keys(keys or [], schema)
    progress = screen.progress
    if account.ledger is None:
        assert limits is not None  # a share is one of a ledger
        release = answer(
            query,
            tables,
            limits,
            keys=declared,
            at_least=at_least,
            fill=fill,
            checkpoint=checkpoint,
            name=name,
            n_subsets=subsets,
            n_jobs=jobs,
            rng=seed,
            progress=progress,
            simulate=simulate,
        )
    else:
        with Session(
            tables,
            ledger=account.ledger,
            budget=total,
            dataset=account.dataset,
            principal=account.principal,
            state=account.state,
            n_subsets=subsets,
            n_jobs=jobs,
            rng=seed,
            progress=progress,
            simulate=simulate,
        ) as session:
            release = session.sql(
                query,
                limits,
                share=share,
                keys=declared,
                at_least=at_least,
                fill=fill,
                checkpoint=checkpoint,
                name=name,
            )
    files = save_release(release, output)
    show_release(release, files, screen, full=full)


def open_sql_tables(
    source: str | Path, schemas: Path | None, *, unit: str, via: list[str]
) -> Tables:
    """Open the tables of a file or folder, read by schemas if there are any."""
    paths = read_sql_paths(via)
    tables: Any = source
    if schemas is not None or Path(source).suffix in SUFFIXES:
        tables = read_folder(Path(source), schemas, _id_columns(unit, paths))
    return Tables(tables, unit=unit, via=paths)


def _id_columns(unit: str, paths: dict[str, Any]) -> dict[str, set[str]]:
    ids: dict[str, set[str]] = {}

    def add(place: str) -> None:
        table, _, column = place.rpartition(".")
        ids.setdefault(table, set()).add(column)

    add(unit)
    for table, path in paths.items():
        column, other = path if isinstance(path, tuple) else (path, None)
        add(f"{table}.{column}")
        if other is not None:
            add(other)
    return ids


def read_sql_paths(texts: list[str]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for text in texts:
        table, sign, path = text.partition("=")
        if not (sign and table and path):
            raise DataError(
                f"--via must be TABLE=COLUMN or TABLE=COLUMN:OTHER.COLUMN; got {text!r}. "
                "For example --via orders=customer_id."
            )
        column, through, other = path.partition(":")
        paths[table] = (column, other) if through else column
    return paths


def _read_keys(texts: list[str], schemas: Path | None) -> Any:
    """Return the values of keys as typed, else as schemas declare levels of columns."""
    if texts == ["universe"]:
        return "universe"
    levels = {} if schemas is None else declared_levels(schemas)
    declared = {name: list(values) for name, values in levels.items()}
    for text in texts:
        name, sign, values = text.partition("=")
        if not (sign and name and values):
            raise DataError(
                f"--keys must be KEY=A,B,... or universe; got {text!r}. "
                "For example --keys region=north,south."
            )
        declared[name] = values.split(",")
    return declared or None


sql = Verb(
    function=_sql,
    example="""\
  pac sql visits.csv "SELECT avg(cost) AS cost FROM visits" --unit visits.person \\
      --budget "membership<=0.6" -o out-cost
  pac sql shop.duckdb "SELECT region, avg(amount) AS amount FROM orders GROUP BY region" \\
      --unit customer.id --via orders=customer_id --keys universe \\
      --budget "membership<=0.6" -o out""",
)
