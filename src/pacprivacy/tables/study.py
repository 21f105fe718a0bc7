"""A model on a file: what is computed, on what, and who belongs together.

In a session the data are the rows of the file, whatever model is released: the next release may
be of another one, and goes on with the same secret half.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

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
from pacprivacy.tables.categories import ModelOptions
from pacprivacy.tables.files import STDIN, Reading, read_table, unit_labels
from pacprivacy.tables.models import Built, find_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A mechanism, its data, and who belongs together; curator-only but for the mechanism.

    Parameters
    ----------
    name : str
        Of the file, for the ledger.
    built : Built
        The model, its records, and which rows of the file they are.
    digest : bytes
        SHA-256 of the file.
    units : array or None
        Whose row each row of the file is.
    pool : strategy or None
        None is that of the session.
    notes : tuple of str
        What the curator is told, and nobody else.
    """

    name: str
    built: Built = field(repr=False)
    digest: bytes = field(repr=False)
    units: Any = field(repr=False)
    pool: Balanced | None
    notes: tuple[str, ...] = field(repr=False)

    @property
    def mechanism(self) -> Mechanism:
        """What is computed; where rows are left out, on those of a candidate that are not."""
        return self.built.mechanism if self.built.kept.all() else self._of_rows()

    @property
    def universe(self) -> Data:
        """Everybody who might be in: all rows of the file, also those that are then left out."""
        return self.built.data if self.built.kept.all() else self.rows()

    def _of_rows(self) -> _OfRows:
        return _OfRows(inner=self.built.mechanism, records=self.built.data, kept=self.built.kept)

    def rows(self) -> Data:
        """Return what names the rows of the file, and changes with its content or its units."""
        mark = np.frombuffer(self.digest, dtype=np.uint64)
        n_rows = len(self.built.kept)
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
        options["dataset"] = options.get("dataset") or self.name
        settings = {"ledger": ledger, "pool": self.pool, "units": self.units, **options}
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
        return session.release(self._of_rows(), budget, **options)


def read_study(
    source: Path, model: str, options: ModelOptions, reading: Reading | None = None
) -> Study:
    """Read the file and build the model on it.

    A classifier gets a pool in which every subset has half of every class.
    """
    chosen = find_model(model, options)
    table = read_table(source, reading)
    units = None if options.unit is None else unit_labels(table, options.unit)
    built = chosen.build(table, options)
    pool = None
    if chosen.predicts == "class":
        check_classes(built.data.parts[1])
        labels = _strata(built)
        chosen_pool = choose_pool(labels, units)
        pool = _Stratified(stratify=chosen_pool.stratify, folds=chosen_pool.folds, labels=labels)
    return Study(
        name="stdin" if source == STDIN else source.name.partition(".")[0],
        built=built,
        digest=table.digest,
        units=units,
        pool=pool,
        notes=(*table.notes, *built.notes),
    )


def _strata(built: Built) -> Any:
    """Return the class of every row of the file; rows that are left out have one of their own."""
    codes = np.unique(built.data.parts[1], return_inverse=True)[1]
    kept = built.kept
    strata = np.full(len(kept), codes.max() + 1)
    strata[kept] = codes
    if np.count_nonzero(~kept) == 1:  # nobody can be hidden in a class of one
        strata[~kept] = codes[0]
    return strata


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
    """A mechanism that is given numbers of rows of the file and looks up those that it keeps.

    Whether a row is kept depends on that row alone, so what is computed on a candidate depends on
    the candidate's rows alone, and nobody learns who was left out.

    Guarantee
    ---------
    Claim M-4. The value for a candidate is that of the inner mechanism on its kept rows.
    """

    records: Data = field(repr=False, compare=False)
    kept: npt.NDArray[np.bool_] = field(repr=False, compare=False)

    def prepare(self, data: Data) -> Self:
        """Return the mechanism fixed with all kept rows where it needs to be."""
        return replace(self, inner=self.inner.prepare(self.records))

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the value for one subset of row numbers."""
        rows = parts[0][self.kept[parts[0]]]
        return self.inner.evaluate(self.records.take((np.cumsum(self.kept) - 1)[rows]), rng)

    @property
    def batch(self) -> Batch | None:
        """All subsets at once, each without the rows that are not kept."""
        inner = batch_of(self.inner)
        if inner is None:
            return None
        return lambda data, pool: inner(self.records, _among(pool, self.kept))


def _among(pool: Pool, kept: npt.NDArray[np.bool_]) -> Pool:
    """Return the same candidates as subsets of the kept rows, each of which is its own unit."""
    if kept.all():
        return pool
    bits = np.stack([np.packbits(pool.row_mask(k)[kept]) for k in range(pool.n_subsets)])
    return replace(pool, bits=bits, n_units=int(kept.sum()), row_units=None)
