"""Least squares by noisy moments: a function of sums, so it joins others in one release.

What is summed are products of two columns. Noise is shaped to the coefficients: a direction in
which they do not change gets more of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy._rounding import power_of_two
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, fixed_mechanism, symmetric_matrices
from pacprivacy.statistics.regressions import OLS
from pacprivacy.statistics.unit_sums import COUNT_STD, Sums, UnitSums, round_centre

LEAST_EIGENVALUE: Final = 1e-9  # of the normal matrix, over the largest


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentOLS(OLS):
    """Least squares as a function of sums of products."""

    def prepare(self, data: Data) -> Self:
        """Fix columns with all records, and centres and scales that are coarse."""
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

    def contributions(self, data: Data, units: npt.NDArray[Any] | None = None) -> UnitSums:
        """Return the weighted products of two columns, but for the target's square."""
        rows = self.read(data.parts)
        products = self.features(rows)[:, :-1]
        return UnitSums.of_rows(
            products,
            units=units,
            n_units=len(products) if units is None else int(units.max(initial=-1)) + 1,
            centre=fixed_mechanism(self.layout, "layout").centre,
        )

    def value(self, sums: Sums, keep: float = 1.0) -> Vector:
        """Return the coefficients; eigenvalues within the noise are raised to it."""
        matrix, vector = _equations(sums.values)
        return np.asarray(self._coefficients((_inverse(matrix, sums) @ vector)[None])[0])

    def arrange(self, per_cell: Matrix) -> Vector:
        """Return the figures of the only cell."""
        return np.asarray(per_cell).ravel()

    def jacobian(self, sums: Sums) -> npt.NDArray[np.float64]:
        """Return the derivatives of the coefficients by the products."""
        steady = self._steady_slopes(sums)
        at_zero = self._coefficients(np.zeros((1, len(steady))))[0]
        turn = (self._coefficients(np.eye(len(steady))) - at_zero).T
        return np.asarray((turn @ steady)[None])

    def output_slopes(self, contributions: UnitSums) -> npt.NDArray[np.float64]:
        """Return the derivatives of the coefficients in steady units."""
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
    """Return the normal matrix and vector; the target's square was not summed."""
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
