"""Warnings that a mechanism gives: collected wherever it runs, shown once by the caller.

While a mechanism runs every warning is recorded and none becomes an exception, whatever filters
the caller has set; so a mechanism behaves alike in this process and in a worker. The caller's
filters decide what happens when the warnings are shown.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Notice", "collect_notices", "show_notices"]


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
