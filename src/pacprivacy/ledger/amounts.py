"""Amounts of privacy as the ledger keeps them: whole numbers, four kinds, never added together.

A thousand spends of 0.001 must use up a budget of 1 exactly, on every machine. Sums of floats do
not do that, so amounts are whole multiples of a small unit: charges are rounded up, limits down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Final, Self

from pacprivacy.errors import BudgetError

KINDS: Final = ("mi_nats", "success", "epsilon", "delta")
FAMILIES: Final = (("mi_nats", "success"), ("epsilon", "delta"))
_DIGITS: Final = {"mi_nats": 12, "success": 12, "epsilon": 12, "delta": 18}
_LARGEST: Final = {"mi_nats": 1e6, "success": 1.0, "epsilon": 1e6, "delta": 1.0}
_EXACT: Final = Context(prec=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a release costs, or what a budget allows; ``None`` where nothing is said.

    Parameters
    ----------
    mi_nats : float, optional, public
        Mutual information between the secret index and the release, in nats.
    success : float, optional, public
        *Increment* of the membership success of the worst-placed unit (0.1 takes a prior of
        0.5 to 0.6).
    epsilon, delta : float, optional, public
        Differential privacy, added up by basic composition; ``epsilon`` alone means delta 0.
    """

    mi_nats: float | None = None
    success: float | None = None
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None and self.delta is None:
            object.__setattr__(self, "delta", 0.0)
        for name in KINDS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _checked(name, value))
        if self.delta is not None and self.epsilon is None:
            raise BudgetError("epsilon must be given with delta; got delta alone. Add epsilon=.")
        if not any(self.states(name) for name in KINDS):
            raise BudgetError(
                "a charge must state at least one amount; got none. Use Charge(mi_nats=0.25)."
            )

    def states(self, name: str) -> bool:
        """Whether an amount of this kind is given."""
        return getattr(self, name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The same four amounts as whole numbers of 1e-12 (delta: 1e-18)."""

    mi_nats: int | None = None
    success: int | None = None
    epsilon: int | None = None
    delta: int | None = None

    @classmethod
    def charged(cls, charge: Charge) -> Self:
        """Return a charge, rounded up."""
        return cls(**_scaled(charge, ROUND_CEILING))

    @classmethod
    def allowed(cls, limits: Charge) -> Self:
        """Return limits, rounded down."""
        return cls(**_scaled(limits, ROUND_FLOOR))

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield the kinds that are given, with their amounts."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                yield field.name, value

    def amount(self, name: str) -> float | None:
        """Return one amount as a number; ``None`` where nothing is said."""
        value = getattr(self, name)
        return None if value is None else value / 10 ** _DIGITS[name]

    def to_dict(self) -> dict[str, float | None]:
        """Return the four amounts as numbers."""
        return {name: self.amount(name) for name in KINDS}


def _checked(name: str, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 <= number <= _LARGEST[name]:
        raise BudgetError(
            f"{name} must be a number from 0 to {_LARGEST[name]:g}; got {value!r}. "
            f"Leave it out where it does not apply."
        )
    return number


def _scaled(charge: Charge, rounding: str) -> dict[str, int]:
    """Scale the shortest decimal that reads back as the float, so that 0.001 is a thousandth."""
    scaled = {}
    for name in KINDS:
        value = getattr(charge, name)
        if value is not None:
            exact = Decimal(repr(value)).scaleb(_DIGITS[name], context=_EXACT)
            scaled[name] = int(exact.to_integral_value(rounding=rounding))
    return scaled
