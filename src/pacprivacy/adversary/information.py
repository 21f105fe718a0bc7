"""Dependence between secret and release: information and other divergences.

Each is the mean, over simulated releases, of a bounded function of the attacker's posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pacprivacy._checks import Matrix, Share, Vector
from pacprivacy.adversary.view_and_belief import (
    View,
    draw_view_blocks,
    view_entropy,
    view_generator,
    view_posterior,
)
from pacprivacy.theory import (
    DivergenceName,
    Estimate,
    bernstein_estimate,
    divergence_success,
    information_slack_bound,
)

DEFAULT_GAMMA = 1e-9


def information_draws(n_subsets: int) -> int:
    """Draws that take a few seconds at most."""
    return int(np.clip(4 * 10**7 // n_subsets, 4096, 400_000))


def exact_information(
    view: View,
    *,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Estimate:
    """Estimate the mutual information between the secret index and the release, in nats.

    ``view`` holds the candidates as the attacker compares them, as from
    :meth:`pacprivacy.noise.NoisePlan.view`; by default as many releases are simulated as a few
    seconds allow.

    Guarantee
    ---------
    Claim A-1. ``upper`` is at least the true mutual information with probability ``1 - gamma``
    over the simulated draws, for the integer noise that is actually sampled (claim L-2).
    """
    n_draws = n_draws or information_draws(view.n_subsets)
    rng, prior = view_generator(rng, "information"), view.prior_entropy
    total = total_sq = 0.0
    shift: float | None = None  # differences keep digits in the squares
    for draws in draw_view_blocks(view, n_draws, rng):
        gains = prior - view_entropy(view, draws)
        shift = float(gains.mean()) if shift is None else shift
        gains -= shift
        total += float(gains.sum())
        total_sq += float(gains @ gains)
    mean = total / n_draws
    variance = max(0.0, (total_sq - n_draws * mean**2) / (n_draws - 1))
    estimate = bernstein_estimate(
        (shift or 0.0) + mean,
        variance,
        n_draws,
        low=prior - math.log(view.n_subsets),
        high=prior,
        gamma=gamma,
    )
    slack = information_slack_bound(view.slack, view.n_subsets)
    return replace(
        estimate,
        value=min(max(estimate.value, 0.0), prior),
        lower=max(0.0, estimate.lower - slack),
        upper=min(prior, max(estimate.upper, 0.0) + slack),
    )


ROUND_UP: Final = 1 + 1e-12
LEAST_PRIOR: Final = float(np.finfo(np.float64).tiny)  # the inverse of less overflows
Summand = Callable[[Matrix, Vector], Vector]


@dataclass(frozen=True, slots=True, kw_only=True)
class InformationDivergence:
    """A divergence from independence, and the largest ``success`` that it leaves at each prior."""

    name: DivergenceName
    estimate: Estimate
    success: dict[str, Share]

    @classmethod
    def of(cls, name: DivergenceName, estimate: Estimate) -> InformationDivergence:
        success = {p: divergence_success(name, estimate.upper, float(p)) for p in ("0.5", "0.01")}
        return cls(name=name, estimate=estimate, success=success)


SUMMANDS: Final[Mapping[DivergenceName, Summand]] = {
    "total variation": lambda p, prior: 0.5 * np.abs(p - prior).sum(axis=1),
    "chi-square": lambda p, prior: np.maximum(np.square(p) @ (1 / prior) - 1, 0.0),
    "squared Hellinger": lambda p, prior: np.maximum(1 - np.sqrt(p) @ np.sqrt(prior), 0.0),
}


def information_divergences(
    view: View,
    *,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> tuple[InformationDivergence, ...]:
    """Estimate three distances from independence, which hold together (claim RP-2)."""
    n_draws = n_draws or information_draws(view.n_subsets)
    rng = view_generator(rng, "divergences")
    prior = np.exp(view.log_prior)
    alive = prior >= LEAST_PRIOR
    law, n_faint = prior[alive], int(((prior > 0) & ~alive).sum())
    widest = float(1 / law.min()) - 1
    # The mean of a candidate's P²/p is at most 1, so chi-square is at most their number less one.
    most = {"chi-square": len(law) + n_faint - 1.0 if n_faint else widest}
    sums = np.zeros((len(SUMMANDS), 2))
    for draws in draw_view_blocks(view, n_draws, rng):
        p = view_posterior(view, draws)[:, alive]
        for row, summand in enumerate(SUMMANDS.values()):
            values = summand(p, law)
            sums[row] += values.sum(), values @ values
    tau = view.slack
    slack = {
        "total variation": 2 * tau,
        "chi-square": 4 * len(law) * tau + 2 * tau * float((1 / law).sum()) + n_faint,
        "squared Hellinger": 4 * math.sqrt(tau) + 4 * tau,
    }
    result = []
    for (name, _), (total, total_sq) in zip(SUMMANDS.items(), sums, strict=True):
        high = widest if name == "chi-square" else 1.0
        mean = min(total / n_draws, high)
        variance = max(0.0, (total_sq - n_draws * mean**2) / (n_draws - 1))
        estimate = bernstein_estimate(
            mean, variance, n_draws, low=0.0, high=max(high, 1e-300), gamma=gamma / len(SUMMANDS)
        )
        lower = max(0.0, estimate.lower - slack[name])
        upper = max(estimate.value, min(most.get(name, high), estimate.upper + slack[name]))
        result.append(InformationDivergence.of(name, replace(estimate, lower=lower, upper=upper)))
    return tuple(result)


def noiseless_information_divergences(view: View) -> tuple[InformationDivergence, ...]:
    """Return the divergences of a release without noise: its group alone is learned."""
    prior = np.exp(view.log_prior)
    groups = np.zeros(len(prior), dtype=np.int64) if view.groups is None else view.groups
    mass = np.bincount(groups, prior)
    mass = mass[mass > 0]
    divergences: dict[DivergenceName, float] = {
        "total variation": float(mass @ (1 - mass)),
        "chi-square": float(len(mass) - 1),
        "squared Hellinger": float(mass @ (1 - np.sqrt(mass))),
    }
    return tuple(
        InformationDivergence.of(name, Estimate.exact(max(0.0, value), max(0.0, value) * ROUND_UP))
        for name, value in divergences.items()
    )
