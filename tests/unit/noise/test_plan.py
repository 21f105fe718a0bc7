"""The noise plan: its lattice, what leaves, and what the attacker can compute from it."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from pacprivacy._random import SimulatedSource
from pacprivacy.adversary import exact_information
from pacprivacy.budget import Information
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.noise import AxisFrame, calibrate
from pacprivacy.noise.lattice import UNITS_PER_STD, lattice_grid
from pacprivacy.noise.plan import (
    NoisePlan,
    Observation,
    Revealed,
    log_det_of_plan,
    log_det_of_points,
    make_plan,
)
from pacprivacy.theory import information_slack_bound

Matrix = npt.NDArray[np.float64]


def axis_plan(values: Matrix, noise_std: list[float]) -> NoisePlan:
    center = values.mean(axis=0)
    return make_plan(
        rule="test",
        frame=AxisFrame(axes=np.arange(values.shape[1]), center=center),
        center=center,
        noise_std=np.array(noise_std),
        values=values,
    )


@pytest.mark.claim("N-4")
def test_the_grid_is_a_power_of_two_far_below_the_noise() -> None:
    rng = np.random.default_rng(0)
    asked = np.exp(rng.uniform(-500, 500, size=2000))
    step, units = lattice_grid(asked)
    mantissa, _ = np.frexp(step)
    assert (mantissa == 0.5).all()
    assert (units >= UNITS_PER_STD).all()
    assert (units <= 2 * UNITS_PER_STD).all()
    assert (step * units >= asked).all()  # rounded towards more noise
    assert (step * units <= asked * (1 + 2 / UNITS_PER_STD)).all()


@pytest.mark.claim("N-4", "L-2")
def test_a_coarse_lattice_is_paid_for() -> None:
    plan = axis_plan(np.random.default_rng(0).normal(size=(8, 2)), [1.0, 2.0])
    coarse = replace(plan, units_per_std=np.array([2, 3]), points=plan.points % 5)
    weights, m = np.full(8, 1 / 8), 8
    slack = information_slack_bound(coarse.total_variation_slack, m)
    assert coarse.total_variation_slack >= (1 / 4 + 1 / 9) / 16
    plain = log_det_of_points(coarse.points / coarse.units_per_std, weights, None)
    assert log_det_of_plan(coarse, weights) >= plain + slack > plain + 0.1
    rounding = coarse.view(coarse.outputs).slack - coarse.total_variation_slack
    assert 0 < rounding < 1e-12  # of double precision


def test_powers_of_two_are_met_exactly() -> None:
    step, units = lattice_grid(np.array([1.0, 0.25, 1024.0]))
    assert np.array_equal(step * units, [1.0, 0.25, 1024.0])
    assert (units == UNITS_PER_STD).all()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e-300])
def test_noise_must_be_positive_and_representable(bad: float) -> None:
    with pytest.raises(BudgetError, match="noise_std must be positive"):
        lattice_grid(np.array([1.0, bad]))


def test_outputs_far_beyond_the_noise_are_refused_before_integers_overflow() -> None:
    with pytest.raises(BudgetError, match="at least a trillionth"):
        axis_plan(np.array([[0.0], [1e13]]), [1.0])
    plan = axis_plan(np.array([[0.0], [4e11]]), [1.0])
    observed = plan.observe(1, SimulatedSource(0))
    assert plan.log_likelihood(observed)[1] > -50
    assert plan.log_likelihood(observed)[0] < -1e20


def test_points_are_the_outputs_rounded_to_the_grid() -> None:
    values = np.random.default_rng(1).normal(size=(8, 3))
    plan = axis_plan(values, [0.5, 1.0, 2.0])
    placed = plan.center + plan.points * plan.grid_step
    assert (np.abs(placed - values) <= 0.5 * plan.grid_step * (1 + 1e-9)).all()
    np.testing.assert_allclose(plan.noise_std, [0.5, 1.0, 2.0])
    assert plan.total_variance == pytest.approx(5.25)


@pytest.mark.claim("R-2")
def test_the_value_is_a_function_of_the_integers() -> None:
    values = np.random.default_rng(2).normal(size=(8, 3))
    plan = calibrate(values, Information(0.5), rule="waterfill")
    observed = plan.observe(3, SimulatedSource(1))
    expected = plan.center + plan.frame.expand(plan.grid_step * observed.integers)
    assert np.array_equal(plan.value_of(observed), expected)
    same = Observation(integers=observed.integers.copy(), group=None)
    assert np.array_equal(plan.value_of(same), expected)


def test_noise_has_the_planned_mean_and_variance() -> None:
    values = np.random.default_rng(3).normal(size=(8, 2))
    plan = calibrate(values, Information(0.5), rule="waterfill")
    source = SimulatedSource(2)
    released = np.array([plan.value_of(plan.observe(5, source)) for _ in range(2000)])
    total = np.square(released - values[5]).sum(axis=1)
    # chi-square with at most two degrees of freedom: the mean of 2000 is within 8 % at 3 sigma
    assert total.mean() == pytest.approx(plan.total_variance, rel=0.1)
    assert np.abs(released.mean(axis=0) - values[5]).max() < 0.1 * math.sqrt(plan.total_variance)


@pytest.mark.claim("A-1")
def test_likelihoods_are_those_of_the_discrete_gaussian() -> None:
    values = np.random.default_rng(4).normal(size=(6, 2))
    plan = axis_plan(values, [0.7, 1.3])
    observed = plan.observe(2, SimulatedSource(3))
    exact = [
        -sum(
            Fraction(int(t) - int(a)) ** 2 / (2 * int(s) ** 2)
            for t, a, s in zip(observed.integers, point, plan.units_per_std, strict=True)
        )
        for point in plan.points
    ]
    found = plan.log_likelihood(observed)
    np.testing.assert_allclose(found, [float(e) for e in exact], rtol=1e-12)


def test_a_group_rules_out_the_others() -> None:
    groups = np.array([0, 0, 1])
    plan = NoisePlan(
        rule="test",
        kind="exact",
        frame=AxisFrame(axes=np.array([0]), center=np.zeros(1)),
        center=np.zeros(1),
        grid_step=np.ones(1),
        units_per_std=np.array([1024]),
        points=np.array([[0], [5], [9]]),
        revealed=Revealed(groups=groups, bases=np.array([[10.0], [20.0]])),
        outputs=np.array([[0.0], [5.0], [9.0]]),
    )
    observed = plan.observe(2, SimulatedSource(4))
    assert observed.group == 1
    assert plan.log_likelihood(observed)[:2].tolist() == [-math.inf, -math.inf]
    assert plan.value_of(observed)[0] == 20.0 + observed.integers[0]


def test_other_outputs_are_rounded_afresh_unless_a_part_is_revealed() -> None:
    values = np.random.default_rng(5).normal(size=(8, 2))
    plan = calibrate(values, Information(0.5), rule="waterfill")
    assert plan.lattice_points(values) is plan.points
    assert plan.lattice_points(values.copy()) is plan.points
    wider = exact_information(plan.view(3 * values), n_draws=2000, rng=0)
    assert wider.value > exact_information(plan.view(values), n_draws=2000, rng=0).upper
    free = calibrate(values, Information(9.0), rule="waterfill")
    with pytest.raises(MechanismError, match="outputs must be those the plan was calibrated on"):
        exact_information(free.view(3 * values), n_draws=100)


def test_fewer_subsets_under_the_same_noise_tell_at_most_their_number() -> None:
    values = np.random.default_rng(6).normal(size=(8, 2))
    plan = calibrate(values, Information(0.5), rule="waterfill")
    fewer = exact_information(plan.view(values[:4]), n_draws=100, rng=0)
    assert fewer.upper <= math.log(4) + 1e-12


def test_plans_show_no_outputs_and_cannot_be_written_to() -> None:
    values = np.random.default_rng(7).normal(size=(8, 2))
    plan = calibrate(values, Information(0.5), rule="waterfill")
    assert "array" not in repr(plan)
    assert str(values[0, 0])[:6] not in repr(plan)
    for array in (plan.points, plan.grid_step, plan.units_per_std, plan.center):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_tall_outputs_expand_as_short_ones_do() -> None:
    """Directions kept as combinations of outputs give the same values as explicit ones."""
    rng = np.random.default_rng(8)
    short = rng.normal(size=(6, 4))
    turn = np.linalg.qr(rng.normal(size=(200, 4)))[0]  # orthonormal columns
    log_p = np.log(rng.dirichlet(np.ones(6)))
    plans = [
        calibrate(values, Information(0.3), rule="waterfill", log_belief=log_p)
        for values in (short, 5.0 + short @ turn.T)
    ]
    assert plans[0].total_variance == pytest.approx(plans[1].total_variance, rel=1e-6)
    value = plans[1].value_of(plans[1].observe(1, SimulatedSource(5)))
    outside = value - 5.0 - turn @ (turn.T @ (value - 5.0))
    assert np.abs(outside).max() < 1e-9
    shifted = plans[1].frame.coordinates((5.0 + short @ turn.T).copy())
    np.testing.assert_allclose(shifted, plans[1].points * plans[1].grid_step, atol=1e-5)
