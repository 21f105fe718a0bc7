"""Divergences other than Kullback and Leibler's, and the success that each one leaves."""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

from pacprivacy.errors import BudgetError
from pacprivacy.theory.information import bernoulli_kl
from pacprivacy.theory.posterior import posterior_success

__all__ = ["DIVERGENCES", "DivergenceName", "bernoulli_divergence", "divergence_success"]

DivergenceName: TypeAlias = Literal["kl", "total variation", "chi-square", "squared Hellinger"]
DIVERGENCES: Final[tuple[DivergenceName, ...]] = (
    "kl",
    "total variation",
    "chi-square",
    "squared Hellinger",
)

_ROUND_UP: Final = 1.0 + 2.0**-44


def bernoulli_divergence(name: DivergenceName, q: float, p: float) -> float:
    """Divergence of a coin with success rate ``q`` from one with success rate ``p``.

    Parameters
    ----------
    name : {"kl", "total variation", "chi-square", "squared Hellinger"}
        ``Σ x ln(x/y)``, ``1/2 Σ |x - y|``, ``Σ (x - y)²/y`` or ``1 - Σ sqrt(xy)``.
    q, p : float in [0, 1], public
        Success rates.

    Examples
    --------
    >>> bernoulli_divergence("total variation", 0.75, 0.5)
    0.25
    >>> bernoulli_divergence("chi-square", 0.75, 0.5)
    0.25
    """
    if name == "kl":
        return bernoulli_kl(float(q), float(p))
    _require_rates(q, p)
    if name == "total variation":
        return abs(q - p)
    if name == "chi-square":
        if p in (0.0, 1.0):
            return 0.0 if q == p else math.inf
        return (q - p) ** 2 / (p * (1 - p))
    if name == "squared Hellinger":
        # 1 - cos of the angle between the two unit vectors, in the form that does not cancel
        angle = _angle(q) - _angle(p)
        return 2 * math.sin(angle / 2) ** 2
    raise _unknown(name)


def divergence_success(name: DivergenceName, divergence: float, prior: float = 0.5) -> float:
    """Largest success rate that a bound on a divergence leaves to any adversary.

    Parameters
    ----------
    name : str
        One of :data:`DIVERGENCES`.
    divergence : float >= 0, public
        Bound on the divergence of (secret, release) from independence.
    prior : float in (0, 1], public
        Best success rate without the release.

    Returns
    -------
    float
        The largest ``q >= prior`` whose divergence from ``prior`` is within the bound, rounded
        up.

    Guarantee
    ---------
    Claim RP-1. Every adversary, for every success criterion, succeeds with probability at most
    the result.

    Examples
    --------
    >>> round(divergence_success("total variation", 0.1), 6)
    0.6
    >>> round(divergence_success("squared Hellinger", 0.01), 4)
    0.6397
    """
    if name == "kl":
        return posterior_success(float(divergence), float(prior))
    if not divergence >= 0:
        raise BudgetError(
            f"divergence must be >= 0; got {divergence}. Use the upper end of an estimate."
        )
    if not 0 < prior <= 1:
        raise BudgetError(f"prior must be above 0 and at most 1; got {prior}. Use 1/2.")
    if divergence == 0:
        return float(prior)
    if name == "total variation":
        found = prior + divergence
    elif name == "chi-square":
        found = prior + math.sqrt(divergence * prior * (1 - prior))
    elif name == "squared Hellinger":
        turn = 2 * math.asin(math.sqrt(min(divergence / 2, 1.0)))  # arccos(1 - divergence)
        found = math.sin(min(_angle(prior) + turn, math.pi / 2)) ** 2
    else:
        raise _unknown(name)
    return min(1.0, max(prior, found * _ROUND_UP))


def _angle(rate: float) -> float:
    """Return the angle whose squared sine is a rate."""
    return math.atan2(math.sqrt(rate), math.sqrt(1 - rate))


def _require_rates(q: float, p: float) -> None:
    if not (0 <= q <= 1 and 0 <= p <= 1):
        raise BudgetError(
            f"q and p must be between 0 and 1; got {q} and {p}. Pass fractions, not percentages."
        )


def _unknown(name: str) -> BudgetError:
    known = ", ".join(DIVERGENCES)
    return BudgetError(f"name must be one of {known}; got {name!r}. Use 'kl'.")
