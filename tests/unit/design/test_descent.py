"""Private gradient descent: gradients, budgets, beliefs, and what attackers get."""

import math

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource, public_generator
from pacprivacy.design import Descent, DescentGradient, Objective, descend
from pacprivacy.design.descent import (
    descend_secretly,
    descent_step,
    split_descent_budget,
    subset_gradient_variance,
)
from pacprivacy.design.ridge import noise_ratio
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.mechanism import coerce_data
from pacprivacy.sample import Balanced, Poisson
from pacprivacy.theory import posterior_success

OBJECTIVE = Objective(penalty=0.3)


def classes(n: int = 60, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d)) * np.linspace(2.0, 0.5, d)
    y = np.where(X @ np.ones(d) + generator.logistic(size=n) > 0, 1.0, -1.0)
    return X - X.mean(axis=0), y


# --- losses -----------------------------------------------------------------------------------


def test_gradient_is_the_derivative() -> None:
    X, y = classes()
    weights = np.random.default_rng(1).normal(size=3)

    def value(w: np.ndarray) -> float:
        losses = np.log1p(np.exp(-y * (X @ w)))
        return float(losses.mean() + OBJECTIVE.penalty / 2 * (w**2).sum())

    found = OBJECTIVE.gradient(X, y, weights)
    for index in range(3):
        bump = np.zeros(3)
        bump[index] = 1e-6
        slope = (value(weights + bump) - value(weights - bump)) / 2e-6
        assert found[index] == pytest.approx(slope, abs=1e-7)


def test_minimum_and_spread() -> None:
    X, y = classes()
    best = OBJECTIVE.minimise(X, y)
    np.testing.assert_allclose(OBJECTIVE.gradient(X, y, best), 0.0, atol=1e-10)
    direct = (X * OBJECTIVE.slopes(X @ best, y)[:, None]).var(axis=0, ddof=1)
    np.testing.assert_allclose(OBJECTIVE.gradient_spread(X, y, best), direct, rtol=1e-9)


def test_smoothness_bounds_the_change_of_the_gradient() -> None:
    X, y = classes()
    smooth = OBJECTIVE.smoothness(X)
    generator = np.random.default_rng(2)
    worst = 0.0
    for _ in range(200):
        a = generator.normal(size=3) * 0.1
        b = a + generator.normal(size=3) * 0.1
        change = OBJECTIVE.gradient(X, y, a) - OBJECTIVE.gradient(X, y, b)
        worst = max(worst, np.linalg.norm(change) / np.linalg.norm(a - b))
    assert 0.5 * smooth < worst <= smooth * (1 + 1e-9)


def test_losses_are_refused_in_words() -> None:
    with pytest.raises(MechanismError, match="penalty must be a positive finite number"):
        Objective(penalty=0.0)
    with pytest.raises(MechanismError, match="must be -1 or 1"):
        descend((classes()[0], np.arange(60.0)), pac.Information(0.1), n_subsets=4)


# --- the mechanism ----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [Balanced(n_subsets=8), Poisson(n_subsets=8)])
def test_gradients_of_all_subsets_equal_the_loop(strategy: Balanced | Poisson) -> None:
    universe = coerce_data(classes())
    weights = np.random.default_rng(3).normal(size=3)
    mechanism = DescentGradient(objective=OBJECTIVE, weights=weights)
    pool = strategy.draw(60, rng=0)
    loop = [
        mechanism.evaluate(universe.take(pool.rows(k)), np.random.default_rng(0)).ravel()
        for k in range(8)
    ]
    np.testing.assert_allclose(mechanism.batch(universe, pool), loop, rtol=1e-9, atol=1e-12)
    with pytest.raises(MechanismError, match="weights must have shape"):
        DescentGradient(objective=OBJECTIVE, weights=np.zeros(5)).batch(universe, pool)
    with pytest.raises(MechanismError, match="must be given features and labels"):
        mechanism.evaluate((classes()[0],), np.random.default_rng(0))


# --- step sizes and budgets -------------------------------------------------------------------


@pytest.mark.claim("D-4")
def test_steps_follow_the_formula() -> None:
    X, y = classes(n=200)
    objective = Objective(penalty=0.2)
    best = objective.minimise(X, y)
    gradients = -0.5 * y[:, None] * X
    ratio = noise_ratio(1 / 8, n_dimensions=3, n_steps=20)
    chosen = {
        exact: descent_step(
            exact=exact,
            start_error=best**2,
            gradient_var=subset_gradient_variance(gradients.var(axis=0, ddof=1), 200),
            convexity=0.2,
            n_steps=20,
            ratio=ratio,
            largest=1 / objective.smoothness(X),
        )
        for exact in (False, True)
    }
    conscious = Descent(objective=objective, n_steps=20).steps(X, y, 1 / 8)
    np.testing.assert_allclose(conscious, chosen[False], rtol=1e-9)
    assert (np.abs(conscious / chosen[True] - 1) < 0.1).all()
    post_hoc = Descent(objective=objective, n_steps=20, step="post-hoc")
    assert (conscious < post_hoc.steps(X, y, 1 / 8)).all()
    assert "without regard to the noise" in post_hoc.describe()


def test_budgets_are_split_and_never_exceeded() -> None:
    for n_steps in (1, 3, 50, 997):
        parts = split_descent_budget(0.3, n_steps)
        assert math.fsum(parts) <= 0.3
        np.testing.assert_allclose(parts, 0.3 / n_steps, rtol=1e-9)
    with pytest.raises(BudgetError, match="n_steps must be at least 1"):
        split_descent_budget(0.3, 0)


# --- one secret throughout --------------------------------------------------------------------


@pytest.mark.claim("D-7")
def test_descent_equals_the_releases_of_a_session() -> None:
    data, objective, budgets = classes(), Objective(penalty=0.3), np.full(4, 0.1)
    steps = np.array([0.2, 0.1, 0.3])
    with pac.Session(
        data, budget=pac.Information(0.4), n_subsets=16, rng=5, simulate=True
    ) as session:
        weights = np.zeros(3)
        for budget in budgets:
            here = DescentGradient(objective=objective, weights=weights)
            release = session.release(here, pac.Information(budget), rule="waterfill")
            weights = weights - steps * release.value
        odometer = session.odometer()
    pool = Balanced(n_subsets=16).draw(60, rng=5, strata=data[1])
    universe = coerce_data(data)
    run = descend_secretly(
        lambda w: DescentGradient(objective=objective, weights=w).batch(universe, pool),
        steps,
        budgets,
        n_subsets=16,
        source=SimulatedSource(public_generator(5, "simulation")),
    )
    np.testing.assert_array_equal(run.weights, weights)
    assert odometer.spent.n_releases == 4
    assert run.belief.learned_nats == odometer.learned_nats
    # The session takes the better of the closed form and the exact bound; never more.
    assert odometer.spent.mi_nats <= run.charges.sum() <= run.mi_nats <= 0.4


@pytest.mark.claim("D-7")
def test_belief_is_the_posterior_of_everything_released() -> None:
    X, y = classes()
    universe, objective = coerce_data((X, y)), Objective(penalty=0.3)
    pool = Balanced(n_subsets=32).draw(60, rng=6)
    steps, budgets = np.full(3, 0.2), np.array([0.3, 0.1, 0.5])
    seen: list[np.ndarray] = []

    def gradients(w: np.ndarray) -> np.ndarray:
        seen.append(DescentGradient(objective=objective, weights=w).batch(universe, pool))
        return seen[-1]

    run = descend_secretly(
        gradients,
        steps,
        budgets,
        n_subsets=32,
        source=SimulatedSource(7),
    )
    # From the published path alone, with float Gaussians and a covariance matrix.
    log_p = np.full(32, -math.log(32))
    for values, budget, before, after in zip(
        seen, budgets, run.path[:-1], run.path[1:], strict=True
    ):
        p = np.exp(log_p)
        centred = values - p @ values
        covariance = (centred.T * p) @ centred
        noise = waterfilled(covariance, budget)
        offset = (before - after) / steps - values
        log_p = log_p - 0.5 * np.einsum("ki,ij,kj->k", offset, np.linalg.inv(noise), offset)
        log_p -= np.logaddexp.reduce(log_p)
    np.testing.assert_allclose(run.belief.log_p, log_p, atol=1e-4)


def waterfilled(covariance: np.ndarray, budget: float) -> np.ndarray:
    """Least total noise for the log-determinant bound, by plain bisection."""
    spread, axes = np.linalg.eigh(covariance)
    low, high = 1e-12, 1e12
    for _ in range(300):
        level = math.sqrt(low * high)
        noise = level * spread / (spread + np.sqrt(spread**2 + 2 * level * spread))
        if 0.5 * np.log1p(spread / noise).sum() > budget:
            low = level
        else:
            high = level
    return (axes * noise) @ axes.T


@pytest.mark.claim("D-7")
def test_optimal_attackers_stay_under_the_bound() -> None:
    X, y = classes(n=40)
    universe, objective = coerce_data((X, y)), Objective(penalty=0.3)
    pool = Balanced(n_subsets=16).draw(40, rng=8)
    masks, n_trials = pool.masks(), 400
    named, members, total = 0, 0.0, 0.5
    for trial in range(n_trials):
        secret = int(SimulatedSource(trial).words(1)[0] % 16)  # 16 divides 2^64: what is drawn
        run = descend_secretly(
            lambda w: DescentGradient(objective=objective, weights=w).batch(universe, pool),
            np.full(3, 0.3),
            np.full(3, total / 3),
            n_subsets=16,
            source=SimulatedSource(trial),
        )
        p = np.exp(run.belief.log_p)
        named += int(p.argmax() == secret)
        members += float(((p @ masks > 0.5) == masks[secret]).mean())
    spread = 4 / math.sqrt(n_trials)  # four standard errors of a rate, at most
    assert named / n_trials <= posterior_success(total, 1 / 16) + spread
    assert members / n_trials <= posterior_success(total, 0.5)
    assert named / n_trials > 2 / 16  # the attack is real: it beats a blind guess
    assert members / n_trials > 0.55


def test_descend_writes_one_certificate() -> None:
    X, y = classes()
    run = descend(
        (X, y), pac.Information(0.3), Descent(n_steps=5), n_subsets=16, rng=1, simulate=True
    )
    assert run.certificate is not None
    assert run.certificate.mi_upper_nats == run.mi_nats <= 0.3
    assert (run.charges <= run.budgets).all()
    assert run.certificate.membership_bound == posterior_success(run.mi_nats, 0.5)
    text = str(run.certificate)
    assert "SIMULATION" in text
    assert "step sizes: chosen for the noise to come" in " ".join(text.split())
    assert run.path.shape == (6, 3)
    np.testing.assert_array_equal(run.path[-1], run.weights)
    again = descend(
        (X, y), pac.Information(0.3), Descent(n_steps=5), n_subsets=16, rng=1, simulate=True
    )
    np.testing.assert_array_equal(again.weights, run.weights)


def test_descend_draws_from_the_operating_system_unless_simulated() -> None:
    X, y = classes()
    runs = [
        descend((X, y), pac.Information(0.3), Descent(n_steps=2), n_subsets=8, rng=1)
        for _ in range(2)
    ]
    assert not np.array_equal(runs[0].weights, runs[1].weights)
    assert runs[0].certificate is not None
    assert not runs[0].certificate.simulation


def test_descend_with_units() -> None:
    run = descend(
        classes(),
        pac.Information(0.6),
        Descent(objective=Objective(penalty=0.5), n_steps=3, step=0.2),
        sample=Balanced(n_subsets=8),
        units=np.repeat(np.arange(20), 3),
        rng=2,
        simulate=True,
    )
    assert run.weights.shape == (3,)
    assert (run.charges < 0.2).all()
    assert (run.charges > 0.1).all()
    assert run.certificate is not None
    assert run.certificate.unit == "group of rows"
    assert run.certificate.n_units == 20


def test_descents_are_refused_in_words() -> None:
    data = classes()
    with pytest.raises(BudgetError, match="budget must be Information for a descent"):
        descend(data, pac.Membership(0.6))  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="step must be 'conscious'"):
        Descent(step="best")  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="step must be positive"):
        descend(data, pac.Information(0.1), Descent(step=-1.0), n_subsets=4)


def test_steps_may_be_given() -> None:
    given = Descent(step=0.1, n_steps=3)
    run = descend(classes(), pac.Information(0.1), given, n_subsets=8, rng=0, simulate=True)
    assert run.certificate is not None
    assert "step sizes: given" in run.certificate.public
