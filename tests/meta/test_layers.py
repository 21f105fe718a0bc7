"""Holds the table of who may import whom: data flows up the numbers, imports point down.

Every import statement counts: absolute or relative, inside a function, under TYPE_CHECKING, or
spelled ``import_module("...")``. Extend the table below only together with the architecture.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "pacprivacy"
PACKAGE = "pacprivacy"
PAPERS = "papers"  # beside the library, on top of it: the library does not know them

NUMBERED = {
    "sample": 1,
    "mechanism": 2,
    "statistics": 3,
    "simulation": 4,
    "adversary": 5,
    "noise": 6,
    "release": 7,
    "session": 8,
    "audit": 9,
    "reporting": 10,
}
BASE = frozenset(
    {
        "budget",
        "errors",
        "_values",
        "_checks",
        "_system",
        "_random",
        "_rounding",
        "_sklearn",
        "_version",
    }
)
# Functions that a page may call: how errors and printed bounds read is said once, at the base.
SPOKEN = frozenset({"errors", "_rounding", "_values"})
# What gathers the figures of a report, and reads its files; charts and styles compute nothing.
GATHERS = frozenset({"pacprivacy.reporting.contents", "pacprivacy.reporting.page"})
# The one door upwards: a record that can be drawn calls ``reporting`` through it, by name and when
# a picture is asked for. Nothing is imported until then, and no figure comes back into a record.
DOOR = "_plots"
THROUGH_THE_DOOR = frozenset({"release", "session", "audit"})
THEORY = frozenset({"theory"})
STORY = frozenset(name for name, number in NUMBERED.items() if number <= NUMBERED["session"])
EXTENSIONS = frozenset({"design", "residual", "dp"})
# All that differential privacy shares with PAC beside the base and theory: how noise in whole
# numbers is drawn, how a fitted model becomes a vector and back, and the formulas of statistics.
# None of them knows a pool.
SHARED_WITH_DP = {
    "noise": frozenset(
        {
            "MAX_UNITS_PER_SCALE",
            "MAX_UNITS_PER_STD",
            "lattice_bernoulli_enclosed",
            "lattice_bernoulli_exp",
            "sample_discrete_gaussian",
            "sample_discrete_laplace",
            "uniform_lattice_integers",
        }
    ),
    "mechanism": frozenset(
        {"Structure", "declare_estimator_released", "flatten", "plain_value", "symmetric_matrices"}
    ),
    "statistics": frozenset({"MEAN", "SUM", "Formula", "bin_of"}),
}
BELOW_TOP = BASE | THEORY | frozenset(NUMBERED) | EXTENSIONS | {"ledger", "privatizing", ""}


def _numbered(name: str) -> frozenset[str]:
    lower = frozenset(other for other, n in NUMBERED.items() if n < NUMBERED[name])
    return lower | THEORY | BASE | ({DOOR} if name in THROUGH_THE_DOOR else frozenset())


# unit -> what it may import. A unit is a top-level module or package; "" is __init__ itself.
MAY_IMPORT: dict[str, frozenset[str]] = {
    **{name: _numbered(name) for name in NUMBERED},
    "audit": _numbered("audit") - {"noise"},
    DOOR: frozenset({"reporting"}),
    "theory": frozenset({"errors", "_checks"}),
    "errors": frozenset(),
    "_version": frozenset(),
    "_rounding": frozenset(),
    "_system": frozenset({"errors"}),
    "ledger": BASE,
    "queries": _numbered("simulation"),
    "session": _numbered("session") | {"ledger", "queries"},
    "_checks": frozenset({"errors"}),
    "_values": frozenset({"errors", "_rounding", "_system"}) | THEORY,
    "_random": frozenset({"errors", "_checks"}),
    "_sklearn": frozenset({"errors", "_checks", "_random"}),
    "budget": frozenset({"errors", "_checks", "_rounding"}) | THEORY,
    "privatizing": STORY | THEORY | BASE | {"queries"},
    **dict.fromkeys(EXTENSIONS, STORY | THEORY | BASE | {"privatizing"}),
    "dp": THEORY | BASE | frozenset(SHARED_WITH_DP),
    # The top. Nothing below imports these three; among themselves they are ordered.
    "estimators": BELOW_TOP,
    "stats": _numbered("simulation") | {"queries"},
    "tables": STORY | THEORY | BASE | {"design", "ledger", "stats"},
    "serve": BELOW_TOP | {"estimators", "queries"},
    "cli": BELOW_TOP | {"estimators", "tables", "queries", "serve", "stats"},
    "__main__": frozenset({"cli"}),
    # The facade gathers public names; PrivateEstimator is one of them.
    "": BELOW_TOP - {""} | {"estimators", "queries", "stats"},
}


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported thing: the module it comes from and, for ``from m import n``, the name."""

    where: str
    line: int
    module: str
    name: str | None


class Tree:
    """The modules of a package, parsed."""

    def __init__(self, root: Path) -> None:
        self.modules: dict[str, ast.Module] = {}
        self.packages: set[str] = set()
        for path in sorted(root.rglob("*.py")):
            parts = (PACKAGE, *path.relative_to(root).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts = parts[:-1]
                self.packages.add(".".join(parts))
            self.modules[".".join(parts)] = ast.parse(path.read_text(encoding="utf-8"))

    def imports(self) -> Iterator[Import]:
        """Every import of the package, or of the papers, by one of its own modules."""
        for where, tree in self.modules.items():
            for node in ast.walk(tree):
                for module, name in self._targets(where, node):
                    if module.split(".")[0] in (PACKAGE, PAPERS):
                        line = getattr(node, "lineno", 0)
                        yield Import(where=where, line=line, module=module, name=name)

    def _targets(self, where: str, node: ast.AST) -> Iterator[tuple[str, str | None]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = node.level - (where in self.packages)
                anchor = where.split(".")
                base = ".".join(anchor[: len(anchor) - up] + ([base] if base else []))
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield (submodule, None) if submodule in self.modules else (base, alias.name)
        elif isinstance(node, ast.Call) and node.args:
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else None
            called = function.id if isinstance(function, ast.Name) else called
            first = node.args[0]
            if called in {"import_module", "__import__"} and isinstance(first, ast.Constant):
                name = str(first.value)
                yield f"{where.rpartition('.')[0]}{name}" if name.startswith(".") else name, None

    def definition(self, module: str, name: str) -> ast.AST | None:
        """Follow re-exports to the class or function that ``module.name`` stands for."""
        for _ in range(len(self.modules)):
            tree = self.modules.get(module)
            if tree is None:
                return None
            for node in tree.body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                    return node
            origin = self._origin(module, tree, name)
            if origin is None:
                return None
            module, name = origin
        return None

    def _origin(self, where: str, tree: ast.Module, name: str) -> tuple[str, str] | None:
        """Where the re-exported ``name`` comes from, if it does."""
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                targets = self._targets(where, node)
                for alias, (module, original) in zip(node.names, targets, strict=True):
                    if (alias.asname or alias.name) == name and original is not None:
                        return module, original
        return None


def unit_of(module: str) -> str:
    """The unit that a module belongs to; ``""`` for the package's own ``__init__``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def is_record(node: ast.AST | None) -> bool:
    """Whether a definition is a frozen dataclass or an enumeration: data that computes nothing."""
    if not isinstance(node, ast.ClassDef):
        return False
    if any("Enum" in ast.unparse(base) for base in node.bases):
        return True
    return any(
        isinstance(decorator, ast.Call)
        and ast.unparse(decorator.func).split(".")[-1] == "dataclass"
        and any(
            keyword.arg == "frozen" and ast.unparse(keyword.value) == "True"
            for keyword in decorator.keywords
        )
        for decorator in node.decorator_list
    )


@cache
def library() -> Tree:
    return Tree(SOURCE)


def violations(tree: Tree) -> list[str]:
    """Every import of a tree that the table forbids, in words."""
    found = []
    for unit in sorted({unit_of(module) for module in tree.modules} - MAY_IMPORT.keys()):
        found.append(f"{unit} is not in the table; say in MAY_IMPORT what it may import")
    for item in tree.imports():
        source, target = unit_of(item.where), unit_of(item.module)
        place = f"{item.where}:{item.line} imports {item.module}" + (
            f".{item.name}" if item.name else ""
        )
        if item.module.split(".")[0] == PAPERS:
            found.append(f"{place}; the library knows no papers")
            continue
        if source == target or source not in MAY_IMPORT:
            continue
        imported = item.name or item.module.rpartition(".")[2]
        if target not in MAY_IMPORT[source]:
            allowed = ", ".join(sorted(MAY_IMPORT[source])) or "nothing"
            found.append(f"{place}; {source or '__init__'} may import only: {allowed}")
        elif (
            source == "reporting"
            and item.where not in GATHERS
            and target not in SPOKEN
            and (item.name is None or not is_record(tree.definition(item.module, item.name)))
        ):
            found.append(f"{place}; reporting may import record types (frozen dataclasses) only")
        elif source == "dp" and target in SHARED_WITH_DP and imported not in SHARED_WITH_DP[target]:
            found.append(f"{place}; dp shares with {target} only: {SHARED_WITH_DP[target]}")
    return found


def test_the_library_keeps_its_layers() -> None:
    found = violations(library())
    assert not found, "imports against the table:\n  " + "\n  ".join(found)


def test_the_audit_of_dp_shares_no_code_with_what_it_attacks() -> None:
    used = {i.module for i in library().imports() if i.where == "pacprivacy.dp.audit"}
    assert used <= {"pacprivacy.errors", "pacprivacy._checks"}


def test_the_door_to_pictures_is_shut_until_it_is_used() -> None:
    script = "import sys, pacprivacy, pacprivacy.audit, pacprivacy.ledger.ledger\n"
    script += "assert 'pacprivacy.reporting' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    tree = library()
    users = {unit_of(i.where) for i in tree.imports() if unit_of(i.module) == DOOR} - {DOOR}
    assert users == THROUGH_THE_DOOR
    named = [i for i in tree.imports() if unit_of(i.where) == DOOR]
    assert [(i.module, i.name) for i in named] == [("pacprivacy.reporting", None)]


def test_every_named_package_of_the_library_is_seen() -> None:
    units = {unit_of(module) for module in library().modules}
    assert {"theory", "sample", "errors", ""} <= units
    assert sum(1 for _ in library().imports()) > 10


# --- the papers, on top of the library ------------------------------------------------------

# What one paper may use of another: its protocol, or its section.
OF_OTHER_PAPERS = {"design": {"responses"}, "residual": {"alg"}}
SHARED = {"agreement", "charts", "datasets", "page", "published", "run", "simulate"}


def imported_by(text: str) -> set[str]:
    """The modules that a text imports, absolutely and anywhere."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def paper_violations(root: Path) -> list[str]:
    """Imports of the papers that are against their layers, in words."""
    found = []
    for path in sorted(root.rglob("*.py")):
        unit, *_ = path.relative_to(root).with_suffix("").parts
        if unit == "tests":
            continue
        allowed = SHARED | (
            {unit} | OF_OTHER_PAPERS.get(unit, set()) if unit not in SHARED else set()
        )
        for module in sorted(imported_by(path.read_text(encoding="utf-8"))):
            top, _, rest = module.partition(".")
            if module.startswith(f"{PACKAGE}.cli"):
                found.append(f"{path.relative_to(root)} imports {module}: papers know no command")
            if top == PAPERS and rest.split(".")[0] not in allowed:
                found.append(f"{path.relative_to(root)} imports {module}: another paper")
    return found


def test_papers_keep_their_layers(tmp_path: Path) -> None:
    root = SOURCE.parents[1] / PAPERS
    assert {path.stem for path in root.glob("*.py")} - {"__init__"} <= SHARED
    found = paper_violations(root)
    assert not found, "imports against the layers:\n  " + "\n  ".join(found)
    for name, text in {
        "alg/bad.py": "from pacprivacy.cli import app",
        "run.py": "from papers.alg import ALG",
        "cs208/bad.py": "def f():\n    import papers.alg.mean",
        "design/fine.py": "from papers import responses\nfrom papers.run import Job",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert [line.split(" ")[0] for line in paper_violations(tmp_path)] == [
        "alg/bad.py",
        "cs208/bad.py",
        "run.py",
    ]


# --- the checker itself ---------------------------------------------------------------------

CLEAN = {
    "__init__.py": "from pacprivacy.privatizing import privatize\n",
    "errors.py": "",
    "_checks.py": "from pacprivacy.errors import E\n",
    "budget.py": "from pacprivacy.theory import posterior\n",
    "privatizing.py": "from pacprivacy.session import compose\n",
    "theory/__init__.py": "",
    "theory/posterior.py": "import math\nfrom .. import errors\nfrom . import information\n",
    "theory/bounds.py": "",
    "sample/__init__.py": "from .pool import Pool\n",
    "sample/pool.py": "from pacprivacy._checks import freeze\n",
    "noise/__init__.py": "",
    "noise/plan.py": "from ..sample import Pool\n",
    "session/__init__.py": "from pacprivacy.noise import plan\n",
    "audit/__init__.py": "from pacprivacy.session import ledger\n",
    "release/__init__.py": "from .release import Release\nfrom .release import verify\n",
    "release/release.py": (
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True, slots=True)\nclass Release: ...\n"
        "@dataclass\nclass Loose: ...\n"
        "def verify(): ...\n"
    ),
    "reporting/__init__.py": "from ..release import Release\nfrom pacprivacy import errors\n",
    "cli/__init__.py": "from pacprivacy import privatize\n",
}


def grow(root: Path, **extra: str) -> Path:
    files = CLEAN | {name.replace("__in__", "/") + ".py": text for name, text in extra.items()}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_checker_accepts_a_clean_tree(tmp_path: Path) -> None:
    assert violations(Tree(grow(tmp_path))) == []


@pytest.mark.parametrize(
    ("where", "text", "complaint"),
    [
        (
            "sample__in__bad",
            "import pacprivacy.noise.plan",
            "sample.bad:1 imports pacprivacy.noise",
        ),
        (
            "sample__in__bad",
            "from pacprivacy import noise",
            "sample.bad:1 imports pacprivacy.noise",
        ),
        ("sample__in__bad", "from ..noise.plan import x", "imports pacprivacy.noise.plan.x"),
        ("sample__in__bad", "from .. import noise as n", "sample.bad:1 imports pacprivacy.noise"),
        ("sample__in__bad", "def f():\n    from ..release import R", "sample.bad:2 imports"),
        (
            "sample__in__bad",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..noise import plan",
            "sample.bad:3 imports pacprivacy.noise.plan",
        ),
        (
            "sample__in__bad",
            "import importlib\nimportlib.import_module('pacprivacy.noise')",
            "sample.bad:2 imports pacprivacy.noise",
        ),
        ("sample__in__bad", "from pacprivacy import Information", "imports pacprivacy.Information"),
        ("audit__in__bad", "from pacprivacy.noise.plan import x", "audit may import only"),
        ("theory__in__bad", "from .._random import fresh_seed", "theory may import only"),
        ("theory__in__bad", "from ..budget import Information", "theory may import only"),
        ("errors", "from pacprivacy.theory import posterior", "errors may import only: nothing"),
        ("session__in__bad", "from ..privatizing import privatize", "session may import only"),
        ("privatizing", "from pacprivacy.audit import attack", "privatizing may import only"),
        ("privatizing", "from pacprivacy.cli import app", "privatizing may import only"),
        ("design__in__bad", "from ..estimators import table", "design may import only"),
        ("dp__in__bad", "from pacprivacy.release import Release", "dp may import only"),
        ("dp__in__bad", "from pacprivacy.sample import Pool", "dp may import only"),
        ("dp__in__bad", "from pacprivacy.noise import calibrate", "dp shares with noise only"),
        ("dp__in__bad", "from pacprivacy.noise import plan", "dp shares with noise only"),
        ("cli__in__bad", "from papers.alg import ALG", "cli.bad:1 imports papers.alg"),
        ("sample__in__bad", "def f():\n    import papers", "sample.bad:2 imports papers"),
        ("__init__", "from pacprivacy.cli import app", "__init__ may import only"),
        ("reporting__in__bad", "from ..release import verify", "record types"),
        ("reporting__in__bad", "from ..release.release import Loose", "record types"),
        ("reporting__in__bad", "from ..release import release", "record types"),
        ("reporting__in__bad", "from ..theory.posterior import success", "record types"),
        ("stray", "", "stray is not in the table"),
        ("sample__in__bad", "from .._plots import draw", "sample may import only"),
        ("noise__in__bad", "from pacprivacy._plots import draw", "noise may import only"),
        ("_plots", "from pacprivacy.release import Release", "_plots may import only: reporting"),
    ],
)
def test_checker_finds_a_violation(tmp_path: Path, where: str, text: str, complaint: str) -> None:
    found = violations(Tree(grow(tmp_path, **{where: text + "\n"})))
    assert len(found) == 1
    assert complaint in found[0]
