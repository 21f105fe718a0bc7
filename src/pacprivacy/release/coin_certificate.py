"""Certificates of releases in which every unit has a coin, written from their evidence.

The promise on sums and descents holds against an attacker who knows all other units. The promise
on other statistics is an average over the coins of the others, with the probability that a unit
changes the release by more than three deviations of the noise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

import numpy as np

from pacprivacy._checks import Amount, Count, Share
from pacprivacy._rounding import at_least, at_most, percent_at_most, two_digits
from pacprivacy._values import readings_text, times_in_100
from pacprivacy.adversary import (
    GROUP_SIZES,
    LARGE_MOVE,
    LARGE_MOVE_SHARE,
    average_hits,
    cap_success,
    influence_risk,
    session_risk,
)
from pacprivacy.noise import rounding_of
from pacprivacy.release.bundle import Record
from pacprivacy.release.certificate import (
    Certificate,
    CertificateNoise,
    Evidence,
    Positive,
    Text,
    certificate_epsilon,
    evidence_of,
    fields_on_trust,
    on_trust,
    refuse_field,
)
from pacprivacy.release.certificate_text import (
    Rows,
    advantage_text,
    budget_text,
    false_alarms_text,
    plural_text,
    studied_text,
    who_text,
)
from pacprivacy.release.coin_bundle import AverageBundle, CoinProof, unproved
from pacprivacy.release.error_bars import NO_INTERVALS
from pacprivacy.theory import gaussian_epsilon, success_at

PRESENCE_DELTA: Final = 1e-5  # at which epsilon is read
LATTICE_SHARE: Final = 1e-3  # of delta, for noise in whole numbers
CLOSED_FORM: Final = "closed form, no failure probability"


@dataclass(frozen=True, slots=True, kw_only=True)
class OddsCertificate(Certificate):
    """Common fields of certificates with coins; every field is public.

    Parameters
    ----------
    keep : float
        Probability with which a unit is used.
    success_at_keep : float
        How often the best guess is right where a unit is used with its own probability.
    hits : mapping
        For each rate of false alarms, the largest share of used units that an attacker finds.
    """

    SHORT: ClassVar[tuple[str, ...]] = (
        *("Asked", "Holds against", "Sample", "At these odds", "Statistic"),
    )
    PROVED: ClassVar[tuple[str, ...]] = (
        *("Advantage", "Large changes", "False alarms", "Groups", "Presence"),
    )

    unit: Text = field(metadata=on_trust("what a unit is called"))
    n_units: Positive | None = field(metadata=on_trust("how many units there are in all"))
    noise: CertificateNoise = field(
        metadata=on_trust("how large the noise is; that it hides what units add was checked")
    )
    dimension: Count = field(metadata=on_trust("how many numbers the statistic makes"))
    keep: Share = field(metadata=on_trust("that coins have this probability"))
    success_at_keep: Share
    hits: dict[str, Share]

    @property
    def used_prior(self) -> float:
        return self.keep

    @property
    @abstractmethod
    def _whom(self) -> str:
        """Whom the promise holds against."""

    @abstractmethod
    def _risk_rows(self) -> Rows:
        """Return names and texts of bounds on attackers."""

    def _noise_text(self) -> str:
        if self.noise.n_directions == 0:
            return f"none: no {self.unit} adds anything"
        known = "" if NO_INTERVALS in self.notes else "; its size is part of every standard error"
        return f"normal, in whole numbers, in {self.noise.n_directions} directions{known}"

    @property
    def _proof_text(self) -> str:
        return CLOSED_FORM

    def rows(self) -> Rows:
        return [
            ("Asked", budget_text(self)),
            ("Holds against", self._whom),
            *self._odds_rows(),
            *self._risk_rows(),
            ("Statistic", f"{self.mechanism} -> {self.output}"),
            ("Noise", self._noise_text()),
            ("Proof", self._proof_text),
        ]

    def _odds_rows(self) -> Rows:
        before, number = at_least(self.keep, significant=6, percent=True), self.n_units
        each = f"each {self.unit}" if number is None else f"each of {number:,} {self.units}"
        return [
            ("Sample", f"{each} was used by a coin of its own, with probability {self.keep:g}"),
            (
                "At these odds",
                f'"used" is right {before} times in 100 without the release; with it the best '
                f"guess is right at most {percent_at_most(self.success_at_keep)} times in 100",
            ),
        ]

    def _hits_row(self) -> tuple[str, str]:
        rates = sorted(self.hits, key=float, reverse=True)
        return "False alarms", false_alarms_text((float(rate), self.hits[rate]) for rate in rates)

    def _dp_row(self) -> tuple[str, str]:
        readings = readings_text(min(1.0, self.promised_success))
        return "In terms of DP", f"{readings}; not a DP claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenPresence:
    """Promise about the presence of a unit in the table: Gaussian differential privacy.

    Parameters
    ----------
    mu : float
        With and without all rows of one unit, releases are as hard to tell apart as two normal laws
        at this distance.
    epsilon : float or None
        The same as ``(epsilon, delta)``; None where no finite one is proved.
    declared : str
        All that the noise follows from besides the budget.
    """

    mu: Amount
    epsilon: Amount | None
    delta: Share
    declared: str

    def __str__(self) -> str:
        amount = f"mu {at_most(self.mu, significant=4)}"
        if self.epsilon is not None:
            epsilon = at_most(self.epsilon, significant=4)
            amount += f", that is epsilon {epsilon} at delta {self.delta:g}"
        return f"Gaussian differential privacy with {amount}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinCertificate(OddsCertificate):
    """Bounds on every attacker, even one who knows all others; every field is public.

    Parameters
    ----------
    sampling : {"coins", "everybody"}
        Whether units were left out by coins, or everybody was used (``keep=1``).
    influence : float
        The most that one unit may change the release, in deviations of the noise.
    groups : mapping
        For each size of a group whose coins agree, the success of guessing which way.
    presence : HiddenPresence, optional
        That a unit is in the table at all is hidden, too. No figure is then computed from records,
        and the number of units is not published.
    """

    OPTIONAL: ClassVar[tuple[str, ...]] = ("presence",)

    sampling: Literal["coins", "everybody"]
    influence: Amount
    groups: dict[str, Share]
    presence: HiddenPresence | None = None

    def check(self) -> None:
        """Refuse a number of units, or facts of all records, where presence is hidden."""
        if (self.presence is None) == (self.n_units is None):
            raise refuse_field("n_units", "it is told unless presence is hidden")
        if self.presence is not None and self.published:
            raise refuse_field("published", "nothing is published exactly where presence is hidden")

    @property
    def hides_presence(self) -> bool:
        return self.presence is not None

    @property
    def promise(self) -> str:
        if self.presence is None:
            return self._promise
        unit = self.unit
        return (
            f"{self._promise} Also hides whether a {unit} is in the table at all: with or without "
            f"all rows of one {unit}, every result is almost as likely ({self.presence})."
        )

    @property
    def _promise(self) -> str:
        unit, units, whom = self.unit, self.units, who_text(self)
        success = times_in_100(self.promised_success)
        if self.sampling == "everybody":
            lead = (
                f"Compare {studied_text(self)} with what would have been released without a given "
                f"{unit}, with the same noise. Whoever sees one of the two, by any method, guesses "
                f"which at most {success}; 50 by chance."
            )
            return (
                f"{lead} This holds also against those who know everything about all other {units}."
            )
        return (
            f"Take a {unit} {whom} is equally likely to have been used or left out. Whoever "
            f"studies {studied_text(self)} guesses which at most {success}; 50 without "
            f"{'them' if self.composition else 'it'}. This holds also against those who know all "
            f"other {units} and which of them were used."
        )

    @property
    def _whom(self) -> str:
        return f"everybody, whatever they know of the other {self.units}"

    def _risk_rows(self) -> Rows:
        units = self.units
        groups = "; ".join(
            f"{size} together: at most {times_in_100(self.groups[size])}" for size in self.groups
        )
        grouped = f"{units} whose coins agree, known to the attacker"
        if self.sampling == "everybody":
            grouped = f"several {units}, compared with a release without all of them"
        return [
            ("Advantage", advantage_text(self)),
            self._hits_row(),
            ("Groups", f"{grouped}. {groups}"),
            *self._presence_rows(),
        ]

    def _presence_rows(self) -> Rows:
        if self.presence is None:
            return [self._dp_row()]
        alike = f"two tables are neighbours if one has all rows of one {self.unit} more"
        return [
            ("Presence", f"{self.presence}; {alike}"),
            ("Declared", self.presence.declared),
        ]

    def _odds_rows(self) -> Rows:
        if self.sampling == "coins":
            return super(CoinCertificate, self)._odds_rows()
        number = "" if self.n_units is None else f"{self.n_units:,} "
        return [("Sample", f"everybody: all {number}{self.units} were used")]


Certificate.KINDS["coins"] = Certificate.KINDS["everybody"] = CoinCertificate


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageCertificate(OddsCertificate):
    """Bounds on every attacker, on average over the coins; every field is public.

    Parameters
    ----------
    sampling : "average"
        Units were left out by coins, and the promise is an average over these.
    moves : mapping
        For each distance in deviations of the noise, how likely a unit moves the release by more.
    n_draws : int
        Number of simulated samples behind the figures; 0 for closed forms.
    """

    sampling: Literal["average"]
    moves: dict[str, Share]
    n_draws: Count

    @property
    def promise(self) -> str:
        unit, units, whom = self.unit, self.units, who_text(self)
        success = times_in_100(self.promised_success)
        return (
            f"Take a {unit} {whom} is equally likely to have been used or left out. Whoever "
            f"studies {studied_text(self)}, by any method, guesses which at most {success}; 50 "
            f"without the release. This holds on average over the coins of the other {units}, also "
            f"against those who know all of them."
        )

    @property
    def _whom(self) -> str:
        return f"everybody, whatever they know of the other {self.units}, on average over the coins"

    @property
    def _proof_text(self) -> str:
        if not self.n_draws:
            return CLOSED_FORM
        wrong = at_most(1 - self.confidence, significant=2)
        return (
            f"{self.n_draws:,} simulated samples of the units; the proof fails with probability "
            f"{wrong} at most"
        )

    def _risk_rows(self) -> Rows:
        large = percent_at_most(self.moves[f"{LARGE_MOVE:g}"])
        return [
            ("Advantage", f"on average {advantage_text(self)}"),
            (
                "Large changes",
                f"whoever knows all other coins may do better on some of them: a {self.unit} "
                f"changes the release by more than {LARGE_MOVE:g} deviations of the noise at most "
                f"{large} times in 100",
            ),
            self._hits_row(),
            self._dp_row(),
        ]

    def check(self) -> None:
        """Refuse a file without the chance of a large change, or a number of units."""
        if self.n_units is None:
            raise refuse_field("n_units", "it is told unless presence is hidden")
        if f"{LARGE_MOVE:g}" not in self.moves:
            raise refuse_field("moves", f"it must have {LARGE_MOVE:g}")


Certificate.KINDS["average"] = AverageCertificate


# --- written from the evidence ---------------------------------------------------------------


def write_coin_certificate(bundle: CoinProof) -> CoinCertificate:
    """Write the proved bounds: a function of the bundle, for ``verify`` too.

    Guarantee
    ---------
    Claims C-2 and C-8. Every figure follows from the influence that the budget allows, not from
    that of the largest unit, which would tell more of it than the noise does. In a session what
    attackers reach is said of all its releases; ``influence`` and ``membership_bound`` are those of
    this one.
    """
    alike = np.full(max(GROUP_SIZES), bundle.parameter)
    own = influence_risk(alike, keep=bundle.keep, total_variation=bundle.total_variation)
    cap = None if bundle.session is None else bundle.session.total.mu_squared
    risk = own if cap is None else session_risk(cap, bundle.keep)
    stated, units = bundle.stated, plural_text(bundle.unit)
    everybody = bundle.keep == 1.0
    used = "all were used" if everybody else f"each was used with probability {bundle.keep:g}"
    presence, known = _presence(bundle), "all records, the statistic and the noise law"
    published: tuple[str, ...] = (f"number of {units} ({bundle.n_units}); {used}",)
    if presence is not None:
        published, known = (), "what was declared, the statistic and the noise law"
    return CoinCertificate(
        sampling="everybody" if everybody else "coins",
        kind="exact",
        budget=str(bundle.budget),
        mechanism=stated.mechanism,
        output=stated.output,
        unit=bundle.unit,
        n_units=None if presence is not None else bundle.n_units,
        dimension=bundle.dimension,
        keep=bundle.keep,
        influence=bundle.parameter,
        membership_bound=own.success,
        epsilon_equivalent=certificate_epsilon(own.success),
        success_at_keep=risk.success_at_keep,
        hits={f"{rate:g}": share for rate, share in risk.hits},
        groups={str(size): success for size, success in risk.groups},
        noise=bundle.noise.rounded(),
        confidence=1.0,
        presence=presence,
        public=(known, *stated.public),
        published=(*published, *stated.published),
        not_promised=_not_promised(bundle, units),
        notes=stated.notes,
        simulation=bundle.simulation,
        composition=_composition(bundle),
        software=stated.software,
    )


def _presence(bundle: CoinProof) -> HiddenPresence | None:
    """Return the promise about presence in the table: a function of declaration and noise.

    Guarantee
    ---------
    Claim C-9. ``epsilon`` pays for the distance of whole-number noise from a normal law.
    """
    if bundle.declaration is None:
        return None
    epsilon = gaussian_epsilon(bundle.parameter, PRESENCE_DELTA * (1 - LATTICE_SHARE))
    price = (1.0 + math.exp(min(epsilon, 700.0))) * bundle.total_variation
    proved = price <= PRESENCE_DELTA * LATTICE_SHARE
    return HiddenPresence(
        mu=bundle.parameter,
        epsilon=epsilon if proved else None,
        delta=PRESENCE_DELTA,
        declared=bundle.declaration.text(bundle.unit),
    )


def _not_promised(bundle: CoinProof, units: str) -> tuple[str, ...]:
    unit = bundle.unit
    if bundle.declaration is not None:
        return (
            f"General facts that hold with and without a given {unit} are not hidden. Names and "
            f"types of columns are taken as known, and that there are rows at all.",
            f"{units.capitalize()} that depend on each other are protected less, as a group, with "
            f"the larger success above.",
            "Other releases from the same records are not counted here.",
        )
    group = f"{units.capitalize()} whose coins are known to agree"
    others = "Releases from the same coins outside this session are not counted here."
    if bundle.session is None:
        others = "Other releases from the same records and coins are not counted here."
    return (
        *_exact_facts(unit, units, f"the most extreme {units}"),
        f"{f'Several {units} together' if bundle.keep == 1.0 else group} are protected as a group, "
        f"with the larger success above.",
        others,
    )


def _exact_facts(unit: str, units: str, extreme: str) -> tuple[str, str]:
    return (
        f"That a {unit} is in the table is not hidden, nor are general facts that apply to all "
        f"{units} in it. Where it must be, use differential privacy.",
        f"What is published without noise was computed from all records: it tells nothing about "
        f"who was used, and may tell how far {extreme} are from the others.",
    )


def _composition(bundle: CoinProof) -> Record | None:
    part = bundle.session
    if part is None or part.total.mu_squared is None:
        return None
    success, after = cap_success(part.total.mu_squared), part.before + part.charge
    return {
        "release_number": after.n_releases,
        "secrets": "one for all releases",
        "spent_influence_so_far": (after.mu_squared or 0.0) ** 0.5,
        "total_influence": part.total.mu_squared**0.5,
        "total_success": success,
        "session_success_bound": success,
    }


def write_average_certificate(bundle: AverageBundle) -> AverageCertificate:
    """Write the proved bounds: a function of the bundle, for ``verify`` too.

    Guarantee
    ---------
    Claim C-11. The success is the one that was asked for, and chances of moves are rounded up: what
    was computed tells more of the records than the noise does.
    """
    risk = bundle.proof.risk(bundle.grid * bundle.units_per_std, rounding_of(bundle.units_per_std))
    success, slack = bundle.budget.success, bundle.total_variation
    advantage = 2 * success - 1
    if not len(bundle.grid):
        raise unproved("there is no noise")
    if not risk.advantage + 2 * slack <= advantage:
        raise unproved("a unit shows more than is allowed")
    if not risk.large_moves <= LARGE_MOVE_SHARE * advantage:
        raise unproved("a unit moves the release too far too often")
    moves = tuple((far, min(1.0, two_digits(chance))) for far, chance in risk.moves)
    stated, units = bundle.stated, plural_text(bundle.unit)
    return AverageCertificate(
        sampling="average",
        kind="exact",
        budget=str(bundle.budget),
        mechanism=stated.mechanism,
        output=stated.output,
        unit=bundle.unit,
        n_units=bundle.n_units,
        dimension=bundle.dimension,
        keep=bundle.keep,
        membership_bound=success,
        epsilon_equivalent=certificate_epsilon(success),
        success_at_keep=success_at(advantage, bundle.keep),
        hits=average_hits(advantage, moves, slack),
        moves={f"{far:g}": chance for far, chance in moves},
        n_draws=risk.n_draws,
        noise=bundle.noise.rounded(),
        confidence=1.0 - risk.gamma,
        public=("all records, the statistic and the noise law", *stated.public),
        published=(
            f"number of {units} ({bundle.n_units}); each was used with probability {bundle.keep:g}",
            f"how likely one {bundle.unit} moves the release: from all records, rounded up",
            *stated.published,
        ),
        not_promised=(
            *_exact_facts(bundle.unit, units, f"some {units}"),
            f"Whoever knows which of the other {units} were used may guess better than that for "
            f"some samples of them, and worse for others.",
            f"Groups of {units} whose coins are known to agree are not covered.",
            "Other releases from the same records and coins are not counted here; this one must "
            "not be one of a session.",
        ),
        notes=stated.notes,
        simulation=bundle.simulation,
        software=stated.software,
    )


@evidence_of.register
def _of_coins(bundle: CoinProof) -> Evidence:
    bundle.check()
    reasons = {**fields_on_trust(CoinCertificate), **bundle.not_checkable}
    return Evidence(certificate=write_coin_certificate(bundle), on_trust=reasons)


@evidence_of.register
def _of_average(bundle: AverageBundle) -> Evidence:
    reasons = {**fields_on_trust(AverageCertificate), **bundle.proof.not_checkable}
    return Evidence(certificate=write_average_certificate(bundle), on_trust=reasons)
