"""Where a session writes down what it spends: nowhere, or in a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pacprivacy.accounting.odometer import Spent
from pacprivacy.adversary import Belief
from pacprivacy.budget import Limits
from pacprivacy.pool import Pool
from pacprivacy.release import Certificate, Secret

if TYPE_CHECKING:
    from pacprivacy.accounting.session_state import SessionState

__all__ = ["Book", "Unrecorded"]


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

    def spend(self, charge: Limits, what: str, *, total: Limits, prior: float) -> None:
        """Write a charge down; the secret is not used before this returns."""
        ...

    def keep(
        self, *, total: Limits, n_releases: int, pool: Pool, belief: Belief, secret: Secret
    ) -> None:
        """Store the belief after a release; the release does not leave before this returns."""
        ...

    def commit(self, certificate: Certificate) -> None:
        """Record the certificate; the release does not leave before this returns."""
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

    def spend(self, charge: Limits, what: str, *, total: Limits, prior: float) -> None:
        """Write nothing down."""

    def keep(
        self, *, total: Limits, n_releases: int, pool: Pool, belief: Belief, secret: Secret
    ) -> None:
        """Store nothing."""

    def commit(self, certificate: Certificate) -> None:
        """Record nothing."""

    def close(self) -> None:
        """Hold nothing."""
