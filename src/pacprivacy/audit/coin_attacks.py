"""Attacks on releases with coins, with knowledge of all other coins or of none.

An attacker who knows the coins of all others subtracts their contributions: what remains is noise,
or noise around the contribution of the attacked unit. Of a stored release the law of the noise is
known and the likelihood ratio exact; of any other procedure it is learned from releases that are
used for nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Mask, Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy._rounding import percent_at_most
from pacprivacy.audit.attacks import Trials
from pacprivacy.errors import AuditError
from pacprivacy.release import CoinBundle, CoinCertificate

CoinProcedure = Callable[[Mask, np.random.Generator], npt.ArrayLike]

COIN_ATTACKS: Final = ("informed", "uninformed", "false_alarms", "group_2", "group_5")
FALSE_ALARMS: Final = 1e-3  # simulated; rarer ones by formula
RAREST: Final = 1e-6
N_WORLDS: Final = 8  # sets of known others, for procedures whose noise has to be learned
MAX_GROUP_CANDIDATES: Final = 400
MAX_NUMBERS: Final = 10**7
LEAST_VARIANCE: Final = 1e-12  # of what was learned, as a share of the largest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinTarget:
    """A release procedure with coins under attack; curator-only.

    ``units`` are those attacked, the one placed worst first. ``release(used, rng)`` returns what
    is released of the units that are used. ``parts``, where they are known, are contributions in
    deviations of the noise, a line for each of ``units``: noise is then standard normal.
    """

    n_units: int
    keep: float
    units: tuple[int, ...]
    release: CoinProcedure | None = field(default=None, repr=False)
    parts: Matrix | None = field(default=None, repr=False)
    is_whole: bool = True

    def __repr__(self) -> str:
        return f"CoinTarget(curator-only, {self.n_units} units, keep={self.keep:g})"

    @classmethod
    def of(cls, release: CoinProcedure, *, n_units: int, keep: float, units: Sequence[int]) -> Self:
        """Attack an arbitrary procedure, trusting nothing that it says about its noise."""
        if not units:
            raise AuditError(
                "units must name at least one unit to attack; got none. Name outliers."
            )
        return cls(n_units=n_units, keep=keep, units=tuple(units), release=release)

    @classmethod
    def of_bundle(cls, bundle: CoinBundle) -> Self:
        """Attack the noise law of a bundle, with the integers that its units add."""
        cells = np.repeat(np.arange(len(bundle.starts) - 1), np.diff(bundle.starts))
        scaled = bundle.integers / bundle.units_per_std[cells]
        squares = np.square(scaled).sum(axis=1)
        influence = np.sqrt(np.bincount(bundle.units, weights=squares, minlength=bundle.n_units))
        n_worst = min(MAX_GROUP_CANDIDATES, max(8, MAX_NUMBERS // max(1, bundle.grid.size)))
        worst = np.argsort(-influence, kind="stable")[:n_worst]
        rank = bundle.units_per_std.shape[1]
        place = np.full(bundle.n_units, -1)
        place[worst] = np.arange(len(worst))
        chosen = np.flatnonzero(place[bundle.units] >= 0)
        parts = np.zeros((len(worst), bundle.units_per_std.size))
        columns = cells[chosen, None] * rank + np.arange(rank)
        np.add.at(parts, (place[bundle.units[chosen], None], columns), scaled[chosen])
        return cls(
            n_units=bundle.n_units,
            keep=bundle.keep,
            units=tuple(worst.tolist()),
            parts=parts,
            is_whole=bundle.is_whole,
        )

    def projections(self, bundle: CoinBundle, direction: Vector) -> Vector:
        """Return the contribution of every unit along a direction, in deviations of the noise."""
        rank = bundle.units_per_std.shape[1]
        along = direction.reshape(-1, rank) / bundle.units_per_std
        cells = np.repeat(np.arange(len(bundle.starts) - 1), np.diff(bundle.starts))
        entries = np.einsum("ij,ij->i", bundle.integers, along[cells])
        return np.asarray(
            np.bincount(bundle.units, weights=entries, minlength=bundle.n_units), dtype=np.float64
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinGame:
    """Settings of attacks: number of trials, seed."""

    n_trials: int
    seed: int

    def rng(self, attack: str) -> np.random.Generator:
        """Return the randomness of one attack."""
        return public_generator(self.seed, "audit-coins", COIN_ATTACKS.index(attack))


def attack_coins(
    target: CoinTarget,
    certificate: CoinCertificate,
    game: CoinGame,
    *,
    attacks: Sequence[str] | None,
    bundle: CoinBundle | None = None,
) -> list[Trials]:
    """Run the chosen attacks, or all that apply."""
    unknown = [name for name in attacks or () if name not in COIN_ATTACKS]
    if unknown:
        raise AuditError(f"attack must be one of {', '.join(COIN_ATTACKS)}; got {unknown[0]!r}.")
    if target.parts is None:
        chosen = [name for name in COIN_ATTACKS[:2] if attacks is None or name in attacks]
        return [_attack_procedure(name, target, certificate, game) for name in chosen]
    outcomes = []
    for name in COIN_ATTACKS if attacks is None else attacks:
        if name == "uninformed":
            if bundle is None or not target.is_whole or target.keep == 1.0:
                if attacks is not None:
                    raise AuditError(
                        "attack 'uninformed' must have what every unit adds, and coins; got a "
                        "release without. Use informed."
                    )
                continue
            outcomes.append(_uninformed(target, bundle, certificate, game))
        elif name == "false_alarms":
            outcomes.append(_false_alarms(target, certificate, game))
        else:
            size = 1 if name == "informed" else int(name.removeprefix("group_"))
            if size <= len(target.units):
                outcomes.append(_informed(target, size, certificate, game))
    return outcomes


# --- of a stored release: the law is known ----------------------------------------------------


def _scores(part: Vector, used: Mask, rng: np.random.Generator) -> Vector:
    """Return exact log-likelihood ratios, after subtracting all other units."""
    touched = part[part != 0]  # the rest of a release is noise on both sides
    noise = rng.standard_normal((len(used), len(touched)))
    releases = noise + np.where(used[:, None], touched, 0.0)
    return np.asarray(releases @ touched - 0.5 * touched @ touched)


def _coins(n: int, rng: np.random.Generator) -> Mask:
    return np.asarray(rng.random(n) < 0.5)


def _false_alarms(target: CoinTarget, cert: CoinCertificate, game: CoinGame) -> Trials:
    """Flag the unit so rarely by mistake that flags can be believed."""
    from scipy.special import ndtr, ndtri  # slow to import, not always needed

    assert target.parts is not None  # of a stored release
    rng = game.rng("false_alarms")
    part = target.parts[0]
    size = math.sqrt(float(part @ part))
    used = np.ones(game.n_trials, dtype=np.bool_)
    cut = -0.5 * size**2 - size * float(ndtri(FALSE_ALARMS))  # left out: N(-r²/2, r²)
    flagged = _scores(part, used, rng) > cut
    rare = float(ndtr(ndtri(RAREST) + size))
    promised = cert.hits[f"{RAREST:g}"]
    note = (
        f"at 1 in {round(1 / RAREST):,} false alarms, by formula: {percent_at_most(rare, 4)} % "
        f"hits, promised at most {percent_at_most(promised, 4)} %"
    )
    return Trials(
        attack="false_alarms",
        question="hits at 1 in 1,000 false alarms",
        right=flagged,
        prior=FALSE_ALARMS,
        bound=cert.hits[f"{FALSE_ALARMS:g}"],
        unit=target.units[0],
        notes=(note,),
    )


def _informed(target: CoinTarget, size: int, cert: CoinCertificate, game: CoinGame) -> Trials:
    """Attack the units of largest joint contribution, used or left out together."""
    assert target.parts is not None  # of a stored release
    members, together = [0], target.parts[0]
    while len(members) < size:
        sizes = np.linalg.norm(target.parts + together, axis=1)
        sizes[members] = -1.0
        members.append(int(np.argmax(sizes)))
        together = together + target.parts[members[-1]]
    name = "informed" if size == 1 else f"group_{size}"
    rng = game.rng(name)
    used = _coins(game.n_trials, rng)
    right = (_scores(together, used, rng) > 0) == used
    if size > 1:
        question = f"{size} units, all used or left out"
        return Trials(attack=name, question=question, right=right, bound=cert.groups[str(size)])
    rest = "the file has the units that cost most; an attacker who knows nobody was not simulated"
    return Trials(
        attack=name,
        question="one unit, all others known",
        right=right,
        bound=cert.membership_bound,
        unit=target.units[0],
        notes=() if target.is_whole else (rest,),
    )


def _uninformed(
    target: CoinTarget, bundle: CoinBundle, cert: CoinCertificate, game: CoinGame
) -> Trials:
    """Project on the unit's contribution, through noise and the coins of all others."""
    assert target.parts is not None  # of a stored release
    unit, part = target.units[0], target.parts[0]
    size = math.sqrt(float(part @ part)) or 1.0
    others = target.projections(bundle, part / size)
    contribution = float(others[unit])
    others[unit] = 0.0
    centre = target.keep * float(others.sum())
    rng = game.rng("uninformed")

    def look(used: Mask) -> Vector:
        rest = _sums_of_coins(others, target.keep, len(used), rng) - centre
        return np.asarray(rest + contribution * used + rng.standard_normal(len(used)))

    shadow = _coins(2 * game.n_trials, rng)
    law = _Laws.learn(look(shadow)[:, None], shadow)
    used = _coins(game.n_trials, rng)
    right = law.says_used(look(used)[:, None]) == used
    return Trials(
        attack="uninformed",
        question="one unit, nobody known",
        right=right,
        bound=cert.membership_bound,
        unit=unit,
    )


def _sums_of_coins(parts: Vector, keep: float, n_draws: int, rng: np.random.Generator) -> Vector:
    """Return sums over units that are used with the same probability, for fresh coins each."""
    rare = min(keep, 1 - keep)
    n_cells = n_draws * len(parts)
    sums, start = np.zeros(n_draws), -1
    while start < n_cells:  # the places of the rarer side, by the gaps between them
        places = start + np.cumsum(rng.geometric(rare, size=1 << 20))
        start = int(places[-1])
        places = places[places < n_cells]
        draws, units = np.divmod(places, len(parts))
        sums += np.bincount(draws, weights=parts[units], minlength=n_draws)
    return np.asarray(sums if keep <= 0.5 else parts.sum() - sums)


# --- of any procedure: the law is learned -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Laws:
    """Normal laws of releases, with the unit used and left out, fitted to shadow releases."""

    means: Matrix
    precisions: Matrix
    logs: Vector

    @classmethod
    def learn(cls, seen: Matrix, used: Mask) -> Self:
        sides = [seen[~used], seen[used]]
        means = np.array([side.mean(axis=0) for side in sides])
        variances = np.array([side.var(axis=0) for side in sides])
        least = LEAST_VARIANCE * float(variances.max(initial=0.0)) + 1e-300
        variances = np.maximum(variances, least)
        return cls(
            means=means, precisions=1.0 / variances, logs=-0.5 * np.log(variances).sum(axis=1)
        )

    def says_used(self, seen: Matrix) -> Mask:
        out, within = (
            log - 0.5 * np.square(seen - mean) @ precision
            for mean, precision, log in zip(self.means, self.precisions, self.logs, strict=True)
        )
        return np.asarray(within > out)


def _attack_procedure(
    name: str, target: CoinTarget, cert: CoinCertificate, game: CoinGame
) -> Trials:
    """Learn the law of releases, with other coins known or redrawn, and guess on fresh releases."""
    unit, rng = target.units[0], game.rng(name)
    informed = name == "informed"
    n_worlds = N_WORLDS if informed else 1
    each = -(-game.n_trials // n_worlds)
    outcomes = []
    for _ in range(n_worlds):
        known = np.asarray(rng.random(target.n_units) < target.keep)
        shadow, used = _coins(2 * each, rng), _coins(each, rng)
        law = _Laws.learn(_releases(target, unit, shadow, known if informed else None, rng), shadow)
        releases = _releases(target, unit, used, known if informed else None, rng)
        outcomes.append(law.says_used(releases) == used)
    return Trials(
        attack=name,
        question="one unit, all others known" if informed else "one unit, nobody known",
        right=np.concatenate(outcomes),
        bound=cert.membership_bound,
        unit=unit,
    )


def _releases(
    target: CoinTarget, unit: int, used: Mask, known: Mask | None, rng: np.random.Generator
) -> Matrix:
    assert target.release is not None  # a procedure
    rows = []
    for is_used in used:
        coins = rng.random(target.n_units) < target.keep if known is None else known.copy()
        coins[unit] = is_used
        rows.append(np.asarray(target.release(coins, rng), dtype=np.float64).ravel())
    return np.asarray(rows)


def check_coin_bundle_belongs(bundle: CoinBundle, cert: CoinCertificate) -> None:
    """Refuse a bundle of another release."""
    std = (bundle.grid * bundle.units_per_std).ravel()
    ours = (cert.n_units, cert.keep, cert.dimension, cert.noise.n_directions)
    if ours != (bundle.n_units, bundle.keep, bundle.dimension, len(std)) or (
        len(std) and not math.isclose(float(std.max()), cert.noise.largest_std, rel_tol=0.11)
    ):
        raise AuditError(
            "bundle must belong to the certificate; its units or its noise are others. "
            "Use the curator.npz that was written beside the release."
        )
