"""Names of the noise rules, and the rules that need parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from pacprivacy._checks import (
    LARGEST_OUTPUT,
    SMALLEST_RANGE,
    Matrix,
    check_positive,
    freeze,
)
from pacprivacy.errors import BudgetError
from pacprivacy.noise.costs import Exact, Protect, Shaped

__all__ = [
    "RULES",
    "AutoConfidence",
    "Basis",
    "Boxed",
    "Empirical",
    "IidRule",
    "Rule",
    "rule_name",
    "search_of",
]

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

    Examples
    --------
    >>> Basis(np.array([[0.6, -0.8], [0.8, 0.6]])).matrix.shape
    (2, 2)
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

    Examples
    --------
    >>> AutoConfidence(radius=2.0)
    AutoConfidence(security=0.001, share=0.9, radius=2.0)
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

    Examples
    --------
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).uniform(0, 1, size=60)
    >>> pool, rule = pac.Half(n_subsets=64), Boxed(low=0.0, high=1.0)
    >>> release = pac.privatize(np.mean, ages, pac.Information(0.5), pool=pool, rule=rule)
    >>> release.certificate.kind
    'confidence'
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

    Examples
    --------
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).uniform(0, 1, size=60)
    >>> pool, rule = pac.Half(n_subsets=64), Empirical()
    >>> release = pac.privatize(np.mean, ages, pac.Information(0.5), pool=pool, rule=rule)
    >>> release.certificate.kind
    'empirical'
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
