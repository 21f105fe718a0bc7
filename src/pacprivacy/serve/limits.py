"""What a request may ask of the service: size, time, rate; and how a request is refused."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

MOST_NAMES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one request (``body_bytes``, ``rows``), and of all that are ``waiting``.

    ``seconds`` are for a request to arrive, and again for its answer. ``rate`` is requests a second
    of one principal, on average; twice as many at once. ``per_query`` is the budget of a query in
    SQL.
    """

    body_bytes: int = 1 << 20
    rows: int = 1000
    waiting: int = 256
    seconds: float = 30.0
    rate: float = 50.0
    per_query: str = "mi<=1/1000"


class Refused(Exception):
    """A request that is not answered: the status, and a reason that quotes nothing secret."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class RateLimits:
    """How many requests everyone has left at this moment."""

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(1.0, 2 * rate)
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> None:
        """Count a request; refuse one too many."""
        now = time.monotonic()
        if len(self._left) > MOST_NAMES:
            self._left.clear()
        remaining, since = self._left.get(name, (self._most, now))
        remaining = min(self._most, remaining + self._rate * (now - since))
        if remaining < 1:
            wait = max(1, round((1 - remaining) / self._rate))
            raise Refused(429, "Too many requests. Wait a little.", Retry_After=str(wait))
        self._left[name] = (remaining - 1, now)
