"""Numbers as people type them: ``0.6``, ``60%``, ``1/64``."""

from __future__ import annotations

import math
import re
from typing import Final

from pacprivacy.errors import BudgetError, DataError

__all__ = ["format_number", "read_number", "read_pair"]

_FORM: Final = re.compile(r"^\s*([^\s/%]+)\s*(?:/\s*([^\s/%]+)\s*)?(%?)\s*$")


def read_number(name: str, text: str) -> float:
    """Read a number, a fraction or a percentage.

    Examples
    --------
    >>> read_number("--mi", "1/64"), read_number("--success", "58.8 %")
    (0.015625, 0.588)
    """
    match = _FORM.match(text)
    try:
        if match is None:
            raise ValueError
        value = float(match[1]) / float(match[2] or 1) / (100 if match[3] else 1)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not math.isfinite(value):
        raise BudgetError(
            f"{name} must be a number; got {text!r}. Write it as 0.25, 25% or 1/4."
        ) from None
    return value


def read_pair(name: str, text: str) -> tuple[float, float]:
    """Read ``LO,HI`` with LO below HI.

    Examples
    --------
    >>> read_pair("--range", "-1,2.5")
    (-1.0, 2.5)
    """
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DataError(
            f"{name} must be two numbers LO,HI with LO below HI; got {text!r}. Write it as 0,100."
        )
    return low, high


def format_number(value: float) -> str:
    """Write a number with six significant digits.

    Examples
    --------
    >>> format_number(0.015625), format_number(2.0)
    ('0.015625', '2')
    """
    return f"{value:.6g}"
