"""The attack on the low bits of floats: rule out candidates that cannot give these digits.

Noise that is computed as a float product and added as floats cannot reach every float. For a
candidate with output ``y`` a release ``z`` is possible only if some float ``b`` has
``fl(y + b) = z`` and, where the noise is ``fl(std · x)``, some float ``x`` has
``fl(std · x) = b``. The true candidate always passes; others often do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.audit.attack import Guess, Hits, member_guesses
from pacprivacy.audit.posterior import (
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

__all__ = ["Precision"]

N_CHECKED = 200
NEIGHBOURS = (0, -1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Guess one unit's membership by Bayes' rule and by the bits of the release.

    Examples
    --------
    >>> Precision(n_attacked=4).question
    'one unit: in or out'
    """

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
