"""The release of a query: names, types and order of its answer; what is kept of it in files."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy._values import Row
from pacprivacy.cli.console import app
from pacprivacy.errors import CertificateError, NoisyWarning
from pacprivacy.session import QueryAnswer, QueryRelease, query_answer

pytestmark = pytest.mark.usefixtures("few_draws")
N = 200
TEXT = """SELECT kind, day, year(day) AS y, count(*) AS n, avg(cost) AS cost, sum(size) AS size
FROM visits WHERE cost < 1e6 GROUP BY kind, day
HAVING count(*) > 10 ORDER BY kind DESC NULLS FIRST, n LIMIT 5"""
DAYS = ["2024-01-01", "2024-02-01"]
KINDS = ["b", None, "a <b>"]


@pytest.fixture(scope="module")
def clinic() -> pac.Tables:
    rng = np.random.default_rng(0)
    n = 4000
    visits = pd.DataFrame(
        {
            "person": rng.integers(0, N, n),
            "cost": rng.gamma(9, 500, n),
            "size": rng.integers(0, 9, n),
            "kind": pd.Series(rng.choice(["a <b>", "b"], n)).where(rng.random(n) > 0.3),
            "day": pd.to_datetime(rng.choice(DAYS, n)).date,
            "code": rng.integers(0, 1200, n),
        }
    )
    people = pd.DataFrame({"id": range(N)})
    frames = {"people": people, "visits": visits}
    return pac.Tables(frames, unit="people.id", via={"visits": "person"})


def ask(text: str, clinic: pac.Tables, **options: Any) -> QueryRelease:
    settings: dict[str, Any] = {"n_subsets": 16, "rng": 0, "simulate": True, **options}
    return pac.sql(text, clinic, "membership<=0.9", **settings)


@pytest.fixture(scope="module")
def made(clinic: pac.Tables) -> QueryRelease:
    return ask(TEXT, clinic, keys={"kind": KINDS, "day": DAYS}, simulate=False)


def values_of(made: QueryRelease, column: str) -> dict[tuple[Any, ...], float]:
    """Released numbers by their keys."""
    cells = [tuple(None if k is None else str(k) for k in cell) for cell in made.mechanism.cells]  # type: ignore[union-attr]
    labels = [", ".join("NULL" if k is None else k for k in cell) for cell in cells]
    return {cell: made.value[column][name] for cell, name in zip(cells, labels, strict=True)}


@pytest.mark.claim("Q-2")
def test_the_frame_has_the_names_types_and_order_of_the_query(made: QueryRelease) -> None:
    frame = made.frame
    beside = ("", " noise", " low", " high")
    numbers = [f"{name}{part}" for name in ("n", "cost", "size") for part in beside]
    assert list(frame.columns) == ["kind", "day", "y", *numbers]
    assert frame["n"].dtype == np.int64  # a count, rounded after the noise
    assert frame["y"].dtype.kind == "i"
    assert frame["cost"].dtype == frame["size"].dtype == np.float64  # noisy sums are no integers
    assert frame["day"].dtype.kind == "M"
    # HAVING, ORDER BY and LIMIT are those of released numbers
    released = values_of(made, "n")
    kept = [(cell, round(value)) for cell, value in released.items() if round(value) > 10]
    first = {None: 0, "b": 1, "a <b>": 2}
    kept.sort(key=lambda item: (first[item[0][0]], item[1]))
    kinds = [None if pd.isna(kind) else kind for kind in frame["kind"]]
    days = frame["day"].dt.strftime("%Y-%m-%d")
    found = list(zip(kinds, days, frame["n"], strict=True))
    assert found == [(*cell, n) for cell, n in kept][:5]
    cost = values_of(made, "cost")
    assert frame["cost"].tolist() == [cost[kind, day] for kind, day, _ in found]
    for name in ("n", "cost", "size"):
        assert (frame[f"{name} low"] < frame[name]).all()
        assert (frame[name] < frame[f"{name} high"]).all()
        assert (frame[f"{name} noise"] > 0).all()


def test_people_read_numbers_with_their_error(made: QueryRelease) -> None:
    answer = made.answer
    assert answer.headings == ("kind", "day", "y", "n", "cost", "size")
    lines = answer.lines()
    assert lines[0][0] == "NULL"
    assert lines[0][1] in DAYS
    assert lines[0][2] == "2024"
    assert all(re.fullmatch(r"[\d,]+ ± [\d,]+", line[4]) for line in lines)
    frame = made.frame
    for row, n, noise in zip(answer.rows, frame["n"], frame["n noise"], strict=True):
        cell = row[3]
        assert isinstance(cell, Row)
        assert (cell.value, cell.noise_std) == (n, noise)
        assert cell.lower < cell.value < cell.upper
    assert "&lt;b&gt;" in made._repr_html_()
    assert len(repr(made)) < 300
    assert len(str(made).splitlines()) <= 20
    rows = [("a", Row("n", 1234.4, 56.0, 0.0, 0.0)) for _ in range(23)]
    many = QueryAnswer(query="", plan="", headings=("k", "n"), rows=tuple(rows))
    assert many.lines()[0] == ["a", "1,230 ± 60"]
    assert str(many).endswith("and 13 more rows")
    assert "and 13 more rows" in many._repr_html_()
    assert str(QueryAnswer(query="", plan="", headings=("k",), rows=())) == "k"


@pytest.mark.claim("R-9")
def test_a_file_gives_the_same_answer(made: QueryRelease, tmp_path: Path) -> None:
    loaded = pac.Release.load(made.save(tmp_path))
    found = query_answer(loaded)
    assert found is not None
    assert (found.query, found.plan, found.rows) == (TEXT, made.plan, made.answer.rows)
    wrong = {**(made.table or {}), "rows": [[99, "a", "b", "c"]]}
    object.__setattr__(loaded, "table", wrong)
    with pytest.raises(CertificateError, match="table must be that"):
        query_answer(loaded)


def test_many_cells_and_names_that_clash_are_told_apart(clinic: pac.Tables) -> None:
    text = "SELECT code, count(*) AS n FROM visits GROUP BY code ORDER BY n DESC LIMIT 3"
    large = ask(text, clinic, keys={"code": list(range(1200))}, n_subsets=8)
    assert large.value["n"].shape == (1200,)
    assert large.frame["n"].tolist() == sorted(np.rint(large.value["n"]), reverse=True)[:3]
    assert len(large.answer.rows) == 3
    keys = [("a, b", "c"), ("a", "b, c"), ("a <b>", "b")]
    text = "SELECT kind || '' AS k, kind AS l, count(*) AS n FROM visits GROUP BY 1, 2"
    clash = ask(text, clinic, keys=keys, n_subsets=8)
    assert clash.frame[["k", "l"]].apply(tuple, axis=1).tolist() == keys
    assert clash.frame["n"].tolist()[:2] == [0, 0]


def test_a_subtotal_is_about_all(clinic: pac.Tables) -> None:
    text = "SELECT kind, count(*) AS n FROM visits GROUP BY ROLLUP (kind)"
    lines = ask(text, clinic, keys={"kind": KINDS}, n_subsets=8).answer.lines()
    assert sorted(line[0] for line in lines) == ["NULL", "a <b>", "all", "b"]


# --- verbs and pages ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(made: QueryRelease, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.save(tmp_path_factory.mktemp("release"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["verify"], 0, "the certificate follows from"),
        (["audit", "--trials", "200"], 0, "Every promise holds"),
        (["report", "--officer"], 0, "may be published"),
        (["report"], 0, "may be published"),
        (["predict", "nowhere.csv", "-o", "x.csv"], 2, "pac: error: "),
    ],
)
def test_every_verb_takes_the_release_of_a_query(
    words: list[str], code: int, said: str, saved: Path
) -> None:
    result = CliRunner().invoke(app, [words[0], str(saved), *words[1:]])
    shown = result.stdout if code == 0 else result.stderr
    assert result.exit_code == code, (result.stdout, result.stderr)
    assert said in " ".join(shown.split())
    if code:
        assert len(shown.splitlines()) == 1


@pytest.mark.claim("R-9")
def test_the_report_shows_the_query_and_its_answer(saved: Path, made: QueryRelease) -> None:
    page = pac.report(saved, date="").read_text()
    assert "year(day) AS y" in page
    assert "GROUP BY kind, day\nHAVING" in page
    assert "<h1>A query</h1>" in page
    assert "a &lt;b&gt;" in page
    assert "a <b>" not in page
    for line, row in zip(made.answer.lines(), made.answer.rows, strict=True):
        value, error = line[4].split(" ± ")
        assert f"<b>{value}</b> ± {error}" in page
        cell = row[4]
        assert isinstance(cell, Row)
        assert f"noise {cell.noise_std:,.0f}".replace(",", " ") in page
    named = ask("SELECT sum(size) AS n FROM visits", clinic=made.mechanism.tables, name="sizes")
    page = pac.report(named, saved.parent / "named.html", date="").read_text()
    assert "<h1>sizes</h1>" in page


def test_a_long_table_is_cut_with_a_note(saved: Path) -> None:
    content = json.loads(saved.read_text())
    loaded = pac.Release.load(saved)
    rows = [content["table"]["rows"][0]] * 500
    object.__setattr__(loaded, "table", {**content["table"], "rows": rows})
    page = pac.report(loaded, saved.parent / "long.html", date="").read_text()
    assert "56 more rows" in page  # 400 numbers, six in a row, less the ten that are shown
    assert "The first 66 of 500 rows" in page


# --- tables as data of any function -------------------------------------------------------------


def joined_cost(tables: Any) -> float:
    """Mean cost of those of age, in whatever library the frames are of."""
    people, visits = tables["people"], tables["visits"]
    if isinstance(people, pd.DataFrame):
        both = visits.merge(people, left_on="person", right_on="id")
        return float(both[both["age"] >= 40]["cost"].mean())
    both = visits.join(people, left_on="person", right_on="id")
    return float(both.filter(both["age"] >= 40)["cost"].mean())


@pytest.mark.claim("Q-1")
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_function_gets_the_frames_of_one_candidate(library: str) -> None:
    rng = np.random.default_rng(2)
    people = pd.DataFrame({"id": range(50), "age": rng.integers(20, 60, 50)})
    visits = pd.DataFrame({"person": rng.integers(0, 50, 300), "cost": rng.gamma(9, 5, 300)})
    prices = pd.DataFrame({"kind": ["a", "b"], "price": [1.0, 2.0]})
    frames: dict[str, Any] = {"people": people, "visits": visits, "prices": prices}
    if library == "polars":
        frames = {name: pl.from_pandas(frame) for name, frame in frames.items()}
    tables = pac.Tables(frames, unit="people.id", via={"visits": "person"})
    seen = []

    def watched(world: Any) -> float:
        assert list(world) == ["people", "visits", "prices"]
        assert len(world["prices"]) == 2  # public: whole in every candidate
        assert all(type(world[name]) is type(frames[name]) for name in world)
        seen.append((set(world["people"]["id"]), joined_cost(world)))
        return seen[-1][1]

    release = pac.privatize(watched, tables, pac.Information(2), n_subsets=8, rule="waterfill")
    assert release.certificate.unit == "person"
    for units, found in seen[:8]:
        own = {"people": people[people["id"].isin(units)]}
        own["visits"] = visits[visits["person"].isin(units)]
        assert len(units) == 25
        assert found == pytest.approx(joined_cost(own), rel=1e-12)


def test_cells_that_are_no_estimates_have_no_interval(clinic: pac.Tables) -> None:
    with pytest.warns(NoisyWarning, match="differs from those on candidates"):
        found = ask("SELECT count(DISTINCT code) AS n FROM visits", clinic, n_subsets=16)
    assert "±" not in found.answer.lines()[0][0]
    assert np.isnan(found.frame["n low"]).all()


@pytest.mark.claim("Q-2")
def test_every_cell_has_the_number_of_its_key(tmp_path: Path) -> None:
    """Released numbers are in the order of their names, which is not that of the keys."""
    keys = [10, 9, 100, 2]
    people = pd.DataFrame({"id": range(240), "k": keys * 60})
    people["x"] = people["k"] * 1000.0 + np.random.default_rng(0).normal(size=240)
    tables = pac.Tables({"people": people}, unit="people.id")
    text = "SELECT k, avg(x) AS m, count(*) AS n FROM people GROUP BY k"
    made = pac.sql(text, tables, "mi<=4", keys={"k": keys}, n_subsets=32, rng=0)
    for key, mean in zip(made.frame["k"], made.frame["m"], strict=True):
        assert mean == pytest.approx(1000 * key, abs=100)
    made.save(tmp_path)
    answer = query_answer(pac.Release.load(tmp_path / "release.json"))
    assert answer is not None
    for key, mean, _ in answer.rows:
        assert mean.value == pytest.approx(1000 * int(key), abs=100)
