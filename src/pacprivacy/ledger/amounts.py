"""Amounts of privacy as the ledger keeps them: whole numbers, five kinds, never added together.

A thousand spends of 0.001 must use up a budget of 1 exactly, on every machine. Sums of floats do
not do that, so amounts are whole multiples of 1e-12 (delta: 1e-18): charges are rounded up, limits
down. ``Units`` maps the kinds that are given to these numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Final, TypeAlias

from pacprivacy.budget import SUMS, Spent
from pacprivacy.errors import BudgetError

Units: TypeAlias = Mapping[str, int]
FAMILIES: Final = (SUMS[:2], SUMS[2:3], SUMS[3:])  # pools, coins, differential privacy
_DIGITS: Final = dict(zip(SUMS, (12, 12, 12, 12, 18), strict=True))
_LARGEST: Final = dict(zip(SUMS, (1e6, 1.0, 1e6, 1e6, 1.0), strict=True))
_EXACT: Final = Context(prec=60)


def amounts_charged(charge: Spent) -> Units:
    """Return a charge in whole numbers, rounded up."""
    return _scaled(charge, ROUND_CEILING)


def amounts_allowed(limits: Spent) -> Units:
    """Return limits in whole numbers, rounded down."""
    return _scaled(limits, ROUND_FLOOR)


def amounts_of(units: Units) -> Spent:
    """Return whole numbers as amounts."""
    return Spent(**{name: value / 10 ** _DIGITS[name] for name, value in units.items()})


def _scaled(amounts: Spent, rounding: str) -> Units:
    """Scale the shortest decimal that reads back as the float, so that 0.001 is a thousandth."""
    if amounts.success_level is not None:
        raise BudgetError(
            "success must be an increment in a ledger: levels do not add up; got success_level. "
            "Use success_increment=0.1."
        )
    if amounts.epsilon is not None and amounts.delta is None:
        amounts = replace(amounts, delta=0.0)
    if amounts.delta is not None and amounts.epsilon is None:
        raise BudgetError("epsilon must be given with delta; got delta alone. Add epsilon=.")
    stated = {name: value for name in SUMS if (value := getattr(amounts, name)) is not None}
    if not stated:
        raise BudgetError(
            "a charge must state at least one amount; got none. Use Spent(mi_nats=0.25)."
        )
    scaled = {}
    for name, value in stated.items():
        exact = Decimal(repr(_checked(name, value))).scaleb(_DIGITS[name], context=_EXACT)
        scaled[name] = int(exact.to_integral_value(rounding=rounding))
    return scaled


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
