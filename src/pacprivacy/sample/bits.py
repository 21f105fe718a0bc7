"""Packed subsets: counting and drawing them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint8]

_POPCOUNT: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(
    axis=1, dtype=np.uint8
)


def popcount(packed: Bits) -> int:
    return int(_POPCOUNT[packed].sum(dtype=np.int64))


def pool_padding(n_units: int) -> int:
    """Return the unused bits of the last byte, as a byte."""
    return 0xFF >> (n_units % 8) if n_units % 8 else 0


def pool_complement(packed: Bits, n_units: int) -> Bits:
    other = ~packed
    other[-1] &= 0xFF ^ pool_padding(n_units)
    return other


def draw_pool_bits(rng: np.random.Generator, n_units: int, size: int) -> Bits:
    """Draw a uniform subset of exactly ``size`` of ``n_units`` units, packed.

    Fair bits give a uniform subset of a random size; given its size it is uniform, and
    moving uniformly chosen units in or out until the size fits keeps it so. This needs
    one bit and no integer per unit, and is quick for sizes near one half.
    """
    packed = np.frombuffer(rng.bytes(-(-n_units // 8)), dtype=np.uint8).copy()
    packed[-1] &= 0xFF ^ pool_padding(n_units)
    surplus = popcount(packed) - size
    missing = abs(surplus)
    while missing:
        where = rng.integers(0, n_units, size=2 * missing + 16)
        inside = (packed[where >> 3] >> (7 - (where & 7)).astype(np.uint8)) & 1
        where = where[inside == (surplus > 0)]
        # The first appearances, in order: what rejection one at a time would have accepted.
        _, first = np.unique(where, return_index=True)
        where = where[np.sort(first)][:missing]
        np.bitwise_xor.at(packed, where >> 3, (128 >> (where & 7)).astype(np.uint8))
        missing -= len(where)
    return packed
