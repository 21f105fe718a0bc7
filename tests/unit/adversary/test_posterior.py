"""Budget, success and ε against the printed tables and against 50-digit arithmetic."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from pacprivacy.errors import BudgetError
from pacprivacy.theory import (
    bernoulli_kl,
    epsilon_equivalent,
    mi_for_success,
    posterior_success,
    success_for_epsilon,
)


def decimal_kl(q: Decimal, p: Decimal) -> Decimal:
    value = q * (q / p).ln()
    return value if q == 1 else value + (1 - q) * ((1 - q) / (1 - p)).ln()


def decimal_posterior(mi: float, prior: float) -> Decimal:
    """Largest q >= prior with kl(q, prior) <= mi, by plain bisection with 50 digits."""
    with localcontext() as context:
        context.prec = 50
        low, high, p, budget = Decimal(prior), Decimal(1), Decimal(prior), Decimal(mi)
        if decimal_kl(high, p) <= budget:
            return high
        for _ in range(150):
            middle = (low + high) / 2
            if decimal_kl(middle, p) <= budget:
                low = middle
            else:
                high = middle
        return low


HALF_TABLE = [
    (1 / 64, 58.816),
    (1 / 32, 62.434),
    (1 / 16, 67.491),
    (1 / 8, 74.464),
    (1 / 4, 83.789),
    (1 / 2, 95.181),
    (1, 100.0),
]
PERCENT_TABLE = [
    (1 / 64, 3.213),
    (1 / 32, 4.365),
    (1 / 16, 6.199),
    (1 / 8, 9.171),
    (1 / 4, 14.057),
    (1 / 2, 22.178),
    (1, 35.729),
    (2, 58.103),
    (4, 92.582),
]


@pytest.mark.claim("T-1")
@pytest.mark.parametrize(("mi", "percent"), HALF_TABLE)
def test_posterior_of_an_even_chance_matches_the_table(mi: float, percent: float) -> None:
    assert round(100 * posterior_success(mi), 3) == percent


@pytest.mark.claim("T-1")
@pytest.mark.parametrize(("mi", "percent"), PERCENT_TABLE)
def test_posterior_of_one_percent_matches_the_table(mi: float, percent: float) -> None:
    assert round(100 * posterior_success(mi, 0.01), 3) == percent


@pytest.mark.claim("T-1")
@pytest.mark.parametrize("prior", [1e-12, 0.01, 0.3, 0.5, 0.75, 0.999])
@pytest.mark.parametrize("mi", [1e-14, 1e-6, 1e-3, 0.1, 0.25, 0.6, 3.0])
def test_posterior_is_just_above_the_decimal_root(mi: float, prior: float) -> None:
    truth = decimal_posterior(mi, prior)
    result = Decimal(posterior_success(mi, prior))
    assert result >= truth
    # The budget is read 2^-42 larger; the root moves by no more than that share of q - p,
    # and by one unit in the last place.
    budget_share, unit = Decimal("1e-12"), Decimal("3e-16")
    assert result - truth <= (truth - Decimal(prior)) * budget_share + truth * unit


@pytest.mark.claim("T-1")
def test_posterior_at_the_ends_of_the_budget() -> None:
    assert posterior_success(0.0, 0.3) == 0.3
    assert posterior_success(math.log(2)) == 1.0
    assert posterior_success(math.inf, 1e-9) == 1.0
    assert posterior_success(math.log(100) * 0.999, 0.01) < 1.0
    assert posterior_success(0.5, 1.0) == 1.0


def test_posterior_broadcasts_arrays() -> None:
    budgets, priors = np.array([[0.1], [0.2], [0.3]]), np.array([0.2, 0.5])
    table = posterior_success(budgets, priors)
    assert table.shape == (3, 2)
    expected = [[posterior_success(float(b), float(p)) for p in priors] for b in budgets.ravel()]
    np.testing.assert_array_equal(table, expected)
    assert isinstance(posterior_success(0.1), float)


@pytest.mark.claim("T-1")
@pytest.mark.parametrize("prior", [0.01, 0.5, 0.75])
def test_budget_for_a_target_never_overshoots(prior: float) -> None:
    for success in np.linspace(prior, 1.0, 57):
        budget = mi_for_success(float(success), prior)
        assert posterior_success(budget, prior) <= success
        assert budget == pytest.approx(bernoulli_kl(float(success), prior), rel=1e-11)
    assert mi_for_success(prior, prior) == 0.0
    assert mi_for_success(1.0, prior) == pytest.approx(-math.log(prior), rel=1e-11)


@pytest.mark.parametrize(
    ("exponent", "epsilon"), [(-2, 1.64), (-4, 0.73), (-6, 0.36), (-8, 0.18), (-10, 0.09)]
)
def test_epsilon_table(exponent: int, epsilon: float) -> None:
    assert round(epsilon_equivalent(posterior_success(2.0**exponent)), 2) == epsilon


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
def test_epsilon_and_success_are_inverse(delta: float) -> None:
    for epsilon in [0.0, 0.1, 1.0, 5.0, 20.0]:
        success = success_for_epsilon(epsilon, delta)
        assert success == pytest.approx(1 - (1 - delta) / (1 + math.exp(epsilon)), rel=1e-14)
        assert epsilon_equivalent(success, delta) == pytest.approx(epsilon, abs=1e-6)


def test_epsilon_is_clipped_and_infinite_at_certainty() -> None:
    assert epsilon_equivalent(0.4) == 0.0
    assert epsilon_equivalent(0.5, 0.1) == 0.0
    assert epsilon_equivalent(1.0) == math.inf
    assert epsilon_equivalent(1.0, 0.1) == math.inf
    assert success_for_epsilon(1e6) == success_for_epsilon(math.inf) == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: posterior_success(-0.1), r"mi_nats must be >= 0; got -0.1\. Use about 0.02"),
        (lambda: posterior_success(math.nan), "mi_nats must be >= 0; got nan"),
        (lambda: posterior_success(0.1, 0.0), "prior must be above 0 and at most 1; got 0.0"),
        (lambda: posterior_success(0.1, 1.5), "prior must be above 0 and at most 1; got 1.5"),
        (lambda: mi_for_success(0.4), "success must be between the prior 0.5 and 1; got 0.4"),
        (lambda: mi_for_success(1.1), "success must be between the prior 0.5 and 1; got 1.1"),
        (lambda: mi_for_success(0.4, -1.0), "prior must be above 0"),
        (lambda: epsilon_equivalent(58.8), "success must be between 0 and 1; got 58.8"),
        (lambda: epsilon_equivalent(0.6, 1.0), "delta must be at least 0 and below 1; got 1.0"),
        (lambda: success_for_epsilon(-1.0), "epsilon must be >= 0; got -1.0"),
        (lambda: success_for_epsilon(1.0, -0.1), "delta must be at least 0"),
    ],
)
def test_refusals_say_what_to_do(call: object, message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        call()  # type: ignore[operator]
