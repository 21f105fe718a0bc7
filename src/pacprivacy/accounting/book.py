"""Where a session writes down what it spends: nowhere, or in a ledger.

In this order: what the session knows and what it is about to do, the charge, the observation (which
is no business of the book), what the session then knows, the certificate. What a user's code sees
comes after all of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pacprivacy.accounting.odometer import Spent
from pacprivacy.adversary import Belief
from pacprivacy.budget import Limits
from pacprivacy.errors import LedgerError
from pacprivacy.pool import Pool
from pacprivacy.release import Certificate, Secret

if TYPE_CHECKING:
    from pacprivacy.accounting.session_state import SessionState

__all__ = ["Book", "Standing", "Unrecorded", "check_no_names"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """Where a session stands between two releases; curator-only."""

    total: Limits
    n_releases: int
    pool: Pool
    belief: Belief
    secret: Secret


class Book(Protocol):
    """What a session needs of the place where its spends are written."""

    @property
    def state(self) -> SessionState | None:
        """The session as it was left on disk; ``None`` for a new one."""
        ...

    def spent(self) -> Spent:
        """Return what was spent before this process, crashed attempts included."""
        ...

    def left(self) -> Limits:
        """Return what is left besides the session's own total; ``None`` where unlimited."""
        ...

    def spend(self, charge: Limits, what: str, before: Standing) -> None:
        """Write a charge down; the secret is not used before this returns."""
        ...

    def keep(self, after: Standing) -> None:
        """Store the belief after a release; nobody sees the release before this returns."""
        ...

    def commit(self, certificate: Certificate) -> None:
        """Record the certificate; nobody sees the release before this returns."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class Unrecorded:
    """A session without a ledger: it lasts as long as its process."""

    state: None = None

    def spent(self) -> Spent:
        """Return that nothing was spent before."""
        return Spent()

    def left(self) -> Limits:
        """Return no limits."""
        return Limits()

    def spend(self, charge: Limits, what: str, before: Standing) -> None:
        """Write nothing down."""

    def keep(self, after: Standing) -> None:
        """Store nothing."""

    def commit(self, certificate: Certificate) -> None:
        """Record nothing."""

    def close(self) -> None:
        """Hold nothing."""


def check_no_names(*names: object) -> None:
    """Refuse the names of an account where there is no ledger."""
    if any(name is not None for name in names):
        raise LedgerError(
            "ledger must be given with dataset, principal or state; got none. "
            "Add ledger='study.db'."
        )
