"""What must hold for every problem: bounds above the truth, order and symmetry of the rules."""

import contextlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

import pacprivacy.noise.proof
import pacprivacy.noise.shapes
from pacprivacy._random import SimulatedSource
from pacprivacy.adversary import Belief, exact_information, membership_risk
from pacprivacy.budget import (
    AnyBudget,
    EpsilonEquivalent,
    Information,
    Membership,
    Spent,
    budget_limits,
    parse_budget,
)
from pacprivacy.errors import BudgetError
from pacprivacy.mechanism import flatten
from pacprivacy.noise import NoisePlan, calibrate
from pacprivacy.noise.plan import NOISELESS
from pacprivacy.release import Bundle, Certificate, Context
from pacprivacy.release.bundle import BundleSession, bundle_of
from pacprivacy.sample import Balanced, Pool
from pacprivacy.simulation import Outputs
from pacprivacy.theory import Estimate

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]

COVARIANCE_RULES = ("isotropic", "isotropic_max", "diagonal", "spectral", "waterfill", "confidence")
LATTICE = 1e-3  # outputs are rounded to a millionth of the noise: 1e-4 of a spread far below it

seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([2, 4, 6, 8, 12, 16])
kinds = st.sampled_from(["normal", "atoms", "repeated", "outlier", "tiny", "huge", "skewed"])
beliefs = st.sampled_from(["uniform", "random", "concentrated", "excluded"])
budgets_nats = st.sampled_from([1e-4, 1 / 64, 1 / 16, 1 / 4, 1.0, 2.0])
whole_suite = settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])


def draw_outputs(kind: str, m: int, d: int, rng: np.random.Generator) -> Matrix:
    if kind == "atoms":
        return rng.integers(0, 3, size=(m, d)).astype(float)
    values = rng.normal(size=(m, d)) * rng.uniform(0.1, 3, size=d)
    if kind == "repeated":
        values = values[rng.integers(0, max(2, m // 2), size=m)]
    elif kind == "outlier":
        values[rng.integers(m)] *= 1e4
    elif kind == "tiny":
        values = 1.0 + 1e-9 * values
    elif kind == "huge":
        values = 1e12 * values
    elif kind == "skewed":
        values = np.exp(2 * values)
    return values


def draw_belief(kind: str, m: int, rng: np.random.Generator) -> Vector:
    if kind == "uniform":
        return np.full(m, -math.log(m))
    log_p = np.log(rng.dirichlet(np.full(m, 0.3 if kind == "concentrated" else 2.0)) + 1e-12)
    if kind == "excluded":
        log_p[rng.permutation(m)[: m // 2]] = -np.inf
    return np.asarray(log_p - np.log(np.exp(log_p).sum()))


def whiten(values: Matrix, plan: NoisePlan) -> Matrix:
    """Positions in units of the noise, in at most as many directions as the outputs span."""
    points = plan.whitened(values)
    points = points - points.mean(axis=0)
    _, singular, right = np.linalg.svd(points, full_matrices=False)
    return np.asarray(points @ right[singular > 1e-9].T)


def xlogx(p: Matrix) -> Matrix:
    return np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0)


def line_density(points: Vector, prior: Vector) -> tuple[Matrix, float]:
    """Joint density of (release, candidate) on a line; gaps without mass are left out."""
    alive = points[prior > 0]
    step = 0.02
    cells = np.unique(np.rint((alive[:, None] + np.arange(-9, 9, step)) / step))
    return prior * np.exp(-0.5 * (cells[:, None] * step - points) ** 2) / math.sqrt(
        2 * math.pi
    ), step


def true_information(points: Vector, prior: Vector) -> float:
    joint, step = line_density(points, prior)
    return float(step * (xlogx(joint).sum() - xlogx(joint.sum(axis=1)).sum()) - xlogx(prior).sum())


def true_risk(points: Vector, prior: Vector, pool: Pool) -> Vector:
    joint, step = line_density(points, prior)
    inside = joint @ pool.masks()
    return np.asarray(step * np.maximum(inside, joint.sum(axis=1)[:, None] - inside).sum(axis=0))


def truth_by_group(
    values: Matrix, plan: NoisePlan, prior: Vector, pool: Pool
) -> tuple[float, Vector]:
    """Information and risk per unit of outputs on a line, revealed groups included."""
    line = whiten(values, plan)
    line = line[:, 0] if line.shape[1] else np.zeros(len(values))
    groups = np.zeros(len(values)) if plan.revealed is None else plan.revealed.groups
    nats, risk = 0.0, np.zeros(pool.n_units)
    for group in np.unique(groups[prior > 0]):
        inside = groups == group
        mass = prior[inside].sum()
        conditional = np.where(inside, prior, 0.0) / mass
        nats += mass * (true_information(line, conditional) - math.log(mass))
        risk += mass * true_risk(line, conditional, pool)
    return nats, risk


@pytest.fixture(scope="module")
def quick_search() -> object:
    """Searches with few draws: proofs get wider, never wrong."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacprivacy.noise.proof, "INFORMATION_COST", 10**5)
        patch.setattr(pacprivacy.noise.proof, "POSTERIOR_COST", 10**5)
        patch.setattr(pacprivacy.noise.shapes, "PROBE_ELEMENTS", 1 << 14)
        yield


# --- bounds are above the truth: together more than 1000 problems ---------------------------


@pytest.mark.claim("N-1", "N-2", "N-3", "N-4", "N-6", "A-1", "A-2")
@settings(parent=whole_suite, max_examples=700)
@given(
    seed=seeds,
    m=sizes,
    kind=kinds,
    belief=beliefs,
    rule=st.sampled_from(COVARIANCE_RULES),
    mi_nats=budgets_nats,
)
def test_no_certified_bound_is_below_the_truth(
    seed: int, m: int, kind: str, belief: str, rule: str, mi_nats: float
) -> None:
    rng = np.random.default_rng(seed)
    # One direction inside three coordinates: the truth is an integral over a line.
    line = draw_outputs(kind, m, 1, rng)
    values = line * rng.normal(size=3) if rule != "confidence" else line
    log_p = draw_belief(belief, m, rng)
    pool = Balanced(n_subsets=m).draw(5, rng=seed)
    plan = calibrate(values, Information(mi_nats), rule=rule, log_belief=log_p, rng=seed)
    nats, risk = truth_by_group(values, plan, np.exp(log_p), pool)
    assert nats <= mi_nats * (1 + 1e-9)
    assert nats <= plan.mi_upper + 1e-9
    found = exact_information(plan.view(values, log_p), n_draws=512, rng=seed)
    assert found.lower - 1e-6 <= nats <= found.upper + 1e-6
    measured = membership_risk(plan.view(values, log_p), pool, n_draws=512, rng=seed)
    assert (risk <= measured.upper_per_unit + 1e-6).all()
    assert measured.lower - 1e-6 <= risk.max()


@pytest.mark.claim("N-5", "N-6")
@pytest.mark.usefixtures("quick_search")
@settings(parent=whole_suite, max_examples=200)
@given(seed=seeds, m=sizes, kind=kinds, belief=beliefs, mi_nats=budgets_nats)
def test_the_exact_rule_meets_its_budget_in_truth(
    seed: int, m: int, kind: str, belief: str, mi_nats: float
) -> None:
    rng = np.random.default_rng(seed)
    values = draw_outputs(kind, m, 1, rng)
    log_p = draw_belief(belief, m, rng)
    pool = Balanced(n_subsets=m).draw(5, rng=seed)
    plan = calibrate(values, Information(mi_nats), rule="exact", log_belief=log_p, rng=seed)
    gaussian = calibrate(values, Information(mi_nats), rule="waterfill", log_belief=log_p)
    nats, _ = truth_by_group(values, plan, np.exp(log_p), pool)
    assert nats <= mi_nats + 1e-9
    assert nats <= plan.mi_upper + 1e-9
    assert plan.total_variance <= gaussian.total_variance * (1 + LATTICE)


@pytest.mark.claim("N-5", "N-6")
@pytest.mark.usefixtures("quick_search")
@settings(parent=whole_suite, max_examples=100)
@given(
    seed=seeds,
    m=sizes,
    kind=kinds,
    belief=beliefs,
    increment=st.sampled_from([0.02, 0.1, 0.3]),
    mi_nats=st.sampled_from([None, 0.05, 0.5]),
    rule=st.sampled_from([None, "exact", "waterfill", "diagonal"]),
)
def test_caps_hold_in_truth_whatever_the_rule(
    seed: int,
    m: int,
    kind: str,
    belief: str,
    increment: float,
    mi_nats: float | None,
    rule: str | None,
) -> None:
    """Caps on single units, as a session sets them, alone and beside an information budget."""
    rng = np.random.default_rng(seed)
    values = draw_outputs(kind, m, 1, rng)
    log_p = draw_belief(belief, m, rng)
    pool = Balanced(n_subsets=m).draw(5, rng=seed)
    before = Belief(log_p=log_p.copy()).success_per_unit(pool)
    caps = np.minimum(1.0, before + increment)
    budget = Membership(0.9) if mi_nats is None else Information(mi_nats)
    plan = calibrate(values, budget, rule=rule, pool=pool, log_belief=log_p, caps=caps, rng=seed)
    nats, risk = truth_by_group(values, plan, np.exp(log_p), pool)
    assert (risk <= caps + 1e-6).all()
    if mi_nats is not None:
        assert nats <= mi_nats + 1e-9
    if plan.membership is not None:
        assert (risk <= plan.membership.upper_per_unit + 1e-6).all()


# --- order of the rules, monotonicity -------------------------------------------------------


@pytest.mark.claim("N-1", "N-2", "N-3")
@settings(parent=whole_suite)
@given(seed=seeds, m=sizes, kind=kinds, d=st.integers(1, 40), mi_nats=budgets_nats)
def test_closed_forms_are_ordered(seed: int, m: int, kind: str, d: int, mi_nats: float) -> None:
    values = draw_outputs(kind, m, d, np.random.default_rng(seed))
    total = {
        rule: calibrate(values, Information(mi_nats), rule=rule).total_variance
        for rule in COVARIANCE_RULES
    }
    room = 1 + LATTICE
    assert total["waterfill"] <= total["spectral"] * room
    assert total["spectral"] <= total["diagonal"] * room
    assert total["diagonal"] <= total["isotropic_max"] * room
    assert total["diagonal"] <= total["isotropic"] * room


@pytest.mark.claim("N-5")
@pytest.mark.usefixtures("quick_search")
@settings(parent=whole_suite, max_examples=40)
@given(seed=seeds, m=sizes, kind=kinds, d=st.integers(1, 4), mi_nats=budgets_nats)
def test_the_exact_rule_is_never_worse_than_waterfill(
    seed: int, m: int, kind: str, d: int, mi_nats: float
) -> None:
    values = draw_outputs(kind, m, d, np.random.default_rng(seed))
    exact = calibrate(values, Information(mi_nats), rule="exact", rng=seed)
    gaussian = calibrate(values, Information(mi_nats), rule="waterfill")
    assert exact.total_variance <= gaussian.total_variance * (1 + LATTICE)
    assert exact.mi_upper <= mi_nats


@settings(parent=whole_suite, max_examples=150)
@given(
    seed=seeds,
    m=sizes,
    kind=kinds,
    rule=st.sampled_from(COVARIANCE_RULES),
    low=budgets_nats,
    factor=st.floats(1.0, 50.0),
)
def test_a_larger_budget_never_needs_more_noise(
    seed: int, m: int, kind: str, rule: str, low: float, factor: float
) -> None:
    values = draw_outputs(kind, m, 3, np.random.default_rng(seed))
    tight = calibrate(values, Information(low), rule=rule).total_variance
    loose = calibrate(values, Information(low * factor), rule=rule).total_variance
    assert loose <= tight * (1 + LATTICE)


@pytest.mark.usefixtures("quick_search")
@settings(parent=whole_suite, max_examples=15)
@given(seed=seeds, m=st.sampled_from([8, 16]))
def test_a_larger_success_never_needs_more_noise(seed: int, m: int) -> None:
    values = np.random.default_rng(seed).normal(size=(m, 2))
    pool = Balanced(n_subsets=m).draw(6, rng=seed)
    total = [
        calibrate(values, Membership(success), pool=pool, rng=seed).total_variance
        for success in (0.55, 0.7, 0.9)
    ]
    assert total[2] <= 1.01 * total[1] <= 1.01**2 * total[0]


# --- symmetry -------------------------------------------------------------------------------


@settings(parent=whole_suite, max_examples=150)
@given(
    seed=seeds,
    m=sizes,
    kind=kinds.filter(lambda kind: kind != "tiny"),
    d=st.sampled_from([1, 3, 80]),
    belief=beliefs,
    rule=st.sampled_from(["spectral", "waterfill"]),
)
def test_rotation_does_not_change_the_total(
    seed: int, m: int, kind: str, d: int, belief: str, rule: str
) -> None:
    rng = np.random.default_rng(seed)
    values, log_p = draw_outputs(kind, m, d, rng), draw_belief(belief, m, rng)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    plain = calibrate(values, Information(0.1), rule=rule, log_belief=log_p)
    turned = calibrate(values @ turn, Information(0.1), rule=rule, log_belief=log_p)
    if plain.is_noiseless or turned.is_noiseless:
        return  # bit-for-bit equality of outputs does not survive a rotation
    assert turned.total_variance == pytest.approx(plain.total_variance, rel=1e-4)


@settings(parent=whole_suite, max_examples=150)
@given(
    seed=seeds,
    m=sizes,
    kind=kinds.filter(lambda kind: kind != "tiny"),
    belief=beliefs,
    rule=st.sampled_from(COVARIANCE_RULES),
)
def test_order_and_origin_of_the_outputs_do_not_matter(
    seed: int, m: int, kind: str, belief: str, rule: str
) -> None:
    rng = np.random.default_rng(seed)
    values, log_p = draw_outputs(kind, m, 3, rng), draw_belief(belief, m, rng)
    order = rng.permutation(m)
    moved = values + 8.0 * np.abs(values).max()
    budget = Information(0.1)
    plain = calibrate(values, budget, rule=rule, log_belief=log_p).total_variance
    mixed = calibrate(values[order], budget, rule=rule, log_belief=log_p[order]).total_variance
    shifted = calibrate(moved, budget, rule=rule, log_belief=log_p).total_variance
    assert mixed == pytest.approx(plain, rel=1e-6)
    assert shifted == pytest.approx(plain, rel=1e-4)


@pytest.mark.usefixtures("quick_search")
@settings(parent=whole_suite, max_examples=15)
@given(seed=seeds, rule=st.sampled_from(["exact", "risk"]))
def test_searched_rules_find_the_same_noise_after_a_shift(seed: int, rule: str) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(16, 2))
    pool = Balanced(n_subsets=16).draw(6, rng=seed)
    budget = Information(1.5) if rule == "exact" else Membership(0.7)
    plain, moved = (
        calibrate(v, budget, rule=rule, pool=pool, rng=0).total_variance
        for v in (values, values + 16.0)
    )
    assert moved == pytest.approx(plain, rel=0.02)


# --- nothing to hide ------------------------------------------------------------------------


@settings(parent=whole_suite, max_examples=100)
@given(
    seed=seeds,
    m=sizes,
    d=st.integers(1, 4),
    rule=st.sampled_from([*COVARIANCE_RULES, "exact", "risk"]),
)
def test_outputs_that_never_move_get_no_noise(seed: int, m: int, d: int, rule: str) -> None:
    row = np.random.default_rng(seed).normal(size=d) * 10.0 ** (seed % 7)
    values = np.tile(row, (m, 1))
    pool = Balanced(n_subsets=m).draw(4, rng=seed)
    plan = calibrate(values, Membership(0.6), rule=rule, pool=pool, rng=seed)
    assert plan.total_variance == 0.0
    assert plan.mi_upper == 0.0
    assert plan.notes == (NOISELESS,)
    released = plan.value_of(plan.observe(seed % m, SimulatedSource(seed)))
    assert np.array_equal(released, row)


@settings(parent=whole_suite, max_examples=100)
@given(seed=seeds, m=sizes, kind=kinds, rule=st.sampled_from(["diagonal", "waterfill"]))
def test_a_coordinate_that_never_moves_gets_no_noise(
    seed: int, m: int, kind: str, rule: str
) -> None:
    values = draw_outputs(kind, m, 3, np.random.default_rng(seed))
    values[:, 1] = 7.25
    plan = calibrate(values, Information(0.01), rule=rule)
    released = plan.value_of(plan.observe(0, SimulatedSource(seed)))
    scale = max(1.0, float(np.abs(released).max()))
    assert released[1] == pytest.approx(7.25, abs=1e-12 * scale)


@settings(parent=whole_suite, max_examples=100)
@given(
    seed=seeds,
    m=sizes,
    kind=kinds,
    belief=beliefs,
    rule=st.sampled_from([*COVARIANCE_RULES, "exact", "risk"]),
)
def test_a_budget_that_is_met_anyway_gives_no_noise(
    seed: int, m: int, kind: str, belief: str, rule: str
) -> None:
    rng = np.random.default_rng(seed)
    values, log_p = draw_outputs(kind, m, 2, rng), draw_belief(belief, m, rng)
    plan = calibrate(values, Information(math.log(m) + 1e-9), rule=rule, log_belief=log_p)
    assert plan.is_noiseless
    assert plan.total_variance == 0.0
    assert plan.notes == (NOISELESS,)
    index = int(np.argmax(log_p))
    released = plan.value_of(plan.observe(index, SimulatedSource(0)))
    assert np.array_equal(released, values[index])


# --- records survive the way to a file and back ---------------------------------------------

finite = st.floats(0, 1, allow_nan=False)


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    lower, value, upper = sorted(draw(st.tuples(finite, finite, finite)))
    return Estimate(
        value=value,
        lower=lower,
        upper=upper,
        confidence=draw(st.sampled_from([1.0, 1 - 1e-9, 0.99])),
        n_draws=draw(st.integers(0, 10**9)),
    )


@pytest.fixture(scope="module")
def some_release() -> tuple[Certificate, Bundle]:
    from pacprivacy import privatize

    rng = np.random.default_rng(0)
    release = privatize(
        lambda x: x.mean(axis=0),
        rng.normal(size=(20, 2)),
        Information(0.25),
        rule="waterfill",
        n_subsets=16,
        rng=0,
    )
    return release.certificate, release.bundle


@settings(max_examples=60)
@given(
    estimate=estimates(),
    number=finite,
    text=st.text(max_size=20),
    composition=st.none() | st.dictionaries(st.text(max_size=5), finite | st.none(), max_size=3),
)
def test_certificates_survive_json(
    some_release: tuple[Certificate, Bundle],
    estimate: Estimate,
    number: float,
    text: str,
    composition: dict[str, float | None] | None,
) -> None:
    certificate = replace(
        some_release[0],
        membership=estimate,
        information=None,
        log_det_nats=number,
        mechanism=text,
        notes=(text, "second"),
        composition=composition,
    )
    import json

    again = Certificate.from_dict(json.loads(certificate.to_json()))
    assert again == certificate
    if composition is None:
        assert str(again) == str(certificate)


@settings(max_examples=40)
@given(seed=seeds, m=sizes, d=st.integers(1, 5), belief=beliefs, free=st.booleans())
def test_bundles_survive_a_file(
    tmp_path_factory: pytest.TempPathFactory, seed: int, m: int, d: int, belief: str, free: bool
) -> None:
    rng = np.random.default_rng(seed)
    values, log_p = draw_outputs("normal", m, d, rng), draw_belief(belief, m, rng)
    pool = Balanced(n_subsets=m).draw(9, rng=seed)
    budget = Information(50.0 if free else 0.05)
    plan = calibrate(values, budget, rule="waterfill", log_belief=log_p)
    seen = plan.observe(int(np.argmax(log_p)), SimulatedSource(seed))
    spent = Spent(n_releases=3, mi_nats=0.1 * d, success_increment=1e-3)
    part = BundleSession(
        total=Spent(mi_nats=2.0, success_level=0.9),
        before=spent,
        share=Spent(mi_nats=0.05),
        fresh=free,
        observation=seen,
    )
    _, structure = flatten(np.zeros(d))
    context = Context(
        outputs=Outputs(values=values, structure=structure, mechanism_name="ä", seed=0),
        pool=pool,
        budget=budget & Membership(0.7) & EpsilonEquivalent(2.0),
        log_p=log_p,
        gamma=1e-9,
        seed=2**100 + seed,
        simulation=free,
        notes=("a note",),
        session=part,
    )
    bundle = bundle_of(plan, context)
    path: Path = tmp_path_factory.mktemp("bundle") / "curator.npz"
    bundle.save(path)
    again = Bundle.load(path)
    for name in ("outputs", "log_p", "points", "units_per_std", "grid_step"):
        mine, theirs = getattr(bundle, name), getattr(again, name)
        assert mine.dtype == theirs.dtype
        assert np.array_equal(mine, theirs)
    assert again.pool.digest() == pool.digest()
    assert (again.seed, again.simulation, again.proofs) == (2**100 + seed, free, bundle.proofs)
    assert (again.groups is None) == (bundle.groups is None)
    assert (again.stated, again.budget) == (bundle.stated, bundle.budget)
    assert again.gamma == 1e-9
    assert again.session is not None
    assert again.session.observation is not None
    assert np.array_equal(again.session.observation.integers, seen.integers)
    assert again.session.observation.group == seen.group
    assert replace(again.session, observation=None) == replace(part, observation=None)
    after = Belief(log_p=log_p).updated(plan.log_likelihood(seen))
    assert np.array_equal(again.belief_after(again.session.observation).log_p, after.log_p)
    assert path.stat().st_mode & 0o077 == 0


# --- what people type -----------------------------------------------------------------------


@settings(max_examples=400)
@given(
    text=st.text(max_size=40)
    | st.text(alphabet="mi<=:/&,0123456789.e+-% epsilonmembrhandsu", max_size=40)
    | st.from_regex(r"(mi|membership|eps)<=[0-9eE.+-]{1,12}(/[0-9eE.+-]{1,12})?%?")
)
@example("mi<=1e400")
@example("mi<=1/1e-400")
@example("membership<=0.5")
@example("mi<=1e308/1e-308")
@example("")
def test_any_text_is_a_budget_or_a_budget_error(text: str) -> None:
    with contextlib.suppress(BudgetError):
        budget = parse_budget(text)
        assert budget_limits(budget) is not None


@settings(max_examples=100)
@given(
    mi_nats=st.floats(1e-6, 100),
    success=st.floats(0.51, 0.99),
    epsilon=st.floats(0.01, 20),
)
def test_joined_budgets_keep_the_tightest_limit(
    mi_nats: float, success: float, epsilon: float
) -> None:
    parts: list[AnyBudget] = [
        Information(mi_nats),
        Membership(success),
        EpsilonEquivalent(epsilon),
        Information(2 * mi_nats),
    ]
    joined = parts[0] & parts[1] & (parts[2] & parts[3])
    limits = budget_limits(joined)
    assert limits.mi_nats == mi_nats
    assert limits.success_level == min(success, EpsilonEquivalent(epsilon).membership_success)
    assert parse_budget(f"mi<={mi_nats!r} & membership<={success!r}") == parts[0] & parts[1]
