"""Linear regression from noisy sufficient statistics: ``XᵀX`` and ``Xᵀy``, released once."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy._random import BitSource
from pacprivacy.dp.accounting import noise_advantage
from pacprivacy.dp.adassp import LARGEST_ENTRY, clip_whole, exact_sums
from pacprivacy.dp.events import PureEvent, carried, noise_event
from pacprivacy.dp.noise import (
    Perturbed,
    add_gaussian,
    add_laplace,
    check_epsilon_delta,
    check_neighbours,
    lattice_parameter,
    read_source,
)
from pacprivacy.dp.records import EMPTY_RECORDS
from pacprivacy.release import DPCertificate, DPRelease, Neighbours

# Conversions of exact sums to float64, for n d <= 10^8; as in AdaSSP.
_FLOAT_MARGIN: Final = 1 + 1e-6


def regression_from_statistics(
    X: Any,
    y: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    x_bound: float,
    y_bound: float,
    penalty: float,
    neighbours: Neighbours = "add_remove",
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release the moments of a regression with noise, and the coefficients that follow.

    Parameters
    ----------
    X, y : arrays of shapes (n, d) and (n,), curator-only
        Features and target; there is no intercept.
    epsilon, delta : float, public
        The promise. ``delta=0`` takes Laplace noise, which grows with ``d²``.
    x_bound, y_bound : float > 0, public
        Rows are clipped to this norm, targets to this absolute value. They must not be read off
        the data.
    penalty : float >= 0, public
        Added to the diagonal of the noisy moments; about the size of the noise is a good choice.
        :func:`adassp` finds one, at a price.
    neighbours : {"add_remove", "replace"}, public
        Relation that the promise is about; replacement needs more noise.
    simulate : Generator or int, optional
        Seed of the noise, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        The value is a dict with ``coef``, ``moments`` (noisy ``XᵀX``) and ``products`` (noisy
        ``Xᵀy``); all three may leave.

    Guarantee
    ---------
    Claim DP-13. ``(epsilon, delta)``-differential privacy, for ``n d <= 10^8``. Claim DP-17: what
    is refused is public.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 2))
    >>> release = regression_from_statistics(
    ...     X, X @ [1.0, -1.0], epsilon=1.0, delta=1e-6, x_bound=1.5, y_bound=2.0, penalty=20.0
    ... )
    >>> bool(np.abs(release.value["coef"] - [1.0, -1.0]).max() < 0.2)
    True
    """
    check_neighbours(neighbours)
    check_positive("epsilon", epsilon, advice="Use about 1.")
    if delta != 0.0:
        check_epsilon_delta(epsilon, delta)
    if penalty != 0.0:
        check_positive("penalty", penalty, advice="Use about the size of the noise.")
    features, target = clip_whole(X, y, x_bound, y_bound)
    d = features.shape[1]
    gram, products = exact_sums(features, target)
    gram = gram * (x_bound / LARGEST_ENTRY) ** 2
    products = products * (x_bound * y_bound / LARGEST_ENTRY**2)
    upper = np.triu_indices(d)
    source = read_source(simulate)
    units = (x_bound**2, x_bound * y_bound)
    noisy = _perturb((gram[upper], products), units, epsilon, delta, neighbours, source)
    moments = np.zeros((d, d))
    moments[upper] = noisy[0].values
    moments += np.triu(moments, 1).T
    certificate = DPCertificate(
        epsilon=float(epsilon),
        delta=float(delta),
        neighbours=neighbours,
        advantage=noise_advantage(epsilon, delta, len(upper[0]) + d),
        mechanism="regression from noisy second moments and products",
        assumptions=(
            f"Rows are clipped to norm {float(x_bound):g}, targets to {float(y_bound):g}; both "
            "bounds were fixed without looking at the data.",
            EMPTY_RECORDS,
        ),
        accounting={
            "method": "one Gaussian mechanism for both statistics"
            if delta
            else "two Laplace mechanisms, half of epsilon each"
        },
        noise={"std of moments": noisy[0].noise_std, "std of products": noisy[1].noise_std},
        events=carried(
            noise_event(epsilon, delta, len(upper[0]) + d)
            if delta
            else PureEvent(epsilon=float(epsilon) / 2.0, count=2)
        ),
        simulation=source.is_simulation,
    )
    value = {
        "coef": _solve(moments, np.array(noisy[1].values), float(penalty)),
        "moments": moments,
        "products": noisy[1].values,
    }
    return DPRelease(value=value, certificate=certificate)


def _perturb(
    statistics: tuple[Vector, Vector],
    units: tuple[float, float],
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    source: BitSource,
) -> list[Perturbed]:
    """Add noise to both, calibrated together."""
    d = len(statistics[1])
    if delta == 0.0:
        twice = 1.0 if neighbours == "add_remove" else 2.0
        reach = (twice * (d + 1) / 2.0, twice * math.sqrt(d))
        return [
            add_laplace(
                values,
                sensitivity=unit * part * _FLOAT_MARGIN,
                epsilon=epsilon / 2.0,
                source=source,
            )
            for values, unit, part in zip(statistics, units, reach, strict=True)
        ]
    reach = (1.0, 1.0) if neighbours == "add_remove" else (math.sqrt(2.0), 2.0)
    n_numbers = len(statistics[0]) + d
    share = lattice_parameter(epsilon, delta, n_numbers) / math.sqrt(2.0)
    return [
        add_gaussian(
            values, sensitivity=unit * part * _FLOAT_MARGIN, parameter=share, source=source
        )
        for values, unit, part in zip(statistics, units, reach, strict=True)
    ]


def _solve(moments: Matrix, products: Vector, penalty: float) -> Vector:
    """Return the coefficients; directions that noise made negative are left out."""
    values, vectors = np.linalg.eigh(moments)
    kept = values + penalty > max(penalty, 1e-9 * float(np.abs(values).max(initial=0.0)))
    inverse = np.where(kept, 1.0 / np.where(kept, values + penalty, 1.0), 0.0)
    return np.asarray(vectors @ (inverse * (vectors.T @ products)), dtype=np.float64)
