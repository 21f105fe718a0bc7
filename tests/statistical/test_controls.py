"""Variance reduction for the information: the mean does not depend on how well it predicts."""

from __future__ import annotations

import numpy as np
import pytest

from pacprivacy.adversary.information import CLIP, CLIP_MEAN, fit_information_controls
from pacprivacy.adversary.view_and_belief import Draws, draw_views, make_view, view_entropy

N_DRAWS = 60_000


@pytest.mark.claim("A-1")
@pytest.mark.parametrize("wrong_by", [0.0, 5.0])
def test_a_bad_prediction_changes_the_width_and_not_the_mean(wrong_by: float) -> None:
    rng = np.random.default_rng(0)
    log_p = np.log(rng.dirichlet(np.ones(24)))
    view = make_view(rng.normal(size=(24, 3)), log_p)
    pilot = draw_views(view, 4000, rng)
    guess = view.prior_entropy - view_entropy(view, pilot)
    wrong = wrong_by * rng.exponential(size=24)[pilot.indices] * rng.exponential(size=4000)
    controls = fit_information_controls(view, pilot, guess + wrong)
    plain = view.prior_entropy - view_entropy(view, draw_views(view, N_DRAWS, rng))
    draws = draw_views(controls.drawn_from(view), N_DRAWS, rng)
    gains = view.prior_entropy - view_entropy(view, draws)
    adjusted = controls.adjust(draws, gains)
    error = np.sqrt((plain.var() + adjusted.var()) / N_DRAWS)
    assert abs(adjusted.mean() - plain.mean()) < 5 * error
    ends = (view.prior_entropy - np.log(24), view.prior_entropy)
    low, high = controls.range(*ends)
    assert low <= adjusted.min()
    assert adjusted.max() <= high
    # The ends themselves: noise far out to either side, or none, and the least and largest gain.
    everyone = np.arange(24)
    far = 1e6 * controls.gradient / np.linalg.norm(controls.gradient, axis=1, keepdims=True)
    for noise in (far, -far, np.zeros_like(far)):
        for gain in ends:
            found = controls.adjust(Draws(indices=everyone, noise=noise), np.full(24, gain))
            assert low <= found.min()
            assert found.max() <= high
    if wrong_by == 0.0:
        assert adjusted.var() < 0.5 * plain.var()


@pytest.mark.claim("A-1")
def test_the_known_mean_of_clipped_squares() -> None:
    grid = np.linspace(-12, 12, 400_001)
    density = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
    by_sum = float((np.minimum(grid**2, CLIP**2) * density).sum() * (grid[1] - grid[0]))
    assert by_sum == pytest.approx(CLIP_MEAN, abs=1e-9)
