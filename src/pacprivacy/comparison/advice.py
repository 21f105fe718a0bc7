"""Which promise and method to prefer for a task, by what was measured on public data.

The rows are those of ``benchmarks/versus``, kept in ``advice.json``; no verdict is written by hand.
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

Ahead = Literal["PAC", "DP", "level"]
BETTER: Final = {"PAC": "PAC was ahead", "DP": "DP was ahead", "level": "both were level"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One task on one public table, both families at the same advantage; public.

    ``ahead`` is ``"level"`` where the 95 % intervals of the two do not tell them apart.
    """

    task: str
    data: str
    n_records: int
    metric: str
    advantage: float
    pac: float
    dp: float
    without_privacy: float
    pac_method: str
    dp_method: str
    ahead: Ahead

    def __str__(self) -> str:
        return (
            f"{self.data}, {self.n_records} records, {self.metric}: {BETTER[self.ahead]};\n"
            f"{self.pac:.4g} by PAC, {self.dp:.4g} by {self.dp_method}, "
            f"{self.without_privacy:.4g} without privacy"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What was measured for a task at the advantage that is nearest to the one asked for; public.

    Examples
    --------
    >>> advise("mean", success=0.59).ahead
    'DP'
    """

    task: str
    advantage: float
    rows: tuple[Measured, ...]

    @property
    def ahead(self) -> Ahead:
        """Who was ahead on more tables; level where neither was."""
        count = Counter(row.ahead for row in self.rows)
        if count["PAC"] == count["DP"]:
            return "level"
        return "PAC" if count["PAC"] > count["DP"] else "DP"

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""
        return asdict(self) | {"ahead": self.ahead}

    def __str__(self) -> str:
        prefer = {
            "PAC": "prefer PAC, where its promise is the one you need",
            "DP": f"prefer DP ({_most([row.dp_method for row in self.rows])}), if bounds are known",
            "level": "choose by the promise that you need",
        }[self.ahead]
        lines = [
            f"Advice, {self.task}: {prefer}.",
            f"Both tuned, at {50 + 50 * self.advantage:.1f} % membership success, on public data:",
        ]
        return "\n".join(lines + [f"  {line}" for r in self.rows for line in str(r).split("\n")])


def advise(task: str, *, success: float) -> Advice | None:
    """Return what was measured for a task, at the nearest success; None where nothing was.

    Parameters
    ----------
    task : str
        As in the table: ``mean``, ``median``, ``quantiles``, ``ols``, ``ridge``, ``logistic``,
        ``kmeans`` and others.
    success : float
        Membership success that the release is held to.
    """
    mine = [row for row in measured_advice() if row.task == task]
    if not mine:
        return None
    wanted = 2.0 * success - 1.0
    level = min({row.advantage for row in mine}, key=lambda each: abs(each - wanted))
    rows = tuple(row for row in mine if row.advantage == level)
    return Advice(task=task, advantage=level, rows=rows)


@cache
def measured_advice() -> tuple[Measured, ...]:
    """Return all rows."""
    text = resources.files("pacprivacy.comparison").joinpath("advice.json").read_text("utf-8")
    return tuple(Measured(**row) for row in json.loads(text))


def _most(names: list[str]) -> str:
    return Counter(names).most_common(1)[0][0]
