"""CSV files and markdown pages, the same for every paper."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from pacprivacy._rounding import percent_at_most
from pacprivacy.errors import DataError
from papers.published import NOT_AVAILABLE

MISSING: Final = ""


def make_folder(folder: Path) -> Path:
    """Make the folder for the results, or say why it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"output must be a folder that can be made; got {folder}: {error.strerror}. "
            "Choose another one."
        ) from None
    return folder


def write_csv(path: Path, rows: Sequence[Any]) -> Path:
    """Write dataclass records of one kind, full precision, one column per field."""
    names = [field.name for field in fields(rows[0])]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([MISSING if cell is None else cell for cell in astuple(row)])
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


class Page:
    """A markdown page that is put together part by part."""

    def __init__(self, title: str) -> None:
        self._parts = [f"# {title}"]

    def heading(self, text: str, *, level: int = 2) -> None:
        """Add a heading."""
        self._parts.append(f"{'#' * level} {text}")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(text)

    def bullets(self, items: Sequence[str]) -> None:
        """Add a list."""
        self._parts.append("\n".join(f"- {item}" for item in items))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table; the first column is aligned to the left, the others to the right."""
        lines = [headings, [":--", *["--:"] * (len(headings) - 1)], *rows]
        self._parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in lines))

    def image(self, path: Path, alternative: str) -> None:
        """Show a picture that lies beside the page."""
        self._parts.append(f"![{alternative}]({path.name})")

    def save(self, path: Path) -> Path:
        """Write the page."""
        path.write_text("\n\n".join(self._parts) + "\n", encoding="utf-8")
        return path


def as_budget(mi_nats: float) -> str:
    """Write a budget as a fraction where it is one: 1/64, 4.

    Examples
    --------
    >>> as_budget(1 / 64), as_budget(4.0), as_budget(0.3)
    ('1/64', '4', '0.3')
    """
    fraction = Fraction(mi_nats)
    return str(fraction) if fraction.denominator <= 1 << 20 else f"{mi_nats:g}"


def as_percent(rate: float) -> str:
    """Write a rate in percent, rounded up so that a bound stays one.

    Examples
    --------
    >>> as_percent(0.588161), as_percent(0.5), as_percent(1.0)
    ('58.82 %', '50.00 %', '100.00 %')
    """
    return f"{percent_at_most(rate)} %"


def as_number(value: float | None, digits: int = 3) -> str:
    """Write a number, or say that it is not available.

    Examples
    --------
    >>> as_number(0.90512), as_number(None), as_number(0.0000123), as_number(1234.5)
    ('0.905', 'not available', '1.23e-05', '1.23e+03')
    """
    if value is None:
        return NOT_AVAILABLE
    if value != 0 and not 1e-2 <= abs(value) < 1e3:
        return f"{value:.{digits}g}"
    return f"{value:.{digits}f}"
