"""Regressions of named columns: least squares, ridge, logistic, Poisson."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Matrix, Vector
from pacprivacy._rounding import power_of_two
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import (
    Batch,
    Columns,
    Data,
    Descent,
    LossName,
    code_column_levels,
    coerce_data,
    column_levels,
    declared_column_levels,
    fixed_mechanism,
    products_of_columns,
    subset_sums,
    symmetric_matrices,
)
from pacprivacy.sample import Pool
from pacprivacy.statistics.influence import AveragedStatistic, CoinUnits
from pacprivacy.statistics.least_squares import LeastSquaresValue
from pacprivacy.statistics.table import Statistic, StatisticRows
from pacprivacy.statistics.unit_sums import (
    COUNT_STD,
    Sums,
    SumStatistic,
    UnitSums,
    round_centre,
    solve_normal_equations,
)

Cube = npt.NDArray[np.float64]
INTERCEPT: Final = "intercept"
NEWTON_STEPS: Final = 100
CONVERGED: Final = 1e-10
LEAST_EIGENVALUE: Final = 1e-9  # of the normal matrix, over the largest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Regression(Statistic):
    """Coefficients of a target on columns; of a category, against its first level."""

    reference = True

    def prepare(self, data: Data) -> Self:
        """Refuse groups, for which there would be no coefficients."""
        if self.by:
            raise MechanismError(
                f"a regression must have no groups; got by={list(self.by)}. Name a category "
                "among the columns, or fit each group by itself: where=."
            )
        return super(_Regression, self).prepare(data)

    def _target(self, frame: Columns) -> Vector | None:
        assert self.target is not None
        return self._numbers(frame, self.target)

    def _complete(self, rows: StatisticRows) -> StatisticRows:
        """Set the weight to 0 and the entries to their centres in rows with a gap."""
        assert rows.y is not None
        layout = fixed_mechanism(self.layout, "layout")
        gaps = np.isnan(rows.X).any(axis=1) | np.isnan(rows.y)
        X, y = rows.X, rows.y
        X = np.where(gaps[:, None], layout.centre[:-1], X)
        y = np.where(gaps, layout.centre[-1], y)
        return replace(rows, weights=np.where(gaps, 0.0, rows.weights), X=X, y=y)

    def _design(self, rows: StatisticRows) -> Matrix:
        """Return the columns in steady units, with one of ones before them."""
        layout = fixed_mechanism(self.layout, "layout")
        scaled = (rows.X - layout.centre[:-1]) / layout.scales[:-1]
        return np.column_stack([np.ones(len(scaled)), scaled])

    def _own_units(self, steady: Matrix, shift: float = 0.0, scale: float = 1.0) -> Matrix:
        """Turn coefficients in steady units, shape (m, p), into those of the columns."""
        layout = fixed_mechanism(self.layout, "layout")
        slopes = steady[:, 1:] / layout.scales[:-1] * scale
        intercept = shift + scale * steady[:, 0] - slopes @ layout.centre[:-1]
        return np.column_stack([intercept, slopes])

    @property
    def _labels(self) -> tuple[str, ...]:
        return (INTERCEPT, *fixed_mechanism(self.layout, "layout").names)

    @property
    def model(self) -> Mapping[str, Any]:
        layout = fixed_mechanism(self.layout, "layout")
        used = {column for _, column, level in layout.terms if level is not None}
        return {
            "kind": self.kind,
            "target": self.target,
            "terms": [list(term) for term in layout.terms],
            "levels": {name: list(layout.levels[name]) for name in sorted(used)},
            "classes": layout.target_levels and list(layout.target_levels),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OLS(_Regression, AveragedStatistic):
    """Least squares, through the normal equations in steady units."""

    kind = "ols"

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        columns, weights = self._weighted_columns(self.read(parts))
        return self._fit(((columns * weights[:, None]).T @ columns)[None])[0]

    @property
    def batch(self) -> Batch | None:
        return None if self.missing == "mean" else self._at_once

    def _at_once(self, data: Data, pool: Pool) -> Matrix:
        rows = self.read(data.parts)
        width = len(fixed_mechanism(self.layout, "layout").centre) + 1
        sums = subset_sums(pool, lambda i: self._products(rows.take(i)), width * (width + 1) // 2)
        return self._fit(symmetric_matrices(sums))

    def _weighted_columns(self, rows: StatisticRows) -> tuple[Matrix, Vector]:
        """Return a column of ones, the columns and the target in steady units, and weights."""
        layout, rows = fixed_mechanism(self.layout, "layout"), self._complete(rows)
        assert rows.y is not None
        y = (rows.y - layout.centre[-1]) / layout.scales[-1]
        return np.column_stack([self._design(rows), y]), rows.weights

    def _products(self, rows: StatisticRows) -> Matrix:
        columns, weights = self._weighted_columns(rows)
        return weights[:, None] * products_of_columns(columns)

    def _fit(self, products: Cube) -> Matrix:
        """Return the coefficients of candidates, given sums of products of every two columns."""
        steady = solve_normal_equations(products[:, :-1, :-1], products[:, :-1, -1], "ols")
        return self._coefficients(steady)

    def _coefficients(self, steady: Matrix) -> Matrix:
        layout = fixed_mechanism(self.layout, "layout")
        return self._own_units(steady, shift=layout.centre[-1], scale=layout.scales[-1])

    def on_samples(self, data: Data, units: Integers | None, coins: CoinUnits) -> LeastSquaresValue:
        columns, weights = self._weighted_columns(self.read(data.parts))
        columns *= np.sqrt(weights)[:, None]
        return LeastSquaresValue.fit(
            columns[:, :-1],
            columns[:, -1],
            keep=coins.keep,
            units=None if units is None else (units, coins.n_units),
            penalty=self._penalties,
            outputs=lambda steady: self._coefficients(steady[None])[0],
        )

    @property
    def _penalties(self) -> Vector | None:
        """Penalty on the square of every coefficient, the intercept's first; None: nothing."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ridge(OLS):
    """Least squares with a penalty on the squares of all coefficients but the intercept.

    ``penalty`` is for all records, with columns in deviations over these; a sample has its share
    of it, by the weight of its rows. ``total_weight`` is that of all records.
    """

    kind = "ridge"
    penalty: float = 1.0
    total_weight: float = field(default=math.nan, repr=False, compare=False)

    def __post_init__(self) -> None:
        super(Ridge, self).__post_init__()
        if not 0 <= self.penalty < math.inf:
            raise MechanismError(
                f"penalty must be a number of at least 0; got {self.penalty!r}. Use about 1."
            )

    @property
    def public(self) -> tuple[str, ...]:
        penalty = f"ridge penalty: {self.penalty:g}, with columns in deviations over all records"
        return (*super(Ridge, self).public, penalty)

    def prepare(self, data: Data) -> Self:
        whole = super(Ridge, self).prepare(data)
        weights = whole._complete(whole.read(data.parts)).weights
        return replace(whole, total_weight=float(weights.sum()))

    def _fit(self, products: Cube) -> Matrix:
        shares = products[:, 0, 0] / self.total_weight
        return super(Ridge, self)._fit(
            products + shares[:, None, None] * np.diag([*self._penalties, 0])
        )

    @property
    def _penalties(self) -> Vector:
        width = len(fixed_mechanism(self.layout, "layout").terms)
        return np.concatenate([[0.0], np.full(width, self.penalty)])


# --- least squares by noisy moments ---------------------------------------------------------------
#
# A function of sums, so it joins others in one release. What is summed are products of two columns.
# Noise is shaped to the coefficients: a direction in which they do not change gets more of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentOLS(OLS, SumStatistic):
    """Least squares as a function of sums of products."""

    def prepare(self, data: Data) -> Self:
        if self.by or self.missing == "mean":
            raise MechanismError(
                "a regression in a study must have no groups, and rows with gaps are left out; got "
                "others. Use where= and missing='drop'."
            )
        whole = super(MomentOLS, self).prepare(data)
        layout = fixed_mechanism(whole.layout, "layout")
        centre = round_centre(layout.centre, layout.scales)
        return replace(
            whole, layout=replace(layout, centre=centre, scales=power_of_two(layout.scales))
        )

    def contributions(self, data: Data, units: Integers | None = None) -> UnitSums:
        products = self._products(self.read(data.parts))[:, :-1]
        return UnitSums.of_rows(
            products,
            units=units,
            centre=fixed_mechanism(self.layout, "layout").centre,
        )

    def value(self, sums: Sums, keep: float = 1.0) -> Vector:
        """Return the coefficients; eigenvalues within the noise are raised to it."""
        matrix, vector = _equations(sums.values)
        return np.asarray(self._coefficients((_inverse(matrix, sums) @ vector)[None])[0])

    def arrange(self, per_cell: Matrix) -> Vector:
        return np.asarray(per_cell).ravel()

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        steady = self._steady_slopes(sums)
        at_zero = self._coefficients(np.zeros((1, len(steady))))[0]
        turn = (self._coefficients(np.eye(len(steady))) - at_zero).T
        return np.asarray((turn @ steady)[None])

    def output_slopes(self, contributions: UnitSums) -> npt.NDArray[np.float64]:
        return self._steady_slopes(contributions.total())[None]

    def _steady_slopes(self, sums: Sums) -> Matrix:
        matrix, vector = _equations(sums.values)
        inverse = _inverse(matrix, sums)
        beta = inverse @ vector
        width = len(beta)
        left, right = np.triu_indices(width + 1)
        left, right = left[:-1], right[:-1]
        slopes = np.empty((width, len(left)))
        for place, (j, k) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
            if k == width:
                slopes[:, place] = inverse[:, j]
                continue
            slopes[:, place] = -inverse[:, j] * beta[k]
            if j != k:
                slopes[:, place] -= inverse[:, k] * beta[j]
        return slopes


def _equations(values: Matrix) -> tuple[Matrix, Vector]:
    full = symmetric_matrices(np.column_stack([values, np.zeros(1)]))[0]
    return full[:-1, :-1], full[:-1, -1]


def _inverse(matrix: Matrix, sums: Sums) -> Matrix:
    """Return the inverse of the normal matrix, with a floor under its eigenvalues.

    The floor is three deviations of the noise of a direction, so that no noise is divided by.
    """
    values, vectors = np.linalg.eigh(matrix)
    floor = LEAST_EIGENVALUE * max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
    if sums.noise_std is not None:
        noise = _equations(np.square(sums.noise_std))[0]
        floor = max(floor, COUNT_STD * float(np.sqrt(noise.mean())))
    return np.asarray((vectors / np.maximum(values, floor)) @ vectors.T)


# --- likelihoods ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Newton(_Regression):
    """A likelihood that is maximised by Newton's steps inside every candidate.

    With coins it is maximised by descent, and the release is a matrix of its weights.
    """

    loss: ClassVar[LossName]
    descent: Descent | None = field(default=None, repr=False, compare=False)

    @property
    def inner(self) -> Descent:
        """The descent that takes its place with coins."""
        return self.descent or Descent(loss=self.loss, clip=None, errors=True)

    def coin_obstacle(self) -> str | None:
        if self.weights is not None or self.by:
            return "rows are weighted or grouped"
        return super(_Newton, self).coin_obstacle()

    def prepare(self, data: Data) -> Self:
        prepared = super(_Newton, self).prepare(data)
        records, _ = prepared.inner_records(data, None)
        return replace(prepared, descent=prepared.inner.prepare(records))

    def inner_records(self, data: Data, units: Integers | None) -> tuple[Data, Integers | None]:
        """Return columns and targets of complete rows that meet the condition, and whose."""
        rows = self._complete(self.read(data.parts))
        assert rows.y is not None
        used = rows.weights > 0
        codes = np.arange(len(used)) if units is None else units
        return coerce_data((self._design(rows)[used, 1:], rows.y[used])), codes[used]

    def finish(self, value: Any) -> Any:
        """Put names on released coefficients; on those of a descent, in units of the columns."""
        if np.ndim(value) == 2:
            fitted = self.inner.finish(value)
            value = self._own_units(np.column_stack([fitted["intercept"], fitted["coef"]]))[0]
        return super(_Newton, self).finish(value)

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        rows = self._complete(self.read(parts))
        assert rows.y is not None
        Z, y, weights = self._design(rows), rows.y, rows.weights
        used = weights > 0
        if not used.all():
            Z, y, weights = Z[used], y[used], weights[used]
        beta = self._start(Z.shape[1], y, weights)
        value = self._likelihood(Z @ beta, y, weights)
        for _ in range(NEWTON_STEPS):
            mean, curvature = self._moments(Z @ beta)
            slope = Z.T @ (weights * (y - mean))
            matrix = (Z * (weights * curvature)[:, None]).T @ Z
            step = solve_normal_equations(matrix[None], slope[None], self.kind)[0]
            for _ in range(40):  # halve until it does not get worse
                new = self._likelihood(Z @ (beta + step), y, weights)
                if new >= value - 1e-12 * abs(value):
                    break
                step = step / 2
            beta, value = beta + step, new
            if np.abs(step).max() < CONVERGED:
                return self._own_units(beta[None])[0]
        raise MechanismError(
            f"{self.kind} must have a largest likelihood in every candidate; got a "
            "fit that did not converge. Columns that separate the outcomes have none: leave them "
            "out."
        )

    def _start(self, width: int, y: Vector, weights: Vector) -> Vector:
        if not len(y):
            raise MechanismError(f"{self.kind} must have rows in every candidate; got none.")
        beta = np.zeros(width)
        beta[0] = self._link(float(np.average(y, weights=weights)))
        return beta

    @abstractmethod
    def _link(self, mean: float) -> float:
        """Return the linear predictor that gives a mean."""

    @abstractmethod
    def _moments(self, eta: Vector) -> tuple[Vector, Vector]:
        """Return mean and variance of the target, given the linear predictor."""

    @abstractmethod
    def _likelihood(self, eta: Vector, y: Vector, weights: Vector) -> float:
        """Return the logarithm of the likelihood, up to a constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticRegression(_Newton):
    """Logistic regression of a target with two levels."""

    kind = "logistic"
    loss = "logistic"

    @property
    def public(self) -> tuple[str, ...]:
        lines = super(LogisticRegression, self).public
        levels = None if self.layout is None else self.layout.target_levels
        return lines if levels is None else (*lines, f"log odds of {self.target} = {levels[1]}")

    @property
    def published(self) -> tuple[str, ...]:
        facts = super(LogisticRegression, self).published
        declared = self.target in self.levels
        return facts if declared else (*facts, f"the two levels of {self.target!r}")

    def _target_levels(self, frame: Columns) -> tuple[str, ...] | None:
        assert self.target is not None
        levels = column_levels(frame.category(self.target))
        if self.target in self.levels:
            kind = frame.kind(self.target)
            levels = declared_column_levels(self.target, self.levels[self.target], kind)
        if len(levels) != 2:
            raise MechanismError(
                f"column {self.target!r} must have two levels for logistic; got {len(levels)}. "
                "Declare the two that matter, or choose another model."
            )
        return levels

    def _target(self, frame: Columns) -> Vector | None:
        assert self.target is not None
        levels = fixed_mechanism(self.layout, "layout").target_levels
        codes = code_column_levels(frame.category(self.target), levels or ())
        return np.where(codes < 0, np.nan, codes.astype(np.float64))

    def _link(self, mean: float) -> float:
        if not 0 < mean < 1:
            raise MechanismError(
                f"column {self.target!r} must have both levels in every candidate; got one alone. "
                "Use more records."
            )
        return float(np.log(mean / (1 - mean)))

    def _moments(self, eta: Vector) -> tuple[Vector, Vector]:
        mean = 0.5 * (1.0 + np.tanh(eta / 2))
        return mean, np.maximum(mean * (1 - mean), 1e-300)

    def _likelihood(self, eta: Vector, y: Vector, weights: Vector) -> float:
        return float(weights @ (y * eta - np.logaddexp(0.0, eta)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(_Newton):
    """Poisson regression with the logarithm as link."""

    kind = "poisson"
    loss = "poisson"

    def _target(self, frame: Columns) -> Vector | None:
        y = super(Poisson, self)._target(frame)
        if y is not None and (y < 0).any():
            raise MechanismError(
                f"column {self.target!r} must hold counts; got negative numbers. "
                "Choose another model."
            )
        return y

    def _link(self, mean: float) -> float:
        if mean <= 0:
            raise MechanismError(
                f"column {self.target!r} must hold counts that are not all zero in any candidate."
            )
        return float(np.log(mean))

    def _moments(self, eta: Vector) -> tuple[Vector, Vector]:
        mean = np.exp(np.minimum(eta, 700.0))
        return mean, mean

    def _likelihood(self, eta: Vector, y: Vector, weights: Vector) -> float:
        return float(weights @ (y * eta - np.exp(np.minimum(eta, 700.0))))
