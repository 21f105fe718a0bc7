"""Counts, sums, means, histograms and quantiles of columns with declared ranges.

A record is in one cell at most, so it moves the numbers of one cell only: groups cost nothing. The
numbers of all columns are released as one vector with Laplace noise for a pure ``epsilon``;
quantiles are choices among the points of a declared grid. Sums under a membership success have
Gaussian noise: ``pac.Coins(rows_per_unit=1)``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Integers, Vector
from pacprivacy.dp.accounting import advantage, calibrate_to_advantage
from pacprivacy.dp.certificate import DPRelease
from pacprivacy.dp.events import PureEvent, publish_event
from pacprivacy.dp.mechanisms import (
    choose_quantile,
    exponential_score_loss,
    laplace,
    quantile_reach,
)
from pacprivacy.dp.noise import check_dp_noise_promise, dp_noise_source
from pacprivacy.dp.records import EMPTY_RECORDS, read_record_numbers, sum_clipped
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.statistics import MEAN, SUM, Formula, bin_of

STATISTICS: Final = ("count", "sum", "mean", "histogram", "median", "quantiles")
FORMULAS: Final[dict[str, Formula]] = {"count": SUM, "sum": SUM, "mean": MEAN, "histogram": SUM}
GRID: Final = 1001  # points among which a quantile is chosen
COUNTED: Final = 0.5  # of a record in the count behind a mean, beside up to 1 in the sum
GAMMA: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column as it is summed; curator-only but for name and range."""

    name: str
    values: Vector  # clipped to the range; NaN is a gap
    cells: Integers  # -1 where there is none
    low: float
    high: float

    def frame(self, statistic: str) -> tuple[float, float]:
        """Return the centre and the scale that bring declared values within -1 and 1."""
        if statistic == "mean":
            return (self.low + self.high) / 2, (self.high - self.low) / 2
        return 0.0, 1.0 if statistic != "sum" else max(abs(self.low), abs(self.high))

    def bins(self, n_bins: int) -> Vector:
        return np.linspace(self.low, self.high, n_bins + 1)

    def totals(self, statistic: str, n_cells: int, n_bins: int) -> Vector:
        """Return one row of counts or sums by cell; of a mean, sums and halves of counts."""
        if statistic == "count":
            return _count(self.cells, n_cells)[None]
        if statistic == "histogram":
            place = bin_of(self.values, self.bins(n_bins).tolist())
            inside = (self.cells >= 0) & (place < n_bins)
            codes = np.where(inside, self.cells * n_bins + place, -1)
            return _count(codes, n_cells * n_bins)[None]
        centre, scale = self.frame(statistic)
        (moments,) = FORMULAS[statistic].moments((self.values[:, None] - centre) / scale)
        parts = (moments[self.cells == cell] for cell in range(n_cells))
        sums = np.array([sum_clipped(part, clip_norm=1.0)[0] for part in parts])
        if statistic == "sum":
            return sums[None]
        return np.stack([sums, COUNTED * _count(self.cells, n_cells)])


def _count(codes: Integers, size: int) -> Vector:
    return np.bincount(codes[codes >= 0], minlength=size).astype(np.float64)


def release_dp_statistic(
    columns: Mapping[str, Any],
    *,
    statistic: str,
    ranges: Sequence[tuple[float, float]] = (),
    cells: Any = None,
    cell_names: Sequence[str] = (),
    success: float | None = None,
    epsilon: float | None = None,
    bins: int = 10,
    q: Sequence[float] = (0.25, 0.5, 0.75),
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release a statistic of every column, in all or by cells, under ``add_remove``.

    Parameters
    ----------
    columns : mapping of str to array, curator-only
        Numbers of every record, NaN where one is missing; names are public. For a count of records
        instead of entries, pass one column of zeros.
    statistic : {"count", "sum", "mean", "histogram", "median", "quantiles"}
        The statistic to release, by column and cell. All but quantiles have a ``noise_std``.
    ranges : sequence of pairs, public
        Declared range of each column, known without the records. Values are clipped to it, but
        those outside a histogram are not counted. A count needs none.
    cells : array of int, curator-only, and cell_names : sequence of str, public
        The group of every record, -1 for none; the names were declared.
    success, epsilon : float
        One of them: a pure ``epsilon``; or, for quantiles, the success of the best guess about a
        record.
    bins, q : public
        Of a histogram, of quantiles.

    Guarantee
    ---------
    Claim DP-40. Differential privacy with the ``epsilon`` of the certificate; no attacker's success
    is above ``success`` where that is given.
    """
    _check_request(statistic, success, epsilon, bins, q)
    names = tuple(cell_names) or ("",)
    read = _read(columns, statistic, ranges, cells, names)
    if statistic in ("median", "quantiles"):
        levels = (0.5,) if statistic == "median" else tuple(q)
        return _choices(read, names, levels, statistic, success, epsilon, simulate)
    totals = np.stack([column.totals(statistic, len(names), bins) for column in read])
    reach = len(read) * (1 + COUNTED if statistic == "mean" else 1.0)
    noisy = laplace(
        totals,
        sensitivity=math.nextafter(reach * (1 + 2.0**-50), math.inf),
        epsilon=float(epsilon or 0.0),
        neighbours="add_remove",
        simulate=simulate,
    )
    std = float((noisy.certificate.noise or {})["std"])
    values, errors = {}, {}
    for column, part in zip(read, noisy.value, strict=True):
        value, error = _finish(column, part, statistic, std)
        labels = names if statistic != "histogram" else _bin_names(column, names, bins)
        values[column.name], errors[column.name] = _named(value, labels), _named(error, labels)
    groups = f" in {len(names)} groups" if len(names) > 1 else ""
    moved = f"A record is in one group at most, and moves the numbers by {reach:.6g} in all."
    certificate = replace(
        noisy.certificate,
        mechanism=f"{statistic} of {len(read)} column{'s' * (len(read) != 1)}{groups}; "
        f"{noisy.certificate.mechanism}",
        assumptions=(
            *_declared(read, statistic),
            moved,
            *noisy.certificate.assumptions[1:],
            EMPTY_RECORDS,
        ),
    )
    return DPRelease(value={statistic: values, "noise_std": errors}, certificate=certificate)


def _check_request(
    statistic: str, success: float | None, epsilon: float | None, bins: int, q: Sequence[float]
) -> None:
    if statistic not in STATISTICS:
        raise DataError(
            f"statistic must be one of {', '.join(STATISTICS)}; got {statistic!r}. Choose one."
        )
    if (success is None) == (epsilon is None):
        raise BudgetError("success or epsilon must be given, and only one; got both or neither.")
    if success is not None and statistic not in ("median", "quantiles"):
        raise BudgetError(
            f"success must be left out for {statistic}: sums under a membership success are "
            "released by pac.privatize with pac.Coins(rows_per_unit=1). Or give epsilon."
        )
    if success is not None and not 0.5 < success < 1:
        raise BudgetError(f"success must be above 1/2 and below 1; got {success!r}. Use 0.6.")
    if not all(0 <= each <= 1 for each in q) or not q:
        raise DataError(f"q must be numbers between 0 and 1; got {q!r}. Write 0.25,0.5,0.75.")
    if bins < 1:
        raise DataError(f"bins must be at least 1; got {bins}. Use about 10.")


def _read(
    columns: Mapping[str, Any],
    statistic: str,
    ranges: Sequence[tuple[float, float]],
    cells: Any,
    names: Sequence[str],
) -> list[_Column]:
    if statistic == "count":
        ranges = [(-math.inf, math.inf)] * len(columns)
    if not columns or len(ranges) != len(columns):
        raise DataError(
            f"ranges must be one pair for each of {len(columns)} columns; got {len(ranges)}. "
            "Declare what values can be, without looking at them."
        )
    read = []
    for (name, column), (low, high) in zip(columns.items(), ranges, strict=True):
        if not low < high:
            raise DataError(f"ranges must be pairs low < high; got {low, high}. Write (0, 120).")
        numbers = read_record_numbers(column, len(column), name)
        groups = np.zeros(len(numbers), dtype=np.int64) if cells is None else np.asarray(cells)
        if groups.shape != numbers.shape or (groups.size and groups.max() >= len(names)):
            raise DataError("cells must be one number below that of names for each record.")
        inside = statistic != "histogram"
        values = np.clip(numbers, low, high) if inside else numbers
        codes = np.where(np.isfinite(numbers), groups, -1)
        read.append(_Column(name=name, values=values, cells=codes, low=low, high=high))
    return read


def _finish(column: _Column, noisy: Any, statistic: str, std: float) -> tuple[Vector, Vector]:
    """Return released numbers in the units of the column, and the noise in them."""
    formula, (centre, scale) = FORMULAS[statistic], column.frame(statistic)
    total = noisy[0]
    if statistic in ("count", "histogram"):
        return np.rint(total), np.full(len(total), std)
    if not formula.counted:
        return formula.restore(total, centre, scale), np.full(len(total), scale * std)
    number = np.maximum(noisy[1] / COUNTED, 1.0)
    value = np.clip(formula.value(number, total.copy()), -1.0, 1.0)
    assert formula.slopes is not None
    by_number, by_sum = formula.slopes(number, value * number)
    error = np.minimum(std * np.hypot(by_number / COUNTED, by_sum), 2.0)
    return formula.restore(value, centre, scale), scale * error


def _bin_names(column: _Column, names: Sequence[str], bins: int) -> list[str]:
    inner = [f"{a:g} to {b:g}" for a, b in pairwise(column.bins(bins))]
    return [f"{name}, {each}".removeprefix(", ") for name in names for each in inner]


def _named(values: Any, names: Sequence[str]) -> Any:
    numbers = [float(value) for value in values]
    return numbers[0] if list(names) == [""] else dict(zip(names, numbers, strict=True))


def _declared(read: list[_Column], statistic: str) -> tuple[str, ...]:
    if statistic == "count":
        return ()
    pairs = "; ".join(f"{column.name} {column.low:g} to {column.high:g}" for column in read)
    how = "not counted" if statistic == "histogram" else "clipped"
    return (f"Declared ranges, outside which values are {how}: {pairs}.",)


def _choices(
    read: list[_Column],
    names: Sequence[str],
    levels: tuple[float, ...],
    statistic: str,
    success: float | None,
    epsilon: float | None,
    simulate: np.random.Generator | int | None,
) -> DPRelease:
    """Choose every quantile on a grid, by rank."""
    count = len(read) * len(levels)
    if epsilon is None:
        epsilon = calibrate_to_advantage(
            lambda trial: advantage(PureEvent(epsilon=trial / count, count=count)),
            2 * float(success or 0) - 1,
        )
    check_dp_noise_promise(epsilon, 0.0, "add_remove")
    event = PureEvent(epsilon=epsilon / count, count=count)
    source, values = dp_noise_source(simulate), {}
    several = len(levels) > 1
    labels = [f"{n}, {q:g}".removeprefix(", ") if several else n for n in names for q in levels]
    for column in read:
        grid = np.linspace(column.low, column.high, GRID)
        quantiles = [
            choose_quantile(
                column.values[column.cells == cell],
                grid,
                level,
                epsilon=event.epsilon,
                neighbours="add_remove",
                source=source,
            )
            for cell in range(len(names))
            for level in levels
        ]
        values[column.name] = _named(quantiles, labels)
    reach = quantile_reach(1.0)
    off = exponential_score_loss(GRID, sensitivity=reach, epsilon=event.epsilon, gamma=GAMMA)
    return publish_event(
        {statistic: values},
        (epsilon, 0.0, "add_remove"),
        event,
        advantage=advantage(event),
        mechanism=f"{statistic} of {len(read)} columns, each chosen from {GRID} points of a grid "
        "by permute-and-flip",
        assumptions=(
            *_declared(read, statistic),
            "A record is in one group at most, and moves the rank of a point by one at most.",
            EMPTY_RECORDS,
        ),
        accounting={"method": "one choice for each quantile of each column", "choices": count},
        notes=(
            f"With probability {1 - GAMMA:g} the rank of a point is within about {off:.3g} records "
            "of the best point of the grid; no error bar in units follows from that.",
        ),
        simulation=source.is_simulation,
    )
