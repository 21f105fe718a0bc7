"""Linear regression from noisy sufficient statistics: ``XᵀX`` and ``Xᵀy``, released once.

``adassp`` is Algorithm 2 of Wang (2018), "Revisiting differentially private linear regression":
release the least eigenvalue of ``XᵀX``, choose the penalty from it, release ``XᵀX`` and ``Xᵀy``,
solve. Here the three releases are one Gaussian mechanism. There is no intercept.
"""

import math
from functools import partial
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy._random import BitSource
from pacprivacy.dp import noise
from pacprivacy.dp.accounting import accounting_noise_advantage
from pacprivacy.dp.certificate import DPRelease, Neighbours, check_neighbours
from pacprivacy.dp.events import Event, PureEvent, noise_event, publish_event
from pacprivacy.dp.records import (
    CHUNK_ROWS,
    EMPTY_RECORDS,
    ExactTotal,
    clipping_norms,
    read_regression_records,
)
from pacprivacy.errors import BudgetError
from pacprivacy.mechanism import symmetric_matrices

LARGEST_ENTRY: Final = 1 << 20  # features and targets in whole multiples of a millionth
# Covers what is not exact for n d <= 10^8: conversions to float64, and the eigenvalue of a matrix
# of norm n b², which is off by less than 10 n d 2^-53 b².
_FLOAT_MARGIN: Final = 1 + 1e-6


def adassp(
    X: Any,
    y: Any,
    *,
    epsilon: float,
    delta: float,
    x_bound: float,
    y_bound: float,
    neighbours: Neighbours = "add_remove",
    gamma: float = 0.05,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Fit a ridge regression whose penalty is chosen from a released eigenvalue.

    The value is a dict with ``coef`` and ``penalty``; ``gamma`` is the probability with which the
    penalty may be too small. Scale and centre by constants that do not come from these data.

    Guarantee
    ---------
    Claims D-9 and DP-17. ``(epsilon, delta)``-differential privacy for ``n d <= 10^8``; clipping,
    rounding and the discrete noise are included, and the sums are exact.
    """
    check_neighbours(neighbours)
    epsilon, delta = noise.check_epsilon_delta(epsilon, delta)
    if not 0.0 < gamma < 1.0:
        raise BudgetError(f"gamma must be between 0 and 1; got {gamma}. Use 0.05.")
    gram, products = _moments(X, y, x_bound, y_bound)
    d = len(products)
    upper = np.triu_indices(d)
    least: Vector = np.asarray(np.linalg.eigvalsh(gram)[:1], dtype=np.float64)
    reach = regression_sensitivities(x_bound, y_bound, neighbours)
    promise, source = (epsilon, delta, neighbours), noise.dp_noise_source(simulate)
    noisy = _perturb((least, gram[upper], products), reach, promise, source)
    stds = [part.noise_std for part in noisy]
    # Keeps the noisy moments well-conditioned.
    cautious = float(noisy[0].values[0]) - stds[0] * float(np.sqrt(np.log(6.0 / delta)))
    conditioning = stds[1] * float(np.sqrt(d * np.log(2.0 * d**2 / gamma)))
    penalty = max(0.0, conditioning - max(0.0, cautious))
    moments = symmetric_matrices(noisy[1].values[None])[0] + penalty * np.eye(d)
    coef = np.asarray(np.linalg.lstsq(moments, noisy[2].values, rcond=None)[0], dtype=np.float64)
    return _publish(
        {"coef": coef, "penalty": penalty},
        promise,
        1 + len(upper[0]) + d,
        bounds=(x_bound, y_bound),
        mechanism="AdaSSP ridge regression: three discrete Gaussian releases, one solve",
        method="one Gaussian mechanism for the three statistics",
        noise_stds=dict(zip(("least eigenvalue", "second moments", "products"), stds, strict=True)),
        simulation=source.is_simulation,
    )


def regression_from_statistics(
    X: Any,
    y: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    x_bound: float,
    y_bound: float,
    penalty: float | None = None,
    neighbours: Neighbours = "add_remove",
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release the moments of a regression with noise, and the coefficients that follow.

    The value is a dict with ``coef``, ``moments`` (noisy ``XᵀX``) and ``products`` (noisy ``Xᵀy``).
    The penalty is added to the diagonal of the noisy moments; by default it is ``sqrt(d)``
    deviations of their noise. ``delta=0`` takes Laplace noise, which grows with ``d²``.

    Guarantee
    ---------
    Claims DP-13 and DP-17. ``(epsilon, delta)``-differential privacy, for ``n d <= 10^8``.
    """
    noise.check_dp_noise_promise(epsilon, delta, neighbours)
    if penalty:
        check_positive("penalty", penalty, advice="Use about the size of the noise.")
    gram, products = _moments(X, y, x_bound, y_bound)
    d = len(products)
    upper = np.triu_indices(d)
    reach = regression_sensitivities(x_bound, y_bound, neighbours)[1:]
    if delta == 0.0:
        twice = 1.0 if neighbours == "add_remove" else 2.0
        reach = (x_bound**2 * (twice * (d + 1) / 2.0), x_bound * y_bound * (twice * math.sqrt(d)))
    promise, source = (epsilon, delta, neighbours), noise.dp_noise_source(simulate)
    noisy = _perturb((gram[upper], products), reach, promise, source)
    moments = symmetric_matrices(noisy[0].values[None])[0]
    if penalty is None:
        penalty = math.sqrt(d) * noisy[0].noise_std
    coef = _solve(moments, np.array(noisy[1].values), float(penalty))
    return _publish(
        {"coef": coef, "moments": moments, "products": noisy[1].values},
        promise,
        len(upper[0]) + d,
        bounds=(x_bound, y_bound),
        mechanism="regression from noisy second moments and products",
        method="one Gaussian mechanism for both statistics"
        if delta
        else "two Laplace mechanisms, half of epsilon each",
        noise_stds={"std of moments": noisy[0].noise_std, "std of products": noisy[1].noise_std},
        simulation=source.is_simulation,
    )


def _perturb(
    statistics: tuple[Vector, ...],
    reach: tuple[float, ...],
    promise: tuple[float, float, Neighbours],
    source: BitSource,
) -> list[noise.Perturbed]:
    """Add noise to statistics that share the promise evenly; Laplace noise for ``delta = 0``."""
    epsilon, delta, _ = promise
    n, n_numbers = len(statistics), sum(part.size for part in statistics)
    if delta == 0.0:
        add_noise = partial(noise.add_laplace, epsilon=epsilon / n)
    else:
        parameter = noise.dp_noise_parameter(epsilon, delta, n_numbers) / math.sqrt(n)
        add_noise = partial(noise.add_gaussian, parameter=parameter)
    return [
        add_noise(part, sensitivity=bound * _FLOAT_MARGIN, source=source)
        for part, bound in zip(statistics, reach, strict=True)
    ]


def clip_regression(X: Any, y: Any, x_bound: float, y_bound: float) -> tuple[Matrix, Vector]:
    """Return features and target clipped to their bounds, in whole millionths of these."""
    check_positive("x_bound", x_bound, advice="Use a norm that rows rarely exceed.")
    check_positive("y_bound", y_bound, advice="Use a value that targets rarely exceed.")
    features, target = read_regression_records(X, y)
    shrink = np.minimum(1.0, x_bound / np.maximum(clipping_norms(features), 1e-300))
    # Whole multiples of a millionth of the bounds, towards zero: norms only shrink. The factor
    # leaves room for the rounding of the norm itself.
    whole = np.trunc(features * shrink * ((1 - 1e-12) * LARGEST_ENTRY / x_bound))
    return whole, np.trunc(np.clip(target / y_bound, -1.0, 1.0) * LARGEST_ENTRY)


def regression_sums(features: Matrix, target: Vector) -> tuple[Matrix, Vector]:
    """Return ``XᵀX`` and ``Xᵀy`` of whole numbers, without rounding until the last conversion."""
    d = features.shape[1]
    gram, products = ExactTotal((d, d)), ExactTotal((d,))
    for start in range(0, len(features), CHUNK_ROWS):
        rows = features[start : start + CHUNK_ROWS]
        for total, other in ((gram, rows), (products, target[start : start + CHUNK_ROWS])):
            total.expect(len(rows))
            total.add(rows.T @ other)
    return gram.rounded(), products.rounded()


def regression_sensitivities(
    x_bound: float, y_bound: float, neighbours: Neighbours
) -> tuple[float, float, float]:
    """Return how far one record moves the least eigenvalue, the upper triangle, and ``Xᵀy``."""
    squared, product = x_bound**2, x_bound * y_bound
    if neighbours == "add_remove":
        return squared, squared, product
    return squared, math.sqrt(2.0) * squared, 2.0 * product


def _moments(X: Any, y: Any, x_bound: float, y_bound: float) -> tuple[Matrix, Vector]:
    """Return ``XᵀX`` and ``Xᵀy`` of clipped records."""
    gram, products = regression_sums(*clip_regression(X, y, x_bound, y_bound))
    return (
        gram * (x_bound / LARGEST_ENTRY) ** 2,
        products * (x_bound * y_bound / LARGEST_ENTRY**2),
    )


def _publish(
    value: dict[str, Any],
    promise: tuple[float, float, Neighbours],
    n_numbers: int,
    *,
    bounds: tuple[float, float],
    mechanism: str,
    method: str,
    noise_stds: dict[str, float],
    simulation: bool,
) -> DPRelease:
    """Return what follows from moments that were released with noise."""
    epsilon, delta, _ = promise
    event: Event = PureEvent(epsilon=epsilon / 2.0, count=2)  # Laplace noise on two statistics
    return publish_event(
        value,
        promise,
        noise_event(epsilon, delta, n_numbers) if delta else event,
        advantage=accounting_noise_advantage(epsilon, delta, n_numbers),
        mechanism=mechanism,
        assumptions=(
            f"Rows are clipped to norm {float(bounds[0]):g}, targets to {float(bounds[1]):g}; both "
            "bounds were fixed without looking at the data.",
            EMPTY_RECORDS,
        ),
        accounting={"method": method},
        noise=noise_stds,
        simulation=simulation,
    )


def _solve(moments: Matrix, products: Vector, penalty: float) -> Vector:
    """Return the coefficients; directions that noise made negative are left out."""
    values, vectors = np.linalg.eigh(moments)
    kept = values + penalty > max(penalty, 1e-9 * float(np.abs(values).max(initial=0.0)))
    inverse = np.where(kept, 1.0 / np.where(kept, values + penalty, 1.0), 0.0)
    return np.asarray(vectors @ (inverse * (vectors.T @ products)), dtype=np.float64)
