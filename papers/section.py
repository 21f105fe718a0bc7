"""What a page is made of: sections, each with work that can be shared out and a way to show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pacprivacy.experiments.measure import Settings
from pacprivacy.experiments.page import Page

__all__ = ["Job", "Section"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A piece of work: ``function(*arguments)`` returns dataclass records of one kind.

    Attributes
    ----------
    name : str
        For people.
    function, arguments
        What to do. Arguments that print alike must mean the same.
    kind : type, optional
        The class of the records, if they hold numbers and text only: a full run then keeps them,
        so that it can be stopped and goes on where it was.
    """

    name: str
    function: Callable[..., Sequence[Any]]
    arguments: tuple[Any, ...]
    kind: type[Any] | None = None

    def run(self) -> list[Any]:
        """Do the work."""
        return list(self.function(*self.arguments))


class Section(Protocol):
    """A figure group of a paper: of ``--only``, of the files, and of the page."""

    @property
    def name(self) -> str:
        """Short name."""
        ...

    @property
    def title(self) -> str:
        """Heading."""
        ...

    @property
    def covers(self) -> str:
        """Which tables and figures of the paper it stands for."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about the protocol."""
        ...

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return the work of a quick or of a full run."""
        ...

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write ``stem``.csv and ``stem``.png and put both on the page."""
        ...
