"""Mechanisms: the base class, functions as mechanisms, and wrappers.

A wrapper gives a mechanism a title, names and units of its columns, records without gaps, or the
rows of a file that it keeps. Names, centres and scales of columns are public, and the same for
every subset. Putting them back on released numbers is post-processing (claim M-1). Centres and
scales are too coarse to be facts about the records, unless those are asked for.
"""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers, Mask, Matrix, Vector, as_told
from pacprivacy._rounding import power_of_two
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.columns import fill_column_means, list_columns
from pacprivacy.mechanism.data import Data, Parts, Value
from pacprivacy.sample import Pool

Batch = Callable[[Data, Pool], npt.NDArray[np.float64]]
Codes: TypeAlias = Integers  # the number of the unit of every row
Influence = Callable[[Data, Codes, Mask], Matrix]
Named: TypeAlias = dict[str, Any]  # a value, with the names of its columns
AppliedModel: TypeAlias = Mapping[str, Any]  # how a value is applied to new rows, as JSON types
Totals = Literal["sum", "count"] | tuple[str, ...]  # of all numbers, or the names of those
LONGEST_TITLE: Final = 200
FILLED_GAPS: Final = "gaps are filled by means of whoever is used"
FLAT: Final = 1e-12  # a spread below this share of the column's size is rounding error


class Mechanism(ABC):
    """A deterministic function of a candidate, once its public generator is fixed.

    A subclass defines :meth:`evaluate`. Everything else has a default, which a method, a property,
    a field or a class attribute (``own_units = True``) replaces. A mechanism around another one has
    it as ``inner``, and answers as that one does wherever it says nothing itself.
    """

    __slots__ = ()

    @property
    def inner(self) -> Mechanism | None:
        """The mechanism that this one is built around, if any."""
        return None

    @property
    def name(self) -> str:
        """Name shown in the certificate (public)."""
        return type(self).__name__ if self.inner is None else self.inner.name

    @property
    def public(self) -> tuple[str, ...]:
        """Options that were declared or computed from all records, for the certificate."""
        return () if self.inner is None else self.inner.public

    @property
    def published(self) -> tuple[str, ...]:
        """Facts of all records in the value: class labels, and the curator's choices."""
        return () if self.inner is None else self.inner.published

    @property
    def model(self) -> AppliedModel | None:
        """Public data that applying the released value to new rows needs, as JSON."""
        return None if self.inner is None else self.inner.model

    @property
    def totals(self) -> Totals | None:
        """Numbers that are sums or counts over rows: all, or a tuple of names.

        Those of a candidate are divided by its share of the units, so that the release is an
        estimate for all records; counts are rounded.
        """
        return None if self.inner is None else self.inner.totals

    @property
    def own_units(self) -> bool:
        """Whether numbers are of several kinds: noise is then shaped to the spread of each."""
        return self.inner is not None and self.inner.own_units

    @property
    def prefer(self) -> str | None:
        """How joblib runs candidates: in "threads", "processes", or as it chooses."""
        return None if self.inner is None else self.inner.prefer

    def prepare(self, data: Data) -> Mechanism:
        """Return the mechanism to run, fixed with all records if needed."""
        return self

    def reading_by_entry(self) -> Mechanism:
        """Return the mechanism that hides presence: no refusal of it depends on an entry."""
        return self

    @abstractmethod
    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        """Return the value for one candidate; ``parts`` may be written to."""

    @property
    def batch(self) -> Batch | None:
        """The method that evaluates all candidates at once; None: one by one.

        A subclass writes ``def batch(self, data, pool)``, which returns the flattened values,
        shape (m, d), usually by matrix products; or a property, where only some instances can.
        """
        return None

    @property
    def by_subset(self) -> bool:
        """Whether the work grows with the number of candidates."""
        return self.batch is None or (self.inner is not None and self.inner.by_subset)

    def inner_records(self, data: Data, units: Codes | None) -> tuple[Data, Codes | None]:
        """Return the records of the mechanism inside, and the unit of each."""
        return data, units

    @property
    def influence(self) -> Influence | None:
        """Method for the influence of every unit; None: not known.

        Coins (:class:`pacprivacy.sample.Coins`) need it of a statistic that is no function of sums.
        A subclass writes ``def influence(self, data, units, inside)``: ``units`` numbers the unit
        of every row, ``inside`` says which units are used. Line ``i`` of the result, shape (units,
        numbers), is the value with unit ``i`` less that without it, among the others that are used,
        whether it is one of them or not; NaN where either is not defined.
        :func:`pacprivacy.check_influence` compares it with leaving units out.
        """
        return None

    def coin_obstacle(self) -> str | None:
        """Return why coins are not possible, to follow "because"; None if they are.

        Called for mechanisms that state contributions or influence, and for wrappers around them;
        others have no coins anyway.
        """
        return None

    def finish(self, value: Value) -> Value:
        """Post-process a *released* value; sees nothing else, so it costs no privacy."""
        return value


def mechanism_layers(mechanism: Mechanism | None) -> Iterator[Mechanism]:
    """Yield a mechanism and those inside it, from outside in."""
    while mechanism is not None:
        yield mechanism
        mechanism = mechanism.inner


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismWrapper(Mechanism):
    """A mechanism around another one, on the same records."""

    inner: Mechanism = field()

    def prepare(self, data: Data) -> Self:
        return replace(self, inner=self.inner.prepare(data))

    def reading_by_entry(self) -> Self:
        return replace(self, inner=self.inner.reading_by_entry())

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        return self.inner.evaluate(parts, rng)

    @property
    def batch(self) -> Batch | None:
        return self.inner.batch

    @property
    def influence(self) -> Influence | None:
        return self.inner.influence

    def finish(self, value: Value) -> Value:
        return self.inner.finish(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMechanism(Mechanism):
    """A user's function of the parts of a subset; with ``takes_rng``, and of a public generator."""

    function: Callable[..., Any]
    name: str = field()
    takes_rng: bool

    def prepare(self, data: Data) -> Self:
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # written in C, without a signature
            return self
        try:
            signature.bind(*data.parts, **({"rng": None} if self.takes_rng else {}))
        except TypeError:
            n_parts = len(data.parts)
            call = "f(data)" if n_parts == 1 else f"f({', '.join('XyabcdeZ'[:n_parts])})"
            raise MechanismError(
                f"the function must take {n_parts} argument{'s' * (n_parts != 1)}, one for each "
                f"part of the data; got {self.name[:60]}{str(signature)[:60]}. Write {call}."
            ) from None
        return self

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        return self.function(*parts, rng=rng) if self.takes_rng else self.function(*parts)

    @property
    def totals(self) -> Totals | None:
        function: Any = self.function
        options: Mapping[str, Any] = {}
        if isinstance(function, functools.partial) and not function.args:
            function, options = function.func, function.keywords
        if any(name != "axis" or value not in (None, 0) for name, value in options.items()):
            return None
        method = str(getattr(function, "__qualname__", "")).partition(".")
        if str(getattr(function, "__module__", "")).startswith(("pandas.", "polars.")):
            frame = method[0] in ("DataFrame", "Series")
            return _FRAME_TOTALS.get(method[2]) if frame else None
        return next((kind for known, kind in _TOTALS if known is function), None)


_TOTALS: Final[tuple[tuple[Any, Totals], ...]] = (
    *((function, "sum") for function in (np.sum, np.nansum, sum, math.fsum)),
    *((function, "count") for function in (len, np.size, np.count_nonzero)),
)
_FRAME_TOTALS: Final[Mapping[str, Totals]] = {"sum": "sum", "count": "count"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Titled(MechanismWrapper):
    """A mechanism under a name that the user has given."""

    title: str

    @property
    def name(self) -> str:
        return f"{self.title} ({self.inner.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithTotals(MechanismWrapper):
    """A mechanism with declared totals."""

    declared: Totals | None

    @property
    def totals(self) -> Totals | None:
        return self.declared


def titled_mechanism(mechanism: Any, title: Any) -> Any:
    """Return the mechanism with the name of the release; None changes nothing."""
    if title is None:
        return mechanism
    if not isinstance(title, str) or not title.strip() or len(title) > LONGEST_TITLE:
        raise MechanismError(
            f"name must be a text of 1 to {LONGEST_TITLE} characters; got {as_told(title)}. "
            "Say in a few words what is released."
        )
    return _Titled(inner=as_mechanism(mechanism), title=title)


def mechanism_with_totals(mechanism: Any, totals: Any) -> Any:
    """Return a mechanism with declared totals: all, none or names; None changes nothing."""
    if totals is None:
        return mechanism
    if isinstance(totals, bool):
        return _WithTotals(inner=as_mechanism(mechanism), declared="sum" if totals else None)
    names = (totals,) if isinstance(totals, str) else totals
    listed = tuple(names) if isinstance(names, tuple | list) else ()
    if listed and all(isinstance(name, str) and name for name in listed):
        return _WithTotals(inner=as_mechanism(mechanism), declared=listed)
    raise MechanismError(
        f"totals must be True, False or names of numbers; got {type(totals).__name__}. Write "
        "totals=True where all numbers are sums or counts over the records."
    )


def as_mechanism(obj: Any) -> Mechanism:
    """Return a mechanism for a function, or the object itself when it is one already.

    A function is ``f(data)`` or ``f(X, y)`` of a subset. If it has a parameter called ``rng`` it
    receives a ``numpy.random.Generator`` with a public seed of the subset's own.
    """
    if isinstance(obj, type) and hasattr(obj, "evaluate"):
        raise MechanismError(
            f"mechanism must be an instance; got the class {obj.__name__}. "
            f"Write {obj.__name__}() with brackets."
        )
    if isinstance(obj, Mechanism):
        if not isinstance(obj.name, str):
            raise MechanismError(
                f"name must be a string; got {type(obj.name).__name__}. "
                f"Give {type(obj).__name__} a name for the certificate."
            )
        return obj
    if callable(obj):
        return FunctionMechanism(function=obj, name=_name_of(obj), takes_rng=_takes_rng(obj))
    kind = type(obj).__name__
    if hasattr(obj, "fit"):
        advice = f"Write a function such as: lambda X, y: {kind}(...).fit(X, y)."
    elif hasattr(obj, "evaluate"):
        advice = "Subclass pacprivacy.mechanism.Mechanism."
    else:
        advice = "Pass a function of the data, f(data) or f(X, y)."
    raise MechanismError(f"mechanism must be a function or a Mechanism; got {kind}. {advice}")


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return str(name or type(function).__name__).replace("<locals>.", "")


def _takes_rng(function: Any) -> bool:
    if isinstance(function, functools.partial) and "rng" in function.keywords:
        return False
    try:
        parameter = inspect.signature(function).parameters.get("rng")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )


# --- wrappers ---------------------------------------------------------------------------------


Scaling = Literal["none", "scale", "standardise"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MechanismScaling:
    """Names, centres and scales of columns, which it puts back on released values; public."""

    names: tuple[str, ...]
    centre: Vector
    scales: Vector
    exact: bool = False

    @classmethod
    def of(
        cls, names: tuple[str, ...], X: Matrix, scaling: Scaling, *, exact: bool = False
    ) -> Self:
        """Return the scaling of the columns to standard deviation 1.

        The noise rules make the *total* noise small: without a common scale it would exceed columns
        of small numbers. A constant column keeps its scale. Unless ``exact``, standard deviations
        are rounded up to powers of two, and means to eighths of them: both are published.
        """
        centre, scales = np.zeros(len(names)), np.ones(len(names))
        if scaling != "none":
            spread = X.std(axis=0)
            scales = np.where(spread > FLAT * np.abs(X).max(axis=0), spread, 1.0)
            scales = scales if exact else power_of_two(scales)
        if scaling == "standardise":
            centre = X.mean(axis=0)
            centre = centre if exact else np.rint(8 * centre / scales) * scales / 8
        return cls(names=names, centre=centre, scales=scales, exact=exact)

    @property
    def published(self) -> tuple[str, ...]:
        if not self.centre.any() and (self.scales == 1).all():
            return ()
        what, how = "standard deviations", "" if self.exact else ", rounded up to powers of two"
        if self.centre.any():
            what, how = f"{what} and means", how and f"{how} and to eighths of those"
        return (f"spread of the columns: {what} over all records{how}; units of the noise",)

    def plain(self, value: Value) -> Named:
        return {"columns": list(self.names), **value}

    def matrix(self, value: Value) -> Named:
        return self.plain({"matrix": value * np.outer(self.scales, self.scales)})

    def counts(self, value: Value) -> Named:
        return {
            name: {"edges": edges, "counts": counts}
            for name, edges, counts in zip(self.names, value["edges"], value["counts"], strict=True)
        }

    def centres(self, value: Value) -> Named:
        """Return points in the units of the file."""
        return self.plain({"centres": value * self.scales + self.centre})

    def components(self, value: Value) -> Named:
        """Return directions of the standardised columns, and the scaling."""
        mean = value["mean"] * self.scales + self.centre
        components, scales = value["components"], self.scales.copy()
        return self.plain({"components": components, "mean": mean, "scales": scales})

    def planes(self, value: Value) -> Named:
        """Return hyperplanes for columns as they are in the file."""
        coef = value["coef"] / self.scales
        intercept = value["intercept"] - coef @ self.centre
        return self.plain({"classes": value["classes"], "coef": coef, "intercept": intercept})


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMechanism(MechanismWrapper):
    """A mechanism whose released value has the names and units of the columns.

    ``describe`` is a method of the columns; ``declarations`` of levels and gaps were declared,
    ``facts`` read off all records; ``applied`` is :attr:`Mechanism.model`.
    """

    columns: MechanismScaling = field(repr=False, compare=False)
    describe: Callable[[MechanismScaling, Any], Named]
    declarations: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    applied: AppliedModel | None = field(default=None, repr=False, compare=False)

    @property
    def model(self) -> AppliedModel | None:
        return self.applied

    @property
    def name(self) -> str:
        return f"{self.inner.name} of {list_columns(self.columns.names)}"

    @property
    def public(self) -> tuple[str, ...]:
        return (*self.inner.public, *self.declarations)

    @property
    def published(self) -> tuple[str, ...]:
        return (*self.columns.published, *self.inner.published, *self.facts)

    def finish(self, value: Value) -> Named:
        return self.describe(self.columns, self.inner.finish(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledMechanism(MechanismWrapper):
    """Fill gaps by the means of the candidate's own rows, then compute on it."""

    def prepare(self, data: Data) -> Self:
        whole = np.flatnonzero(~np.isnan(data.parts[0]).any(axis=1))
        parts = data.take(whole)
        complete = Data(parts=parts, n_rows=len(whole), single=data.single)
        return replace(self, inner=self.inner.prepare(complete))

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        return self.inner.evaluate((fill_column_means(parts[0]), *parts[1:]), rng)

    @property
    def batch(self) -> None:
        return None

    @property
    def influence(self) -> None:
        return None

    def coin_obstacle(self) -> str:
        return FILLED_GAPS


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsMechanism(MechanismWrapper):
    """A mechanism on row numbers of a file; it looks up the rows that it keeps.

    Whether a row is kept depends on that row alone, so what is computed on a candidate depends on
    the candidate's rows alone, and nobody learns who was left out.

    Guarantee
    ---------
    Claim M-4. The value for a candidate is that of the inner mechanism on its kept rows.
    """

    records: Data = field(repr=False, compare=False)
    kept: Mask = field(repr=False, compare=False)

    def prepare(self, data: Data) -> Self:
        return replace(self, inner=self.inner.prepare(self.records))

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        rows = parts[0][self.kept[parts[0]]]
        return self.inner.evaluate(self.records.take((np.cumsum(self.kept) - 1)[rows]), rng)

    @property
    def batch(self) -> Batch | None:
        inner = self.inner.batch
        if inner is None:
            return None
        return lambda data, pool: inner(self.records, _among(pool, self.kept))

    @property
    def influence(self) -> None:
        return None

    def inner_records(self, data: Data, units: Codes | None) -> tuple[Data, Codes | None]:
        codes = np.arange(len(self.kept)) if units is None else units
        return self.records, codes[self.kept]


def _among(pool: Pool, kept: Mask) -> Pool:
    """Return the same candidates as subsets of the kept rows, each of which is its own unit."""
    if kept.all():
        return pool
    bits = np.stack([np.packbits(pool.row_mask(k)[kept]) for k in range(pool.n_subsets)])
    return replace(pool, bits=bits, n_units=int(kept.sum()), row_units=None)
