"""Intervals of releases with coins hold the value on all records as often as they say."""

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.mechanism import flatten
from pacprivacy.queries import QuerySums, make_query_mechanism
from pacprivacy.sample import Coins, draw_coins
from pacprivacy.session import SampleOptions, SingleSession
from pacprivacy.statistics import Correlation, Covariance, Histogram

N_DRAWS = 800
SOURCE = np.random.default_rng(7)
N_ROWS = 3000
TABLE = pd.DataFrame(
    {
        "person": SOURCE.integers(0, 2000, N_ROWS),
        "region": SOURCE.choice(["north", "south", "east"], N_ROWS, p=[0.5, 0.3, 0.2]),
        "sex": SOURCE.choice(["f", "m"], N_ROWS),
        "age": SOURCE.normal(45, 12, N_ROWS),
        "income": np.where(SOURCE.random(N_ROWS) < 0.1, np.nan, SOURCE.gamma(4, 900, N_ROWS)),
        "w": SOURCE.gamma(3, 1, N_ROWS),
    }
)
NUMBERS = TABLE[["age", "w"]].to_numpy()
STATISTICS: dict[str, tuple[Any, Any]] = {
    "mean": (pac.stats.mean(["age", "income"]), TABLE),
    "mean by group": (pac.stats.mean("income", by=["region", "sex"]), TABLE),
    "weighted mean": (pac.stats.mean("income", weights="w", by="region"), TABLE),
    "share": (pac.stats.mean("region"), TABLE),
    "sum": (pac.stats.sum("income", by="region", where="age >= 40"), TABLE),
    "count": (pac.stats.count(by="region"), TABLE),
    "crosstab": (pac.stats.crosstab("region", "sex"), TABLE),
    "variance": (pac.stats.variance("age", by="sex"), TABLE),
    "numpy mean": (functools.partial(np.mean, axis=0), NUMBERS),
    "numpy sum": (functools.partial(np.sum, axis=0), NUMBERS),
    "numpy std": (functools.partial(np.std, axis=0, ddof=1), NUMBERS),
    "covariance": (Covariance(), NUMBERS),
    "correlation": (Correlation(), NUMBERS),
    "histogram": (Histogram(bins=[0, 20, 40, 60, 120]), NUMBERS[:, :1]),
}


@pytest.mark.claim("R-8")
@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("keep", [0.9, 0.98, 1.0])
def test_coverage(name: str, keep: float) -> None:
    statistic, data = STATISTICS[name]
    units = "person" if isinstance(data, pd.DataFrame) else None
    plan: Any = pac.plan(
        statistic, data, "membership<=0.6", sample=Coins(keep=keep), units=units, rng=0
    )
    covered = coverage(plan, keep, N_DRAWS)
    # Standard errors are rounded up to two digits, and the bias of clipping is part of them.
    assert covered.min() >= 0.91, covered
    assert covered.mean() <= 0.995, covered


QUERY = """SELECT region, count(*) AS n, sum(income) AS s, avg(income) AS a, stddev(age) AS d,
    corr(age, w) AS r, sum(w) FILTER (WHERE sex = 'f') / sum(w) AS share, round(avg(age), 2) AS o,
    avg(CASE WHEN sex = 'f' THEN age END) - avg(age) AS gap, count(DISTINCT person) AS u
    FROM rows GROUP BY region"""


@pytest.mark.claim("R-8")
@pytest.mark.parametrize("keep", [0.9, 0.98])
def test_coverage_of_a_query(keep: float) -> None:
    people = pd.DataFrame({"id": range(2000)})
    tables = pac.Tables({"people": people, "rows": TABLE}, unit="people.id", via={"rows": "person"})
    keys: Any = {"region": ["north", "south", "east"]}
    query = make_query_mechanism(QUERY, tables, keys=keys, kind=QuerySums)
    options = SampleOptions(sample=Coins(keep=keep))
    with SingleSession(tables, "membership<=0.7", options=options) as session:
        plan: Any = session.plan(query)
    covered = coverage(plan, keep, 300)
    assert covered.min() >= 0.90, covered  # four standard errors of 300 draws below .95
    assert covered.mean() <= 0.995, covered


def coverage(plan: Any, keep: float, n_draws: int) -> Any:
    """Return how often the interval of every number holds its value on all records."""
    bars, truth = plan.error_bars, plan.outputs.on_all
    truth = flatten(plan.outputs.restore(truth, exact=True))[0]
    measured = np.setdiff1d(np.arange(len(truth)), bars.constants)
    hits = np.zeros(len(truth))
    for draw in range(n_draws):
        kept = draw_coins(plan.bundle.n_units, keep, SimulatedSource(2 * draw))
        value = plan.value_of(plan.observe(kept, SimulatedSource(2 * draw + 1)))
        low, high = bars.interval(bars.numbers_of(value), 0.95, "records")
        hits += (low <= truth) & (truth <= high)
    return hits[measured] / n_draws
