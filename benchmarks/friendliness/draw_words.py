"""Thirty sentences and thirty names, drawn by the hash of a commit, to be judged for plain English.

python benchmarks/friendliness/draw_words.py $(git rev-parse HEAD)

Sentences come from docstrings, messages and pages (but claims and decisions); names from functions
and classes. ``docs/decisions/0006-words-trial.md`` has the trials so far.
"""

import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZE = 30
SHORTEST = 5  # words
LEFT_OUT = {"claims", "decisions"}


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without code blocks, tables and headings."""
    text = re.sub(r"^ *```.*?^ *```", "\n\n", text, flags=re.MULTILINE | re.DOTALL)
    for part in re.split(r"\n\s*\n|\n(?=\s*[-*|#>]|\s*\d+\. )", text):
        paragraph = " ".join(part.split()).strip("-*#> ")
        if paragraph.startswith("|"):
            continue
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z\"*`])", paragraph):
            if len(sentence.split()) >= SHORTEST and sentence.endswith((".", "?", "!")):
                yield sentence


def main(commit: str) -> None:
    drawn, names = set(), set()
    for page in (ROOT / "docs").rglob("*.md"):
        if not LEFT_OUT & set(page.parts):
            drawn |= {(str(page.relative_to(ROOT)), s) for s in sentences(page.read_text("utf-8"))}
    for module in (ROOT / "src" / "pacprivacy").rglob("*.py"):
        where = str(module.relative_to(ROOT))
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if not node.name.startswith("__"):
                    names.add((where, node.lineno, node.name))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                drawn |= {(f"{where}:{node.lineno}", s) for s in sentences(node.value)}
    rng = random.Random(commit)
    for kind, all_of_them in (("sentences", sorted(drawn)), ("names", sorted(names))):
        print(f"{SIZE} of {len(all_of_them)} {kind}")
        for entry in rng.sample(all_of_them, SIZE):
            print("-", *entry)


if __name__ == "__main__":
    main(*sys.argv[1:])
