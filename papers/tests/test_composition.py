"""Advanced composition and tCDP, beside the accountant."""

import math

import dp_accounting
import pytest

from pacprivacy import dp
from papers.cs208.composition import TruncatedCurve, advanced_composition, truncated_curve

SAMPLED = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(2.0))


def test_advanced_composition_is_below_basic_and_above_the_accountant() -> None:
    epsilon, delta = advanced_composition(0.1, 0.0, n_runs=100, slack=1e-6)
    assert (epsilon, delta) == (pytest.approx(6.3082, abs=1e-4), 1e-6)
    assert epsilon < 100 * 0.1
    best = dp.account(dp.PureEvent(epsilon=0.1, count=100), delta=delta).best[1]
    assert best < epsilon


def test_a_gaussian_is_truncated_concentrated_and_a_sampled_one_gains() -> None:
    plain = truncated_curve(dp_accounting.GaussianDpEvent(2.0), omega=20.0)
    assert 1 / 8 <= plain.rho <= 1.02 / 8  # 1/2σ²
    assert truncated_curve(SAMPLED, omega=5.0).rho < 1e-3
    assert truncated_curve(SAMPLED, omega=5.0).rho < truncated_curve(SAMPLED, omega=60.0).rho


def test_truncated_curves_add_up_and_bound_the_loss() -> None:
    one = truncated_curve(SAMPLED, omega=12.0)
    both = one.compose(TruncatedCurve(rho=0.5, omega=4.0))
    assert both == TruncatedCurve(rho=one.rho + 0.5, omega=4.0)
    many = TruncatedCurve(rho=1000 * one.rho, omega=one.omega)
    event = dp.GaussianEvent(
        noise_multiplier=2.0, sampling=dp.PoissonSampling(rate=0.01), count=1000
    )
    account = dp.account(event, delta=1e-5)
    assert account.epsilons["renyi"] is not None
    assert account.best[1] <= account.epsilons["renyi"] <= many.epsilon(1e-5) < math.inf
