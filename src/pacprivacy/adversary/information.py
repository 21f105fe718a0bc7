"""The true mutual information between the secret index and a release."""

from __future__ import annotations

import math

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.draws import draw_blocks, posterior_entropy
from pacprivacy.adversary.view import Observable, View, view_of
from pacprivacy.theory.concentration import Estimate, bernstein_estimate
from pacprivacy.theory.information import information_slack

__all__ = ["DEFAULT_GAMMA", "exact_information", "information_of_view"]

DEFAULT_GAMMA = 1e-9


def default_draws(n_subsets: int) -> int:
    """Draws that take a few seconds at most."""
    return int(np.clip(4 * 10**7 // n_subsets, 4096, 400_000))


def information_of_view(
    view: View, *, n_draws: int, gamma: float, rng: np.random.Generator
) -> Estimate:
    """Estimate (4) on a view; see :func:`exact_information`."""
    prior = view.prior_entropy
    width = math.log(view.n_subsets)
    total = total_sq = 0.0
    for draws in draw_blocks(view, n_draws, rng):
        gains = prior - posterior_entropy(view, draws)
        total += float(gains.sum())
        total_sq += float(gains @ gains)
    mean = total / n_draws
    variance = max(0.0, (total_sq - n_draws * mean**2) / (n_draws - 1))
    estimate = bernstein_estimate(
        mean, variance, n_draws, low=prior - width, high=prior, gamma=gamma
    )
    slack = information_slack(view.slack, view.n_subsets)
    return Estimate(
        value=min(max(estimate.value, 0.0), prior),
        lower=max(0.0, estimate.lower - slack),
        upper=min(prior, max(estimate.upper, 0.0) + slack),
        confidence=estimate.confidence,
        n_draws=n_draws,
    )


def exact_information(
    outputs: object,
    plan: Observable,
    *,
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Estimate:
    """Mutual information between the secret index and the release, with an interval.

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
        Probability that the interval is wrong.

    Returns
    -------
    Estimate
        In nats: value, lower, upper, confidence.

    Guarantee
    ---------
    Claim A-1. ``upper`` is at least the true mutual information with probability ``1 - gamma``
    over the simulated draws, for the integer noise that is actually sampled (claim L-2).

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> outputs = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> from pacprivacy.noise import calibrate
    >>> plan = calibrate(outputs, pac.Information(0.1), rule="waterfill")
    >>> found = exact_information(outputs, plan, n_draws=20_000, rng=0)
    >>> found.lower <= found.value <= plan.log_det_nats
    True
    """
    view = view_of(outputs, plan, log_belief)
    generator = public_generator(coerce_seed(rng), "information")
    draws = n_draws or default_draws(view.n_subsets)
    return information_of_view(view, n_draws=draws, gamma=gamma, rng=generator)
