"""When a released value is good enough: a figure of merit on public data, and a threshold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.theory.concentration import empirical_bernstein

__all__ = ["Accuracy", "Look"]

FEW_ROWS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a released value: its figure of merit, and whether that was enough; public.

    Examples
    --------
    >>> Look(score=0.93, cautious=0.91, enough=True).score
    0.93
    """

    score: float
    cautious: float
    enough: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accuracy:
    """A released value is good enough when its figure of merit on *public* data is.

    Parameters
    ----------
    at_least : float, public
        Threshold of the figure of merit.
    on : tuple, public
        Validation data, such as ``(X, y)``. It must not hold records that are to be protected:
        nothing is promised about it.
    metric : callable, optional
        ``metric(value, *on)`` returns the figure of merit, larger being better: one number, or
        one number in [0, 1] for every row (then their mean counts). By default the value's own
        ``score(*on)``, for fitted estimators.
    confidence : float in (0, 1), optional
        With numbers for every row: ask that the *population's* mean reaches the threshold at
        this confidence, over all looks together, and not only the mean of these rows.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> fitted = LogisticRegression().fit(X, [0, 0, 1, 1])
    >>> Accuracy(at_least=0.9, on=(X, [0, 0, 1, 1])).look(fitted, n_looks=1)
    Look(score=1.0, cautious=1.0, enough=True)
    """

    at_least: float
    on: Any = field(repr=False)
    metric: Callable[..., Any] | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.on, tuple):
            object.__setattr__(self, "on", (self.on,))
        if not np.isfinite(self.at_least):
            raise BudgetError(f"at_least must be a finite number; got {self.at_least!r}. Use 0.9.")
        if self.confidence is not None and not 0.0 < self.confidence < 1.0:
            raise BudgetError(
                f"confidence must be between 0 and 1; got {self.confidence!r}. Use 0.99."
            )

    def __str__(self) -> str:
        sure = "" if self.confidence is None else f" at confidence {self.confidence:g}"
        name = "score" if self.metric is None else getattr(self.metric, "__name__", "metric")
        return f"{name} >= {self.at_least:g} on public data{sure}"

    def look(self, value: Any, *, n_looks: int) -> Look:
        """Judge a released value; ``n_looks`` shares the confidence out over all looks."""
        found = self._measure(value)
        if not (found.size and np.isfinite(found).all()):
            raise MechanismError(
                "metric must return finite numbers; got NaN, an infinity or nothing. What was "
                "spent stays spent. Use a metric that is defined for every released value."
            )
        score = float(found.mean())
        cautious = score if self.confidence is None else self._lower(found, n_looks)
        return Look(score=score, cautious=cautious, enough=cautious >= self.at_least)

    def _measure(self, value: Any) -> Vector:
        if self.metric is None and not hasattr(value, "score"):
            raise MechanismError(
                f"metric must be given for a value without a score method; got "
                f"{type(value).__name__}. Pass metric=function(value, *on)."
            )
        measured = value.score(*self.on) if self.metric is None else self.metric(value, *self.on)
        found: Vector = np.atleast_1d(np.asarray(measured, dtype=np.float64))
        return found

    def _lower(self, found: Vector, n_looks: int) -> float:
        """Return a lower bound of the population's mean that holds over all looks."""
        assert self.confidence is not None  # checked by the caller
        if found.ndim != 1 or len(found) < FEW_ROWS or found.min() < 0 or found.max() > 1:
            raise MechanismError(
                "metric must return one number in [0, 1] for every row when a confidence is "
                "asked for. Leave confidence out, or return for example predicted == y."
            )
        gamma, n = (1 - self.confidence) / n_looks, len(found)
        if np.isin(found, (0.0, 1.0)).all():  # a count: the exact bound of Clopper and Pearson
            from scipy.stats import beta

            hits = int(found.sum())
            return float(beta.ppf(gamma, hits, n - hits + 1)) if hits else 0.0
        width = empirical_bernstein(float(found.var(ddof=1)), n, width=1.0, gamma=gamma)
        return float(found.mean()) - width
