"""Fast what-if: information and membership risk of one shape of noise at any scale.

The same simulated draws serve every scale (common random numbers), so the curves are smooth and
a bisection is safe from Monte-Carlo jitter. What a search finds here is only a proposal; it is
certified afterwards on fresh draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary.membership import Candidates, SignBlocks
from pacprivacy.adversary.view import View, log_ratios
from pacprivacy.errors import BudgetError

__all__ = ["Probe", "smallest_scale"]

PROBE_ELEMENTS = 1 << 23
LARGEST_LOG_SCALE = 60.0
FIRST_STEP = 0.05
TINY_SCALE = 1e-15  # below, powers of it leave the range of single precision


class Probe:
    """Simulated draws of a view, kept so that any scale of the noise can be tried on them."""

    def __init__(self, view: View, rng: np.random.Generator, *, n_draws: int | None = None) -> None:
        m, points = view.n_subsets, view.points
        n = n_draws or int(np.clip(PROBE_ELEMENTS // m, 512, 16384))
        self._view, self.n_draws = view, n
        order = rng.permutation(n)
        cumulative = np.cumsum(np.exp(view.log_prior))
        strata = (order + rng.random(n)) / n * cumulative[-1]
        chosen = np.minimum(np.searchsorted(cumulative, strata, side="right"), m - 1)
        noise = _stratified_normals(rng, n, points.shape[1])
        signal, cross = log_ratios(view, chosen), noise @ points.T
        cross -= np.einsum("iq,iq->i", noise, points[chosen])[:, None]  # near ones stay apart
        # single precision is enough for a proposal unless the exponents are huge
        dtype = np.float32 if float(np.abs(signal).max(initial=0.0)) < 1e4 else np.float64
        self._signal = signal.astype(dtype)
        self._cross = cross.astype(dtype)
        self._log_prior = view.log_prior.astype(dtype)[None, :]
        if view.groups is not None:
            apart = view.groups[chosen][:, None] != view.groups[None, :]
            self._log_prior = np.where(apart, -np.inf, self._log_prior).astype(dtype)

    def posterior(self, scale: float) -> npt.NDArray[Any]:
        """Return the posteriors when the noise is ``scale`` times larger."""
        p, total = self._likelihoods(scale)[1:]
        p /= total[:, None]
        return p

    def information(self, scale: float) -> tuple[float, float]:
        """Return the mean and the sample variance of the information gain."""
        log_p, p, total = self._likelihoods(scale)
        np.maximum(log_p, -80.0, out=log_p)  # where p is 0 the product must be 0, not NaN
        weighted = np.einsum("ij,ij->i", p, log_p, dtype=np.float64)
        gains = self._view.prior_entropy - np.log(total) + weighted / total
        return float(gains.mean()), float(gains.var(ddof=1))

    def tilt(self, scale: float, signs: SignBlocks) -> tuple[Vector, Vector]:
        """Return mean and variance of ``|2Q - 1|`` for each unit of ``signs``."""
        folded = signs.fold(self.posterior(scale))
        mean, variance = np.empty(signs.n_units), np.empty(signs.n_units)
        for units, block in signs:
            tilt = np.abs(folded @ block)
            mean[units] = tilt.mean(axis=0)
            variance[units] = tilt.var(axis=0)
        return mean, variance

    def _likelihoods(self, scale: float) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Vector]:
        dtype = self._signal.dtype if scale > TINY_SCALE else np.float64
        with np.errstate(over="ignore"):  # a candidate that far away is ruled out
            log_p = np.multiply(self._signal, 1 / scale**2, dtype=dtype)
        log_p += np.multiply(self._cross, 1 / scale, dtype=dtype)
        log_p += self._log_prior
        log_p -= log_p.max(axis=1, keepdims=True)
        p = np.exp(log_p)
        return log_p, p, p.sum(axis=1, dtype=np.float64)


class RiskProbe:
    """How far the success on any unit is above its cap, as a function of the scale."""

    def __init__(self, probe: Probe, pool: Candidates, caps: Vector, *, n_worst: int = 256) -> None:
        self._probe, self._pool, self._caps = probe, pool, caps
        self._all = SignBlocks(pool, np.float32, None)
        self._few: tuple[SignBlocks, Vector] | None = None
        self._n_worst = n_worst

    def focus(self, scale: float) -> None:
        """Keep only the units that are closest to their caps at this scale."""
        if self._pool.n_units <= 2 * self._n_worst:
            return
        success = 0.5 + 0.5 * self._probe.tilt(scale, self._all)[0]
        worst = np.argsort(self._caps - success)[: self._n_worst].astype(np.int64)
        self._few = (SignBlocks(self._pool, np.float32, np.sort(worst)), self._caps[np.sort(worst)])

    def excess(self, scale: float, *, everyone: bool = False) -> tuple[float, float]:
        """Return the largest excess over a cap, and the variance of success there."""
        signs, caps = (self._all, self._caps) if everyone or not self._few else self._few
        mean, variance = self._probe.tilt(scale, signs)
        over = 0.5 + 0.5 * mean - caps
        worst = int(np.argmax(over))
        return float(over[worst]), float(variance[worst]) / 4


def _stratified_normals(rng: np.random.Generator, n: int, dimension: int) -> Matrix:
    """Return standard normals; the first few coordinates are stratified to reduce variance."""
    from scipy.special import ndtri  # slow to import, not always needed

    noise = rng.standard_normal((n, dimension))
    for column in range(min(dimension, 8)):
        noise[:, column] = ndtri((rng.permutation(n) + rng.random(n)) / n)
    return noise


def smallest_scale(
    excess: Callable[[float], float], *, start: float = 1.0, tolerance: float = 1e-3
) -> float:
    """Return a scale at which a decreasing ``excess`` is not positive, close to the smallest.

    The answer is the upper end of the bracket: never too little noise.
    """
    log_high = math.log(start)
    step = FIRST_STEP
    while excess(math.exp(log_high)) > 0:
        log_high += step
        step *= 3
        if log_high > LARGEST_LOG_SCALE:
            raise BudgetError(
                "budget must be reachable: no amount of noise meets it for this pool. "
                "Use a larger budget or more subsets."
            )
    step = FIRST_STEP
    log_low = log_high - step
    while excess(math.exp(log_low)) <= 0:
        log_high, log_low = log_low, log_low - step
        step *= 3
        if log_low < -LARGEST_LOG_SCALE:
            return math.exp(log_high)
    while log_high - log_low > tolerance:
        middle = 0.5 * (log_low + log_high)
        if excess(math.exp(middle)) > 0:
            log_low = middle
        else:
            log_high = middle
    return math.exp(log_high)
