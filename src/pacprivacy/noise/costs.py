"""Rules with a cost of noise of their own: some directions of the output matter more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, freeze
from pacprivacy.errors import BudgetError

__all__ = ["Exact", "Protect", "Shaped", "contrasts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact:
    """The rule ``exact`` with a cost of its own: the least ``tr(W Σ_B)`` found and proved.

    Parameters
    ----------
    cost : array of shape (d,) or (d, d)
        ``W``: a positive weight per output coordinate, or a positive definite matrix. It decides
        where noise goes and nothing else, so it may come from the pool, but not from the secret.

    Examples
    --------
    Noise on the first coordinate costs a hundred times as much as on the second.

    >>> import pacprivacy as pac
    >>> from pacprivacy.noise import calibrate
    >>> outputs = np.random.default_rng(0).normal(size=(64, 2))
    >>> plan = calibrate(outputs, pac.Information(0.5), rule=Exact(cost=[100.0, 1.0]), rng=0)
    >>> plan.rule, plan.mi_upper <= 0.5
    ('exact weighted', True)
    """

    cost: npt.ArrayLike

    def __post_init__(self) -> None:
        cost = np.array(self.cost, dtype=np.float64)
        square = cost.ndim == 2 and cost.shape[0] == cost.shape[1] and np.array_equal(cost, cost.T)
        if not ((cost.ndim == 1 or square) and cost.size and np.isfinite(cost).all()):
            raise BudgetError(
                f"cost must be a vector of weights or a symmetric matrix; got shape {cost.shape}. "
                f"Give one weight per output coordinate."
            )
        smallest = float((cost if cost.ndim == 1 else np.linalg.eigvalsh(cost)).min())
        if not smallest > 1e-12 * float(np.abs(cost).max()):
            raise BudgetError(
                f"cost must be positive in every direction; its smallest weight is {smallest:.3g}. "
                f"Add a small multiple of the identity: free noise would have no limit."
            )
        freeze(cost)
        object.__setattr__(self, "cost", cost)

    def checked_cost(self, dimension: int) -> npt.NDArray[np.float64]:
        """Return the weights or the matrix; refuse one for another dimension."""
        cost = np.asarray(self.cost, dtype=np.float64)
        if len(cost) != dimension:
            raise BudgetError(
                f"cost must have one row per output coordinate ({dimension}); got {len(cost)}. "
                f"Build it for this output."
            )
        return cost

    def cost_matrix(self, dimension: int) -> Matrix:
        """Return ``W`` as a matrix."""
        cost = self.checked_cost(dimension)
        return np.diag(cost) if cost.ndim == 1 else cost


@dataclass(frozen=True, slots=True, eq=False)
class Protect:
    """Least noise where a task-critical subspace of the output gets noise last.

    The cost of noise is ``weight`` inside the subspace and 1 outside. Budgets keep their rule:
    ``exact`` for information, ``risk`` where membership is limited.

    Parameters
    ----------
    directions : array of shape (k, d)
        Rows that span what matters, for example :func:`contrasts` for the differences of logits.
    weight : float > 1
        How many times more a unit of noise variance costs inside the subspace.

    Examples
    --------
    >>> rule = Protect(contrasts(3), weight=100.0)
    >>> rule.cost_matrix(3).round(2)
    array([[ 67., -33., -33.],
           [-33.,  67., -33.],
           [-33., -33.,  67.]])
    """

    directions: npt.ArrayLike
    weight: float = 100.0

    def __post_init__(self) -> None:
        rows = np.atleast_2d(np.array(self.directions, dtype=np.float64))
        if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all() or not rows.any():
            raise BudgetError(
                f"directions must be rows of numbers, not all zero; got shape {rows.shape}. "
                f"Give one row per direction."
            )
        if not (np.isfinite(self.weight) and self.weight >= 1):
            raise BudgetError(f"weight must be at least 1; got {self.weight!r}. Use 100.")
        freeze(rows)
        object.__setattr__(self, "directions", rows)

    def orthonormal(self, dimension: int) -> Matrix:
        """Return orthonormal rows that span the protected subspace."""
        rows = np.asarray(self.directions, dtype=np.float64)
        if rows.shape[1] != dimension:
            raise BudgetError(
                f"directions must have {dimension} columns, one per output coordinate; "
                f"got {rows.shape[1]}. Build them for this output."
            )
        _, singular, right = np.linalg.svd(rows, full_matrices=False)
        kept: Matrix = right[singular > 1e-10 * singular[0]]
        return kept

    def cost_matrix(self, dimension: int) -> Matrix:
        """Return the cost as a matrix: the identity, plus ``weight - 1`` inside the subspace."""
        rows = self.orthonormal(dimension)
        cost: Matrix = np.eye(dimension) + (self.weight - 1) * (rows.T @ rows)
        return cost


@dataclass(frozen=True, slots=True, eq=False)
class Shaped:
    """Noise of a given shape, scaled until the budget is proved.

    Parameters
    ----------
    covariance : array of shape (d, d)
        Directions and relative sizes of the noise; its scale does not matter. It may come from
        anywhere but the secret, for example from learning: the proof does not rest on it.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> from pacprivacy.noise import calibrate
    >>> outputs = np.random.default_rng(0).normal(size=(64, 2))
    >>> plan = calibrate(outputs, pac.Information(0.5), rule=Shaped(np.diag([1.0, 4.0])), rng=0)
    >>> plan.rule, plan.mi_upper <= 0.5
    ('shaped', True)
    """

    covariance: npt.ArrayLike

    def __post_init__(self) -> None:
        matrix = np.array(self.covariance, dtype=np.float64)
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.size > 0
        if not square or not np.isfinite(matrix).all():
            raise BudgetError(
                f"covariance must be a square matrix of numbers; got shape {matrix.shape}. "
                f"Give one row and column per output coordinate."
            )
        values = np.linalg.eigvalsh(matrix)
        symmetric = np.allclose(matrix, matrix.T, atol=1e-9 * np.abs(matrix).max())
        if not (symmetric and values[-1] > 0 and values[0] >= -1e-9 * values[-1]):
            raise BudgetError(
                "covariance must be symmetric, not negative in any direction and not zero; "
                f"its eigenvalues go from {values[0]:.3g} to {values[-1]:.3g}. Check its signs."
            )
        freeze(matrix)
        object.__setattr__(self, "covariance", matrix)

    def checked(self, dimension: int) -> Matrix:
        """Return the covariance; refuse one for another dimension."""
        matrix = np.asarray(self.covariance, dtype=np.float64)
        if len(matrix) != dimension:
            raise BudgetError(
                f"covariance must have one row per output coordinate ({dimension}); got "
                f"{len(matrix)}. Build it for this output."
            )
        return matrix


def contrasts(n: int) -> Matrix:
    """Return ``n - 1`` orthonormal rows that span all differences of ``n`` numbers.

    Examples
    --------
    >>> contrasts(2).round(4)
    array([[ 0.7071, -0.7071]])
    """
    if n < 2:
        raise BudgetError(f"n must be at least 2; got {n}. Give the number of classes.")
    rows = np.tril(np.ones((n, n)), -1)[1:]
    rows[np.arange(n - 1), np.arange(1, n)] = -np.arange(1.0, n)
    normalised: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normalised
