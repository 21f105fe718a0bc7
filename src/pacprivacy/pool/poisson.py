"""Every unit in every subset by its own coin."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.errors import PoolError
from pacprivacy.pool.bits import Bits
from pacprivacy.pool.pool import Pool
from pacprivacy.pool.strategy import DEFAULT_SUBSETS, MAX_TRIES, check_n_subsets
from pacprivacy.pool.units import resolve_units

__all__ = ["Poisson"]

_BLOCK_UNITS: Final = 65536
_NOTE: Final = "Every subset is conditioned on not being empty: an empty one is redrawn."


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Each unit in each subset independently with probability ``rate``.

    Parameters
    ----------
    n_subsets : int >= 2, optional
        Number of subsets; 256 when nothing else decides.
    rate : float in (0, 1)
        Probability that a unit is in a subset. An empty subset is redrawn.

    Examples
    --------
    >>> pool = Poisson(n_subsets=64, rate=0.25).draw(150, rng=0)
    >>> pool.prior
    0.75
    """

    n_subsets: int | None = None
    rate: float = 0.5

    def __post_init__(self) -> None:
        check_n_subsets(self.n_subsets)
        number = isinstance(self.rate, (int, float, np.floating))
        if not number or not 0.0 < self.rate < 1.0:
            raise PoolError(
                f"rate must be strictly between 0 and 1; got {self.rate!r}. "
                "Use 0.5 for the smallest prior."
            )

    def with_subsets(self, n_subsets: int) -> Self:
        """Return the same strategy with that many subsets."""
        return replace(self, n_subsets=n_subsets)

    def draw(
        self,
        n_records: int,
        *,
        rng: np.random.Generator | int | None = None,
        units: npt.ArrayLike | None = None,
        strata: npt.ArrayLike | None = None,
    ) -> Pool:
        """Draw the pool.

        Parameters
        ----------
        n_records : int, public
            Number of rows of the data.
        rng : Generator, int or None
            Seed of the pool, kept by the curator; None draws a fresh one.
        units : array of n_records labels, optional
            Rows with equal labels are in or out together.
        strata : array of n_records labels, optional
            Ignored; accepted so that every strategy is called alike.

        Guarantee
        ---------
        Claim P-2. Before the pool is drawn every unit is in with probability
        ``rate / (1 - (1 - rate)**n)``: the condition that no subset is empty is counted.
        """
        n_units, row_units = resolve_units(n_records, units)
        m = self.n_subsets or DEFAULT_SUBSETS
        seed = coerce_seed(rng)
        rate = float(self.rate)
        bits = np.empty((m, -(-n_units // 8)), dtype=np.uint8)
        for k in range(m):
            _fill_coins(bits[k], public_generator(seed, "pool", k), n_units, rate)
        inside = min(1.0, rate / -math.expm1(n_units * math.log1p(-rate)))
        return Pool(
            bits=bits,
            n_units=n_units,
            scheme=f"poisson({rate:.12g})",
            prior=max(inside, 1.0 - inside),
            independent=True,
            complement_pairs=False,
            row_units=row_units,
            seed=seed,
            notes=(_NOTE,),
        )


def _fill_coins(packed: Bits, rng: np.random.Generator, n_units: int, rate: float) -> None:
    for _ in range(MAX_TRIES):
        for start in range(0, n_units, _BLOCK_UNITS):
            coins = rng.random(min(_BLOCK_UNITS, n_units - start)) < rate
            packed[start // 8 : -(-(start + len(coins)) // 8)] = np.packbits(coins)
        if packed.any():
            return
    raise PoolError(
        f"rate must be large enough for a non-empty subset within {MAX_TRIES} tries; got "
        f"{rate} for {n_units} units. Use a rate of at least 1/{n_units}."
    )
