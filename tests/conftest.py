"""Fixtures that several test files share."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# What is tested here is how releases are asked for, kept and shown, whatever their noise.
ABOUT_OTHER_THINGS = ("contract", "unit/cli", "unit/reporting")


@pytest.fixture(scope="module", autouse=True)
def _few_draws_where_they_do_not_matter(request: pytest.FixtureRequest) -> None:
    if request.path.parent.relative_to(TESTS).as_posix() in ABOUT_OTHER_THINGS:
        request.getfixturevalue("few_draws")


@pytest.fixture(params=["sqlite", "postgres"])
def ledger_where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield a place for a new ledger: a file, and a schema of its own on a real server.

    ``PACPRIVACY_TEST_POSTGRES`` names the server's database, for example
    ``postgresql://me@localhost/test``.
    """
    if request.param == "sqlite":
        yield str(tmp_path / "study.db")
        return
    url = os.environ.get("PACPRIVACY_TEST_POSTGRES")
    if not url:
        pytest.skip("PACPRIVACY_TEST_POSTGRES names no PostgreSQL server")
    import psycopg

    schema = f"pac_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}"
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
