"""``pac`` under fuzzing: exit codes 0, 2 and 3 only, no traceback, no spend without a release.

A slice of what ``benchmarks/robust/fuzz.py`` runs 2000 times. ``audit`` may also end with 4: of a
certificate that is well formed but was altered, it rightly finds that the promise does not hold.
"""

from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fuzzing import GOOD, make_world, run_once
from pacprivacy.cli.console import app

RUNS = 80
PARTS = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    make_world(folder)
    return folder


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("default")  # what a user sees as a line is no reason to fail
def test_nothing_but_clear_answers(world: Path, tmp_path: Path, part: int) -> None:
    outcomes = [run_once(number, world, tmp_path) for number in range(part, RUNS, PARTS)]
    assert [outcome for outcome in outcomes if outcome.problem is not None] == []
    assert len({outcome.code for outcome in outcomes}) > 1


def test_every_verb_is_tried_and_answers_machines() -> None:
    commands = {}
    group: Any = get_command(app)
    for name in group.commands:
        command = group.get_command(None, name)
        inner = getattr(command, "commands", None)
        commands |= (
            {(name,): command} if inner is None else {(name, n): c for n, c in inner.items()}
        )
    slow = {("demo",), ("reproduce",)}
    assert {words[: len(name)] for name in commands for words in GOOD} >= set(commands) - slow
    for name, command in commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--json", "--quiet"} <= options, name
