"""From budget and outputs to a plan: defaults, refusals, and every rule's own promises."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtri

import pacprivacy.noise.plan
import pacprivacy.noise.proof
from pacprivacy.adversary import MembershipRisk, ViewTilts, exact_information, membership_risk
from pacprivacy.budget import EpsilonEquivalent, Information, Membership
from pacprivacy.errors import BudgetError, MechanismError, PoolError
from pacprivacy.noise import (
    RULES,
    AutoConfidence,
    Boxed,
    Empirical,
    NoisePlan,
    PlanProblem,
    Rule,
    as_rule,
    calibrate,
    propose_rule_noise,
    spread_of,
)
from pacprivacy.noise.iid import N_RESERVE, iid_log_det
from pacprivacy.noise.plan import NOISELESS, distinct_plan_outputs
from pacprivacy.noise.rules import check_rule_feasible
from pacprivacy.sample import Balanced, Half, Pool
from pacprivacy.theory import mi_for_success

Matrix = npt.NDArray[np.float64]
UNIFORM = np.full(16, -math.log(16))


@pytest.fixture
def pool() -> Pool:
    return Balanced(n_subsets=16).draw(10, rng=0)


@pytest.fixture
def outputs(pool: Pool) -> Matrix:
    data = np.random.default_rng(0).normal(size=(10, 2))
    return np.array([data[mask].mean(axis=0) for mask in pool.masks()])


@pytest.fixture(autouse=True)
def cheaper_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacprivacy.noise.proof, "INFORMATION_COST", 5 * 10**7)
    monkeypatch.setattr(pacprivacy.noise.proof, "POSTERIOR_COST", 10**6)


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["waterfill", "diagonal", "risk"])
@pytest.mark.parametrize("n_subsets", [8, 32])
def test_the_pool_of_other_outputs_is_refused(outputs: Matrix, rule: str, n_subsets: int) -> None:
    """Its first subsets would give priors of candidates that the outputs do not have."""
    other = Balanced(n_subsets=n_subsets).draw(10, rng=0)
    with pytest.raises(PoolError, match="one subset per output"):
        calibrate(outputs, Membership(0.9), rule=rule, pool=other, rng=0)


class Borrowed(Rule):
    """A rule from outside the library."""

    family = "borrowed"

    def plan(self, problem: PlanProblem) -> NoisePlan:
        return replace(as_rule("waterfill").plan(problem), rule=self.name)


def test_a_rule_says_what_it_promises_and_needs() -> None:
    for name, rule in RULES.items():
        assert as_rule(name) is as_rule(rule) is rule
        assert (rule.name, rule.kind, rule.n_reserve) == (name, "exact", 0)
    boxed, empirical = Boxed(low=0, high=1), Empirical(shape="isotropic")
    assert (boxed.name, boxed.kind, boxed.n_reserve) == ("boxed diagonal", "confidence", N_RESERVE)
    assert (boxed.confidence, empirical.confidence) == (1 - 1e-6, 0.0)
    assert (empirical.name, empirical.kind) == ("empirical isotropic", "empirical")
    assert [name for name, rule in RULES.items() if rule.is_simulated] == ["exact", "risk"]


def test_the_default_rule_fits_the_limits(outputs: Matrix, pool: Pool) -> None:
    assert calibrate(outputs, Information(0.5), rng=0).rule == "exact"
    assert calibrate(outputs, Membership(0.65), pool=pool, rng=0).rule == "risk"


def test_a_rule_from_outside_is_asked_like_any_other(outputs: Matrix) -> None:
    plan = calibrate(outputs, Information(0.5), rule=Borrowed())
    usual = calibrate(outputs, Information(0.5), rule="waterfill")
    assert plan.rule == "borrowed"
    assert plan.total_variance == usual.total_variance
    assert (
        propose_rule_noise(outputs, Information(0.5), rule=Borrowed()).total_variance
        == usual.total_variance
    )


@pytest.mark.parametrize("rule", ["fancy", "basis", "Waterfill", 3, ["exact"]])
def test_unknown_rules_are_refused(outputs: Matrix, rule: object) -> None:
    with pytest.raises(BudgetError, match="rule must be one of"):
        calibrate(outputs, Information(1), rule=rule)  # type: ignore[arg-type]


def test_membership_needs_the_pool(outputs: Matrix) -> None:
    with pytest.raises(BudgetError, match="pool must be given when membership is limited"):
        calibrate(outputs, Membership(0.6))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones((1, 3)), "at least two rows"),
        (np.ones((2, 2, 2)), "shape"),
        (np.array([[1.0], [np.nan]]), "subset 1 holds NaN"),
        (np.array([[np.inf, 0.0], [0.0, 0.0]]), "subset 0 holds NaN"),
    ],
)
def test_bad_outputs_are_refused(bad: Matrix, message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        calibrate(bad, Information(1))


@pytest.mark.parametrize(
    "belief",
    [np.zeros(3), np.full(16, -np.inf), np.full(16, np.nan), np.r_[np.inf, np.zeros(15)]],
)
def test_bad_beliefs_are_refused(outputs: Matrix, belief: Matrix) -> None:
    with pytest.raises(PoolError, match="log_belief must hold one log probability per subset"):
        calibrate(outputs, Information(1), log_belief=belief)


def test_a_pool_of_another_size_is_refused(outputs: Matrix) -> None:
    other = Balanced(n_subsets=8).draw(10, rng=0)
    plan = calibrate(outputs, Information(0.5), rule="waterfill")
    with pytest.raises(PoolError, match="one subset per output"):
        membership_risk(plan.view(outputs), other)


@pytest.mark.claim("N-6")
def test_a_success_that_is_reached_already_is_refused(outputs: Matrix, pool: Pool) -> None:
    believed = np.where(pool.masks()[:, 0], 0.0, -1.0)
    with pytest.raises(BudgetError, match="best guess that this pool allows"):
        calibrate(outputs, Membership(0.6), pool=pool, log_belief=believed)


def test_success_is_that_of_even_odds_whatever_the_pool() -> None:
    half = Half(n_subsets=16).draw(10, rng=3)
    assert half.worst_prior > 0.55
    check_rule_feasible(Membership(0.52), None, half)
    plan = calibrate(np.random.default_rng(0).normal(size=(16, 1)), Membership(0.52), pool=half)
    assert plan.membership is not None
    assert plan.membership.upper <= 0.52


def test_caps_are_one_for_each_unit(outputs: Matrix, pool: Pool) -> None:
    with pytest.raises(BudgetError, match="caps must hold one success per unit"):
        calibrate(outputs, Membership(0.7), pool=pool, caps=np.full(3, 0.7))


@pytest.mark.parametrize("bad", [{"security": 0}, {"radius": -1}, {"share": 1.0}])
def test_bad_parameters_of_auto_confidence_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(BudgetError, match="must be"):
        AutoConfidence(**bad)


@pytest.mark.parametrize(
    ("eigenvalues", "expected"),
    [
        ((0.15, 0.05), (2.2222, 2.2222)),  # the gap to a small eigenvalue counts: isotropic
        ((0.9, 0.05), (107.586, 102.864)),
        ((0.9, 0.85), (10.8333, 10.8333)),
        ((0.05, 0.02), (1.5, 1.5)),
    ],
)
def test_auto_confidence_compares_large_eigenvalues_with_all(
    eigenvalues: tuple[float, float], expected: tuple[float, float]
) -> None:
    """The paper's Algorithm 1 by hand: c = .1, r = 1, v = .09 and .01 for the rest."""
    noise_var = AutoConfidence(security=0.1).formula(np.array(eigenvalues), mi_nats=0.1)
    assert noise_var == pytest.approx(expected, rel=1e-3)


# --- defaults -------------------------------------------------------------------------------


def test_the_default_rule_follows_the_budget(outputs: Matrix, pool: Pool) -> None:
    assert calibrate(outputs, Information(0.3), pool=pool, rng=0).rule == "exact"
    assert calibrate(outputs, Membership(0.7), pool=pool, rng=0).rule == "risk"
    assert calibrate(outputs, EpsilonEquivalent(1), pool=pool, rng=0).rule == "risk"
    both = calibrate(outputs, Information(0.3) & Membership(0.7), pool=pool, rng=0)
    assert both.rule == "risk"


def test_the_same_seed_gives_the_same_plan(outputs: Matrix, pool: Pool) -> None:
    first, second = (calibrate(outputs, Membership(0.7), pool=pool, rng=5) for _ in range(2))
    assert np.array_equal(first.units_per_std, second.units_per_std)
    assert np.array_equal(first.points, second.points)
    assert first.membership is not None
    assert second.membership is not None
    assert first.membership.worst == second.membership.worst


# --- what each rule promises ----------------------------------------------------------------


@pytest.mark.claim("N-6")
@pytest.mark.parametrize(
    "rule",
    [
        "isotropic",
        "isotropic_max",
        "diagonal",
        "spectral",
        "waterfill",
        "confidence",
        AutoConfidence(security=1e-6, share=0.5),
        "exact",
    ],
)
def test_every_rule_meets_an_information_budget(outputs: Matrix, rule: object) -> None:
    plan = calibrate(outputs, Information(0.3), rule=rule, rng=1)  # type: ignore[arg-type]
    assert plan.mi_upper <= 0.3
    found = exact_information(plan.view(outputs), n_draws=100_000, rng=2)
    assert found.value <= 0.3
    assert found.lower <= plan.log_det_nats


@pytest.mark.claim("N-6")
@pytest.mark.parametrize("rule", ["diagonal", "waterfill", "exact", None])
def test_every_rule_meets_a_membership_budget(
    outputs: Matrix, pool: Pool, rule: str | None
) -> None:
    plan = calibrate(outputs, Membership(0.65), rule=rule, pool=pool, rng=3)
    found = membership_risk(plan.view(outputs), pool, n_draws=100_000, rng=4)
    assert found.value <= 0.65
    if rule in ("diagonal", "waterfill"):
        assert plan.mi_upper <= mi_for_success(0.65)


def test_the_risk_rule_needs_far_less_noise(outputs: Matrix, pool: Pool) -> None:
    risk = calibrate(outputs, Membership(0.588), pool=pool, rng=5)
    gaussian = calibrate(outputs, Membership(0.588), rule="waterfill", pool=pool)
    assert risk.total_variance < 0.5 * gaussian.total_variance
    assert risk.membership is not None
    assert risk.membership.upper <= 0.588


@pytest.mark.claim("N-6")
def test_joined_budgets_are_all_met(outputs: Matrix, pool: Pool) -> None:
    budget = Information(0.05) & Membership(0.9)
    plan = calibrate(outputs, budget, pool=pool, rng=6)
    assert plan.mi_upper <= 0.05
    found = membership_risk(plan.view(outputs), pool, n_draws=20_000, rng=7)
    assert found.upper <= 0.9


@pytest.mark.claim("N-5")
def test_a_coin_beside_a_normal_is_released_almost_without_noise() -> None:
    """At two nats the infimum is 0.079; waterfill needs 0.31 and the papers' rule 1.0."""
    normal = ndtri((np.arange(32) + 0.5) / 32)
    values = np.array([(coin, x) for coin in (-1.0, 1.0) for x in normal])
    plan = calibrate(values, Information(2.0), rule="exact", rng=0)
    assert plan.total_variance <= 0.09
    assert plan.mi_upper <= 2.0
    assert exact_information(plan.view(values), n_draws=100_000, rng=1).value <= 2.0


def test_an_impossible_proof_falls_back_to_the_closed_form(
    outputs: Matrix, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacprivacy.noise.proof, "POSTERIOR_COST", 1)
    plan = calibrate(outputs, Membership(0.5005), pool=pool, rng=9)
    gaussian = calibrate(outputs, Membership(0.5005), rule="waterfill", pool=pool)
    assert plan.total_variance == gaussian.total_variance
    assert plan.mi_upper <= mi_for_success(0.5005)


@pytest.mark.claim("N-5")
def test_a_proof_that_fails_is_repeated_with_more_noise(
    outputs: Matrix, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proofs that come out three points worse than proposed: noise grows until they pass."""
    usual = calibrate(outputs, Membership(0.65), pool=pool, rng=11)
    real = pacprivacy.noise.proof.membership_risk

    def worse(*args: Any, **options: Any) -> MembershipRisk:
        found = real(*args, **options)
        return replace(found, upper_per_unit=found.upper_per_unit + 0.03)

    monkeypatch.setattr(pacprivacy.noise.proof, "membership_risk", worse)
    plan = calibrate(outputs, Membership(0.65), pool=pool, rng=11)
    assert plan.membership is not None
    assert (plan.membership.upper_per_unit <= 0.65).all()
    assert plan.total_variance > 1.05 * usual.total_variance
    assert plan.proofs[-1].attempt > 1


@pytest.mark.claim("N-5")
def test_shapes_and_attempts_share_the_failure_probability(outputs: Matrix, pool: Pool) -> None:
    plan = calibrate(outputs, Information(0.2) & Membership(0.6), pool=pool, gamma=1e-6, rng=10)
    assert plan.proofs
    # two shapes, two claims, attempt k: gamma 2^-k / 4
    for proof in plan.proofs:
        assert proof.gamma == pytest.approx(1e-6 / 4 * 2.0**-proof.attempt)
    # attempt k has draws of its own: what failed was not chosen on them
    named = {(proof.stream, proof.attempt) for proof in plan.proofs}
    assert len(named) == len(plan.proofs)
    view = plan.view(outputs)
    again = replace(plan.proofs[0], claim="information", n_draws=4096)
    later = replace(again, attempt=again.attempt + 1)
    assert again.information(view) == again.information(view) != later.information(view)


# --- nothing to hide ------------------------------------------------------------------------


def test_a_free_release_says_so(outputs: Matrix, pool: Pool) -> None:
    plan = calibrate(outputs, Information(math.log(16)), rule="diagonal")
    assert plan.is_noiseless
    assert plan.notes == (NOISELESS,)
    assert plan.log_det_nats == pytest.approx(math.log(16))


def test_membership_may_be_free_although_outputs_differ() -> None:
    """Two outputs that split the pool without telling about any one unit."""
    pool = Balanced(n_subsets=4).draw(4, rng=0)
    inside = pool.masks()
    side = np.array([0.0, 1.0, 0.0, 1.0])  # subset k and its complement k + 2 agree
    assert (inside[side == 0].sum(axis=0) == 1).all()
    plan = calibrate(side, Membership(0.51), pool=pool, rng=0)
    assert plan.is_noiseless
    assert plan.mi_upper == pytest.approx(math.log(2))


def test_equal_outputs_are_found_in_full_and_by_sign() -> None:
    tall = np.zeros((4, 1000))
    tall[1, 501] = 1e-300  # between the sampled coordinates
    tall[2, 0] = -0.0
    groups, nats = distinct_plan_outputs(tall, np.full(4, -math.log(4)))
    assert groups.tolist() == [0, 1, 0, 0]
    assert nats == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))


def test_a_unit_that_is_known_already_limits_nothing(outputs: Matrix, pool: Pool) -> None:
    """After a revealing release some unit is at success one; others still have a cap."""
    inside = pool.masks()[:, 0]
    log_p = np.where(inside, -math.log(inside.sum()), -np.inf)
    before = pool.priors(log_p)
    assert before[0] == 1.0
    caps = np.minimum(1.0, before + 0.05)
    plan = calibrate(outputs, Membership(0.9), pool=pool, log_belief=log_p, caps=caps, rng=0)
    found = membership_risk(plan.view(outputs, log_p), pool, n_draws=50_000, rng=1)
    assert (found.per_unit <= caps + 0.01).all()
    closed = calibrate(
        outputs, Membership(0.9), rule="waterfill", pool=pool, log_belief=log_p, caps=caps
    )
    assert closed.total_variance > 0


@pytest.mark.claim("N-5")
def test_outliers_leave_the_exact_rule_sound() -> None:
    values = np.r_[ndtri((np.arange(15) + 0.5) / 15), 1e9][:, None]
    plan = calibrate(values, Information(0.5), rule="exact", rng=0)
    near = values[:15, 0] / plan.noise_std[0]
    gaps = -0.5 * np.square(
        near[:, None] - near + np.random.default_rng(0).normal(size=(4000, 1, 1))
    )
    posterior = np.exp(gaps)
    posterior /= posterior.sum(axis=2, keepdims=True)
    inner = math.log(15) + (posterior * np.log(posterior)).sum(axis=2).mean()
    outer = -math.log(1 / 16) / 16 - 15 / 16 * math.log(15 / 16)
    assert outer + 15 / 16 * inner <= 0.5 + 0.01


# --- a fresh independent secret -------------------------------------------------------------


def iid_outputs(m: int) -> Matrix:
    return np.random.default_rng(1).uniform(-0.5, 0.5, size=(m + N_RESERVE, 3))


def test_dependent_pools_are_refused_for_a_fresh_secret(outputs: Matrix, pool: Pool) -> None:
    for rule in (Boxed(low=-1, high=1), Empirical()):
        with pytest.raises(PoolError, match="independent subsets"):
            check_rule_feasible(Information(1), rule, pool)
        with pytest.raises(PoolError, match="independent subsets"):
            calibrate(iid_outputs(16), Information(1), rule=rule, pool=pool)


@pytest.mark.claim("N-7")
def test_the_boxed_rule_holds_for_the_law_behind_the_sample() -> None:
    """Outputs from a known law: the bound of the true variances is met in every simulation."""
    half = Half(n_subsets=32 + N_RESERVE).draw(20, rng=0)
    rng = np.random.default_rng(2)
    for _ in range(100):
        # rare jumps that a small sample often misses altogether
        values = (rng.random(size=(32 + N_RESERVE, 2)) < 0.02).astype(float)
        rule = Boxed(low=0.0, high=1.0, gamma=1e-3)
        plan = calibrate(values, Information(0.25), rule=rule, pool=half)
        truth = 0.02 * 0.98 / np.square(plan.noise_std)
        assert 0.5 * np.log1p(truth).sum() <= plan.log_det_nats <= 0.25


@pytest.mark.claim("N-7")
def test_rounding_to_the_grid_is_part_of_the_bound() -> None:
    """A coarse grid: the bound is that of outputs half a step further apart."""
    grid, units = np.array([0.5, 0.25]), np.array([2, 4])
    variances = np.array([0.3, 0.01])
    wider = np.square(np.sqrt(variances) + grid / 2) / np.square(grid * units)
    bound = iid_log_det(grid, units, variances, 0)  # one possible subset: no lattice slack
    assert bound == pytest.approx(0.5 * np.log1p(wider).sum())
    assert iid_log_det(grid, units, variances, 20) > bound


@pytest.mark.claim("N-7")
def test_the_boxed_rule_clips_into_its_box() -> None:
    half = Half(n_subsets=32 + N_RESERVE).draw(20, rng=0)
    values = np.random.default_rng(3).normal(size=(32 + N_RESERVE, 1))
    plan = calibrate(values, Information(0.25), rule=Boxed(low=-0.5, high=0.5), pool=half)
    placed = plan.center + plan.points * plan.grid_step
    assert placed.min() >= -0.5 - plan.grid_step[0]
    assert placed.max() <= 0.5 + plan.grid_step[0]


@pytest.mark.claim("N-7")
def test_the_boxed_rule_covers_what_it_has_not_seen() -> None:
    half = Half(n_subsets=64 + N_RESERVE).draw(20, rng=0)
    values = iid_outputs(64)
    boxed = calibrate(values, Information(0.25), rule=Boxed(low=-1, high=1), pool=half)
    plain = calibrate(values, Information(0.25), rule=Empirical(), pool=half)
    assert boxed.kind == "confidence"
    assert plain.kind == "empirical"
    assert boxed.total_variance > plain.total_variance
    assert boxed.first_secret == 64
    assert boxed.log_det_nats <= 0.25
    with pytest.raises(BudgetError, match="Leave the rule out in a session"):
        calibrate(
            values,
            Information(0.25),
            rule=Empirical(),
            pool=half,
            log_belief=np.zeros(64 + N_RESERVE),
        )


@pytest.mark.parametrize(
    "bad",
    [
        {"low": 1.0, "high": 0.0},
        {"low": -math.inf, "high": 0.0},
        {"low": 0.0, "high": 1.0, "shape": "spectral"},
        {"low": 0.0, "high": 1.0, "gamma": 0.0},
    ],
)
def test_bad_boxes_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BudgetError, match="must be"):
        Boxed(**bad)  # type: ignore[arg-type]


# --- the shifts that the risk rule hides ----------------------------------------------------


def test_unit_shifts_are_half_the_difference_of_means(outputs: Matrix, pool: Pool) -> None:
    spread = spread_of(outputs, np.exp(UNIFORM))
    shifts = ViewTilts(pool).shifts(spread.coordinates, UNIFORM)
    for scale in (1.0, 1e-25, 1e22):  # numbers of any size
        found = ViewTilts(pool).shifts(scale * spread.coordinates, UNIFORM)
        lengths = np.sqrt(np.square(found).sum(axis=1)) / scale
        np.testing.assert_allclose(lengths, np.linalg.norm(shifts, axis=1), atol=1e-6)
    for unit, inside in enumerate(pool.masks().T):
        apart = spread.coordinates[inside].mean(axis=0) - spread.coordinates[~inside].mean(axis=0)
        np.testing.assert_allclose(shifts[unit], apart / 2, atol=1e-6)
