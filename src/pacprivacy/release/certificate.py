"""The certificate: what a release promises, to whom, how it was proved, and all of it in words.

What certificates of both kinds of secret share is here; what follows from a pool is in
:mod:`pacprivacy.release.pool_certificate`, what follows from coins in
:mod:`pacprivacy.release.coin_certificate`.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeAlias, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import LARGEST_COUNT, Amount, Count, Finite, Share, Vector
from pacprivacy._rounding import at_least, at_most, failure_text, percent_at_most, two_digits
from pacprivacy._values import (
    DATES,
    ESTIMATES,
    NO_INTERVAL,
    SURVEY,
    certificate_page,
    digest_of,
    read_certificate,
    readings_text,
    rows_html,
    times_in_100,
)
from pacprivacy.adversary import FALSE_POSITIVES, SideKnowledge
from pacprivacy.errors import CertificateError
from pacprivacy.noise import Kind
from pacprivacy.release.bundle import Record
from pacprivacy.sample import Pool
from pacprivacy.theory import Estimate, Readings, epsilon_equivalent, read_as_dp, success_at

if TYPE_CHECKING:
    from pacprivacy.release.pool_certificate import PoolCertificate

Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=100_000)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_COUNT)]
Fact: TypeAlias = str | bool | int | Finite | None


class SessionFacts(TypedDict, total=False):
    """Statements of a certificate about the session, if any."""

    release_number: Positive
    secrets: Text
    spent_nats_so_far: Amount
    total_nats: Amount | None
    membership_increment: Share
    spent_increments_so_far: Amount
    total_success: Share
    session_success_bound: Share
    prior_of_ever_used: Share
    spent_influence_so_far: Amount
    total_influence: Amount
    learned_nats: Amount
    best_guess_now: Share


class _KnownFacts(msgspec.Struct):
    composition: SessionFacts | None


class _AnyFacts(msgspec.Struct):
    composition: dict[str, Fact] | None


SCHEMA_VERSION: Final = 2
FIRST_VERSION: Final = 1  # of pools alone: no field says so


def certificate_epsilon(success: float) -> float | None:
    """Return the epsilon of a success rate, or None where no finite one allows it."""
    epsilon = epsilon_equivalent(success)
    return epsilon if math.isfinite(epsilon) else None


def _place_and_reason(error: msgspec.ValidationError) -> tuple[str, str]:
    """Split a message such as ``Expected `int` >= 1 - at `$.n_units```."""
    reason, _, place = str(error).partition(" - at ")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", reason)
    inside = place.replace("`key` in ", "").strip("`").removeprefix("$.")
    if missing:
        inside, reason = f"{inside}.{missing[1]}".strip("."), "it is not there"
    return inside, reason[0].lower() + reason[1:]


def refuse_field(field: str, reason: str) -> CertificateError:
    """Return the error of a field that no certificate has."""
    return CertificateError(
        f"certificate field {field[:60]} must be of its kind and range; {reason[:80]}. "
        "Use the file as it was written."
    )


_ON_TRUST: Final = "on trust"


def on_trust(reason: str) -> dict[str, str]:
    """Return the metadata of a field that no figure of a bundle proves, and why that is so."""
    return {_ON_TRUST: reason}


def fields_on_trust(kind: type[Certificate]) -> dict[str, str]:
    """Return the fields that ``verify`` only compares with the curator's record, with reasons."""
    stated = ((item.name, item.metadata.get(_ON_TRUST)) for item in fields(kind))
    return {name: reason for name, reason in stated if reason is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateNoise:
    """The noise in a few public numbers."""

    total_variance: Amount
    smallest_std: Amount
    largest_std: Amount
    n_directions: Count
    smallest_grid_step: Amount
    smallest_units_per_std: Count

    @classmethod
    def of(cls, grid_step: Vector, units_per_std: npt.NDArray[np.int64]) -> Self:
        """Return the summary of noise with these grid steps, and units of them."""
        std = grid_step * units_per_std
        return cls(
            total_variance=float(np.square(std).sum()),
            smallest_std=float(std.min()) if len(std) else 0.0,
            largest_std=float(std.max(initial=0.0)),
            n_directions=len(std),
            smallest_grid_step=float(grid_step.min()) if len(std) else 0.0,
            smallest_units_per_std=int(units_per_std.min()) if len(std) else 0,
        )

    def rounded(self) -> Self:
        """Return the figures rounded up to two digits, and units down to a power of two."""
        return replace(
            self,
            total_variance=two_digits(self.total_variance),
            smallest_std=two_digits(self.smallest_std),
            largest_std=two_digits(self.largest_std),
            smallest_units_per_std=(1 << self.smallest_units_per_std.bit_length()) >> 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(ABC):
    """Bounds on every attacker; every field is public.

    ``sampling`` is the kind of secret. ``membership_bound`` is *balanced* success, for a unit that
    was used or left out with equal odds.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> certificate = pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16).certificate
    >>> certificate.sampling, certificate.kind, certificate.mi_upper_nats <= 0.1
    ('pool', 'exact', True)
    >>> pac.Certificate.from_dict(certificate.to_public_dict()) == certificate
    True
    """

    KINDS: ClassVar[dict[str, type[Certificate]]] = {}
    OPTIONAL: ClassVar[tuple[str, ...]] = ()  # left out of a file where they say nothing
    SHORT: ClassVar[tuple[str, ...]] = ()  # names of the rows that a notebook shows

    sampling: str
    kind: Kind
    budget: Text = field(
        metadata=on_trust("what was asked; that the proved bounds meet it was checked")
    )
    mechanism: Text = field(
        metadata=on_trust("which function was run; its outputs are taken from the bundle")
    )
    output: Text = field(metadata=on_trust("what the released numbers are called"))
    unit: Text
    n_units: Positive | None  # None: that a unit is there is hidden, too
    dimension: Count
    membership_bound: Share
    epsilon_equivalent: Amount | None
    noise: CertificateNoise
    confidence: Share
    public: tuple[Text, ...] = field(
        metadata=on_trust("what the mechanism says it treats as public")
    )
    published: tuple[Text, ...] = field(
        default=(),
        metadata=on_trust("what the mechanism says it shows of all records; the rest was checked"),
    )
    not_promised: tuple[Text, ...]
    notes: tuple[Text, ...] = field(
        metadata=on_trust("the notes of the mechanism, the noise and the sample")
    )
    simulation: bool = field(
        metadata=on_trust("that secret and noise came from the operating system")
    )
    composition: Record | None = field(
        default=None,
        metadata=on_trust(
            "the session's total, what its earlier releases spent, and what was learned; that the "
            "total is kept was checked"
        ),
    )
    software: Text = field(metadata=on_trust("which version wrote the certificate"))
    schema_version: int = SCHEMA_VERSION

    # --- what the kinds of secret say differently -----------------------------------------------

    @property
    @abstractmethod
    def promise(self) -> str:
        """The promise about one unit, in a few sentences."""

    @property
    @abstractmethod
    def not_hidden(self) -> str:
        """Summary of the limits of the promise; ``not_promised`` has all of it."""

    @property
    @abstractmethod
    def used_prior(self) -> float:
        """How often a guess "used" is right without the release."""

    @abstractmethod
    def rows(self) -> Rows:
        """Return names and texts of the proved bounds, for the terminal."""

    # --- what they share ------------------------------------------------------------------------

    def __str__(self) -> str:
        return certificate_text(self)

    def _repr_html_(self) -> str:
        rows = [row for row in self.rows() if row[0] in self.SHORT]
        return rows_html(self.promise, rows, simulation=self.simulation)

    @property
    def readings(self) -> tuple[str, ...]:
        """How to read the released numbers, in sentences."""
        facts = (t for t in self.public if ESTIMATES in t or t.startswith((DATES, SURVEY)))
        short = [note.partition(".")[0] for note in self.notes if NO_INTERVAL in note]
        return tuple(f"{text[:1].upper()}{text[1:]}." for text in (*facts, *short))

    @property
    def promised_success(self) -> float:
        """The membership success that is promised: over the session, if there is one."""
        session = self.composition or {}
        return float(session.get("session_success_bound", self.membership_bound))

    @property
    def asked(self) -> str:
        """The budget, in words: over the session, if there is one."""
        return budget_text(self)

    @property
    def is_in_session(self) -> bool:
        """Whether the figures depend on earlier releases, and promise nothing alone."""
        return "release_number" in (self.composition or {})

    @property
    def hides_presence(self) -> bool:
        """Whether it is also hidden that a unit is in the table; error bars are then not named."""
        return False

    @property
    def units(self) -> str:
        """Plural of the name of a unit: ``records``, ``people``."""
        return plural_text(self.unit)

    @property
    def advantage(self) -> float:
        """Bound on the advantage of every attacker over even odds: ``2 x success - 1``."""
        return min(1.0, max(0.0, 2.0 * self.promised_success - 1.0))  # exact: no rounding

    def success_at(self, prior: float) -> float:
        """Return the most success of a guess of one unit's membership at another prior."""
        return success_at(self.advantage, prior)

    @property
    def digest(self) -> str:
        """SHA-256 of the certificate: what the ledger records and the report page shows."""
        return digest_of(self.to_public_dict())

    @property
    def dp_readings(self) -> Readings:
        """Differential privacy that would allow the same success; not a claim of DP."""
        return read_as_dp(min(1.0, self.promised_success))

    def to_public_dict(self) -> Record:
        """Return everything as plain JSON types."""
        plain = {
            name: list(item) if isinstance(item, tuple) else item
            for name, item in asdict(self).items()
        }
        for name in (*self.OPTIONAL, "published"):
            if not plain[name]:  # as in files of version 0.1, whose digests are in ledgers
                del plain[name]
        if self.schema_version == FIRST_VERSION:
            del plain["sampling"]
        return plain

    def to_json(self) -> str:
        """Return the certificate as JSON text."""
        return json.dumps(self.to_public_dict(), indent=2, sort_keys=True, allow_nan=False)

    @classmethod
    def from_dict(cls, plain: Any) -> Certificate:
        """Rebuild a certificate; refuse other schema versions and fields that make no sense."""
        stated = plain if isinstance(plain, dict) else {}
        version, sampling = stated.get("schema_version"), stated.get("sampling")
        if version == FIRST_VERSION and sampling is None:
            sampling = "pool"
        known = type(version) is int and FIRST_VERSION <= version <= SCHEMA_VERSION
        if not known or not isinstance(sampling, str) or sampling not in cls.KINDS:
            shown = version if isinstance(version, int | str) else type(plain).__name__
            raise CertificateError(
                f"certificate must have schema version {FIRST_VERSION} or {SCHEMA_VERSION} and a "
                f"known kind of secret; got {shown!r}. Use the version of pacprivacy that wrote "
                "it; 'dp-1' is differential privacy, for 'pac verify' and dp.DPCertificate."
            )
        try:
            certificate = msgspec.convert(plain, cls.KINDS[sampling])
            for facts in (_AnyFacts, _KnownFacts):
                msgspec.convert(plain, facts)
        except msgspec.ValidationError as error:
            raise refuse_field(*_place_and_reason(error)) from None
        certificate.check()
        again = certificate.to_public_dict()
        for name in {**stated, **again}:  # whatever else a file says would be lost
            if name not in stated or name not in again or stated[name] != again[name]:
                raise refuse_field(name, "it says what no certificate says")
        try:
            str(certificate)
        except (LookupError, TypeError, ValueError, ArithmeticError):
            raise refuse_field("trade_off or another", "it cannot be written out") from None
        return certificate

    def check(self) -> None:  # noqa: B027
        """Refuse fields of a file that do not fit together; by default all do."""

    @classmethod
    def read(cls, path: str | Path) -> Certificate:
        """Read a certificate from a release file or a separate file."""
        return cls.from_dict(read_certificate(path))


Rows: TypeAlias = list[tuple[str, str]]
KINDS: Final = {
    "exact": "exact: the secret is uniform over a finite pool, so its law is known",
    "confidence": "confidence: holds with stated probability over the simulation",
    "empirical": "empirical: the papers' practice, NOT a proof",
}
SCOPE: Final = (
    "Whether a person is in the universe at all is not protected: the promise is about which "
    "subset of a fixed universe was used, and the noise level itself is computed from the "
    "universe. Outsiders who must not learn that someone is in the universe need differential "
    "privacy."
)
LOOPHOLE: Final = (
    "What is computed from all candidates tells nothing about which of them is the secret, and is "
    "an exact fact of the universe that no noise hides"
)
TOLD_OUT: Final = (
    "The odds are those that are left by what was told: a unit known to be out leaves few "
    "candidates, one known to be in leaves most"
)
NOISE_LEVEL: Final = (
    "the noise level, and so the spread of the output over the candidates, rounded up to two digits"
)
ELSEWHERE: Final = "Releases and answers made outside this certificate from the same secret subset."


def certificate_text(cert: Certificate) -> str:
    """Return a certificate as text for a terminal of 80 columns."""
    session = [("Session", _session_text(cert))] if cert.composition else []
    lists = {
        "Published without noise": cert.published,
        "Not promised": cert.not_promised,
        "Notes": cert.notes,
    }
    rows = [*cert.rows(), *session, ("Treated as public", "; ".join(cert.public))]
    return certificate_page(cert, rows, lists)


def pool_rows(cert: PoolCertificate) -> Rows:
    """Return names and texts of the proved bounds of a pool."""
    return [
        ("Kind", KINDS[cert.kind]),
        ("Asked", budget_text(cert)),
        *_proved_rows(cert),
        ("Side knowledge", _side_text(cert)),
        (
            "Pool",
            f"{cert.scheme}, {cert.n_subsets} subsets of {cert.n_units} units (unit: {cert.unit})",
        ),
        ("Mechanism", f"{cert.mechanism} -> {cert.output}"),
        ("Noise", _noise_text(cert)),
        ("Confidence", _confidence_text(cert)),
    ]


def promise_text(cert: PoolCertificate) -> str:
    """Return the promise about one unit, and first that a value without noise is exact."""
    exact = ""
    if cert.kind == "exact" and cert.noise.n_directions == 0:
        exact = "No noise was needed: the budget allows the exact value of one candidate. "
        if cert.mi_upper_nats == 0:
            exact = "No noise was needed: all candidates agree, and the value is exact. "
    return exact + _promise_text(cert)


def _promise_text(cert: PoolCertificate) -> str:
    session, unit = cert.composition or {}, cert.unit
    success = cert.promised_success
    if cert.kind != "empirical" and success >= 1:
        span = "over the whole session " if session else ""
        return (
            f"Nothing is promised {span}about guessing whether one given {unit} was used: the "
            f"budget allows certainty."
        )
    studied, most = studied_text(cert), "at most"
    lead = f"Take a {unit} {who_text(cert)} is equally likely"
    if cert.kind == "empirical":
        lead, most = f"By simulation, not by proof: take{lead.removeprefix('Take')}", "about"
    if cert.kind == "confidence":
        doubt = failure_text(cert.confidence)
        lead = f"Unless the simulation misled (probability at most {doubt}): t{lead[1:]}"
        studied += " and does not know the pool"
    return (
        f"{lead} to have been used or left out. Whoever studies {studied}, by any method, guesses "
        f"which {most} {times_in_100(success)}; 50 without the release."
    )


def studied_text(cert: Certificate) -> str:
    """Return the object of study of an attacker: the release, or all of its session."""
    return "all releases of this session" if cert.composition else "this release"


def who_text(cert: Certificate) -> str:
    """Return the pronoun of a unit."""
    return "who" if cert.unit == "person" else "that"


def plural_text(unit: str) -> str:
    """Return the name of several units."""
    if unit == "person":
        return "people"
    head, of, tail = unit.partition(" of ")
    if head.endswith("y") and head[-2:-1] not in tuple("aeiou"):
        return f"{head[:-1]}ies{of}{tail}"
    return f"{head}{'es' if head.endswith(('s', 'x', 'ch', 'sh')) else 's'}{of}{tail}"


def budget_text(cert: Certificate) -> str:
    """Return the budget: over the session, if there is one."""
    session = cert.composition or {}
    if not cert.is_in_session or "target" in session:
        return str(cert.budget)
    nats, success = session.get("total_nats"), session.get("total_success")
    parts = [] if nats is None else [f"mutual information <= {nats:g} nats"]
    parts += [] if success is None else [f"membership success <= {percent_at_most(success)} %"]
    return f"{' and '.join(parts)}, over the whole session"


def _advantage_text(cert: PoolCertificate) -> str:
    advantage, prior = cert.advantage, cert.prior
    shown = at_most(advantage, decimals=4)
    return (
        f"at most {shown}, twice what success is above 50 %, for whoever is shown the release and "
        f"a {cert.unit} that was used or not with equal odds. The pool's own prior is "
        f"{100 * prior:.4g} %: there success is at most "
        f"{percent_at_most(success_at(advantage, prior))} %; at any prior p at most "
        f"max(p, 1-p) + min(p, 1-p) x {shown}"
    )


def trade_off_text_rows(cert: PoolCertificate) -> list[tuple[float, float, float | None]]:
    """Return false positives, true ones of every unit, and those of the worst-placed unit."""
    drawn = {item.false_positives: item.true_positives for item in cert.trade_off}
    advantage = cert.advantage
    rows = []
    for rate in FALSE_POSITIVES:
        simple = min(1.0, (rate + advantage) * (1 + 2.0**-51))
        rows.append((rate, simple, min(simple, drawn[rate]) if rate in drawn else None))
    return rows


def _trade_off_text(cert: PoolCertificate) -> str:
    rows = trade_off_text_rows(cert)
    rates, simple, drawn = (
        ", ".join("-" if value is None else percent_at_most(value) for value in column)
        for column in zip(*rows, strict=True)
    )
    rates = ", ".join(f"{100 * rate:.3g}" for rate, _, _ in rows)
    text = f"at {rates} % false positives at most {simple} % true ones, for every unit "
    text += "(false positives plus advantage)"
    if cert.trade_off:
        draws = cert.trade_off[0].n_draws
        text += f"; {drawn} % for the unit placed worst (likelihood ratios, {draws} draws)"
    return text


def _proved_rows(cert: PoolCertificate) -> Rows:
    rows: Rows = []
    worst, mean = cert.membership, cert.membership_mean
    if worst is not None and mean is not None and not cert.is_in_session:
        rows.append(("Membership", f"worst unit {_percent(worst)}"))
        rows.append(("", f"mean over units {_percent(mean)}"))
    if cert.advantage < 1:
        doubt = "by simulation, not by proof: " * (cert.kind == "empirical")
        rows.append(("Advantage", doubt + _advantage_text(cert)))
        rows.append(("Trade-off", doubt + _trade_off_text(cert)))
    guesses = ", ".join(
        f"prior {100 * float(prior):.4g} % -> {percent_at_most(success)} %"
        for prior, success in sorted(cert.any_inference.items(), reverse=True)
    )
    nats = at_most(cert.mi_upper_nats, decimals=6)
    alone = "by this release, given the earlier ones: " if cert.is_in_session else ""
    rows.append(("Any inference", f"{alone}at most {nats} nats: {guesses}"))
    exact = cert.information
    text = f"log-determinant bound {at_most(cert.log_det_nats, decimals=6)} nats"
    if exact is not None:
        text += f"; exact {exact.value:.6g} nats, at most {at_most(exact.upper, decimals=6)}"
    rows.append(("Information", alone + text))
    if cert.divergences:
        parts = ", ".join(
            f"{item.name} at most {at_most(item.estimate.upper, decimals=4)} "
            f"(prior 50 % -> {percent_at_most(item.success['0.5'])} %)"
            for item in cert.divergences
        )
        text = f"{alone}from independence, for any inference: {parts}"
        rows.append(("Other distances", text))
    readings = readings_text(min(1.0, cert.promised_success))
    rows.append(("In terms of DP", f"{readings}; not a DP claim"))
    return rows


def _percent(estimate: Estimate) -> str:
    low = at_least(estimate.lower, decimals=2, percent=True)
    high = percent_at_most(estimate.upper)
    return f"{100 * estimate.value:.2f} % (between {low} and {high})"


def _side_text(cert: PoolCertificate) -> str:
    if not cert.side_knowledge:
        return "not computed for this kind"
    items = cert.side_knowledge
    n_sets = max(item.n_sets for item in items)
    parts = [
        f"told {item.n_told}{_told_text(item)}: {100 * item.mean_without_release:.1f} -> "
        f"{100 * item.mean_success:.1f} %{_increment_text(item)}"
        for item in items
    ]
    looked_at = items[0].n_looked_at
    whom = "any other unit"
    if looked_at is not None and looked_at < cert.n_units:
        whom += f" of {looked_at} sampled units"
    text = (
        f"best guess about {whom} before -> after this release, then the most that it adds "
        f"for any one unit (mean and largest of {n_sets} sampled sets); " + "; ".join(parts)
    )
    return f"{text}. {TOLD_OUT}" if _told_text(items[0]) else text


def _told_text(item: SideKnowledge) -> str:
    return "" if item.direction is None else f" {item.direction}"


def _increment_text(item: SideKnowledge) -> str:
    if item.mean_increment is None or item.largest_increment is None:  # in files of version 0.1
        return ", not recorded"
    mean, largest = (
        percent_at_most(share, 1) for share in (item.mean_increment, item.largest_increment)
    )
    return f", +{mean} (+{largest})"


def _noise_text(cert: PoolCertificate) -> str:
    noise = cert.noise
    if noise.n_directions == 0:
        return f"none ({cert.rule})"
    return (
        f"{cert.rule}: total variance {noise.total_variance:.4g} over "
        f"{noise.n_directions} of {cert.dimension} directions, standard deviation "
        f"{noise.smallest_std:.3g} to {noise.largest_std:.3g}; integer noise, grid "
        f"{noise.smallest_grid_step:.3g} or coarser"
    )


def _confidence_text(cert: PoolCertificate) -> str:
    if cert.kind != "exact":
        return "see the notes"
    if cert.confidence == 1.0:
        return "closed form, no failure probability"
    return (
        f"1 - {failure_text(cert.confidence)} over our own simulated draws, for the whole "
        f"certificate"
    )


def _session_text(cert: Certificate) -> str:
    """Return how far the session is, less what is said elsewhere or not promised."""
    elsewhere = ("total_success", "session_success_bound", "learned_nats", "best_guess_now")
    shown = {
        key: at_most(value, significant=6) if isinstance(value, float) else value
        for key, value in sorted((cert.composition or {}).items())
        if value is not None and key not in elsewhere
    }
    return "; ".join(f"{key.replace('_', ' ')}: {value}" for key, value in shown.items())


def open_parts_text(
    n_directions: int, dimension: int, *, unanimous: bool = False
) -> tuple[str, ...]:
    """Name what of a release is exact, given how many directions of the output carry noise."""
    if n_directions == 0:
        whole = "the output, on which all candidates agree" if unanimous else ""
        return (whole or "the output, which leaves without noise", "that it needed none")
    if n_directions < dimension:
        rest = f"the output outside the {n_directions} of {dimension} directions that carry noise"
        return (NOISE_LEVEL, rest)
    return (NOISE_LEVEL,)


def not_promised_text(
    pool: Pool, *, mi_upper: float, exact_facts: Sequence[str], knows_pool: bool = True
) -> tuple[str, ...]:
    """Return the limits of the promise, ``exact_facts`` included, in sentences."""
    items = [SCOPE, f"{LOOPHOLE}; here: {'; '.join(exact_facts)}."]
    if knows_pool:
        items.insert(
            0,
            f"Side knowledge: whoever knows the pool and {_naming_text(pool)} knows the secret "
            f"without any release.",
        )
    if mi_upper >= math.log(2):
        items.append(
            f"Other inferences than one unit's membership: {at_most(mi_upper, significant=3)} nats "
            f"is above ln 2, so at prior 1/2 the bound on an arbitrary guess is 100 %. Combine "
            f"with Information(...) to limit these."
        )
    return (*items, ELSEWHERE)


def _naming_text(pool: Pool) -> str:
    """Say how many units name the secret: log2 m memberships, or log_k m units that are out."""
    folds = max(pool.folds, 2)
    number = math.ceil(round(math.log(pool.n_subsets) / math.log(folds), 9))
    if folds == 2:
        return f"the true membership of about {number} units"
    return f"about {number} units that are out"
