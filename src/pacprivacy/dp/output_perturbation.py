"""Output perturbation: minimise a regularised loss, then add noise to the minimiser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from scipy import linalg

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy.dp.accounting import noise_advantage
from pacprivacy.dp.events import carried, noise_event
from pacprivacy.dp.margins import (
    SOLVER,
    MarginLoss,
    minimise_margins,
    read_margin_loss,
    sign_rows,
)
from pacprivacy.dp.noise import (
    Perturbed,
    add_gaussian,
    add_laplace,
    check_epsilon_delta,
    check_neighbours,
    lattice_parameter,
    read_source,
)
from pacprivacy.dp.records import EMPTY_RECORDS, norms_of, read_regression
from pacprivacy.errors import MechanismError
from pacprivacy.release import DPCertificate, DPRelease, Neighbours

RIDGE_TOLERANCE: Final = 1e-6
REFINEMENTS: Final = 20  # each one takes away at least 99 % of what is left of the gradient
_UNIT: Final = 2.0**-53


def output_perturbation(
    X: Any,
    y: Any,
    *,
    classes: Sequence[Any],
    penalty: float,
    x_bound: float,
    epsilon: float,
    delta: float = 0.0,
    neighbours: Neighbours = "add_remove",
    loss: str | MarginLoss = "logistic",
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release the minimiser of ``Σ f(±x_i·θ) + penalty |θ|²/2`` with noise.

    Parameters
    ----------
    X, y : arrays of shapes (n, d) and (n,), curator-only
        Features and labels; there is no intercept.
    classes : sequence of two labels, public
        The second has positive scores.
    penalty : float > 0, public
        Curvature of the whole sum, not of its mean; noise falls with it.
    x_bound : float > 0, public
        Rows are clipped to this norm. It must not be read off the data.
    epsilon, delta : float, public
        The promise. ``delta=0`` takes Laplace noise, which grows faster with ``d``.
    neighbours : {"add_remove", "replace"}, public
        Relation that the promise is about; replacement needs twice the noise.
    loss : {"logistic", "smooth_hinge"} or MarginLoss, public
        ``f``.
    simulate : Generator or int, optional
        Seed of the noise, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        The value is the array of coefficients.

    Guarantee
    ---------
    Claim DP-10. ``(epsilon, delta)``-differential privacy; what the solver leaves undone is in the
    sensitivity. The expected excess of the sum is at most :func:`expected_excess`. Claim DP-17:
    what is refused is public.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> release = output_perturbation(
    ...     X, X[:, 0] > 0, classes=(False, True), penalty=10.0, x_bound=3.0, epsilon=1.0,
    ...     delta=1e-6,
    ... )
    >>> bool(np.mean((X @ release.value > 0) == (X[:, 0] > 0)) > 0.8)
    True
    """
    _check_promise(epsilon, delta, neighbours)
    penalty = check_positive("penalty", penalty, advice="Use about a hundredth of n.")
    known = read_margin_loss(loss)
    signed = sign_rows(X, y, x_bound=x_bound, classes=classes)
    d = signed.shape[1]
    source = read_source(simulate)
    point, gradient = minimise_margins(
        signed, known, penalty=penalty, tilt=np.zeros(d), x_bound=x_bound
    )
    contribution = float(x_bound) * (1.0 if neighbours == "add_remove" else 2.0)
    sensitivity = (contribution + 2.0 * gradient) / penalty * (1 + 1e-12)
    noisy = _add_noise(point, sensitivity, epsilon, delta, source)
    curvature = known.most_curvature * float(x_bound) ** 2
    fixed, each = _excess_parts(noisy.noise_std, d, penalty, curvature)
    certificate = DPCertificate(
        epsilon=float(epsilon),
        delta=float(delta),
        neighbours=neighbours,
        advantage=noise_advantage(epsilon, delta, d),
        mechanism="output perturbation of a regularised linear classifier",
        assumptions=(
            f"Rows are clipped to norm {float(x_bound):g} and labels are one of two declared; "
            "neither was found in the data.",
            EMPTY_RECORDS,
            SOLVER,
        ),
        accounting=_accounting(delta, sensitivity),
        noise={"std": noisy.noise_std},
        events=carried(noise_event(epsilon, delta, d)),
        notes=(
            "In expectation, noise raises the minimised sum over n records by at most "
            f"{fixed:.4g} + {each:.4g} n.",
        ),
        simulation=source.is_simulation,
    )
    return DPRelease(value=noisy.values, certificate=certificate)


def ridge_output_perturbation(
    X: Any,
    y: Any,
    *,
    penalty: float,
    x_bound: float,
    y_bound: float,
    epsilon: float,
    delta: float = 0.0,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release ridge coefficients with noise, for replacements of one record.

    Parameters
    ----------
    X, y : arrays of shapes (n, d) and (n,), curator-only
        Features and target; there is no intercept. Their number is public.
    penalty : float > 0, public
        Of the sum: ``Σ (y_i - x_i·θ)²/2 + penalty |θ|²/2``.
    x_bound, y_bound : float > 0, public
        Rows are clipped to this norm, targets to this absolute value. They must not be read off
        the data.
    epsilon, delta : float, public
        The promise. ``delta=0`` takes Laplace noise.
    simulate : Generator or int, optional
        Seed of the noise, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        The value is the array of coefficients.

    Guarantee
    ---------
    Claim DP-11. ``(epsilon, delta)``-differential privacy under ``replace``; the expected excess
    of the sum over its minimum is at most the figure in the certificate. Claim DP-17: what is
    refused is public.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(5000, 2))
    >>> release = ridge_output_perturbation(
    ...     X, X @ [1.0, -1.0], penalty=1000.0, x_bound=1.5, y_bound=2.0, epsilon=1.0, delta=1e-6
    ... )
    >>> release.value.shape, release.certificate.neighbours
    ((2,), 'replace')
    """
    _check_promise(epsilon, delta, "replace")
    penalty = check_positive("penalty", penalty, advice="Use about a hundredth of n.")
    rows, target = _clip_regression(X, y, x_bound, y_bound)
    n, d = rows.shape
    _check_conditioning(n, d, penalty, x_bound)
    radius = y_bound * math.sqrt(n / penalty) / 2.0
    gradient_bound = x_bound * (x_bound * radius + y_bound)
    point = _solve_ridge(rows, target, penalty, RIDGE_TOLERANCE * gradient_bound)
    sensitivity = 2.0 * gradient_bound * (1.0 + RIDGE_TOLERANCE) / penalty * (1 + 1e-12)
    source = read_source(simulate)
    noisy = _add_noise(point, sensitivity, epsilon, delta, source)
    excess = expected_excess(
        noisy.noise_std, n_records=n, n_features=d, penalty=penalty, curvature=x_bound**2
    )
    certificate = DPCertificate(
        epsilon=float(epsilon),
        delta=float(delta),
        neighbours="replace",
        advantage=noise_advantage(epsilon, delta, d),
        mechanism="output perturbation of ridge regression",
        assumptions=(
            f"Rows are clipped to norm {float(x_bound):g}, targets to {float(y_bound):g}; both "
            "bounds were fixed without looking at the data.",
            "The number of records is public.",
            EMPTY_RECORDS,
        ),
        accounting=_accounting(delta, sensitivity),
        noise={"std": noisy.noise_std},
        events=carried(noise_event(epsilon, delta, d)),
        notes=(f"In expectation, noise raises the minimised sum by at most {excess:.4g}.",),
        simulation=source.is_simulation,
    )
    return DPRelease(value=noisy.values, certificate=certificate)


def expected_excess(
    noise_std: float, *, n_records: int, n_features: int, penalty: float, curvature: float
) -> float:
    """Return how much noise in the minimiser raises the minimised sum, at most, in expectation.

    Parameters
    ----------
    noise_std : float
        Of each coefficient.
    n_records, n_features : int
        Size of the problem.
    penalty : float
        Of the sum.
    curvature : float
        Largest second derivative of one record's loss: ``x_bound²`` for squares, a quarter of
        that for the logistic loss.

    Examples
    --------
    >>> expected_excess(0.5, n_records=1000, n_features=4, penalty=8.0, curvature=1.0)
    129.0
    """
    fixed, each = _excess_parts(noise_std, n_features, penalty, curvature)
    return fixed + each * n_records


def _excess_parts(std: float, d: int, penalty: float, curvature: float) -> tuple[float, float]:
    return std**2 * d * penalty / 2.0, std**2 * curvature / 2.0


def _check_promise(epsilon: float, delta: float, neighbours: str) -> None:
    check_neighbours(neighbours)
    check_positive("epsilon", epsilon, advice="Use about 1.")
    if delta != 0.0:
        check_epsilon_delta(epsilon, delta)


def _add_noise(
    point: Vector, sensitivity: float, epsilon: float, delta: float, source: Any
) -> Perturbed:
    """Add Gaussian noise, or Laplace noise for ``delta=0``; ``sensitivity`` is Euclidean."""
    if delta == 0.0:
        reach = sensitivity * math.sqrt(point.size) * (1 + 1e-12)
        return add_laplace(point, sensitivity=reach, epsilon=epsilon, source=source)
    parameter = lattice_parameter(epsilon, delta, point.size)
    return add_gaussian(point, sensitivity=sensitivity, parameter=parameter, source=source)


def _accounting(delta: float, sensitivity: float) -> dict[str, Any]:
    method = "one Gaussian mechanism" if delta else "one Laplace mechanism"
    return {"method": method, "Euclidean sensitivity": sensitivity}


def _clip_regression(X: Any, y: Any, x_bound: float, y_bound: float) -> tuple[Matrix, Vector]:
    bound = check_positive("x_bound", x_bound, advice="Use a norm that rows rarely exceed.")
    limit = check_positive("y_bound", y_bound, advice="Use a value that targets rarely exceed.")
    rows, target = read_regression(X, y)
    shrink = np.minimum(1.0, (1.0 - 1e-9) * bound / np.maximum(norms_of(rows), 1e-300))
    return np.asarray(rows * shrink), np.clip(target, -limit, limit)


def _check_conditioning(n: int, d: int, penalty: float, x_bound: float) -> None:
    """Refuse, by public numbers alone, what float64 might not solve to the precision needed."""
    condition = 1.0 + n * float(x_bound) ** 2 / penalty
    if condition * (n + 16.0 * d**2) * _UNIT > 1e-2 or n * (d + 100.0) * _UNIT > 2e-7:
        raise MechanismError(
            f"penalty must be large enough for {n} records of norm {float(x_bound):g} and {d} "
            f"features to be solved in float64; got {penalty:g}. Use about a hundredth of n."
        )


def _solve_ridge(rows: Matrix, target: Vector, penalty: float, allowed: float) -> Vector:
    """Return a point at which the gradient of the sum is at most ``allowed``."""
    n, d = rows.shape
    factor = linalg.cho_factor(rows.T @ rows + penalty * np.eye(d))
    row = float(norms_of(rows).max(initial=0.0))
    largest = float(np.abs(target).max(initial=0.0))
    point: Vector = np.zeros(d)
    for _ in range(REFINEMENTS):  # solve, then refine with the exact residual
        errors = rows @ point - target
        gradient = np.ascontiguousarray((rows * errors[:, None]).T).sum(axis=1) + penalty * point
        size = float(np.linalg.norm(point))
        reach = row * (row * size + largest)
        error = n * reach * (d + 2.0 * math.log2(n + 2) + 24.0) * _UNIT + penalty * size * _UNIT
        if float(np.linalg.norm(gradient)) + error <= allowed:
            break
        point = point - linalg.cho_solve(factor, gradient)
    return point
