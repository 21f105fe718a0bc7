"""A model on a file: what is computed, on what, and who belongs together.

In a session the data are the rows of the file, whatever model is released: the next release may
be of another one, and goes on with the same secret half.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Self

import numpy as np

from pacprivacy.budget import AnyBudget, Information, Membership, Spent
from pacprivacy.errors import BudgetError
from pacprivacy.ledger import Ledger
from pacprivacy.mechanism import (
    Batch,
    Data,
    Mechanism,
    Wrapper,
    batch_of,
    check_classes,
    choose_pool,
    coerce_data,
)
from pacprivacy.pool import Balanced, Pool
from pacprivacy.release import Release
from pacprivacy.session import Session
from pacprivacy.tables.files import read_table, unit_labels
from pacprivacy.tables.models import ModelOptions, find_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A mechanism, its data, and who belongs together; curator-only but for the mechanism."""

    source: Path
    mechanism: Mechanism
    universe: Data = field(repr=False)
    units: Any = field(repr=False)
    pool: Balanced | None

    def rows(self) -> Data:
        """Return what names the rows of the file, and changes with its content or its units."""
        with self.source.open("rb") as file:
            mark = np.frombuffer(hashlib.file_digest(file, "sha256").digest(), dtype=np.uint64)
        n_rows = self.universe.n_rows
        parts = [np.arange(n_rows), np.tile(mark, (n_rows, 1))]
        if self.units is not None:
            parts.append(np.asarray(self.units))
        return coerce_data(tuple(parts))

    def open_session(self, *, ledger: str, total: AnyBudget | None, **options: Any) -> Session:
        """Open the session, or go on with it; without a total it is under the ledger's budget.

        Parameters
        ----------
        ledger : str
            Place of the ledger.
        total : budget or None
            Of all releases together.
        **options
            Of :class:`pacprivacy.Session`; ``dataset`` is the name of the file by default.
        """
        options["dataset"] = options.get("dataset") or self.source.stem
        pool = self.pool
        if pool is not None:
            labels = self.universe.parts[-1]
            pool = _Stratified(stratify=pool.stratify, folds=pool.folds, labels=labels)
        settings = {"ledger": ledger, "pool": pool, "units": self.units, **options}
        rows = self.rows()
        if total is None:
            book = Ledger(ledger, create=False)
            try:
                return Session.resume(rows, **settings)
            except BudgetError:  # nothing to go on with
                total = _total_of(book, options["dataset"], options.get("principal"))
                if total is None:
                    raise
        return Session(rows, budget=total, **settings)

    def release_in(self, session: Session, budget: AnyBudget, **options: Any) -> Release:
        """Release the mechanism in a session of :meth:`open_session`."""
        mechanism = _OfRows(inner=self.mechanism, universe=self.universe)
        return session.release(mechanism, budget, **options)


def read_study(source: Path, model: str, options: ModelOptions) -> Study:
    """Read the file and build the model on it.

    A classifier gets a pool in which every subset has half of every class.
    """
    chosen = find_model(model, options)
    classifies = chosen.predicts == "class"
    kept = [name for name in (options.unit, options.target if classifies else None) if name]
    table = read_table(source, labels=kept)
    mechanism, data = chosen.build(table, options)
    units = None if options.unit is None else unit_labels(table, options.unit)
    pool = None
    if classifies:
        check_classes(data[1])
        pool = choose_pool(data[1], units)
    return Study(
        source=source, mechanism=mechanism, universe=coerce_data(data), units=units, pool=pool
    )


def _total_of(book: Ledger, dataset: str, principal: str | None) -> AnyBudget | None:
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
class _Stratified(Balanced):
    """A strategy that stratifies by labels of its own."""

    labels: Any = field(repr=False)

    def draw(
        self, n_records: int, *, rng: Any = None, units: Any = None, strata: Any = None
    ) -> Pool:
        """Draw the pool, stratified by the labels."""
        return Balanced.draw(self, n_records, rng=rng, units=units, strata=self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfRows(Wrapper):
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
