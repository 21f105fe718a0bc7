"""Small pictures as SVG text: axes, lines and bars, in the colours of the page.

Colours and sizes of text come from the page's style sheet by class, so that the same picture is
right on a light screen, on a dark one and on paper.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A rectangle of the picture and the values at its edges."""

    low_x: float
    high_x: float
    low_y: float
    high_y: float
    left: float = 56.0
    top: float = 16.0
    width: float = 560.0
    height: float = 240.0

    def x(self, value: float) -> float:
        """Return where a value lies from left to right."""
        share = (value - self.low_x) / (self.high_x - self.low_x or 1.0)
        return self.left + self.width * share

    def y(self, value: float) -> float:
        """Return where a value lies from top to bottom."""
        share = (value - self.low_y) / (self.high_y - self.low_y or 1.0)
        return self.top + self.height * (1 - share)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """Return the points as the body of a path."""
        return "M" + "L".join(f"{self.x(x):.2f},{self.y(y):.2f}" for x, y in points)

    def axes(
        self,
        ticks_x: Sequence[tuple[float, str]],
        ticks_y: Sequence[tuple[float, str]],
        *,
        label_x: str,
        label_y: str,
    ) -> str:
        """Draw a light grid with numbers, and the names of the axes."""
        bottom, right = self.top + self.height, self.left + self.width
        parts = []
        for value, label in ticks_y:
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{self.left}" x2="{right}" y1="{y:.2f}" y2="{y:.2f}"/>'
            )
            parts.append(text(self.left - 8, y + 4, label, anchor="end"))
        for value, label in ticks_x:
            parts.append(text(self.x(value), bottom + 18, label, anchor="middle"))
        parts.append(
            f'<line class="axis" x1="{self.left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'
        )
        parts.append(text(self.left + self.width / 2, bottom + 38, label_x, anchor="middle"))
        parts.append(text(self.left - 8, self.top - 12, label_y, anchor="start"))
        return "".join(parts)

    def picture(self, body: str, *, title: str, extra: float = 48.0) -> str:
        """Return the whole picture."""
        width, height = self.left + self.width + 16, self.top + self.height + extra
        return (
            f'<svg viewBox="0 {-14 if self.top < 20 else 0} {width:.0f} {height + 14:.0f}" '
            f'role="img" aria-label="{html.escape(title)}">{body}</svg>'
        )


def text(x: float, y: float, content: str, *, anchor: str = "start", kind: str = "label") -> str:
    """Return a piece of text, escaped."""
    return (
        f'<text class="{kind}" x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">'
        f"{html.escape(content)}</text>"
    )


def number_text(value: float) -> str:
    """Write a number with three significant digits."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"
