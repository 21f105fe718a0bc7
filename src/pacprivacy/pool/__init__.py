"""Who might be in: the pool of candidate subsets, one of which is secretly used."""

from __future__ import annotations

from pacprivacy.pool.pool import Pool
from pacprivacy.pool.strategies import DEFAULT_SUBSETS, Balanced, Half, Poisson, PoolStrategy
from pacprivacy.pool.units import encode_labels

__all__ = [
    "DEFAULT_SUBSETS",
    "Balanced",
    "Half",
    "Poisson",
    "Pool",
    "PoolStrategy",
    "encode_labels",
]
