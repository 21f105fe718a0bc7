"""One secret in one process: what is believed about it, what was spent, what it lets be seen.

A session of releases and a responder to questions hold a secret. :meth:`SecretHolder.observe` is
the only place where anything is charged, and the only one where a secret is used.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from pacprivacy._checks import Vector, freeze
from pacprivacy._random import BitSource, ProcessBound
from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy.adversary import Belief
from pacprivacy.budget import BLIND, Spent
from pacprivacy.errors import SecretError
from pacprivacy.release import Certificate, ReleaseSampler
from pacprivacy.session.secret import Accounts, HeldSecret, Observed
from pacprivacy.session.state import SessionState

if TYPE_CHECKING:
    from pacprivacy.ledger import Reservation
    from pacprivacy.session.responder import Standing

LEARNED: Final = "Learned in this run (for the curator)"
Receipt: TypeAlias = "Reservation"


class SpendLog:
    """Record of what a session spends; this one lasts as long as its process."""

    state: SessionState | None = None
    """The session as it was left on disk; ``None`` for a new one."""

    def spent(self) -> Spent:
        """Return what was spent before this process, crashed attempts included."""
        return Spent(mi_nats=0.0, success_increment=0.0)

    def left(self, payer: str | None = None) -> Spent:
        """Return what a payer has left besides the session's total; ``None`` where unlimited.

        By default the payer is the one who opened the session.
        """
        return Spent()

    def spend(
        self, charge: Spent, what: str, before: SessionState, payer: str | None = None
    ) -> Receipt | None:
        """Write a charge down; the secret is not used before this returns."""
        return None

    def keep(self, after: SessionState) -> None:
        """Store the belief after a release; nobody sees the release before this returns."""

    def commit(self, certificate: Certificate, receipt: Receipt | None) -> None:
        """Record the certificate; nobody sees the release before this returns."""

    def settle(self, charge: Spent) -> None:
        """Say what answers really cost, at most what was written down for them."""

    def flush(self, standing: Callable[[], Standing]) -> None:
        """Store where a responder stands; nobody sees its answers before this returns."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    """The promise, the amounts spent, and what was learned in this run; curator-only.

    ``spent`` is the sum of the proved bounds so far; for success, what the smallest balance of any
    unit has lost. ``total`` is its limit. ``success_bound`` is the promise: no attacker guesses a
    unit's membership with more success, on average over secrets and noise, whatever is asked and
    whenever one stops. The amounts spent so far give no bound, because they depend on the values
    that were released. ``learned_nats`` and the guesses of the optimal attacker are of
    this run, and no promise. ``n_free`` answers all candidates gave alike; ``belief`` is the
    optimal attacker's.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> with pac.Session(data, budget=pac.Information(1), n_subsets=16) as session:
    ...     _ = session.release(np.mean, pac.Information(1 / 4), rule="waterfill")
    >>> odometer = session.odometer()
    >>> odometer.spent.n_releases, odometer.spent.mi_nats <= 1 / 4
    (1, True)
    """

    spent: Spent
    total: Spent
    learned_nats: float = 0.0
    best_guess_now: float = 0.5
    mean_guess_now: float = 0.5
    success_bound: float | None = None
    n_free: int = 0
    belief: Vector | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.belief is not None:
            freeze(self.belief)

    def _rows(self) -> list[tuple[str, str]]:
        spent, total = self.spent, self.total
        if total.mu_squared is not None:
            return self._coin_rows(total.mu_squared)
        nats = f"{at_most(spent.mi_nats or 0.0, significant=4)} nats"
        if total.mi_nats is not None:
            nats += f" of {at_most(total.mi_nats, significant=4)}"
        rows = [
            ("Releases", str(spent.n_releases)),
            ("Information spent", nats),
        ]
        if self.success_bound is not None:
            most = percent_at_most(self.success_bound)
            rows.insert(0, ("Promised membership success", f"at most {most} %"))
        if total.success_level is not None:
            points = percent_at_most(spent.success_increment or 0.0)
            limit = f"{100 * (total.success_level - BLIND):.4g}"
            rows.append(("Membership spent", f"{points} of {limit} points"))
        guess = percent_at_most(self.best_guess_now)
        nats = at_most(self.learned_nats, significant=4)
        rows.append((LEARNED, f"{nats} nats; best guess about one unit {guess} %"))
        return rows

    def _coin_rows(self, cap: float) -> list[tuple[str, str]]:
        """Return rows for coins: the cap, and what the busiest unit has spent of it."""
        share = percent_at_most((self.spent.mu_squared or 0.0) / cap)
        rows = [
            ("Releases", str(self.spent.n_releases)),
            ("Spent by the busiest unit", f"{share} % of what a unit may spend"),
        ]
        if self.success_bound is not None:
            promised = f"at most {percent_at_most(self.success_bound)} %"
            rows.insert(0, ("Promised membership success", promised))
        return rows

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self._rows())

    def _repr_html_(self) -> str:
        rows = self._rows()
        cells = "".join(
            f'<tr><th style="text-align:left">{name}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in rows
        )
        return f"<div><p><b>Session</b></p><table>{cells}</table></div>"


class SecretHolder(ProcessBound):
    """Keeps one secret, and what was spent of a total.

    Guarantee
    ---------
    Claim R-4. In a fork of its process nothing is spent or drawn.
    """

    NAME: ClassVar[str]

    def __init__(
        self, total: Spent, source: BitSource, secret: HeldSecret, book: SpendLog | None = None
    ) -> None:
        self._total, self._source, self._secret = total, source, secret
        self._book = SpendLog() if book is None else book
        self._spent = self._book.spent()
        self._closed = False
        self._lock = threading.RLock()

    @property
    def spent(self) -> Spent:
        return self._spent

    def close(self) -> None:
        """Forget the secret; nothing more leaves from this object.

        With a ledger the secret stays in the session's file, from which it can go on.
        """
        self._closed = True
        self._secret.forget()
        self._book.close()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def check_open(self) -> None:
        """Refuse to go on after :meth:`close`."""
        if self._closed:
            raise SecretError(f"{self.NAME} must be open; it is closed. Start a new {self.NAME}.")

    def observe(
        self,
        sampler: ReleaseSampler[Any, Observed],
        charge: Spent,
        what: str,
        *,
        balances: Accounts | None = None,
        first: int = 0,
    ) -> tuple[Observed, Receipt | None]:
        """Charge, and only then let the secret be seen.

        Failures before the charge cost nothing; after it, the charge stays spent. ``balances``
        are what the charge leaves of every unit's. The secret is drawn here if there is none yet,
        from candidate number ``first`` on. The receipt is that of the ledger, if there is one.
        """
        receipt = self._charge(charge, what, balances, first=first)
        return self._secret.observe(sampler, self._source), receipt

    def prepay(
        self, charge: Spent, what: str, balances: Accounts | None, payer: str
    ) -> Receipt | None:
        """Charge a query of a principal before its rows are read."""
        receipt = self._charge(charge, what, balances, payer=payer)
        self._spent = self._spent + Spent(n_releases=1)
        return receipt

    def observe_paid(self, sampler: ReleaseSampler[Any, Observed]) -> Observed:
        """Let the secret be seen once, for what was charged by :meth:`prepay`."""
        self.check_process()
        self.check_open()
        return self._secret.observe(sampler, self._source)

    def _charge(
        self,
        charge: Spent,
        what: str,
        balances: Accounts | None,
        *,
        first: int = 0,
        payer: str | None = None,
    ) -> Receipt | None:
        self.check_process()  # last of all: a mechanism may have forked, or closed the session,
        self.check_open()  # and then there must be no second secret under the belief of the first
        self._secret.draw(self._source, first=first)
        state = self._secret.state(self._total, self._spent.n_releases, balances=balances)
        try:
            receipt = self._book.spend(charge, what, state, payer)
        except BaseException as error:
            self._end_if_superseded(error)
            raise
        self._secret.balances = balances
        self._spent = self._spent + replace(charge, n_releases=0)
        return receipt

    def _end_if_superseded(self, error: BaseException) -> None:
        """Close this if the book says that another process has gone on with the secret."""
        if isinstance(error, SecretError):
            self.close()

    def keep(self, belief: Belief | None, n_releases: int = 1) -> None:
        """Remember what was seen, on disk where there is a ledger, before anyone sees it."""
        spent = self._spent + Spent(n_releases=n_releases)
        balances = self._secret.balances
        self._book.keep(
            self._secret.state(self._total, spent.n_releases, balances=balances, belief=belief)
        )
        self._secret.belief, self._spent = belief, spent

    def odometer(self) -> Odometer:
        """Return the promise, the amounts spent, and what was learned in this run."""
        return self._secret.reading(self._spent, self._total)
