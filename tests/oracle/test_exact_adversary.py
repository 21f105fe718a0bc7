"""The exact adversary against integrals, sums over all integers, and counting."""

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pacprivacy._random import public_generator
from pacprivacy.adversary import (
    Belief,
    exact_information,
    membership_risk,
    side_knowledge,
)
from pacprivacy.adversary.advantage import advantage_bounds
from pacprivacy.adversary.exact import noiseless_membership
from pacprivacy.adversary.view_and_belief import (
    View,
    ViewTilts,
    draw_views,
    make_view,
    rounding_slack,
    view_log_ratios,
    view_posterior,
)
from pacprivacy.noise import AxisFrame
from pacprivacy.noise.plan import (
    NoisePlan,
    Observation,
    Revealed,
    log_det_of_plan,
    log_det_of_points,
)
from pacprivacy.sample import Balanced, Half, Pool
from pacprivacy.theory import information_slack_bound

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]

TOLERANCE = 1e-3
DRAWS = 2_000_000  # the standard error of a gain of a few tenths is then about 3e-4


@dataclass(frozen=True)
class Law:
    """Unit Gaussian noise around the rows, and groups that are seen without noise."""

    groups: npt.NDArray[np.int64] | None = None
    total_variation_slack: float = 0.0

    def view(self, outputs: Matrix, log_belief: Vector | None = None) -> View:
        return make_view(outputs, log_belief, groups=self.groups, slack=self.total_variation_slack)


def joint_density(points: Vector, prior: Vector, step: float = 2e-3) -> tuple[Matrix, float]:
    """``p_k φ(z - w_k)`` on a fine grid of z, one column per candidate, and the grid step."""
    z = np.arange(points.min() - 9.0, points.max() + 9.0, step)
    bell = np.exp(-0.5 * (z[:, None] - points) ** 2) / math.sqrt(2 * math.pi)
    return prior * bell, step


def xlogx(p: Matrix) -> Matrix:
    return np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0)


def information_by_quadrature(points: Vector, prior: Vector) -> float:
    joint, step = joint_density(points, prior)
    # MI = ∫ Σ_k f_k ln(f_k / (p_k f)) = ∫ Σ f_k ln f_k - ∫ f ln f + H(p)
    total = joint.sum(axis=1)
    return float(step * (xlogx(joint).sum() - xlogx(total).sum()) - xlogx(prior).sum())


def success_by_quadrature(points: Vector, prior: Vector, score: Matrix) -> float:
    joint, step = joint_density(points, prior)
    return float(step * (joint @ score).max(axis=1).sum())


def risk_by_quadrature(points: Vector, prior: Vector, pool: Pool) -> Vector:
    joint, step = joint_density(points, prior)
    inside = joint @ pool.masks()
    return step * np.maximum(inside, joint.sum(axis=1)[:, None] - inside).sum(axis=0)


def make_problem(m: int, spread: float, seed: int, *, uniform: bool) -> tuple[Vector, Vector, Pool]:
    rng = np.random.default_rng([m, seed])
    points = spread * rng.normal(size=m)
    prior = np.full(m, 1 / m) if uniform else rng.dirichlet(np.ones(m))
    return points, prior, Balanced(n_subsets=m).draw(6, rng=seed)


PROBLEMS = [
    pytest.param(m, spread, uniform, id=f"{m}-{spread}-{'uniform' if uniform else 'belief'}")
    for m, spread, uniform in [
        (2, 0.3, True),
        (2, 1.5, False),
        (4, 1.0, True),
        (8, 0.5, True),
        (8, 3.0, False),
        (16, 0.2, True),
        (16, 2.0, True),
    ]
]


@pytest.mark.claim("A-1")
@pytest.mark.parametrize(("m", "spread", "uniform"), PROBLEMS)
def test_information_equals_the_integral(m: int, spread: float, uniform: bool) -> None:
    points, prior, _ = make_problem(m, spread, 1, uniform=uniform)
    truth = information_by_quadrature(points, prior)
    found = exact_information(Law().view(points[:, None], np.log(prior)), n_draws=DRAWS, rng=3)
    assert found.value == pytest.approx(truth, abs=TOLERANCE)
    assert found.lower <= truth <= found.upper
    assert truth <= min(
        log_det_of_points(points[:, None], prior, None) + 1e-9, -xlogx(prior).sum() + 1e-9
    )


@pytest.mark.claim("A-2")
@pytest.mark.parametrize(("m", "spread", "uniform"), PROBLEMS)
def test_membership_risk_equals_the_integral(m: int, spread: float, uniform: bool) -> None:
    points, prior, pool = make_problem(m, spread, 2, uniform=uniform)
    truth = risk_by_quadrature(points, prior, pool)
    found = membership_risk(
        Law().view(points[:, None], np.log(prior)), pool, n_draws=DRAWS // 2, rng=4
    )
    np.testing.assert_allclose(found.per_unit, truth, atol=TOLERANCE)
    assert (truth <= found.upper_per_unit).all()
    assert found.lower <= truth.max() <= found.upper
    assert found.mean.lower <= truth.mean() <= found.mean.upper


@pytest.mark.claim("A-1")
def test_two_directions_equal_a_double_integral() -> None:
    rng = np.random.default_rng(8)
    points = rng.normal(size=(6, 2)) * [1.5, 0.7]
    step = 0.05
    axes = [np.arange(points[:, i].min() - 8, points[:, i].max() + 8, step) for i in range(2)]
    z = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    joint = np.exp(-0.5 * np.square(z[:, None] - points).sum(axis=2)) / (2 * math.pi) / 6
    gain = xlogx(joint).sum() - xlogx(joint.sum(axis=1)).sum()
    truth = step**2 * gain + math.log(6)
    found = exact_information(Law().view(points), n_draws=DRAWS, rng=9)
    assert found.value == pytest.approx(truth, abs=TOLERANCE)


# --- a discrete law, summed over every integer ----------------------------------------------


def lattice_plan(points: npt.NDArray[np.int64], units: list[int], **fields: object) -> NoisePlan:
    """A plan whose noise has so few grid steps that all outcomes can be listed."""
    n_directions = points.shape[1]
    return NoisePlan(
        rule="test",
        kind="exact",
        frame=AxisFrame(axes=np.arange(n_directions), center=np.zeros(n_directions)),
        center=np.zeros(n_directions),
        grid_step=np.ones(n_directions),
        units_per_std=np.array(units, dtype=np.int64),
        points=points,
        outputs=points.astype(float),
        **fields,  # type: ignore[arg-type]
    )


def list_outcomes(plan: NoisePlan, prior: Vector) -> Matrix:
    """Probability of (outcome, candidate) for every outcome that can be told from zero."""
    reach = [
        range(int(low - 9 * s), int(high + 9 * s) + 1)
        for low, high, s in zip(
            plan.points.min(axis=0), plan.points.max(axis=0), plan.units_per_std, strict=True
        )
    ]
    groups = [None] if plan.revealed is None else sorted(set(plan.revealed.groups.tolist()))
    rows = [
        plan.log_likelihood(Observation(integers=np.array(t, dtype=np.int64), group=group))
        for group in groups
        for t in itertools.product(*reach)
    ]
    weights = np.exp(np.array(rows))
    joint: Matrix = prior * weights / weights.sum(axis=0)
    return joint


def discrete_information(joint: Matrix, prior: Vector) -> float:
    return float(xlogx(joint).sum() - xlogx(joint.sum(axis=1)).sum() - xlogx(prior).sum())


@pytest.mark.claim("A-1", "A-2", "L-2")
@pytest.mark.parametrize("units", [[4], [64], [4, 6]])
def test_the_integer_release_equals_its_enumeration(units: list[int]) -> None:
    rng = np.random.default_rng(len(units) + units[0])
    m = 8
    points = np.rint(rng.normal(size=(m, len(units))) * units).astype(np.int64)
    plan = lattice_plan(points, units)
    prior = rng.dirichlet(np.ones(m))
    joint = list_outcomes(plan, prior)
    truth = discrete_information(joint, prior)
    outputs = points.astype(float)
    found = exact_information(plan.view(outputs, np.log(prior)), n_draws=500_000, rng=10)
    slack = information_slack_bound(plan.total_variation_slack, m)
    assert found.value == pytest.approx(truth, abs=2 * TOLERANCE + min(slack, 0.01))
    assert found.lower <= truth <= found.upper
    assert truth <= log_det_of_plan(plan, prior)
    pool = Balanced(n_subsets=m).draw(5, rng=0)
    risk = membership_risk(plan.view(outputs, np.log(prior)), pool, n_draws=300_000, rng=11)
    inside = joint @ pool.masks()
    exact = np.maximum(inside, joint.sum(axis=1)[:, None] - inside).sum(axis=0)
    np.testing.assert_allclose(risk.per_unit, exact, atol=2 * TOLERANCE)
    assert (exact <= risk.upper_per_unit).all()


@pytest.mark.claim("A-1", "A-2")
def test_a_revealed_part_with_noise_beside_it_equals_its_enumeration() -> None:
    rng = np.random.default_rng(12)
    m, units = 8, [16]
    points = np.rint(rng.normal(size=(m, 1)) * units).astype(np.int64)
    groups = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    plan = lattice_plan(points, units, revealed=Revealed(groups=groups, bases=np.zeros((3, 1))))
    prior = rng.dirichlet(np.ones(m))
    joint = list_outcomes(plan, prior)
    truth = discrete_information(joint, prior)
    outputs = points.astype(float)
    found = exact_information(plan.view(outputs, np.log(prior)), n_draws=500_000, rng=13)
    assert found.value == pytest.approx(truth, abs=2 * TOLERANCE)
    assert truth <= found.upper
    assert truth <= log_det_of_plan(plan, prior)
    pool = Balanced(n_subsets=m).draw(5, rng=1)
    risk = membership_risk(plan.view(outputs, np.log(prior)), pool, n_draws=300_000, rng=14)
    inside = joint @ pool.masks()
    exact = np.maximum(inside, joint.sum(axis=1)[:, None] - inside).sum(axis=0)
    np.testing.assert_allclose(risk.per_unit, exact, atol=2 * TOLERANCE)


@pytest.mark.claim("A-1", "A-2")
@pytest.mark.parametrize("groups", [[0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 3, 4, 5, 6, 7], [0] * 8])
def test_groups_of_one_size_are_counted_without_error(groups: list[int]) -> None:
    law = Law(groups=np.array(groups))
    pool = Balanced(n_subsets=8).draw(6, rng=2)
    outputs = np.zeros((8, 1))
    n_groups = len(set(groups))
    found = exact_information(law.view(outputs), n_draws=4096, rng=15)
    assert found.value == pytest.approx(math.log(n_groups), abs=1e-12)
    table = pool.masks()
    counted = np.zeros(pool.n_units)
    for group in set(groups):
        inside = table[np.array(groups) == group].sum(axis=0)
        counted += np.maximum(inside, groups.count(group) - inside) / 8
    exact = noiseless_membership(make_view(outputs, groups=np.array(groups)), pool).per_unit
    np.testing.assert_allclose(exact, counted, atol=2e-12)
    assert (exact >= counted).all()
    risk = membership_risk(law.view(outputs), pool, n_draws=400_000, rng=16)
    np.testing.assert_allclose(risk.per_unit, counted, atol=2 * TOLERANCE)


@pytest.mark.claim("A-1")
def test_beliefs_with_impossible_candidates_are_those_without_them() -> None:
    points, prior, pool = make_problem(8, 1.0, 5, uniform=False)
    points[0] = 1e6  # where a candidate that is ruled out would have been does not matter
    log_p = np.log(prior)
    log_p[[0, 5]] = -np.inf
    alive = np.isfinite(log_p)
    truth = information_by_quadrature(points[alive], prior[alive] / prior[alive].sum())
    found = exact_information(Law().view(points[:, None], log_p), n_draws=DRAWS, rng=17)
    assert found.value == pytest.approx(truth, abs=TOLERANCE)
    risk = membership_risk(Law().view(points[:, None], log_p), pool, n_draws=2000, rng=18)
    assert np.isfinite(risk.per_unit).all()


@pytest.mark.claim("A-1", "A-2")
@pytest.mark.parametrize("far", [1e3, 1e8, 1e11])
def test_an_outlier_does_not_blur_the_others(far: float) -> None:
    """Near candidates must be told apart although an expanded square would lose them."""
    near = np.linspace(-40.0, 40.0, 8)
    points = np.concatenate([near, far + near])
    truth = math.log(2) + information_by_quadrature(near, np.full(8, 1 / 8))
    found = exact_information(Law().view(points[:, None]), n_draws=50_000, rng=19)
    assert found.value == pytest.approx(truth, abs=5e-3)
    pool = Balanced(n_subsets=16).draw(6, rng=3)
    assert membership_risk(Law().view(points[:, None]), pool, n_draws=2000, rng=20).value > 0.999


@pytest.mark.claim("A-1", "A-2")
@pytest.mark.parametrize("n_directions", [3, 12])
@pytest.mark.parametrize("far", [0.0, 1e9])
def test_every_direction_counts_in_a_distance(n_directions: int, far: float) -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(6, n_directions))
    points[3:] += far
    view, chosen = make_view(points), np.array([0, 2, 5])
    apart = np.square(points[chosen][:, None] - points).sum(axis=2)
    assert (view.gaps is None) == (far == 0)
    np.testing.assert_allclose(view_log_ratios(view, chosen), -0.5 * apart, rtol=1e-6)


@pytest.mark.claim("A-1")
def test_repeated_outputs_are_one_candidate() -> None:
    points = np.array([0.0, 0.0, 0.0, 2.0])
    truth = information_by_quadrature(np.array([0.0, 2.0]), np.array([0.75, 0.25]))
    found = exact_information(Law().view(points[:, None]), n_draws=DRAWS, rng=21)
    assert found.value == pytest.approx(truth, abs=TOLERANCE)


@pytest.mark.claim("A-1", "A-2", "L-2")
def test_the_distance_of_the_integer_law_is_added_to_every_bound() -> None:
    points, _, pool = make_problem(8, 0.3, 7, uniform=True)
    exact, blurred = Law(), Law(total_variation_slack=0.01)
    outputs = points[:, None]
    laws = (exact, blurred)
    pairs = [
        [exact_information(law.view(outputs), n_draws=20_000, rng=22) for law in laws],
        [membership_risk(law.view(outputs), pool, n_draws=20_000, rng=22) for law in laws],
    ]
    for (plain, wide), slack in zip(pairs, (information_slack_bound(0.01, 8), 0.01), strict=True):
        assert wide.value == plain.value
        assert wide.upper == pytest.approx(plain.upper + slack)
        assert wide.lower <= plain.lower


# --- the odometer and side knowledge --------------------------------------------------------


def test_the_belief_counts_memberships_and_nats() -> None:
    _, prior, pool = make_problem(8, 1.0, 6, uniform=False)
    belief = Belief.uniform(8).updated(np.log(prior))
    inside = prior @ pool.masks()
    np.testing.assert_allclose(belief.success_per_unit(pool), np.maximum(inside, 1 - inside))
    assert belief.learned_nats == pytest.approx(math.log(8) + xlogx(prior).sum())
    assert Belief.uniform(8).learned_nats == 0.0


@pytest.mark.parametrize("strategy", [Balanced(n_subsets=32), Half(n_subsets=32)])
@pytest.mark.parametrize("n_told", [1, 2, 3])
def test_side_knowledge_without_a_release_is_counting(
    strategy: Balanced | Half, n_told: int
) -> None:
    pool = strategy.draw(9, rng=4)
    masks = pool.masks()
    outputs = np.random.default_rng(0).normal(size=(32, 1))
    for seed in range(6):
        found = side_knowledge(
            Law().view(outputs), pool, n_told=n_told, n_sets=1, n_draws=64, rng=seed
        )
        draw = public_generator(seed, "side-knowledge", n_told)
        secret = int(draw.choice(32, p=np.full(32, 1 / 32)))
        told = draw.choice(9, size=n_told, replace=False)
        kept = masks[(masks[:, told] == masks[secret, told]).all(axis=1)]
        rest = np.delete(kept, told, axis=1).mean(axis=0)
        assert found.mean_without_release == pytest.approx(np.maximum(rest, 1 - rest).max())
        assert found.worst_success >= found.worst_without_release


def test_side_knowledge_of_a_noiseless_release_is_certainty() -> None:
    pool = Balanced(n_subsets=16).draw(8, rng=5)
    law = Law(groups=np.arange(16))
    found = side_knowledge(law.view(np.zeros((16, 1))), pool, n_told=1, n_draws=16, rng=0)
    assert found.mean_success == pytest.approx(1.0)
    assert found.mean_increment is not None
    assert found.mean_increment > 0


def test_side_knowledge_of_a_silent_release_adds_nothing() -> None:
    pool = Balanced(n_subsets=16).draw(8, rng=6)
    found = side_knowledge(Law().view(np.zeros((16, 1))), pool, n_told=2, n_draws=16, rng=0)
    assert found.mean_success == found.mean_without_release
    assert found.mean_increment == found.largest_increment == 0.0


def told_by_enumeration(
    points: Vector, prior: Vector, masks: npt.NDArray[np.bool_], n_told: int
) -> list[tuple[float, float, float, float]]:
    """Every set of told units with every answer: its probability, the best guess about any other
    unit before and after the release, and the most that one unit gains. By quadrature."""
    n_units, found = masks.shape[1], []
    sets = list(itertools.combinations(range(n_units), n_told))
    for told in sets:
        others = [i for i in range(n_units) if i not in told]
        for answer in itertools.product([False, True], repeat=n_told):
            agree = (masks[:, told] == answer).all(axis=1)
            if not agree.any():
                continue
            mass = float(prior[agree].sum())
            joint, step = joint_density(points[agree], prior[agree] / mass)
            before, after = [], []
            for i in others:
                inside = masks[agree, i]
                sides = joint[:, inside].sum(axis=1), joint[:, ~inside].sum(axis=1)
                after.append(float(np.maximum(*sides).sum()) * step)
                before.append(max(float(side.sum()) * step for side in sides))
            gains = np.subtract(after, before)
            found.append((mass / len(sets), max(before), max(after), float(gains.max())))
    return found


@pytest.mark.claim("A-2")
@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("n_told", [1, 2])
def test_the_increment_is_that_of_one_unit(n_told: int, uniform: bool) -> None:
    """Six units, eight candidates: every set of told units with every answer, by integrals.

    What side knowledge alone tells for certain has nothing to gain; the difference of the two best
    guesses then says next to nothing of what the release tells about the others.
    """
    pool = Balanced(n_subsets=8).draw(6, rng=1)
    masks = pool.masks()
    rng = np.random.default_rng(2)
    points = rng.normal(size=8)
    prior = np.full(8, 1 / 8) if uniform else rng.dirichlet(np.full(8, 4.0))
    told = told_by_enumeration(points, prior, masks, n_told)
    mass, before, after, gain = np.array(told).T
    assert mass.sum() == pytest.approx(1.0)
    assert mass @ gain > 5 * (mass @ after - mass @ before)  # a difference of maxima hides it
    found = side_knowledge(
        Law().view(points[:, None], np.log(prior)),
        pool,
        n_told=n_told,
        n_sets=400,
        n_draws=4096,
        rng=0,
    )
    assert found.mean_increment is not None
    assert found.largest_increment is not None
    # figures of a set have a spread of about 0.1, draws one of at most 0.4
    assert found.mean_without_release == pytest.approx(mass @ before, abs=0.03)
    assert found.mean_success == pytest.approx(mass @ after, abs=0.03)
    assert found.mean_increment == pytest.approx(mass @ gain, abs=0.03)
    assert gain.max() - 0.01 <= found.largest_increment <= gain.max() + 0.03


def test_side_knowledge_alone_at_ten_thousand_records() -> None:
    """The figures of the handbook for m = 256: 0.62, 0.71, 0.92 for one, two, four told."""
    pool = Balanced(n_subsets=256).draw(10_000, rng=7)
    outputs = np.zeros((256, 1))
    for n_told, expected in ((1, 0.62), (2, 0.71), (4, 0.92)):
        found = side_knowledge(Law().view(outputs), pool, n_told=n_told, n_draws=2, n_sets=4, rng=0)
        assert found.mean_without_release == pytest.approx(expected, abs=0.05)


def partitions(units: tuple[int, ...], size: int) -> list[tuple[tuple[int, ...], ...]]:
    """All ways to split the units into unordered folds of one size."""
    if not units:
        return [()]
    found = []
    for others in itertools.combinations(units[1:], size - 1):
        fold = (units[0], *others)
        rest = tuple(u for u in units if u not in fold)
        found += [(fold, *tail) for tail in partitions(rest, size)]
    return found


def all_folds() -> Pool:
    """Six units, three folds, all fifteen partitions: 45 candidates of four units."""
    masks = np.array(
        [
            [u not in folds[j] for u in range(6)]
            for j in range(3)
            for folds in partitions(tuple(range(6)), 2)
        ]
    )
    return Pool(
        bits=np.packbits(masks, axis=1),
        n_units=6,
        scheme="all partitions",
        prior=2 / 3,
        independent=False,
        folds=3,
    )


def advantage_by_counting(pool: Pool, seen: npt.NDArray[np.int64], weights: Vector) -> Vector:
    """``TV(P_in, P_out)`` of every unit, from the two laws of what is seen themselves."""
    found = np.empty(pool.n_units)
    for unit, inside in enumerate(pool.masks().T):
        laws = []
        for side in (inside, ~inside):
            law = np.bincount(seen[side], weights[side], minlength=int(seen.max()) + 1)
            laws.append(law / (side.sum() / len(side)))
        found[unit] = 0.5 * np.abs(laws[0] - laws[1]).sum()
    return found


VALUES = np.array([0, 1, 1, 3, 7, 12])


@pytest.mark.claim("A-2")
@pytest.mark.claim("P-3")
def test_all_partitions_of_six_units_agree_with_counting() -> None:
    pool = all_folds()
    assert pool.counts().tolist() == [30] * 6
    sums = pool.masks() @ VALUES
    _, groups = np.unique(sums, return_inverse=True)
    uniform = np.full(45, 1 / 45)
    expected = 0.5 + 0.5 * advantage_by_counting(pool, groups, uniform)
    view = Law(groups=groups).view(np.zeros((45, 1)))
    assert np.abs(noiseless_membership(view, pool).per_unit - expected).max() < 1e-9
    # A belief is one possible observation: the two laws, weighed by it.
    belief = np.random.default_rng(0).dirichlet(np.ones(45))
    one = np.zeros(45, dtype=np.int64)
    after = 0.5 + 0.5 * advantage_by_counting(pool, one, belief)
    assert np.abs(Belief(log_p=np.log(belief)).success_per_unit(pool) - after).max() < 1e-9


@pytest.mark.claim("A-2")
def test_noise_around_all_partitions_agrees_with_the_integral() -> None:
    pool = all_folds()
    points = (pool.masks() @ VALUES) / 4.0
    joint, step = joint_density(points, np.full(45, 1 / 45), step=1e-3)
    masks = pool.masks()
    inside, outside = joint @ masks / (2 / 3), joint @ ~masks / (1 / 3)
    advantage = 0.5 * np.abs(inside - outside).sum(axis=0) * step
    for found in (points[:, None], np.stack([points, np.zeros(45)], axis=1)):
        risk = membership_risk(Law().view(found), pool, n_draws=1 << 15, rng=0)
        assert (risk.upper_per_unit >= 0.5 + 0.5 * advantage - 1e-9).all()
        assert risk.worst.lower <= 0.5 + 0.5 * advantage.max() <= risk.worst.upper
        assert risk.worst.upper - risk.worst.lower < 0.03


@pytest.mark.claim("A-2")
@pytest.mark.parametrize("planted", ["1/(1-f) forgotten", "a prior of one half"])
def test_a_wrong_share_does_not_agree_with_counting(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = ViewTilts.__init__

    def wrong(self: ViewTilts, pool: Pool) -> None:
        begin(self, pool)
        if planted == "a prior of one half":
            self.share = np.full_like(self.share, 0.5)
            self.scale = np.full_like(self.scale, 2.0)
        else:
            self.scale = 0.5 / self.share

    monkeypatch.setattr(ViewTilts, "__init__", wrong)
    with pytest.raises(AssertionError):
        test_all_partitions_of_six_units_agree_with_counting()
    with pytest.raises(AssertionError):
        test_noise_around_all_partitions_agrees_with_the_integral()


# --- double precision ----------------------------------------------------------------------------


def exact_posterior(points: npt.NDArray[np.float64], index: int, noise: Any) -> Any:
    """Posterior after ``points[index] + noise``, in fractions but for the exponentials."""
    rows = [[Fraction(x) for x in row] for row in points.tolist()]
    seen = [x + Fraction(n) for x, n in zip(rows[index], noise.tolist(), strict=True)]
    gaps = [sum((z - x) ** 2 for z, x in zip(seen, row, strict=True)) for row in rows]
    weights = np.exp([-float(gap - min(gaps)) / 2 for gap in gaps])
    return weights / weights.sum()


@pytest.mark.claim("A-2")
@pytest.mark.parametrize("size", [1.0, 1e3, 9e3, 1e7, 2.0**36])
def test_rounding_of_draws_is_counted(size: float) -> None:
    """Posteriors of double precision against exact ones; two clusters that are far apart."""
    rng = np.random.default_rng(3)
    whitened = np.where(np.arange(12) % 2, 1.0, -1.0)[:, None] * [size, size / 3, 0.1]
    whitened += rng.normal(size=whitened.shape)
    view = make_view(whitened, slack=1e-13)
    draws = draw_views(view, 200, rng)
    seen = view_posterior(view, draws)
    pairs = zip(draws.indices, draws.noise, strict=True)
    exact = [exact_posterior(whitened, index, noise) for index, noise in pairs]
    moved = float(np.abs(seen - exact).sum(axis=1).mean())
    counted = view.slack - 1e-13
    assert 0 < moved <= 2 * counted <= 1e4 * moved  # what is counted is there


@pytest.mark.claim("A-2")
def test_bounds_by_draws_hold_what_rounding_adds() -> None:
    pool = Balanced(n_subsets=16).draw(12, rng=0)
    points = np.random.default_rng(0).normal(size=(16, 3))
    view = make_view(points)
    with_it, without = (
        advantage_bounds(seen, pool, n_draws=512, gamma=1e-3, rng=np.random.default_rng(1))
        for seen in (view, replace(view, slack=0.0))
    )
    counted = with_it.upper - without.upper
    assert (counted >= 1.99 * rounding_slack(view, points)).all()


@pytest.mark.claim("A-2")
def test_turning_many_directions_into_few_is_counted() -> None:
    """Distances of candidates before and after, in exact numbers: both ends may have moved."""
    points = np.random.default_rng(0).normal(size=(6, 400)) * 100.0
    points[1] = points[0] + 1e-3
    view = make_view(points)
    before, after = (
        sum((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(*rows[:2].tolist(), strict=True))
        for rows in (points, view.points)
    )
    off = abs(math.sqrt(before) - math.sqrt(after))
    assert 1e-9 < off <= 2 * view.slack
