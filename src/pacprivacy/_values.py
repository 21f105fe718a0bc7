"""Released values and certificates as people and programs read them.

The file of a release with its digest and signature, results of a check, rows of a table on a
terminal, in a file, in a frame, and HTML.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import html
import itertools
import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import singledispatch
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from pacprivacy._rounding import at_most
from pacprivacy._system import read_regular
from pacprivacy.errors import CertificateError, DataError
from pacprivacy.theory import read_as_dp

DP_SCHEMA: Final = "dp-1"  # by which a file of differential privacy tells itself from PAC's
SHOWN_CHARACTERS: Final = 600
MAX_RELEASE_BYTES: Final = 64 << 20  # two million numbers; reading takes 30 times the memory
MAX_KEY_BYTES: Final = 1 << 16


def digest_of(plain: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a certificate, given as plain JSON types.

    It is taken of the JSON with sorted keys and no spaces, so that anyone who has the certificate
    can compute it, however the file was laid out.
    """
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


MARKS: Final = ("digest", "signature")
_UNSEALED: Final = {"schema_version", "value", "error_bars", "certificate"}  # before digests
_SIGNED: Final = b"pacprivacy release "


def write_release(
    path: Path, content: Mapping[str, Any], *, sign: str | Path | None = None
) -> None:
    """Write a release file: everything in it under one digest, signed by the key in ``sign``."""
    sealed = dict(content)
    if sign is not None:
        key = read_key(sign, private=True)
        sealed["signature"] = {
            "algorithm": "ed25519",
            "public_key": key.public_key().public_bytes_raw().hex(),
            "value": key.sign(_SIGNED + digest_of(content).encode()).hex(),
        }
    sealed["digest"] = digest_of(sealed)
    path.write_text(_text(sealed), encoding="utf-8", newline="\n")


def _text(content: Mapping[str, Any]) -> str:
    """Return the layout of a content, with sorted keys."""
    return json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"


def release_file(path: str | Path) -> Path:
    """Return the public file of a release, given the file or its folder."""
    return Path(path) / "release.json" if Path(path).is_dir() else Path(path)


def read_release(path: str | Path, *, public_key: str | Path | None = None) -> Any:
    """Return a release file, or a certificate in a separate file, as plain JSON types.

    Guarantee
    ---------
    Claim R-10. A file with a digest is refused if a byte of it has changed and, given a public
    key, if its owner has not signed it. Files of version 0.1 have no digest.
    """
    try:
        text = read_regular(release_file(path), most_bytes=MAX_RELEASE_BYTES).decode("utf-8")
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()  # half a character is none
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not valid JSON"
        raise CertificateError(
            f"{path} must be a readable JSON file; {reason}. Pass a release.json."
        ) from None
    plain = content if isinstance(content, dict) else {}
    if "digest" in plain or ("certificate" in plain and not plain.keys() <= _UNSEALED):
        body = {name: item for name, item in plain.items() if name != "digest"}
        same = False
        with suppress(ValueError, RecursionError):  # NaN is no JSON
            same = plain.get("digest") == digest_of(body) and text == _text(plain)
        if not same:
            raise CertificateError(
                f"{path} must be as it was written; its digest is of another content: something "
                "in it was changed. Get the file again from its publisher."
            )
    if public_key is not None:
        _check_signature(plain, public_key, path)
    return content


def read_key(path: str | Path, *, private: bool) -> Any:
    """Return an ed25519 key from a PEM file, as OpenSSL and ``cryptography`` write it."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise CertificateError(
            "signatures must be made and checked with cryptography; it is not installed. "
            "Run in a checkout: pip install '.[sign]'"
        ) from None
    kind = ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey
    key: Any = None
    with suppress(OSError, ValueError, TypeError, UnsupportedAlgorithm):
        content = read_regular(path, most_bytes=MAX_KEY_BYTES)
        if private:
            key = serialization.load_pem_private_key(content, password=None)
        else:
            key = serialization.load_pem_public_key(content)
    if not isinstance(key, kind):
        end = "" if private else f" -in key.pem -pubout -out {Path(path).name[:40]}"
        make = (
            f"genpkey -algorithm ed25519 -out {Path(path).name[:40]}" if private else f"pkey{end}"
        )
        raise CertificateError(
            f"{path} must be a PEM file with an ed25519 {'private' if private else 'public'} key "
            f"without a password; got something else. Make one: openssl {make}"
        )
    return key


def _check_signature(plain: Mapping[str, Any], public_key: str | Path, path: str | Path) -> None:
    key, signature = read_key(public_key, private=False), plain.get("signature")
    if signature is None:
        raise CertificateError(
            f"{path} must be signed to be checked with a key; it is not. Ask for a signed release, "
            "or leave out --public-key."
        )
    body = {name: item for name, item in plain.items() if name not in MARKS}
    try:
        key.verify(bytes.fromhex(signature["value"]), _SIGNED + digest_of(body).encode())
    except Exception:  # InvalidSignature, or no signature at all
        raise CertificateError(
            f"{path} must be signed by the owner of {public_key}; its signature is not of that "
            "key. Do not trust the file."
        ) from None


def read_certificate(path: str | Path) -> Any:
    """Return the certificate in a release file, or in a separate file, as plain JSON types."""
    content = read_release(path)
    return content.get("certificate", content) if isinstance(content, dict) else content


def readings_text(success: float) -> str:
    """Return a membership success as pure and as Gaussian differential privacy, in words."""
    readings = read_as_dp(success)
    if math.isinf(readings.pure_epsilon):
        return "the success of no finite epsilon"
    pure, mu, epsilon = (
        at_most(value, significant=3)
        for value in (readings.pure_epsilon, readings.gaussian_mu, readings.gaussian_epsilon)
    )
    return (
        f"the success of pure DP with epsilon {pure}, or of Gaussian DP with mu {mu} (epsilon "
        f"{epsilon} at delta {readings.delta:g})"
    )


def rows_html(promise: str, rows: list[tuple[str, str]], *, simulation: bool) -> str:
    """Return a promise above a table of two columns as HTML."""
    warning = ""
    if simulation:
        warning = "<p><b>SIMULATION: seeded randomness; this release protects nobody.</b></p>"
    cells = "".join(
        f'<tr><th style="text-align:left">{name}</th>'
        f'<td style="text-align:left">{html.escape(str(value))}</td></tr>'
        for name, value in rows
    )
    return f"<div>{warning}<p><b>{html.escape(promise)}</b></p><table>{cells}</table></div>"


def release_html(value: str, certificate: str, table: str | None = None) -> str:
    """Return the start of a released value (or a table of it), and its certificate, as HTML."""
    shown = value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + " ..."
    return f"<div>{table or f'<pre>{html.escape(shown)}</pre>'}{certificate}</div>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Fields that were recomputed and agree, and fields that the bundle cannot show; public.

    Parameters
    ----------
    digest : str
        SHA-256 of the certificate, as in the ledger.
    recomputed : tuple of str
        Fields of the certificate that follow from the bundle's figures.
    not_checkable : dict of str
        Fields that were only compared with the bundle's record, each with the reason.
    figures : dict of str
        Readable list of the recomputed figures.
    """

    digest: str
    recomputed: tuple[str, ...]
    not_checkable: dict[str, str] = field(repr=False)
    figures: dict[str, str] = field(default_factory=dict, repr=False)


@singledispatch
def verify(certificate: Any, bundle: Any = None) -> Verified:
    """Check that a certificate of either kind follows from its evidence.

    Parameters
    ----------
    certificate : Certificate or DPCertificate
        Certificate to check.
    bundle : Bundle, AnswerBundle or path
        The curator's ``curator.npz``. A certificate of differential privacy has none: it is
        checked against the events that it carries.

    Returns
    -------
    Verified
        Recomputed fields, and fields that cannot be recomputed.

    Raises
    ------
    CertificateError
        Naming the first field that does not follow.

    Guarantee
    ---------
    Claim R-1. Returns only if every field of the certificate equals what the bundle gives with
    the recorded draws, and the proved bounds meet the recorded budget. Fields that rest on the
    bundle's record alone are named in the result. Claim R-6 for differential privacy.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> release = pac.privatize(np.mean, data, pac.Information(0.1), n_subsets=16)
    >>> len(pac.verify(release.certificate, release.bundle).digest)
    64
    """
    raise CertificateError(
        f"certificate must be a Certificate or a DPCertificate; got a {type(certificate).__name__}."
        " Pass the certificate of a release."
    )


WIDTH: Final = 80
HEADINGS: Final = ("name", "value", "standard error", "95 % interval")
FIELDS: Final = ("name", "value", "standard_error", "lower", "upper")
SHOWN_ROWS: Final = 10  # of a table on a terminal; with the sentences below it fits a screen
LONGEST_NAME: Final = 40
NONE: Final = "-"  # stands for an error that is not known
LONGEST_TITLE: Final = 31  # of a sheet in Excel
_NO_TITLE: Final = re.compile(r"[\\/*?:\[\]]")
_NUMBER: Final = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_BIN: Final = re.compile(rf"^(.*?){_NUMBER} to (?:under )?{_NUMBER}$")
_LOCATED: Final = re.compile(r"\b(?:mean|median|quantiles) of (.+?)(?: by |\)|$)")
FIRST_DAY: Final = datetime.date(1970, 1, 1).toordinal()
LAST_DAY: Final = 2_900_000  # of the calendar, in the year 9909
SUPPRESSED: Final = ".."  # stands for a number whose interval is too wide
# How released numbers are to be read, wherever it is said:
DATES: Final = "dates are days since 1970-01-01: "
ESTIMATES: Final = "are estimates for all records"
SURVEY: Final = "survey: "
WEIGHTED: Final = "rows are weighted by "
NO_INTERVAL: Final = "numbers have no interval: they do not estimate those of all records"
SIMULATION: Final = "SIMULATION: seeded randomness; this release protects nobody."


class Row(NamedTuple):
    """One released number with its standard error and 95 % interval; NaN if missing."""

    name: str
    value: float
    std_error: float
    lower: float
    upper: float
    spread: float = 0.0
    noise_std: float = 0.0
    is_date: bool = False


def are_dates(mechanism: str, public: Sequence[str]) -> bool:
    """Whether the numbers of a release are dates: means and quantiles of columns of dates."""
    match = _LOCATED.search(mechanism)
    texts = (text.removeprefix(DATES).split(", ") for text in public if text.startswith(DATES))
    dates = {name for names in texts for name in names}
    return match is not None and set(match[1].split(", ")) <= dates


def suppress_wide(rows: Sequence[Row], widest: float) -> list[Row]:
    """Return rows without the numbers of intervals that reach further than a share of them."""
    return [
        Row(row.name, *(math.nan,) * 4)
        if row.upper - row.lower > 2 * widest * abs(row.value)
        else row
        for row in rows
    ]


def read_bin(name: str) -> tuple[str, float, float] | None:
    """Return the text before a bin in a name, and its ends: ``age 10 to under 20``."""
    match = _BIN.match(name)
    return None if match is None else (match[1], float(match[2]), float(match[3]))


def in_bin_order(names: Sequence[str], places: Sequence[int]) -> list[int]:
    """Return places with the bins of each column from low to high; the rest as it is."""
    bins = {place: read_bin(names[place]) or (names[place], 0.0, 0.0) for place in places}
    runs = itertools.groupby(places, key=lambda place: bins[place][0])
    return [place for _, run in runs for place in sorted(run, key=lambda each: bins[each][1])]


def row_texts(row: Row) -> tuple[str, str]:
    """Write a number and its standard error to the same decimal: ``50.2`` and ``0.4``.

    The error has two digits if it begins with 1, 2 or 3, and else one; it is rounded up.
    """
    value, error = row.value, row.std_error
    if math.isnan(value):
        return SUPPRESSED, SUPPRESSED
    if row.is_date and 0 < value < LAST_DAY:
        days = NONE if math.isnan(error) else f"{row_texts(row._replace(is_date=False))[1]} days"
        return datetime.date.fromordinal(FIRST_DAY + math.floor(value)).isoformat(), days
    if math.isnan(error):
        return f"{value:,.6g}", NONE
    if not 1e-300 < error < math.inf:
        return f"{value:,.6g}", "0"
    decimals = -math.floor(math.log10(error))
    decimals += error * 10.0**decimals < 4
    unit = 10.0**-decimals
    error = math.ceil(error / unit * (1 - 1e-9)) * unit
    value = round(value / unit) * unit if abs(value / unit) < math.inf else value
    if not -10 < decimals < 7:
        return f"{value:.4g}", f"{error:.2g}"
    return f"{value:,.{max(0, decimals)}f}", f"{error:,.{max(0, decimals)}f}"


def row_interval(row: Row) -> str:
    """Write the interval of a number, to the decimal of its error."""
    if math.isnan(row.lower):
        return NONE
    ends = (row.lower, math.ceil(row.upper) if row.is_date else row.upper)
    lower, upper = (row_texts(row._replace(value=end))[0] for end in ends)
    return f"{lower} to {upper}"


def rows_table(rows: Sequence[Row], n_rows: int) -> list[str]:
    """Return the lines of a table of the first rows, and how many of ``n_rows`` follow."""
    cells = [HEADINGS, *((_short(r.name), *row_texts(r), row_interval(r)) for r in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *texts in cells:
        right = "".join(f"  {t:>{w}}" for t, w in zip(texts, widths[1:], strict=True))
        lines.append(f"{name:<{widths[0]}}{right}".rstrip())
    return [*lines, f"and {n_rows - len(rows):,} more"] if n_rows > len(rows) else lines


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."


def values_html(rows: Sequence[Row], n_rows: int) -> str:
    """Return the first rows as a table in HTML, and how many of ``n_rows`` follow."""
    lines = [HEADINGS, *((row.name, *row_texts(row), row_interval(row)) for row in rows)]
    body = "".join(html_line("th" if line is HEADINGS else "td", line) for line in lines)
    rest = f"<p>and {n_rows - len(rows):,} more numbers</p>" if n_rows > len(rows) else ""
    return f"<table>{body}</table>{rest}"


def html_line(tag: str, cells: Sequence[str]) -> str:
    """Return a line of a table: the first cell to the left, the others to the right."""
    style = '{} style="text-align:{};padding:2px 10px"'
    columns = (
        f"<{style.format(tag, 'right' if place else 'left')}>{html.escape(cell)}</{tag}>"
        for place, cell in enumerate(cells)
    )
    return f"<tr>{''.join(columns)}</tr>"


def values_frame(rows: Sequence[Row]) -> Any:
    """Return rows as a pandas frame, or as a polars frame without pandas."""
    columns = {name: [row[i] for row in rows] for i, name in enumerate(FIELDS)}
    for library in ("pandas", "polars"):
        try:
            return __import__(library).DataFrame(columns)
        except ImportError:
            continue
    raise DataError(
        "to_frame must have pandas or polars to make a frame of; neither is installed. "
        "Install one, or use rows()."
    )


def write_values(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV, if there are any; an error that is not known is an empty cell."""
    if not rows:
        path.unlink(missing_ok=True)  # that of another release
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for row in rows:
            numbers = (row.value, row.std_error, row.lower, row.upper)
            writer.writerow([row.name, *("" if math.isnan(x) else repr(float(x)) for x in numbers)])


def rows_by_table(
    model: Mapping[str, Any] | None, rows: Sequence[Row]
) -> tuple[tuple[str, tuple[Row, ...]], ...]:
    """Return the tables of a study, with the names that rows have in them; none of other models."""
    if model is None or model.get("kind") != "study":
        return ()
    return tuple(
        (
            name,
            tuple(
                row._replace(name=row.name.removeprefix(f"{name}."))
                for row in rows
                if row.name == name or row.name.startswith(f"{name}.")
            ),
        )
        for name in model["tables"]
    )


def write_values_sheets(path: Path, tables: Sequence[tuple[str, Sequence[Row]]]) -> None:
    """Write tables to sheets of an Excel file; unknown errors are empty cells.

    Names stay text, whatever they begin with: a spreadsheet must not run them as formulas.
    """
    try:
        openpyxl = import_module("openpyxl")
    except ImportError:
        raise DataError(
            "to_excel must have openpyxl to write with; it is not installed. Install it, or use "
            "to_csv."
        ) from None
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in tables:
        sheet = book.create_sheet(_NO_TITLE.sub(" ", name)[:LONGEST_TITLE] or "values")
        sheet.append(FIELDS)
        for row in rows:
            numbers = (row.value, row.std_error, row.lower, row.upper)
            cells = (x if math.isfinite(x) else None for x in map(float, numbers))
            sheet.append([row.name, *cells])
            sheet.cell(sheet.max_row, 1).data_type = "s"
    book.save(path)


def times_in_100(success: float) -> str:
    """Write a bound on a rate as a frequency, rounded up: ``60 times in 100``."""
    for decimals in (1, 4):
        text = at_most(success, decimals=decimals, percent=True)
        if float(text) < 100:
            break
    return f"{text.removesuffix('.0')} times in 100"


def certificate_page(
    certificate: Any, rows: list[tuple[str, str]], lists: Mapping[str, Sequence[str]]
) -> str:
    """Return a certificate of either promise as text for a terminal of 80 columns."""

    def fill(text: str, first: str, rest: str) -> str:
        return textwrap.fill(
            text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False
        )

    lines = [textwrap.fill(certificate.promise, WIDTH), ""]
    lines += [SIMULATION, ""] if certificate.simulation else []
    lines += [fill(text, f"{name:<18}", " " * 18) for name, text in rows]
    for title, items in lists.items():
        lines += ["", title] if items else []
        lines += [fill(f"- {item}", "  ", "    ") for item in items]
    version = f"certificate schema {certificate.schema_version}"
    return "\n".join([*lines, f"pacprivacy {certificate.software}, {version}"])


def release_text(
    table: Sequence[str], sentences: Sequence[str], *, simulation: bool, rest: str = ""
) -> str:
    """Return a release on one screen: its numbers, the promise, and a link to the rest."""
    texts = [SIMULATION, *sentences] if simulation else [*sentences]
    wrapped = [textwrap.fill(text, WIDTH, break_on_hyphens=False) for text in texts if text]
    return "\n".join([*table, "", *wrapped, *([rest] if rest else [])])
