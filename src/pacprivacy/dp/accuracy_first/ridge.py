"""Ridge regression from perturbed sums, with as little privacy loss as the accuracy allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy.dp import EMPTY_RECORDS, read_regression, read_source
from pacprivacy.dp.accuracy_first.above_threshold import Calibration
from pacprivacy.dp.accuracy_first.problem import (
    Part,
    check_number,
    check_request,
    describe_ball,
    hold_within,
    shrink_rows,
)
from pacprivacy.dp.accuracy_first.search import Candidates, as_release, search_by_reduction
from pacprivacy.dp.accuracy_first.theory import covariance_epsilon, ridge_radius, ridge_sensitivity
from pacprivacy.dp.accuracy_first.trust_region import solve_trust_region
from pacprivacy.dp.certificate import DPRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class CovNR:
    """Ridge regression: lower the noise on ``XᵀX`` and ``Xᵀy`` until the risk is good enough.

    The risk is ``1/2n |y - Xθ|² + λ/2 |θ|²`` of rows divided by ``x_bound`` and targets divided
    by ``y_bound``; ``alpha`` and ``penalty`` are in these units.

    Parameters
    ----------
    alpha : float > 0, public
        Excess risk that is asked for.
    penalty : float > 0, public
        ``λ``.
    x_bound, y_bound : float > 0, public
        Rows are shrunk to this sum of absolute entries, targets clipped to this absolute value.
        They must not be read off the data.
    gamma : float in (0, 1), public
        Probability with which the accuracy may be missed.
    neighbours : {"replace"}, public
        Relation that the promise is about; the number of records is public.
    n_levels : int, public
        Levels from ``1/n`` to four times what the theorem demands.
    calibration : {"tight", "theorem"}, public
        How the test is calibrated; see :func:`plan_threshold`.
    radius : float > 0, optional, public
        Length within which models are sought, in units of scaled rows and targets; by default
        what the penalty implies, ``1/(2 sqrt(λ))``. A smaller one makes the test cheaper, and
        excess risk is over the best model of at most this length. It must not be read off the
        data.

    Guarantee
    ---------
    Claims AF-4, AF-5 and AF-8. The ex-post loss is in the certificate; with probability
    ``1 - gamma`` a model that was accepted has excess risk at most ``alpha``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 2))
    >>> method = CovNR(alpha=0.02, penalty=0.01, x_bound=1.0, y_bound=1.0, n_levels=100)
    >>> release = method.release(X, X[:, 0], simulate=0)
    >>> release.value.shape, release.certificate.kind
    ((2,), 'dp-ex-post')
    """

    alpha: float
    penalty: float
    x_bound: float
    y_bound: float
    gamma: float = 0.1
    neighbours: Literal["replace"] = "replace"
    n_levels: int = 1000
    calibration: Calibration = "tight"
    radius: float | None = None

    def __post_init__(self) -> None:
        check_request(
            alpha=self.alpha,
            gamma=self.gamma,
            penalty=self.penalty,
            neighbours=self.neighbours,
            n_levels=self.n_levels,
            radius=self.radius,
        )
        check_positive("x_bound", self.x_bound, advice="Use a length that rows rarely exceed.")
        check_positive("y_bound", self.y_bound, advice="Use a value that targets rarely exceed.")

    def prepare(self, X: Any, y: Any) -> RidgeProblem:
        """Return the sums of the clipped data; curator-only."""
        return RidgeProblem(
            X,
            y,
            penalty=self.penalty,
            x_bound=self.x_bound,
            y_bound=self.y_bound,
            radius=self.radius,
        )

    def release(
        self, X: Any, y: Any, *, simulate: np.random.Generator | int | None = None
    ) -> DPRelease:
        """Return the coefficients, in the units of ``X`` and ``y``, and what they cost."""
        problem, source = self.prepare(X, y), read_source(simulate)
        candidates = Candidates(problem, alpha=self.alpha, n_levels=self.n_levels, source=source)
        found = search_by_reduction(
            candidates,
            alpha=self.alpha,
            gamma=self.gamma,
            calibration=self.calibration,
            source=source,
        )
        return as_release(
            problem,
            found,
            alpha=self.alpha,
            gamma=self.gamma,
            method="noise reduction",
            simulation=source.is_simulation,
        )


class RidgeProblem:
    """Sums of clipped rows, and the risk of models on them; curator-only.

    Guarantee
    ---------
    Claim AF-8. Exchanging one record moves each of the two vectors of sums by at most their
    ``sensitivity``, float64 rounding included, and the excess risk of a model within the radius by
    at most ``excess_sensitivity``. Claim DP-17: what is refused is public.
    """

    block = 1
    mechanism = "ridge regression from perturbed sums"

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        penalty: float,
        x_bound: float,
        y_bound: float,
        radius: float | None = None,
    ) -> None:
        features, target = read_regression(X, y)
        check_number(len(features))
        rows = shrink_rows(features, x_bound, norm=1)
        values = np.clip(target / y_bound, -1.0, 1.0)
        self.n_records, self._n_features = rows.shape
        self._penalty, self._bounds = penalty, (float(x_bound), float(y_bound))
        self._radius = hold_within(ridge_radius(penalty), radius)
        self._gram, self._products = rows.T @ rows, rows.T @ values
        self._upper = np.triu_indices(self._n_features)
        # An entry off the diagonal counts twice, so that the sum of all is (Σ|x_i|)².
        self._weights = np.where(self._upper[0] == self._upper[1], 1.0, 2.0)
        self._risk = self._gram / self.n_records + penalty * np.eye(self._n_features)
        pull = self._products / self.n_records
        self.best = solve_trust_region(self._risk, pull, radius=self._radius)
        self._slope = self._risk @ self.best - pull  # zero, unless the best is on the sphere

    @property
    def parts(self) -> tuple[Part, ...]:
        """``XᵀX``, each pair of features once, and ``Xᵀy``."""
        # Rounding moves all entries of a sum over n rows together by at most n² 2^-53.
        sensitivity = 2.0 + 4.0 * float(self.n_records) ** 2 * 2.0**-53
        moments = self._weights * self._gram[self._upper]
        return (
            Part(name="moments", values=moments, sensitivity=sensitivity),
            Part(name="products", values=self._products, sensitivity=sensitivity),
        )

    @property
    def excess_sensitivity(self) -> float:
        """How far one record moves the excess risk of a fixed model."""
        return ridge_sensitivity(self._radius, self.n_records)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the promise rests on, in sentences."""
        x_bound, y_bound = self._bounds
        return (
            f"Rows are shrunk to absolute sum {x_bound:g}, targets clipped to {y_bound:g}; both "
            "bounds were fixed without looking at the data.",
            EMPTY_RECORDS,
            describe_ball(self._radius),
        )

    def model(self, noisy: tuple[Vector, ...]) -> Vector:
        """Minimise the perturbed risk over the ball that holds the solution."""
        moments, products = noisy
        matrix = np.zeros((self._n_features, self._n_features))
        matrix[self._upper] = moments / (self._weights * self.n_records)
        matrix += np.triu(matrix, 1).T + self._penalty * np.eye(self._n_features)
        return solve_trust_region(matrix, products / self.n_records, radius=self._radius)

    def excess_risk(self, models: Matrix) -> Vector:
        """Return the risk of each row above the least risk within the ball."""
        away = models - self.best
        curved = 0.5 * np.einsum("ki,ij,kj->k", away, self._risk, away)
        return np.asarray(curved + away @ self._slope)

    def coefficients(self, model: Vector) -> Vector:
        """Return the model in the units of the features and the target."""
        x_bound, y_bound = self._bounds
        return model * (y_bound / x_bound)

    def theory_epsilon(self, alpha: float) -> float:
        """Return the level at which the expected excess risk is at most ``alpha``."""
        return covariance_epsilon(
            alpha, n_records=self.n_records, n_features=self._n_features, radius=self._radius
        )
