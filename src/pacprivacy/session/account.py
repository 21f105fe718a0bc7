"""The account of a session: its place in a ledger, and the file from which it resumes."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

# The ledger is imported on first use, through its package: SQLAlchemy takes a while.
from pacprivacy import ledger as ledgers
from pacprivacy._random import ProcessBound, fresh_seed
from pacprivacy.budget import Spent
from pacprivacy.errors import (
    BudgetError,
    DataError,
    LedgerError,
    SecretError,
)
from pacprivacy.release import Certificate
from pacprivacy.session.secret import Receipt, SpendLog
from pacprivacy.session.state import AccountOwner, Marks, SessionState, StateFile

if TYPE_CHECKING:
    from pacprivacy.ledger import Balance, Ledger, Reservation


NOTHING = Spent()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LedgerPlace:
    """A session's ledger, its names there, and the file of its secret."""

    ledger: str | Path | Ledger
    dataset: str = "default"
    principal: str = "default"
    state: str | Path | None = None

    @classmethod
    def of(
        cls,
        ledger: str | Path | Ledger | None,
        dataset: str | None,
        principal: str | None,
        state: str | Path | None,
    ) -> Self | None:
        """Return a place, with default names; None without a ledger."""
        if ledger is not None:
            dataset, principal = dataset or "default", principal or "default"
            return cls(ledger=ledger, dataset=dataset, principal=principal, state=state)
        if (dataset, principal, state) != (None, None, None):
            raise LedgerError(
                "ledger must be given with dataset, principal or state; got none. "
                "Add ledger='study.db'."
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """Amounts of a principal's own, and of everyone together; public. ``None`` if unlimited."""

    own: Spent | None
    total: Spent | None


def account_left(
    balances: Iterable[Balance], own: Spent = NOTHING, everyone: Spent = NOTHING
) -> Remaining:
    """Return the remaining budgets; amounts reserved and not yet used count as remaining."""
    limits: dict[bool, Spent | None] = {False: None, True: None}
    for balance in balances:
        shared = balance.principal == "*"
        unused, known = add_unused(balance.left, everyone if shared else own), limits[shared]
        limits[shared] = unused if known is None else known.tightest(unused)
    return Remaining(own=limits[False], total=limits[True])


def add_unused(left: Spent, unused: Spent) -> Spent:
    """Add reserved, unused amounts to a remaining budget, where it limits them; not DP's."""
    left, held = replace(left, epsilon=None, delta=None), unused.sums()
    return Spent(**{kind: amount + held.get(kind, 0.0) for kind, amount in left.sums().items()})


def account_limits(balances: Iterable[Balance]) -> Remaining:
    """Return the limits of the budgets."""
    return account_left(replace(balance, left=balance.limits) for balance in balances)


class Account(SpendLog, ProcessBound):
    """The ledger, the state file and the name of one session.

    Guarantee
    ---------
    Claim K-1. :meth:`spend`, :meth:`keep` and :meth:`commit` write to the disk before they return.
    A session calls them before the secret is used, after it was, and before anyone sees
    the release. :meth:`load` accepts the latest file of the session and no older one.
    """

    KIND = "a session"
    INSTEAD = "Save its releases instead."

    def __init__(
        self, ledger: Ledger, owner: AccountOwner, session_id: str, *, file: StateFile
    ) -> None:
        self._ledger, self._owner, self._file = ledger, owner, file
        self._session_id = session_id
        self._last, self._unseen = "", False  # this session's last reservation, as it knows it
        self._is_complete = False  # whether files know of a release that is about to be made
        self._limited: set[str | None] = set()  # payers whose budget is in the ledger
        self._unsure = ""  # one that may be in the ledger or not, and that nothing was drawn for
        self.state: SessionState | None = None

    @property
    def dataset(self) -> str:
        """Name of the session's data in the ledger; public."""
        return self._owner.dataset

    @property
    def data_digest(self) -> str:
        """Digest of the session's data; curator-only."""
        return self._owner.data_digest

    def left_for(self, principal: str) -> Remaining:
        """Return the remaining budget of a principal, and everyone together."""
        return account_left(self._ledger.balance(self._owner.dataset, principal))

    def limits_for(self, principal: str) -> Remaining:
        """Return the limits of a principal, and of all together."""
        return account_limits(self._ledger.balance(self._owner.dataset, principal))

    def close(self) -> None:
        """Let other processes open the session."""
        self._file.close()

    def spent(self) -> Spent:
        spent = replace(self._ledger.tally(self._session_id), epsilon=None, delta=None)
        return spent if self.state is None else replace(spent, n_releases=self.state.n_releases)

    def left(self, payer: str | None = None) -> Spent:
        balances = self._ledger.balance(self._owner.dataset, self._payer(payer))
        least = reduce(Spent.tightest, (balance.left for balance in balances), Spent())
        return replace(least, epsilon=None, delta=None)  # what DP spends is another matter

    def own_limit(self) -> float | None:
        limits: list[float] = []
        for balance in self._ledger.balance(self._owner.dataset, self._owner.principal):
            limit, own = balance.limits.mu_squared, balance.principal != "*"
            if own and limit is not None:
                limits.append(limit if balance.dataset == self._owner.dataset else 0.0)
        return min(limits, default=None)

    def _payer(self, payer: str | None) -> str:
        return self._owner.principal if payer is None else payer

    def spend(
        self, charge: Spent, what: str, state: Callable[[], SessionState], payer: str | None = None
    ) -> Reservation:
        """Reserve a charge; where the ledger has no budget yet, set the session's total first.

        The file is written first. From then on an older file does not fit the ledger, whatever
        becomes of the release.

        Guarantee
        ---------
        Claim K-4. The ledger reserves only if its last reservation of this session is the one
        that this process made or resumed from.
        """
        self.check_process()
        before = state()
        self._ledger.withdraw_unsure()
        self._check_unmoved()
        if payer not in self._limited and self.left(payer) == Spent():
            with suppress(BudgetError):  # another process was quicker
                self._ledger.create_budget(
                    self._owner.dataset,
                    self._owner.principal if payer is None else "*",
                    limits=before.total.above(),
                )
        self._limited.add(payer)
        name = self._ledger.new_name()
        self._save(before, reservation=self._last, upcoming=name)
        self._is_complete = before.is_complete
        if not math.isfinite(charge.mi_nats or 0.0):
            # Infinity is no figure to keep; a budget that limits nats has a finite one.
            charge = replace(charge, mi_nats=None)
        place = ledgers.SessionPlace(name=self._last, unseen=self._unseen)
        self._unsure = name
        reservation = self._ledger.reserve(
            self._owner.dataset,
            self._payer(payer),
            charge,
            what,
            session=self._session_id,
            name=name,
            after=place,
        )
        self._last, self._unseen, self._unsure = name, False, ""
        return reservation

    def _check_unmoved(self) -> None:
        """Refuse to write if another process continued the session; also into an old ledger."""
        last, committed = self._ledger.last_reservation(self._session_id) or ("", False)
        if last and last == self._unsure:
            self._last, self._unseen, self._unsure = last, False, ""
        if last != self._last or (self._unseen and committed):
            self._refuse(self._last)

    def keep(self, state: Callable[[], SessionState]) -> None:
        if not self._is_complete:
            self._save(state(), reservation=self._last, upcoming="")

    def commit(self, certificate: Certificate, receipt: Receipt | None) -> None:
        if receipt is None:
            raise LedgerError(
                "a release must be reserved before it is published; it was not, so it is withheld."
            )
        digest = account_digest(certificate)
        self._ledger.commit(receipt, digest, last=not self._is_complete)

    def load(self) -> None:
        """Find the stored session; refuse that of other data."""
        stored = self._file.load()
        if stored is None:
            return
        state, marks = stored
        self._check_names(marks)
        if not (marks.reservation or self._ledger.last_reservation(marks.session_id)):
            return  # nothing was ever reserved, so the secret was never used: begin anew
        _check_request(self._owner, state, marks)
        self._session_id = marks.session_id
        self._check_latest(state, marks)
        # A release to come that the ledger does not know was not paid for, and nothing was drawn.
        self.state = state.settled(marks.upcoming, paid=self._last == marks.upcoming)

    def _save(self, state: SessionState, *, reservation: str, upcoming: str) -> None:
        marks = Marks(
            session_id=self._session_id,
            ledger_id=self._ledger.ledger_id,
            dataset=self._owner.dataset,
            principal=self._owner.principal,
            data_digest=self._owner.data_digest,
            reservation=reservation,
            upcoming=upcoming,
        )
        self._file.save(state, marks)

    def _check_names(self, marks: Marks) -> None:
        """Refuse a state of another ledger."""
        owner, label = self._owner, self._ledger.label
        names = (marks.ledger_id, marks.dataset, marks.principal)
        if names != (self._ledger.ledger_id, owner.dataset, owner.principal):
            raise LedgerError(
                f"state must belong to ledger {label}, dataset {owner.dataset!r} and principal "
                f"{owner.principal!r}; got that of another. Choose another state=."
            )

    def _check_latest(self, state: SessionState, marks: Marks) -> None:
        """Refuse every state but the latest of its session, and an old copy of the ledger.

        Guarantee
        ---------
        Claim K-1. The state was written for the session's last reservation. If its belief does
        not know of that one's release, the release was not committed, so nobody has seen it.
        """
        last, committed = self._ledger.last_reservation(self._session_id) or ("", False)
        behind = marks.reservation != last and not state.is_complete
        if marks.reservation != last and (marks.upcoming != last or (behind and committed)):
            self._refuse(marks.reservation)
        self._last, self._unseen = last, behind

    def _refuse(self, known: str) -> NoReturn:
        if known and not self._ledger.knows(known):
            raise LedgerError(
                f"ledger {self._ledger.label} must hold the releases that the session made; it is "
                f"an old copy. Nothing was spent. Restore the latest one."
            )
        raise SecretError(
            "state must be the latest of its session; got an old copy, which does not know of "
            "the last release: another process made it. Nothing was spent. Restore the latest one, "
            "and close all sessions but one."
        )


def open_ledger(where: str | Path | Ledger) -> Ledger:
    """Return a ledger; refuse one that does not verify."""
    ledger = ledgers.Ledger(where) if isinstance(where, str | Path) else where
    verification = ledger.verify()
    if not verification.ok:
        raise LedgerError(
            f"ledger {ledger.label} must verify; {verification.problem}. Restore a backup."
        )
    return ledger


def open_account(place: LedgerPlace, owner: AccountOwner) -> Account:
    """Open a session's account in a ledger that verifies, and go on where it was left."""
    if owner.options.simulate:
        raise LedgerError(
            "simulate must be False with a ledger: it holds real releases only. "
            "Leave out the ledger."
        )
    ledger = open_ledger(place.ledger)
    names = f"{owner.dataset}\n{owner.principal}"
    mark = hashlib.sha256(names.encode()).hexdigest()[:8]
    ending = f"{mark}.session"
    file = StateFile(state_path(ledger, place.state, f"{owner.dataset}-{owner.principal}", ending))
    account = Account(ledger, owner, f"{fresh_seed():032x}", file=file)
    try:
        account.load()
    except BaseException:
        account.close()
        raise
    return account


def account_digest(certificate: Certificate) -> str:
    """Return the digest of a certificate, as the ledger records it; refuse a simulation.

    It is ``certificate.digest``, which the report page and ``pac verify`` show as well, so that
    anyone can find the entry of a release.
    """
    if certificate.simulation:
        raise LedgerError(
            "a ledger must hold real releases only; got the certificate of a simulation. "
            "Leave out simulate=True."
        )
    return certificate.digest


def _check_request(owner: AccountOwner, state: SessionState, marks: Marks) -> None:
    """Refuse to go on with other data, another total or another sample than it began with.

    Where units have names and coins, the table may be another one.
    """
    if marks.data_digest != owner.data_digest and not state.may_grow:
        raise DataError(
            f"data must be what the session {owner.dataset!r} began with; got other values, "
            f"types or order. Load the same data, or give dataset= another name."
        )
    state.check_sample(owner)


def state_path(ledger: Ledger, state: str | Path | None, name: str, ending: str) -> Path:
    """Return where a secret is kept: as given, or beside the ledger's file."""
    if state is not None:
        return Path(state)
    if ledger.path is None:
        raise LedgerError(
            f"state must be given with a ledger on a server, here {ledger.label}: the secret is "
            f"kept in a file of your own. Use state='people.{ending.rpartition('.')[2]}'."
        )
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name)[:40].strip("-")
    return ledger.path.with_name(f"{ledger.path.name}.{slug}-{ending}")
