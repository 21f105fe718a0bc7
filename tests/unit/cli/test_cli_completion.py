"""What a shell completes, and a picture that cannot be drawn."""

import os
import subprocess
import sys

import pytest
import shellingham
from typer.testing import CliRunner, Result

from pacprivacy.cli.console import app


def pac(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), prog_name="pac")


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
        ("pac ledger re", ["report"]),
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
