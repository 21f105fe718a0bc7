"""What every test shares: one thread per process, quick repeatable hypothesis and noise."""

import gc
import os
import random
import secrets
from collections.abc import Generator, Iterator
from importlib import metadata
from typing import Any

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

# jax compiles in half the time without them. A version that does not know the flag would stop.
if any(found.version.startswith("0.10.") for found in metadata.distributions(name="jaxlib")):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

# What is imported and collected stays: looking for garbage in it takes a third of that time.
gc.disable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Look for garbage again, but not among the half million objects that were collected."""
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Let what was collected go: DuckDB complains about what is still there at the end."""
    gc.unfreeze()


settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],  # it measures the machine, not the test
)
settings.register_profile("thorough", parent=settings.get_profile("quick"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread() -> Iterator[None]:
    with threadpool_limits(limits=1):
        yield


@pytest.fixture(scope="module")
def quick_compiler() -> Iterator[None]:
    """Problems that are small take jax longer to compile well than to run."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def few_draws() -> Iterator[None]:
    """Proofs on few simulated draws, for tests of anything but their number.

    What is proved is as true: the noise is a little larger, to make up for the wider intervals.
    """
    from pacprivacy.noise import proof
    from pacprivacy.release import pool_certificate as certificate

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "information_draws", lambda n_subsets: 4096)
        patch.setattr(certificate, "membership_draws", lambda n_subsets: 4096)
        for name in ("INFORMATION_COST", "POSTERIOR_COST", "HEAT_COST", "HEAT_DRAWS"):
            patch.setattr(proof, name, getattr(proof, name) // 16)
        yield


# Noise and secrets that a test draws repeat from run to run: they depend on the test's own name,
# whatever ran before it, so that a figure compared with its expectation cannot fail once in a
# thousand runs. ``PAC_TEST_ENTROPY=system`` gives them back to the operating system, and so does
# the mark ``system_entropy`` (two processes must not share a stream).
_noise: random.Random | None = None


@pytest.fixture(scope="session", autouse=True)
def _repeatable_noise() -> Iterator[None]:
    if os.environ.get("PAC_TEST_ENTROPY") == "system":
        yield
        return
    import numpy as np

    from pacprivacy import _random

    home = os.getpid()
    system, randbits = _random.SystemSource.words, secrets.randbits

    def words(self: _random.SystemSource, size: int) -> Any:
        if _noise is None or os.getpid() != home:
            return system(self, size)
        return np.frombuffer(_noise.randbytes(8 * size), dtype=np.uint64)

    def bits(k: int) -> int:
        return randbits(k) if _noise is None or os.getpid() != home else _noise.getrandbits(k)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_random.SystemSource, "words", words)
        patch.setattr(secrets, "randbits", bits)
        yield


def _restart(node: Any, part: str = "") -> None:
    global _noise
    marked = node.get_closest_marker("system_entropy")
    _noise = None if marked else random.Random(f"{node.nodeid} {part}")


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> None:
    """Start the noise of a fixture from its own name and that of the test or module it serves."""
    _restart(request.node, f"{fixturedef.argname} {getattr(request, 'param_index', 0)}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Start the noise of a test from the test's own name."""
    _restart(item)
