"""Mechanisms on standardised columns, whose released value has names and units again.

Means and standard deviations of the columns are those of the whole universe: public, and the same
for every subset. Putting them back on released numbers is post-processing (claim M-1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy.cli.described import column_scales
from pacprivacy.mechanism import BatchMechanism, Data, Mechanism
from pacprivacy.pool import Pool

__all__ = [
    "Columns",
    "Named",
    "describe_centres",
    "describe_components",
    "describe_plain",
    "describe_planes",
]

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Names of columns, and what was subtracted from each and what it was divided by; public."""

    names: tuple[str, ...]
    centre: Vector
    scales: Vector

    @classmethod
    def standardised(cls, names: tuple[str, ...], X: Matrix) -> tuple[Columns, Matrix]:
        """Return the columns with mean 0 and standard deviation 1 over the universe."""
        columns = cls(names=names, centre=X.mean(axis=0), scales=column_scales(X))
        return columns, (X - columns.centre) / columns.scales

    @classmethod
    def plain(cls, names: tuple[str, ...]) -> Columns:
        """Return columns that stay as they are."""
        return cls(names=names, centre=np.zeros(len(names)), scales=np.ones(len(names)))

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe."""
        if not self.centre.any() and (self.scales == 1).all():
            return ()
        return (
            "column means and standard deviations: of the whole universe; noise figures are in "
            "these units",
        )


Describe = Callable[[Columns, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Mechanism):
    """A mechanism whose columns have names and scales.

    Parameters
    ----------
    inner : Mechanism, public
        What is computed, on standardised columns.
    columns : Columns, public
        Names, means and scales.
    describe : callable, public
        From the columns and the *released* value to what the user reads.
    """

    inner: Mechanism
    columns: Columns = field(repr=False, compare=False)
    describe: Describe

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        count = len(self.columns.names)
        return f"{self.inner.name} on {count} column{'s' * (count != 1)}"

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe or declared."""
        return (*self.columns.public, *self.inner.public)

    def prepare(self, data: Data) -> Named:
        """Return the mechanism fixed with the whole universe where it needs to be."""
        prepared = self.inner.prepare(data)
        kind = NamedBatch if isinstance(prepared, BatchMechanism) else Named
        return kind(inner=prepared, columns=self.columns, describe=self.describe)

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the value on one subset."""
        return self.inner.evaluate(parts, rng)

    def finish(self, value: Any) -> dict[str, Any]:
        """Put names and units back on released numbers."""
        return self.describe(self.columns, self.inner.finish(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBatch(Named, BatchMechanism):
    """The same, for a mechanism that evaluates all subsets at once."""

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the values on all subsets."""
        assert isinstance(self.inner, BatchMechanism)  # prepare() made sure
        return self.inner.batch(data, pool)

    def template(self, data: Data) -> Any:
        """Return a value of the mechanism's structure."""
        assert isinstance(self.inner, BatchMechanism)  # prepare() made sure
        return self.inner.template(data)


def describe_centres(columns: Columns, value: Any) -> dict[str, Any]:
    """Return cluster centres in the units of the columns."""
    return {"columns": list(columns.names), "centres": value * columns.scales + columns.centre}


def describe_components(columns: Columns, value: Any) -> dict[str, Any]:
    """Return directions of the standardised columns, and what standardises them."""
    return {
        "columns": list(columns.names),
        "components": value["components"],
        "mean": value["mean"] * columns.scales + columns.centre,
        "scales": columns.scales.copy(),
    }


def describe_planes(columns: Columns, value: Any) -> dict[str, Any]:
    """Return hyperplanes for columns as they are in the file."""
    coef = value["coef"] / columns.scales
    return {
        "columns": list(columns.names),
        "classes": value["classes"],
        "coef": coef,
        "intercept": value["intercept"] - coef @ columns.centre,
    }


def describe_plain(columns: Columns, value: Any) -> dict[str, Any]:
    """Return a dictionary of figures with the names of the columns."""
    return {"columns": list(columns.names), **value}
