"""Accountants against closed forms and against a small one written here."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from pacprivacy.dp.accounting import (
    ORDERS,
    account,
    accounting_profile,
    renyi_divergences,
)
from pacprivacy.dp.descent import FixedBatch, PoissonBatch, ReplacementBatch, dp_descent_epsilon
from pacprivacy.dp.events import (
    ApproximateEvent,
    FixedSampling,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampling,
    PureEvent,
    ReplacementSampling,
)
from pacprivacy.errors import BudgetError
from pacprivacy.theory import gaussian_delta, gaussian_parameter

# --- the analytic Gaussian ------------------------------------------------------------------


def exact_delta(epsilon: float, parameter: float) -> float:
    """The privacy curve as an integral over the overlap of the two densities, by Simpson's rule.

    ``∫ (φ(x - μ) - e^ε φ(x))⁺ dx``; the integrand is positive beyond ``x = μ/2 + ε/μ``.
    """
    start = parameter / 2 + epsilon / parameter
    x = np.linspace(start, max(start, parameter) + 14.0, 20_001)
    log_ratio = np.minimum(0.0, epsilon - parameter * x + parameter**2 / 2)
    f = -np.expm1(log_ratio) * np.exp(-((x - parameter) ** 2) / 2) / math.sqrt(2 * math.pi)
    h = x[1] - x[0]
    return float(h / 3 * (f[0] + f[-1] + 4 * f[1:-1:2].sum() + 2 * f[2:-1:2].sum()))


@pytest.mark.claim("DP-5")
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-10])
def test_analytic_gaussian_is_the_root_of_the_exact_curve(epsilon: float, delta: float) -> None:
    low, high = 1e-6, 100.0
    for _ in range(60):  # bisection on the integral, nothing shared with the library
        middle = math.sqrt(low * high)
        low, high = (middle, high) if exact_delta(epsilon, middle) < delta else (low, middle)
    assert gaussian_parameter(epsilon, delta) == pytest.approx(low, rel=1e-6)
    assert gaussian_delta(epsilon, low) == pytest.approx(exact_delta(epsilon, low), rel=1e-6)


# --- loss distributions ---------------------------------------------------------------------


def small_accountant(z: float, rate: float, count: int, delta: float) -> float:
    """ε of ``count`` Poisson-sampled Gaussians: losses on a grid, composed by one FFT."""
    n = 1 << 17
    x = np.linspace(-14 * z, 14 * z + 1, 400_001)
    mixture = np.log((1 - rate) * stats.norm.pdf(x, 0, z) + rate * stats.norm.pdf(x, 1, z))
    plain = stats.norm.logpdf(x, 0, z)
    worst = 0.0
    for p, q in ((mixture, plain), (plain, mixture)):
        mass = np.exp(p)
        mass /= mass.sum()
        mean = float((mass * (p - q)).sum())
        std = math.sqrt(float((mass * (p - q - mean) ** 2).sum()))
        reach = count * mean + 14 * std * math.sqrt(count) + 14 / z
        step = 2 * reach / n
        index = np.rint((p - q) / step).astype(np.int64)
        inside = np.abs(index) < n // 2
        law = np.bincount(index[inside] % n, weights=mass[inside], minlength=n)
        total = np.fft.irfft(np.fft.rfft(law) ** count, n)
        losses = step * np.fft.fftfreq(n, 1 / n)
        low, high = 0.0, reach
        for _ in range(50):
            epsilon = (low + high) / 2
            above = losses > epsilon
            value = float((total[above] * -np.expm1(epsilon - losses[above])).sum())
            low, high = (epsilon, high) if value > delta else (low, epsilon)
        worst = max(worst, high)
    return worst


SAMPLED = list(
    itertools.product([0.8, 1.5, 4.0], [(0.01, 1000), (0.1, 100), (0.5, 20)], [1e-4, 1e-6])
)[:12]
PLAIN = [(0.5, 1), (1.0, 1), (5.0, 40), (2.0, 7), (20.0, 1000), (60.0, 3), (9.0, 100), (10.0, 10)]


@pytest.mark.claim("DP-5")
@pytest.mark.parametrize(("z", "batches", "delta"), SAMPLED)
def test_pld_agrees_with_a_small_accountant(
    z: float, batches: tuple[float, int], delta: float
) -> None:
    rate, count = batches
    event = GaussianEvent(noise_multiplier=z, count=count, sampling=PoissonSampling(rate=rate))
    ours = account(event, delta=delta, discretization=1e-3).epsilons
    assert ours["pld"] == pytest.approx(small_accountant(z, rate, count, delta), rel=0.01)
    assert ours["pld"] <= ours["renyi"]  # type: ignore[operator]
    assert ours["basic"] is None  # a loss without a bound


@pytest.mark.claim("DP-5")
@pytest.mark.parametrize(("z", "count"), PLAIN)
def test_pld_agrees_with_the_closed_form(z: float, count: int) -> None:
    found = account(GaussianEvent(noise_multiplier=z, count=count), delta=1e-6)
    parameter = math.sqrt(count) / z
    assert gaussian_delta(found.epsilons["pld"] * 0.99, parameter) > 1e-6  # type: ignore[operator]
    assert gaussian_delta(found.epsilons["pld"] * 1.0001, parameter) <= 1e-6  # type: ignore[operator]
    assert found.best[1] == pytest.approx(found.epsilons["pld"], rel=1e-6)


# --- amplification --------------------------------------------------------------------------


def exact_mixture_delta(p: dict[float, float], q: dict[float, float], epsilon: float) -> float:
    """Hockey-stick divergence of two mixtures of unit Gaussians, by Simpson's rule."""
    x = np.linspace(-40.0, 40.0, 400_001)
    first = sum(w * stats.norm.pdf(x, m) for m, w in p.items())
    second = sum(w * stats.norm.pdf(x, m) for m, w in q.items())
    f = np.maximum(0.0, first - math.exp(epsilon) * second)
    h = x[1] - x[0]
    return float(h / 3 * (f[0] + f[-1] + 4 * f[1:-1:2].sum() + 2 * f[2:-1:2].sum()))


@pytest.mark.claim("DP-4")
@pytest.mark.parametrize("epsilon", [0.01, 0.2, 1.0, 2.5])
def test_amplification_bounds_the_worst_neighbours(epsilon: float) -> None:
    # One number with noise 1; the record contributes -C or +C, the others nothing. Sensitivity of
    # a replacement is 2C, of adding or removing C.
    n, m, c = 20, 6, 0.75
    replaced = GaussianEvent(
        noise_multiplier=1 / (2 * c), sampling=FixedSampling(n_records=n, batch_size=m)
    )
    rate = m / n
    true = exact_mixture_delta({0: 1 - rate, c: rate}, {0: 1 - rate, -c: rate}, epsilon)
    bound = float(accounting_profile(replaced, np.array([epsilon]))[0])
    assert true <= bound
    added = GaussianEvent(noise_multiplier=1 / c, sampling=PoissonSampling(rate=rate))
    true = exact_mixture_delta({0: 1 - rate, c: rate}, {0: 1.0}, epsilon)
    bound = float(accounting_profile(added, np.array([epsilon]))[0])
    assert true == pytest.approx(bound, rel=1e-4)  # the bound is tight there
    repeated = GaussianEvent(
        noise_multiplier=1 / (2 * c), sampling=ReplacementSampling(n_records=n, batch_size=m)
    )
    weights = {k: float(stats.binom.pmf(k, m, 1 / n)) for k in range(m + 1)}
    true = exact_mixture_delta(
        {k * c: w for k, w in weights.items()}, {-k * c: w for k, w in weights.items()}, epsilon
    )
    assert true <= float(accounting_profile(repeated, np.array([epsilon]))[0])


@pytest.mark.claim("DP-4")
def test_sampling_all_records_amplifies_nothing() -> None:
    grid = np.linspace(0, 3, 7)
    for event in (GaussianEvent(noise_multiplier=1.0), LaplaceEvent(noise_multiplier=1.0)):
        whole = type(event)(noise_multiplier=1.0, sampling=PoissonSampling(rate=1.0))
        assert np.allclose(accounting_profile(event, grid), accounting_profile(whole, grid))


@pytest.mark.claim("DP-4")
def test_fixed_batches_in_every_accountant() -> None:
    sampling = FixedSampling(n_records=1000, batch_size=50)
    event = GaussianEvent(noise_multiplier=1.0, count=50, sampling=sampling)
    found = account(event, delta=1e-5, neighbours="replace", discretization=1e-3).epsilons
    assert found["pld"] < found["renyi"]  # type: ignore[operator]
    twice = ReplacementSampling(n_records=1000, batch_size=50)
    event = GaussianEvent(noise_multiplier=1.0, count=50, sampling=twice)
    other = account(event, delta=1e-5, neighbours="replace", discretization=1e-2).epsilons
    assert other["pld"] > found["pld"]  # type: ignore[operator]
    assert other["renyi"] is None


# --- the rest -------------------------------------------------------------------------------


@pytest.mark.claim("DP-5")
def test_pure_mechanisms_compose() -> None:
    count, loss, delta = 30, 0.1, 1e-6
    pure = account(PureEvent(epsilon=loss, count=count), delta=delta).epsilons
    laplace = account(LaplaceEvent(noise_multiplier=1 / loss, count=count), delta=delta).epsilons
    assert pure["basic"] == laplace["basic"] == pytest.approx(count * loss)
    # randomised response is the worst pure mechanism: the loss is ±ε, binomially
    k = np.arange(count + 1)
    losses = loss * (2 * k - count)
    masses = stats.binom.pmf(k, count, 1 / (1 + math.exp(-loss)))

    def excess(epsilon: float) -> float:
        return float((masses * np.maximum(0.0, -np.expm1(epsilon - losses))).sum())

    assert excess(pure["pld"]) <= delta < excess(0.99 * pure["pld"])  # type: ignore[arg-type, operator]
    assert laplace["pld"] < pure["pld"]  # type: ignore[operator]


@pytest.mark.claim("DP-5")
def test_renyi_divergence_of_laplace_by_integration() -> None:
    found = renyi_divergences(LaplaceEvent(noise_multiplier=2.0, count=3), "add_remove")
    assert found is not None
    x = np.linspace(-80, 80, 1_600_001)
    p, q = np.exp(-np.abs(x) / 2) / 4, np.exp(-np.abs(x - 1) / 2) / 4
    order = 2.0
    value = 3 * math.log(float((p**order * q ** (1 - order)).sum() * (x[1] - x[0]))) / (order - 1)
    assert found[ORDERS.index(order)] == pytest.approx(value, rel=1e-6)


def test_the_grid_is_paid_for() -> None:
    free = account(GaussianEvent(noise_multiplier=2.0, count=3), delta=1e-9).epsilons
    few, many, too_many = (
        account(GaussianEvent(noise_multiplier=2.0, count=3, n_numbers=n), delta=1e-9).epsilons
        for n in (10**3, 10**24, 10**30)
    )
    assert free["pld"] < few["pld"] < many["pld"]  # type: ignore[operator]
    assert few["pld"] == pytest.approx(free["pld"], rel=1e-6)
    assert too_many["pld"] == math.inf
    laplace = LaplaceEvent(noise_multiplier=2.0, count=3, n_numbers=1)
    assert account(laplace, delta=1e-18).epsilons["basic"] == pytest.approx(1.5)
    assert account(laplace, delta=1e-20).epsilons["pld"] == math.inf  # 3 times 2^-61 is more


@pytest.mark.claim("DP-5")
def test_promises_with_a_delta_of_their_own_compose() -> None:
    count, loss, own = 12, 0.4, 1e-7
    event = ApproximateEvent(epsilon=loss, delta=own, count=count)
    found = account(event, delta=1e-5).epsilons
    assert found["basic"] == pytest.approx(count * loss)
    assert found["renyi"] is None
    # With probability 1 - (1 - δ)^k told apart, else randomised response.
    k = np.arange(count + 1)
    losses, chance = loss * (2 * k - count), 1 / (1 + math.exp(-loss))
    kept = (1 - own) ** count

    def excess(epsilon: float) -> float:
        hidden = stats.binom.pmf(k, count, chance) * np.maximum(0.0, -np.expm1(epsilon - losses))
        return float(1 - kept + kept * hidden.sum())

    assert excess(found["pld"]) <= 1e-5 < excess(found["pld"] - 0.01)  # type: ignore[operator]
    assert account(event, delta=count * own).epsilons["basic"] == pytest.approx(count * loss)
    assert account(event, delta=own).epsilons["basic"] == math.inf
    with_noise = account([event, GaussianEvent(noise_multiplier=5.0)], delta=1e-5)
    alone = account(GaussianEvent(noise_multiplier=5.0), delta=5e-6).best[1]
    assert found["pld"] < with_noise.epsilons["pld"] < found["basic"] + alone  # type: ignore[operator]
    assert with_noise.epsilons["basic"] is None


def test_all_methods_in_one_table() -> None:
    found = account([GaussianEvent(noise_multiplier=4.0), PureEvent(epsilon=0.1)], delta=1e-5)
    text = str(found)
    assert all(name in text for name in ("basic", "renyi", "pld"))
    promised = ApproximateEvent(epsilon=0.1, delta=1e-6)
    assert "unknown" in str(account(promised, delta=1e-5))


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_delta_outside_is_refused(delta: float) -> None:
    with pytest.raises(BudgetError, match=r"delta must be (between 0 and 1|above 0)"):
        account(GaussianEvent(noise_multiplier=1.0), delta=delta)


def test_bad_events_are_refused() -> None:
    for bad in (0.0, -1.0, math.inf):
        with pytest.raises(BudgetError, match="noise_multiplier must be"):
            GaussianEvent(noise_multiplier=bad)
        with pytest.raises(BudgetError, match="epsilon must be"):
            PureEvent(epsilon=bad)
    with pytest.raises(BudgetError, match="count must be"):
        LaplaceEvent(noise_multiplier=1.0, count=0)
    with pytest.raises(BudgetError, match="rate must be"):
        PoissonSampling(rate=0.0)
    with pytest.raises(BudgetError, match="batch_size must be"):
        FixedSampling(n_records=10, batch_size=11)
    with pytest.raises(BudgetError, match="at least one event"):
        account([], delta=1e-5)
    fixed = GaussianEvent(noise_multiplier=1.0, sampling=FixedSampling(n_records=10, batch_size=2))
    with pytest.raises(BudgetError, match="Use PoissonSampling, or 'replace'"):
        account(fixed, delta=1e-5)
    drawn = GaussianEvent(noise_multiplier=1.0, sampling=PoissonSampling(rate=0.1))
    with pytest.raises(BudgetError, match="Use FixedSampling, or 'add_remove'"):
        account(drawn, delta=1e-5, neighbours="replace")
    with pytest.raises(BudgetError, match="neighbours must be"):
        account(fixed, delta=1e-5, neighbours="friends")  # type: ignore[arg-type]


@pytest.mark.claim("DP-4")
@pytest.mark.claim("DP-5")
def test_two_accountants_of_the_library_agree() -> None:
    """The one of private descent was written apart from this one."""
    for batch, sampling, neighbours in (
        (PoissonBatch(size=20, n_public=1000), PoissonSampling(rate=0.02), "add_remove"),
        (FixedBatch(size=20), FixedSampling(n_records=1000, batch_size=20), "replace"),
        (ReplacementBatch(size=20), ReplacementSampling(n_records=1000, batch_size=20), "replace"),
    ):
        theirs = dp_descent_epsilon(batch, 1000, n_steps=30, noise=4.0, delta=1e-5)
        # Descent counts noise in clipping norms; a replacement moves a sum by two of them.
        multiplier = 4.0 if neighbours == "add_remove" else 2.0
        event = GaussianEvent(noise_multiplier=multiplier, count=30, sampling=sampling)
        ours = account(event, delta=1e-5, neighbours=neighbours).epsilons["pld"]  # type: ignore[arg-type]
        assert ours == pytest.approx(theirs, rel=1e-3)
