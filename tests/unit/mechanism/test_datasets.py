"""Tables in files: the same numbers as in memory, and errors that quote no entry."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import dataset

import pacprivacy as pac
from pacprivacy.design import JointRidge
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.mechanism import Dataset, coerce_data, datasets, split_data_units
from pacprivacy.statistics import Mean

N = 3000
RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, N),
        "income": RNG.lognormal(10, 1, N),
        "flag": RNG.random(N) < 0.3,
        "person": RNG.permutation(np.arange(N) // 3),
    }
)
FRAME["spend"] = 0.1 * FRAME["income"] + 20 * FRAME["age"] + RNG.normal(0, 100, N)
COLUMNS = ["age", "income", "flag"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files, with small row groups, so that batches end everywhere."""
    path = tmp_path_factory.mktemp("people")
    for i, rows in enumerate(np.array_split(np.arange(N), [1000, 1017])):
        FRAME.iloc[rows].to_parquet(path / f"part{i}.parquet", row_group_size=190)
    return path


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_BATCH_ROWS", 77)


@pytest.mark.claim("M-6")
def test_rows_are_those_in_memory(folder: Path) -> None:
    people = Dataset(folder / "*.parquet", unit="person")
    rows, units = split_data_units((people[COLUMNS], people["spend"]), None)
    X, y = coerce_data(rows).parts
    assert (FRAME[COLUMNS].astype(float).to_numpy() == X).all()
    assert (y == FRAME["spend"].to_numpy()).all()
    assert (units == FRAME["person"].to_numpy()).all()
    in_arrow = Dataset(dataset.InMemoryDataset(pa.Table.from_pandas(FRAME)))
    assert (in_arrow[COLUMNS].load() == X).all()


@pytest.mark.claim("M-6")
@pytest.mark.parametrize("sample", [None, pac.Balanced(n_subsets=200)])
def test_a_release_from_files(folder: Path, sample: pac.Balanced | None) -> None:
    people = Dataset(folder, unit="person")
    release = pac.privatize(Mean(), people["age"], "membership<=0.7", sample=sample, rng=0)
    assert abs(release.value - FRAME["age"].mean()) < 20
    assert release.certificate.n_units == N // 3
    assert release.certificate.unit == "person"


@pytest.mark.filterwarnings("ignore::pacprivacy.errors.UnitWarning")
def test_parts_of_different_units_are_refused(folder: Path) -> None:
    ages, spends = Dataset(folder)[["age"]], Dataset(folder, unit="person")["spend"]
    with pytest.raises(DataError, match="parts must have the same unit"):
        pac.privatize(JointRidge(), (ages, spends), "mi<=1", n_subsets=4)


@pytest.mark.filterwarnings("ignore::pacprivacy.errors.UnitWarning")
def test_what_cannot_be_read_is_explained(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="source must name Parquet files"):
        Dataset(tmp_path / "*.parquet")
    with pytest.raises(DataError, match="columns and unit must be columns of the files; got 'id'"):
        Dataset(folder, unit="id")
    for columns in (["age", "age"], 3, []):
        with pytest.raises(DataError, match="each may be named once"):
            Dataset(folder)[columns]  # type: ignore[index]
    secret = pd.DataFrame({"name": ["SECRET"]})
    for source in (secret, pa.Table.from_pandas(secret), 5, None):
        with pytest.raises(DataError, match="source must be paths of Parquet files") as told:
            Dataset(source)
        assert "SECRET" not in str(told.value)  # what was given is not shown: it may be the rows
    bad = pd.DataFrame({"x": [1.0, None, 3.0, 4.0] * 5, "name": ["a"] * 20})
    bad.to_parquet(tmp_path / "bad.parquet")
    for column, message in (("x", "missing or infinite values in 'x'"), ("name", "hold numbers")):
        with pytest.raises(MechanismError, match=message):
            pac.privatize(Mean(), Dataset(tmp_path / "bad.parquet")[column], "mi<=1", n_subsets=4)


@pytest.mark.filterwarnings("ignore::pacprivacy.errors.UnitWarning")
def test_files_that_do_not_fit_together_quote_no_entry(folder: Path, tmp_path: Path) -> None:
    FRAME.head(0).to_parquet(tmp_path / "0.parquet")
    with pytest.raises(DataError, match="must have records; got none"):
        Dataset(tmp_path, unit="person")
    FRAME.head(20).to_parquet(tmp_path / "1.parquet")
    FRAME.head(20).assign(age="SECRET").to_parquet(tmp_path / "2.parquet")
    mixed = Dataset(tmp_path)["age"]
    with pytest.raises((DataError, MechanismError), match="same columns and types") as told:
        pac.privatize(Mean(), mixed, "mi<=1", n_subsets=4)
    assert "SECRET" not in "".join(traceback.format_exception(told.value))
    (tmp_path / "2.parquet").write_bytes((folder / "part0.parquet").read_bytes()[:-9])
    with pytest.raises(DataError, match="cut off"):
        Dataset(tmp_path)


@pytest.mark.claim("M-6")
def test_files_that_change_are_refused(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "people.parquet")
    ages = Dataset(tmp_path)["age"]
    ages.load()
    (FRAME + 1).to_parquet(tmp_path / "people.parquet")
    with pytest.raises(DataError, match="files must stay as they are"):
        ages.load()
    changing = Dataset(tmp_path)["age"]._batches(["age"])
    next(changing)
    FRAME.to_parquet(tmp_path / "people.parquet")
    with pytest.raises(DataError, match="files must stay as they are"):
        list(changing)
