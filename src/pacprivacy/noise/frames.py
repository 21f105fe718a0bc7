"""Directions along which noise is added: coordinate axes, a public basis, or the spread's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy.noise.spread import Spread

__all__ = ["AxisFrame", "Frame", "PublicFrame", "SpreadFrame"]


class Frame(Protocol):
    """Orthonormal directions, and how to go to their coordinates and back."""

    @property
    def n_directions(self) -> int:
        """Number of directions that carry noise."""
        ...

    def coordinates(self, values: Matrix) -> Matrix:
        """Return centred coordinates of outputs of shape (m, d) along the directions."""
        ...

    def expand(self, coordinates: Vector) -> Vector:
        """Return the vector of length d with these coordinates, without the centre."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisFrame:
    """A selection of the output's own coordinates."""

    axes: npt.NDArray[np.int64]
    center: Vector

    @property
    def n_directions(self) -> int:
        """Number of directions that carry noise."""
        return len(self.axes)

    def coordinates(self, values: Matrix) -> Matrix:
        """Return centred coordinates along the selected axes."""
        return values[:, self.axes] - self.center[self.axes]

    def expand(self, coordinates: Vector) -> Vector:
        """Return the vector that is zero outside the selected axes."""
        full = np.zeros(len(self.center))
        full[self.axes] = coordinates
        return full


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFrame:
    """Columns of an orthonormal basis that was fixed without looking at the outputs."""

    basis: Matrix
    center: Vector

    def __post_init__(self) -> None:
        freeze(self.basis)

    @property
    def n_directions(self) -> int:
        """Number of directions that carry noise."""
        return int(self.basis.shape[1])

    def coordinates(self, values: Matrix) -> Matrix:
        """Return centred coordinates along the basis."""
        projected: Matrix = (values - self.center) @ self.basis
        return projected

    def expand(self, coordinates: Vector) -> Vector:
        """Return the vector with these coordinates."""
        expanded: Vector = self.basis @ coordinates
        return expanded


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadFrame:
    """The principal directions of the outputs, or orthonormal combinations of them.

    ``rotation`` of shape (r, q) gives the combinations; None means the directions themselves.
    """

    spread: Spread
    rotation: Matrix | None = None

    @property
    def n_directions(self) -> int:
        """Number of directions that carry noise."""
        return self.spread.rank if self.rotation is None else int(self.rotation.shape[1])

    def coordinates(self, values: Matrix) -> Matrix:
        """Return centred coordinates; those of the calibrated outputs are already known."""
        if values is self.spread.values:
            own = self.spread.coordinates
        else:
            own = self.spread.project(values - self.spread.center)
        return own if self.rotation is None else own @ self.rotation

    def expand(self, coordinates: Vector) -> Vector:
        """Return the vector with these coordinates."""
        own = coordinates if self.rotation is None else self.rotation @ coordinates
        return self.spread.expand(own)
