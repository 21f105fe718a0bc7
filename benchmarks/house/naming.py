"""The naming trial: can somebody who sees only the list of files say where a function is?

Usage: python benchmarks/house/naming.py ask [commit]                    the questions
       python benchmarks/house/naming.py score answers.txt [commit]      the result

``ask`` prints the files of the library, and the names of 30 functions and methods without their
places, drawn with the hash of the commit as seed. Whoever answers has not read the code, and writes
one line for each name: the number and the file. ``score`` draws the same names and counts.

Everything is read from the commit itself, ``HEAD`` unless another is named. Functions and methods
of public modules take part: not those whose own name, or whose class or module, begins with an
underscore. A name that stands in several files is right with any of them.
"""

from __future__ import annotations

import ast
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

N_NAMES = 30
REQUIRED = 24
SOURCE = "src/pacprivacy/"


def git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, check=True, text=True).stdout


def modules(commit: str) -> list[str]:
    """Return the files of the library, below its folder."""
    listing = git("ls-tree", "-r", "--name-only", commit, "--", SOURCE).splitlines()
    files = [line.removeprefix(SOURCE) for line in listing if line.endswith(".py")]
    return sorted(file for file in files if not file.endswith("__init__.py"))


def functions(tree: ast.AST, owner: str = "") -> Iterator[str]:
    """Return functions and methods by name, methods with their class before them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from functions(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield f"{owner}{node.name}"


def places(commit: str) -> dict[str, set[str]]:
    """Return the files in which each name stands."""
    found: dict[str, set[str]] = {}
    for file in modules(commit):
        if not Path(file).name.startswith("_"):
            for name in functions(ast.parse(git("show", f"{commit}:{SOURCE}{file}"))):
                found.setdefault(name, set()).add(file)
    return found


def draw(commit: str, found: dict[str, set[str]]) -> list[str]:
    return random.Random(commit).sample(sorted(found), N_NAMES)


def read_answers(path: str) -> dict[int, str]:
    """Return the file that is named for each number."""
    lines = re.findall(r"^\s*(\d+)[.):\s]+(\S+\.py)\s*$", Path(path).read_text("utf-8"), re.M)
    return {int(number): file.removeprefix(SOURCE) for number, file in lines}


def ask(commit: str) -> int:
    print(f"Commit {commit}. The files below {SOURCE}:\n")
    print("\n".join(modules(commit)))
    print("\nIn which file is each of these? One line each, such as `1 pool/pool.py`.\n")
    for number, name in enumerate(draw(commit, places(commit)), start=1):
        print(f"{number} {name}")
    return 0


def score(commit: str, path: str) -> int:
    found, answers = places(commit), read_answers(path)
    n_right = 0
    for number, name in enumerate(draw(commit, found), start=1):
        answer = answers.get(number, "none")
        right = answer in found[name]
        n_right += right
        where = "" if right else f", it is in {' and '.join(sorted(found[name]))}"
        print(f"{number:>2} {'right' if right else 'wrong'}  {name}: {answer}{where}")
    print(f"{n_right} of {N_NAMES} right, {REQUIRED} required; commit {commit}")
    return 0 if n_right >= REQUIRED else 1


def main(words: list[str]) -> int:
    verb, *rest = words or [""]
    answers = rest.pop(0) if verb == "score" and rest else None
    if verb not in ("ask", "score") or (verb == "score") != (answers is not None):
        print(__doc__, file=sys.stderr)
        return 2
    commit = git("rev-parse", rest[0] if rest else "HEAD").strip()
    return ask(commit) if answers is None else score(commit, answers)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
