"""The true mutual information between the secret index and a release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.controls import Controls, fit_controls
from pacprivacy.adversary.draws import Draws, draw_blocks, posterior_entropy
from pacprivacy.adversary.view import Observable, View, view_of
from pacprivacy.theory.concentration import Estimate, bernstein_estimate, empirical_bernstein
from pacprivacy.theory.information import information_slack

__all__ = ["DEFAULT_GAMMA", "exact_information", "information_of_view"]

DEFAULT_GAMMA = 1e-9
MOST_PILOT_DRAWS: Final = 8192
FEWEST_PILOT_DRAWS: Final = 512
MOST_DIRECTIONS: Final = 256  # beyond, the prediction costs as much as the posterior


def default_draws(n_subsets: int) -> int:
    """Draws that take a few seconds at most."""
    return int(np.clip(4 * 10**7 // n_subsets, 4096, 400_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """How the gain will be averaged, and what to expect: variance and range of one draw."""

    controls: Controls | None
    n_draws: int
    mean: float
    variance: float
    range: tuple[float, float]


def pilot_of_view(view: View, *, n_draws: int, gamma: float, rng: np.random.Generator) -> Pilot:
    """Fit a prediction of the gain on pilot draws; keep it if it promises a shorter interval."""
    prior, width = view.prior_entropy, math.log(view.n_subsets)
    low, n_directions = prior - width, view.points.shape[1]
    plain = Pilot(controls=None, n_draws=0, mean=0.0, variance=width**2 / 4, range=(low, prior))
    n_pilot = min(n_draws // 8, MOST_PILOT_DRAWS)
    if n_pilot < FEWEST_PILOT_DRAWS or not 1 <= n_directions <= MOST_DIRECTIONS:
        return plain
    blocks = list(draw_blocks(view, n_pilot, rng))
    gains = np.concatenate([prior - posterior_entropy(view, block) for block in blocks])
    draws = Draws(
        indices=np.concatenate([block.indices for block in blocks]),
        noise=np.concatenate([block.noise for block in blocks]),
    )
    controls = fit_controls(view, draws, gains)
    ends = controls.range(low, prior)
    # The pilot is drawn from the belief: a square is weighted once, not twice.
    excess = controls.adjust(draws, gains) - controls.mean
    weights = controls.prior[draws.indices] / controls.proposal[draws.indices]
    adjusted = float(np.mean(np.square(excess) / weights))
    variance, n_main = float(gains.var(ddof=1)), n_draws - n_pilot
    gained = empirical_bernstein(adjusted, n_main, width=ends[1] - ends[0], gamma=gamma / 2)
    if gained >= empirical_bernstein(variance, n_main, width=width, gamma=gamma / 2):
        mean = float(gains.mean())
        return Pilot(
            controls=None, n_draws=n_pilot, mean=mean, variance=variance, range=(low, prior)
        )
    return Pilot(
        controls=controls, n_draws=n_pilot, mean=controls.mean, variance=adjusted, range=ends
    )


def information_of_view(
    view: View, *, n_draws: int, gamma: float, rng: np.random.Generator
) -> Estimate:
    """Estimate (4) on a view; see :func:`exact_information`.

    A share of the draws is a pilot, on which a prediction of the gain is fitted; the others
    average what it does not predict.
    """
    prior = view.prior_entropy
    pilot = pilot_of_view(view, n_draws=n_draws, gamma=gamma, rng=rng)
    controls, n_main = pilot.controls, n_draws - pilot.n_draws
    source = view if controls is None else controls.drawn_from(view)
    total = total_sq = 0.0
    for draws in draw_blocks(source, n_main, rng):
        gains = prior - posterior_entropy(view, draws)
        if controls is not None:
            gains = controls.adjust(draws, gains)
        gains -= pilot.mean  # differences keep digits in the squares
        total += float(gains.sum())
        total_sq += float(gains @ gains)
    mean = total / n_main
    variance = max(0.0, (total_sq - n_main * mean**2) / (n_main - 1))
    low, high = pilot.range
    estimate = bernstein_estimate(
        pilot.mean + mean, variance, n_main, low=low, high=high, gamma=gamma
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
