"""The certificate: what is promised, to whom, and how it was proved."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from pacprivacy.adversary.divergence import Divergence
from pacprivacy.adversary.side_knowledge import SideKnowledge
from pacprivacy.errors import CertificateError
from pacprivacy.release.digest import digest_of
from pacprivacy.release.html import certificate_html
from pacprivacy.release.schema import check_fields
from pacprivacy.release.text import certificate_text, promise_text
from pacprivacy.theory.concentration import Estimate
from pacprivacy.theory.posterior import Readings, read_as_dp

__all__ = ["SCHEMA_VERSION", "Certificate", "NoiseSummary"]

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
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not valid JSON"
            raise CertificateError(
                f"{path} must be a readable JSON file; {reason}. Pass a release.json."
            ) from None
        if isinstance(content, dict) and "certificate" in content:
            content = content["certificate"]
        return cls.from_dict(content)
