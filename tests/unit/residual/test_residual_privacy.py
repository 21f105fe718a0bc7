"""Residual quantities on a pool, other divergences, and the exact gap."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import pacprivacy as pac
from pacprivacy.adversary import View, exact_information, information_divergences, make_view
from pacprivacy.errors import BudgetError, MechanismError, PoolError
from pacprivacy.noise import calibrate
from pacprivacy.residual import (
    compose_residual_privacy,
    corrected_budget,
    exact_gap,
    intrinsic_privacy,
    joint_plan,
    posterior_disadvantage,
    reference_law,
    residual_privacy,
)
from pacprivacy.theory import DIVERGENCES, divergence_success
from papers.residual.examples import example_outputs

SIGNS = np.repeat([[-1.0], [1.0]], 8, axis=0)


@pytest.mark.claim("RP-1")
@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("prior", [0.01, 0.5, 0.9])
def test_success_inverts_every_divergence(name: str, prior: float) -> None:
    for q in (prior, prior + 0.3 * (1 - prior), 1 - 1e-6):
        advantage = -posterior_disadvantage(q, prior, divergence=name)  # type: ignore[arg-type]
        found = divergence_success(name, advantage, prior)  # type: ignore[arg-type]
        assert q - 1e-12 <= found <= q + 1e-6
    assert divergence_success(name, 0.0, prior) == prior  # type: ignore[arg-type]
    assert divergence_success(name, 1e6, prior) == 1.0  # type: ignore[arg-type]


@pytest.mark.claim("RP-2")
def test_divergences_agree_with_quadrature_on_two_points() -> None:
    plan = calibrate(SIGNS, pac.Information(0.3), rule="waterfill", rng=0)
    shift = 1 / float(plan.noise_std[0])

    def mean(function: object) -> float:
        def integrand(z: float) -> float:
            density = 0.5 * (norm.pdf(z - shift) + norm.pdf(z + shift))
            return density * function(1 / (1 + math.exp(-2 * shift * z)))  # type: ignore[operator]

        return float(quad(integrand, -12, 12)[0])

    truth = {
        "total variation": mean(lambda p: abs(p - 0.5)),
        "chi-square": mean(lambda p: 2 * p**2 + 2 * (1 - p) ** 2 - 1),
        "squared Hellinger": mean(lambda p: 1 - math.sqrt(p / 2) - math.sqrt((1 - p) / 2)),
    }
    found = information_divergences(plan.view(SIGNS), n_draws=100_000, gamma=1e-6, rng=0)
    assert [item.name for item in found] == list(truth)
    for item in found:
        assert item.estimate.lower <= truth[item.name] <= item.estimate.upper
        assert item.estimate.value == pytest.approx(truth[item.name], rel=0.03)
        assert 0.5 < item.success["0.5"] < 0.95


def test_divergences_of_a_belief_leave_out_what_is_ruled_out() -> None:
    outputs = np.arange(6.0)[:, None]
    log_p = np.log([0.4, 0.3, 0.3, 1e-300, 1e-300, 1e-300]) * [1, 1, 1, np.inf, np.inf, np.inf]
    plan = calibrate(outputs, pac.Information(0.2), rule="waterfill", log_belief=log_p)
    alone = calibrate(outputs[:3], pac.Information(0.2), rule="waterfill", log_belief=log_p[:3])
    among = information_divergences(plan.view(outputs, log_p), n_draws=50_000, rng=0)
    without = information_divergences(alone.view(outputs[:3], log_p[:3]), n_draws=50_000, rng=0)
    for one, other in zip(among, without, strict=True):
        assert one.estimate.value == pytest.approx(other.estimate.value, rel=0.03)


@pytest.mark.claim("RP-3")
def test_residual_privacy_is_the_mean_divergence_of_the_posterior() -> None:
    outputs = example_outputs("gaussian", n_subsets=32)
    plan = calibrate(outputs, pac.Information(0.4), rule="waterfill", rng=0)
    log_r = reference_law(outputs, "gaussian")
    found = residual_privacy(outputs, plan, log_reference=log_r, n_draws=50_000, rng=0)
    rng = np.random.default_rng(1)
    w = plan.whitened(outputs)
    z = w[rng.integers(32, size=50_000)] + rng.standard_normal((50_000, w.shape[1]))
    log_p = z @ w.T - 0.5 * np.square(w).sum(axis=1)
    log_p -= np.logaddexp.reduce(log_p, axis=1)[:, None]
    truth = -float((np.exp(log_p) * (log_p - log_r)).sum(axis=1).mean())
    assert found.residual.value == pytest.approx(truth, abs=0.02)
    assert found.intrinsic < 0
    assert found.entropy.value == pytest.approx(math.log(32) - found.information.value)


@pytest.mark.claim("RP-3")
def test_residual_entropies_compose_like_two_releases_at_once() -> None:
    outputs = example_outputs("two signs", n_subsets=16)
    plans = [calibrate(outputs, pac.Information(b), rule="waterfill", rng=0) for b in (0.2, 0.4)]
    both = np.hstack([plan.whitened(outputs) for plan in plans])

    class Together:
        def view(self, _: object, log_belief: np.ndarray | None) -> View:
            return make_view(both, log_belief)

    found = [residual_privacy(outputs, p, n_draws=50_000, rng=0).entropy for p in plans]
    together = residual_privacy(outputs, Together(), n_draws=50_000, rng=0).entropy
    composed = compose_residual_privacy([one.lower for one in found], math.log(16))
    assert composed <= together.upper
    assert composed > math.log(16) - 0.7


@pytest.mark.claim("RP-8")
def test_joint_design_pays_once_for_what_moves_together() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(128, 2))
    other = x @ np.array([[1.0, 0.5], [0.0, 1.0]]) + 0.1 * rng.normal(size=(128, 2))
    found = joint_plan([x, other], 0.5, rng=0)
    assert found.plan.total_variance < 0.6 * found.separate_variance
    assert sum(found.noise_by_mechanism) == pytest.approx(found.plan.total_variance)
    stacked = np.hstack([x, other])
    true_mi = exact_information(found.plan.view(stacked), n_draws=50_000, rng=1)
    assert true_mi.lower <= 0.5
    assert [part.shape for part in found.split(stacked[0])] == [(2,), (2,)]
    with pytest.raises(MechanismError, match="same pool"):
        joint_plan([x, other[:5]], 0.5)


def test_reference_laws() -> None:
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    assert intrinsic_privacy(reference_law(x, "uniform")) == 0.0
    assert intrinsic_privacy(reference_law(x, "truncated uniform", low=-1.0)) == -math.inf
    assert intrinsic_privacy(reference_law(x, "truncated uniform", low=-2.0)) == 0.0
    gaussian, sigmoid = reference_law(x, "gaussian"), reference_law(x, "sigmoid")
    np.testing.assert_allclose(np.exp(gaussian) / np.exp(gaussian[2]), np.exp(-(x**2) / 4))
    s = x / x.std()
    density = np.exp(-s) / (1 + np.exp(-s)) ** 2
    np.testing.assert_allclose(np.exp(sigmoid), density / density.sum())
    assert intrinsic_privacy(gaussian) < intrinsic_privacy(sigmoid) < 0
    with pytest.raises(PoolError, match="at least one candidate"):
        reference_law(x, "truncated uniform", low=9.0)


def test_intrinsic_privacy_by_any_divergence() -> None:
    law, reference = np.log([0.5, 0.3, 0.2]), np.log([0.2, 0.2, 0.6])
    generators: dict[Any, Any] = {
        "kl": lambda t: t * np.log(t),
        "total variation": lambda t: np.abs(t - 1) / 2,
        "chi-square": lambda t: (t - 1) ** 2,
        "squared Hellinger": lambda t: (np.sqrt(t) - 1) ** 2 / 2,
    }
    assert set(generators) == set(DIVERGENCES)
    for name, f in generators.items():
        found = intrinsic_privacy(reference, law, divergence=name)
        assert found == pytest.approx(intrinsic_privacy(reference, law, divergence=f), rel=1e-12)
        assert found < 0.0 == intrinsic_privacy(law, law, divergence=name)
        # An attacker told which candidate it is has the guess of a point: the name's own formula.
        sure = np.array([0.0, -np.inf])
        assert intrinsic_privacy(None, sure, divergence=name) == pytest.approx(
            {"kl": -math.log(2), "total variation": -0.5, "chi-square": -1.0}.get(
                name, math.sqrt(0.5) - 1
            )
        )
    ruled_out = np.array([0.0, -np.inf])
    assert intrinsic_privacy(ruled_out, divergence="total variation") == -0.5
    assert intrinsic_privacy(ruled_out, divergence="chi-square") == -math.inf
    with pytest.raises(BudgetError, match="divergence must be one of"):
        intrinsic_privacy(law, divergence="renyi")  # type: ignore[arg-type]


GENERATORS: dict[str, Any] = {
    "kl": lambda t: np.where(t > 0, t * np.log(np.maximum(t, 1e-300)), 0.0),
    "total variation": lambda t: np.abs(t - 1) / 2,
    "chi-square": lambda t: (t - 1) ** 2,
    "squared Hellinger": lambda t: (np.sqrt(t) - 1) ** 2 / 2,
}


@pytest.mark.claim("RP-9")
def test_posterior_disadvantage_of_an_attacker() -> None:
    assert posterior_disadvantage(0.5, 0.5, intrinsic=-0.25) == -0.25
    assert posterior_disadvantage(0.7, 0.5, divergence="total variation") == pytest.approx(-0.2)
    for name, f in GENERATORS.items():
        for q, p in ((0.9, 0.5), (0.3, 0.01), (0.0, 0.2)):
            named = posterior_disadvantage(q, p, divergence=name)  # type: ignore[arg-type]
            assert named == pytest.approx(posterior_disadvantage(q, p, divergence=f), rel=1e-9)
    with pytest.raises(BudgetError, match="fractions"):
        posterior_disadvantage(70, 50)
    with pytest.raises(BudgetError, match="divergence must be one of"):
        posterior_disadvantage(0.7, 0.5, divergence="renyi")  # type: ignore[arg-type]


@pytest.mark.claim("RP-9")
def test_residual_privacy_by_any_divergence() -> None:
    """A function and its name agree, on a pool and a reference that are not uniform."""
    outputs = example_outputs("votes", n_subsets=12)
    log_p = np.log(np.arange(1.0, 13.0) / 78)
    plan = calibrate(outputs, pac.Information(0.3), rule="waterfill", log_belief=log_p)
    settings: dict[str, Any] = {
        "log_reference": reference_law(outputs, "gaussian"),
        "log_belief": log_p,
        "n_draws": 40_000,
        "gamma": 1e-3,
        "rng": 0,
    }
    for name, f in GENERATORS.items():
        by_name = residual_privacy(outputs, plan, divergence=name, **settings)  # type: ignore[arg-type]
        by_function = residual_privacy(outputs, plan, divergence=f, **settings)
        assert by_name.intrinsic == pytest.approx(by_function.intrinsic)
        assert by_name.lost.value == pytest.approx(by_function.lost.value, rel=0.06)
        for found in (by_name, by_function):
            assert found.residual.lower == pytest.approx(found.intrinsic - found.lost.upper)
            assert found.residual.lower <= found.residual.value <= found.intrinsic
            assert found.entropy.value == pytest.approx(
                found.prior_entropy - found.information.value
            )
    with pytest.raises(BudgetError, match="finite at 0"):
        residual_privacy(outputs, plan, divergence=lambda t: -np.log(t), n_draws=10)


@pytest.mark.claim("RP-9")
@pytest.mark.parametrize("f", [*GENERATORS.values(), lambda t: np.maximum(t - 2, 0)])
def test_the_best_attacker_keeps_the_disadvantage_that_is_left(f: Any) -> None:
    """Noise of half the deviation breaks it: the best guess of the sign is then too good."""
    plan = calibrate(SIGNS, pac.Information(0.3), rule="waterfill", rng=0)
    left = residual_privacy(SIGNS, plan, divergence=f, n_draws=40_000, rng=0).residual.lower
    shift = 1 / float(plan.noise_std[0])
    for threshold in (-1.0, 0.0, 1.0):  # says 1 where the release is above: how often it is right
        right = 0.5 * (norm.sf(threshold - shift) + norm.cdf(threshold + shift))
        assert posterior_disadvantage(right, 0.5, divergence=f) >= left
    if f is not GENERATORS["chi-square"] and f(np.array([2.0]))[0] > 0:
        halved = posterior_disadvantage(float(norm.cdf(2 * shift)), 0.5, divergence=f)
        assert halved < left


@pytest.mark.claim("RP-4")
def test_exact_gap_agrees_with_quadrature() -> None:
    plan = calibrate(SIGNS, pac.Information(0.6), rule="waterfill", rng=0)
    shift = 1 / float(plan.noise_std[0])

    def integrand(z: float) -> float:
        density = 0.5 * (norm.pdf(z - shift) + norm.pdf(z + shift))
        return density * (math.log(density) - norm.logpdf(z, scale=math.sqrt(1 + shift**2)))

    truth = float(quad(integrand, -15, 15)[0])
    found = exact_gap(SIGNS, plan, n_draws=100_000, gamma=1e-6, rng=0)
    assert found.lower <= truth <= found.upper
    assert found.value == pytest.approx(truth, rel=0.1)
    assert corrected_budget(plan.log_det_nats, found) < 0.6
    with pytest.raises(BudgetError, match="mi_nats must be"):
        corrected_budget(-1.0, found)


def test_gap_needs_noise_in_every_direction() -> None:
    votes = example_outputs("votes", n_subsets=16)
    plan = calibrate(votes, pac.Information(3.0), rng=0)
    with pytest.raises(BudgetError, match="every direction that moves"):
        exact_gap(votes, plan)
