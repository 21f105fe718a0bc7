"""A progress bar on stderr that shows how much is left."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@contextmanager
def show_progress(
    total: int, *, done: int, enabled: bool | None
) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of subsets just finished."""
    if enabled is None:
        enabled = sys.stderr is not None and sys.stderr.isatty()
    if not enabled:
        yield lambda _: None
        return
    from rich import console, progress  # slow to import, needed for a terminal only

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console.Console(file=sys.stderr)) as bar:
        task = bar.add_task("subsets", total=total, completed=done)
        yield lambda count: bar.advance(task, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One warning, with the place it came from."""

    text: str
    category: type[Warning]
    filename: str
    lineno: int


@contextmanager
def collect_notices(notices: list[Notice]) -> Iterator[None]:
    """Record the warnings given inside; they are in ``notices`` on leaving."""
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            notices.extend(
                Notice(
                    text=str(entry.message),
                    category=entry.category,
                    filename=entry.filename,
                    lineno=entry.lineno,
                )
                for entry in log
            )


def show_notices(notices: Iterable[Notice]) -> None:
    """Give each kind of warning once, with how often it came."""
    groups: dict[tuple[type[Warning], str, int], list[Notice]] = {}
    for notice in notices:
        key = (notice.category, notice.filename, notice.lineno)
        groups.setdefault(key, []).append(notice)
    for (category, filename, lineno), members in groups.items():
        text = members[0].text
        if len(members) > 1:
            text += f" [{len(members)} such warnings while running the subsets]"
        warnings.warn_explicit(text, category, filename, lineno)
