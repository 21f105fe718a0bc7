"""Put the help texts of ``pac`` into the page on the command line when the site is built."""

from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from pacprivacy.cli import app

MARK = "<!-- help texts -->"


def verbs(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the path of every verb that does something, in the order of ``--help``."""
    children = getattr(command, "commands", None)
    if not children:
        return [path]
    return [
        found
        for name in children
        for found in verbs(command.get_command(None, name), (*path, name))
    ]


def help_text(path: tuple[str, ...]) -> str:
    """Return what ``pac VERB --help`` prints."""
    result = CliRunner().invoke(app, [*path, "--help"])
    if result.exit_code != 0:
        raise RuntimeError(f"pac {' '.join(path)} --help failed with code {result.exit_code}")
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


def help_texts() -> str:
    """Return one section per verb."""
    sections = [
        f"## pac {' '.join(path)}\n\n```text\n{help_text(path)}\n```\n"
        for path in verbs(get_command(app))
    ]
    return "\n".join(sections)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the help texts where a page asks for them (called by mkdocs)."""
    return markdown.replace(MARK, help_texts()) if MARK in markdown else markdown
