"""What the README shows is true: its Python runs, its commands are understood, its links exist."""

import re
from pathlib import Path

import numpy as np
import pytest

from pages import read_blocks, read_commands, run_page

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
QUICK = {"release": ["--subsets=32"]}


def blocks(*languages: str) -> str:
    """The blocks of these languages, as a page of their own."""
    found = [block for block in read_blocks(TEXT) if block.language in languages]
    return "".join(f"```{block.language}\n{block.text}```\n" for block in found)


def without_figures(text: str) -> list[str]:
    """The lines of a table or a text, but for numbers and the width of columns."""
    return [" ".join(re.sub(r"\d+(\.\d+)?", "0", line).split()) for line in text.splitlines()]


def test_the_example_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_page(blocks("python"))
    files = {path.name for path in (tmp_path / "out" / "ages").iterdir()}
    assert files == {"release.json", "values.csv", "curator.npz"}
    (shown,) = [block.text for block in read_blocks(TEXT) if block.language == "text"]
    printed = capsys.readouterr().out
    assert without_figures(shown) == without_figures(printed)
    assert "at most 60 times in 100; 50 without" in " ".join(shown.split())
    assert names["release"].certificate.used_prior == 0.9  # as the words say


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= 900


def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    rows = [f"p{i // 2},{rng.integers(1, 99)},{rng.normal(5e4, 9e3):.2f}" for i in range(400)]
    Path("people.csv").write_text("\n".join(["person,age,income", *rows]) + "\n")
    page = blocks("console")
    verbs = [command.words[1] for command in read_commands(page.replace("```", ""))]
    assert verbs[0] == "release"
    assert {"verify", "convert"} <= set(verbs)
    run_page(page, extra=QUICK)


def test_links_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert not missing
