"""Queries with coins: what units add, what is refused and what would do instead, gaps and dates."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy.errors import MechanismError, PacPrivacyError, QueryError
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import plan_sums
from pacprivacy.queries import QuerySums, make_query_mechanism
from pacprivacy.session import QueryRelease
from tests.query_fuzzing import run_sums

N = 600
JOIN = "FROM visits v JOIN people p ON v.person = p.id"
MEMBERSHIP = "membership<=0.7"


def clinic_frames() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    n = 3 * N
    visits = pd.DataFrame(
        {
            "person": rng.integers(0, N, n),
            "cost": rng.gamma(9, 5, n).round(2),
            "kind": rng.choice(["a", "b"], n),
            "day": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 60, n), "D"),
            "large": rng.integers(2**61, 2**62, n),
        }
    )
    visits.loc[::17, "cost"] = np.nan
    people = pd.DataFrame({"id": range(N), "region": np.where(np.arange(N) % 3, "n", "s")})
    prices = pd.DataFrame({"kind": ["a", "b"], "price": [1.5, 2.5]})
    return {"people": people, "visits": visits, "prices": prices}


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return clinic_frames()


@pytest.fixture(scope="module")
def clinic(frames: dict[str, pd.DataFrame]) -> pac.Tables:
    return pac.Tables(frames, unit="people.id", via={"visits": "person"})


def sums_of(text: str, clinic: pac.Tables, **options: Any) -> QuerySums:
    query = make_query_mechanism(text, clinic, kind=QuerySums, **options)
    prepared = query.prepare(coerce_data(clinic))
    assert isinstance(prepared, QuerySums)
    return prepared


def values_on_all(text: str, clinic: pac.Tables, **options: Any) -> Any:
    query, data = sums_of(text, clinic, **options), coerce_data(clinic)
    return query.shaped(query.value(query.contributions(data).total()), data)


def ask(text: str, clinic: pac.Tables, **options: Any) -> QueryRelease:
    settings: dict[str, Any] = {"sample": pac.Coins(), "rng": 0, "simulate": True} | options
    return pac.sql(text, clinic, MEMBERSHIP, **settings)


# --- what units add -------------------------------------------------------------------------


@pytest.mark.claim("Q-5")
@pytest.mark.parametrize("seed", range(5))
def test_units_add_what_the_query_says_of_their_rows_alone(seed: int) -> None:
    outcomes = run_sums(seed, 60)
    assert not [outcome for outcome in outcomes if outcome.wrong]
    assert sum(outcome.kind == "answered" for outcome in outcomes) > 10


@pytest.mark.claim("Q-5")
def test_a_unit_in_several_groups_adds_to_each(
    clinic: pac.Tables, frames: dict[str, pd.DataFrame]
) -> None:
    text = "SELECT kind, count(*) AS n, sum(cost) AS s FROM visits GROUP BY ROLLUP (kind)"
    query = sums_of(text, clinic, keys={"kind": ["a", "b"]})
    added = query.contributions(coerce_data(clinic))
    cells = [cell[0] for cell in query.cells or ()]
    own = frames["visits"][frames["visits"].person == 7]
    for place, cell in enumerate(cells):
        entries = slice(added.starts[place], added.starts[place + 1])
        (entry,) = np.flatnonzero(added.entry_units[entries] == 7)
        rows = own if cell is None else own[own.kind == cell]
        assert added.values[entries][entry] == pytest.approx([len(rows), rows.cost.sum()])
    plan = plan_sums(added, success=0.6, keep=0.9, slopes=query.output_slopes(added))
    alone = [np.flatnonzero(added.entry_units == 7)]
    assert len(alone[0]) == 3  # and the squares of what it changes in each add up
    assert plan.charges.max() <= plan.parameter


def test_numbers_are_those_of_the_query_on_all_records(
    clinic: pac.Tables, frames: dict[str, pd.DataFrame]
) -> None:
    text = f"""SELECT region, count(*) AS n, count(cost) AS c, avg(cost) AS a, stddev(cost) AS s,
        corr(cost, epoch(day)) AS r, sum(cost) FILTER (WHERE kind = 'a') / sum(cost) AS share,
        avg(CASE WHEN kind = 'b' THEN cost END) - avg(cost) AS d, count(DISTINCT person) AS u,
        sum(cost) / (SELECT sum(price) FROM prices) AS p, round(avg(cost), 1) AS o,
        regr_slope(cost, epoch(day)) AS g {JOIN} GROUP BY region"""
    values = values_on_all(text, clinic, keys={"region": ["n", "s"]})
    whole = frames["visits"].merge(frames["people"], left_on="person", right_on="id")
    for region, rows in whole.groupby("region"):
        cost, seconds = rows.cost, rows.day.map(pd.Timestamp.timestamp)
        filled, first = rows.dropna(subset="cost"), rows[rows.kind == "a"].cost
        slope = np.polyfit(seconds[filled.index], filled.cost, 1)[0]
        expected = {
            "n": len(rows), "c": cost.count(), "a": cost.mean(), "s": cost.std(),
            "r": cost.corr(seconds), "share": first.sum() / cost.sum(),
            "d": rows[rows.kind == "b"].cost.mean() - cost.mean(),
            "u": rows.person.nunique(), "p": cost.sum() / 4.0, "o": round(cost.mean(), 1),
            "g": slope,
        }  # fmt: skip
        for name, number in expected.items():
            assert values[name][region] == pytest.approx(number, rel=1e-6), name


def test_dates_gaps_and_large_whole_numbers(
    clinic: pac.Tables, frames: dict[str, pd.DataFrame]
) -> None:
    text = (
        "SELECT month(day) AS m, count(cost) AS n, avg(large) AS a, sum(large) AS s "
        "FROM visits WHERE day < DATE '2024-02-20' GROUP BY m"
    )
    values = values_on_all(text, clinic, keys={"m": [1, 2]})
    visits = frames["visits"]
    rows = visits[(visits.day < "2024-02-20") & (visits.day.dt.month == 2)]
    assert values["n"]["2"] == rows.cost.count()
    assert values["a"]["2"] == pytest.approx(rows.large.astype(float).mean(), rel=1e-12)
    assert values["s"]["2"] == pytest.approx(sum(map(int, rows.large)), rel=1e-12)  # above 2^63


def test_a_group_without_rows_is_zero_or_what_was_declared(clinic: pac.Tables) -> None:
    keys = {"kind": ["a", "z"]}
    counts = "SELECT kind, count(*) AS n, sum(cost) AS s FROM visits GROUP BY kind"
    released = ask(counts, clinic, keys=keys)
    for name in ("n", "s"):  # about zero: that nobody is there does not show
        assert abs(released.value[name]["z"]) < 8 * released.noise_std[name]["z"]
    means = "SELECT kind, avg(cost) AS a FROM visits GROUP BY kind"
    with pytest.raises(MechanismError, match="fill=0"):
        ask(means, clinic, keys=keys)
    assert ask(means, clinic, keys=keys, fill=-5).value["a"]["z"] == -5.0


@pytest.mark.parametrize(
    "number",
    ["sqrt(count(*) - 1000000)", "ln(sum(cost) - 1e9)", "CAST(sum(cost) - 1e9 AS UTINYINT)",
     "1 / (count(*) - count(*))"],
)  # fmt: skip
def test_what_has_no_value_is_refused_or_filled_and_shows_none(
    number: str, clinic: pac.Tables
) -> None:
    with pytest.raises(PacPrivacyError) as failed:
        ask(f"SELECT {number} AS x FROM visits", clinic)
    assert "fill" in str(failed.value)
    assert "visits" not in str(failed.value)
    assert ask(f"SELECT {number} AS x FROM visits", clinic, fill=7).value["x"] == 7.0


def test_a_small_divisor_is_no_divisor(clinic: pac.Tables) -> None:
    text = "SELECT sum(cost) FILTER (WHERE person < 15) / count(*) FILTER (WHERE person < 15) AS a"
    with pytest.raises(MechanismError, match="large enough"):
        ask(f"{text} FROM visits", clinic)


# --- quantiles ------------------------------------------------------------------------------

QUANTILES = (
    "SELECT kind, median(cost) AS m, quantile_cont(cost, 0.9) AS h, "
    "median(cost) FILTER (WHERE person > 99) - avg(cost) AS d FROM visits GROUP BY kind"
)
KINDS: dict[str, Any] = {"keys": {"kind": ["a", "b"]}}


@pytest.mark.claim("Q-7")
def test_quantiles_are_read_off_counts(clinic: pac.Tables, frames: dict[str, pd.DataFrame]) -> None:
    query = sums_of(QUANTILES, clinic, **KINDS)
    added = query.contributions(coerce_data(clinic))
    assert query.sums is not None
    visits = frames["visits"]
    for quantile, rows in zip(query.sums.quantiles, (visits, visits, visits[visits.person > 99]),
                              strict=True):  # fmt: skip
        points = np.array([-np.inf, *quantile.grid[1:-1], np.inf])
        for cell, kind in enumerate("ab"):
            for person in (7, 300):
                own = rows[(rows.kind == kind) & (rows.person == person)].cost.dropna()
                mine = added.total(np.arange(N) == person).values[cell]
                np.testing.assert_array_equal(
                    mine[list(quantile.bins)], np.histogram(own, points)[0]
                )
                assert mine[quantile.number] == len(own)
    value = query.shaped(query.value(added.total()), coerce_data(clinic))
    exact = visits.groupby("kind").cost.agg(m="median", h=lambda x: x.quantile(0.9))
    for name in ("m", "h"):
        for kind in "ab":
            assert value[name][kind] == pytest.approx(exact[name][kind], abs=0.3)


@pytest.mark.claim("Q-7")
def test_intervals_of_quantiles_cover(clinic: pac.Tables, frames: dict[str, pd.DataFrame]) -> None:
    exact = frames["visits"].groupby("kind").cost.median()
    hits = []
    for seed in range(40):
        release = ask("SELECT kind, median(cost) AS m FROM visits GROUP BY kind", clinic, rng=seed,
                      **KINDS)  # fmt: skip
        frame = release.frame.set_index("kind")
        hits += [frame["m low"][k] <= exact[k] <= frame["m high"][k] for k in "ab"]
        assert (frame["m noise"] < 1.0).all()  # of 15, the deviation of the column
    assert np.mean(hits) >= 0.85


@pytest.mark.claim("Q-7")
def test_declared_edges_are_no_fact_of_records(clinic: pac.Tables) -> None:
    edges = {"m": range(0, 150, 5), "h": range(0, 150, 5), "d": range(0, 150, 5)}
    for given, published in ((None, True), (edges, False)):
        made = ask(QUANTILES, clinic, edges=given, **KINDS)
        assert any("median" in line for line in made.certificate.published) is published
    for wrong, words in (({"x": [1, 2, 3]}, "'x'"), ({"m": [3, 2, 1]}, "in order")):
        with pytest.raises(QueryError, match=words):
            ask(QUANTILES, clinic, edges=wrong, **KINDS)
    with pac.Session(clinic, budget=MEMBERSHIP) as session:
        released = session.sql(QUANTILES, share=0.5, edges=edges, **KINDS)
    assert set(released.value) == {"m", "h", "d"}


@pytest.mark.claim("Q-4")
def test_words_are_checked_without_a_row(
    clinic: pac.Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = make_query_mechanism(
        QUANTILES.replace("avg", "stddev"), clinic, kind=QuerySums, **KINDS
    )
    assert isinstance(query, QuerySums)
    monkeypatch.delattr(pac.Tables, "ask")
    query.check_words()
    with pytest.raises(AttributeError):
        query.prepare(coerce_data(clinic))


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("min(cost)", "FILTER (WHERE x < limit)"),
        ("max(cost)", "FILTER (WHERE x > limit)"),
        ("quantile_disc(cost, 0.5)", "Use median or quantile_cont"),
        ("count(DISTINCT kind)", "GROUP BY the column"),
        ("skewness(cost)", "Write it with count, sum, avg"),
        ("count(*) FILTER (WHERE cost > (SELECT avg(cost) FROM visits))", "Join the table"),
    ],
)
def test_what_is_no_sum_is_refused_with_what_would_do(
    number: str, words: str, clinic: pac.Tables
) -> None:
    text = f"SELECT {number} AS x FROM visits"
    with pytest.raises(QueryError) as refused:
        ask(text, clinic)
    assert words in str(refused.value)
    assert "pool" in str(refused.value)
    assert "function of sums over units" in str(refused.value)
    made = pac.sql(text, clinic, MEMBERSHIP, n_subsets=16, rng=0, simulate=True)  # from a pool
    assert made.certificate.kind == "exact"
    assert not hasattr(made.certificate, "keep")


def test_rows_of_two_people_are_refused(clinic: pac.Tables) -> None:
    text = "SELECT count(*) AS n FROM visits v JOIN visits w ON v.day = w.day"
    with pytest.raises(QueryError, match="two units"):
        ask(text, clinic)


# --- which secret ---------------------------------------------------------------------------


def test_coins_are_the_default_where_they_serve(
    clinic: pac.Tables, frames: dict[str, pd.DataFrame]
) -> None:
    text, budget = "SELECT count(*) AS n FROM visits", "membership<=0.7"
    simulated: dict[str, Any] = {"rng": 0, "simulate": True}
    few = {name: frame.copy() for name, frame in frames.items()}
    few["people"] = few["people"][:199]
    few["visits"] = few["visits"][few["visits"].person < 199]
    small = pac.Tables(few, unit="people.id", via={"visits": "person"})
    kinds = {
        "coins": pac.sql(text, clinic, budget, **simulated),
        "largest": pac.sql("SELECT max(cost) AS n FROM visits", clinic, budget, n_subsets=16,
                           **simulated),
        "few": pac.sql(text, small, budget, **simulated),
        "nats": pac.sql(text, clinic, "mi<=0.1", **simulated),
        "asked": pac.sql(text, clinic, budget, n_subsets=64, **simulated),
    }  # fmt: skip
    with_coins = {name: hasattr(made.certificate, "keep") for name, made in kinds.items()}
    assert [name for name, coins in with_coins.items() if coins] == ["coins"]
    assert kinds["coins"].certificate.unit == "person"
    reasons = {
        "largest": "the query is no function of sums over units (max is no function of sums",
        "few": "the table has fewer than 200 p",
        "nats": "the budget is not about membership alone",
        "asked": "n_subsets was set",
    }
    for name, reason in reasons.items():
        assert f"because {reason}" in " ".join(
            str(kinds[name].certificate.to_public_dict()).split()
        )
