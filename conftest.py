"""What every test shares: one thread per process, quick repeatable hypothesis."""

import os
from collections.abc import Iterator

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
