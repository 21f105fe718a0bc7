"""How sure a released number is: error bars from the pool's own spread and from the noise.

The pool knows the sampling variance. With ``C`` the variance of an output over the candidates
(every candidate alike, whatever was released before) and ``S`` that of its noise, the value on all
records lies within ``y ± z sqrt(C + S)``, and the parameter of the population that the records are
a sample of within ``y ± z sqrt(C/(1-f) + S)``, for candidates that hold a share ``f`` of the units
(math §16). Both are approximate: normal intervals for smooth statistics and quantiles. The bias of
an estimator is not in them, since the value on all records is not measured.

``C`` is exact for the records. For the population it is an estimate: where few people are left out,
a quantile moves between a handful of neighbouring values, whose gaps are all that is known of the
density. The interval of the population then takes Student's law in place of the normal one, with
the degrees of freedom that the gaps have (claim R-8).

``C`` and ``S`` are facts about the universe. They leave rounded up to two digits, and the
certificate names them and their digest.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
import scipy

from pacprivacy._certificates import plain_value
from pacprivacy._checks import (
    LARGEST_OUTPUT,
    SMALLEST_RANGE,
    Matrix,
    Vector,
    column_spreads,
    freeze,
)
from pacprivacy.errors import (
    BudgetError,
    CertificateError,
    MechanismError,
    NoisyWarning,
    PacPrivacyError,
)
from pacprivacy.mechanism import Mechanism, Structure, flatten, node_value
from pacprivacy.noise import NoisePlan
from pacprivacy.pool import Pool
from pacprivacy.simulation import Outputs

Of = Literal["records", "population"]

NAMED: Final = "error bars: "
PROBED: Final = 4096  # numbers that post-processing is followed through one by one
STEP: Final = 1e-3  # of an error, to see what post-processing makes of it
LEAST_STEP: Final = 1e-9  # of the number itself, so that a step is no rounding error
FLAT: Final = 1e-12  # an error below this share of the number is one of floating point
ROUNDING_VARIANCE: Final = 1 / 12  # of a number that is rounded to whole ones
NORMAL_FREEDOM: Final = 60  # degrees of freedom from which the normal law is used
SAME_VALUE: Final = 1e-9  # of the range: values that differ by less are one value
DROWNED: Final = 3.0  # times the spread: from here on the noise is most of the error
VISIBLE: Final = 0.1  # of a number: noise below this is seen in its error bar, and needs no warning
TAIL_MARGIN_SD: Final = 3.0  # standard errors by which tails must be beyond their limits
LEAST_SUBSETS: Final = 64  # fewer do not show the tails
SHOWN_NAMES: Final = 3
EXACT_POWER: Final = 22  # powers of ten up to this are exact
SHOWN_NUMBERS: Final = 40
ADVICE: Final = (
    "What helps: scale or cap the columns, a robust statistic (median, trimmed mean), more "
    "records or subsets, a larger budget."
)


class Interval(NamedTuple):
    """Two ends, each shaped and labelled like the released value."""

    lower: Any
    upper: Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErrorBars:
    """Spread over the pool and noise of every released number, in its units; public.

    Both are standard deviations, rounded up to two digits. ``structure`` has dictionaries in the
    place of estimators; ``share`` is that of the units in a candidate; ``rounds`` whether the
    numbers were rounded to whole ones; ``freedom`` are the degrees of freedom of each spread as an
    estimate for the population, rounded down, None where all are ``NORMAL_FREEDOM`` or more.
    """

    structure: Structure
    spread: Vector
    noise_std: Vector
    share: float
    rounds: bool = False
    freedom: Vector | None = None

    def __post_init__(self) -> None:
        freeze(self.spread)
        freeze(self.noise_std)

    def std_error(self, of: Of = "records") -> Vector:
        """Return the standard error of every number, for all records or for their population."""
        if of not in ("records", "population"):
            raise BudgetError(f"of must be 'records' or 'population'; got {of!r}. Choose one.")
        size = np.maximum(self.spread, self.noise_std)
        odd = (size > 0) & ~((size > SMALLEST_RANGE) & (size < LARGEST_OUTPUT))
        unit = np.where(odd, size, 1.0)  # squares of such numbers are 0 or infinite
        sampling = np.square(self.spread / unit)
        if of == "population":
            sampling = sampling / (1.0 - self.share)
        variance = sampling + np.square(self.noise_std / unit)
        if self.rounds:
            variance = np.where(variance > 0, variance + ROUNDING_VARIANCE, 0.0)
        return np.asarray(unit * np.sqrt(variance))

    def numbers_of(self, value: Any) -> Vector:
        """Return the numbers of a released value, in the order of the bars."""
        numbers = flatten(value)[0]
        if len(numbers) != len(self.spread):
            raise MechanismError(
                f"value must hold {len(self.spread)} numbers, as on the pool; got {len(numbers)}. "
                "Return values of one shape."
            )
        return numbers

    def interval(self, numbers: Vector, confidence: float, of: Of) -> tuple[Vector, Vector]:
        """Return the two ends of the interval around every number."""
        if not 0 < confidence < 1:
            raise BudgetError(
                f"confidence must be a number between 0 and 1; got {confidence!r}. Use 0.95."
            )
        half = self._quantile(0.5 + confidence / 2, of) * self.std_error(of)
        return numbers - half, numbers + half

    def _quantile(self, level: float, of: Of) -> Vector:
        """Return how many standard errors the interval of every number reaches to one side."""
        normal: Vector = np.full(len(self.spread), float(scipy.special.ndtri(level)))
        if of == "records" or self.freedom is None:
            return normal
        few = np.flatnonzero((self.freedom < NORMAL_FREEDOM) & (self.spread > 0))
        ratio = np.square(self.noise_std[few] / self.spread[few]) * (1.0 - self.share)
        # the variance of the noise is known: Satterthwaite's degrees of freedom of the sum
        normal[few] = scipy.special.stdtrit(self.freedom[few] * np.square(1 + ratio), level)
        return normal

    @property
    def sentence(self) -> str:
        """What the certificate says about them: it binds them to its digest."""
        return (
            f"{NAMED}spread over the pool and noise of every number, rounded up to two digits "
            f"(SHA-256 {self.digest[:32]})"
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the figures."""
        plain = json.dumps(self.to_public_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(plain.encode("ascii")).hexdigest()

    def with_noise(self, factor: float) -> Self:
        """Return the bars with the noise multiplied, as for a mean of several observations."""
        return replace(self, noise_std=round_up_error_bars(self.noise_std * factor))

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types, shaped like the value."""
        shaped = {
            "std_error": self.std_error(),
            "spread": self.spread,
            "noise_std": self.noise_std,
        }
        if self.freedom is not None:
            shaped["freedom"] = self.freedom
        plain = {name: plain_value(self.structure.restore(v)) for name, v in shaped.items()}
        return {**plain, "share": self.share, "rounds": self.rounds}

    @classmethod
    def from_dict(cls, plain: Any, *, named: Sequence[str], kind: Any = None) -> Self:
        """Rebuild error bars, in the types of a value; refuse others than a certificate names."""
        wrong = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, MechanismError)
        with suppress(*wrong):
            spread, structure = flatten(node_value(plain["spread"], kind, floats=True))
            found = cls(
                structure=structure,
                spread=spread,
                noise_std=flatten(node_value(plain["noise_std"], kind, floats=True))[0],
                share=float(plain["share"]),
                rounds=bool(plain["rounds"]),
                freedom=flatten(node_value(plain["freedom"], kind, floats=True))[0]
                if "freedom" in plain
                else None,
            )
            if found.sentence in named and found.to_public_dict() == plain:
                return found
        raise CertificateError(
            "error_bars must be those that the certificate names; got others. "
            "Use the file as it was written."
        )


def round_up_error_bars(figures: Vector) -> Vector:
    """Round to two significant digits, upwards."""
    positive = figures > 0
    exponent = np.floor(np.log10(np.where(positive, figures, 1.0))).astype(np.int64) - 1
    digits = np.ceil(figures / 10.0**exponent)
    if (np.abs(exponent) > EXACT_POWER).any():
        written = np.array([float(f"{n:.0f}e{e}") for n, e in zip(digits, exponent, strict=True)])
    else:  # the same, since both sides of one product or quotient are exact
        power = 10.0 ** np.abs(exponent)
        written = np.where(exponent < 0, digits / power, digits * power)
    return np.where(positive, np.maximum(written, figures * (1 - 1e-15)), 0.0)


# --- from the pool to the value that the user sees -----------------------------------------------


def measure_error_bars(outputs: Outputs, plan: NoisePlan, pool: Pool) -> ErrorBars | None:
    """Return the error bars of a release; a function of pool and noise law, not of the secret.

    Post-processing of our own is followed linearly, from the mean of the outputs over the pool.
    None where it gives something that is not made of numbers, and where it is the user's: what was
    not released is not shown to it.
    """
    values = outputs.values
    (sampling, _, size), noise = column_spreads(values), np.sqrt(plan.noise_variances())
    moving = np.hypot(sampling, noise) > FLAT * size
    owner = getattr(outputs.finish, "__self__", None)
    if owner is None or type(owner).finish is Mechanism.finish:  # it changes nothing
        unit = moving * (1.0 if outputs.scales is None else outputs.scales)
        spread, std, structure = sampling * unit, noise * unit, outputs.structure
        moved: Matrix | None = values * moving if values.shape[1] <= PROBED else None
    elif not _is_ours(owner):
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
    )


def _is_ours(mechanism: Any) -> bool:
    while mechanism is not None:
        if not type(mechanism).finish.__module__.startswith("pacprivacy."):
            return False
        mechanism = getattr(mechanism, "inner", None)
    return True


def _through(
    outputs: Outputs, plan: NoisePlan, errors: tuple[Vector, Vector, Any]
) -> tuple[Vector, Vector, Structure, Matrix | None]:
    """Return spread and noise behind the mechanism's post-processing, what it builds, and values.

    The values are those of the candidates, as far as the post-processing is linear.
    """

    def finished(vector: Vector) -> Vector:
        return flatten(outputs.restore(vector, exact=True))[0]

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

    None where all are ``NORMAL_FREEDOM`` or more.

    Guarantee
    ---------
    Claim R-8. With ``F`` the distribution of a column, the gaps ``e_i`` between its distinct values
    make its variance ``Σ e_i e_j A_ij``, ``A_ij = min(F_i, F_j) (1 - max(F_i, F_j))``. Gaps between
    records are exponential variables, and the relative variance of the sum is half of ``Σ w_i²``,
    ``w_i = 2 e_i (A e)_i / e'Ae``: that of ``4/Σ w_i²`` degrees of freedom. Gaps that vary less, as
    between whole numbers, count by their own variation.
    """
    found = np.full(values.shape[1], float(NORMAL_FREEDOM))
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
        found[i] = min(NORMAL_FREEDOM, max(1, math.floor(4 / max(relative, 1e-9))))
    return found if (found < NORMAL_FREEDOM).any() else None


# --- for people ----------------------------------------------------------------------------------


class Row(NamedTuple):
    """One released number with its error bars, for people."""

    name: str
    value: float
    std_error: float
    lower: float
    upper: float
    spread: float = 0.0
    noise_std: float = 0.0


def error_bar_rows(value: Any, bars: ErrorBars | None, *, most: int) -> list[Row]:
    """Return the first numbers of a value by name; those without error bars are not estimates."""
    if bars is None:
        return []
    try:
        numbers = bars.numbers_of(value)
    except MechanismError:  # another value was put in the place of the released one
        return []
    error, ends = bars.std_error(), bars.interval(numbers, 0.95, "records")
    shown = np.flatnonzero(_measured(bars))[:most]
    named = bars.structure.names(int(shown.max(initial=-1)) + 1)
    names = [f"value{name}" if name[:1] in ("", "[") else name for name in named]
    figures = (numbers, error, *ends, bars.spread, bars.noise_std)
    return [Row(names[i], *(float(column[i]) for column in figures)) for i in shown]


def _measured(bars: ErrorBars) -> Any:
    """Return which numbers stand in an array that moves; all where none does (unanimous)."""
    moves = (bars.spread > 0) | (bars.noise_std > 0)
    shown = np.zeros(len(moves), dtype=np.bool_)
    for part in bars.structure.parts():
        shown[part] = moves[part].any() or not moves.any()
    return shown


def error_bars_html(rows: Sequence[Row], bars: ErrorBars | None) -> str:
    """Return numbers with their error bars as a table in HTML."""
    lines = [(row.name, *error_bar_plus_minus(row), error_bar_ends(row)) for row in rows]
    cells = ""
    for line in lines:
        cells += "".join(["<tr>", *(f"<td>{html.escape(cell)}</td>" for cell in line), "</tr>"])
    heads = "".join(
        f"<th>{name}</th>" for name in ("", "value", "± standard error", "95 % interval")
    )
    more = 0 if bars is None else int(_measured(bars).sum()) - len(rows)
    rest = f"<p>and {more} more numbers</p>" if more > 0 else ""
    return f"<table><tr>{heads}</tr>{cells}</table>{rest}"


def picked_error_bars(value: Any, like: Any) -> Any:
    """Return of a value from a file what the error bars are about: of estimators, attributes."""
    if isinstance(value, dict) and isinstance(like, dict):
        for inner in ("attributes", "steps"):
            if "estimator" in value and "estimator" not in like and inner in value:
                value = value[inner]
        return {key: picked_error_bars(value.get(key), item) for key, item in like.items()}
    if isinstance(value, list) and isinstance(like, list) and len(value) == len(like):
        return [picked_error_bars(one, other) for one, other in zip(value, like, strict=True)]
    return value


def error_bar_plus_minus(row: Row) -> tuple[str, str]:
    """Write a number and its standard error to the same decimal: ``50.2`` and ``0.4``.

    The error has two digits if it begins with 1, 2 or 3, and else one; it is rounded up.
    """
    value, error = row.value, row.std_error
    if not 1e-300 < error < math.inf:
        return f"{value:.6g}", "0"
    decimals = -math.floor(math.log10(error))
    decimals += error * 10.0**decimals < 4
    unit = 10.0**-decimals
    error = math.ceil(error / unit * (1 - 1e-9)) * unit
    value = round(value / unit) * unit if abs(value / unit) < math.inf else value
    if not -10 < decimals < 7:
        return f"{value:.4g}", f"{error:.2g}"
    return f"{value:,.{max(0, decimals)}f}", f"{error:,.{max(0, decimals)}f}"


def error_bar_ends(row: Row) -> str:
    """Write the interval of a number, to the decimal of its error."""
    lower, upper = (
        error_bar_plus_minus(row._replace(value=end))[0] for end in (row.lower, row.upper)
    )
    return f"{lower} to {upper}"


# --- when the noise is most of what leaves -------------------------------------------------------


def error_bar_drowned_note(bars: ErrorBars | None) -> tuple[str, ...]:
    """Say in the certificate that noise is far above the spread: a fact of what is published."""
    if bars is None:
        return ()
    count = int((bars.noise_std > DROWNED * bars.spread).sum())
    if not count:
        return ()
    return (
        f"the noise of {count} of {len(bars.spread)} numbers is more than {DROWNED:g} times their "
        f"spread over the pool: it is most of their error. {ADVICE}",
    )


def warn_of_error_bars(value: Any, bars: ErrorBars | None, values: Matrix) -> None:
    """Warn the curator, once per release, of numbers that are mostly noise or have heavy tails."""
    if bars is None:
        return
    noise, spread = bars.noise_std, bars.spread
    try:
        numbers = bars.numbers_of(value)
    except MechanismError:  # a finished estimator may hide its numbers; the noise is known
        numbers = np.full(len(spread), np.nan)
    size = np.abs(numbers)
    small = (noise > spread) & (noise > size)
    noisy = small | ((noise > DROWNED * spread) & ~(noise < VISIBLE * size))
    if noisy.any():
        places = np.flatnonzero(noisy)
        names = bars.structure.names(int(places[:SHOWN_NAMES].max()) + 1)
        some = "; ".join(
            f"{names[i]} (noise {noise[i]:.2g}, value {numbers[i]:.3g})"
            for i in places[:SHOWN_NAMES]
        )
        rest = f" and {len(places) - SHOWN_NAMES} more" if len(places) > SHOWN_NAMES else ""
        what = "exceeds the signal" if small[places].all() else "is most of the error"
        _warn(f"the noise {what} in {len(places)} of {len(noise)} numbers: {some}{rest}. {ADVICE}")
    tails = _odd_tails(values)
    if tails:
        _warn(
            f"{tails} of {values.shape[1]} measured numbers have heavy tails or hang on single "
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
    heavy_margin = TAIL_MARGIN_SD * math.sqrt(
        24.0 / n_subsets
    )  # of a normal law: tails hide theirs
    excess = fourth - 3.0
    return int(((excess > 1.0 + heavy_margin) | (excess < -1.0 - flat_margin)).sum())
