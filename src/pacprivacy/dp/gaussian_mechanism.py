"""The Gaussian mechanism: by the exact privacy curve, and by the classical formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pacprivacy.dp.advantage import advantage
from pacprivacy.dp.composition import carried, gaussian_event
from pacprivacy.dp.events import GaussianEvent
from pacprivacy.dp.laplace import EXACT, noisy_value
from pacprivacy.dp.noise import (
    Sampler,
    add_gaussian,
    check_epsilon_delta,
    check_neighbours,
    lattice_parameter,
    lattice_slack,
    read_source,
)
from pacprivacy.errors import BudgetError
from pacprivacy.release import DPCertificate, DPRelease, Neighbours


def gaussian_analytic(
    values: Any,
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    sampler: Sampler = "lattice",
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release numbers with the least Gaussian noise that ``(ε, δ)`` allows.

    Parameters
    ----------
    values : float or array, curator-only
        What was computed from the records.
    sensitivity : float > 0, public
        How far neighbours can move the numbers: Euclidean length of the change. It must hold for
        every data set, so it comes from clipping, not from these data.
    epsilon, delta : float, public
        The promise.
    neighbours : {"add_remove", "replace"}, public
        Relation that ``sensitivity`` and the promise are about.
    sampler : {"lattice", "opendp"}, public
        Which exact sampler; ``opendp`` needs ``pacprivacy[dp]``.
    simulate : Generator or int, optional
        Seed of the noise, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        The value has the shape of ``values``.

    Guarantee
    ---------
    Claim DP-2. ``(epsilon, delta)``-differential privacy, if ``sensitivity`` is right; the grid
    is paid from ``delta``.

    Examples
    --------
    >>> release = gaussian_analytic(
    ...     [3.0, 4.0], sensitivity=1.0, epsilon=1.0, delta=1e-5, neighbours="add_remove"
    ... )
    >>> round(release.certificate.noise["std"], 4)
    3.7306
    """
    check_neighbours(neighbours)
    parameter = lattice_parameter(epsilon, delta, np.size(values))
    return _release(
        values,
        parameter,
        "the exact privacy curve of the Gaussian mechanism",
        (float(sensitivity), float(epsilon), float(delta), neighbours),
        sampler,
        simulate,
    )


def gaussian_classical(
    values: Any,
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    sampler: Sampler = "lattice",
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release numbers with noise of standard deviation ``Δ sqrt(2 ln(1.25/δ)) / ε``, for ``ε < 1``.

    Parameters are those of :func:`gaussian_analytic`, which needs less noise and holds for every
    ``ε``; this is the textbook's formula, which holds below 1 only.

    Raises
    ------
    BudgetError
        If ``epsilon`` is not below 1, or any other argument is out of range.

    Guarantee
    ---------
    Claim DP-7. ``(epsilon, delta)``-differential privacy, if ``sensitivity`` is right.

    Examples
    --------
    >>> release = gaussian_classical(
    ...     3.0, sensitivity=1.0, epsilon=0.5, delta=1e-5, neighbours="replace"
    ... )
    >>> round(release.certificate.noise["std"], 4)
    9.6896
    """
    check_neighbours(neighbours)
    epsilon, delta = check_epsilon_delta(epsilon, delta)
    if not epsilon < 1.0:
        raise BudgetError(
            f"epsilon must be below 1 for the classical formula; got {epsilon:g}. "
            "Use gaussian_analytic."
        )
    left = delta - lattice_slack(epsilon, np.size(values))
    if not left > 0.5 * delta:
        raise BudgetError(f"delta must pay for the grid; got {delta:g}. Use a larger delta.")
    parameter = epsilon / math.sqrt(2.0 * math.log(1.25 / left))
    return _release(
        values,
        parameter,
        "the classical formula, for ε below 1",
        (float(sensitivity), epsilon, delta, neighbours),
        sampler,
        simulate,
    )


def _release(
    values: Any,
    parameter: float,
    method: str,
    promise: tuple[float, float, float, Neighbours],
    sampler: Sampler,
    simulate: np.random.Generator | int | None,
) -> DPRelease:
    sensitivity, epsilon, delta, neighbours = promise
    source = read_source(simulate)
    noisy = add_gaussian(
        values, sensitivity=sensitivity, parameter=parameter, source=source, sampler=sampler
    )
    certificate = DPCertificate(
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        advantage=advantage(
            GaussianEvent(noise_multiplier=1.0 / parameter, n_numbers=noisy.values.size)
        ),
        mechanism="Gaussian mechanism: discrete Gaussian noise on a grid",
        assumptions=(
            f"Neighbours move the numbers by at most {sensitivity:g} in Euclidean length.",
            EXACT,
        ),
        accounting={"method": method},
        noise={"std": noisy.noise_std},
        events=carried(gaussian_event(parameter, noisy.values.size)),
        simulation=source.is_simulation,
    )
    return DPRelease(value=noisy_value(noisy), certificate=certificate)
