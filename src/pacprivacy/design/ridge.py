"""Ridge regression with a penalty chosen for the noise of the release.

Features are first moved to other coordinates by a public linear transform, fitted on the whole
universe. After :func:`fit_ica_transform` or :func:`fit_whitening_transform` the columns have mean
0, variance 1 and no correlation over all records, so that a regression falls apart into
one-dimensional ones.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import (
    Array,
    ArrayLike,
    Integers,
    Mask,
    Matrix,
    Vector,
    check_above_zero,
    check_not_negative,
    check_positive,
    freeze,
)
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.mechanism import (
    Data,
    Mechanism,
    Parts,
    fixed_mechanism,
    read_labelled_data,
    subset_sizes,
    subset_sums,
)
from pacprivacy.sample import Pool
from pacprivacy.statistics import AveragedStatistic, CoinUnits, LeastSquaresValue

_RANK_TOLERANCE: Final = 1e-10  # singular values below this share of the largest are rounding
_ICA_STEPS: Final = 1000

Snr: TypeAlias = Literal["universe"] | float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearTransform:
    """``z = (x - mean) @ matrix``; public, since it comes from all records or from outside."""

    mean: Vector
    matrix: Matrix
    description: str

    def __post_init__(self) -> None:
        mean, matrix = np.array(self.mean, dtype=np.float64), np.array(self.matrix, dtype=float)
        if matrix.ndim != 2 or mean.shape != matrix.shape[:1] or matrix.size == 0:
            raise MechanismError(
                f"matrix must have one row for each entry of mean; got shapes {matrix.shape} and "
                f"{mean.shape}. Pass mean of shape (p,) and matrix of shape (p, d)."
            )
        for name, array in (("mean", mean), ("matrix", matrix)):
            freeze(array)
            object.__setattr__(self, name, array)

    @property
    def n_outputs(self) -> int:
        return int(self.matrix.shape[1])

    def apply(self, X: Matrix) -> Matrix:
        if X.shape[1] != len(self.mean):
            raise MechanismError(
                f"X must have {len(self.mean)} columns; got {X.shape[1]}. "
                "Use the columns that the transform was made for."
            )
        moved: Matrix = (X - self.mean) @ self.matrix
        return moved


def fit_standard_transform(X: Matrix) -> LinearTransform:
    """Subtract the mean and divide by the standard deviation; a constant column becomes zero."""
    std = X.std(axis=0)
    scale = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
    return LinearTransform(
        mean=X.mean(axis=0),
        matrix=np.diag(scale),
        description="means and standard deviations of the features over all records",
    )


def fit_whitening_transform(X: Matrix) -> LinearTransform:
    """Rotate standardised features to their principal axes, each scaled to variance 1."""
    standard = fit_standard_transform(X)
    _, singular, axes = np.linalg.svd(standard.apply(X), full_matrices=False)
    keep = _kept(singular)
    whiten = axes[keep].T * (np.sqrt(len(X)) / singular[keep])
    return LinearTransform(
        mean=standard.mean,
        matrix=standard.matrix @ whiten,
        description="principal axes of the standardised features over all records, whitened",
    )


def fit_ica_transform(X: Matrix, *, seed: int = 0) -> LinearTransform:
    """Find independent components of the standardised features: the papers' choice.

    A whitening followed by a rotation; columns are uncorrelated over all records whether or not
    the search for the rotation, which starts at ``seed``, has converged.
    """
    # scikit-learn takes a second to import; only those who fit with it pay for it.
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    before = fit_standard_transform(X)
    rank = int(np.count_nonzero(_kept(np.linalg.svd(before.apply(X), compute_uv=False))))
    if rank < X.shape[1]:
        before = fit_whitening_transform(X)  # fewer columns, none of them constant or repeated
    search = FastICA(
        n_components=rank, whiten="unit-variance", random_state=seed, max_iter=_ICA_STEPS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(before.apply(X))
    return LinearTransform(
        mean=before.mean,
        matrix=before.matrix @ np.asarray(search.components_).T,
        description="independent components (FastICA, variance 1) of the standardised features "
        "over all records",
    )


def _kept(singular: npt.NDArray[np.floating[Any]]) -> Mask:
    keep: Mask = singular > _RANK_TOLERANCE * singular.max(initial=0.0)
    if not keep.any():
        raise MechanismError(
            "X must have a column that varies; got constant ones only. Add features that differ "
            "between records."
        )
    return keep


_TRANSFORMS: Final = {"ica": fit_ica_transform, "whitening": fit_whitening_transform}


# --- penalties ---------------------------------------------------------------------------------


def noise_ratio(mi_nats: ArrayLike, *, n_dimensions: int = 1, n_steps: int = 1) -> Array:
    """Noise variance over output variance when a budget is split evenly."""
    budget = check_above_zero("mi_nats", mi_nats, advice="Use about 0.02 for a success below 60 %.")
    if n_dimensions < 1 or n_steps < 1:
        raise BudgetError(
            f"n_dimensions and n_steps must be at least 1; got {n_dimensions} and {n_steps}. "
            "Count the released numbers."
        )
    return np.asarray(n_dimensions * n_steps / (2.0 * budget))


def ridge_penalty(signal: ArrayLike, noise_var: ArrayLike, *, ratio: ArrayLike = 0.0) -> Array:
    """Ridge penalty of one orthogonal coordinate that is best for the released coefficient.

    Guarantee
    ---------
    Claim D-2. Least expected squared error, whatever the sum of squares of the coordinate is.
    """
    power = np.square(np.asarray(signal, dtype=np.float64))
    spread = (1.0 + check_not_negative("ratio", ratio)) * check_not_negative("noise_var", noise_var)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        penalty = np.asarray(spread / power)
    return np.where(power == 0.0, np.inf, penalty)


@dataclass(frozen=True, slots=True, kw_only=True)
class RidgePenalty:
    """Regularisation chosen for the noise of the release.

    Parameters
    ----------
    mi_nats : float, public, optional
        The information budget of the release; the penalty is ``1 + d/2B`` times the one that is
        best without privacy (claim D-2). None gives the latter, the *post-hoc* penalty.
    snr : "universe" or float, public
        Squared coefficient over target noise: estimated on all records (default; the
        certificate says so), or one constant for every coordinate.
    """

    mi_nats: float | None = None
    snr: Snr = "universe"

    def __post_init__(self) -> None:
        if self.mi_nats is not None:
            check_positive("mi_nats", self.mi_nats, advice="Use the budget of the release.")
        if not isinstance(self.snr, str):
            check_positive("snr", self.snr, advice="Use about 1.", error=MechanismError)
        elif self.snr != "universe":
            raise MechanismError(
                f"snr must be 'universe' or a positive number; got {self.snr!r}. "
                "Leave it out to estimate it on the universe."
            )

    def describe(self) -> str:
        """Return one public sentence for the certificate."""
        source = "estimated on all records" if self.snr == "universe" else "given from outside"
        aim = "without regard to the noise" if self.mi_nats is None else "for the noise to come"
        return (
            f"ridge penalty: chosen {aim}, from a signal-to-noise ratio {source}; it does not "
            "depend on the secret"
        )


def ridge_penalty_per_coordinate(
    penalty: RidgePenalty | float,
    Z: Matrix,
    target: Vector,
    *,
    intercept: bool = False,
) -> Vector:
    """Return one penalty for each orthogonal coordinate, infinite without signal.

    With an ``intercept`` the noise is for one output more.
    """
    d = Z.shape[1]
    if not isinstance(penalty, RidgePenalty):
        if not 0.0 <= float(penalty) < np.inf:
            raise MechanismError(
                f"penalty must be a number of at least 0, or a RidgePenalty; got {penalty!r}. "
                "Use about 1."
            )
        return np.full(d, float(penalty))
    if isinstance(penalty.snr, str):
        slopes = Z.T @ target / np.square(Z).sum(axis=0)
        residuals = target - Z @ slopes
        n_free = max(1, len(target) - d - 1)
        # A target without noise counts as rounding.
        noise_var = max(float(residuals @ residuals) / n_free, float(np.finfo(np.float64).tiny))
    else:
        slopes, noise_var = np.full(d, np.sqrt(float(penalty.snr))), 1.0
    ratio = 0.0
    if penalty.mi_nats is not None:
        ratio = float(noise_ratio(penalty.mi_nats, n_dimensions=d + intercept))
    return ridge_penalty(slopes, noise_var, ratio=ratio)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RidgeFrame:
    """Layout fixed from all records before any subset is fitted; public in this model."""

    transform: LinearTransform
    target_mean: float
    penalty: Vector

    def __post_init__(self) -> None:
        freeze(self.penalty)

    def coordinates(self, parts: Parts, name: str) -> tuple[Matrix, Vector]:
        X, y = _read_ridge_data(parts, name)
        return self.transform.apply(X), y - self.target_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class OrthogonalRidge(Mechanism, AveragedStatistic):
    """One one-dimensional ridge regression ``Σ z y / (Σ z² + λ)`` for each orthogonal coordinate.

    The measured value has shape (d + 1,): one coefficient for each coordinate of the transform, and
    the mean of the target; with ``universe_facts`` that of all records, published without noise.
    The *released* value is a dict with ``coef`` and ``intercept`` for the original features.

    Parameters
    ----------
    penalty : RidgePenalty or float, public
        By default post-hoc, from all records. Pass ``RidgePenalty(mi_nats=...)`` with the budget
        of the release to regularise for the noise to come.
    transform : "ica", "whitening" or LinearTransform, public
        Orthogonal coordinates, fitted on all records unless given.
    """

    name = "ridge regression, one coordinate at a time"
    penalty: RidgePenalty | float = RidgePenalty()
    transform: Literal["ica", "whitening"] | LinearTransform = "ica"
    universe_facts: bool = False
    frame: RidgeFrame | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.transform, str) and self.transform not in _TRANSFORMS:
            raise MechanismError(
                f"transform must be {', '.join(map(repr, _TRANSFORMS))} or a LinearTransform; "
                f"got {self.transform!r}. Use 'ica'."
            )

    @property
    def public(self) -> tuple[str, ...]:
        if self.frame is None:
            return ()
        penalty = self.penalty
        chosen = (
            penalty.describe()
            if isinstance(penalty, RidgePenalty)
            else f"ridge penalty: {penalty:g}"
        )
        return (self.frame.transform.description, chosen)

    @property
    def published(self) -> tuple[str, ...]:
        return ("mean of the target over all records",) if self.universe_facts else ()

    def prepare(self, data: Data) -> Self:
        """Fix coordinates, mean of the target and penalties with all records."""
        X, y = _read_ridge_data(data.parts, self.name)
        transform, mean = self.transform, float(y.mean())
        if isinstance(transform, str):
            transform = _TRANSFORMS[transform](X)
        Z, centred = transform.apply(X), y - mean
        if not np.square(Z).sum(axis=0).all():
            raise MechanismError(
                "transform must give coordinates that are not zero on every record; got one that "
                "is. Drop that coordinate."
            )
        penalty = ridge_penalty_per_coordinate(
            self.penalty, Z, centred, intercept=not self.universe_facts
        )
        frame = RidgeFrame(transform=transform, target_mean=mean, penalty=penalty)
        return replace(self, frame=frame)

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Vector:
        Z, target = fixed_mechanism(self.frame, "frame").coordinates(parts, self.name)
        slopes = self._solve((Z.T @ target)[None], np.square(Z).sum(axis=0)[None])
        value: Vector = self._with_means(slopes, target.sum(), np.array([len(target)]))[0]
        return value

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the coefficients of all subsets: sums of products, then divisions."""
        Z, target = fixed_mechanism(self.frame, "frame").coordinates(data.parts, self.name)
        d = Z.shape[1]

        def features(rows: Integers) -> Matrix:
            block, y = Z[rows], target[rows][:, None]
            return np.hstack([block * y, np.square(block), y])

        sums = subset_sums(pool, features, 2 * d + 1)
        slopes = self._solve(sums[:, :d], sums[:, d:-1])
        return self._with_means(slopes, sums[:, -1], subset_sizes(pool))

    def on_samples(
        self, data: Data, units: npt.NDArray[Any] | None, coins: CoinUnits
    ) -> LeastSquaresValue:
        """Return fits of samples, all coefficients and the intercept at once.

        The penalty is for all records, and a sample has its share of it. On all records that is the
        same ridge regression: coordinates have mean 0 there, and no correlation.
        """
        frame = fixed_mechanism(self.frame, "frame")
        Z, target = frame.coordinates(data.parts, self.name)
        used = np.flatnonzero(np.isfinite(frame.penalty))  # others have no signal
        ones = np.ones((len(Z), 0 if self.universe_facts else 1))
        if not len(used) + ones.shape[1]:
            raise MechanismError(
                "penalty must be finite for a coordinate; got none with a signal. Give the penalty "
                "as a number."
            )

        def outputs(fitted: Vector) -> Vector:
            released = np.zeros(Z.shape[1] + ones.shape[1])
            released[used] = fitted[ones.shape[1] :]
            if ones.shape[1]:
                released[-1] = frame.target_mean + fitted[0]
            value = self.finish(released)
            return np.append(value["coef"], value["intercept"])

        return LeastSquaresValue.fit(
            np.column_stack([ones, Z[:, used]]),
            target,
            keep=coins.keep,
            units=None if units is None else (units, coins.n_units),
            penalty=np.concatenate([np.zeros(ones.shape[1]), frame.penalty[used]]),
            outputs=outputs,
        )

    def shaped(self, numbers: Vector, data: Data) -> dict[str, Any]:
        """Return coefficients of the original features and the intercept."""
        return {"coef": numbers[:-1], "intercept": float(numbers[-1])}

    def finish(self, value: Any) -> dict[str, Any]:
        """Turn released coefficients into coefficients of the original features, with intercept."""
        if isinstance(value, Mapping):  # with coins they are released as such
            return dict(value)
        frame = fixed_mechanism(self.frame, "frame")
        released = np.asarray(value, dtype=np.float64)
        if self.universe_facts:
            released = np.append(released, frame.target_mean)
        coef = frame.transform.matrix @ released[:-1]
        return {"coef": coef, "intercept": float(released[-1] - frame.transform.mean @ coef)}

    def _with_means(self, coefficients: Matrix, sums: Vector, sizes: Vector) -> Matrix:
        """Put the mean of the target, given sums of the centred one, beside the coefficients."""
        if self.universe_facts:
            return coefficients
        means = fixed_mechanism(self.frame, "frame").target_mean + sums / sizes
        return np.column_stack([coefficients, means])

    def _solve(self, products: Matrix, squares: Matrix) -> Matrix:
        strength = squares + fixed_mechanism(self.frame, "frame").penalty
        if not (strength > 0).all():
            raise MechanismError(
                "penalty must be above 0 where a subset has only zeros in a coordinate; got 0. "
                "Use a positive penalty."
            )
        return np.asarray(products / strength)


def _read_ridge_data(parts: Parts, name: str) -> tuple[Matrix, Vector]:
    X, y = read_labelled_data(parts, name)
    if y.dtype.kind not in "biuf":
        raise MechanismError(
            f"{name} must be given a target of numbers; got dtype {y.dtype}. Encode it first."
        )
    return X, y.astype(np.float64)
