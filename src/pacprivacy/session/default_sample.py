"""Which kind of sample a single release has where nobody asks for one: coins, wherever they can be.

The choice depends on options, types and the number of units alone, never on values of records or
on who is used. Where it is a pool, the certificate says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from pacprivacy.budget import BudgetLike, budget_limits
from pacprivacy.errors import PoolError
from pacprivacy.mechanism import Data, Mechanism
from pacprivacy.queries import Tables
from pacprivacy.release import plural_text
from pacprivacy.sample import canonical_unit_ids, pool_unit_name
from pacprivacy.statistics import coin_obstacle

FEWEST_UNITS: Final = 200  # with coins by default: 20 of them are left out on average
_LABELS_AT_ONCE: Final = 1024


def pool_reason(
    mechanism: Mechanism,
    data: Data,
    units: Any,
    budget: BudgetLike,
    *,
    options: Mapping[str, Any],
) -> str | None:
    """Return why a release without a ``sample`` has a pool, to follow "because"; None for coins.

    ``options`` are those that only a pool has, by name; ``units`` labels of rows, or None.

    Guarantee
    ---------
    Claim C-1. A function of the mechanism, the options, the types of the data, and whether there
    are at least 200 units: the last is a fact of all records, and no fact of the sample.
    """
    unit = pool_unit_name(str(getattr(units, "name", "") or "")) or "unit"
    if units is None:
        tables = data.parts[0]
        unit = pool_unit_name(tables.unit) or "unit" if isinstance(tables, Tables) else "record"
    reason = coin_obstacle(mechanism, data)
    if reason is not None:
        return reason.format(unit=unit, units=plural_text(unit))
    limits = budget_limits(budget, n_subsets=2)
    if limits.success_level is None or limits.mi_nats is not None:
        return "the budget is not about membership alone"
    if not _has_units(units, data.n_rows, FEWEST_UNITS):
        return f"the table has fewer than {FEWEST_UNITS} {plural_text(unit)}"
    chosen = (name for name, value in options.items() if value is not None)
    return next((f"{name} was set, which is for pools" for name in chosen), None)


def _has_units(labels: Any, n_rows: int, least: int) -> bool:
    """Return whether there are so many units, reading no more labels than it takes."""
    if labels is None or n_rows < least:
        return n_rows >= least
    entries, units = np.asarray(labels), set[bytes]()
    for start in range(0, n_rows, _LABELS_AT_ONCE):
        try:
            units.update(canonical_unit_ids(entries[start : start + _LABELS_AT_ONCE]))
        except PoolError:  # labels that no coin can be keyed to; a pool takes or refuses them
            return False
        if len(units) >= least:
            return True
    return False
