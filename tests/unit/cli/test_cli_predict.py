"""``pac predict``: released models on new rows."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pacprivacy.cli import app
from pacprivacy.errors import DataError
from pacprivacy.release import Release
from pacprivacy.tables import predict, read_table

N = 400
QUICK = ["--subsets", 16, "--rule", "waterfill", "--budget", "mi<=2", "-q"]
MODELS: dict[str, list[object]] = {
    "ols": ["--target", "pay", "--columns", "age,region,joined"],
    "ridge": ["--target", "pay", "--columns", "age,region"],
    "poisson": ["--target", "visits", "--columns", "age,region"],
    "logistic": ["--target", "smoker", "--columns", "age,pay"],
    "svm": ["--target", "region", "--columns", "age,pay"],
    "forest": ["--target", "smoker", "--columns", "age,pay", "--ranges", "age=0,100;pay=0,9"],
    "kmeans": ["--columns", "age,pay", "--clusters", 2],
    "pca": ["--columns", "age,pay", "--components", 2],
    "mean": ["--columns", "age,joined"],
}


def run_pac(*words: object, code: int = 0, stdin: str | None = None) -> Any:
    result = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
    assert result.exit_code == code, (result.stdout, result.stderr)
    return result


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    region = rng.choice(["north", "south", "west"], N)
    age = rng.integers(18, 90, N).astype(float)
    pay = (2 + age / 30 + (region == "south") + rng.normal(0, 0.3, N)).round(3)
    return pd.DataFrame(
        {
            "id": [f"P{i}" for i in range(N)],
            "region": region,
            "age": age,
            "pay": pay,
            "joined": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, N), "D"),
            "visits": rng.poisson(np.exp(age / 50)),
            "smoker": np.where(age + rng.normal(0, 5, N) > 50, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def out(people: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    people.to_csv(folder / "people.csv", index=False)
    for name, words in MODELS.items():
        place = ["-o", folder / name]
        run_pac("release", folder / "people.csv", "--model", name, *words, *QUICK, *place)
    return folder


def expected(name: str, value: dict[str, Any], model: dict[str, Any], rows: pd.DataFrame) -> Any:
    """Work the prediction out again, from the public file alone."""
    X = np.column_stack(
        [
            (rows[column] == level) if level is not None else as_numbers(rows[column])
            for _, column, level in model["terms"]
        ]
    ).astype(float)
    if name in ("ols", "poisson", "logistic"):
        eta = value["intercept"] + X @ [value[label] for label, _, _ in model["terms"]]
        return {"ols": eta, "poisson": np.exp(eta), "logistic": 1 / (1 + np.exp(-eta))}[name]
    if name == "ridge":
        return value["intercept"] + X @ value["coef"]
    if name == "svm":
        scores = X @ np.array(value["coef"]).T + value["intercept"]
        return np.array(value["classes"])[scores.argmax(axis=1)]
    if name == "kmeans":
        apart = (X[:, None] - np.array(value["centres"])) / model["scales"]
        return np.linalg.norm(apart, axis=2).argmin(axis=1)
    assert name == "pca"
    return ((X - value["mean"]) / value["scales"]) @ value["components"][0]


def as_numbers(column: pd.Series) -> Any:
    if column.dtype.kind == "M":
        return (column - pd.Timestamp("1970-01-01")).dt.days
    return column


COLUMN = {
    "ols": "predicted_pay",
    "ridge": "predicted_pay",
    "poisson": "predicted_visits",
    "logistic": "probability_yes",
    "svm": "predicted_region",
    "kmeans": "cluster",
    "pca": "component_1",
}


@pytest.mark.claim("M-1")
@pytest.mark.parametrize("name", COLUMN)
def test_predictions_follow_from_the_public_file_alone(
    name: str, out: Path, people: pd.DataFrame, tmp_path: Path
) -> None:
    public = tmp_path / "release.json"
    public.write_bytes((out / name / "release.json").read_bytes())  # without the curator's bundle
    rows = people[::-1][:30]
    shuffled = rows[list(people.columns[::-1])]
    shuffled.to_csv(tmp_path / "new.csv", index=False)
    run_pac("predict", public, tmp_path / "new.csv", "-o", tmp_path / "p.csv", "--keep", "id")
    found = pd.read_csv(tmp_path / "p.csv")
    assert found["id"].tolist() == rows["id"].tolist()
    content = json.loads(public.read_text())
    wanted = expected(name, content["value"], content["model"], rows)
    if name == "svm":
        assert found[COLUMN[name]].tolist() == wanted.tolist()
    else:
        np.testing.assert_allclose(found[COLUMN[name]], wanted, rtol=1e-9)


def test_a_forest_finds_the_classes_again(out: Path, people: pd.DataFrame) -> None:
    told = run_pac("predict", out / "forest" / "release.json", out / "people.csv").stdout
    found = pd.read_csv(io.StringIO(told))
    assert found.columns.tolist() == ["predicted_smoker"]
    assert set(found.predicted_smoker) <= {"yes", "no"}
    content = json.loads((out / "forest" / "release.json").read_text())["value"]
    thresholds, rows = np.array(content["thresholds"]), people[["age", "pay"]].to_numpy()
    scores = np.zeros((N, 2))
    for tree, columns in enumerate(content["features"]):
        node = np.zeros(N, dtype=int)
        for column in columns:
            right = rows[:, column] >= thresholds[tree, node]
            node = 2 * node + 1 + right
        scores += np.array(content["leaves"])[tree, node - thresholds.shape[1]]
    assert found.predicted_smoker.tolist() == [
        content["classes"][best] for best in scores.argmax(axis=1)
    ]


def test_gaps_have_no_prediction_and_are_counted(out: Path) -> None:
    new = "age;region;joined\n30;north;2024-02-01\n;south;2024-02-01\n40;;2024-02-01\n"
    result = run_pac("predict", out / "ols" / "release.json", "-", stdin=new)
    lines = result.stdout.splitlines()
    assert lines[0] == "predicted_pay"
    assert np.isfinite(float(lines[1]))
    assert lines[2:] == ['""', '""'] or lines[2:] == ["", ""]
    assert "2 of 3 rows have gaps and no prediction" in result.stderr


@pytest.mark.parametrize(
    ("name", "new", "message"),
    [
        ("ols", "age\n3\n", "columns 'region', 'joined' must be in the file"),
        ("ols", "age,region,joined\nx,north,2024-01-01\n", "got text in 'age'"),
        ("ols", "age,region,joined\n3,east,2024-01-01\n", "got another in record 1"),
        ("ols", "age,region,joined\ninf,north,2024-01-01\n", "got infinity in 'age'"),
        ("ols", "", "must start with a line of column names"),
        ("mean", "age\n3\n", "must be of a model that predicts"),
    ],
)
def test_what_cannot_be_applied_is_told_in_one_line(
    name: str, new: str, message: str, out: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text(new)
    result = run_pac("predict", out / name / "release.json", tmp_path / "new.csv", code=2)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_a_mean_of_dates_says_what_its_number_is(out: Path) -> None:
    public = json.loads((out / "mean" / "release.json").read_text())["certificate"]["public"]
    assert "dates are days since 1970-01-01: joined" in public


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("terms", [3]), ("terms", [["x", "age", "y"]]), ("levels", 3), ("levels", {"region": {}}),
     ("levels", {"region": [{}]}), ("kind", []), ("terms", None)],
)  # fmt: skip
def test_a_forged_model_is_refused(name: str, wrong: Any, out: Path) -> None:
    release = Release.load(out / "ols")
    table = read_table(out / "people.csv")
    assert predict(release, table)[1].any()
    forged = replace(release, model={**(release.model or {}), name: wrong})
    with pytest.raises(DataError, match=r"as it was written|in the file"):
        predict(forged, table)
    with pytest.raises(DataError, match="as it was written"):
        predict(replace(release, model=3), table)  # type: ignore[arg-type]
