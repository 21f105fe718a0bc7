"""Coins: the curator's bundle of a release of sums, its certificate, and how to check it.

The certificate is a function of the budget, the probability of being used and the noise. That the
noise hides every unit is shown by the bundle, which holds what every unit adds in whole numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import msgspec
import numpy as np

from pacprivacy._certificates import Verified, readings_text, verify
from pacprivacy._checks import Amount, Integers, Matrix, Share, Vector, freeze
from pacprivacy._rounding import at_least, at_most, percent_at_most
from pacprivacy._values import times_in_100
from pacprivacy.adversary import cap_success, influence_parameter, influence_risk
from pacprivacy.budget import Membership, Spent
from pacprivacy.errors import CertificateError
from pacprivacy.noise import charge_integers
from pacprivacy.release.bundle import (
    Arrays,
    CuratorBundle,
    CuratorStatements,
    Record,
    read_bundle_archive,
    write_bundle_archive,
)
from pacprivacy.release.certificate import Certificate, CertificateNoise, certificate_epsilon
from pacprivacy.release.certificate_text import (
    Rows,
    budget_text,
    plural_text,
    studied_text,
    who_text,
)
from pacprivacy.release.verification import NOT_CHECKABLE, READERS, compare_verified
from pacprivacy.theory import lattice_total_variation_bound

KIND: Final = "coins"
MAX_STORED_NUMBERS: Final = 10**6  # above it, the units that cost most and a digest of all
STORED_UNITS: Final = 1000
LARGEST_GROUP: Final = 5
_ARRAYS: Final = ("integers", "units", "starts", "grid", "units_per_std")


# --- the bundle ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinSession:
    """Where a release stands in its session; public but for the allowances.

    ``charge`` is what the release adds to the busiest clock. ``allowed`` is the influence that each
    unit may have in this release, in the order of units.
    """

    total: Spent
    before: Spent
    charge: Spent
    allowed: Vector | None = field(default=None, repr=False)


class _Record(msgspec.Struct, kw_only=True):
    """What a file says besides its arrays."""

    n_units: Annotated[int, msgspec.Meta(ge=1)]
    n_stored: Annotated[int, msgspec.Meta(ge=0)]
    keep: Annotated[float, msgspec.Meta(gt=0, le=1)]
    parameter: Annotated[float, msgspec.Meta(gt=0)]
    dimension: Annotated[int, msgspec.Meta(ge=0)]
    unit: str
    contributions_digest: str
    simulation: bool
    stated: CuratorStatements
    success: Annotated[float, msgspec.Meta(gt=0.5, lt=1)]
    total: Spent | None
    before: Spent | None
    charge: Spent | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinBundle(CuratorBundle):
    """What every unit adds, in whole numbers, and the noise; curator-only.

    ``integers`` has a line for every entry of a unit in a cell, ordered by cell (``starts``);
    ``units`` says whose it is. Of more than a million numbers only the entries of the thousand
    units that cost most are there; ``contributions_digest`` is of all. ``parameter`` is the
    influence that a unit may have, in deviations of the noise.
    """

    integers: Integers
    units: Integers
    starts: Integers
    grid: Matrix
    units_per_std: Integers
    n_units: int
    n_stored: int
    keep: float
    parameter: float
    dimension: int
    unit: str
    contributions_digest: str
    simulation: bool
    budget: Membership
    stated: CuratorStatements
    session: CoinSession | None = None

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            freeze(getattr(self, name))

    def __repr__(self) -> str:
        return f"CoinBundle(curator-only, {len(self.integers)} entries of {self.n_units} units)"

    @property
    def is_whole(self) -> bool:
        """Whether all units are stored."""
        return self.n_stored == self.n_units

    @property
    def total_variation(self) -> float:
        """Distance of the sampled noise from a function of a continuous one (claim L-2)."""
        flat = self.units_per_std.astype(np.float64).ravel()
        return lattice_total_variation_bound(flat.size, flat)

    @property
    def charges(self) -> Vector:
        """What every stored unit costs, 0 for the others."""
        return charge_integers(
            self.integers, self.units, self.starts, self.units_per_std, self.n_units
        )

    def save(self, path: str | Path) -> None:
        """Write the bundle to a file that only its owner can read."""
        arrays: Arrays = {name: getattr(self, name) for name in _ARRAYS}
        part = self.session
        if part is not None and part.allowed is not None:
            arrays["allowed"] = part.allowed
        record: Record = {
            name: getattr(self, name)
            for name in (
                *("n_units", "n_stored", "keep", "parameter", "dimension", "unit"),
                *("contributions_digest", "simulation"),
            )
        }
        record |= {
            "stated": asdict(self.stated),
            "success": self.budget.success,
            "total": None if part is None else asdict(part.total),
            "before": None if part is None else asdict(part.before),
            "charge": None if part is None else asdict(part.charge),
        }
        write_bundle_archive(path, KIND, arrays, record)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a bundle; refuse damaged files."""
        return read_bundle_archive(path, {KIND: cls.from_archive})

    @classmethod
    def from_archive(cls, arrays: Arrays, record: Record) -> Self:
        """Rebuild a bundle; whatever does not fit together raises."""
        read = msgspec.convert(record, _Record)
        session = None
        if read.total is not None and read.before is not None and read.charge is not None:
            session = CoinSession(
                total=read.total,
                before=read.before,
                charge=read.charge,
                allowed=arrays.get("allowed"),
            )
        bundle = cls(
            **{name: arrays[name] for name in _ARRAYS},
            n_units=read.n_units,
            n_stored=read.n_stored,
            keep=read.keep,
            parameter=read.parameter,
            dimension=read.dimension,
            unit=read.unit,
            contributions_digest=read.contributions_digest,
            simulation=read.simulation,
            budget=Membership(read.success),
            stated=read.stated,
            session=session,
        )
        _check_shapes(bundle)
        return bundle


def _check_shapes(bundle: CoinBundle) -> None:
    """Refuse arrays that do not fit together; what they say is for ``verify`` to judge."""
    n_cells, rank = bundle.grid.shape
    n_entries = len(bundle.integers)
    wanted = {
        "integers": (np.int64, (n_entries, rank)),
        "units": (np.int64, (n_entries,)),
        "starts": (np.int64, (n_cells + 1,)),
        "grid": (np.float64, (n_cells, rank)),
        "units_per_std": (np.int64, (n_cells, rank)),
    }
    for name, (kind, shape) in wanted.items():
        array = getattr(bundle, name)
        if array.dtype != kind or array.shape != shape:
            raise ValueError(name)
    steps, starts = bundle.units_per_std, bundle.starts
    if not ((steps > 0).all() and np.isfinite(bundle.grid).all() and (bundle.grid > 0).all()):
        raise ValueError("units_per_std")
    if starts[0] != 0 or starts[-1] != n_entries or (np.diff(starts) < 0).any():
        raise ValueError("starts")
    if n_entries and not 0 <= bundle.units.min() <= bundle.units.max() < bundle.n_units:
        raise ValueError("units")
    allowed = None if bundle.session is None else bundle.session.allowed
    if allowed is not None and not (
        allowed.shape == (bundle.n_units,) and np.isfinite(allowed).all() and (allowed >= 0).all()
    ):
        raise ValueError("allowed")


READERS[KIND] = CoinBundle.from_archive


def contributions_digest(integers: Integers, units: Integers, starts: Integers) -> str:
    """Return the SHA-256 of what all units add."""
    digest = hashlib.sha256()
    for array in (starts, units, integers):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()


# --- the certificate -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinCertificate(Certificate):
    """What every attacker is held to where each unit has a coin; every field is public.

    Parameters
    ----------
    sampling : {"coins", "everybody"}
        Whether units were left out by coins, or everybody was used (``keep=1``).
    keep : float
        Probability with which a unit is used.
    influence : float
        The most that one unit may change the release, in deviations of the noise.
    success_at_keep : float
        How often the best guess is right where a unit is used with its own probability.
    hits : mapping
        For each rate of false alarms, the largest share of used units that an attacker finds.
    groups : mapping
        For each size of a group whose coins agree, the success of guessing which way.
    """

    sampling: Literal["coins", "everybody"]
    keep: Share
    influence: Amount
    success_at_keep: Share
    hits: dict[str, Share]
    groups: dict[str, Share]

    @property
    def used_prior(self) -> float:
        """How often a guess "used" is right without the release."""
        return self.keep

    @property
    def promise(self) -> str:
        """What is promised about one unit, and whom it holds against."""
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
            f"studies {studied_text(self)}, by any method, guesses which at most {success}; 50 "
            f"without the release. This holds against everybody, also those who know all other "
            f"{units} and which of them were used."
        )

    @property
    def not_hidden(self) -> str:
        """What is not hidden, as short as the promise."""
        return (
            f"Not hidden: that a {self.unit} is in the table, and general facts that apply to all "
            f"{self.units} in it."
        )

    def rows(self) -> Rows:
        """Return names and texts of what was proved."""
        advantage = at_most(self.advantage, decimals=4)
        groups = "; ".join(
            f"{size} together: at most {times_in_100(self.groups[size])}" for size in self.groups
        )
        return [
            ("Asked", budget_text(self)),
            ("Holds against", f"everybody, whatever they know of the other {self.units}"),
            *self._odds_rows(),
            ("Advantage", f"at most {advantage}, twice what success is above 50 %"),
            ("False alarms", coin_hits_text(self.hits)),
            ("Groups", f"{self.units} whose coins agree, known to the attacker. {groups}"),
            ("In terms of DP", f"{readings_text(min(1.0, self.promised_success))}; not a DP claim"),
            ("Statistic", f"{self.mechanism} -> {self.output}"),
            ("Noise", self._noise_text()),
            ("Proof", "closed form, no failure probability"),
        ]

    def _odds_rows(self) -> Rows:
        if self.sampling == "everybody":
            return [("Sample", f"everybody: all {self.n_units:,} {self.units} were used")]
        return coin_odds_rows(self, self.keep, self.success_at_keep)

    def _noise_text(self) -> str:
        if self.noise.n_directions == 0:
            return f"none: no {self.unit} adds anything"
        return (
            f"normal, in whole numbers, in {self.noise.n_directions} directions, shaped to what "
            f"one {self.unit} can change; its size is part of every standard error"
        )

    def short_rows(self) -> Rows:
        """Return names and texts of a few figures."""
        return [
            ("Asked", budget_text(self)),
            ("Holds against", f"everybody, whatever they know of the other {self.units}"),
            *self._odds_rows(),
            ("Statistic", f"{self.mechanism} -> {self.output}"),
        ]


Certificate.KINDS["coins"] = Certificate.KINDS["everybody"] = CoinCertificate


def coin_odds_rows(certificate: Certificate, keep: float, success_at_keep: float) -> Rows:
    """Return what coins are, and how often a guess is right at their own odds."""
    before, units = at_least(keep, significant=6, percent=True), certificate.units
    return [
        (
            "Sample",
            f"each of {certificate.n_units:,} {units} was used by a coin of its own, with "
            f"probability {keep:g}",
        ),
        (
            "At these odds",
            f'"used" is right {before} times in 100 without the release; with it the best '
            f"guess is right at most {percent_at_most(success_at_keep)} times in 100",
        ),
    ]


def coin_hits_text(hits: Mapping[str, float]) -> str:
    """Return how many used units are found, for each rate of false alarms."""
    return "; ".join(
        f"1 in {round(1 / float(rate)):,} of those left out flagged: at most "
        f"{percent_at_most(hits[rate])} % of those used"
        for rate in sorted(hits, key=float, reverse=True)
    )


def write_coin_certificate(bundle: CoinBundle) -> CoinCertificate:
    """Write down what was proved: a function of the bundle, for ``verify`` too.

    Guarantee
    ---------
    Claims C-2 and C-8. Every figure follows from the influence that the budget allows, not from
    that of the largest unit, which would tell more of it than the noise does.
    """
    alike = np.full(LARGEST_GROUP, bundle.parameter)
    risk = influence_risk(alike, keep=bundle.keep, total_variation=bundle.total_variation)
    stated, units = bundle.stated, plural_text(bundle.unit)
    everybody = bundle.keep == 1.0
    used = "all were used" if everybody else f"each was used with probability {bundle.keep:g}"
    return CoinCertificate(
        sampling="everybody" if everybody else "coins",
        kind="exact",
        budget=str(bundle.budget),
        mechanism=stated.mechanism,
        output=stated.output,
        unit=bundle.unit,
        n_units=bundle.n_units,
        dimension=bundle.dimension,
        keep=bundle.keep,
        influence=bundle.parameter,
        membership_bound=risk.success,
        epsilon_equivalent=certificate_epsilon(risk.success),
        success_at_keep=risk.success_at_keep,
        hits={f"{rate:g}": share for rate, share in risk.hits},
        groups={str(size): success for size, success in risk.groups},
        noise=CertificateNoise.of(bundle.grid.ravel(), bundle.units_per_std.ravel()).rounded(),
        confidence=1.0,
        public=("all records, the statistic and the noise law", *stated.public),
        published=(
            f"number of {units} ({bundle.n_units}); {used}",
            *stated.published,
        ),
        not_promised=_not_promised(bundle, units),
        notes=stated.notes,
        simulation=bundle.simulation,
        composition=_composition(bundle),
        software=stated.software,
    )


def _not_promised(bundle: CoinBundle, units: str) -> tuple[str, ...]:
    unit = bundle.unit
    items = [
        f"That a {unit} is in the table is not hidden, nor are general facts that apply to all "
        f"{units} in it. Where it must be, use differential privacy.",
        f"What is published without noise was computed from all records: it tells nothing about "
        f"who was used, and may tell how far the most extreme {units} are from the others.",
        f"{units.capitalize()} whose coins are known to agree are protected as a group, with the "
        f"larger success above.",
    ]
    if bundle.session is None:
        items.append("Other releases from the same records and coins are not counted here.")
    else:
        items.append("Releases from the same coins outside this session are not counted here.")
    return tuple(items)


def _composition(bundle: CoinBundle) -> Record | None:
    """Return what the certificate says about its session."""
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


# --- verification ----------------------------------------------------------------------------

NOT_CHECKABLE_COINS: Final[Mapping[str, str]] = {
    **{
        name: NOT_CHECKABLE[name]
        for name in (
            "budget",
            "mechanism",
            "output",
            "public",
            "published",
            "simulation",
            "software",
        )
    },
    "unit": "what a unit is called",
    "dimension": "how many numbers the statistic makes of the sums",
    "keep": "that coins have this probability",
    "notes": "the notes of the statistic",
    "composition": (
        "the session's total and what its earlier releases spent; that no unit pays more than its "
        "allowance was checked"
    ),
}


def check_coin_bundle(bundle: CoinBundle) -> None:
    """Refuse a bundle whose noise does not hide every stored unit."""
    most = influence_parameter(bundle.budget.success, bundle.total_variation)
    if bundle.parameter > most * (1 + 1e-12):
        raise unproved("the influence that is allowed is more than the budget stands for")
    charges, limits = bundle.charges, np.full(bundle.n_units, bundle.parameter)
    part = bundle.session
    if part is not None and part.allowed is not None:
        limits = np.minimum(limits, part.allowed)
    if (charges > limits * (1 + 1e-12)).any():
        raise unproved("a unit changes the sums by more than is allowed")
    if bundle.is_whole:
        digest = contributions_digest(bundle.integers, bundle.units, bundle.starts)
        if digest != bundle.contributions_digest:
            raise unproved("the digest is of other contributions")
    if part is not None and part.total.mu_squared is not None:
        spent = (part.before + part.charge).mu_squared or 0.0
        if max(spent, bundle.parameter**2) > part.total.mu_squared * (1 + 1e-12):
            raise unproved("the session's total is passed")


def unproved(reason: str) -> CertificateError:
    """Return the error of a bundle that does not show what a certificate says."""
    return CertificateError(
        f"bundle must prove the budget; {reason}. Do not rely on this certificate."
    )


@verify.register
def _verify_coins(
    certificate: CoinCertificate, bundle: CoinBundle | str | Path | None = None
) -> Verified:
    """Check that a certificate of coins follows from the curator's bundle; claim R-1."""
    if bundle is None:
        raise CertificateError(
            "bundle must be given with a PAC certificate; got None. Pass the curator's curator.npz."
        )
    held = CoinBundle.load(bundle) if isinstance(bundle, str | Path) else bundle
    if not isinstance(held, CoinBundle):
        raise CertificateError(
            "bundle must be that of a release with coins; got that of a pool. Pass the curator.npz "
            "that was written beside the release."
        )
    check_coin_bundle(held)
    compare_verified(certificate, write_coin_certificate(held))
    not_checkable = {
        name: why
        for name, why in NOT_CHECKABLE_COINS.items()
        if getattr(certificate, name) not in (None, ())
    }
    if not held.is_whole:
        not_checkable["influence"] = (
            f"that of {held.n_units - held.n_stored} of {held.n_units} units: the file has those "
            f"that cost most and a digest of all"
        )
    return Verified(
        digest=certificate.digest,
        recomputed=tuple(f.name for f in fields(CoinCertificate) if f.name not in not_checkable),
        not_checkable=not_checkable,
        figures=_figures(certificate, held),
    )


def _figures(certificate: CoinCertificate, bundle: CoinBundle) -> dict[str, str]:
    """Say what was recomputed, with the figures that agree."""
    whom = "every unit" if bundle.is_whole else f"the {bundle.n_stored} units that cost most"
    return {
        "promise": certificate.promise,
        "influence": f"of {whom} at most {at_most(certificate.influence, significant=4)} "
        f"deviations of the noise, in whole numbers",
        "advantage": f"at most {at_most(certificate.advantage, decimals=4)}",
        "noise": f"{certificate.noise.n_directions} directions",
        "sentences": f"{len(certificate.not_promised)} of what is not promised, and every other "
        f"field",
    }


def bundle_of_coins(bundle: CoinBundle) -> CoinBundle:
    """Return the bundle as it is stored: of many numbers, the units that cost most."""
    if bundle.integers.size <= MAX_STORED_NUMBERS:
        return bundle
    charges = bundle.charges
    largest = np.zeros(bundle.n_units, dtype=np.bool_)
    largest[np.argpartition(charges, -STORED_UNITS)[-STORED_UNITS:]] = True
    chosen = largest[bundle.units]
    starts = np.concatenate([[0], np.cumsum(chosen)])[bundle.starts].astype(np.int64)
    return replace(
        bundle,
        integers=bundle.integers[chosen],
        units=bundle.units[chosen],
        starts=starts,
        n_stored=STORED_UNITS,
    )
