"""Choose and draw the pool of candidate subsets for a mechanism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy._random import coerce_seed
from pacprivacy.errors import PoolError
from pacprivacy.mechanism import Data, Mechanism, batch_of
from pacprivacy.pool import Balanced, Pool, PoolStrategy
from pacprivacy.simulation.checkpoint import read_checkpoint_seed

__all__ = ["draw_candidates"]

SUBSETS_BATCHED = 1024
SUBSETS_BLACK_BOX = 256


def draw_candidates(
    mechanism: Mechanism,
    data: Data,
    pool: Pool | PoolStrategy | None,
    *,
    n_subsets: int | None = None,
    units: Any = None,
    checkpoint: str | Path | None = None,
    rng: np.random.Generator | int | None = None,
    n_reserve: int = 0,
) -> tuple[Pool, tuple[str, ...]]:
    """Return the pool for a run, and public notes on how its size was chosen.

    A pool that is already drawn is used as it is. ``n_subsets=None`` means 1024 where the
    mechanism evaluates all subsets by matrix products, and 256 for a black box; ``n_reserve``
    more are drawn for a secret that must be independent of the others.

    Examples
    --------
    >>> import numpy as np
    >>> from pacprivacy.mechanism import as_mechanism, coerce_data
    >>> data = coerce_data(np.arange(20.0))
    >>> pool, notes = draw_candidates(as_mechanism(np.mean), data, None, n_subsets=8, rng=0)
    >>> pool.n_subsets, notes
    (8, ())
    """
    if isinstance(pool, Pool):
        if n_subsets not in (None, pool.n_subsets) or units is not None:
            raise PoolError(
                "n_subsets and units must be left out when a drawn pool is given. "
                "Pass a strategy such as Balanced() to have it drawn."
            )
        return pool, ()
    strategy: PoolStrategy = Balanced() if pool is None else pool
    notes: tuple[str, ...] = ()
    if n_subsets is not None:
        strategy = strategy.with_subsets(n_subsets)
    elif strategy.n_subsets is None:
        default = SUBSETS_BLACK_BOX if batch_of(mechanism) is None else SUBSETS_BATCHED
        strategy = strategy.with_subsets(default)
        notes = (
            f"{default} subsets is the default here; a larger n_subsets lowers what side "
            f"knowledge gives away and often the noise, for proportionally more work.",
        )
    if n_reserve:
        strategy = strategy.with_subsets((strategy.n_subsets or 0) + n_reserve)
    stored = None if checkpoint is None or rng is not None else read_checkpoint_seed(checkpoint)
    seed = coerce_seed(rng) if stored is None else stored
    labels = data.parts[-1] if len(data.parts) > 1 else None
    return strategy.draw(data.n_rows, rng=seed, units=units, strata=labels), notes
