"""Rounding of printed bounds, never in favour of the promise.

Every place that prints a bound (certificates, pages, tables, the command line) writes it with
:func:`at_most`, so that a reader never sees less than what was proved, and the same bound reads
the same everywhere. A lower bound is written with :func:`at_least`.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Final

import numpy as np
import numpy.typing as npt

_EXACT: Final = Context(prec=1200)  # holds every double to its last decimal


def at_most(
    bound: float,
    *,
    decimals: int | None = None,
    significant: int | None = None,
    percent: bool = False,
) -> str:
    """Write an upper bound, rounded up.

    What is rounded is the shortest decimal that reads back as the same float, so that a bound of
    0.55 prints as 55.00 per cent, and one that is larger by the last bit as 55.01.

    Guarantee
    ---------
    Claim R-5. The text is at least ``bound``, by less than one unit of its last digit.
    """
    return _write(bound, ROUND_CEILING, decimals, significant, percent)


def percent_at_most(rate: float, decimals: int = 2) -> str:
    """Write an upper bound on a rate in per cent, without the sign; see :func:`at_most`."""
    return at_most(rate, decimals=decimals, percent=True)


def at_least(
    bound: float,
    *,
    decimals: int | None = None,
    significant: int | None = None,
    percent: bool = False,
) -> str:
    """Write a lower bound, rounded down; see :func:`at_most`."""
    return _write(bound, ROUND_FLOOR, decimals, significant, percent)


def two_digits(figure: float) -> float:
    """Round a figure up to two significant digits, as noise and spread are published.

    Guarantee
    ---------
    Claim R-7. The result is at least ``figure``, by less than a tenth of it.
    """
    return float(at_most(figure, significant=2))


def failure_text(confidence: float) -> str:
    """Write the probability that is missing to a confidence, rounded up to one digit.

    A confidence is stored as the float nearest to ``1 - gamma``, half a last bit off at most; that
    half bit is taken off again, so that 1 - 1e-9 reads as 1e-09.
    """
    return at_most(max(0.0, 1.0 - confidence - 2.0**-54), significant=1)


def _write(
    bound: float,
    direction: str,
    decimals: int | None,
    significant: int | None,
    percent: bool,
) -> str:
    if (decimals is None) == (significant is None):
        raise TypeError("decimals or significant must be given, and only one of them")
    if not math.isfinite(bound):
        return f"{float(bound):g}"
    exact = Decimal(repr(float(bound))) * (100 if percent else 1)
    if decimals is None:
        assert significant is not None  # one of the two is given
        last = exact.adjusted() - significant + 1 if exact else 0
        rounded = exact.quantize(Decimal(1).scaleb(last), rounding=direction, context=_EXACT)
        return f"{float(rounded):.{significant}g}"
    rounded = exact.quantize(Decimal(1).scaleb(-decimals), rounding=direction, context=_EXACT)
    return f"{rounded if rounded else abs(rounded):f}"  # no minus sign before a zero


def power_of_two(size: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the smallest power of two that is not below each size: a coarse, plain scale."""
    mantissa, exponent = np.frexp(size)
    rounded: npt.NDArray[np.float64] = np.ldexp(1.0, exponent - (mantissa == 0.5))
    return rounded
