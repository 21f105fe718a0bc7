"""Mechanisms whose released value carries the names and the units of the columns.

Names, means and scales of the columns and the edges of a histogram are those of the whole
universe: public, and the same for every subset. Putting them back on released numbers is
post-processing (claim M-1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.mechanism.base import Wrapper

FLAT: Final = 1e-12  # a spread below this share of the column's size is rounding error


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
    def scaled(cls, names: tuple[str, ...], X: Matrix) -> tuple[Columns, Matrix]:
        """Return the columns with standard deviation 1 over the universe."""
        columns = cls(names=names, centre=np.zeros(len(names)), scales=column_scales(X))
        return columns, X / columns.scales

    @classmethod
    def plain(cls, names: tuple[str, ...]) -> Columns:
        """Return columns that stay as they are."""
        return cls(names=names, centre=np.zeros(len(names)), scales=np.ones(len(names)))

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe."""
        if self.centre.any():
            return (
                "column means and standard deviations: of the whole universe; noise figures are "
                "in these units",
            )
        if (self.scales == 1).all():
            return ()
        return (
            "column scales: standard deviations over the universe; noise figures are in these "
            "units",
        )


def column_scales(X: Matrix) -> Vector:
    """Return the standard deviation of every column over the universe; 1 where it is constant.

    The noise rules make the *total* noise small. Without a common scale a column of small numbers
    would drown in the noise that a column of large ones needs.
    """
    spread = X.std(axis=0)
    scales: Vector = np.where(spread > FLAT * np.abs(X).max(axis=0), spread, 1.0)
    return scales


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Wrapper):
    """A mechanism whose columns have names and scales.

    Parameters
    ----------
    inner : Mechanism, public
        What is computed, on the columns as ``columns`` scales them.
    columns : Columns, public
        Names, means and scales.
    describe : callable, public
        From the columns and the *released* value to what the user reads.
    """

    columns: Columns = field(repr=False, compare=False)
    describe: Callable[[Columns, Any], dict[str, Any]]

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        count = len(self.columns.names)
        return f"{self.inner.name} of {count} column{'s' * (count != 1)}"

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe or declared."""
        return (*self.columns.public, *self.inner.public)

    def finish(self, value: Any) -> dict[str, Any]:
        """Put names and units back on released numbers."""
        return self.describe(self.columns, self.inner.finish(value))


def describe_columns(columns: Columns, value: Any) -> dict[str, Any]:
    """Return one number for each column."""
    return dict(zip(columns.names, map(float, value * columns.scales), strict=True))


def describe_matrix(columns: Columns, value: Any) -> dict[str, Any]:
    """Return a matrix with the names of its rows and columns."""
    scales = columns.scales
    return {"columns": list(columns.names), "matrix": value * np.outer(scales, scales)}


def describe_counts(columns: Columns, value: Any) -> dict[str, Any]:
    """Return counts and edges for each column."""
    return {
        name: {"edges": edges, "counts": counts}
        for name, edges, counts in zip(columns.names, value["edges"], value["counts"], strict=True)
    }


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
