"""``pac`` with whatever comes to hand: options by chance, files that are damaged, wrong types.

A run is a function of its number alone. It gets a folder of its own with a good table, a release,
an audit, and a ledger with a session; some of them are damaged, then one command is
run in this process.
"""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typer.main import get_command
from typer.testing import CliRunner

from pacprivacy.cli.console import app
from pacprivacy.errors import PacPrivacyError
from pacprivacy.ledger import Ledger

GARBAGE = (
    *("", "x", "-1", "0", "1", "3", "1e400", "nan", "inf", "-0.0", "1.5", "9" * 30, "ü☃", "a,b"),
    *("1/0", "%", "60%", "[]", "{}", "null", "../..", "/", ".", "-", "--", "a" * 5000, "'", "\t"),
    *("2" * 5000, "\ud800", "0x10", "1_000", "people.csv", "=", "*", "a\nb"),
)
# What might be meant; the rest of the options take garbage only.
SENSIBLE: dict[str, tuple[str, ...]] = {
    "data": ("people.csv",),
    "model": ("mean", "covariance", "histogram", "kmeans", "pca", "svm", "forest", "ridge"),
    "budget": ("mi<=1/8", "membership<=0.6", "epsilon<=1", "membership<=0.7 & mi<=1/2", "mi<=9"),
    "budgets": ("60%", "mi<=1/4", "55%,90%"),
    "target": ("smoker", "income", "age"),
    "columns": ("age,income", "age", "income,smoker"),
    "unit": ("person",),
    "subsets": ("8", "16", "2", "7"),
    "rule": ("waterfill", "isotropic", "exact", "auto"),
    "bins": ("2", "5"),
    "range_": ("0,100", "5,1"),
    "clusters": ("2", "3", "50"),
    "components": ("1", "2", "9"),
    "cost": ("0.1", "1", "1e9"),
    "trees": ("1", "2"),
    "depth": ("1", "2"),
    "jobs": ("1",),
    "seed": ("0", "1", "12345678901234567890"),
    "output": ("new", "out", "a/b/c", "people.csv"),
    "release": ("out/release.json",),
    "bundle": ("out/curator.npz",),
    "session": ("second/release.json",),
    "audit": ("audit.json",),
    "trials": ("100", "200"),
    "attack": ("bayes", "naming", "overlap", "precision"),
    "checkpoint": ("run.checkpoint",),
    "ledger": ("study.db",),
    "where": ("study.db",),
    "dataset": ("people", "*", "others"),
    "principal": ("default", "ann", "*"),
    "total": ("mi<=1", "mi<=1/2", "membership<=0.8"),
    "state": ("study.session",),
    "mi": ("1", "1/64"),
    "increment": ("10%",),
    "success": ("60%",),
    "epsilon": ("1",),
    "delta": ("1e-6",),
    "prior": ("1/2", "1%"),
}
# Values with which a command would work for long, and does so rightly.
NEVER = {"jobs": {"3", "-1", "1_000"}, "output": {"/", "../.."}}
# Commands that work; most runs change a word or two of one of them.
GOOD = tuple(
    tuple(line.split())
    for line in """
schema people.csv
ledger report study.db -o ledger.html
release people.csv --model mean --columns age,income --budget mi<=1/8 -o new --subsets 8
release people.csv --model covariance --columns age,income --budget mi<=1 -o new --subsets 8
release people.csv --model histogram --target age --bins 3 --ranges 0,100 --budget mi<=1/8 -o \
  new --subsets 8
release people.csv --model kmeans --columns age,income --clusters 2 --budget mi<=1 -o new \
  --subsets 8
release people.csv --model pca --columns age,income --components 1 --budget mi<=1 -o new --subsets 8
release people.csv --model svm --columns age,income --target smoker --budget mi<=1 -o new \
  --subsets 8
release people.csv --model forest --columns age,income --target smoker --trees 1 --depth 1 \
  --budget mi<=2 -o new --subsets 8
release people.csv --model ridge --columns age --target income --budget mi<=1/4 -o new --subsets 8
release people.csv --model mean --columns age,income --budget mi<=1/8 -o new --ledger study.db \
  --state study.session
release people.csv --model mean --columns age --budget mi<=1/8 -o new --ledger study.db --state \
  study.session -q
release people.csv --model mean --columns age --budget mi<=1/2 -o a/b --ledger study.db --state \
  study.session --json
release people.csv --model mean --columns age --budget mi<=9 -o new --ledger study.db --state \
  study.session
release people.csv --model mean --columns age --budget mi<=1/8 -o new --ledger new.db --total \
  mi<=1/2 --subsets 8
release people.csv --model mean --columns age --unit person --budget membership<=0.7 -o new \
  --subsets 8
sql shop SELECT/**/count(*)/**/AS/**/n/**/FROM/**/people --unit people.person --budget mi<=1 \
  --subsets 8 -o new
predict third/release.json people.csv
serve --grant ann --tokens tokens.json
serve --revoke ann --tokens tokens.json
serve churn.pac --ledger study.db --tokens tokens.json
plan people.csv --model mean --columns age,income --subsets 8 --budgets 60%,90%
plan people.csv --model svm --columns age,income --target smoker --subsets 8 --budgets 70%
verify out/release.json
verify second/release.json --bundle second/curator.npz
audit second/release.json --trials 100 --attack bayes
audit out/release.json --trials 100
report out/release.json --session second/release.json
report second/release.json --audit audit.json --officer
report second/release.json --audit audit.json -o page.html
convert --mi 1/64
convert --epsilon 1 --delta 1e-6 --prior 1%
ledger create study.db --dataset others --mi 1 --increment 10%
ledger create study.db --dataset people --epsilon 1
ledger show study.db --json
ledger spend-log study.db --dataset people
ledger verify study.db
""".strip().splitlines()
)
VERBS = (
    *(
        (verb,)
        for verb in ("release", "plan", "verify", "audit", "report", "convert", "sql", "predict")
    ),
    *(("ledger", verb) for verb in ("create", "show", "spend-log", "verify", "report")),
    ("reproduce",),
    ("serve",),
    ("demo",),
    (),
    ("ledger",),
)
FILES = (
    "people.csv",
    "people.parquet",
    "out/release.json",
    "out/curator.npz",
    "second/release.json",
    "audit.json",
    "study.db",
    "study.session",
)


@dataclass(frozen=True)
class Outcome:
    """What a run did."""

    number: int
    arguments: tuple[str, ...]
    damaged: tuple[str, ...]
    code: int
    problem: str | None


def make_world(folder: Path) -> None:
    """Fill a folder with good files."""
    rng = np.random.default_rng(0)
    lines = ["age,income,smoker,person"]
    for i in range(24):
        lines.append(
            f"{rng.normal(40, 9):.1f},{rng.normal(3e4, 4e3):.0f},{'ny'[i % 3 > 0]},{i // 2}"
        )
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    (folder / "shop").mkdir()
    (folder / "shop" / "people.csv").write_text("\n".join(lines) + "\n")
    (folder / "people.parquet").write_bytes(b"PAR1 this is not one PAR1")
    mean = ("--model", "mean", "--columns", "age,income", "--subsets", "8", "-q")
    fit = ("--model", "ridge", "--columns", "age", "--target", "income", "--subsets", "8", "-q")
    booked = ("--ledger", "study.db", "--state", "study.session")
    for words in (
        ("ledger", "create", "study.db", "--dataset", "people", "--mi", "1", "-q"),
        ("release", "people.csv", *mean, "--budget", "mi<=1/8", "-o", "out", *booked),
        ("release", "people.csv", *mean, "--budget", "membership<=0.7", "-o", "second"),
        ("release", "people.csv", *fit, "--budget", "mi<=1", "-o", "third"),
    ):
        _invoke(folder, words)
    code, audit, _ = _invoke(folder, ("audit", "second/release.json", "--trials", "100", "--json"))
    assert code in (0, 4)
    (folder / "audit.json").write_text(audit)


def run_once(number: int, world: Path, place: Path) -> Outcome:
    """Damage some files, run one command, and say what went wrong, if anything."""
    rng = np.random.default_rng([7, number])
    folder = place / f"run{number}"
    shutil.copytree(world, folder)
    damaged = _damage(folder, rng)
    words = _command(rng)
    books = {} if "study.db" in damaged else {"study.db": _book(folder / "study.db")}
    before = set(folder.rglob("release.json"))
    code, output, errors = _invoke(folder, words)
    problem = _problem(words, code, output, errors)
    if problem is None and books:
        made = len(set(folder.rglob("release.json")) - before)
        problem = _misspent(books["study.db"], _book(folder / "study.db"), code, words, made)
    shutil.rmtree(folder)
    return Outcome(number, words, tuple(damaged), code, problem)


def _invoke(folder: Path, words: tuple[str, ...]) -> tuple[int, str, str]:
    with chdir(folder):
        result = CliRunner().invoke(app, list(words), prog_name="pac")
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        return -1, result.stdout, f"{type(error).__name__}: {error}"
    return result.exit_code, result.stdout, result.stderr


def _problem(words: tuple[str, ...], code: int, output: str, errors: str) -> str | None:
    allowed = {0, 2, 3} | ({4} if words[:1] == ("audit",) else set())
    if code not in allowed:
        return f"exit code {code}: {errors[-300:]}"
    if "Traceback" in output + errors:
        return "a traceback"
    said = [line for line in errors.splitlines() if line.startswith("pac: error:")]
    if code in (2, 3) and len(said) != 1:
        return f"exit code {code} with {len(said)} lines: {errors[-300:]}"
    if code in (0, 4) and said:
        return f"exit code {code} with an error"
    return None


def _book(path: Path) -> list[str]:
    try:
        return [entry.kind for entry in Ledger(path, create=False).entries()]
    except PacPrivacyError:
        return ["unreadable"]


def _misspent(
    before: list[str], after: list[str], code: int, words: tuple[str, ...], made: int
) -> str | None:
    """Say whether something was spent without a release, or released without a spend."""
    if after[: len(before)] != before:
        return "the ledger was rewritten"
    new = after[len(before) :]
    spends, commits = new.count("reserve"), new.count("commit")
    booked = any(word.startswith("--ledger") for word in words)
    if spends != commits or (spends and (code, made) != (0, 1)):
        return f"{spends} spends, {commits} commits, {made} releases, exit code {code}"
    if words[:1] == ("release",) and booked and made and not spends and "study.db" in words:
        return "a release without a spend"
    return None


# --- chance -----------------------------------------------------------------------------------


def _command(rng: np.random.Generator) -> tuple[str, ...]:
    return _invented(rng) if rng.random() < 0.3 else _altered(rng)


def _altered(rng: np.random.Generator) -> tuple[str, ...]:
    """Return a command that works, but for a few words."""
    words = list(GOOD[int(rng.integers(len(GOOD)))])
    for _ in range(int(rng.integers(3))):
        place = int(rng.integers(1, len(words) + 1))
        way = rng.random()
        if way < 0.2:
            del words[place - 1]
        elif way < 0.6 and place < len(words) and not words[place - 1].startswith("-o"):
            values = SENSIBLE.get(words[place - 1].lstrip("-"), GARBAGE)
            words[place] = _pick(rng, values if rng.random() < 0.4 else GARBAGE)
        elif way < 0.8:
            words.insert(place, _pick(rng, ("--json", "--quiet", "-q", "--simulate", "--help")))
        else:
            words.insert(place, _pick(rng, GARBAGE))
    return tuple(words)


def _invented(rng: np.random.Generator) -> tuple[str, ...]:
    """Return a verb with options by chance."""
    verb = VERBS[rng.integers(len(VERBS))]
    command: Any = get_command(app)
    for name in verb:
        command = command.get_command(None, name)
    words: list[str] = []
    for parameter in command.params:
        if not parameter.name.endswith("_completion"):  # it would write to the user's own files
            words += _argument(parameter, rng)
    if rng.random() < 0.05:
        words.insert(int(rng.integers(len(words) + 1)), _pick(rng, GARBAGE))
    if verb == ("demo",) and not any(word in GARBAGE for word in words):
        words.append("--no-such-option")
    return (*verb, *words)


def _argument(parameter: Any, rng: np.random.Generator) -> list[str]:
    """Return the words for one option or argument; most often sensible where it is required."""
    name = parameter.name
    wanted = parameter.required or name in ("columns", "subsets", "trials", "attack")
    if rng.random() > (0.95 if wanted else 0.12):
        return []
    if getattr(parameter, "is_flag", False):
        return [parameter.opts[0]]
    choices = SENSIBLE.get(name, ())
    pool = choices if choices and rng.random() < 0.85 else GARBAGE
    allowed = [value for value in pool if value not in NEVER.get(name, ())]
    value = _pick(rng, allowed or ["x"])
    if not parameter.opts[0].startswith("-"):
        return [value]
    return [parameter.opts[0], value] if rng.random() < 0.8 else [f"{parameter.opts[0]}={value}"]


def _pick(rng: np.random.Generator, pool: Any) -> str:
    return str(pool[int(rng.integers(len(pool)))])


def _damage(folder: Path, rng: np.random.Generator) -> list[str]:
    if rng.random() < 0.4:
        return []
    names = [str(name) for name in rng.choice(FILES, size=int(rng.integers(1, 3)), replace=False)]
    for name in names:
        path = folder / name
        if path.exists():
            content = path.read_bytes()
            ways = (*DAMAGES, *(4 * (damage_json,) if name.endswith("json") else ()))
            damaged = ways[int(rng.integers(len(ways)))](content, rng)
            if damaged is None:
                path.unlink()
            else:
                path.write_bytes(damaged)
    return names


def damage_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace, drop or repeat one value somewhere in a JSON file."""
    tree = json.loads(content)
    places: list[tuple[Any, Any]] = []

    def visit(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                visit(node[key])

    visit(tree)
    node, key = places[int(rng.integers(len(places)))]
    values = (None, True, 0, -1, 10**25, 1e-300, 0.5, "x", [], {}, [[]], {"a": {}}, float("nan"))
    if rng.random() < 0.15:
        del node[key]
    else:
        node[key] = values[int(rng.integers(len(values)))]
    return json.dumps(tree).encode()


def _truncated(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: int(rng.integers(len(content) + 1))]


def _flipped(content: bytes, rng: np.random.Generator) -> bytes:
    bad = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        if bad:
            bad[int(rng.integers(len(bad)))] ^= 1 << int(rng.integers(8))
    return bytes(bad)


def _random(content: bytes, rng: np.random.Generator) -> bytes:
    return rng.bytes(int(rng.integers(2000)))


def _text(content: bytes, rng: np.random.Generator) -> bytes:
    letters = string.printable + "üß☃"
    return "".join(_pick(rng, letters) for _ in range(int(rng.integers(300)))).encode()


def _empty(content: bytes, rng: np.random.Generator) -> bytes:
    return b""


def _gone(content: bytes, rng: np.random.Generator) -> None:
    return None


def _doubled(content: bytes, rng: np.random.Generator) -> bytes:
    return content + content


def _spliced(content: bytes, rng: np.random.Generator) -> bytes:
    cut = int(rng.integers(len(content) + 1))
    return content[:cut] + rng.bytes(int(rng.integers(1, 40))) + content[cut:]


Damage = Callable[[bytes, np.random.Generator], bytes | None]
DAMAGES: tuple[Damage, ...] = (
    _truncated,
    _flipped,
    _flipped,
    _random,
    _text,
    _empty,
    _gone,
    _doubled,
    _spliced,
)
