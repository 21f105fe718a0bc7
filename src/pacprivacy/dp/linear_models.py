"""Linear models in one release: regression from noisy sums, logistic regression by its minimiser.

``adassp`` is Algorithm 2 of Wang (2018), "Revisiting differentially private linear regression",
with its three releases as one Gaussian mechanism. Objective perturbation tilts the sum of losses by
a random linear term and minimises that; output perturbation adds noise to the minimiser. Either way
float64 finds the minimiser only nearly, and the error is paid for. Values are arrays of
coefficients, without an intercept. The penalty is that of the whole sum.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import scipy

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy._random import BitSource
from pacprivacy.dp import noise, records
from pacprivacy.dp.accounting import accounting_noise_advantage, advantage
from pacprivacy.dp.certificate import REACH, DPRelease, Neighbours, check_neighbours
from pacprivacy.dp.events import (
    ApproximateEvent,
    Event,
    GaussianEvent,
    PureEvent,
    noise_event,
    publish_event,
)
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.mechanism import symmetric_matrices
from pacprivacy.theory import gaussian_delta, gaussian_parameter

MOST_CURVATURE: Final = 0.25  # of the logistic loss ln(1 + exp(-margin))
TOLERANCE: Final = 1e-6  # of the gradient at the minimiser, in units of one record's gradient
MOST_ITERATIONS: Final = 1000
MOST_IDLE: Final = 5  # of them without progress, where only rounding is left
MOST_TRIALS: Final = 200  # of the length of one step
SOLVER_SHARE: Final = 0.02  # of ε, for what the solver and the grid leave undone
SOLVER: Final = (
    "The minimiser is found to a gradient of a millionth of what one record can add. Where float64 "
    "does not suffice for that, the best point that was found takes its place; neither is said."
)
RELATIVE_GAP: Final = 1e-14  # a pull that is smaller than this is rounding
_UNIT: Final = 2.0**-53
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
    noise.check_gamma(gamma)
    gram, products = records.regression_sums(X, y, x_bound, y_bound)
    d = len(products)
    upper = np.triu_indices(d)
    least: Vector = np.asarray(np.linalg.eigvalsh(gram)[:1], dtype=np.float64)
    reach = regression_sensitivities(x_bound, y_bound, neighbours)
    promise, source = (epsilon, delta, neighbours), noise.dp_noise_source(simulate)
    named = {"least eigenvalue": least, "second moments": gram[upper], "products": products}
    noisy = _perturb_statistics(named, reach, promise, source)
    eigenvalue, curvature, right = noisy.values()
    # Keeps the noisy moments well-conditioned.
    cautious = float(eigenvalue.values[0]) - eigenvalue.noise_std * float(
        np.sqrt(np.log(6.0 / delta))
    )
    floor = curvature.noise_std * float(np.sqrt(d * np.log(2.0 * d**2 / gamma)))
    penalty = max(0.0, floor - max(0.0, cautious))
    moments = symmetric_matrices(curvature.values[None])[0] + penalty * np.eye(d)
    coef = np.asarray(np.linalg.lstsq(moments, right.values, rcond=None)[0], dtype=np.float64)
    return _publish_regression(
        {"coef": coef, "penalty": penalty},
        promise,
        noisy,
        bounds=(x_bound, y_bound),
        mechanism="AdaSSP ridge regression: three discrete Gaussian releases, one solve",
        method="one Gaussian mechanism for the three statistics",
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
    gram, products = records.regression_sums(X, y, x_bound, y_bound)
    d = len(products)
    upper = np.triu_indices(d)
    reach = regression_sensitivities(x_bound, y_bound, neighbours)[1:]
    if delta == 0.0:
        twice = REACH[neighbours]
        reach = (x_bound**2 * (twice * (d + 1) / 2.0), x_bound * y_bound * (twice * math.sqrt(d)))
    promise, source = (epsilon, delta, neighbours), noise.dp_noise_source(simulate)
    named = {"std of moments": gram[upper], "std of products": products}
    noisy = _perturb_statistics(named, reach, promise, source)
    curvature, right = noisy.values()
    moments = symmetric_matrices(curvature.values[None])[0]
    if penalty is None:
        penalty = math.sqrt(d) * curvature.noise_std
    coef = _solve_moments(moments, np.array(right.values), float(penalty))
    return _publish_regression(
        {"coef": coef, "moments": moments, "products": right.values},
        promise,
        noisy,
        bounds=(x_bound, y_bound),
        mechanism="regression from noisy second moments and products",
        method="one Gaussian mechanism for both statistics"
        if delta
        else "two Laplace mechanisms, half of epsilon each",
        simulation=source.is_simulation,
    )


def _perturb_statistics(
    statistics: dict[str, Vector],
    reach: tuple[float, ...],
    promise: tuple[float, float, Neighbours],
    source: BitSource,
) -> dict[str, noise.Perturbed]:
    """Add noise to statistics that share the promise evenly; Laplace noise for ``delta = 0``."""
    epsilon, delta, _ = promise
    n, n_numbers = len(statistics), sum(part.size for part in statistics.values())
    if delta == 0.0:
        add_noise = partial(noise.add_laplace, epsilon=epsilon / n)
    else:
        parameter = noise.dp_noise_parameter(epsilon, delta, n_numbers) / math.sqrt(n)
        add_noise = partial(noise.add_gaussian, parameter=parameter)
    return {
        name: add_noise(part, sensitivity=bound * _FLOAT_MARGIN, source=source)
        for (name, part), bound in zip(statistics.items(), reach, strict=True)
    }


def regression_sensitivities(
    x_bound: float, y_bound: float, neighbours: Neighbours
) -> tuple[float, float, float]:
    """Return the sensitivity of the least eigenvalue, the upper triangle, and ``Xᵀy``."""
    reach, squared = REACH[neighbours], x_bound**2
    return squared, math.sqrt(reach) * squared, reach * (x_bound * y_bound)


def _publish_regression(
    value: dict[str, Any],
    promise: tuple[float, float, Neighbours],
    noisy: dict[str, noise.Perturbed],
    *,
    bounds: tuple[float, float],
    mechanism: str,
    method: str,
    simulation: bool,
) -> DPRelease:
    epsilon, delta, _ = promise
    n_numbers = sum(part.values.size for part in noisy.values())
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
            records.EMPTY_RECORDS,
        ),
        accounting={"method": method},
        noise={name: part.noise_std for name, part in noisy.items()},
        simulation=simulation,
    )


def _solve_moments(moments: Matrix, products: Vector, penalty: float) -> Vector:
    """Return the coefficients; directions that noise made negative are left out."""
    values, vectors = np.linalg.eigh(moments)
    kept = values + penalty > max(penalty, 1e-9 * float(np.abs(values).max(initial=0.0)))
    inverse = np.where(kept, 1.0 / np.where(kept, values + penalty, 1.0), 0.0)
    return np.asarray(vectors @ (inverse * (vectors.T @ products)), dtype=np.float64)


def sign_perturbed_rows(X: Any, y: Any, *, x_bound: float, classes: Sequence[Any] | None) -> Matrix:
    """Return rows clipped to ``x_bound``, negated for the first of two declared classes."""
    bound = check_positive("x_bound", x_bound, advice="Use a norm that rows rarely exceed.")
    if classes is None or len(set(classes)) != 2:
        raise DataError(
            f"classes must be the two labels, declared; got {classes!r}. They must not be read "
            "off the data."
        )
    rows = records.shrink_rows(records.read_records(X), bound)
    signs = records.encode_record_signs(y, tuple(classes), len(rows))
    return np.asarray(rows * signs[:, None])


@np.errstate(all="ignore")
def minimise_perturbed(
    signed: Matrix, *, penalty: float, tilt: Vector, x_bound: float
) -> tuple[Vector, float]:
    """Minimise ``Σ f(s_i·θ) + penalty |θ|²/2 + tilt·θ`` over rows of :func:`sign_perturbed_rows`.

    Returns a point at which the norm of the gradient is at most the second number, which is
    public; it is within that over ``penalty`` of the minimiser. Where float64 does not suffice
    (claim DP-10), the point with the least gradient: an error would be about the records.
    """
    allowed = TOLERANCE * x_bound
    point = best = np.zeros(signed.shape[1])
    least = math.inf

    def gradient_at(where: Vector) -> Vector:
        slopes = -scipy.special.expit(-(signed @ where))
        return np.asarray(signed.T @ slopes + penalty * where + tilt)

    gradient = gradient_at(point)
    idle = 0
    for _ in range(MOST_ITERATIONS):
        size = float(np.linalg.norm(gradient))
        idle += 1
        if size < least:
            best, least, idle = point, size, 0
        if least <= allowed / 4 and (
            idle > MOST_IDLE or _bound_norm(signed, penalty, tilt, best) <= allowed
        ):
            break
        move = _newton_step(signed, penalty, gradient, point)
        point, gradient = _follow(gradient_at, point, gradient, move, enough=0.5 * least)
    return best, allowed


def _bound_norm(signed: Matrix, penalty: float, tilt: Vector, point: Vector) -> float:
    """Return a bound on the norm of the gradient, including rounding."""
    n, d = signed.shape
    slopes = -scipy.special.expit(-(signed @ point))
    gradients = np.ascontiguousarray((signed * slopes[:, None]).T)
    gradient = gradients.sum(axis=1) + penalty * point + tilt  # numpy adds rows of floats pairwise
    row = float(np.linalg.norm(signed, axis=1).max(initial=0.0))
    size = float(np.linalg.norm(point))
    margins = MOST_CURVATURE * row * size * (d + 2) * _UNIT + 8 * _UNIT
    sums = (2.0 * math.log2(n + 2) + 16.0) * _UNIT
    error = n * row * (margins + sums) + (penalty * size + float(np.linalg.norm(tilt))) * 4 * _UNIT
    return float(np.linalg.norm(gradient) + error)


def _newton_step(signed: Matrix, penalty: float, gradient: Vector, point: Vector) -> Vector:
    """Return Newton's step, or one along the gradient where the former is not one downwards."""
    margins = signed @ point
    weights = scipy.special.expit(margins) * scipy.special.expit(-margins)
    hessian = (signed * weights[:, None]).T @ signed + penalty * np.eye(len(point))
    try:
        move = -np.linalg.solve(hessian, gradient)
    except np.linalg.LinAlgError:
        move = np.zeros_like(gradient)
    if not float(gradient @ move) < 0.0:
        move = -gradient / float(np.trace(hessian))
    return np.asarray(move)


def _follow(
    gradient_at: Callable[[Vector], Vector],
    point: Vector,
    gradient: Vector,
    move: Vector,
    *,
    enough: float,
) -> tuple[Vector, Vector]:
    """Go along ``move`` until the slope has at least halved, and not past the lowest point."""
    slope = float(gradient @ move)
    short, length, far = 0.0, 1.0, math.inf
    for _ in range(MOST_TRIALS):
        trial = point + length * move
        gradient = gradient_at(trial)
        steep = float(gradient @ move)
        if length == 1.0 and float(np.linalg.norm(gradient)) <= enough:
            break
        if steep > 0.0:
            far = length
        elif steep < 0.5 * slope:
            short = length
        else:
            break
        length = 2.0 * length if far == math.inf else 0.5 * (short + far)
    return trial, gradient


def objective_perturbation(
    X: Any,
    y: Any,
    *,
    classes: Sequence[Any],
    penalty: float,
    x_bound: float,
    epsilon: float,
    delta: float = 0.0,
    neighbours: Neighbours = "add_remove",
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release the minimiser of ``Σ f(±x_i·θ) + penalty |θ|²/2 + b·θ``, ``b`` random.

    ``f`` is the logistic loss; the penalty is above :func:`least_penalty`. ``b`` is Gaussian, and
    has Laplace entries for ``delta=0``.

    Guarantee
    ---------
    Claims DP-12, DP-17 and DP-31. ``(epsilon, delta)``-differential privacy. The solver stops at a
    small gradient; Laplace noise from a fiftieth of ``epsilon`` covers its distance from the
    minimiser.
    """
    epsilon, delta = noise.check_dp_noise_promise(epsilon, delta, neighbours)
    penalty = check_positive("penalty", penalty, advice="Use about a hundredth of n.")
    signed = sign_perturbed_rows(X, y, x_bound=x_bound, classes=classes)
    d = signed.shape[1]
    curvature = MOST_CURVATURE * float(x_bound) ** 2
    left = (1 - SOLVER_SHARE) * epsilon - math.log1p(curvature / penalty)  # for the linear term
    if not left > 1e-3 * epsilon:
        least = least_penalty(epsilon, x_bound=x_bound)
        raise BudgetError(
            f"penalty must be above {least:.6g} for epsilon {epsilon:g}: one record adds "
            f"curvature {curvature:.6g}; got {penalty:g}. Use {3 * least:.3g}."
        )
    source = noise.dp_noise_source(simulate)
    tilt, best = _linear_term(d, float(x_bound), (left, epsilon, delta), neighbours, source)
    point, gradient = minimise_perturbed(signed, penalty=penalty, tilt=tilt.values, x_bound=x_bound)
    # Distance from the minimiser under continuous noise: the solver's, and that of rounding it.
    distance = (gradient + tilt.grid_step * math.sqrt(d)) / penalty * (1 + 1e-12)
    final = noise.add_laplace(
        point,
        sensitivity=2.0 * distance * math.sqrt(d) * (1 + 1e-12),
        epsilon=SOLVER_SHARE * epsilon,
        source=source,
    )
    return publish_event(
        final.values,
        (epsilon, delta, neighbours),
        ApproximateEvent(epsilon=epsilon, delta=delta) if delta else PureEvent(epsilon=epsilon),
        simulation=source.is_simulation,
        advantage=best,
        mechanism="objective perturbation of a regularised linear classifier",
        assumptions=(_declared(x_bound), records.EMPTY_RECORDS, SOLVER),
        accounting={
            "method": "density of the minimiser",
            "epsilon of curvature": (1 - SOLVER_SHARE) * epsilon - left,
            "epsilon of the linear term": left,
            "epsilon of the solver": SOLVER_SHARE * epsilon,
        },
        noise={"std of the linear term": tilt.noise_std, "std at the end": final.noise_std},
    )


def _linear_term(
    n_numbers: int,
    x_bound: float,
    promise: tuple[float, float, float],
    neighbours: Neighbours,
    source: BitSource,
) -> tuple[noise.Perturbed, float | None]:
    """Draw the linear term from its own ``ε``, and bound the advantage; none for a pure promise."""
    left, epsilon, delta = promise
    zeros = np.zeros(n_numbers)
    if delta == 0.0:
        reach = x_bound * math.sqrt(n_numbers) * REACH[neighbours]
        # Masses on the grid are within e^(step/2 scale) of those of rounded continuous noise.
        left -= n_numbers / noise.UNITS_PER_SCALE * (1 + 1e-9)
        reach *= 1 + 1e-12
        return noise.add_laplace(zeros, sensitivity=reach, epsilon=left, source=source), None
    slack = noise.dp_noise_slack(epsilon, n_numbers)
    if not delta > 2.0 * slack:
        raise BudgetError(f"delta must pay for the grid; got {delta:g}. Use a larger delta.")
    parameter = _parameter(left, delta - slack, neighbours)
    best = _advantage(parameter, SOLVER_SHARE * epsilon, n_numbers, neighbours)
    tilt = noise.add_gaussian(zeros, sensitivity=x_bound, parameter=parameter, source=source)
    return tilt, best


def least_penalty(epsilon: float, *, x_bound: float) -> float:
    """Return the penalty ``β / (e^ε - 1)`` below which objective perturbation cannot promise ``ε``.

    ``β`` is the curvature of one record; a good penalty is a few times as large.
    """
    epsilon = check_positive("epsilon", epsilon, advice="Use about 1.")
    curvature = MOST_CURVATURE * float(x_bound) ** 2
    share = (1 - SOLVER_SHARE) * epsilon
    return curvature * math.exp(-share) / -math.expm1(-share)  # no overflow


def _advantage(
    parameter: float, solver_epsilon: float, n_numbers: int, neighbours: Neighbours
) -> float:
    """Return a bound on the advantage: of the tilt, with a coin of the solver's ``ε`` beside it."""
    plain = advantage(GaussianEvent(noise_multiplier=1.0 / parameter))
    shrink = math.exp(-solver_epsilon)
    heads = 1.0 / (1.0 + shrink)
    likely = 1.0 - shrink * (1.0 - plain)
    unlikely = gaussian_delta(solver_epsilon, parameter)
    one = heads * likely + (1.0 - heads) * unlikely + noise.dp_noise_slack(0.0, n_numbers)
    # A replacement is a removal and an addition.
    return min(1.0, REACH[neighbours] * one * (1 + 1e-12))


def _parameter(epsilon: float, delta: float, neighbours: Neighbours) -> float:
    """Return the largest ``μ`` = x_bound / noise that the linear term may have."""
    if neighbours == "add_remove":
        return gaussian_parameter(epsilon, delta)

    def excess(log_parameter: float) -> float:
        parameter = math.exp(log_parameter)
        one, both = gaussian_delta(epsilon, parameter), gaussian_delta(epsilon, 2 * parameter)
        return 2 * one + both - delta

    high = math.log(gaussian_parameter(epsilon, delta))
    low = high - 1.0
    while excess(low) > 0:
        low -= 1.0
    return math.exp(float(scipy.optimize.brentq(excess, low, high, xtol=1e-12)) - 1e-9)


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
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release the minimiser of ``Σ f(±x_i·θ) + penalty |θ|²/2`` with noise, ``f`` logistic.

    Noise falls with the penalty. ``delta=0`` takes Laplace noise, which grows faster with ``d``;
    replacement needs twice the noise.

    Guarantee
    ---------
    Claim DP-10. ``(epsilon, delta)``-differential privacy; what the solver leaves undone is in the
    sensitivity. A note bounds the expected excess of the sum. Claim DP-17: what is refused is
    public.
    """
    noise.check_dp_noise_promise(epsilon, delta, neighbours)
    penalty = check_positive("penalty", penalty, advice="Use about a hundredth of n.")
    signed = sign_perturbed_rows(X, y, x_bound=x_bound, classes=classes)
    d = signed.shape[1]
    point, gradient = minimise_perturbed(signed, penalty=penalty, tilt=np.zeros(d), x_bound=x_bound)
    contribution = float(x_bound) * REACH[neighbours]
    sensitivity = (contribution + 2.0 * gradient) / penalty * (1 + 1e-12)
    source = noise.dp_noise_source(simulate)
    noisy = noise.add_noise(
        point,
        sensitivity=sensitivity if delta else sensitivity * math.sqrt(d) * (1 + 1e-12),
        epsilon=epsilon,
        delta=delta,
        source=source,
    )
    curvature = MOST_CURVATURE * float(x_bound) ** 2
    fixed, each = perturbation_excess(noisy.noise_std, d, penalty, curvature)
    return publish_event(
        noisy.values,
        (epsilon, delta, neighbours),
        noise_event(epsilon, delta, d),
        simulation=source.is_simulation,
        advantage=accounting_noise_advantage(epsilon, delta, d),
        mechanism="output perturbation of a regularised linear classifier",
        assumptions=(_declared(x_bound), records.EMPTY_RECORDS, SOLVER),
        accounting={
            "method": "one Gaussian mechanism" if delta else "one Laplace mechanism",
            "Euclidean sensitivity": sensitivity,
        },
        noise={"std": noisy.noise_std},
        notes=(
            "In expectation, noise raises the minimised sum over n records by at most "
            f"{fixed:.4g} + {each:.4g} n.",
        ),
    )


def perturbation_excess(
    noise_std: float, n_features: int, penalty: float, curvature: float
) -> tuple[float, float]:
    """Return the largest increase of the expected sum by noise: at once, and for each record."""
    return noise_std**2 * n_features * penalty / 2.0, noise_std**2 * curvature / 2.0


def _declared(x_bound: float) -> str:
    return (
        f"Rows are clipped to norm {float(x_bound):g} and labels are one of two declared; "
        "neither was found in the data."
    )


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
    curvature, axes = np.linalg.eigh(0.5 * (square + square.T))  # curvatures ascend
    turned = axes.T @ right
    scale = max(float(np.abs(curvature).max()), float(np.linalg.norm(turned)) / radius)
    if scale == 0.0:
        return np.zeros_like(right)
    # In the hard case nothing pulls along the flattest axis: a pull below rounding decides.
    if curvature[0] <= 0 and abs(turned[0]) < RELATIVE_GAP * scale * radius:
        turned[0] = RELATIVE_GAP * scale * radius
    if curvature[0] > 0 and float(np.linalg.norm(turned / curvature)) <= radius:
        solution = turned / curvature
    else:
        lengths = curvature + max(0.0, -float(curvature[0]))
        solution = turned / (lengths + _secular_root(lengths, turned, radius))
    # Rounding may leave the length a little above the radius.
    length = max(float(np.linalg.norm(solution)), radius)
    return np.asarray(axes @ (solution * (radius / length)))


def _secular_root(lengths: Vector, turned: Vector, radius: float) -> float:
    """Find ``μ > 0`` with ``|(A + μI)^-1 b| = radius``, ``A`` diagonal and not negative."""

    def gap(shift: float) -> float:
        # 1/|θ(μ)| is nearly linear in μ and increases, so bracketing is safe and fast.
        return 1.0 / float(np.linalg.norm(turned / (lengths + shift))) - 1.0 / radius

    low = high = float(np.linalg.norm(turned)) / radius
    while gap(low) > 0 and low > 0:
        low *= 0.25
    while gap(high) < 0:
        high *= 2.0
    if low == high:
        return low
    return float(scipy.optimize.brentq(gap, low, high, xtol=1e-300, rtol=1e-14))
