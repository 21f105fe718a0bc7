"""Coins: the curator's bundle of a release of sums, its certificate, and how to check it.

The certificate is a function of the budget, the probability of being used and the noise. That the
noise hides every unit is shown by the bundle, which holds what every unit adds in whole numbers.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy._certificates import Verified, readings_text, verify
from pacprivacy._checks import Amount, Integers, Mask, Matrix, Share, Vector, freeze
from pacprivacy._rounding import at_least, at_most, percent_at_most
from pacprivacy._system import single_threaded
from pacprivacy._values import times_in_100
from pacprivacy.adversary import (
    GROUP_SIZES,
    SESSION_SLACK,
    cap_success,
    influence_parameter,
    influence_risk,
    session_risk,
)
from pacprivacy.budget import Membership, Spent
from pacprivacy.errors import CertificateError, PacPrivacyError
from pacprivacy.mechanism import Data, as_mechanism, coerce_data, split_data_units
from pacprivacy.noise import SumPlan, charge_integers, plan_declared, plan_sums
from pacprivacy.release.bundle import (
    Arrays,
    CuratorBundle,
    CuratorStatements,
    Record,
    read_bundle_archive,
    write_bundle_archive,
)
from pacprivacy.release.certificate import (
    Certificate,
    CertificateNoise,
    certificate_epsilon,
    refuse_field,
)
from pacprivacy.release.certificate_text import (
    Rows,
    budget_text,
    plural_text,
    studied_text,
    who_text,
)
from pacprivacy.release.verification import NOT_CHECKABLE, READERS, RELATIVE, compare_verified
from pacprivacy.sample import code_units
from pacprivacy.statistics import (
    Declaration,
    SumStatistic,
    UnitSums,
    declared_sums,
    statistic_with_coins,
)
from pacprivacy.theory import gaussian_epsilon, lattice_total_variation_bound

KIND: Final = "coins"
MAX_STORED_NUMBERS: Final = 10**6  # above it, the units that cost most and a digest of all
STORED_UNITS: Final = 1000
PRESENCE_DELTA: Final = 1e-5  # at which epsilon is read
LATTICE_SHARE: Final = 1e-3  # of delta, for noise in whole numbers
LEDGER_ROUNDING: Final = 1e-9  # of squared influence: more than a ledger rounds a charge up
_ROUNDING: Final = 1 + 1e-12
_ARRAYS: Final = ("integers", "units", "starts", "grid", "units_per_std")


# --- the bundle ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinSession:
    """Where a release stands in its session; public but for what is said of each unit.

    ``charge`` is what the release adds to the busiest clock. ``clocks`` are what every unit had
    paid before it, ``allowed`` is the influence that each may have in it. ``absent`` is the largest
    clock of a unit that is no longer in the table; ``data_digest`` is of all records, as they were.
    """

    total: Spent
    before: Spent
    charge: Spent
    clocks: Vector = field(repr=False)
    allowed: Vector = field(repr=False)
    absent: float = field(default=0.0, repr=False)
    data_digest: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        freeze(self.clocks)
        freeze(self.allowed)


class CoinProof(CuratorBundle):
    """A bundle of a release with coins that holds against whoever knows all other units."""

    __slots__ = ()
    n_units: int
    keep: float
    parameter: float
    dimension: int
    unit: str
    simulation: bool
    budget: Membership
    stated: CuratorStatements
    session: CoinSession | None
    declaration: Declaration | None

    @property
    @abstractmethod
    def total_variation(self) -> float:
        """Distance of the sampled noise from a function of a continuous one (claim L-2)."""

    @property
    @abstractmethod
    def noise(self) -> CertificateNoise:
        """The noise in a few numbers."""

    @property
    @abstractmethod
    def not_checkable(self) -> Mapping[str, str]:
        """Fields of the certificate that the bundle does not prove, besides the usual ones."""

    @abstractmethod
    def check(self) -> None:
        """Refuse a bundle whose noise does not hide every unit."""

    @abstractmethod
    def influence_text(self, largest: str) -> str:
        """Say whose influence was computed again; ``largest`` is the most that was allowed."""


class _Record(msgspec.Struct, kw_only=True):
    """What a file says besides its arrays."""

    n_units: Annotated[int, msgspec.Meta(ge=1)]
    n_entries: Annotated[int, msgspec.Meta(ge=0)]
    keep: Annotated[float, msgspec.Meta(gt=0, le=1)]
    parameter: Annotated[float, msgspec.Meta(gt=0)]
    dimension: Annotated[int, msgspec.Meta(ge=0)]
    unit: str
    clip: Annotated[float, msgspec.Meta(gt=0)] | Literal["auto"] | None
    contributions_digest: str
    simulation: bool
    stated: CuratorStatements
    success: Annotated[float, msgspec.Meta(gt=0.5, lt=1)]
    total: Spent | None
    before: Spent | None
    charge: Spent | None
    absent: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    data_digest: str = ""
    declaration: Declaration | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinBundle(CoinProof):
    """What every unit adds, in whole numbers, and the noise; curator-only.

    ``integers`` has a line for every entry of a unit in a cell, ordered by cell (``starts``);
    ``units`` says whose it is. Of more than a million numbers only the entries of the thousand
    units that cost most are there; ``contributions_digest`` is of all ``n_entries``. ``parameter``
    is the influence that a unit may have, in deviations of the noise; ``clip`` is what
    :class:`~pacprivacy.Coins` says. With a ``declaration`` the noise follows from it alone.
    """

    integers: Integers
    units: Integers
    starts: Integers
    grid: Matrix
    units_per_std: Integers
    n_units: int
    n_entries: int
    keep: float
    parameter: float
    dimension: int
    unit: str
    clip: float | Literal["auto"] | None
    contributions_digest: str
    simulation: bool
    budget: Membership
    stated: CuratorStatements
    session: CoinSession | None = None
    declaration: Declaration | None = None

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            freeze(getattr(self, name))

    def __repr__(self) -> str:
        return f"CoinBundle(curator-only, {len(self.integers)} entries of {self.n_units} units)"

    @property
    def is_whole(self) -> bool:
        """Whether all units are stored."""
        return self.n_entries == len(self.integers)

    @property
    def n_stored(self) -> int:
        """Number of units of which all entries are stored."""
        return self.n_units if self.is_whole else len(np.unique(self.units))

    @property
    def total_variation(self) -> float:
        """Distance of the sampled noise from a function of a continuous one (claim L-2)."""
        flat = self.units_per_std.astype(np.float64).ravel()
        return lattice_total_variation_bound(flat.size, flat)

    @property
    def charges(self) -> Vector:
        """Charge of every stored unit, 0 for the others."""
        return charge_integers(
            self.integers, self.units, self.starts, self.units_per_std, self.n_units
        )

    @property
    def noise(self) -> CertificateNoise:
        """The noise in a few numbers."""
        return CertificateNoise.of(self.grid.ravel(), self.units_per_std.ravel())

    @property
    def not_checkable(self) -> Mapping[str, str]:
        """The influence of units that are not stored."""
        if self.is_whole:
            return {}
        missing = self.n_units - self.n_stored
        return {
            "influence": f"that of {missing} of {self.n_units} units: the file has those that cost "
            f"most and a digest of all"
        }

    def influence_text(self, largest: str) -> str:
        """Say whose influence was computed again."""
        whom = "every unit" if self.is_whole else f"the {self.n_stored} units that cost most"
        return f"of {whom} at most {largest} deviations of the noise, in whole numbers"

    def check(self) -> None:
        """Refuse a bundle whose noise does not hide every stored unit."""
        check_coin_bundle(self)

    def save(self, path: str | Path) -> None:
        """Write the bundle to a file that only its owner can read."""
        arrays: Arrays = {name: _narrow(getattr(self, name)) for name in _ARRAYS}
        part = self.session
        if part is not None:
            arrays |= {"clocks": part.clocks, "allowed": part.allowed}
        record: Record = {
            name: getattr(self, name)
            for name in (
                *("n_units", "n_entries", "keep", "parameter", "dimension", "unit", "clip"),
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
        if part is not None:
            record |= {"absent": part.absent, "data_digest": part.data_digest}
        if self.declaration is not None:
            record["declaration"] = msgspec.to_builtins(self.declaration)
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
                clocks=arrays["clocks"],
                allowed=arrays["allowed"],
                absent=read.absent,
                data_digest=read.data_digest,
            )
        elif (read.total, read.before, read.charge) != (None, None, None) or "clocks" in arrays:
            raise ValueError("session")
        bundle = cls(
            **{name: _widen(arrays[name]) for name in _ARRAYS},
            n_units=read.n_units,
            n_entries=read.n_entries,
            keep=read.keep,
            parameter=read.parameter,
            dimension=read.dimension,
            unit=read.unit,
            clip=read.clip,
            contributions_digest=read.contributions_digest,
            simulation=read.simulation,
            budget=Membership(read.success),
            stated=read.stated,
            session=session,
            declaration=read.declaration,
        )
        _check_shapes(bundle)
        return bundle


def _narrow(array: np.ndarray) -> np.ndarray:
    """Return integers in half their size, where they fit."""
    if array.dtype != np.int64 or not array.size:
        return array
    limits = np.iinfo(np.int32)
    fits = limits.min <= array.min() and array.max() <= limits.max
    return array.astype(np.int32) if fits else array


def _widen(array: np.ndarray) -> np.ndarray:
    return array.astype(np.int64) if array.dtype == np.int32 else array


def _check_shapes(bundle: CoinBundle) -> None:
    """Refuse arrays that do not fit together; ``verify`` judges their contents."""
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
    if bundle.n_entries < n_entries:
        raise ValueError("n_entries")
    part = bundle.session
    for each in () if part is None else (part.clocks, part.allowed):
        if each.dtype != np.float64 or each.shape != (bundle.n_units,):
            raise ValueError("session")
        if not (np.isfinite(each).all() and (each >= 0).all()):
            raise ValueError("session")


READERS[KIND] = CoinBundle.from_archive
COIN_READERS: Final[dict[str, Callable[[Arrays, Record], CoinProof]]] = {
    KIND: CoinBundle.from_archive
}


def contributions_digest(units: Integers, starts: Integers, blocks: Iterable[Matrix]) -> str:
    """Return the SHA-256 of what all units add: whole numbers, given in blocks of entries."""
    digest = hashlib.sha256()
    for array in (starts, units):
        digest.update(np.ascontiguousarray(array, dtype="<i8").data)
    for block in blocks:
        digest.update(np.ascontiguousarray(block, dtype="<f8").data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredContributions:
    """What a bundle holds of what units add, and the digest of all; curator-only."""

    integers: Integers
    units: Integers
    starts: Integers
    digest: str

    @classmethod
    def of(cls, plan: SumPlan, sums: UnitSums) -> Self:
        """Collect all entries; of more than a million numbers, those of the largest units."""
        units = np.asarray(sums.entry_units, dtype=np.int64)
        starts = np.asarray(sums.starts, dtype=np.int64)
        chosen = _chosen_entries(plan, units)
        kept: list[Integers] = []

        def blocks() -> Iterator[Matrix]:
            for entries, block in plan.integer_blocks(sums):
                stored = block if chosen is None else block[chosen[entries]]
                kept.append(stored.astype(np.int64))
                yield block

        digest = contributions_digest(units, starts, blocks())
        rank = plan.lattice.grid.shape[1]
        integers = np.concatenate(kept) if kept else np.zeros((0, rank), dtype=np.int64)
        if chosen is not None:
            starts = np.concatenate([[0], np.cumsum(chosen)])[starts].astype(np.int64)
            units = units[chosen]
        return cls(integers=integers, units=units, starts=starts, digest=digest)


def _chosen_entries(plan: SumPlan, units: Integers) -> Mask | None:
    """Return which entries are stored: those of the units that cost most; None for all."""
    if len(units) * plan.lattice.grid.shape[1] <= MAX_STORED_NUMBERS:
        return None
    charges = np.where(np.bincount(units, minlength=len(plan.charges)) > 0, plan.charges, -1.0)
    if np.count_nonzero(charges >= 0) <= STORED_UNITS:
        return None
    largest = np.zeros(len(charges), dtype=np.bool_)
    largest[np.argpartition(charges, -STORED_UNITS)[-STORED_UNITS:]] = True
    return np.asarray(largest[units])


# --- the certificate -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenPresence:
    """What is promised about a unit's being in the table at all: Gaussian differential privacy.

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
    presence : HiddenPresence, optional
        That a unit is in the table at all is hidden, too. No figure is then computed from records,
        and the number of units is not told.
    """

    OPTIONAL: ClassVar[tuple[str, ...]] = ("presence",)

    sampling: Literal["coins", "everybody"]
    keep: Share
    influence: Amount
    success_at_keep: Share
    hits: dict[str, Share]
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
        """Whether it is also hidden that a unit is in the table at all."""
        return self.presence is not None

    @property
    def used_prior(self) -> float:
        """How often a guess "used" is right without the release."""
        return self.keep

    @property
    def promise(self) -> str:
        """The promise about one unit, and the attackers it holds against."""
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
    def not_hidden(self) -> str:
        """Summary of what is not hidden, as short as the promise."""
        if self.presence is not None:
            return f"Not hidden: general facts that hold with and without a given {self.unit}."
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
            ("Groups", f"{self._grouped}. {groups}"),
            *self._presence_rows(),
            ("Statistic", f"{self.mechanism} -> {self.output}"),
            ("Noise", self._noise_text()),
            ("Proof", "closed form, no failure probability"),
        ]

    def _presence_rows(self) -> Rows:
        if self.presence is None:
            text = f"{readings_text(min(1.0, self.promised_success))}; not a DP claim"
            return [("In terms of DP", text)]
        alike = f"two tables are neighbours if one has all rows of one {self.unit} more"
        return [
            ("Presence", f"{self.presence}; {alike}"),
            ("Declared", self.presence.declared),
        ]

    @property
    def _grouped(self) -> str:
        if self.sampling == "everybody":
            return f"several {self.units}, compared with a release without all of them"
        return f"{self.units} whose coins agree, known to the attacker"

    def _odds_rows(self) -> Rows:
        number = "" if self.n_units is None else f"{self.n_units:,} "
        if self.sampling == "everybody":
            return [("Sample", f"everybody: all {number}{self.units} were used")]
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
    before, number = at_least(keep, significant=6, percent=True), certificate.n_units
    each = f"each {certificate.unit}"
    if number is not None:
        each = f"each of {number:,} {certificate.units}"
    return [
        ("Sample", f"{each} was used by a coin of its own, with probability {keep:g}"),
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


def write_coin_certificate(bundle: CoinProof) -> CoinCertificate:
    """Write down what was proved: a function of the bundle, for ``verify`` too.

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
    """Return what is promised about being in the table: a function of declaration and noise.

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
    items = [
        f"That a {unit} is in the table is not hidden, nor are general facts that apply to all "
        f"{units} in it. Where it must be, use differential privacy.",
        f"What is published without noise was computed from all records: it tells nothing about "
        f"who was used, and may tell how far the most extreme {units} are from the others.",
        f"Several {units} together are protected as a group, with the larger success above."
        if bundle.keep == 1.0
        else f"{units.capitalize()} whose coins are known to agree are protected as a group, with "
        f"the larger success above.",
    ]
    if bundle.session is None:
        items.append("Other releases from the same records and coins are not counted here.")
    else:
        items.append("Releases from the same coins outside this session are not counted here.")
    return tuple(items)


def _composition(bundle: CoinProof) -> Record | None:
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
            "simulation",
            "software",
        )
    },
    "published": "what the statistic says it shows of all records; the rest was checked",
    "unit": "what a unit is called",
    "dimension": "how many numbers the statistic makes of the sums",
    "keep": "that coins have this probability",
    "notes": "the notes of the statistic",
    "composition": (
        "the session's total and what its earlier releases spent; that no unit passes the total "
        "was checked"
    ),
}


def check_coin_parameter(bundle: CoinProof) -> None:
    """Refuse noise with too few steps, and more influence than the budget stands for."""
    slack = bundle.total_variation
    if not slack < bundle.budget.success - 0.5:
        raise unproved("the noise has too few steps")
    if not bundle.parameter <= influence_parameter(bundle.budget.success, slack) * _ROUNDING:
        raise unproved("the influence that is allowed is more than the budget stands for")


def check_coin_bundle(bundle: CoinBundle) -> None:
    """Refuse a bundle whose noise does not hide every stored unit."""
    check_coin_parameter(bundle)
    charges, part = bundle.charges, bundle.session
    limits = np.full(bundle.n_units, bundle.parameter)
    if part is not None:
        limits = np.minimum(limits, part.allowed)
    if not (charges <= limits * _ROUNDING).all():
        raise unproved("a unit changes the sums by more than is allowed")
    _check_stored(bundle)
    _check_declaration(bundle)
    if part is not None:
        check_coin_session(bundle, part, charges)


def _check_stored(bundle: CoinBundle) -> None:
    """Refuse other contributions than those of the digest, and fewer than a file can hold."""
    if not bundle.is_whole:
        n_numbers = bundle.n_entries * bundle.grid.shape[1]
        if n_numbers <= MAX_STORED_NUMBERS or bundle.n_stored != STORED_UNITS:
            raise unproved("contributions are missing")
        return
    digest = contributions_digest(bundle.units, bundle.starts, [bundle.integers.astype(np.float64)])
    if digest != bundle.contributions_digest:
        raise unproved("the digest is of other contributions")


def check_coin_session(bundle: CoinProof, part: CoinSession, charges: Vector) -> None:
    """Refuse clocks that pass the total, and a charge that does not follow from them (C-8)."""
    total, charge = part.total.mu_squared, part.charge.mu_squared
    if total is None or charge is None or part.charge.n_releases != 1:
        raise unproved("the session has no total")
    if bundle.total_variation > SESSION_SLACK:
        raise unproved("the noise has too few steps for a session")
    before = part.before.mu_squared or 0.0
    latest = float((part.clocks + np.square(part.allowed)).max(initial=0.0))
    if not max(latest, before + charge) <= total * _ROUNDING + LEDGER_ROUNDING:
        raise unproved("the session's total is passed")
    busiest = float(part.clocks.max(initial=part.absent))
    added = float((part.clocks + np.square(charges)).max(initial=part.absent)) - busiest
    if not charge >= added * (1 - RELATIVE) - LEDGER_ROUNDING:
        raise unproved("the release costs more than it was charged")


def _check_declaration(bundle: CoinBundle) -> None:
    """Refuse a promise about presence that noise, sums or published facts do not bear out."""
    declaration = bundle.declaration
    if declaration is None:
        return
    coordinates = sum(1 if axis.merged else len(axis.places) for axis in declaration.axes())
    if bundle.grid.shape != (declaration.n_cells, coordinates):
        raise unproved("the noise is of other sums than the declared ones")
    largest = declaration.unit_influence(bundle.grid, bundle.units_per_std)
    if largest > bundle.parameter:
        raise unproved("a unit within the declaration may change the sums by more than is allowed")
    if (bundle.charges > largest).any():
        raise unproved("a unit is outside the declaration")
    if bundle.stated.published or bundle.session is not None:
        raise unproved("facts of all records are published")


def unproved(reason: str) -> CertificateError:
    """Return the error of a bundle that does not show what a certificate says."""
    return CertificateError(
        f"bundle must prove the budget; {reason}. Do not rely on this certificate."
    )


@verify.register
def _verify_coins(
    certificate: CoinCertificate, bundle: CoinProof | str | Path | None = None
) -> Verified:
    """Check that a certificate of coins follows from the curator's bundle; claim R-1."""
    if bundle is None:
        raise CertificateError(
            "bundle must be given with a PAC certificate; got None. Pass the curator's curator.npz."
        )
    held: object = bundle
    if isinstance(bundle, str | Path):
        held = read_bundle_archive(bundle, COIN_READERS)
    if not isinstance(held, CoinProof):
        raise CertificateError(
            "bundle must be that of a release with coins; got that of a pool. Pass the curator.npz "
            "that was written beside the release."
        )
    held.check()
    compare_verified(certificate, write_coin_certificate(held))
    not_checkable = {
        name: why
        for name, why in {**NOT_CHECKABLE_COINS, **held.not_checkable}.items()
        if getattr(certificate, name) not in (None, ())
    }
    return Verified(
        digest=certificate.digest,
        recomputed=tuple(f.name for f in fields(CoinCertificate) if f.name not in not_checkable),
        not_checkable=not_checkable,
        figures=_figures(certificate, held),
    )


def recompute_contributions(
    bundle: CoinBundle | str | Path, mechanism: Any, data: Any, units: Any = None
) -> None:
    """Recompute the contribution of every unit from all records; refuse a bundle that differs.

    For the units that the bundle of a large table does not hold, and for whoever wants to see that
    the integers are those of the records. Takes the mechanism, the data and the units of the
    release.

    Guarantee
    ---------
    Claim R-1. Returns only if the charge of every unit, computed again, is within what is allowed,
    the noise is the one that follows from all records, and the digest is that of all integers.
    Another processor may round a matrix product to another integer; then this refuses.
    """
    held = CoinBundle.load(bundle) if isinstance(bundle, str | Path) else bundle
    check_coin_bundle(held)
    rows, labels = split_data_units(data, units)
    records = coerce_data(rows)
    codes, n_units = None, records.n_rows
    if labels is not None:
        codes, ids = code_units(labels, records.n_rows)
        n_units = len(ids)
    if n_units != held.n_units:
        raise unproved(f"it has {held.n_units} units and the data {n_units}")
    statistic, records, codes = statistic_with_coins(
        as_mechanism(mechanism).prepare(records), records, codes
    )
    if not isinstance(statistic, SumStatistic):
        raise unproved("the statistic is no function of sums")
    with single_threaded():
        try:
            plan, sums = _plan_again(held, statistic, records, codes)
        except PacPrivacyError:
            raise unproved("no noise follows from these records") from None
        digest = StoredContributions.of(plan, sums).digest
    lattice = plan.lattice
    if not np.array_equal(lattice.grid, held.grid):
        raise unproved("its grid does not follow from these records")
    if not np.array_equal(lattice.units_per_std, held.units_per_std):
        raise unproved("its noise does not follow from these records")
    if digest != held.contributions_digest:
        raise unproved("other contributions follow from these records")
    if not (plan.charges <= held.parameter * _ROUNDING).all():
        raise unproved("a unit changes the sums by more than is allowed")


def _plan_again(
    held: CoinBundle, statistic: SumStatistic, records: Data, codes: npt.NDArray[Any] | None
) -> tuple[SumPlan, UnitSums]:
    """Find the noise of a bundle again, by what was declared or by all records."""
    success, keep = held.budget.success, held.keep
    if held.declaration is not None:
        rows = held.declaration.rows_per_unit
        _, declaration, sums = declared_sums(statistic, records, codes, rows)
        if declaration != held.declaration:
            raise unproved("its declaration is not that of the statistic")
        sums = sums.with_units(held.n_units)
        return plan_declared(sums, declaration, success=success, keep=keep), sums
    sums = statistic.contributions(records, codes).with_units(held.n_units)
    plan = plan_sums(
        sums,
        success=success,
        keep=keep,
        slopes=statistic.output_slopes(sums),
        clip=held.clip,
        allowed=None if held.session is None else held.session.allowed,
    )
    return plan, sums


def _figures(certificate: CoinCertificate, bundle: CoinProof) -> dict[str, str]:
    """Say what was recomputed, with the figures that agree."""
    return {
        "promise": certificate.promise,
        "influence": bundle.influence_text(at_most(certificate.influence, significant=4)),
        "advantage": f"at most {at_most(certificate.advantage, decimals=4)}",
        "noise": f"{certificate.noise.n_directions} directions",
        **({} if certificate.presence is None else {"presence": str(certificate.presence)}),
        "sentences": f"{len(certificate.not_promised)} of what is not promised, and every other "
        f"field",
    }
