"""The certificate: what a release promises, to whom, and how it was proved."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeAlias, TypedDict

import msgspec

from pacprivacy._certificates import digest_of, read_certificate
from pacprivacy._checks import LARGEST_COUNT, Amount, Count, Finite, Share
from pacprivacy._rounding import two_digits
from pacprivacy.adversary import Divergence, SideKnowledge, TradeOff
from pacprivacy.errors import CertificateError
from pacprivacy.noise import Kind
from pacprivacy.pool import Pool
from pacprivacy.release.text import (
    advantage_of,
    certificate_html,
    certificate_text,
    not_hidden_text,
    not_promised,
    plural,
    promise_text,
)
from pacprivacy.theory import (
    Estimate,
    Readings,
    epsilon_equivalent,
    posterior_success,
    read_as_dp,
    success_at,
)

Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=100_000)]
Prior: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^([01]|1\.0+|0\.\d+|\d(\.\d+)?e-\d+)$")]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_COUNT)]
Fact: TypeAlias = str | bool | int | Finite | None


class SessionFacts(TypedDict, total=False):
    """What the certificate of a release says about its session, where it says anything."""

    release_number: Positive
    secrets: Text
    spent_nats_so_far: Amount
    total_nats: Amount | None
    membership_increment: Share
    spent_increments_so_far: Amount
    total_success: Share
    session_success_bound: Share
    prior_of_ever_used: Share
    learned_nats: Amount
    best_guess_now: Share


class _KnownFacts(msgspec.Struct):
    composition: SessionFacts | None


class _AnyFacts(msgspec.Struct):
    composition: dict[str, Fact] | None


SCHEMA_VERSION: Final = 1
TUPLES: Final = (
    *("side_knowledge", "divergences", "trade_off"),
    *("public", "published", "not_promised", "notes"),
)


def finite_epsilon(success: float) -> float | None:
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


def _refuse(field: str, reason: str) -> CertificateError:
    return CertificateError(
        f"certificate field {field[:60]} must be of its kind and range; {reason[:80]}. "
        "Use the file as it was written."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSummary:
    """The noise in a few public numbers."""

    total_variance: Amount
    smallest_std: Amount
    largest_std: Amount
    n_directions: Count
    smallest_grid_step: Amount
    smallest_units_per_std: Count

    def rounded(self) -> Self:
        """Return the figures as they leave: rounded up to two digits, units down to a power of two.

        Noise is found from the spread over the candidates, which for a mean is the standard
        deviation of all records.
        """
        return replace(
            self,
            total_variance=two_digits(self.total_variance),
            smallest_std=two_digits(self.smallest_std),
            largest_std=two_digits(self.largest_std),
            smallest_units_per_std=(1 << self.smallest_units_per_std.bit_length()) >> 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What every attacker is held to; every field is public.

    ``mi_upper_nats`` is the best proved bound on the mutual information between the secret
    index and everything released; ``any_inference`` turns it into the success of *any* guess
    with a given prior. ``membership_bound`` is *balanced* success: of an attacker who is shown the
    release and a unit that was used or not with equal odds; ``prior`` is how sure the pool alone
    makes a guess of the worst-placed unit. ``trade_off`` bounds true positives by false ones;
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

    kind: Kind
    budget: Text
    rule: Text
    mechanism: Text
    output: Text
    scheme: Text
    unit: Text
    n_subsets: Positive
    n_units: Positive
    prior: Share
    dimension: Count
    log_det_nats: Amount
    information: Estimate | None = None
    mi_upper_nats: Amount
    any_inference: dict[Prior, Share]
    membership: Estimate | None = None
    membership_mean: Estimate | None = None
    membership_bound: Share
    epsilon_equivalent: Amount | None
    side_knowledge: tuple[SideKnowledge, ...] = ()
    noise: NoiseSummary
    confidence: Share
    public: tuple[Text, ...]
    not_promised: tuple[Text, ...]
    notes: tuple[Text, ...]
    simulation: bool
    composition: dict[str, Any] | None = None
    software: Text
    schema_version: int = SCHEMA_VERSION
    divergences: tuple[Divergence, ...] = ()
    trade_off: tuple[TradeOff, ...] = ()
    published: tuple[Text, ...] = ()

    @classmethod
    def about(
        cls,
        pool: Pool,
        *,
        mi_upper: float,
        bound: float,
        noise: NoiseSummary,
        exact_facts: Sequence[str],
        public: Sequence[str] = (),
        published: Sequence[str] = (),
        **said: Any,
    ) -> Self:
        """Write a certificate: what follows from the pool and two proved bounds, and what is said.

        ``exact_facts`` are what leaves without noise, ``published`` what the mechanism adds to
        them; ``public`` is what it treats as known.
        """
        exact = said["kind"] == "exact"
        return cls(
            scheme=pool.scheme,
            unit=pool.unit,
            n_subsets=pool.n_subsets,
            n_units=pool.n_units,
            prior=pool.worst_prior if exact else pool.prior,
            mi_upper_nats=mi_upper,
            any_inference={p: posterior_success(mi_upper, float(p)) for p in ("0.5", "0.01")},
            membership_bound=bound,
            epsilon_equivalent=finite_epsilon(bound),
            noise=noise.rounded(),
            published=(
                *exact_facts,
                f"number of candidates ({pool.n_subsets}, {pool.scheme}) and of units "
                f"({pool.n_units})",
                *published,
            ),
            public=(
                "the universe of records, the mechanism and the noise law",
                f"number of subsets ({pool.n_subsets}) and how they are drawn ({pool.scheme})",
                *public,
            ),
            not_promised=not_promised(
                pool, mi_upper=mi_upper, exact_facts=exact_facts, knows_pool=exact
            ),
            **said,
        )

    def __str__(self) -> str:
        return certificate_text(self.to_public_dict())

    def _repr_html_(self) -> str:
        return certificate_html(self.promise, self.to_public_dict())

    @property
    def promise(self) -> str:
        """What is promised about one unit, as one sentence."""
        return promise_text(self.to_public_dict())

    @property
    def not_hidden(self) -> str:
        """What is not hidden, as short as the promise; ``not_promised`` has the whole of it."""
        return not_hidden_text(self.to_public_dict())

    @property
    def units(self) -> str:
        """What several units are called: ``records``, ``people``."""
        return plural(self.unit)

    @property
    def advantage(self) -> float:
        """How much better than even odds every attacker does at most: ``2 x success - 1``."""
        return advantage_of(self.to_public_dict())

    def success_at(self, prior: float) -> float:
        """Return the most success of a guess of one unit's membership at another prior."""
        return success_at(self.advantage, prior)

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
        for name in TUPLES:
            plain[name] = list(plain[name])
        plain["side_knowledge"] = [item.to_public_dict() for item in self.side_knowledge]
        for name in ("divergences", "trade_off", "published"):
            if not plain[name]:  # as in files of version 0.1, whose digests are in ledgers
                del plain[name]
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
                "Use the version of pacprivacy that wrote it; 'dp-1' is differential privacy, for "
                "'pac verify' and dp.DPCertificate."
            )
        try:
            certificate = msgspec.convert(plain, cls)
            for facts in (_AnyFacts, _KnownFacts):
                msgspec.convert(plain, facts)
        except msgspec.ValidationError as error:
            raise _refuse(*_place_and_reason(error)) from None
        again = certificate.to_public_dict()
        for name in {**plain, **again}:  # whatever else a file says would be lost
            if name not in plain or name not in again or plain[name] != again[name]:
                raise _refuse(name, "it says what no certificate says")
        return certificate

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a certificate from a release file or a file of its own."""
        return cls.from_dict(read_certificate(path))
