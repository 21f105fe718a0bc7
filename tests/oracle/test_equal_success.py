"""DP at one success: what an attacker gains on each method, by code that shares nothing.

The advantage of the best guess is the total variation distance of two outputs. It is computed here
by quadrature, by convolution on a grid, and by dp-accounting asked directly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from gains import (
    calibrated,
    check_dp_methods,
    descent_gain,
    gaussian_gain,
    gaussian_sum,
    laplace_gain,
    mapped,
    parameter_at,
)
from pacprivacy.dp import (
    FixedSampling,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampling,
    PureEvent,
    advantage,
    calibrate_to_advantage,
    objective_perturbation,
)
from pacprivacy.dp.descent import FixedBatch, PoissonBatch, dp_descent_event
from pacprivacy.dp.noise import dp_noise_slack
from pacprivacy.errors import BudgetError
from pacprivacy.theory import (
    gaussian_epsilon,
    gaussian_equivalent,
    gaussian_success,
    posterior_success,
    read_as_dp,
)
from papers.residual.laws import law_of_dp

SUCCESS = 0.588
TARGET = 2 * SUCCESS - 1


@pytest.mark.claim("DP-30")
@pytest.mark.parametrize("model", ["sum", "ridge", "logistic"])
def test_every_dp_method_has_the_advantage_of_the_target(model: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    score = X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=300)
    check_dp_methods(X, score > 0 if model == "logistic" else score, model, success=SUCCESS)


def test_the_noise_does_not_depend_on_where_epsilon_is_read() -> None:
    X = np.random.default_rng(0).uniform(size=(300, 2))
    stds = []
    for delta in (1e-3, 1e-8):
        release = calibrated(gaussian_sum, mapped(X, X[:, 0], "sum", delta), TARGET)
        assert release.certificate.noise is not None
        stds.append(release.certificate.noise["std"])
    assert stds[0] == pytest.approx(stds[1], rel=1e-6)
    assert stds[0] / math.sqrt(2) == pytest.approx(1 / 0.445, rel=2e-3)


# --- closed forms and compositions -------------------------------------------------------------


@pytest.mark.claim("DP-30")
def test_the_handbook_figures() -> None:
    assert gaussian_equivalent(SUCCESS) == pytest.approx(0.445, abs=5e-4)
    assert gaussian_epsilon(gaussian_equivalent(SUCCESS), 1e-5) == pytest.approx(1.75, abs=5e-3)
    readings = read_as_dp(SUCCESS)
    assert readings.pure_epsilon == pytest.approx(0.356, abs=5e-4)
    assert readings.gaussian_epsilon / readings.pure_epsilon > 4.5
    for success in (0.5 + 1e-9, 0.51, 0.6, 0.9, 0.999999):
        mu = gaussian_equivalent(success)
        assert gaussian_success(mu) <= success
        assert gaussian_success(mu) == pytest.approx(success, abs=1e-12)
        assert 2 * success - 1 == pytest.approx(gaussian_gain(mu), abs=1e-6)


@pytest.mark.claim("DP-30")
@pytest.mark.parametrize("success", [0.52, 0.588, 0.75, 0.95])
def test_epsilon_of_the_gaussian_curve_is_on_the_safe_side(success: float) -> None:
    mu = gaussian_equivalent(success)
    for delta in (1e-3, 1e-5, 1e-9):
        epsilon = gaussian_epsilon(mu, delta)
        if epsilon > 0:
            assert parameter_at(epsilon, delta) == pytest.approx(mu, rel=1e-6)
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf


@pytest.mark.claim("DP-30")
def test_closed_forms_are_total_variation_distances() -> None:
    several = [GaussianEvent(noise_multiplier=4.0, count=4), GaussianEvent(noise_multiplier=2.0)]
    assert advantage(several) == pytest.approx(gaussian_gain(math.sqrt(0.5)), abs=1e-6)
    for epsilon in (0.1, 1.0, 3.0):
        found = advantage(LaplaceEvent(noise_multiplier=1 / epsilon))
        assert found == pytest.approx(laplace_gain((epsilon,)), abs=1e-4)
        coin = 1 / (1 + math.exp(-epsilon))  # randomised response tells the truth so often
        assert advantage(PureEvent(epsilon=epsilon)) == pytest.approx(2 * coin - 1)


@pytest.mark.claim("DP-30")
@pytest.mark.parametrize("shifts", [(0.5, 0.5), (0.9, 0.1), (1.0, 2.0), (0.3,) * 10])
def test_several_laplace_numbers_are_no_worse_than_one(shifts: tuple[float, ...]) -> None:
    whole = sum(shifts)
    for epsilon in np.linspace(0.0, whole, 7)[:-1]:
        several = laplace_gain(shifts, float(epsilon))
        assert several <= laplace_gain((whole,), float(epsilon)) + 1e-4
    assert laplace_gain(shifts) < 0.97 * (1 - math.exp(-whole / 2))  # and it is not a tie
    composed = advantage(
        [LaplaceEvent(noise_multiplier=1 / s, count=shifts.count(s)) for s in set(shifts)]
    )
    assert composed == pytest.approx(laplace_gain(shifts), rel=5e-3)


@pytest.mark.claim("DP-30")
@pytest.mark.parametrize(("noise", "rate", "steps"), [(2.0, 0.1, 60), (1.0, 0.01, 300)])
def test_sampled_steps_agree_with_the_accountant(noise: float, rate: float, steps: int) -> None:
    event = GaussianEvent(noise_multiplier=noise, count=steps, sampling=PoissonSampling(rate=rate))
    found = advantage(event)
    assert found == pytest.approx(descent_gain(noise, rate, steps), rel=1e-3)
    batch = PoissonBatch(size=1000 * rate, n_public=1000)
    again = advantage(dp_descent_event(batch, 1000, n_steps=steps, noise=noise, n_weights=3))
    assert found <= again <= found + 2 * dp_noise_slack(0.0, 3 * steps) + 1e-15


@pytest.mark.claim("DP-30")
def test_batches_of_a_fixed_size_gain_less_than_all_records() -> None:
    whole = advantage(GaussianEvent(noise_multiplier=2.0), neighbours="replace")
    event = dp_descent_event(FixedBatch(size=10), 100, n_steps=1, noise=4.0, n_weights=1)
    assert advantage(event, neighbours="replace") == pytest.approx(0.1 * whole, rel=1e-3)
    sampling = FixedSampling(n_records=100, batch_size=10)
    with pytest.raises(BudgetError, match="fixed size"):
        advantage(GaussianEvent(noise_multiplier=2.0, sampling=sampling))


@pytest.mark.claim("DP-30")
@pytest.mark.parametrize("target", [1e-3, 0.05, TARGET, 0.5, 0.95])
def test_calibration_is_on_the_safe_side_and_close(target: float) -> None:
    seen = []

    def curve(epsilon: float) -> float:
        seen.append(epsilon)
        return 1 - math.exp(-epsilon / 2)

    found = calibrate_to_advantage(curve, target)
    assert 0.999 * target <= curve(found) <= target
    assert len(seen) < 15


def test_calibration_refuses_what_cannot_be_reached() -> None:
    with pytest.raises(BudgetError, match="target must be between 0 and 1"):
        calibrate_to_advantage(lambda e: e, 1.0)
    with pytest.raises(BudgetError, match="none near"):
        calibrate_to_advantage(lambda e: 0.01 + e, 0.001)  # a δ of 0.01 is an advantage itself


def test_the_baseline_of_residual_privacy_has_the_success_of_the_budget() -> None:
    for mi_nats in (1 / 64, 1 / 4):
        found = law_of_dp(3, mi_nats, sensitivity=0.04)
        mu = 0.04 / math.sqrt(found.covariance[0, 0])
        assert gaussian_gain(mu) == pytest.approx(2 * posterior_success(mi_nats) - 1, rel=1e-4)


# --- objective perturbation --------------------------------------------------------------------


@pytest.mark.claim("DP-31")
@pytest.mark.parametrize("penalty", [0.1, 0.5, 5.0])
@pytest.mark.parametrize("mu", [0.2, 0.5, 1.5])
def test_curvature_has_no_part_in_the_advantage(penalty: float, mu: float) -> None:
    """The law of the tilted minimiser of ``n`` rows and of one more, by quadrature."""
    noise = 1.0 / mu

    def density(theta: Any, rows: list[float]) -> Any:
        slope = sum(-row / (1 + np.exp(row * theta)) for row in rows) + penalty * theta
        bend = sum(row**2 / (4 * np.cosh(row * theta / 2) ** 2) for row in rows) + penalty
        return stats.norm.pdf(-slope, 0, noise) * bend

    theta = np.linspace(-60, 60, 40_001) / max(0.1, min(1.0, penalty))
    for rows in ([], [1.0], [0.7, -1.0, 0.4]):
        for extra in (1.0, -0.6):
            less = density(theta, rows)
            more = density(theta, [*rows, extra])
            assert integrate.trapezoid(more, theta) == pytest.approx(1, abs=1e-3)
            gain = integrate.trapezoid(np.abs(less - more), theta) / 2
            assert gain <= gaussian_gain(mu) + 1e-4


@pytest.mark.claim("DP-31")
def test_certificate_of_objective_perturbation_counts_tilt_and_solver() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
    settings: dict[str, Any] = {
        "classes": (False, True),
        "penalty": 10.0,
        "x_bound": 1.5,
        "epsilon": 1.0,
        "delta": 1e-5,
        "simulate": 0,
    }
    one = objective_perturbation(X, X[:, 0] > 0, **settings).certificate
    assert one.accounting is not None
    mu = parameter_at(one.accounting["epsilon of the linear term"], 1e-5)
    solver = one.accounting["epsilon of the solver"]
    assert one.advantage is not None
    # Between the tilt alone, and the two added up.
    assert gaussian_gain(mu) < one.advantage < gaussian_gain(mu) + math.tanh(solver / 2)
    two = objective_perturbation(X, X[:, 0] > 0, neighbours="replace", **settings).certificate
    assert two.advantage is not None
    assert two.membership_bound <= (1 + two.advantage) / 2
