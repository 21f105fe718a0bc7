"""How many folds a pool has, where that is left to the library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.errors import PoolError
from pacprivacy.noise import propose_rule_noise
from pacprivacy.sample import Balanced, Half
from pacprivacy.session import DryRun, Plan, SampleOptions, dry_run
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import Mean

pytestmark = pytest.mark.usefixtures("few_draws")
X = np.random.default_rng(0).normal(size=(120, 2))
LIMIT = pac.Membership(0.6)


def drawn(budget: Any, *, mechanism: Any = None, rule: Any = None, data: Any = X, **request: Any):
    dry_run = DryRun(data, SampleOptions(rng=0, **request))
    pool, _ = dry_run.draw(mechanism or Mean(), budget, rule=rule)
    return pool


@pytest.fixture(scope="module")
def planned() -> Plan:
    return pac.plan(Mean(), X, LIMIT, n_subsets=800, rng=0)


@pytest.mark.claim("P-4")
def test_a_mean_leaves_out_a_fold_and_says_why(planned: Plan) -> None:
    pool = drawn(LIMIT, n_subsets=800)
    assert pool.folds > 2
    (note,) = pool.notes
    assert note.startswith(f"{pool.folds} folds were chosen from 2, 4, 8 by trying")
    assert "on the whole universe, which makes the choice a public fact" in note
    assert drawn(LIMIT, n_subsets=800).digest() == pool.digest()
    assert planned.bundle.pool.digest() == pool.digest()
    assert note in planned.certificate.notes


@pytest.mark.parametrize(
    ("budget", "request_", "rule"),
    [
        (pac.Information(0.1), {"n_subsets": 800}, None),
        (None, {"n_subsets": 800}, None),
        (LIMIT, {"n_subsets": 800}, "waterfill"),
        (LIMIT, {"n_subsets": 256}, None),
        (LIMIT, {"sample": Balanced(n_subsets=800)}, None),
        (LIMIT, {"sample": Half(n_subsets=800)}, None),
    ],
)
def test_halves_stay_where_nothing_else_was_asked_for(
    budget: Any, request_: Any, rule: Any
) -> None:
    pool = drawn(budget, rule=rule, **request_)
    assert pool.folds <= 2
    assert not pool.notes


def test_a_black_box_with_the_default_number_of_subsets_keeps_halves() -> None:
    pool = drawn(LIMIT, mechanism=lambda x: x.mean(axis=0))
    assert (pool.n_subsets, pool.folds) == (256, 2)


def test_the_pilots_of_a_black_box_cost_less_than_a_third_of_the_run() -> None:
    calls = 0

    def mean(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x.mean(axis=0)

    assert drawn(LIMIT, mechanism=mean, n_subsets=800).folds > 2
    assert 3 * 8 <= calls <= 800 / 3


def best_on_trial(monkeypatch: pytest.MonkeyPatch, noise: dict[int, float]) -> int:
    """Return the folds for which the sum of this noise and of the candidates' distance is least."""
    monkeypatch.setattr(
        "pacprivacy.session.dry_run.propose_rule_noise",
        lambda outputs, budget, *, pool, rng: SimpleNamespace(total_variance=noise[pool.folds]),
    )
    return drawn(LIMIT, n_subsets=800).folds


@pytest.mark.claim("P-4")
@pytest.mark.parametrize(
    ("noise", "best"),
    [
        ({2: 1.0, 4: 1.1, 8: 1.2}, 2),  # distances are about 0.02, 0.006 and 0.002
        ({2: 1.0, 4: 0.5, 8: 0.9}, 4),
        ({2: 1.0, 4: 0.9, 8: 0.5}, 8),
        ({2: 0.0, 4: 0.0, 8: 0.0}, 8),  # the distance of the candidates counts as well
        ({2: 1.0, 4: 0.98, 8: 0.96}, 2),  # too close to tell: the least
    ],
)
def test_the_least_predicted_error_decides(
    noise: dict[int, float], best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert best_on_trial(monkeypatch, noise) == best


def test_units_and_classes_are_kept_whole_in_pilots() -> None:
    units = np.repeat(np.arange(40), 3)
    labels = (np.arange(40) % 4 == 0)[units]
    seen: list[tuple[int, int]] = []

    def mean(x: Any, y: Any) -> Any:
        seen.append((len(x) % 3, int(y.sum()) % 3))
        return x.mean(axis=0)

    strategy = Balanced(folds="auto", stratify=True)
    pool = drawn(
        LIMIT, mechanism=mean, data=(X, labels), sample=strategy, units=units, n_subsets=400
    )
    assert (pool.n_units, pool.n_rows) == (40, 120)
    assert pool.scheme.startswith("balanced-stratified")
    assert set(seen) == {(0, 0)}


@pytest.mark.claim("P-4")
def test_halves_would_cost_more(planned: Plan) -> None:
    pool = Balanced(n_subsets=800).draw(len(X), rng=0)
    halves = run_mechanism(Mean(), X, pool, rng=0).values
    goal = X.mean(axis=0)

    def error(noise: float, values: Any) -> float:
        return float(np.sqrt(noise + np.square(values - goal).sum(axis=1).mean()))

    chosen = error(planned.noise.total_variance, planned.outputs.values)
    # A proposal is at most what a release would need.
    assert chosen < error(
        propose_rule_noise(halves, LIMIT, pool=pool, rng=0).total_variance, halves
    )
    assert planned.certificate.membership_bound <= 0.6


def test_a_session_goes_on_with_the_folds_of_its_first_release() -> None:
    with pac.Session(X[:60, :1], budget=pac.Membership(0.7), n_subsets=400, rng=0) as session:
        first = session.release(Mean(), LIMIT)
        second = session.release(Mean(), LIMIT)
    assert first.certificate.scheme == second.certificate.scheme == "balanced(4 folds)"
    assert session.odometer().spent.success_increment <= 0.2


def counted(calls: list[int], x: Any) -> Any:
    calls.append(len(x))
    return x.mean(axis=0)


def test_a_value_as_long_as_the_subset_keeps_halves() -> None:
    assert (
        drawn(LIMIT, mechanism=lambda x: np.sort(x[:, 0])[: len(x) // 4], n_subsets=800).folds == 2
    )


def test_a_pool_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "available_memory", lambda: 10_000)
    rows = np.zeros((20_000, 1))
    with pytest.raises(PoolError, match="must fit into memory; got 256 subsets of 20000 units"):
        pac.privatize(Mean(), rows, "mi<=1", n_subsets=256)
