"""Nearest-output reconstruction: take the candidate whose output is closest to the release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.audit.attack import Guess, Hits, member_guesses
from pacprivacy.audit.membership import (
    BLOCK_CELLS,
    NoiseModel,
    learn_noise,
    normalise,
    posteriors,
    unit_blocks,
    unit_probabilities,
    worst_units,
)
from pacprivacy.audit.target import Integers, Releases, Target
from pacprivacy.errors import AuditError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction:
    """Rebuild the subset from the release, without a model of the noise."""

    name: str = "reconstruction"
    question: str = "the subset that was used"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> TrainedReconstruction:
        """Nothing is learned; the share of units that it gets right is measured here."""
        nearest = nearest_candidates(target, shadow)
        packed = target.pool.bits
        differ = np.unpackbits(packed[nearest] ^ packed[shadow.indices], axis=1)
        right = 1.0 - float(differ.sum(axis=1).mean()) / target.pool.n_units
        note = f"in training it places {100 * right:.1f} % of all units rightly"
        return TrainedReconstruction(target=target, notes=(note,))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedReconstruction:
    """The nearest-output attack; curator-only."""

    target: Target
    notes: tuple[str, ...] = ()

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """The only question."""
        return (Guess(prior=float(np.exp(self.target.log_p.max())), is_membership=False),)

    def hits(self, releases: Releases) -> Hits:
        """Name the candidate with the nearest output."""
        right: Hits = nearest_candidates(self.target, releases) == releases.indices
        return right[:, None]


def nearest_candidates(target: Target, releases: Releases) -> Integers:
    """Return the candidate whose output is nearest to each release, among those not ruled out."""
    from scipy.spatial.distance import cdist  # slow to import, not always needed

    possible = target.log_p > -np.inf
    block = max(1, BLOCK_CELLS // len(target.centres))
    named = np.empty(len(releases), dtype=np.int64)
    for start in range(0, len(releases), block):
        chosen = slice(start, min(start + block, len(releases)))
        part = releases.part(chosen)
        distances = np.zeros((len(part), len(target.centres)))
        if part.seen.shape[1]:
            distances = cdist(part.seen, target.centres)
        distances[:, ~possible] = np.inf
        if target.groups is not None and part.groups is not None:
            distances[part.groups[:, None] != target.groups[None, :]] = np.inf
        named[chosen] = distances.argmin(axis=1)
    return named


MAX_GUESSES = 1024
MAX_DECOMPOSITION = 4096
MAX_CELLS = 1 << 26
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Guess a candidate that shares at least ``n_right`` units with the secret subset.

    By default the smallest number that a blind guess reaches with probability at most
    ``blind_rate``.
    """

    n_right: int | None = None
    blind_rate: float = 0.05
    name: str = "overlap"
    question: str = "a candidate with k units in common"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> TrainedOverlap:
        """Count shared units and choose k; the posterior does the rest."""
        m = target.pool.n_subsets
        n_guesses = min(m, MAX_GUESSES)
        listed = np.linspace(0, m - 1, n_guesses).astype(np.int64)
        shared = np.zeros((m, n_guesses), dtype=np.float32)
        for units in unit_blocks(target.pool.n_units):
            inside = target.members(units).astype(np.float32)
            shared += inside @ inside[listed].T
        weights = np.exp(target.log_p)
        n_right = self.n_right
        if n_right is None:
            n_right = _smallest_count(shared, weights, self.blind_rate)
        elif not 1 <= n_right <= int(shared.max()):
            raise AuditError(
                f"n_right must be between 1 and {int(shared.max())}, the largest subset; got "
                f"{n_right}. Leave it out for a number that is hard to reach blindly."
            )
        enough = shared >= n_right
        return TrainedOverlap(
            target=target,
            model=learn_noise(target, shadow),
            enough=enough,
            prior=float((weights @ enough).max()),
            notes=(
                f"k = {n_right} of about {int(target.pool.sizes().mean())} members; guesses are "
                f"{n_guesses} of the {m} candidates, blind success is the best of these",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedOverlap:
    """Which guesses would be right for which candidate; curator-only."""

    target: Target
    model: NoiseModel
    enough: npt.NDArray[np.bool_]
    prior: float
    notes: tuple[str, ...]

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """The only question."""
        return (Guess(prior=min(1.0, self.prior), is_membership=False),)

    def hits(self, releases: Releases) -> Hits:
        """Make the guess that is right with the highest posterior probability."""
        score = self.enough.astype(np.float64)
        right = np.empty((len(releases), 1), dtype=np.bool_)
        for chosen, posterior in posteriors(self.target, self.model, releases):
            guess = (posterior @ score).argmax(axis=1)
            right[chosen, 0] = self.enough[releases.indices[chosen], guess]
        return right


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeOverlap:
    """Guess the half of the units that is likeliest to be in; right if k of them are.

    By default k is the smallest number for which the bound on blind success is at most
    ``blind_rate``.
    """

    n_right: int | None = None
    blind_rate: float = 0.25
    name: str = "free_overlap"
    question: str = "half of the units, k of them in"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> TrainedFreeOverlap:
        """Bound blind success and choose k; the posterior does the rest."""
        n_named = target.pool.n_units // 2
        priors = np.minimum(1.0, blind_bounds(target, n_named))
        n_right = self.n_right
        if n_right is None:
            n_right = 1 + int(np.argmax(priors <= max(self.blind_rate, float(priors.min()))))
        elif not 1 <= n_right <= n_named:
            raise AuditError(
                f"n_right must be between 1 and {n_named}, half of the units; got {n_right}. "
                f"Leave it out for a number that is hard to reach blindly."
            )
        return TrainedFreeOverlap(
            target=target,
            model=learn_noise(target, shadow),
            n_named=n_named,
            n_right=n_right,
            prior=float(priors[n_right - 1]),
            notes=(
                f"k = {n_right} of {n_named} units named; blind success is an upper bound over "
                "all sets of that size",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedFreeOverlap:
    """The attack on half of the units; curator-only."""

    target: Target
    model: NoiseModel
    n_named: int
    n_right: int
    prior: float
    notes: tuple[str, ...]

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """The only question."""
        return (Guess(prior=self.prior, is_membership=False),)

    def hits(self, releases: Releases) -> Hits:
        """Name the units of highest posterior probability: this maximises the expected overlap."""
        n_units = self.target.pool.n_units
        right = np.empty((len(releases), 1), dtype=np.bool_)
        for chosen, posterior in posteriors(self.target, self.model, releases, width=n_units):
            inside = np.empty((len(posterior), n_units))
            for units in unit_blocks(n_units):
                inside[:, units] = unit_probabilities(self.target, posterior, units)
            named = np.argpartition(-inside, self.n_named - 1, axis=1)[:, : self.n_named]
            found = [
                int(self.target.pool.mask(int(k))[units].sum())
                for k, units in zip(releases.indices[chosen], named, strict=True)
            ]
            right[chosen, 0] = np.array(found) >= self.n_right
        return right


def _smallest_count(shared: npt.NDArray[np.float32], weights: Vector, blind_rate: float) -> int:
    """Return the smallest number of shared units that is rare for every guess of the list."""
    low, high = 1, int(shared.max())
    lowest = float((weights @ (shared >= high)).max())
    while low < high:
        middle = (low + high) // 2
        if float((weights @ (shared >= middle)).max()) <= max(blind_rate, lowest):
            high = middle
        else:
            low = middle + 1
    return high


def blind_bounds(target: Target, n_named: int) -> Vector:
    """Bound the best blind chance that ``n_named`` units hold at least k members, for each k.

    The overlap of a fixed set with the secret subset has mean at most ``M`` (the likeliest units)
    and variance at most ``V = λ |a|²``, ``λ`` the largest eigenvalue of the covariance of
    memberships over the pool and ``a`` the part of the set's indicator that can vary. Cantelli's
    inequality gives ``V / (V + (k - M)²)``; where subsets come in complement pairs the overlap is
    symmetric about half of ``n_named``, and Chebyshev's gives ``V / 2(k - M)²``.

    Guarantee
    ---------
    Claim U-2. Assumes that the index follows ``target.log_p``. No set of ``n_named`` units chosen
    without a release holds k members with a higher probability.
    """
    counts = np.arange(1, n_named + 1, dtype=np.float64)
    weights = np.exp(target.log_p)
    m, n_units = target.pool.n_subsets, target.pool.n_units
    inside = np.concatenate([weights @ target.members(units) for units in unit_blocks(n_units)])
    mean = float(np.sort(inside)[::-1][:n_named].sum()) * (1 + ROUNDING)
    paired = target.pool.complement_pairs and bool(np.ptp(target.log_p) == 0.0)
    bounds = np.ones(n_named)
    if min(m, n_units) <= MAX_DECOMPOSITION and m * n_units <= MAX_CELLS:
        members = target.members(slice(0, n_units))
        variance = _largest_variance(members - inside, weights, n_named)
        beyond = np.maximum(counts - mean, 0.0)
        bounds = variance / (variance + beyond**2)
        if paired:
            bounds = np.minimum(bounds, variance / (2 * np.maximum(beyond, 1e-9) ** 2))
    if paired:
        bounds[counts > mean] = np.minimum(bounds[counts > mean], 0.5)
    return bounds


def _largest_variance(centred: Matrix, weights: Vector, n_named: int) -> float:
    """Bound the variance of the overlap over all sets of ``n_named`` units."""
    scaled = np.sqrt(weights)[:, None] * centred
    n_units = centred.shape[1]
    small = scaled @ scaled.T if len(scaled) < n_units else scaled.T @ scaled
    largest = float(np.linalg.eigvalsh(small)[-1])
    length = float(n_named)
    if np.abs(scaled.sum(axis=1)).max() <= ROUNDING:  # all subsets have one size
        length = n_named * (1 - n_named / n_units)
    return max(0.0, largest) * length * (1 + ROUNDING) + ROUNDING


N_CHECKED = 200
NEIGHBOURS = (0, -1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Guess one unit's membership by Bayes' rule and by the bits of the release."""

    n_attacked: int = 1
    name: str = "precision"
    question: str = "one unit: in or out"
    fresh_secrets: bool = False

    def train(self, target: Target, shadow: Releases) -> TrainedPrecision:
        """Find out which test of the bits the true candidate always passes, then whom to attack."""
        if target.simulated:
            raise AuditError(
                "precision must attack a procedure that really runs; got a simulation of a noise "
                "law, which has bits of its own. Use Target.of(outputs, pool, release_fn)."
            )
        model = learn_noise(target, shadow)
        trained = TrainedPrecision(
            target=target,
            model=model,
            tested=_tested_columns(target, shadow.part(slice(0, N_CHECKED))),
            units=np.arange(target.pool.n_units, dtype=np.int64),
        )
        certainty = np.zeros(target.pool.n_units)
        for _, posterior in trained.posteriors(shadow):
            for units in unit_blocks(target.pool.n_units):
                inside = unit_probabilities(target, posterior, units)
                certainty[units] += np.maximum(inside, 1.0 - inside).sum(axis=0)
        return TrainedPrecision(
            target=target,
            model=model,
            tested=trained.tested,
            units=worst_units(certainty, self.n_attacked),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPrecision:
    """Posterior and possible bits; curator-only."""

    target: Target
    model: NoiseModel
    tested: tuple[Integers, Integers]
    units: Integers

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """One question for each chosen unit."""
        return member_guesses(self.target, self.units)

    @property
    def notes(self) -> tuple[str, ...]:
        """How many coordinates have bits that can be read."""
        sums, products = (len(columns) for columns in self.tested)
        return (f"sums of floats tested in {sums} coordinates, products in {products}",)

    def posteriors(self, releases: Releases) -> Iterator[tuple[slice, Matrix]]:
        """Yield the posterior without the candidates that the bits rule out."""
        for chosen, posterior in posteriors(self.target, self.model, releases):
            weights = posterior * self._possible(releases.seen[chosen])
            with np.errstate(divide="ignore"):
                logs = np.log(weights)
            yield chosen, normalise(logs)

    def hits(self, releases: Releases) -> Hits:
        """Say *in* where the posterior probability is at least one half."""
        right = np.empty((len(releases), len(self.units)), dtype=np.bool_)
        members = self.target.members(self.units)
        for chosen, posterior in self.posteriors(releases):
            inside = unit_probabilities(self.target, posterior, self.units)
            right[chosen] = (inside >= 0.5) == members[releases.indices[chosen]]
        return right

    def _possible(self, seen: Matrix) -> npt.NDArray[np.bool_]:
        """Return which candidates could have given which release, shape (N, m)."""
        sums, products = self.tested
        centres = self.target.centres[self.target.known]
        possible = np.ones((len(seen), len(centres)), dtype=np.bool_)
        for column in sums:
            std = None
            if column in products and self.target.declared_std is not None:
                std = self.target.declared_std[column]
            possible &= reachable(seen[:, column, None], centres[None, :, column], std)
        return possible


def _tested_columns(target: Target, shadow: Releases) -> tuple[Integers, Integers]:
    """Return the coordinates in which the truth always passes: for sums, and for products too."""
    centres = target.centres[shadow.indices]
    columns = range(centres.shape[1])
    sums = [c for c in columns if reachable(shadow.seen[:, c], centres[:, c], None).all()]
    products = [
        c
        for c in sums
        if target.declared_std is not None
        and reachable(shadow.seen[:, c], centres[:, c], target.declared_std[c]).all()
    ]
    return np.array(sums, dtype=np.int64), np.array(products, dtype=np.int64)


def reachable(seen: Matrix | Vector, centre: Matrix | Vector, std: float | None) -> Hits:
    """Return whether ``fl(centre + fl(std x)) = seen`` for some float x; any float if no std."""
    nearest = seen - centre
    possible = np.zeros(nearest.shape, dtype=np.bool_)
    for step in NEIGHBOURS:
        noise = _neighbour(nearest, step)
        fits = centre + noise == seen
        if std is not None:
            fits &= _is_product(noise, std)
        possible |= fits
    return possible


def _is_product(noise: Matrix | Vector, std: float) -> Hits:
    """Return whether the noise is a float product of ``std`` and some float."""
    if not std > 0:
        return np.ones(noise.shape, dtype=np.bool_)
    ratio = noise / std
    found = np.zeros(noise.shape, dtype=np.bool_)
    for step in NEIGHBOURS:
        found |= std * _neighbour(ratio, step) == noise
    return found


def _neighbour(values: Matrix | Vector, step: int) -> Matrix | Vector:
    return values if step == 0 else np.nextafter(values, step * np.inf)
