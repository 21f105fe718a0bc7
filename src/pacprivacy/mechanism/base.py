"""What is computed on every subset: the mechanism protocol and the wrapper for functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import Data
from pacprivacy.pool import Pool

Batch = Callable[[Data, Pool], npt.NDArray[np.float64]]
Fixed = TypeVar("Fixed")
LONGEST_TITLE: Final = 200


@runtime_checkable
class Mechanism(Protocol):
    """A deterministic function of a subset, once its public generator is fixed.

    Subclass it to inherit ``prepare`` and ``finish`` that do nothing. A mechanism that can
    evaluate all subsets at once has one more method, ``batch``; see :func:`batch_of`.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """Name shown in the certificate (public)."""
        ...

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe or declared, for the certificate."""
        return ()

    def prepare(self, data: Data) -> Mechanism:
        """Return the mechanism to run, fixed with the whole universe where it needs to be."""
        return self

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the value for one subset; ``parts`` may be written to."""
        ...

    def finish(self, value: Any) -> Any:
        """Post-process a *released* value; sees nothing else, so it costs no privacy."""
        return value


def batch_of(mechanism: Mechanism) -> Batch | None:
    """Return the mechanism's ``batch``, or None where it is evaluated subset by subset.

    ``batch(data, pool)`` is an optional method: the flattened values of all subsets at once,
    shape (m, d), usually by matrix products.
    """
    found: Batch | None = getattr(mechanism, "batch", None)
    return found


def totals_of(mechanism: Mechanism) -> Literal["sum", "count"] | None:
    """Return whether a mechanism's numbers are sums or counts over rows: an optional property.

    Those of a candidate are divided by its share of the units, so that the release is an estimate
    for all records; counts are rounded.
    """
    found: Literal["sum", "count"] | None = getattr(mechanism, "totals", None)
    return found


def published_of(mechanism: Mechanism) -> tuple[str, ...]:
    """Return the exact facts of the universe that the value shows: an optional property.

    ``published`` names class labels, and whatever the curator has let out on purpose.
    """
    found: tuple[str, ...] = getattr(mechanism, "published", ())
    return found


def fixed(value: Fixed | None, name: str) -> Fixed:
    """Return what ``prepare`` has fixed; refuse a mechanism that was not prepared."""
    if value is None:
        raise MechanismError(
            f"{name} must be fixed before a subset is evaluated; got None. "
            "Call prepare(data) with the whole universe first."
        )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper(Mechanism):
    """A mechanism around another one: what it does not change, it hands on.

    Parameters
    ----------
    inner : Mechanism, public
        What is computed.
    """

    inner: Mechanism

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return self.inner.name

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe or declared."""
        return self.inner.public

    @property
    def published(self) -> tuple[str, ...]:
        """Exact facts of the universe that the value shows."""
        return published_of(self.inner)

    def prepare(self, data: Data) -> Self:
        """Fix the mechanism inside with the whole universe where it needs to be."""
        return replace(self, inner=self.inner.prepare(data))

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Return the value for one subset."""
        return self.inner.evaluate(parts, rng)

    @property
    def totals(self) -> Literal["sum", "count"] | None:
        """Whether the numbers are sums or counts over the records."""
        return totals_of(self.inner)

    @property
    def batch(self) -> Batch | None:
        """All subsets at once, where the mechanism inside can."""
        return batch_of(self.inner)

    def finish(self, value: Any) -> Any:
        """Post-process a released value."""
        return self.inner.finish(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMechanism(Mechanism):
    """A user's function as a mechanism.

    Parameters
    ----------
    function : callable, public
        Called with the parts of a subset: ``f(data)`` or ``f(X, y)``.
    name : str, public
        Name shown in the certificate.
    takes_rng : bool, public
        Whether the function receives the keyword ``rng``, a generator with a public seed of the
        subset's own.
    """

    function: Callable[..., Any]
    name: str
    takes_rng: bool

    def prepare(self, data: Data) -> Self:
        """Refuse a function that cannot take as many arguments as the data have parts."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # written in C, without a signature
            return self
        try:
            signature.bind(*data.parts, **({"rng": None} if self.takes_rng else {}))
        except TypeError:
            n_parts = len(data.parts)
            wanted = "f(data)" if n_parts == 1 else f"f({', '.join('XyabcdeZ'[:n_parts])})"
            raise MechanismError(
                f"the function must take {n_parts} argument{'s' * (n_parts != 1)}, one for each "
                f"part of the data; got {self.name[:60]}{str(signature)[:60]}. Write {wanted}."
            ) from None
        return self

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        """Call the function on the parts of one subset."""
        return self.function(*parts, rng=rng) if self.takes_rng else self.function(*parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Titled(Wrapper):
    """A mechanism under a name that the user has given."""

    title: str

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return f"{self.title} ({self.inner.name})"


def with_title(mechanism: Any, title: Any) -> Any:
    """Return the mechanism of a release that is called so; None leaves it as it is."""
    if title is None:
        return mechanism
    if not isinstance(title, str) or not title.strip() or len(title) > LONGEST_TITLE:
        raise MechanismError(
            f"name must be a text of 1 to {LONGEST_TITLE} characters; got {title!r:.60}. "
            "Say in a few words what is released."
        )
    return _Titled(inner=as_mechanism(mechanism), title=title)


def as_mechanism(obj: Any) -> Mechanism:
    """Return a mechanism for a function, or the object itself when it is one already.

    Parameters
    ----------
    obj : callable or Mechanism
        A function ``f(data)`` or ``f(X, y)`` of a subset. If it has a parameter called ``rng``
        it receives a ``numpy.random.Generator`` with a public seed of the subset's own.

    Raises
    ------
    MechanismError
        If the object is neither.
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
        advice = "Subclass pacprivacy.mechanism.Mechanism and give it a name."
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
