"""Contents of a report, collected from a release as plain data.

Everything in :class:`CuratorFigures` is for the curator; a page without it is public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Final, NamedTuple, Self

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._random import public_generator
from pacprivacy._rounding import at_least, at_most, percent_at_most
from pacprivacy._values import Row as Row, times_in_100
from pacprivacy.adversary import (
    LARGE_MOVE,
    influence_hits,
    influence_success,
    membership_draws,
    membership_risk,
    noiseless_membership,
)
from pacprivacy.audit import AuditResult
from pacprivacy.errors import CertificateError
from pacprivacy.release import (
    AverageCertificate,
    Bundle,
    Certificate,
    CertificateNoise,
    CoinBundle,
    CoinCertificate,
    CoinEvidence,
    CuratorBundle,
    OddsCertificate,
    PoolCertificate,
    trade_off_text_rows,
)
from pacprivacy.reporting.style import style_number
from pacprivacy.reporting.value_charts import Layout, NamedTable
from pacprivacy.session import QueryAnswer
from pacprivacy.theory import posterior_success

N_PRIORS: Final = 100
LEARNED: Final = (
    "The promise is an average over secrets and noise: in one run readers may learn more than it "
    "says, in another less. What they learned in this run is for the curator, and is no promise."
)
RISK_BINS: Final = 24
RISK_DRAWS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStep:
    """One release of a session; public, except for the amounts learned in this run."""

    number: int
    mechanism: str
    spent_nats: float | None = None
    spent_success: float | None = None
    spent_share: float | None = None
    learned_nats: float | None = None
    best_guess: float | None = None


class SessionLine(NamedTuple):
    """Spent and learned amounts after each release, the total, its text and the unit."""

    spent: list[float]
    learned: list[float]
    total: float | None
    text: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFigures:
    """Spent amounts of a session after each of its releases; public."""

    steps: tuple[SessionStep, ...]
    total_nats: float | None
    total_success: float | None
    success_bound: float

    def line(self) -> SessionLine:
        """Return the drawn amounts: shares of the budget, membership, or information."""
        if self.total_success is None:
            return SessionLine(
                spent=[step.spent_nats or 0.0 for step in self.steps],
                learned=[s.learned_nats for s in self.steps if s.learned_nats is not None],
                total=self.total_nats,
                text=f"total {at_most(self.total_nats or 0.0, significant=4)} nats",
                unit="information, nats",
            )
        text = f"membership success at most {percent_at_most(self.total_success)} %"
        shares = [step.spent_share for step in self.steps if step.spent_share is not None]
        if shares:
            spent = [100 * share for share in shares]
            return SessionLine(spent, [], 100.0, text, "budget spent, %")
        guesses = [step.best_guess for step in self.steps if step.best_guess is not None]
        return SessionLine(
            spent=[100 * (step.spent_success or 0.0) for step in self.steps],
            learned=[100 * (guess - 0.5) for guess in guesses],
            total=100 * (self.total_success - 0.5),
            text=text,
            unit="membership, points above 50 %",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratorFigures:
    unit_success_edges: tuple[float, ...] = ()
    unit_success_counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Facts about the data that no certificate holds; each may be empty; public."""

    title: str = ""
    by: str = ""
    dataset: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that a report shows; public but for ``curator`` and the units of ``audit``.

    ``values`` are the released numbers by name; ``layout`` is how a picture
    arranges them; ``tables`` are those of a study; ``value_text`` stands for what has none;
    ``answer`` is there for a query.
    ``any_inference`` is the bound on an arbitrary guess over a grid of priors.
    """

    certificate: Certificate
    about: About = About()
    values: tuple[Row, ...] = ()
    layout: Layout = None
    tables: tuple[NamedTable, ...] = ()
    value_text: str = ""
    answer: QueryAnswer | None = None
    any_inference: tuple[tuple[float, float], ...] = ()
    session: SessionFigures | None = None
    audit: tuple[AuditResult, ...] = ()
    curator: CuratorFigures | None = None

    def to_public(self) -> Self:
        """Return the report without its curator-only parts."""
        audit, session = tuple(replace(result, unit=None) for result in self.audit), self.session
        if session is not None:
            steps = (replace(s, learned_nats=None, best_guess=None) for s in session.steps)
            session = replace(session, steps=tuple(steps))
        return replace(self, curator=None, audit=audit, session=session)


def build_report_contents(
    certificate: Certificate,
    *,
    bundle: CuratorBundle | None = None,
    curator: bool = False,
    session: Sequence[Certificate] = (),
    audit: Sequence[AuditResult] = (),
    about: About | None = None,
    values: tuple[Row, ...] = (),
    layout: Layout = None,
    tables: tuple[NamedTable, ...] = (),
    value_text: str = "",
    answer: QueryAnswer | None = None,
) -> ReportData:
    """Return the data of a report.

    Claim R-9: without ``curator`` the bundle is not looked at; what is shown is a
    function of what was published.
    """
    data = ReportData(
        certificate=certificate,
        about=About() if about is None else about,
        values=values,
        layout=layout,
        tables=tables,
        value_text=value_text,
        answer=answer,
        any_inference=_any_inference(certificate),
        session=report_session_figures([certificate, *session]),
        audit=tuple(audit),
        curator=None if bundle is None or not curator else _curator_figures(certificate, bundle),
    )
    return data if curator else data.to_public()


def _any_inference(certificate: Certificate) -> tuple[tuple[float, float], ...]:
    if not isinstance(certificate, PoolCertificate):
        return ()
    near_zero = np.geomspace(1e-4, 0.005, 16)[:-1]  # where the curve is steep
    priors = np.concatenate([near_zero, np.linspace(0.005, 0.995, N_PRIORS)])
    success = posterior_success(certificate.mi_upper_nats, priors)
    return tuple(zip(priors.tolist(), success.tolist(), strict=True))


def check_report_contents(certificate: Certificate, bundle: CuratorBundle) -> None:
    """Refuse a bundle of another release; ``pac verify`` checks much more."""
    ours: tuple[Any, ...] = (certificate.n_units, certificate.dimension)
    shape: tuple[Any, ...] = ()
    if isinstance(bundle, Bundle) and isinstance(certificate, PoolCertificate):
        noise = CertificateNoise.of(bundle.grid_step, bundle.units_per_std).rounded()
        ours = (*ours, certificate.n_subsets, certificate.noise.rounded())
        shape = (bundle.pool.n_units, bundle.outputs.shape[1], bundle.pool.n_subsets, noise)
    if isinstance(bundle, CoinEvidence) and isinstance(certificate, OddsCertificate):
        ours = (*ours, certificate.keep, certificate.noise)
        n_units = certificate.n_units and bundle.n_units  # None where presence is hidden
        shape = (n_units, bundle.dimension, bundle.keep, bundle.noise.rounded())
    if ours != shape:
        raise CertificateError(
            "bundle must be of this release; its sample or its noise is another. "
            "Pass the curator.npz that was written beside the release."
        )


def _curator_figures(certificate: Certificate, bundle: CuratorBundle) -> CuratorFigures:
    risks = None
    if isinstance(bundle, Bundle):
        risks = _pool_risks(bundle)
    elif isinstance(bundle, CoinBundle) and bundle.is_whole:
        risks = np.array([influence_success(charge) for charge in bundle.charges.tolist()])
    if risks is None:
        return CuratorFigures()
    low = min(0.5, float(risks.min()))
    high = max(certificate.membership_bound, float(risks.max()), low + 1e-3)
    counts, edges = np.histogram(risks, bins=RISK_BINS, range=(low, high))
    return CuratorFigures(
        unit_success_edges=tuple(edges.tolist()),
        unit_success_counts=tuple(counts.tolist()),
    )


def _pool_risks(bundle: Bundle) -> Vector | None:
    if bundle.iid_rule is not None:
        return None
    if len(bundle.units_per_std) == 0:
        return noiseless_membership(bundle.view, bundle.pool).per_unit
    draws = min(RISK_DRAWS, membership_draws(bundle.pool.n_subsets))
    rng = public_generator(bundle.seed, "report-units")
    return membership_risk(bundle.view, bundle.pool, n_draws=draws, gamma=1e-3, rng=rng).per_unit


def report_session_figures(certificates: Sequence[Certificate]) -> SessionFigures | None:
    facts = [(c.composition or {}, c.mechanism) for c in certificates]
    spends = ("spent_nats_so_far", "spent_influence_so_far")
    known = {f["release_number"]: (f, name) for f, name in facts if any(s in f for s in spends)}
    if not known:
        return None
    steps = tuple(
        SessionStep(
            number=int(number),
            mechanism=name,
            spent_nats=f.get("spent_nats_so_far"),
            spent_success=f.get("spent_increments_so_far"),
            spent_share=_spent_share(f),
            learned_nats=f.get("learned_nats"),
            best_guess=f.get("best_guess_now"),
        )
        for number, (f, name) in sorted(known.items())
    )
    last = known[max(known)][0]
    return SessionFigures(
        steps=steps,
        total_nats=last.get("total_nats"),
        total_success=last.get("total_success"),
        success_bound=float(last.get("session_success_bound", 1.0)),
    )


def _spent_share(facts: Mapping[str, Any]) -> float | None:
    """Return the share of the squared influence that was spent, rounded up; None for pools."""
    if "spent_influence_so_far" not in facts:
        return None
    share = (float(facts["spent_influence_so_far"]) / float(facts["total_influence"])) ** 2
    return min(1.0, share * (1 + 1e-12))


# --- what pages say differently about the two kinds of secret -------------------------------

Pairs = tuple[tuple[str, str], ...]
RARE_ALARMS: Final = (0.1, 0.01, 1e-3, 1e-6)
GROUP_SIZES: Final = (2, 5)
_SUCCESS: Final = (
    "Success",
    "how often a guess “used or not” is right, both being equally likely. 50 % is blind.",
)
_ADVANTAGE: Final = ("Advantage", "twice what success is above 50 %: 0 is blind, 1 is certainty.")


_AGREE: Final = ("Coins agree", "a group that is used as a whole or left out as a whole.")


def _coin_term(unit: str) -> tuple[str, str]:
    return ("Coin", f"decides for one {unit}, independently of all others, in secret.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKind:
    """The words and figures of one kind of secret; public.

    ``hits`` are the largest shares of used units that are flagged at rates of false alarms;
    ``line`` is through the most hits at all rates, ``marks`` are those of the unit placed worst.
    """

    template: str
    sample: str
    errors: str
    rest: str
    rest_name: str
    provenance: Pairs
    draws: str
    figures: Pairs
    glossary: Pairs
    line: tuple[tuple[float, float], ...]
    marks: tuple[tuple[float, float], ...] = ()
    axes: tuple[str, str]
    trade_off: tuple[tuple[float, float, float | None], ...] = ()
    tiles: Pairs = ()
    hits: tuple[tuple[str, float], ...] = ()
    side: str = ""


@singledispatch
def page_kind(certificate: Certificate) -> PageKind:
    raise NotImplementedError(type(certificate).__name__)


@page_kind.register
def _of_pool(cert: PoolCertificate) -> PageKind:
    rows = trade_off_text_rows(cert)
    estimates = (cert.membership, cert.information)
    draws = [f"{each.n_draws:,}" for each in estimates if each and each.n_draws]
    alone = ", by this release" if cert.is_in_session else ""
    return PageKind(
        template="report.html",
        sample=f"The release was computed on one of {cert.n_subsets:,} candidate subsets "
        f"({cert.scheme}), chosen in secret by the operating system's randomness.",
        errors=f"choosing a part of the {cert.units} and from the noise",
        rest=f"a part of the {cert.units} was used",
        rest_name=f"choice of the {cert.units}",
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
        figures=_pool_figures(cert),
        glossary=_pool_glossary(cert.units),
        line=_straight_line(cert),
        marks=tuple((rate, worst) for rate, _, worst in rows if worst is not None),
        axes=("called used, of those not used", "called used, of those used, at most"),
        trade_off=tuple(rows),
    )


def _straight_line(cert: Certificate) -> tuple[tuple[float, float], ...]:
    """Return the most true positives at any rate of false positives, by the advantage alone."""
    return ((0.0, cert.advantage), (1.0 - cert.advantage, 1.0), (1.0, 1.0))


def _pool_figures(cert: PoolCertificate) -> Pairs:
    mean = cert.membership_mean
    figures = [("Advantage", at_most(cert.advantage, decimals=4))]
    if mean and not cert.is_in_session:
        figures.insert(0, ("The same, on average", f"{percent_at_most(mean.upper)} %"))
    for rate, most, _ in trade_off_text_rows(cert):
        figures.append(
            (f"True positives at {100 * rate:.3g} % false ones", f"{percent_at_most(most)} %")
        )
    for prior, most in sorted(cert.any_inference.items(), reverse=True):
        figures.append(
            (f"Any guess, from {100 * float(prior):.4g} % before", f"{percent_at_most(most)} %")
        )
    return tuple(figures)


def _pool_glossary(units: str) -> Pairs:
    candidates = (
        "subsets of the universe, any of which may have been used. Which one was is the secret."
    )
    return (
        ("Universe", "everybody in the table. It is taken as known."),
        ("Candidates", candidates),
        _SUCCESS,
        _ADVANTAGE,
        ("False, true positives", f"{units} called “used” that were not, and that were."),
        ("Any guess", f"about anything that depends on who was used, as names of several {units}."),
        ("Nat", "unit of information; one yes or no is 0.69 nats."),
    )


@page_kind.register
def _of_average(cert: AverageCertificate) -> PageKind:
    units, large = cert.units, percent_at_most(cert.moves[f"{LARGE_MOVE:g}"])
    rates = sorted(cert.hits, key=float, reverse=True)
    hits = tuple((_rate(float(rate)), cert.hits[rate]) for rate in rates)
    return PageKind(
        template="report_coins.html",
        sample=f"{_coin_sample(cert, cert.keep)} came from the operating system's randomness.",
        errors="the coins, clipping and the noise",
        rest=f"some {units} were left out",
        rest_name="coins",
        provenance=(
            ("Noise", f"normal, in whole numbers, in {cert.noise.n_directions} directions"),
        ),
        draws=f"{cert.n_draws:,}" if cert.n_draws else "none needed",
        figures=(("Advantage, on average", at_most(cert.advantage, decimals=4)), *_hits_rows(hits)),
        glossary=(_coin_term(cert.unit), _SUCCESS, _ADVANTAGE, _hits_term(units)),
        line=_straight_line(cert),
        axes=("false alarms, of those left out", "hits, of those used, at most"),
        tiles=(
            (
                f"{large} %",
                f"most of the samples in which one {cert.unit} changes the release by more than "
                f"{LARGE_MOVE:g} deviations of the noise",
            ),
        ),
        hits=hits,
        side=f"The promise is an average over the coins of the other {units}. Whoever knows these "
        f"may guess better for some samples, and worse for others.",
    )


def _coin_sample(cert: Certificate, keep: float) -> str:
    number = "" if cert.n_units is None else f"{cert.n_units:,} "
    if keep == 1.0:
        return f"All {number}{cert.units} were used; the noise"
    each = f"Each of {number}{cert.units}" if number else f"Each {cert.unit}"
    return (
        f"{each} was used with probability {keep:g}, by a secret coin of its own; coins and noise"
    )


def _hits_rows(hits: Sequence[tuple[str, float]]) -> Pairs:
    return tuple(
        (f"Hits at false alarms of {rate}", f"{percent_at_most(most)} %") for rate, most in hits
    )


def _hits_term(units: str) -> tuple[str, str]:
    meaning = f"{units} flagged as used that were used, and that were left out."
    return ("Hits, false alarms", meaning)


@page_kind.register
def _of_coins(cert: CoinCertificate) -> PageKind:
    influence, unit, units = cert.dp_readings.gaussian_mu, cert.unit, cert.units
    everybody = cert.sampling == "everybody"
    rates = np.concatenate([np.geomspace(1e-4, 0.01, 12), np.linspace(0.02, 1, 50)]).tolist()
    line = ((0.0, 0.0), *((rate, influence_hits(influence, rate)) for rate in rates))
    hits = tuple((_rate(rate), influence_hits(influence, rate)) for rate in RARE_ALARMS)
    groups = {size: influence_success(size * influence) for size in GROUP_SIZES}
    together = "taken together" if everybody else "whose coins agree"
    return PageKind(
        template="report_coins.html",
        sample=f"{_coin_sample(cert, cert.keep)} came from the operating system's randomness.",
        errors="clipping and the noise" if everybody else "the coins, clipping and the noise",
        rest=f"outlying {units} were clipped"
        if everybody
        else f"some {units} were left out and outlying ones clipped",
        rest_name="clipping" if everybody else "coins and clipping",
        provenance=(
            (
                "Noise",
                f"normal, in whole numbers, in {cert.noise.n_directions} directions, shaped to "
                f"what one {unit} can change",
            ),
        ),
        draws="none needed",
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
        line=line,
        axes=("false alarms, of those left out", "hits, of those used, at most"),
        tiles=(
            *(
                (
                    f"{percent_at_most(most)} %",
                    f"most that guesses succeed about {size} {units} {together}",
                )
                for size, most in groups.items()
            ),
            *_odds_tiles(cert),
        ),
        hits=hits,
        side=f"Knowing other {units} does not help: the promise holds also against those who know "
        f"all of them and which were used. {units.capitalize()} {together} are protected as a "
        f"group: success is at most {times_in_100(groups[2])} for two of them, "
        f"{times_in_100(groups[5])} for five.",
    )


def _odds_figures(cert: CoinCertificate) -> Pairs:
    if cert.sampling == "everybody" or cert.is_in_session:
        return ()
    before = at_least(cert.keep, significant=6, percent=True)
    return (
        (f"Guess “used”, right {before} % before", f"{percent_at_most(cert.success_at_keep)} %"),
    )


def _odds_tiles(cert: CoinCertificate) -> Pairs:
    if cert.sampling == "everybody" or cert.is_in_session:
        return ()
    before = at_least(cert.keep, significant=6, percent=True)
    return (
        (
            f"{percent_at_most(cert.success_at_keep)} %",
            f"most that a guess succeeds at the odds of the coins, where “used” is right "
            f"{before} % of the time without the release",
        ),
    )


def _rate(rate: float) -> str:
    return f"1 in {round(1 / rate):,}"
