"""Outputs of any size, and budgets of any size: a plan or a refusal with words, after few draws."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pacprivacy as pac
import pacprivacy.adversary.view_and_belief
import pacprivacy.noise.proof
import pacprivacy.noise.shapes
from pacprivacy._checks import column_spreads
from pacprivacy.budget import Information, Membership
from pacprivacy.errors import BudgetError, MechanismError, PacPrivacyError
from pacprivacy.noise import (
    AutoConfidence,
    Boxed,
    Empirical,
    calibrate,
    propose_rule_noise,
)
from pacprivacy.noise.iid import N_RESERVE
from pacprivacy.sample import Balanced, Half

Matrix = npt.NDArray[np.float64]
SIZES = (5e-324, 1e-308, 1e-200, 1e-161, 1e-141, 1e-139, 1e-30, 1.0, 1e30, 1e139, 1e141, 1e308)
RULES = ("isotropic", "isotropic_max", "diagonal", "spectral", "waterfill", "confidence")
SEARCHED = ("exact", "risk")
POOL = Balanced(n_subsets=8).draw(10, rng=0)
FRESH = Half(n_subsets=8 + N_RESERVE).draw(10, rng=0)


def of_size(size: float, n_subsets: int) -> dict[str, Matrix]:
    """Outputs whose size, or the size of what is special about them, is ``size``."""
    steps, sides = np.arange(n_subsets) / n_subsets, np.arange(n_subsets) % 2.0
    usual = np.random.default_rng(0).uniform(-1, 1, size=n_subsets)
    last = np.r_[np.zeros(n_subsets - 1), 1.0]
    return {
        "two values": (size * sides)[:, None],
        "steps": (size * steps)[:, None],
        "beside usual ones": np.column_stack([usual, size * usual[::-1]]),
        "an outlier": np.column_stack([usual, size * last]),
        "on top of usual ones": (usual + size * last)[:, None],
    }


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacprivacy.noise.proof, "INFORMATION_COST", 10**5)
    monkeypatch.setattr(pacprivacy.noise.proof, "POSTERIOR_COST", 10**5)
    monkeypatch.setattr(pacprivacy.noise.shapes, "N_DRAWS", 128)
    monkeypatch.setattr(pacprivacy.noise.shapes, "GAP_COST", 1 << 15)
    monkeypatch.setattr(pacprivacy.noise.shapes, "PROBE_ELEMENTS", 1 << 12)


def is_calibrated(values: Matrix, budget: Any, **options: Any) -> bool:
    """Whether a plan is found; it must then be usable, and a refusal must be one of ours."""
    try:
        plan = calibrate(values, budget, rng=0, **options)
    except PacPrivacyError:
        return False
    assert math.isfinite(plan.total_variance)
    assert plan.mi_upper <= (budget.mi_nats if isinstance(budget, Information) else math.inf)
    assert np.isfinite(plan.center).all()
    return True


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("rule", [*RULES, *SEARCHED, AutoConfidence(security=1e-9)])
def test_outputs_of_every_size_are_calibrated_or_refused(rule: Any) -> None:
    """No other error, no warning (warnings are errors here); usual sizes are calibrated."""
    sizes = SIZES if rule in SEARCHED else SIZES[::2]
    for size in sizes:
        for name, values in of_size(size, 8).items():
            for budget in (Information(0.5), Membership(0.6)):
                done = is_calibrated(values, budget, rule=rule, pool=POOL)
                assert done or not 1e-100 < size < 1e100, f"{name}, {size}, {budget}"


@pytest.mark.parametrize("size", SIZES)
def test_fresh_secrets_of_every_size_are_calibrated_or_refused(size: float) -> None:
    for name, values in of_size(size, 8 + N_RESERVE).items():
        for shape in ("diagonal", "isotropic"):
            box = Boxed(low=-1.0, high=1.0, shape=shape)
            done = is_calibrated(values, Information(0.5), rule=box, pool=FRESH)
            assert done or size > 1e140, f"{name}, {shape}"
            is_calibrated(values, Information(0.5), rule=Empirical(shape=shape), pool=FRESH)


@pytest.mark.parametrize("rule", [*RULES, *SEARCHED])
def test_outputs_too_close_to_square_are_refused_with_advice(rule: str) -> None:
    values = np.array([0.0, 5e-324, 0.0, 5e-324, 0.0, 5e-324, 0.0, 5e-324])[:, None]
    with pytest.raises(MechanismError, match=r"differ by at least 1e-140 .* Rescale"):
        calibrate(values, Information(0.1), rule=rule)
    with pytest.raises(MechanismError, match=r"differ by at least 1e-140 .* Rescale"):
        propose_rule_noise(values, Information(0.1), rule=rule)
    free = calibrate(values, Information(1.0), rule=rule)
    assert free.is_noiseless


@pytest.mark.parametrize("ends", [(0.0, 1e-300), (-1e308, 1e308), (1.0, math.nan)])
def test_boxes_too_small_or_too_large_to_square_are_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(BudgetError, match="must be"):
        Boxed(low=ends[0], high=ends[1])


@pytest.mark.parametrize("success", [0.5001, 0.501, 0.505, 0.52])
def test_a_small_budget_on_a_small_pool_takes_few_draws(
    success: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The closed form is as good as any simulation there, and needs no draws at all."""
    drawn, real = 0, pacprivacy.adversary.view_and_belief.draw_views

    def counted(view: Any, n_draws: int, rng: np.random.Generator) -> Any:
        nonlocal drawn
        drawn += n_draws
        assert drawn < 2 * 10**7, "the search runs away"
        return real(view, n_draws, rng)

    monkeypatch.setattr(pacprivacy.adversary.view_and_belief, "draw_views", counted)
    pool = Balanced(n_subsets=4).draw(20, rng=0)
    data = np.random.default_rng(0).normal(size=(20, 3))
    values = np.array([data[mask].mean(axis=0) for mask in pool.masks()])
    plan = calibrate(values, Membership(success), rule="exact", pool=pool, rng=0)
    closed = calibrate(values, Membership(success), rule="waterfill", pool=pool)
    assert 0.9 * closed.total_variance < plan.total_variance <= closed.total_variance


def test_a_draw_among_few_candidates_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proofs of a pool of four take no more draws than those of a pool of sixty-four."""
    efforts = []
    real = pacprivacy.noise.proof._Search.effort

    def noted(search: Any) -> Any:
        efforts.append(real(search))
        raise BudgetError("seen enough")

    monkeypatch.setattr(pacprivacy.noise.proof._Search, "effort", noted)
    pool = Balanced(n_subsets=4).draw(8, rng=0)
    values = np.random.default_rng(0).standard_cauchy(size=(4, 2))
    calibrate(values, Information(1e-3) & Membership(0.501), rule="exact", pool=pool, rng=0)
    assert efforts
    for effort in efforts:
        assert effort.information_draws <= pacprivacy.noise.proof.INFORMATION_COST / 64
        assert effort.membership_draws <= pacprivacy.noise.proof.POSTERIOR_COST / 64


def test_a_spread_is_found_where_squares_are_zero_or_infinite() -> None:
    usual = np.random.default_rng(0).normal(size=(9, 1))
    sizes = np.array([1e-300, 1e-165, 1.0, 1e160, 1e300, 0.0])
    found, extent, _ = column_spreads(usual * sizes)
    assert found[:-1] / sizes[:-1] == pytest.approx(np.full(5, usual.std()))
    assert (found[-1], extent[-1]) == (0.0, 0.0)


def test_outputs_that_no_unit_brings_into_range_are_refused_with_advice() -> None:
    data = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(MechanismError, match=r"below 1e\+140 .* Rescale"):
        pac.privatize(
            lambda x: x.mean(axis=0) * [1e160, 1e-160], data, Membership(0.7), n_subsets=8, rng=0
        )
