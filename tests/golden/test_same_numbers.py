"""The numbers of simulated releases, before and after the code is moved.

Every case of ``tests/simulated_releases.py`` releases something with fixed seeds. What left, the
noise that was drawn and every number of the certificate are compared with
``data/same_numbers.json``: released values and integers bit for bit, other numbers to 1e-12. Texts
are not compared. Numbers that are new are allowed, numbers that are gone are not; one that has
another name goes into ``RENAMED``.

``PAC_RECORD_NUMBERS=1 pytest tests/golden/test_same_numbers.py`` writes the file anew, with
``-k WORD`` only the cases with that word in their names. Do so for a change that is meant to change
numbers, and say in the changelog which; the file has one line for each case.

Last bits depend on the kind of processor. On another one than that of the record the noise that is
drawn has to be the same, other numbers to 1e-3; estimates from few draws and a few cases are not
compared there. With other versions of numpy, SciPy or scikit-learn nothing is. To compare bits
there, record before a change.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import sklearn

from pacprivacy import noise
from simulated_releases import CASES, attributes

FILE = Path(__file__).parent / "data" / "same_numbers.json"
RECORD = "PAC_RECORD_NUMBERS"
TOLERANCE = 1e-12
ROUNDING = 1e-15  # of what is a difference of two numbers near one
ELSEWHERE = 1e-3  # on another processor: an estimate may come from other draws

# Recorded name -> name now, of a number or of all numbers below it: for example
# {"composition.spent_nats_so_far": "spent.mi_nats"}.
RENAMED: dict[str, str] = {}
EXACT = ("value", "values", "integers", "drawn")
KEPT_TEXTS = ("kind", "rule")
IGNORED = ("schema_version",)
# Equal eigenvalues, models that tie, searches that compare floats: other last bits, other numbers.
UNSTABLE = (
    "budget residual nats",
    "fit pca",
    "output pca",
    "pac release ridge",
    "predictor, probabilities",
    "predictor, votes of three classes",
    "residual curves",
    "residual quantities",
    "rule risk, pca, membership",
    "target under information",
)
# Estimates from few draws, some of which fall on the other side of an edge elsewhere.
FEW_DRAWS = ("side_knowledge", "trade_off")
SAMPLERS = ("sample_discrete_gaussian", "sample_discrete_laplace")


class Watch:
    """Notes the noise that is drawn and the integers that leave."""

    def __init__(self) -> None:
        self._noise, self._n_drawn = hashlib.blake2b(digest_size=8), 0
        self._integers: list[list[int]] = []

    def __enter__(self) -> Watch:
        self._patch = pytest.MonkeyPatch()
        for name in SAMPLERS:
            self._spy(name)
        observe = noise.NoisePlan.observe

        def observed(plan: Any, index: int, source: Any) -> Any:
            seen = observe(plan, index, source)
            group = [] if seen.group is None else [seen.group]
            self._integers.append([*seen.integers.tolist(), *group])
            return seen

        self._patch.setattr(noise.NoisePlan, "observe", observed)
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.undo()

    def _spy(self, name: str) -> None:
        """Watch a sampler wherever it was imported to."""
        loaded = [
            module for key, module in sys.modules.items() if key.split(".")[0] == "pacprivacy"
        ]
        holders = [module for module in loaded if name in vars(module)]
        assert holders, f"no module has {name}; name the samplers of the noise in SAMPLERS"
        sample = vars(holders[0])[name]

        def watched(scales: Any, source: Any) -> Any:
            drawn = sample(scales, source)
            self._noise.update(np.ascontiguousarray(drawn, dtype="<i8").tobytes())
            self._n_drawn += drawn.size
            return drawn

        for module in holders:
            self._patch.setattr(module, name, watched)

    @property
    def seen(self) -> dict[str, Any]:
        digest = int.from_bytes(self._noise.digest()[:6], "little")  # fits a JSON number
        return {"integers": self._integers, "drawn": [self._n_drawn, digest]}


# --- from what a case returns to numbers --------------------------------------------------------


def describe(thing: Any) -> Any:
    """Turn what a case returns into dictionaries, lists and numbers; drop texts."""
    if hasattr(thing, "to_public_dict"):
        public = thing.to_public_dict()
        if "certificate" not in public:
            return describe(public)
        return {"value": describe(public["value"]), "certificate": describe(public["certificate"])}
    if isinstance(thing, np.ndarray | np.generic):
        return describe(thing.tolist())
    if isinstance(thing, dict):
        kept = {str(key): describe(value) for key, value in thing.items() if key not in IGNORED}
        return {
            key: value
            for key, value in kept.items()
            if not isinstance(value, str) or key in KEPT_TEXTS
        }
    if isinstance(thing, list | tuple):
        return [item for item in map(describe, thing) if not isinstance(item, str)]
    if thing is None or isinstance(thing, str | bool | int | float):
        return thing
    if hasattr(thing, "get_params"):
        return describe(attributes(thing))
    if is_dataclass(thing):
        return describe({field.name: getattr(thing, field.name) for field in fields(thing)})
    raise TypeError(f"a case must return numbers; got {type(thing).__name__}")


def is_numeric(tree: Any) -> bool:
    if isinstance(tree, list):
        return all(is_numeric(item) for item in tree)
    return not isinstance(tree, dict)


def flatten(tree: Any, path: str = "") -> dict[str, Any]:
    """Return path -> number, text, or nested list of numbers; lists of texts alone are empty."""
    if is_numeric(tree):
        return {} if tree == [] else {path: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    flat: dict[str, Any] = {}
    for key, value in items:
        flat |= flatten(value, f"{path}.{key}" if path else str(key))
    return flat


def run(name: str) -> dict[str, Any]:
    """Run a case; return all of its numbers by name."""
    with Watch() as watch:
        result = CASES[name]()
    found = describe(result)
    return flatten({**(found if isinstance(found, dict) else {"value": found}), **watch.seen})


# --- comparison ---------------------------------------------------------------------------------


def name_now(path: str) -> str:
    for old, new in RENAMED.items():
        match = f".{path}.".find(f".{old}.")
        if match >= 0:
            return f"{path[:match]}{new}{path[match + len(old) :]}"
    return path


def differences(
    recorded: dict[str, Any], found: dict[str, Any], *, tolerance: float = TOLERANCE
) -> list[str]:
    """Say which recorded numbers are not found again."""
    wrong = []
    for path, was in recorded.items():
        name = name_now(path)
        if tolerance > TOLERANCE and set(FEW_DRAWS) & set(path.split(".")):
            continue
        if name not in found:
            if was is not None:
                wrong.append(f"{name}: {was!r} is gone")
        elif not same(was, found[name], tolerance_of(path, tolerance)):
            wrong.append(f"{name}: {was!r} is now {found[name]!r}")
    return wrong


def tolerance_of(path: str, tolerance: float) -> float:
    parts = path.split(".")
    if tolerance > TOLERANCE:
        return 0.0 if "drawn" in parts else tolerance
    released = "certificate" not in parts and any(part in EXACT for part in parts)
    return 0.0 if released else tolerance


def same(was: Any, now: Any, tolerance: float) -> bool:
    if isinstance(was, list):
        if not isinstance(now, list) or len(was) != len(now):
            return False
        return all(same(a, b, tolerance) for a, b in zip(was, now, strict=True))
    if was is None or now is None or isinstance(was, str | bool):
        return bool(was == now)
    if isinstance(now, str | bool | list):
        return False
    if math.isnan(was) or math.isnan(now):
        return math.isnan(was) and math.isnan(now)
    if tolerance == 0 or (tolerance == TOLERANCE and isinstance(was, int)):
        return bool(was == now)
    return math.isclose(was, now, rel_tol=tolerance, abs_tol=ROUNDING)


# --- the file -----------------------------------------------------------------------------------


def software() -> dict[str, str]:
    """Versions that the numbers depend on."""
    return {"numpy": np.__version__, "scipy": scipy.__version__, "sklearn": sklearn.__version__}


def arithmetic() -> str:
    """What the last bits of the numbers depend on: a digest of a little linear algebra."""
    matrix = np.random.default_rng(0).normal(size=(40, 24))
    gram = matrix.T @ matrix
    parts = (
        gram,
        np.linalg.eigh(gram)[1],
        np.linalg.svd(matrix)[1],
        np.linalg.solve(gram, matrix[0]),
        np.exp(matrix),
        np.log(np.abs(matrix)),
        matrix.sum(axis=0),
        matrix @ matrix[0],
    )
    digest = hashlib.blake2b(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))
    return digest.hexdigest()[:12]


def made_here() -> dict[str, str]:
    return {**software(), "arithmetic": arithmetic()}


def save(made_with: dict[str, str], cases: dict[str, dict[str, Any]], path: Path) -> None:
    """Write one line per case: its layout, and the numbers.

    A layout lists the names of the numbers by their places among all names.
    """
    names = list(dict.fromkeys(name for numbers in cases.values() for name in numbers))
    place = {name: i for i, name in enumerate(names)}
    layouts: dict[tuple[int, ...], int] = {}
    lines = []
    for case_name, numbers in cases.items():
        layout = layouts.setdefault(tuple(place[name] for name in numbers), len(layouts))
        lines.append(f"{json.dumps(case_name)}: {_compact([layout, list(numbers.values())])}")
    sections = (
        f'"made_with": {json.dumps(made_with)}',
        f'"names": {_compact(names)}',
        '"layouts": [\n' + ",\n".join(map(_compact, layouts)) + "]",
        '"cases": {\n' + ",\n".join(lines) + "}",
    )
    path.write_text("{" + ",\n".join(sections) + "}\n", encoding="utf-8")


def _compact(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"))


def load(path: Path = FILE) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    layouts = [[content["names"][i] for i in layout] for layout in content["layouts"]]
    cases = {
        name: dict(zip(layouts[layout], values, strict=True))
        for name, (layout, values) in content["cases"].items()
    }
    return content["made_with"], cases


# --- tests --------------------------------------------------------------------------------------


reads_the_file = pytest.mark.skipif(RECORD in os.environ, reason="the file is being written")


@pytest.fixture(scope="module")
def recorded() -> Iterator[dict[str, dict[str, Any]]]:
    """What is on file; with ``PAC_RECORD_NUMBERS`` what is run now goes there instead."""
    made_with, cases = load() if FILE.exists() else ({}, {})
    if RECORD in os.environ:
        assert "PYTEST_XDIST_WORKER" not in os.environ, "record in one process, without -n"
        made: dict[str, dict[str, Any]] = {}
        yield made
        here = made_here()
        assert here == made_with or len(made) == len(CASES), "record all cases: bits may differ"
        save(here, {name: (cases | made)[name] for name in CASES}, FILE)
        return
    if not software().items() <= made_with.items():
        pytest.skip(f"the numbers were recorded with {made_with}; here is {software()}")
    yield cases


@pytest.fixture(scope="module")
def tolerance() -> float:
    if RECORD in os.environ or load()[0]["arithmetic"] == arithmetic():
        return TOLERANCE
    return ELSEWHERE


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_recorded(
    name: str, recorded: dict[str, dict[str, Any]], tolerance: float
) -> None:
    if tolerance > TOLERANCE and name in UNSTABLE:
        pytest.skip("recorded on another kind of processor")
    found = run(name)
    if RECORD in os.environ:
        recorded[name] = found
    assert name in recorded, "record the new case: see the top of this file"
    wrong = differences(recorded[name], found, tolerance=tolerance)
    assert not wrong, f"{len(wrong)} numbers differ:\n  " + "\n  ".join(wrong[:20])


@reads_the_file
def test_no_case_is_lost() -> None:
    made_with, cases = load()
    assert set(cases) == set(CASES)
    assert len(cases) >= 50
    assert set(made_with) == set(made_here())
    assert set(UNSTABLE) < set(cases)


@reads_the_file
def test_every_rule_is_among_the_cases() -> None:
    recorded_rules = {numbers.get("certificate.rule") for numbers in load()[1].values()}
    names = {"confidence", "protect", "shaped", "exact weighted", *noise.RULES}
    assert names <= recorded_rules


@reads_the_file
def test_half_the_noise_is_noticed(recorded: dict[str, dict[str, Any]], tolerance: float) -> None:
    """The planted change that no certificate would show."""
    observe = noise.NoisePlan.observe

    def halved(plan: Any, index: int, source: Any) -> Any:
        seen = observe(plan, index, source)
        drawn = seen.integers - plan.points[index]
        return replace(seen, integers=plan.points[index] + drawn // 2)

    name = "rule waterfill"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise.NoisePlan, "observe", halved)
        wrong = differences(recorded[name], run(name), tolerance=tolerance)
    assert {line.split(":")[0] for line in wrong} == {"value", "integers"}


def test_what_counts_as_a_difference() -> None:
    before = {
        "value": [1.0, 2.0],
        "certificate.bound": 0.5,
        "certificate.n": 3,
        "certificate.x": None,
    }
    assert not differences(before, {**before, "new": 1.0, "certificate.bound": 0.5 * (1 + 1e-13)})
    assert not differences(before, {k: v for k, v in before.items() if v is not None})
    for change in (
        {"certificate.bound": 0.5 * (1 + 1e-11)},
        {"value": [1.0, math.nextafter(2.0, 3.0)]},
        {"value": [1.0]},
        {"certificate.n": 4},
        {"certificate.x": 0.0},
        {"certificate.bound": None},
        {"certificate.bound": math.nan},
    ):
        assert len(differences(before, before | change)) == 1
    nearby = before | {"value": [1.0, 2.0 + 1e-9], "certificate.n": 3.0001}
    assert not differences(before, nearby, tolerance=ELSEWHERE)
    assert differences({"drawn": [2, 7]}, {"drawn": [2, 8]}, tolerance=1.0)
    gone = {k: v for k, v in before.items() if k != "certificate.bound"}
    assert differences(before, gone) == ["certificate.bound: 0.5 is gone"]


def test_new_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RENAMED, "composition.nats", "spent.mi_nats")
    monkeypatch.setitem(RENAMED, "odometer", "spent")
    was = {
        "releases.0.certificate.composition.nats": 1.0,
        "odometer.n": 2,
        "certificate.odometers": 3,
    }
    now = {"releases.0.certificate.spent.mi_nats": 1.0, "spent.n": 2, "certificate.odometers": 3}
    assert not differences(was, now)
    assert len(differences(was, was)) == 2
