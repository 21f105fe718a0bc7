"""What the documentation shows is true: its code runs, its commands work, its tests exist."""

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pacprivacy.budget import Information, Membership
from pacprivacy.noise import (
    RULES,
    AutoConfidence,
    Boxed,
    Empirical,
    Exact,
    Protect,
    Rule,
    Shaped,
    calibrate,
)
from pacprivacy.sample import Half
from pages import RUN, read_blocks, read_commands, run_page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PROOFS = {"claims", "decisions"}  # they show fragments, and tests of their own hold them
ONLY_SHOWN = {"sh", "text", "json", "toml"}

# An audit may accuse a sound release once in a hundred times; with a fixed pool it is always the
# same audit. The page itself does not teach to fix the pool.
QUICK = {"release": ["--seed=1", "--subsets=64"]}


def pages() -> list[Path]:
    found = sorted(DOCS.rglob("*.md"))
    return [path for path in found if not PROOFS & set(path.relative_to(DOCS).parts)]


def name_of(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


def languages(path: Path) -> set[str]:
    return {block.language for block in read_blocks(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("path", [p for p in pages() if languages(p) & set(RUN)], ids=name_of)
def test_page_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    run_page(text, extra=QUICK)


def test_nothing_is_left_out() -> None:
    strange = [
        f"{name_of(path)}:{block.line}: {block.language}"
        for path in pages()
        for block in read_blocks(path.read_text(encoding="utf-8"))
        if block.language not in {*RUN, *ONLY_SHOWN}
        or (block.language == "sh" and re.search(r"^pac ", block.text, re.MULTILINE))
    ]
    assert not strange, f"blocks that no test runs: {strange}"
    fences = {path: path.read_text(encoding="utf-8").count("```") for path in pages()}
    counted = {path: 2 * len(list(read_blocks(path.read_text("utf-8")))) for path in pages()}
    assert fences == counted, "every fence needs a language"


def rules_in_the_docs() -> dict[str, str]:
    """Every rule of the table of noise rules, and the kind that it says; *exact* where none is."""
    page = (DOCS / "theory" / "noise.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w]+)(?:\(.*?\))?` \| (.*?) \|", page, re.MULTILINE)
    said = {name: re.search(r"\*(exact|confidence|empirical)\*", text) for name, text in rows}
    return {name: kind[1] if kind else "exact" for name, kind in said.items()}


def test_rules_have_the_kind_that_the_docs_say() -> None:
    values = np.random.default_rng(0).uniform(size=(24, 2))
    pool = Half(n_subsets=24).draw(12, rng=0)
    made: dict[str, Rule] = {
        "Exact": Exact(cost=np.ones(2)),
        "Protect": Protect(np.eye(2)[:1]),
        "Shaped": Shaped(np.eye(2)),
        "AutoConfidence": AutoConfidence(),
        "Boxed": Boxed(low=0.0, high=1.0),
        "Empirical": Empirical(),
    }
    told = rules_in_the_docs()
    assert set(told) >= {*made, *RULES} - {"confidence"}
    for name, kind in told.items():
        budget = Membership(0.9) if name == "risk" else Information(0.5)
        plan = calibrate(values, budget, rule=made.get(name, name), pool=pool, rng=0)
        assert plan.kind == kind, f"{name} is of kind {plan.kind}"


def test_what_pages_must_have_is_there() -> None:
    for name in ("index", "tutorials/ten-minutes", "sharp-edges", "errata", "promises"):
        assert (DOCS / f"{name}.md").is_file()
    assert len(list((DOCS / "howto").glob("*.md"))) >= 6
    first = (DOCS / "sharp-edges.md").read_text(encoding="utf-8").split("\n## ")[1]
    assert first.startswith("1. Side knowledge")


def named_tests() -> Iterator[tuple[str, str, str]]:
    for path in pages():
        text = path.read_text(encoding="utf-8")
        for file, test in re.findall(r"`((?:papers/)?tests/[\w/]+\.py)(?:::(\w+))?`", text):
            yield name_of(path), file, test


def test_tests_that_pages_name_exist() -> None:
    missing = []
    for page, file, test in named_tests():
        path = ROOT / file
        if not path.is_file():
            missing.append(f"{page}: {file}")
        elif test:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if test not in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}:
                missing.append(f"{page}: {file}::{test}")
    assert not missing, missing


def test_links_between_pages_exist() -> None:
    missing = [
        f"{name_of(path)}: {link}"
        for path in sorted(DOCS.rglob("*.md"))
        for link in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
        if "://" not in link and not (path.parent / link).exists()
    ]
    assert not missing, missing


def anchors(path: Path) -> set[str]:
    """What the headings of a page are called in links, as the site's own rule makes it."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading) for heading in headings)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", h.lower()).strip()) for h in plain}


def test_headings_that_links_name_exist() -> None:
    missing = [
        f"{name_of(path)}: {page}#{anchor}"
        for path in sorted(DOCS.rglob("*.md"))
        for page, anchor in re.findall(
            r"\]\(([^)#\s:]*)#([^)\s]+)\)", path.read_text(encoding="utf-8")
        )
        if anchor not in anchors(path.parent / page if page else path)
    ]
    assert not missing, missing


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == there


def test_the_sidebar_has_five_titles() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert len(re.findall(r"^  - ", text.partition("\nnav:\n")[2], re.MULTILINE)) == 5
    assert "navigation.sections" not in text  # it would unfold all of them


def test_every_public_name_is_in_the_reference() -> None:
    import pacprivacy

    text = "".join(path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md"))
    missing = [
        name for name in pacprivacy.__all__ if not re.search(rf"^::: .*\.{name}$", text, re.M)
    ]
    assert missing == ["__version__"]


def load_hook(name: str = "command_line") -> ModuleType:
    path = DOCS / "_hooks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_hook", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_help_texts_are_put_into_their_page() -> None:
    hook = load_hook()
    page = (DOCS / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert hook.MARK in page
    filled = hook.on_page_markdown(page)
    for heading in ("## pac release\n", "## pac ledger show\n", "## pac convert\n"):
        assert heading in filled
    assert "Example:" in filled
    assert hook.on_page_markdown("nothing to fill") == "nothing to fill"


def test_public_names_are_put_into_their_pages() -> None:
    hook = load_hook("public_names")
    asking = [
        p for p in (DOCS / "reference").glob("*.md") if hook.MARK.search(p.read_text("utf-8"))
    ]
    assert len(asking) >= 7
    for path in asking:
        assert hook.on_page_markdown(path.read_text("utf-8")).count("\n::: pacprivacy.") > 3
    filled = hook.on_page_markdown("<!-- names of pacprivacy.errors -->\n")
    assert "::: pacprivacy.errors.BudgetError\n" in filled


def test_the_site_keeps_a_folder_for_each_version(tmp_path: Path) -> None:
    hook = load_hook("versions")
    for series in ("0.10", "0.9", hook.SERIES):
        (tmp_path / series).mkdir()
        (tmp_path / series / "index.html").touch()
    config = hook.on_config({"site_dir": str(tmp_path)})
    assert config["site_dir"] == str(tmp_path / hook.SERIES)
    hook.on_post_build(config)
    listed = [entry["version"] for entry in json.loads((tmp_path / "versions.json").read_text())]
    assert listed == ["0.10", "0.9", hook.SERIES]
    assert 'url=0.10/"' in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    "page",
    [
        "```python\nassert 1 > 2\n```\n",
        "```pycon\n>>> 1 + 1\n3\n```\n",
        "```python\nx = 1\n```\n\n```pycon\n>>> x\n2\n```\n",
        "```console\n$ pac convert --mi 1/64\nRead as at least\n```\n",
        "```console\n$ pac convert --mi minus\n```\n",
        "```bash\npac no-such-verb\n```\n",
        "```console\n$ rm -rf something\n```\n",
    ],
)
def test_a_page_that_is_wrong_fails(page: str) -> None:
    with pytest.raises(AssertionError):
        run_page(page)


def test_blocks_are_read_as_written() -> None:
    page = (
        "text\n\n```console\n$ pac a \\\n    --b 'c d'\nshown\n$ pac e > f\n```\n\n"
        "1. x\n\n    ```python\n    y = 1\n    ```\n"
    )
    console, python = read_blocks(page)
    assert (console.language, console.line) == ("console", 4)
    assert python.text == "y = 1\n"
    first, second = read_commands(console.text)
    assert (first.words, first.shown) == (("pac", "a", "--b", "c d"), "shown")
    assert second.words == ("pac", "e", ">", "f")
