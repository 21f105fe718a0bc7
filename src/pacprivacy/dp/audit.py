"""A lower bound on the privacy loss of a procedure, from runs on two neighbouring data sets.

The auditor chooses the neighbours and runs the procedure on both. Half of the runs serve to choose
an event that separates them; on the other half that event alone is counted.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final, Literal

import numpy as np
import scipy

from pacprivacy._checks import Array, Mask
from pacprivacy.errors import AuditError

GAMMA: Final = 1e-6
N_THRESHOLDS: Final = 60
FEW_VALUES: Final = 300
LEAST_TRIALS: Final = 1000

Draw = Callable[[int, int], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DPAudit:
    """Lower bound on the privacy loss, beside the promise (claim DP-6).

    At ``delta`` the true ``ε`` is at least ``epsilon_lower``, with probability ``confidence``;
    ``epsilon`` was promised. ``hits`` says how often the event happened on either data set.
    """

    epsilon_lower: float
    epsilon: float
    delta: float
    n_trials: int
    hits: tuple[int, int]
    event: str
    confidence: float

    @property
    def verdict(self) -> Literal["holds", "VIOLATED"]:
        """``VIOLATED`` if even the lower bound is above the promise."""
        return "VIOLATED" if self.epsilon_lower > self.epsilon else "holds"

    def __str__(self) -> str:
        return (
            f"{self.verdict}: ε >= {self.epsilon_lower:.4g} at δ = {self.delta:g} "
            f"(promised {self.epsilon:.4g}), {self.n_trials} runs each, {self.event}"
        )


def audit_dp(
    draw: Draw,
    *,
    epsilon: float,
    delta: float,
    n_trials: int = 100_000,
    gamma: float = GAMMA,
) -> DPAudit:
    """Bound the privacy loss of a procedure from below, on two neighbouring data sets.

    Parameters
    ----------
    draw : callable ``(side, n) -> array of shape (n,) or (n, k)``
        Runs the procedure ``n`` times on data set 0 or 1 and returns the releases: one number or
        category for each run, or ``k`` statistics of which the most telling one is used.
    epsilon, delta : float
        The promise that is put to the test.
    n_trials : int
        Runs on each data set; as many again choose the event.
    gamma : float
        Probability of a false alarm.

    Guarantee
    ---------
    Claim DP-6. Clopper-Pearson intervals of one event that was chosen on other runs.
    """
    if n_trials < LEAST_TRIALS or not 0.0 < gamma < 1.0:
        raise AuditError(
            f"n_trials must be at least {LEAST_TRIALS} and gamma in (0, 1); got {n_trials} and "
            f"{gamma!r}. Use 100 000 trials."
        )
    if not (epsilon > 0 and 0.0 <= delta < 1.0):
        raise AuditError(
            f"epsilon must be above 0 and delta in [0, 1); got {epsilon!r} and {delta!r}. "
            "Pass the promise."
        )
    pilot = [_runs(draw, side, n_trials) for side in (0, 1)]
    best = max(_events(pilot[0], pilot[1]), key=lambda event: event.value(pilot, delta, gamma))
    fresh = [_runs(draw, side, n_trials) for side in (0, 1)]
    return DPAudit(
        epsilon_lower=best.value(fresh, delta, gamma),
        epsilon=float(epsilon),
        delta=float(delta),
        n_trials=n_trials,
        hits=best.hits(fresh),
        event=best.name,
        confidence=1.0 - gamma,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """A set of outcomes that is more likely on data set ``likely``."""

    name: str
    likely: int
    contains: Callable[[Array], Mask]

    def hits(self, outputs: list[Array]) -> tuple[int, int]:
        counts = [int(self.contains(side).sum()) for side in outputs]
        return counts[self.likely], counts[1 - self.likely]

    def value(self, outputs: list[Array], delta: float, gamma: float) -> float:
        often, rarely = self.hits(outputs)
        n = len(outputs[0])
        # Clopper-Pearson: a binomial tail of gamma/2 on either side.
        lower = scipy.special.betaincinv(often, n - often + 1, gamma / 2.0) if often else 0.0
        upper = (
            scipy.special.betainccinv(rarely + 1, n - rarely, gamma / 2.0) if rarely < n else 1.0
        )
        return max(0.0, math.log((lower - delta) / upper)) if lower > delta else 0.0


def _runs(draw: Draw, side: int, n_trials: int) -> Array:
    outputs = np.asarray(draw(side, n_trials))
    if outputs.ndim == 1:
        outputs = outputs[:, None]
    if outputs.ndim != 2 or len(outputs) != n_trials or outputs.dtype.kind not in "biuf":
        raise AuditError(
            f"draw must return {n_trials} numbers or rows of numbers; got shape {outputs.shape} "
            f"and dtype {outputs.dtype}. Map outcomes to numbers."
        )
    return outputs


def _events(first: Array, second: Array) -> Iterator[_Event]:
    for column in range(first.shape[1]):
        values = np.concatenate([first[:, column], second[:, column]])
        unique = np.unique(values)
        if len(unique) <= FEW_VALUES:
            yield from _sets_of_values(first[:, column], second[:, column], unique, column)
            continue
        levels = np.concatenate([np.linspace(0, 1, N_THRESHOLDS), np.logspace(-4, -2, 20)])
        quantiles = np.concatenate([levels, 1.0 - levels[N_THRESHOLDS:]])
        for threshold in np.unique(np.quantile(values, quantiles)):
            for likely, above in product((0, 1), (True, False)):
                name = f"statistic {column} {'above' if above else 'at most'} {threshold:.4g}"
                contains = partial(_is_beyond, column, threshold, above)
                yield _Event(name=name, likely=likely, contains=contains)


def _is_beyond(column: int, threshold: float, above: bool, outputs: Array) -> Mask:
    return np.asarray((outputs[:, column] > threshold) == above)


def _is_among(column: int, values: Array, outputs: Array) -> Mask:
    return np.isin(outputs[:, column], values)


def _sets_of_values(first: Array, second: Array, unique: Array, column: int) -> Iterator[_Event]:
    """Yield the sets of the most telling values, one value more each time."""
    counts = [np.array([(side == value).sum() for value in unique]) for side in (first, second)]
    ratio = np.log((counts[0] + 0.5) / (counts[1] + 0.5))
    for likely, order in ((0, np.argsort(-ratio)), (1, np.argsort(ratio))):
        for size in range(1, len(unique)):
            name = f"statistic {column} among {size} values"
            contains = partial(_is_among, column, unique[order[:size]])
            yield _Event(name=name, likely=likely, contains=contains)
