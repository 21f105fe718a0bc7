"""Attacks on one unit's membership and on the subset: Bayes' rule, shadow releases, float bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

import numpy as np

from pacprivacy._checks import (
    Integers,
    Mask,
    Matrix,
    Vector,
)
from pacprivacy.audit.target import (
    Blocks,
    Releases,
    Target,
    learn_noise_model,
    noise_model_axes,
    noise_model_posteriors,
    noise_model_unit_blocks,
    noise_model_units,
    noise_model_weights,
)
from pacprivacy.errors import AuditError

TRAINING_PRODUCTS = 10**11  # multiplications spent on choosing whom to attack


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """One question that a trained attack answers on every release.

    ``prior`` is the best blind success, or an upper bound: one that is too large can only hide a
    violation. A ``unit`` is used or left out with even odds.
    """

    prior: float
    unit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trials:
    """Which guesses of an attack were right, and the promised bound; curator-only."""

    attack: str
    question: str
    right: Mask = field(repr=False)
    bound: float
    prior: float = 0.5
    notes: tuple[str, ...] = ()
    unit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A trained attack: ``hits(releases)``, shape (N, n_guesses), judges it; curator-only."""

    guesses: tuple[Guess, ...]
    hits: Callable[[Releases], Mask]
    notes: tuple[str, ...] = ()


class Attack(Protocol):
    """An attack by name; a frozen record of its settings."""

    @property
    def name(self) -> str: ...

    @property
    def question(self) -> str: ...

    def train(self, target: Target, shadow: Releases) -> Trained:
        """Choose targets and strategy on releases that have no other use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bayes:
    """Guess one unit's membership by the posterior over all candidates.

    The ``n_attacked`` units that are easiest in training are attacked; the interval allows for it.
    """

    n_attacked: int = 1
    name: str = "bayes"
    question: str = "one unit: in or out"

    def train(self, target: Target, shadow: Releases) -> Trained:
        see = partial(noise_model_posteriors, target, learn_noise_model(target, shadow))
        cost = len(target.centers) * target.pool.n_units
        enough = shadow.part(slice(0, max(200, TRAINING_PRODUCTS // cost)))
        return _ask_easiest(target, see, enough, self.n_attacked)


def _ask_easiest(
    target: Target,
    see: Callable[[Releases], Blocks],
    shadow: Releases,
    n_attacked: int,
    notes: tuple[str, ...] = (),
) -> Trained:
    """Attack the units with the largest changes of posterior; guess *in* if it grew."""
    moved = np.zeros(target.pool.n_units)
    for _, posterior in see(shadow):
        for block in noise_model_unit_blocks(target.pool.n_units):
            share = target.shares(block)
            shift = np.abs(noise_model_units(target, posterior, block) - share).sum(axis=0)
            moved[block] += shift / (share * (1 - share))
    units = _worst_units(moved, n_attacked)
    members, cut = target.members(units), target.shares(units)

    def hits(releases: Releases) -> Mask:
        right = np.empty((len(releases), len(units)), dtype=np.bool_)
        for chosen, posterior in see(releases):
            inside = noise_model_units(target, posterior, units)
            right[chosen] = (inside >= cut) == members[releases.indices[chosen]]
        return right

    return attack_members(target, units, hits, notes)


def _worst_units(success_per_unit: Vector, n_attacked: int) -> Integers:
    return np.argsort(-success_per_unit, kind="stable")[:n_attacked].astype(np.int64)


Score = Literal["gaussian", "empirical"]
MAX_GROUPS = 64
SMALLEST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodRatio:
    """Shadow releases with and without each unit; the easiest ``n_attacked`` are attacked.

    ``score="gaussian"`` compares Gaussian densities of the score; ``"empirical"`` cuts where the
    empirical distribution functions differ most. A unit's score is how far a release lies along
    its shift of the mean; or that of LiRA, with ``confidence``: a function from releases, shape (N,
    q), to a score of each unit's record by each released model, shape (N, n_units), such as the
    log-odds of its label.
    """

    score: Score = "gaussian"
    confidence: Callable[[Matrix], Matrix] | None = None
    n_attacked: int = 1
    name: str = "likelihood_ratio"
    question: str = "one unit: in or out"

    def train(self, target: Target, shadow: Releases) -> Trained:
        if self.confidence is not None:
            return self._train_on_confidence(target, shadow, self.confidence)
        half = len(shadow) // 2
        first, second = shadow.part(slice(0, half)), shadow.part(slice(half, None))
        lens = _Lens.learn(first)
        whitened, later = lens.look(first), lens.look(second)
        blocks = []
        for units in noise_model_unit_blocks(target.pool.n_units):
            members = target.members(units)
            directions = attack_mean_shifts(whitened, members[first.indices])
            blocks.append((directions, self._fit(later @ directions.T, members[second.indices])))
        directions = np.concatenate([d for d, _ in blocks])
        laws = np.concatenate([law for _, law in blocks], axis=1)
        return self._attack_worst(
            target, laws, lambda releases, units: lens.look(releases) @ directions[units].T
        )

    def _train_on_confidence(
        self, target: Target, shadow: Releases, confidence: Callable[[Matrix], Matrix]
    ) -> Trained:
        n_units = target.pool.n_units
        scores = np.asarray(confidence(shadow.values), dtype=np.float64)
        if scores.shape != (len(shadow), n_units) or not np.isfinite(scores).all():
            raise AuditError(
                "confidence must return one finite number for each release and unit, shape "
                f"({len(shadow)}, {n_units}); got {scores.shape}."
            )
        laws = self._fit(scores, target.members(slice(0, n_units))[shadow.indices])
        return self._attack_worst(
            target,
            laws,
            lambda releases, units: np.asarray(confidence(releases.values))[:, units],
        )

    def _fit(self, scores: Matrix, members: Mask) -> Matrix:
        """Return the laws of scores of every unit; the first line is the success in training."""
        fit = fit_gaussian_attack if self.score == "gaussian" else fit_empirical_attack
        return fit(scores, members)

    def _attack_worst(
        self, target: Target, laws: Matrix, scores: Callable[[Releases, Integers], Matrix]
    ) -> Trained:
        units = _worst_units(laws[0], self.n_attacked)
        says_in = gaussian_attack_guess if self.score == "gaussian" else empirical_attack_guess
        members = target.members(units)

        def hits(releases: Releases) -> Mask:
            guesses = says_in(scores(releases, units), laws[:, units])
            right: Mask = guesses == members[releases.indices]
            return right

        return attack_members(target, units, hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lens:
    """Standard coordinates of releases, whitened by the spread of all shadow releases."""

    center: Vector
    whiten: Matrix
    groups: Integers

    @classmethod
    def learn(cls, shadow: Releases) -> _Lens:
        groups = np.empty(0, dtype=np.int64)
        if shadow.groups is not None:
            groups = np.unique(shadow.groups)[:MAX_GROUPS].astype(np.int64)
        features = _features(shadow, groups)
        center = features.mean(axis=0)
        centered = features - center
        variances, axes = noise_model_axes(centered)
        moving = variances > SMALLEST * variances.max(initial=0.0)
        whiten = axes[:, moving] / np.sqrt(variances[moving])
        return cls(center=center, whiten=whiten, groups=groups)

    def look(self, releases: Releases) -> Matrix:
        white: Matrix = (_features(releases, self.groups) - self.center) @ self.whiten
        return white


def _features(releases: Releases, groups: Integers) -> Matrix:
    if releases.groups is None or not len(groups):
        return releases.values
    revealed = releases.groups[:, None] == groups[None, :]
    return np.concatenate([releases.values, revealed.astype(np.float64)], axis=1)


def attack_mean_shifts(whitened: Matrix, members: Mask) -> Matrix:
    """Return the shift of the mean of whitened releases by each unit, shape (n_units, q)."""
    inside = members.astype(np.float64)
    n_in = inside.sum(axis=0)
    n_out = len(whitened) - n_in
    sums_in = inside.T @ whitened
    sums_out = whitened.sum(axis=0) - sums_in
    shifts: Matrix = (
        sums_in / np.maximum(n_in, 1)[:, None] - sums_out / np.maximum(n_out, 1)[:, None]
    )
    shifts[(n_in == 0) | (n_out == 0)] = 0.0
    return shifts


def fit_gaussian_attack(scores: Matrix, members: Mask) -> Matrix:
    inside = members.astype(np.float64)
    n_in = np.maximum(inside.sum(axis=0), 1.0)
    n_out = np.maximum(len(scores) - n_in, 1.0)
    total, total_sq = scores.sum(axis=0), np.square(scores).sum(axis=0)
    sum_in, sum_sq_in = (inside * scores).sum(axis=0), (inside * np.square(scores)).sum(axis=0)
    mean_in, mean_out = sum_in / n_in, (total - sum_in) / n_out
    var_in = sum_sq_in / n_in - mean_in**2
    var_out = (total_sq - sum_sq_in) / n_out - mean_out**2
    smallest = SMALLEST * np.maximum(total_sq / len(scores), 1e-300)
    laws = np.array(
        [
            np.zeros_like(mean_in),
            mean_in,
            np.sqrt(np.maximum(var_in, smallest)),
            mean_out,
            np.sqrt(np.maximum(var_out, smallest)),
        ]
    )
    right = gaussian_attack_guess(scores, laws) == members
    laws[0] = 0.5 * ((right & members).sum(axis=0) / n_in + (right & ~members).sum(axis=0) / n_out)
    return laws


def gaussian_attack_guess(scores: Matrix, laws: Matrix) -> Mask:
    _, mean_in, std_in, mean_out, std_out = laws
    ratio = 0.5 * np.square((scores - mean_out) / std_out) + np.log(std_out)
    ratio -= 0.5 * np.square((scores - mean_in) / std_in) + np.log(std_in)
    says_in: Mask = ratio >= 0
    return says_in


def fit_empirical_attack(scores: Matrix, members: Mask) -> Matrix:
    """Find the cut at which the empirical distribution functions are furthest apart."""
    order = np.argsort(scores, axis=0, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=0)
    inside = np.take_along_axis(members, order, axis=0)
    edge = np.zeros((1, scores.shape[1]))
    out_below = np.concatenate([edge, np.cumsum(~inside, axis=0)])
    in_below = np.concatenate([edge, np.cumsum(inside, axis=0)])
    n_out, n_in = np.maximum(out_below[-1], 1), np.maximum(in_below[-1], 1)
    right = 0.5 * (out_below / n_out + (in_below[-1] - in_below) / n_in)
    best = right.argmax(axis=0)
    bounds = np.concatenate([edge - np.inf, 0.5 * (ranked[1:] + ranked[:-1]), edge + np.inf])
    columns = np.arange(scores.shape[1])
    return np.array([right[best, columns], bounds[best, columns]])


def empirical_attack_guess(scores: Matrix, laws: Matrix) -> Mask:
    says_in: Mask = scores >= laws[1]
    return says_in


N_CHECKED = 200
NEIGHBOURS = (0, -1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Guess one unit's membership by Bayes' rule and by the bits of the release."""

    n_attacked: int = 1
    name: str = "precision"
    question: str = "one unit: in or out"

    def train(self, target: Target, shadow: Releases) -> Trained:
        if target.simulated:
            raise AuditError(
                "precision must attack a procedure that really runs; got a simulation of a noise "
                "law, which has bits of its own. Use Target.of(outputs, pool, release_fn)."
            )
        model = learn_noise_model(target, shadow)
        sums, products = _tested_columns(target, shadow.part(slice(0, N_CHECKED)))

        def see(releases: Releases) -> Blocks:
            for chosen, posterior in noise_model_posteriors(target, model, releases):
                possible = _possible(target, releases.values[chosen], sums, products)
                with np.errstate(divide="ignore"):
                    logs = np.log(posterior * possible)
                yield chosen, noise_model_weights(logs)

        note = f"sums of floats tested in {len(sums)} coordinates, products in {len(products)}"
        return _ask_easiest(target, see, shadow, self.n_attacked, (note,))


def _possible(target: Target, released: Matrix, sums: Integers, products: Integers) -> Mask:
    """Return which candidates could have given which release, shape (N, m)."""
    centers = target.centers
    possible = np.ones((len(released), len(centers)), dtype=np.bool_)
    for column in sums:
        std = None
        if column in products and target.declared_std is not None:
            std = target.declared_std[column]
        possible &= attack_reachable(released[:, column, None], centers[None, :, column], std)
    return possible


def _tested_columns(target: Target, shadow: Releases) -> tuple[Integers, Integers]:
    """Return the coordinates in which the truth always passes: for sums, and for products too."""
    centers = target.centers[shadow.indices]
    columns = range(centers.shape[1])
    sums = [c for c in columns if attack_reachable(shadow.values[:, c], centers[:, c], None).all()]
    products = [
        c
        for c in sums
        if target.declared_std is not None
        and attack_reachable(shadow.values[:, c], centers[:, c], target.declared_std[c]).all()
    ]
    return np.array(sums, dtype=np.int64), np.array(products, dtype=np.int64)


def attack_reachable(released: Matrix | Vector, center: Matrix | Vector, std: float | None) -> Mask:
    """Return whether ``fl(center + fl(std x)) = released`` for a float x; always if std is 0."""
    nearest = released - center
    possible = np.zeros(nearest.shape, dtype=np.bool_)
    for step in NEIGHBOURS:
        noise = _neighbour(nearest, step)
        fits = center + noise == released
        if std is not None:
            fits &= _is_product(noise, std)
        possible |= fits
    return possible


def _is_product(noise: Matrix | Vector, std: float) -> Mask:
    """Return whether the noise is a float product of ``std`` and a float."""
    if not std > 0:
        return np.ones(noise.shape, dtype=np.bool_)
    ratio = noise / std
    product = np.zeros(noise.shape, dtype=np.bool_)
    for step in NEIGHBOURS:
        product |= std * _neighbour(ratio, step) == noise
    return product


def _neighbour(values: Matrix | Vector, step: int) -> Matrix | Vector:
    return values if step == 0 else np.nextafter(values, step * np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Name the subset that was used: the candidate of highest posterior probability."""

    name: str = "naming"
    question: str = "the subset that was used"

    def train(self, target: Target, shadow: Releases) -> Trained:
        model = learn_noise_model(target, shadow)

        def hits(releases: Releases) -> Mask:
            right = np.empty((len(releases), 1), dtype=np.bool_)
            for chosen, posterior in noise_model_posteriors(target, model, releases):
                right[chosen, 0] = posterior.argmax(axis=1) == releases.indices[chosen]
            return right

        return Trained(guesses=(Guess(prior=float(np.exp(target.log_p.max()))),), hits=hits)


def attack_members(
    target: Target, units: Integers, hits: Callable[[Releases], Mask], notes: tuple[str, ...] = ()
) -> Trained:
    chances = (target.odds(int(unit))[0] for unit in units)
    guesses = tuple(
        Guess(prior=max(chance, 1 - chance), unit=int(unit))
        for unit, chance in zip(units, chances, strict=True)
    )
    return Trained(guesses=guesses, hits=hits, notes=notes)
