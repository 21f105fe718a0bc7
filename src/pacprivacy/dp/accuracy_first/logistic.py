"""Logistic regression by output perturbation, with as little loss as the accuracy allows.

Records have Euclidean length at most 1, labels are -1 and 1, neighbours differ in one record, and
the risk has penalty ``λ|θ|²/2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import special
from scipy.optimize import brentq

from pacprivacy._checks import Matrix, Vector
from pacprivacy.dp.accuracy_first.search import Method, Part, Problem, shrink_rows
from pacprivacy.dp.losses import LogisticMargin
from pacprivacy.dp.perturbation import SOLVER, TOLERANCE, minimise_margins
from pacprivacy.dp.records import EMPTY_RECORDS, encode_labels, finite_rows, read_rows

MOST_STEPS: Final = 20  # of Newton's method on the sphere, from a point near the optimum
LARGEST_PULL: Final = 0.27846455  # max of m/(1 + e^m): Lambert's W at 1/e, rounded up


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputNR(Method):
    """Regularised logistic regression: lower the noise on the optimum until the risk is good.

    The risk is ``1/n Σ ln(1 + exp(-y θ·x)) + λ/2 |θ|²`` of rows divided by ``x_bound``.

    Parameters
    ----------
    alpha : float > 0, public
        Excess risk that is asked for.
    penalty : float > 0, public
        ``λ``.
    x_bound : float > 0, public
        Rows are shrunk to this Euclidean length; it must not be read off the data.
    gamma : float in (0, 1), public
        Probability with which the accuracy may be missed.
    neighbours : {"replace"}, public
        Relation that the promise is about; the number of records is public.
    n_levels : int, public
        Levels from ``1/n`` to four times what the theorem demands.
    calibration : {"tight", "theorem"}, public
        How the test is calibrated; see :func:`plan_threshold`.
    radius : float > 0, optional, public
        Length within which models are sought, in units of scaled rows; by default what the
        penalty implies, ``sqrt(W(1/e)/λ)``. A smaller one makes the test cheaper, and excess
        risk is over the best model of at most this length. It must not be read off the data.

    Guarantee
    ---------
    Claims AF-4, AF-5 and AF-9. The ex-post loss is in the certificate; with probability
    ``1 - gamma`` a model that was accepted has excess risk at most ``alpha``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, size=(20_000, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> method = OutputNR(alpha=0.1, penalty=0.01, x_bound=1.0, n_levels=100)
    >>> release = method.release(X, y, simulate=0)
    >>> release.value.shape, release.certificate.kind
    ((2,), 'dp-ex-post')
    """

    def prepare(self, X: Any, y: Any) -> LogisticProblem:
        """Return the optimum on the clipped data; curator-only."""
        return LogisticProblem(X, y, penalty=self.penalty, x_bound=self.x_bound, radius=self.radius)


class LogisticProblem(Problem):
    """The optimum on clipped rows, and the risk of models on them; curator-only.

    Guarantee
    ---------
    Claim AF-9. Exchanging one record moves the optimum, as computed, by at most the part's
    ``sensitivity`` in the sum of absolute changes, and the excess risk of a model within the
    radius by at most ``excess_sensitivity``. Claim DP-17: what is refused is public.
    """

    block = 16
    mechanism = "logistic regression, perturbed optimum"

    def __init__(
        self, X: Any, y: Any, *, penalty: float, x_bound: float, radius: float | None = None
    ) -> None:
        features = finite_rows(read_rows(X))
        proved = logistic_radius(penalty)
        super().__init__(features.shape, penalty=penalty, proved=proved, radius=radius)
        places = encode_labels(y, (-1, 1), len(features))
        signs = np.where(places < 0, 0.0, 2.0 * places - 1.0)
        signed = shrink_rows(features, x_bound, norm=2) * signs[:, None]
        # Equal rows are summed once; real tables have many.
        self._rows, counts = np.unique(signed, axis=0, return_counts=True)
        self._weights = counts / self.n_records
        self._x_bound, self._narrow = float(x_bound), self.radius < proved
        self.best = _minimise(signed, penalty * self.n_records, self.radius)
        self._least_risk = float(self._risk(self.best[None, :])[0])
        exact = output_sensitivity(self.n_records, self.n_features, penalty)
        sensitivity = exact * (1.0 + 2.0 * TOLERANCE)
        self.parts = (Part(name="coefficients", values=self.best, sensitivity=sensitivity),)
        # The loss ranges over ln((1 + e^M)/(1 + e^-M)) = M for models of length M.
        self.excess_sensitivity = 2.0 * self.radius / self.n_records
        self.bounds = (
            f"Rows are shrunk to length {self._x_bound:g}, which was fixed without looking at the "
            "data; labels are -1 or 1.",
            EMPTY_RECORDS,
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
        return steeper * output_epsilon(
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
        return minimise_margins(
            signed, LogisticMargin(), penalty=curvature, tilt=zeros, x_bound=1.0
        )[0]

    model = optimum(penalty)
    if float(np.linalg.norm(model)) <= radius:
        return model
    # On the sphere the optimum is that of a larger penalty; it shrinks as the penalty grows.
    high = 2.0 * penalty
    while float(np.linalg.norm(optimum(high))) > radius:
        high *= 2.0
    found = brentq(
        lambda p: float(np.linalg.norm(optimum(p))) - radius, penalty, high, rtol=1e-9, disp=False
    )
    return _refine_on_sphere(signed, penalty, optimum(float(found)), radius)


def _refine_on_sphere(signed: Matrix, penalty: float, model: Vector, radius: float) -> Vector:
    """Return a point of the sphere with a gradient along its radius, up to ``TOLERANCE``."""
    best, least = model * (radius / float(np.linalg.norm(model))), math.inf
    for _ in range(MOST_STEPS):
        model = model * (radius / float(np.linalg.norm(model)))
        wrong = special.expit(-(signed @ model))
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


def logistic_radius(penalty: float) -> float:
    """Return a length that no regularised logistic solution exceeds: ``sqrt(W(1/e)/λ)``."""
    return math.sqrt(LARGEST_PULL / penalty)


def output_sensitivity(n_records: int, n_features: int, penalty: float) -> float:
    """Return how far one record moves the logistic optimum: ``2 sqrt(p)/(n λ)``, absolute sum."""
    return 2.0 * math.sqrt(n_features) / (n_records * penalty)


def output_epsilon(alpha: float, *, n_records: int, n_features: int, penalty: float) -> float:
    """Return the ``ε`` that the paper's theorem demands of output perturbation, on average.

    ``2 sqrt(2) p/(n λ α)``: the loss moves at most as far as the model.
    """
    return 2.0 * math.sqrt(2.0) * n_features / (n_records * penalty * alpha)
