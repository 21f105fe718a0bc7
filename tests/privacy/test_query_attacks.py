"""Attacks on answers to queries: what anyone learns stays below the certificate.

One release is attacked by the optimal attacker, by differencing its cells and through the size of
its noise; a session by asking again and by two queries that differ in one person. Every attack
breaks the certificate once a mistake is planted that published systems have made.
"""

import importlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy.errors import BudgetExceededError
from pacprivacy.mechanism import coerce_data, flatten
from pacprivacy.noise import NoisePlan, calibrate
from pacprivacy.queries import QueryMechanism, make_query_mechanism
from pacprivacy.sample import Pool
from pacprivacy.session import Plan
from pacprivacy.theory import posterior_success
from tests.privacy.test_sessions_hold import Array, Bulk, fill, lower_mean, lower_rate

ASSESS = importlib.import_module("pacprivacy.release.pool_certificate")
PROOF = importlib.import_module("pacprivacy.noise.proof")

N, M, SUCCESS = 12, 16, 0.65
N_TRIALS = 20_000
TARGET = 7  # the person whom two queries differ in
RICH = 3  # the person who makes a world's costs vary
REGIONS = {"region": ["n", "s"]}
JOINED = "FROM visits JOIN people ON person = id GROUP BY region"
CELLS = f"SELECT region, count(*) AS n, sum(cost) AS s, avg(cost) AS c {JOINED}"
PAIR = f"SELECT sum(cost) AS s, sum(cost) FILTER (WHERE person <> {TARGET}) AS others FROM visits"
ALL, OTHERS = (f"SELECT sum(cost) AS s FROM visits WHERE {who}" for who in ("true", "person <> 7"))


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ASSESS, "information_draws", lambda m: 4096)
        patch.setattr(ASSESS, "membership_draws", lambda m: 4096)
        patch.setattr(ASSESS, "SIDE_KNOWLEDGE_SIZES", ())
        patch.setattr(PROOF, "POSTERIOR_COST", 10**6)
        yield


@pytest.fixture(scope="module")
def clinic() -> pac.Tables:
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"id": range(N), "region": ["n", "s"] * (N // 2)})
    person = np.concatenate([np.arange(N), np.arange(N), rng.integers(0, N, 24)])
    cost = rng.gamma(9, 5, len(person)).round(2)
    cost[person == RICH] *= 6
    visits = pd.DataFrame({"person": person, "cost": cost})
    return pac.Tables(
        {"people": people, "visits": visits}, unit="people.id", via={"visits": "person"}
    )


@pytest.fixture(scope="module")
def pool() -> Pool:
    return pac.Balanced(n_subsets=M).draw(N, rng=1)


def asked(text: str, clinic: pac.Tables) -> QueryMechanism:
    keys = REGIONS if "GROUP BY" in text else None
    return make_query_mechanism(text, clinic, keys=keys, fill=0).prepare(coerce_data(clinic))


def planned(text: str, clinic: pac.Tables, pool: Pool) -> Plan:
    return pac.plan(asked(text, clinic), clinic, pac.Membership(SUCCESS), sample=pool, rng=2)


@pytest.fixture(scope="module")
def cells(clinic: pac.Tables, pool: Pool) -> Plan:
    return planned(CELLS, clinic, pool)


@pytest.fixture(scope="module")
def pair(clinic: pac.Tables, pool: Pool) -> Plan:
    return planned(PAIR, clinic, pool)


# --- one answer ---------------------------------------------------------------------------------


def attack(pool: Pool, points: Array, *, noise: float = 1.0, shared: bool = False) -> float:
    """Lower confidence bound of the optimal attacker's success on the worst-placed unit.

    ``points`` are the answers of the candidates in units of the noise, whose law on the integers
    is that of normal noise but for claim L-2. The unit is chosen on the first half of the trials.
    """
    rng = np.random.default_rng(3)
    secret = rng.integers(M, size=N_TRIALS)
    drawn = rng.standard_normal((N_TRIALS, 1 if shared else points.shape[1]))
    away = (points[secret] + noise * drawn)[:, None] - points
    if shared:  # all cells are off by the same, so that their differences are exact
        middle = away.mean(axis=2, keepdims=True)
        log_p = -0.5 * np.square(middle[:, :, 0]) - 1e6 * np.square(away - middle).sum(axis=2)
    else:
        log_p = -0.5 * np.square(away / noise).sum(axis=2)
    belief = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    return hit_rate(belief, secret, pool)


def hit_rate(belief: Array, secret: Any, pool: Pool) -> float:
    signs = np.where(pool.masks(), 1.0, -1.0)
    right = np.sign(belief @ signs) == signs[secret]
    half = len(right) // 2
    unit = int(right[:half].mean(axis=0).argmax())
    return lower_rate(int(right[half:, unit].sum()), half)


@pytest.mark.claim("Q-2", "R-3")
@pytest.mark.parametrize("name", ["cells", "pair"])
def test_the_optimal_attacker_stays_below_the_certificate(
    name: str, pool: Pool, request: pytest.FixtureRequest
) -> None:
    plan = request.getfixturevalue(name)
    found = attack(pool, plan.bundle.whitened)
    assert found <= plan.certificate.membership_bound <= SUCCESS
    assert found > SUCCESS - 0.05  # the attack is a real one
    assert attack(pool, plan.bundle.whitened, noise=0.8) > SUCCESS  # too little noise is caught


@pytest.mark.claim("Q-2")
def test_a_budget_for_each_cell_is_caught(cells: Plan, pool: Pool) -> None:
    """What is sold for the query is spent on every cell: all of them together tell more."""
    values = cells.outputs.values
    alone = [
        calibrate(values[:, [j]], pac.Membership(SUCCESS), pool=pool, rng=j).whitened(
            values[:, [j]]
        )
        for j in range(values.shape[1])
    ]
    assert attack(pool, np.hstack(alone)) > SUCCESS


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize("name", ["cells", "pair"])
def test_noise_shared_between_cells_is_caught(
    name: str, pool: Pool, request: pytest.FixtureRequest
) -> None:
    plan = request.getfixturevalue(name)
    points = plan.outputs.values / np.sqrt(plan.noise.noise_variances())
    assert attack(pool, points, shared=True) > 0.95


@pytest.mark.claim("Q-2")
def test_cells_that_differ_in_one_person_do_not_give_them_away(pair: Plan, pool: Pool) -> None:
    """Subtract one cell from the other: what is left is the person, and the noise of both."""
    others, everybody = pair.outputs.values.T  # in the order of their names
    gap, inside = everybody - others, pool.masks()[:, TARGET]
    assert gap[inside].min() > 0 == gap[~inside].max()  # exact cells would tell
    rng = np.random.default_rng(4)
    secret = rng.integers(M, size=N_TRIALS)
    factor = pair.noise.noise_factor()
    noise = {
        "drawn for each": rng.standard_normal((N_TRIALS, len(factor))) @ factor,
        "shared": rng.standard_normal((N_TRIALS, 1)) * np.sqrt(pair.noise.noise_variances()),
    }
    found = {}
    for name, drawn in noise.items():
        guess = gap[secret] + drawn[:, 1] - drawn[:, 0] > gap.max() / 2
        found[name] = lower_rate(int((guess == inside[secret]).sum()), N_TRIALS)
    assert found["drawn for each"] <= pair.certificate.membership_bound < found["shared"]


# --- the size of the noise ----------------------------------------------------------------------


@pytest.mark.claim("Q-2", "R-3")
def test_the_size_of_the_noise_tells_nothing_of_the_secret(clinic: pac.Tables, pool: Pool) -> None:
    """Ask eight times, and guess from how much the answers vary.

    The planted mistake takes noise from the secret's own world, not from the pool: somebody whose
    costs are large is then seen in the noise, however much of it there is.
    """
    own = outputs_of("SELECT stddev(cost) AS c FROM visits", clinic, pool)[:, 0]
    share = own / own.mean()
    rng = np.random.default_rng(6)
    secret = rng.integers(M, size=N_TRIALS)
    for planted in (False, True):
        answers = rng.standard_normal((N_TRIALS, 8)) * (share[secret, None] if planted else 1.0)
        varied = answers.var(axis=1, ddof=1)[:, None]
        log_p = -7 * np.log(share) - 3.5 * varied / np.square(share)
        found = hit_rate(np.exp(log_p - log_p.max(axis=1, keepdims=True)), secret, pool)
        assert found > SUCCESS if planted else found < 0.52


@pytest.mark.claim("R-2")
def test_whatever_the_secret_noise_and_intervals_are_the_same(
    clinic: pac.Tables, pool: Pool
) -> None:
    """What an answer says of its noise is written before the secret is drawn."""
    found = [pac.sql(PAIR, clinic, "mi<=1", sample=pool, rng=0) for _ in range(2)]
    assert found[0].value != found[1].value
    assert found[0].noise_std == found[1].noise_std
    assert found[0].certificate == found[1].certificate


# --- several answers ----------------------------------------------------------------------------

TOTAL_NATS = 0.25
N_SESSIONS = 10_000
N_ASKED = 4


def outputs_of(text: str, clinic: pac.Tables, pool: Pool) -> Array:
    """The answer of every candidate, shape (m, d)."""
    mechanism, data = asked(text, clinic), coerce_data(clinic)
    rng = np.random.default_rng(0)
    return np.array(
        [flatten(mechanism.evaluate(data.take(pool.rows(k)), rng))[0] for k in range(M)]
    )


def run_bulk(outputs: list[Array], nats: list[float], seed: int) -> tuple[Bulk, list[Array]]:
    bulk = Bulk.start(N_SESSIONS, M, seed)
    seen = [
        bulk.release(np.broadcast_to(values, (N_SESSIONS, *values.shape)), beta)
        for values, beta in zip(outputs, nats, strict=True)
    ]
    return bulk, seen


def check_bulk(bulk: Bulk, pool: Pool) -> bool:
    """Whether everything that the attacker achieves is within the total."""
    within = lower_mean(bulk.learned_nats, math.log(M)) <= TOTAL_NATS
    for unit in (TARGET, RICH):
        rate = lower_rate(bulk.member_hits(pool, unit), N_SESSIONS)
        within &= rate <= posterior_success(TOTAL_NATS, 0.5)
    return within and lower_rate(bulk.naming_hits(), N_SESSIONS) <= posterior_success(
        TOTAL_NATS, 1 / M
    )


@pytest.mark.claim("S-1", "Q-2")
def test_sessions_ask_as_the_simulation_does(clinic: pac.Tables, pool: Pool) -> None:
    """The noise and the beliefs of real sessions of queries are those that are attacked below."""
    share, bulk = TOTAL_NATS / 2, Bulk.start(1, M, 0)
    with pac.Session(
        clinic, budget=pac.Information(TOTAL_NATS), sample=pool, rng=0, simulate=True
    ) as session:
        for text in (ALL, OTHERS):
            release = session.release(asked(text, clinic), pac.Information(share), rule="waterfill")
            outputs = outputs_of(text, clinic, pool)[None]
            np.testing.assert_allclose(release.bundle.log_p, bulk.log_p[0], atol=1e-3)
            np.testing.assert_allclose(release.bundle.outputs, outputs[0])
            center, vectors, values = bulk.frame(outputs, bulk.log_p)
            noise = fill(values, share)
            total = np.square(release.bundle.grid_step * release.bundle.units_per_std).sum()
            assert total == pytest.approx(noise.sum(), rel=1e-3)
            seen = np.einsum("sd,sdq->sq", np.array([[release.value["s"]]]) - center, vectors)
            bulk.update(outputs, center, vectors, noise, seen)


@pytest.mark.claim("S-1", "Q-2")
def test_asking_again_tells_no_more_than_the_total(clinic: pac.Tables, pool: Pool) -> None:
    outputs = [outputs_of(PAIR, clinic, pool)] * N_ASKED
    bulk, _ = run_bulk(outputs, [TOTAL_NATS / N_ASKED] * N_ASKED, seed=3)
    assert check_bulk(bulk, pool)
    assert bulk.learned_nats.mean() > 0.8 * TOTAL_NATS  # the attack is a real one
    # a planted mistake: an answer that was given before costs nothing when it is asked for again
    bulk, _ = run_bulk(outputs, [TOTAL_NATS] * N_ASKED, seed=3)
    assert not check_bulk(bulk, pool)


@pytest.mark.claim("S-1", "Q-2")
def test_two_queries_that_differ_in_one_person_do_not_give_them_away(
    clinic: pac.Tables, pool: Pool
) -> None:
    outputs = [outputs_of(text, clinic, pool) for text in (ALL, OTHERS)]
    inside = pool.masks()[:, TARGET]
    gap = (outputs[0] - outputs[1])[:, 0]
    assert gap[inside].min() > 10 > gap[~inside].max() == 0  # exact answers would tell

    def found_out(first: Array, second: Array, secret: Any) -> float:
        guess = (first - second)[:, 0] > gap[inside].min() / 2
        return lower_rate(int((guess == inside[secret]).sum()), N_SESSIONS)

    bulk, seen = run_bulk(outputs, [TOTAL_NATS / 2] * 2, seed=4)
    assert check_bulk(bulk, pool)
    assert found_out(*seen, bulk.secret) <= posterior_success(TOTAL_NATS, 0.5)
    # a planted mistake: both queries take their noise from the same draw
    values = [np.broadcast_to(o, (N_SESSIONS, *o.shape)) for o in outputs]
    shared = []
    for value in values:
        alone = Bulk.start(N_SESSIONS, M, 5)
        shared.append(alone.release(value, TOTAL_NATS / 2))
    assert found_out(*shared, alone.secret) > posterior_success(TOTAL_NATS, 0.5)


def secrets_used(clinic: pac.Tables, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The candidates that six queries of a session were answered on."""
    used: set[int] = set()
    observe = NoisePlan.observe

    def watched(self: NoisePlan, index: int, source: Any) -> Any:
        used.add(index)
        return observe(self, index, source)

    with monkeypatch.context() as patch:
        patch.setattr(NoisePlan, "observe", watched)
        with pac.Session(clinic, budget=pac.Information(1), sample=pool) as session:
            for text in (ALL, OTHERS) * 3:
                session.release(asked(text, clinic), pac.Information(0.1), rule="waterfill")
    return used


@pytest.mark.claim("S-1", "Q-2")
def test_all_queries_of_a_session_are_about_one_secret(
    clinic: pac.Tables, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a fresh one for each, whoever says that somebody was used is nearly always right."""
    assert len(secrets_used(clinic, pool, monkeypatch)) == 1
    publish = pac.Session._publish

    def planted(self: pac.Session, plan: Plan) -> Any:
        self._secret.forget()
        return publish(self, plan)

    monkeypatch.setattr(pac.Session, "_publish", planted)
    used = secrets_used(clinic, pool, monkeypatch)
    assert len(used) > 1
    assert pool.masks()[sorted(used)].any(axis=0).mean() > SUCCESS


@pytest.mark.claim("S-1")
def test_an_answer_costs_as_much_when_it_is_asked_for_again(clinic: pac.Tables, pool: Pool) -> None:
    spent = []
    with pac.Session(clinic, budget=pac.Information(0.3), sample=pool) as session:
        for _ in range(3):
            made = session.release(asked(ALL, clinic), pac.Information(0.1), rule="waterfill")
            spent.append(session.odometer().spent.mi_nats or 0.0)
            facts = made.certificate.composition or {}
            assert facts["spent_nats_so_far"] == pytest.approx(spent[-1])
        assert np.diff(spent).min() > 0.05
        with pytest.raises(BudgetExceededError):
            session.sql(ALL, pac.Information(0.1))
