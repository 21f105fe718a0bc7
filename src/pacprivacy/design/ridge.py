"""Ridge regression, all subsets in one batched solve: one coordinate at a time, or jointly.

What is measured are the coefficients in public coordinates. The transform into them, the mean of
the target and the penalty come from the universe: public in this model, and named in the
certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy.design.penalty import Penalty, joint_penalty, penalty_per_coordinate
from pacprivacy.design.transform import LinearTransform, fit_ica, fit_standard, fit_whitening
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.base import Mechanism
from pacprivacy.mechanism.columns import read_columns
from pacprivacy.mechanism.data import Data
from pacprivacy.mechanism.inputs import read_labelled
from pacprivacy.mechanism.sums import subset_sums
from pacprivacy.pool import Pool

__all__ = ["JointRidge", "OrthogonalRidge", "RidgeFrame", "predict_ridge"]

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

    Examples
    --------
    >>> from pacprivacy.mechanism import coerce_data
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> data = coerce_data((X, X @ [1.0, -1.0] + 3.0))
    >>> fitted = OrthogonalRidge(penalty=0.0, transform="whitening").prepare(data)
    >>> value = fitted.finish(fitted.evaluate(data.parts, np.random.default_rng(0)))
    >>> value["coef"].round(6), round(value["intercept"], 6)
    (array([ 1., -1.]), 3.0)
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

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> import pacprivacy as pac
    >>> y = X @ [1.0, -1.0]
    >>> release = pac.privatize(JointRidge(penalty=1.0), (X, y), pac.Information(0.5), n_subsets=16)
    >>> sorted(release.value)
    ['coef', 'intercept']
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
    """Return the predictions of a *released* value: post-processing, it costs no privacy.

    Examples
    --------
    >>> released = {"coef": np.array([1.0, -1.0]), "intercept": 0.5}
    >>> predict_ridge(released, np.array([[2.0, 1.0]]))
    array([1.5])
    """
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
