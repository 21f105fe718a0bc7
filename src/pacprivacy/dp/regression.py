"""AdaSSP: differentially private ridge regression by perturbed sufficient statistics.

Wang (2018), "Revisiting differentially private linear regression", Algorithm 2: release the least
eigenvalue of ``XᵀX``, choose the penalty from it, release ``XᵀX`` and ``Xᵀy``, solve. Here the
three releases are calibrated together as one Gaussian mechanism, and the noise is a discrete
Gaussian on a fine grid, sampled exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix, Vector, check_positive, freeze
from pacprivacy._random import BitSource
from pacprivacy.dp.accounting import noise_advantage
from pacprivacy.dp.clipping import CHUNK_ROWS, ExactTotal
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
from pacprivacy.dp.records import EMPTY_RECORDS, norms_of, read_regression
from pacprivacy.errors import BudgetError
from pacprivacy.release import NEIGHBOURS, DPCertificate, DPRelease, Neighbours

N_STATISTICS: Final = 3
LARGEST_ENTRY: Final = 1 << 20  # features and targets in whole multiples of a millionth
# Covers what is not exact: conversions to float64, and the eigenvalue of a matrix of norm n b²,
# which is off by less than 10 n d 2^-53 b².
_FLOAT_MARGIN: Final = 1 + 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdaSSP:
    """A differentially private ridge regression; every field is public.

    Parameters
    ----------
    coef : array of shape (d,)
        Released coefficients; there is no intercept.
    penalty : float
        Chosen from the released least eigenvalue.
    epsilon, delta : float
        The promise.
    neighbours : str
        What counts as a difference of one record.
    x_bound, y_bound : float
        Rows of ``X`` were clipped to this norm, targets to this absolute value.
    noise_std : tuple of three floats
        Noise of the least eigenvalue, of the entries of ``XᵀX`` and of ``Xᵀy``.
    simulation : bool
        Whether the noise was seeded, so that nobody is protected.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(500, 2))
    >>> fit = adassp(X, X[:, 0], epsilon=1.0, delta=1e-5, x_bound=1.0, y_bound=1.0)
    >>> fit.predict(X).shape, fit.neighbours
    ((500,), 'add_remove')
    """

    coef: Vector
    penalty: float
    epsilon: float
    delta: float
    neighbours: Neighbours
    x_bound: float
    y_bound: float
    noise_std: tuple[float, float, float]
    simulation: bool

    def __post_init__(self) -> None:
        freeze(self.coef)

    def predict(self, X: Matrix) -> Vector:
        """Return the predictions of the released coefficients; clip new rows as the fit did."""
        predicted: Vector = np.asarray(X, dtype=np.float64) @ self.coef
        return predicted

    @property
    def certificate(self) -> DPCertificate:
        """The promise, with the relation and the bounds that it rests on."""
        names = ("least eigenvalue", "second moments", "products")
        n_numbers = sum(_sizes(len(self.coef)))
        return DPCertificate(
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            advantage=noise_advantage(self.epsilon, self.delta, sum(_sizes(len(self.coef)))),
            mechanism="AdaSSP ridge regression: three discrete Gaussian releases, one solve",
            assumptions=(
                f"Rows are clipped to norm {self.x_bound:g}, targets to {self.y_bound:g}; both "
                "bounds were fixed without looking at the data.",
                EMPTY_RECORDS,
            ),
            accounting={"method": "one Gaussian mechanism for the three statistics"},
            noise=dict(zip(names, self.noise_std, strict=True)),
            events=carried(noise_event(self.epsilon, self.delta, n_numbers)),
            simulation=self.simulation,
        )

    def __str__(self) -> str:
        return str(self.certificate)


def adassp(
    X: Matrix,
    y: Vector,
    *,
    epsilon: float,
    delta: float,
    x_bound: float,
    y_bound: float,
    neighbours: Neighbours = "add_remove",
    failure: float = 0.05,
    simulate: np.random.Generator | int | None = None,
) -> AdaSSP:
    """Fit a ridge regression under differential privacy.

    Parameters
    ----------
    X, y : arrays of shapes (n, d) and (n,), curator-only
        Features and target. Scale and centre them by constants that do not come from these data.
    epsilon, delta : float, public
        The promise; ``delta`` below ``1/n``.
    x_bound, y_bound : float > 0, public
        Rows and targets are clipped to these. They must not be read off the data: a bound that
        depends on the records is a release without noise.
    neighbours : "add_remove" or "replace", public
        Relation that the promise is about; replacement needs more noise.
    failure : float in (0, 1), public
        Probability with which the penalty may be too small; of utility, not of privacy.
    simulate : Generator or int, optional
        Seed of the noise, for experiments; such a fit protects nobody.

    Returns
    -------
    AdaSSP

    Guarantee
    ---------
    Claim D-9. ``(epsilon, delta)``-differential privacy under the stated relation, for
    ``n d <= 10^8``; clipping, rounding and the discrete noise are included, and the sums are
    exact. Claim DP-17: what is refused is public.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 2))
    >>> fit = adassp(X, X @ [1.0, -1.0], epsilon=1.0, delta=1e-6, x_bound=1.5, y_bound=2.0)
    >>> bool(np.abs(fit.coef - [1.0, -1.0]).max() < 0.2)
    True
    """
    features, target = clip_whole(X, y, x_bound, y_bound)
    if neighbours not in NEIGHBOURS:
        raise BudgetError(
            f"neighbours must be 'add_remove' or 'replace'; got {neighbours!r}. Use 'add_remove'."
        )
    if not 0.0 < failure < 1.0:
        raise BudgetError(f"failure must be between 0 and 1; got {failure}. Use 0.05.")
    d = features.shape[1]
    upper = np.triu_indices(d)
    share = lattice_parameter(epsilon, delta, sum(_sizes(d))) / float(np.sqrt(N_STATISTICS))
    source = read_source(simulate)
    gram, products = exact_sums(features, target)
    gram = gram * (x_bound / LARGEST_ENTRY) ** 2
    products = products * (x_bound * y_bound / LARGEST_ENTRY**2)
    least: Vector = np.asarray(np.linalg.eigvalsh(gram)[:1], dtype=np.float64)
    reach = _sensitivities(x_bound, y_bound, neighbours)
    noisy = [
        add_gaussian(
            values, sensitivity=sensitivity * _FLOAT_MARGIN, parameter=share, source=source
        )
        for values, sensitivity in zip((least, gram[upper], products), reach, strict=True)
    ]
    stds = [found.noise_std for found in noisy]
    penalty = _choose_penalty(float(noisy[0].values[0]), stds, d, delta=delta, failure=failure)
    moment = np.zeros((d, d))
    moment[upper] = noisy[1].values
    moment += np.triu(moment, 1).T + penalty * np.eye(d)
    solved = np.linalg.lstsq(moment, noisy[2].values, rcond=None)[0]
    coef: Vector = np.asarray(solved, dtype=np.float64)
    return AdaSSP(
        coef=coef,
        penalty=penalty,
        epsilon=float(epsilon),
        delta=float(delta),
        neighbours=neighbours,
        x_bound=float(x_bound),
        y_bound=float(y_bound),
        noise_std=(stds[0], stds[1], stds[2]),
        simulation=simulate is not None,
    )


def clip_whole(X: Any, y: Any, x_bound: float, y_bound: float) -> tuple[Matrix, Vector]:
    """Return features and target clipped to their bounds, in whole millionths of these.

    A record that is not finite becomes one of zeros.
    """
    check_positive("x_bound", x_bound, advice="Use a norm that rows rarely exceed.")
    check_positive("y_bound", y_bound, advice="Use a value that targets rarely exceed.")
    features, target = read_regression(X, y)
    shrink = np.minimum(1.0, x_bound / np.maximum(norms_of(features), 1e-300))
    # Whole multiples of a millionth of the bounds, towards zero: norms only shrink. The factor
    # leaves room for the rounding of the norm itself.
    whole = np.trunc(features * shrink * ((1 - 1e-12) * LARGEST_ENTRY / x_bound))
    return whole, np.trunc(np.clip(target / y_bound, -1.0, 1.0) * LARGEST_ENTRY)


def exact_sums(features: Matrix, target: Vector) -> tuple[Matrix, Vector]:
    """Return ``XᵀX`` and ``Xᵀy`` of whole numbers, without rounding until the last conversion."""
    d = features.shape[1]
    gram, products = ExactTotal((d, d)), ExactTotal((d,))
    for start in range(0, len(features), CHUNK_ROWS):
        rows = features[start : start + CHUNK_ROWS]
        for total, other in ((gram, rows), (products, target[start : start + CHUNK_ROWS])):
            total.expect(len(rows))
            total.add(rows.T @ other)
    return gram.rounded(), products.rounded()


def _sizes(d: int) -> tuple[int, int, int]:
    """Return how many numbers the three releases have."""
    return 1, d * (d + 1) // 2, d


def _sensitivities(
    x_bound: float, y_bound: float, neighbours: Neighbours
) -> tuple[float, float, float]:
    """Return how far one record moves the least eigenvalue, the upper triangle, and ``Xᵀy``."""
    squared, product = x_bound**2, x_bound * y_bound
    if neighbours == "add_remove":
        return squared, squared, product
    return squared, float(np.sqrt(2.0)) * squared, 2.0 * product


def _choose_penalty(
    least: float, stds: list[float], d: int, *, delta: float, failure: float
) -> float:
    """Return the penalty that keeps the noisy moment matrix well-conditioned, of [Wang 2018]."""
    cautious = max(0.0, least - stds[0] * float(np.sqrt(np.log(6.0 / delta))))
    wanted = stds[1] * float(np.sqrt(d * np.log(2.0 * d**2 / failure)))
    return max(0.0, wanted - cautious)


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
