"""NumPy's functions as statistics, and the statistic behind a mechanism."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Integers
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import (
    Data,
    FunctionMechanism,
    Mechanism,
    StepMechanism,
    is_one_column,
    mechanism_layers,
)
from pacprivacy.statistics.arrays import Count, Histogram, Mean, Spread, Total
from pacprivacy.statistics.declared import Declaration, first_rows
from pacprivacy.statistics.influence import AveragedStatistic, InfluencedStatistic
from pacprivacy.statistics.quantiles import ArrayQuantiles
from pacprivacy.statistics.unit_sums import SumStatistic, UnitSums

CoinStatistic = SumStatistic | AveragedStatistic

_FUNCTIONS: Final[tuple[tuple[Any, Callable[[int], SumStatistic]], ...]] = (
    *((function, lambda ddof: Mean()) for function in (np.mean, np.average)),
    *((function, lambda ddof: Total()) for function in (np.sum, sum, math.fsum)),
    (len, lambda ddof: Count()),
    (np.var, lambda ddof: Spread(ddof=ddof)),
    (np.std, lambda ddof: Spread(ddof=ddof, root=True)),
)
UNKNOWN_INFLUENCE: Final = "it is not known how much one {unit} changes the value"
_QUANTILES: Final = {np.median: 0.0, np.quantile: 1.0, np.percentile: 100.0}  # what q is out of


def _numpy_statistic(mechanism: FunctionMechanism, data: Data) -> CoinStatistic | None:
    function: Any = mechanism.function
    options: dict[str, Any] = {}
    if isinstance(function, functools.partial):
        if function.args:
            return None
        function, options = function.func, dict(function.keywords)
    if len(data.parts) > 1:
        return None
    top = next((top for known, top in _QUANTILES.items() if known is function), None)
    if top is not None:
        q = options.pop("q", None) if top else 0.5
        if q is not None:
            _read_options(mechanism.name, options, data, with_ddof=False)
            return _quantiles(mechanism.name, np.asarray(q, dtype=np.float64) / (top or 1.0))
    if function is np.histogram:
        return _histogram(mechanism.name, options, data)
    make = next((make for known, make in _FUNCTIONS if known is function), None)
    return None if make is None else make(_read_options(mechanism.name, options, data))


def _quantiles(name: str, q: npt.NDArray[np.float64]) -> ArrayQuantiles:
    if q.ndim > 1 or not q.size or not ((q >= 0) & (q <= 1)).all():
        raise MechanismError(
            f"q must be one number or a list of them, within the range of {name}; got shape "
            f"{q.shape}. Write functools.partial(np.quantile, q=0.9, axis=0)."
        )
    return ArrayQuantiles(probabilities=tuple(np.ravel(q).tolist()), scalar=q.ndim == 0)


def _histogram(name: str, options: dict[str, Any], data: Data) -> Histogram | None:
    """Return counts by declared edges; None where NumPy takes them from the records."""
    bins, limits = options.pop("bins", 10), options.pop("range", None)
    if isinstance(bins, str) or (np.ndim(bins) == 0 and limits is None):
        return None
    _read_options(name, options, data, with_ddof=False)
    edges = np.histogram_bin_edges([], bins, limits).tolist()
    return replace(Histogram(bins=edges), edges=(tuple(edges),))


def _read_options(
    name: str, options: Mapping[str, Any], data: Data, *, with_ddof: bool = True
) -> int:
    """Return ``ddof``; refuse other options, and several columns in one number."""
    axis, ddof = options.get("axis"), options.get("ddof", 0)
    known = {"axis", "ddof"} if with_ddof else {"axis"}
    if not set(options) <= known or axis not in (None, 0) or type(ddof) is not int:
        raise MechanismError(
            f"{name} must have no options but axis=0 and ddof where every unit has a coin; got "
            "others. Use pac.stats, or a pool: sample=pac.Balanced()."
        )
    if axis is None and name != "len" and not is_one_column(data.parts[0]):
        raise MechanismError(
            f"{name} of several columns must be taken along axis 0 where every unit has a coin; "
            f"got one number for all. Write functools.partial(np.{name}, axis=0)."
        )
    return ddof


def statistic_with_coins(
    mechanism: Mechanism, data: Data, units: Integers | None
) -> tuple[CoinStatistic, Data, Integers | None]:
    """Return the statistic behind a mechanism, its records, and the unit of each."""
    for inner in mechanism_layers(mechanism):
        statistic: CoinStatistic | None = None
        if isinstance(inner, SumStatistic | AveragedStatistic):
            statistic = inner
        elif isinstance(inner, FunctionMechanism):
            statistic = _numpy_statistic(inner, data)
        elif inner.influence is not None:
            statistic = InfluencedStatistic(mechanism=inner)
        if statistic is not None:
            return statistic, data, units
        data, units = inner.inner_records(data, units)
    raise MechanismError(
        f"a statistic must say what one unit changes where every unit has a coin; got "
        f"{mechanism.name[:60]}. Use a statistic of pac.stats, or a pool: sample=pac.Balanced()."
    )


def coin_obstacle(mechanism: Mechanism, data: Data) -> str | None:
    """Return why coins are not possible, to follow "because"; None if they are.

    A function of what it is, of its options, and of the types of the data: no record is read.
    """
    for inner in mechanism_layers(mechanism):
        if isinstance(inner, FunctionMechanism):
            return _function_obstacle(inner, data)
        obstacle = inner.coin_obstacle()
        states = isinstance(inner, SumStatistic | AveragedStatistic | StepMechanism)
        states = states or inner.influence is not None
        if obstacle is not None or states:
            return obstacle
    return UNKNOWN_INFLUENCE


def refuse_obstacles(mechanism: Mechanism) -> None:
    """Refuse options that are for pools, where coins were chosen."""
    for inner in mechanism_layers(mechanism):
        if (obstacle := inner.coin_obstacle()) is not None:
            raise MechanismError(
                f"a pool must be used where {obstacle}; got coins. Use a pool: "
                "sample=pac.Balanced(), or leave that option out."
            )


def _function_obstacle(mechanism: FunctionMechanism, data: Data) -> str | None:
    try:
        statistic = _numpy_statistic(mechanism, data)
    except MechanismError:  # of its options, or of several columns in one number
        return f"{mechanism.name} is not taken along axis 0, or has options besides"
    return UNKNOWN_INFLUENCE if statistic is None else None


def declared_sums(
    statistic: SumStatistic, data: Data, units: Integers | None, rows_per_unit: int
) -> tuple[SumStatistic, Declaration, UnitSums]:
    """Return a statistic with everything declared, its declaration, and the contributions to it.

    Of every unit the first rows are used; where every row is a unit, all are.
    """
    if units is not None:
        used = first_rows(units, rows_per_unit)
        units = units[used]
        data = Data(parts=data.take(used), n_rows=len(used), single=data.single)
    declared, declaration = statistic.declare(1 if units is None else rows_per_unit)
    return declared, declaration, declared.contributions(data, units)
