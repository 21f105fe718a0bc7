"""Errors of released numbers: error bars from the spread over the pool and from the noise.

With ``C`` the variance of an output over the candidates and ``S`` that of its noise, the value on
all records lies within ``y ± z sqrt(C + S)``, and the parameter of the population behind them
within ``y ± z sqrt(C/(1-f) + S)``, for candidates that hold a share ``f`` of the units (math §16).
Both are approximate: normal intervals for smooth statistics and quantiles. For the population ``C``
is an estimate, and Student's law takes the place of the normal one (claim R-8).

The mean over the candidates may differ from the value on all records by a bias ``b``. Within the
error ``b²`` is added to both variances; beyond it the number has no standard error and no interval.
All figures are facts about the universe, leave rounded up to two digits, and are named by the
certificate.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from types import MethodType
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import scipy

from pacprivacy._checks import (
    LARGEST_OUTPUT,
    SMALLEST_RANGE,
    Mask,
    Matrix,
    Vector,
    column_spreads,
    freeze,
)
from pacprivacy._values import NO_INTERVAL, Row, in_bin_order
from pacprivacy.errors import (
    BudgetError,
    CertificateError,
    MechanismError,
    NoisyWarning,
    PacPrivacyError,
)
from pacprivacy.mechanism import (
    Mechanism,
    Structure,
    flatten,
    mechanism_layers,
    node_value,
    plain_value,
    shown_name,
)
from pacprivacy.noise import NoisePlan
from pacprivacy.release.bundle import Record
from pacprivacy.sample import Pool
from pacprivacy.simulation import Outputs

Of = Literal["records", "population"]
Value: TypeAlias = Any  # whatever structure of numbers the mechanism returned

NAMED: Final = "error bars: "
PROBED: Final = 4096  # numbers that post-processing is followed through one by one
STEP: Final = 1e-3  # of an error, to see what post-processing makes of it
LEAST_STEP: Final = 1e-9  # of the number itself, so that a step is no rounding error
FLAT: Final = 1e-12  # an error below this share of the number is one of floating point
ROUNDING_VARIANCE: Final = 1 / 12  # of a number that is rounded to whole ones
LARGEST_BIAS: Final = 1.96  # standard errors: what a 95 % interval reaches to either side
LEAST_BIAS: Final = 0.1  # standard errors: less moves the coverage by less than .1 percent
ROUNDING_ERROR: Final = 1e-8  # of a number: a difference below this is one of floating point
PROBE: Final = 1e-3  # of a number, to see whether a released one depends on it
COMPARED: Final = (
    "which numbers have an interval: those whose mean over the candidates is within two standard "
    "errors of the value on all records"
)
TOTALS_ADVICE: Final = (
    "If they are sums or counts over the records, say so: totals=True, or totals= with their names."
)
NORMAL_FREEDOM: Final = 60  # degrees of freedom from which the normal law is used
SAME_VALUE: Final = 1e-9  # of the range: values that differ by less are one value
MOSTLY_NOISE: Final = 3.0  # times the spread: from here on the noise is most of the error
VISIBLE: Final = 0.1  # of a number: noise below this is seen in its error bar, and needs no warning
TAIL_MARGIN_SD: Final = 3.0  # standard errors by which tails must be beyond their limits
LEAST_SUBSETS: Final = 64  # fewer do not show the tails
SHOWN_NAMES: Final = 3
MAX_BINS: Final = 10_000  # numbers behind a count among which a warning looks for its edges
ADVICE: Final = (
    "What helps: scale or cap the columns, a robust statistic (median, trimmed mean), more "
    "records, a larger budget."
)


class Interval(NamedTuple):
    """Two ends, each shaped and labelled like the released value."""

    lower: Value
    upper: Value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErrorBars:
    """Spread over the pool and noise of every released number, in its units; public.

    Standard deviations, rounded up to two digits. ``structure`` has dictionaries in place of
    estimators; ``share`` is that of the units in a candidate; ``rounds`` whether numbers were
    rounded to whole ones; ``bias`` the distance from all records, 0 where it is small;
    ``no_interval`` the places of numbers that do not estimate those of all records, ``constants``
    of numbers that were declared or published exactly; ``freedom`` the degrees of freedom of the
    spreads, None where all are ``NORMAL_FREEDOM``; ``design`` deviations by the design of a survey,
    as estimates for its population, which is then what standard errors are for.
    """

    structure: Structure
    spread: Vector
    noise_std: Vector
    share: float
    rounds: bool = False
    bias: Vector | None = None
    no_interval: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()
    freedom: Vector | None = None
    design: Vector | None = None

    def __post_init__(self) -> None:
        freeze(self.spread)
        freeze(self.noise_std)

    @property
    def has_intervals(self) -> bool:
        """Whether some number estimates that of all records."""
        return len({*self.no_interval, *self.constants}) < len(self.spread)

    @property
    def aim(self) -> Of:
        """What standard errors are for unless it is said: the population, in a survey."""
        return "records" if self.design is None else "population"

    def std_error(self, of: Of | None = None) -> Vector:
        """Return the standard errors, for all records or their population; NaN for no estimate."""
        error = self._errors(of or self.aim)
        error[list(self.no_interval)] = np.nan
        return error

    def _errors(self, of: Of, *, biased: bool = True) -> Vector:
        if of not in ("records", "population"):
            raise BudgetError(f"of must be 'records' or 'population'; got {of!r}. Choose one.")
        if of == "population" and self.share == 1.0 and self.design is None:
            raise BudgetError(
                "of must be 'records' where everybody was used; got 'population': how far the "
                "records are from it was not measured. Use coins: keep below 1."
            )
        bias = self._bias() * biased
        size = np.maximum(np.maximum(self.spread, bias), self.noise_std)
        design = np.zeros(len(size)) if self.design is None else self.design
        size = np.maximum(size, design)
        odd = (size > 0) & ~((size > SMALLEST_RANGE) & (size < LARGEST_OUTPUT))
        unit = np.where(odd, size, 1.0)  # squares of such numbers are 0 or infinite
        sampling = np.square(self.spread / unit)
        if of == "population" and self.design is not None:
            sampling = sampling + np.square(design / unit)
        elif of == "population":
            sampling = sampling / (1.0 - self.share)
        variance = sampling + np.square(self.noise_std / unit) + np.square(bias / unit)
        if self.rounds:
            variance = np.where(variance > 0, variance + ROUNDING_VARIANCE, 0.0)
        return np.asarray(unit * np.sqrt(variance), dtype=np.float64)

    def _bias(self) -> Vector:
        return np.zeros(len(self.spread)) if self.bias is None else self.bias

    def compared(self, outputs: Outputs) -> Self:
        """Return the bars with the bias of estimates of all records (claim R-11)."""
        if outputs.on_all is None:
            return self
        places = set(range(len(self.spread))) - set(self.constants)
        here = _finished(outputs, outputs.values.mean(axis=0))
        there = np.full(len(here), np.nan)
        with suppress(PacPrivacyError, ValueError, TypeError, ArithmeticError):
            there = _finished(outputs, outputs.on_all)
        if here.shape != there.shape:
            return replace(self, no_interval=tuple(sorted(places)))
        bias, error = np.abs(here - there), self._errors("records", biased=False)
        rounding = ROUNDING_ERROR * np.maximum(np.abs(here), np.abs(there))
        unlike = ~(bias <= LARGEST_BIAS * error + rounding)
        within = ~unlike & (bias > LEAST_BIAS * error + rounding)
        return replace(
            self,
            bias=round_up_error_bars(np.where(within, bias, 0.0)) if within.any() else None,
            no_interval=tuple(sorted(places & set(np.flatnonzero(unlike).tolist()))),
        )

    def numbers_of(self, value: object) -> Vector:
        """Return the numbers of a released value, in the order of the bars."""
        numbers = flatten(value)[0]
        if len(numbers) != len(self.spread):
            raise MechanismError(
                f"value must hold {len(self.spread)} numbers, as on the pool; got {len(numbers)}. "
                "Return values of one shape."
            )
        return numbers

    def interval(
        self, numbers: Vector, confidence: float, of: Of | None = None
    ) -> tuple[Vector, Vector]:
        """Return the two ends of the interval around every number."""
        if not 0 < confidence < 1:
            raise BudgetError(
                f"confidence must be a number between 0 and 1; got {confidence!r}. Use 0.95."
            )
        of = of or self.aim
        half = self._quantile(0.5 + confidence / 2, of) * self.std_error(of)
        return numbers - half, numbers + half

    def _quantile(self, level: float, of: Of) -> Vector:
        """Return the half-width of every interval in standard errors."""
        normal: Vector = np.full(len(self.spread), NormalDist().inv_cdf(level))
        if of == "records" or self.freedom is None:
            return normal
        estimated = self.spread if self.design is None else self.design
        student = np.flatnonzero((self.freedom < NORMAL_FREEDOM) & (estimated > 0))
        known = np.square(self.noise_std) * (1.0 - self.share)
        if self.design is not None:
            known = np.square(self.noise_std) + np.square(self.spread)
        ratio = known[student] / np.square(estimated[student])
        # the variance of the noise is known: Satterthwaite's degrees of freedom of the sum
        normal[student] = scipy.special.stdtrit(self.freedom[student] * np.square(1 + ratio), level)
        return normal

    @property
    def facts(self) -> tuple[str, ...]:
        """Statements of the certificate about them, as facts that leave without noise."""
        return (self.sentence, COMPARED)

    @property
    def sentence(self) -> str:
        """The fact that binds them to the certificate, by their digest."""
        far = "" if self.bias is None else ", and how far candidates are from all records"
        return self._named(f"spread over the pool and noise of every number{far}")

    @property
    def coin_sentence(self) -> str:
        """The same, where every unit has a coin."""
        far = "" if self.bias is None else ", and what clipping changes"
        if self.design is not None:
            far = f", the error by the design of the survey, its degrees of freedom{far}"
        return self._named(f"spread by the coins and noise of every number{far}")

    def _named(self, what: str) -> str:
        return f"{NAMED}{what}, rounded up to two digits (SHA-256 {self.digest[:32]})"

    @property
    def digest(self) -> str:
        """SHA-256 of the figures."""
        plain = json.dumps(self.to_public_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(plain.encode("ascii")).hexdigest()

    def with_noise(self, factor: float) -> Self:
        """Return the bars with the noise multiplied, as for a mean of several observations."""
        return replace(self, noise_std=round_up_error_bars(self.noise_std * factor))

    def to_public_dict(self) -> Record:
        """Return everything as plain JSON types, shaped like the value."""
        shaped = {"std_error": self.std_error(), "bias": self.bias, "freedom": self.freedom}
        shaped |= {"spread": self.spread, "noise_std": self.noise_std, "design": self.design}
        plain = {
            name: _nulls(plain_value(self.structure.restore(numbers)))
            for name, numbers in shaped.items()
            if numbers is not None
        }
        places = {"no_interval": self.no_interval, "constants": self.constants}
        listed = {name: list(numbers) for name, numbers in places.items() if numbers}
        return {**plain, "share": self.share, "rounds": self.rounds, **listed}

    @classmethod
    def from_dict(cls, plain: Any, *, named: Sequence[str] | None, kind: Any = None) -> Self:
        """Rebuild error bars, in the types of a value; refuse others than a certificate names.

        None: they were computed from noisy sums after the certificate, which names none.
        """

        def read(name: str) -> Vector | None:
            shaped = plain.get(name)
            return None if shaped is None else flatten(node_value(shaped, kind, floats=True))[0]

        wrong = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, MechanismError)
        with suppress(*wrong):
            spread, structure = flatten(node_value(plain["spread"], kind, floats=True))
            bars = cls(
                structure=structure,
                spread=spread,
                noise_std=flatten(node_value(plain["noise_std"], kind, floats=True))[0],
                share=float(plain["share"]),
                rounds=bool(plain["rounds"]),
                bias=read("bias"),
                no_interval=tuple(map(int, plain.get("no_interval", ()))),
                constants=tuple(map(int, plain.get("constants", ()))),
                freedom=read("freedom"),
                design=read("design"),
            )
            facts = named or ()
            listed = any(t.startswith(NAMED) and bars.digest[:32] in t for t in facts)
            if (listed or named is None) and bars.to_public_dict() == plain:
                return bars
        raise CertificateError(
            "error_bars must be those that the certificate names; got other error bars. "
            "Use the file as it was written."
        )


def _nulls(plain: object) -> object:
    if isinstance(plain, dict):
        return {name: _nulls(item) for name, item in plain.items()}
    if isinstance(plain, list):
        return [_nulls(item) for item in plain]
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def round_up_error_bars(figures: Vector) -> Vector:
    """Round to two significant digits, upwards."""
    positive = figures > 0
    exponent = np.floor(np.log10(np.where(positive, figures, 1.0))).astype(np.int64) - 1
    digits = np.ceil(figures / 10.0**exponent)
    written = np.array([float(f"{n:.0f}e{e}") for n, e in zip(digits, exponent, strict=True)])
    return np.where(positive, np.maximum(written, figures * (1 - 1e-15)), 0.0)


# --- from the pool to the value that the user sees -----------------------------------------------


def measure_error_bars(outputs: Outputs, plan: NoisePlan, pool: Pool) -> ErrorBars | None:
    """Return the error bars of a release; a function of pool and noise law, not of the secret.

    Post-processing of our own is followed linearly. None where it gives no numbers, and where it is
    the user's: what was not released is not shown to it.
    """
    values = outputs.values
    (sampling, _, size), noise = column_spreads(values), np.sqrt(plan.noise_variances())
    moving = np.hypot(sampling, noise) > FLAT * size
    if _is_plain(outputs):
        unit = moving * (1.0 if outputs.scales is None else outputs.scales)
        spread, std, structure = sampling * unit, noise * unit, outputs.structure
        moved: Matrix | None = values * moving if values.shape[1] <= PROBED else None
    elif not _is_ours(outputs):
        return None
    else:
        try:
            spread, std, structure, moved = _through(outputs, plan, (sampling, noise, moving))
        except (PacPrivacyError, ValueError, TypeError, ArithmeticError):
            return None
    return ErrorBars(
        structure=structure.as_record(),
        spread=round_up_error_bars(spread),
        noise_std=round_up_error_bars(std),
        share=pool.share,
        rounds=outputs.rounds,
        freedom=None if moved is None else spread_freedom(moved),
        constants=_constants(outputs, len(spread)),
    ).compared(outputs)


def measure_coin_error_bars(
    outputs: Outputs,
    deviations: tuple[Vector, ...],
    *,
    share: float,
    design: tuple[Vector, int] | None = None,
) -> ErrorBars | None:
    """Return the error bars of a release with coins; a function of all records and the noise law.

    ``deviations`` are those of the numbers before post-processing, by the coins and by the noise;
    ``design`` those by the design of a survey, and their degrees of freedom.
    Post-processing of our own is taken to act on every number alone. What clipping changes is a
    bias that is known, and part of every error. None where post-processing is the user's.
    """
    structure, spreads = outputs.structure, list(deviations)
    spreads += [] if design is None else [design[0]]
    here, there = outputs.values[0], outputs.on_all
    assert there is not None  # measured with the value
    if not _is_plain(outputs):
        if not _is_ours(outputs):
            return None
        base, structure = flatten(outputs.restore(here, exact=True))
        finished = partial(_finished, outputs)
        spreads = [np.abs(finished(here + STEP * each) - base) / STEP for each in spreads]
        here, there = base, finished(there)
    bars = _coin_bars(outputs, structure, spreads[:2], (here, there), share)
    if design is None:
        return bars
    few = None if design[1] >= NORMAL_FREEDOM else np.full(len(spreads[2]), float(design[1]))
    return replace(bars, design=round_up_error_bars(spreads[2]), freedom=few)


def measure_shifted_error_bars(
    outputs: Outputs, end: Vector, shifts: tuple[Matrix, Matrix], there: Vector, *, share: float
) -> ErrorBars | None:
    """Return the error bars of a release behind linear post-processing; of all records.

    ``end`` are the numbers before it without coins and noise, ``shifts`` simulated distances from
    it by coins and by noise, one line each, and ``there`` the finished numbers for all records.
    """
    if not _is_ours(outputs):
        return None
    base, structure = flatten(outputs.restore(end, exact=True))
    if base.shape != there.shape:
        return None
    slopes = np.stack([_finished(outputs, end + step) - base for step in np.eye(len(end))])
    spreads = [(shift @ slopes).std(axis=0) for shift in shifts]
    return _coin_bars(outputs, structure, spreads, (base, there), share)


def _coin_bars(
    outputs: Outputs,
    structure: Structure,
    spreads: Sequence[Vector],
    ends: tuple[Vector, Vector],
    share: float,
) -> ErrorBars:
    """Return error bars whose bias is the distance from the value on all records."""
    here, there = ends
    spread, noise = (round_up_error_bars(each) for each in spreads)
    bias = np.abs(here - there)
    least = LEAST_BIAS * np.hypot(spread, noise) + ROUNDING_ERROR * np.abs(there)
    bias = np.where(bias > least, bias, 0.0)
    return ErrorBars(
        structure=structure.as_record(),
        spread=spread,
        noise_std=noise,
        share=share,
        rounds=outputs.rounds,
        bias=round_up_error_bars(bias) if bias.any() else None,
        constants=_constants(outputs, len(spread)),
    )


def _is_plain(outputs: Outputs) -> bool:
    """Return whether post-processing changes nothing."""
    owner = outputs.finish.__self__ if isinstance(outputs.finish, MethodType) else None
    if owner is None:
        return True
    return isinstance(owner, Mechanism) and type(owner).finish is Mechanism.finish


def _finished(outputs: Outputs, numbers: Vector) -> Vector:
    if _is_plain(outputs):
        return numbers if outputs.scales is None else numbers * outputs.scales
    return flatten(outputs.restore(numbers, exact=True))[0]


def _constants(outputs: Outputs, size: int) -> tuple[int, ...]:
    """Return the numbers of the finished value that no measured number moves."""
    if _is_plain(outputs):
        return ()
    centre = outputs.values.mean(axis=0)
    steps = PROBE * (1.0 + np.abs(centre)) * (1.0 + np.arange(len(centre)) / len(centre))
    base = _finished(outputs, centre)
    fixed = np.ones(size, dtype=np.bool_)
    for sign in (-1.0, 1.0):  # both: a number may be clipped on one side
        fixed &= _finished(outputs, centre + sign * steps) == base
    return tuple(np.flatnonzero(fixed).tolist())


def _is_ours(outputs: Outputs) -> bool:
    """Return whether post-processing is that of the library's mechanisms, not the user's."""
    owner = outputs.finish.__self__ if isinstance(outputs.finish, MethodType) else None
    mechanism = owner if isinstance(owner, Mechanism) else None
    layers = mechanism_layers(mechanism)
    return all(type(layer).finish.__module__.startswith("pacprivacy.") for layer in layers)


def _through(
    outputs: Outputs, plan: NoisePlan, errors: tuple[Vector, Vector, Mask]
) -> tuple[Vector, Vector, Structure, Matrix | None]:
    """Return spread, noise, structure and candidates' values behind linear post-processing."""
    finished = partial(_finished, outputs)
    sampling, noise, moving = errors
    centre = outputs.values.mean(axis=0)
    base, structure = flatten(outputs.restore(centre, exact=True))
    if moving.sum() > PROBED:  # then taken to act on every number alone
        shifts = (STEP * sampling * moving, STEP * noise * moving)
        one, other = (np.abs(finished(centre + shift) - base) / STEP for shift in shifts)
        return one, other, structure, None
    slopes = np.zeros((len(base), len(centre)))
    steps = np.maximum(STEP * np.hypot(sampling, noise), LEAST_STEP * np.abs(centre))
    for i in np.flatnonzero(moving):
        shifted = centre.copy()
        shifted[i] += steps[i]
        slopes[:, i] = (finished(shifted) - base) / (shifted[i] - centre[i])
    moved = (outputs.values - centre) @ slopes.T
    noise_std = np.linalg.norm(plan.noise_factor() @ slopes.T, axis=0)
    return moved.std(axis=0), noise_std, structure, moved


def spread_freedom(values: Matrix) -> Vector | None:
    """Return the degrees of freedom of the variance of each column, as a population's.

    Claim R-8: with ``F`` the distribution of a column, the gaps ``e_i`` between its distinct values
    make its variance ``e'Ae``, ``A_ij = min(F_i, F_j) (1 - max(F_i, F_j))``. Gaps between records
    are exponential: ``4/Σ w_i²`` degrees of freedom, ``w_i = 2 e_i (A e)_i / e'Ae``. Gaps that vary
    less, as between whole numbers, count by their own variation. None where all are
    ``NORMAL_FREEDOM`` or more.
    """
    freedom = np.full(values.shape[1], float(NORMAL_FREEDOM))
    for i, column in enumerate(np.sort(values, axis=0).T):
        steps = np.diff(column)
        ends = np.flatnonzero(steps > SAME_VALUE * (column[-1] - column[0]))
        if len(ends) == 0:
            continue
        gaps, below = steps[ends], (ends + 1) / len(column)
        lower, upper = np.cumsum(below * gaps), np.cumsum((1 - below) * gaps)
        weights = (1 - below) * lower + below * (upper[-1] - upper)
        relative = np.sum(np.square(2 * weights * gaps / (weights @ gaps)))
        mean = weights @ gaps / weights.sum()
        regular = weights @ np.square(gaps / mean - 1) / weights.sum()  # 0 on a lattice
        relative *= min(float(regular), 1.0)
        freedom[i] = min(NORMAL_FREEDOM, max(1, math.floor(4 / max(relative, 1e-9))))
    return freedom if (freedom < NORMAL_FREEDOM).any() else None


# --- for people ----------------------------------------------------------------------------------


def error_bar_rows(value: object, bars: ErrorBars | None, *, most: int | None = None) -> list[Row]:
    """Return the first measured numbers of a value by name."""
    if bars is None:
        return []
    try:
        numbers = bars.numbers_of(value)
    except MechanismError:  # the released value was replaced by another
        return []
    error, ends = bars.std_error(), bars.interval(numbers, 0.95)
    names = _shown_names(bars, numbers)
    shown = in_bin_order(names, np.flatnonzero(_measured(bars)).tolist())[:most]
    figures = (numbers, error, *ends, np.hypot(bars.spread, bars._bias()), bars.noise_std)
    cells = ((names[i], *(float(column[i]) for column in figures), False) for i in shown)
    return [Row._make(row) for row in cells]


def _shown_names(bars: ErrorBars, numbers: Vector, most: int | None = None) -> list[str]:
    return _bin_names([shown_name(name) for name in bars.structure.names(most)], numbers)


def _list_places(
    bars: ErrorBars,
    numbers: Vector,
    places: Sequence[int],
    note: Callable[[int], str] = lambda _: "",
) -> str:
    """Return the names of the first places, each with a note, and the number of the others."""
    shown = places[:SHOWN_NAMES]
    names = _shown_names(bars, numbers, max(shown) + 1 + MAX_BINS)
    more = f" and {len(places) - SHOWN_NAMES} more" if len(places) > SHOWN_NAMES else ""
    return "; ".join(f"{names[i]}{note(i)}" for i in shown) + more


def _measured(bars: ErrorBars) -> Mask:
    measured = np.ones(len(bars.spread), dtype=np.bool_)
    measured[list(bars.constants)] = False
    return measured


def count_measured(bars: ErrorBars | None) -> int:
    return 0 if bars is None else int(_measured(bars).sum())


_BIN: Final = re.compile(r"(?P<path>.*?)\.?counts\[(?P<place>(?:\d+, )*)(?P<bin>\d+)\]")


def _bin_names(names: list[str], numbers: Vector) -> list[str]:
    """Call counts by the range of their bin, where its edges stand beside them."""
    at = {name: i for i, name in enumerate(names)}
    renamed = list(names)
    for i, name in enumerate(names):
        if (match := _BIN.fullmatch(name)) is None:
            continue
        path, edges = match["path"], f"{match['path']}.edges".removeprefix(".")
        first, place = int(match["bin"]), match["place"]
        low, high, beyond = (at.get(f"{edges}[{place}{first + step}]") for step in range(3))
        if low is None or high is None or math.isnan(numbers[low]):
            continue
        under = "" if beyond is None else "under "
        column = path or (f"column {place.removesuffix(', ')}" if place else "")
        renamed[i] = f"{column} {numbers[low]:.6g} to {under}{numbers[high]:.6g}".strip()
    return renamed


def picked_error_bars(value: Value, like: object) -> Value:
    """Return the part of a stored value with error bars: of estimators, attributes."""
    if isinstance(value, dict) and isinstance(like, dict):
        for inner in ("attributes", "steps"):
            if "estimator" in value and "estimator" not in like and inner in value:
                value = value[inner]
        return {key: picked_error_bars(value.get(key), item) for key, item in like.items()}
    if isinstance(value, list) and isinstance(like, list) and len(value) == len(like):
        return [picked_error_bars(one, other) for one, other in zip(value, like, strict=True)]
    return value


# --- when the noise is most of a number ---------------------------------------------------------


NO_INTERVALS: Final = "no intervals: how sure the numbers are was not measured"


def error_bar_notes(bars: ErrorBars | None) -> tuple[str, ...]:
    """Add to the certificate notes on numbers with much noise or no interval."""
    if bars is None:
        return ()
    notes, size = [], count_measured(bars)
    if bars.no_interval:
        notes.append(f"{len(bars.no_interval)} of {size} {NO_INTERVAL}. {TOTALS_ADVICE}")
    count = int((bars.noise_std > MOSTLY_NOISE * bars.spread).sum())
    if count:
        notes.append(
            f"the noise of {count} of {size} numbers is more than {MOSTLY_NOISE:g} times their "
            f"error without it: it is most of their error. {ADVICE}"
        )
    return tuple(notes)


def _warn_of_unlike(bars: ErrorBars, outputs: Outputs, numbers: Vector) -> None:
    """Warn the curator of numbers that are not estimates for all records; shows no value."""
    places = list(bars.no_interval)
    if not places:
        return
    if outputs.on_all is not None and np.isnan(outputs.on_all).all():
        _warn(
            "the function has no value of this shape on all records: no number has an interval. "
            "Return the same numbers for any number of records."
        )
        return
    listed = _list_places(bars, numbers, places)
    _warn(
        f"{listed}: the value on all records differs from those on candidates by more than the "
        f"error explains; no interval is given. {TOTALS_ADVICE}"
    )


def warn_of_error_bars(value: object, bars: ErrorBars | None, outputs: Outputs) -> None:
    """Warn the curator of numbers with much noise, heavy tails or no interval."""
    if bars is None:
        return
    values = outputs.values
    noise, spread = bars.noise_std, bars.spread
    try:
        numbers = bars.numbers_of(value)
    except MechanismError:  # a finished estimator may hide its numbers; the noise is known
        numbers = np.full(len(spread), np.nan)
    _warn_of_unlike(bars, outputs, numbers)
    size = np.abs(numbers)
    small = (noise > spread) & (noise > size)
    noisy = small | ((noise > MOSTLY_NOISE * spread) & ~(noise < VISIBLE * size))
    if noisy.any():
        places = np.flatnonzero(noisy).tolist()
        listed = _list_places(
            bars, numbers, places, lambda i: f" (noise {noise[i]:.2g}, value {numbers[i]:.3g})"
        )
        what = "exceeds the signal" if small[places].all() else "is most of the error"
        count = f"{len(places)} of {count_measured(bars)} numbers"
        _warn(f"the noise {what} in {count}: {listed}. {ADVICE}")
    tails = _odd_tails(values)
    if tails:
        _warn(
            f"{tails} of {values.shape[1]} measured numbers have heavy tails or depend on single "
            "records: their intervals may cover less than they say."
        )


def _warn(message: str) -> None:
    warnings.warn(message, NoisyWarning, stacklevel=2)


def _odd_tails(values: Matrix) -> int:
    """Count outputs whose law over the pool has heavy tails, or two humps: a record in or out."""
    n_subsets, dimension = values.shape
    if n_subsets < LEAST_SUBSETS or dimension > PROBED:
        return 0
    centred = values - values.mean(axis=0)
    moves = centred.std(axis=0) > 0
    scaled = centred[:, moves] / centred[:, moves].std(axis=0)
    fourth, third = (scaled**4).mean(axis=0), (scaled**3).mean(axis=0)
    influence = scaled**4 - fourth - 2 * fourth * (scaled**2 - 1) - 4 * third * scaled
    flat_margin = TAIL_MARGIN_SD * influence.std(axis=0) / math.sqrt(n_subsets)
    # of a normal law: tails hide theirs
    heavy_margin = TAIL_MARGIN_SD * math.sqrt(24.0 / n_subsets)
    excess = fourth - 3.0
    return int(((excess > 1.0 + heavy_margin) | (excess < -1.0 - flat_margin)).sum())
