"""The page of all accounts of a ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from pacprivacy.budget import Spent
from pacprivacy.cli.ledger import ledger_accounts
from pacprivacy.ledger import Balance, Ledger, LedgerEntry
from pacprivacy.reporting import render_ledger_page


def entry(kind: str, month: str, amount: int, **names: str) -> LedgerEntry:
    fields = {"dataset": "people", "principal": "ann", **names}
    units = {"mu_squared": amount * 10**10}
    return LedgerEntry(kind=kind, units=units, time=f"{month}-05T10:00:00Z", **fields)


def balance(**names: str) -> Balance:
    limits, spent = Spent(mu_squared=0.25), Spent(mu_squared=0.1)
    fields = {"dataset": "people", "principal": "*", **names}
    return Balance(limits=limits, spent=spent, left=Spent(mu_squared=0.15), **fields)


def test_months_add_what_was_reserved_and_take_off_what_was_given_back() -> None:
    entries = [
        entry("reserve", "2026-01", 5),
        entry("commit", "2026-01", 0),
        entry("reserve", "2026-02", 6, principal="bob"),
        entry("cancel", "2026-02", 1, principal="bob"),
        entry("reserve", "2026-02", 7, dataset="visits"),
    ]
    (together,) = ledger_accounts([balance()], entries)
    assert dict(together.months) == pytest.approx({"2026-01": 0.2, "2026-02": 0.2})
    assert (together.spent_text, together.left_text) == ("40.00 %", "60 %")
    (ann,) = ledger_accounts([balance(principal="ann")], entries)
    assert dict(ann.months) == pytest.approx({"2026-01": 0.2})
    (every,) = ledger_accounts([balance(dataset="*")], entries)
    assert dict(every.months)["2026-02"] == pytest.approx(0.48)


def test_the_page_names_everybody_and_loads_nothing(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "study.db")
    book.create_budget("<b>people</b>", "ann", limits=Spent(mi_nats=1.0, mu_squared=0.25))
    accounts = ledger_accounts(book.balances(), book.entries())
    page = render_ledger_page(book.label, book.verify().head, accounts)
    assert "<b>people</b>" not in page
    assert "&lt;b&gt;people" in page
    assert page.count("membership, coins") == page.count("information") == 1
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
