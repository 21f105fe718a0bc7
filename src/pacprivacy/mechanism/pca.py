"""Principal components in a canonical orientation, with the mean measured beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import scipy

from pacprivacy._checks import Matrix, Vector, check_count, fixed_mechanism, freeze
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import Data, MatrixLike, Parts, read_data_columns
from pacprivacy.mechanism.mechanism import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class PCA(Mechanism):
    """The span of the leading principal components, and the mean it is attached to.

    The value is a dict with ``components``, shape (n_components, p), and ``mean``, shape (p,);
    both are measured. Components are rotated within their span to lie as near as they can to
    those of all records (orthogonal Procrustes), so that neither signs nor the order of
    near-equal eigenvalues cost noise: row ``i`` is not the ``i``-th principal axis of the subset.

    Parameters
    ----------
    n_components : int >= 1, public
        Dimension of the span.
    center : "subset" or "universe", public
        Whether the mean is that of the subset, which is measured, or that of all records,
        which is public in this model and named in the certificate.
    orthonormal : bool, public
        Make the released components orthonormal again (the nearest such rows). Post-processing:
        it costs no privacy and always helps restoration.
    basis, mean : optional
        Components and mean of all records. Set by :meth:`prepare`.
    """

    name = "PCA"
    n_components: int
    center: Literal["subset", "universe"] = "subset"
    orthonormal: bool = True
    basis: Matrix | None = field(default=None, compare=False, repr=False)
    mean: Vector | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        advice = "Say how many directions to keep."
        check_count("n_components", self.n_components, 1, advice=advice)
        if self.center not in ("subset", "universe"):
            raise MechanismError(
                f"center must be 'subset' or 'universe'; got {self.center!r}. "
                "Use 'subset' to measure the mean."
            )

    @property
    def public(self) -> tuple[str, ...]:
        basis = "PCA reference basis (orientation only): components of the whole universe"
        if self.center == "subset":
            return (basis,)
        return (basis, "PCA mean: released as it is, the mean of the whole universe")

    def prepare(self, data: Data) -> Self:
        X = read_data_columns(data.parts, self.name)
        mean = X.mean(axis=0)
        _, basis = _leading(X - mean, self.n_components, _rounding(X))
        basis = fix_pca_signs(basis)
        freeze(mean)
        freeze(basis)
        return replace(self, basis=basis, mean=mean)

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> dict[str, Matrix]:
        universe_mean, basis = (
            fixed_mechanism(self.mean, "mean"),
            fixed_mechanism(self.basis, "basis"),
        )
        X = read_data_columns(parts, self.name)
        local = X - universe_mean
        shift = local.mean(axis=0) if self.center == "subset" else np.zeros_like(universe_mean)
        _, components = _leading(local - shift, self.n_components, _rounding(X))
        aligned = align_pca_basis(components, basis)
        if self.center == "universe":
            return {"components": aligned}
        return {"components": aligned, "mean": universe_mean + shift}

    def finish(self, value: Mapping[str, Any]) -> dict[str, Matrix]:
        components = np.asarray(value["components"], dtype=np.float64)
        mean = fixed_mechanism(self.mean, "mean") if self.center == "universe" else value["mean"]
        return {
            "components": orthonormalise_pca_basis(components) if self.orthonormal else components,
            "mean": np.array(mean, dtype=np.float64),
        }

    @staticmethod
    def restore(value: Mapping[str, Any], X: MatrixLike) -> Matrix:
        rows = read_data_columns((X,), "PCA")
        components = np.asarray(value["components"], dtype=np.float64)
        mean = np.asarray(value["mean"], dtype=np.float64)
        restored: Matrix = mean + (rows - mean) @ components.T @ components
        return restored

    @staticmethod
    def restoration_error(value: Mapping[str, Any], X: MatrixLike) -> float:
        """Return ``|X - restored| / |X|`` in the Frobenius norm, for a *released* value."""
        rows = read_data_columns((X,), "PCA")
        return float(np.linalg.norm(rows - PCA.restore(value, rows)) / np.linalg.norm(rows))


def align_pca_basis(components: Matrix, basis: Matrix) -> Matrix:
    """Rotate orthonormal rows within their span, as near to a basis as they get (Procrustes)."""
    left, _, right = np.linalg.svd(basis @ np.swapaxes(components, -1, -2))
    aligned: Matrix = left @ right @ components
    return aligned


def orthonormalise_pca_basis(rows: Matrix) -> Matrix:
    """Return the orthonormal rows nearest to the given rows (the polar factor)."""
    left, _, right = np.linalg.svd(rows, full_matrices=False)
    nearest: Matrix = left @ right
    return nearest


def _rounding(X: Matrix) -> float:
    """Return the square of the rounding error of a row after centring."""
    return float((4.0 * np.finfo(np.float64).eps * np.abs(X).max()) ** 2)


def _leading(X: Matrix, d: int, rounding: float) -> tuple[Vector, Matrix]:
    """Return ``d`` leading eigenvectors of the products of columns, and ``d + 1`` eigenvalues."""
    n, p = X.shape
    size = min(n, p)
    if d > size:
        _refuse(d, size)
    products = X.T @ X if p <= n else X @ X.T
    places = (max(0, size - d - 1), size - 1)
    rising, vectors = scipy.linalg.eigh(products, subset_by_index=places)
    values = rising[::-1]
    _check_values(values, d, max(n, p), rounding)
    components = vectors[:, ::-1].T[:d]
    if p > n:
        components = components @ X / np.sqrt(values[:d, None])
    return values, np.ascontiguousarray(components)


def _gap(values: Vector, d: int) -> float:
    following = float(values[d]) if d < len(values) else 0.0
    return float(values[d - 1] - following) / float(values[0])


def _check_values(values: Vector, d: int, size: int, rounding: float) -> None:
    floor = size * max(float(values[0]) * float(np.finfo(np.float64).eps), rounding)
    rank = int(np.count_nonzero(values > floor))
    if d > rank:
        _refuse(d, rank)
    if _gap(values, d) * float(values[0]) <= floor:
        raise MechanismError(
            f"n_components must not part equal eigenvalues; got {d}, and the next direction "
            "varies just as much, so that rounding would choose. Use one more or one less."
        )


def _refuse(d: int, rank: int) -> None:
    raise MechanismError(
        f"n_components must be at most the rank of every subset; got {d} for rank {rank}. "
        "Use fewer components or more records."
    )


def fix_pca_signs(basis: Matrix) -> Matrix:
    """Make the first of each row's (nearly) largest entries positive, whatever the solver did."""
    size = np.abs(basis)
    first = np.argmax(size >= (1 - 1e-9) * size.max(axis=1, keepdims=True), axis=1)
    signs = np.sign(basis[np.arange(len(basis)), first])
    fixed: Matrix = basis * signs[:, None]
    return fixed
