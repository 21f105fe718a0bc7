"""Contents of a report, collected from a release as plain data; public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Final, NamedTuple

import numpy as np

from pacprivacy._rounding import at_least, at_most, percent_at_most
from pacprivacy._values import Row as Row, times_in_100
from pacprivacy.adversary import (
    LARGE_MOVE,
    influence_hits,
    influence_success,
)
from pacprivacy.audit import AuditResult
from pacprivacy.release import (
    AverageCertificate,
    Certificate,
    CoinCertificate,
    OddsCertificate,
    PoolCertificate,
    trade_off_text_rows,
)
from pacprivacy.reporting.style import style_number
from pacprivacy.reporting.value_charts import Layout, NamedTable
from pacprivacy.session import QueryAnswer


class SessionStep(NamedTuple):
    """One release of a session, and the amount spent by then; public."""

    number: int
    mechanism: str
    spent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFigures:
    """Spent amounts of a session after each of its releases, in one unit; public."""

    steps: tuple[SessionStep, ...]
    total: float | None
    unit: str
    text: str
    success_bound: float


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
        """Spent amounts of the session; None for a single release."""
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
GROUP_SIZES: Final = (2, 5)
_SUCCESS: Final = (
    "Success",
    "how often a guess “used or not” is right, both being equally likely. 50 % is blind.",
)
_ADVANTAGE: Final = ("Advantage", "twice what success is above 50 %: 0 is blind, 1 is certainty.")
_AGREE: Final = ("Coins agree", "a group that is used as a whole or left out as a whole.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKind:
    """The words and figures of one kind of secret; public.

    ``hits`` are the largest shares of used units that are flagged at rates of false alarms, of any
    unit and of the unit placed worst; ``line`` is through the most hits at all rates.
    """

    sample: str
    against: str = ""
    errors: str
    rest: str
    provenance: Pairs
    draws: str = "none needed"
    figures: Pairs
    glossary: Pairs
    line: tuple[tuple[float, float], ...]
    hits: Hits
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
    units, mean = cert.units, cert.membership_mean
    hits = tuple(trade_off_text_rows(cert))
    estimates = (cert.membership, cert.information)
    draws = [f"{each.n_draws:,}" for each in estimates if each and each.n_draws]
    alone = ", by this release" if cert.is_in_session else ""
    average: Pairs = ()
    if mean and not cert.is_in_session:
        average = (("The same, on average", f"{percent_at_most(mean.upper)} %"),)
    return PageKind(
        sample=f"The release was computed on one of {cert.n_subsets:,} candidates "
        f"({cert.scheme}), chosen in secret by the operating system's randomness.",
        errors=f"choosing a part of the {units} and from the noise",
        rest=f"a part of the {units} was used",
        provenance=(
            (
                "Noise",
                f"{cert.rule}: total variance {style_number(cert.noise.total_variance)} along "
                f"{cert.noise.n_directions} of {cert.dimension} directions",
            ),
            (
                "Information",
                f"at most {at_most(cert.mi_upper_nats, significant=4)} nats about the "
                f"secret{alone}",
            ),
        ),
        draws=", ".join(draws) or "none needed",
        figures=(
            *average,
            ("Advantage", at_most(cert.advantage, decimals=4)),
            *_hits_rows(hits),
            *(
                (f"Any guess, from {100 * float(prior):.4g} % before", f"{percent_at_most(most)} %")
                for prior, most in sorted(cert.any_inference.items(), reverse=True)
            ),
        ),
        glossary=(
            ("Candidates", "the possible samples. Which one was used is the secret."),
            _SUCCESS,
            _ADVANTAGE,
            _hits_term(units),
            (
                "Any guess",
                f"about anything that depends on who was used, as names of several {units}.",
            ),
            ("Nat", "unit of information; one yes or no is 0.69 nats."),
        ),
        line=_straight_line(cert),
        hits=hits,
    )


def _straight_line(cert: Certificate) -> tuple[tuple[float, float], ...]:
    """Return the most hits at any rate of false alarms, by the advantage alone."""
    return ((0.0, cert.advantage), (1.0 - cert.advantage, 1.0), (1.0, 1.0))


@page_kind.register
def _of_average(cert: AverageCertificate) -> PageKind:
    unit, units = cert.unit, cert.units
    rates = sorted(cert.hits, key=float, reverse=True)
    hits = tuple((float(rate), cert.hits[rate], None) for rate in rates)
    large = percent_at_most(cert.moves[f"{LARGE_MOVE:g}"])
    return PageKind(
        sample=f"{_coin_sample(cert)} came from the operating system's randomness.",
        errors="the coins, clipping and the noise",
        rest=f"some {units} were left out",
        provenance=(
            ("Noise", f"normal, in whole numbers, in {cert.noise.n_directions} directions"),
        ),
        draws=f"{cert.n_draws:,}" if cert.n_draws else "none needed",
        figures=(("Advantage, on average", at_most(cert.advantage, decimals=4)), *_hits_rows(hits)),
        glossary=(_coin_term(unit), _SUCCESS, _ADVANTAGE, _hits_term(units)),
        line=_straight_line(cert),
        hits=hits,
        side=f"The promise is an average over the coins of the other {units}. Whoever knows these "
        f"may guess better for some samples, and worse for others. One {unit} changes the release "
        f"by more than {LARGE_MOVE:g} standard deviations of the noise in at most {large} % of the "
        f"samples.",
    )


@page_kind.register
def _of_coins(cert: CoinCertificate) -> PageKind:
    influence, unit, units = cert.dp_readings.gaussian_mu, cert.unit, cert.units
    everybody = cert.sampling == "everybody"
    rates = np.concatenate([np.geomspace(1e-4, 0.01, 12), np.linspace(0.02, 1, 50)]).tolist()
    hits = tuple((rate, influence_hits(influence, rate), None) for rate in RARE_ALARMS)
    groups = {size: influence_success(size * influence) for size in GROUP_SIZES}
    together = "taken together" if everybody else "whose coins agree"
    return PageKind(
        sample=f"{_coin_sample(cert)} came from the operating system's randomness.",
        against=f", even if they know all other {units} and which of them were used",
        errors="clipping and the noise" if everybody else "the coins, clipping and the noise",
        rest=f"outlying {units} were clipped"
        if everybody
        else f"some {units} were left out and outlying ones clipped",
        provenance=(
            (
                "Noise",
                f"normal, in whole numbers, in {cert.noise.n_directions} directions, shaped to "
                f"what one {unit} can change",
            ),
        ),
        figures=(
            ("Advantage", at_most(cert.advantage, decimals=4)),
            *_hits_rows(hits),
            *(
                (f"Success, {size} {units} {together}", f"{percent_at_most(most)} %")
                for size, most in groups.items()
            ),
            *_odds_figures(cert),
        ),
        glossary=(
            *(() if everybody else (_coin_term(unit),)),
            _SUCCESS,
            _ADVANTAGE,
            _hits_term(units),
            *(() if everybody else (_AGREE,)),
        ),
        line=((0.0, 0.0), *((rate, influence_hits(influence, rate)) for rate in rates)),
        hits=hits,
        side=f"Knowing other {units} does not help: the promise holds also against those who know "
        f"all of them and which were used. {units.capitalize()} {together} are protected as a "
        f"group: success is at most {times_in_100(groups[2])} for two of them, "
        f"{times_in_100(groups[5])} for five.",
    )


def _coin_sample(cert: OddsCertificate) -> str:
    number = "" if cert.n_units is None else f"{cert.n_units:,} "
    if cert.keep == 1.0:
        return f"All {number}{cert.units} were used; the noise"
    each = f"Each of {number}{cert.units}" if number else f"Each {cert.unit}"
    return (
        f"{each} was used with probability {cert.keep:g}, by a secret coin of its own; coins and "
        "noise"
    )


def _hits_rows(hits: Hits) -> Pairs:
    return tuple(
        (f"Hits at false alarms of {rate_text(rate)}", f"{percent_at_most(most)} %")
        for rate, most, _ in hits
    )


def _hits_term(units: str) -> tuple[str, str]:
    meaning = f"{units} flagged as used that were used, and that were left out."
    return ("Hits, false alarms", meaning)


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
