"""Least squares and ridge on the used rows: the influence of a unit, in closed form and by draws.

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
import numpy.typing as npt

from pacprivacy._checks import Integers, Mask, Matrix, Vector
from pacprivacy.errors import MechanismError
from pacprivacy.statistics.influence import InfluencedValue

OFF_EVENT: Final = 1e-7  # probability with which each of two bounds of the closed form fails
LEAST_EIGENVALUE: Final = 0.02  # of the normal matrix of a sample; below it, the fit on all rows
SINGULAR: Final = 1e-10  # of the largest eigenvalue: columns determine each other
_FIT_ROUNDING: Final = 1e-10  # of the fit's distance from that on all rows
_UNITS_AT_ONCE: Final = 1 << 14

Cube = npt.NDArray[np.float64]
UnitCodes = tuple[Integers, int]  # the unit of every row, and how many units there are


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastSquaresRows:
    """Rows and the fit to them; curator-only.

    ``Z``, shape (units, rows of a unit, columns), has zeros where a unit has fewer rows.
    ``penalty`` is that of the square of every coefficient, for all rows; ``outputs`` an affine map
    from coefficients to the released values.
    """

    Z: Cube = field(repr=False)
    y: Matrix = field(repr=False)
    penalty: Vector
    outputs: Callable[[Vector], Vector] = field(repr=False)

    @classmethod
    def by_unit(
        cls,
        Z: Matrix,
        y: Vector,
        units: UnitCodes | None,
        *,
        penalty: Vector | None,
        outputs: Callable[[Vector], Vector] | None,
    ) -> Self:
        """Sort rows by unit; those of a unit with many are turned into as many as columns."""
        Z3, y2 = Z[:, None, :], y[:, None]
        if units is not None:
            Z3, y2 = _rows_by_unit(Z, y, *units)
        return cls(
            Z=Z3,
            y=y2,
            penalty=np.zeros(Z.shape[1]) if penalty is None else np.asarray(penalty, dtype=float),
            outputs=_unchanged if outputs is None else outputs,
        )


def _rows_by_unit(Z: Matrix, y: Vector, codes: Integers, n_units: int) -> tuple[Cube, Matrix]:
    """Return the rows of every unit, at most as many as columns: least squares see no difference.

    A unit's rows are turned so that the last ones have zeros, by the triangle of their QR.
    """
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=n_units)
    d = Z.shape[1]
    width = int(min(counts.max(initial=1), d))
    Z3, y2 = np.zeros((n_units, width, d)), np.zeros((n_units, width))
    starts = np.cumsum(counts) - counts
    fits = counts <= width
    within = np.repeat(fits, counts)  # in the order of units
    of_unit = codes[order]
    place = np.arange(len(order)) - starts[of_unit]
    rows = order[within]
    Z3[of_unit[within], place[within]], y2[of_unit[within], place[within]] = Z[rows], y[rows]
    for unit in np.flatnonzero(~fits).tolist():
        rows = order[starts[unit] : starts[unit] + counts[unit]]
        turned = np.linalg.qr(np.column_stack([Z[rows], y[rows]]), mode="r")
        triangle: Matrix = np.asarray(turned)[:width]
        Z3[unit], y2[unit] = triangle[:, :d], triangle[:, d]
    return Z3, y2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastSquaresValue(InfluencedValue):
    """Distance of the coefficients of the used rows from those of all rows; curator-only.

    ``X``, shape (units, rows of a unit, columns), are rows in coordinates of the fit, ``residuals``
    theirs at the fit on all rows, ``theta``. ``penalty`` is that of the sample, in these
    coordinates, ``pull`` its slope at the fit. ``into`` leads from coordinates to coefficients,
    ``to_outputs`` to the released values; ``centre`` is that of all rows as they are weighted here,
    ``on_all`` without weights.
    """

    rows: LeastSquaresRows = field(repr=False)
    X: Cube = field(repr=False)
    residuals: Matrix = field(repr=False)
    penalty: Matrix = field(repr=False)
    pull: Vector = field(repr=False)
    keep: float
    n_units: int
    theta: Vector = field(repr=False)
    into: Matrix = field(repr=False)
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
        units: UnitCodes | None = None,
        penalty: Vector | None = None,
        outputs: Callable[[Vector], Vector] | None = None,
    ) -> Self:
        """Fit all rows; ``units`` are the unit of every row and how many there are."""
        rows = LeastSquaresRows.by_unit(Z, y, units, penalty=penalty, outputs=outputs)
        return cls._fit(rows, keep, np.ones(len(rows.Z)), None)

    def reweighted(self, weights: Vector) -> Self:
        """Return the same with units that count less; a function of all records, of no sample."""
        return self._fit(self.rows, self.keep, weights, self.on_all)

    @classmethod
    def _fit(
        cls, rows: LeastSquaresRows, keep: float, weights: Vector, on_all: Vector | None
    ) -> Self:
        roots, ridge = np.sqrt(weights), rows.penalty
        shape = rows.Z.shape
        Z = (rows.Z * roots[:, None, None]).reshape(-1, shape[2])
        y = (rows.y * roots[:, None]).ravel()
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
            X=(Z @ into).reshape(shape),
            residuals=(y - Z @ theta).reshape(shape[:2]),
            penalty=keep * into @ np.diag(ridge) @ into,
            pull=into @ (keep * ridge * theta),
            keep=keep,
            n_units=len(rows.Z),
            theta=theta,
            into=into,
            to_outputs=np.array([rows.outputs(theta + column) - centre for column in into.T]),
            centre=centre,
            on_all=centre if on_all is None else on_all,
        )

    def distance_from(self, other: Self) -> Vector:
        return np.asarray((self.theta - other.theta) @ np.linalg.inv(other.into))

    def influence_beside(self, other: Self) -> Matrix:
        """Return typical influences in the coordinates of another fit."""
        back = np.linalg.inv(other.into)
        return np.asarray(self.typical_influence() @ (self.into @ back))

    @property
    def _scores(self) -> Matrix:
        """Slope that every unit adds to the sum of squares at the fit."""
        return np.asarray(np.einsum("ukd,uk->ud", self.X, self.residuals))

    def typical_influence(self) -> Matrix:
        leverage = self.keep * np.einsum("ukd,ukd->u", self.X, self.X)
        divisor = np.maximum(1.0 - leverage, LEAST_EIGENVALUE)
        return np.asarray(self._scores / divisor[:, None])

    def coin_spread(self) -> Vector:
        """Return the deviation of coefficients by the coins, with what weights change."""
        moved = self._scores @ self.to_outputs
        variance = self.keep * (1 - self.keep) * np.einsum("ij,ij->j", moved, moved)
        return np.asarray(np.sqrt(variance + np.square(self.centre - self.on_all)))

    def value(self, kept: Mask) -> Vector:
        """Return the distance of the fit on the used rows from that on all, in its coordinates.

        No distance where the used rows hardly determine a fit.
        """
        A, score = self._equations(kept)
        if not np.linalg.eigvalsh(A)[0] >= LEAST_EIGENVALUE:
            return np.zeros(len(score))
        return np.asarray(np.linalg.solve(A, score))

    def outputs_of(self, numbers: Vector) -> Vector:
        return np.asarray(self.centre + numbers @ self.to_outputs)

    @property
    def jacobian(self) -> Matrix:
        return self.to_outputs

    @property
    def scales(self) -> Vector:
        """Errors are compared by their effect on the predictions for all rows."""
        return np.ones(self.X.shape[2])

    def _equations(self, kept: Mask) -> tuple[Matrix, Vector]:
        A, score = self.penalty.copy(), -self.pull
        for start in range(0, len(self.X), _UNITS_AT_ONCE):
            units = slice(start, start + _UNITS_AT_ONCE)
            X = self.X[units].reshape(-1, self.X.shape[2])
            used = np.repeat(kept[units], self.X.shape[1])
            block = X * used[:, None]  # all rows, in the same time whoever is used
            A += block.T @ X
            score += block.T @ self.residuals[units].ravel()
        return A, score

    def _downdated(self, kept: Mask) -> tuple[Matrix, Vector]:
        """Return the same from the rows that are left out."""
        out = np.flatnonzero(~kept)
        d = self.X.shape[2]
        X = self.X[out].reshape(-1, d)
        whole = (np.eye(d) - self.penalty) / self.keep  # of all rows
        score = -X.T @ self.residuals[out].ravel() + self.pull * (1 / self.keep - 1)
        return whole - X.T @ X + self.penalty, score

    def influence(self, kept: Mask, units: Integers) -> Matrix:
        """Return the influence of units on the fit; NaN where a fit is barely determined."""
        A, score = self._downdated(kept)
        smallest, vectors = np.linalg.eigh(A)
        X = self.X[units]
        if not smallest[0] >= LEAST_EIGENVALUE:
            return np.full((len(X), X.shape[2]), np.nan)
        inverse = vectors / smallest @ vectors.T
        moved = X @ inverse
        leverage = np.einsum("ukd,ukd->u", moved, X)  # of all rows of a unit together
        residuals = self.residuals[units] - X @ (inverse @ score)
        inside = kept[units]
        # Without a unit of leverage h, the least eigenvalue is at least 1 - h times what it was.
        least = smallest[0] * np.where(inside, 1.0 - leverage, 1.0)
        fine = least >= LEAST_EIGENVALUE * (1 + 1e-9)
        sign = np.where(inside, -1.0, 1.0)
        if X.shape[1] == 1:
            factors = np.full(residuals.shape, np.nan)
            factors[fine] = residuals[fine] / (1.0 + sign * leverage)[fine, None]
        else:
            factors = np.full(residuals.shape, np.nan)
            between = sign[fine, None, None] * (moved[fine] @ X[fine].swapaxes(1, 2))
            system = np.eye(X.shape[1]) + between
            factors[fine] = np.linalg.solve(system, residuals[fine][:, :, None])[:, :, 0]
        return np.asarray(np.einsum("ukd,uk->ud", moved, factors))

    def bound_distances(self, whiten: Matrix, keep: float) -> tuple[Vector, float]:
        """Return bounds on the influence of every unit on the fit, except in two events.

        Guarantee
        ---------
        Claim C-13. By the inequalities of Bernstein for matrices and of Pinelis for vectors, over
        the coins of the others; each fails with probability ``OFF_EVENT`` at most.
        """
        d, scores = self.X.shape[2], self._scores
        squares = np.einsum("ukd,ukd->u", self.X, self.X)
        lengths, sizes = np.sqrt(squares), row_lengths(scores)
        spread = (self.X * lengths[:, None, None]).reshape(-1, d)
        eta = _bernstein(
            max(keep, 1 - keep) * float(squares.max()),
            keep * (1 - keep) * float(np.linalg.eigvalsh(spread.T @ spread)[-1]),
            math.log(2 * d / OFF_EVENT),
        ) + float(squares.max())
        if not eta <= 1 - LEAST_EIGENVALUE:
            return np.full(self.n_units, np.inf), 0.0
        score = _bernstein(
            max(keep, 1 - keep) * float(sizes.max()),
            keep * (1 - keep) * float(sizes @ sizes),
            math.log(2 / OFF_EVENT),
        ) + float(sizes.max())
        reach = lengths * score / (1 - eta)  # of the residuals of a unit
        far = row_lengths(scores @ whiten)
        moved = (self.X.reshape(-1, d) @ whiten).reshape(self.X.shape[0], -1)
        far += row_lengths(moved) * reach
        far += float(np.linalg.norm(whiten, 2)) * eta / (1 - eta) * (sizes + lengths * reach)
        return np.asarray(far * (1 + 1e-9)), 2 * OFF_EVENT

    def rounding(self, whiten: Matrix) -> float:
        typical = math.sqrt(float(np.vdot(self.X, self.X)))  # a sample's score has this size
        size = float(np.linalg.norm(self.residuals)) * max(1.0, typical)
        return _FIT_ROUNDING / LEAST_EIGENVALUE * size * float(np.linalg.norm(whiten, 2))


def row_lengths(rows: Matrix) -> Vector:
    """Return the Euclidean length of every row, without a copy of all squares."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def _unchanged(coefficients: Vector) -> Vector:
    return coefficients


def _bernstein(largest: float, variance: float, log_chance: float) -> float:
    """Return the distance that a sum passes with the probability of that logarithm at most."""
    first = largest * log_chance / 3
    return (first + math.sqrt(first**2 + 2 * variance * log_chance)) * (1 + 1e-9)
