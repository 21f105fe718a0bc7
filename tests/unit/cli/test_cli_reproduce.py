"""``pac reproduce``: papers are found by their entry point, and only there."""

import json
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pacprivacy.cli import app, reproduce as verb
from pacprivacy.errors import DataError


def toy(folder: Path, **options: Any) -> Path:
    """A paper that is done at once."""
    if options["only"] == ("violin",):
        raise DataError("only must name figures among mean; got 'violin'.")
    options["report"]("1/1 the mean: 0 s")
    options.pop("report")
    folder.mkdir(parents=True)
    page = folder / "toy.md"
    page.write_text(json.dumps(options), encoding="utf-8")
    return page


def register(monkeypatch: pytest.MonkeyPatch, **papers: str) -> None:
    found = EntryPoints(
        EntryPoint(name=name, value=value, group=verb.GROUP) for name, value in papers.items()
    )
    monkeypatch.setattr(verb, "entry_points", lambda group: found.select(group=group))


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["reproduce", *words])


def test_without_papers_one_line_says_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    result = run("alg")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "the papers must be installed" in line
    assert "pip install --editable ./papers" in line


def test_a_registered_paper_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    register(monkeypatch, toy=f"{__name__}:toy")
    out = tmp_path / "out"
    result = run("toy", "--quick", "--only", "mean, svm", "--jobs", "2", "-o", str(out))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["1/1 the mean: 0 s", f"Wrote {out / 'toy.md'}"]
    asked = json.loads((out / "toy.md").read_text(encoding="utf-8"))
    assert asked == {"quick": True, "only": ["mean", "svm"], "n_jobs": 2}


def test_quiet_and_json_leave_out_the_progress(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    register(monkeypatch, toy=f"{__name__}:toy")
    assert run("toy", "--quiet", "-o", str(tmp_path / "a")).stdout == ""
    found = json.loads(run("toy", "--json", "-o", str(tmp_path / "b")).stdout)
    assert found == {"paper": "toy", "page": str(tmp_path / "b" / "toy.md")}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nothing"], "paper must be one of other, toy; got 'nothing'"),
        (["toy", "--only", "violin"], "'violin'"),
        (["toy", "--jobs", "0"], "jobs must be"),
    ],
)
def test_command_refuses(
    words: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    register(monkeypatch, toy=f"{__name__}:toy", other="nowhere:x")
    result = run(*words, "-o", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert complaint in result.stderr
