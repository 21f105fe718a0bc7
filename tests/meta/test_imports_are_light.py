"""``import pacprivacy`` stays quick: what is slow is imported by what needs it, when it does."""

import json
import subprocess
import sys

import pytest

SLOW = (
    "dp_accounting",
    "duckdb",
    "jax",
    "joblib",
    "matplotlib",
    "opendp",
    "pandas",
    "plotly",
    "polars",
    "pyarrow",
    "rich.progress",
    "scipy.integrate",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.spatial",
    "scipy.special",
    "scipy.stats",
    "sklearn",
    "sqlalchemy",
)


def loaded_by(statement: str) -> list[str]:
    """Which of the slow modules a fresh interpreter has after a statement."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return sorted(set(SLOW) & set(json.loads(found.stdout.splitlines()[-1])))


@pytest.mark.parametrize(
    "statement",
    [
        "import pacprivacy",
        "from pacprivacy import Session, privatize, verify",
        "import pacprivacy.cli.main",
        "import pacprivacy.reporting",
    ],
)
def test_slow_modules_are_left_alone(statement: str) -> None:
    assert loaded_by(statement) == []


def test_a_slow_module_is_seen() -> None:
    assert loaded_by("import scipy.special; import pacprivacy") == ["scipy.special"]


def test_the_function_privatize_is_not_hidden_by_its_module() -> None:
    loaded_by("import pacprivacy.privatize, pacprivacy as pac; assert callable(pac.privatize)")
