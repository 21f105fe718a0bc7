"""Choosing a parameter by simulated releases."""

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.design.tuning import Tuned, simulate_tuned_releases, tune, tune_budgets
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import LinearSVM, as_mechanism, coerce_data
from pacprivacy.noise import calibrate
from pacprivacy.sample import Balanced
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import Mean

RULE = {"rule": "waterfill", "n_subsets": 64}


@pytest.fixture(scope="module")
def heavy():
    return np.random.default_rng(0).standard_t(2, size=300) + 1.0


def clipped_mean(bound):
    return lambda rows: np.clip(rows, -bound, bound).mean()


def squared_error(value):
    return -((float(value) - 1.0) ** 2)


def test_less_budget_calls_for_more_clipping(heavy):
    bounds = [0.5, 2.0, 8.0, 1000.0]
    tight, loose = tune_budgets(
        clipped_mean,
        bounds,
        heavy,
        [pac.Information(1e-4), pac.Information(50.0)],
        squared_error,
        n_releases=300,
        rng=0,
        **RULE,
    )
    assert tight.best < loose.best
    assert [p.theta for p in tight.points] == bounds
    noise = [p.noise_variance for p in tight.points]
    assert noise == sorted(noise)
    # a bound that costs nothing without noise is not the one to release with
    assert max(tight.points, key=lambda p: p.no_noise).theta > tight.best


def test_utility_is_bias_spread_and_noise(heavy):
    """For a squared error the simulated utility is what the decomposition says."""
    found = tune(
        clipped_mean,
        [2.0],
        heavy,
        pac.Information(0.05),
        squared_error,
        n_releases=4000,
        rng=1,
        **RULE,
    )
    point = found.points[0]
    expected = point.no_noise - point.noise_variance
    assert point.utility == pytest.approx(expected, abs=5 * point.standard_error)
    assert point.mi_upper_nats <= 0.05
    assert "best=2.0" in repr(found)


@pytest.mark.claim("F-3")
def test_choice_does_not_depend_on_the_secret_of_a_later_release(heavy):
    """Same universe and seed, whatever is released in between: the same choice and curve."""
    options = {"n_releases": 50, "rng": 3, **RULE}
    arguments = (clipped_mean, [1.0, 4.0], heavy, pac.Information(0.1), squared_error)
    first = tune(*arguments, **options)
    for _ in range(2):
        release = pac.privatize(
            first.mechanism(), heavy, pac.Information(0.1), n_subsets=16, rule="waterfill"
        )
        assert first.note in release.certificate.public
        assert tune(*arguments, **options).points == first.points
    assert "universe and not on the secret" in str(release.certificate).replace("\n", " ").replace(
        " " * 19, " "
    )


def test_tuned_mechanism_still_runs_at_once(heavy):
    found = tune(
        lambda _: Mean(),
        ["only"],
        heavy,
        pac.Information(0.1),
        squared_error,
        n_releases=20,
        rng=0,
        **RULE,
    )
    mechanism = found.mechanism()
    assert isinstance(mechanism, Tuned)
    assert mechanism.batch is not None
    pool = Balanced(n_subsets=16).draw(len(heavy), rng=0)
    plain = run_mechanism(Mean(), heavy, pool, rng=0)
    tuned = run_mechanism(mechanism, heavy, pool, rng=0)
    assert np.array_equal(plain.values, tuned.values)
    assert tuned.public == (*plain.public, found.note)


def test_labels_reach_the_mechanism_and_the_pool():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = (X[:, 0] + 0.3 * rng.normal(size=120) > 0).astype(int)
    judge = LinearSVM(classes=(0, 1))
    found = tune(
        lambda C: LinearSVM(C=C, classes=(0, 1)),
        [1e-5, 10.0],
        (X, y),
        pac.Information(1 / 16),
        lambda value: float(np.mean(judge.predict(value, X) == y)),
        sample=Balanced(n_subsets=32, stratify=True),
        rule="waterfill",
        n_releases=100,
        rng=0,
    )
    assert found.best == 1e-5
    assert found.n_subsets == 32


def test_simulated_releases_have_the_law_of_the_plan(heavy):
    outputs = run_mechanism(
        as_mechanism(clipped_mean(2.0)), coerce_data(heavy), Balanced(n_subsets=32).draw(300, rng=0)
    )
    plan = calibrate(outputs, pac.Information(0.1), rule="waterfill")
    drawn = simulate_tuned_releases(plan, 6000, np.random.default_rng(0))
    total = outputs.values.var() + plan.total_variance
    # the variance of 6000 normal draws is known to 2 %: five of those
    assert drawn.var() == pytest.approx(total, rel=0.1)


def test_refuses_what_cannot_be_compared(heavy):
    with pytest.raises(MechanismError, match="must not be empty"):
        tune(clipped_mean, [], heavy, pac.Information(1.0), squared_error)
    with pytest.raises(MechanismError, match="finite"):
        tune(clipped_mean, [1.0], heavy, pac.Information(1.0), lambda _: np.nan, **RULE)
