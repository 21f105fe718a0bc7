"""Statistics as sums over units: the same numbers as on rows, one definition for both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import plan_sums
from pacprivacy.sample import code_units, draw_coins
from pacprivacy.statistics import (
    Correlation,
    Covariance,
    Histogram,
    Mean,
    Sums,
    SumStatistic,
    UnitSums,
)
from pacprivacy.statistics.unit_sums import round_centre

RNG = np.random.default_rng(0)
N = 1200
X = RNG.normal(size=(N, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0], [0, 0, 2.0]]) + [5, -3, 1e4]
FRAME = pd.DataFrame(
    {
        "a": X[:, 0],
        "b": np.where(RNG.random(N) < 0.1, np.nan, X[:, 1]),
        "region": RNG.choice(["n", "s", "w"], N),
        "kind": RNG.choice(["u", "v"], N),
        "w": RNG.random(N),
    }
)
PEOPLE = RNG.integers(0, 400, N)

ARRAYS: list[Any] = [
    Mean(),
    Covariance(),
    Covariance(ddof=0),
    Correlation(),
    Histogram(bins=8, ranges=[(0, 10), (-8, 2), (9990, 10010)]),
]
TABLES: list[Any] = [
    pac.stats.mean(["a", "b"]),
    pac.stats.mean(["a", "b"], by="region"),
    pac.stats.mean(["a", "b"], by=["region", "kind"], where="a > 4", weights="w", fill=0),
    pac.stats.mean("region"),
    pac.stats.sum("a", by="region"),
    pac.stats.count("region"),
    pac.stats.count(),
    pac.stats.count("b", by="kind"),
    pac.stats.crosstab("region", "kind"),
    pac.stats.variance(["a", "b"], by="kind"),
]


def cases() -> list[Any]:
    arrays = [pytest.param(s, coerce_data(X), id=f"{s.name}-{i}") for i, s in enumerate(ARRAYS)]
    frame = coerce_data(FRAME)
    return arrays + [pytest.param(s, frame, id=s.name.replace(" ", "-")) for s in TABLES]


@pytest.mark.claim("C-7")
@pytest.mark.parametrize(("statistic", "data"), cases())
def test_the_value_of_the_sums_is_the_statistic(statistic: Any, data: Any) -> None:
    ready = statistic.prepare(data)
    assert isinstance(ready, SumStatistic)
    truth = np.ravel(ready.evaluate(data.parts, np.random.default_rng(0)))
    codes, _ = code_units(PEOPLE, N)
    for units in (None, codes):
        sums = ready.contributions(data, units)
        np.testing.assert_allclose(ready.value(sums.total()), truth, rtol=1e-9, atol=1e-9)
    # of the units that are used: the statistic of their rows, sums and counts divided by keep
    kept = np.random.default_rng(1).random(sums.n_units) < 0.7
    own = np.ravel(ready.evaluate(data.take(np.flatnonzero(kept[codes])), np.random.default_rng(0)))
    part = ready.value(sums.total(kept.astype(float)))
    np.testing.assert_allclose(part, own, rtol=1e-9, atol=1e-9)
    halved = ready.value(sums.total(), 0.5)
    factor = 2.0 if statistic.totals in ("sum", "count") else 1.0
    np.testing.assert_allclose(halved, factor * truth, rtol=0.02, atol=1e-6)


@pytest.mark.claim("C-7")
@pytest.mark.parametrize(("statistic", "data"), cases())
def test_derivatives_are_those_of_the_value(statistic: Any, data: Any) -> None:
    ready = statistic.prepare(data)
    sums = ready.contributions(data)
    total = sums.total()
    slopes = ready.jacobian(total)
    assert slopes.shape[::2] == total.values.shape
    step = 1e-5 * total.sizes * np.random.default_rng(3).normal(size=total.values.shape)
    ends = [
        ready.cell_values(Sums(values=total.values + sign * step, centre=total.centre))
        for sign in (1, -1)
    ]
    predicted = np.einsum("ckb,cb->ck", slopes, step)
    np.testing.assert_allclose((ends[0] - ends[1]) / 2, predicted, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize(("statistic", "data"), cases())
def test_a_release_is_near_and_its_noise_is_what_is_stated(statistic: Any, data: Any) -> None:
    ready = statistic.prepare(data)
    sums = ready.contributions(data)
    plan = plan_sums(sums, success=0.7, keep=0.9, slopes=ready.output_slopes(sums), clip=None)
    truth, source = ready.cell_values(sums.total()), SimulatedSource(5)
    kept = np.ones(N, bool)
    draws = []
    for _ in range(200):
        noisy = plan.release(sums, kept, source)
        draws.append(ready.cell_values(Sums(values=noisy.values, centre=noisy.centre)))
    std = 0.9 * np.sqrt(plan.noise_variances(ready.jacobian(sums.total())))
    # what is far from a bin of its own does not move, to first order
    moves = std > 0.01 * std.max()
    scaled = (np.array(draws) - truth)[:, moves] / std[moves]
    assert 0.85 < np.sqrt(np.mean(np.square(scaled))) < 1.15


def test_a_group_of_which_too_little_is_known_has_the_declared_value() -> None:
    frame = FRAME.copy()
    frame.loc[:2, "region"] = "rare"
    data = coerce_data(frame)
    for fill in (-1.0, None):
        mean = pac.stats.mean("a", by="region", fill=fill).prepare(data)
        sums = mean.contributions(data)
        plan = plan_sums(sums, success=0.55, keep=0.9, slopes=mean.output_slopes(sums))
        noisy = plan.release(sums, draw_coins(N, 0.9, SimulatedSource(0)), SimulatedSource(1))
        named = mean.finish(mean.value(noisy, 0.9))
        assert named["rare"] == -1.0 if fill is not None else np.isnan(named["rare"])
        assert abs(named["n"] - 5) < 1


@pytest.mark.claim("C-7")
@pytest.mark.parametrize("statistic", [*ARRAYS, *TABLES[:4]], ids=lambda s: s.name[:12])
def test_values_are_defined_for_all_sums(statistic: Any) -> None:
    data = coerce_data(FRAME if hasattr(statistic, "by") else X)
    ready = statistic.prepare(data)
    sums = ready.contributions(data).total()
    rng = np.random.default_rng(0)
    n_values = ready.value(sums).size
    zeros = np.zeros_like(sums.values)
    for values in (zeros, -sums.values, rng.normal(size=zeros.shape), 1e100 + zeros):
        for noise_std in (None, np.ones_like(zeros)):
            found = ready.value(Sums(values=values, centre=sums.centre, noise_std=noise_std), 0.9)
            assert found.shape == (n_values,)


def test_centres_are_coarse() -> None:
    centre, deviation = np.array([5.123456, 0.0, 1e4 + 1 / 3]), np.array([1.3, 0.0, 0.0])
    rounded = round_centre(centre, deviation)
    assert abs(rounded[0] - centre[0]) <= 1.3 / 32
    assert rounded[0] * 16 == round(rounded[0] * 16)  # deviations to a power of two
    assert rounded[1] == 0
    assert rounded[2] % 256 == 0  # a column of one value is not shown exactly
    assert abs(rounded[2] - centre[2]) <= 1e4 / 32


def test_gaps_filled_by_the_mean_are_for_pools() -> None:
    table = pd.DataFrame({"x": np.arange(400.0), "y": ["a", "b"] * 200, "w": 1.0})
    for statistic, reason in (
        (pac.stats.mean("x", missing="mean"), "gaps are filled by means"),
        (pac.stats.median("x", missing="mean"), "gaps are filled by means"),
        (pac.stats.ols("x", "w", missing="mean"), "gaps are filled by means"),
        (pac.Study(pac.stats.mean("x", missing="mean")), "gaps are filled by means"),
        (pac.stats.logistic("y", "x", weights="w"), "rows are weighted or grouped"),
    ):
        with pytest.raises(MechanismError, match=f"a pool must be used where {reason}"):
            pac.privatize(statistic, table, "membership<=0.6", sample=pac.Coins())


def test_what_cannot_be_summed_is_refused() -> None:
    with pytest.raises(MechanismError, match="contributions must be finite"):
        UnitSums.of_rows(np.array([[1.0], [np.nan]]))
    for scale in (1e150, 1e200, 1e300):
        for statistic in (Mean(), Covariance()):
            with pytest.raises(MechanismError, match="contributions must be finite"):
                statistic.contributions(coerce_data(X * scale))
    with pytest.raises(MechanismError, match="units must be numbered"):
        UnitSums(
            values=np.ones((1, 1)), units=np.array([3]), starts=np.array([0, 1]), n_units=2,
            centre=np.zeros(0),
        )  # fmt: skip
    with pytest.raises(MechanismError, match="units must be given for every entry"):
        UnitSums(
            values=np.ones((1, 1)), units=None, starts=np.array([0, 1]), n_units=2,
            centre=np.zeros(0),
        )  # fmt: skip


@pytest.mark.claim("C-3")
def test_two_entries_of_a_unit_in_a_cell_are_refused() -> None:
    # They would be charged as if at right angles: .437 deviations where the unit moves by .757.
    for units in ([0, 0, 0, 1], [1, 0, 2, 3]):
        with pytest.raises(MechanismError, match="at most one entry in a cell, in order"):
            UnitSums(
                values=np.ones((4, 1)), units=np.array(units), starts=np.array([0, 4]), n_units=4,
                centre=np.zeros(0),
            )  # fmt: skip
    two_cells = UnitSums(
        values=np.ones((4, 1)), units=np.array([0, 3, 0, 1]), starts=np.array([0, 0, 2, 4, 4]),
        n_units=4, centre=np.zeros(0),
    )  # fmt: skip
    assert two_cells.add_by_unit(np.ones(4)).tolist() == [2, 1, 0, 1]
    for starts in ([0, 3], [1, 4], [0, 4, 2, 4], [0]):
        with pytest.raises(MechanismError, match="starts must lead from 0"):
            UnitSums(
                values=np.ones((4, 1)), units=np.arange(4), starts=np.array(starts), n_units=4,
                centre=np.zeros(0),
            )  # fmt: skip


@pytest.mark.claim("C-3")
def test_numbers_of_units_and_cells_are_not_taken_for_others() -> None:
    rows, cells = np.ones((4, 1)), np.array([0, 1, 1, -1])
    for units in ([0, -1, 1, 2], [0, 3, 1, 2], [0.0, 0.5, 1.0, 2.0]):
        with pytest.raises(MechanismError, match="units must be numbered from 0 to 2"):
            UnitSums.of_rows(rows, units=np.array(units), n_units=3, cells=cells, n_cells=2)
    for wrong in ([0, 2, 1, 1], [-2, 0, 1, 1]):
        with pytest.raises(MechanismError, match="cells must be numbered from -1 to 1"):
            UnitSums.of_rows(rows, cells=np.array(wrong), n_cells=2)
    with pytest.raises(MechanismError, match="units must be one for each of 4 rows"):
        UnitSums.of_rows(rows, units=np.array([0, 1]), n_units=3)
    narrow = UnitSums.of_rows(
        rows, units=np.arange(4), n_units=10**9, cells=cells.astype(np.int8), n_cells=2
    )
    assert narrow.units is not None
    assert narrow.units.tolist() == [0, 1, 2]
    assert narrow.starts.tolist() == [0, 1, 3]


def test_correlations() -> None:
    data = coerce_data(np.column_stack([X, np.ones(N)]))
    found = Correlation().finish(Correlation().evaluate(data.parts, RNG))
    np.testing.assert_allclose(found[:3, :3], np.corrcoef(X.T), atol=1e-9)
    assert (found[3, :3] == 0).all()
    assert (np.diag(found) == 1).all()
