"""Ridge and logistic regression, with as little privacy loss as the accuracy allows.

Records have a sum of absolute entries of at most 1, targets are in [-1, 1], neighbours differ in
one record, and the risk has penalty ``λ|θ|²/2``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import scipy

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy.dp import records
from pacprivacy.dp.perturbation import SOLVER, TOLERANCE, minimise_perturbed
from pacprivacy.dp.records import clipping_norms
from pacprivacy.errors import DataError

RELATIVE_GAP: Final = 1e-14  # eigenvalues nearer to the least one than this are the least one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Numbers that are perturbed together, with an equal share of every level; curator-only.

    One record moves them by at most ``sensitivity`` in the sum of absolute changes, and by at most
    ``length`` in Euclidean length.
    """

    name: str
    values: Vector
    sensitivity: float
    length: float


class Problem(ABC):
    """A model that is a function of perturbed numbers, and a risk to judge it by; curator-only.

    ``parts`` are perturbed; ``best`` is the model of least risk within the radius, which is the
    length that no optimum exceeds or a smaller one that was declared. ``excess_sensitivity`` is how
    far one record moves the excess risk of a fixed model; ``bounds`` says what was done to the
    records.
    """

    mechanism: ClassVar[str]
    block: ClassVar[int] = 1  # how many models are judged at a time
    parts: tuple[Part, ...]
    best: Vector
    excess_sensitivity: float
    bounds: tuple[str, ...]

    def __init__(
        self, shape: tuple[int, int], *, penalty: float, proved: float, radius: float | None
    ) -> None:
        self.n_records, self.n_features = shape
        if self.n_records == 0:
            raise DataError("X must have at least one row. Pass one row for each record.")
        self.penalty = penalty
        self.radius = proved if radius is None else min(proved, float(radius))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the promise rests on, in sentences."""
        return (
            *self.bounds,
            f"Models have a length of at most {self.radius:.6g} in scaled units, a public number; "
            "excess risk is over the best of these.",
            "The number of records is public.",
        )

    @abstractmethod
    def model(self, noisy: tuple[Vector, ...]) -> Vector:
        """Return the model that the perturbed parts stand for."""

    @abstractmethod
    def excess_risk(self, models: Matrix) -> Vector:
        """Return the risk of each row above the least risk within the radius; never released."""

    @abstractmethod
    def coefficients(self, model: Vector) -> Vector:
        """Return the model in the units of the features and the target."""

    @abstractmethod
    def theory_epsilon(self, alpha: float) -> float:
        """Return the level that the utility theorem demands."""


def shrink_problem_rows(features: Matrix, bound: float, *, norm: int) -> Matrix:
    """Return rows divided by ``bound``, those longer than it shrunk to length 1."""
    limit = check_positive("x_bound", bound, advice="Use a length that rows rarely exceed.")
    lengths = clipping_norms(features, order=norm)  # an infinite one makes a row of zeros
    # The length is off by a factor within 1 ± (d + 2) 2^-53; three more roundings follow it.
    safe = 1.0 - (features.shape[1] + 16) * 2.0**-52
    return np.asarray(features * (safe / np.maximum(lengths, limit)), dtype=np.float64)


class RidgeProblem(Problem):
    """Sums of clipped rows, and the risk of models (claims AF-8 and DP-17); curator-only."""

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
        features, target = records.read_regression_records(X, y)
        super().__init__(
            features.shape, penalty=penalty, proved=ridge_problem_radius(penalty), radius=radius
        )
        rows = shrink_problem_rows(features, x_bound, norm=1)
        values = np.clip(target / y_bound, -1.0, 1.0)
        gram, products = rows.T @ rows, rows.T @ values
        self._upper = np.triu_indices(self.n_features)
        # An entry off the diagonal counts twice, so that the sum of all is (Σ|x_i|)².
        self._weights = np.where(self._upper[0] == self._upper[1], 1.0, 2.0)
        # Rounding moves all entries of a sum over n rows together by at most n² 2^-53.
        sensitivity = 2.0 + 4.0 * float(self.n_records) ** 2 * 2.0**-53
        moments = self._weights * gram[self._upper]
        self.parts = (
            Part(name="moments", values=moments, sensitivity=sensitivity, length=sensitivity),
            Part(name="products", values=products, sensitivity=sensitivity, length=sensitivity),
        )
        # The loss of one record is at most (1 + R)²/2, for the model and for the best one.
        self.excess_sensitivity = (1.0 + self.radius) ** 2 / self.n_records
        self.bounds = (
            f"Rows are shrunk to absolute sum {x_bound:g}, targets clipped to {y_bound:g}; both "
            "bounds were fixed without looking at the data.",
            records.EMPTY_RECORDS,
        )
        self._unit = float(y_bound) / float(x_bound)
        self._risk = gram / self.n_records + penalty * np.eye(self.n_features)
        pull = products / self.n_records
        self.best = solve_trust_region(self._risk, pull, radius=self.radius)
        self._slope = self._risk @ self.best - pull  # zero, unless the best is on the sphere

    def model(self, noisy: tuple[Vector, ...]) -> Vector:
        """Minimise the perturbed risk over the ball that holds the solution."""
        moments, products = noisy
        matrix = np.zeros((self.n_features, self.n_features))
        matrix[self._upper] = moments / (self._weights * self.n_records)
        matrix += np.triu(matrix, 1).T + self.penalty * np.eye(self.n_features)
        return solve_trust_region(matrix, products / self.n_records, radius=self.radius)

    def excess_risk(self, models: Matrix) -> Vector:
        """Return the risk of each row above the least risk within the ball."""
        away = models - self.best
        curved = 0.5 * np.einsum("ki,ij,kj->k", away, self._risk, away)
        return np.asarray(curved + away @ self._slope)

    def coefficients(self, model: Vector) -> Vector:
        """Return the model in the units of the features and the target."""
        return model * self._unit

    def theory_epsilon(self, alpha: float) -> float:
        """Return the level at which the expected excess risk is at most ``alpha``."""
        return ridge_problem_epsilon(
            alpha, n_records=self.n_records, n_features=self.n_features, radius=self.radius
        )


def ridge_problem_radius(penalty: float) -> float:
    """Return a length that no ridge solution exceeds: ``1/(2 sqrt(λ))``."""
    return 0.5 / math.sqrt(penalty)


def ridge_problem_epsilon(
    alpha: float, *, n_records: int, n_features: int, radius: float, gamma: float | None = None
) -> float:
    """Return the ``ε`` of excess risk ``alpha``: on average, or but for ``gamma`` (claim AF-8)."""
    products = 2.0 * radius * math.sqrt(n_features)
    moments = radius**2 * 0.5 * math.sqrt(n_features * (n_features + 3))
    average = 4.0 * math.sqrt(2.0) * (products + moments) / (n_records * alpha)
    return average if gamma is None else average / math.sqrt(gamma)


def solve_trust_region(matrix: Matrix, vector: Vector, *, radius: float) -> Vector:
    """Minimise ``½ θᵀAθ - bᵀθ`` over ``|θ| <= radius``; ``A`` symmetric, of any signature.

    Where there are several minimisers (the hard case), one of them is returned.

    Guarantee
    ---------
    Claim AF-6. The result satisfies the conditions for a global minimum, up to rounding.
    """
    radius = check_positive("radius", radius, advice="Use a norm that models rarely exceed.")
    square, right = np.asarray(matrix, dtype=np.float64), np.asarray(vector, dtype=np.float64)
    if square.shape != (right.size, right.size) or right.ndim != 1:
        raise DataError(
            f"matrix and vector must have shapes (d, d) and (d,); got {square.shape} and "
            f"{right.shape}. Pass one entry for each coordinate."
        )
    if not (np.isfinite(square).all() and np.isfinite(right).all()):
        raise DataError("matrix and vector must be finite. Clip before solving.")
    curvature, axes = np.linalg.eigh(0.5 * (square + square.T))
    turned = axes.T @ right
    solution = axes @ _solve_turned(curvature, turned, radius)
    # Rounding may leave the length a little above the radius.
    length = float(np.linalg.norm(solution))
    return np.asarray(solution * min(1.0, radius / length) if length > 0 else solution)


def _solve_turned(curvature: Vector, turned: Vector, radius: float) -> Vector:
    """Solve it in the axes of the matrix, where it is diagonal; curvatures ascend."""
    least = float(curvature[0])
    scale = max(float(np.abs(curvature).max()), float(np.linalg.norm(turned)) / radius)
    if scale == 0.0:
        return np.zeros_like(turned)
    if least > 0:
        inside = turned / curvature
        if float(np.linalg.norm(inside)) <= radius:
            return np.asarray(inside)
    flat = curvature - least <= RELATIVE_GAP * scale
    start = max(0.0, -least)
    pull = float(np.linalg.norm(turned[flat]))
    rest = np.where(flat, 0.0, turned) / np.where(flat, 1.0, curvature + start)
    if least <= 0 and pull <= RELATIVE_GAP * scale * radius:
        length = float(np.linalg.norm(rest))
        if length <= radius:  # the hard case: fill the ball along the flattest axis
            rest[0] = math.sqrt(radius**2 - length**2) if least < 0 else 0.0
            return np.asarray(rest)
    return _on_the_sphere(curvature, turned, radius, start)


def _on_the_sphere(curvature: Vector, turned: Vector, radius: float, start: float) -> Vector:
    """Find ``μ >= start`` with ``|(A + μI)^-1 b| = radius``: the secular equation."""
    lengths = curvature + start  # >= 0, the least of them 0 where the matrix is not positive

    def gap(shift: float) -> float:
        # 1/|θ(μ)| is nearly linear in μ and increases, so bracketing is safe and fast.
        return 1.0 / float(np.linalg.norm(turned / (lengths + shift))) - 1.0 / radius

    high = float(np.linalg.norm(turned)) / radius
    low = high
    while gap(low) > 0 and low > 0:
        low *= 0.25
    while gap(high) < 0:
        high *= 2.0
    shift = low if low == high else scipy.optimize.brentq(gap, low, high, xtol=1e-300, rtol=1e-14)
    return np.asarray(turned / (lengths + shift))


MOST_STEPS: Final = 20  # of Newton's method on the sphere, from a point near the optimum
LARGEST_PULL: Final = 0.27846455  # max of m/(1 + e^m): Lambert's W at 1/e, rounded up


class LogisticProblem(Problem):
    """The optimum on clipped rows, and the risk of models (claims AF-9 and DP-17); curator-only."""

    block = 16
    mechanism = "logistic regression, perturbed optimum"

    def __init__(
        self, X: Any, y: Any, *, penalty: float, x_bound: float, radius: float | None = None
    ) -> None:
        features = records.finite_records(records.read_records(X))
        proved = logistic_problem_radius(penalty)
        super().__init__(features.shape, penalty=penalty, proved=proved, radius=radius)
        places = records.encode_record_labels(y, (-1, 1), len(features))
        signs = np.where(places < 0, 0.0, 2.0 * places - 1.0)
        signed = shrink_problem_rows(features, x_bound, norm=2) * signs[:, None]
        # Equal rows are summed once; real tables have many.
        self._rows, counts = np.unique(signed, axis=0, return_counts=True)
        self._weights = counts / self.n_records
        self._x_bound, self._narrow = float(x_bound), self.radius < proved
        self.best = _minimise(signed, penalty * self.n_records, self.radius)
        self._least_risk = float(self._risk(self.best[None, :])[0])
        sensitivity, length = (
            logistic_problem_sensitivity(self.n_records, n, penalty) * (1.0 + 2.0 * TOLERANCE)
            for n in (self.n_features, 1)
        )
        self.parts = (
            Part(name="coefficients", values=self.best, sensitivity=sensitivity, length=length),
        )
        # The loss ranges over ln((1 + e^M)/(1 + e^-M)) = M for models of length M.
        self.excess_sensitivity = 2.0 * self.radius / self.n_records
        self.bounds = (
            f"Rows are shrunk to length {self._x_bound:g}, which was fixed without looking at the "
            "data; labels are -1 or 1.",
            records.EMPTY_RECORDS,
            SOLVER,
        )

    def model(self, noisy: tuple[Vector, ...]) -> Vector:
        """Rescale the perturbed optimum where it is longer than any optimum can be."""
        (vector,) = noisy
        length = float(np.linalg.norm(vector))
        return vector * (self.radius / length) if length > self.radius else vector

    def excess_risk(self, models: Matrix) -> Vector:
        """Return the risk of each row above the least risk within the ball."""
        return np.asarray(self._risk(models) - self._least_risk)

    def coefficients(self, model: Vector) -> Vector:
        """Return the model in the units of the features."""
        return model / self._x_bound

    def theory_epsilon(self, alpha: float) -> float:
        """Return the level that the paper's theorem demands."""
        # At an optimum on the sphere the pull of the penalty is not balanced by the data's.
        steeper = 1.0 + self.penalty * self.radius if self._narrow else 1.0
        return steeper * logistic_problem_epsilon(
            alpha,
            n_records=self.n_records,
            n_features=self.n_features,
            penalty=self.penalty,
        )

    def _risk(self, models: Matrix) -> Vector:
        margins = self._rows @ models.T
        # ln(1 + e^-m) for either sign of m; several times faster than logaddexp.
        losses = np.log(1.0 + np.exp(-np.abs(margins))) + np.maximum(-margins, 0.0)
        return np.asarray(
            self._weights @ losses + 0.5 * self.penalty * np.square(models).sum(axis=1)
        )


def _minimise(signed: Matrix, penalty: float, radius: float) -> Vector:
    """Return the optimum of ``Σ ln(1 + exp(-s_i·θ)) + penalty |θ|²/2`` within the ball."""

    def optimum(curvature: float) -> Vector:
        zeros = np.zeros(signed.shape[1])
        return minimise_perturbed(signed, penalty=curvature, tilt=zeros, x_bound=1.0)[0]

    model = optimum(penalty)
    if float(np.linalg.norm(model)) <= radius:
        return model
    # On the sphere the optimum is that of a larger penalty; it shrinks as the penalty grows.
    high = 2.0 * penalty
    while float(np.linalg.norm(optimum(high))) > radius:
        high *= 2.0
    outer_penalty = scipy.optimize.brentq(
        lambda p: float(np.linalg.norm(optimum(p))) - radius, penalty, high, rtol=1e-9, disp=False
    )
    return _refine_on_sphere(signed, penalty, optimum(float(outer_penalty)), radius)


def _refine_on_sphere(signed: Matrix, penalty: float, model: Vector, radius: float) -> Vector:
    """Return a point of the sphere with a gradient along its radius, up to ``TOLERANCE``."""
    best, least = model * (radius / float(np.linalg.norm(model))), math.inf
    for _ in range(MOST_STEPS):
        model = model * (radius / float(np.linalg.norm(model)))
        wrong = scipy.special.expit(-(signed @ model))
        gradient = penalty * model - wrong @ signed
        multiplier = max(0.0, -float(gradient @ model) / radius**2)
        residual = gradient + multiplier * model
        if float(np.linalg.norm(residual)) < least:
            best, least = model, float(np.linalg.norm(residual))
        if least <= TOLERANCE / 4:
            break
        hessian = (signed * (wrong * (1.0 - wrong))[:, None]).T @ signed
        hessian += (penalty + multiplier) * np.eye(len(model))
        sides = np.stack([residual, model], axis=1)
        towards, outwards = np.linalg.lstsq(hessian, sides, rcond=None)[0].T
        model = model - towards + outwards * float(model @ towards) / float(model @ outwards)
    return best


def logistic_problem_radius(penalty: float) -> float:
    """Return a length that no regularised logistic solution exceeds: ``sqrt(W(1/e)/λ)``."""
    return math.sqrt(LARGEST_PULL / penalty)


def logistic_problem_sensitivity(n_records: int, n_features: int, penalty: float) -> float:
    """Return how far one record moves the logistic optimum: ``2 sqrt(p)/(n λ)``, absolute sum."""
    return 2.0 * math.sqrt(n_features) / (n_records * penalty)


def logistic_problem_epsilon(
    alpha: float, *, n_records: int, n_features: int, penalty: float
) -> float:
    """Return the ``ε`` that the paper's theorem demands of output perturbation, on average."""
    return 2.0 * math.sqrt(2.0) * n_features / (n_records * penalty * alpha)
