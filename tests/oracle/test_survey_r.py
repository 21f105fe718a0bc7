"""Weighted, stratified, clustered estimates beside those of R's package survey (4.1.1).

The figures were printed once by this R code, on the table of ``make_survey`` written as CSV:

    library(survey)
    d <- read.csv("survey.csv")
    s <- svydesign(ids = ~village, strata = ~region, weights = ~weight, data = d, nest = TRUE)
    options(digits = 12)
    show <- function(x) print(cbind(coef(x), SE(x)))
    show(svymean(~income, s)); show(svytotal(~income, s)); show(svymean(~sex, s))
    show(svyby(~income, ~sex, s, svymean))
    r <- svyratio(~income, ~hours, s); print(c(coef(r), SE(r)))
    show(svyglm(income ~ hours + sex, s))
    show(svymean(~income, svydesign(ids = ~1, weights = ~weight, data = d)))
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pacprivacy import stats
from pacprivacy.mechanism import coerce_data
from pacprivacy.statistics import Study

N_REGIONS, N_VILLAGES, N_PEOPLE = 5, 8, 25


def make_survey(seed: int = 7) -> pd.DataFrame:
    """Return people of villages in regions, who resemble each other."""
    rng = np.random.default_rng(seed)
    region, village, _ = np.indices((N_REGIONS, N_VILLAGES, N_PEOPLE)).reshape(3, -1)
    of_village = rng.normal(0, 20, (N_REGIONS, N_VILLAGES))[region, village]
    hours = rng.integers(10, 60, len(region))
    sex = rng.choice(["f", "m"], len(region))
    weight = rng.uniform(0.5, 3, N_REGIONS)[region] * rng.uniform(0.8, 1.2, len(region))
    income = 100 + 15 * region + of_village + 2.5 * hours + 12 * (sex == "m")
    return pd.DataFrame(
        {
            "region": np.array(list("abcde"))[region],
            "village": village,
            "weight": np.round(weight, 3),
            "hours": hours,
            "sex": sex,
            "income": np.round(income + rng.normal(0, 30, len(region)), 2),
        }
    )


CLUSTERED: dict[str, tuple[Any, list[tuple[float, float]]]] = {
    "mean": (stats.mean("income"), [(217.75551827, 2.83041673176)]),
    "total": (stats.sum("income"), [(292411.47342, 3965.11754741)]),
    "shares": (
        stats.mean("sex"),
        [(0.501427940571, 0.0153926841954), (0.498572059429, 0.0153926841954)],
    ),
    "mean by sex": (
        stats.mean("income", by="sex"),
        [(209.694432314, 2.63085068701), (225.862779102, 4.04829009480)],
    ),
    "ratio": (stats.rate("income", "hours"), [(6.2028226321765, 0.0962264569585)]),
    "regression": (
        stats.ols("income", ["hours", "sex"]),
        [
            (126.35627855669, 3.4209206588366),
            (2.42863786793, 0.0911426399267),
            (12.31473221490, 2.6716894306421),
        ],
    ),
}
APART = (stats.mean("income"), [(217.75551827, 1.75708055759)])  # weights alone


def estimates(statistic: Any, units: Any = None, **design: str) -> list[tuple[float, float]]:
    """Return numbers and their errors for the population, without coins and noise."""
    data = coerce_data(make_survey())
    study = Study({"x": statistic}, weights="weight", **design).prepare(data)
    sums = study.contributions(data, units)
    moved = sums.values @ study.jacobian(sums.total())[0].T
    spread, _ = study.design_spread(lambda: moved, data, units) or (None, 0)
    assert spread is not None
    return list(zip(study.value(sums.total()), spread, strict=True))


@pytest.mark.claim("C-32")
@pytest.mark.parametrize("name", CLUSTERED)
def test_estimates_and_errors_are_those_of_r(name: str) -> None:
    statistic, figures = CLUSTERED[name]
    found = estimates(statistic, strata="region", cluster="village")
    np.testing.assert_allclose(found, figures, rtol=1e-9)


@pytest.mark.claim("C-32")
def test_a_household_may_be_the_unit() -> None:
    """Sums over whole clusters have the same variance as sums over people of clusters."""
    table = make_survey()
    units = (table["region"].astype(str) + table["village"].astype(str)).factorize()[0]
    statistic, figures = CLUSTERED["mean"]
    found = estimates(statistic, units, strata="region", cluster="village")
    np.testing.assert_allclose(found, figures, rtol=1e-9)


@pytest.mark.claim("C-32")
def test_weights_alone_are_those_of_r() -> None:
    data = coerce_data(make_survey())
    data.parts[0]["row"] = np.arange(len(data.parts[0])).astype(float)
    study = Study({"x": APART[0]}, weights="weight", cluster="row").prepare(data)
    sums = study.contributions(data)
    moved = sums.values @ study.jacobian(sums.total())[0].T
    spread, freedom = study.design_spread(lambda: moved, data, None) or (np.zeros(1), 0)
    np.testing.assert_allclose([study.value(sums.total())[0], spread[0]], APART[1][0], rtol=1e-9)
    assert freedom == len(data.parts[0]) - 1


@pytest.mark.claim("C-32")
def test_errors_without_the_clusters_are_not_those_of_r() -> None:
    """A bug that forgets the clusters is caught by more than the tolerance above."""
    _, figures = CLUSTERED["mean"]
    ((_, error),) = estimates(stats.mean("income"), strata="region")
    assert abs(error / figures[0][1] - 1) > 0.2


if __name__ == "__main__":
    make_survey().to_csv("survey.csv", index=False)
