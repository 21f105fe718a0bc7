"""Read a page of documentation as a newcomer would: run its blocks from top to bottom.

``python`` blocks are executed, ``pycon`` blocks are doctests, ``console`` and ``bash`` blocks are
commands. What a page shows below a command must be how its output begins, with ``...`` for
whatever varies. All blocks of a page share one namespace and the current folder. Blocks in other
languages, such as ``sh`` for installing, are only shown.
"""

import doctest
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pacprivacy.cli import app

FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
VARYING = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
RUN = ("python", "pycon", "console", "bash")
WITH_COINS = {
    "mean", "sum", "count", "variance", "covariance", "crosstab", "histogram",
    "median", "quantiles", "ols", "ridge", "logistic", "poisson",
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line it starts on."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """One command of a console block and what the page shows below it."""

    words: tuple[str, ...]
    shown: str


def read_blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page in order."""
    for match in FENCE.finditer(text):
        indent = match.group(1)
        body = re.sub(rf"^{indent}", "", match.group(3), flags=re.MULTILINE)
        yield Block(match.group(2), body, text.count("\n", 0, match.start()) + 2)


def read_commands(text: str, *, prompt: str = "$ ") -> Iterator[Command]:
    """Yield the commands of a block, with the lines shown below each."""
    words: tuple[str, ...] | None = None
    shown: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith(prompt):
            if words is not None:
                yield Command(words, "\n".join(shown))
            words, shown = tuple(shlex.split(line[len(prompt) :], comments=True)), []
        else:
            shown.append(line)
    if words is not None:
        yield Command(words, "\n".join(shown))


def run_page(text: str, *, extra: dict[str, list[str]] | None = None) -> dict[str, Any]:
    """Run all blocks of a page and return the names that they leave behind.

    Parameters
    ----------
    text : str
        The page.
    extra : dict, optional
        Words such as ``--subsets=64`` to add to a verb of ``pac``, to make it quick, unless the
        page gives that option itself.
    """
    names: dict[str, Any] = {"__name__": "__page__"}
    for block in read_blocks(text):
        if block.language == "python":
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, "page", "exec"), names)
        elif block.language == "pycon":
            run_doctest(block, names)
        elif block.language == "console":
            for command in read_commands(block.text):
                run_command(command, extra or {})
        elif block.language == "bash":
            for command in read_commands(block.text, prompt=""):
                run_command(command, extra or {})
    return names


def run_doctest(block: Block, names: dict[str, Any]) -> None:
    """Run an interactive block in the namespace of the page."""
    parsed = doctest.DocTestParser().get_doctest(block.text, names, "page", "page", block.line - 1)
    failures: list[str] = []
    runner = doctest.DocTestRunner(optionflags=VARYING, verbose=False)
    runner.run(parsed, out=failures.append, clear_globs=False)
    assert not failures, "".join(failures)
    names.update(parsed.globs)


def has_coins(words: list[str]) -> bool:
    """Whether a release has a coin for each person: by option, or by default."""
    options = dict(pairwise(words))
    model = options.get("--model", options.get("--statistic", ""))
    default = model in WITH_COINS and "membership" in options.get("--budget", "")
    return options.get("--sample", "coins" if default else "pool") == "coins"


def run_command(command: Command, extra: dict[str, list[str]]) -> None:
    """Run one ``pac`` command here; compare what it prints with what the page shows."""
    words = list(command.words)
    assert words[0] == "pac", f"pages run pac only; got {words[0]!r}. Use a sh block to show it."
    target = None
    if ">" in words:
        at = words.index(">")
        target, words = Path(words[at + 1]), words[:at]
    more = [word for word in extra.get(words[1], []) if word.partition("=")[0] not in words]
    if {"--promise", "--ledger", "--study"} & set(words) or has_coins(
        words
    ):  # no candidates, or a session's
        more = [word for word in more if not word.startswith("--subsets")]
    result = CliRunner().invoke(app, [*words[1:], *more])
    assert result.exit_code == 0, (command.words, result.output)
    if target is not None:
        target.write_text(result.stdout, encoding="utf-8")
    if command.shown.strip():
        checker = doctest.OutputChecker()
        want, got = command.shown.strip() + "...\n", result.stdout.strip() + "\n"
        assert checker.check_output(want, got, VARYING), (
            f"{' '.join(words)} prints\n{got}\nand the page shows\n{want}"
        )
