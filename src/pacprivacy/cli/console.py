"""What people type and see: numbers such as ``60%`` or ``1/64``, texts, tables, complaints."""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pacprivacy.errors import BudgetError, DataError

_FORM: Final = re.compile(r"^\s*([^\s/%]+)\s*(?:/\s*([^\s/%]+)\s*)?(%?)\s*$")


def read_number(name: str, text: str) -> float:
    """Read a number, a fraction or a percentage."""
    match = _FORM.match(text)
    try:
        if match is None:
            raise ValueError
        value = float(match[1]) / float(match[2] or 1) / (100 if match[3] else 1)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not math.isfinite(value):
        raise BudgetError(
            f"{name} must be a number; got {text!r}. Write it as 0.25, 25% or 1/4."
        ) from None
    return value


def read_pair(name: str, text: str) -> tuple[float, float]:
    """Read ``LO,HI`` with LO below HI."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DataError(
            f"{name} must be two numbers LO,HI with LO below HI; got {text!r}. Write it as 0,100."
        )
    return low, high


def format_number(value: float) -> str:
    """Write a number with six significant digits."""
    return f"{value:.6g}"


_STYLES: Final = {"error": "bold red", "warning": "yellow"}

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors and JSON.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb's function and the examples under its help."""

    function: Callable[..., None]
    example: str

    def join(self, group: typer.Typer, name: str) -> None:
        """Make this a command of a group."""
        examples = f"\b\nExample:\n{self.example}"  # the first character: not to be wrapped
        group.command(name, epilog=examples)(self.function)


def one_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return what a shell calls to complete a word that must be one of ``names``."""
    known = tuple(names)

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return complete


def show(text: str, *, style: str = "") -> None:
    """Print a text as it is; long lines are left to the terminal."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(text, style=style))


def show_json(content: Any) -> None:
    """Print plain types as JSON, never coloured."""
    sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")


@contextmanager
def show_status(text: str, *, quiet: bool) -> Iterator[None]:
    """Show that work is going on, and since when, on a terminal only."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        bar.add_task(text, total=None)
        yield


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without rules; the first column to the left, the others to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def complain(message: str, *, kind: Literal["error", "warning"] = "error") -> None:
    """Print one line on stderr, whatever line breaks the message has."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    line = Text.assemble("pac: ", (f"{kind}:", _STYLES[kind]), " ", " ".join(message.split()))
    console.print(line)


def tell_curator(notes: Iterable[str], *, quiet: bool) -> None:
    """Print what only the curator may know, on stderr; it is in no file."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for note in () if quiet else notes:
        console.print(Text.assemble("pac: ", ("curator only:", "cyan"), " ", note))
