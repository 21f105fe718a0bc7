"""Plans for sums over units: least trace, clipping by a crowd, the lattice, and their records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.adversary import influence_parameter
from pacprivacy.errors import BudgetError
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import plan_sums
from pacprivacy.noise.least_trace import crowd_norm, entry_norms, least_trace, make_frame
from pacprivacy.noise.sum_plan import CROWD
from pacprivacy.noise.unit_lattice import round_up_two_digits
from pacprivacy.statistics import Sums, SumStatistic, UnitSums

MU = influence_parameter(0.588)


def shape_of(sums: UnitSums, slopes: np.ndarray | None = None) -> tuple[object, object]:
    frame = make_frame(sums, slopes, MU)
    first = entry_norms(sums, crowd_norm(frame))
    return frame, least_trace(sums, frame, np.ones(sums.n_units), first)


@pytest.mark.claim("C-4")
@pytest.mark.parametrize("seed", range(5))
def test_the_trace_is_near_its_lower_bound_on_all_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = (
        rng.normal(size=(5000, 6)),
        rng.standard_t(2.5, size=(5000, 4)) @ rng.normal(size=(4, 4)),
        np.eye(12)[rng.integers(12, size=4000)],
        np.column_stack([np.ones(3000), rng.exponential(size=(3000, 5))]),
        np.eye(12)[np.repeat(range(12), (3000,) * 8 + (1200,) * 4)],
    )
    sums = UnitSums.of_rows(tables[seed])
    _, shape = shape_of(sums)
    assert shape.gap < 1.04
    assert len(shape.norms) == sums.n_units
    assert shape.norms.max() < 1.04


@pytest.mark.claim("C-4")
def test_cells_of_one_count_each_have_the_same_noise() -> None:
    rng = np.random.default_rng(0)
    cells = rng.choice(6, size=9000, p=[0.9, 0.05, 0.03, 0.01, 0.005, 0.005])
    sums = UnitSums.of_rows(np.ones((9000, 1)), cells=cells, n_cells=7)  # the last one is empty
    plan = plan_sums(sums, success=0.588, keep=0.99, slopes=np.ones((7, 1, 1)))
    noise = plan.sum_noise_std[:, 0]
    assert (noise[:6] <= 1.13 / MU).all()  # two digits, and the gap
    assert (noise[:6] >= 1.0 / MU).all()
    assert noise[6] > 0
    assert (plan.factors == 1).all()


@pytest.mark.claim("C-4")
def test_a_diagonal_shape_is_the_closed_form() -> None:
    # Units on two axes: variances in proportion to sqrt(a_c), whatever the correlation allowed.
    values = np.zeros((400, 2))
    values[:200, 0], values[200:, 1] = 1.0, 3.0
    sums = UnitSums.of_rows(values)
    plan = plan_sums(sums, success=0.588, keep=0.9, slopes=np.eye(2)[None], clip=None)
    np.testing.assert_allclose(plan.sum_noise_std[0], [1 / MU, 3 / MU], rtol=0.11)
    assert (plan.sum_noise_std[0] >= [1 / MU, 3 / MU]).all()


def test_outputs_decide_where_the_noise_goes() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(size=(3000, 2))
    sums = UnitSums.of_rows(values)
    even = plan_sums(sums, success=0.588, keep=0.9, slopes=np.eye(2)[None], clip=None)
    first = plan_sums(sums, success=0.588, keep=0.9, slopes=np.array([[[1.0, 0]]]), clip=None)
    assert first.sum_noise_std[0, 0] < even.sum_noise_std[0, 0]
    assert first.sum_noise_std[0, 0] < 1.12 * np.abs(values[:, 0]).max() / MU
    assert first.sum_noise_std[0, 1] > 2 * even.sum_noise_std[0, 1]


@pytest.mark.claim("C-6")
def test_the_noise_is_set_by_a_crowd() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(2000, 2))
    plans = []
    for largest in (8.0, 80.0, 8e6):
        extreme = values.copy()
        extreme[: CROWD - 1] = rng.normal(size=(CROWD - 1, 2))
        extreme[0] = largest
        plans.append(plan_sums(UnitSums.of_rows(extreme), success=0.588, keep=0.95))
    assert all(plan.radius is not None and plan.factors[0] < 1 for plan in plans)
    noise = [plan.sum_noise_std for plan in plans]
    np.testing.assert_allclose(noise[1], noise[2], rtol=0.15)
    assert all(np.count_nonzero(plan.factors <= 1.0) >= CROWD for plan in plans)
    assert all(0 < plan.radius <= 1.0 for plan in plans if plan.radius is not None)
    radius = plans[0].radius
    assert radius == float(f"{radius:.2g}")
    unclipped = [
        plan_sums(UnitSums.of_rows(values * s), success=0.588, keep=0.95, clip=None)
        for s in (1.0, 1000.0)
    ]
    ratio = unclipped[1].sum_noise_std / unclipped[0].sum_noise_std
    np.testing.assert_allclose(ratio, 1000.0, rtol=1e-6)


@pytest.mark.claim("C-6")
def test_fewer_than_a_crowd_is_refused() -> None:
    values = np.zeros((300, 1))
    values[:9] = 1.0
    with pytest.raises(BudgetError, match="at least 10 units that add something"):
        plan_sums(UnitSums.of_rows(values), success=0.588, keep=0.9)
    plan = plan_sums(UnitSums.of_rows(values), success=0.588, keep=0.9, clip=1.0)
    assert plan.charges.max() <= plan.parameter


@pytest.mark.claim("C-6")
@pytest.mark.parametrize("statistic", ["sum", "mean"])
def test_a_group_of_one_does_not_decide_the_noise_of_others(statistic: str) -> None:
    rng = np.random.default_rng(6)
    groups = np.array(["a", "b", "c"])[rng.integers(3, size=2000)].astype(object)
    x = np.exp(rng.normal(size=2000))
    groups[0] = "one"
    noise = []
    for largest in (1.0, 1e3, 1e5):
        x[0] = largest
        data = coerce_data(pd.DataFrame({"x": x, "g": groups}))
        ready = getattr(pac.stats, statistic)("x", by="g").prepare(data)
        sums = ready.contributions(data)
        plan = plan_sums(sums, success=0.588, keep=0.95, slopes=ready.output_slopes(sums))
        assert plan.gap < 1.1
        noise.append(np.sqrt(plan.noise_variances(ready.jacobian(sums.total())))[:3, 0])
    np.testing.assert_allclose(noise[1], noise[0], rtol=0.3)
    np.testing.assert_allclose(noise[2], noise[0], rtol=0.5)  # the centre moves with the mean


@pytest.mark.claim("C-6")
def test_a_group_of_small_sums_does_not_take_its_noise_from_one_unit() -> None:
    rng = np.random.default_rng(7)
    cells = rng.integers(2, size=2000)
    x = np.exp(0.3 * rng.normal(size=2000)) * np.where(cells == 0, 1e6, 1.0)
    cells[0] = 1
    noise = []
    for largest in (1.0, 1e3, 1e5):
        x[0] = largest
        sums = UnitSums.of_rows(x[:, None], cells=cells, n_cells=2)
        plan = plan_sums(sums, success=0.588, keep=0.95)
        noise.append(plan.sum_noise_std)
        assert plan.charges.max() <= plan.parameter
    assert plan.factors[0] < 0.1
    np.testing.assert_allclose(noise[2], noise[0], rtol=0.2)
    assert noise[0][1, 0] < 1e-3 * noise[0][0, 0]


def test_settings_that_mean_nothing_are_refused() -> None:
    sums = UnitSums.of_rows(np.random.default_rng(0).normal(size=(30, 2)))
    for keep in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(BudgetError, match="keep must be above 0 and at most 1"):
            plan_sums(sums, success=0.6, keep=keep)
    for slopes in (np.full((1, 1, 2), np.nan), np.full((1, 1, 2), np.inf), np.ones((1, 1, 3))):
        with pytest.raises(BudgetError, match="slopes must be finite"):
            plan_sums(sums, success=0.6, keep=0.9, slopes=slopes)


def test_sizes_at_the_ends_of_floats() -> None:
    base = np.random.default_rng(0).normal(size=(300, 2))
    plain = plan_sums(UnitSums.of_rows(base), success=0.588, keep=0.9)
    for scale in (2.0**-450, 2.0**450):
        plan = plan_sums(UnitSums.of_rows(base * scale), success=0.588, keep=0.9)
        np.testing.assert_allclose(plan.sum_noise_std, plain.sum_noise_std * scale, rtol=0.11)
        assert plan.charges.max() <= plan.parameter
    for small in (base * 1e-300, base * 1e-158, base * [1.0, 1e-200]):  # not left out as zeros
        for clip in ("auto", None, 0.5):
            with pytest.raises(BudgetError, match="contributions must be 0 or above 1e-140"):
                plan_sums(UnitSums.of_rows(small), success=0.588, keep=0.9, clip=clip)
    outlier = base * 1e-120
    outlier[0] = 1e80
    with pytest.raises(BudgetError, match="of the tenth largest; got larger ones"):
        plan_sums(UnitSums.of_rows(outlier), success=0.588, keep=0.9)
    outlier[0] = 1e-10
    plan = plan_sums(UnitSums.of_rows(outlier), success=0.588, keep=0.9)
    assert plan.sum_noise_std.max() < 1e-118


@pytest.mark.parametrize("clip", [0, -1.0, float("inf"), "most", True])
def test_other_radii_are_refused(clip: object) -> None:
    sums = UnitSums.of_rows(np.ones((30, 1)))
    with pytest.raises(BudgetError, match="clip must be"):
        plan_sums(sums, success=0.6, keep=0.9, clip=clip)  # type: ignore[arg-type]


def test_sums_to_which_nobody_adds_leave_without_a_direction() -> None:
    sums = UnitSums.of_rows(np.zeros((30, 2)))
    plan = plan_sums(sums, success=0.6, keep=0.9)
    assert plan.lattice.n_directions == 0
    released = plan.release(sums, np.ones(30, bool), SimulatedSource(0))
    assert not released.values.any()
    assert plan.risk.parameter == 0.0
    # that nobody adds anything is a fact about all records, and the only one that shows
    assert [fact.split(":")[0] for fact in plan.published] == [
        "what is the same for every unit leaves without noise"
    ]


def test_what_shows_of_all_records_is_listed() -> None:
    rng = np.random.default_rng(8)
    groups = np.array(["a", "b"])[rng.integers(2, size=300)].astype(object)
    groups[:3] = "few"
    frame = pd.DataFrame({"x": rng.normal(5, 1, 300), "one": 7.125, "g": groups})
    data = coerce_data(frame)

    def published(statistic: Any, clip: Any = "auto") -> str:
        ready = statistic.prepare(data)
        sums = ready.contributions(data)
        slopes = ready.output_slopes(sums)
        return "; ".join(plan_sums(sums, success=0.7, keep=0.9, slopes=slopes, clip=clip).published)

    mean = published(pac.stats.mean("x"))
    assert "centres of columns" in mean
    assert "without noise" not in mean
    assert "columns of one value" in published(pac.stats.mean(["x", "one"]))
    by_group = pac.stats.sum("x", by="g")
    for statistic in (by_group, pac.Study({"a": by_group}), pac.stats.official(by_group)):
        assert "groups of fewer than 10 units" in published(statistic)
    count = published(pac.stats.count(), None)
    assert "centres" not in count
    assert "not clipped" in count


def test_releases_need_the_sums_and_the_coins_of_their_plan() -> None:
    sums = UnitSums.of_rows(np.random.default_rng(0).normal(size=(30, 2)))
    plan = plan_sums(sums, success=0.6, keep=0.9)
    with pytest.raises(BudgetError, match="kept must be one truth value for each of 30 units"):
        plan.release(sums, np.ones(30), SimulatedSource(0))  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="sums must be those of the plan"):
        plan.release(UnitSums.of_rows(np.ones((30, 3))), np.ones(30, bool), SimulatedSource(0))
    with pytest.raises(BudgetError, match="cells must have at most 512 sums"):
        plan_sums(UnitSums.of_rows(np.ones((3, 513))), success=0.6, keep=0.9)


@pytest.mark.claim("C-3")
def test_noise_has_the_law_of_the_plan() -> None:
    rng = np.random.default_rng(2)
    sums = UnitSums.of_rows(rng.normal(size=(60, 2)) @ np.array([[1.0, 0.9], [0.0, 0.3]]))
    plan = plan_sums(sums, success=0.7, keep=0.9, clip=None)
    kept, source = np.ones(60, bool), SimulatedSource(3)
    draws = np.array([plan.release(sums, kept, source).values[0] for _ in range(4000)])
    centred = draws - plan.clipped.values[0]
    covariance = plan.lattice.covariances[0]
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), centred.T)
    np.testing.assert_allclose(np.cov(whitened), np.eye(2), atol=0.12)
    assert np.abs(whitened.mean(axis=1)).max() < 5 / np.sqrt(4000)


def test_two_digits_upwards() -> None:
    figures = np.array([1.0, 0.1, 0.99, 123.0, 9.91, 1e-7, 0.7])
    rounded = round_up_two_digits(figures)
    assert (rounded >= figures).all()
    assert (rounded <= 1.1 * figures).all()
    np.testing.assert_allclose(rounded[:5], [1.0, 0.1, 0.99, 130.0, 10.0])


class Products(SumStatistic):
    """A user's own statistic: the mean of x over that of y."""

    def contributions(self, data: object, units: np.ndarray | None = None) -> UnitSums:
        return UnitSums.of_rows(np.asarray(data, dtype=float), units=units)

    def value(self, sums: Sums, keep: float = 1.0) -> np.ndarray:
        return np.array([sums.values[0, 0] / sums.values[0, 1]])


@pytest.mark.claim("C-7")
def test_a_statistic_of_ones_own_needs_two_methods() -> None:
    rng = np.random.default_rng(4)
    rows = np.column_stack([rng.normal(3, 1, 2000), rng.normal(2, 0.1, 2000)])
    own = Products()
    sums = own.contributions(rows)
    total = sums.total().values[0]
    np.testing.assert_allclose(
        own.jacobian(sums.total())[0, 0], [1 / total[1], -total[0] / total[1] ** 2], rtol=1e-6
    )
    plan = plan_sums(sums, success=0.588, keep=0.95, slopes=own.output_slopes(sums))
    released = plan.release(sums, np.ones(2000, bool), SimulatedSource(1))
    assert abs(own.value(released)[0] - 1.5) < 0.1


def test_what_a_certificate_rests_on_cannot_be_changed() -> None:
    sums = UnitSums.of_rows(np.random.default_rng(0).normal(size=(300, 2)))
    plan = plan_sums(sums, success=0.6, keep=0.9)
    for array in (plan.factors, plan.charges):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
