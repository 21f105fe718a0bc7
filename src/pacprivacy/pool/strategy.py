"""What every way of drawing a pool has in common."""

from __future__ import annotations

from typing import Final, Protocol, Self

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import PoolError
from pacprivacy.pool.pool import Pool

__all__ = ["DEFAULT_SUBSETS", "MAX_TRIES", "PoolStrategy", "check_n_subsets"]

DEFAULT_SUBSETS: Final = 256
MAX_TRIES: Final = 1000  # redraws of one subset before a conditioned strategy gives up


class PoolStrategy(Protocol):
    """Anything that can draw a pool: :class:`Balanced`, :class:`Half`, :class:`Poisson`.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> for strategy in (pac.Balanced(), pac.Half(), pac.Poisson()):
    ...     print(strategy.with_subsets(8).draw(20, rng=0).scheme)
    balanced
    half
    poisson(0.5)
    """

    @property
    def n_subsets(self) -> int | None:
        """Number of subsets; ``None`` leaves the choice to the caller."""
        ...

    def with_subsets(self, n_subsets: int) -> Self:
        """Return the same strategy with that many subsets."""
        ...

    def draw(
        self,
        n_records: int,
        *,
        rng: np.random.Generator | int | None = None,
        units: npt.ArrayLike | None = None,
        strata: npt.ArrayLike | None = None,
    ) -> Pool:
        """Draw a pool over ``n_records`` records, or over the distinct ``units`` among them."""
        ...


def check_n_subsets(n_subsets: object, *, even: bool = False) -> None:
    """Refuse a number of subsets that no pool can have; ``None`` passes."""
    if n_subsets is None:
        return
    whole = isinstance(n_subsets, (int, np.integer)) and not isinstance(n_subsets, bool)
    if not whole or n_subsets < 2 or (even and n_subsets % 2):  # type: ignore[operator]
        kind = "an even integer of at least 2" if even else "an integer of at least 2"
        raise PoolError(
            f"n_subsets must be {kind}; got {n_subsets!r}. "
            "Use 256, or more when the mechanism is cheap."
        )
