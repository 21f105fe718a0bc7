"""The published figures, where they are at hand.

They are not part of this repository. A folder ``reference`` beside a data folder is looked for:
``$PACPRIVACY_DATA/../reference`` and ``../shared/reference``. Where there is none, pages say so.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

from pacprivacy.errors import DataError
from papers.datasets import cache_folder, search_folders

NOT_AVAILABLE: Final = "not available"
_TOLERANCE: Final = 1e-9


def find_reference(name: str) -> Path | None:
    """Return where the reference file ``name`` lies on this machine, or ``None``."""
    for folder in search_folders():
        path = folder.parent / "reference" / name
        if folder != cache_folder() and path.is_file():
            return path
    return None


class Published:
    """One table of published figures, looked up by the values of some columns."""

    __slots__ = ("_rows",)

    def __init__(self, name: str) -> None:
        path = find_reference(name)
        self._rows: tuple[dict[str, str], ...] = () if path is None else _read(path)

    @property
    def is_available(self) -> bool:
        """Whether the table was found."""
        return bool(self._rows)

    def value(self, column: str, **keys: str | float) -> float | None:
        """Return the entry of ``column`` in the first row that has these values, if any.

        Repeated rows of the published tables are equal, so the first one is as good as any.
        """
        for row in self._rows:
            if all(_matches(row.get(name), value) for name, value in keys.items()):
                return float(row[column])
        return None


def _read(path: Path) -> tuple[dict[str, str], ...]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return tuple(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} must be a readable CSV file; got {type(error).__name__}. "
            "Put the original file in its place, or take it away."
        ) from error


def _matches(found: str | None, value: str | float) -> bool:
    if found is None or isinstance(value, str):
        return found == value
    return abs(float(found) - value) <= _TOLERANCE * max(1.0, abs(value))
