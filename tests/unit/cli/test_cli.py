"""The command line: what it writes, what it says, and with which code it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy._values import write_release
from pacprivacy.cli import app, console, demo as demo_verb
from pacprivacy.dp import laplace
from pacprivacy.errors import BudgetExceededError, InterruptedRun, PoolError
from pacprivacy.release import Certificate

N_ROWS = 60


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A table with two numeric columns, one of text, and two rows per person."""
    rng = np.random.default_rng(5)
    path = tmp_path / "people.csv"
    rows = [
        f"p{i // 2},Oslo,{rng.integers(18, 90)},{rng.normal(5e4, 9e3):.2f}" for i in range(N_ROWS)
    ]
    path.write_text("\n".join(["person,city,age,income", *rows]) + "\n")
    return path


def run_pac(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def refused(*args: object, code: int = 2) -> str:
    """The one line that a refused command prints; nothing else is printed."""
    result = run_pac(*args, code=code)
    assert result.stdout == ""
    notes = "pac: curator only: "  # about the table, whatever becomes of the command
    lines = [line for line in result.stderr.splitlines() if not line.startswith(notes)]
    assert len(lines) == 1, lines
    assert lines[0].startswith("pac: error: ")
    assert "Traceback" not in lines[0]
    return str(lines[0])


def release_args(data: Path, *extra: object, budget: str = "mi<=1") -> list[object]:
    quick = ["--subsets", 16, "--rule", "waterfill", "--columns", "age,income"]
    return ["release", data, "--budget", budget, "--model", "mean", *quick, *extra]


# --- what is written ------------------------------------------------------------------------


def test_release_writes_a_public_file_and_a_private_bundle_that_verify(
    people: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = run_pac(*release_args(people, "-o", out))
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["name", "value", "standard", "error", "95", "%", "interval"]
    assert [line.split()[0] for line in lines[1:3]] == ["age", "income"]
    assert len(lines) <= 20
    assert "times in 100; 50 without the release" in " ".join(result.stdout.split())
    assert f"Wrote {out / 'release.json'}, values.csv; curator.npz" in result.stdout
    files = ["curator.npz", "release.json", "values.csv"]
    assert sorted(path.name for path in out.iterdir()) == files
    assert (out / "curator.npz").stat().st_mode & 0o077 == 0
    content = json.loads((out / "release.json").read_text())
    assert set(content["value"]) == {"age", "income"}
    certificate = Certificate.read(out / "release.json")
    assert certificate.mi_upper_nats <= 1
    assert any("left out" in item for item in certificate.public)
    checked = run_pac("verify", out / "release.json")
    assert "the certificate follows from" in checked.stdout
    assert "log-determinant bound" in checked.stdout


def test_release_prints_json_for_machines(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run_pac(*release_args(people, "-o", out, "--json"))
    printed = json.loads(result.stdout)
    assert printed["files"] == {
        "release": str(out / "release.json"),
        "values": str(out / "values.csv"),
        "bundle": str(out / "curator.npz"),
    }
    del printed["files"]
    assert printed == json.loads((out / "release.json").read_text())


def test_full_prints_the_certificate_after_the_numbers(people: Path, tmp_path: Path) -> None:
    text = run_pac(*release_args(people, "-o", tmp_path / "out", "--full")).stdout
    assert text.index("standard error") < text.index("Not promised")
    assert str(Certificate.read(tmp_path / "out")) in text


def test_quiet_prints_nothing(people: Path, tmp_path: Path) -> None:
    result = run_pac(*release_args(people, "-o", tmp_path / "out", "--quiet"))
    assert (result.stdout, result.stderr) == ("", "")


def test_a_column_of_small_numbers_does_not_drown(people: Path, tmp_path: Path) -> None:
    """Noise is in proportion to each column's own spread, not to that of the widest column."""
    out = tmp_path / "out"
    run_pac(*release_args(people, "-o", out, "--simulate", "--seed", 1, budget="mi<=4"))
    value = json.loads((out / "release.json").read_text())["value"]
    assert 18 < value["age"] < 90
    assert 3e4 < value["income"] < 7e4


def test_seed_and_simulate_repeat_a_release_and_say_so(people: Path, tmp_path: Path) -> None:
    texts = []
    for name in ("a", "b"):
        args = release_args(people, "-o", tmp_path / name, "--simulate", "--seed", 3)
        assert "protects nobody" in run_pac(*args).stdout
        texts.append((tmp_path / name / "release.json").read_text())
    assert texts[0] == texts[1]


def test_seed_alone_does_not_fix_the_noise(people: Path, tmp_path: Path) -> None:
    values = []
    for name in ("a", "b"):
        run_pac(*release_args(people, "-o", tmp_path / name, "--seed", 3, "-q"))
        values.append(json.loads((tmp_path / name / "release.json").read_text())["value"])
    assert values[0] != values[1]


def test_units_are_read_from_a_column(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_pac(*release_args(people, "-o", out, "--unit", "person", "-q"))
    certificate = Certificate.read(out / "release.json")
    assert certificate.n_units == N_ROWS // 2
    assert certificate.unit == "person"


def test_histogram_of_the_target_has_edges_and_counts(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ["--model", "histogram", "--target", "age", "--bins", 3, "--ranges", "0,90"]
    common = ["--budget", "mi<=1", "--subsets", 16, "--rule", "waterfill", "-o", out, "--json"]
    value = json.loads(run_pac("release", people, *args, *common).stdout)["value"]
    assert value["age"]["edges"] == [0, 30, 60, 90]
    assert len(value["age"]["counts"]) == 3
    assert sum(value["age"]["counts"]) == pytest.approx(N_ROWS, abs=N_ROWS)


def test_values_outside_a_declared_range_are_counted_for_the_curator(
    people: Path, tmp_path: Path
) -> None:
    args = ["--model", "histogram", "--target", "age", "--bins", 3, "--ranges", "30,40"]
    common = ["--budget", "mi<=1", "--subsets", 16, "--rule", "waterfill", "-o", tmp_path / "out"]
    said = run_pac("release", people, *args, *common).stderr
    heads, *lines = (line.split(",") for line in people.read_text().splitlines())
    ages = [float(line[heads.index("age")]) for line in lines]
    outside = sum(not 30 <= age <= 40 for age in ages)
    assert f"curator only: values outside the declared range: age {outside}" in said
    assert "outside the declared range" not in (tmp_path / "out" / "release.json").read_text()


def test_every_column_of_a_histogram_can_have_its_range(people: Path, tmp_path: Path) -> None:
    common = ["--columns", "age,income", "--bins", 2, "--budget", "mi<=1", "--subsets", 16]
    args = ["release", people, "--model", "histogram", *common, "--json", "-o", tmp_path / "out"]
    value = json.loads(run_pac(*args, "--ranges", "income=0,1e6;age=0,90").stdout)["value"]
    assert value["age"]["edges"] == [0, 45, 90]
    assert value["income"]["edges"] == [0, 5e5, 1e6]
    assert "got none for 'income'" in refused(*args[:-1], tmp_path / "no", "--ranges", "age=0,90")


def test_covariance_is_in_the_units_of_the_columns(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    common = ["--columns", "age,income", "--budget", "mi<=6", "--subsets", 16, "-o", out]
    rule = ["--rule", "waterfill", "--simulate", "--seed", 2]
    run_pac("release", people, "--model", "covariance", *common, *rule, "-q")
    value = json.loads((out / "release.json").read_text())["value"]
    matrix = np.array(value["matrix"])
    assert value["columns"] == ["age", "income"]
    assert np.array_equal(matrix, matrix.T)
    assert 100 < matrix[0, 0] < 1500
    assert 1e7 < matrix[1, 1] < 5e8


# --- what is refused ------------------------------------------------------------------------

BAD_FILES = {
    "inf.csv": ("a,b\n1,2\n3,-inf\n5,6\n7,8\n", "column 'b' must be finite"),
    "text.csv": ("a,b\n1,x\n3,y\n5,z\n7,w\n", "got ids in 'b' (most records have an entry"),
    "unclear.csv": ('a,b\n1,"1,234"\n3,"2,345"\n5,"3,456"\n7,"4,567"\n', "Say --decimal"),
    "ragged.csv": ("a,b\n1,2\n3\n5,6\n", "got 1 in line 3"),
    "empty.csv": ("", "must start with a line of column names"),
    "header_only.csv": ("a,b\n", "must have records"),
    "no_header.csv": ("1,2\n3,4\n5,6\n7,8\n", "must start with a line of column names"),
    "repeated.csv": ("a,a\n1,2\n", "must have distinct column names"),
    "quotes.csv": ('a,b\n1,"2\n3,4\n', "must be a well-formed CSV file"),
    "three.csv": ("a\n1\n2\n3\n", "data must have at least 4 rows; got 3"),
    "fake.parquet": ("PAR1 and then nonsense", "must be a readable Parquet file"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    content, complaint = BAD_FILES[name]
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_text(content)
    out = tmp_path / "out"
    line = refused("release", path, "--model", "mean", "--budget", "mi<=1", "-o", out)
    assert complaint in line
    assert not out.exists()


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    common = ["--model", "mean", "--budget", "mi<=1", "-o", tmp_path / "out"]
    assert "No such file" in refused("release", tmp_path / "none.csv", *common)
    assert "directory" in refused("release", tmp_path, *common)
    other = tmp_path / "latin.csv"
    other.write_bytes(b"a\n\x00\x81\n")
    assert "UTF-8" in refused("release", other, *common)
    assert not (tmp_path / "out").exists()


BAD_OPTIONS = {
    "unknown model": (["--model", "svn"], "--model must be one of mean, sum, count, median"),
    "budget of zero": (["--budget", "mi<=0"], "mi must be a positive finite number"),
    "negative budget": (["--budget", "mi<=-1"], "mi must be a positive finite number"),
    "success of a coin": (["--budget", "membership<=0.5"], "success must be above 1/2"),
    "success below": (["--budget", "membership<=40%"], "success must be above 1/2"),
    "no budget at all": (["--budget", "privacy"], "budget must look like"),
    "odd pool": (["--subsets", "7"], "--subsets must be an even integer"),
    "empty pool": (["--subsets", "0"], "--subsets must be an even integer"),
    "unknown rule": (["--rule", "best"], "rule must be one of"),
    "unknown column": (["--columns", "age,incme"], "column 'incme' must be in the file"),
    "column twice": (["--columns", "age,age"], "--columns must be distinct names"),
    "id column": (["--columns", "person,age"], "If 'person' says"),
    "column of the group": (["--group-by", "town"], "column 'town' must be in the file"),
    "group of another": (["--model", "kmeans", "--group-by", "city"], "--group-by must be left"),
    "no condition": (["--where", "age > (18"], "where must be a condition on columns"),
    "no policy": (["--missing", "guess"], "missing must be one of drop, mean, category, error"),
    "no levels": (["--levels", "city"], "--levels must be COL=A,B"),
    "no quantile": (["--model", "quantiles", "--quantiles", "2"], "between 0 and 1"),
    "no mark": (["--decimal", ";"], "--decimal must be . or ,"),
    "weights of another": (["--model", "median", "--weights", "age"], "--weights must be left out"),
    "no table": (["--model", "crosstab", "--columns", "city"], "must name two categories"),
    "unknown unit": (["--unit", "who"], "column 'who' must be in the file"),
    "one unit": (["--unit", "city"], "the number of distinct units must be at least 4; got 1"),
    "target and columns": (["--target", "age"], "must not be given together"),
    "bins of another model": (["--bins", "4"], "--bins must be left out for --model mean"),
    "range upside down": (["--ranges", "3,1"], "--ranges must be two numbers LO,HI"),
    "bins of none": (
        ["--model", "histogram", "--ranges", "0,90", "--bins", "0"],
        "bins must be at least 1",
    ),
    "bins from nowhere": (["--model", "histogram"], "--ranges must be given"),
    "not a number": (["--subsets", "many"], "--subsets must be a valid integer"),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_a_bad_option_is_refused_in_one_line(name: str, people: Path, tmp_path: Path) -> None:
    options, complaint = BAD_OPTIONS[name]
    out = tmp_path / "out"
    assert complaint in refused(*release_args(people, "-o", out), *options)
    assert not out.exists()


def test_a_text_column_is_named_with_what_to_type_instead(people: Path, tmp_path: Path) -> None:
    args = ["--model", "mean", "--budget", "mi<=1", "-o", tmp_path / "out"]
    line = refused("release", people, *args)
    assert "got ids in 'person'" in line
    assert "--columns city,age,income" in line
    assert "--unit person" in line


def test_missing_options_and_unknown_verbs_are_one_line_too() -> None:
    assert "See 'pac release --help'." in refused("release", "x.csv", "--model", "mean")
    assert "No such command 'relase'" in refused("relase")
    assert "--frobnicate" in refused("demo", "--frobnicate")


def test_a_folder_with_a_release_is_not_overwritten(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "release.json").write_text("{}")
    assert "must not hold a release yet" in refused(*release_args(people, "-o", out))
    assert (out / "release.json").read_text() == "{}"
    file = tmp_path / "file"
    file.write_text("")
    assert "--output must be a folder" in refused(*release_args(people, "-o", file))


def test_units_of_the_wrong_length_are_refused_by_the_library() -> None:
    x = np.arange(10.0)
    with pytest.raises(PoolError, match="units must have one entry per record; got 9"):
        pac.privatize(np.mean, x, pac.Information(1), units=np.arange(9), n_subsets=8)


# --- exit codes -----------------------------------------------------------------------------


def raise_in_release(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("pacprivacy.session.SingleSession.__init__", fail)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (BudgetExceededError("information must be at most what is left."), 3, "what is left"),
        (PoolError("a pool\nof two lines."), 2, "a pool of two lines."),
        (InterruptedRun("stopped; run the same again."), 130, "run the same again"),
        (KeyboardInterrupt(), 130, "stopped"),
        (ValueError("income of Ada is 7"), 1, "a defect of this program (ValueError)"),
    ],
)
def test_exit_codes(
    people: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    text: str,
) -> None:
    raise_in_release(monkeypatch, error)
    line = refused(*release_args(people, "-o", tmp_path / "out"), code=code)
    assert text in line
    assert "Ada" not in line, "the text of a foreign exception may hold data"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("what", ["ols --target y", "ridge --target y", "mean --weights y"])
def test_gaps_of_a_target_and_of_weights_are_errors_if_gaps_are(tmp_path: Path, what: str) -> None:
    rows = [f"{i},{'' if i == 3 else 2 * i}" for i in range(40)]
    (tmp_path / "gap.csv").write_text("\n".join(["a,y", *rows]) + "\n")
    words = f"--model {what} --columns a --budget mi<=1 --subsets 8 --missing error"
    line = refused("release", tmp_path / "gap.csv", *words.split(), "-o", tmp_path / "out")
    assert "no missing values with --missing error; got some in 'y'" in line


def test_what_fails_because_of_a_signal_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt in the middle of a library's code may come out as another error."""
    words = ["verify", str(tmp_path / "nothing.json")]
    assert CliRunner().invoke(app, words).exit_code == 2
    monkeypatch.setattr(console, "_SIGNALS", [15])
    stopped = CliRunner().invoke(app, words)
    assert stopped.exit_code == 130
    assert "stopped before it was done" in stopped.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_every_signal_that_stops_is_remembered(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(console, "app", lambda **_: signal.raise_signal(number))
    monkeypatch.setattr(console, "_SIGNALS", [])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            console.run_console()
        assert [number] == console._SIGNALS
    finally:
        for one, handler in kept.items():
            signal.signal(one, handler)


def test_a_defect_shows_its_traceback_on_request(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_in_release(monkeypatch, ValueError("where"))
    monkeypatch.setenv("PAC_TRACEBACK", "1")
    result = CliRunner().invoke(app, [str(a) for a in release_args(people, "-o", tmp_path / "out")])
    assert isinstance(result.exception, ValueError)


# --- verify ---------------------------------------------------------------------------------


def test_verify_fails_on_an_edited_certificate(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_pac(*release_args(people, "-o", out, "-q"))
    path = out / "release.json"
    content = json.loads(path.read_text())
    content["certificate"]["noise"]["total_variance"] *= 2
    path.write_text(json.dumps(content))
    assert "must be as it was written" in refused("verify", path)
    del content["digest"]
    write_release(path, content)
    assert "noise.total_variance must follow from the bundle" in refused("verify", path)
    (out / "curator.npz").rename(out / "moved.npz")
    assert "Name it with --bundle" in refused("verify", path)
    assert "noise.total_variance" in refused("verify", path, "--bundle", out / "moved.npz")
    (out / "moved.npz").write_bytes(b"nonsense")
    assert "curator bundle" in refused("verify", path, "--bundle", out / "moved.npz")


def test_verify_checks_differential_privacy_against_its_events(tmp_path: Path) -> None:
    found = laplace(3.5, sensitivity=1.0, epsilon=1.0, neighbours="replace")
    shown = run_pac("verify", found.save(tmp_path / "real")).stdout
    assert "follows from the events that it carries" in shown
    assert found.certificate.digest in shown
    assert "clipping, bounds and sensitivities" in shown.split("Not checked")[1]
    forged = replace(found, certificate=replace(found.certificate, epsilon=0.1))
    text = refused("verify", forged.save(tmp_path / "forged"))
    assert "epsilon must follow from its events; it says 0.1, the events give 1" in text


def test_verify_reads_the_files_of_a_predictor_and_report_needs_no_outputs(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = pac.PrivatePredictor(DummyClassifier(), n_subsets=8, budget=pac.Membership(0.7))
    path = model.fit(X, np.arange(40) % 2).save_certificate(tmp_path / "out")
    assert (tmp_path / "out" / "curator.npz").stat().st_mode & 0o077 == 0
    shown = run_pac("verify", path)
    assert model.certificate_.digest in shown.output
    assert "the answers" in shown.output.split("Not checked")[1]
    run_pac("report", path)
    assert (tmp_path / "out" / "report.html").is_file()
    assert "not of a release but of a predictor" in refused("audit", path)


def test_verify_refuses_what_is_no_release(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    assert "No such file" in refused("verify", path)
    path.write_text("[]")
    assert "schema version" in refused("verify", path)


# --- convert --------------------------------------------------------------------------------


def converted(*args: object) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(run_pac("convert", *args, "--json").stdout)
    return content


def test_convert_goes_both_ways() -> None:
    assert converted("--mi", "1/64")["success"]["0.5"] == pytest.approx(0.58816, abs=5e-6)
    assert converted("--mi", "1/64")["success"]["0.01"] == pytest.approx(0.03213, abs=5e-6)
    assert converted("--success", "58.816%")["mi_nats"] == pytest.approx(1 / 64, abs=2e-6)
    assert converted("--mi", 0.25)["epsilon_equivalent"] == pytest.approx(1.64, abs=5e-3)
    back = converted("--epsilon", 1, "--delta", "1e-6")
    assert back["epsilon_equivalent"] == pytest.approx(1)
    assert back["success"]["0.5"] == pytest.approx(0.7311, abs=5e-5)
    assert back["gaussian"]["delta"] == 1e-6
    both = converted("--success", "58.8%")
    assert both["epsilon_equivalent"] == pytest.approx(0.356, abs=5e-4)
    assert both["gaussian"]["mu"] == pytest.approx(0.445, abs=5e-4)
    assert (both["gaussian"]["epsilon"], both["gaussian"]["delta"]) == (
        pytest.approx(1.75, abs=5e-3),
        1e-5,
    )
    assert converted("--mu", 0.445)["success"]["0.5"] == pytest.approx(0.588, abs=5e-5)
    at_one_percent = converted("--success", "3.213%", "--prior", "1%")
    assert at_one_percent["mi_nats"] == pytest.approx(1 / 64, abs=2e-5)


def test_convert_knows_when_epsilon_says_nothing() -> None:
    assert converted("--mi", 1)["epsilon_equivalent"] is None
    assert converted("--mi", 1)["gaussian"]["mu"] is None
    assert "none" in run_pac("convert", "--mi", 1).stdout


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ([], "one of --mi, --success, --epsilon and --mu must be given; got none"),
        (["--mi", "1", "--epsilon", "1"], "got 2"),
        (["--mi", "a lot"], "--mi must be a number"),
        (["--mi", "1/0"], "--mi must be a number"),
        (["--mi", "nan"], "--mi must be a number"),
        (["--mi", "-1"], "mi must be >= 0"),
        (["--success", "0.4"], "success must be between the prior 0.5 and 1"),
        (["--mi", "1", "--prior", "0"], "prior must be above 0"),
        (["--epsilon", "1", "--delta", "1"], "delta must be at least 0 and below 1"),
    ],
)
def test_convert_refuses_in_one_line(args: list[str], complaint: str) -> None:
    assert complaint in refused("convert", *args)


# --- help and the demo ----------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["demo", "release", "verify", "convert"])
def test_every_verb_has_help_with_an_example_on_80_columns(verb: str) -> None:
    text = run_pac(verb, "--help").stdout
    assert "Example:" in text
    assert f"pac {verb}" in text
    assert "--json" in text
    assert "--quiet" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_demo_compares_two_releases_with_exact_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_verb, "N_SUBSETS", 32)
    result = run_pac("demo", "-o", tmp_path)
    assert (result.stdout.count("Whoever"), result.stdout.count("Exact values")) == (2, 2)
    assert "Not promised" not in result.stdout
    assert result.stderr == ""
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["kmeans", "mean"]
    assert all((tmp_path / name / "curator.npz").is_file() for name in names)
    assert "a demo may show exact values" in result.stdout
    rows = json.loads(run_pac("demo", "-o", tmp_path / "again", "--json").stdout)["rows"]
    assert [row["sample"] for row in rows] == ["coins", "pool"]
    assert all(row["proved"] <= row["target"] for row in rows)
    assert all(len(row["released"]) == len(row["exact"]) for row in rows)
    np.testing.assert_allclose(rows[0]["released"], rows[0]["exact"], rtol=0.2)


# --- the program itself ---------------------------------------------------------------------


def test_the_program_is_plain_when_piped_and_never_shows_a_traceback(tmp_path: Path) -> None:
    script = "from pacprivacy.cli.console import run_console; run_console()"
    environment = {**os.environ, "COLUMNS": "80"}
    environment.pop("PAC_TRACEBACK", None)

    def program(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, *args]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )

    welcome = program()
    assert welcome.returncode == 0
    assert "pac demo" in welcome.stdout
    bad = program("release", "none.csv", "--model", "mean", "--budget", "mi<=1", "-o", "out")
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert len(bad.stderr.splitlines()) == 1
    assert "\x1b" not in welcome.stdout + bad.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("--missing drp", "--missing must be one of .* Did you mean 'drop'"),
        ("--sample coin", "--sample must be .* Did you mean 'coins'"),
        ("--promise dpp", "--promise must be .* Did you mean 'dp'"),
        ("--rule wterfill --sample pool", "--rule must be one of [a-z_, ]+; .* mean 'waterfill'"),
        ("--subsets 3 --sample pool", "--subsets must be an even integer"),
        ("--where agee>3", "Did you mean 'age'"),
    ],
)
def test_errors_speak_the_command_line(tmp_path: Path, words: str, answer: str) -> None:
    table = tmp_path / "people.csv"
    table.write_text("age\n" + "\n".join(str(20 + i % 50) for i in range(300)) + "\n")
    line = refused(
        "release", table, "--model", "mean", "--columns", "age",
        "--budget", "membership<=0.6", "-o", tmp_path / "out", *words.split(),
    )  # fmt: skip
    assert re.search(answer, line), line
