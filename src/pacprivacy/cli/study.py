"""From a file and options to what :func:`pacprivacy.privatize` takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pacprivacy.cli.columns import unit_labels
from pacprivacy.cli.models import ModelOptions, find_model
from pacprivacy.cli.tables import read_table
from pacprivacy.mechanism import Mechanism
from pacprivacy.pool import PoolStrategy

__all__ = ["Study", "read_study"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A mechanism, its data, and who belongs together; curator-only but for the mechanism."""

    mechanism: Mechanism
    universe: Any = field(repr=False)
    units: Any = field(repr=False)
    pool: PoolStrategy | None


def read_study(data: Path, model: str, options: ModelOptions) -> Study:
    """Read the file and build the model on it.

    A classifier gets a pool in which every subset has half of every class.
    """
    chosen = find_model(model, options)
    kept = [name for name in (options.unit, options.target if chosen.classifies else None) if name]
    table = read_table(data, labels=kept)
    mechanism, universe = chosen.build(table, options)
    units = None if options.unit is None else unit_labels(table, options.unit)
    pool = None
    if chosen.classifies:
        # Brings in scikit-learn, which the statistics do not need.
        from pacprivacy.estimators.inputs import check_classes, choose_pool

        check_classes(universe[1])
        pool = choose_pool(universe[1], units)
    return Study(mechanism=mechanism, universe=universe, units=units, pool=pool)
