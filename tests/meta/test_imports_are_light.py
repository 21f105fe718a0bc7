"""Imports stay quick: what is slow is loaded by what needs it, when it does."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import pacprivacy

OPTIONAL = ("duckdb", "jax", "matplotlib", "pandas", "plotly", "polars", "pyarrow")
SLOW = (*OPTIONAL, "dp_accounting", "sklearn", "sqlalchemy")
LATER = ("joblib", "scipy.linalg", "scipy.optimize", "scipy.special", "scipy.sparse")
NUMERICAL = ("joblib", "narwhals", "numpy", "scipy")


def loaded_by(statement: str) -> set[str]:
    """Every module that a fresh interpreter has after a statement."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(found.stdout.splitlines()[-1]))


@pytest.mark.parametrize("statement", ["import pacprivacy", "from pacprivacy import errors"])
def test_the_package_loads_nothing_but_itself(statement: str) -> None:
    loaded = loaded_by(statement)
    assert not loaded & {*SLOW, *NUMERICAL}
    assert {name for name in loaded if name.startswith("pacprivacy.")} <= {
        "pacprivacy._version",
        "pacprivacy.errors",
    }


@pytest.mark.parametrize(
    "statement",
    [
        "from pacprivacy import Membership, parse_budget",
        "from pacprivacy import Session, privatize, verify",
        "import pacprivacy.cli.release",
        "import pacprivacy.reporting",
    ],
)
def test_slow_modules_are_left_alone(statement: str) -> None:
    assert not loaded_by(statement) & {*SLOW, *LATER}


def test_a_table_is_read_without_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "people.csv"
    path.write_text("id;region;income\n" + "p1;east;1,5\np2;;NA\n" * 5)
    loaded = loaded_by(
        "from pathlib import Path; from pacprivacy.tables import table; table.QUICK_BYTES = 0\n"
        f"found = table.read_table(Path({str(path)!r})).columns\n"
        "assert found['income'].numbers[0] == 1.5 and found['income'].gaps[1]\n"
        "assert found['region'].codes.tolist() == [0, -1] * 5"
    )
    assert "pyarrow.csv" in loaded or "pyarrow._csv" in loaded
    assert "pandas" not in loaded


def test_a_slow_module_is_seen() -> None:
    assert "sqlalchemy" in loaded_by("import sqlalchemy; import pacprivacy") & set(SLOW)


def test_type_checkers_and_the_interpreter_find_the_same_names() -> None:
    tree = ast.parse(Path(pacprivacy.__file__).read_text(encoding="utf-8"))
    declared = {
        alias.name: (node.module or "").removeprefix("pacprivacy.")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == pacprivacy._HOME_OF | dict.fromkeys(pacprivacy._SPACES, "pacprivacy")
    assert set(declared) <= set(dir(pacprivacy))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'privatise'"):
        _ = pacprivacy.privatise
