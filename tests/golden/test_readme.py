"""What the README shows is true: its Python runs, its commands are understood, its links exist."""

import re
from pathlib import Path

import numpy as np
import pytest

from pages import read_blocks, read_commands, run_page

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
QUICK = {"release": ["--subsets", "32"]}


def blocks(*languages: str) -> str:
    """The blocks of these languages, as a page of their own."""
    found = [block for block in read_blocks(TEXT) if block.language in languages]
    return "".join(f"```{block.language}\n{block.text}```\n" for block in found)


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = blocks("python")
    assert page.count("```python") >= 4
    names = run_page(page)
    assert (tmp_path / "out" / "ages" / "release.json").is_file()
    assert names["release"].certificate.unit == "group of rows"
    assert names["session"].odometer().spent.mi_nats <= 0.5


def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    rows = [f"p{i // 2},{rng.integers(1, 99)},{rng.normal(5e4, 9e3):.2f}" for i in range(40)]
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
