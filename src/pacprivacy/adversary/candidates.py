"""Candidates: a pool, as far as the attacker cares."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

Units = npt.NDArray[np.int64]


class Candidates(Protocol):
    """A pool, as far as the attacker cares."""

    @property
    def n_subsets(self) -> int:
        """Number of candidate subsets."""
        ...

    @property
    def n_units(self) -> int:
        """Number of units."""
        ...

    @property
    def folds(self) -> int:
        """Candidates ``r, r + m/k, r + 2m/k, ...`` leave out the ``k`` folds of one partition."""
        ...

    def counts(self) -> npt.NDArray[np.int32]:
        """Return the number of subsets that contain each unit."""
        ...

    def inside(
        self, units: Units | slice, subset: int | None = None, *, n_subsets: int | None = None
    ) -> npt.NDArray[np.uint8]:
        """Return 1 where a unit is in a subset: all subsets, the first ``n_subsets``, or one."""
        ...
