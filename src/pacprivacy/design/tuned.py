"""A mechanism whose parameter was chosen on the universe, and says so in its certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pacprivacy.mechanism import Wrapper

__all__ = ["Tuned", "note_choice"]


def note_choice(theta: Any, n_values: int, n_subsets: int) -> str:
    """Return what a certificate has to say about a tuned parameter."""
    return (
        f"the parameter {theta!r}, chosen among {n_values} by simulated releases from {n_subsets} "
        "subsets of the universe: it depends on the universe and not on the secret"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned(Wrapper):
    """A mechanism with one more line about what is public."""

    note: str

    @property
    def public(self) -> tuple[str, ...]:
        """What the mechanism says, and how its parameter was chosen."""
        return (*self.inner.public, self.note)
