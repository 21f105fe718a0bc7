"""The notebooks of ``examples/``: they run from top to bottom, and are stored without outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
NAMES = {"first_release", "classifier", "a_year_of_releases", "queries"}


def read(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(read(path)):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}[{number}]", "exec"), names)
    if path.stem == "classifier":
        assert names["accuracy"][0.60] > 0.8
    if path.stem == "a_year_of_releases":
        assert names["odometer"].spent.n_releases == 12
        assert names["certificates"][-1].n_units == 855
        assert names["book"].verify().ok
        assert "must be at most what is left" in names["refused"]
    if path.stem == "queries":
        assert [len(names[name].answer.rows) for name in ("summary", "revenue")] == [3, 5]
        assert len(names["refused"]) == 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_clean(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert content["cells"][0]["cell_type"] == "markdown"


def test_all_are_there_and_in_the_documentation() -> None:
    assert {path.stem for path in NOTEBOOKS} == NAMES
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert all(f"examples/{path.name}" in page for path in NOTEBOOKS)
