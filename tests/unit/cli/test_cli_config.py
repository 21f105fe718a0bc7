"""``pac.toml`` and the completion of words by a shell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shellingham
from typer.main import get_command
from typer.testing import CliRunner, Result

from pacprivacy.cli.console import SHARED, app, read_console_config
from pacprivacy.errors import DataError
from pacprivacy.release import Certificate

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "command-line.md"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    rows = [f"{a:.1f},{i:.0f},{k // 2}" for k, (a, i) in enumerate(rng.normal(40, 9, (40, 2)))]
    (tmp_path / "people.csv").write_text("\n".join(["age,income,person", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pac(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), prog_name="pac")


def write(text: str, name: str = "pac.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def test_the_file_of_the_documentation_works(study: Path) -> None:
    shown = PAGE.read_text("utf-8").split("```toml\n")[1].split("```")[0]
    write(
        shown.replace("[plan]", "[plan]\nsubsets = 16").replace(
            "[release]", "[release]\nsubsets = 16"
        )
    )
    assert pac("plan").exit_code == 0
    assert pac("release").exit_code == 0
    assert Certificate.read("first/release.json").n_subsets == 16
    second = pac("release", "-o", "second", "--budget", "mi<=1/8", "--json")
    assert second.exit_code == 0, second.stderr
    assert "0.125" in json.loads(second.stdout)["certificate"]["budget"]
    book = pac("ledger", "show", "--json")
    assert json.loads(book.stdout)["n_entries"] == 5
    report = pac("report", "first/release.json")
    assert report.exit_code == 0, report.stderr


def test_what_is_typed_goes_first(study: Path) -> None:
    write("[convert]\nmi = 0.25\njson = true\n")
    assert json.loads(pac("convert").stdout)["mi_nats"] == 0.25
    assert json.loads(pac("convert", "--mi", "1/2").stdout)["mi_nats"] == 0.5


def test_another_file_can_be_named(study: Path) -> None:
    write("[convert]\nmi = 0.25\n")
    other = write("[convert]\nepsilon = 1\njson = true\n", name="other.toml")
    found = json.loads(pac("--config", str(other), "convert").stdout)
    assert found["mi_nats"] != 0.25  # the file in the folder is not mixed in
    assert pac("--config", "missing.toml", "convert").exit_code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[relase]\n", "Did you mean 'release'?"),
        ("[release]\ncolums = 'age'\n", "Did you mean 'columns'?"),
        ("[study]\nbudget = 'mi<=1'\n", "option of [study] must be one of data"),
        ("[ledger]\nmi = 1\n", "section must be one of ledger.create"),
        ("[ledger.show]\nmi = 1\n", "option of [ledger.show] must be one of ledger"),
        ("release = 3\n", "release must be a section; got int"),
        ("[convert]\nmi = []\n", "convert.mi must be text or a number"),
        ("[convert]\nmi = {a = 1}\n", "convert.mi must be text or a number"),
        ("[convert]\nmi = true\n", "convert.mi must be text or a number"),
        ("[convert]\njson = 'yes'\n", "convert.json must be true or false"),
        ("[convert]\nmi = 1979-05-27\n", "convert.mi must be text or a number"),
        ("[convert", "must be a readable TOML file"),
        ("a = " + "[" * 5000, "must be a readable TOML file"),
    ],
)
def test_what_no_verb_knows_is_refused(study: Path, text: str, said: str) -> None:
    write(text)
    result = pac("convert")
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_values_are_checked_as_if_typed(study: Path) -> None:
    write("[plan]\ndata = 'people.csv'\nmodel = 'mean'\nsubsets = 'many'\n")
    result = pac("plan")
    assert result.exit_code == 2
    assert "--subsets" in result.stderr


def test_help_and_welcome_do_not_need_the_file(study: Path) -> None:
    write("[nonsense]\n")
    assert pac().exit_code == 0
    assert pac("--help").exit_code == 0
    assert pac("--version").exit_code == 0


def test_bytes_that_are_no_text(study: Path) -> None:
    Path("pac.toml").write_bytes(b"\xff\xfe")
    assert "must be a readable TOML file" in pac("convert", "--mi", "1").stderr


def test_shared_names_are_options_of_some_verb(study: Path) -> None:
    for name in SHARED:
        found = read_console_config(write(f"[study]\n{name} = '1'\n"), get_command(app), "release")
        assert found, name
    with pytest.raises(DataError):
        read_console_config(Path("not there"), get_command(app), "release")


@pytest.mark.parametrize(
    ("plot", "said"),
    [("plan.txt", "must end in .png"), ("nowhere/plan.png", "in a folder that is there")],
)
def test_a_picture_that_cannot_be_drawn_is_refused_first(study: Path, plot: str, said: str) -> None:
    words = ["plan", "not there.csv", "--model", "mean", "--plot"]
    assert said in pac(*words, plot).stderr


# --- completion -------------------------------------------------------------------------------


def completed(shell: str, words: str) -> dict[str, str]:
    return {
        "_PAC_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }


def complete(shell: str, words: str) -> str:
    """What the script of a shell would be told."""
    found = CliRunner().invoke(app, [], prog_name="pac", env=completed(shell, words))
    assert found.stderr == ""
    return found.stdout


def test_the_program_itself_completes() -> None:
    script = "from pacprivacy.cli.console import run_console; run_console()"
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **completed("bash", "pac re")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.stderr == ""
    assert found.stdout.split() == complete("bash", "pac re").split() != []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_verbs_are_completed(shell: str) -> None:
    found = complete(shell, "pac re")
    assert all(verb in found for verb in ("release", "report", "reproduce"))
    assert "audit" not in found


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pac release --model k", ["kmeans"]),
        ("pac audit --attack na", ["naming"]),
        ("pac plan --ru", ["--rule"]),
        ("pac ledger ex", ["export"]),
    ],
)
def test_options_and_names_are_completed(words: str, expected: list[str]) -> None:
    assert complete("bash", words).split() == expected


def show_script(shell: str) -> subprocess.CompletedProcess[str]:
    environment = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = f"import sys; sys.argv = ['pac', '--show-completion', '{shell}']\n"
    script += "from pacprivacy.cli.console import run_console; run_console()"
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_for_the_shell_is_shown(shell: str) -> None:
    found = show_script(shell)
    assert found.returncode == 0, found.stderr
    assert f"_PAC_COMPLETE=complete_{shell}" in found.stdout


def test_another_shell_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def detect() -> None:
        raise shellingham.ShellDetectionFailure

    monkeypatch.setattr(shellingham, "detect_shell", detect)
    result = pac("--show-completion")
    assert result.exit_code == 2
    assert "pac: error: the shell must be bash, zsh, fish or PowerShell" in result.stderr
    assert show_script("tcsh").returncode == 2
