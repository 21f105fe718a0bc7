"""A progress bar on stderr that shows how much is left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["show_progress"]


@contextmanager
def show_progress(
    total: int, *, done: int, enabled: bool | None
) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of subsets just finished.

    Parameters
    ----------
    total, done : int
        Number of subsets, and how many of them were finished before.
    enabled : bool or None
        None shows a bar only if stderr is a terminal.
    """
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
