"""``pac release --ledger``: one more release of a session that is kept in a ledger.

The session's data are the rows of the file, whatever model is released: the next command may ask
for another one, and goes on with the same secret half.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import typer

from pacprivacy import ledger as ledgers
from pacprivacy.budget import AnyBudget, Information, Membership, Spent, parse_budget
from pacprivacy.errors import BudgetError, LedgerError
from pacprivacy.mechanism import Batch, Data, Wrapper, batch_of, coerce_data
from pacprivacy.pool import Pool, PoolStrategy
from pacprivacy.release import Release
from pacprivacy.session import Session
from pacprivacy.tables import Study

LedgerPlace = Annotated[
    str | None,
    typer.Option(
        "--ledger", metavar="PLACE", help="Spend from a ledger: SQLite file or postgresql:// URL."
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option("--dataset", metavar="NAME", help="Name in the ledger; the file's by default."),
]
Principal = Annotated[
    str | None, typer.Option("--principal", metavar="NAME", help="Who spends, in the ledger.")
]
Total = Annotated[
    str | None,
    typer.Option(
        "--total",
        metavar="TEXT",
        help="Budget of all releases together; the ledger's by default.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="FILE", help="Of the session's secret; beside the ledger by default."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where a release is booked; public."""

    ledger: str
    dataset: str
    principal: str | None = None
    total: AnyBudget | None = None
    state: Path | None = None

    @classmethod
    def read(
        cls,
        data: Path,
        *,
        ledger: str | None,
        dataset: str | None,
        principal: str | None,
        total: str | None,
        state: Path | None,
    ) -> Self | None:
        """Read the options; None if no ledger is asked for."""
        if ledger is None:
            given = {"dataset": dataset, "principal": principal, "total": total, "state": state}
            for name, value in given.items():
                if value is not None:
                    raise LedgerError(
                        f"--ledger must be given with --{name}; got none. "
                        "Name the ledger, for example --ledger study.db."
                    )
            return None
        return cls(
            ledger=ledger,
            dataset=dataset or data.stem,
            principal=principal,
            total=None if total is None else parse_budget(total),
            state=state,
        )

    def open_session(self, study: Study, source: Path, **options: Any) -> Session:
        """Open the session, or go on with it; a new one is under the ledger's budget."""
        pool = study.pool
        if pool is not None:
            pool = WithLabels(inner=pool, labels=coerce_data(study.universe).parts[-1])
        rows = _rows_of(study, source)
        options |= {"ledger": self.ledger, "dataset": self.dataset, "principal": self.principal}
        options |= {"state": self.state, "pool": pool, "units": study.units}
        if self.total is not None:
            return Session(rows, budget=self.total, **options)
        book = ledgers.Ledger(self.ledger, create=False)
        try:
            return Session.resume(rows, **options)
        except BudgetError:  # nothing to go on with
            total = _total_of(book, self.dataset, self.principal)
            if total is None:
                raise
        return Session(rows, budget=total, **options)


def release_in_session(
    account: Account,
    study: Study,
    source: Path,
    budget: AnyBudget,
    *,
    rule: str | None,
    checkpoint: Path | None,
    **options: Any,
) -> Release:
    """Release the study's mechanism in its session; what it costs is in the ledger before."""
    mechanism = Rows(inner=study.mechanism, universe=coerce_data(study.universe))
    with account.open_session(study, source, **options) as session:
        return session.release(mechanism, budget, rule=rule, checkpoint=checkpoint)


def _rows_of(study: Study, source: Path) -> Data:
    """Return what names the rows of a file, and changes with its content or its units."""
    with source.open("rb") as file:
        mark = np.frombuffer(hashlib.file_digest(file, "sha256").digest(), dtype=np.uint64)
    n_rows = coerce_data(study.universe).n_rows
    parts = [np.arange(n_rows), np.tile(mark, (n_rows, 1))]
    if study.units is not None:
        parts.append(np.asarray(study.units))
    return coerce_data(tuple(parts))


def _total_of(book: ledgers.Ledger, dataset: str, principal: str | None) -> AnyBudget | None:
    """Return the tightest budget that the ledger has for this session, as a total."""
    balances = book.balance(dataset, principal or "default")
    least = reduce(Spent.tightest, (balance.limits for balance in balances), Spent())
    nats, increment = least.mi_nats, least.success_increment
    information = None if nats is None else Information(nats)
    if increment is None:
        return information
    membership = Membership(min(1.0, 0.5 + increment))
    return membership if information is None else membership & information


@dataclass(frozen=True, slots=True, kw_only=True)
class WithLabels:
    """A strategy that stratifies by labels of its own."""

    inner: PoolStrategy
    labels: Any = field(repr=False)

    @property
    def n_subsets(self) -> int | None:
        """Number of candidates."""
        return self.inner.n_subsets

    def with_subsets(self, n_subsets: int) -> Self:
        """Return the strategy with another number of candidates."""
        return type(self)(inner=self.inner.with_subsets(n_subsets), labels=self.labels)

    def draw(
        self, n_records: int, *, rng: Any = None, units: Any = None, strata: Any = None
    ) -> Pool:
        """Draw the pool, stratified by the labels."""
        return self.inner.draw(n_records, rng=rng, units=units, strata=self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Wrapper):
    """A mechanism that is given row numbers and looks the rows up in its own universe."""

    universe: Data = field(repr=False, compare=False)

    def prepare(self, data: Data) -> Self:
        """Return the mechanism fixed with the whole universe where it needs to be."""
        return replace(self, inner=self.inner.prepare(self.universe))

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the value for one subset of row numbers."""
        return self.inner.evaluate(self.universe.take(parts[0]), rng)

    @property
    def batch(self) -> Batch | None:
        """All subsets at once, on the universe itself."""
        inner = batch_of(self.inner)
        return None if inner is None else lambda data, pool: inner(self.universe, pool)
