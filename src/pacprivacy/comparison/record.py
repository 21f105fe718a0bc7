"""What a comparison found: one row for each rule and each method."""

from __future__ import annotations

import html
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pacprivacy.reporting import plot_comparison

WIDTH: Final = 80
LARGE: Final = (10.0, 1000.0)  # from here on two decimals, or four digits, are enough
SMALL: Final = 1e-3
PROMISES: Final = {
    "PAC": (
        "PAC bounds what anyone learns about *which half of a known universe* was used. It does "
        "not hide that a record is in the universe at all, and the noise is found by looking at "
        "the whole universe."
    ),
    "DP": (
        "DP bounds what anyone learns about *whether a record is in the data at all*, whatever "
        "the other records are and whoever knows them. It needs bounds that were fixed without "
        "looking at the data, and pays for the worst data set that they allow."
    ),
}


Family: TypeAlias = Literal["PAC", "DP"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One way to release a model, at the success that all rows share; public.

    Parameters
    ----------
    family : {"PAC", "DP"}
        Which of the two promises.
    method : str
        Noise rule, or method of differential privacy.
    utility, standard_error : float
        Mean over simulated releases, and its error.
    distance : float
        Root mean square distance of released parameters from the fit on all records.
    success : float
        Membership success that is asked for.
    mi_nats, epsilon, delta : float, optional
        The promise in its own units.
    advantage : float, optional
        Of the best attacker on a method of differential privacy: ``δ`` at ``ε = 0`` of its own
        privacy-loss distribution, or the best bound on it that is proved. At most
        ``2 success - 1``, and at least 99.9 % of it.
    neighbours : str, optional
        Relation of differential privacy: a record more or less, or one with another content.
    note : str
        Why a method could not be run, or what it needs.
    """

    family: Family
    method: str
    utility: float | None
    standard_error: float | None
    distance: float | None
    success: float
    mi_nats: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    advantage: float | None = None
    neighbours: str | None = None
    n_releases: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Rows for one data set and one model; made from simulations, for the curator's eyes.

    Parameters
    ----------
    model, metric : str
        What was fitted, and how it is judged.
    larger_is_better : bool
        Of the metric.
    without_privacy : float
        The metric of the fit on all records.
    success : float
        Guaranteed membership success of every row.
    rows : tuple of ComparisonRow
        PAC rules first, then methods of differential privacy.
    """

    model: str
    metric: str
    larger_is_better: bool
    without_privacy: float
    success: float
    n_records: int
    rows: tuple[ComparisonRow, ...]

    @property
    def advantage(self) -> float:
        """What the success is above a blind guess, of what it could be: ``2 success - 1``."""
        return 2.0 * self.success - 1.0

    def best(self, family: Family) -> ComparisonRow:
        """Return the row of a family with the best utility."""
        mine = [row for row in self.rows if row.family == family and row.utility is not None]
        sign = -1.0 if self.larger_is_better else 1.0
        return min(mine, key=lambda row: sign * float(row.utility or 0.0))

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the utility of every row; a figure for a notebook, and a file if asked."""
        return plot_comparison(self, path)

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""
        return asdict(self) | {"advantage": self.advantage, "promises": PROMISES}

    def __str__(self) -> str:
        lines = [
            f"{self.model}, {self.n_records} records: {self.metric} "
            f"({self.without_privacy:.4g} without privacy),",
            f"at a guaranteed membership success of {100 * self.success:.2f} % (blind guess: 50 %)",
            "",
            f"{'':4}{'method':<22}{self.metric:>16}{'distance':>9}{'δ(0)':>8}  promise",
        ]
        for row in self.rows:
            family, method, utility, distance, advantage, promise = _cells(row)
            line = f"{family:<4}{method:<22}{utility:>16}"
            if not row.note:
                line += f"{distance:>9}{advantage:>8}"
            lines.append(f"{line}  {promise}")
        lines += [
            "",
            "δ(0): advantage of the best attacker on a DP method, by its own loss",
            f"distribution; it may be {self.advantage:.4f}.",
        ]
        if any(row.neighbours == "replace" for row in self.rows):
            lines.append("* about the content of a record; the number of records is public")
        lines += ["", "Simulated releases: seeded, they protect nobody."]
        for text in PROMISES.values():
            lines.append(textwrap.fill(text.replace("*", ""), WIDTH))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        names = ("", "method", self.metric, "distance", "δ(0)", "promise")
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in _cells(row))}</tr>"
            for row in self.rows
        )
        title = html.escape(
            f"{self.model} at {100 * self.success:.2f} % membership success; "
            f"{self.without_privacy:.4g} without privacy"
        )
        notes = "".join(f"<p>{html.escape(text)}</p>" for text in PROMISES.values())
        return f"<div><p><b>{title}</b></p><table><tr>{head}</tr>{body}</table>{notes}</div>"


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    """Return one line of the table."""
    distance = "" if row.distance is None else f"{row.distance:.3g}"
    advantage = "" if row.advantage is None else f"{row.advantage:.4f}"
    return row.family, row.method, _utility(row), distance, advantage, _promise(row)


def _utility(row: ComparisonRow) -> str:
    if row.utility is None:
        return "not run"
    if row.utility >= LARGE[1]:
        return f"{row.utility:.4g}"
    if 0 < row.utility < SMALL:
        return f"{row.utility:.1e} ± {row.standard_error or 0:.0e}"
    digits = 2 if row.utility >= LARGE[0] else 4
    return f"{row.utility:.{digits}f} ± {row.standard_error or 0:.{digits}f}"


def _promise(row: ComparisonRow) -> str:
    if row.note:
        return row.note
    if row.epsilon is not None:
        other = " *" if row.neighbours == "replace" else ""
        return f"ε {row.epsilon:.3g}, δ {row.delta or 0.0:.1g}{other}"
    return f"{row.mi_nats:.3g} nats" if row.mi_nats is not None else ""
