"""Who might be in: the pool of candidate subsets, one of which is secretly used."""

from __future__ import annotations

from pacprivacy.pool.balanced import Balanced
from pacprivacy.pool.half import Half
from pacprivacy.pool.poisson import Poisson
from pacprivacy.pool.pool import Pool
from pacprivacy.pool.strategy import DEFAULT_SUBSETS, PoolStrategy

__all__ = ["DEFAULT_SUBSETS", "Balanced", "Half", "Poisson", "Pool", "PoolStrategy"]
