"""The published figures live outside the repository; in CI they must be there."""

import os

import pytest

from pacprivacy.experiments.published import find_reference


def require_reference(*names: str) -> None:
    """Skip a test whose published figures are not at hand; fail it in CI."""
    missing = [name for name in names if find_reference(name) is None]
    if missing:
        reason = f"reference files {', '.join(missing)} are not beside a data folder"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}. CI must run every test: provide them.")
        pytest.skip(reason)
