"""Which sample a single release has where nobody asks for one, and what its certificate says."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import Ridge

import pacprivacy as pac
from pacprivacy.design import OrthogonalRidge
from pacprivacy.errors import PoolError
from pacprivacy.mechanism import as_mechanism, coerce_data
from pacprivacy.sample import Balanced, Coins, named_pool_units
from pacprivacy.session import Session, pool_reason
from pacprivacy.statistics import Covariance, Histogram, Mean

N = 400
RNG = np.random.default_rng(0)
AGES = RNG.normal(40, 10, N)
TABLE = pd.DataFrame(
    {"age": AGES, "pay": RNG.gamma(3, 1000, N), "region": RNG.choice(["north", "south"], N)}
)
NUMBERS = TABLE[["age", "pay"]]
PEOPLE = named_pool_units(np.arange(N) // 2, "person_id")
S = pac.stats


def reason(
    mechanism: Any,
    data: Any = AGES,
    *,
    budget: str = "membership<=0.6",
    units: Any = None,
    **options: Any,
) -> str | None:
    limits, records = pac.parse_budget(budget), coerce_data(data)
    return pool_reason(as_mechanism(mechanism), records, units, limits, options=options)


@pytest.mark.parametrize(
    ("mechanism", "data"),
    [
        (np.mean, AGES),
        (np.mean, list(AGES)),
        (np.median, pd.Series(AGES)),
        (np.std, pl.Series(AGES)),
        (len, TABLE),
        (partial(np.mean, axis=0), NUMBERS),
        (partial(np.var, axis=0, ddof=1), NUMBERS.to_numpy()),
        (partial(np.quantile, q=0.9, axis=0), AGES),
        (partial(np.histogram, bins=[0, 40, 100]), AGES),
        (partial(np.histogram, bins=4, range=(0, 100)), AGES),
        (Mean(), NUMBERS.to_numpy()),
        (Covariance(), NUMBERS.to_numpy()),
        (Histogram(bins=4, ranges=(0, 100)), AGES),
        (S.mean("pay", by="region", where="age >= 18", weights="age"), TABLE),
        (S.count(by="region"), TABLE),
        (S.median("pay", by="region"), TABLE),
        (S.ols("pay", ["age", "region"]), TABLE),
        (S.ridge("pay", ["age", "region"]), TABLE),
        (OrthogonalRidge(), (AGES[:, None], AGES)),
        (S.logistic("region", ["age"]), TABLE),
        (S.poisson("age", ["pay"]), TABLE),
    ],
)
def test_statistics_that_state_their_influence_have_coins(mechanism: Any, data: Any) -> None:
    assert reason(mechanism, data) is None
    assert reason(mechanism, data, units=PEOPLE) is None
    assert reason(mechanism, data, budget="epsilon<=1") is None


@pytest.mark.parametrize(
    ("mechanism", "data", "options", "why"),
    [
        (lambda x: x.mean(), AGES, {}, "it is not known how much one record changes the value"),
        (Ridge().fit, (AGES[:, None], AGES), {}, "it is not known how much one record changes"),
        (S.logistic("region", ["age"], weights="pay"), TABLE, {}, "rows are weighted or grouped"),
        (S.logistic("region", ["age"], missing="mean"), TABLE, {}, "gaps are filled by means"),
        (np.mean, NUMBERS, {}, "mean is not taken along axis 0, or has options besides"),
        (S.mean("pay", missing="mean"), TABLE, {}, "gaps are filled by means of whoever is used"),
        (np.mean, AGES, {"budget": "mi<=0.1"}, "the budget is not about membership alone"),
        (np.mean, AGES, {"budget": "membership<=0.6 & mi<=1"}, "the budget is not about"),
        (np.mean, AGES[:199], {}, "the table has fewer than 200 records"),
        (np.mean, AGES, {"n_subsets": 64}, "n_subsets was set, which is for pools"),
        (np.mean, AGES, {"rule": None, "totals": False}, "totals was set, which is for pools"),
        (lambda x: x.mean(), AGES, {"units": PEOPLE}, "how much one person changes the value"),
    ],
)
def test_everything_else_has_a_pool_and_a_reason(
    mechanism: Any, data: Any, options: dict[str, Any], why: str
) -> None:
    assert why in str(reason(mechanism, data, **options))


def test_several_rows_of_a_person_have_coins() -> None:
    for statistic in (S.median("pay", by="region"), S.ols("pay", ["age"]), S.ridge("pay", ["age"])):
        planned = pac.plan(statistic, TABLE, "membership<=0.8", units=PEOPLE, rng=0)
        assert planned.certificate.sampling == "average"
        assert planned.certificate.n_units == N // 2


def test_units_are_counted_and_not_rows() -> None:
    assert reason(np.mean, units=PEOPLE) is None  # 200 of them
    few = named_pool_units(np.minimum(np.arange(N) // 2, 198), "person_id")
    assert reason(np.mean, units=few) == "the table has fewer than 200 people"
    texts = np.array([f"{unit}.0" if i % 2 else f"{unit}" for i, unit in enumerate(few)])
    assert reason(np.mean, units=texts) == "the table has fewer than 200 units"  # 7 and 7.0 are one
    assert reason(np.mean, AGES[:200]) is None


@pytest.mark.claim("C-1")
def test_the_choice_reads_no_value_of_a_record() -> None:
    rng = np.random.default_rng(1)
    for scale in (0.0, 1.0, 1e12):
        table = TABLE.assign(age=scale * rng.standard_cauchy(N), pay=scale)
        for statistic in (S.mean("pay", by="region"), S.median("age"), S.ols("pay", ["age"])):
            assert reason(statistic, table) is None


def test_releases_and_plans_follow_the_choice() -> None:
    coins = pac.privatize(np.mean, AGES, "membership<=0.6")
    assert coins.certificate.sampling == "coins"
    assert coins.certificate.used_prior == Coins().resolve(N)
    assert pac.plan(np.median, AGES, "membership<=0.6").certificate.sampling == "average"
    pool = pac.privatize(np.mean, AGES, "membership<=0.6", n_subsets=32, rng=0)
    why = "Sample: a pool of 32 candidates, because n_subsets was set, which is for pools."
    assert why in pool.certificate.notes
    assert why in " ".join(str(pool.certificate).split())
    pac.verify(pool.certificate, pool.bundle)  # the sentence follows from the bundle


def test_what_is_chosen_wins() -> None:
    pool = pac.plan(np.mean, AGES, "membership<=0.6", sample=Balanced(n_subsets=32), rng=0)
    assert pool.certificate.sampling == "pool"
    assert not any(note.startswith("Sample:") for note in pool.certificate.notes)
    with pytest.raises(PoolError, match="n_subsets, n_jobs and backend"):
        pac.plan(np.mean, AGES, "membership<=0.6", sample=Coins(), n_subsets=32)
    with pytest.raises(PoolError, match="coins must leave out at least 20 units"):
        pac.plan(np.mean, AGES[:150], "membership<=0.6", sample=Coins())


def test_a_session_that_may_be_asked_anything_has_a_pool() -> None:
    with Session(AGES, budget="membership<=0.6", n_subsets=32, rng=0) as session:
        certificate = session.release(np.mean, share=0.5).certificate
    assert certificate.sampling == "pool"
    assert not any(note.startswith("Sample:") for note in certificate.notes)
