"""``pac ledger``: budgets, spent amounts, and checks of the ledger."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from pacprivacy._rounding import at_least, percent_at_most
from pacprivacy._system import write_atomically
from pacprivacy.adversary import cap_success, session_cap
from pacprivacy.budget import Membership, Spent
from pacprivacy.cli.console import (
    Screen,
    Verb,
    format_console_number,
    option,
    read_console_number,
    show,
    show_table,
    typed_option,
)
from pacprivacy.errors import BudgetError, LedgerError
from pacprivacy.ledger import Balance, Ledger, LedgerEntry, Verification
from pacprivacy.reporting import LedgerAccount, render_ledger_page

KIND_NAMES: Final = {
    "mi_nats": "information (nats)",
    "success_increment": "membership, pools",
    "mu_squared": "membership, coins",
    "epsilon": "DP epsilon",
    "delta": "DP delta",
}
_SIGNS: Final = {"reserve": 1.0, "cancel": -1.0}
NEXT: Final = """\
pac ledger: budgets of datasets and principals, and their spending.

Type next:
  pac ledger create study.db --dataset people --mi 1
                                   set a budget; the file is made if need be
  pac ledger create study.db --dataset people --membership 0.6
                                   for releases in which every person has a coin
  pac ledger show study.db         the remaining amount of every budget
  pac ledger spend-log study.db    every entry
  pac ledger verify study.db       whether an entry was changed
  pac ledger report study.db       a page of all accounts, month by month"""

_Where = Annotated[
    str,
    typer.Argument(metavar="LEDGER", help="SQLite file, or postgresql://user@host/name."),
]
_OneDataset = Annotated[str | None, typed_option("NAME", "Only this dataset.")]
_OnePrincipal = Annotated[str | None, typed_option("NAME", "Only this principal.")]


def _create(
    *,
    where: _Where,
    dataset: Annotated[str, typed_option("NAME", "Dataset to limit; * for all together.")],
    principal: Annotated[
        str, typed_option("NAME", "Principal to limit; * for all together.")
    ] = "*",
    mi: str | None = option("NATS", "Information, e.g. 1 or 1/4."),
    increment: str | None = option("RATE", "Membership success above the prior, e.g. 10%."),
    membership: str | None = option(
        "RATE", "Membership success over all releases with coins, 60%."
    ),
    epsilon: str | None = option("E", "Differential privacy."),
    delta: str | None = option("D", "With --epsilon; 0 if absent."),
    screen: Screen,
) -> None:
    """Set a budget in a ledger, which is made if it is not there.

    Budgets cannot be changed later. The kinds are kept apart: spending one leaves the others.
    Principals who may talk to each other need a budget for * together.
    """
    limits = Spent(
        mi_nats=_read_amount("--mi", mi),
        success_increment=_read_amount("--increment", increment),
        mu_squared=_read_success(membership),
        epsilon=_read_amount("--epsilon", epsilon),
        delta=_read_amount("--delta", delta),
    )
    if (mi, increment, membership, epsilon, delta) == (None,) * 5:
        raise BudgetError(
            "one of --mi, --increment, --membership and --epsilon must be given; got none. "
            "Try: pac ledger create study.db --dataset people --mi 1"
        )
    entry = Ledger(where).create_budget(dataset, principal, limits=limits)
    text = f"{where}: budget of dataset {dataset!r} for principal {principal!r} is set."
    screen.show(text, entry.to_public_dict())


def _read_amount(option_name: str, text: str | None) -> float | None:
    return None if text is None else read_console_number(option_name, text)


def _read_success(text: str | None) -> float | None:
    if text is None:
        return None
    return session_cap(Membership(read_console_number("--membership", text)).success)


def _show(
    *,
    where: _Where,
    dataset: _OneDataset = None,
    screen: Screen,
) -> None:
    """Show every budget with its spent and remaining amounts.

    Reserved amounts count as spent, even if a crash prevented the release.
    """
    book = Ledger(where, create=False)
    balances = [b for b in book.balances() if dataset is None or b.dataset in (dataset, "*")]
    verification = book.verify()
    content = {
        "ledger": book.label,
        "ledger_id": book.ledger_id,
        "n_entries": verification.n_entries,
        "head": verification.head,
        "problem": verification.problem,
        "budgets": [balance.to_public_dict() for balance in balances],
    }
    screen.show(lambda: _show_balances(balances, verification), content)
    _check_intact(book, verification)


def _show_balances(balances: Sequence[Balance], verification: Verification) -> None:
    show_table(
        ("dataset", "principal", "kind", "limit", "spent", "remaining"),
        [row for balance in balances for row in _balance_rows(balance)],
        left=("principal", "kind"),
    )
    show(f"\n{verification.n_entries} entries, last hash {verification.head}")


def _check_intact(book: Ledger, verification: Verification) -> None:
    if not verification.ok:
        raise LedgerError(
            f"ledger {book.label} must verify; {verification.problem}. Restore a backup."
        )


def _balance_rows(balance: Balance) -> list[tuple[str, ...]]:
    rows = []
    for kind, name in KIND_NAMES.items():
        amounts = [getattr(part, kind) for part in (balance.limits, balance.spent, balance.left)]
        if amounts[0] is not None:
            shown = [format_console_number(amount) for amount in amounts]
            if kind == "mu_squared":
                shown = _coin_texts(*amounts)
            rows.append((balance.dataset, balance.principal, name, *shown))
    return rows


def _coin_texts(limit: float, spent: float | None, left: float) -> list[str]:
    used, rest = ((spent or 0.0) / limit, left / limit) if limit else (1.0, 0.0)
    return [
        f"{percent_at_most(cap_success(limit))} %",
        f"{percent_at_most(used)} % of it",
        f"{at_least(rest, significant=4, percent=True)} % of it",
    ]


def _spend_log(
    *,
    where: _Where,
    dataset: _OneDataset = None,
    principal: _OnePrincipal = None,
    screen: Screen,
) -> None:
    """Show the entries of a ledger in order.

    'reserve' spends, 'commit' says that the release exists, 'cancel' gives back what was not
    used. A reserve without a commit was left by a crash; it stays spent. A percentage is the
    membership success that this release alone would allow.
    """
    entries = Ledger(where, create=False).entries(dataset=dataset, principal=principal)
    screen.show(
        lambda: show_table(
            ("entry", "date", "kind", "dataset", "principal", "what", "amount"),
            [_entry_row(entry) for entry in entries],
            left=("kind", "dataset", "principal", "what"),
        ),
        [entry.to_public_dict() for entry in entries],
    )


def _entry_row(entry: LedgerEntry) -> tuple[str, ...]:
    amounts = [_amount_text(kind, getattr(entry.amounts, kind)) for kind in entry.units]
    return (
        str(entry.seq),
        entry.time[:10],
        entry.kind,
        entry.dataset,
        entry.principal,
        entry.what,
        ", ".join(amounts),
    )


def _amount_text(kind: str, amount: float) -> str:
    """Write an amount of an entry; with coins the success that it alone would allow."""
    if kind == "mu_squared":
        return f"{percent_at_most(cap_success(amount))} %"
    names = {"mi_nats": "nats", "success_increment": "success", "epsilon": "eps", "delta": "delta"}
    return f"{format_console_number(amount)} {names[kind]}"


def _verify(
    *,
    where: _Where,
    head: str | None = option("HASH", "A last hash that was noted earlier."),
    screen: Screen,
) -> None:
    """Check every entry, every budget and the end of the chain.

    Fails with exit code 2 and names the first entry that is wrong. Note the last hash where
    nobody who writes the ledger can reach it: with --head, rewritten entries are detected, too.
    """
    book = Ledger(where, create=False)
    verification = book.verify(head=head)
    if not screen.as_json:
        _check_intact(book, verification)
    screen.show(
        f"{book.label}: {verification.n_entries} entries, all intact, no budget exceeded.\n"
        f"Last hash {verification.head}",
        {
            "ledger": book.label,
            "verified": verification.ok,
            "n_entries": verification.n_entries,
            "head": verification.head,
            "broken_entry": verification.broken_entry,
            "problem": verification.problem,
        },
    )
    _check_intact(book, verification)


def ledger_accounts(
    balances: Sequence[Balance], entries: Sequence[LedgerEntry]
) -> tuple[LedgerAccount, ...]:
    """Return the accounts of a ledger, with what was spent of each in every month."""
    return tuple(
        LedgerAccount(
            dataset="all tables" if balance.dataset == "*" else balance.dataset,
            principal="all together" if balance.principal == "*" else balance.principal,
            kind=name,
            limit=limit,
            spent=(getattr(balance.spent, kind) or 0.0) / limit if limit else 1.0,
            months=_months(balance, kind, limit, entries),
        )
        for balance in balances
        for kind, name in KIND_NAMES.items()
        if kind != "delta" and (limit := getattr(balance.limits, kind)) is not None
    )


def _months(
    balance: Balance, kind: str, limit: float, entries: Sequence[LedgerEntry]
) -> tuple[tuple[str, float], ...]:
    months: dict[str, float] = {}
    for entry in entries:
        amount = getattr(entry.amounts, kind) if entry.kind in _SIGNS else None
        if amount is None or not _covers(balance, entry) or not limit:
            continue
        month = entry.time[:7]
        months[month] = months.get(month, 0.0) + _SIGNS[entry.kind] * amount / limit
    return tuple(sorted(months.items()))


def _covers(balance: Balance, entry: LedgerEntry) -> bool:
    return balance.dataset in ("*", entry.dataset) and balance.principal in ("*", entry.principal)


def _report(
    *,
    where: _Where,
    output: Path = option(
        "FILE", "HTML page to write.", flags="--output -o", default=Path("ledger.html")
    ),
    screen: Screen,
) -> None:
    """Write a page of all accounts: who spent what of which table, month by month."""
    book = Ledger(where, create=False)
    verification = book.verify()
    _check_intact(book, verification)
    accounts = ledger_accounts(book.balances(), book.entries())
    write_atomically(
        output, render_ledger_page(book.label, verification.head, accounts).encode(), mode=0o644
    )
    content = {"ledger": book.label, "file": str(output), "accounts": len(accounts)}
    screen.show(f"Wrote {output}", content)


ledger = typer.Typer(
    help="Budgets, what was spent of them, and whether the book is intact.",
    rich_markup_mode=None,
    add_completion=False,
)


@ledger.callback(invoke_without_command=True)
def _next(ctx: typer.Context) -> None:
    """Budgets, spent amounts, and checks of the ledger."""
    if ctx.invoked_subcommand is None:
        show(NEXT)


for _name, _verb in {
    "create": Verb(
        function=_create,
        example="""\
  pac ledger create study.db --dataset people --mi 1 --increment 10%
  pac ledger create study.db --dataset people --principal ann --mi 1/4
  pac ledger create study.db --dataset visits --membership 60%""",
    ),
    "show": Verb(function=_show, example="  pac ledger show study.db"),
    "spend-log": Verb(
        function=_spend_log, example="  pac ledger spend-log study.db --dataset people"
    ),
    "verify": Verb(
        function=_verify,
        example="""\
  pac ledger verify study.db
  pac ledger verify study.db --head 552427af11cf...""",
    ),
    "report": Verb(function=_report, example="  pac ledger report study.db -o ledger.html"),
}.items():
    _verb.join(ledger, _name)
