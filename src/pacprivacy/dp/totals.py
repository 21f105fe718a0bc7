"""Totals of clipped gradients, exact in whole numbers."""

from typing import Final

import numpy as np

from pacprivacy._checks import Array, Integers, Matrix, Vector, check_positive
from pacprivacy.dp.clipping import LARGEST, SLACK, SMALLEST, clip
from pacprivacy.dp.records import finite_records

SUM_BITS: Final = 40  # gradients in whole multiples of 2^-40 of the clipping norm
CHUNK_ROWS: Final = 1 << 12  # 2^12 numbers of 2^40 are summed exactly in float64 ...
INT64_ROWS: Final = 1 << 22  # ... 2^22 of them in int64, and any number in two halves of it
BLOCK_CELLS: Final = 1 << 16  # entries that are worked on at a time: half a megabyte
_HALF: Final = 32  # bits


class ExactTotal:
    """A sum of whole numbers of size at most ``2^40`` for each record, exact for any number."""

    __slots__ = ("_high", "_low", "_n_recent", "_recent")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._recent, self._high, self._low = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        self._n_recent = 0

    def expect(self, n_records: int) -> None:
        """Make room for the sum over so many more records."""
        if self._n_recent + n_records > INT64_ROWS:
            self._settle()
        self._n_recent += n_records

    def add(self, whole: Array, columns: slice = slice(None)) -> None:
        """Add a sum over at most ``2^12`` of the records that are expected, or a part of it."""
        self._recent[columns] += whole.astype(np.int64, copy=False)

    def held(self) -> Integers:
        """Return the sum, held within ``±2^62``: that moves no two sums apart."""
        self._settle()
        most = 1 << (62 - _HALF)
        high = np.clip(self._high, -most, most - 1)
        low = np.where(self._high > high, (1 << _HALF) - 1, self._low)
        return (high << _HALF) + np.where(self._high < high, 0, low)

    def rounded(self) -> Vector:
        """Return the sum as float64, rounded once."""
        self._settle()
        return self._high.astype(np.float64) * 2.0**_HALF + self._low

    def _settle(self) -> None:
        """Move what was added lately to the two halves; the lower one is not negative."""
        self._low += self._recent & ((1 << _HALF) - 1)
        self._high += (self._recent >> _HALF) + (self._low >> _HALF)
        self._low &= (1 << _HALF) - 1
        self._recent[...] = 0
        self._n_recent = 0


def add_gradients_to_total(total: ExactTotal, gradients: Array, clip_norm: float) -> None:
    """Add clipped gradients to a sum, in whole multiples of ``2^-40 clip_norm``.

    Every gradient is clipped, then rounded towards zero, then added in integers; one that is not
    finite counts as zero. The work is done on a few rows at a time, which stay in the processor's
    cache from the first step to the last.

    Guarantee
    ---------
    Claim G-1. The sum moves by at most ``2^40`` in Euclidean norm when a row is added.
    """
    check_positive("clip_norm", clip_norm, advice="Use a norm that gradients rarely exceed.")
    plain = SMALLEST < clip_norm < LARGEST
    n_records, d = gradients.shape
    width = max(1, min(d, BLOCK_CELLS >> 4))
    n_rows = min(CHUNK_ROWS, BLOCK_CELLS // width)
    room, work = np.empty((n_rows, width)), np.empty((n_rows, width))
    blocks = [slice(first, first + width) for first in range(0, d, width)]
    for start in range(0, n_records, n_rows):
        part = gradients[start : start + n_rows]
        squares = np.zeros(len(part))
        with np.errstate(all="ignore"):
            for columns in blocks:
                entries = _copy_to(room, part[:, columns])
                squares += np.square(entries, out=work[: len(part), : entries.shape[1]]).sum(axis=1)
        # Zero, too small or too large for squares, or not finite: with more care.
        odd = ~((squares > SMALLEST**2) & (squares < LARGEST**2) & plain)
        total.expect(len(part))
        if odd.any():
            total.add(_add_carefully(part[odd], clip_norm))
        lengths = np.where(odd, np.inf, np.maximum(np.sqrt(np.where(odd, 1.0, squares)), clip_norm))
        for columns in blocks:
            if len(blocks) > 1:
                entries = _copy_to(room, part[:, columns])
            if odd.any():
                entries[odd] = 0.0
            entries *= (SLACK * 2.0**SUM_BITS / lengths)[:, None]
            total.add(np.trunc(entries, out=entries).sum(axis=0), columns)


def _add_carefully(gradients: Array, clip_norm: float) -> Matrix:
    """Return the sum of clipped gradients of any size, in the same units."""
    rows = finite_records(np.asarray(gradients, dtype=np.float64))
    whole = np.trunc(clip(rows, clip_norm) / clip_norm * (SLACK * 2.0**SUM_BITS))
    return np.asarray(whole.sum(axis=0))


def _copy_to(room: Matrix, part: Array) -> Matrix:
    """Copy a part to as much of a room as it needs."""
    copied = room[: part.shape[0], : part.shape[1]]
    copied[...] = part
    return copied
