"""What people get wrong: one clear line each, from our own errors, and quickly."""

from __future__ import annotations

import runpy
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy.cli.main import app
from pacprivacy.errors import PacPrivacyError
from pacprivacy.mechanism import Forest, Histogram

X = np.random.default_rng(0).normal(size=(60, 3))
Y = X[:, 0] > 0
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "patient": np.arange(60) // 2})
QUICK: dict[str, Any] = {"n_subsets": 16, "rule": "waterfill", "rng": 0}
FAST: dict[str, Any] = {"n_subsets": 16, "rule": "waterfill", "random_state": 0}


def release(
    function: Any = np.mean, data: Any = X[:, 0], budget: Any = "mi<=1", **given: Any
) -> Any:
    return pac.privatize(function, data, budget, **{**QUICK, **given})


def tree(kind: Any) -> Callable[[], Any]:
    return lambda: release(lambda x, y: kind(random_state=0).fit(x, y), (X, Y))


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "budgets joined with and": (lambda: pac.Membership(0.6) and pac.Information(1), "with &"),
    "budgets joined with or": (lambda: pac.Information(1) or pac.Membership(0.6), "with &"),
    "a budget as a condition": (lambda: 1 if pac.Membership(0.6) & pac.Information(1) else 2, "&"),
    "a number for a budget": (lambda: release(budget=0.6), "got float"),
    "no budget": (lambda: release(budget=None), "budget must be"),
    "text that is no budget": (lambda: release(budget="60%"), "budget must look like"),
    "a budget the wrong way": (lambda: release(budget="membership>=0.6"), "budget must look like"),
    "half a budget": (lambda: release(budget="mi<="), "budget must look like"),
    "nothing for a budget": (lambda: release(budget=""), "budget must look like"),
    "a coin": (lambda: release(budget="membership<=0.5"), "above 1/2"),
    "certainty": (lambda: release(budget="membership<=1"), "below 1"),
    "no nats": (lambda: release(budget="mi<=0"), "mi_nats must be"),
    "nats by zero": (lambda: release(budget="mi<=1/0"), "must hold a number"),
    "no information": (lambda: pac.Information(-1), "mi_nats must be"),
    "a list of budgets": (lambda: release(budget=[pac.Information(1)]), "got list"),
    "one argument of two": (lambda: release(lambda x: x.mean(), (X, Y)), "must take 2 arguments"),
    "two arguments of one": (lambda: release(lambda x, y: 0.0, X), "must take 1 argument,"),
    "no argument": (lambda: release(lambda: 1.0), "must take 1 argument,"),
    "an option without default": (lambda: release(lambda x, *, k: 1.0), "must take 1 argument,"),
    "no function": (lambda: release("mean"), "mechanism must be a function"),
    "an estimator": (lambda: release(Ridge(), (X, X[:, 0])), "Write a function"),
    "a class": (lambda: release(Forest, (X, Y)), "Write Forest() with brackets"),
    "a tree": (tree(DecisionTreeClassifier), "pac.PrivatePredictor"),
    "a forest": (tree(RandomForestClassifier), "pac.PrivatePredictor"),
    "boosting": (tree(GradientBoostingClassifier), "pac.PrivatePredictor"),
    "boosted histograms": (tree(HistGradientBoostingClassifier), "pac.PrivatePredictor"),
    "text as a value": (lambda: release(lambda x: np.array(["a"])), "must hold real numbers"),
    "an object as a value": (lambda: release(lambda x: object()), "must be a number"),
    "a value that is missing": (lambda: release(lambda x: np.nan), "finite"),
    "a shape that changes": (lambda: release(lambda x: x[x > 0]), "subset"),
    "a function that fails": (lambda: release(lambda x: 1 / 0), "subset 0"),
    "a unit that is no column": (lambda: release(data=FRAME, units="person"), "which is no column"),
    "a unit without a frame": (lambda: release(units="person"), "which is no column"),
    "units of another length": (lambda: release(units=[1, 2]), "units"),
    "no rows": (lambda: release(data=np.empty(0)), "got"),
    "rows of two lengths": (lambda: release(lambda x, y: 0.0, (X, Y[:9])), "got"),
    "missing data": (lambda: release(data=np.full(60, np.nan)), "got"),
    "an odd pool": (lambda: release(n_subsets=7), "n_subsets must be"),
    "a pool of one": (lambda: release(n_subsets=1), "n_subsets must be"),
    "a pool of none": (lambda: release(n_subsets=0), "n_subsets must be"),
    "a pool in words": (lambda: release(n_subsets="many"), "n_subsets must be"),
    "an unknown rule": (lambda: release(rule="best"), "rule must be one of"),
    "levels without a target": (lambda: release(levels=3), "levels must come with a target"),
    "a name of nothing": (lambda: release(name=" "), "name must be a text"),
    "a name that is a number": (lambda: release(name=3), "name must be a text"),
    "bins from nowhere": (lambda: Histogram(bins=10), "ranges must be given"),
    "a range upside down": (lambda: release(Histogram(ranges=(1, 0))), "low < high"),
    "no bins": (lambda: Histogram(bins=0, ranges=(0, 1)), "bins must be at least 1"),
    "a range for one of three": (lambda: release(Forest(ranges=[(0, 1)]), (X, Y)), "low < high"),
    "an unknown form": (lambda: pac.PrivateRidge(form="x").fit(X, X[:, 0]), "form must be"),
    "an unknown alpha": (lambda: pac.PrivateRidge("x").fit(X, X[:, 0]), "alpha must be"),
    "a budget that is a number": (lambda: pac.PrivateKMeans(2, budget=1).fit(X), "got int"),
    "a query by membership": (
        lambda: pac.PrivatePredictor(DecisionTreeClassifier(), query_budget="membership<=0.6").fit(
            X, Y
        ),
        "query_budget must be Information",
    ),
    "a session without a budget": (lambda: pac.Session(X), "budget must be given"),
    "a session of other secrets": (
        lambda: pac.Session(X, budget="mi<=1", secrets="new"),
        "secrets must be",
    ),
    "a page in no folder": (lambda: pac.report(release(), "nowhere/a.html"), "existing folder"),
    "a page that is a folder": (lambda: pac.report(release(), "."), "a folder"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_usage_is_told_in_one_line(name: str) -> None:
    action, said = WRONG[name]
    start = time.process_time()
    with pytest.raises(PacPrivacyError) as caught:
        action()
    assert time.process_time() - start < 2
    text = str(caught.value)
    assert said in text
    assert "\n" not in text
    assert text.rstrip().endswith((".", ")", "?", '"', "'"))
    assert len(text) < 500


COMMANDS: dict[str, tuple[list[str], str]] = {
    "bins from nowhere": (["--model", "histogram"], "--ranges must be given"),
    "a name of nothing": (["--model", "mean", "--name", " "], "name must be a text"),
    "ranges of a mean": (["--model", "mean", "--ranges", "0,1"], "--ranges must be left out"),
    "an unknown column": (["--model", "mean", "--columns", "c"], "'c'"),
    "an unknown unit": (["--model", "mean", "--unit", "who"], "'who'"),
    "no target": (["--model", "ridge"], "--target must be given"),
    "no clusters": (["--model", "kmeans"], "--clusters must be given"),
    "an unknown model": (["--model", "men"], "--model must be one of"),
    "a total without a ledger": (["--model", "mean", "--total", "mi<=1"], "--ledger must be given"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_command_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    options, said = COMMANDS[name]
    table = tmp_path / "people.csv"
    FRAME.to_csv(table, index=False)
    words = ["release", str(table), "--budget", "mi<=1", "-o", str(tmp_path / "out"), "-q"]
    result = CliRunner().invoke(app, [*words, *options])
    assert result.exit_code == 2, result.stderr
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_page_that_cannot_be_written_is_refused_before_the_figures(tmp_path: Path) -> None:
    path = release().save(tmp_path / "out")
    for wrong in (tmp_path, tmp_path / "nowhere" / "page.html"):
        start = time.process_time()
        result = CliRunner().invoke(app, ["report", str(path), "-o", str(wrong)])
        assert result.exit_code == 2
        assert "existing folder" in result.stderr
        assert time.process_time() - start < 1


def test_the_budget_of_an_estimator_has_a_name() -> None:
    for kind in (pac.PrivateKMeans, pac.PrivateRidge, pac.PrivateEstimator, pac.PrivatePredictor):
        with pytest.raises(TypeError, match="positional argument"):
            kind(Ridge(), pac.Information(1))


def test_text_is_a_budget_wherever_one_is_taken() -> None:
    asked = release(budget="mi<=1 & membership<=0.9", rule=None)
    assert asked.certificate.budget == str(pac.Information(1) & pac.Membership(0.9))
    assert pac.plan(np.mean, X[:, 0], "mi<=1", **QUICK).certificate.mi_upper_nats <= 1
    with pac.Session(X, budget="mi<=1", n_subsets=16, rng=0) as session:
        session.release(lambda x: x[:, 0].mean(), "mi<=1/2")
        assert session.odometer().spent.mi_nats == pytest.approx(0.5, rel=0.01)
    for model in (
        pac.PrivateRidge(1.0, budget="mi<=1", **FAST),
        pac.PrivateLogisticRegression(budget="mi<=1", method="descent", n_subsets=16),
        pac.PrivatePredictor(
            DecisionTreeClassifier(), budget="mi<=1", query_budget="mi<=1/64", n_subsets=16
        ),
    ):
        assert model.fit(X, Y).certificate_.mi_upper_nats <= 1


def test_a_column_says_whose_row_it_is_and_is_not_seen() -> None:
    seen: list[tuple[str, ...]] = []

    def means(frame: pd.DataFrame) -> Any:
        seen.append(tuple(frame.columns))
        return frame.mean()

    found = release(means, FRAME, units="patient")
    assert found.certificate.n_units == 30
    assert set(seen) == {("a", "b")}
    by_array = release(means, FRAME[["a", "b"]], units=FRAME["patient"].to_numpy())
    np.testing.assert_array_equal(by_array.bundle.outputs, found.bundle.outputs)
    both = release(lambda f, y: f.mean(), (FRAME, Y), units="patient")
    assert both.certificate.n_units == 30
    model = pac.PrivateKMeans(2, budget="mi<=1", **FAST).fit(FRAME, units="patient")
    assert model.certificate_.n_units == 30
    assert model.n_features_in_ == 2


def test_a_release_has_the_name_that_it_was_given(tmp_path: Path) -> None:
    assert release(name="mean age").certificate.mechanism == "mean age (mean)"
    ledger = tmp_path / "study.db"
    with pac.Session(X, budget="mi<=1", ledger=ledger, n_subsets=16, rng=0) as session:
        named = session.release(lambda x: x.mean(), "mi<=1/2", name="the first")
    assert named.certificate.mechanism.startswith("the first (")
    assert pac.verify(named.certificate, named.bundle).digest


def test_two_candidates_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="knows one unit's membership knows the secret"):
        release(n_subsets=2)


def test_a_search_says_once_that_fits_add_up() -> None:
    model = pac.PrivateKMeans(2, budget="mi<=1", **FAST)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GridSearchCV(model, {"n_clusters": [2, 3]}, cv=2).fit(X)
    told = [str(each.message) for each in caught if "search_cost" in str(each.message)]
    assert len(told) == 1
    assert "every fit of a search is a release" in told[0]


def test_python_m_is_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["pac", "--version"])
    monkeypatch.delitem(sys.modules, "pacprivacy.__main__", raising=False)
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("pacprivacy", run_name="__main__")
    assert not stopped.value.code
    assert "pacprivacy" in capsys.readouterr().out
