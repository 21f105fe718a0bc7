"""Data and published figures live outside the repository; in CI they must be there."""

import os
from collections.abc import Callable, Sequence

import pytest

from papers.datasets import find_file, search_folders
from papers.published import find_reference

os.environ["PACPRIVACY_OFFLINE"] = "1"

Require = Callable[..., None]


def require(kind: str, missing: Sequence[str], where: str) -> None:
    """Skip a test that lacks files; where ``CI`` is set fail it: a green build ran every test."""
    if missing:
        reason = f"{kind} {', '.join(missing)} are {where}"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}. CI must run every test: provide them.")
        pytest.skip(reason)


@pytest.fixture(scope="session")
def require_data() -> Require:
    """Return a function that stops the test unless the named data files are on this machine."""

    def require_files(*names: str) -> None:
        folders = ", ".join(str(folder) for folder in search_folders())
        missing = [name for name in names if find_file(name) is None]
        require("data files", missing, f"in none of {folders}")

    return require_files


@pytest.fixture(scope="session")
def require_reference() -> Require:
    """Return a function that stops the test unless the published figures are on this machine."""

    def require_tables(*names: str) -> None:
        missing = [name for name in names if find_reference(name) is None]
        require("reference files", missing, "beside no data folder")

    return require_tables
