"""Rules with a cost of noise of their own: some directions of the output matter more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import (
    LARGEST_OUTPUT,
    SMALLEST_RANGE,
    Matrix,
    check_positive,
    freeze,
)
from pacprivacy.errors import BudgetError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact:
    """The rule ``exact`` with a cost of its own: the least ``tr(W Σ_B)`` found and proved.

    Parameters
    ----------
    cost : array of shape (d,) or (d, d)
        ``W``: a positive weight per output coordinate, or a positive definite matrix. It decides
        where noise goes and nothing else, so it may come from the pool, but not from the secret.
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
    """Return ``n - 1`` orthonormal rows that span all differences of ``n`` numbers."""
    if n < 2:
        raise BudgetError(f"n must be at least 2; got {n}. Give the number of classes.")
    rows = np.tril(np.ones((n, n)), -1)[1:]
    rows[np.arange(n - 1), np.arange(1, n)] = -np.arange(1.0, n)
    normalised: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normalised


RULES = (
    "isotropic",
    "isotropic_max",
    "diagonal",
    "basis",
    "spectral",
    "waterfill",
    "confidence",
    "exact",
    "risk",
)


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Noise in proportion to the spread along the columns of a public orthogonal matrix.

    The matrix must be fixed without looking at the outputs.
    """

    matrix: Matrix

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, dtype=np.float64)
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
        if not square or np.abs(matrix.T @ matrix - np.eye(len(matrix))).max() > 1e-9:
            raise BudgetError(
                f"matrix must be square and orthogonal; got shape {matrix.shape}. "
                f"Orthogonalise it first, for example with numpy.linalg.qr."
            )
        freeze(matrix)
        object.__setattr__(self, "matrix", matrix)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoConfidence:
    """The papers' Auto-PAC with confidence, as a shape of noise.

    The papers relate ``security`` to the number of simulations only up to an unnamed constant,
    so their formula proves nothing by itself. Here it only proposes: the secret is one of the
    pool, whose covariance is known, and the noise is checked with the log-determinant bound like
    that of any other rule. So the certificate is of kind *exact*, without failure probability, and
    not of kind *confidence* or *empirical* (:class:`Boxed`, :class:`Empirical`). ``share`` of the
    budget is the main term; the rest pays for estimation.
    """

    security: float = 1e-3
    share: float = 0.9
    radius: float = 1.0

    def __post_init__(self) -> None:
        check_positive("security", self.security, advice="Use 1e-3.")
        check_positive("radius", self.radius, advice="Use a bound on the output's norm.")
        if not 0 < self.share < 1:
            raise BudgetError(f"share must be between 0 and 1; got {self.share!r}. Use 0.9.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxed:
    """A *confidence* certificate for a fresh independent subset: outputs in a declared box.

    Parameters
    ----------
    low, high : float
        Every output coordinate is clipped into ``[low, high]``.
    shape : {"diagonal", "isotropic"}
        How the noise is spread over the coordinates.
    gamma : float
        Probability, over the simulation, that the claim is wrong.
    """

    low: float
    high: float
    shape: str = "diagonal"
    gamma: float = 1e-6
    name: ClassVar[str] = "boxed"

    def __post_init__(self) -> None:
        ends = np.array([self.low, self.high], dtype=np.float64)
        if not (np.isfinite(ends).all() and self.low < self.high):
            raise BudgetError(
                f"low must be below high and both finite; got {self.low!r} and {self.high!r}. "
                f"Declare the range that the output is clipped to."
            )
        if np.abs(ends).max() > LARGEST_OUTPUT or self.high - self.low < SMALLEST_RANGE:
            raise BudgetError(
                f"high - low must be at least {SMALLEST_RANGE:g} and both below {LARGEST_OUTPUT:g} "
                f"in size, so that the range can be squared; got {self.low!r} and {self.high!r}. "
                f"Rescale the mechanism's output."
            )
        if self.shape not in {"diagonal", "isotropic"}:
            raise BudgetError(
                f"shape must be 'diagonal' or 'isotropic'; got {self.shape!r}. "
                f"Directions found on the same outputs are not allowed here."
            )
        if not 0 < self.gamma < 1:
            raise BudgetError(f"gamma must be between 0 and 1; got {self.gamma!r}. Use 1e-6.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical:
    """The papers' practice for a fresh independent subset: estimated variances, no proof.

    Parameters
    ----------
    shape : {"diagonal", "isotropic", "isotropic_max"}
        How the noise is spread over the coordinates.
    tolerance : float
        The certificate says whether the variances moved by less than this over the last ten
        subsets.
    """

    shape: str = "diagonal"
    tolerance: float = 1e-6
    name: ClassVar[str] = "empirical"

    def __post_init__(self) -> None:
        if self.shape not in {"diagonal", "isotropic", "isotropic_max"}:
            raise BudgetError(
                f"shape must be 'diagonal', 'isotropic' or 'isotropic_max'; got {self.shape!r}. "
                f"Use 'diagonal'."
            )
        check_positive("tolerance", self.tolerance, advice="Use 1e-6.")


IidRule: TypeAlias = Boxed | Empirical
Rule: TypeAlias = str | Basis | AutoConfidence | Boxed | Empirical | Exact | Protect | Shaped


def rule_name(rule: Rule) -> str:
    """Return the public name of a rule; refuse unknown ones."""
    if isinstance(rule, Basis):
        return "basis"
    if isinstance(rule, AutoConfidence):
        return "confidence"
    if isinstance(rule, Boxed | Empirical):
        return f"{rule.name} {rule.shape}"
    if isinstance(rule, Exact):
        return "exact weighted"
    if isinstance(rule, Protect):
        return "protect"
    if isinstance(rule, Shaped):
        return "shaped"
    if rule in RULES and rule != "basis":
        return rule
    known = ", ".join(name for name in RULES if name != "basis")
    raise BudgetError(
        f"rule must be one of {known}, or Basis(matrix), AutoConfidence(...), Boxed(...), "
        f"Empirical(...), Exact(cost=...), Protect(directions), Shaped(covariance); got {rule!r}. "
        f"Leave it out for the default."
    )


def search_of(rule: Rule, *, limits_membership: bool) -> str | None:
    """Return which search a rule runs, ``exact`` or ``risk``; None for a formula."""
    if isinstance(rule, Exact):
        return "exact"
    if isinstance(rule, Protect | Shaped):
        return "risk" if limits_membership else "exact"
    return rule if rule in ("exact", "risk") else None
