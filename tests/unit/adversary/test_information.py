"""Divergence, entropy, the log-determinant bound and the cost of the lattice."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import integrate, special

from pacprivacy.errors import BudgetError
from pacprivacy.theory import (
    bernoulli_kl,
    binary_entropy,
    entropy,
    information_slack_bound,
    lattice_total_variation_bound,
    log_det_bound,
)


@pytest.mark.claim("T-1")
@pytest.mark.parametrize("p", [5e-324, 1e-300, 1e-9, 0.2, 0.5, 0.9, 1 - 2.0**-40])
@pytest.mark.parametrize("share", [1e-12, 1e-5, 0.09, 0.11, 0.5, 0.999999, 1 - 1e-16])
def test_kl_agrees_with_seven_hundred_digits(p: float, share: float) -> None:
    for q in (p + share * (1 - p), p * (1 - share)):
        with localcontext() as context:
            context.prec = 700  # 1 - p must keep the digits of the smallest p
            a, b = Decimal(q), Decimal(p)
            truth = a * (a / b).ln() if a > 0 else Decimal(0)
            truth += (1 - a) * ((1 - a) / (1 - b)).ln() if a < 1 else Decimal(0)
        # Doubles below 1e-307 keep fewer digits: an absolute error of one smallest double.
        assert bernoulli_kl(q, p) == pytest.approx(float(truth), rel=1e-13, abs=1e-322)


def test_kl_at_the_ends() -> None:
    assert bernoulli_kl(0.5, 0.5) == 0.0
    assert bernoulli_kl(1.0, 0.25) == pytest.approx(math.log(4), rel=1e-15)
    assert bernoulli_kl(0.0, 0.25) == pytest.approx(-math.log(0.75), rel=1e-15)
    assert bernoulli_kl(0.0, 0.0) == bernoulli_kl(1.0, 1.0) == 0.0
    assert bernoulli_kl(0.1, 0.0) == bernoulli_kl(0.9, 1.0) == math.inf


def test_kl_broadcasts() -> None:
    rates = np.array([0.1, 0.5, 0.9])
    np.testing.assert_array_equal(bernoulli_kl(rates, 0.5), bernoulli_kl(rates, np.full(3, 0.5)))
    np.testing.assert_allclose(bernoulli_kl(rates, 0.5)[[0, 2]], 0.36806, atol=1e-5)


def test_entropy_in_the_log_domain() -> None:
    assert float(entropy(np.full(256, -math.log(256)))) == pytest.approx(math.log(256))
    assert float(entropy([0.0, -math.inf])) == 0.0
    laws = np.log([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    expected = [1.5 * math.log(2), -sum(p * math.log(p) for p in (0.1, 0.2, 0.7))]
    np.testing.assert_allclose(entropy(laws), expected, rtol=1e-14)
    # Probabilities too small for a double still count through their logarithm.
    assert float(entropy([0.0, -800.0])) == 0.0
    assert float(entropy([1e-17, -40.0])) >= 0.0


def test_binary_entropy() -> None:
    assert binary_entropy(0.5) == pytest.approx(math.log(2))
    assert binary_entropy(0.0) == binary_entropy(1.0) == 0.0
    assert binary_entropy(0.1) == pytest.approx(float(entropy(np.log([0.1, 0.9]))))


@pytest.mark.claim("T-2")
def test_log_det_is_the_log_determinant() -> None:
    generator = np.random.default_rng(5)
    spread, noise = generator.gamma(1.0, size=6), generator.gamma(1.0, size=6)
    sign, value = np.linalg.slogdet(np.eye(6) + np.diag(spread / noise))
    assert sign == 1
    assert log_det_bound(spread, noise) == pytest.approx(value / 2, rel=1e-13)
    assert log_det_bound(spread, 2.0) == pytest.approx(0.5 * np.log1p(spread / 2).sum())


@pytest.mark.claim("T-2")
def test_log_det_on_axes_that_do_not_move() -> None:
    assert log_det_bound([0.0, 0.0], [0.0, 1.0]) == 0.0
    assert log_det_bound([1.0, 0.0], [0.0, 1.0]) == math.inf
    assert log_det_bound([], []) == 0.0
    assert log_det_bound([1e-20], [1.0]) == pytest.approx(5e-21, rel=1e-15)
    assert log_det_bound([math.inf], [math.inf]) == math.inf


@pytest.mark.claim("T-2")
@pytest.mark.parametrize("noise_var", [0.5, 1.0, 5.0])
def test_log_det_is_above_the_information_of_a_coin(noise_var: float) -> None:
    """The output is +1 or -1: MI by quadrature, variance 1."""
    std = math.sqrt(noise_var)

    def missing(z: float) -> float:
        weight = math.exp(-((z - 1) ** 2) / (2 * noise_var)) / (std * math.sqrt(2 * math.pi))
        return weight * float(np.logaddexp(0.0, -2 * z / noise_var))

    mi = math.log(2) - integrate.quad(missing, 1 - 12 * std, 1 + 12 * std, limit=200)[0]
    assert mi <= log_det_bound([1.0], [noise_var])
    assert mi > log_det_bound([0.5], [noise_var])  # half the variance would be noticed


def lattice_laws(s: float, shift: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masses of the discrete and of the rounded Gaussian around ``shift``, to 30 s."""
    y = np.arange(-math.ceil(30 * s), math.ceil(30 * s) + 1)
    weight = np.exp(-0.5 * ((y - shift) / s) ** 2)
    upper, lower = (y - shift + 0.5) / s, (y - shift - 0.5) / s
    # Differences of the nearer tail, so that the far masses keep their digits.
    flip = np.where(y > shift, -1.0, 1.0)
    rounded = np.abs(special.ndtr(flip * upper) - special.ndtr(flip * lower))
    return y, weight / weight.sum(), rounded


@pytest.mark.claim("L-2")
@pytest.mark.parametrize("s", [1.0, 1.5, 2.0, 16.0, 200.0, 1024.0])
def test_lattice_distance_is_bounded_and_not_loosely(s: float) -> None:
    _, discrete, rounded = lattice_laws(s)
    distance = 0.5 * np.abs(discrete - rounded).sum()
    assert distance <= lattice_total_variation_bound(1, s)
    assert distance >= lattice_total_variation_bound(1, s) / 4


@pytest.mark.claim("L-2")
@pytest.mark.parametrize("s", [1.0, 3.0, 16.0])
def test_ratio_of_masses_is_the_integral_of_the_proof(s: float) -> None:
    y, discrete, rounded = lattice_laws(s)
    theta = 1 + 2 * math.exp(-2 * math.pi**2 * s**2)
    for value in (0, 1, 5):
        i = int(np.flatnonzero(y == value)[0])
        # The odd part of exp(-uy/s^2) integrates to zero and leaves the cosh.
        ratio = integrate.quad(
            lambda u, v=value: math.cosh(u * v / s**2) * math.exp(-(u**2) / (2 * s**2)), -0.5, 0.5
        )[0]
        assert rounded[i] == pytest.approx(discrete[i] * theta * ratio, rel=1e-9)
        assert ratio >= 1 - 1 / (24 * s**2)


def information(laws: np.ndarray) -> float:
    """Exact MI between a uniform row number and a draw from that row's law."""
    mixture = laws.mean(axis=0)
    return float(special.rel_entr(laws, mixture[None, :]).sum() / len(laws))


@pytest.mark.claim("L-2")
@pytest.mark.parametrize("s", [1, 2, 16])
def test_lattice_information_stays_within_the_slack(s: int) -> None:
    shifts = [0, s // 2 + 1, 2 * s, 5 * s]
    discrete = np.stack([lattice_laws(s, shift)[1] for shift in shifts])
    rounded = np.stack([lattice_laws(s, shift)[2] for shift in shifts])
    slack = information_slack_bound(lattice_total_variation_bound(1, s), 4)
    assert information(discrete) <= information(rounded) + slack
    # Success of the best guess of the candidate, both laws.
    gain = (discrete.max(axis=0).sum() - rounded.max(axis=0).sum()) / 4
    assert gain <= lattice_total_variation_bound(1, s)


@pytest.mark.claim("L-2")
def test_slack_formula() -> None:
    tau = 3 / (16 * 1024**2)
    assert lattice_total_variation_bound(3, 1024) == pytest.approx(tau, rel=1e-14)
    assert lattice_total_variation_bound(3, 1024) > tau
    per_axis = np.array([1024.0, 2048.0])
    assert lattice_total_variation_bound(2, per_axis) == pytest.approx(1.25 / (16 * 1024**2))
    expected = tau * math.log(256) + (1 + tau) * binary_entropy(tau / (1 + tau))
    assert information_slack_bound(tau, 256) == pytest.approx(expected, rel=1e-12)
    assert information_slack_bound(lattice_total_variation_bound(0, 1024), 256) == 0.0
    assert information_slack_bound(5.0, 4) == pytest.approx(math.log(4))


def test_refusals() -> None:
    with pytest.raises(BudgetError, match=r"q must be between 0 and 1; got 58.8\. Pass"):
        bernoulli_kl(58.8, 0.5)
    with pytest.raises(BudgetError, match="p must be between 0 and 1; got nan"):
        bernoulli_kl(0.5, math.nan)
    with pytest.raises(BudgetError, match="p must be between 0 and 1"):
        binary_entropy(1.5)
    with pytest.raises(BudgetError, match="units_per_std must be >= 1"):
        lattice_total_variation_bound(1, 0.5)
    with pytest.raises(BudgetError, match=r"shape \(3,\); got shape \(2,\)"):
        lattice_total_variation_bound(3, np.ones(2))
    with pytest.raises(BudgetError, match="n_directions must be >= 0; got -1"):
        lattice_total_variation_bound(-1, 1024)
    with pytest.raises(BudgetError, match="n_subsets must be >= 1; got 0"):
        information_slack_bound(0.1, 0)
    with pytest.raises(BudgetError, match="total_variation must be >= 0; got nan"):
        information_slack_bound(math.nan, 4)


def test_variances_are_not_printed() -> None:
    with pytest.raises(BudgetError, match=r"shape \(2,\)") as caught:
        log_det_bound([-0.123, 1.0], [1.0, 1.0])
    assert "0.123" not in str(caught.value)
    with pytest.raises(BudgetError, match="noise_var must be variances >= 0"):
        log_det_bound([1.0], [math.nan])
