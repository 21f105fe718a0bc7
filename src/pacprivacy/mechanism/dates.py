"""Dates as people write them: the format of a column of texts, and days since 1970.

A format is that of :func:`datetime.datetime.strptime`, or ``ISO`` for 2024-05-31 with or without a
time. It is found once, with all records, or declared. Where 03/04/2024 may be two days, or 24 two
years, it is not chosen but asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import numpy as np

from pacprivacy._checks import Vector

ISO: Final = "ISO"
SECONDS_A_DAY: Final = 86400
DAY: Final = np.timedelta64(1, "D")
_ISO_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?)(Z|[+-]\d\d:?\d\d)?"
)
_WRITTEN: Final = re.compile(
    r"(?:(?P<year>\d{4}[-/.]\d{1,2}[-/.]\d{1,2})"
    r"|(?P<figures>\d{1,2}([-/.])\d{1,2}\3(?:\d{4}|\d\d))"
    r"|(?P<name>\d{1,2}[-/. ]?[A-Za-z]{3,9}[-/. ]?(?:\d{4}|\d\d))"
    r"|(?P<first>[A-Za-z]{3,9} \d{1,2},? \d{4}))"
    r"(?P<time>[ T:]\d{1,2}:\d\d(?::\d\d(?:\.\d{1,6})?)?(?: ?[AaPp][Mm])?)?"
)


def find_date_formats(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the formats in which all texts are dates; several, or two-digit years, are unclear."""
    if not texts:
        return ()
    if all(_ISO_DATE.fullmatch(text) for text in texts):
        return (ISO,) if _is_read(texts, ISO) else ()
    readings: dict[bytes, str] = {}
    for date_format in _candidates(texts[0]):
        if _is_read(texts, date_format):
            readings.setdefault(read_dates(texts, date_format).tobytes(), date_format)
    return tuple(readings.values())


def are_dates_clear(formats: Sequence[str]) -> bool:
    """Whether texts are dates that can be read in one way."""
    return len(formats) == 1 and "%y" not in formats[0]


def read_dates(texts: Sequence[str], date_format: str) -> Vector:
    """Return days since 1970, as they are written; a ValueError where a text has another format."""
    if date_format != ISO:
        moments = [datetime.strptime(text, date_format).replace(tzinfo=None) for text in texts]
        epoch = datetime(1970, 1, 1)
        return np.array([(m - epoch).total_seconds() / SECONDS_A_DAY for m in moments])
    parts = [_ISO_DATE.fullmatch(text) for text in texts]
    plain = [part[1] for part in parts if part is not None]
    if len(plain) < len(parts) or len({part[2] for part in parts if part is not None}) > 1:
        raise ValueError("texts must be dates such as 2024-05-31, in one time zone")
    return np.array(plain, dtype="datetime64[ms]").astype(np.int64) / (1000 * SECONDS_A_DAY)


def date_name(days: float) -> str:
    """Return a day since 1970 as 2024-05-31, with its time where it has one."""
    moment = np.datetime64(round(days * SECONDS_A_DAY * 1000), "ms")
    return str(moment).removesuffix(".000").removesuffix(":00").removesuffix("T00:00")


def _is_read(texts: Sequence[str], date_format: str) -> bool:
    try:
        read_dates(texts, date_format)
    except ValueError:
        return False
    return True


def _candidates(text: str) -> list[str]:
    shape = _WRITTEN.fullmatch(text)
    if shape is None:
        return []
    figures = ("%d{0}%m{0}%y", "%m{0}%d{0}%y")
    if shape["year"] is not None:
        formats = [re.sub(r"\d+", "{}", shape["year"]).format("%Y", "%m", "%d")]
    elif shape["figures"] is not None:
        mark = re.sub(r"\d", "", shape["figures"])[0]
        formats = [order.format(mark) for order in figures[: 1 if mark == "." else 2]]
    elif shape["name"] is not None:
        named = re.sub(r"\d+$", "%y", re.sub(r"^\d+", "%d", shape["name"]))
        formats = [re.sub(r"(?<!%)[A-Za-z]{3,}", month, named) for month in ("%b", "%B")]
    else:
        named = re.sub(r"\d{4}$", "%y", re.sub(r"\d{1,2}(?=,? )", "%d", shape["first"]))
        formats = [re.sub(r"(?<!%)[A-Za-z]{3,}", month, named) for month in ("%b", "%B")]
    day = shape["year"] or shape["figures"] or shape["name"] or shape["first"]
    if re.search(r"\d{4}$", day):
        formats = [date_format.replace("%y", "%Y") for date_format in formats]
    return [date_format + _time_format(shape["time"] or "") for date_format in formats]


def _time_format(time: str) -> str:
    if not time:
        return ""
    half = re.search(r" ?[AaPp][Mm]$", time)
    written = ["%I" if half else "%H", "%M", *["%S"] * (time.count(":", 1) > 1)]
    fraction = ".%f" if "." in time else ""
    return time[0] + ":".join(written) + fraction + (half[0][:-2] + "%p" if half else "")
