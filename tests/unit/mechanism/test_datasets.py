"""Universes in files: the same numbers as in memory, in passes."""

from __future__ import annotations

import pickle
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import dataset

import pacprivacy as pac
from pacprivacy.design import JointRidge, LogisticFit, OrthogonalRidge, RidgePenalty
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.mechanism import (
    Dataset,
    KMeansSteps,
    coerce_data,
    datasets,
)
from pacprivacy.simulation import prepare_run, run_mechanism, run_on_all
from pacprivacy.statistics import Covariance, Histogram, Mean, Quantiles

N = 3000
RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, N),
        "income": RNG.lognormal(10, 1, N),
        "flag": RNG.random(N) < 0.3,
        "group": np.arange(N) // 3 % 3,
        "person": np.repeat(np.arange(N // 3), 3),
    }
)
FRAME["spend"] = 0.1 * FRAME["income"] + 20 * FRAME["age"] + RNG.normal(0, 100, N)
COLUMNS = ["age", "income", "flag"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files, with small row groups, so that chunks end everywhere."""
    path = tmp_path_factory.mktemp("people")
    for i, rows in enumerate(np.array_split(np.arange(N), [1000, 1017])):
        FRAME.iloc[rows].to_parquet(path / f"part{i}.parquet", row_group_size=190)
    return path


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_BATCH_ROWS", 77)


MECHANISMS = [
    (Mean(), False),
    (Covariance(), False),
    (Histogram(bins=7, ranges=(0, 1e5)), False),
    (Histogram(bins=7, universe_facts=True), False),
    (Quantiles(grid=np.linspace(0, 1e5, 40)), False),
    (KMeansSteps(n_clusters=3, n_steps=4), False),
    (JointRidge(penalty=1.0), True),
    (JointRidge(), True),
    (OrthogonalRidge(transform="whitening", penalty=RidgePenalty(mi_nats=0.5)), True),
]


@pytest.mark.claim("M-6")
@pytest.mark.parametrize("target", ["flag", "group"])
def test_logistic_regression_in_passes(folder: Path, target: str) -> None:
    people = Dataset(folder, unit="person")
    pool = pac.Balanced(n_subsets=6, blocks=True).draw(N, rng=0, units=people.units())
    fit = LogisticFit(n_steps=15)
    found = run_mechanism(fit, (people[["age", "income"]], people[target]), pool, rng=0)
    arrays = (FRAME[["age", "income"]].to_numpy(float), FRAME[target].to_numpy(float))
    wanted = run_mechanism(fit, arrays, pool, rng=0)
    np.testing.assert_allclose(found.values, wanted.values, rtol=1e-9, atol=1e-9)
    assert found.n_outputs == (3 if target == "flag" else 9)


def universe(people: Dataset, labelled: bool) -> tuple[Any, Any]:
    X = FRAME[COLUMNS].astype(float).to_numpy()
    if labelled:
        return (people[COLUMNS], people["spend"]), (X, FRAME["spend"].to_numpy())
    return people[COLUMNS], X


@pytest.mark.claim("M-6")
@pytest.mark.parametrize(("mechanism", "labelled"), MECHANISMS)
@pytest.mark.parametrize("unit", [None, "person"])
@pytest.mark.parametrize("folds", [2, 3])
def test_the_same_numbers_as_in_memory(
    folder: Path, mechanism: Any, labelled: bool, unit: str | None, folds: int
) -> None:
    people = Dataset(folder / "*.parquet", unit=unit)
    files, arrays = universe(people, labelled)
    strategy = pac.Balanced(n_subsets=12, folds=folds, blocks=True)
    pool = strategy.draw(N, rng=0, units=people.units())
    found = run_mechanism(mechanism, files, pool, rng=1)
    wanted = run_mechanism(mechanism, arrays, pool, rng=1)
    np.testing.assert_allclose(found.values, wanted.values, rtol=1e-9, atol=1e-9)
    assert found.structure == wanted.structure
    in_memory, in_files = coerce_data(arrays), coerce_data(files)
    goal = run_on_all(prepare_run(mechanism, in_memory), in_memory)
    whole = run_on_all(prepare_run(mechanism, in_files), in_files)
    np.testing.assert_allclose(whole, goal, rtol=1e-8)


def test_a_release_from_files(folder: Path, tmp_path: Path) -> None:
    people = Dataset(folder, unit="person")
    release = pac.privatize(Mean(), people["age"], "membership<=0.7", n_subsets=200, rng=0)
    assert abs(release.value - FRAME["age"].mean()) < 20
    assert release.certificate.scheme.startswith("balanced-blocks")
    assert release.certificate.unit == "person"
    release.save(tmp_path / "out")
    stored = tmp_path / "out" / "curator.npz"
    assert pac.verify(release.certificate, stored).digest == release.certificate.digest


def test_a_function_is_given_the_rows_of_a_candidate(folder: Path) -> None:
    people = Dataset(folder)[["age", "spend"]]
    pool = pac.Balanced(n_subsets=4, blocks=True).draw(N, rng=0)
    outputs = run_mechanism(lambda X: np.median(X, axis=0), people, pool, rng=0)
    for k in range(4):
        rows = FRAME[["age", "spend"]].to_numpy()[pool.rows(k)]
        assert (outputs.values[k] == np.median(rows, axis=0)).all()


def test_what_needs_all_rows_is_refused(folder: Path) -> None:
    people = Dataset(folder)[COLUMNS]
    with pytest.raises(MechanismError, match="must read it in passes; got"):
        run_mechanism(pac.stats.mean("age"), people, pac.Balanced(n_subsets=4).draw(N))


@pytest.mark.claim("M-6")
@pytest.mark.filterwarnings("ignore::pacprivacy.errors.UnitWarning")
def test_units_that_passes_cannot_sum_are_refused(folder: Path) -> None:
    pool = pac.Balanced(n_subsets=4, blocks=True).draw(N, rng=0, units=np.arange(N) % (N // 2))
    with pytest.raises(DataError, match="must follow each other in a Dataset"):
        run_mechanism(Mean(), Dataset(folder)["age"], pool)
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
    with pytest.raises(MechanismError, match="must all be Datasets, or none"):
        pac.privatize(JointRidge(), (Dataset(folder)[["age"]], np.zeros(N)), "mi<=1", n_subsets=4)
    FRAME.sample(frac=1, random_state=0).to_parquet(tmp_path / "shuffled.parquet")
    with pytest.raises(DataError, match="rows of a unit must follow each other"):
        Dataset(tmp_path, unit="person").units()
    bad = pd.DataFrame({"x": [1.0, None, 3.0, 4.0] * 5, "name": ["a"] * 20})
    bad.to_parquet(tmp_path / "bad.parquet")
    pool = pac.Balanced(n_subsets=4).draw(20)
    for column, message in (("x", "missing or infinite values in 'x'"), ("name", "hold numbers")):
        with pytest.raises(MechanismError, match=message):
            run_mechanism(Mean(), Dataset(tmp_path / "bad.parquet")[column], pool)


@pytest.mark.filterwarnings("ignore::pacprivacy.errors.UnitWarning")
def test_files_that_do_not_fit_together_quote_no_entry(folder: Path, tmp_path: Path) -> None:
    FRAME.head(0).to_parquet(tmp_path / "0.parquet")
    with pytest.raises(DataError, match="must have records; got none"):
        Dataset(tmp_path, unit="person")
    FRAME.head(20).to_parquet(tmp_path / "1.parquet")
    FRAME.head(20).assign(age="SECRET").to_parquet(tmp_path / "2.parquet")
    mixed = Dataset(tmp_path)["age"]
    for function in (Mean(), np.mean):
        with pytest.raises((DataError, MechanismError), match="same columns and types") as told:
            pac.privatize(function, mixed, "mi<=1", n_subsets=4)
        assert "SECRET" not in "".join(traceback.format_exception(told.value))
    (tmp_path / "2.parquet").write_bytes((folder / "part0.parquet").read_bytes()[:-9])
    with pytest.raises(DataError, match="cut off"):
        Dataset(tmp_path)


def test_contents_are_told_apart(folder: Path, tmp_path: Path) -> None:
    people = Dataset(folder)
    assert people.digest() == Dataset(folder / "*.parquet").digest()
    assert people.digest() != people[COLUMNS].digest()
    FRAME.head(500).to_parquet(tmp_path / "few.parquet")
    assert people.digest() != Dataset(tmp_path).digest()


@pytest.mark.claim("M-6")
def test_files_that_change_are_refused(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "people.parquet")
    ages, pool = Dataset(tmp_path)["age"], pac.Balanced(n_subsets=4, blocks=True).draw(N, rng=0)
    run_mechanism(Mean(), ages, pool)
    (FRAME + 1).to_parquet(tmp_path / "people.parquet")
    with pytest.raises(DataError, match="files must stay as they are"):
        run_mechanism(Mean(), ages, pool)
    changing = Dataset(tmp_path)["age"]._chunks()
    next(changing)
    FRAME.to_parquet(tmp_path / "people.parquet")
    with pytest.raises(DataError, match="files must stay as they are"):
        list(changing)


@pytest.mark.claim("M-6")
def test_threads_read_the_same_stream(folder: Path) -> None:
    stream, barrier = Dataset(folder)["age"].stream(), threading.Barrier(2)

    def total(width: int) -> float:
        barrier.wait()
        return sum(stream[np.arange(i, min(i + width, N))].sum() for i in range(0, N, width))

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(total, (31, 50))) == [FRAME["age"].sum()] * 2


def test_a_dataset_that_was_read_travels(folder: Path) -> None:
    people = Dataset(folder)[COLUMNS]
    first = people.stream()[np.arange(100)]
    assert (pickle.loads(pickle.dumps(people)).stream()[np.arange(100)] == first).all()


def test_contents_without_files_are_told_apart() -> None:
    tables = [pa.table({"x": np.arange(9.0) + shift}) for shift in (0, 0, 1)]
    one, same, other = (Dataset(dataset.InMemoryDataset(table)).digest() for table in tables)
    assert one == same != other
