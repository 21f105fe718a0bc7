"""House rules that a reader would otherwise have to check by eye."""

import ast
import importlib
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pacprivacy"

PAPERS = ROOT / "papers"

MAY_TOUCH_OS_RANDOMNESS = {SOURCE / "_random.py", SOURCE / "noise" / "lattice.py"}
MAY_SEED_GLOBAL_GENERATORS = {SOURCE / "_random.py"}  # for the code of others, and puts them back

OS_GENERATORS = {"os.urandom", "os.getrandom", "random.SystemRandom", "uuid.uuid4"}

# What numpy.random offers that holds its own seeded state; all else there is global.
SEEDABLE = {
    "BitGenerator",
    "Generator",
    "MT19937",
    "PCG64",
    "PCG64DXSM",
    "Philox",
    "SFC64",
    "SeedSequence",
    "default_rng",
}


def sources() -> list[Path]:
    """Every module of the library and of the papers."""
    papers = (path for path in PAPERS.rglob("*.py") if "tests" not in path.parts)
    return [*sorted(SOURCE.rglob("*.py")), *sorted(papers)]


def complain(rule: str, found: list[str]) -> None:
    assert not found, f"{rule}:\n  " + "\n  ".join(found)


def test_nothing_is_left_to_do() -> None:
    marker = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
    complain(
        "finish it, or open an issue and say so in prose",
        [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for path in sources()
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
            if marker.search(line)
        ],
    )


# --- randomness -----------------------------------------------------------------------------


def imported_names(tree: ast.Module) -> dict[str, str]:
    """What each imported name of a module stands for, with dots: ``np`` is ``numpy``."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name if alias.asname else alias.name.split(".")[0]
                names[alias.asname or top] = top
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.AST, names: dict[str, str]) -> str | None:
    """The full dotted name of ``np.random.rand`` and the like, or ``None``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return None
    return ".".join([names[node.id], *reversed(parts)])


@cache
def parsed(text: str) -> tuple[list[ast.AST], dict[str, str]]:
    """All nodes of a module, and what its imported names stand for."""
    tree = ast.parse(text)
    return list(ast.walk(tree)), imported_names(tree)


def last_name(node: ast.expr) -> str:
    """The last part of a name that is of no module, ``.rvs`` of ``law(x).rvs``."""
    return f".{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def global_randomness(text: str) -> Iterator[str]:
    """Complaints about randomness that neither a seed nor the operating system accounts for."""
    nodes, names = parsed(text)
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""] if node.level == 0 else []
            if "random" in modules:
                yield f"{node.lineno}: the random module"
        name = dotted(node, names) if isinstance(node, ast.Name | ast.Attribute) else None
        if name and name.startswith("numpy.random."):
            member = name.split(".")[2]
            if member not in SEEDABLE:
                yield f"{getattr(node, 'lineno', 0)}: numpy.random.{member} is global state"
        if isinstance(node, ast.Call):
            yield from _unseeded_call(node, dotted(node.func, names) or last_name(node.func))


def _unseeded_call(node: ast.Call, called: str) -> Iterator[str]:
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    if called.split(".")[-1] in {"default_rng", "SeedSequence"}:
        given = [*node.args, *keywords.values()]
        if not given or _is_none(given[0]):
            yield f"{node.lineno}: {called}() without a seed"
    if called.endswith(".rvs") and _is_none(keywords.get("random_state", ast.Constant(None))):
        yield f"{node.lineno}: rvs without random_state draws from global state"
    if "random_state" in keywords and _is_none(keywords["random_state"]):
        yield f"{node.lineno}: random_state=None draws from global state"


def os_randomness(text: str) -> Iterator[str]:
    """Uses of the operating system's generator."""
    nodes, names = parsed(text)
    for node in nodes:
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        name = dotted(node, names) or ""
        if name in OS_GENERATORS or name.split(".")[0] == "secrets":
            yield f"{node.lineno}: {name}"


def test_no_global_or_unseeded_randomness() -> None:
    complain(
        "public randomness goes through _random.public_generator(seed, stream)",
        [
            f"{path.relative_to(ROOT)}:{complaint}"
            for path in sources()
            if path not in MAY_SEED_GLOBAL_GENERATORS
            for complaint in global_randomness(path.read_text(encoding="utf-8"))
        ],
    )


def test_only_two_modules_touch_the_operating_systems_randomness() -> None:
    complain(
        "secret randomness is drawn through a BitSource of _random",
        [
            f"{path.relative_to(ROOT)}:{use}"
            for path in sources()
            if path not in MAY_TOUCH_OS_RANDOMNESS
            for use in os_randomness(path.read_text(encoding="utf-8"))
        ],
    )


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "from random import choice",
        "import numpy as np\nnp.random.seed(0)",
        "import numpy as np\nx = np.random.rand(3)",
        "from numpy.random import rand\nrand(3)",
        "from numpy import random as r\nr.normal()",
        "import numpy as np\nnp.random.RandomState(0)",
        "import numpy as np\nnp.random.default_rng()",
        "import numpy as np\nnp.random.default_rng(None)",
        "from numpy.random import default_rng\ndefault_rng()",
        "import numpy as np\nnp.random.SeedSequence()",
        "from scipy import stats\nstats.norm.rvs(size=3)",
        "KMeans(random_state=None)",
    ],
)
def test_global_randomness_is_found(line: str) -> None:
    assert list(global_randomness(line))


@pytest.mark.parametrize(
    "line",
    [
        "import numpy as np\nnp.random.default_rng(seed).normal()",
        "import numpy as np\ndef f(rng: np.random.Generator) -> float: return rng.normal()",
        "import numpy as np\nnp.random.SeedSequence(1, spawn_key=(2,))",
        "from .random import x",
        "KMeans(random_state=3)",
    ],
)
def test_seeded_randomness_is_not_taken_for_global(line: str) -> None:
    assert not list(global_randomness(line))


@pytest.mark.parametrize(
    "line",
    [
        "import os\nos.urandom(8)",
        "from os import urandom\nurandom(8)",
        "import secrets\nsecrets.randbits(8)",
        "from secrets import randbelow as r\nr(8)",
        "import uuid\nuuid.uuid4()",
    ],
)
def test_system_randomness_is_found(line: str) -> None:
    assert list(os_randomness(line))


# --- no machine in the repository -----------------------------------------------------------

# A slash that starts a path (not one inside a longer path or address), then a folder that only
# one machine has. The parentheses keep this file from matching itself.
MACHINE_PATH = re.compile(
    r"(?<![\w./:\]}>)~-])/(?:home|Users|root|work|workspace|mnt|tmp|private|var/folders)/[\w.]"
    r"|\b[A-Za-z]:\\+(?:Users|Documents)"
)


def tracked_files() -> list[Path]:
    """What git tracks; in an unpacked source archive, every file outside hidden folders."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        inside = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [p for p in inside if not any(part.startswith((".", "__")) for part in p.parts)]
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def machine_paths(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if match := MACHINE_PATH.search(line):
            yield f"{number}: {line[match.start() : match.start() + 60].strip()}"


def test_tracked_files_name_no_machine_paths() -> None:
    found = []
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found += [f"{path.relative_to(ROOT)}:{complaint}" for complaint in machine_paths(text)]
    complain("paths must be relative, or come from tmp_path or the environment", found)


def test_machine_paths_are_found_and_addresses_are_not() -> None:
    slash = "/"
    for folder in ("home", "Users", "root", "work", "tmp"):
        assert list(machine_paths(f"open('{slash}{folder}{slash}someone{slash}x.csv')"))
    assert list(machine_paths("C:" + "\\" + "Users" + "\\" + "someone"))
    assert not list(machine_paths("https://example.org/home/x and docs/work/x and ../tmp/x"))
    assert not list(machine_paths("#!/usr/bin/env bash"))


# --- no data in the library -----------------------------------------------------------------

DATA_LOOKUP = re.compile(r"""PACPRIVACY_DATA|shared["'/ ]+data|urlopen""")


def test_the_library_looks_for_no_data_files() -> None:
    complain(
        "files of public data are found by papers/datasets; the library reads what it is given",
        [
            f"{path.relative_to(ROOT)}: {match[0]}"
            for path in sorted(SOURCE.rglob("*.py"))
            if (match := DATA_LOOKUP.search(path.read_text(encoding="utf-8")))
        ],
    )
    assert DATA_LOOKUP.search((PAPERS / "datasets" / "store.py").read_text(encoding="utf-8"))
    assert DATA_LOOKUP.search('Path.cwd().parent / "shared" / "data"') is not None


# --- public names ---------------------------------------------------------------------------

INITS = [path for path in sources() if path.name == "__init__.py"]


def offered_names(tree: ast.Module) -> list[str] | None:
    """The names of a literal ``__all__``, or those imported as ``Name as Name``; else ``None``.

    A door without ``__all__`` imports nothing of the package in any other way: a type checker
    would take such a name for the door's own.
    """
    for node in tree.body:
        if isinstance(node, ast.Assign) and "__all__" in map(ast.unparse, node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    names = [a for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names]
    kept = all(alias.name == alias.asname for alias in names)
    return [alias.name for alias in names] if names and kept else None


@pytest.mark.parametrize("path", INITS, ids=lambda p: p.parent.relative_to(ROOT).as_posix())
def test_every_package_says_what_it_is_and_what_it_offers(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    where = path.relative_to(ROOT)
    docstring = (ast.get_docstring(tree) or "").strip()
    assert len(docstring) > 20, f"{where} needs a docstring that says what the package is for"
    top = SOURCE.parent if SOURCE in path.parents else ROOT
    package = ".".join(path.parent.relative_to(top).parts)
    module = importlib.import_module(package)
    # Doors that load lazily make a list; test_imports_are_light holds it to what they import.
    names = getattr(module, "__all__", None)
    names = offered_names(tree) if names is None else names
    assert names is not None, f"{where} needs imports `Name as Name`, or a literal __all__"
    assert len(set(names)) == len(names), f"{where} offers a name twice"
    missing = [name for name in names if not hasattr(module, name)]
    assert not missing, f"{package} offers {missing}, which it does not define"


def test_a_name_that_is_only_imported_is_not_offered() -> None:
    assert offered_names(ast.parse("from a.b import C as C, d as d")) == ["C", "d"]
    assert offered_names(ast.parse("from a.b import C\n__all__ = ['C']")) == ["C"]
    assert offered_names(ast.parse("from a.b import C")) is None
