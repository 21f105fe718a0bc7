"""Public distributions that pools are drawn from.

A strategy says how subsets are drawn; the draw of a seed is part of its definition. Units, strata
and seeds are handled alike for all of them in ``draw``; a strategy adds its own bits and law.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import as_told
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.errors import PoolError
from pacprivacy.sample.pool import (
    Bits,
    Codes,
    Pool,
    draw_pool_bits,
    pool_complement,
    pool_unit_name,
    resolve_pool_strata,
    resolve_pool_units,
)

DEFAULT_SUBSETS: Final = 256
MOST_SUBSETS: Final = 1 << 20
MIN_OUTSIDE: Final = 100  # subsets that a unit should be out of
MAX_TRIES: Final = 1000  # redraws of one subset before a conditioned strategy gives up
_BLOCK_UNITS: Final = 4096  # a multiple of 8; part of the definition of what a seed draws

_BLOCK_UNITS_POISSON: Final = 65536
_NOT_EMPTY_NOTE: Final = "Every subset is conditioned on not being empty: an empty one is redrawn."

_EVERY_CLASS_NOTE: Final = (
    "Every subset is conditioned on holding at least one unit of every class: "
    "a subset without is redrawn as a whole."
)


def _check_n_subsets(n_subsets: object, *, folds: int = 1) -> None:
    """Refuse a number of subsets that no pool can have; ``None`` passes."""
    if n_subsets is None:
        return
    whole = isinstance(n_subsets, (int, np.integer)) and not isinstance(n_subsets, bool)
    if not whole or n_subsets < 2 or n_subsets % folds:  # type: ignore[operator]
        kinds = {1: "an integer", 2: "an even integer"}
        kind = kinds.get(folds, f"a multiple of folds={folds} and an integer")
        raise PoolError(
            f"n_subsets must be {kind} of at least 2; got {as_told(n_subsets)}. "
            f"Use {-(-256 // folds) * folds}, or more when the mechanism is cheap."
        )
    if n_subsets > MOST_SUBSETS:  # type: ignore[operator]
        raise PoolError(f"n_subsets must be at most {MOST_SUBSETS:,}; got {n_subsets:,}. Use 2000.")


class _Law(NamedTuple):
    """Packed subsets, and the public facts of their distribution; as in :class:`Pool`."""

    bits: Bits
    scheme: str
    prior: float
    independent: bool = True
    folds: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStrategy(ABC):
    """Draws pools: :class:`Balanced`, :class:`Half`, :class:`Poisson`."""

    n_subsets: int | None = None

    def __post_init__(self) -> None:
        _check_n_subsets(self.n_subsets)

    def with_subsets(self, n_subsets: int) -> Self:
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
            Needed for ``stratify`` and ``every_class``, otherwise ignored.
        """
        n_units, row_units = resolve_pool_units(n_records, units)
        wanted_by, labels = self._wants_strata(), None
        if wanted_by:
            labels = resolve_pool_strata(strata, n_records, row_units, wanted_by=wanted_by)
        seed = coerce_seed(rng)
        law = self._law(seed, self.n_subsets or DEFAULT_SUBSETS, n_units, labels)
        return Pool(
            bits=law.bits,
            n_units=n_units,
            scheme=law.scheme,
            prior=law.prior,
            independent=law.independent,
            folds=law.folds,
            row_units=row_units,
            unit=pool_unit_name(str(getattr(units, "name", ""))),
            seed=seed,
            notes=law.notes,
        )

    def _wants_strata(self) -> str:
        return ""

    @abstractmethod
    def _law(self, seed: int, m: int, n_units: int, labels: Codes | None) -> _Law:
        """Return the packed subsets and the public facts of their distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced(PoolStrategy):
    """Every unit in exactly the same share of the subsets: all but a fold, or halves.

    The default. The units are split at random into ``folds`` parts as equal as can be, and every
    subset leaves one of them out; ``n_subsets / folds`` splits make the pool. With two folds the
    subsets are random halves and their complements.

    Parameters
    ----------
    n_subsets : int >= 2, a multiple of ``folds``, optional
        Number of subsets; 256, or the next multiple, when nothing else decides.
    independent : bool
        Draw for every unit its own random half of the subsets, instead of complementary
        pairs of subsets. Sizes then vary around half the units.
    stratify : bool
        Every label in ``strata`` is spread over the folds as evenly as can be: every subset
        takes the same share of its units, give or take one. A label with fewer units than there
        are folds is missing from some folds, and from no subset.
    folds : int >= 2 or "auto"
        More folds leave out fewer units, which often needs less noise; a unit is then out of
        ``n_subsets / folds`` subsets only, which should stay at 100 or more. ``"auto"`` lets the
        run predict the best number from the universe when membership is limited, and means two
        otherwise.

    Notes
    -----
    Folds differ by at most one unit when ``folds`` does not divide the number of units, and by
    more rows when units have several. A unit's share of the subsets does not depend on that; what
    the size of a subset shows is part of its output, and counted there.

    Guarantee
    ---------
    Claims P-1 and P-3. Every unit is in exactly ``n_subsets (1 - 1/folds)`` subsets, so that it is
    used with probability ``1 - 1/folds``, also in the eyes of an attacker who knows the pool.

    Examples
    --------
    >>> pool = Balanced(n_subsets=64).draw(150, rng=0)
    >>> set(pool.sizes().tolist()), set(pool.counts().tolist()), pool.worst_prior
    ({75}, {32}, 0.5)
    >>> pool = Balanced(n_subsets=60, folds=10).draw(150, rng=0)
    >>> set(pool.sizes().tolist()), set(pool.counts().tolist()), pool.worst_prior
    ({135}, {54}, 0.9)
    """

    independent: bool = False
    stratify: bool = False
    folds: int | Literal["auto"] = 2

    def __post_init__(self) -> None:
        _check_n_subsets(self.n_subsets, folds=self._check_folds())
        if self.independent and self.stratify:
            raise PoolError(
                "stratify must be False when independent=True; got True. "
                "Units that choose their subsets on their own cannot be stratified: drop one."
            )

    def _check_folds(self) -> int:
        """Return the required divisor of the number of subsets."""
        if self.folds == "auto":
            return 2
        whole = np.issubdtype(type(self.folds), np.integer)
        if not whole or self.folds < 2 or (self.independent and self.folds != 2):
            raise PoolError(
                "folds must be an integer of at least 2, or 'auto', and 2 when independent=True; "
                f"got {self.folds!r}. Use 2 for halves, 10 to leave out a tenth."
            )
        return self.folds

    def _wants_strata(self) -> str:
        return "stratify=True" if self.stratify else ""

    def _law(self, seed: int, m: int, n_units: int, labels: Codes | None) -> _Law:
        if self.folds == "auto":
            raise PoolError(
                "folds must be a number to draw a pool by hand; got 'auto', which needs a "
                "mechanism and a budget. Hand it to privatize or Session, or say folds=10."
            )
        folds, scheme = self.folds, "balanced"
        if folds > n_units:
            raise PoolError(
                f"folds must be at most the number of units, {n_units}; got {folds}. "
                "A fold without a unit hides nobody: use fewer folds."
            )
        m = -(-m // folds) * folds  # only a default number of subsets is not a multiple already
        if self.independent:
            scheme, bits = "balanced-independent", _draw_columns(seed, m, n_units)
        elif folds == 2:
            bits = _draw_pairs(seed, m, n_units, labels)
        else:
            bits = _draw_folds(seed, m, folds, n_units, labels)
        scheme += "-stratified" if self.stratify else ""
        scheme += f"({folds} folds)" if folds > 2 else ""
        prior, structure = (folds - 1) / folds, 1 if self.independent else folds
        return _Law(bits, scheme, prior, independent=False, folds=structure)


def strategy_fold_choices(n_subsets: int, n_records: int, units: npt.ArrayLike | None) -> list[int]:
    """Return numbers of folds worth comparing: two, and others with 100 subsets for each fold.

    Each divides the number of subsets and is at most half of the next.
    """
    n_units, _ = resolve_pool_units(n_records, units)
    largest = min(n_subsets // MIN_OUTSIDE, n_units)
    folds: list[int] = []
    for k in range(largest, 2, -1):
        if n_subsets % k == 0 and (not folds or 2 * k <= folds[-1]):
            folds.append(k)
    return [2, *reversed(folds)]


def _draw_folds(seed: int, m: int, k: int, n_units: int, labels: Codes | None) -> Bits:
    """Draw m/k partitions into k folds; number ``j m/k + r`` is all but fold j of partition r.

    Strata, in random order, are dealt to the folds one after the other: within a stratum and
    over all units the folds differ by at most one.
    """
    members = None if labels is None else _members(labels)
    n_parts = m // k
    bits = np.empty((m, -(-n_units // 8)), dtype=np.uint8)
    dealt = (np.arange(n_units) % k).astype(np.min_scalar_type(k))
    for r in range(n_parts):
        rng = public_generator(seed, "pool", r)
        if members is None:
            fold_of = dealt.copy()
            rng.shuffle(fold_of)
        else:
            order = [rng.permutation(members[s]) for s in rng.permutation(len(members))]
            fold_of = np.empty_like(dealt)
            fold_of[np.concatenate(order)] = dealt
        for j in range(k):
            bits[j * n_parts + r] = np.packbits(fold_of != j)
    return bits


def _draw_pairs(seed: int, m: int, n_units: int, labels: Codes | None) -> Bits:
    """Draw m/2 halves, and put the complement of number k at k + m/2."""
    members = None if labels is None else _members(labels)
    bits = np.empty((m, -(-n_units // 8)), dtype=np.uint8)
    for k in range(m // 2):
        rng = public_generator(seed, "pool", k)
        if members is None:
            bits[k] = draw_pool_bits(rng, n_units, n_units // 2)
        else:
            bits[k] = _draw_stratified(rng, n_units, members)
        bits[k + m // 2] = pool_complement(bits[k], n_units)
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
        packed = draw_pool_bits(rng, len(units), len(units) // 2 + (s in larger))
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
    side, one at a time, until it is even. As in :func:`draw_pool_bits` this is uniform.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Half(PoolStrategy):
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

    Guarantee
    ---------
    Claim P-2. Before the pool is drawn every unit is in with probability ``floor(n/2)/n``; with
    ``every_class`` ``Pool.prior`` is an upper bound.

    Examples
    --------
    >>> pool = Half(n_subsets=64).draw(150, rng=0)
    >>> set(pool.sizes().tolist()), pool.worst_prior > 0.5
    ({75}, True)
    """

    every_class: bool = False

    def _wants_strata(self) -> str:
        return "every_class=True" if self.every_class else ""

    def _law(self, seed: int, m: int, n_units: int, labels: Codes | None) -> _Law:
        bits = np.empty((m, -(-n_units // 8)), dtype=np.uint8)
        for k in range(m):
            bits[k] = _draw_half(public_generator(seed, "pool", k), n_units, labels)
        if labels is None:
            return _Law(bits, "half", _prior(n_units, labels))
        return _Law(bits, "half-every-class", _prior(n_units, labels), notes=(_EVERY_CLASS_NOTE,))


def _draw_half(rng: np.random.Generator, n_units: int, classes: Codes | None) -> Bits:
    if classes is None:
        return draw_pool_bits(rng, n_units, n_units // 2)
    n_classes = int(classes.max()) + 1
    for _ in range(MAX_TRIES):
        packed = draw_pool_bits(rng, n_units, n_units // 2)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(PoolStrategy):
    """Each unit in each subset independently with probability ``rate``.

    Parameters
    ----------
    n_subsets : int >= 2, optional
        Number of subsets; 256 when nothing else decides.
    rate : float in (0, 1)
        Probability that a unit is in a subset. An empty subset is redrawn.

    Guarantee
    ---------
    Claim P-2. Before the pool is drawn every unit is in with probability
    ``rate / (1 - (1 - rate)**n)``: the condition that no subset is empty is counted.

    Examples
    --------
    >>> pool = Poisson(n_subsets=64, rate=0.25).draw(150, rng=0)
    >>> pool.prior
    0.75
    """

    rate: float = 0.5

    def __post_init__(self) -> None:
        _check_n_subsets(self.n_subsets)
        number = isinstance(self.rate, (int, float, np.floating))
        if not number or not 0.0 < self.rate < 1.0:
            raise PoolError(
                f"rate must be strictly between 0 and 1; got {as_told(self.rate)}. "
                "Use 0.5 for the smallest prior."
            )

    def _law(self, seed: int, m: int, n_units: int, labels: Codes | None) -> _Law:
        rate = float(self.rate)
        bits = np.empty((m, -(-n_units // 8)), dtype=np.uint8)
        for k in range(m):
            _fill_coins(bits[k], public_generator(seed, "pool", k), n_units, rate)
        inside = min(1.0, rate / -math.expm1(n_units * math.log1p(-rate)))
        scheme = f"poisson({rate:.12g})"
        return _Law(bits, scheme, max(inside, 1.0 - inside), notes=(_NOT_EMPTY_NOTE,))


def _fill_coins(packed: Bits, rng: np.random.Generator, n_units: int, rate: float) -> None:
    for _ in range(MAX_TRIES):
        for start in range(0, n_units, _BLOCK_UNITS_POISSON):
            coins = rng.random(min(_BLOCK_UNITS_POISSON, n_units - start)) < rate
            packed[start // 8 : -(-(start + len(coins)) // 8)] = np.packbits(coins)
        if packed.any():
            return
    raise PoolError(
        f"rate must be large enough for a non-empty subset within {MAX_TRIES} tries; got "
        f"{rate} for {n_units} units. Use a rate of at least 1/{n_units}."
    )
