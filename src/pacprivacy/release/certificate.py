"""The certificate: what a release promises, to whom, and how it was proved."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from pacprivacy._certificates import digest_of, read_certificate
from pacprivacy.adversary import Divergence, SideKnowledge
from pacprivacy.errors import CertificateError
from pacprivacy.release.text import KINDS, certificate_html, certificate_text, promise_text
from pacprivacy.theory import DIVERGENCES, Estimate, Readings, read_as_dp

Check = Callable[[str, Any], None]

LARGEST_COUNT: Final = 2**63 - 1
LONGEST_TEXT: Final = 100_000
ROUNDING: Final = 1e-9  # a sum of probabilities may come out above one


def check_fields(plain: Mapping[str, Any]) -> None:
    """Refuse a certificate whose fields are of the wrong kind or out of range.

    Fields that are missing or unknown are left to the constructor, which knows their names.
    """
    for name, value in plain.items():
        if name in FIELDS:
            FIELDS[name](name, value)


def _refuse(name: str, constraint: str, value: Any) -> CertificateError:
    shown = repr(value) if isinstance(value, bool | int | float | str) else type(value).__name__
    return CertificateError(
        f"certificate field {name} must be {constraint}; got {shown[:60]}. "
        "Use the file as it was written."
    )


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise _refuse(name, "text", value)


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _refuse(name, "true or false", value)


def _kind(name: str, value: Any) -> None:
    if not isinstance(value, str) or value not in KINDS:
        raise _refuse(name, f"one of {', '.join(KINDS)}", value)


def _count(low: int = 0) -> Check:
    def check(name: str, value: Any) -> None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not low <= value <= LARGEST_COUNT:
            raise _refuse(name, f"a whole number of at least {low}", value)

    return check


def _number(low: float = -math.inf, high: float = math.inf) -> Check:
    limits = f" between {low:g} and {high:g}" if math.isfinite(high) else ""
    limits = limits or (f" of at least {low:g}" if math.isfinite(low) else "")

    def check(name: str, value: Any) -> None:
        real = isinstance(value, int | float) and not isinstance(value, bool)
        too_long = isinstance(value, int) and abs(value) > LARGEST_COUNT  # for a float
        if not real or too_long or not (math.isfinite(value) and low <= value <= high):
            raise _refuse(name, f"a number{limits}", value)

    return check


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _list(check: Check) -> Check:
    def check_all(name: str, value: Any) -> None:
        if not isinstance(value, list | tuple):
            raise _refuse(name, "a list", value)
        for item in value:
            check(name, item)

    return check_all


def _record(
    fields: Mapping[str, Check], *, complete: bool = True, later: Sequence[str] = ()
) -> Check:
    """Take an object; the fields in ``later`` are missing, all of them, in files of version 0.1."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise _refuse(name, "an object", value)
        if complete and set(value) not in (set(fields), set(fields) - set(later)):
            raise _refuse(name, f"an object of {', '.join(fields)}", sorted(map(str, value)))
        for key, item in value.items():
            fields.get(key, _fact)(f"{name}.{str(key)[:40]}", item)

    return check


def _fact(name: str, value: Any) -> None:
    """Take what a session may say about itself: a text, a number, or nothing."""
    if value is not None and not isinstance(value, bool):
        (_text if isinstance(value, str) else _number())(name, value)


def _inferences(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise _refuse(name, "an object", value)
    for prior, success in value.items():
        try:
            read = float(prior)
        except (TypeError, ValueError):
            read = math.nan
        _number(0.0, 1.0)(f"{name}, prior", read)
        _number(0.0, 1.0)(name, success)


def _estimate(name: str, value: Any) -> None:
    _ESTIMATE(name, value)
    in_order = value["lower"] <= value["value"] <= value["upper"]
    if not in_order or value["confidence"] == 0:
        raise _refuse(name, "a value within its interval, at a confidence above 0", "another")


def _divergence_name(name: str, value: Any) -> None:
    if not isinstance(value, str) or value not in DIVERGENCES:
        raise _refuse(name, f"one of {', '.join(DIVERGENCES)}", value)


_SHARE: Final = _number(0.0, 1.0 + ROUNDING)
_AMOUNT: Final = _number(0.0)
_ESTIMATE: Final = _record(
    {
        "value": _number(),
        "lower": _number(),
        "upper": _number(),
        "confidence": _SHARE,
        "n_draws": _count(),
    }
)
_TOLD: Final = _record(
    {
        "n_told": _count(),
        "mean_success": _SHARE,
        "worst_success": _SHARE,
        "mean_without_release": _SHARE,
        "worst_without_release": _SHARE,
        "n_sets": _count(),
        "mean_increment": _SHARE,
        "largest_increment": _SHARE,
    },
    later=("mean_increment", "largest_increment"),
)
_DIVERGENCE: Final = _record(
    {"name": _divergence_name, "estimate": _estimate, "success": _inferences}
)
_NOISE: Final = _record(
    {
        "total_variance": _AMOUNT,
        "smallest_std": _AMOUNT,
        "largest_std": _AMOUNT,
        "n_directions": _count(),
        "smallest_grid_step": _AMOUNT,
        "smallest_units_per_std": _count(),
    }
)
_SESSION: Final = _record(
    {
        "release_number": _count(1),
        "secrets": _text,
        "spent_nats_so_far": _AMOUNT,
        "total_nats": _optional(_AMOUNT),
        "membership_increment": _SHARE,
        "spent_increments_so_far": _AMOUNT,
        "total_success": _SHARE,
        "session_success_bound": _SHARE,
        "prior_of_ever_used": _SHARE,
        "learned_nats": _AMOUNT,
        "best_guess_now": _SHARE,
    },
    complete=False,
)
FIELDS: Final[Mapping[str, Check]] = {
    "kind": _kind,
    **dict.fromkeys(("budget", "rule", "mechanism", "output", "scheme", "unit", "software"), _text),
    "n_subsets": _count(1),
    "n_units": _count(1),
    "prior": _SHARE,
    "dimension": _count(),
    "log_det_nats": _AMOUNT,
    "information": _optional(_estimate),
    "mi_upper_nats": _AMOUNT,
    "any_inference": _inferences,
    "membership": _optional(_estimate),
    "membership_mean": _optional(_estimate),
    "membership_bound": _SHARE,
    "epsilon_equivalent": _optional(_AMOUNT),
    "side_knowledge": _list(_TOLD),
    "divergences": _list(_DIVERGENCE),
    "noise": _NOISE,
    "confidence": _SHARE,
    **dict.fromkeys(("public", "not_promised", "notes"), _list(_text)),
    "simulation": _flag,
    "composition": _optional(_SESSION),
}

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSummary:
    """The noise in a few public numbers."""

    total_variance: float
    smallest_std: float
    largest_std: float
    n_directions: int
    smallest_grid_step: float
    smallest_units_per_std: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What every attacker is held to; every field is public.

    ``mi_upper_nats`` is the best proved bound on the mutual information between the secret
    index and everything released; ``any_inference`` turns it into the success of *any* guess
    with a given prior; ``membership`` is the exact success on the worst-placed unit;
    ``divergences`` are other distances of (secret, release) from independence.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> certificate = pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16).certificate
    >>> certificate.kind, certificate.mi_upper_nats <= 0.1
    ('exact', True)
    >>> pac.Certificate.from_dict(certificate.to_public_dict()) == certificate
    True
    """

    kind: str
    budget: str
    rule: str
    mechanism: str
    output: str
    scheme: str
    unit: str
    n_subsets: int
    n_units: int
    prior: float
    dimension: int
    log_det_nats: float
    information: Estimate | None
    mi_upper_nats: float
    any_inference: dict[str, float]
    membership: Estimate | None
    membership_mean: Estimate | None
    membership_bound: float
    epsilon_equivalent: float | None
    side_knowledge: tuple[SideKnowledge, ...]
    noise: NoiseSummary
    confidence: float
    public: tuple[str, ...]
    not_promised: tuple[str, ...]
    notes: tuple[str, ...]
    simulation: bool
    composition: dict[str, Any] | None
    software: str
    schema_version: int = SCHEMA_VERSION
    divergences: tuple[Divergence, ...] = ()

    def __str__(self) -> str:
        return certificate_text(self.to_public_dict())

    def _repr_html_(self) -> str:
        return certificate_html(self.promise, self.to_public_dict())

    @property
    def promise(self) -> str:
        """What is promised about one unit, as one sentence."""
        return promise_text(self.to_public_dict())

    @property
    def digest(self) -> str:
        """SHA-256 of the certificate: what the ledger records and the report page shows."""
        return digest_of(self.to_public_dict())

    @property
    def dp_readings(self) -> Readings:
        """What differential privacy would have to be to allow ``membership_bound``; no DP claim."""
        return read_as_dp(min(1.0, self.membership_bound))

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""
        plain = asdict(self)
        for name in ("side_knowledge", "divergences", "public", "not_promised", "notes"):
            plain[name] = list(plain[name])
        plain["side_knowledge"] = [item.to_public_dict() for item in self.side_knowledge]
        if not self.divergences:  # as in files of version 0.1, whose digests are in ledgers
            del plain["divergences"]
        return plain

    def to_json(self) -> str:
        """Return the certificate as JSON text."""
        return json.dumps(self.to_public_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_dict(cls, plain: Any) -> Self:
        """Rebuild a certificate; refuse other schema versions and fields that make no sense."""
        version = plain.get("schema_version") if isinstance(plain, dict) else None
        if type(version) is not int or version != SCHEMA_VERSION:
            found = version if isinstance(version, int | str) else type(plain).__name__
            raise CertificateError(
                f"certificate must have schema version {SCHEMA_VERSION}; got {found!r}. "
                f"Use the version of pacprivacy that wrote it."
            )
        check_fields(plain)
        fields = dict(plain)
        try:
            for name in ("information", "membership", "membership_mean"):
                fields[name] = None if fields[name] is None else Estimate(**fields[name])
            fields["side_knowledge"] = tuple(SideKnowledge(**i) for i in fields["side_knowledge"])
            fields["divergences"] = tuple(
                Divergence(**{**item, "estimate": Estimate(**item["estimate"])})
                for item in fields.get("divergences", ())
            )
            fields["noise"] = NoiseSummary(**fields["noise"])
            for name in ("public", "not_promised", "notes"):
                fields[name] = tuple(fields[name])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise CertificateError(
                f"certificate must have all its fields; {error}. Use the file as it was written."
            ) from None

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a certificate from a release file or a file of its own."""
        return cls.from_dict(read_certificate(path))
