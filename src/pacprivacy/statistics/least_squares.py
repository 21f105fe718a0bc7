"""Least squares and ridge on the used rows: what one row moves, in closed form and draw by draw.

Everything is in coordinates in which the expected normal matrix of a sample is the identity. There
a fit on a sample is that on all rows, moved by the score of the sample at the latter. On a sample
the penalty is multiplied by the probability of being used, so that the expected equations of a
sample are those of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from pacprivacy._checks import Integers, Mask, Matrix, Vector
from pacprivacy.errors import MechanismError
from pacprivacy.statistics.averaged import InfluencedValue

OFF_EVENT: Final = 1e-7  # probability with which each of two bounds of the closed form fails
LEAST_EIGENVALUE: Final = 0.02  # of the normal matrix of a sample; below it, the fit on all rows
SINGULAR: Final = 1e-10  # of the largest eigenvalue: columns determine each other
_FIT_ROUNDING: Final = 1e-10  # of the fit's distance from that on all rows
_ROWS_AT_ONCE: Final = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastSquaresRows:
    """Rows and what is fitted to them, one row a unit; curator-only.

    ``penalty`` is that of the square of every coefficient, for all rows; ``outputs`` an affine map
    from coefficients to what is released.
    """

    Z: Matrix = field(repr=False)
    y: Vector = field(repr=False)
    penalty: Vector
    outputs: Callable[[Vector], Vector] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastSquaresValue(InfluencedValue):
    """Coefficients of the used rows, as their distance from those of all rows; curator-only.

    ``X`` are rows in coordinates of the fit, one a unit, ``residuals`` theirs at the fit on all
    rows. ``penalty`` is that of the sample, in these coordinates, ``pull`` its slope at the fit.
    ``to_outputs`` leads from coordinates to coefficients, ``centre`` are those of all rows as they
    are weighted here, ``on_all`` without weights.
    """

    rows: LeastSquaresRows = field(repr=False)
    X: Matrix = field(repr=False)
    residuals: Vector = field(repr=False)
    penalty: Matrix = field(repr=False)
    pull: Vector = field(repr=False)
    keep: float
    n_units: int
    to_outputs: Matrix = field(repr=False)
    centre: Vector = field(repr=False)
    on_all: Vector = field(repr=False)

    @classmethod
    def fit(
        cls,
        Z: Matrix,
        y: Vector,
        *,
        keep: float,
        penalty: Vector | None = None,
        outputs: Callable[[Vector], Vector] | None = None,
    ) -> Self:
        """Fit all rows."""
        rows = LeastSquaresRows(
            Z=Z,
            y=y,
            penalty=np.zeros(Z.shape[1]) if penalty is None else np.asarray(penalty, dtype=float),
            outputs=_unchanged if outputs is None else outputs,
        )
        return cls._fit(rows, keep, np.ones(len(Z)), None)

    def reweighted(self, weights: Vector) -> Self:
        """Return the same with rows that count less; a function of all records, not of a sample."""
        return self._fit(self.rows, self.keep, weights, self.on_all)

    @classmethod
    def _fit(
        cls, rows: LeastSquaresRows, keep: float, weights: Vector, on_all: Vector | None
    ) -> Self:
        roots, ridge = np.sqrt(weights), rows.penalty
        Z, y = rows.Z * roots[:, None], rows.y * roots
        values, vectors = np.linalg.eigh(Z.T @ Z + np.diag(ridge))
        if not values[0] > SINGULAR * values[-1]:
            raise MechanismError(
                "columns must not determine each other; got some that do. Leave one out, or add a "
                "penalty."
            )
        into = vectors / np.sqrt(keep * values) @ vectors.T
        theta = into @ (into @ (keep * (Z.T @ y)))
        theta += into @ (into @ (keep * (Z.T @ (y - Z @ theta) - ridge * theta)))  # refined once
        centre = rows.outputs(theta)
        return cls(
            rows=rows,
            X=Z @ into,
            residuals=y - Z @ theta,
            penalty=keep * into @ np.diag(ridge) @ into,
            pull=into @ (keep * ridge * theta),
            keep=keep,
            n_units=len(Z),
            to_outputs=np.array([rows.outputs(theta + column) - centre for column in into.T]),
            centre=centre,
            on_all=centre if on_all is None else on_all,
        )

    def typical_influence(self) -> Matrix:
        """Return what every row moves the fit on all rows by, in coordinates of the fit."""
        leverage = self.keep * np.einsum("ij,ij->i", self.X, self.X)
        factors = self.residuals / np.maximum(1.0 - leverage, LEAST_EIGENVALUE)
        return np.asarray(self.X * factors[:, None])

    def coin_spread(self) -> Vector:
        """Return the deviation of coefficients by the coins, with what weights change."""
        moved = (self.X * self.residuals[:, None]) @ self.to_outputs
        variance = self.keep * (1 - self.keep) * np.einsum("ij,ij->j", moved, moved)
        return np.asarray(np.sqrt(variance + np.square(self.centre - self.on_all)))

    def value(self, kept: Mask) -> Vector:
        """Return how far the fit on the used rows is from that on all, in coordinates of the fit.

        No distance where the used rows hardly determine a fit.
        """
        A, score = self._equations(kept)
        if not np.linalg.eigvalsh(A)[0] >= LEAST_EIGENVALUE:
            return np.zeros(len(score))
        return np.asarray(np.linalg.solve(A, score))

    def outputs_of(self, numbers: Vector) -> Vector:
        """Return the coefficients."""
        return np.asarray(self.centre + numbers @ self.to_outputs)

    @property
    def jacobian(self) -> Matrix:
        """Derivatives of the coefficients by the coordinates, (numbers, outputs)."""
        return self.to_outputs

    @property
    def scales(self) -> Vector:
        """Errors are compared by what they change in the predictions for all rows."""
        return np.ones(self.X.shape[1])

    def _equations(self, kept: Mask) -> tuple[Matrix, Vector]:
        A, score = self.penalty.copy(), -self.pull
        for start in range(0, len(self.X), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            block = self.X[some] * kept[some, None]  # all rows, in the same time whoever is used
            A += block.T @ self.X[some]
            score += block.T @ self.residuals[some]
        return A, score

    def _downdated(self, kept: Mask) -> tuple[Matrix, Vector]:
        """Return the same from the rows that are left out."""
        out = np.flatnonzero(~kept)
        X = self.X[out]
        d = self.X.shape[1]
        whole = (np.eye(d) - self.penalty) / self.keep  # of all rows
        score = -X.T @ self.residuals[out] + self.pull * (1 / self.keep - 1)
        return whole - X.T @ X + self.penalty, score

    def influence(self, kept: Mask, units: Integers) -> Matrix:
        """Return what rows move the fit by; NaN where a fit may hardly be determined."""
        A, score = self._downdated(kept)
        smallest, vectors = np.linalg.eigh(A)
        X = self.X[units]
        if not smallest[0] >= LEAST_EIGENVALUE:
            return np.full(X.shape, np.nan)
        inverse = vectors / smallest @ vectors.T
        moved = X @ inverse
        leverage = np.einsum("ij,ij->i", moved, X)
        residuals = self.residuals[units] - X @ (inverse @ score)
        inside = kept[units]
        divisor = np.where(inside, 1.0 - leverage, 1.0 + leverage)
        # Without a row of leverage h, the least eigenvalue is at least 1 - h times what it was.
        least = smallest[0] * np.where(inside, 1.0 - leverage, 1.0)
        fine = least >= LEAST_EIGENVALUE * (1 + 1e-9)
        factors = np.divide(residuals, divisor, out=np.full(len(X), np.nan), where=fine)
        return np.asarray(moved * factors[:, None])

    def bound_distances(self, whiten: Matrix, keep: float) -> tuple[Vector, float]:
        """Return what every row moves the fit by at most, but for two events.

        Guarantee
        ---------
        Claim C-13. By the inequalities of Bernstein for matrices and of Pinelis for vectors, over
        the coins of the others; each fails with probability ``OFF_EVENT`` at most.
        """
        lengths = np.sqrt(np.einsum("ij,ij->i", self.X, self.X))
        sizes = lengths * np.abs(self.residuals)
        spread = self.X * lengths[:, None]
        variance = keep * (1 - keep) * float(np.linalg.eigvalsh(spread.T @ spread)[-1])
        eta = (
            _bernstein(
                max(keep, 1 - keep) * float(lengths.max()) ** 2,
                variance,
                math.log(2 * self.X.shape[1] / OFF_EVENT),
            )
            + float(lengths.max()) ** 2
        )
        if not eta <= 1 - LEAST_EIGENVALUE:
            return np.full(self.n_units, np.inf), 0.0
        score = _bernstein(
            max(keep, 1 - keep) * float(sizes.max()),
            keep * (1 - keep) * float(sizes @ sizes),
            math.log(2 / OFF_EVENT),
        ) + float(sizes.max())
        moved = np.linalg.norm(self.X @ whiten, axis=1)
        moved += float(np.linalg.norm(whiten, 2)) * lengths * eta / (1 - eta)
        far = moved * (np.abs(self.residuals) + lengths * score / (1 - eta))
        return np.asarray(far * (1 + 1e-9)), 2 * OFF_EVENT

    def rounding(self, whiten: Matrix) -> float:
        """Return what rounding errors of two fits may add to their distance, in deviations."""
        typical = math.sqrt(float(np.square(self.X).sum()))  # a sample's score has this size
        size = float(np.linalg.norm(self.residuals)) * max(1.0, typical)
        return _FIT_ROUNDING / LEAST_EIGENVALUE * size * float(np.linalg.norm(whiten, 2))


def _unchanged(coefficients: Vector) -> Vector:
    return coefficients


def _bernstein(largest: float, variance: float, log_chance: float) -> float:
    """Return the distance that a sum passes with the probability of that logarithm at most."""
    first = largest * log_chance / 3
    return (first + math.sqrt(first**2 + 2 * variance * log_chance)) * (1 + 1e-9)
