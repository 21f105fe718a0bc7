"""Contents of a report, collected from a release as plain data; public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Final

import numpy as np

from pacprivacy._rounding import at_least, at_most, percent_at_most
from pacprivacy._values import Row as Row, times_in_100
from pacprivacy.adversary import GROUP_SIZES, LARGE_MOVE, influence_hits, influence_success
from pacprivacy.audit import AuditResult
from pacprivacy.release import (
    AverageCertificate,
    Certificate,
    CoinCertificate,
    PoolCertificate,
    trade_off_text_rows,
)
from pacprivacy.reporting.charts import Layout, NamedTable, SessionFigures, SessionStep
from pacprivacy.session import QueryAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Facts about the data that no certificate holds; each may be empty; public."""

    title: str = ""
    by: str = ""
    dataset: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that a report shows; public but for the units of ``audit``, which no page has.

    ``values`` are the released numbers by name; ``layout`` is how a picture
    arranges them; ``tables`` are those of a study; ``value_text`` stands for what has none;
    ``answer`` is there for a query.
    ``session`` are certificates of other releases of the same session.
    """

    certificate: Certificate
    about: About = About()
    values: tuple[Row, ...] = ()
    layout: Layout = None
    tables: tuple[NamedTable, ...] = ()
    value_text: str = ""
    answer: QueryAnswer | None = None
    session: Sequence[Certificate] = ()
    audit: Sequence[AuditResult] = ()

    @property
    def session_figures(self) -> SessionFigures | None:
        return report_session_figures([self.certificate, *self.session])


def report_session_figures(certificates: Sequence[Certificate]) -> SessionFigures | None:
    """Return the spent part of a session: shares of its budget, membership, or information."""
    facts = [(c.composition or {}, c.mechanism) for c in certificates]
    spends = ("spent_nats_so_far", "spent_influence_so_far")
    known = {f["release_number"]: (f, name) for f, name in facts if any(s in f for s in spends)}
    if not known:
        return None
    last = known[max(known)][0]
    nats, success = last.get("total_nats"), last.get("total_success")
    text = f"membership success at most {percent_at_most(success or 1.0)} %"
    total: float | None
    if "spent_influence_so_far" in last:
        unit, total, spent = "budget spent, %", 100.0, _spent_percent
    elif success is not None:
        unit, total, spent = "membership, points above 50 %", 100 * (success - 0.5), _spent_points
    else:
        unit, total, spent = "information, nats", nats, _spent_nats
        text = f"total {at_most(nats or 0.0, significant=4)} nats"
    return SessionFigures(
        steps=tuple(SessionStep(int(k), name, spent(f)) for k, (f, name) in sorted(known.items())),
        total=total,
        unit=unit,
        text=text,
        success_bound=float(last.get("session_success_bound", 1.0)),
    )


def _spent_percent(facts: Mapping[str, Any]) -> float:
    """Return the share of the squared influence that was spent, rounded up."""
    share = (float(facts["spent_influence_so_far"]) / float(facts["total_influence"])) ** 2
    return 100 * min(1.0, share * (1 + 1e-12))


def _spent_points(facts: Mapping[str, Any]) -> float:
    return 100 * float(facts.get("spent_increments_so_far") or 0.0)


def _spent_nats(facts: Mapping[str, Any]) -> float:
    return float(facts.get("spent_nats_so_far") or 0.0)


# --- what pages say differently about the two kinds of secret -------------------------------

Pairs = tuple[tuple[str, str], ...]
Hits = tuple[tuple[float, float, float | None], ...]
RARE_ALARMS: Final = (0.1, 0.01, 1e-3, 1e-6)
PROVENANCE: Final = (  # rows of a certificate
    *("Statistic", "Mechanism", "Sample", "Pool", "Noise", "Information", "In terms of DP"),
    *("Presence", "Declared"),
)


def provenance_rows(certificate: Certificate) -> Pairs:
    """Return the rows of a certificate about the release and its proof."""
    return tuple(row for row in certificate.rows() if row[0] in PROVENANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKind:
    """The words and figures of one kind of secret; public.

    ``hits`` are the largest shares of used units that are flagged at rates of false alarms, of any
    unit and of the unit placed worst; ``line`` is through the most hits at all rates.
    """

    hits: Hits
    line: tuple[tuple[float, float], ...]
    figures: Pairs = ()
    glossary: Pairs
    side: str = ""

    @property
    def marks(self) -> tuple[tuple[float, float], ...]:
        """The most hits of the unit placed worst."""
        return tuple((rate, worst) for rate, _, worst in self.hits if worst is not None)


@singledispatch
def page_kind(certificate: Certificate) -> PageKind:
    raise NotImplementedError(type(certificate).__name__)


@page_kind.register
def _of_pool(cert: PoolCertificate) -> PageKind:
    mean = cert.membership_mean
    average: Pairs = ()
    if mean and not cert.is_in_session:
        average = (("Membership success, on average", f"{percent_at_most(mean.upper)} %"),)
    guesses = (
        (f"Any guess, from {100 * float(prior):.4g} % before", f"{percent_at_most(most)} %")
        for prior, most in sorted(cert.any_inference.items(), reverse=True)
    )
    nats = at_most(cert.mi_upper_nats, decimals=6)
    return PageKind(
        hits=tuple(trade_off_text_rows(cert)),
        line=_straight_line(cert),
        figures=(*average, *guesses, ("Information about the sample", f"{nats} nats")),
        glossary=(
            ("Candidates", "the possible samples. Which one was used is the secret."),
            (
                "Any guess",
                f"about anything that depends on who was used, as names of several {cert.units}.",
            ),
            ("Nat", "unit of information; one yes or no is 0.69 nats."),
        ),
    )


def _straight_line(cert: Certificate) -> tuple[tuple[float, float], ...]:
    return ((0.0, cert.advantage), (1.0 - cert.advantage, 1.0), (1.0, 1.0))


@page_kind.register
def _of_average(cert: AverageCertificate) -> PageKind:
    unit, units = cert.unit, cert.units
    rates = sorted(cert.hits, key=float, reverse=True)
    large = percent_at_most(cert.moves[f"{LARGE_MOVE:g}"])
    return PageKind(
        hits=tuple((float(rate), cert.hits[rate], None) for rate in rates),
        line=_straight_line(cert),
        glossary=(_coin_term(unit),),
        side=f"The promise is an average over the coins of the other {units}. Whoever knows these "
        f"may guess better for some samples, and worse for others. One {unit} changes the release "
        f"by more than {LARGE_MOVE:g} standard deviations of the noise in at most {large} % of the "
        f"samples.",
    )


@page_kind.register
def _of_coins(cert: CoinCertificate) -> PageKind:
    influence, units = cert.dp_readings.gaussian_mu, cert.units
    everybody = cert.sampling == "everybody"
    rates = np.concatenate([np.geomspace(1e-4, 0.01, 12), np.linspace(0.02, 1, 50)]).tolist()
    groups = {size: influence_success(size * influence) for size in GROUP_SIZES}
    together = "taken together" if everybody else "whose coins agree"
    grouped = (
        (f"Success, {size} {units} {together}", f"{percent_at_most(most)} %")
        for size, most in groups.items()
    )
    agree = ("Coins agree", "a group that is used as a whole or left out as a whole.")
    pairs = "; ".join(f"{size}: {times_in_100(most)}" for size, most in groups.items())
    return PageKind(
        hits=tuple((rate, influence_hits(influence, rate), None) for rate in RARE_ALARMS),
        line=((0.0, 0.0), *((rate, influence_hits(influence, rate)) for rate in rates)),
        figures=(*grouped, *_odds_figures(cert)),
        glossary=() if everybody else (_coin_term(cert.unit), agree),
        side=f"Knowing other {units} does not help: the promise holds also against those who know "
        f"all of them and which were used. {units.capitalize()} {together} are protected as a "
        f"group, with a larger success ({pairs}).",
    )


def _coin_term(unit: str) -> tuple[str, str]:
    return ("Coin", f"decides for one {unit}, independently of all others, in secret.")


def _odds_figures(cert: CoinCertificate) -> Pairs:
    if cert.sampling == "everybody" or cert.is_in_session:
        return ()
    before = at_least(cert.keep, significant=6, percent=True)
    return (
        (f"Guess “used”, right {before} % before", f"{percent_at_most(cert.success_at_keep)} %"),
    )


def rate_text(rate: float) -> str:
    """Write a rate of false alarms: ``1 in 1,000``."""
    return f"1 in {round(1 / rate):,}"
