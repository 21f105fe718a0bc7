"""Built-in statistics whose released value carries the names and the units of the columns.

Names, scales and the edges of a histogram are public and do not depend on the secret; putting
them back on the released numbers is post-processing (claim M-1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pacprivacy.mechanism import BatchMechanism, Data
from pacprivacy.pool import Pool

__all__ = [
    "Describe",
    "Described",
    "column_scales",
    "describe_columns",
    "describe_counts",
    "describe_matrix",
]

Vector = npt.NDArray[np.float64]
Describe = Callable[[tuple[str, ...], Vector, Any], dict[str, Any]]

FLAT = 1e-12  # a spread below this share of the column's size is rounding error


def column_scales(X: npt.NDArray[np.float64]) -> Vector:
    """Return the standard deviation of every column over the universe; 1 where it is constant.

    The noise rules make the *total* noise small. Without a common scale a column of small numbers
    would drown in the noise that a column of large ones needs.
    """
    spread = X.std(axis=0)
    scales: Vector = np.where(spread > FLAT * np.abs(X).max(axis=0), spread, 1.0)
    return scales


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(BatchMechanism):
    """A statistic of a matrix whose columns have names and scales.

    Parameters
    ----------
    inner : BatchMechanism, public
        The statistic; its data are the columns divided by ``scales``.
    names : tuple of str, public
        One name for each column.
    describe : callable, public
        From the names, the scales and the *released* value to what the user reads.
    scales : array of shape (n_columns,), public
        What every column was divided by.
    """

    inner: BatchMechanism
    names: tuple[str, ...]
    describe: Describe
    scales: Vector = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return f"{self.inner.name} of {len(self.names)} column{'s' * (len(self.names) != 1)}"

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe or declared."""
        if (self.scales == 1).all():
            return self.inner.public
        units = (
            "column scales: standard deviations over the universe; noise figures are in these units"
        )
        return (units, *self.inner.public)

    def prepare(self, data: Data) -> Self:
        """Return the statistic fixed with the whole universe where it needs to be."""
        prepared = self.inner.prepare(data)
        assert isinstance(prepared, BatchMechanism)  # the built-in ones prepare themselves
        return replace(self, inner=prepared)

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the statistic of one subset."""
        return self.inner.evaluate(parts, rng)

    def batch(self, data: Data, pool: Pool) -> npt.NDArray[np.float64]:
        """Return the statistics of all subsets."""
        return self.inner.batch(data, pool)

    def template(self, data: Data) -> Any:
        """Return a value of the statistic's structure."""
        return self.inner.template(data)

    def finish(self, value: Any) -> dict[str, Any]:
        """Put names and scales back on released numbers."""
        return self.describe(self.names, self.scales, self.inner.finish(value))


def describe_columns(names: tuple[str, ...], scales: Vector, value: Any) -> dict[str, Any]:
    """Return one number for each column."""
    return {name: float(number) for name, number in zip(names, value * scales, strict=True)}


def describe_matrix(names: tuple[str, ...], scales: Vector, value: Any) -> dict[str, Any]:
    """Return a matrix with the names of its rows and columns."""
    return {"columns": list(names), "matrix": value * np.outer(scales, scales)}


def describe_counts(names: tuple[str, ...], scales: Vector, value: Any) -> dict[str, Any]:
    """Return counts and edges for each column."""
    return {
        name: {"edges": edges, "counts": counts}
        for name, edges, counts in zip(names, value["edges"], value["counts"], strict=True)
    }
