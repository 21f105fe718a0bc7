"""``pac serve``: a saved predictor, tables, or both, behind HTTP."""

from __future__ import annotations

import ipaddress
import logging
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from pacprivacy._system import read_regular
from pacprivacy.budget import parse_budget
from pacprivacy.cli import options
from pacprivacy.cli.console import Screen, Verb, option, show, switch
from pacprivacy.cli.sql import Schemas, Via, open_sql_tables
from pacprivacy.errors import DataError, LedgerError, PacPrivacyError
from pacprivacy.estimators import PrivatePredictor
from pacprivacy.sample import Coins
from pacprivacy.session import LedgerPlace, SampleOptions, Session

MAX_TLS_BYTES = 1 << 20
_Models = Annotated[
    Path | None,
    typer.Argument(metavar="[MODELS]", help="File that PrivatePredictor.save has written."),
]


def _serve(
    *,
    models: _Models = None,
    ledger: options.LedgerPlace = None,
    tokens: Path = option("FILE", "Who may ask.", default=Path("tokens.json")),
    dataset: options.Dataset = None,
    state: options.State = None,
    grant: str | None = option("NAME", "Make a token, print it once, and stop."),
    revoke: str | None = option("NAME", "End a token, and stop."),
    host: str = option("HOST", "Address to listen on.", default="127.0.0.1"),
    port: int = option("N", "Port; 0 for any.", default=8000),
    tls_cert: Path | None = option("FILE", "Certificate of HTTPS."),
    tls_key: Path | None = option("FILE", "Its key."),
    behind_proxy: bool = switch(
        "--behind-proxy", "Listen to others without HTTPS: a proxy has it."
    ),
    source: Path | None = option(
        "PATH", "Answer SQL: DuckDB file or folder of tables.", flags="--tables"
    ),
    unit: str | None = option("TABLE.COLUMN", "Of the tables: who is protected."),
    via: Via = None,
    schema: Schemas = None,
    queries: str = option("NAME", "Of the tables in the ledger.", default="tables"),
    total: str | None = option("TEXT", "Budget of all queries; only the first time."),
    per_query: str = option("TEXT", "Budget of one query.", default="membership<=0.505"),
    rate: float = option("X", "Requests a second of one principal.", default=50.0),
    screen: Screen,
) -> None:
    """Answer questions over HTTP, each with noise, under one promise and a budget.

    One process holds the secret; a second is refused. What an answer costs is on the disk before it
    leaves, so a crash gives nothing away, and the next start goes on with the same secret. What a
    principal may spend is set with 'pac ledger create --principal'; the total is the predictor's.
    """
    if grant is not None or revoke is not None:
        _change_tokens(tokens, grant, revoke, screen)
        return
    if models is None and source is None:
        raise LedgerError(
            "MODELS or --tables must be given; got none. Save a predictor with "
            "predictor.save('churn.pac', ledger='study.db')."
        )
    if ledger is None:
        raise LedgerError(
            "--ledger must be given; got none. For tables it may be a new file, for MODELS it is "
            "the ledger that they were saved with. For example --ledger study.db."
        )
    _check_door(host, behind_proxy or tls_cert is not None)
    options.check_coin_budget(parse_budget(per_query), name="--per-query", advice="")
    if (tls_cert is None) != (tls_key is None):
        raise DataError("--tls-cert and --tls-key must be given together; got one of them.")
    for file in (tls_cert, tls_key):
        _check_tls(file)
    serving = _serving()
    known = serving.Tokens(tokens)
    if not known.principals:
        raise DataError(
            f"--tokens must hold a principal; got {str(tokens)[:60]!r}, which holds none. "
            f"Make a token with 'pac serve --grant NAME'."
        )
    if not 0 < rate < 1e9:
        raise DataError(f"--rate must be above 0; got {rate!r}. Leave it out.")
    limits = serving.Limits(rate=rate, per_query=per_query)
    predictor, session = None, None
    if models is not None:
        predictor = PrivatePredictor.load(models, ledger=ledger, dataset=dataset, state=state)
        state = None if state is None else state.with_name(f"{state.name}.{queries}")
    try:
        if source is not None:
            place = LedgerPlace(ledger=ledger, dataset=queries, state=state)
            session = _open_tables(source, schema, unit, via or [], total, place)
        service = serving.Service(known, predictor, session=session, limits=limits)
    except BaseException:
        if predictor is not None:
            predictor.close()
        raise
    _log(screen.quiet)

    def ready(url: str) -> None:
        certificate = None if predictor is None else predictor.certificate_
        digest = None if certificate is None else certificate.digest
        promise = serving.OF_TABLES if certificate is None else certificate.promise
        screen.show(f"{promise}\nServing on {url}", {"url": url, "certificate": digest})
        sys.stdout.flush()

    tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    with suppress(KeyboardInterrupt):  # the server has finished what it was at
        serving.run_service(service, host=host, port=port, tls=tls, ready=ready)


def _open_tables(
    source: Path,
    schemas: Path | None,
    unit: str | None,
    via: list[str],
    total: str | None,
    place: LedgerPlace,
) -> Session:
    if unit is None:
        raise DataError("--unit must be given with --tables; got none. Use --unit customer.id.")
    tables = open_sql_tables(source, schemas, unit=unit, via=via)
    budget = None if total is None else parse_budget(total)
    options.check_coin_budget(budget, name="--total", advice="")
    return Session.with_options(tables, budget, SampleOptions(sample=Coins()), place)


def _serving() -> Any:
    try:
        from pacprivacy import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "h11"):
            raise
        raise PacPrivacyError(
            "starlette and uvicorn must be installed to serve. "
            "Run in a checkout: pip install '.[serve]'"
        ) from None
    return serve


def _change_tokens(path: Path, grant: str | None, revoke: str | None, screen: Screen) -> None:
    tokens = _serving().Tokens(path)
    if revoke is not None:
        tokens.revoke(revoke)
    token = None if grant is None else tokens.grant(grant)
    if token is not None and not screen.as_json:
        show(token)  # also when quiet: it is shown only once
        return
    content = {"principals": list(tokens.principals), "token": token}
    screen.show(f"{path}: the token of {revoke!r} is worthless now.", content)


def _check_door(host: str, covered: bool) -> None:
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not (local or covered):
        raise DataError(
            f"--host must be this machine's own address without HTTPS; got {host[:60]!r}: tokens "
            f"and answers would travel in the clear. Add --tls-cert and --tls-key, or "
            f"--behind-proxy where a proxy has HTTPS."
        )


def _check_tls(file: Path | None) -> None:
    try:
        if file is not None:
            read_regular(file, most_bytes=MAX_TLS_BYTES)
    except OSError as error:
        raise DataError(
            f"--tls-cert and --tls-key must be PEM files; got {str(file)[:60]!r}: "
            f"{error.strerror}. Check the path."
        ) from None


def _log(quiet: bool) -> None:
    warnings.simplefilter("ignore")  # what models warn of may quote data, and would be in the log
    logging.basicConfig(
        level=logging.ERROR if quiet else logging.INFO, format="%(asctime)s %(name)s %(message)s"
    )
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.ERROR)


serve = Verb(
    function=_serve,
    example="""\
  pac serve --grant ann
  pac ledger create study.db --dataset churn --principal ann --increment 1%
  pac serve churn.pac --ledger study.db
  pac serve --tables shop.duckdb --unit customer.id --via orders=customer_id \\
      --ledger study.db --total "membership<=0.6\"""",
)
