"""``--promise dp``: statistics that hide who is in the table.

Sums under a membership budget are those of every release, with noise from what was declared.
Quantiles, and a pure epsilon, have mechanisms and a certificate of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy.budget import EpsilonEquivalent, Membership, parse_budget
from pacprivacy.cli.console import tell_curator
from pacprivacy.dp import STATISTICS, DPRelease, release_dp_statistic
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.mechanism import code_plain_levels, declared_column_levels, identity_warning
from pacprivacy.privatizing import privatize
from pacprivacy.release import Release
from pacprivacy.sample import Coins
from pacprivacy.statistics import number_cells
from pacprivacy.tables import (
    ModelOptions,
    Reading,
    Table,
    category_rows_where,
    described_model_columns,
    model_numbers,
    model_ranges,
    read_model_study,
    read_table,
    table_identities,
)

SUMS: Final = ("count", "sum", "mean", "variance", "crosstab", "histogram")
ONLY_PAC: Final = (
    *("sample", "keep", "clip", "subsets", "rule", "universe_facts"),
    *("clusters", "components", "C", "trees", "depth", "jobs", "checkpoint"),
    *("ledger", "dataset", "principal", "total", "state", "share"),
)
ONLY_SUMS: Final = ("unit", "weights", "missing", "fill")


def check_dp_promise(values: dict[str, Any]) -> None:
    """Refuse options that belong to PAC privacy."""
    for option in ONLY_PAC:
        name = option.replace("_", "-")
        value = values["cost" if option == "C" else option]
        if value not in (None, False):
            raise DataError(
                f"--{name} must be left out with --promise dp; got a value. It belongs to "
                "--promise pac."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisedStatistic:
    """A requested statistic of a file, and how many rows of a unit are used."""

    data: Path
    model: str
    options: ModelOptions
    reading: Reading
    rows_per_unit: int | None = None
    name: str | None = None


def release_dp_promise(
    request: PromisedStatistic, budget: str, *, simulate: int | None, quiet: bool = False
) -> DPRelease | Release:
    """Release a statistic of a file; ranges and levels must be declared."""
    options, limit = request.options, parse_budget(budget)
    known = tuple(dict.fromkeys((*SUMS, *STATISTICS)))
    if request.model not in known:
        raise DataError(
            f"--model must be one of {', '.join(known)} with --promise dp; got {request.model!r}. "
            "For models see pacprivacy.dp."
        )
    if not isinstance(limit, Membership | EpsilonEquivalent):
        raise BudgetError(
            f"--budget must be a membership or an epsilon alone with --promise dp; got {budget!r}. "
            'Write "membership<=0.6" or "epsilon<=1".'
        )
    _check_declared(request.model, options)
    request = replace(request, reading=reading_by_entry(request.model, options, request.reading))
    if isinstance(limit, Membership) and request.model in SUMS:
        return _release_sums(request, limit, simulate=simulate, quiet=quiet)
    if request.model not in STATISTICS:
        raise BudgetError(
            f"--budget must be a membership for --model {request.model} with --promise dp; got "
            f'{budget!r}. Write "membership<=0.6".'
        )
    for name in (*ONLY_SUMS, "rows_per_unit"):
        value = request.rows_per_unit if name == "rows_per_unit" else getattr(options, name)
        if value not in (None, "drop"):
            raise DataError(
                f"--{name.replace('_', '-')} must be left out for quantiles and for a pure epsilon "
                "with --promise dp; got a value. Use sums and a membership budget."
            )
    return _release_rows(request, limit, simulate=simulate, quiet=quiet)


def reading_by_entry(model: str, options: ModelOptions, reading: Reading) -> Reading:
    """Return a reading in which no entry decides how those of others are read, or is refused.

    Guarantee
    ---------
    Claim C-9. The kind of every column follows from the options and the schema.
    """
    ranges, unit = options.ranges, options.unit
    described = (options.target,) if options.target is not None else options.columns
    every = described is None and isinstance(ranges, tuple) and model != "count"
    named = [] if ranges is None or isinstance(ranges, tuple) else [*ranges]
    named += [] if options.weights is None else [options.weights]
    return replace(
        reading,
        by_entry=True,
        find_dates=False,
        levels=options.levels,
        numbers=None if every else frozenset((*(described or ()), *named)),
        texts=frozenset((*options.categories, *(options.by or ()), *((unit,) if unit else ()))),
    )


def _check_declared(model: str, options: ModelOptions) -> None:
    """Refuse a release without the declarations that it needs, before the file is read."""
    if options.missing not in ("drop", "category"):
        raise DataError(
            f"--missing must be drop or category with --promise dp; got {options.missing!r}: what "
            "it does would tell of gaps. Use drop."
        )
    shares = options.columns is not None and all(c in options.levels for c in options.columns)
    if options.ranges is None and model not in ("count", "crosstab") and not shares:
        raise DataError(
            f"--ranges must be given for --model {model} with --promise dp; got nothing. Say what "
            "values can be, known without the file: --ranges 0,120 or 'age=0,120;pay=0,1e6'."
        )
    grouped = (options.columns or ()) if model == "crosstab" else ()
    for column in (*(options.by or ()), *grouped):
        if column not in options.levels:
            raise DataError(
                f"--levels must name those of {column!r} with --promise dp; got none: what occurs "
                f'in the file would tell who is in. Write --levels "{column}=A,B".'
            )


def _release_sums(
    asked: PromisedStatistic, limit: Membership, *, simulate: int | None, quiet: bool
) -> Release:
    rows = asked.rows_per_unit
    if (asked.options.unit is None) != (rows is None):
        raise DataError(
            "--unit and --rows-per-unit must be given together with --promise dp; got one of them. "
            "Say whose row it is, and how many rows of one are used at most."
        )
    study = read_model_study(asked.data, asked.model, asked.options, asked.reading)
    tell_curator(study.notes, quiet=quiet)
    return privatize(
        study.mechanism,
        study.universe,
        limit,
        sample=Coins(rows_per_unit=rows or 1),
        units=study.units,
        rng=simulate,
        simulate=simulate is not None,
        name=asked.name,
    )


def _release_rows(
    asked: PromisedStatistic,
    limit: Membership | EpsilonEquivalent,
    *,
    simulate: int | None,
    quiet: bool,
) -> DPRelease:
    """Release quantiles, or numbers under a pure epsilon; a row is protected."""
    model, options = asked.model, asked.options
    optional = {"bins": options.bins, "q": options.q}
    arguments: dict[str, Any] = {
        name: value for name, value in optional.items() if value is not None
    }
    if isinstance(limit, Membership):
        arguments["success"] = limit.success
    else:
        arguments["epsilon"] = limit.epsilon
    table = read_table(asked.data, asked.reading)
    tell_curator(_notes(table, options), quiet=quiet)
    names = () if model == "count" else described_model_columns(table, options)
    names = names or options.columns or ()
    columns = {column: model_numbers(table, column) for column in names}
    cells, labels = _cells(table, options)
    release = release_dp_statistic(
        columns or {"records": np.zeros(table.n_rows)},
        statistic=model,
        ranges=()
        if options.ranges is None or model == "count"
        else model_ranges(options.ranges, names),
        cells=cells,
        cell_names=labels,
        simulate=simulate,
        **arguments,
    )
    if asked.name is None:
        return release
    called = f"{asked.name} ({release.certificate.mechanism})"
    return DPRelease(
        value=release.value, certificate=replace(release.certificate, mechanism=called)
    )


def _notes(table: Table, options: ModelOptions) -> tuple[str, ...]:
    kept = category_rows_where(table, options.where)
    names = table_identities(table)
    many = (f"{identity_warning(names)} Make one row per person.",) if names else ()
    remaining = f"{int(kept.sum()):,} of {table.n_rows:,} records meet the condition"
    return (*table.notes, *many, *(() if options.where is None else (remaining,)))


def _cells(table: Table, options: ModelOptions) -> tuple[Any, list[str]]:
    """Return the group of every row that meets the condition, -1 elsewhere; and their names."""
    groups, labels = [], [""]
    for column in options.by or ():
        held = table.columns[column].compared().kind
        levels = options.levels[column]
        if held == "date":
            levels = declared_column_levels(column, levels, held)
        groups.append((code_plain_levels(table.columns[column].entries, levels), len(levels)))
        labels = [f"{old}, {level}".removeprefix(", ") for old in labels for level in levels]
    cells = number_cells(groups, table.n_rows)
    return np.where(category_rows_where(table, options.where), cells, -1), labels
