"""A differentially private release and its certificate: another promise, kept apart from PAC's."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec

from pacprivacy import _version
from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy._values import (
    DP_SCHEMA,
    SHOWN_CHARACTERS,
    SHOWN_ROWS,
    Row,
    certificate_page,
    digest_of,
    read_certificate,
    readings_text,
    release_html,
    release_text,
    rows_html,
    rows_table,
    times_in_100,
    values_frame,
    values_html,
    write_release,
    write_values,
)
from pacprivacy.errors import BudgetError, CertificateError
from pacprivacy.mechanism import plain_value
from pacprivacy.theory import success_for_epsilon

INFINITE: Final = "infinity"  # of an epsilon in JSON
Z_95: Final = 1.96  # standard deviations to either side of a 95 % interval
Neighbours = Literal["add_remove", "replace"]
NEIGHBOURS: Final[dict[str, str]] = {
    "add_remove": "two data sets are neighbours if one has one record more",
    "replace": "two data sets are neighbours if they differ in the content of one record",
}
REACH: Final[dict[str, int]] = {  # how many contributions of one record neighbours differ by
    "add_remove": 1,
    "replace": 2,
}
DP_KINDS: Final[dict[str, str]] = {
    "dp": "differential privacy: holds for all pairs of neighbouring data sets",
    "dp-ex-post": (
        "ex-post differential privacy: the loss was not fixed beforehand; it is bounded by what "
        "the output itself shows"
    ),
}
ONE_RELEASE: Final = (
    "Other releases about the same records, such as the other fits of a search: this certificate "
    "covers one release. What several cost together is for dp.account to say."
)
NOT_PROMISED: Final = (
    "Nothing is said about facts that hold whether or not the record is in: what is true of "
    "the population can be learned.",
    "A person with several records, or records that depend on each other, are protected less.",
    ONE_RELEASE,
)


def check_neighbours(neighbours: str) -> None:
    if neighbours not in NEIGHBOURS:
        raise BudgetError(
            f"neighbours must be 'add_remove' or 'replace'; got {neighbours!r}. "
            "Name the relation that the promise is about."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DPCertificate:
    """Promise of a differentially private release; every field is public.

    Parameters
    ----------
    kind : {"dp", "dp-ex-post"}
        Whether ``epsilon`` was fixed beforehand, or is the loss of what was released.
    advantage : float, optional
        ``δ`` at ``ε = 0`` of the mechanism's own privacy-loss distribution, at most: the best
        attacker's success at prior 1/2 is half of one plus this. None where it is not known.
    assumptions : tuple of str
        Clipping, bounds, declared sensitivities: what the promise rests on, in sentences.
    accounting, noise : dict
        How ``epsilon`` was found, with other figures beside it; scales of the noise by name.
    events : tuple of dict
        Events for :func:`account`, fixed before the mechanism ran. Empty where
        only the promise itself is known.
    simulation : bool
        Whether the randomness was seeded, so that nobody is protected.
    """

    epsilon: float
    delta: float
    neighbours: Neighbours
    mechanism: str
    advantage: float | None = None
    kind: Literal["dp", "dp-ex-post"] = "dp"
    assumptions: tuple[str, ...] = ()
    accounting: dict[str, Any] | None = None
    noise: dict[str, float] | None = None
    events: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    not_promised: tuple[str, ...] = NOT_PROMISED
    simulation: bool = False
    software: str = _version.__version__
    schema_version: str = DP_SCHEMA

    def __post_init__(self) -> None:
        if self.kind not in DP_KINDS:
            raise CertificateError(f"kind must be one of {', '.join(DP_KINDS)}; got {self.kind!r}.")
        check_neighbours(self.neighbours)
        if not self.epsilon > 0 or not 0 <= self.delta < 1:
            raise BudgetError(
                f"epsilon must be above 0 and delta in [0, 1); got {self.epsilon!r} and "
                f"{self.delta!r}. Use for example epsilon=1, delta=1e-6."
            )
        if self.advantage is not None and not 0 <= self.advantage <= 1:
            raise BudgetError(
                f"advantage must be between 0 and 1; got {self.advantage!r}. "
                "Leave it out where it is not known."
            )

    @property
    def membership_bound(self) -> float:
        """Success of any attacker at prior one half who knows all other records."""
        known = 1.0 if self.advantage is None else (1.0 + self.advantage) / 2.0
        return min(known, self._point_bound)

    @property
    def _point_bound(self) -> float:
        if math.isinf(self.epsilon):
            return 1.0
        return float(success_for_epsilon(self.epsilon, delta=self.delta))

    @property
    def promise(self) -> str:
        """The promise, in one sentence."""
        added = self.neighbours == "add_remove"
        what = "is in the data at all" if added else "has one of two given contents"
        amount = f"({at_most(self.epsilon, significant=6)}, {at_most(self.delta, significant=3)})"
        lead = "Ex post, d" if self.kind == "dp-ex-post" else "D"
        return (
            f"{lead}ifferential privacy {amount}: no attacker, even one who knows all other "
            f"records, guesses whether a given record {what} more than "
            f"{times_in_100(self.membership_bound)}; 50 without the release."
        )

    def __str__(self) -> str:
        lists = {
            "Assumptions": self.assumptions,
            "Not promised": self.not_promised,
            "Notes": self.notes,
        }
        return certificate_page(self, self._rows(), lists)

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("Kind", DP_KINDS[self.kind]),
            ("Neighbours", NEIGHBOURS[self.neighbours]),
            ("Mechanism", self.mechanism),
            ("Success", self._success_text()),
        ]
        for name, figures in (("Accounting", self.accounting), ("Noise", self.noise)):
            if figures:
                shown = ", ".join(f"{key} {_short(value)}" for key, value in figures.items())
                rows.append((name, shown))
        return rows

    def _success_text(self) -> str:
        bound, alone = (
            percent_at_most(rate) for rate in (self.membership_bound, self._point_bound)
        )
        how = "by epsilon and delta alone"
        if self.advantage is not None:
            how = (
                "by the mechanism's own loss distribution (epsilon and delta alone would allow "
                f"{alone} %)"
            )
        return f"at most {bound} %, {how}; {readings_text(self.membership_bound)}"

    def _repr_html_(self) -> str:
        return rows_html(self.promise, self._rows(), simulation=self.simulation)

    @property
    def digest(self) -> str:
        """SHA-256 of the certificate's JSON, as of a PAC certificate."""
        return digest_of(self.to_public_dict())

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types; an infinite epsilon as text."""
        plain = {
            name: list(item) if isinstance(item, tuple) else item
            for name, item in asdict(self).items()
        }
        return plain | ({"epsilon": INFINITE} if math.isinf(self.epsilon) else {})

    def to_json(self) -> str:
        return json.dumps(self.to_public_dict(), indent=2, sort_keys=True, allow_nan=False)

    @classmethod
    def from_dict(cls, plain: Any) -> Self:
        """Rebuild a certificate; refuse PAC certificates and other versions."""
        if not isinstance(plain, dict) or plain.get("schema_version") != DP_SCHEMA:
            version = (
                plain.get("schema_version") if isinstance(plain, dict) else type(plain).__name__
            )
            raise CertificateError(
                f"certificate must have schema version {DP_SCHEMA!r}; got {version!r}. "
                "A PAC certificate is read by Certificate."
            )
        fields = {"advantage": None} | plain  # files from before there was one lack it
        infinite = {"epsilon": math.inf} if fields.get("epsilon") == INFINITE else {}
        try:
            certificate = msgspec.convert(fields | infinite, cls)
        except msgspec.ValidationError:
            certificate = None
        if certificate is None or certificate.to_public_dict() != fields:
            raise CertificateError(
                "certificate must have all its fields, of the right types. "
                "Use the file as it was written."
            )
        return certificate

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a certificate from a release file or a separate file."""
        return cls.from_dict(read_certificate(path))


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DPRelease:
    """A value that may be published, and its certificate; never mixed with a PAC ``Release``."""

    value: Any
    certificate: DPCertificate

    def rows(self, most: int | None = None) -> list[Row]:
        """Return the first numbers of a statistic by name, with 95 % interval; default all."""
        tables = list(self.value.values()) if isinstance(self.value, dict) else []
        if not tables or not all(isinstance(t, dict) and _is_table(t) for t in tables):
            return []
        values, noise = tables[0], self.value.get("noise_std")
        rows = []
        for column, value in values.items():
            cells = value if isinstance(value, dict) else {"": value}
            for cell, number in cells.items():
                error: Any = math.nan if noise is None else noise[column]
                error = error[cell] if isinstance(error, dict) else error
                half = Z_95 * error
                label = f"{column}, {cell}" if cell else str(column)
                rows.append(Row(label, number, error, number - half, number + half))
        return rows[:most]

    def to_frame(self) -> Any:
        """Return all numbers of a statistic by name, with 95 % interval, as a frame."""
        return values_frame(self.rows())

    def text(self, rest: str = "") -> str:
        """Return the release on one screen: numbers, promise, and ``rest``, where the rest is."""
        rows = self.rows()
        table = repr(self.value)[:SHOWN_CHARACTERS].splitlines()[:SHOWN_ROWS]
        table = rows_table(rows[:SHOWN_ROWS], len(rows)) if rows else table
        cert = self.certificate
        return release_text(table, (cert.promise,), simulation=cert.simulation, rest=rest)

    def __str__(self) -> str:
        return self.text("What it rests on, and what is not promised: print(release.certificate)")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.certificate.mechanism}>"

    def _repr_html_(self) -> str:
        rows = self.rows()
        shown = values_html(rows[: 2 * SHOWN_ROWS], len(rows)) if rows else None
        return release_html(repr(self.value), self.certificate._repr_html_(), shown)

    def to_public_dict(self) -> dict[str, Any]:
        return {
            "schema_version": DP_SCHEMA,
            "value": plain_value(self.value),
            "certificate": self.certificate.to_public_dict(),
        }

    def save(self, folder: str | Path, *, sign: str | Path | None = None) -> Path:
        """Write ``release.json``, and ``values.csv`` of a statistic, into a folder."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        public = target / "release.json"
        write_release(public, self.to_public_dict(), sign=sign)
        write_values(target / "values.csv", self.rows())
        return public


def _is_table(values: Any) -> bool:
    if isinstance(values, dict):
        return bool(values) and all(map(_is_table, values.values()))
    return isinstance(values, int | float)
