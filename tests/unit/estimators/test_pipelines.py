"""Pipelines on frames with text and gaps: everything is fitted inside each candidate."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import pacprivacy as pac
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.mechanism import EstimatorFit, coerce_data, flatten

N = 300
REGIONS = ["east", "north", "south"]


@pytest.fixture(scope="module")
def people() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "name": [f"n{i}" for i in range(N)],
            "age": rng.normal(40, 10, N),
            "region": rng.choice(REGIONS, N),
            "grade": rng.choice(["low", "high"], N),
        }
    )
    y = frame.age + 10 * (frame.region == "south") + rng.normal(0, 2, N)
    frame.loc[rng.random(N) < 0.1, "age"] = np.nan
    frame.loc[rng.random(N) < 0.1, "region"] = None
    return frame, y.to_numpy()


def model(last: Any, **encoding: Any) -> Any:
    options = {"categories": [[*REGIONS, "?"]], "handle_unknown": "ignore", **encoding}
    gap = SimpleImputer(strategy="constant", fill_value="?", missing_values=None)
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
            ("region", make_pipeline(gap, OneHotEncoder(**options)), ["region"]),
            ("grade", OrdinalEncoder(categories=[["low", "high"]]), ["grade"]),
        ]
    )
    return make_pipeline(columns, last)


def without_none(frame: pd.DataFrame) -> pd.DataFrame:
    """As scikit-learn wants text with gaps: objects with None."""
    return frame.assign(region=frame.region.astype(object).where(frame.region.notna(), None))


def test_what_is_restored_is_the_fit_itself(people: Any) -> None:
    frame, y = without_none(people[0]), people[1]
    fit = EstimatorFit(estimator=model(Ridge()))
    data = coerce_data((frame, y))
    fitted = fit.prepare(data).evaluate(data.take(np.arange(N)), np.random.default_rng(0))
    vector, structure = flatten(fitted)
    again = structure.restore(vector)
    assert np.allclose(again.predict(frame), fitted.predict(frame))
    assert structure.size == 1 + 2 + 6 + 1  # mean of ages; their scaler; coefficients; intercept


@pytest.mark.claim("E-1")
@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_a_pipeline_is_fitted_inside_each_candidate(kind: str, people: Any) -> None:
    frame, y = without_none(people[0]), people[1]
    last = Ridge() if kind == "regression" else LogisticRegression()
    target = y if kind == "regression" else np.where(y > 45, "old", "young")
    private = pac.PrivateEstimator(model(last), budget=pac.Information(4.0), n_subsets=16)
    private.fit(frame, target)
    assert private.score(frame, target) > 0.5
    assert private.n_features_in_ == 4
    restored = pickle.loads(pickle.dumps(private))
    assert (restored.predict(frame[:9]) == private.predict(frame[:9])).all()
    imputer = private.estimator_.steps[0][1].transformers_[0][1].steps[0][1]
    assert imputer.statistics_[0] != frame.age.mean(), "no exact mean of all"


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (model(Ridge(), categories="auto"), "must have categories declared"),
        (model(Ridge(), min_frequency=5), "no min_frequency"),
        (make_pipeline(SimpleImputer(add_indicator=True), Ridge()), "add_indicator=False"),
    ],
)
def test_a_layout_that_follows_the_candidate_is_refused(
    estimator: Any, message: str, people: Any
) -> None:
    frame, y = without_none(people[0]), people[1]
    with pytest.raises(MechanismError, match=message):
        pac.PrivateEstimator(estimator, budget=pac.Information(1.0)).fit(frame, y)


def test_an_imputer_alone_and_what_is_still_refused(people: Any) -> None:
    frame, y = people
    numbers = pl.DataFrame({"age": frame.age, "more": np.arange(N)})
    private = pac.PrivateEstimator(
        make_pipeline(SimpleImputer(), Ridge()), budget=pac.Information(1.0), n_subsets=8
    )
    assert private.fit(numbers, y).predict(numbers).shape == (N,)
    encoder = OneHotEncoder(categories=[REGIONS])
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder, Ridge())
    with pytest.raises(MechanismError, match="statistics_ must hold floats"):
        pac.PrivateEstimator(words, budget=pac.Information(1.0), n_subsets=8).fit(
            frame[["region"]].fillna("east").astype(object), y
        )
    with pytest.raises(DataError, match="y must be given"):
        private.fit(numbers)
