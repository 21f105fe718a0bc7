"""Many answers from one secret: the lean path against the general one, and the estimator."""

import math
import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.errors import BudgetError, BudgetExceededError, MechanismError, SecretError
from pacprivacy.estimators.predictor import project_to_simplex
from pacprivacy.noise import NoisePlan, PlanProblem
from pacprivacy.noise.answers import (
    LEAST_NATS,
    UNITS,
    AnswerNoise,
    answer_vote_charge,
    answer_vote_gap,
    plan_answer,
    usable_answer_nats,
)
from pacprivacy.noise.plan import Observation, log_det_of_points, waterfill
from pacprivacy.noise.rules import FormulaRule
from pacprivacy.sample import Balanced
from pacprivacy.session.responder import Responder, ScoreAnswers, VoteAnswers
from pacprivacy.theory import binary_entropy, posterior_success

BUDGETS = (2.0**-30, 2.0**-20, 2.0**-8, 0.5)


def random_belief(rng, m):
    log_p = rng.normal(scale=1.5, size=m)
    return log_p - np.log(np.exp(log_p).sum())


def one_hot(labels, n_classes):
    return np.eye(n_classes)[labels]


# --- the noise of one answer ------------------------------------------------------------------


def general_plan(values, log_p, budget) -> NoisePlan:
    problem = PlanProblem(values=values, log_p=log_p, gamma=1e-9, seed=0, mi_nats=budget)
    return FormulaRule("waterfill", waterfill).noisy_plan(problem)


@pytest.mark.claim("F-1")
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("seed", range(4))
def test_two_class_noise_is_that_of_the_general_rule(budget, seed):
    rng = np.random.default_rng(seed)
    m = 24
    log_p = random_belief(rng, m)
    votes = rng.integers(2, size=m)
    votes[:2] = 0, 1
    ones = float(np.exp(log_p) @ votes)
    usable, slack = usable_answer_nats(budget, n_directions=1, n_subsets=m)
    gap = answer_vote_gap(ones, 1 - ones, usable)
    general = general_plan(one_hot(votes, 2), log_p, budget)
    assert general.n_directions == 1
    # votes are sqrt(2) apart; a gap of one vote is ``gap`` steps of 1/UNITS standard deviations
    # (5e-3: at 2^-30 nats the coarser lattice of the general plan costs it that much)
    assert 2 * (UNITS / gap) ** 2 == pytest.approx(general.total_variance, rel=5e-3)
    charge = answer_vote_charge(ones, 1 - ones, gap, slack)
    assert charge <= budget
    assert charge >= 0.999 * budget


@pytest.mark.claim("F-1")
@pytest.mark.parametrize("budget", BUDGETS[1:])
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_noise_in_several_directions_is_that_of_the_general_rule(budget, n_classes):
    rng = np.random.default_rng(n_classes)
    m = 30
    log_p = random_belief(rng, m)
    scores = rng.dirichlet(np.ones(n_classes), size=m)
    plan = plan_answer(scores, np.exp(log_p), mi_nats=budget, n_subsets=m)
    general = general_plan(scores, log_p, budget)
    assert plan.points.shape[1] == general.n_directions == n_classes - 1
    # the general plan's lattice is a thousand times coarser and costs it that much
    assert np.sort(plan.noise_var) == pytest.approx(np.sort(general.noise_std**2), rel=5e-4)
    assert plan.charge <= budget
    exact = log_det_of_points(plan.points / UNITS, np.exp(log_p), None)
    assert exact <= plan.charge <= exact * (1 + 1e-6) + 1e-15


@pytest.mark.parametrize("seed", range(4))
def test_belief_after_a_vector_is_that_of_the_general_plan(seed):
    """The same released vector, seen through both plans, tilts the belief alike."""
    rng = np.random.default_rng(seed)
    m, budget = 20, 0.05
    log_p = random_belief(rng, m)
    scores = rng.dirichlet(np.ones(4), size=m)
    lean = plan_answer(scores, np.exp(log_p), mi_nats=budget, n_subsets=m)
    general = general_plan(scores, log_p, budget)
    seen = lean.points[3] + AnswerNoise(SimulatedSource(seed)).take(lean.points.shape[1])
    value = lean.value_of(seen)
    place = general.frame.coordinates(value[None, :])[0] / general.grid_step
    other = general.log_likelihood(Observation(integers=np.rint(place).astype(int), group=None))
    mine = lean.log_likelihood(seen)
    assert mine - mine[0] == pytest.approx(other - other[0], abs=2e-4)


@pytest.mark.parametrize("budget", [2.0**-20, 0.05])
@pytest.mark.parametrize("seed", range(5))
def test_two_class_loop_charges_what_the_general_loop_charges(budget, seed):
    rng = np.random.default_rng(seed)
    m = 16
    votes = rng.integers(2, size=(m, 1))
    log_p = random_belief(rng, m)
    fast = VoteAnswers(votes, log_p, budget).observe(3, SimulatedSource(1))
    slow = ScoreAnswers(votes, log_p, budget, n_classes=2).observe(3, SimulatedSource(1))
    assert slow.charges == pytest.approx(fast.charges, rel=1e-5)
    assert 0 < fast.charges[0] <= budget
    assert 0 < slow.charges[0] <= budget


def test_belief_of_the_two_class_loop_is_bayes():
    rng = np.random.default_rng(0)
    m, q, budget = 12, 40, 2e-3
    votes = rng.integers(2, size=(m, q)).astype(np.int16)
    log_p = random_belief(rng, m)
    answered = VoteAnswers(votes, log_p, budget).observe(4, SimulatedSource(2))
    expected = log_p.copy()
    for i in range(q):
        ones = float(np.exp(expected) @ votes[:, i])
        std = math.sqrt(ones * (1 - ones) / math.expm1(2 * budget))
        offset = (answered.values[i, 1] - votes[:, i]) / std
        expected = expected - 0.5 * offset**2
        expected -= math.log(np.exp(expected).sum())
    assert answered.log_p == pytest.approx(expected, abs=1e-6)
    assert answered.values.sum(axis=1) == pytest.approx(np.ones(q))


def test_unit_noise_is_never_given_twice_and_has_its_scale():
    noise = AnswerNoise(SimulatedSource(0))
    parts = [noise.take(size) for size in (1, 5000, 4000, 20_000)]
    drawn = np.concatenate(parts)
    assert len(np.unique(drawn)) > len(drawn) - 10
    assert drawn.std() / UNITS == pytest.approx(1.0, abs=0.02)


# --- answers ----------------------------------------------------------------------------------


def make_responder(m=16, *, query=0.01, total=10.0, seed=0):
    pool = Balanced(n_subsets=m).draw(40, rng=0)
    source = SimulatedSource(seed)
    return Responder(pool, query_nats=query, total_nats=total, source=source)


def test_unanimous_answers_are_exact_and_free():
    responder = make_responder()
    labels = np.tile(np.array([0, 2, 1, 1]), (16, 1))
    assert (
        responder.reply_votes(labels, n_classes=3).values.tolist()
        == np.eye(3)[[0, 2, 1, 1]].tolist()
    )
    scores = np.tile(np.array([[0.25, 0.75], [0.5, 0.5]]), (16, 1, 1))
    assert responder.reply_scores(scores).values.tolist() == scores[0].tolist()
    state = responder.odometer()
    assert (state.spent.n_releases, state.n_free, state.spent.mi_nats, state.learned_nats) == (
        6,
        6,
        0,
        0,
    )
    assert state.best_guess_now == 0.5


@pytest.mark.claim("F-2")
def test_the_sign_of_a_zero_does_not_tell_who_answered():
    """Zeros of both signs are equal, so they leave for nothing: then they must look equal too."""
    scores = np.tile([[0.0, 1.0]], (16, 1, 1))
    scores[::2, :, 0] = -0.0
    for seed in range(8):
        responder = make_responder(seed=seed)
        assert not np.signbit(responder.reply_scores(scores).values).any()
        assert responder.odometer().spent.mi_nats == 0


def test_charges_add_up_and_stay_below_the_budget_per_query():
    responder = make_responder(query=0.01)
    votes = np.zeros((16, 30), dtype=int)
    votes[:5, ::3] = 1
    responder.reply_votes(votes, n_classes=2)
    state = responder.odometer()
    assert (state.spent.n_releases, state.n_free) == (30, 20)
    assert 0.099 < state.spent.mi_nats <= 0.1
    assert state.success_bound == posterior_success(10.0, 0.5) == 1.0
    assert state.belief.sum() == pytest.approx(1.0)


def test_refuses_before_anything_is_drawn_and_answers_again_afterwards():
    responder = make_responder(query=0.01, total=0.055)
    votes = np.zeros((16, 6), dtype=int)
    votes[0] = 1
    with pytest.raises(BudgetExceededError, match="for 5 that the candidates disagree on; got 6"):
        responder.reply_votes(votes, n_classes=2)
    assert responder.odometer().spent.n_releases == 0
    assert responder.odometer().learned_nats == 0
    responder.reply_votes(votes[:, :5], n_classes=2)
    with pytest.raises(BudgetExceededError):
        responder.reply_votes(votes[:, :1], n_classes=2)
    free = np.zeros((16, 9), dtype=int)
    assert responder.reply_votes(free, n_classes=2).values.shape == (9, 2)
    assert responder.odometer().spent.mi_nats <= 0.055


def test_an_interruption_leaves_the_worst_case_spent(monkeypatch):
    responder = make_responder(query=0.01)
    votes = np.arange(64).reshape(16, 4) % 2

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pacprivacy.session.responder._answer_votes", stop)
    votes = np.array([[0, 1, 0, 1]] * 8 + [[1, 0, 1, 0]] * 8)
    with pytest.raises(KeyboardInterrupt):
        responder.reply_votes(votes, n_classes=2)
    assert responder.odometer().spent.mi_nats == pytest.approx(0.04)


def test_an_answer_that_is_almost_known_leaves_as_it_is_for_its_entropy():
    m = 8
    log_p = np.log(np.array([1 - 7e-6] + [1e-6] * 7))
    votes = np.array([[0], *[[1]] * 7])
    for questions in (
        VoteAnswers(votes, log_p, 0.01),
        ScoreAnswers(votes, log_p, 0.01, n_classes=2),
    ):
        answered = questions.observe(0, SimulatedSource(0))
        assert answered.values.tolist() == [[1.0, 0.0]]
        assert answered.charges[0] == pytest.approx(binary_entropy(7e-6), rel=1e-9)
        assert np.exp(answered.log_p).tolist() == [1.0] + [0.0] * 7
    assert VoteAnswers(votes, log_p, 1e-6).observe(0, SimulatedSource(0)).values[0, 0] != 1.0
    assert m == len(log_p)


def test_generous_answers_end_in_the_true_candidate_without_trouble():
    """After some hundred nats the belief is a point; nothing overflows, charges stop."""
    rng = np.random.default_rng(3)
    votes = rng.integers(2, size=(16, 400))
    scores = rng.dirichlet(np.ones(3), size=(16, 400))
    log_p = np.full(16, -math.log(16))
    for questions in (
        VoteAnswers(votes, log_p, 0.5),
        ScoreAnswers(scores, log_p, 0.5),
        ScoreAnswers(votes, log_p, 0.5, n_classes=3),
    ):
        answered = questions.observe(6, SimulatedSource(0))
        assert np.exp(answered.log_p[6]) == pytest.approx(1.0, abs=1e-6)
        assert np.isfinite(answered.values).all()
        assert answered.charges[-50:].max() < 1e-6


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (np.zeros((15, 3), dtype=int), "first of length 16"),
        (np.zeros(16, dtype=int), "2 axes"),
        (np.full((16, 3), 2), "below n_classes"),
        (np.full((16, 3), -1), "class numbers"),
        (np.zeros((16, 3)), "class numbers"),
    ],
)
def test_refuses_tables_that_do_not_fit(labels, match):
    with pytest.raises(MechanismError, match=match):
        make_responder().reply_votes(labels, n_classes=2)


def test_refuses_scores_that_are_not_finite():
    with pytest.raises(MechanismError, match="finite"):
        make_responder().reply_scores(np.full((16, 2, 2), np.nan))


@pytest.mark.parametrize("query", [LEAST_NATS / 2, 11.0])
def test_refuses_budgets_that_do_not_fit(query):
    with pytest.raises(BudgetError):
        make_responder(query=query)


def test_secret_stays():
    responder = make_responder()
    with pytest.raises(SecretError):
        pickle.dumps(responder)
    responder.close()
    with pytest.raises(SecretError, match="closed"):
        responder.reply_votes(np.zeros((16, 1), dtype=int), n_classes=2)
    assert responder.odometer().spent.n_releases == 0


# --- the estimator ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(
        600, 6, n_informative=4, n_redundant=0, class_sep=2.0, flip_y=0.0, random_state=1
    )
    return X[:400], np.array(["no", "yes"])[y[:400]], X[400:], np.array(["no", "yes"])[y[400:]]


def fitted(data, **options):
    settings = {
        "n_subsets": 16,
        "query_budget": pac.Information(1e-3),
        "budget": pac.Information(1.0),
        "random_state": 0,
        "simulate": True,
    }
    model = pac.PrivatePredictor(LogisticRegression(), **{**settings, **options})
    return model.fit(data[0], data[1])


@pytest.mark.claim("F-2")
def test_predictor_answers_and_says_what_it_promises(data):
    model = fitted(data)
    answers = model.predict(data[2])
    assert set(answers) <= {"no", "yes"}
    assert (answers == data[3]).mean() > 0.8
    state, certificate = model.odometer(), model.certificate_
    assert state.spent.n_releases == 200
    assert 0 < state.spent.mi_nats <= 1e-3 * (200 - state.n_free) * (1 + 1e-9)
    assert certificate.mi_upper_nats == state.total.mi_nats == 1.0
    assert certificate.simulation
    assert "SIMULATION" in str(certificate)
    assert "answers of LogisticRegression" in str(certificate)
    assert certificate == type(certificate).from_dict(certificate.to_public_dict())


def test_predictor_is_reproducible_only_in_a_simulation(data):
    options = {"query_budget": pac.Information(0.01), "output": "score"}
    first, second = (fitted(data, **options).answer(data[2][:20]) for _ in range(2))
    assert np.array_equal(first, second)
    real = fitted(data, simulate=False, **options)
    assert not np.array_equal(real.answer(data[2][:20]), first)
    assert not real.certificate_.simulation


def test_there_is_no_score_that_would_spend(data):
    model = fitted(data)
    with pytest.raises(AttributeError, match="score must not spend"):
        model.score(data[2], data[3])
    assert not hasattr(model, "score")
    assert model.odometer().spent.n_releases == 0


def test_scores_become_probabilities(data):
    model = fitted(data, output="score", query_budget=pac.Information(0.005))
    probabilities = model.predict_proba(data[2][:50])
    assert probabilities.min() >= 0
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(50))
    assert "score of 2 classes" in str(model.certificate_)


@pytest.mark.claim("H-3")
@pytest.mark.parametrize("output", ["one_hot", "score"])
def test_a_total_on_membership_is_charged_unit_by_unit(data, output):
    query = pac.Information(1e-4 if output == "one_hot" else 1e-5)
    model = fitted(data, budget=pac.Membership(0.6), query_budget=query, output=output)
    with pytest.raises(BudgetExceededError, match="membership balance"):
        model.predict(np.tile(data[2], (200, 1)))
    assert model.odometer().spent.n_releases == 0
    model.predict(data[2])
    seen = model.odometer()
    assert seen.total.mi_nats is None
    assert seen.success_bound == pytest.approx(0.6)
    assert model.certificate_.membership_bound == pytest.approx(0.6)
    assert 0 < seen.spent.success_increment < 0.1
    assert pac.verify(model.certificate_, model.bundle_).digest == model.certificate_.digest
    limits = pac.Membership(0.6) & pac.Information(10 * query.mi_nats)
    both = fitted(data, budget=limits, query_budget=query, output=output)
    with pytest.raises(BudgetExceededError, match="nats"):
        both.predict(data[2])


def test_student_learns_from_labels_alone(data):
    model = fitted(data)
    template = DecisionTreeClassifier(max_depth=3, random_state=0)
    student = model.distil(template, data[2])
    assert student is not template
    assert model.odometer().spent.n_releases == 200
    assert student.score(data[2], data[3]) > 0.75
    pickle.loads(pickle.dumps(student))


def test_fitted_predictor_stays_in_its_process(data):
    model = fitted(data)
    with pytest.raises(SecretError, match="Distil"):
        pickle.dumps(model)
    assert not hasattr(clone(model), "certificate_")
    pickle.dumps(clone(model))
    model.close()
    with pytest.raises(SecretError, match="closed"):
        model.predict(data[2])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"output": "rank"}, MechanismError),
        ({"query_budget": pac.Membership(0.6)}, BudgetError),
        ({"query_budget": pac.Information(2.0)}, BudgetError),
        (
            {
                "sample": pac.Half(n_subsets=16),
                "budget": pac.Membership(0.51),
                "output": "score",
            },
            BudgetError,
        ),
    ],
)
def test_predictor_refuses_what_it_cannot_keep(data, options, error):
    with pytest.raises(error):
        fitted(data, **options)


def test_failure_names_the_subset(data):
    class Broken(LogisticRegression):
        def fit(self, X, y):
            raise ValueError("no luck")

    model = pac.PrivatePredictor(Broken(), n_subsets=4, random_state=0)
    with pytest.raises(MechanismError, match="subset 0: ValueError: no luck"):
        model.fit(data[0], data[1])


def test_several_classes_and_units():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(180, 2))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=180), [-0.5, 0.5])
    model = pac.PrivatePredictor(
        DecisionTreeClassifier(max_depth=3),
        n_subsets=12,
        query_budget=pac.Information(0.01),
        budget=pac.Information(2.0),
        sample=pac.Balanced(n_subsets=12),
        random_state=1,
        simulate=True,
    ).fit(X, y, units=np.arange(180) // 2)
    assert model.certificate_.unit == "group of rows"
    answers = model.answer(X[:60])
    assert answers.shape == (60, 3)
    assert answers.sum(axis=1) == pytest.approx(np.ones(60), abs=1e-6)
    assert model.odometer().best_guess_now <= 1.0


def test_equal_rows_get_answers_of_their_own(data):
    model = fitted(data, query_budget=pac.Information(0.01), output="score")
    twice = model.answer(np.repeat(data[2][:10], 2, axis=0)).reshape(10, 2, 2)
    assert not np.isclose(twice[:, 0], twice[:, 1]).any()
    assert model.odometer().spent.n_releases == 20
    pandas = pytest.importorskip("pandas")
    names = [f"x{i}" for i in range(6)]
    framed = pac.PrivatePredictor(
        LogisticRegression(),
        n_subsets=4,
        query_budget=pac.Information(0.05),
        budget=pac.Information(9),
    ).fit(pandas.DataFrame(data[0], columns=names), data[1])
    asked = pandas.DataFrame(data[2], columns=names).iloc[[3, 3, 0, 1]]
    alone = pandas.DataFrame(data[2], columns=names).iloc[[3, 3, 0, 1]].reset_index(drop=True)
    table = framed._tabulate(asked)
    assert table.shape == (4, 4)
    assert np.array_equal(table, framed._tabulate(alone))
    expected = [model.predict(asked) for model in framed._models]
    assert np.array_equal(framed.classes_[table], expected)


def test_workers_do_not_change_the_models(data):
    here = fitted(data)
    with joblib.parallel_config(backend="threading"):
        there = fitted(data, n_jobs=2)
    assert np.array_equal(here.answer(data[2][:30]), there.answer(data[2][:30]))


def test_projection_to_the_simplex_is_the_nearest_point():
    rng = np.random.default_rng(0)
    vectors = rng.normal(scale=2.0, size=(50, 4))
    nearest = project_to_simplex(vectors)
    assert nearest.min() >= 0
    assert nearest.sum(axis=1) == pytest.approx(np.ones(50))
    others = rng.dirichlet(np.ones(4) * 0.3, size=2000)
    gaps = ((vectors[:, None] - others) ** 2).sum(axis=2).min(axis=1)
    assert (((vectors - nearest) ** 2).sum(axis=1) <= gaps + 1e-12).all()
