"""``--promise dp``: statistics of a table under differential privacy.

The release has a certificate of its own kind. Nothing here is mixed with a promise of PAC privacy.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy.budget import EpsilonEquivalent, Membership, parse_budget
from pacprivacy.cli.console import tell_curator
from pacprivacy.dp import STATISTICS, DPRelease, release_dp_statistic
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.mechanism import code_column_levels, declared_column_levels, identity_warning
from pacprivacy.statistics import number_cells
from pacprivacy.tables import (
    ModelOptions,
    Reading,
    Table,
    category_rows_where,
    described_model_columns,
    model_numbers,
    model_ranges,
    read_table,
    table_identities,
)

ONLY_PAC: Final = (
    *(
        "unit",
        "sample",
        "keep",
        "clip",
        "subsets",
        "rule",
        "universe_facts",
        "clusters",
        "components",
        "C",
        "trees",
        "depth",
    ),
    *("weights", "missing", "fill", "jobs", "checkpoint"),
    *("ledger", "dataset", "principal", "total", "state", "share", "plot"),
)


def check_dp_promise(values: dict[str, Any]) -> None:
    """Refuse options that belong to the other promise."""
    for option in ONLY_PAC:
        name = option.replace("_", "-")
        value = values["cost" if option == "C" else option]
        if value not in (None, False, "drop"):
            advice = "It belongs to --promise pac."
            if name == "unit":
                advice = "A row is protected there: make one row per person, or use --promise pac."
            raise DataError(f"--{name} must be left out with --promise dp; got a value. {advice}")


def release_dp_promise(
    data: Path,
    model: str,
    options: ModelOptions,
    reading: Reading,
    budget: str,
    *,
    delta: float | None,
    name: str | None,
    simulate: int | None,
    quiet: bool = False,
) -> DPRelease:
    """Release a statistic of a file; ranges and levels must be declared."""
    if model not in STATISTICS:
        raise DataError(
            f"--model must be one of {', '.join(STATISTICS)} with --promise dp; got {model!r}. "
            "For models see pacprivacy.dp."
        )
    limit = parse_budget(budget)
    optional = {"delta": delta, "bins": options.bins, "q": options.q}
    arguments: dict[str, Any] = {
        name: value for name, value in optional.items() if value is not None
    }
    if isinstance(limit, Membership):
        arguments["success"] = limit.success
    elif isinstance(limit, EpsilonEquivalent):
        arguments["epsilon"] = limit.epsilon
    else:
        raise BudgetError(
            f"--budget must be a membership or an epsilon alone with --promise dp; got {budget!r}. "
            'Write "membership<=0.6" or "epsilon<=1".'
        )
    if options.ranges is None and model != "count":
        raise DataError(
            f"--ranges must be given for --model {model} with --promise dp; got nothing. Say what "
            "values can be, known without the file: --ranges 0,120 or 'age=0,120;pay=0,1e6'."
        )
    for column in options.by or ():
        if column not in options.levels:
            raise DataError(
                f"--levels must name those of {column!r} with --promise dp; got none: what occurs "
                f'in the file would tell who is in. Write --levels "{column}=A,B".'
            )
    table = read_table(data, reading)
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
    if name is None:
        return release
    called = replace(release.certificate, mechanism=f"{name} ({release.certificate.mechanism})")
    return DPRelease(value=release.value, certificate=called)


def _notes(table: Table, options: ModelOptions) -> tuple[str, ...]:
    """Return who would not be protected, and how many rows remain, for the curator alone."""
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
        levels = declared_column_levels(column, options.levels[column], held)
        groups.append((code_column_levels(table.columns[column].entries, levels), len(levels)))
        labels = [f"{old}, {level}".removeprefix(", ") for old in labels for level in levels]
    cells = number_cells(groups, table.n_rows)
    return np.where(category_rows_where(table, options.where), cells, -1), labels
