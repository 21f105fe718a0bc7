"""The account of a responder: leases from a ledger, and the file from which it resumes.

Answers come by the million, so they have no entry each. A *lease* is an amount that is reserved in
the ledger before the first answer that it pays for is drawn; the file holds the rest of it.
Principals have separate leases, under their own limits and the total; all share one secret. The
more principals hold leases, the smaller is the next one. The next process goes on with the leases
in the file.

The file holds the secret, the belief, the balances and the leases. It is replaced before answers
are published, and then the ledger's *mark* moves to it: so every older copy of the file is refused,
and of two processes that hold the same secret one answers nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

# The ledger is imported on first use, through its package: SQLAlchemy takes a while.
from pacprivacy import ledger as ledgers
from pacprivacy._random import ProcessBound
from pacprivacy.budget import Spent
from pacprivacy.errors import BudgetExceededError, LedgerError, SecretError
from pacprivacy.session.account import (
    Remaining,
    account_left,
    account_limits,
    open_ledger,
    state_path,
)
from pacprivacy.session.pool_secret import check_stored_belief
from pacprivacy.session.responder import ResponderState
from pacprivacy.session.secret import SpendLog
from pacprivacy.session.state import (
    SessionState,
    StateFile,
    pack_state,
    read_record,
    unpack_state,
)

if TYPE_CHECKING:
    from pacprivacy.ledger import Balance, Ledger, SessionPlace

SCHEMA_VERSION: Final = 4
PART: Final = 1 / 256  # of a limit that one lease takes, or more where a question needs more
SHARED_PART: Final = 1 / 4  # of what remains of the total, over the number of lease holders
UNLIMITED_PART: Final = 64  # of what a question needs, where nothing limits a lease
KINDS: Final = ("mi_nats", "success_increment")
DEFAULT_PRINCIPAL: Final = "default"
_ROUNDING: Final = 2.0**-51
TOLERANCE: Final = 1e-9  # of sums of floats


class _Stored(msgspec.Struct, kw_only=True):
    """Content of the file, below its version and its checksum.

    ``mark`` is the ledger's mark before this was written, ``upcoming`` the one after.
    """

    service: str
    ledger_id: str
    dataset: str
    mark: str
    upcoming: str
    leases: dict[str, Spent]
    state: ResponderState


def _parse(content: bytes) -> _Stored:
    version, stored = unpack_state(content)
    if version != SCHEMA_VERSION:
        raise ValueError("schema_version")
    return read_record(stored, _Stored)


class Leases(SpendLog, ProcessBound):
    """The ledger and the file of one responder, whose name is the digest of its models.

    Guarantee
    ---------
    Claim V-1. Whatever was answered, under whatever name, the ledger shows at least its charge,
    and the file holds the belief after it, before the answer leaves.
    Claim V-2. A file that is not the latest, a second process and a fork answer nothing.
    """

    KIND = "a service"
    INSTEAD = "Load it in one process."

    def __init__(
        self,
        ledger: str | Path | Ledger,
        service: str,
        *,
        dataset: str,
        principal: str = DEFAULT_PRINCIPAL,
        state: str | Path | None = None,
    ) -> None:
        self.ledger = open_ledger(ledger)
        self._service, self.dataset, self._owner = service, dataset, principal
        self._leases: dict[str, Spent] = {}
        self._balances: dict[str, tuple[Balance, ...]] = {}
        self._booked = Spent()
        self._mark, self._changed = "", False
        ending = f"{service[:8]}.answers"
        self._file = StateFile(state_path(self.ledger, state, dataset, ending))

    def begin(self, total: Spent, spent: Spent) -> None:
        """Open an account for a responder that has none yet, and book the amount spent so far."""
        if self.ledger.mark(self._service):
            raise LedgerError("the predictor must not be saved twice; it was. Load the first file.")
        owner = self._owner
        if not any(b.principal == "*" for b in self.ledger.balance(self.dataset, owner)):
            self.ledger.create_budget(self.dataset, limits=total.above())
        self._changed = True
        if any(_answer_amounts(spent).values()):
            lease = self._reserve(spent, "answers before it was saved", owner)
            self._leases[owner] = _less(lease, spent)

    def resume(self, n_subsets: int) -> ResponderState:
        """Return where the responder was left; refuse every file but the latest.

        Guarantee
        ---------
        Claim V-2. The ledger has the file's own mark, or the one before it; in the second case the
        last answers in the file were never published. It shows every amount spent and leased.
        """

        def parse(content: bytes) -> _Stored:
            stored = _parse(content)
            check_stored_belief(stored.state.log_p, stored.state.secret, n_subsets)
            return stored

        stored = self._file.read(parse)
        mark = self.ledger.mark(self._service)
        if stored is None or not mark:
            raise LedgerError(
                f"state must be there: the secret is in it, and a fresh one would break what was "
                f"promised; {self._file.path} or its mark in {self.ledger.label} is missing. "
                f"Restore it, or fit and save a new predictor with a budget of its own."
            )
        names = (stored.service, stored.ledger_id, stored.dataset)
        if names != (self._service, self.ledger.ledger_id, self.dataset):
            raise LedgerError(
                f"state must belong to this predictor, ledger {self.ledger.label} and dataset "
                f"{self.dataset!r}; got that of another. Choose another state=."
            )
        if mark not in (stored.upcoming, stored.mark):
            raise SecretError(
                "state must be the latest: the ledger knows of answers that it does not, or the "
                "ledger is an old copy. Restore the latest of both."
            )
        held = reduce(Spent.__add__, stored.leases.values(), stored.state.spent)
        if not _covers(self.ledger.tally(self._service), held, tolerance=TOLERANCE):
            raise LedgerError(
                f"ledger {self.ledger.label} must hold what was spent; it is an old copy, which "
                f"shows less than the state. Restore the latest one."
            )
        if mark != stored.upcoming:  # stopped between the two writes
            self.ledger.move_mark(self._service, mark, stored.upcoming)
        self._mark, self._leases = stored.upcoming, stored.leases
        return stored.state

    def left_for(self, principal: str, *, fresh: bool = False) -> Remaining:
        """Return the remaining budget of a principal, as of its last lease or as of now."""
        if fresh or principal not in self._balances:
            self._read(principal)
        held = self._leases.get(principal, Spent())
        everyone = reduce(Spent.__add__, self._leases.values(), Spent())
        return account_left(self._balances[principal], held, everyone)

    def limits_for(self, principal: str) -> Remaining:
        if principal not in self._balances:
            self._read(principal)
        return account_limits(self._balances[principal])

    def spend(
        self, charge: Spent, what: str, state: Callable[[], SessionState], payer: str | None = None
    ) -> None:
        """Take a charge from the payer's lease; lease more where that is not enough."""
        self.check_process()
        need, self._booked = replace(charge, n_releases=0), Spent()  # the rest of it is spent
        if not any(_answer_amounts(need).values()):
            return
        payer = payer or self._owner
        lease = self._leases.get(payer, Spent())
        if not _covers(lease, need):
            lease += self._reserve(need, what, payer)
        self._leases[payer], self._booked = _less(lease, need), need
        self._changed = True

    def _place(self) -> SessionPlace:
        return ledgers.SessionPlace(name=self._mark)

    def settle(self, charge: Spent, payer: str | None = None) -> None:
        """Give back the booked amounts that were not needed."""
        booked, self._booked = self._booked, Spent()
        if booked == Spent():
            return
        payer = payer or self._owner
        held = self._leases[payer] + booked
        if not _covers(held, charge):  # never, but an unpaid answer must not be published
            held += self._reserve(charge, "answers", payer)
        self._leases[payer] = _less(held, charge)

    def flush(self, state: Callable[[], ResponderState]) -> None:
        """Store the responder's state, and move the ledger's mark to it."""
        if not self._changed:  # all answers were unanimous
            return
        self.check_process()
        upcoming = self.ledger.new_name()
        stored = _Stored(
            service=self._service,
            ledger_id=self.ledger.ledger_id,
            dataset=self.dataset,
            mark=self._mark,
            upcoming=upcoming,
            leases=self._leases,
            state=state(),
        )
        self._file.write(pack_state(SCHEMA_VERSION, stored))
        self.ledger.move_mark(self._service, self._mark, upcoming)
        self._mark, self._changed = upcoming, False

    def close(self) -> None:
        self._file.close()

    def _reserve(self, need: Spent, what: str, payer: str) -> Spent:
        """Reserve the need, or a part of the limits if that is more and remains."""
        self.ledger.withdraw_unsure()
        balances = self._read(payer)
        n_holders = len(self._leases.keys() | {payer})
        taken: dict[str, Any] = {}
        for kind, amount in _answer_amounts(need).items():
            parts = []
            for balance in balances:
                limit = balance.limits.sums().get(kind)
                if limit is not None:
                    shared = SHARED_PART / n_holders if balance.principal == "*" else 1.0
                    parts.append(min(PART * limit, shared * balance.left.sums()[kind]))
            taken[kind] = max(amount, min(parts, default=UNLIMITED_PART * amount))
        lease = Spent(**taken)
        try:
            self.ledger.reserve(
                self.dataset,
                payer,
                lease,
                what,
                session=self._service,
                after=self._place() if self._mark else None,
            )
        except BudgetExceededError as refused:
            raise BudgetExceededError(
                f"questions must fit in the remaining budget, whatever the answers are. {refused}"
            ) from None
        self._read(payer)
        return lease

    def _read(self, principal: str) -> tuple[Balance, ...]:
        latest = self._balances[principal] = self.ledger.balance(self.dataset, principal)
        for other, balances in self._balances.items():  # the total is everyone's
            if other != principal:
                theirs = [b for b in balances if b.principal != "*"]
                self._balances[other] = (*theirs, *(b for b in latest if b.principal == "*"))
        return latest


def _less(lease: Spent, charge: Spent) -> Spent:
    """Return the rest of a lease, rounded down."""
    held, cost = _answer_amounts(lease), _answer_amounts(charge)
    left = {
        kind: max(
            0.0, (held.get(kind, 0.0) - cost.get(kind, 0.0)) - _ROUNDING * held.get(kind, 0.0)
        )
        for kind in held | cost
    }
    return Spent(**left)


def _covers(lease: Spent, charge: Spent, *, tolerance: float = 0.0) -> bool:
    """Whether a lease covers a charge, up to rounding of sums."""
    held, cost = _answer_amounts(lease), _answer_amounts(charge)
    return all(held.get(kind, 0.0) >= amount * (1 - tolerance) for kind, amount in cost.items())


def _answer_amounts(amounts: Spent) -> dict[str, Any]:
    """Return the amounts that answers are charged, by kind."""
    return {kind: amount for kind, amount in amounts.sums().items() if kind in KINDS}
