"""Columns that are not what they seem: numbers among texts, ids that repeat, dates as groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

import pacprivacy as pac
from pacprivacy import stats
from pacprivacy.errors import DataError, MechanismError, UnitWarning
from pacprivacy.mechanism import coerce_data, split_data_units
from pacprivacy.tables import ModelOptions, read_model_study, read_table

RNG = np.random.default_rng(3)
N = 600
PEOPLE = RNG.integers(1, 220, N)


def study(path: Path, model: str = "mean", **options: Any) -> Any:
    return read_model_study(path, model, ModelOptions(**options))


def write(tmp_path: Path, **columns: Any) -> Path:
    path = tmp_path / "table.csv"
    pd.DataFrame({"age": RNG.integers(18, 90, N), **columns}).to_csv(path, index=False)
    return path


MIXED = {
    "laboratory": ["<5", "neg", "7", "12"],
    "with commas": ["1,5", "2,25", "neg"],
    "percent": ["5%", "7%", "12 %"],
    "money": ["€5", "€ 17"],
    "the rest": ["0", "1", "2", "3+"],
}


@pytest.mark.parametrize("entries", MIXED.values(), ids=MIXED)
def test_numbers_among_texts_are_no_levels_until_it_is_said(
    entries: list[str], tmp_path: Path
) -> None:
    column = np.array(entries)[np.arange(N) % len(entries)]
    path, frame = write(tmp_path, crp=column), coerce_data(pd.DataFrame({"crp": column}))
    for model in ("mean", "kmeans"):
        more = {"clusters": 2} if model == "kmeans" else {}
        with pytest.raises(DataError, match="numbers among the texts in 'crp'") as refused:
            study(path, model, **more)
        assert "--categories crp" in str(refused.value)
        study(path, model, categories=("crp",), **more)
        study(path, model, levels={"crp": tuple(entries[:2])}, **more)
    study(path, "count", by=("crp",))  # a group is a category by its name
    with pytest.raises(MechanismError, match="categories='crp'"):
        stats.mean("crp").prepare(frame)
    declared = stats.mean("crp", categories="crp").prepare(frame)
    assert declared.published == ("levels of 'crp': those that occur in the table",)
    typed = coerce_data(pd.DataFrame({"crp": pd.Categorical(column)}))
    stats.mean("crp").prepare(typed)


def test_plain_categories_stay_so(tmp_path: Path) -> None:
    for entries in (["<18", "18-64", "65+"], ["yes", "no"], ["A1", "B2"], ["09:30", "10:15"]):
        column = np.array(entries)[np.arange(N) % len(entries)]
        study(write(tmp_path, band=column))
        stats.mean("band").prepare(coerce_data(pd.DataFrame({"band": column})))


REPEATED = {
    "person_id": PEOPLE,
    "PatientID": [f"P{p:05d}" for p in PEOPLE],
    "customer": PEOPLE,
    "hash": [f"{p * 7919:08x}" for p in PEOPLE],
    "account number": PEOPLE,
    "whose": [f"AB-{p:06d}" for p in PEOPLE],  # no such name, but entries like keys
}
HARMLESS = {
    "visit_id": np.arange(N),
    "hospital_id": RNG.integers(1, 4, N),
    "income": RNG.integers(1000, 9000, N),
    "year": np.sort(RNG.integers(0, 100, N)),
    "seen": np.datetime_as_string(np.datetime64("2023-01-01") + PEOPLE),
    "born": [f"{d % 28 + 1:02d}-{d % 12 + 1:02d}-1970" for d in PEOPLE],
    "customer_segment": PEOPLE,
    "city": np.array(["Rome", "Oslo", "Bern"])[np.arange(N) % 3],
    "score": RNG.normal(size=N).round(1),
}


@pytest.mark.parametrize("name", [*REPEATED, *HARMLESS])
def test_an_id_that_repeats_is_warned_of(name: str, tmp_path: Path) -> None:
    column = {**REPEATED, **HARMLESS}[name]
    path, frame = write(tmp_path, **{name: column}), pd.DataFrame({name: column, "x": 1.0})
    notes = " ".join(study(path, columns=("age",)).notes)
    if name in HARMLESS:
        assert "whose row it is" not in notes
        split_data_units(frame, None)  # a warning would be an error
        return
    assert f"{name!r} seems to say whose row it is" in notes
    assert "--unit" in notes
    assert not any(character.isdigit() for character in notes)
    with pytest.warns(UnitWarning, match=rf"Pass units={name!r}") as caught:
        split_data_units(frame, None)
    assert not any(character.isdigit() for warning in caught for character in str(warning.message))
    split_data_units(frame, name)
    assert "whose row" not in " ".join(study(path, columns=("age",), unit=name).notes)


def test_every_way_in_warns() -> None:
    frame = pd.DataFrame({"person_id": PEOPLE, "age": RNG.normal(size=N)})
    options: dict[str, Any] = {"n_subsets": 16, "rng": 0}
    with pytest.warns(UnitWarning):
        pac.privatize(stats.mean("age"), frame, "membership<=0.75", **options)
    with pytest.warns(UnitWarning):
        pac.plan(stats.mean("age"), frame, "membership<=0.75", **options)
    with pytest.warns(UnitWarning), pac.Session(frame, budget="mi<=1", **options):
        pass
    pac.privatize(stats.mean("age"), frame, "membership<=0.75", units="person_id", **options)


def test_a_column_of_many_ids_is_advised_to_be_the_unit(tmp_path: Path) -> None:
    path = write(tmp_path, person_id=[f"P{p:05d}" for p in PEOPLE])
    with pytest.raises(DataError) as refused:
        study(path)
    told = str(refused.value)
    assert told.index("--unit person_id") < told.index("--columns age")
    frame = pd.DataFrame({"person_id": [f"P{p:05d}" for p in PEOPLE], "age": 1.0})
    with pytest.raises(MechanismError, match="units='person_id'"):
        stats.mean().prepare(coerce_data(frame))


def test_dates_as_groups_are_called_by_their_day(tmp_path: Path) -> None:
    days = pd.Timestamp("2024-05-30") + pd.to_timedelta(np.arange(N) % 3, unit="D")
    names = ("2024-05-30", "2024-05-31", "2024-06-01")
    for written in (days, days.strftime("%d.%m.%Y"), days.strftime("%d/%m/%Y")):
        data = coerce_data(pd.DataFrame({"day": written}))
        whole = stats.count(by="day").prepare(data)
        assert whole.finish([200.0] * 3) == dict.fromkeys(names, 200.0)
        declared = stats.count(by="day", levels={"day": names[1:]}).prepare(data)
        assert declared.evaluate(data.parts, np.random.default_rng(0)).tolist() == [200.0] * 2
        with pytest.raises(MechanismError, match="levels of 'day' must be dates"):
            stats.count(by="day", levels={"day": ["31.05.2024"]}).prepare(data)
    made = study(write(tmp_path, day=days.strftime("%d-%m-%Y")), "count", by=("day",))
    assert set(made.mechanism.prepare(made.universe).finish([1.0] * 3)) == set(names)


def test_declared_levels_of_numbers_are_numbers() -> None:
    data = coerce_data(pd.DataFrame({"code": np.arange(N) % 3}))
    counted = stats.count(by="code", levels={"code": ["1.0", "2"]}).prepare(data)
    assert counted.evaluate(data.parts, np.random.default_rng(0)).tolist() == [200.0] * 2
    with pytest.raises(MechanismError, match="levels of 'code' must be numbers"):
        stats.count(by="code", levels={"code": ["one"]}).prepare(data)


def test_the_rows_that_remain_are_counted_always(tmp_path: Path) -> None:
    path = write(tmp_path)
    for where, left in {"age >= 0": N, "age > 200": 0}.items():
        notes = study(path, "count", where=where).notes
        assert f"{left} of {N} records meet the condition" in notes


# --- files ------------------------------------------------------------------------------------


def test_damaged_parquet_says_so(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pd.DataFrame({"age": np.arange(200.0), "sex": ["f", "m"] * 100}).to_parquet(path)
    whole, rng, told = path.read_bytes(), np.random.default_rng(0), []
    for place in rng.integers(4, len(whole), 150):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            read_table(path)
        except DataError as error:
            told.append(str(error))
    assert len(told) > 10
    assert all(str(path) in text and "None" not in text for text in told)


def test_zoned_moments_are_read_as_they_are_written(tmp_path: Path) -> None:
    moments = pd.Series(pd.to_datetime(["2024-05-31 00:30"] * 8)).dt.tz_localize("Europe/Berlin")
    path = tmp_path / "table.parquet"
    pd.DataFrame({"at": moments}).to_parquet(path)
    assert set(read_table(path).columns["at"].entries) == {"2024-05-31T00:30"}


# --- results and gaps ---------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_texts_of_a_result_name_its_rows(library: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": RNG.normal(size=N), "sex": np.array(["f", "m"])[np.arange(N) % 2]})

    def means(d: Any) -> Any:
        if library == "pandas":
            return d.groupby("sex", as_index=False).age.mean()
        import polars as pl

        return d.group_by("sex").agg(pl.col("age").mean()).sort("sex")

    if library == "polars":
        frame = pytest.importorskip("polars").DataFrame(frame.to_dict("list"))
    found = pac.privatize(means, frame, "membership<=0.75", n_subsets=16, rng=0)
    assert [row.name for row in found.rows(2)] == ["age[f]", "age[m]"]
    assert list(found.value["sex"]) == ["f", "m"]
    found.save(tmp_path)
    again = pac.Release.load(tmp_path / "release.json").value
    assert list(again["sex"]) == ["f", "m"]
    assert list(again["age"]) == list(found.value["age"])
    with pytest.raises(MechanismError, match="same shape, keys and labels") as refused:
        pac.privatize(lambda d: d.head(5), frame, "membership<=0.75", n_subsets=16, rng=0)
    assert "age" not in str(refused.value)


def test_a_predictor_takes_the_gaps_that_its_model_takes() -> None:
    X = RNG.normal(size=(120, 3))
    y = (X[:, 0] > 0).astype(int)
    X[::7, 1] = np.nan
    tree = DecisionTreeClassifier(max_depth=2)
    for model in (tree, make_pipeline(SimpleImputer(), LogisticRegression())):
        for rows in (X, pd.DataFrame(X, columns=list("abc"))):
            fitted = pac.PrivatePredictor(model, n_subsets=8).fit(rows, y)
            assert fitted.predict(rows[:3]).shape == (3,)
    with pytest.raises(ValueError, match="NaN"):
        pac.PrivatePredictor(LogisticRegression(), n_subsets=8).fit(X, y)
    infinite = np.where(np.isnan(X), np.inf, X)
    with pytest.raises(ValueError, match="infinity"):
        pac.PrivatePredictor(tree, n_subsets=8).fit(infinite, y)
