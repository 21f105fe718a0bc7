"""Public linear transforms of the features, fitted on the whole universe.

After :func:`fit_ica` or :func:`fit_whitening` the columns have mean 0, variance 1 and no
correlation over the universe, so that a regression falls apart into one-dimensional ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_positive, freeze
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, Mechanism, read_columns, read_labelled, subset_sums
from pacprivacy.pool import Pool
from pacprivacy.theory.design import noise_ratio, ridge_penalty

_RANK_TOLERANCE: Final = 1e-10  # singular values below this share of the largest are rounding
_ICA_STEPS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearTransform:
    """``z = (x - mean) @ matrix``; public, because it comes from the universe or from outside.

    Parameters
    ----------
    mean : array of shape (p,), public
        Subtracted first.
    matrix : array of shape (p, d), public
        One column for each new coordinate.
    description : str, public
        How it was found, for the certificate.
    """

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
        """Number of new coordinates."""
        return int(self.matrix.shape[1])

    def apply(self, X: Matrix) -> Matrix:
        """Return the new coordinates of the rows."""
        if X.shape[1] != len(self.mean):
            raise MechanismError(
                f"X must have {len(self.mean)} columns; got {X.shape[1]}. "
                "Use the columns that the transform was made for."
            )
        moved: Matrix = (X - self.mean) @ self.matrix
        return moved


def fit_standard(X: Matrix) -> LinearTransform:
    """Subtract the mean and divide by the standard deviation; a constant column becomes zero."""
    std = X.std(axis=0)
    scale = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
    return LinearTransform(
        mean=X.mean(axis=0),
        matrix=np.diag(scale),
        description="means and standard deviations of the features over the universe",
    )


def fit_whitening(X: Matrix) -> LinearTransform:
    """Rotate standardised features to their principal axes, each scaled to variance 1."""
    standard = fit_standard(X)
    _, singular, axes = np.linalg.svd(standard.apply(X), full_matrices=False)
    keep = _kept(singular)
    whiten = axes[keep].T * (np.sqrt(len(X)) / singular[keep])
    return LinearTransform(
        mean=standard.mean,
        matrix=standard.matrix @ whiten,
        description="principal axes of the standardised features over the universe, whitened",
    )


def fit_ica(X: Matrix, *, seed: int = 0) -> LinearTransform:
    """Find independent components of the standardised features: the papers' choice.

    A whitening followed by a rotation; columns are uncorrelated over the universe whether or not
    the search for the rotation has converged, so that is not reported.

    Parameters
    ----------
    X : array of shape (n, p), curator-only
        The universe's features.
    seed : int, public
        Where the search starts.
    """
    # scikit-learn takes a second to import; only those who fit with it pay for it.
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    before = fit_standard(X)
    rank = int(np.count_nonzero(_kept(np.linalg.svd(before.apply(X), compute_uv=False))))
    if rank < X.shape[1]:
        before = fit_whitening(X)  # fewer columns, none of them constant or repeated
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
        "over the universe",
    )


def _kept(singular: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
    keep: npt.NDArray[np.bool_] = singular > _RANK_TOLERANCE * singular.max(initial=0.0)
    if not keep.any():
        raise MechanismError(
            "X must have a column that varies; got constant ones only. Add features that differ "
            "between records."
        )
    return keep


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Oracle:
    """Coefficients and target noise known from elsewhere: a theory, or other, public data.

    Parameters
    ----------
    signal : array of shape (d,), public
        Coefficients, in the coordinates that are regressed on.
    noise_var : float > 0, public
        Variance of the target around the regression.
    """

    signal: Vector
    noise_var: float

    def __post_init__(self) -> None:
        signal = np.array(self.signal, dtype=np.float64).reshape(-1)
        if not np.isfinite(signal).all():
            raise MechanismError(
                f"signal must be finite numbers; got an array of shape {signal.shape} with others. "
                "Pass one coefficient for each coordinate."
            )
        check_positive("noise_var", self.noise_var, advice="Pass a variance.", error=MechanismError)
        freeze(signal)
        object.__setattr__(self, "signal", signal)


Snr: TypeAlias = Literal["universe"] | float | Oracle


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalty:
    """Regularisation that knows of the noise to come.

    Parameters
    ----------
    mi_nats : float, public, optional
        The information budget of the release; the penalty is ``1 + d/2B`` times the one that is
        best without privacy (claim D-2). None gives the latter, the *post-hoc* penalty.
    snr : "universe", float or Oracle, public
        Squared coefficient over target noise: estimated on the whole universe (default; the
        certificate says so), one constant for every coordinate, or known from elsewhere.
    """

    mi_nats: float | None = None
    snr: Snr = field(default="universe")

    def __post_init__(self) -> None:
        if self.mi_nats is not None:
            check_positive("mi_nats", self.mi_nats, advice="Use the budget of the release.")
        if isinstance(self.snr, str) and self.snr != "universe":
            raise MechanismError(
                f"snr must be 'universe', a positive number or an Oracle; got {self.snr!r}. "
                "Leave it out to estimate it on the universe."
            )
        if not isinstance(self.snr, str | Oracle):
            check_positive("snr", self.snr, advice="Use about 1.", error=MechanismError)

    def ratio(self, n_outputs: int) -> float:
        """Return the noise ratio ``C`` that the penalty prepares for."""
        if self.mi_nats is None:
            return 0.0
        return float(noise_ratio(self.mi_nats, n_dimensions=n_outputs))

    def describe(self) -> str:
        """Return one public sentence for the certificate."""
        source = {
            True: "a signal-to-noise ratio estimated on the whole universe",
            False: "a signal-to-noise ratio given from outside",
        }[self.snr == "universe"]
        aim = "without regard to the noise" if self.mi_nats is None else "for the noise to come"
        return f"ridge penalty: chosen {aim}, from {source}; it does not depend on the secret"


def penalty_per_coordinate(penalty: Penalty | float, Z: Matrix, target: Vector) -> Vector:
    """Return one penalty for each orthogonal coordinate; infinite where there is no signal."""
    d = Z.shape[1]
    if not isinstance(penalty, Penalty):
        return np.full(d, check_penalty(penalty))
    if isinstance(penalty.snr, Oracle):
        signal, noise_var = _matching(penalty.snr, d), penalty.snr.noise_var
    elif penalty.snr == "universe":
        signal = Z.T @ target / np.square(Z).sum(axis=0)
        noise_var = _residual_variance(target - Z @ signal, d)
    else:
        signal, noise_var = np.full(d, np.sqrt(float(penalty.snr))), 1.0
    return ridge_penalty(signal, noise_var, ratio=penalty.ratio(d))


def joint_penalty(penalty: Penalty | float, Z: Matrix, target: Vector) -> float:
    """Return one penalty for a ridge regression on correlated, standardised coordinates.

    The mean squared coefficient stands for ``w²``: ``(1+C) d σ²/|w|²``.
    """
    d = Z.shape[1]
    if not isinstance(penalty, Penalty):
        return check_penalty(penalty)
    if isinstance(penalty.snr, Oracle):
        signal, noise_var = _matching(penalty.snr, d), penalty.snr.noise_var
    elif penalty.snr == "universe":
        signal = np.asarray(np.linalg.lstsq(Z, target, rcond=None)[0], dtype=np.float64)
        noise_var = _residual_variance(target - Z @ signal, d)
    else:
        signal, noise_var = np.full(d, np.sqrt(float(penalty.snr))), 1.0
    power = float(np.mean(np.square(signal)))
    found = float(ridge_penalty(np.sqrt(power), noise_var, ratio=penalty.ratio(d)))
    if not np.isfinite(found):
        raise MechanismError(
            "snr must be above 0 for a joint ridge regression; got a target without signal. "
            "Give the penalty as a number."
        )
    return found


def check_penalty(value: float) -> float:
    """Return a penalty as a float; refuse negative, infinite and missing ones."""
    number = float(value)
    if not 0.0 <= number < np.inf:
        raise MechanismError(
            f"penalty must be a number of at least 0, or a Penalty; got {value!r}. Use about 1."
        )
    return number


def _matching(oracle: Oracle, d: int) -> Vector:
    if len(oracle.signal) != d:
        raise MechanismError(
            f"signal must have one coefficient for each of {d} coordinates; got "
            f"{len(oracle.signal)}. Give it in the coordinates that are regressed on."
        )
    return oracle.signal


def _residual_variance(residuals: Vector, d: int) -> float:
    """Return the variance around the regression; a target without noise counts as rounding."""
    left = max(1, len(residuals) - d - 1)
    return max(float(residuals @ residuals) / left, float(np.finfo(np.float64).tiny))


_POST_HOC: Final = Penalty()
_SOLVE_NUMBERS: Final = 2**23  # float64 numbers of Gram matrices held at a time, about 64 MB


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RidgeFrame:
    """What the universe fixes before any subset is fitted; public in this model."""

    transform: LinearTransform
    target_mean: float
    penalty: Vector

    def __post_init__(self) -> None:
        freeze(self.penalty)

    def coordinates(self, parts: tuple[Any, ...], name: str) -> tuple[Matrix, Vector]:
        """Return the coordinates and the centred target of some rows."""
        X, y = read_regression(parts, name)
        return self.transform.apply(X), y - self.target_mean

    def finish(self, coefficients: Vector) -> dict[str, Any]:
        """Return coefficients and intercept for the original features."""
        coef = self.transform.matrix @ np.asarray(coefficients, dtype=np.float64)
        return {"coef": coef, "intercept": self.target_mean - float(self.transform.mean @ coef)}


class _Ridge(Mechanism):
    """What both forms share: the frame, and what is made of a released value."""

    __slots__ = ()
    frame: RidgeFrame | None

    def finish(self, value: Any) -> dict[str, Any]:
        """Turn released coefficients into those of the original features, with the intercept."""
        return self._fixed().finish(value)

    def _fixed(self) -> RidgeFrame:
        if self.frame is None:
            raise MechanismError(
                "frame must be fixed before a subset is fitted; got None. "
                "Call prepare(data) with the whole universe first."
            )
        return self.frame


@dataclass(frozen=True, slots=True, kw_only=True)
class OrthogonalRidge(_Ridge):
    """One one-dimensional ridge regression for each orthogonal coordinate.

    The measured value has shape (d,): ``Σ z y / (Σ z² + λ)`` over the subset, one for each
    coordinate of the transform. The *released* value is a dict with ``coef`` and ``intercept``
    for the original features.

    Parameters
    ----------
    penalty : Penalty or float, public
        By default post-hoc, from the universe. Pass ``Penalty(mi_nats=...)`` with the budget of
        the release to regularise for the noise to come.
    transform : "ica", "whitening" or LinearTransform, public
        Orthogonal coordinates, fitted on the universe unless given.
    seed : int, public
        Where the search for independent components starts.
    frame : RidgeFrame, public
        Set by :meth:`prepare`.
    """

    penalty: Penalty | float = _POST_HOC
    transform: Literal["ica", "whitening"] | LinearTransform = "ica"
    seed: int = 0
    frame: RidgeFrame | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.transform not in ("ica", "whitening") and not isinstance(
            self.transform, LinearTransform
        ):
            raise MechanismError(
                f"transform must be 'ica', 'whitening' or a LinearTransform; got "
                f"{self.transform!r}. Use 'ica'."
            )

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return "ridge regression, one coordinate at a time"

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe."""
        return _public(self.frame, self.penalty)

    def prepare(self, data: Data) -> Self:
        """Fix coordinates, mean of the target and penalties on the whole universe."""
        X, y = read_regression(data.parts, self.name)
        transform = self.transform
        if transform == "ica":
            transform = fit_ica(X, seed=self.seed)
        elif transform == "whitening":
            transform = fit_whitening(X)
        Z, mean = transform.apply(X), float(y.mean())
        if not np.square(Z).sum(axis=0).all():
            raise MechanismError(
                "transform must give coordinates that are not zero on every record; got one that "
                "is. Drop that coordinate."
            )
        penalty = penalty_per_coordinate(self.penalty, Z, y - mean)
        frame = RidgeFrame(transform=transform, target_mean=mean, penalty=penalty)
        return replace(self, frame=frame)

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Vector:
        """Return the coefficients of one subset."""
        Z, target = self._fixed().coordinates(parts, self.name)
        return self._divide(Z.T @ target, np.square(Z).sum(axis=0))

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the coefficients of all subsets: two matrix products, one division."""
        Z, target = self._fixed().coordinates(data.parts, self.name)
        d = Z.shape[1]

        def features(rows: npt.NDArray[np.int64]) -> Matrix:
            block = Z[rows]
            return np.hstack([block * target[rows, None], np.square(block)])

        sums = subset_sums(pool, features, 2 * d)
        return self._divide(sums[:, :d], sums[:, d:])

    def _divide(self, products: Matrix, squares: Matrix) -> Matrix:
        strength = squares + self._fixed().penalty
        if not (strength > 0).all():
            raise MechanismError(
                "penalty must be above 0 where a subset has only zeros in a coordinate; got 0. "
                "Use a positive penalty."
            )
        coefficients: Matrix = products / strength
        return coefficients


@dataclass(frozen=True, slots=True, kw_only=True)
class JointRidge(_Ridge):
    """Ridge regression on all features at once.

    The measured value has shape (d,): coefficients of the standardised features (or of a given
    transform). The *released* value is a dict with ``coef`` and ``intercept`` for the original
    features.

    Parameters
    ----------
    penalty : Penalty or float, public
        By default post-hoc, from the universe; one number for all coefficients.
    transform : "standard" or LinearTransform, public
        Coordinates in which the penalty acts.
    frame : RidgeFrame, public
        Set by :meth:`prepare`.
    """

    penalty: Penalty | float = _POST_HOC
    transform: Literal["standard"] | LinearTransform = "standard"
    frame: RidgeFrame | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.transform != "standard" and not isinstance(self.transform, LinearTransform):
            raise MechanismError(
                f"transform must be 'standard' or a LinearTransform; got {self.transform!r}. "
                "Use 'standard'."
            )

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return "ridge regression"

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe."""
        return _public(self.frame, self.penalty)

    def prepare(self, data: Data) -> Self:
        """Fix coordinates, mean of the target and penalty on the whole universe."""
        X, y = read_regression(data.parts, self.name)
        given = self.transform
        transform = given if isinstance(given, LinearTransform) else fit_standard(X)
        Z, mean = transform.apply(X), float(y.mean())
        penalty = np.full(Z.shape[1], joint_penalty(self.penalty, Z, y - mean))
        frame = RidgeFrame(transform=transform, target_mean=mean, penalty=penalty)
        return replace(self, frame=frame)

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Vector:
        """Return the coefficients of one subset."""
        Z, target = self._fixed().coordinates(parts, self.name)
        coefficients: Vector = self._solve((Z.T @ Z)[None], (Z.T @ target)[None])[0]
        return coefficients

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the coefficients of all subsets: Gram matrices from sums, then one solve."""
        Z, target = self._fixed().coordinates(data.parts, self.name)
        d = Z.shape[1]
        rows_of, columns_of = np.triu_indices(d)

        def features(rows: npt.NDArray[np.int64]) -> Matrix:
            block = Z[rows]
            return np.hstack([block * target[rows, None], block[:, rows_of] * block[:, columns_of]])

        sums = subset_sums(pool, features, d + len(rows_of))
        coefficients = np.empty((pool.n_subsets, d))
        at_once = max(1, _SOLVE_NUMBERS // (2 * d * d))
        for start in range(0, pool.n_subsets, at_once):
            part = slice(start, start + at_once)
            gram = np.empty((len(sums[part]), d, d))
            gram[:, rows_of, columns_of] = sums[part, d:]
            gram[:, columns_of, rows_of] = sums[part, d:]
            coefficients[part] = self._solve(gram, sums[part, :d])
        return coefficients

    def _solve(self, gram: npt.NDArray[np.float64], products: Matrix) -> Matrix:
        strength = gram + np.diag(self._fixed().penalty)
        try:
            solved = np.linalg.solve(strength, products[..., None])[..., 0]
        except np.linalg.LinAlgError as error:
            raise MechanismError(
                "penalty must be above 0 where the features of a subset are collinear; got 0. "
                "Use a positive penalty."
            ) from error
        return np.asarray(solved, dtype=np.float64)


def predict_ridge(value: Mapping[str, Any], X: Any) -> Vector:
    """Return the predictions of a *released* value: post-processing, it costs no privacy."""
    rows = read_columns((X,), "predict_ridge")
    predicted: Vector = rows @ np.asarray(value["coef"]) + value["intercept"]
    return predicted


def read_regression(parts: tuple[Any, ...], name: str) -> tuple[Matrix, Vector]:
    """Return the features as a matrix and the target as a vector of numbers."""
    X, y = read_labelled(parts, name)
    if y.dtype.kind not in "biuf":
        raise MechanismError(
            f"{name} must be given a target of numbers; got dtype {y.dtype}. Encode it first."
        )
    return X, y.astype(np.float64)


def _public(frame: RidgeFrame | None, penalty: Penalty | float) -> tuple[str, ...]:
    if frame is None:
        return ()
    chosen = penalty.describe() if isinstance(penalty, Penalty) else f"ridge penalty: {penalty:g}"
    return (frame.transform.description, "mean of the target over the universe", chosen)
