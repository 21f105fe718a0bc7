"""The whole story: structures, units, strategies, restarts, refusals."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pacprivacy as pac
from pacprivacy._random import SystemSource
from pacprivacy.errors import (
    BudgetError,
    CheckpointError,
    DataError,
    MechanismError,
    PacPrivacyError,
    PoolError,
)
from pacprivacy.noise import Boxed, Empirical
from pacprivacy.release import Release, verify
from pacprivacy.sample import Balanced, Half, Poisson
from pacprivacy.statistics import Covariance, Histogram, Mean

ASSESS = importlib.import_module("pacprivacy.release.pool_certificate")
CERTIFY = importlib.import_module("pacprivacy.noise.proof")
X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] + 0.3 * np.random.default_rng(1).normal(size=40) > 0).astype(int)


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ASSESS, "information_draws", lambda m: 4096)
        patch.setattr(ASSESS, "membership_draws", lambda m: 4096)
        patch.setattr(CERTIFY, "POSTERIOR_COST", 10**6)
        yield


def release(mechanism: Any, data: Any = X, budget: Any = None, **options: Any) -> Release:
    chosen = {"n_subsets": 16, "rng": 0, "rule": "waterfill", **options}
    return pac.privatize(
        mechanism, data, pac.Information(0.5) if budget is None else budget, **chosen
    )


class Fit(NamedTuple):
    slope: Any
    offset: float


# --- structures -----------------------------------------------------------------------------


def test_a_number_comes_back_as_a_number() -> None:
    found = release(lambda x: float(x[:, 0].mean()))
    assert isinstance(found.value, float)
    assert found.certificate.dimension == 1


@pytest.mark.claim("R-2", "M-1")
def test_nested_values_keep_their_structure() -> None:
    def describe(x: Any) -> Any:
        return {
            "mean": x.mean(axis=0),
            "both": (x.min(), [x.max(), x.std(axis=0)]),
            "label": "fixed",
            "fit": Fit(slope=np.ones((2, 2)) * x.sum(), offset=1.5),
        }

    value = release(describe).value
    assert list(value) == ["both", "fit", "label", "mean"]
    assert value["mean"].shape == (3,)
    assert isinstance(value["both"], tuple)
    assert isinstance(value["both"][1], list)
    assert value["label"] == "fixed"
    assert isinstance(value["fit"], Fit)
    assert value["fit"].slope.shape == (2, 2)
    assert value["fit"].offset == pytest.approx(1.5, abs=1e-12)  # constant: no noise


def test_a_fitted_estimator_predicts() -> None:
    found = release(
        lambda x, y: LogisticRegression().fit(x, y), (X, Y), pac.Information(4), rule="diagonal"
    )
    assert isinstance(found.value, LogisticRegression)
    assert set(found.value.predict(X)) <= {0, 1}
    assert not hasattr(found.value, "n_iter_")  # not measured, so it does not leave
    assert found.certificate.output.startswith("LogisticRegression(coef_")


def test_a_pipeline_and_a_regression_predict() -> None:
    found = release(
        lambda x, y: make_pipeline(StandardScaler(), LinearRegression()).fit(x, y),
        (X, Y.astype(float)),
        pac.Information(4),
    )
    assert found.value.predict(X).shape == (40,)


@pytest.mark.parametrize(
    ("mechanism", "shape"),
    [(Mean(), (3,)), (Covariance(), (3, 3)), (Histogram(bins=2, ranges=(-4.0, 4.0)), None)],
)
def test_built_in_statistics_use_a_large_pool_by_default(mechanism: Any, shape: Any) -> None:
    found = pac.privatize(mechanism, X, pac.Information(0.5), rng=0, rule="waterfill")
    assert shape is None or np.shape(found.value) == shape
    assert found.certificate.n_subsets == 2000
    assert any("2000 subsets is the default" in note for note in found.certificate.notes)


def test_a_black_box_uses_a_smaller_pool_by_default() -> None:
    found = pac.privatize(np.mean, X[:, 0], pac.Information(0.5), rng=0, rule="waterfill")
    assert found.certificate.n_subsets == 256
    assert any("256 subsets is the default" in note for note in found.certificate.notes)
    (why,) = release(np.mean, X[:, 0]).certificate.notes
    assert (
        why == "Sample: a pool of 16 candidates, because the budget is not about membership alone."
    )


def test_frames_go_in() -> None:
    import pandas as pd
    import polars as pl

    expected = release(lambda x: np.asarray(x).mean(axis=0), X, simulate=True).value
    for frame in (pd.DataFrame(X, columns=list("abc")), pl.DataFrame(X, schema=list("abc"))):
        found = release(lambda x: x.to_numpy().mean(axis=0), frame, simulate=True).value
        np.testing.assert_allclose(found, expected)


# --- what is promised -----------------------------------------------------------------------


@pytest.mark.claim("R-3")
@pytest.mark.parametrize(
    "budget",
    [
        pac.Information(0.1),
        pac.Membership(0.6),
        pac.EpsilonEquivalent(0.5),
        pac.Information(0.3) & pac.Membership(0.7),
    ],
)
def test_the_budget_is_met_by_default(budget: Any) -> None:
    found = release(lambda x: x.mean(axis=0), budget=budget, rule=None)
    limits = pac.budget.budget_limits(budget)
    if limits.mi_nats is not None:
        assert found.certificate.mi_upper_nats <= limits.mi_nats
    if limits.success_level is not None:
        assert found.certificate.membership_bound <= limits.success_level
    assert not found.certificate.simulation
    verify(found.certificate, found.bundle)


def test_units_are_what_is_sampled() -> None:
    people = np.repeat([f"p{i}" for i in range(10)], 4)
    found = release(lambda x: x.mean(axis=0), units=people)
    assert found.certificate.unit == "group of rows"
    assert found.certificate.n_units == 10
    masks = np.array([found.bundle.pool.row_mask(k) for k in range(16)])
    assert (masks.reshape(16, 10, 4).sum(axis=2) % 4 == 0).all()


@pytest.mark.parametrize(
    ("strategy", "scheme"),
    [
        (Balanced(independent=True), "balanced-independent"),
        (Balanced(stratify=True), "balanced-stratified"),
        (Half(), "half"),
        (Poisson(rate=0.5), "poisson"),
    ],
)
def test_other_strategies_speak_of_their_own_prior(strategy: Any, scheme: str) -> None:
    found = release(lambda x, y: x.mean(axis=0), (X, Y), sample=strategy)
    assert found.certificate.scheme.startswith(scheme)
    assert found.certificate.prior == found.bundle.pool.worst_prior
    assert found.certificate.membership_bound > 0.5
    verify(found.certificate, found.bundle)


def test_a_drawn_pool_is_used_as_it_is() -> None:
    pool = Balanced(n_subsets=8).draw(40, rng=3)
    found = release(lambda x: x.mean(axis=0), sample=pool, n_subsets=None)
    assert found.bundle.pool is pool
    with pytest.raises(PoolError, match="left out when a drawn pool is given"):
        release(lambda x: x.mean(axis=0), sample=pool, n_subsets=16)


@pytest.mark.claim("R-3")
@pytest.mark.parametrize("rule", [Boxed(low=-2, high=2), Empirical()])
def test_independent_secrets_need_independent_subsets_and_no_seed(rule: Any) -> None:
    found = pac.privatize(
        lambda x: x.mean(axis=0), X, pac.Information(0.5), sample=Half(n_subsets=32), rule=rule
    )
    assert found.certificate.kind in ("confidence", "empirical")
    assert found.certificate.confidence == pytest.approx(1 - 1e-6 if "box" in rule.name else 0.0)
    text = " ".join(str(found.certificate).split())
    assert ("not by proof" in text) == (rule.kind == "empirical")
    with pytest.raises(BudgetError, match="rng must be None"):
        pac.privatize(np.mean, X, pac.Information(0.5), sample=Half(), rule=rule, rng=0)
    with pytest.raises(PoolError, match="independent subsets"):
        pac.privatize(np.mean, X, pac.Information(0.5), rule=rule)


# --- simulation -----------------------------------------------------------------------------


def test_a_simulation_can_be_repeated_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(source: SystemSource, size: int) -> Any:
        raise AssertionError("a simulation must not take secret randomness")

    monkeypatch.setattr(SystemSource, "words", forbidden)
    first, second = (release(lambda x: x.mean(axis=0), simulate=True) for _ in range(2))
    assert np.array_equal(first.value, second.value)
    assert first.certificate == second.certificate
    assert first.certificate.simulation
    assert "SIMULATION: seeded randomness; this release protects nobody." in str(first.certificate)


def test_a_seed_never_fixes_the_secret_or_the_noise() -> None:
    first, second = (release(lambda x: x.mean(axis=0)) for _ in range(2))
    assert first.certificate == second.certificate  # the pool and the proof are seeded
    assert not np.array_equal(first.value, second.value)


# --- restarts -------------------------------------------------------------------------------


@pytest.mark.parametrize("rng", [None, 7])
def test_a_stopped_run_goes_on_with_the_same_pool(tmp_path: Path, rng: int | None) -> None:
    path = tmp_path / "run.pac-checkpoint"
    seen: list[bytes] = []
    stop_after = 9

    def fit(x: Any) -> Any:
        if len(seen) >= stop_after:
            raise KeyboardInterrupt
        seen.append(x.tobytes())
        return x.mean(axis=0)

    with pytest.raises(KeyboardInterrupt, match="run the same call again"):
        release(fit, checkpoint=path, rng=rng)
    done = len(seen)
    stop_after = 10**6
    found = release(fit, checkpoint=path, rng=rng)
    pool = found.bundle.pool
    assert len(set(seen)) == 17  # 16 candidates, and all records
    # subset 0 is run again to see that the function is the same; no other one is
    assert len(seen) - done == 16 - (done - 1) + 1 + 1
    expected = [X[pool.row_mask(k)].mean(axis=0) for k in range(16)]
    np.testing.assert_array_equal(found.bundle.outputs, expected)
    verify(found.certificate, found.bundle)


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.pac-checkpoint"
    release(lambda x: x.mean(axis=0), checkpoint=path)
    with pytest.raises(CheckpointError, match="must belong to this run"):
        release(lambda x: x.mean(axis=0), X + 1, checkpoint=path)


# --- bad input ------------------------------------------------------------------------------


def changes_length(x: Any) -> Any:
    return x[x[:, 0] > 0, 0]


def fails_on_17() -> Any:
    calls = iter(range(10**6))

    def fit(x: Any) -> Any:
        # the first subset is run twice, so subset 17 is call 18
        if next(calls) == 18:
            raise ZeroDivisionError("division by zero")
        return x.mean(axis=0)

    return fit


def random_output() -> Any:
    rng = np.random.default_rng(0)
    return lambda x: rng.normal()


def label(x: Any) -> Any:
    return {"mean": x.mean(), "sign": "up" if x.mean() > 0 else "down"}


BAD_DATA = X.copy()
BAD_DATA[3, 1] = np.nan
INFINITE_DATA = X.copy()
INFINITE_DATA[0, 0] = np.inf

BAD = {
    "nan in data": (DataError, "finite", {"data": BAD_DATA}),
    "inf in data": (DataError, "finite", {"data": INFINITE_DATA}),
    "three rows": (DataError, "at least 4 rows", {"data": X[:3]}),
    "unequal parts": (DataError, "as many rows", {"data": (X, Y[:-1])}),
    "text": (DataError, "must be an array", {"data": "people.csv"}),
    "nan output": (MechanismError, "finite", {"mechanism": lambda x: np.nan}),
    "inf output": (MechanismError, "finite", {"mechanism": lambda x: np.inf}),
    "other length": (MechanismError, "same shape", {"mechanism": changes_length}),
    "other label": (MechanismError, r"value\['sign'\] must have the same", {"mechanism": label}),
    "not deterministic": (MechanismError, "deterministic", {"mechanism": random_output()}),
    "fails on 17": (
        MechanismError,
        "failed on subset 17: ZeroDivisionError",
        {"mechanism": fails_on_17(), "n_subsets": 32},
    ),
    "no function": (MechanismError, "must be a function", {"mechanism": 3}),
    "nothing": (MechanismError, "at least one number", {"mechanism": lambda x: None}),
    "huge output": (MechanismError, "below 1e", {"mechanism": lambda x: 1e200 * x.mean()}),
    "negative seed": (PoolError, "rng must be an integer", {"rng": -1}),
    "text seed": (PoolError, "rng must be an integer", {"rng": "seed"}),
    "drawn pool for a fresh secret": (
        PoolError,
        "sample must be a strategy",
        {"sample": Half(n_subsets=32).draw(40, rng=0), "rule": Empirical(), "n_subsets": None},
    ),
    "odd pool": (PoolError, "even", {"n_subsets": 15}),
    "one subset": (PoolError, "at least 2", {"n_subsets": 1}),
    "short units": (PoolError, "one entry per record", {"units": np.arange(39)}),
    "few units": (PoolError, "at least 4", {"units": np.arange(40) % 3}),
    "unknown rule": (BudgetError, "rule must be one of", {"rule": "magic"}),
    "no budget": (BudgetError, "budget must be Information", {"budget": 0.6}),
}


@pytest.mark.claim("R-3")
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line_and_nothing_is_released(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, message, options = BAD[case]

    def forbidden(source: SystemSource, size: int) -> Any:
        raise AssertionError("the secret must not be drawn")

    monkeypatch.setattr(SystemSource, "words", forbidden)
    chosen = {"mechanism": lambda x: x.mean(axis=0), "data": X, **options}
    with pytest.raises(error, match=message) as found:
        release(chosen.pop("mechanism"), chosen.pop("data"), **chosen)
    assert "\n" not in str(found.value)
    assert str(found.value).rstrip(")").endswith(".")
    assert isinstance(found.value, PacPrivacyError)


@pytest.mark.parametrize("make", [lambda: pac.Information(0), lambda: pac.Membership(0.5)])
def test_bad_budgets_do_not_even_exist(make: Any) -> None:
    with pytest.raises(BudgetError):
        make()


def test_a_bad_budget_is_refused_before_the_mechanism_runs() -> None:
    ran: list[int] = []
    with pytest.raises(BudgetError):
        release(lambda x: ran.append(1) or 0.0, budget=pac.Membership(0.51), rule="magic")
    assert not ran


@pytest.mark.parametrize("setting", ["rng", "n_subsets"])
def test_records_in_the_place_of_a_setting_are_not_shown(setting: str) -> None:
    frame = pd.DataFrame({"income": [71234.5, 3.25]})
    with pytest.raises(pac.errors.PacPrivacyError) as told:
        pac.privatize(np.mean, np.arange(40.0), "membership<=0.6", **{setting: frame})
    assert "71234" not in str(told.value)
    assert "DataFrame" in str(told.value)
