"""Pools in which every unit is in exactly half of the subsets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.errors import PoolError
from pacprivacy.pool.bits import Bits, complement, draw_fixed_size
from pacprivacy.pool.pool import Pool
from pacprivacy.pool.strategy import DEFAULT_SUBSETS, check_n_subsets
from pacprivacy.pool.units import Codes, resolve_strata, resolve_units

__all__ = ["Balanced"]

_BLOCK_UNITS: Final = 4096  # a multiple of 8; part of the definition of what a seed draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced:
    """Every unit in exactly half of the subsets: random halves and their complements.

    The default. Knowing the pool does not help to guess who is in.

    Parameters
    ----------
    n_subsets : even int >= 2, optional
        Number of subsets; 256 when nothing else decides.
    independent : bool
        Draw for every unit its own random half of the subsets, instead of complementary
        pairs of subsets. Sizes then vary around half the units.
    stratify : bool
        Every subset takes half of the units of every label in ``strata``.

    Examples
    --------
    >>> pool = Balanced(n_subsets=64).draw(150, rng=0)
    >>> set(pool.sizes().tolist()), set(pool.counts().tolist()), pool.worst_prior
    ({75}, {32}, 0.5)
    """

    n_subsets: int | None = None
    independent: bool = False
    stratify: bool = False

    def __post_init__(self) -> None:
        check_n_subsets(self.n_subsets, even=True)
        if self.independent and self.stratify:
            raise PoolError(
                "stratify must be False when independent=True; got True. "
                "Units that choose their subsets on their own cannot be stratified: drop one."
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
            Needed when ``stratify``, otherwise ignored.

        Guarantee
        ---------
        Claim P-1. Every unit is in exactly ``n_subsets / 2`` subsets, so that with a uniform
        secret index its membership is a fair coin, also for whoever knows the pool.
        """
        n_units, row_units = resolve_units(n_records, units)
        labels = None
        if self.stratify:
            labels = resolve_strata(strata, n_records, row_units, wanted_by="stratify=True")
        m = self.n_subsets or DEFAULT_SUBSETS
        seed = coerce_seed(rng)
        if self.independent:
            bits = _draw_columns(seed, m, n_units)
        else:
            bits = _draw_pairs(seed, m, n_units, labels)
        return Pool(
            bits=bits,
            n_units=n_units,
            scheme=self._scheme(),
            prior=0.5,
            independent=False,
            complement_pairs=not self.independent,
            row_units=row_units,
            seed=seed,
        )

    def _scheme(self) -> str:
        if self.independent:
            return "balanced-independent"
        return "balanced-stratified" if self.stratify else "balanced"


def _draw_pairs(seed: int, m: int, n_units: int, labels: Codes | None) -> Bits:
    """Draw m/2 halves, and put the complement of number k at k + m/2."""
    members = None if labels is None else _members(labels)
    bits = np.empty((m, -(-n_units // 8)), dtype=np.uint8)
    for k in range(m // 2):
        rng = public_generator(seed, "pool", k)
        if members is None:
            bits[k] = draw_fixed_size(rng, n_units, n_units // 2)
        else:
            bits[k] = _draw_stratified(rng, n_units, members)
        bits[k + m // 2] = complement(bits[k], n_units)
    return bits


def _members(labels: Codes) -> list[Codes]:
    order = np.argsort(labels, kind="stable").astype(np.int32)
    return np.split(order, np.cumsum(np.bincount(labels))[:-1])


def _draw_stratified(rng: np.random.Generator, n_units: int, members: list[Codes]) -> Bits:
    """Draw half of every stratum; half of the odd strata, at random, give one unit more.

    With q odd strata the total is ``(n - q)/2 + floor(q/2) = floor(n/2)``.
    """
    odd = np.array([s for s, units in enumerate(members) if len(units) % 2], dtype=np.int64)
    larger = set(rng.permutation(odd)[: len(odd) // 2].tolist())
    mask = np.zeros(n_units, dtype=np.bool_)
    for s, units in enumerate(members):
        packed = draw_fixed_size(rng, len(units), len(units) // 2 + (s in larger))
        mask[units] = np.unpackbits(packed, count=len(units)).view(np.bool_)
    return np.packbits(mask)


def _draw_columns(seed: int, m: int, n_units: int) -> Bits:
    """Draw for every unit a uniform set of m/2 subset numbers, block by block of units."""
    bits = np.empty((m, -(-n_units // 8)), dtype=np.uint8)
    for block, start in enumerate(range(0, n_units, _BLOCK_UNITS)):
        stop = min(start + _BLOCK_UNITS, n_units)
        rng = public_generator(seed, "pool", block)
        columns = _draw_balanced_columns(rng, m, stop - start)
        bits[:, start // 8 : -(-stop // 8)] = np.packbits(columns, axis=1)
    return bits


def _draw_balanced_columns(rng: np.random.Generator, m: int, width: int) -> npt.NDArray[np.uint8]:
    """Draw ``width`` independent uniform columns of m/2 ones and m/2 zeros.

    Fair bits first; then every column that is off flips uniformly chosen entries on its heavy
    side, one at a time, until it is even. As in :func:`draw_fixed_size` this is uniform.
    """
    packed = np.frombuffer(rng.bytes(-(-m * width // 8)), dtype=np.uint8)
    columns = np.unpackbits(packed, count=m * width).reshape(m, width)
    surplus = columns.sum(axis=0, dtype=np.int64) - m // 2
    active = np.flatnonzero(surplus)
    while active.size:
        row = rng.integers(0, m, size=active.size)
        heavy = surplus[active] > 0
        hit = columns[row, active] == heavy
        columns[row[hit], active[hit]] ^= 1
        surplus[active[hit]] -= np.where(heavy[hit], 1, -1)
        active = active[surplus[active] != 0]
    return columns
