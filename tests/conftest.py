"""What every test shares: one thread per process, quick repeatable hypothesis, checked data."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

# Before numpy is imported, and inherited by worker processes: two test workers on two cores
# must not each start one BLAS thread per core.
for _variable in (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
):
    os.environ.setdefault(_variable, "1")
os.environ["PACPRIVACY_OFFLINE"] = "1"

settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],  # it measures the machine, not the test
)
settings.register_profile("thorough", parent=settings.get_profile("quick"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread() -> Iterator[None]:
    with threadpool_limits(limits=1):
        yield


@pytest.fixture(scope="session")
def require_data() -> Callable[..., None]:
    """Return a function that stops the test unless the named data files are on this machine.

    Absent data skips the test with a reason; where ``CI`` is set it fails instead, so that a
    green build means that the tests ran.
    """
    from pacprivacy.datasets import find_file, search_folders

    def require(*names: str) -> None:
        missing = [name for name in names if find_file(name) is None]
        if missing:
            folders = ", ".join(str(folder) for folder in search_folders())
            reason = f"data files {', '.join(missing)} are in none of {folders}"
            if os.environ.get("CI"):
                pytest.fail(f"{reason}. CI must run every test: provide the data.")
            pytest.skip(reason)

    return require


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
