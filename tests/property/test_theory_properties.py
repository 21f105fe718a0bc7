"""Order, inversion and safe rounding of the formulas, for arguments nobody chose by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import special

from pacprivacy.noise import lattice
from pacprivacy.theory import (
    bernoulli_kl,
    binary_entropy,
    clopper_pearson,
    empirical_bernstein,
    entropy,
    information_slack_bound,
    log_det_bound,
    mi_for_success,
    posterior_success,
)

priors = st.floats(1e-12, 1 - 1e-12)
budgets = st.floats(0.0, 30.0)
rates = st.floats(0.0, 1.0)
variances = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=6)


@pytest.mark.claim("T-1")
@given(budgets, priors)
def test_posterior_is_rounded_up(mi: float, prior: float) -> None:
    success = posterior_success(mi, prior)
    assert prior <= success <= 1.0
    assert success == 1.0 or bernoulli_kl(success, prior) >= mi
    # The double below does not reach the budget: no success is given away.
    if success > prior:
        below = max(math.nextafter(success, 0.0), prior)
        assert bernoulli_kl(below, prior) < mi * (1 + 2.0**-41)


@pytest.mark.claim("T-1")
@given(budgets, budgets, priors, priors)
def test_posterior_grows_with_budget_and_prior(a: float, b: float, p: float, q: float) -> None:
    assert posterior_success(min(a, b), p) <= posterior_success(max(a, b), p)
    # A larger prior is never worse for the attacker; rounding may cost the last digits.
    low, high = posterior_success(a, min(p, q)), posterior_success(a, max(p, q))
    assert low <= high * (1 + 1e-11)


@pytest.mark.claim("T-1")
@given(priors, rates)
def test_round_trip_stays_at_or_below_the_target(prior: float, share: float) -> None:
    success = min(prior + share * (1 - prior), 1.0)
    assert posterior_success(mi_for_success(success, prior), prior) <= success


@given(rates, rates)
def test_kl_is_a_divergence(q: float, p: float) -> None:
    value = bernoulli_kl(q, p)
    assert value >= 0.0
    assert (value == 0.0) == (q == p) or abs(q - p) < 1e-150  # squares underflow
    # Pinsker's inequality.
    assert value >= 2 * (q - p) ** 2 * (1 - 1e-12)


@given(st.lists(st.floats(-50.0, 0.0), min_size=1, max_size=20))
def test_entropy_is_between_zero_and_log_m(logs: list[float]) -> None:
    normalised = np.array(logs) - special.logsumexp(logs)
    value = float(entropy(normalised))
    assert 0.0 <= value <= math.log(len(logs)) + 1e-12
    assert float(entropy(np.append(normalised, -np.inf))) == pytest.approx(value)


@pytest.mark.claim("T-2")
@given(variances, st.floats(1e-6, 1e6), st.floats(1.0, 10.0))
def test_log_det_falls_with_noise_and_ignores_order(
    spread: list[float], noise: float, factor: float
) -> None:
    bound = log_det_bound(spread, noise)
    assert log_det_bound(spread, noise * factor) <= bound
    assert log_det_bound([v * factor for v in spread], noise * factor) == pytest.approx(
        bound, rel=1e-9, abs=1e-300
    )
    assert log_det_bound(spread[::-1], noise) == bound
    assert bound <= sum(spread) / (2 * noise) * (1 + 1e-12)


@pytest.mark.claim("L-2")
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(1e-6, 0.9))
def test_conditional_entropy_is_as_continuous_as_claimed(
    seed: int, n_subsets: int, mix: float
) -> None:
    """Two random joint laws of (J, x) with the same J: entropies no further apart than the slack.

    One of them is concentrated, the other mixes in a law under which x tells nothing of J, the
    direction in which the bound is nearly reached.
    """
    generator = np.random.default_rng(seed)
    sharp = np.eye(n_subsets) / n_subsets
    other = generator.dirichlet(np.full(n_subsets, 0.5), size=n_subsets) / n_subsets
    blurred = (1 - mix) * sharp + mix * other
    distance = 0.5 * np.abs(sharp - blurred).sum()

    def conditional(joint: np.ndarray) -> float:
        return float(special.entr(joint).sum() - special.entr(joint.sum(axis=0)).sum())

    gap = abs(conditional(blurred) - conditional(sharp))
    assert gap <= information_slack_bound(distance, n_subsets) + 1e-12


@pytest.mark.claim("L-2")
@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 10**6))
def test_slack_grows_with_distance_up_to_log_m(a: float, b: float, n_subsets: int) -> None:
    low, high = sorted(
        (information_slack_bound(a, n_subsets), information_slack_bound(b, n_subsets))
    )
    assert low <= high
    assert (information_slack_bound(min(a, b), n_subsets) == low) or a == b
    assert high <= math.log(n_subsets) * (1 + 1e-12)


@given(rates)
def test_binary_entropy_is_symmetric(p: float) -> None:
    assert binary_entropy(p) == pytest.approx(binary_entropy(1.0 - p), abs=1e-14)


@pytest.mark.claim("T-3")
@given(st.floats(0.0, 0.25), st.integers(2, 10**6), st.floats(1e-12, 0.5))
def test_bernstein_falls_with_draws_and_grows_with_spread(
    variance: float, n_draws: int, gamma: float
) -> None:
    half = empirical_bernstein(variance, n_draws, width=1.0, gamma=gamma)
    assert empirical_bernstein(variance, n_draws + 1, width=1.0, gamma=gamma) < half
    assert empirical_bernstein(variance, n_draws, width=1.0, gamma=gamma / 2) > half
    assert empirical_bernstein(variance + 0.01, n_draws, width=1.0, gamma=gamma) > half
    scaled = empirical_bernstein(4 * variance, n_draws, width=2.0, gamma=gamma)
    assert scaled == pytest.approx(2 * half)


@given(st.integers(1, 5000), st.floats(0.0, 1.0), st.floats(1e-9, 0.5))
def test_clopper_pearson_mirrors(trials: int, share: float, gamma: float) -> None:
    successes = round(share * trials)
    one = clopper_pearson(successes, trials, gamma=gamma)
    other = clopper_pearson(trials - successes, trials, gamma=gamma)
    assert one.lower == pytest.approx(1 - other.upper, abs=1e-9)
    assert one.lower <= one.value <= one.upper


@pytest.mark.claim("L-1")
@settings(max_examples=30)
@given(
    st.fractions(min_value=Fraction(1, 10**6), max_value=80, max_denominator=2**62),
    st.integers(8, 200),
)
def test_enclosures_are_nested(gamma: Fraction, bits: int) -> None:
    """A finer enclosure lies inside a coarser one, up to the coarser unit."""
    lower, upper = lattice._enclose_exp(gamma, bits)
    fine_lower, fine_upper = lattice._enclose_exp(gamma, bits + 70)
    assert lower << 70 <= fine_upper
    assert fine_lower <= upper << 70
    assert 0 <= upper - lower <= 2
    assert math.isclose(lower / 2**bits, math.exp(-gamma), rel_tol=1e-13, abs_tol=2 / 2**bits)


def test_plain_numbers_and_arrays_have_the_same_divergence_and_success() -> None:
    rng = np.random.default_rng(0)
    q = rng.random(300)
    near = np.clip(q * (1 + 10 ** rng.uniform(-12, 0, size=300)), 1e-12, 1 - 1e-12)
    for p in (near, np.clip(rng.random(300), 1e-6, 1 - 1e-6)):
        one = [bernoulli_kl(float(a), float(b)) for a, b in zip(q, p, strict=True)]
        np.testing.assert_allclose(one, bernoulli_kl(q, p), rtol=2e-15)
    nats = 10 ** rng.uniform(-12, 1, size=300)
    one = [posterior_success(float(a), float(b)) for a, b in zip(nats, q, strict=True)]
    np.testing.assert_allclose(one, posterior_success(nats, q), rtol=0, atol=1e-15)
