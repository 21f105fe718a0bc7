"""Packed subsets: counting and drawing them; blocks of units that are drawn when they are read."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._random import public_generator

Bits = npt.NDArray[np.uint8]

_POPCOUNT: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(
    axis=1, dtype=np.uint8
)


def popcount(packed: Bits) -> int:
    return int(_POPCOUNT[packed].sum(dtype=np.int64))


def pool_padding(n_units: int) -> int:
    """Return the bits of the last byte that stand for no unit, as a byte."""
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


BLOCK_UNITS: Final = 1 << 18  # a multiple of 8; part of the definition of what a seed draws
_BLOCK_BYTES: Final = BLOCK_UNITS // 8
_KEPT_BYTES: Final = 1 << 29  # up to which all blocks are kept
_PART_BYTES: Final = 1 << 28  # of those that are kept where there are more
_OVERALL: Final = 2**32 - 1  # number of the stream of fold sizes, which no partition has


class BlockBits:
    """What :func:`numpy.packbits` of all masks would be, of which a block is drawn when it is read.

    ``m / folds`` uniform partitions of the units into folds that are as equal as can be; subset
    ``j m/folds + r`` is all but fold ``j`` of partition ``r``. How many units of a block are in a
    fold is hypergeometric; which ones, given that, is uniform.

    Guarantee
    ---------
    Claim P-5. Partitions are uniform and independent, as those of :class:`Balanced`.
    """

    ndim: Final = 2
    dtype: Final = np.dtype(np.uint8)

    def __init__(self, *, seed: int, n_subsets: int, folds: int, n_units: int) -> None:
        self.seed, self.folds, self.n_units = seed, folds, n_units
        self.shape = (n_subsets, -(-n_units // 8))
        self._counts = _draw_counts(seed, n_subsets // folds, folds, n_units)
        fits = self.shape[0] * self.shape[1] <= _KEPT_BYTES
        self._kept: dict[int, Bits] = {}
        self._most = _KEPT_BYTES if fits else _PART_BYTES
        self._name: bytes | None = None
        self._process, self._drawing = os.getpid(), threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.seed, self.shape[0], self.folds, self.n_units)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockBits) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    @property
    def data(self) -> bytes:
        """Parameters and a sample of the bits, to identify them instead of their contents.

        Where the generator of random numbers draws others than it did, the sample differs.
        """
        if self._name is None:
            sample = hashlib.blake2b(self._counts.astype("<i8").tobytes(), digest_size=16)
            for r, b in ((0, 0), (self._counts.shape[0] - 1, self._counts.shape[1] - 1)):
                sample.update(self._partition(r, b).tobytes())
            law = (self.seed, self.shape[0], self.folds, self.n_units, BLOCK_UNITS)
            self._name = f"blocks/{'/'.join(map(str, law))}/{sample.hexdigest()}".encode()
        return self._name

    def sizes(self) -> npt.NDArray[np.int64]:
        outside = self._counts.sum(axis=1, dtype=np.int64)  # shape (partitions, folds)
        return np.asarray(self.n_units - outside.T.ravel(), dtype=np.int64)

    def __getitem__(self, key: Any) -> Bits:
        if isinstance(key, int | np.integer):
            return np.concatenate([self._row(int(key), b) for b in range(self._counts.shape[1])])
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        if isinstance(columns, slice):
            start, stop, step = columns.indices(self.shape[1])
            b, last = start // _BLOCK_BYTES, (stop - 1) // _BLOCK_BYTES
            if b == last and start < stop and step == 1:  # as most readers ask, from the front
                offset = b * _BLOCK_BYTES
                return self._block(b)[rows, start - offset : stop - offset]
        every = np.arange(self.shape[1])[columns]
        where = np.atleast_1d(every)
        block_of = where // _BLOCK_BYTES
        found = np.empty((len(np.arange(self.shape[0])[rows]), len(where)), dtype=np.uint8)
        for b in np.unique(block_of):
            here = block_of == b
            found[:, here] = self._block(int(b))[rows][:, where[here] - b * _BLOCK_BYTES]
        return found.reshape(len(found), *every.shape)

    def _block(self, b: int) -> Bits:
        kept = self._kept.get(b)
        if kept is not None:
            return kept
        if self._process != os.getpid():  # a fork: whoever held the lock is not here
            self._drawing, self._process = threading.Lock(), os.getpid()  # the lock first
        with self._drawing:
            kept = self._kept.get(b)  # another thread may have drawn it
            return self._draw(b) if kept is None else kept

    def _draw(self, b: int) -> Bits:
        n_parts, _, folds = self._counts.shape
        drawn = [self._partition(r, b) for r in range(n_parts)]
        block = np.stack([lines[j] for j in range(folds) for lines in drawn])
        block.flags.writeable = False
        # Readers begin at the front again and again, so the first blocks are the ones to keep.
        while (len(self._kept) + 1) * block.nbytes > self._most:
            try:
                self._kept.popitem()  # the latest
            except KeyError:  # nothing is left
                break
        self._kept[b] = block
        return block

    def _row(self, k: int, b: int) -> Bits:
        n_parts = self._counts.shape[0]
        lines = self._kept.get(b)
        row: Bits = self._partition(k % n_parts, b)[k // n_parts] if lines is None else lines[k]
        return row

    def _partition(self, r: int, b: int) -> Bits:
        """Return the subsets of one partition in one block, shape (folds, bytes)."""
        counts = self._counts[r, b]
        width, rng = int(counts.sum()), public_generator(self.seed, "pool", r, b)
        if self.folds == 2:
            first = draw_pool_bits(rng, width, int(counts[1]))
            return np.stack([first, pool_complement(first, width)])
        dealt = _deal(rng, counts)
        folds = np.arange(self.folds, dtype=dealt.dtype)
        return np.stack([np.packbits(dealt != j) for j in folds])


def _remake(seed: int, n_subsets: int, folds: int, n_units: int) -> BlockBits:
    return BlockBits(seed=seed, n_subsets=n_subsets, folds=folds, n_units=n_units)


def _deal(rng: np.random.Generator, counts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Draw a uniform arrangement that has number ``j`` at ``counts[j]`` of its places.

    Independent numbers first; then places of numbers that came too often, chosen uniformly, are
    given in uniform order to those that came too seldom. Nothing here knows one place from
    another, so all arrangements with these counts are equally likely.
    """
    kind = np.min_scalar_type(len(counts))
    dealt = rng.integers(0, len(counts), size=int(counts.sum()), dtype=kind)
    surplus = np.bincount(dealt, minlength=len(counts)) - counts
    freed = [
        rng.choice(np.flatnonzero(dealt == j), size=int(surplus[j]), replace=False)
        for j in np.flatnonzero(surplus > 0)
    ]
    if freed:
        wanting = np.repeat(np.arange(len(counts), dtype=kind), np.maximum(-surplus, 0))
        dealt[rng.permutation(np.concatenate(freed))] = wanting
    return dealt


def _draw_counts(seed: int, n_parts: int, folds: int, n_units: int) -> npt.NDArray[np.int64]:
    """Draw how many units of every block are in every fold, shape (partitions, blocks, folds).

    Block after block, and fold after fold within one: what is left of a fold against what is left
    of those after it.
    """
    rng = public_generator(seed, "pool", _OVERALL)
    sizes = n_units // folds + (np.arange(folds) < n_units % folds)
    left = np.tile(sizes, (n_parts, 1)).astype(np.int64)
    counts = np.empty((n_parts, -(-n_units // BLOCK_UNITS), folds), dtype=np.int64)
    for b in range(counts.shape[1]):
        room = np.full(n_parts, min(BLOCK_UNITS, n_units - b * BLOCK_UNITS))
        for j in range(folds - 1):
            counts[:, b, j] = rng.hypergeometric(left[:, j], left[:, j + 1 :].sum(axis=1), room)
            room -= counts[:, b, j]
        counts[:, b, -1] = room
        left -= counts[:, b]
    return counts
