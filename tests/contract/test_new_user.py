"""A newcomer's first hour: install the wheel in an empty environment, then do what the pages say.

The wheel is built and installed by pip without an index. What it depends on, and nothing else of
this environment, is linked into the empty one: so the test also shows that the wheel names all that
it needs, and that no extra is needed for the README and the tutorial.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from pages import Block, read_blocks, read_commands

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "tutorials" / "ten-minutes.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXTRAS = ("pandas", "pyarrow", "jax", "psycopg", "pytest")

# Runs Python blocks in one namespace, as somebody does who types along; commands in a shell.
FOLLOW = """
import doctest, json, subprocess, sys
names = {"__name__": "__main__"}
for language, text in json.load(open(sys.argv[1])):
    if language == "python":
        exec(compile(text, "<page>", "exec"), names)
    elif language == "pycon":
        test = doctest.DocTestParser().get_doctest(text, names, "page", "page", 0)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, clear_globs=False)
        assert not runner.failures
        names.update(test.globs)
    else:
        done = subprocess.run(text, shell=True, capture_output=True, text=True)
        assert done.returncode == 0, (text, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
"""


def run(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PAC", "COV"))}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**clean, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, (words[:4], done.stdout[-2000:], done.stderr[-2000:])
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="the wheel is built with hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--quiet")
    run(sys.executable, "-m", "pip", "wheel", *offline, "-w", folder, ROOT, cwd=folder)
    (found,) = folder.glob("pacprivacy-*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it requires; its folder of programs."""
    place = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    asked = run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=place)
    site = Path(asked.stdout.strip())
    for name in needed_by(wheel):
        link_distribution(metadata.distribution(name), site)
    install = ("--no-index", "--no-deps", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", *install, wheel, cwd=place)
    return place / "bin"


def needed_by(wheel: Path) -> set[str]:
    """The distributions that the wheel requires without extras, and what those require."""
    from packaging.requirements import Requirement

    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        found = re.findall(r"^Requires-Dist: (.*)$", archive.read(name).decode(), re.MULTILINE)
    todo, seen = list(found), set()
    while todo:
        wanted = Requirement(todo.pop())
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        if wanted.name not in seen:
            seen.add(wanted.name)
            todo += metadata.requires(wanted.name) or []
    return seen


def link_distribution(found: metadata.Distribution, site: Path) -> None:
    files = [str(file) for file in found.files or ()]
    tops = {Path(file).parts[0] for file in files if not file.startswith("..")}
    for top in tops - {"__pycache__"}:
        source, target = Path(str(found.locate_file(top))), site / top
        if not target.exists() and source.exists():
            target.symlink_to(source)


def follow(bin_folder: Path, folder: Path, blocks: list[Block]) -> None:
    script, page = folder / "follow.py", folder / "page.json"
    script.write_text(FOLLOW)
    steps: list[tuple[str, str]] = []
    for block in blocks:
        if block.language == "console":
            steps += [("console", typed(command.words)) for command in read_commands(block.text)]
        else:
            steps.append((block.language, block.text))
    page.write_text(json.dumps(steps))
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    run(bin_folder / "python", script, page, cwd=folder, PATH=path)


def typed(words: tuple[str, ...]) -> str:
    # An audit may accuse a sound release once in a hundred times; a fixed pool is always the same.
    more = ["--seed", "1"] if words[:2] == ("pac", "release") else []
    fewer = {"128": "32", "500": "100", "55%,60%,75%": "60%"}  # of subsets, trials and budgets
    words = tuple(fewer.get(word, word) for word in words)
    return " ".join(word if word == ">" else shlex.quote(word) for word in (*words, *more))


def test_extras_are_not_there(environment: Path, tmp_path: Path) -> None:
    script = "import importlib.util as u\n"
    script += f"print([n for n in {EXTRAS!r} if u.find_spec(n) is not None])\n"
    script += "import pacprivacy; print(pacprivacy.__file__)"
    found, where = run(environment / "python", "-c", script, cwd=tmp_path).stdout.splitlines()
    assert found == "[]"
    assert str(environment.parent) in where


def test_readme_in_python(environment: Path, tmp_path: Path) -> None:
    first = next(block for block in read_blocks(README) if block.language == "python")
    follow(environment, tmp_path, [first])
    assert (tmp_path / "out" / "ages" / "release.json").is_file()


def test_commands_of_the_tutorial_with_a_table_of_their_own(
    environment: Path, tmp_path: Path
) -> None:
    blocks = [block for block in read_blocks(TUTORIAL) if block.language == "console"]
    blocks.pop()  # the ledger is shown when a session has used it, in Python
    rng = np.random.default_rng(11)
    people = [f"k{i % 400},{rng.integers(20, 80)}" for i in range(800)]
    rows = [f"{person},{rng.normal(31_000, 7_000):.1f}" for person in people]
    (tmp_path / "people.csv").write_text("\n".join(["person,age,income", *rows]) + "\n")
    follow(environment, tmp_path, blocks)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "used or left out" in page
    assert (tmp_path / "study.db").is_file()


def test_papers_are_not_in_the_wheel(wheel: Path, environment: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folders = {tuple(name.split("/")[:2]) for name in archive.namelist()}
    assert not folders & {("papers", "__init__.py"), ("pacprivacy", "datasets")}
    assert ("pacprivacy", "experiments") not in folders
    done = subprocess.run(
        [str(environment / "pac"), "reproduce", "alg"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "the papers must be installed" in line
    assert "pip install --editable ./papers" in line


def test_wrong_words_get_one_line(environment: Path, tmp_path: Path) -> None:
    words = ["release", "nothing.csv", "--model", "mean", "--budget", "mi<=1", "-o", "out"]
    done = subprocess.run(
        [str(environment / "pac"), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
