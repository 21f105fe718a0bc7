"""Edges of a session: ledgers that fail, other payers, releases inside other releases."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.budget import Spent
from pacprivacy.errors import BudgetError, LedgerError, SecretError
from pacprivacy.ledger import Ledger
from pacprivacy.session import SampleOptions, SingleSession

DATA = np.random.default_rng(0).normal(size=(60, 2))
QUERY = "SELECT sum(age) AS a FROM people"


def mean(x: Any) -> Any:
    return x.mean(axis=0)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "study.db")


@pytest.mark.claim("H-1")
def test_a_ledger_that_fails_once_leaves_the_total_held(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.create_budget("default", limits=Spent(mi_nats=50.0))
    session = pac.Session(
        DATA, budget=pac.Membership(0.6), n_subsets=16, ledger=ledger, progress=False
    )
    real, calls = ledger.balance, []

    def fails_once(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise LedgerError("database is locked")
        return real(*arguments)

    monkeypatch.setattr(ledger, "balance", fails_once)
    with pytest.raises(LedgerError, match="locked"):
        session.release(mean, pac.Membership(0.55))
    assert session.balances is None
    session.release(mean, pac.Membership(0.55))
    assert session.balances is not None  # or five such releases would spend 48 of 10 points


@pytest.mark.claim("R-2")
def test_a_release_made_while_folds_are_tried_settles_the_pool() -> None:
    session = pac.Session(DATA[:40, :1], budget=pac.Membership(0.9), n_subsets=300, progress=False)
    busy: list[int] = []

    def releases_too(x: Any) -> Any:
        if not busy:
            busy.append(1)
            session.release(lambda z: z.std(axis=0), pac.Information(0.05), rule="waterfill")
        return x.mean(axis=0)

    plan = session.plan(releases_too, pac.Membership(0.8))
    pool, outputs = plan.bundle.pool, plan.outputs
    scale = 1.0 if outputs.scales is None else outputs.scales[0]
    values = [DATA[:40, 0][pool.row_mask(i)].mean() for i in range(pool.n_subsets)]
    np.testing.assert_allclose(outputs.values[:, 0] * scale, values)


@pytest.mark.claim("S-1")
def test_a_session_of_one_release_makes_no_other() -> None:
    options = SampleOptions(n_subsets=16, progress=False)
    with SingleSession(DATA, pac.Information(0.1), options=options) as session:
        with pytest.raises(BudgetError, match="share must be left out"):
            session.release(mean, share=0.25)
        plan = session.plan(mean)
        session.publish(plan)
        for budget in (None, pac.Information(0.1)):
            with pytest.raises(SecretError, match="must make no other"):
                session.release(mean, budget)
