"""A pool: candidate subsets as packed bits, as of :func:`numpy.packbits`; its units and strata."""

import hashlib
import math
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Vector, check_log_belief
from pacprivacy.errors import PoolError

MIN_UNITS: Final = 4
GROUP: Final = "group of rows"
SCHEMA_VERSION: Final = 2
_RUN: Final = 64  # units that follow each other: quicker together
_CHUNK_CELLS: Final = 2**21  # subset-unit cells unpacked at a time: bounds temporary memory

Mask = npt.NDArray[np.bool_]
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Pool:
    """Candidate subsets of the units, drawn by a strategy; one is secretly used.

    Row ``k`` of ``bits``, curator-only, is subset ``k`` in the layout of :func:`numpy.packbits`,
    with zero padding. ``prior`` is the best blind guess of one unit's membership before the pool is
    drawn, an upper bound where ``scheme`` has no closed form; given the pool see
    :meth:`priors`. Subsets ``r, r + m/k, r + 2m/k, ...`` leave out the ``k`` folds of one
    partition: two for halves and their complements, one where there is no such structure.
    ``row_units``, curator-only, numbers the unit of each row; None if every row is a unit.
    ``unit`` is ``record``, ``group of rows``, or the name of its column. No claim depends on the
    secrecy of the ``seed``. ``notes`` are further facts about the distribution for readers of the
    certificate.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> pool = pac.Balanced(n_subsets=8).draw(10, rng=0)
    >>> pool
    Pool(scheme='balanced', n_subsets=8, n_units=10, n_rows=10, prior=0.5)
    >>> pool.counts().tolist()
    [4, 4, 4, 4, 4, 4, 4, 4, 4, 4]
    """

    bits: Bits
    n_units: int
    scheme: str
    prior: float
    independent: bool
    folds: int
    row_units: npt.NDArray[np.integer[Any]] | None = None
    unit: str = ""
    seed: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        called = self.unit or ("record" if self.row_units is None else GROUP)
        object.__setattr__(self, "unit", called)
        object.__setattr__(self, "bits", _read_only(self.bits))
        if self.row_units is not None:
            object.__setattr__(self, "row_units", _read_only(self.row_units))
        _check_parts(self)

    def __repr__(self) -> str:
        return (
            f"Pool(scheme={self.scheme!r}, n_subsets={self.n_subsets}, n_units={self.n_units}, "
            f"n_rows={self.n_rows}, prior={self.prior:.6g})"
        )

    @property
    def n_subsets(self) -> int:
        """Number of candidate subsets."""
        return int(self.bits.shape[0])

    @property
    def n_rows(self) -> int:
        """Number of rows of the data; more than ``n_units`` when units are groups."""
        return self.n_units if self.row_units is None else len(self.row_units)

    def masks(self) -> Mask:
        """Return membership of every unit in every subset, shape (n_subsets, n_units)."""
        return np.unpackbits(self.bits, axis=1, count=self.n_units).view(np.bool_)

    def mask(self, k: int) -> Mask:
        """Return membership of every unit in subset ``k``, shape (n_units,)."""
        if not 0 <= k < self.n_subsets:
            raise PoolError(
                f"k must be a subset number from 0 to {self.n_subsets - 1}; got {k}. "
                "Subsets are counted from zero."
            )
        return np.unpackbits(self.bits[k], count=self.n_units).view(np.bool_)

    def row_mask(self, k: int) -> Mask:
        """Return membership of every row in subset ``k``, shape (n_rows,)."""
        mask = self.mask(k)
        return mask if self.row_units is None else mask[self.row_units]

    def rows(self, k: int) -> npt.NDArray[np.int64]:
        """Return the sorted row numbers of subset ``k``."""
        return np.flatnonzero(self.row_mask(k)).astype(np.int64, copy=False)

    def sizes(self) -> npt.NDArray[np.int64]:
        return np.array([popcount(row) for row in self.bits], dtype=np.int64)

    @property
    def share(self) -> float:
        """Average share of the units that a candidate contains."""
        return float(self.sizes().mean() / self.n_units)

    def counts(self) -> npt.NDArray[np.int32]:
        """Return the number of subsets that contain each unit, curator-only."""
        if self.folds > 1:
            m = self.n_subsets
            return np.full(self.n_units, m - m // self.folds, dtype=np.int32)
        counts = np.empty(self.n_units, dtype=np.int32)
        for (start, stop), chunk in zip(self._chunks(), self._count_chunks(), strict=True):
            counts[start:stop] = chunk
        return counts

    def priors(self, log_belief: Vector | None = None) -> Vector:
        """Return the best guess of each unit's membership, given the pool.

        Curator-only. It is ``max(Q, 1 - Q)`` with ``Q`` the believed probability that the unit is
        in; ``log_belief`` is up to a constant, and uniform when omitted.

        Guarantee
        ---------
        Claims P-1 and P-2. Assumes that the secret index follows the belief. No guess made without
        a release succeeds more often; exact up to floating-point rounding (exact to the last bit
        for a uniform belief and ``n_subsets`` a power of two).
        """
        if log_belief is None:
            counts = self.counts()
            return np.maximum(counts, self.n_subsets - counts) / self.n_subsets
        belief = np.exp(check_log_belief(log_belief, self.n_subsets))
        inside = np.empty(self.n_units)
        for start, stop in self._chunks():
            inside[start:stop] = belief @ self._unpack(start, stop).astype(np.float64)
        return np.minimum(np.maximum(inside, 1.0 - inside), 1.0)

    @property
    def worst_prior(self) -> float:
        """Largest of :meth:`priors` under a uniform index; ``1 - 1/k`` for pools of k folds."""
        m = self.n_subsets
        if self.folds > 1:
            return (m - m // self.folds) / m
        return max(int(np.maximum(c, m - c).max()) for c in self._count_chunks()) / m

    def inside(
        self,
        units: npt.NDArray[np.integer[Any]] | slice,
        subset: int | None = None,
        *,
        n_subsets: int | None = None,
    ) -> Bits:
        """Return 1 if a unit is in a subset: for all subsets, the first ``n_subsets``, or one."""
        if subset is not None:
            return self.mask(subset)[units].view(np.uint8)
        if isinstance(units, slice):
            return self._unpack(units.start, units.stop, n_subsets)
        ends = np.flatnonzero(np.diff(units.astype(np.int64, copy=False)) != 1) + 1
        if len(ends) * _RUN <= len(units) > _RUN:  # they come in long runs
            runs = zip((0, *ends.tolist()), (*ends.tolist(), len(units)), strict=True)
            spans = [(int(units[first]), int(units[last - 1]) + 1) for first, last in runs]
            return np.hstack([self._unpack(*span, n_subsets) for span in spans])
        shifts = (7 - (units & 7)).astype(np.uint8)
        bits: Bits = np.bitwise_and(self.bits[:n_subsets, units >> 3] >> shifts, np.uint8(1))
        return bits

    def rows_inside(self, start: int, stop: int) -> Bits:
        """Return 1 if rows ``start`` to ``stop - 1`` are in a subset, (n_subsets, width)."""
        if self.row_units is None:
            return self._unpack(start, stop)
        return self.inside(self.row_units[start:stop])

    def digest(self) -> str:
        """Return a fingerprint of the subsets and of the rows behind each unit."""
        digest = hashlib.blake2b(digest_size=32)
        digest.update(f"pool/{self.n_subsets}/{self.n_units}/{self.n_rows}/".encode())
        digest.update(self.bits.data)
        if self.row_units is not None:
            digest.update(b"/row_units/")
            digest.update(self.row_units.astype("<i8").data)
        return digest.hexdigest()

    def to_public_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "scheme": self.scheme,
            "n_subsets": self.n_subsets,
            "n_units": self.n_units,
            "unit": "one row" if self.unit == "record" else f"one {self.unit}",
            "prior": self.prior,
            "notes": list(self.notes),
        }

    def to_arrays(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the whole pool as arrays and plain metadata, curator-only.

        Both halves can be stored without pickle; :meth:`from_arrays` puts them together.
        """
        arrays: dict[str, npt.NDArray[Any]] = {"bits": self.bits}
        if self.row_units is not None:
            arrays["row_units"] = self.row_units
        metadata = {
            **self.to_public_dict(),
            "independent": self.independent,
            "folds": self.folds,
            # As text: other readers of JSON lose the digits of 128-bit integers.
            "seed": None if self.seed is None else str(self.seed),
            "digest": self.digest(),
        }
        return arrays, metadata

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> Self:
        """Rebuild the pool that :meth:`to_arrays` described; refuse one that was altered."""
        if metadata.get("schema_version") != SCHEMA_VERSION:
            raise PoolError(
                f"schema_version must be {SCHEMA_VERSION}; got "
                f"{metadata.get('schema_version')!r}. Read it with the version that wrote it."
            )
        seed = metadata["seed"]
        pool = cls(
            bits=np.asarray(arrays["bits"]),
            n_units=int(metadata["n_units"]),
            scheme=str(metadata["scheme"]),
            prior=float(metadata["prior"]),
            independent=bool(metadata["independent"]),
            folds=int(metadata["folds"]),
            row_units=np.asarray(arrays["row_units"]) if "row_units" in arrays else None,
            unit=str(metadata["unit"]).removeprefix("one row").removeprefix("one "),
            seed=None if seed is None else int(seed),
            notes=tuple(str(note) for note in metadata["notes"]),
        )
        if pool.digest() != metadata["digest"]:
            raise PoolError(
                "digest must match the stored subsets; got another one. "
                "The file is damaged or was altered: draw the pool again from its seed."
            )
        return pool

    def _unpack(self, start: int, stop: int, n_subsets: int | None = None) -> Bits:
        first = start // 8
        packed = self.bits[:n_subsets, first : -(-stop // 8)]
        return np.unpackbits(packed, axis=1)[:, start - 8 * first : stop - 8 * first]

    def _count_chunks(self) -> Iterator[npt.NDArray[np.int32]]:
        for start, stop in self._chunks():
            yield self._unpack(start, stop).sum(axis=0, dtype=np.int32)

    def _chunks(self) -> Iterator[tuple[int, int]]:
        width = max(8, _CHUNK_CELLS // self.n_subsets // 8 * 8)
        for start in range(0, self.n_units, width):
            yield start, min(start + width, self.n_units)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _check_parts(pool: Pool) -> None:
    bits, n_units = pool.bits, pool.n_units
    if n_units < MIN_UNITS:
        raise PoolError(
            f"n_units must be at least {MIN_UNITS}; got {n_units}. With fewer units there is "
            "nobody to hide among: collect more, or use a smaller unit."
        )
    if bits.dtype != np.uint8 or bits.ndim != 2 or bits.shape[1] != -(-n_units // 8):
        raise PoolError(
            f"bits must be uint8 of shape (n_subsets, {-(-n_units // 8)}); got {bits.dtype} of "
            f"shape {bits.shape}. Pack masks with numpy.packbits(masks, axis=1)."
        )
    if pool.folds < 1 or pool.n_subsets < 2 or pool.n_subsets % pool.folds:
        raise PoolError(
            "bits must hold at least two subsets, a multiple of the number of folds; got "
            f"{pool.n_subsets} subsets and {pool.folds} folds. Draw a larger pool."
        )
    if np.any(bits[:, -1] & pool_padding(n_units)):
        raise PoolError(
            "bits must be zero beyond the last unit; got padding bits that are set. "
            "Pack masks with numpy.packbits(masks, axis=1)."
        )
    if pool.folds > 1 and not _leaves_folds_out(pool):
        raise PoolError(
            f"folds must be {pool.folds} only when subsets r, r + m/{pool.folds}, ... leave out "
            "disjoint folds that cover every unit; got other subsets. Pass folds=1."
        )
    if not (math.isfinite(pool.prior) and 0.5 <= pool.prior <= 1.0):
        raise PoolError(f"prior must be between 0.5 and 1; got {pool.prior}. Use max(p, 1 - p).")
    row_units = pool.row_units
    if row_units is not None and not _numbers_every_unit(row_units, n_units):
        raise PoolError(
            f"row_units must number every unit from 0 to {n_units - 1} at least once; got "
            f"{row_units.dtype} of shape {row_units.shape}. Let a strategy encode the units."
        )


def _leaves_folds_out(pool: Pool) -> bool:
    """Whether the folds of every partition are disjoint and cover all units."""
    n_parts = pool.n_subsets // pool.folds
    for part in range(n_parts):
        left_out = np.zeros_like(pool.bits[0])
        for row in pool.bits[part::n_parts]:
            fold = pool_complement(row, pool.n_units)
            if np.any(left_out & fold):
                return False
            left_out |= fold
        if popcount(left_out) != pool.n_units:
            return False
    return True


def _numbers_every_unit(row_units: npt.NDArray[np.integer[Any]], n_units: int) -> bool:
    if row_units.ndim != 1 or not np.issubdtype(row_units.dtype, np.integer):
        return False
    if len(row_units) < n_units or row_units.min() < 0 or row_units.max() >= n_units:
        return False
    return bool(np.bincount(row_units, minlength=n_units).all())


Codes = npt.NDArray[np.int32]


class Named(np.ndarray[Any, Any]):
    """Labels that know the name of their column."""

    name = ""


def named_pool_units(labels: npt.ArrayLike, name: str) -> Named:
    """Return labels of units with the name of their column."""
    named = np.asarray(labels).view(Named)
    named.name = name
    return named


def pool_unit_name(column: str) -> str:
    """Return the name of a unit, from the column of its labels or the key of its table.

    ``patient`` for ``Patient_ID``, ``visits.patient_id`` and ``patients.id``; empty where the name
    says nothing, as ``id``, or is no word.
    """
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", column).lower().strip()
    table, dot, key = words.partition(".")
    if dot and re.fullmatch(r"[a-z][a-z _-]{1,30}?[ _-]+(ids?|key)", key):
        words = key
    elif dot:
        words = re.sub(r"(?<=[^s])s$", "", re.sub(r"ies$", "y", table)).replace("people", "person")
    match = re.fullmatch(r"([a-z][a-z _-]{1,30}?)([ _-]+(ids?|nr|no|number|key|code))?", words)
    name = "" if match is None else re.sub(r"[ _-]+", " ", match[1])
    return "" if name in ("id", "none", "unit", "units", "index") else name


def resolve_pool_units(n_records: int, units: npt.ArrayLike | None) -> tuple[int, Codes | None]:
    try:
        n_records = operator.index(n_records)
    except TypeError:
        raise PoolError(
            f"n_records must be an integer; got {type(n_records).__name__}. "
            "Pass the number of rows, len(data)."
        ) from None
    if not 0 <= n_records < 2**31:
        raise PoolError(
            f"n_records must be between {MIN_UNITS} and 2**31 - 1; got {n_records}. "
            "Pass the number of rows, len(data)."
        )
    if units is None:
        codes, n_units = None, n_records
    else:
        codes, n_units = encode_pool_labels(units, n_records, name="units")
    if n_units < MIN_UNITS:
        what = "records" if units is None else "distinct units"
        raise PoolError(
            f"the number of {what} must be at least {MIN_UNITS}; got {n_units}. With fewer "
            "there is nobody to hide among: collect more, or use a smaller unit."
        )
    return n_units, codes


def resolve_pool_strata(
    strata: npt.ArrayLike | None, n_records: int, row_units: Codes | None, *, wanted_by: str
) -> Codes:
    if strata is None:
        raise PoolError(
            f"strata must be given for {wanted_by}; got None. "
            "Pass one label per record, or switch the option off."
        )
    codes, n_strata = encode_pool_labels(strata, n_records, name="strata")
    if row_units is not None:
        by_unit = np.zeros(int(row_units.max()) + 1, dtype=np.int32)
        by_unit[row_units] = codes
        if not np.array_equal(by_unit[row_units], codes):
            raise PoolError(
                "strata must be constant within a unit; got a unit with two labels. "
                "Give each unit one label, for example that of most of its rows."
            )
        codes = by_unit
    if np.bincount(codes, minlength=n_strata).min() < 2:
        raise PoolError(
            f"strata must have at least two units of every label for {wanted_by}; got a label "
            "with one. That unit could not be hidden: merge rare labels, or switch the option off."
        )
    return codes


def encode_pool_labels(labels: npt.ArrayLike, n_records: int, *, name: str) -> tuple[Codes, int]:
    """Replace labels by numbers in order of first appearance; refuse missing labels.

    The order of first appearance is the same whatever container the labels came in, so a
    pool does not change when the data move from one library to another.
    """
    if np.ma.is_masked(labels):
        raise _missing(name)
    values = np.asarray(labels)
    if values.ndim != 1:
        raise PoolError(
            f"{name} must be one-dimensional; got shape {values.shape}. Pass one label per record."
        )
    if len(values) != n_records:
        raise PoolError(
            f"{name} must have one entry per record; got {len(values)} entries for {n_records} "
            "records. Pass one label per row, in the order of the rows."
        )
    if values.dtype.kind not in "biufcmMSU":
        return _encode_objects(values.astype(object), name)
    if bool((values != values).any()):  # NaN and NaT differ from themselves
        raise _missing(name)
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse], len(first)


def _encode_objects(values: npt.NDArray[Any], name: str) -> tuple[Codes, int]:
    numbers: dict[Any, int] = {}
    codes = np.empty(len(values), dtype=np.int32)
    for i, label in enumerate(values):
        if _is_missing(label):
            raise _missing(name)
        try:
            codes[i] = numbers.setdefault(label, len(numbers))
        except TypeError:
            raise PoolError(
                f"{name} must have hashable labels; got {type(label).__name__}. "
                "Use strings or integers."
            ) from None
    return codes, len(numbers)


def _is_missing(label: object) -> bool:
    if label is None:
        return True
    try:
        return bool(label != label)
    except (TypeError, ValueError):  # pandas.NA refuses to be a truth value
        return True


def _missing(name: str) -> PoolError:
    return PoolError(
        f"{name} must have no missing labels; got at least one. "
        "Drop those rows, or give each of them a label of its own."
    )
