"""The release: a value that may leave, and its certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pacprivacy._plots import draw
from pacprivacy._values import (
    SHOWN_CHARACTERS,
    SHOWN_ROWS,
    Row,
    are_dates,
    read_release,
    release_html,
    release_text,
    rows_by_table,
    rows_table,
    suppress_wide,
    values_frame,
    values_html,
    write_release,
    write_values,
    write_values_sheets,
)
from pacprivacy.errors import CertificateError
from pacprivacy.mechanism import node_type, node_value, plain_value
from pacprivacy.release.bundle import CuratorBundle, Record
from pacprivacy.release.certificate import SCHEMA_VERSION, Certificate
from pacprivacy.release.error_bars import (
    ErrorBars,
    Interval,
    Of,
    Value,
    count_measured,
    error_bar_rows,
    picked_error_bars,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """A released value, its error, and the proof of its privacy.

    Parameters
    ----------
    value : Any, public
        Same structure that the mechanism returned, with certified noise.
    certificate : Certificate, public
        Promise, attackers and proof.
    proof : CuratorBundle, curator-only
        Everything that the certificate is recomputed from; None in a release from a public file.
    error_bars : ErrorBars, public, optional
        Spread over the pool and noise of every number.
    model : mapping, public, optional
        Names and levels of the columns, with which ``pac predict`` applies the value to new rows.
    table : mapping, public, optional
        How a query arranges the value: its text, its plan, names of columns, places of rows.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(5, 1, size=(400, 3))
    >>> release = pac.privatize(lambda x: x.mean(axis=0), data, pac.Membership(0.75), n_subsets=64)
    >>> release.value.shape, release.std_error.shape
    ((3,), (3,))
    >>> lower, upper = release.interval(0.95)
    >>> bool((lower < release.value).all() and (release.value < upper).all())
    True
    >>> sorted(release.to_public_dict())
    ['certificate', 'error_bars', 'schema_version', 'types', 'value']
    """

    value: Value
    certificate: Certificate
    proof: CuratorBundle | None = field(repr=False)
    error_bars: ErrorBars | None = field(default=None, repr=False)
    model: Mapping[str, Any] | None = field(default=None, repr=False)
    table: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def bundle(self) -> Any:
        """Evidence for the certificate; curator-only."""
        if self.proof is None:
            raise CertificateError(
                "bundle must be had from the curator: this release was read from its public file. "
                "Read curator.npz, which was written beside it."
            )
        return self.proof

    @property
    def std_error(self) -> Value:
        """Standard error of every number as an estimate for all records; NaN for no estimate."""
        bars = self._estimates()
        return bars.structure.restore(bars.std_error())

    @property
    def noise_std(self) -> Value:
        """Standard deviation of the noise in every number, rounded up to two digits."""
        bars = self._bars()
        return bars.structure.restore(bars.noise_std)

    def interval(self, confidence: float = 0.95, *, of: Of | None = None) -> Interval:
        """Return where the value on all records lies, or that of the population behind them.

        Parameters
        ----------
        confidence : float
            Nominal coverage of an approximate normal interval, which knows no heavy tails.
        of : {"records", "population"}, optional
            Target of the interval: the same statistic on all records, or the parameter behind them.
            By default the records; of a survey with strata or clusters, the population.

        Returns
        -------
        Interval
            ``lower`` and ``upper``, each shaped like the value; NaN for a number that does not
            estimate that of all records, such as an undeclared total.

        Guarantee
        ---------
        Claim R-8. A function of published values; the coverage is approximate.
        """
        bars = self._estimates()
        ends = bars.interval(bars.numbers_of(self.value), confidence, of)
        return Interval(*map(bars.structure.restore, ends))

    def _bars(self) -> ErrorBars:
        if self.error_bars is None:
            raise CertificateError(
                "error bars must have been measured; this release has none: its value is not made "
                "of numbers, is finished by code of your own, or is of an earlier version. Return "
                "numbers or arrays from a function."
            )
        return self.error_bars

    def _estimates(self) -> ErrorBars:
        bars = self._bars()
        if not bars.has_intervals:
            raise CertificateError(
                "a number must estimate that of all records to have an interval; none of this "
                "release does. Of sums and counts over the records say so: totals=True."
            )
        return bars

    def errors(self) -> tuple[Value, Value, Value]:
        """Return standard errors and both ends of 95 % intervals; NaN where there are none."""
        bars = self._bars()
        ends = bars.interval(bars.numbers_of(self.value), 0.95)
        error, lower, upper = map(bars.structure.restore, (bars.std_error(), *ends))
        return error, lower, upper

    def rows(self, most: int | None = None) -> list[Row]:
        """Return the first numbers by name, with standard error and 95 % interval; default all."""
        rows = error_bar_rows(self.value, self.error_bars, most=most)
        if are_dates(self.certificate.mechanism, self.certificate.public):
            rows = [row._replace(is_date=True) for row in rows]
        widest = None if self.model is None else self.model.get("suppress")
        return rows if widest is None else suppress_wide(rows, float(widest))

    def to_frame(self) -> Any:
        """Return all numbers with their standard errors and intervals as a frame."""
        return values_frame(self.rows())

    def to_csv(self, path: str | Path) -> None:
        """Write all numbers with their standard errors and intervals as CSV."""
        write_values(Path(path), self.rows())

    def to_excel(self, path: str | Path) -> None:
        """Write all numbers with standard errors and intervals to Excel, one sheet a table."""
        rows = self.rows()
        write_values_sheets(Path(path), rows_by_table(self.model, rows) or [("values", rows)])

    def to_json(self) -> str:
        """Return value, error bars and certificate as JSON text, without a signature."""
        return msgspec.json.encode(self.to_public_dict()).decode()

    def summary(self) -> str:
        """Return the text of ``print``: numbers, promise, and where the rest is."""
        return str(self)

    def lines(self, most: int = SHOWN_ROWS) -> list[str]:
        """Return the first numbers as the lines of a table; text for values without names."""
        rows = self.rows(most)
        if rows:
            return rows_table(rows, count_measured(self.error_bars))
        return repr(self.value)[:SHOWN_CHARACTERS].splitlines()[:most]

    def text(self, rest: str = "") -> str:
        """Return the release on one screen: numbers, promise, and ``rest``, where the rest is."""
        cert = self.certificate
        return release_text(
            self.lines(), (*cert.readings, cert.promise), simulation=cert.simulation, rest=rest
        )

    def __str__(self) -> str:
        return self.text("What is not promised, and how it was proved: print(release.certificate)")

    def __repr__(self) -> str:
        size = count_measured(self.error_bars)
        what = f"{size} number{'s' * (size != 1)}" if size else type(self.value).__name__
        return f"<{type(self).__name__} of {self.certificate.mechanism}: {what}>"

    def _repr_html_(self) -> str:
        rows = self.rows(2 * SHOWN_ROWS)
        shown = values_html(rows, count_measured(self.error_bars)) if rows else None
        return release_html(repr(self.value), self.certificate._repr_html_(), shown)

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the values with their intervals, and the promise; also to a file, with ``path``."""
        return draw("plot_release", self, path)

    def to_public_dict(self) -> Record:
        """Return value, error bars and certificate as plain JSON types."""
        bars, kind = self.error_bars, node_type(self.value)
        return {
            "schema_version": SCHEMA_VERSION,
            "value": plain_value(self.value),
            **({} if kind is None else {"types": kind}),
            **({} if self.model is None else {"model": dict(self.model)}),
            **({} if self.table is None else {"table": dict(self.table)}),
            **({} if bars is None else {"error_bars": bars.to_public_dict()}),
            "certificate": self.certificate.to_public_dict(),
        }

    def save(self, folder: str | Path, *, sign: str | Path | None = None) -> Path:
        """Write ``release.json``, ``values.csv`` and ``curator.npz`` (mode 0600); return the first.

        The first two may be published. Value and certificate are under one digest; ``sign`` is a
        PEM file with an ed25519 private key, for a signature that anyone can check.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        public = target / "release.json"
        content = self.to_public_dict()
        if self.proof is not None:
            self.proof.save(target / "curator.npz")  # first: no public file without its proof
        write_release(public, content, sign=sign)
        self.write_values(target)
        return public

    def write_values(self, folder: Path) -> None:
        """Write ``values.csv``, where the release has numbers with names."""
        write_values(folder / "values.csv", self.rows())

    @classmethod
    def load(cls, path: str | Path, *, public_key: str | Path | None = None) -> Release:
        """Read a public file: value, error bars and certificate, without the curator's bundle.

        Values come with their types and names; an estimator as a dictionary of its released
        attributes. A changed file is refused, and, with a public key (PEM, ed25519), one without
        its signature.
        """
        content = read_release(path, public_key=public_key)
        if not (isinstance(content, dict) and "certificate" in content):
            content = {"certificate": content}
        certificate = Certificate.from_dict(content["certificate"])
        value, plain = content.get("value"), content.get("error_bars")
        kind, bars = content.get("types"), None
        try:
            if plain is not None:
                named = None if certificate.hides_presence else certificate.published
                bars = ErrorBars.from_dict(plain, named=named, kind=kind)
                value = picked_error_bars(value, plain["spread"])
            value = node_value(value, kind)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            raise CertificateError(
                f"{path} must have a value of the types that it names; got another. "
                "Use the file as it was written."
            ) from None
        if bars is not None:
            bars.numbers_of(value)
        return Release(
            value=value,
            certificate=certificate,
            proof=None,
            error_bars=bars,
            model=content.get("model"),
            table=content.get("table"),
        )
