"""Which columns of a table a model uses, and what is wrong with them if something is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pacprivacy.cli.tables import Labels, Table
from pacprivacy.errors import DataError

__all__ = ["numeric_matrix", "unit_labels"]

NAMED = 6  # columns that a message names before it only counts them


def numeric_matrix(table: Table, names: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the named columns as a matrix; refuse text, missing and infinite entries."""
    _check_known(table, names)
    text = [name for name in names if name not in table.numbers]
    if text:
        rest = [name for name in names if name in table.numbers]
        usable = rest or [name for name in table.names if name in table.numbers]
        advice = f"Choose others: --columns {_quoted(usable)}." if usable else "Encode them first."
        raise DataError(
            f"columns must hold numbers; got text in {_listed(text)}. {advice} "
            "(Codes for categories must be made before the release.)"
        )
    for name in names:
        if name in table.missing:
            raise DataError(_missing_text(table, name))
        if not np.isfinite(table.numbers[name]).all():
            row = int(np.flatnonzero(~np.isfinite(table.numbers[name]))[0]) + 1
            raise DataError(
                f"column {name!r} must be finite everywhere; got NaN or infinity in record {row}. "
                "Drop those records or fill them before the release."
            )
    return np.column_stack([table.numbers[name] for name in names])


def unit_labels(table: Table, name: str) -> Labels:
    """Return the labels that say which rows belong to one unit."""
    _check_known(table, [name])
    if name in table.missing:
        raise DataError(_missing_text(table, name))
    return table.labels[name]


def _check_known(table: Table, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.names:
            raise DataError(
                f"column {name!r} must be in the file; got a file with {_listed(table.names)}. "
                "Names are case-sensitive."
            )


def _missing_text(table: Table, name: str) -> str:
    return (
        f"column {name!r} must have no missing values; got one in {table.missing[name]}. "
        "Drop those records or fill them before the release: how to fill is part of the function."
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:NAMED])
    return shown + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _quoted(names: Sequence[str]) -> str:
    joined = ",".join(names)
    return f'"{joined}"' if any(not name.isidentifier() for name in names) else joined
