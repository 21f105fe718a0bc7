"""Independent uniform halves of the units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.errors import PoolError
from pacprivacy.pool.bits import Bits, draw_fixed_size
from pacprivacy.pool.pool import Pool
from pacprivacy.pool.strategy import DEFAULT_SUBSETS, MAX_TRIES, check_n_subsets
from pacprivacy.pool.units import Codes, resolve_strata, resolve_units

__all__ = ["Half"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """Independent uniform subsets of half the units.

    The distribution of the papers. Once the pool is known, some units are in more than half
    of the subsets: see :meth:`Pool.priors`; :class:`Balanced` has no such units.

    Parameters
    ----------
    n_subsets : int >= 2, optional
        Number of subsets; 256 when nothing else decides.
    every_class : bool
        Condition every subset on holding at least one unit of every label in ``strata``,
        by redrawing whole subsets. The condition is part of the public distribution.

    Examples
    --------
    >>> pool = Half(n_subsets=64).draw(150, rng=0)
    >>> set(pool.sizes().tolist()), pool.worst_prior > 0.5
    ({75}, True)
    """

    n_subsets: int | None = None
    every_class: bool = False

    def __post_init__(self) -> None:
        check_n_subsets(self.n_subsets)

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
            Needed when ``every_class``, otherwise ignored.

        Guarantee
        ---------
        Claim P-2. Before the pool is drawn every unit is in with probability
        ``floor(n/2)/n``; with ``every_class`` ``Pool.prior`` is an upper bound.
        """
        n_units, row_units = resolve_units(n_records, units)
        classes = None
        if self.every_class:
            classes = resolve_strata(strata, n_records, row_units, wanted_by="every_class=True")
        m = self.n_subsets or DEFAULT_SUBSETS
        seed = coerce_seed(rng)
        bits = np.empty((m, -(-n_units // 8)), dtype=np.uint8)
        for k in range(m):
            stream = public_generator(seed, "pool", k)
            bits[k] = _draw_half(stream, n_units, classes)
        return Pool(
            bits=bits,
            n_units=n_units,
            scheme="half-every-class" if self.every_class else "half",
            prior=_prior(n_units, classes),
            independent=True,
            complement_pairs=False,
            row_units=row_units,
            seed=seed,
            notes=() if classes is None else (_EVERY_CLASS_NOTE,),
        )


_EVERY_CLASS_NOTE: Final = (
    "Every subset is conditioned on holding at least one unit of every class: "
    "a subset without is redrawn as a whole."
)


def _draw_half(rng: np.random.Generator, n_units: int, classes: Codes | None) -> Bits:
    if classes is None:
        return draw_fixed_size(rng, n_units, n_units // 2)
    n_classes = int(classes.max()) + 1
    for _ in range(MAX_TRIES):
        packed = draw_fixed_size(rng, n_units, n_units // 2)
        present = np.zeros(n_classes, dtype=np.bool_)
        present[classes[np.unpackbits(packed, count=n_units).view(np.bool_)]] = True
        if present.all():
            return packed
    raise PoolError(
        f"every_class must be attainable within {MAX_TRIES} tries per subset; got none that "
        f"held all {n_classes} classes. Merge rare classes, or use Balanced(stratify=True)."
    )


def _prior(n_units: int, classes: Codes | None) -> float:
    """Bound the best blind guess of one unit's membership before the pool is drawn.

    Conditioning on an event of probability at least ``c`` multiplies no probability by more
    than ``1/c``; a class of size s is absent with probability at most ``(1 - size/n)**s``.
    """
    larger = (n_units + 1) // 2 / n_units
    if classes is None:
        return larger
    absent = float((larger ** np.bincount(classes).astype(np.float64)).sum())
    return min(1.0, larger / (1.0 - absent)) if absent < 1.0 else 1.0
