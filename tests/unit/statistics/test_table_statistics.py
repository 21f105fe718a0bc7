"""Statistics of named columns: the right numbers, from each candidate's own rows alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import pacprivacy as pac
from pacprivacy import stats
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import ComparedColumn, Condition, Data, coerce_data
from pacprivacy.sample import Balanced
from pacprivacy.simulation import run_mechanism

N = 240


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    """Gaps in numbers and in text, a date, weights, an outcome."""
    rng = np.random.default_rng(3)
    age = rng.normal(45, 12, N)
    frame = pd.DataFrame(
        {
            "region": rng.choice(["north", "south", "east"], N),
            "sex": rng.choice(["f", "m"], N),
            "age": age,
            "income": 1e4 + 500 * age + rng.normal(0, 4e3, N),
            "visits": rng.poisson(np.exp(0.02 * age - 0.3)),
            "ill": np.where(rng.random(N) < 1 / (1 + np.exp(2 - 0.04 * age)), "yes", "no"),
            "weight": rng.uniform(0.5, 2, N),
            "joined": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 60, N), "D"),
        }
    )
    frame.loc[rng.random(N) < 0.1, "income"] = np.nan
    frame.loc[rng.random(N) < 0.05, "region"] = None
    return frame


def on_all(statistic: Any, data: Any) -> Any:
    """The value on all rows, with its names."""
    universe = coerce_data(data)
    prepared = statistic.prepare(universe)
    value = prepared.evaluate(universe.take(np.arange(universe.n_rows)), np.random.default_rng(0))
    return prepared.finish(value)


def close(found: dict[Any, Any], expected: Any) -> None:
    assert list(found) == list(expected.keys())
    assert np.allclose(list(found.values()), list(expected.values()), rtol=1e-9)


# --- the right numbers --------------------------------------------------------------------------


def test_summaries_are_those_of_pandas(people: pd.DataFrame) -> None:
    numbers = ["age", "income"]
    close(on_all(stats.mean(numbers), people), people[numbers].mean().to_dict())
    close(on_all(stats.sum(numbers), people), people[numbers].sum().to_dict())
    close(on_all(stats.count(numbers), people), people[numbers].count().to_dict())
    close(on_all(stats.median(numbers), people), people[numbers].median().to_dict())
    close(on_all(stats.variance(numbers), people), people[numbers].var().to_dict())
    assert on_all(stats.count(), people) == {"rows": N}
    found = on_all(stats.quantiles("income", q=(0.9, 0.1)), people)["income"]
    close(found, {"0.1": people.income.quantile(0.1), "0.9": people.income.quantile(0.9)})


@pytest.mark.parametrize("name", ["mean", "sum", "median", "variance", "count"])
def test_groups_are_those_of_pandas(name: str, people: pd.DataFrame) -> None:
    found = on_all(getattr(stats, name)("income", by="region"), people)
    pandas = {"variance": "var"}.get(name, name)
    close(found, people.groupby("region").income.agg(pandas).to_dict())


def test_several_columns_and_groups_have_names(people: pd.DataFrame) -> None:
    found = on_all(stats.mean(["age", "income"], by=["region", "sex"]), people)
    expected = people.groupby(["region", "sex"])[["age", "income"]].mean()
    assert np.isclose(found["income"]["south"]["m"], expected.loc[("south", "m"), "income"])
    quantiles = on_all(stats.quantiles("age", by="sex"), people)
    assert np.isclose(quantiles["m"]["0.75"], people[people.sex == "m"].age.quantile(0.75))


def test_crosstab_and_shares(people: pd.DataFrame) -> None:
    found = on_all(stats.crosstab("region", "sex", missing="category"), people)
    expected = pd.crosstab(people.region.fillna("(missing)"), people.sex)
    assert list(found) == ["east", "north", "south", "(missing)"]
    assert all(found[r][s] == expected.loc[r, s] for r in found for s in "fm")
    close(
        on_all(stats.mean("region"), people),
        {
            f"region={k}": v
            for k, v in people.region.value_counts(normalize=True).sort_index().items()
        },
    )


def test_regressions_solve_their_equations(people: pd.DataFrame) -> None:
    used = people.dropna(subset=["income", "region"])
    dummies = pd.get_dummies(used.region)[["north", "south"]].to_numpy(float)
    Z = np.column_stack([np.ones(len(used)), used.age, dummies])
    names = ["intercept", "age", "region=north", "region=south"]
    beta = np.linalg.lstsq(Z, used.income.to_numpy(), rcond=None)[0]
    close(
        on_all(stats.ols("income", ["age", "region"]), people), dict(zip(names, beta, strict=True))
    )
    root = np.sqrt(used.weight.to_numpy())
    beta = np.linalg.lstsq(Z * root[:, None], used.income.to_numpy() * root, rcond=None)[0]
    weighted = on_all(stats.ols("income", ["age", "region"], weights="weight"), people)
    close(weighted, dict(zip(names, beta, strict=True)))
    used = people.dropna(subset=["region"])
    dummies = pd.get_dummies(used.region)[["north", "south"]].to_numpy(float)
    Z = np.column_stack([np.ones(len(used)), used.age, dummies])
    beta = list(on_all(stats.logistic("ill", ["age", "region"]), people).values())
    mean = 1 / (1 + np.exp(-Z @ beta))
    assert np.abs(Z.T @ ((used.ill == "yes") - mean)).max() < 1e-6
    beta = list(on_all(stats.poisson("visits", ["age", "region"]), people).values())
    assert np.abs(Z.T @ (used.visits - np.exp(Z @ beta))).max() < 1e-6


def test_weights_conditions_and_dates(people: pd.DataFrame) -> None:
    where = "age >= 40 and region in ('north', 'south') and joined < '2024-02-01'"
    chosen = people[
        (people.age >= 40) & people.region.isin(["north", "south"]) & (people.joined < "2024-02-01")
    ]
    found = on_all(stats.mean("age", weights="weight", where=where), people)
    close(found, {"age": np.average(chosen.age, weights=chosen.weight)})
    days = (people.joined - pd.Timestamp("1970-01-01")).dt.days
    close(on_all(stats.mean("joined"), people), {"joined": days.mean()})


def test_what_the_numbers_of_dates_are_is_said(people: pd.DataFrame) -> None:
    objects = people.assign(joined=people.joined.dt.date)
    for other in (people, pl.from_pandas(people), objects):
        made = stats.mean(["age", "joined"]).prepare(coerce_data(other))
        assert "dates are days since 1970-01-01: joined" in made.public
    assert not any("1970" in line for line in stats.mean("age").prepare(coerce_data(people)).public)


def test_containers_agree(people: pd.DataFrame) -> None:
    statistic = stats.mean(["income", "joined"], by="region", where="sex != 'f'")
    expected = on_all(statistic, people)
    for other in (pl.from_pandas(people), pl.from_pandas(people).to_arrow()):
        found = on_all(statistic, other)
        assert all(np.isclose(found[c][r], expected[c][r]) for c in found for r in found[c])
    assert np.isclose(on_all(stats.mean(), np.arange(8.0))["x"], 3.5)
    assert list(on_all(stats.mean(), np.zeros((4, 2)))) == ["x1", "x2"]


# --- the candidate's own rows, all candidates at once -------------------------------------------

ALL = [
    stats.mean(["age", "income", "region"], by="sex"),
    stats.mean("income", by="region", missing="mean"),
    stats.mean(["income", "region"], missing="category", weights="weight"),
    stats.sum("income", by="region", where="age > 30"),
    stats.count("region"),
    stats.crosstab("region", "sex"),
    stats.variance(["income", "age"], by="sex"),
    stats.quantiles(["income", "age"], by="sex"),
    stats.median("income", missing="mean"),
    stats.ols("income", ["age", "region"]),
    stats.logistic("ill", ["age"]),
    stats.poisson("visits", ["age", "region"], missing="mean"),
]


@pytest.mark.claim("M-4")
@pytest.mark.parametrize("statistic", ALL, ids=lambda s: f"{s.kind}-{s.missing}")
def test_a_candidate_is_computed_from_its_own_rows(statistic: Any, people: pd.DataFrame) -> None:
    """Rows outside a candidate may hold anything: what is computed on it stays the same.

    A mean that is filled from all rows, or a row dropped for what others hold, is caught here.
    """
    pool = Balanced(n_subsets=8).draw(N, rng=1)
    levels = {"region": ("east", "north", "south"), "ill": ("no", "yes"), "sex": ("f", "m")}
    statistic = replace(statistic, levels=levels)
    values = run_mechanism(statistic, people, pool, rng=0).values
    k = 3
    other = people.copy()
    outside = np.setdiff1d(np.arange(N), pool.rows(k))
    other.loc[outside, ["age", "income", "visits"]] = 7.0
    other.loc[outside[::3], "income"] = np.nan
    other.loc[outside, "sex"] = np.where(outside % 2, "f", "m")
    other.loc[outside[::2], "region"] = None
    again = statistic.prepare(coerce_data(other))
    alone = again.evaluate(coerce_data(other).take(pool.rows(k)), np.random.default_rng(0))
    scaled = 1.0 if statistic.totals is None else 1 / pool.share  # to all records
    assert np.allclose(np.ravel(alone) * scaled, values[k], rtol=1e-7, atol=1e-9)


@pytest.mark.claim("M-4")
@pytest.mark.parametrize("statistic", ALL, ids=lambda s: f"{s.kind}-{s.missing}")
def test_all_at_once_is_one_by_one(statistic: Any, people: pd.DataFrame) -> None:
    data = coerce_data(people)
    units = np.repeat(np.arange(N // 2), 2)
    pool = Balanced(n_subsets=6).draw(N, rng=2, units=units)
    prepared = statistic.prepare(data)
    batch = prepared.batch
    assert (batch is None) == (
        statistic.missing == "mean" or statistic.kind in ("logistic", "poisson")
    )
    if batch is None:
        return
    values = batch(data, pool)
    for k in range(6):
        one = prepared.evaluate(data.take(pool.rows(k)), np.random.default_rng(0))
        assert np.allclose(np.ravel(one), values[k], rtol=1e-9)


def test_a_mean_filled_from_everybody_would_be_seen(people: pd.DataFrame) -> None:
    """The planted mistake: gaps filled before the candidates are drawn give other numbers."""
    pool = Balanced(n_subsets=8).draw(N, rng=1)
    statistic = stats.variance("income", missing="mean")
    honest = run_mechanism(statistic, people, pool, rng=0).values
    filled = people.assign(income=people.income.fillna(people.income.mean()))
    planted = run_mechanism(statistic, filled, pool, rng=0).values
    assert np.abs(honest / planted - 1).max() > 1e-6


def test_levels_do_not_follow_the_candidate(people: pd.DataFrame) -> None:
    """A level that is missing from some candidate keeps its place; its count there is 0."""
    rare = people.assign(region=["rare", "rare", *people.region[2:]])
    pool = Balanced(n_subsets=16).draw(N, rng=5)
    found = run_mechanism(stats.count("region"), rare, pool, rng=0)
    assert found.values.shape == (16, 4)
    assert 0 in found.values[:, 2]
    with pytest.raises(MechanismError, match=r"in 1 of 4 cells: 'income / rare'.*fill=0"):
        run_mechanism(stats.mean("income", by="region"), rare, pool, rng=0)
    filled = run_mechanism(stats.mean("income", by="region", fill=0), rare, pool, rng=0)
    assert (filled.values[:, 2] == 0).any()
    declared = stats.mean("income", by="region", levels={"region": ["north", "south"]})
    assert run_mechanism(declared, rare, pool, rng=0).values.shape == (16, 2)

    def own_levels(frame: pd.DataFrame) -> dict[str, float]:
        return frame.groupby("region").income.mean().to_dict()

    with pytest.raises(MechanismError, match="subset"):
        run_mechanism(own_levels, rare, pool, rng=0)


def test_what_was_measured_and_declared_is_said(people: pd.DataFrame) -> None:
    data = coerce_data(people)
    measured = stats.mean("income", by="region").prepare(data)
    assert measured.published == ("levels of 'region': those that occur in the table",)
    declared = stats.mean("income", by="region", levels={"region": ["north"]}).prepare(data)
    assert declared.published == ()
    assert "levels of 'region': declared by the curator" in declared.public
    assert measured.name == "mean of income by region"
    assert stats.sum("income").totals == "sum"
    assert stats.count().totals == "count"


def test_a_release_has_names(people: pd.DataFrame) -> None:
    statistic = stats.mean(["age"], by="sex")
    release = pac.privatize(statistic, people, pac.Membership(0.7), n_subsets=64, rng=0)
    assert set(release.value) == {"f", "m"}


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: stats.mean("x", missing="guess"), "missing must be one of drop, mean"),
        (lambda: stats.median("x", weights="w"), "weights must be left out for quantiles"),
        (lambda: stats.quantiles("x", q=[2]), "between 0 and 1"),
        (lambda: stats.mean("x", group="y"), "got group. Check the spelling"),
        (lambda: stats.mean("x", where="import os"), "where must be a condition"),
        (lambda: stats.mean("x", where="__import__('os')"), "where must be a condition"),
        (lambda: stats.mean("x", where="x.y > 3"), "where must be a condition"),
    ],
)
def test_wrong_options(make: Any, message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        make()


@pytest.mark.parametrize(
    ("statistic", "message"),
    [
        (stats.mean("salary"), "column 'salary' must be in the table; got 'region', 'sex'"),
        (stats.mean(["name", "note", "age"]), "got ids in 'name', 'note'"),
        (stats.mean("age", missing="error", by="region"), "missing values; got some in 'region'"),
        (stats.ols("part", ["age"], missing="error"), "missing values; got some in 'part'"),
        (stats.mean("age", weights="part", missing="error"), "values; got some in 'part'"),
        (stats.ols("region", ["age"]), "column 'region' must hold numbers; got text"),
        (stats.ols("income", ["age", "twice"]), "must not determine each other"),
        (stats.logistic("region", ["age"]), "must have two levels for logistic; got 3"),
        (stats.logistic("old", ["age"]), "largest likelihood|determine each other"),
        (stats.poisson("below", ["age"]), "must hold counts; got negative"),
        (stats.mean("age", where="age > 'x'"), r"column 'age' \(numbers\) with a number"),
        (stats.mean("age", weights="below"), "weights must be non-negative"),
    ],
)
def test_wrong_columns(statistic: Any, message: str, people: pd.DataFrame) -> None:
    more = people.assign(
        name=[f"n{i}" for i in range(N)],
        note=[f"note {i}" for i in range(N)],
        twice=2 * people.age + 1,
        old=np.where(people.age > 45, "yes", "no"),
        below=-1.0,
        part=np.where(people.index % 7, 1.0 * people.index, np.nan),
    )
    with pytest.raises(MechanismError, match=message):
        on_all(statistic, more)


def test_two_parts_are_refused(people: pd.DataFrame) -> None:
    parts = (people, np.arange(N))
    with pytest.raises(MechanismError, match="must be given one table; got 2 parts"):
        stats.mean("age").prepare(Data(parts=parts, n_rows=N, single=False))


def test_conditions() -> None:
    places = np.array(["Rome", None, "Oslo"], dtype=object)
    columns = {
        "age": ComparedColumn(kind="number", entries=np.array([10.0, 20.0, np.nan])),
        "place of birth": ComparedColumn(kind="text", entries=places),
    }
    rows = [
        ("age >= 18", [False, True, False]),
        ("10 < age < 30", [False, True, False]),
        ("not age >= 18", [True, False, False]),
        ("age = 10 or age == 20", [True, True, False]),
        ("`place of birth` != 'Rome'", [False, False, True]),
        ("`place of birth` not in ('Rome', 'Bern')", [False, False, True]),
        ("`place of birth` in ('a=b', '`', 'Rome')", [True, False, False]),
    ]
    for text, expected in rows:
        Condition(text).check(columns)
        assert Condition(text).rows(columns).tolist() == expected, text
    refused = {  # each of these took the wrong rows in silence, or ended in a traceback
        "with a text": ["`place of birth` > 18", "`place of birth` == True"],
        "columns of one kind": ["`place of birth` < age", "age == `place of birth`"],
        "by == or in": ["`place of birth` >= 'P'"],
        "must be a condition on columns": [
            *("age in 5", "`place of birth` in 'Rome'", "'Rome' in `place of birth`"),
            *("age == (10, 20)", "(10, 20) < age", "_quoted_5 > 3", "not " * 3000 + "age > 1"),
        ],
    }
    for message, texts in refused.items():
        for text in texts:
            with pytest.raises(MechanismError, match=message):
                Condition(text).check(columns)


def test_rows_of_several_tables_are_joined_before() -> None:
    visits = pd.DataFrame({"person": np.arange(400) // 2, "cost": np.arange(400.0)})
    people = pd.DataFrame({"person": np.arange(200), "region": ["n", "s"] * 100})
    tables = pac.Tables({"visits": visits, "people": people}, unit="people.person")
    with pytest.raises(MechanismError, match="Join the tables before"):
        pac.privatize(pac.stats.mean("cost"), tables, "membership<=0.6")
    costs = pac.stats.mean("cost", by="region")
    joined = pac.privatize(costs, visits.merge(people), "membership<=0.6", units="person")
    assert joined.certificate.n_units == 200


@pytest.mark.parametrize("sample", [pac.Coins(), pac.Balanced(n_subsets=16)])
@pytest.mark.parametrize("name", ["ols", "ridge", "logistic", "poisson"])
def test_regressions_have_no_groups(name: str, sample: Any) -> None:
    """Refused before anything is drawn: coefficients of groups have no names to be put on."""
    table = pd.DataFrame(
        {"x": np.arange(400.0), "y": [0, 1] * 200, "g": ["a", "a", "b", "b"] * 100}
    )
    statistic = getattr(stats, name)("y", "x", by="g")
    with pytest.raises(MechanismError, match="must have no groups"):
        pac.privatize(statistic, table, "membership<=0.6", sample=sample)
