"""Linear transforms of features, found on the whole universe and public."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Mask, Matrix, Vector, freeze
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import dataset_triangle, is_dataset_stream

_RANK_TOLERANCE: Final = 1e-10  # singular values below this share of the largest are rounding
_ICA_STEPS: Final = 1000
Fit: TypeAlias = Callable[[Matrix], "LinearTransform"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearTransform:
    """``z = (x - mean) @ matrix``; public, because it comes from the universe or from outside."""

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


def fit_standard_transform(X: Matrix) -> LinearTransform:
    """Subtract the mean and divide by the standard deviation; a constant column becomes zero."""
    std = X.std(axis=0)
    scale = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
    return LinearTransform(
        mean=X.mean(axis=0),
        matrix=np.diag(scale),
        description="means and standard deviations of the features over the universe",
    )


def fit_whitening_transform(X: Matrix) -> LinearTransform:
    """Rotate standardised features to their principal axes, each scaled to variance 1."""
    standard = fit_standard_transform(X)
    rows: Any = standard.apply(X)
    if is_dataset_stream(rows):
        rows, _ = dataset_triangle(rows, rows.map(lambda block: block[:, :1], 1))
    _, singular, axes = np.linalg.svd(rows, full_matrices=False)
    keep = _kept(singular)
    whiten = axes[keep].T * (np.sqrt(len(X)) / singular[keep])
    return LinearTransform(
        mean=standard.mean,
        matrix=standard.matrix @ whiten,
        description="principal axes of the standardised features over the universe, whitened",
    )


def fit_ica_transform(X: Matrix, *, seed: int = 0) -> LinearTransform:
    """Find independent components of the standardised features: the papers' choice.

    A whitening followed by a rotation; columns are uncorrelated over the universe whether or not
    the search for the rotation, which starts at ``seed``, has converged.
    """
    if is_dataset_stream(X):
        raise MechanismError(
            "transform must be 'whitening' for a Dataset; got 'ica', which needs all rows at once."
        )
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
        "over the universe",
    )


def _kept(singular: npt.NDArray[np.floating[Any]]) -> Mask:
    keep: Mask = singular > _RANK_TOLERANCE * singular.max(initial=0.0)
    if not keep.any():
        raise MechanismError(
            "X must have a column that varies; got constant ones only. Add features that differ "
            "between records."
        )
    return keep
