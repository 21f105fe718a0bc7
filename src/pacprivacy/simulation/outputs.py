"""The record of a simulation: the mechanism's value on every subset of the pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy.mechanism import Structure

__all__ = ["Outputs"]

SCHEMA_VERSION: Final = 1


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outputs:
    """Values of a mechanism on all subsets.

    Parameters
    ----------
    values : float64 array of shape (m, d), read-only, curator-only
        Row ``k`` is the flattened value on subset ``k``.
    structure : Structure, public
        How to build a value from a vector; equal for all subsets.
    mechanism_name : str, public
        Name for the certificate.
    public : tuple of str, public
        What was computed from the whole universe or declared.
    seed : int, curator-only
        Seed of the mechanism's public streams.
    finish : callable, public
        Post-processing of a released value.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> from pacprivacy.simulation import run_mechanism
    >>> pool = pac.Balanced(n_subsets=8).draw(20, rng=0)
    >>> outputs = run_mechanism(np.mean, np.arange(20.0), pool)
    >>> outputs.n_subsets, outputs.n_outputs, outputs.mechanism_name
    (8, 1, 'mean')
    """

    values: npt.NDArray[np.float64] = field(repr=False)
    structure: Structure
    mechanism_name: str
    public: tuple[str, ...] = ()
    seed: int = field(repr=False)
    finish: Callable[[Any], Any] = field(default=_unchanged, repr=False)

    def __post_init__(self) -> None:
        values = np.ascontiguousarray(self.values, dtype=np.float64).view()
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @property
    def n_subsets(self) -> int:
        """Number of subsets m."""
        return int(self.values.shape[0])

    @property
    def n_outputs(self) -> int:
        """Length d of the measured vector."""
        return int(self.values.shape[1])

    def restore(self, vector: npt.ArrayLike) -> Any:
        """Turn a released vector into the value the user sees (claim M-1)."""
        return self.finish(self.structure.restore(vector))

    def to_public_dict(self) -> dict[str, Any]:
        """Return what may be published, as plain JSON types."""
        return {
            "schema_version": SCHEMA_VERSION,
            "mechanism": self.mechanism_name,
            "output": self.structure.describe(),
            "n_subsets": self.n_subsets,
            "n_outputs": self.n_outputs,
            "public": list(self.public),
        }
