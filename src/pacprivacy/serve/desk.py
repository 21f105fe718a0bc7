"""The desk: principals, their limits, and answers by the one thread with the secret.

All waiting requests are answered in one pass. Principals and the hashes of their tokens are in a
file for its owner alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from pacprivacy._checks import Matrix
from pacprivacy._random import fresh_seed
from pacprivacy._system import open_regular, write_atomically
from pacprivacy.errors import DataError, SecretError, UnansweredError
from pacprivacy.estimators import PrivatePredictor
from pacprivacy.session import QueryRelease, Remaining, Session

SCHEMA_VERSION: Final = 1
MAX_NAMES: Final = 10_000  # whose rates are counted at a time
MAX_NAME_LENGTH: Final = 200
MAX_TOKEN_BYTES: Final = 16 << 20  # a hundred thousand principals


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one request (``body_bytes``, ``rows``), and of all that are ``waiting``.

    ``seconds`` are for a request to arrive, and again for its answer. ``rate`` is requests a second
    of one principal, on average; twice as many at once. ``per_query`` is the budget of a query in
    SQL, ``queries`` the number of those that are read at once.
    """

    body_bytes: int = 1 << 20
    rows: int = 1000
    waiting: int = 256
    seconds: float = 30.0
    rate: float = 50.0
    per_query: str = "membership<=0.505"
    queries: int = 4


class Refused(Exception):
    """A request that is not answered: the status, and a reason that quotes nothing secret."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class RateLimits:
    """Remaining requests of every principal."""

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(1.0, 2 * rate)
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> None:
        now = time.monotonic()
        if len(self._left) > MAX_NAMES:
            self._left.clear()
        remaining, since = self._left.get(name, (self._most, now))
        remaining = min(self._most, remaining + self._rate * (now - since))
        if remaining < 1:
            wait = max(1, round((1 - remaining) / self._rate))
            raise Refused(429, "Too many requests. Wait a little.", Retry_After=str(wait))
        self._left[name] = (remaining - 1, now)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema_version: int
    principals: dict[str, str]


class Tokens:
    """Principals and their tokens; a token itself is shown once and kept nowhere.

    Guarantee
    ---------
    Claim V-3. A token has 256 random bits. The file holds SHA-256 of it; a token that is presented
    is compared with every one of them, in a time that does not depend on how far they agree.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._version: tuple[int, int] | None = None
        self._hashes: dict[str, str] = {}
        self._read()

    def __repr__(self) -> str:
        return f"Tokens({len(self._hashes)} principals)"

    @property
    def principals(self) -> tuple[str, ...]:
        self._read()
        return tuple(self._hashes)

    def grant(self, principal: str) -> str:
        """Make a token for a principal, in place of an earlier one, and return it."""
        plain = principal.isprintable() and principal.strip() == principal
        if not plain or not 0 < len(principal) <= MAX_NAME_LENGTH or principal == "*":
            raise DataError(
                f"principal must be 1 to {MAX_NAME_LENGTH} printable characters, and not *; got "
                f"{principal[:40]!r}. For example 'ann'."
            )
        token = f"pac_{fresh_seed():032x}{fresh_seed():032x}"
        self._read()  # or what another process has ended meanwhile would be valid again
        self._write({**self._hashes, principal: _hash(token)})
        return token

    def revoke(self, principal: str) -> None:
        """Make a principal's token worthless, from the next request on."""
        self._read()
        if principal not in self._hashes:
            raise DataError(f"principal must have a token; got {principal[:40]!r}, who has none.")
        self._write({name: held for name, held in self._hashes.items() if name != principal})

    def principal_of(self, token: str) -> str | None:
        self._read()
        presented, principal = _hash(token), None
        for name, held in self._hashes.items():
            if hmac.compare_digest(held, presented):
                principal = name
        return principal

    def _write(self, hashes: dict[str, str]) -> None:
        content = msgspec.json.encode(_File(SCHEMA_VERSION, hashes))
        write_atomically(self.path, content, mode=0o600, error=DataError)
        self._read()

    def _read(self) -> None:
        try:
            with open_regular(self.path, most_bytes=MAX_TOKEN_BYTES) as file:
                status = os.fstat(file.fileno())
                version = (status.st_mtime_ns, status.st_ino)
                if version == self._version:
                    return
                if os.name != "nt" and status.st_mode & 0o077:
                    raise SecretError(
                        f"{self.path} must be readable by its owner alone (mode 0600); got "
                        f"{status.st_mode & 0o777:04o}. Run: chmod 600"
                    )
                content = msgspec.json.decode(file.read(), type=_File)
        except FileNotFoundError:
            self._version, self._hashes = None, {}
            return
        except (OSError, ValueError):
            raise DataError(
                f"{self.path} must be a file of tokens; it cannot be read as one. "
                f"Make one with 'pac serve --grant NAME'."
            ) from None
        if content.schema_version != SCHEMA_VERSION:
            raise DataError(f"{self.path} must have schema version {SCHEMA_VERSION}; it has not.")
        self._version, self._hashes = version, content.principals


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


MAX_ANSWERED: Final = 100_000  # queries that are remembered to say that they cost again
MOST_ROWS: Final = 8192  # of one pass
CUT_EVERY_S: Final = 0.02
LATE: Final = "No answer in time. Ask for less."


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Answer to one principal, and its remaining budget; public.

    ``again`` says that the principal had the same query answered before: it has cost again.
    """

    reply: Any
    left: Remaining
    again: bool = False


@dataclass(slots=True, eq=False)
class _Question:
    principal: str
    rows: Matrix
    answer: asyncio.Future[Result]


class Desk:
    """Questions in, answers out.

    ``predictor`` was loaded with its ledger, and answers in the order in which questions come;
    ``session`` has coins, is over :class:`pacprivacy.Tables`, with a ledger, for questions in SQL,
    which are read side by side. One of both is needed.

    Guarantee
    ---------
    Claim V-1. A result is handed out when its charge and the belief after it are on the disk.
    """

    def __init__(
        self, predictor: PrivatePredictor | None, session: Session | None, limits: Limits
    ) -> None:
        self.predictor, self.session, self._limits = predictor, session, limits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="desk")
        self._readers = ThreadPoolExecutor(limits.queries, thread_name_prefix="reader")
        self._answered: set[bytes] = set()
        self._waiting: deque[_Question] = deque()
        self._n_busy = self._n_called = 0
        self._cutting: set[asyncio.Task[None]] = set()
        self._work: asyncio.Task[None] | None = None
        names = getattr(predictor, "feature_names_in_", None)
        self.columns: tuple[str, ...] | None = None if names is None else tuple(map(str, names))

    @property
    def n_waiting(self) -> int:
        return len(self._waiting) + self._n_busy + self._n_called

    @property
    def is_open(self) -> bool:
        models, tables = self.predictor, self.session
        return (models is None or models.is_open) and (tables is None or not tables.is_closed)

    async def ask(self, principal: str, rows: Matrix) -> Result:
        self._check_room()
        question = _Question(principal, rows, asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._answer_waiting())
        result: Result = await self._in_time(question.answer)
        return result

    async def ask_sql(
        self, principal: str, query: str, keys: Any, present: Callable[[QueryRelease], Any]
    ) -> Result:
        """Return the released answer as ``present`` shows it.

        A failed or slow query is paid for, and looks alike (Q-4).
        """
        stops: list[Callable[[], None]] = []
        latest = time.monotonic() + 0.5 * self._limits.seconds

        def answer() -> Result:
            assert self.session is not None  # the route is there only if it is
            if time.monotonic() > latest:  # others took the time, which this one would pay for
                raise Refused(503, LATE, Retry_After="1")
            stops.append(self.session.query_stop())
            per_query = self._limits.per_query
            release = self.session.sql(query, per_query, keys=keys, principal=principal)
            left = self.session.account().left_for(principal)
            return Result(reply=present(release), left=left, again=self._again(principal, query))

        try:
            result: Result = await self._call(answer, stops, self._readers)
        except (UnansweredError, Refused):
            if stops:  # it was begun
                raise Refused(422, str(UnansweredError())) from None
            raise
        return result

    def _again(self, principal: str, query: str) -> bool:
        """Whether the principal had the same words answered since the service started."""
        words = f"{principal}\n{' '.join(query.split())}"
        mark = hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()
        again = mark in self._answered
        if len(self._answered) < MAX_ANSWERED:
            self._answered.add(mark)
        return again

    async def look(self, principal: str) -> list[tuple[Remaining, Remaining]]:
        """Return the remaining budget of a principal, and its limits; of models, then of tables."""

        def read() -> list[tuple[Remaining, Remaining]]:
            accounts = []
            if self.predictor is not None:
                accounts.append(self.predictor.left_for(principal, fresh=True))
            if self.session is not None:
                account = self.session.account()
                accounts.append((account.left_for(principal), account.limits_for(principal)))
            return accounts

        looked: list[tuple[Remaining, Remaining]] = await self._call(read, [], self._thread)
        return looked

    def close(self) -> None:
        """Finish the current answers, and leave the secret to another process."""
        for threads in (self._thread, self._readers):
            threads.shutdown(wait=True, cancel_futures=True)
        if self.predictor is not None:
            self.predictor.close()
        if self.session is not None:
            self.session.close()

    def _check_room(self) -> None:
        if not self.is_open:
            raise Refused(503, "The service is closed.")
        if self.n_waiting >= self._limits.waiting:
            raise Refused(503, "Too many requests wait. Try again.", Retry_After="1")

    async def _call(
        self,
        work: Callable[[], Any],
        stops: list[Callable[[], None]],
        threads: ThreadPoolExecutor,
    ) -> Any:
        """Run a function on a thread, and stop it after a time limit."""
        self._check_room()
        begun = threads.submit(work)
        self._n_called += 1
        try:
            return await self._in_time(asyncio.wrap_future(begun))
        finally:
            self._n_called -= 1
            if not begun.done():
                cutting = asyncio.create_task(self._cut_short(begun, stops))
                self._cutting.add(cutting)
                cutting.add_done_callback(self._cutting.discard)

    async def _cut_short(self, begun: Future[Any], stops: list[Callable[[], None]]) -> None:
        while not begun.done():  # again and again: a stop between two statements is forgotten
            for stop in stops:
                stop()
            await asyncio.sleep(CUT_EVERY_S)

    async def _in_time(self, answer: asyncio.Future[Any]) -> Any:
        """Wait for an answer; after the time limit it is never drawn."""
        try:
            return await asyncio.wait_for(answer, self._limits.seconds)
        except TimeoutError:
            raise Refused(503, LATE, Retry_After="1") from None

    def _on_thread(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _answer_waiting(self) -> None:
        while self._waiting:
            batch: list[_Question] = []
            n_rows = 0
            while self._waiting and (not batch or n_rows + len(self._waiting[0].rows) <= MOST_ROWS):
                question = self._waiting.popleft()
                if not question.answer.done():  # somebody gave up
                    batch.append(question)
                    n_rows += len(question.rows)
            self._n_busy = len(batch)
            try:
                results = await self._on_thread(lambda batch=batch: self._answer(batch))  # type: ignore[misc]
            except BaseException as error:
                results = [error] * len(batch)
            self._n_busy = 0
            for question, result in zip(batch, results, strict=True):
                if question.answer.done():
                    continue
                if isinstance(result, Result):
                    question.answer.set_result(result)
                else:
                    question.answer.set_exception(result)

    def _answer(self, batch: list[_Question]) -> list[Result | Exception]:
        """Answer a batch; retry those that failed before a draw one by one."""
        model = self.predictor
        assert model is not None  # the route is there only if it is
        try:
            rows = self._frame(np.concatenate([question.rows for question in batch]))
            parts = [(question.principal, len(question.rows)) for question in batch]
            replies = model.answer_each(rows, parts)
        except Exception as error:
            if len(batch) == 1 or not model.is_open:
                return [error] * len(batch)
            return [self._answer([question])[0] for question in batch]
        return [
            reply
            if isinstance(reply, Exception)
            else Result(reply=reply, left=model.left_for(question.principal)[0])
            for question, reply in zip(batch, replies, strict=True)
        ]

    def _frame(self, rows: Matrix) -> Any:
        if self.columns is None:
            return rows
        import pandas as pd

        return pd.DataFrame(rows, columns=list(self.columns))
