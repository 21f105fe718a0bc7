"""Stop when a released value is good enough: a target on public data, and the loop that meets it.

Observations of growing precision leave one after the other; the value is their precision-weighted
mean. How steps share a budget depends on the kind of secret
(:class:`pacprivacy.session.secret.Refinement`). The promise is the cap, not what was spent: where
one stops depends on the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pacprivacy._certificates import write_release
from pacprivacy._checks import Vector
from pacprivacy._rounding import at_most
from pacprivacy.budget import Spent
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.release import Certificate, Release, warn_of_error_bars
from pacprivacy.theory import empirical_bernstein

if TYPE_CHECKING:
    from pacprivacy.session.secret import Request
    from pacprivacy.session.session import Session

FEW_ROWS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a released value: its figure of merit, and whether that was enough; public."""

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
        figures = self._measure(value)
        if not (figures.size and np.isfinite(figures).all()):
            raise MechanismError(
                "metric must return finite numbers; got NaN, an infinity or nothing. What was "
                "spent stays spent. Use a metric that is defined for every released value."
            )
        score = float(figures.mean())
        cautious = score if self.confidence is None else self._lower(figures, n_looks)
        return Look(score=score, cautious=cautious, enough=cautious >= self.at_least)

    def _measure(self, value: Any) -> Vector:
        if self.metric is None and not hasattr(value, "score"):
            raise MechanismError(
                f"metric must be given for a value without a score method; got "
                f"{type(value).__name__}. Pass metric=function(value, *on)."
            )
        measured = value.score(*self.on) if self.metric is None else self.metric(value, *self.on)
        figures: Vector = np.atleast_1d(np.asarray(measured, dtype=np.float64))
        return figures

    def _lower(self, figures: Vector, n_looks: int) -> float:
        """Return a lower bound of the population's mean that holds over all looks."""
        assert self.confidence is not None  # checked by the caller
        if figures.ndim != 1 or len(figures) < FEW_ROWS or figures.min() < 0 or figures.max() > 1:
            raise MechanismError(
                "metric must return one number in [0, 1] for every row when a confidence is "
                "asked for. Leave confidence out, or return for example predicted == y."
            )
        gamma, n = (1 - self.confidence) / n_looks, len(figures)
        if np.isin(figures, (0.0, 1.0)).all():  # a count: the exact bound of Clopper and Pearson
            from scipy.stats import beta

            hits = int(figures.sum())
            return float(beta.ppf(gamma, hits, n - hits + 1)) if hits else 0.0
        width = empirical_bernstein(float(figures.var(ddof=1)), n, width=1.0, gamma=gamma)
        return float(figures.mean()) - width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GradualRelease(Release):
    """What was released until it was good enough, or until the cap.

    ``value`` is the precision-weighted mean of the ``steps``, each a release with a certificate of
    its own that can be verified; ``bundle`` is that of the last one. The certificate promises the
    *cap*; what was really spent and learned stands under ``composition``. ``looks`` are the figures
    of merit after every step, ``reached`` says whether the last was enough, ``spent`` what the
    session has spent.
    """

    reached: bool
    looks: tuple[Look, ...]
    spent: Spent
    steps: tuple[Release, ...] = field(repr=False)

    def save(self, folder: str | Path, *, sign: str | Path | None = None) -> Path:
        """Write ``release.json`` (public), and every step in a folder of its own.

        The steps can be verified one by one; their ``curator.npz`` are for the curator alone.
        """
        target = Path(folder)
        for number, step in enumerate(self.steps, start=1):
            step.save(target / f"step-{number:02d}", sign=sign)
        public = target / "release.json"
        write_release(public, self.to_public_dict(), sign=sign)
        self.write_values(target)
        return public


def refine(
    session: Session, request: Request, target: Accuracy, levels: int | None
) -> GradualRelease:
    """Release observations of growing precision until the target or the budget is reached.

    Guarantee
    ---------
    Claims S-3 and C-23. All observations together stay within the budget; stopping depends on what
    was released and on public data only.
    """
    if not isinstance(target, Accuracy):
        raise BudgetError(
            f"target must be an Accuracy; got {type(target).__name__}. "
            "For example pac.Accuracy(at_least=0.9, on=(X_public, y_public))."
        )
    steps = session.begin_refinement(request, levels)
    releases: list[Release] = []
    looks: list[Look] = []
    value: Any = None
    while (plan := session.plan_step(steps)) is not None:
        release, observed = session.publish(plan)
        value = steps.add(plan, observed)
        releases.append(release)
        looks.append(target.look(value, n_looks=steps.n_looks))
        if looks[-1].enough or plan.is_exact:
            break
    certificate, bars = steps.promise(releases, session.odometer())
    warn_of_error_bars(value, bars, steps.outputs)
    return GradualRelease(
        value=value,
        proof=releases[-1].bundle,
        error_bars=bars,
        certificate=_judged(certificate, target, looks),
        reached=looks[-1].enough,
        looks=tuple(looks),
        spent=session.spent,
        steps=tuple(releases),
    )


def _judged(certificate: Certificate, target: Accuracy, looks: list[Look]) -> Certificate:
    """Return the certificate with the target, and whether it was reached."""
    last = looks[-1]
    if last.enough:
        verdict = f"Target {target}: reached after {len(looks)} observations, {last.score:.4g}."
    else:
        best = max(look.cautious for look in looks)
        verdict = (
            f"Target {target}: NOT reached under the budget; the best of {len(looks)} looks was "
            f"{best:.4g}, {at_most(target.at_least - best, decimals=4)} short."
        )
    notes = (
        verdict,
        "The promise is the budget, not what was spent: a figure that depends on where one "
        "stopped is not a bound on what was learned.",
        "The figures for the noise are those of the mean of all observations; the standard "
        "deviations and the grid are those of the last one.",
    )
    return replace(
        certificate,
        notes=(*certificate.notes, *notes),
        composition={
            **(certificate.composition or {}),
            "target": str(target),
            "target_reached": "yes" if last.enough else "no",
            "scores": ", ".join(f"{look.score:.6g}" for look in looks),
        },
    )
