"""``--promise dp``: statistics of a table under differential privacy, and when to think of it.

The release has a certificate of its own kind. Nothing here is mixed with a promise of PAC privacy.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy.budget import EpsilonEquivalent, Membership, budget_limits, parse_budget
from pacprivacy.dp import STATISTICS, DPRelease, release_dp_statistic
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.mechanism import code_column_levels
from pacprivacy.stats import Statistic
from pacprivacy.tables import (
    ModelOptions,
    ModelStudy,
    Reading,
    Table,
    category_rows_where,
    described_model_columns,
    model_numbers,
    model_ranges,
    read_table,
)

HINTED: Final = ("count", "sum", "mean")
ONLY_PAC: Final = (
    *("unit", "subsets", "rule", "universe_facts", "clusters", "components", "C", "trees", "depth"),
    *("weights", "missing", "fill", "jobs", "checkpoint"),
    *("ledger", "dataset", "principal", "total", "state"),
)


def check_dp_promise(given: dict[str, Any]) -> None:
    """Refuse options that belong to the other promise."""
    for option in ONLY_PAC:
        name = option.replace("_", "-")
        value = given["cost" if option == "C" else option]
        if value not in (None, False, "drop"):
            advice = "It belongs to --promise pac."
            if name == "unit":
                advice = "A row is protected there: make one row per person, or use --promise pac."
            raise DataError(f"--{name} must be left out with --promise dp; got a value. {advice}")


def release_dp_promise(
    data: Path,
    model: str,
    asked: ModelOptions,
    reading: Reading,
    budget: str,
    *,
    delta: float | None,
    name: str | None,
    simulate: int | None,
) -> DPRelease:
    """Release a statistic of a file; ranges and levels must be declared."""
    if model not in STATISTICS:
        raise DataError(
            f"--model must be one of {', '.join(STATISTICS)} with --promise dp; got {model!r}. "
            "For models see 'pac compare' and pacprivacy.dp."
        )
    limit = parse_budget(budget)
    own = {"delta": delta, "bins": asked.bins, "q": asked.q}
    given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    if isinstance(limit, Membership):
        given["success"] = limit.success
    elif isinstance(limit, EpsilonEquivalent):
        given["epsilon"] = limit.epsilon
    else:
        raise BudgetError(
            f"--budget must be a membership or an epsilon alone with --promise dp; got {budget!r}. "
            'Write "membership<=0.6" or "epsilon<=1".'
        )
    if asked.ranges is None and model != "count":
        raise DataError(
            f"--ranges must be given for --model {model} with --promise dp; got nothing. Say what "
            "values can be, known without the file: --ranges 0,120 or 'age=0,120;pay=0,1e6'."
        )
    for column in asked.by or ():
        if column not in asked.levels:
            raise DataError(
                f"--levels must name those of {column!r} with --promise dp; got none: what occurs "
                f'in the file would tell who is in. Write --levels "{column}=A,B".'
            )
    table = read_table(data, reading)
    names = () if model == "count" else described_model_columns(table, asked)
    names = names or asked.columns or ()
    columns = {column: model_numbers(table, column) for column in names}
    cells, labels = _cells(table, asked)
    found = release_dp_statistic(
        columns or {"records": np.zeros(table.n_rows)},
        statistic=model,
        ranges=()
        if asked.ranges is None or model == "count"
        else model_ranges(asked.ranges, names),
        cells=cells,
        cell_names=labels,
        simulate=simulate,
        **given,
    )
    if name is None:
        return found
    called = replace(found.certificate, mechanism=f"{name} ({found.certificate.mechanism})")
    return DPRelease(value=found.value, certificate=called)


def _cells(table: Table, asked: ModelOptions) -> tuple[Any, list[str]]:
    """Return the group of every row that meets the condition, -1 elsewhere; and their names."""
    cells, labels = np.zeros(table.n_rows, dtype=np.int64), [""]
    for column in asked.by or ():
        levels = asked.levels[column]
        codes = code_column_levels(table.columns[column].labels, levels)
        cells = np.where((cells < 0) | (codes < 0), -1, cells * len(levels) + codes)
        labels = [f"{old}, {level}".removeprefix(", ") for old in labels for level in levels]
    return np.where(category_rows_where(table, asked.where), cells, -1), labels


def promise_hint(
    study: ModelStudy, model: str, asked: ModelOptions, budget: Any, error: float
) -> str:
    """Say, for the curator, where differential privacy would do better at the same success.

    For models in ``HINTED``; ``error`` is the root mean square of the standard errors.
    """
    success = budget_limits(budget, 2).success_level
    statistic = study.built.mechanism
    if success is None or asked.unit or asked.weights:
        return ""
    assert isinstance(statistic, Statistic)
    whole = statistic.prepare(study.built.data)
    rows = whole.read(study.built.data.parts)
    columns = {str(j): column for j, column in enumerate(rows.X.T)}
    trial = release_dp_statistic(
        columns or {"": np.zeros(len(rows.cells))},
        statistic=model,
        ranges=[_wide(column) for column in columns.values()],
        cells=np.where(rows.weights > 0, rows.cells, -1),
        cell_names=[str(cell) for cell in range(int(rows.cells.max()) + 1)],
        success=success,
        simulate=0,
    )
    noise = float(np.sqrt(np.mean([row.std_error**2 for row in trial.rows()])))
    if not noise < error:
        return ""
    where = "" if model == "count" else ", with declared ranges even twice as wide as the data"
    return (
        "differential privacy would give less error at this success: about "
        f"{_short(noise)} instead of {_short(error)}{where}. See --promise dp of 'pac release'."
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _wide(values: Any) -> tuple[float, float]:
    """Return a range twice as wide as that of the data."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    more = ((high - low) or 1.0) / 2
    return low - more, high + more
