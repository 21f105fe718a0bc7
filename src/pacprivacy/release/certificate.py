"""The certificate: what a release promises, to whom, and how it was proved; and its check.

What certificates of both kinds of secret share is here; what follows from a pool is in
:mod:`pacprivacy.release.pool_certificate`, what follows from coins in
:mod:`pacprivacy.release.coin_certificate`.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy._checks import LARGEST_COUNT, Amount, Count, Finite, Share, Vector
from pacprivacy._rounding import two_digits
from pacprivacy._values import (
    DATES,
    ESTIMATES,
    NO_INTERVAL,
    SURVEY,
    WEIGHTED,
    Verified,
    are_dates,
    digest_of,
    read_certificate,
    rows_html,
    verify,
)
from pacprivacy.errors import CertificateError
from pacprivacy.noise import Kind
from pacprivacy.release.bundle import RELATIVE, CuratorBundle, Record, load_bundle
from pacprivacy.release.certificate_text import (
    Rows,
    budget_text,
    certificate_text,
    plural_text,
)
from pacprivacy.theory import Readings, epsilon_equivalent, read_as_dp, success_at

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


_OF_ROWS: Final = re.compile(
    r"count by |"
    r"(?:study|sum|mean|median|quantiles|variance|rate|histogram|ols|logistic|poisson) of ",
    re.IGNORECASE,
)
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
    PROVED: ClassVar[tuple[str, ...]] = ()  # names of the rows that a bundle proves

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
    def used_prior(self) -> float:
        """How often a guess "used" is right without the release."""

    @abstractmethod
    def rows(self) -> Rows:
        """Return names and texts of the proved bounds, for the terminal."""

    # --- what they share ------------------------------------------------------------------------

    @property
    def not_hidden(self) -> str:
        """Summary of the limits of the promise; ``not_promised`` has all of it."""
        if self.hides_presence:
            return f"General facts that hold with and without a given {self.unit}."
        return (
            f"That a {self.unit} is in the table, and general facts that apply to all "
            f"{self.units} in it."
        )

    def __str__(self) -> str:
        return certificate_text(self)

    def _repr_html_(self) -> str:
        rows = [row for row in self.rows() if row[0] in self.SHORT]
        return rows_html(self.promise, rows, simulation=self.simulation)

    def _proved_figures(self) -> dict[str, str]:
        """Return promise and figures that follow from a bundle, by name."""
        rows = {name: text for name, text in self.rows() if name in self.PROVED}
        return {"Promise": self.promise, **rows}

    @property
    def readings(self) -> tuple[str, ...]:
        """How to read the released numbers, in sentences."""
        where = "In the files, " if are_dates(self.mechanism, self.public) else ""
        facts = (
            f"{where}{text}" if text.startswith(DATES) else text
            for text in self.public
            if ESTIMATES in text or text.startswith((DATES, SURVEY))
        )
        short = [note.partition(".")[0] for note in self.notes if NO_INTERVAL in note]
        return tuple(f"{text[:1].upper()}{text[1:]}." for text in (*facts, *short))

    @property
    def counted(self) -> tuple[str, ...]:
        """What the numbers count where it is rows, or weights of rows, in sentences."""
        several = self.unit != "record" and _OF_ROWS.match(self.mechanism) is not None
        rows = [f"Every row counts, and a {self.unit} may have several."] if several else []
        weights = [f"R{text[1:]}." for text in self.public if text.startswith(WEIGHTED)]
        return (*rows, *weights)

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
        """Return the largest success of a guess of one unit's membership at another prior."""
        return success_at(self.advantage, prior)

    @property
    def digest(self) -> str:
        """SHA-256 of the certificate, as in the ledger and on the report page."""
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
        return cls.from_dict(read_certificate(path))


# --- checked against a bundle ----------------------------------------------------------------


ABSOLUTE: Final = 1e-12
LONGEST: Final = 80  # characters of a value in a message
WITH: Final = {"pool": "from a pool", "average": "on average over coins"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Consequences of a bundle: its certificate, written again with every figure computed anew.

    ``on_trust`` are the fields that no figure of the bundle proves, each with the reason.
    """

    certificate: Certificate
    on_trust: Mapping[str, str]


@singledispatch
def evidence_of(bundle: object) -> Evidence:
    """Check a bundle, and write its certificate again; each kind of bundle registers how."""
    raise CertificateError(
        f"bundle must be that of a release; got a {type(bundle).__name__}. Pass the curator.npz "
        "that was written beside the release."
    )


@verify.register
def _verify_release(
    certificate: Certificate, bundle: CuratorBundle | str | Path | None = None
) -> Verified:
    """Check that a certificate follows from the curator's bundle; claim R-1."""
    if bundle is None:
        raise CertificateError(
            "bundle must be given with a PAC certificate; got None. Pass the curator's curator.npz."
        )
    if "target" in (certificate.composition or {}):
        raise CertificateError(
            "certificate must be that of one observation; got the sum of a release that was "
            "refined until a target. Verify its steps, each in a folder of its own."
        )
    evidence = evidence_of(load_bundle(bundle) if isinstance(bundle, str | Path) else bundle)
    again = evidence.certificate
    if type(again) is not type(certificate):
        kinds = (WITH.get(each.sampling, "with coins") for each in (certificate, again))
        raise CertificateError(
            "bundle must be that of a release {}; got that of one {}. Pass the curator.npz that "
            "was written beside the release.".format(*kinds)
        )
    compare_verified(certificate, replace(again, schema_version=certificate.schema_version))
    names = [item.name for item in fields(again)]
    on_trust = {
        name: reason
        for name, reason in evidence.on_trust.items()
        if getattr(again, name) not in (None, ())
    }
    sentences = f"{len(again.not_promised)} of what is not promised, and every other field"
    return Verified(
        digest=certificate.digest,
        recomputed=tuple(name for name in names if name not in on_trust),
        not_checkable=on_trust,
        figures={**again._proved_figures(), "Sentences": sentences},
    )


def compare_verified(claimed: object, rebuilt: object, name: str = "") -> None:
    """Refuse a certificate that differs from the one written again, naming the first field."""
    if isinstance(rebuilt, float):
        _compare_numbers(name, claimed, rebuilt)
    elif type(claimed) is not type(rebuilt):
        raise _mismatch(name, claimed, rebuilt)
    elif is_dataclass(rebuilt):
        for item in fields(rebuilt):
            inner = f"{name}.{item.name}".lstrip(".")
            compare_verified(getattr(claimed, item.name), getattr(rebuilt, item.name), inner)
    elif isinstance(rebuilt, dict) and isinstance(claimed, dict):
        if set(claimed) != set(rebuilt):
            raise _mismatch(name, sorted(claimed), sorted(rebuilt))
        for key, value in rebuilt.items():
            compare_verified(claimed[key], value, f"{name}.{key}")
    elif isinstance(rebuilt, tuple | list) and isinstance(claimed, tuple | list):
        if len(claimed) != len(rebuilt):
            raise _mismatch(name, f"{len(claimed)} items", f"{len(rebuilt)} items")
        for ours, theirs in zip(claimed, rebuilt, strict=True):
            compare_verified(ours, theirs, name)
    elif claimed != rebuilt:
        raise _mismatch(name, claimed, rebuilt)


def _compare_numbers(name: str, claimed: object, rebuilt: float) -> None:
    if isinstance(claimed, bool) or not isinstance(claimed, int | float):
        raise _mismatch(name, claimed, rebuilt)
    # A confidence is so close to one that only its last bits tell it from certainty.
    if name.split(".")[-1] == "confidence":
        same = claimed == rebuilt
    else:
        # Noise has the scale of the outputs, which may be tiny; the rest are nats and rates.
        least = 0.0 if name.startswith("noise.") else ABSOLUTE
        same = math.isclose(claimed, rebuilt, rel_tol=RELATIVE, abs_tol=least)
    if not same:
        raise _mismatch(name, claimed, rebuilt)


def _mismatch(name: str, claimed: object, rebuilt: object) -> CertificateError:
    says, gives = (textwrap.shorten(repr(value), LONGEST) for value in (claimed, rebuilt))
    return CertificateError(
        f"certificate field {name} must follow from the bundle; it says {says}, the bundle "
        f"gives {gives}. Do not rely on this certificate."
    )
