"""A mechanism whose parameter was chosen on the universe, and says so in its certificates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pacprivacy.mechanism import BatchMechanism, Data, Mechanism
from pacprivacy.pool import Pool

__all__ = ["Tuned", "TunedBatch", "note_choice"]


def note_choice(theta: Any, n_values: int, n_subsets: int) -> str:
    """Return what a certificate has to say about a tuned parameter."""
    return (
        f"the parameter {theta!r}, chosen among {n_values} by simulated releases from {n_subsets} "
        "subsets of the universe: it depends on the universe and not on the secret"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned(Mechanism):
    """A mechanism with one more line about what is public."""

    inner: Mechanism
    note: str

    @staticmethod
    def of(inner: Mechanism, note: str) -> Tuned:
        """Return the wrapped mechanism; one that runs on all subsets at once still does."""
        kind = TunedBatch if isinstance(inner, BatchMechanism) else Tuned
        return kind(inner=inner, note=note)

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return self.inner.name

    @property
    def public(self) -> tuple[str, ...]:
        """What the mechanism says, and how its parameter was chosen."""
        return (*self.inner.public, self.note)

    def prepare(self, data: Data) -> Self:
        """Prepare the mechanism inside."""
        return replace(self, inner=self.inner.prepare(data))

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the value for one subset."""
        return self.inner.evaluate(parts, rng)

    def finish(self, value: Any) -> Any:
        """Post-process a released value."""
        return self.inner.finish(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedBatch(Tuned):
    """The same for a mechanism that evaluates all subsets at once."""

    def batch(self, data: Data, pool: Pool) -> npt.NDArray[np.float64]:
        """Return the flattened values of all subsets."""
        assert isinstance(self.inner, BatchMechanism)  # by Tuned.of
        return self.inner.batch(data, pool)

    def template(self, data: Data) -> Any:
        """Return any value with the structure of the mechanism's."""
        assert isinstance(self.inner, BatchMechanism)  # by Tuned.of
        return self.inner.template(data)
