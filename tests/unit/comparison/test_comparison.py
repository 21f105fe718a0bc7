"""PAC and DP beside each other: one success, two promises, never one figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.comparison import Comparison, compare, contenders as compared
from pacprivacy.dp import DPCertificate, DPRelease
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.theory import epsilon_equivalent

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, size=(400, 2))
Y = X[:, 0] - X[:, 1] + 0.1 * RNG.normal(size=400)
FAST: dict[str, Any] = {"n_subsets": 16, "n_releases": 40, "n_dp_releases": 3, "rng": 0}


def small(model: str, **settings: Any) -> Comparison:
    given: dict[str, Any] = {"success": 0.7, "ranges": (0, 10)} | FAST
    if model == "ridge":
        given["target_range"] = (-10, 10)
    y = {"mean": None, "ridge": Y, "logistic": Y > 0}[model]
    return compare(X, y, model=model, **(given | settings))


@pytest.mark.parametrize("model", ["mean", "ridge", "logistic"])
def test_every_row_guarantees_the_same_success(model: str) -> None:
    found = small(model, rules=("diagonal", "waterfill"))
    families = [row.family for row in found.rows]
    assert families == sorted(families, reverse=True)  # PAC first
    assert {"PAC", "DP"} == set(families)
    for row in found.rows:
        assert row.success == 0.7
        if row.family == "DP":
            assert row.mi_nats is None
            assert row.epsilon is not None
            assert row.delta is not None
            assert row.advantage is not None
            assert 0.999 * 0.4 <= row.advantage <= 0.4 + 1e-15
        else:
            assert row.epsilon is None
            assert row.advantage is None
            assert row.mi_nats is not None
    assert len(found.rows) == 2 + len(compared.MODELS[model].methods)


@pytest.mark.parametrize("own", [None, lambda epsilon: 0.1 * epsilon])
def test_dp_methods_are_asked_for_the_epsilon_of_their_own_success(
    monkeypatch: pytest.MonkeyPatch, own: Any
) -> None:
    asked: list[float] = []

    def spy(records: Any, epsilon: float, seed: int) -> DPRelease:
        asked.append(epsilon)
        certificate = DPCertificate(
            epsilon=epsilon,
            delta=records.delta,
            neighbours="add_remove",
            mechanism="spy",
            advantage=None if own is None else own(epsilon),
        )
        return DPRelease(value=np.zeros(2), certificate=certificate)

    from dataclasses import replace

    model = replace(compared.MODELS["mean"], methods={"spy": spy})
    monkeypatch.setitem(compared.MODELS, "mean", model)
    small("mean", rules=("diagonal",), delta=1e-3)
    # Where the method knows its loss distribution, that decides; else epsilon and delta do.
    expected = 4.0 if own is not None else epsilon_equivalent(0.7, delta=1e-3)
    assert asked[-1] == pytest.approx(expected, rel=2e-3)
    assert asked[-1] <= expected
    assert len(set(asked[-3:])) == 1


def test_the_relation_is_said_where_it_is_another_one() -> None:
    found = small("ridge", rules=("diagonal",))
    relations = {row.method: row.neighbours for row in found.rows if row.family == "DP"}
    assert relations["output perturbation"] == "replace"
    assert relations["AdaSSP"] == "add_remove"
    text = str(found)
    assert "* about the content of a record" in text
    assert "it may be 0.4000" in text
    assert max(map(len, text.splitlines())) <= 80


def test_less_privacy_is_more_utility() -> None:
    tight = small("mean", success=0.55, rules=("waterfill",))
    loose = small("mean", success=0.95, rules=("waterfill",))
    for strict, easy in zip(tight.rows, loose.rows, strict=True):
        assert (easy.utility or 0.0) < (strict.utility or 0.0)


def test_text_html_json_and_picture_say_what_each_promises(tmp_path: Path) -> None:
    found = small("logistic", rules=("diagonal",))
    text = str(found)
    assert max(map(len, text.splitlines())) <= 80
    assert "which half of a known universe" in " ".join(text.split())
    assert "whether a record is in the data at all" in " ".join(text.split())
    assert "objective perturbation" in found._repr_html_()
    assert json.loads(json.dumps(found.to_public_dict()))["rows"][0]["family"] == "PAC"
    assert found.plot(tmp_path / "compare.png").axes
    assert (tmp_path / "compare.png").stat().st_size > 10_000
    with pytest.raises(DataError, match="plot must end in"):
        found.plot(tmp_path / "compare.txt")


def test_a_refused_method_is_shown_and_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    def refuse(records: Any, epsilon: float, seed: int) -> DPRelease:
        raise BudgetError("epsilon must be larger. Ask for more.")

    model = replace(compared.MODELS["mean"], methods={"refuses": refuse})
    monkeypatch.setitem(compared.MODELS, "mean", model)
    found = small("mean", success=0.5 + 1e-7, rules=("diagonal",))
    assert [row.utility for row in found.rows] == [None, None]
    assert str(found).count("refused (BudgetError)") == 2


def test_given_test_rows_judge() -> None:
    found = small("logistic", rules=("diagonal",), test=(X[:50], Y[:50] > 0))
    assert found.n_records == 400


def test_the_name_is_public() -> None:
    assert pac.compare is compare


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"model": "forest"}, DataError, "model must be one of"),
        ({"success": 0.4}, BudgetError, "success must be above 1/2"),
        ({"ranges": (1, 0)}, DataError, "two finite ends"),
        ({"ranges": (np.zeros(3), np.ones(3))}, DataError, "one pair for each of 2"),
        ({"delta": 0.0}, BudgetError, "delta must be between"),
        ({"model": "ridge"}, DataError, "target_range must be declared"),
    ],
)
def test_bad_requests(changes: dict[str, Any], error: type[Exception], match: str) -> None:
    given = {"model": "logistic", "success": 0.7, "ranges": (0, 10)} | FAST | changes
    with pytest.raises(error, match=match):
        compare(X, Y > 0 if given["model"] != "ridge" else Y, **given)


def test_bad_targets() -> None:
    with pytest.raises(DataError, match="two classes"):
        compare(X, np.round(Y), model="logistic", success=0.7, ranges=(0, 10))
    with pytest.raises(DataError, match="one target for each"):
        compare(X, None, model="logistic", success=0.7, ranges=(0, 10))
    with pytest.raises(DataError, match="finite numbers"):
        compare(np.full((4, 2), np.nan), None, model="mean", success=0.7, ranges=(0, 10))
