"""One plain word for one thing: words that readers stumbled over do not come back.

A pattern is here if it is wrong wherever it stands, so that there is nothing to excuse. What is
right in one place and wrong in another (*share*, *record*, *member*) is left to readers.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "pacprivacy"

# Wrong in pages, docstrings and messages alike; and what to write.
EVERYWHERE = {
    r"secret half": "the sample: rarely is it a half",
    r"drown(?:s|ed)?": "noise exceeds the value",
    r"lets? out|letting out": "published exactly",
    r"(?:mean|median|average|sums?|counts?|samples?|that) of nobody": "an empty group",
    r"(?:stand|stands|standing) out of": "exceeds its noise",
    r"hangs? on (?:the|a|an|how|which|single)": "depends on",
    r"who(?:ever)? is looked at": "the selected units",
    r"where it hurts": "on what matters most",
    r"what leaves": "what is released",
    r"pip install '?\"?pacprivacy\[": "pip install '.[extra]' in a checkout",
}

# Wrong in pages for people; theory, claims and decisions need one or the other.
FOR_PEOPLE = {
    r"universe": "all records, the table",
    r"worlds?": "candidate, the tables of a candidate",
    r"error bars?": "interval, standard error",
    r"leaves without noise": "published exactly",
    r"not at hand": "not available",
    r"dear(?:er|est)?": "expensive",
    r"the books": "the ledger",
    r"as one likes": "as many as you like",
}
RESEARCH = {"claims", "decisions", "papers", "theory", "reference"}
RESEARCH_PAGES = {"errata.md", "architecture.md"}

# Names that say nothing about what they hold; and what these are called now.
NAMES = {
    "TOLD": "SIDE_KNOWLEDGE_SIZES",
    "LUCK": "SAFETY_MARGIN_SD",
    "PILOT": "MAX_PILOT_DRAWS",
    "_take_apart": "split_query",
    "_by_draws": "bound_by_simulation",
}


def joined(patterns: dict[str, str]) -> re.Pattern[str]:
    """Any of the patterns as whole words; a blank of theirs may be a line break."""
    either = "|".join(patterns).replace(" ", r"\s+")
    return re.compile(rf"(?<![\w`-])(?:{either})(?![\w`-])", re.IGNORECASE)


def advice(match: str, patterns: dict[str, str]) -> str:
    fitting = (new for old, new in patterns.items() if re.fullmatch(old, match, re.IGNORECASE))
    return next(fitting, "see the list")


def prose_of_page(text: str) -> str:
    """A page without its code, as many lines long."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    text = re.sub(r"^ *```.*?^ *```", blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]*`", blank, text)
    return re.sub(r"\]\([^)]*\)", "]", text)


@cache
def words_of_module(path: Path) -> tuple[tuple[int, str], ...]:
    """Every docstring and message of a module, with the line where it begins, without code."""
    return tuple(
        (node.lineno, re.sub(r"`+[^`]*`+", "", node.value))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    )


def complaints(where: str, first: int, text: str, patterns: dict[str, str]) -> Iterator[str]:
    for match in joined(patterns).finditer(text):
        found = " ".join(match[0].split())
        line = first + text[: match.start()].count("\n")
        yield f"{where}:{line}: {found!r} ({advice(found, patterns)})"


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def is_research(path: Path) -> bool:
    folders = set(path.parent.relative_to(ROOT).parts)
    return bool(folders & RESEARCH) or path.name in RESEARCH_PAGES


def test_pages_use_the_words_of_the_glossary() -> None:
    bad = []
    for path in pages():
        patterns = EVERYWHERE if is_research(path) else EVERYWHERE | FOR_PEOPLE
        text = prose_of_page(path.read_text(encoding="utf-8"))
        bad += complaints(path.relative_to(ROOT).as_posix(), 1, text, patterns)
    assert not bad, "say it in the words of the glossary:\n  " + "\n  ".join(bad)


def test_docstrings_and_messages_use_the_words_of_the_glossary() -> None:
    bad = [
        complaint
        for path in sorted(SOURCE.rglob("*.py"))
        for line, text in words_of_module(path)
        for complaint in complaints(path.relative_to(ROOT).as_posix(), line, text, EVERYWHERE)
    ]
    assert not bad, "say it in the words of the glossary:\n  " + "\n  ".join(bad)


def defined_names(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def test_names_say_what_they_hold() -> None:
    bad = [
        f"{path.relative_to(ROOT)}:{line}: {name} (such as {NAMES[name]})"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, name in defined_names(path.read_text(encoding="utf-8"))
        if name in NAMES
    ]
    assert not bad, "names that were replaced are back:\n  " + "\n  ".join(bad)


@pytest.mark.parametrize(
    ("text", "patterns", "expected"),
    [
        ("The noise drowns it.", EVERYWHERE, ["drowns"]),
        ("The mean\nof nobody.", EVERYWHERE, ["mean\nof nobody"]),
        ("All of the universe.", FOR_PEOPLE, ["universe"]),
        ("Known to `universe`, and universe-wide.", EVERYWHERE | FOR_PEOPLE, []),
        ("It is used or left out; 2 whole units of the world-famous.", FOR_PEOPLE, []),
    ],
)
def test_what_is_found(text: str, patterns: dict[str, str], expected: list[str]) -> None:
    found = [match[0] for match in joined(patterns).finditer(prose_of_page(text))]
    assert found == expected
