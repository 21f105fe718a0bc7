"""A page of all accounts of a ledger: who spent what of which table, month by month."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pacprivacy._rounding import at_least, percent_at_most
from pacprivacy.reporting.page import page_content_source, read_page_template, template_environment
from pacprivacy.reporting.style import (
    INK,
    ORANGE,
    PAGE_WIDTH,
    can_draw,
    style_svg,
    styled,
    styled_figure,
)

FEWEST_MONTHS, MOST_MONTHS = 6, 24  # of a picture


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAccount:
    """One kind of budget of a table and a principal, as shares of its limit; public."""

    dataset: str
    principal: str
    kind: str
    limit: float
    spent: float
    months: tuple[tuple[str, float], ...]

    @property
    def dataset_name(self) -> str:
        """The name of the table."""
        return "all tables" if self.dataset == "*" else self.dataset

    @property
    def principal_name(self) -> str:
        """Name of the spender."""
        return "all together" if self.principal == "*" else self.principal

    @property
    def spent_text(self) -> str:
        """The share that is spent, rounded up."""
        return f"{percent_at_most(self.spent)} %"

    @property
    def left_text(self) -> str:
        """The share that remains, rounded down."""
        return f"{at_least(max(0.0, 1.0 - self.spent), significant=3, percent=True)} %"


def render_ledger_page(label: str, head: str, accounts: Sequence[LedgerAccount]) -> str:
    """Return all accounts of a ledger as HTML that loads nothing."""
    from markupsafe import Markup  # slow to import, not always needed

    css = read_page_template("report.css")
    page: str = (
        template_environment()
        .get_template("ledger.html")
        .render(
            css=Markup(css),
            policy=f"default-src 'none'; style-src '{page_content_source(css)}'",
            label=label,
            head=head,
            accounts=accounts,
            pictures={each: _picture(each) for each in accounts if can_draw()},
        )
    )
    return page


@styled
def _picture(account: LedgerAccount) -> str:
    if not account.months:
        return ""
    figure = styled_figure(2.3, PAGE_WIDTH)
    _draw_months(figure.subplots(), account)
    return style_svg(figure, f"Spent of {account.dataset} by {account.principal}, by month")


def _draw_months(axes: Any, account: LedgerAccount) -> None:
    """Draw the amount spent in every month as bars, and in all as stairs below the limit."""
    months = account.months[-MOST_MONTHS:]
    spent = [100 * share for _, share in months]
    before = 100 * sum(share for _, share in account.months[:-MOST_MONTHS])
    total = [before + math.fsum(spent[: place + 1]) for place in range(len(spent))]
    places = range(len(months))
    axes.bar(places, spent, width=0.6, label="in the month")
    axes.plot(places, total, marker="o", color=ORANGE, label="in all")
    axes.axhline(100, color=INK, marker="", lw=1.2)
    axes.set_xlim(-0.6, max(FEWEST_MONTHS, len(months)) - 0.4)
    axes.set_xticks(
        places[:: 1 + len(months) // 8], [m for m, _ in months][:: 1 + len(months) // 8]
    )
    axes.set_ylim(0, max(105.0, 1.05 * total[-1]))
    axes.set_ylabel("% of the limit")
    axes.legend(loc="lower right", ncols=2, bbox_to_anchor=(1, 1), borderaxespad=0)
