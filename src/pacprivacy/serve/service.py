"""The service over HTTP: principals, requests, replies, refusals, and the server.

Nothing that is asked or answered is logged, and no token: a line says when, who, how much, and
which status. An internal failure shows its kind alone, because messages of foreign code may
quote data.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pacprivacy._system import single_threaded
from pacprivacy.budget import Spent
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    DataError,
    LedgerError,
    MechanismError,
    QueryError,
    SecretError,
)
from pacprivacy.estimators import PrivatePredictor
from pacprivacy.reporting import page_content_source, read_page_template
from pacprivacy.serve.desk import Desk, Limits, RateLimits, Refused, Tokens
from pacprivacy.session import KINDS, QueryRelease, Remaining, Reply, Session

Handler = Callable[[Request, str], Awaitable[Response]]
LOG: Final = logging.getLogger("pacprivacy.serve")
BACKLOG: Final = 256
UNKNOWN: Final = ""  # no principal has this name
OF_TABLES: Final = (
    "All queries together stay within one budget. What that promises is in the certificate that "
    "comes with every answer."
)
AGAIN: Final = "You had this query answered before: it has cost again, and has new noise."
AMOUNTS: Final = (*KINDS, "mu_squared")
NOT_OF_TABLES: Final = (
    "What the whole of the tables tells: which queries fail, how long they take, and noise and "
    "intervals, which are computed from all records. Whoever writes queries can choose them so "
    "that these show an entry of one person."
)


def _template(name: str) -> str:
    return resources.files("pacprivacy.serve").joinpath("templates", name).read_text("utf-8")


# The page is the same for everyone: what it shows it asks for with a token.
_CSS: Final = read_page_template("report.css") + _template("service.css")
_JS: Final = _template("service.js")
PAGE: Final = _template("service.html").replace("/*css*/", _CSS).replace("/*js*/", _JS)
PAGE_POLICY: Final = (
    f"default-src 'none'; script-src '{page_content_source(_JS)}'; "
    f"style-src '{page_content_source(_CSS)}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Questions(msgspec.Struct, forbid_unknown_fields=True):
    rows: Annotated[
        list[Annotated[list[float], msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)
    ]


class Query(msgspec.Struct, forbid_unknown_fields=True):
    query: Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
    keys: dict[str, list[str | int | float | bool | None]] | None = None


class Service:
    """An ASGI application: a predictor, tables, or both, for holders of a token.

    Guarantee
    ---------
    Claim V-1. An answer leaves when its charge and the belief after it are on the disk.
    Claim V-3. Without a token there is no answer, and nothing about budgets.
    """

    def __init__(
        self,
        tokens: Tokens,
        predictor: PrivatePredictor | None,
        *,
        session: Session | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._tokens, self._limits = tokens, limits or Limits()
        self.desk = Desk(predictor, session, self._limits)
        self._rates, self._failures = RateLimits(self._limits.rate), RateLimits(self._limits.rate)
        self.stop: Callable[[], None] = lambda: None
        plain = {"/": self._page, "/health": self._health}
        routes = [Route(path, self._open(handler)) for path, handler in plain.items()]
        guarded = {"/budget": self._budget, "/certificate": self._certificate}
        if predictor is not None:
            routes.append(Route("/predict", self._guarded(self._predict), methods=["POST"]))
        if session is not None:
            routes.append(Route("/sql", self._guarded(self._sql), methods=["POST"]))
        routes += [Route(path, self._guarded(handler)) for path, handler in guarded.items()]
        self._app = Starlette(
            routes=routes,
            exception_handlers={HTTPException: self._not_there},
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; an internal failure shows its kind alone."""
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if scope["type"] != "http":
                raise
            LOG.error("a request could not be answered: %s", type(error).__name__)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(self.desk.close)

    # --- what every request goes through -----------------------------------------------------

    def _open(self, handler: Callable[[], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return _dressed(handler())

        return endpoint

    def _guarded(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            began, who = time.perf_counter(), UNKNOWN
            try:
                who = self._principal(request)
                response = await handler(request, who)
            except Refused as refused:
                response = _refusal(refused.status, refused.reason, refused.headers)
            except BudgetExceededError as refused:
                response = _refusal(403, str(refused))
            except (QueryError, BudgetError, DataError) as error:
                response = _refusal(400, str(error))
            except MechanismError:  # what it quotes may be of somebody
                response = _refusal(400, "It cannot be answered for every candidate.")
            except ClientDisconnect:
                response = _refusal(400, "The request ended early.")
            except (LedgerError, SecretError) as error:
                LOG.error("the service cannot go on: %s", type(error).__name__)
                response = _refusal(
                    503, "The service cannot write its books. Nothing was answered."
                )
            except Exception as error:
                LOG.error("a defect of this program: %s", type(error).__name__)
                response = _refusal(500, "Something went wrong. Nothing more is said about it.")
            if not self.desk.is_open:
                self.stop()  # what was drawn and not written down is lost with the process
            seconds, path = time.perf_counter() - began, request.url.path
            LOG.info("%s %s %d %.0f ms", who or "-", path, response.status_code, 1e3 * seconds)
            return _dressed(response)

        return endpoint

    async def _not_there(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _dressed(_refusal(error.status_code, error.detail, error.headers))

    def _principal(self, request: Request) -> str:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            principal = (
                self._tokens.principal_of(token.strip()) if kind.lower() == "bearer" else None
            )
        except (DataError, SecretError) as error:  # its words name files, and nobody is known yet
            LOG.error("the tokens cannot be read: %s", type(error).__name__)
            raise Refused(503, "No token is valid.") from None
        if principal is None:
            self._failures.take(UNKNOWN)
            raise Refused(
                401, "A token is needed: Authorization: Bearer ...", WWW_Authenticate="Bearer"
            )
        self._rates.take(principal)
        return principal

    async def _read(self, request: Request, kind: type[Any]) -> Any:
        """Read a body of bounded size in bounded time."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise Refused(415, "The body must be JSON: Content-Type: application/json.")
        most, body = self._limits.body_bytes, bytearray()
        # The connection stays open: what still arrives is thrown away, or the client, which is
        # sending, would find it closed and never read the refusal.
        too_large = Refused(413, f"The body must have at most {most} bytes. Ask in parts.")
        if int(request.headers.get("content-length", "0")) > most:  # digits, says the parser
            raise too_large
        try:
            async with asyncio.timeout(self._limits.seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise Refused(408, "The body came too slowly.", Connection="close") from None
        try:
            return msgspec.json.decode(bytes(body), type=kind)
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"The body does not fit: {str(error)[:200]}.") from None

    # --- what is asked -----------------------------------------------------------------------

    async def _predict(self, request: Request, principal: str) -> Response:
        questions = await self._read(request, Questions)
        predictor = self.desk.predictor
        assert predictor is not None  # the route is there only if it is
        if len(questions.rows) > self._limits.rows:
            reason = f"At most {self._limits.rows} rows in a request. Ask in parts."
            raise Refused(413, reason)
        if {len(row) for row in questions.rows} != {predictor.n_features_in_}:
            raise Refused(400, f"Every row must have {predictor.n_features_in_} numbers.")
        result = await self.desk.ask(principal, np.array(questions.rows, dtype=np.float64))
        reply: Reply = result.reply
        return _json(
            {
                "labels": predictor.classes_[reply.values.argmax(axis=1)].tolist(),
                "values": reply.values.tolist(),
                "noise_std": reply.noise_std.tolist(),
                "unanimous": reply.unanimous.tolist(),
                "charges_nats": reply.charges.tolist(),
                "spent": _amounts(reply.spent),
                "left": _sides(result.left),
            }
        )

    async def _sql(self, request: Request, principal: str) -> Response:
        question = await self._read(request, Query)
        result = await self.desk.ask_sql(principal, question.query, question.keys, _answer_of)
        again = AGAIN if result.again else None
        return _json({**result.reply, "left": _sides(result.left), "note": again})

    async def _budget(self, request: Request, principal: str) -> Response:
        (remaining, limits), *tables = await self.desk.look(principal)
        account = {"principal": principal, "left": _sides(remaining), "limits": _sides(limits)}
        for remaining, limits in tables:
            account["tables"] = {"left": _sides(remaining), "limits": _sides(limits)}
        return _json(account)

    async def _certificate(self, request: Request, principal: str) -> Response:
        predictor = self.desk.predictor
        if predictor is None:
            words = {"promise": OF_TABLES, "not_hidden": NOT_OF_TABLES, "text": OF_TABLES}
            return _json({**words, "sql": True})
        certificate = predictor.certificate_
        return _json(
            {
                "promise": certificate.promise,
                "not_hidden": certificate.not_hidden,
                "text": str(certificate),
                "digest": certificate.digest,
                "certificate": certificate.to_public_dict(),
                "columns": self.desk.columns,
                "n_columns": predictor.n_features_in_,
                "classes": predictor.classes_.tolist(),
                "sql": self.desk.session is not None,
            }
        )

    def _page(self) -> Response:
        return HTMLResponse(PAGE, headers={"Content-Security-Policy": PAGE_POLICY})

    def _health(self) -> Response:
        if self.desk.is_open:
            return PlainTextResponse("ok\n")
        return PlainTextResponse("closed\n", status_code=503)


def _answer_of(release: QueryRelease) -> dict[str, Any]:
    frame, certificate = release.frame, release.certificate
    rows = [[_plain(cell) for cell in row] for row in frame.to_numpy(dtype=object).tolist()]
    return {
        "columns": [str(name) for name in frame.columns],
        "rows": rows,
        "promise": certificate.promise,
        "not_hidden": certificate.not_hidden,
        "certificate": certificate.to_public_dict(),
    }


def _dressed(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def _refusal(status: int, reason: str, headers: Any = None) -> Response:
    return JSONResponse({"error": reason}, status_code=status, headers=headers)


def _amounts(spent: Spent | None) -> dict[str, float] | None:
    if spent is None:
        return None
    return {kind: value for kind in AMOUNTS if (value := getattr(spent, kind)) is not None}


def _sides(remaining: Remaining) -> dict[str, Any]:
    return {"own": _amounts(remaining.own), "total": _amounts(remaining.total)}


def _plain(cell: Any) -> Any:
    return cell.item() if isinstance(cell, np.generic) else cell if _is_json(cell) else str(cell)


def _is_json(cell: Any) -> bool:
    return cell is None or isinstance(cell, str | int | float | bool)


class _TimeoutProtocol(H11Protocol):
    """Closes a connection on which no request arrives in time, however slowly its bytes come."""

    PATIENCE: float = 30.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.access_log = False  # it has whole addresses, with whatever strangers wrote into them

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(self.PATIENCE, self._look, None)

    def _look(self, before: Any) -> None:
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle  # the request that is being answered, or the last one
        idle = cycle is None or cycle.response_complete
        if idle and cycle is before:
            self.transport.close()
            return
        self.loop.call_later(self.PATIENCE, self._look, cycle if idle else object())


def run_service(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    tls: tuple[Path, Path] | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until a signal comes; ``tls`` is a certificate and its key."""
    try:
        door = socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        service.desk.close()
        raise DataError(
            f"host and port must be free; got {host}:{port}: {error.strerror}. Choose another."
        ) from None
    files = {} if tls is None else {"ssl_certfile": tls[0], "ssl_keyfile": tls[1]}
    server = uvicorn.Server(
        uvicorn.Config(
            service,
            http=_TimeoutProtocol,
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=30,
            limit_concurrency=1024,
            **files,  # type: ignore[arg-type]
        )
    )

    def stop() -> None:
        server.should_exit = True

    service.stop = stop
    with door, single_threaded():
        ready(f"{'http' if tls is None else 'https'}://{host}:{door.getsockname()[1]}")
        server.run(sockets=[door])
