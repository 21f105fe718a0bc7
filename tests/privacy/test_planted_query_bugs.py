"""Mistakes of published systems that answer queries, planted one by one, and what catches them.

Noise that cells share, raw values where there is no plan, a budget for each cell that was sold for
the query; and plans that mix worlds.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import NoisePlan, calibrate
from pacprivacy.queries import QuerySums, make_query_mechanism
from pacprivacy.queries.tree import number
from pacprivacy.sample import Balanced, Pool
from pacprivacy.simulation import run_mechanism
from tests.privacy.test_planted_bugs import SUCCESS, M, attack, attack_plan

Array = npt.NDArray[np.float64]
MECHANISM = importlib.import_module("pacprivacy.queries.query_mechanism")
PLANTED = importlib.import_module("tests.privacy.test_planted_bugs")
N, KINDS = 12, ["a", "b", "c", "d"]
TEXT = "SELECT kind, median(x) AS x FROM visits GROUP BY kind"


@pytest.fixture(scope="module", autouse=True)
def few_releases() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PLANTED, "N_RELEASES", 1200)
        yield


@pytest.fixture(scope="module")
def tables() -> pac.Tables:
    rng = np.random.default_rng(0)
    visits = pd.DataFrame(
        {
            "person": np.repeat(np.arange(N), 4),
            "kind": KINDS * N,
            "x": rng.normal(size=4 * N),
            "doctor": np.tile(np.arange(N), 4),
        }
    )
    people = pd.DataFrame({"id": range(N)})
    return pac.Tables(
        {"people": people, "visits": visits}, unit="people.id", via={"visits": "person"}
    )


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Balanced(n_subsets=M).draw(N, rng=1)


@pytest.fixture(scope="module")
def outputs(tables: pac.Tables, pool: Pool) -> Array:
    asked = make_query_mechanism(TEXT, tables, keys={"kind": KINDS})
    return run_mechanism(asked, tables, pool, rng=0).values


@pytest.fixture(scope="module")
def plan(outputs: Array, pool: Pool) -> NoisePlan:
    return calibrate(outputs, pac.Membership(SUCCESS), pool=pool, rng=2)


def is_held(sample: Callable[..., Any], likelihood: Callable[..., Array], pool: Pool) -> bool:
    return attack(sample, likelihood, pool) <= SUCCESS


@pytest.mark.claim("Q-2", "R-2")
def test_all_cells_together_withstand_the_attack(plan: NoisePlan, pool: Pool) -> None:
    assert attack_plan(plan, pool) <= SUCCESS


@pytest.mark.claim("Q-2")
def test_noise_that_cells_share_is_caught(plan: NoisePlan, pool: Pool, outputs: Array) -> None:
    """As large as the real noise of every cell, but one draw: differences of cells are exact."""
    spread = float(np.sqrt(plan.total_variance))

    def sample(secret: int, source: SimulatedSource) -> Array:
        noise = plan.value_of(plan.observe(secret, source))[0] - outputs[secret, 0]
        return outputs[secret] + spread * np.sign(noise) + noise

    def likelihood(seen: Array) -> Array:
        same = np.abs(np.diff(outputs, axis=1) - np.diff(seen)).max(axis=1) < 1e-9
        return np.where(same, 0.0, -np.inf)

    assert not is_held(sample, likelihood, pool)


@pytest.mark.claim("Q-2")
def test_a_budget_for_each_cell_is_caught(pool: Pool, outputs: Array) -> None:
    """Each cell alone keeps to what was sold; all of them together do not."""
    alone = [
        calibrate(outputs[:, [j]], pac.Membership(SUCCESS), pool=pool, rng=3)
        for j in range(len(KINDS))
    ]
    assert all(attack_plan(one, pool) <= SUCCESS for one in alone[:1])

    def sample(secret: int, source: SimulatedSource) -> list[Any]:
        return [one.observe(secret, source) for one in alone]

    def likelihood(seen: list[Any]) -> Array:
        pairs = zip(alone, seen, strict=True)
        return np.asarray(sum(one.log_likelihood(each) for one, each in pairs))

    assert not is_held(sample, likelihood, pool)


def leaves_raw(tables: pac.Tables, pool: Pool, worlds: Array) -> bool:
    """Whether a released cell is exactly that of a candidate, where candidates differ."""
    found = pac.sql(TEXT, tables, pac.Membership(SUCCESS), keys={"kind": KINDS}, sample=pool)
    numbers = np.array(list(found.value["x"].values()))
    raw = np.isclose(worlds, numbers, rtol=1e-12, atol=0)
    return bool((raw & (np.ptp(worlds, axis=0) > 0)).any())


@pytest.mark.claim("R-2")
def test_a_raw_value_in_a_cell_is_caught(
    tables: pac.Tables, pool: Pool, outputs: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not leaves_raw(tables, pool, outputs)
    real = NoisePlan.value_of

    def falls_back(self: NoisePlan, observation: Any) -> Array:
        values = real(self, observation).copy()
        assert self.outputs is not None  # as they were calibrated
        values[-1] = self.outputs[3, -1]
        return values

    monkeypatch.setattr(NoisePlan, "value_of", falls_back)
    assert leaves_raw(tables, pool, outputs)


@pytest.mark.claim("Q-5")
def test_a_row_of_two_people_taken_for_ones_is_caught(
    tables: pac.Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one person adds would depend on who else is there."""
    pairs = "SELECT count(*) AS n FROM visits a JOIN visits b ON a.doctor = b.person"
    monkeypatch.setattr(MECHANISM, "_why_not", lambda sums, tables: "")
    query = make_query_mechanism(pairs, tables, kind=QuerySums).prepare(coerce_data(tables))
    assert isinstance(query, QuerySums)
    added = query.contributions(coerce_data(tables))
    everybody, without = np.ones(N), np.arange(N) != 3
    mine = query.value(added.total(everybody)) - query.value(added.total(without.astype(float)))
    alone = [tables.take(np.flatnonzero(units)) for units in (everybody, without)]
    ((whole,), (rest,)) = (view.ask(query.query.core(number(1.0)))[0] for view in alone)
    assert whole - rest != mine[0]
