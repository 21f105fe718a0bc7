"""Pages and figures for people: gathered from a release or a ledger, and written to a file.

A page is one HTML file that needs nothing but itself. ``plot_*`` return a matplotlib figure, which
a notebook shows, and write it to ``path`` (.png, .svg or .pdf) if one is named.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import textwrap
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec

from pacprivacy._rounding import at_least, at_most, failure_text, percent_at_most
from pacprivacy._system import read_regular, write_atomically
from pacprivacy._values import (
    MAX_RELEASE_BYTES,
    SHOWN_CHARACTERS,
    release_file,
    row_interval,
    row_texts,
)
from pacprivacy.audit import AuditResult
from pacprivacy.errors import AuditError, CertificateError, DataError
from pacprivacy.mechanism import plain_value
from pacprivacy.release import TOLD_OUT, Certificate, CoinCertificate, Release
from pacprivacy.reporting import charts
from pacprivacy.reporting.charts import (
    Layout,
    NamedTable,
    draw_values,
    study_tables,
    value_chart_height,
    value_layout,
)
from pacprivacy.reporting.contents import (
    About,
    PageKind,
    ReportData,
    Row,
    page_kind,
    provenance_rows,
    rate_text,
    report_session_figures,
)
from pacprivacy.reporting.style import (
    BESIDE_WIDTH,
    INK,
    ORANGE,
    PAGE_WIDTH,
    Axes,
    Figure,
    can_draw,
    save_styled,
    style_number,
    style_svg,
    styled,
    styled_figure,
)
from pacprivacy.session import query_answer

SHOWN_VALUES: Final = 10  # numbers before the rest is folded
MOST_VALUES: Final = 400  # numbers on a page
TITLE_CHARACTERS: Final = 44  # of a figure
WHOLE: Final = 1e12  # noise below this is written without an exponent
ABBREVIATIONS: Final = ("ols", "pca", "svm")
KINDS: Final = {
    "exact": "proved",
    "confidence": "proved with stated confidence",
    "empirical": "by simulation, not proved",
}


def report(
    release: Release | str | Path,
    output: str | Path | None = None,
    *,
    title: str = "",
    by: str = "",
    dataset: str = "",
    date: str | None = None,
    officer: bool = False,
    audit: Sequence[AuditResult] | str | Path = (),
    session: Sequence[Release | str | Path] = (),
) -> Path:
    """Write a page about a release and its promise.

    One HTML file that works offline, on phones and on paper. The public page is a function of what
    was published: value, error bars and certificate.

    Parameters
    ----------
    release : Release or path
        A release, its ``release.json``, or the folder with it.
    output : path, optional
        The page; by default ``report.html``, or ``officer.html``, beside the file or in the
        current folder.
    title, by, dataset, date : str, optional
        Title, author, name of the data, and date of the page: today if None.
    officer : bool
        Whether to write the certificate for a privacy officer instead: one page, with a glossary.
    audit : sequence of AuditResult or path
        Results of attacks, or the file that ``pac audit --json`` printed.
    session : sequence of Release or path
        Other releases of the same session.

    Guarantee
    ---------
    Claim R-9. The page is a function of public files.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> release = pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16)
    >>> folder = tempfile.mkdtemp()
    >>> pac.report(release, f"{folder}/report.html", title="Mean", by="A. Curator").name
    'report.html'
    """
    if not isinstance(release, Release | str | Path):
        raise DataError(
            f"release must be a Release or a path; got {type(release).__name__}. "
            "Pass what pac.privatize returned, or a release.json."
        )
    release = release if isinstance(release, Release) else release_file(release)
    folder = Path() if isinstance(release, Release) else release.parent
    target = Path(output or folder / ("officer.html" if officer else "report.html"))
    if target.is_dir() or not target.parent.is_dir():
        wrong = "a folder" if target.is_dir() else "a file in a folder that is not there"
        raise DataError(
            f"output must be a file in an existing folder; got {str(target)[:60]!r}, {wrong}. "
            "Name it report.html."
        )
    loaded = release if isinstance(release, Release) else Release.load(release)
    certificate = loaded.certificate
    rows = loaded.rows(MOST_VALUES)
    data = ReportData(
        certificate,
        about=About(title=title, by=by, dataset=dataset, date=_today() if date is None else date),
        values=tuple(rows),
        layout=value_layout(loaded.value, len(rows)),
        tables=study_tables(loaded, rows),
        value_text="" if rows else json.dumps(plain_value(loaded.value))[:SHOWN_CHARACTERS],
        answer=query_answer(loaded),
        session=[_certificate_of(other) for other in session],
        audit=_read_audit(audit) if isinstance(audit, str | Path) else audit,
    )
    if not (officer or can_draw()):
        warnings.warn(
            "the page has no pictures: matplotlib is not installed. "
            "Run in a checkout: pip install '.[plot]'",
            stacklevel=2,
        )
    page = render_page(data, officer=officer).encode()
    write_atomically(target, page, mode=0o644, error=DataError)
    return target


def _today() -> str:
    return time.strftime("%Y-%m-%d")


def _certificate_of(release: Release | str | Path) -> Certificate:
    return release.certificate if isinstance(release, Release) else Certificate.read(release)


def _read_audit(path: str | Path) -> tuple[AuditResult, ...]:
    try:
        content = msgspec.json.decode(read_regular(path, most_bytes=MAX_RELEASE_BYTES))
        return msgspec.convert(content["results"], tuple[AuditResult, ...])
    except OSError as error:
        reason = error.strerror or "not readable"
    except (ValueError, KeyError, TypeError):
        reason = "not what 'pac audit --json' prints"
    raise AuditError(
        f"audit must be a readable audit file; got {path}: {reason}. "
        "Make one with: pac audit RELEASE --json > audit.json"
    )


def render_page(data: ReportData, *, officer: bool = False) -> str:
    """Return the report as HTML that loads nothing; for an ``officer`` one printed page."""
    from markupsafe import Markup  # slow to import, not always needed

    css, js = read_page_template("report.css"), read_page_template("report.js")
    cert = data.certificate
    subject = cert.mechanism.replace("<lambda>", "A function")
    if data.answer is not None:  # its text stands above its answer
        subject = subject.partition(" ".join(data.answer.query.split())[:60])[0].rstrip(" (")
        subject = subject or "A query"
    if " " in subject:  # not the name of a function
        name, rest = subject.split(" ", 1)
        name = name.upper() if name in ABBREVIATIONS else name[:1].upper() + name[1:]
        subject = f"{name} {rest}"
    kind = page_kind(cert)
    frame = template_environment().get_template("officer.html" if officer else "report.html")
    page: str = frame.render(
        css=Markup(css),
        js=Markup(js),
        policy=f"default-src 'none'; style-src '{page_content_source(css)}'; "
        f"script-src '{page_content_source(js)}'",
        data=data,
        cert=cert,
        asked=subject,
        title=data.about.title or subject,
        kind=kind,
        proved=KINDS[cert.kind],
        units=cert.units,
        shown_values=SHOWN_VALUES,
        most_values=MOST_VALUES,
        promised=cert.promised_success,
        published=list(cert.published),
        told_out=TOLD_OUT,
        proof_rows=provenance_rows(cert),
        charts=defaultdict(str) if officer or not can_draw() else _draw_pictures(data, kind),
    )
    return page


@cache
def template_environment() -> Any:
    """Return the template environment, compiled once per process."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # slow, not always needed
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(read_page_template),
    )
    environment.filters |= {
        "at_most": at_most,
        "failure": failure_text,
        "number": style_number,
        "plus_minus": row_texts,
        "ends": row_interval,
        "whole": lambda number: f"{number:,.0f}" if 100 <= number < WHOLE else style_number(number),
        "percent": percent_at_most,
        "rate": rate_text,
        "shape": Markup,  # pictures, whose texts are escaped already
    }
    return environment


def read_page_template(name: str) -> str:
    """Return a file of the page: its frame, its style, its script."""
    return resources.files("pacprivacy.reporting").joinpath("templates", name).read_text("utf-8")


def page_content_source(content: str) -> str:
    """Return the hash that allows our own script and style in a browser, and no others."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _picture(
    title: str, height: float, draw: Callable[..., None], *what: Any, width: float = PAGE_WIDTH
) -> str:
    figure = styled_figure(height, width)
    draw(figure.subplots(), *what)
    return style_svg(figure, title)


def _values_picture(rows: Sequence[Row], layout: Layout) -> str:
    width = PAGE_WIDTH if layout else BESIDE_WIDTH
    figure = styled_figure(value_chart_height(rows, layout), width)
    draw_values(figure, rows, layout)
    return style_svg(figure, "Released values with 95 % intervals")


def _table_picture(table: NamedTable) -> tuple[str, str]:
    shown = [row for row in table.rows if not math.isnan(row.value)]
    layout = table.layout if len(shown) == len(table.rows) else None
    return table.name, _values_picture(shown, layout) if shown else ""


@styled
def _draw_pictures(data: ReportData, kind: PageKind) -> defaultdict[str, Any]:
    """Return the pictures of a page by name, and an empty text for those that it does not have."""
    cert = data.certificate
    pictures: defaultdict[str, Any] = defaultdict(str)
    room = "Room between a blind guess and the promise"
    pictures["odds"] = _picture(room, 0.95, charts.chart_odds, 0.5, cert.promised_success)
    if data.tables:
        pictures["tables"] = [_table_picture(table) for table in data.tables]
    elif data.values:
        pictures["values"] = _values_picture(data.values, data.layout)
    if cert.advantage < 1:
        pictures["trade_off"] = _picture(
            "Hits and false alarms", 3.0, charts.chart_trade_off, kind.line, kind.marks, width=4.6
        )
    if (session := data.session_figures) is not None:
        title = "What the session has spent"
        pictures["session"] = _picture(title, 3.2, charts.chart_session, session)
    if data.audit:
        title, height = "Attacks against the promise", 0.8 + 0.7 * len(data.audit)
        pictures["audit"] = _picture(title, height, charts.chart_audit, data.audit)
    return pictures


# --- figures of their own ------------------------------------------------------------------------


@styled
def plot_release(release: Release, path: str | Path | None = None) -> Figure:
    """Draw the released values with their intervals, and the promise below.

    Of a value without named numbers the promise alone.
    """
    cert, rows = release.certificate, release.rows()
    layout = value_layout(release.value, len(rows))
    height = value_chart_height(rows, layout) if rows else 0.0
    figure = styled_figure(2.0 + height)
    if rows:
        above, below = figure.subfigures(2, 1, height_ratios=(height, 2.0))
        draw_values(above, rows, layout)
        title = textwrap.shorten(cert.mechanism, TITLE_CHARACTERS, placeholder=" ...")
        measured = any(not math.isnan(row.lower) for row in rows)
        bars = f": estimates for all {cert.units}, 95 % intervals" if measured else ""
        above.suptitle(f"{title}{bars}", x=0.012, ha="left", fontsize=13, fontweight="bold")
    else:
        below = figure
    axes = below.subplots()
    charts.chart_odds(axes, 0.5, cert.promised_success)
    whom = ", whoever knows all others" if isinstance(cert, CoinCertificate) else ""
    span = ", over the whole session" if cert.is_in_session else ""
    axes.set_title(f"membership success, one {cert.unit}{whom}{span}")
    return save_styled(figure, path)


@styled
def plot_session(releases: Sequence[Release], path: str | Path | None = None) -> Figure:
    """Draw the spent amounts after each release of a session, and its limit."""
    figures = report_session_figures([release.certificate for release in releases])
    if figures is None or len(figures.steps) != len(releases):
        raise CertificateError(
            "releases must be those of a session; got none, or others. Release something first."
        )
    figure = styled_figure(3.9)
    charts.chart_session(figure.subplots(), figures)
    return save_styled(figure, path)


@styled
def plot_audit(results: Sequence[AuditResult], path: str | Path | None = None) -> Figure:
    """Draw the success of every attack with its interval, beside blind success and the promise."""
    if not results:
        raise DataError("results must not be empty; got none. Run at least one attack.")
    figure = styled_figure(1.7 + 0.6 * len(results))
    charts.chart_audit(figure.subplots(), results, verdicts=True)
    figure.legend(loc="outside lower center", ncols=3)
    return save_styled(figure, path)


# --- the accounts of a ledger --------------------------------------------------------------------


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
            pictures={each: _account_picture(each) for each in accounts if can_draw()},
        )
    )
    return page


@styled
def _account_picture(account: LedgerAccount) -> str:
    if not account.months:
        return ""
    figure = styled_figure(2.3, PAGE_WIDTH)
    _draw_months(figure.subplots(), account)
    return style_svg(figure, f"Spent of {account.dataset} by {account.principal}, by month")


def _draw_months(axes: Axes, account: LedgerAccount) -> None:
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
