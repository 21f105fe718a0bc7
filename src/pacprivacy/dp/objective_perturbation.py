"""Objective perturbation: tilt a regularised loss by a random linear term, then minimise it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from scipy.optimize import brentq

from pacprivacy._checks import check_positive
from pacprivacy.dp.accounting import advantage
from pacprivacy.dp.events import ApproximateEvent, GaussianEvent, carried
from pacprivacy.dp.margins import (
    SOLVER,
    MarginLoss,
    minimise_margins,
    read_margin_loss,
    sign_rows,
)
from pacprivacy.dp.noise import (
    add_gaussian,
    add_laplace,
    check_epsilon_delta,
    check_neighbours,
    lattice_slack,
    read_source,
)
from pacprivacy.dp.records import EMPTY_RECORDS
from pacprivacy.errors import BudgetError
from pacprivacy.release import DPCertificate, DPRelease, Neighbours
from pacprivacy.theory import gaussian_delta, gaussian_parameter

SOLVER_SHARE: Final = 0.02  # of ε, for what the solver and the grid leave undone


def objective_perturbation(
    X: Any,
    y: Any,
    *,
    classes: Sequence[Any],
    penalty: float,
    x_bound: float,
    epsilon: float,
    delta: float,
    neighbours: Neighbours = "add_remove",
    loss: str | MarginLoss = "logistic",
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release the minimiser of ``Σ f(±x_i·θ) + penalty |θ|²/2 + b·θ``, ``b`` Gaussian.

    Parameters
    ----------
    X, y : arrays of shapes (n, d) and (n,), curator-only
        Features and labels; there is no intercept.
    classes : sequence of two labels, public
        The second has positive scores.
    penalty : float, public
        Curvature of the whole sum; above :func:`least_penalty`.
    x_bound : float > 0, public
        Rows are clipped to this norm. It must not be read off the data.
    epsilon, delta : float, public
        The promise.
    neighbours : {"add_remove", "replace"}, public
        Relation that the promise is about.
    loss : {"logistic", "smooth_hinge"} or MarginLoss, public
        ``f``: convex, non-increasing, with slope at least -1.
    simulate : Generator or int, optional
        Seed of the noise, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        The value is the array of coefficients.

    Raises
    ------
    BudgetError
        If the penalty does not satisfy the curvature condition.

    Guarantee
    ---------
    Claim DP-12. ``(epsilon, delta)``-differential privacy. The minimiser need not be exact: the
    solver stops at a small gradient, and its distance from the minimiser is covered by Laplace
    noise at the end, from a fiftieth of ``epsilon``. Claim DP-17: what is refused is public. Claim
    DP-31: the advantage.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> release = objective_perturbation(
    ...     X, X[:, 0] > 0, classes=(False, True), penalty=10.0, x_bound=3.0, epsilon=1.0,
    ...     delta=1e-6,
    ... )
    >>> bool(np.mean((X @ release.value > 0) == (X[:, 0] > 0)) > 0.8)
    True
    """
    check_neighbours(neighbours)
    epsilon, delta = check_epsilon_delta(epsilon, delta)
    penalty = check_positive("penalty", penalty, advice="Use about a hundredth of n.")
    known = read_margin_loss(loss)
    signed = sign_rows(X, y, x_bound=x_bound, classes=classes)
    d = signed.shape[1]
    left = _check_curvature(penalty, known, x_bound, epsilon)
    slack = lattice_slack(epsilon, d)
    if not delta > 2.0 * slack:
        raise BudgetError(f"delta must pay for the grid; got {delta:g}. Use a larger delta.")
    parameter = _parameter(left, delta - slack, neighbours)
    source = read_source(simulate)
    tilt = add_gaussian(np.zeros(d), sensitivity=x_bound, parameter=parameter, source=source)
    point, gradient = minimise_margins(
        signed, known, penalty=penalty, tilt=tilt.values, x_bound=x_bound
    )
    # Distance from the minimiser under continuous noise: the solver's, and that of rounding it.
    distance = (gradient + tilt.grid_step * math.sqrt(d)) / penalty * (1 + 1e-12)
    final = add_laplace(
        point,
        sensitivity=2.0 * distance * math.sqrt(d) * (1 + 1e-12),
        epsilon=SOLVER_SHARE * epsilon,
        source=source,
    )
    certificate = DPCertificate(
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        advantage=_advantage(parameter, SOLVER_SHARE * epsilon, d, neighbours),
        mechanism="objective perturbation of a regularised linear classifier",
        assumptions=(
            f"Rows are clipped to norm {float(x_bound):g} and labels are one of two declared; "
            "neither was found in the data.",
            EMPTY_RECORDS,
            SOLVER,
        ),
        accounting={
            "method": "density of the minimiser",
            "epsilon of curvature": (1 - SOLVER_SHARE) * epsilon - left,
            "epsilon of the linear term": left,
            "epsilon of the solver": SOLVER_SHARE * epsilon,
        },
        noise={"std of the linear term": tilt.noise_std, "std at the end": final.noise_std},
        events=carried(ApproximateEvent(epsilon=epsilon, delta=delta)),
        simulation=source.is_simulation,
    )
    return DPRelease(value=final.values, certificate=certificate)


def least_penalty(epsilon: float, *, x_bound: float, loss: str | MarginLoss = "logistic") -> float:
    """Return the penalty below which objective perturbation cannot promise ``ε``.

    ``β / (e^ε - 1)``, ``β`` the largest second derivative of one record's loss; a good penalty is
    a few times as large, so that some ``ε`` is left for the linear term.

    Examples
    --------
    >>> round(least_penalty(1.0, x_bound=1.0), 4)
    0.1502
    """
    epsilon = check_positive("epsilon", epsilon, advice="Use about 1.")
    curvature = read_margin_loss(loss).most_curvature * float(x_bound) ** 2
    return curvature / math.expm1((1 - SOLVER_SHARE) * epsilon)


def _check_curvature(penalty: float, loss: MarginLoss, x_bound: float, epsilon: float) -> float:
    """Return the ``ε`` that is left for the linear term."""
    curvature = loss.most_curvature * float(x_bound) ** 2
    left = (1 - SOLVER_SHARE) * epsilon - math.log1p(curvature / penalty)
    if not left > 1e-3 * epsilon:
        least = least_penalty(epsilon, x_bound=x_bound, loss=loss)
        raise BudgetError(
            f"penalty must be above {least:.6g} for epsilon {epsilon:g}: one record adds "
            f"curvature {curvature:.6g}; got {penalty:g}. Use {3 * least:.3g}."
        )
    return left


def _advantage(
    parameter: float, solver_epsilon: float, n_numbers: int, neighbours: Neighbours
) -> float:
    """Return a bound on the advantage: of the tilt, with a coin of the solver's ``ε`` beside it.

    Curvature costs nothing here: a record more makes every point's density larger by it, never
    smaller, and an advantage is the same in both directions.
    """
    plain = advantage(GaussianEvent(noise_multiplier=1.0 / parameter))
    shrink = math.exp(-solver_epsilon)
    heads = 1.0 / (1.0 + shrink)
    likely = 1.0 - shrink * (1.0 - plain)
    unlikely = gaussian_delta(solver_epsilon, parameter)
    one = heads * likely + (1.0 - heads) * unlikely + lattice_slack(0.0, n_numbers)
    # A replacement is a removal and an addition.
    return min(1.0, (1.0 if neighbours == "add_remove" else 2.0) * one * (1 + 1e-12))


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
    return math.exp(float(brentq(excess, low, high, xtol=1e-12)) - 1e-9)
