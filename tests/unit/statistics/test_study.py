"""Several statistics as one vector of sums: values, margins, noise, and who might be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy import stats
from pacprivacy._random import secret_source
from pacprivacy.adversary import influence_parameter, influence_success
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import plan_sums
from pacprivacy.session.coin_release import SumReleasePlan
from pacprivacy.statistics import Study, Sums, round_to_base

N = 3000
BUDGET = "membership<=0.6"


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {
            "region": rng.choice(list("abc"), N, p=[0.6, 0.3, 0.1]),
            "sex": rng.choice(["f", "m"], N),
            "age": rng.integers(18, 90, N),
            "hours": rng.normal(40, 10, N),
            "cases": rng.binomial(1, 0.2, N),
            "years": rng.uniform(0.5, 1.5, N),
        }
    )
    table["pay"] = 900 + 12 * table["age"] + 200 * (table["sex"] == "m") + rng.gamma(4, 100, N)
    return table


STATISTICS: dict[str, Any] = {
    "pay": stats.mean("pay", by="region"),
    "table": stats.official(stats.crosstab("region", "sex"), margins=True, base=1),
    "median": stats.median("pay", by="sex"),
    "line": stats.ols("pay", ["age", "sex"]),
    "rate": stats.rate("cases", "years", per=1000, by="region"),
    "ages": stats.histogram("age", bins=[18, 40, 65, 90]),
    "spread": stats.variance("hours"),
}


def planned(
    study: Study, table: pd.DataFrame, success: float = 0.6, **options: Any
) -> tuple[Study, Any, Any]:
    data = coerce_data(table)
    prepared = study.prepare(data)
    sums = prepared.contributions(data)
    slopes = prepared.output_slopes(sums)
    return prepared, sums, plan_sums(sums, success=success, keep=0.95, slopes=slopes, **options)


def distances(sums: Any, plan: Any, shrink: float = 1.0) -> npt.NDArray[np.float64]:
    """Return how far every unit moves the sums in deviations of the noise, by linear algebra."""
    covariance = plan.lattice.covariances[0] * shrink**2
    values, vectors = np.linalg.eigh(covariance)
    real = values > 1e-13 * values.max()
    moved = plan.factors[:, None] * sums.values @ vectors
    assert np.abs(moved[:, ~real]).max(initial=0.0) < 1e-5 * np.abs(moved).max()
    return np.linalg.norm(moved[:, real] / np.sqrt(values[real]), axis=1)


@pytest.mark.claim("C-31")
def test_no_unit_shows_in_all_tables_together(people: pd.DataFrame) -> None:
    """Halved noise, and tables planned apart, are caught."""
    allowed = influence_parameter(0.6)
    _, sums, plan = planned(Study(STATISTICS), people)
    largest = distances(sums, plan).max()
    assert 0.8 * allowed < largest <= allowed * (1 + 1e-6)
    assert distances(sums, plan, shrink=0.5).max() > 1.5 * allowed
    apart = np.zeros(N)
    for each in STATISTICS.values():
        _, own, own_plan = planned(Study({"x": each}), people)
        apart += np.square(distances(own, own_plan))
    assert np.sqrt(apart.max()) > 1.5 * allowed


@pytest.mark.claim("C-31")
def test_values_are_functions_of_sums_alone(people: pd.DataFrame) -> None:
    """Another sample with equal sums has equal values: here, the rows in another order."""
    data = coerce_data(people)
    study = Study(STATISTICS).prepare(data)
    sums = study.contributions(data).total()
    other = coerce_data(people.sample(frac=1, random_state=1))
    again = study.contributions(other).total()
    np.testing.assert_allclose(study.value(again), study.value(sums), rtol=1e-9)


def test_numbers_are_those_of_all_records_without_noise(people: pd.DataFrame) -> None:
    data = coerce_data(people)
    study = Study(STATISTICS).prepare(data)
    value = study.finish(study.value(study.contributions(data).total()))
    assert value["pay"] == pytest.approx(people.groupby("region")["pay"].mean().to_dict())
    table = pd.crosstab(people["region"], people["sex"], margins=True, margins_name="total")
    assert value["table"] == table.T.to_dict()
    line = np.linalg.lstsq(
        np.column_stack([np.ones(N), people["age"], people["sex"] == "m"]),
        people["pay"],
        rcond=None,
    )[0]
    assert list(value["line"].values()) == pytest.approx(line.tolist())
    cases = people.groupby("region")[["cases", "years"]].sum()
    assert value["rate"] == pytest.approx((1000 * cases["cases"] / cases["years"]).to_dict())
    assert list(value["ages"].values()) == np.histogram(people["age"], [18, 40, 65, 90])[0].tolist()
    assert value["spread"]["hours"] == pytest.approx(people["hours"].var())
    medians = people.groupby("sex")["pay"].median()
    for sex, each in value["median"].items():
        assert abs(each["0.5"] if isinstance(each, dict) else each - medians[sex]) < 0.05 * 300


@pytest.mark.claim("C-33")
def test_derivatives_are_those_by_differences(people: pd.DataFrame) -> None:
    data = coerce_data(people)
    ratios = stats.official(
        stats.rate("cases", "years", by=["sex", "region"]),
        standard={"region": {"a": 0.2, "b": 0.3, "c": 0.5}},
        compare=("sex", "f"),
        how="ratio",
    )
    smooth = {name: each for name, each in STATISTICS.items() if name != "median"}
    study = Study({**smooth, "ratio": ratios}).prepare(data)
    sums = study.contributions(data).total()
    slopes, rng = study.jacobian(sums)[0], np.random.default_rng(0)
    step = 1e-6 * np.abs(sums.values) * rng.normal(size=sums.values.shape)
    ahead, behind = (
        study.value(Sums(values=sums.values + sign * step, centre=sums.centre)) for sign in (1, -1)
    )
    expected = (ahead - behind) / 2
    np.testing.assert_allclose((slopes @ step[0]), expected, rtol=1e-4, atol=1e-6)


def test_one_release_has_all_tables_with_intervals(people: pd.DataFrame) -> None:
    release = pac.privatize(pac.Study(STATISTICS), people, BUDGET, rng=0, simulate=True)
    assert set(release.value) == set(STATISTICS)
    table = release.value["table"]
    for column in ("f", "m", "total"):
        cells = [table[region][column] for region in "abc"]
        assert sum(cells) == table["total"][column]  # to the last digit
    assert all(float(v).is_integer() for row in table.values() for v in row.values())
    assert (release.to_frame()["standard_error"] > 0).all()
    assert "how noise is shared out among tables" in release.certificate.published


def test_shared_sums_leave_once(people: pd.DataFrame) -> None:
    """Two tables of which one follows from the other agree after noise."""
    study = pac.Study(
        {
            "by region": stats.count(by="region"),
            "by both": stats.crosstab("region", "sex"),
        }
    )
    value = pac.privatize(study, people, BUDGET, rng=0, simulate=True).value
    for region, count in value["by region"].items():
        assert sum(value["by both"][region].values()) == pytest.approx(count, abs=1e-6)


def test_importance_moves_noise(people: pd.DataFrame) -> None:
    pair = {"a": stats.count(by="region"), "b": stats.count(by="sex")}
    deviations = {}
    for size in (1.0, 16.0):
        study, sums, plan = planned(Study(pair, importance={"a": size}), people)
        deviations[size] = np.sqrt(plan.noise_variances(study.jacobian(sums.total())))[0]
    gain = deviations[1.0] / deviations[16.0]
    assert gain[:3].min() > 1.1 > 1.0 > gain[3:].max()


def test_tables_of_counts_do_not_pay_for_far_units_of_means() -> None:
    """Each table has less noise than a release of its share of the budget.

    Weighed by the noise that hides an average unit, the counts would have up to 1.9 times as much.
    """
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.lognormal(0, 1.5, (4000, 5)), columns=list("abcde"))
    table["age"] = rng.integers(0, 60, 4000)
    tables: dict[str, Any] = {name: stats.mean(name) for name in "abcde"}
    tables["ages"] = stats.histogram("age", bins=[0, 20, 40, 60])
    study, sums, plan = planned(Study(tables), table)
    joint = np.sqrt(plan.noise_variances(study.jacobian(sums.total())))[0]
    share = influence_success(influence_parameter(0.6) / np.sqrt(len(tables)))
    alone = []
    for each in tables.values():
        single, own, own_plan = planned(Study({"x": each}), table, success=share)
        alone.append(np.sqrt(own_plan.noise_variances(single.jacobian(own.total())))[0])
    assert (joint < 1.02 * np.concatenate(alone)).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (({},), "statistics must be"),
        (({"x": np.mean},), "a study must be of statistics"),
        (({"x": stats.logistic("sex")},), "a study must be of statistics"),
    ],
)
def test_refusals(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(MechanismError, match=said):
        Study(*arguments)


def test_small_tables_and_pools_are_refused(people: pd.DataFrame) -> None:
    with pytest.raises(MechanismError, match="a coin for every unit"):
        pac.privatize(pac.Study({"a": stats.mean("age")}), people[:150], BUDGET)


@pytest.mark.claim("C-33")
def test_margins_are_narrower_than_by_least_squares(people: pd.DataFrame) -> None:
    """Beside four tables at a quarter of the budget each, made to agree by least squares."""
    crosstab = stats.crosstab("region", "sex")
    study, sums, plan = planned(Study({"x": stats.official(crosstab, margins=True)}), people)
    ours = np.sqrt(plan.noise_variances(study.jacobian(sums.total())))[0]
    _, _, alone = planned(Study({"x": crosstab}), people)
    adds_up = study.jacobian(sums.total())[0]  # of cells to figures: zeros and ones
    assert set(np.unique(adds_up)) == {0.0, 1.0}
    of_cells = np.sqrt(np.einsum("kb,bd,kd->k", adds_up, alone.lattice.covariances[0], adds_up))
    cells = adds_up.sum(axis=1) == 1
    assert (ours[~cells] < 1.02 * of_cells[~cells]).all()  # sums of the cells of a plain table
    assert ours[-1] < 0.9 * of_cells[-1]
    quarter = 2.0 * of_cells[cells].mean()
    projection = adds_up @ np.linalg.inv(adds_up.T @ adds_up) @ adds_up.T
    by_least_squares = quarter * np.sqrt(np.diag(projection))
    assert np.square(ours).sum() < np.square(by_least_squares).sum()
    assert (ours[cells] < by_least_squares[cells]).all()


def test_rounded_tables_add_up_and_stay_near() -> None:
    rng = np.random.default_rng(0)
    for shape in ((3, 4), (7, 2), (1, 5)):
        cells = rng.uniform(-2, 30, (1, *shape))
        table = np.concatenate([cells, cells.sum(1, keepdims=True)], 1)
        table = np.concatenate([table, table.sum(2, keepdims=True)], 2)
        rounded = round_to_base(table, 5.0, margins=True)
        assert (np.abs(rounded - table) < 5.0 + 1e-9).all()
        assert (rounded % 5 == 0).all()
        np.testing.assert_array_equal(rounded[:, :-1].sum(1), rounded[:, -1])
        np.testing.assert_array_equal(rounded[:, :, :-1].sum(2), rounded[:, :, -1])


# Births and cases of Down's syndrome in Michigan by age of the mother and birth order: Fleiss,
# Statistical Methods for Rates and Proportions (1981), table 14.4. Rates for 100,000 births of all
# orders: R's epitools 0.5, ageadjust.direct; the last also in the vignette of R's dsrTest.
BIRTHS = (
    (230061, 329449, 114920, 39487, 14208, 3052),
    (72202, 326701, 208667, 83228, 28466, 5375),
    (15050, 175702, 207081, 117300, 45026, 8660),
    (2293, 68800, 132424, 98301, 46075, 9834),
    (327, 30666, 123419, 149919, 104088, 34392),
)
CASES = (
    (107, 141, 60, 40, 39, 25),
    (25, 150, 110, 84, 82, 39),
    (3, 71, 114, 103, 108, 75),
    (1, 26, 64, 89, 137, 96),
    (0, 8, 63, 112, 262, 295),
)
STANDARDISED = (92.3045, 91.1741, 85.0692, 92.7179, 75.5290)


@pytest.mark.claim("C-33")
def test_standardised_rates_are_those_of_a_published_example() -> None:
    ages = ("under 20", "20-24", "25-29", "30-34", "35-39", "40 and over")
    order, age = np.indices((5, 6)).reshape(2, -1)
    table = pd.DataFrame(
        {
            "order": np.array(list("12345"))[order],
            "age": np.array(ages)[age],
            "births": np.ravel(BIRTHS).astype(float),
            "cases": np.ravel(CASES).astype(float),
        }
    )
    rate = stats.rate("cases", "births", per=1e5, by=["order", "age"], levels={"age": ages})
    standard = {"age": dict(zip(ages, np.sum(BIRTHS, axis=0), strict=True))}
    data = coerce_data(table)
    study = Study({"x": stats.official(rate, standard=standard)}).prepare(data)
    value = study.value(study.contributions(data).total())
    np.testing.assert_allclose(value, STANDARDISED, atol=5e-5)


@pytest.mark.claim("C-32")
def test_what_the_design_of_a_survey_shows_is_listed(people: pd.DataFrame) -> None:
    table = people.assign(village=np.arange(N) % 40)
    study = pac.Study(stats.mean("hours"), cluster="village")
    release = pac.privatize(study, table, BUDGET, sample=pac.Coins())
    assert release.error_bars is not None
    assert (release.error_bars.freedom == 39).all()
    assert any("degrees of freedom" in text for text in release.certificate.published)


def test_errors_of_tables_show_no_levels_of_the_records(people: pd.DataFrame) -> None:
    table = people.assign(region=people["region"].replace("c", "of_records"))
    counts = stats.count(by="region")
    for worked in (
        stats.official(counts, standard={"region": {"a": 1.0}}),
        stats.official(counts, compare=("region", "z")),
    ):
        with pytest.raises(MechanismError, match="level of") as caught:
            pac.privatize(worked, table, BUDGET)
        assert "of_records" not in str(caught.value)


@pytest.mark.claim("C-31")
def test_intervals_of_rounded_quantiles_reach_the_next_number() -> None:
    rng = np.random.default_rng(2)  # the quantile is at the end of its bin
    people = pd.DataFrame({"age": rng.integers(18, 90, 4000)})
    study = pac.Study({"q": pac.stats.quantiles("age", q=[0.9])})
    plan = pac.plan(study, people, "membership<=0.6", sample=pac.Coins(keep=0.9))
    assert isinstance(plan, SumReleasePlan)
    source, true = secret_source(0, simulate=True), np.quantile(people.age, 0.9)
    values = [
        plan.statistic.value(plan.noise.release(plan.sums, rng.random(4000) < 0.9, source), 0.9)[0]
        for _ in range(200)
    ]
    assert len(set(values)) > 1
    assert np.mean(np.abs(np.array(values) - true) <= 1.96 * plan.error_bars.std_error()[0]) >= 0.95
