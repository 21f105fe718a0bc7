"""Mechanisms chosen with their noise from earlier answers: what a filter and an odometer hold."""

from __future__ import annotations

import copy
import math
import os
import pickle
import warnings

import numpy as np
import pytest
from scipy import special, stats
from scipy.optimize import brentq

from pacprivacy import dp
from pacprivacy.dp.accounting import accounting_profile
from pacprivacy.dp.events import event_covers, event_gaussian_square
from pacprivacy.errors import BudgetError, BudgetExceededError, CertificateError, SecretError
from pacprivacy.theory import gaussian_parameter

Z = np.linspace(-12.0, 12.0, 100_001)  # where a standard normal number is integrated


def gaussian_profile(x: np.ndarray, parameter: float) -> np.ndarray:
    """Hockey-stick divergence of N(μ, 1) from N(0, 1) at e^x, for either sign of x."""
    tail = special.ndtr(-parameter / 2 - x / parameter)
    return np.asarray(special.ndtr(parameter / 2 - x / parameter) - np.exp(x) * tail)


def response_profile(x: np.ndarray, epsilon: float) -> np.ndarray:
    """The same for randomised response, the worst pure mechanism."""
    above = np.maximum(0.0, math.exp(epsilon) - np.exp(np.abs(x))) / (1 + math.exp(epsilon))
    return np.asarray(np.where(x >= 0, above, 1 - np.exp(x) + np.exp(x) * above))


def delta_of_two_steps(epsilon: float, first: float, second: object) -> float:
    """δ(ε) of a Gaussian step and one that is chosen knowing the loss of the first."""
    loss = first * Z + first**2 / 2
    values = stats.norm.pdf(Z) * second(epsilon - loss)  # type: ignore[operator]
    return float(values.sum() * (Z[1] - Z[0]))


@pytest.mark.claim("DP-21")
@pytest.mark.parametrize(("epsilon", "delta", "first"), [(1.0, 1e-3, 0.3), (1.0, 1e-5, 0.2)])
def test_composing_what_has_run_is_no_filter_and_ours_refuses(
    epsilon: float, delta: float, first: float
) -> None:
    second = math.sqrt(gaussian_parameter(epsilon, delta) ** 2 - first**2)
    pure = float(
        brentq(
            lambda e: delta_of_two_steps(epsilon, first, lambda x: response_profile(x, e)) - delta,
            1e-3,
            5.0,
        )
    )
    # Either second step fills the budget to the brim ...
    for profile in (
        lambda x: gaussian_profile(x, second),
        lambda x: response_profile(x, pure),
    ):
        assert delta_of_two_steps(epsilon, first, profile) == pytest.approx(delta, rel=1e-6)
    events = [dp.GaussianEvent(noise_multiplier=1 / first), dp.PureEvent(epsilon=pure)]
    assert dp.account(events, delta=delta).epsilons["pld"] == pytest.approx(epsilon, abs=1e-3)
    # ... and to choose the worse of them by the loss so far breaks it by half.
    worse = delta_of_two_steps(
        epsilon,
        first,
        lambda x: np.maximum(gaussian_profile(x, second), response_profile(x, pure)),
    )
    assert worse > 1.4 * delta
    budget = dp.Filter(epsilon=epsilon, delta=delta, neighbours="replace")
    budget.spend(events[0])
    with pytest.raises(BudgetExceededError, match="must be covered by what is left"):
        budget.spend(events[1])
    # The largest choice that it does allow, made by the loss, stays within the budget.
    left = budget.parameter_left
    allowed = float(
        brentq(lambda e: event_gaussian_square(dp.PureEvent(epsilon=e)) - left**2, 1e-6, pure)  # type: ignore[operator]
    )
    held = delta_of_two_steps(
        epsilon,
        first,
        lambda x: np.maximum(gaussian_profile(x, left), response_profile(x, allowed)),
    )
    assert 0.95 * delta < held <= delta * (1 + 1e-6)
    budget.spend(dp.PureEvent(epsilon=allowed * (1 - 1e-9)))


@pytest.mark.claim("DP-21")
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
def test_the_gaussian_that_stands_for_a_pure_mechanism_dominates_it(epsilon: float) -> None:
    parameter = math.sqrt(float(event_gaussian_square(dp.PureEvent(epsilon=epsilon)) or 0))
    x = np.linspace(-2 * epsilon - 1, 2 * epsilon + 1, 4001)
    gap = gaussian_profile(x, parameter) - response_profile(x, epsilon)
    assert gap.min() > -1e-12
    assert gap[np.argmin(np.abs(x))] < 1e-9  # they touch where the ratio is one: not wasteful
    slack = gaussian_profile(x, 0.99 * parameter) - response_profile(x, epsilon)
    assert slack.min() < 0.0


@pytest.mark.claim("DP-21")
def test_a_budget_can_be_spent_in_any_portions_but_once() -> None:
    whole = dp.Filter(epsilon=1.0, delta=1e-6, neighbours="add_remove")
    release = whole.release(
        lambda: dp.gaussian(
            [1.0, 2.0], sensitivity=1.0, epsilon=1.0, delta=1e-6, neighbours="add_remove"
        )
    )
    assert release.certificate.epsilon == 1.0
    assert whole.parameter_left < 1e-3
    parts = dp.Filter(epsilon=1.0, delta=1e-6, neighbours="add_remove")
    each = parts.parameter_left / 2
    for _ in range(4):
        parts.spend(dp.GaussianEvent(noise_multiplier=1 / each))
    for budget in (whole, parts):
        with pytest.raises(BudgetExceededError):
            budget.spend(dp.PureEvent(epsilon=1e-3))


@pytest.mark.claim("DP-21")
def test_what_is_reserved_is_paid_for_and_used_for_its_kind() -> None:
    steps = dp.GaussianEvent(noise_multiplier=2.0, count=20, sampling=dp.PoissonSampling(rate=0.05))
    promise = dp.ApproximateEvent(epsilon=0.3, delta=1e-8)
    budget = dp.Filter(epsilon=2.0, delta=1e-6, neighbours="add_remove", reserved=[steps, promise])
    free = dp.Filter(epsilon=2.0, delta=1e-6, neighbours="add_remove").parameter_left
    pool = dp.GaussianEvent(noise_multiplier=1 / budget.parameter_left)
    together = dp.account([steps, promise, pool], delta=1e-6).best[1]
    assert 1.95 < together < 2.001
    assert budget.parameter_left < 0.95 * free
    rarer = dp.GaussianEvent(noise_multiplier=3.0, count=12, sampling=dp.PoissonSampling(rate=0.01))
    budget.spend([rarer, dp.GaussianEvent(noise_multiplier=1e3)])
    assert [event.count for event in budget.reserved_left] == [8, 1]
    for refused in (
        dp.GaussianEvent(noise_multiplier=1.9, sampling=dp.PoissonSampling(rate=0.05)),
        dp.GaussianEvent(noise_multiplier=2.0, sampling=dp.PoissonSampling(rate=0.06)),
        dp.GaussianEvent(noise_multiplier=2.0, count=9, sampling=dp.PoissonSampling(rate=0.05)),
        dp.ApproximateEvent(epsilon=0.3, delta=1e-7),
        dp.ApproximateEvent(epsilon=0.3, delta=1e-8, count=2),
    ):
        before = budget.parameter_left, budget.reserved_left
        with pytest.raises(BudgetExceededError, match="reserve such events"):
            budget.spend([dp.PureEvent(epsilon=1e-3), refused])
        assert (budget.parameter_left, budget.reserved_left) == before  # all or nothing
    budget.spend(
        [promise, dp.GaussianEvent(noise_multiplier=2.0, count=8, sampling=steps.sampling)]
    )
    assert budget.reserved_left == ()
    with pytest.raises(BudgetError, match="reserved must cost less"):
        dp.Filter(epsilon=0.2, delta=1e-6, neighbours="add_remove", reserved=promise)


@pytest.mark.claim("DP-21")
def test_what_covers_has_the_larger_profile() -> None:
    grid = np.linspace(0.0, 4.0, 81)
    rng = np.random.default_rng(0)

    def draw() -> dp.GaussianEvent | dp.LaplaceEvent | dp.PureEvent:
        law = (dp.GaussianEvent, dp.LaplaceEvent)[rng.integers(2)]
        rate = (0.1, 0.2, 0.5)[rng.integers(3)]
        removal = (0.5, 1.0, 3.0)[rng.integers(3)]
        if rng.integers(3) == 0:
            return dp.PureEvent(epsilon=float(rng.integers(1, 4)))
        sampling = None if rng.integers(2) else dp.PoissonSampling(rate=rate, removal=removal)
        return law(noise_multiplier=float(rng.integers(1, 4)) / 2, sampling=sampling)

    covered = 0
    for _ in range(600):
        token, event = draw(), draw()
        if event_covers(token, event):
            covered += token != event
            assert (
                accounting_profile(event, grid) <= accounting_profile(token, grid) + 1e-12
            ).all()
    assert covered > 20


def test_relations_and_types_are_held() -> None:
    budget = dp.Filter(epsilon=1.0, delta=1e-6, neighbours="replace")
    other = dp.laplace(1.0, sensitivity=1.0, epsilon=0.01, neighbours="add_remove")
    with pytest.raises(CertificateError, match="one relation"):
        budget.spend(other)
    with pytest.raises(BudgetError, match="neighbours must be"):
        dp.Filter(epsilon=1.0, delta=1e-6, neighbours="friends")  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="neighbours must be"):
        dp.Odometer(delta=1e-6, neighbours="friends")  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="must pay for the grid"):
        dp.Filter(epsilon=60.0, delta=1e-9, neighbours="replace")
    with pytest.raises(BudgetExceededError):
        budget.spend(dp.GaussianEvent(noise_multiplier=1e9, n_numbers=1 << 41))
    seeded = dp.laplace(1.0, sensitivity=1.0, epsilon=0.01, neighbours="replace", simulate=0)
    odometer = dp.Odometer(delta=1e-6, neighbours="replace")
    odometer.spend(seeded)
    budget.spend(seeded)
    assert "SIMULATION" in str(budget)
    assert "SIMULATION" in str(odometer)


# --- the odometer ---------------------------------------------------------------------------


@pytest.mark.claim("DP-22")
def test_the_reading_holds_at_all_times_and_a_quantile_does_not() -> None:
    # An analyst who takes a large step whenever the loss is near the reading, and stops above it.
    delta, n_paths, small, large = 0.05, 4000, 0.05, 0.25
    squares = np.arange(1, 401) * small**2
    readings = np.empty(len(squares))
    odometer = dp.Odometer(delta=delta, neighbours="replace")
    for i in range(len(squares)):
        readings[i] = odometer.spend(dp.GaussianEvent(noise_multiplier=1 / small))
    rng = np.random.default_rng(1)
    quantile = stats.norm.isf(delta)
    spent = np.zeros(n_paths, dtype=np.int64)  # in small squares
    loss, above_reading, above_quantile = np.zeros(n_paths), np.zeros(n_paths), np.zeros(n_paths)
    portion = round((large / small) ** 2)
    while spent.max() + portion <= len(squares):
        near = loss > 0.6 * readings[np.maximum(spent - 1, 0)]
        step = np.where(near, portion, 1)
        square = step * small**2
        loss += square / 2 + np.sqrt(square) * rng.normal(size=n_paths)
        spent += step
        total = squares[spent - 1]
        above_reading = np.maximum(above_reading, loss > readings[spent - 1])
        above_quantile = np.maximum(above_quantile, loss > total / 2 + quantile * np.sqrt(total))
    error = 5 * math.sqrt(delta * (1 - delta) / n_paths)
    assert above_reading.mean() <= delta + error
    assert above_quantile.mean() > 3 * delta  # right at any one time, wrong at the time one stops


@pytest.mark.claim("DP-22")
def test_readings_grow_and_meet_the_known_cases() -> None:
    odometer = dp.Odometer(delta=1e-6, neighbours="add_remove")
    assert odometer.epsilon == 0.0
    for i in range(1, 4):
        assert odometer.spend(dp.PureEvent(epsilon=0.1)) == pytest.approx(0.1 * i, rel=1e-6)
    sampled = dp.GaussianEvent(
        noise_multiplier=1.5, count=100, sampling=dp.PoissonSampling(rate=0.01), n_numbers=50
    )
    assert odometer.epsilon < 0.31
    assert odometer.spend(sampled) > 0.31
    plain = dp.Odometer(delta=1e-6, neighbours="add_remove")
    reading = plain.spend(dp.GaussianEvent(noise_multiplier=20.0, count=100))
    rho = 100 / (2 * 20.0**2)
    zcdp = rho + 2 * math.sqrt(rho * math.log(1e6))
    assert zcdp < reading < 1.15 * zcdp  # what all times at once cost
    for unknown in (
        dp.ApproximateEvent(epsilon=0.1, delta=1e-9),
        dp.GaussianEvent(
            noise_multiplier=1.0, sampling=dp.ReplacementSampling(n_records=100, batch_size=5)
        ),
    ):
        relation = "replace" if unknown.sampling else "add_remove"
        with pytest.raises(BudgetError, match="Use a Filter"):
            dp.Odometer(delta=1e-6, neighbours=relation).spend(unknown)  # type: ignore[arg-type]


# --- one process ----------------------------------------------------------------------------


def refused_in_a_fork(act: object) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of other tests
        child = os.fork()
    if child == 0:  # leave at once: nothing of pytest may run here
        try:
            act()  # type: ignore[operator]
        except SecretError:
            os._exit(7)
        except BaseException:
            os._exit(8)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.claim("DP-21")
@pytest.mark.claim("DP-22")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_and_a_copy_are_refused() -> None:
    event = dp.PureEvent(epsilon=0.01)
    budget = dp.Filter(epsilon=1.0, delta=1e-6, neighbours="replace")
    odometer = dp.Odometer(delta=1e-6, neighbours="replace")
    assert refused_in_a_fork(lambda: budget.spend(event))
    assert refused_in_a_fork(lambda: budget.release(lambda: pytest.fail("it ran")))
    assert refused_in_a_fork(lambda: odometer.spend(event))
    assert refused_in_a_fork(lambda: odometer.epsilon)
    for holder in (budget, odometer):
        for double in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(SecretError, match="must stay in its process"):
                double(holder)
        holder.spend(event)  # still works here
