"""What a notebook shows of a session: short, escaped, public."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pacprivacy._plots import draw
from pacprivacy._rounding import at_most, percent_at_most

if TYPE_CHECKING:
    from pacprivacy.accounting.odometer import Odometer
    from pacprivacy.release import Release

__all__ = ["Shown", "odometer_html"]


class Shown:
    """The pictures of a session: its table and its plot."""

    if TYPE_CHECKING:

        @property
        def releases(self) -> tuple[Release, ...]:
            """The releases made through this object."""
            ...

        def odometer(self) -> Odometer:
            """Return what was spent."""
            ...

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw what was spent after each release, under the total; needs matplotlib.

        Returns a figure, which a notebook shows; ``path`` is a file to write besides.
        """
        return draw("plot_session", self, path)

    def _repr_html_(self) -> str:
        names = [release.certificate.mechanism for release in self.releases]
        return self.odometer()._repr_html_() + _list_html(names)


def odometer_html(seen: dict[str, Any]) -> str:
    """Return an odometer as a table."""
    rows = [
        ("Releases", str(seen["n_releases"])),
        ("Information spent", _of(seen["spent_nats"], seen["total_nats"], "nats")),
        ("Really learned so far", f"{at_most(seen['learned_nats'], significant=4)} nats"),
    ]
    if seen["total_success"] is not None:
        spent, most = (percent_at_most(seen[name]) for name in ("spent_success", "total_success"))
        rows.append(("Membership spent", f"{spent} points, success at most {most} %"))
    rows.append(("Best guess about one unit now", f"{percent_at_most(seen['best_guess_now'])} %"))
    if seen["ever_used_prior"] is not None:
        rows.append(("Prior of ever being used", f"{100 * seen['ever_used_prior']:.4g} %"))
    cells = "".join(
        f'<tr><th style="text-align:left">{name}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<div><p><b>Session</b></p><table>{cells}</table></div>"


def _of(spent: float, total: float | None, unit: str) -> str:
    most = "" if total is None else f" of {at_most(total, significant=4)}"
    return f"{at_most(spent, significant=4)} {unit}{most}"


def _list_html(names: Sequence[str]) -> str:
    if not names:
        return ""
    items = "".join(f"<li>{html.escape(name)}</li>" for name in names)
    return f"<p>Released through this object:</p><ol>{items}</ol>"
