"""How far (secret, release) is from independence, in other divergences than information.

Each is the mean, over releases, of a bounded function of the attacker's posterior, so it has the
same kind of interval as the information.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.draws import draw_blocks, posterior
from pacprivacy.adversary.information import DEFAULT_GAMMA, default_draws
from pacprivacy.adversary.view import Observable, View, view_of
from pacprivacy.theory.concentration import Estimate, bernstein_estimate
from pacprivacy.theory.posterior import DivergenceName, divergence_success

__all__ = ["Divergence", "divergences", "divergences_of_view", "noiseless_divergences"]

ROUND_UP: Final = 1 + 1e-12
Summand = Callable[[Matrix, Vector], Vector]


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """One divergence of (secret, release) from independence, and what it leaves any attacker.

    ``success`` maps a prior success (as text) to the largest success after the release.

    Examples
    --------
    >>> closed = Estimate(value=0.1, lower=0.1, upper=0.1, confidence=1.0, n_draws=0)
    >>> found = Divergence.of("total variation", closed)
    >>> round(found.success["0.5"], 6)
    0.6
    """

    name: DivergenceName
    estimate: Estimate
    success: dict[str, float]

    @classmethod
    def of(cls, name: DivergenceName, estimate: Estimate) -> Divergence:
        """Return the record with its success rates at the priors that certificates print."""
        success = {p: divergence_success(name, estimate.upper, float(p)) for p in ("0.5", "0.01")}
        return cls(name=name, estimate=estimate, success=success)


def _total_variation(p: Matrix, prior: Vector) -> Vector:
    distance: Vector = 0.5 * np.abs(p - prior).sum(axis=1)
    return distance


def _chi_square(p: Matrix, prior: Vector) -> Vector:
    excess: Vector = np.square(p) @ (1 / prior) - 1
    return np.maximum(excess, 0.0)


def _squared_hellinger(p: Matrix, prior: Vector) -> Vector:
    distance: Vector = 1 - np.sqrt(p) @ np.sqrt(prior)
    return np.maximum(distance, 0.0)


SUMMANDS: Final[Mapping[DivergenceName, Summand]] = {
    "total variation": _total_variation,
    "chi-square": _chi_square,
    "squared Hellinger": _squared_hellinger,
}


def divergences_of_view(
    view: View, *, n_draws: int, gamma: float, rng: np.random.Generator
) -> tuple[Divergence, ...]:
    """Estimate total variation, chi-square and squared Hellinger on a view, together.

    Guarantee
    ---------
    Claim RP-2. All three are at most their upper ends with probability at least ``1 - gamma``
    over the draws.
    """
    prior = np.exp(view.log_prior)
    alive = prior > 0
    known = prior[alive]
    widest = float(1 / known.min()) - 1
    sums = np.zeros((len(SUMMANDS), 2))
    for draws in draw_blocks(view, n_draws, rng):
        p = posterior(view, draws)[:, alive]
        for row, summand in enumerate(SUMMANDS.values()):
            found = summand(p, known)
            sums[row] += found.sum(), found @ found
    tau = view.slack
    slack = {
        "total variation": 2 * tau,
        "chi-square": 4 * len(known) * tau + 2 * tau * float((1 / known).sum()),
        "squared Hellinger": 4 * math.sqrt(tau) + 4 * tau,
    }
    result = []
    for (name, _), (total, total_sq) in zip(SUMMANDS.items(), sums, strict=True):
        high = widest if name == "chi-square" else 1.0
        mean = min(total / n_draws, high)
        variance = max(0.0, (total_sq - n_draws * mean**2) / (n_draws - 1))
        found_for = bernstein_estimate(
            mean, variance, n_draws, low=0.0, high=max(high, 1e-300), gamma=gamma / len(SUMMANDS)
        )
        result.append(Divergence.of(name, _widened(found_for, slack[name], high)))
    return tuple(result)


def noiseless_divergences(view: View) -> tuple[Divergence, ...]:
    """Return the divergences of a release without noise, in closed form.

    The attacker learns the group of the secret, so the posterior is the belief inside it.
    """
    prior = np.exp(view.log_prior)
    groups = np.zeros(len(prior), dtype=np.int64) if view.groups is None else view.groups
    mass = np.bincount(groups, prior)
    mass = mass[mass > 0]
    found: dict[DivergenceName, float] = {
        "total variation": float(mass @ (1 - mass)),
        "chi-square": float(len(mass) - 1),
        "squared Hellinger": float(mass @ (1 - np.sqrt(mass))),
    }
    return tuple(Divergence.of(name, _closed(max(0.0, value))) for name, value in found.items())


def _closed(value: float) -> Estimate:
    upper = value * ROUND_UP
    return Estimate(value=value, lower=value, upper=upper, confidence=1.0, n_draws=0)


def _widened(estimate: Estimate, slack: float, high: float) -> Estimate:
    return Estimate(
        value=estimate.value,
        lower=max(0.0, estimate.lower - slack),
        upper=max(estimate.value, min(high, estimate.upper + slack)),
        confidence=estimate.confidence,
        n_draws=estimate.n_draws,
    )


def divergences(
    outputs: object,
    plan: Observable,
    *,
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> tuple[Divergence, ...]:
    """Return total variation, chi-square and squared Hellinger from independence.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        One row per candidate subset.
    plan : NoisePlan
        The noise under which one row is released.
    log_belief : array of shape (m,), optional
        What the attacker believed before; uniform by default.
    n_draws : int, optional
        Simulated releases; by default as many as a few seconds allow.
    gamma : float
        Probability that one of the upper ends is wrong.

    Guarantee
    ---------
    Claim RP-2. All are at most their upper ends with probability ``1 - gamma`` over the draws.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> from pacprivacy.noise import calibrate
    >>> outputs = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> plan = calibrate(outputs, pac.Information(0.1), rule="waterfill")
    >>> variation, chi_square, hellinger = divergences(outputs, plan, n_draws=20_000, rng=0)
    >>> hellinger.estimate.value <= variation.estimate.value
    True
    """
    view = view_of(outputs, plan, log_belief)
    generator = public_generator(coerce_seed(rng), "divergences")
    draws = n_draws or default_draws(view.n_subsets)
    return divergences_of_view(view, n_draws=draws, gamma=gamma, rng=generator)
