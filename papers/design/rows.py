"""One cell of a table of [DESIGN], and where its published figure is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from pacprivacy.errors import DataError
from papers.published import find_reference

__all__ = ["DESIGN_BUDGETS", "DesignRow", "Mode", "published_cell", "published_list"]

Mode = Literal["post-hoc", "conscious"]

DESIGN_BUDGETS: Final = tuple(4.0**-power for power in range(1, 6))  # 1/4 .. 1/1024 nats
_TABLE: Final = "design_tables.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignRow:
    """What simulated releases of one design at one budget are worth.

    Attributes
    ----------
    dataset, setting : str
        The data, and how the signal (ridge) or the distance to go (descent) is known.
    mode : str
        ``post-hoc``: parameters that are best without privacy; ``conscious``: best with it.
    mi_nats : float
        Total budget, split evenly over dimensions and steps.
    metric : str
        What ``utility`` is, on the test rows.
    utility, standard_error : float
        Mean over the simulated releases, and its standard error.
    n_releases : int
        Number of simulated releases.
    published : float or None
        The published figure, where it is at hand.
    """

    dataset: str
    setting: str
    mode: Mode
    mi_nats: float
    metric: Literal["mean squared error", "accuracy"]
    utility: float
    standard_error: float
    n_releases: int
    published: float | None

    def agrees(self, *, within: float, relative: float = 0.0) -> bool | None:
        """Whether utility and published figure are this close; None where there is none."""
        if self.published is None:
            return None
        return abs(self.utility - self.published) <= max(within, relative * abs(self.published))


def published_cell(
    table: str, dataset: str, setting: str, *, mi_nats: float, mode: Mode
) -> float | None:
    """Return a published figure; None where the reference tables are not at hand."""
    tables = _load()
    if tables is None or mi_nats not in tables["mi_total"]:
        return None
    cells = [found for key, found in tables[table].items() if key.split("(")[0] == dataset]
    if not cells or setting not in cells[0]:
        return None
    pair = cells[0][setting][tables["mi_total"].index(mi_nats)]
    return float(pair[mode == "conscious"])


def published_list(table: str, dataset: str) -> list[float] | None:
    """Return a published row of figures; None where the reference tables are not at hand."""
    tables = _load()
    return None if tables is None else [float(cell) for cell in tables[table][dataset]]


@cache
def _load() -> dict[str, Any] | None:
    path = find_reference(_TABLE)
    if path is None:
        return None
    try:
        loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} must be readable JSON; got {type(error).__name__}. "
            "Put the original file in its place, or take it away."
        ) from error
    return loaded
