"""Coins, on average: bundle, certificate and check of a release that is no function of sums.

What one unit changes depends on who else is used. The promise is an average over the coins of the
others, and says how likely a unit changes the release by more than three deviations of the noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import msgspec
import numpy as np

from pacprivacy._certificates import Verified, readings_text, verify
from pacprivacy._checks import Count, Integers, Share, Vector, freeze
from pacprivacy._rounding import at_most, percent_at_most, two_digits
from pacprivacy._values import times_in_100
from pacprivacy.adversary import LARGE_MOVE, LARGE_MOVE_SHARE, InfluenceProof, average_hits
from pacprivacy.budget import Membership
from pacprivacy.errors import CertificateError
from pacprivacy.noise import rounding_of
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
from pacprivacy.release.coin_certificate import (
    NOT_CHECKABLE_COINS,
    coin_hits_text,
    coin_odds_rows,
    unproved,
)
from pacprivacy.release.verification import READERS, compare_verified
from pacprivacy.theory import lattice_total_variation_bound, success_at

KIND: Final = "average"
_PREFIX: Final = "proof_"


# --- the bundle ------------------------------------------------------------------------------


class _Record(msgspec.Struct, kw_only=True):
    """What a file says besides its arrays."""

    proof: str
    n_units: Annotated[int, msgspec.Meta(ge=1)]
    keep: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    dimension: Annotated[int, msgspec.Meta(ge=0)]
    unit: str
    simulation: bool
    stated: CuratorStatements
    success: Annotated[float, msgspec.Meta(gt=0.5, lt=1)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AverageBundle(CuratorBundle):
    """Evidence for the influence of units, and the noise; curator-only."""

    proof: InfluenceProof = field(repr=False)
    grid: Vector = field(repr=False)
    units_per_std: Integers = field(repr=False)
    n_units: int
    keep: float
    dimension: int
    unit: str
    simulation: bool
    budget: Membership
    stated: CuratorStatements

    def __post_init__(self) -> None:
        freeze(self.grid)
        freeze(self.units_per_std)

    def __repr__(self) -> str:
        return f"AverageBundle(curator-only, {len(self.grid)} directions, {self.n_units} units)"

    @property
    def total_variation(self) -> float:
        """Distance of the sampled noise from a function of a continuous one (claim L-2)."""
        return lattice_total_variation_bound(len(self.grid), self.units_per_std.astype(np.float64))

    def save(self, path: str | Path) -> None:
        """Write the bundle to a file that only its owner can read."""
        arrays: Arrays = {"grid": self.grid, "units_per_std": self.units_per_std}
        arrays |= {_PREFIX + name: array for name, array in self.proof.arrays.items()}
        record: Record = {
            name: getattr(self, name)
            for name in ("n_units", "keep", "dimension", "unit", "simulation")
        }
        record |= {
            "proof": self.proof.kind,
            "stated": asdict(self.stated),
            "success": self.budget.success,
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
        grid, units = arrays["grid"], arrays["units_per_std"]
        if grid.dtype != np.float64 or units.dtype != np.int64 or grid.shape != units.shape:
            raise ValueError("grid")
        if not (grid.ndim == 1 and (units > 0).all() and (grid > 0).all()):
            raise ValueError("units_per_std")
        if not (len(grid) and np.isfinite(grid).all()):  # a value without noise is not hidden
            raise ValueError("grid")
        parts = {
            name.removeprefix(_PREFIX): array
            for name, array in arrays.items()
            if name.startswith(_PREFIX)
        }
        return cls(
            proof=InfluenceProof.KINDS[read.proof].of_arrays(parts, read.keep),
            grid=grid,
            units_per_std=units,
            n_units=read.n_units,
            keep=read.keep,
            dimension=read.dimension,
            unit=read.unit,
            simulation=read.simulation,
            budget=Membership(read.success),
            stated=read.stated,
        )


READERS[KIND] = AverageBundle.from_archive


# --- the certificate -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageCertificate(Certificate):
    """What every attacker is held to on average over the coins; every field is public.

    Parameters
    ----------
    sampling : "average"
        Units were left out by coins, and the promise is an average over these.
    keep : float
        Probability with which a unit is used.
    success_at_keep : float
        How often the best guess is right where a unit is used with its own probability.
    hits : mapping
        For each rate of false alarms, the largest share of used units that an attacker finds.
    moves : mapping
        For each distance in deviations of the noise, how likely a unit moves the release by more.
    n_draws : int
        Number of simulated samples behind the figures; 0 for closed forms.
    """

    sampling: Literal["average"]
    keep: Share
    success_at_keep: Share
    hits: dict[str, Share]
    moves: dict[str, Share]
    n_draws: Count

    @property
    def used_prior(self) -> float:
        """How often a guess "used" is right without the release."""
        return self.keep

    @property
    def promise(self) -> str:
        """The promise about one unit, and the attackers it holds against."""
        unit, units, whom = self.unit, self.units, who_text(self)
        success = times_in_100(self.promised_success)
        return (
            f"Take a {unit} {whom} is equally likely to have been used or left out. Whoever "
            f"studies {studied_text(self)}, by any method, guesses which at most {success}; 50 "
            f"without the release. This holds on average over the coins of the other {units}, also "
            f"against those who know all of them."
        )

    @property
    def not_hidden(self) -> str:
        """Summary of what is not hidden, as short as the promise."""
        return (
            f"Not hidden: that a {self.unit} is in the table, and general facts that apply to all "
            f"{self.units} in it."
        )

    def rows(self) -> Rows:
        """Return names and texts of what was proved."""
        advantage = at_most(self.advantage, decimals=4)
        large = percent_at_most(self.moves[f"{LARGE_MOVE:g}"])
        proof = "closed form, no failure probability"
        if self.n_draws:
            wrong = at_most(1 - self.confidence, significant=2)
            proof = (
                f"{self.n_draws:,} simulated samples of the units; the proof fails with "
                f"probability {wrong} at most"
            )
        return [
            ("Asked", budget_text(self)),
            ("Holds against", self._whom()),
            *coin_odds_rows(self, self.keep, self.success_at_keep),
            ("Advantage", f"at most {advantage} on average, twice what success is above 50 %"),
            (
                "Large changes",
                f"whoever knows all other coins may do better on some of them: a {self.unit} "
                f"changes the release by more than {LARGE_MOVE:g} deviations of the noise at most "
                f"{large} times in 100",
            ),
            ("False alarms", coin_hits_text(self.hits)),
            ("In terms of DP", f"{readings_text(min(1.0, self.promised_success))}; not a DP claim"),
            ("Statistic", f"{self.mechanism} -> {self.output}"),
            (
                "Noise",
                f"normal, in whole numbers, in {self.noise.n_directions} directions; its size is "
                f"part of every standard error",
            ),
            ("Proof", proof),
        ]

    def _whom(self) -> str:
        return f"everybody, whatever they know of the other {self.units}, on average over the coins"

    def short_rows(self) -> Rows:
        """Return names and texts of a few figures."""
        return [
            ("Asked", budget_text(self)),
            ("Holds against", self._whom()),
            *coin_odds_rows(self, self.keep, self.success_at_keep),
            ("Statistic", f"{self.mechanism} -> {self.output}"),
        ]

    def check(self) -> None:
        """Refuse a file without the chance of a large change."""
        if f"{LARGE_MOVE:g}" not in self.moves:
            raise CertificateError(
                f"certificate field moves must have {LARGE_MOVE:g}; it is not there. Use the file "
                "as it was written."
            )


Certificate.KINDS["average"] = AverageCertificate


def write_average_certificate(bundle: AverageBundle) -> AverageCertificate:
    """Write down what was proved: a function of the bundle, for ``verify`` too.

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
        noise=CertificateNoise.of(bundle.grid, bundle.units_per_std).rounded(),
        confidence=1.0 - risk.gamma,
        public=("all records, the statistic and the noise law", *stated.public),
        published=(
            f"number of {units} ({bundle.n_units}); each was used with probability {bundle.keep:g}",
            f"how likely one {bundle.unit} moves the release: from all records, rounded up",
            *stated.published,
        ),
        not_promised=_not_promised(bundle, units),
        notes=stated.notes,
        simulation=bundle.simulation,
        software=stated.software,
    )


def _not_promised(bundle: AverageBundle, units: str) -> tuple[str, ...]:
    unit = bundle.unit
    return (
        f"That a {unit} is in the table is not hidden, nor are general facts that apply to all "
        f"{units} in it. Where it must be, use differential privacy.",
        f"What is published without noise was computed from all records: it tells nothing about "
        f"who was used, and may tell how far some {units} are from the others.",
        f"Whoever knows which of the other {units} were used may guess better than that for some "
        f"samples of them, and worse for others.",
        f"Groups of {units} whose coins are known to agree are not covered.",
        "Other releases from the same records and coins are not counted here; this one must not be "
        "one of a session.",
    )


# --- verification ----------------------------------------------------------------------------

NOT_CHECKABLE_AVERAGE: Final[Mapping[str, str]] = {
    **{name: why for name, why in NOT_CHECKABLE_COINS.items() if name != "dimension"},
    "dimension": "how many numbers the statistic makes",
}


@verify.register
def _verify_average(
    certificate: AverageCertificate, bundle: AverageBundle | str | Path | None = None
) -> Verified:
    """Check that a certificate follows from the curator's bundle; claim R-1."""
    if bundle is None:
        raise CertificateError(
            "bundle must be given with a PAC certificate; got None. Pass the curator's curator.npz."
        )
    held = AverageBundle.load(bundle) if isinstance(bundle, str | Path) else bundle
    if not isinstance(held, AverageBundle):
        raise CertificateError(
            "bundle must be that of a release on average over coins; got another. Pass the "
            "curator.npz that was written beside the release."
        )
    compare_verified(certificate, write_average_certificate(held))
    not_checkable = {
        name: why
        for name, why in {**NOT_CHECKABLE_AVERAGE, **held.proof.not_checkable}.items()
        if getattr(certificate, name) not in (None, ())
    }
    return Verified(
        digest=certificate.digest,
        recomputed=tuple(f.name for f in fields(AverageCertificate) if f.name not in not_checkable),
        not_checkable=not_checkable,
        figures={
            "promise": certificate.promise,
            "advantage": f"at most {at_most(certificate.advantage, decimals=4)} on average",
            "large changes": f"at most {percent_at_most(certificate.moves[f'{LARGE_MOVE:g}'])} "
            f"times in 100",
            "noise": f"{certificate.noise.n_directions} directions",
            "sentences": f"{len(certificate.not_promised)} of what is not promised, and every "
            f"other field",
        },
    )
