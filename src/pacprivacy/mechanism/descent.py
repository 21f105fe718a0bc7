"""Descent on losses of linear scores, without noise or coins.

Features are centred, clipped and turned into directions of about equal spread, and then rounded to
whole numbers. A gradient of one row is its slopes, whole numbers too, times its features. So sums
of gradients are exact, and the norm of a row's gradient is a product of two norms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import (
    Array,
    Integers,
    Matrix,
    Vector,
    as_told,
    check_count,
    fixed_mechanism,
)
from pacprivacy._rounding import power_of_two, two_digits
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import (
    CLASS_LABELS,
    Classes,
    Data,
    Parts,
    code_data_labels,
    find_data_classes,
    read_labelled_data,
)
from pacprivacy.mechanism.mechanism import Mechanism, mechanism_layers

LossName: TypeAlias = Literal["logistic", "softmax", "squared", "hinge", "poisson", "quantile"]
FEATURE_BITS: Final = 12  # features are whole multiples of 2^-12 deviations
# DAMPING, RATES, ROBUST_RADII, RADII and the defaults of Descent (60 steps, clip=4) were chosen by
# looking at Adult, Bank, Rice, Dry Bean, breast cancer and MNIST.
DAMPING: Final = 1e-2  # least spread of a direction that is brought to 1, of a column's
NO_SPREAD: Final = 1e-6  # of a column's; directions below it are left out
LARGEST_FEATURE: Final = 1e100  # so that squares of many do not overflow
LARGEST_LOG_RATE: Final = 30.0
RATES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # steps that are tried, over the inverse curvature
STABLE_RATE: Final = 1.5
# Gradients that are clipped to a norm below that of most rows are those of a loss that grows more
# slowly: less noise, and a classifier that mislabelled rows bend less.
ROBUST_RADII: Final = (0.25, 0.5, 1.0, 2.0)
RADII: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_TINY: Final = 1e-300
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "rate": (_TINY, 1e6),
    "radius": (1e-3, 1e6),
    "momentum": (0.0, 0.999),
    "average": (0.0, 1.0),
    "penalty": (0.0, 1e6),
    "clip": (0.1, 1e6),
    "level": (1e-3, 1 - 1e-3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentLoss:
    """A loss of scores, and its slopes; ``curvature`` bounds its second derivative, or nearly.

    ``slopes`` and ``values`` (one a row) take scores and targets of shape (rows, scores). ``bends``
    is the second derivative, where there is one score and it has one.
    """

    slopes: Callable[[Matrix, Matrix], Matrix]
    values: Callable[[Matrix, Matrix], Vector]
    curvature: float
    classifies: bool = False
    sums_to_zero: bool = False  # slopes of a row
    bends: Callable[[Matrix], Matrix] | None = None


def _expit(scores: Matrix) -> Matrix:  # scipy's is slow to import
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * scores))


def _softmax_slopes(scores: Matrix, targets: Matrix) -> Matrix:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True) - targets)


def _softmax_values(scores: Matrix, targets: Matrix) -> Vector:
    largest = scores.max(axis=1)
    total = np.log(np.exp(scores - largest[:, None]).sum(axis=1)) + largest
    return np.asarray(total - (scores * targets).sum(axis=1))


def _rates(scores: Matrix) -> Matrix:
    return np.asarray(np.exp(np.minimum(scores, LARGEST_LOG_RATE)))


def _quantile_loss(level: float) -> DescentLoss:
    def values(scores: Matrix, targets: Matrix) -> Vector:
        above = targets - scores
        return np.asarray(np.maximum(level * above, (level - 1.0) * above).sum(axis=1))

    return DescentLoss(
        slopes=lambda scores, targets: np.where(scores > targets, 1.0 - level, -level),
        values=values,
        curvature=1.0,
    )


_LOSSES: Final[Mapping[str, DescentLoss]] = {
    "logistic": DescentLoss(
        slopes=lambda scores, targets: _expit(scores) - targets,
        values=lambda scores, targets: (np.logaddexp(0.0, scores) - targets * scores).sum(axis=1),
        curvature=0.25,
        classifies=True,
        bends=lambda scores: _expit(scores) * _expit(-scores),
    ),
    "softmax": DescentLoss(
        slopes=_softmax_slopes,
        values=_softmax_values,
        curvature=0.5,
        classifies=True,
        sums_to_zero=True,
    ),
    "hinge": DescentLoss(
        slopes=lambda scores, targets: np.where(
            (2 * targets - 1) * scores < 1, 1 - 2 * targets, 0.0
        ),
        values=lambda scores, targets: np.maximum(0, 1 - (2 * targets - 1) * scores).sum(axis=1),
        curvature=1.0,
        classifies=True,
    ),
    "squared": DescentLoss(
        slopes=lambda scores, targets: scores - targets,
        values=lambda scores, targets: np.square(scores - targets).sum(axis=1) / 2.0,
        curvature=1.0,
        bends=np.ones_like,
    ),
    "poisson": DescentLoss(
        slopes=lambda scores, targets: _rates(scores) - targets,
        values=lambda scores, targets: (_rates(scores) - targets * scores).sum(axis=1),
        curvature=2.0,
        bends=_rates,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentFeatures:
    """Maps columns to whole features with a constant, and weights back to coefficients.

    ``lower`` and ``upper`` are where columns are clipped. Centres are rounded to eighths of
    deviations, deviations up to two digits; ``matrix`` is exact, of all rows.
    """

    lower: Vector
    upper: Vector
    centre: Vector
    matrix: Matrix

    @classmethod
    def of(cls, X: Matrix, *, clip: float | None, directions: bool) -> Self:
        """Measure all rows."""
        largest = np.abs(X).max(axis=0, initial=0.0)
        if not largest.max(initial=0.0) < LARGEST_FEATURE:
            raise MechanismError(
                f"features must be smaller than {LARGEST_FEATURE:g}; got a larger one. Clip them, "
                "or take logarithms."
            )
        spread = X.std(axis=0)
        flat = ~(spread > 1e-12 * largest)
        scale = np.array([two_digits(float(size)) for size in np.where(flat, 1.0, spread)])
        centre = np.rint(8.0 * X.mean(axis=0) / scale) * scale / 8.0
        reach = np.full(X.shape[1], math.inf if clip is None else clip) * scale
        lower, upper = centre - reach, centre + reach
        matrix = np.diag(np.where(flat, 0.0, 1.0 / scale))
        if directions:
            moved = (np.clip(X, lower, upper) - centre) @ matrix
            size = np.sqrt(np.maximum(np.square(moved).mean(axis=0), _TINY))
            moved, matrix = moved / size, matrix / size
            values, vectors = np.linalg.eigh(moved.T @ moved / len(X))
            kept = values > NO_SPREAD
            matrix = matrix @ (vectors[:, kept] / np.sqrt(values[kept] + DAMPING))
        return cls(lower=lower, upper=upper, centre=centre, matrix=matrix)

    @property
    def n_weights(self) -> int:
        """Number of features with the constant."""
        return int(self.matrix.shape[1]) + 1

    def moved(self, X: Matrix) -> Matrix:
        """Return clipped, centred and scaled features."""
        return np.asarray((np.clip(X, self.lower, self.upper) - self.centre) @ self.matrix)

    def whole(self, X: Matrix) -> Matrix:
        """Return features in steps of ``2^-FEATURE_BITS``, whole numbers, the constant last."""
        moved = self.moved(X)
        rows = np.empty((len(X), self.n_weights))
        np.rint(np.ldexp(moved, FEATURE_BITS), out=rows[:, :-1])
        rows[:, -1] = float(1 << FEATURE_BITS)
        return rows

    def coefficients(self, weights: Matrix) -> tuple[Matrix, Vector]:
        """Return coefficients of the columns, one line a score, and intercepts."""
        coef = self.matrix @ weights[:-1]
        return coef.T.copy(), np.asarray(weights[-1] - self.centre @ coef)


class StepProblem(ABC):
    """Rows of a mechanism that takes steps along sums, and their contributions."""

    __slots__ = ()

    @property
    @abstractmethod
    def arrays(self) -> tuple[Matrix, ...]:
        """All that it knows of the rows, one line for each."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of features and of scores, the shape of the weights."""

    @abstractmethod
    def ordered(self, order: npt.NDArray[np.int64]) -> Self:
        """Return the problem with its rows in this order."""

    @abstractmethod
    def step(self, weights: Matrix) -> tuple[Matrix, Matrix]:
        """Return whole features and slopes of all rows; a row adds their outer product."""

    @abstractmethod
    def mean_loss(self, weights: Matrix) -> float:
        """Return the mean loss over all rows."""

    def hessian(self, weights: Matrix, of: Vector) -> Matrix | None:
        """Return second derivatives of one score's mean loss, by shares of rows; None: unknown."""
        return None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.arrays[0].shape[0])


@dataclass(slots=True, kw_only=True, eq=False)
class StepPath(ABC):
    """Weights on their way: moved by sums that were released, and by nothing else."""

    settings: StepMechanism
    weights: Matrix
    total: Matrix | float = 0.0
    n_moves: int = 0
    n_averaged: int = 0

    def move(self, mean: Matrix, noise_std: float) -> None:
        """Take a step, given the sum over all rows divided by their number, and its noise."""
        self.weights = self.following(mean, noise_std)
        self.n_moves += 1
        if self.n_moves > self.settings.n_steps * (1.0 - self.settings.average):
            self.total = self.total + self.weights
            self.n_averaged += 1

    @abstractmethod
    def following(self, mean: Matrix, noise_std: float) -> Matrix:
        """Return the weights after a step."""

    @property
    def result(self) -> Matrix:
        """The released value after the last step: the mean over the last weights."""
        return np.asarray(self.total / self.n_averaged) if self.n_averaged else self.weights


class StepMechanism(Mechanism):
    """A mechanism of a fixed number of steps along sums; with coins every step has noise."""

    n_steps: int
    n_batches: int = 1
    momentum: float = 0.0
    average: float = 0.5
    penalty: float = 0.0
    errors: bool = False

    @property
    @abstractmethod
    def radii(self) -> tuple[float, ...]:
        """Norms of a unit's gradient that spend the budget, to be rehearsed."""

    @property
    @abstractmethod
    def trials(self) -> tuple[float, ...]:
        """Settings of a path that are rehearsed; the one with the least mean loss is taken."""

    @property
    def plain_trial(self) -> float:
        """Setting of a path without noise, on which gradients are not shortened."""
        return self.trials[-1]

    @abstractmethod
    def problem(self, parts: Parts) -> StepProblem:
        """Return rows as the steps need them; the mechanism is prepared."""

    @abstractmethod
    def path(self, shape: tuple[int, int], trial: float) -> StepPath:
        """Return where the steps begin."""

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Matrix:
        """Take the steps on one subset, without noise."""
        problem = self.problem(parts)
        path = self.path(problem.shape, self.plain_trial)
        for _ in range(self.n_steps):
            rows, slopes = problem.step(path.weights)
            path.move(np.ldexp(rows.T @ (slopes / len(rows)), -FEATURE_BITS), 0.0)
        return path.result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearProblem(StepProblem):
    """Whole features with a constant, targets, and a loss of linear scores."""

    rows: Matrix = field(repr=False)
    targets: Matrix = field(repr=False)
    loss: DescentLoss = field(repr=False)

    @property
    def arrays(self) -> tuple[Matrix, ...]:
        return self.rows, self.targets

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[1], self.targets.shape[1]

    def ordered(self, order: npt.NDArray[np.int64]) -> Self:
        return replace(self, rows=self.rows[order], targets=self.targets[order])

    def step(self, weights: Matrix) -> tuple[Matrix, Matrix]:
        slopes = np.asarray(self.loss.slopes(self._scores(weights), self.targets))
        if not np.isfinite(slopes).all():
            raise MechanismError(
                "slopes must stay finite; they do not. Use smaller steps: rate=0.1."
            )
        return self.rows, slopes

    def mean_loss(self, weights: Matrix) -> float:
        return float(np.mean(self.loss.values(self._scores(weights), self.targets)))

    def hessian(self, weights: Matrix, of: Vector) -> Matrix | None:
        if self.loss.bends is None or weights.shape[1] != 1:
            return None
        shares = self.loss.bends(self._scores(weights)) * of[:, None]
        bent = np.ldexp(self.rows, -2 * FEATURE_BITS) * shares
        return np.asarray(self.rows.T @ bent / self.n_rows)

    def _scores(self, weights: Matrix) -> Matrix:
        return np.asarray(self.rows @ np.ldexp(weights, -FEATURE_BITS))


@dataclass(slots=True, kw_only=True, eq=False)
class DescentPath(StepPath):
    """Weights that follow gradients of the mean loss."""

    rate: float
    centred: bool = False
    velocity: Matrix | float = 0.0

    def following(self, mean: Matrix, noise_std: float) -> Matrix:
        if self.centred:  # what is left of it in all scores alike is noise
            mean = mean - mean.mean(axis=1, keepdims=True)
        pull = self.settings.penalty * self.weights
        pull[-1] = 0.0
        self.velocity = self.settings.momentum * self.velocity + mean + pull
        return np.asarray(self.weights - self.rate * self.velocity)


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientSteps(StepMechanism):
    """Settings of steps along gradients; :class:`Descent` explains them."""

    n_steps: int = 60
    rate: float | Literal["auto"] = "auto"
    radius: float | Literal["auto"] = "auto"
    n_batches: int = 1
    momentum: float = 0.0
    average: float = 0.5

    def __post_init__(self) -> None:
        check_count("n_steps", self.n_steps, 1, advice="Use about 60.")
        check_count("n_batches", self.n_batches, 1, advice="Use 1.")
        _check_settings(
            rate=1.0 if self.rate == "auto" else self.rate,
            radius=1.0 if self.radius == "auto" else self.radius,
            momentum=self.momentum,
            average=self.average,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Descent(GradientSteps):
    """Weights of a linear model by gradient descent from zero.

    With coins every step is a noisy sum of gradients, and each unit pays for its own. In a pool
    candidates descend without noise between the steps.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared", "hinge", "poisson", "quantile"}, public
        ``logistic`` of several classes is ``softmax``; ``hinge`` of several is one against the
        rest.
    n_steps : int, public
        Number of steps.
    rate : float or "auto", public
        Length of a step, 1 being the inverse of the loss's curvature; with coins "auto" rehearses
        several on all records, with separate noise, and takes the one with the least mean loss.
    radius : float or "auto", public
        Norm of a unit's gradient, in deviations of features, that spends its budget evenly over
        the steps; a larger one is shortened, unless the unit paid less before. "auto" rehearses
        several. A small radius needs little noise and is robust, a large one has little bias.
    n_batches : int, public
        Units are dealt out to so many batches by a public order, and a step sums over one of them.
    momentum : float in [0, 1), public
        Share of the step before that is taken again.
    average : float in [0, 1), public
        The result is the mean of the weights over this share of the steps; 0: the last ones.
    penalty : float, public
        Of ``penalty/2 |w|²`` beside the mean loss, on weights of the scaled features.
    clip : float or None, public
        Features are clipped to so many deviations, here and wherever the model is applied.
    directions : bool, public
        Scale directions and not only columns: fewer steps are needed.
    level : float, public
        Of the quantile loss.
    errors : bool, public
        With coins, measure standard errors where the loss is smooth and has one score: how far
        coins and noise move the end of the steps, to first order.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = (X @ [2.0, -1.0] + rng.logistic(size=2000) > 0).astype(int)
    >>> fit = Descent(loss="logistic")
    >>> release = pac.privatize(fit, (X, y), "membership<=0.6", sample=pac.Coins())
    >>> release.value["coef"].shape, bool(release.value["coef"][0, 0] > 1)
    ((1, 2), True)
    """

    loss: LossName = "logistic"
    penalty: float = 0.0
    clip: float | None = 4.0
    directions: bool = True
    level: float = 0.5
    errors: bool = False
    classes: Classes | None = None
    features: DescentFeatures | None = field(default=None, repr=False)
    target: tuple[float, float] = field(default=(0.0, 1.0), repr=False)  # centre and scale

    def __post_init__(self) -> None:
        if self.loss not in (*_LOSSES, "quantile"):
            raise MechanismError(
                f"loss must be one of {', '.join((*_LOSSES, 'quantile'))}; got "
                f"{as_told(self.loss)}. Use 'logistic' for classes."
            )
        super().__post_init__()
        _check_settings(
            penalty=self.penalty,
            clip=1.0 if self.clip is None else self.clip,
            level=self.level,
        )

    @property
    def name(self) -> str:
        return f"descent, {self.loss} loss, {self.n_steps} steps"

    @property
    def public(self) -> tuple[str, ...]:
        bounds = "not clipped" if self.clip is None else f"clipped at {self.clip:g} deviations"
        return (f"number and length of steps, radius, penalty; features {bounds}",)

    @property
    def published(self) -> tuple[str, ...]:
        what = "scales and directions" if self.directions else "scales"
        facts: tuple[str, ...] = (f"centres, {what} of the features: from all records",)
        if not self._loss.classifies:
            facts += ("centre and scale of the target: from all records, coarse",)
        return facts + (CLASS_LABELS if self._loss.classifies else ())

    @property
    def _loss(self) -> DescentLoss:
        if self.loss == "quantile":
            return _quantile_loss(self.level)
        several = self.loss == "logistic" and self.classes is not None and len(self.classes) > 2
        return _LOSSES["softmax" if several else self.loss]

    @property
    def trials(self) -> tuple[float, ...]:
        relative = RATES if self.rate == "auto" else (float(self.rate),)
        return tuple(rate / self._loss.curvature for rate in relative)

    @property
    def plain_trial(self) -> float:
        return (STABLE_RATE if self.rate == "auto" else float(self.rate)) / self._loss.curvature

    @property
    def radii(self) -> tuple[float, ...]:
        if self.radius != "auto":
            return (float(self.radius),)
        return ROBUST_RADII if self._loss.classifies and not self.errors else RADII

    def prepare(self, data: Data) -> Self:
        X, y = read_labelled_data(data.parts, "descent")
        _check_finite(X, "features")
        if not len(X) or not (X[0] != X).any():
            raise MechanismError(
                "descent must be given features that vary; all rows are the same. Check X."
            )
        features = DescentFeatures.of(X, clip=self.clip, directions=self.directions)
        if self._loss.classifies:
            classes = find_data_classes(y, "descent", self.classes)
            return replace(self, features=features, classes=classes)
        return replace(self, features=features, target=self._scale_target(y))

    def _scale_target(self, y: Array) -> tuple[float, float]:
        numbers = _read_target(y)
        if self.loss == "poisson":
            if not (numbers >= 0).all() or not numbers.any():
                raise MechanismError(
                    "targets must be counts, not negative and not all 0; got other values. "
                    "Use another loss."
                )
            return 0.0, float(power_of_two(np.array(numbers.mean())))
        spread = float(numbers.std())
        scale = float(power_of_two(np.array(spread if spread > 0 else 1.0)))
        return float(np.rint(8 * numbers.mean() / scale)) * scale / 8, scale

    def problem(self, parts: Parts) -> LinearProblem:
        features = fixed_mechanism(self.features, "features")
        X, y = read_labelled_data(parts, "descent")
        if self._loss.classifies:
            classes = fixed_mechanism(self.classes, "classes")
            codes = code_data_labels(y, classes, "descent", every_class=False)
            targets = (codes[:, None] == np.arange(len(classes))).astype(np.float64)
            if len(classes) == 2 and self.loss != "softmax":
                targets = targets[:, 1:]
        else:
            targets = (_read_target(y)[:, None] - self.target[0]) / self.target[1]
        return LinearProblem(rows=features.whole(X), targets=targets, loss=self._loss)

    def path(self, shape: tuple[int, int], trial: float) -> DescentPath:
        centred, weights = self._loss.sums_to_zero, np.zeros(shape)
        return DescentPath(settings=self, rate=trial, weights=weights, centred=centred)

    def finish(self, value: Any) -> dict[str, Any]:
        features = fixed_mechanism(self.features, "features")
        weights = np.asarray(value, dtype=np.float64).reshape(features.n_weights, -1)
        coef, intercept = features.coefficients(weights)
        centre, scale = self.target
        if self.loss == "poisson":
            intercept = intercept + math.log(scale)
        elif not self._loss.classifies:
            coef, intercept = coef * scale, intercept * scale + centre
        fitted: dict[str, Any] = {"coef": coef, "intercept": intercept}
        if self.clip is not None:
            fitted |= {"lower": features.lower, "upper": features.upper}
        if self._loss.classifies:
            fitted["classes"] = self.classes
        return fitted


def _check_settings(**settings: Any) -> None:
    """Refuse numbers out of their range."""
    for name, number in settings.items():
        low, high = _RANGES[name]
        wrong = isinstance(number, bool) or not isinstance(number, int | float)
        if wrong or not low <= number <= high:
            raise MechanismError(
                f"{name} must be from {low:g} to {high:g}; got {as_told(number)}. Leave it out."
            )


def _read_target(y: Array) -> Vector:
    if y.dtype.kind not in "biuf":
        raise MechanismError(f"targets must be numbers; got {y.dtype}. Use loss='logistic'.")
    numbers = y.astype(np.float64)
    _check_finite(numbers, "targets")
    return numbers


def _check_finite(numbers: Array, what: str) -> None:
    if not np.isfinite(numbers).all():
        raise MechanismError(
            f"{what} must be finite; got gaps or infinite values. Drop those rows."
        )


def steps_of(
    mechanism: Mechanism, data: Data, units: Integers | None
) -> tuple[StepMechanism, Data, Integers | None] | None:
    """Return the steps behind a mechanism, its records, and the unit of each; None: another."""
    for layer in mechanism_layers(mechanism):
        if isinstance(layer, StepMechanism):
            return layer, data, units
        data, units = layer.inner_records(data, units)
    return None
