"""Simulated transcripts of many answers: the optimal attacker stays under the bound."""

import importlib
import itertools
import math

import numpy as np
import pytest

from pacprivacy._random import SimulatedSource
from pacprivacy.adversary import WIDEST_ANSWER, ViewTilts, VoteBalances, heat_potential
from pacprivacy.errors import BudgetExceededError
from pacprivacy.noise.answers import UNITS, AnswerNoise, answer_vote_gap, plan_answer
from pacprivacy.sample import Balanced
from pacprivacy.session import responder as answering
from pacprivacy.session.responder import Responder, ScoreAnswers, VoteAnswers
from pacprivacy.theory import posterior_success

balances = importlib.import_module("pacprivacy.adversary.vote_balances")
M, N_UNITS, N_TRANSCRIPTS, N_QUESTIONS = 16, 10, 2000, 40


@pytest.fixture(scope="module")
def pool():
    return Balanced(n_subsets=M).draw(N_UNITS, rng=0)


@pytest.fixture(scope="module")
def votes(pool):
    """Questions that are as telling as can be: votes that follow one unit's membership."""
    masks = pool.masks().astype(np.int16)
    rng = np.random.default_rng(0)
    return masks[:, rng.integers(N_UNITS, size=N_QUESTIONS)]


def attack(pool, make_questions, *, seed=0):
    """Success on each unit of the guess that the tracked belief suggests, and mean learned nats."""
    masks = pool.masks()
    rng, source = np.random.default_rng(seed), SimulatedSource(seed)
    noise = AnswerNoise(source)
    hits, learned, spent = np.zeros(N_UNITS), 0.0, 0.0
    for _ in range(N_TRANSCRIPTS):
        secret = int(rng.integers(M))
        answered = make_questions(noise).observe(secret, source)
        belief = np.exp(answered.log_p)
        guess = belief @ masks > 0.5
        hits += guess == masks[secret]
        positive = belief[belief > 0]
        learned += math.log(M) + float(positive @ np.log(positive))
        spent += float(answered.charges.sum())
    return hits / N_TRANSCRIPTS, learned / N_TRANSCRIPTS, spent / N_TRANSCRIPTS


LOG_P = np.full(M, -math.log(M))


# Five standard errors of a success rate near 0.6 over 2000 transcripts: a false alarm in 10^6.
SLACK = 5 * 0.5 / math.sqrt(N_TRANSCRIPTS)


@pytest.mark.claim("F-2")
@pytest.mark.parametrize("budget", [1e-4, 2e-3])
def test_optimal_attacker_stays_under_the_bound(pool, votes, budget):
    success, learned, spent = attack(pool, lambda noise: VoteAnswers(votes, LOG_P, budget, noise))
    assert spent <= N_QUESTIONS * budget
    assert success.max() <= posterior_success(spent, 0.5) + SLACK
    # the belief is calibrated: what is learned on average is the information, within the bound
    assert learned <= spent * 1.3 + 1e-3
    assert learned >= 0.3 * spent


@pytest.mark.claim("F-2")
def test_optimal_attacker_stays_under_the_bound_with_scores(pool, votes):
    rng = np.random.default_rng(1)
    x = 0.2 + 0.6 * votes[:, :12] * rng.random((M, 12))
    scores = np.stack([x, 0.3 * (1 - x), 0.7 * (1 - x)], axis=2)
    budget = 5e-3
    success, _, spent = attack(
        pool, lambda noise: ScoreAnswers(scores, LOG_P, budget, noise), seed=1
    )
    assert spent <= 12 * budget
    assert success.max() <= posterior_success(spent, 0.5) + SLACK


def test_a_planted_bug_is_caught(pool, votes, monkeypatch):
    """Eight times the gap is an eighth of the noise: the attacker then passes the bound."""
    budget = 2e-3
    monkeypatch.setattr(answering, "answer_vote_gap", lambda *args: 8 * answer_vote_gap(*args))
    success, learned, _ = attack(pool, lambda noise: VoteAnswers(votes, LOG_P, budget, noise))
    assert success.max() > posterior_success(N_QUESTIONS * budget, 0.5) + SLACK
    assert learned > 2 * N_QUESTIONS * budget


@pytest.mark.claim("F-2")
def test_the_bound_does_not_depend_on_where_one_stops():
    """Whoever stops when he knows enough has spent little, and knows more than that allows."""
    pool = Balanced(n_subsets=2).draw(4, rng=0)
    votes = pool.masks()[:, :1].astype(np.int64)
    source = SimulatedSource(0)
    noise = AnswerNoise(source)
    success, spent, promised = [], [], set()
    for number in range(400):
        responder = Responder(pool, query_nats=0.1, total_nats=2.0, source=source)
        responder._noise = noise  # one block for all transcripts: quicker, and each draw used once
        while (best := responder.belief.success_per_unit(pool).max()) < 0.75:
            responder.reply_votes(votes, n_classes=2)
        success.append(best)  # the belief is calibrated
        spent.append(responder.spent.mi_nats)
        if number % 40 == 0:
            promised.add(responder.odometer().success_bound)
    bounds = {nats: posterior_success(nats, 0.5) for nats in set(np.round(spent, 9))}
    above = np.array(success) - [bounds[nats] for nats in np.round(spent, 9)]
    assert above.mean() > 3 * above.std() / math.sqrt(len(above))
    assert promised == {posterior_success(2.0, 0.5)}


# --- membership, unit by unit ---------------------------------------------------------------

ADVANTAGE, QUERY_NATS = 0.1, 4e-4


@pytest.mark.claim("H-3", "H-4")
@pytest.mark.parametrize("nats", [1e-3, 1e-5])
@pytest.mark.parametrize("seed", range(4))
def test_every_unit_pays_enough_for_a_vote(pool, seed, nats):
    """(7) with the reserve, and the floor, by quadrature over the noise of one vote."""
    rng = np.random.default_rng(seed)
    log_p = np.log(rng.dirichlet(np.full(M, 3.0)))
    p, signs = np.exp(log_p), 2.0 * pool.masks() - 1
    vote = (rng.random(M) < (0.1, 0.3, 0.5, 0.3)[seed]).astype(np.int64)
    vote[:2] = 0, 1
    source = SimulatedSource(seed)
    questions = VoteAnswers(vote[:, None], log_p, nats, tracked=True)
    answered = questions.observe(0, source)
    units = VoteBalances(pool, ADVANTAGE, nats)
    before, reserve = units.balance.copy(), units.reserve.copy()
    moves, cubes = questions.only_move(units.most)
    np.testing.assert_allclose(moves, answered.moves, rtol=1e-12)
    assert cubes == answered.cubes * units.most
    assert (cubes > 0) == (nats == 1e-3 and seed == 0)  # by moments, or by paths
    units.pay(answered.moves, answered.cubes * units.most)
    z = np.linspace(-10, 10, 8001)[:, None]
    joint = p * np.exp(-0.5 * np.square(z - vote / answered.noise_std[0]))
    mass = joint.sum(axis=1)
    after, now = joint @ signs / mass[:, None], p @ signs
    mass /= mass.sum()
    paid, taken = before - units.balance, reserve - units.reserve
    assert (mass @ np.square(after - now) <= (1 + balances.STRAY) * paid).all()
    assert (
        mass @ heat_potential(after, units.balance) <= heat_potential(now, before) + taken + 1e-9
    ).all()
    assert (mass @ np.square(after - now) >= 0.79 * paid).all()  # and hardly more than enough
    charge = np.square(answered.moves[0] / (p * (vote - p @ vote)))
    apart = answered.noise_std[0] ** -2
    by = math.expm1(apart)
    if not cubes:
        (by,) = balances.vote_path_charges(*np.array([[p @ vote], [apart]]))
    np.testing.assert_allclose(charge, by, rtol=1e-9)
    square = np.square(answered.moves @ signs)[0]
    assert (paid >= (balances._vote_price(before, square) if cubes else square)).all()
    each = balances.BEND * cubes / units.balance
    each = each + balances.TOP * balances.STRAY / np.sqrt(units.balance)
    np.testing.assert_array_less(square * each * (1 - 1e-9), taken)


def over_its_potential(ones, apart, charge, taken=0.0):
    """By how much (7) and the floor are broken, at most, over many tilts, balances and moves.

    The charge is for a covariance of 1, and ``taken`` from the reserve for a charge of 1 at a
    balance of 1 that is left.
    """
    g = math.sqrt(apart)
    z = np.linspace(-9, 9 + g, 4001)
    like = np.exp(-0.5 * np.square(z - np.array([[0.0], [g]])))
    mix = (1 - ones) * like[0] + ones * like[1]
    ratio, mass = (like[1] - like[0]) / mix, mix / mix.sum()
    worst = mass @ np.square(ratio) - charge * (1 + balances.STRAY)
    for share in (0.02, 0.3, 0.9):
        for a in np.linspace(-3, 3, 13):  # of a balance of 1; moves of either sign
            left = np.sqrt(share / charge) * ratio + a
            grown = mass @ heat_potential(left, 1 - share) - heat_potential(a, 1.0)
            worst = max(worst, grown - taken * share / math.sqrt(1 - share))
    return worst


@pytest.mark.claim("H-4")
@pytest.mark.parametrize("apart", [1e-6, 1e-3, 0.01, 0.1, 0.4])
@pytest.mark.parametrize("ones", [0.01, 0.1, 0.3, 0.45, 0.5, 0.6, 0.98])
def test_no_vote_does_more_than_its_path_is_charged(ones, apart):
    (charge,) = balances.vote_path_charges(np.array([ones]), np.array([apart]))
    taken = balances.TOP * balances.STRAY
    if math.isfinite(charge):
        assert apart <= charge <= 1.25 * apart
        assert over_its_potential(ones, apart, charge, taken) <= 1e-9
    else:
        assert abs(1 - 2 * ones) * math.sqrt(apart) > 0.05  # lopsided and coarse


@pytest.mark.claim("H-4")
@pytest.mark.parametrize(("ones", "apart"), [(0.1, 0.01), (0.65, 0.05), (0.3, 1e-3)])
def test_the_excess_of_a_path_is_what_is_allowed_for(ones, apart):
    lean = abs(1 - 2 * ones)
    (charge,) = balances.vote_path_charges(np.array([ones]), np.array([apart]))
    k = charge / (apart * math.exp(lean * apart))
    z = np.linspace(-9, 9, 2001)
    size = 2 * lean * math.sqrt(apart) * np.sqrt(np.arange(0.5, 100) / 100)
    normal = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()

    def excess(strike):
        return np.maximum(np.exp(size[:, None] * z) - strike, 0.0).mean(axis=0) @ normal

    assert excess(k) <= balances.STRAY * k
    assert excess(0.98 * k) > 0.98 * balances.STRAY * k
    even, half = balances.vote_path_charges(np.array([0.45, 0.5]), np.array([0.4]))
    assert (even, half) == pytest.approx((0.4 / (4 * 0.45 * 0.55) ** 2, 0.4), rel=1e-6)


@pytest.mark.claim("H-4")
def test_answers_that_move_nothing_pay_for_the_lattice_and_need_a_reserve(pool):
    units, nothing = VoteBalances(pool, ADVANTAGE, 1e-3, two_votes=True), np.zeros((1000, M))
    reserve = units.reserve.copy()
    assert units.holds(nothing, 0.0)
    units.pay(nothing, 0.0)
    assert (reserve - units.reserve >= 1000 * 2 * 2.0 * 2.0**-64).all()
    units.reserve[:] = 1e-17
    assert not units.holds(nothing, 0.0)


@pytest.mark.claim("H-4")
def test_one_vote_is_refused_if_somebody_who_pays_later_cannot_pay(monkeypatch):
    """Those who owe are looked at where a bound does not show that they can pay."""
    monkeypatch.setattr(balances, "WATCHED", 20)
    pool = Balanced(n_subsets=16).draw(60, rng=1)
    units = VoteBalances(pool, ADVANTAGE, 1e-3, two_votes=True)
    masks = units._tilts.masks(np.arange(60), np.float64)
    moves = np.random.default_rng(0).normal(size=(1, 16))
    square = np.square(units._tilts.fold(moves) @ masks)[0]
    aimed = int(units._others[np.argmax(square[units._others])])
    for share in (0.4, 0.9, 1.1):  # of what the unit has left
        moves *= math.sqrt(share * units.balance[aimed] / square[aimed])
        square = np.square(units._tilts.fold(moves) @ masks)[0]
        assert units.holds(moves, 0.0) == (square < 0.999 * units.balance).all()


@pytest.mark.claim("H-4")
def test_a_lopsided_vote_that_is_charged_as_an_even_one_is_caught():
    """At its first moment a path moves as much as is charged; then the vote becomes more even."""
    ones, apart = 0.1, 0.02
    taken = balances.TOP * balances.STRAY
    assert over_its_potential(ones, apart, apart, taken) > 1e-5
    (charge,) = balances.vote_path_charges(np.array([ones]), np.array([apart]))
    assert over_its_potential(ones, apart, charge, taken) <= 0


@pytest.mark.claim("H-4")
def test_votes_of_one_batch_are_charged_by_the_belief_that_earlier_ones_leave(pool):
    """Charging a batch before the belief is updated is caught: one by one costs the same."""
    masks, nats = pool.masks().astype(np.int64), 1e-5
    votes = np.stack([masks[:, 0] ^ masks[:, 1], masks[:, 0]], axis=1)  # of no unit; then of one
    left = []
    for parts in ([votes], [votes[:, :1], votes[:, 1:]]):
        units, log_p, noise = VoteBalances(pool, 0.4, nats), LOG_P, AnswerNoise(SimulatedSource(1))
        for part in parts:
            found = VoteAnswers(part, log_p, nats, noise, tracked=True).observe(0, None)
            units.pay(found.moves, found.cubes * units.most)
            log_p = found.log_p
        left.append(units.balance)
    np.testing.assert_allclose(*left, rtol=1e-9)
    stale = VoteAnswers(votes[:, 1:], LOG_P, nats, noise, tracked=True).observe(0, None)
    assert np.abs(stale.moves - found.moves).max() > 1e-3 * np.abs(found.moves).max()


@pytest.mark.claim("H-3")
@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_every_unit_pays_enough_for_an_answer_of_several_classes(pool, seed, few, monkeypatch):
    """The same in two dimensions: votes among three classes, and scores with many values."""
    rng, nats = np.random.default_rng(seed), 1e-3
    log_p = np.log(rng.dirichlet(np.full(M, 3.0)))
    p, signs = np.exp(log_p), 2.0 * pool.masks() - 1
    if few:
        table, outputs, n_classes = rng.integers(3, size=(M, 1)), np.eye(3), 3
        table[:3, 0], groups = (0, 1, 2), table[:, 0]
    else:
        table, n_classes, groups = rng.dirichlet(np.full(3, 2.0), size=(M, 1)), None, np.arange(M)
        outputs = table[:, 0]
        monkeypatch.setattr(answering, "FEW_OUTPUTS", 3)
    questions = ScoreAnswers(table, log_p, nats, n_classes=n_classes, tracked=True)
    answered = questions.observe(0, SimulatedSource(seed))
    units = VoteBalances(pool, ADVANTAGE, nats)
    before, reserve = units.balance.copy(), units.reserve.copy()
    units.pay(answered.moves, answered.cubes * units.most, answered.more)
    mass = np.bincount(groups, p, minlength=len(outputs)) / p.sum()
    plan = plan_answer(outputs, mass, mi_nats=nats, n_subsets=M, widest=WIDEST_ANSWER)
    points = (plan.points / UNITS)[groups]
    assert np.square(points - points[:, None]).sum(axis=2).max() <= WIDEST_ANSWER
    line = np.linspace(-7, 7, 141)
    z = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 1, 2)
    joint = p * np.exp(-0.5 * np.square(z - points).sum(axis=2))
    weight = joint.sum(axis=1)
    after, now = joint @ signs / weight[:, None], p @ signs
    weight /= weight.sum()
    paid, taken = before - units.balance, reserve - units.reserve
    square = weight @ np.square(after - now)
    cube = weight @ np.abs(after - now) ** 3
    assert (square <= paid).all()
    assert (cube <= answered.cubes * units.most * square * 1.05).all()  # paid for a larger square
    assert (
        weight @ heat_potential(after, units.balance) <= heat_potential(now, before) + taken + 1e-9
    ).all()
    assert square.sum() >= (0.9 if few else 0.7) * paid.sum()  # and hardly more than enough
    assert paid.sum() < 1.5 * square.sum()


def seen_paths(belief, points, groups, mass):
    """Return the beliefs that an answer may leave, and their chances: three nodes a direction."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    size = points.shape[1]
    noise = np.array(list(itertools.product(nodes, repeat=size)))
    chances = np.array([math.prod(part) for part in itertools.product(weights, repeat=size)])
    apart = (points[:, None] + noise)[:, :, None] - points[groups]
    after = belief * np.exp(-0.5 * np.square(apart).sum(axis=3))
    after /= after.sum(axis=2, keepdims=True)
    return after.reshape(-1, len(belief)), np.outer(mass, chances / chances.sum()).ravel()


@pytest.mark.claim("H-3")
@pytest.mark.parametrize("last", ["five_classes", "scores"])
@pytest.mark.parametrize("together", [True, False])
def test_the_exact_law_of_a_session_stays_below_its_potential(last, together):
    """Three answers, in one batch or one by one: all paths of an adversary who aims by them."""
    pool, nats, rng = Balanced(n_subsets=8, folds=4).draw(6, rng=1), 3e-4, np.random.default_rng(3)
    inside, everyone = pool.masks(), np.arange(6)
    masks = ViewTilts(pool).masks(everyone, np.float64, whole=True)
    others, scores = rng.integers(2, size=8), rng.dirichlet(np.ones(3), size=8)
    units = VoteBalances(pool, 0.12, nats)
    full, reserve, start = units.balance[0], units.reserve[0], heat_potential(0.0, units.balance[0])
    over, cheap = np.zeros(6), np.zeros(6)

    def pay(state, part=1.0):
        balance, left, square, cubes = state
        kept = balance - balances._vote_price(balance, part * square)
        return kept, left - balances.BEND * cubes * square / kept, np.zeros(6), 0.0

    def ask(belief, chance, state, depth):
        nonlocal over, cheap
        aimed = inside[:, int(np.argmax(np.abs(belief @ masks)))]
        groups = np.where(aimed, 1 + others, 0)
        outputs = np.eye(3)
        if depth == 2 and last == "scores":
            groups, outputs = np.arange(8), scores + aimed[:, None]
        elif depth == 2:
            groups, outputs = np.where(aimed, groups, 3 + others), np.eye(5)
        mass = np.bincount(groups, belief, minlength=len(outputs)) / belief.sum()
        plan = plan_answer(outputs, mass, mi_nats=nats, n_subsets=8, widest=WIDEST_ANSWER)
        points = plan.points / UNITS
        step = answering._step_of(points, mass, belief, groups)
        balance, left, square, cubes = state
        square = square + np.square(step.moves @ masks).sum(axis=0)
        state = balance, left, square, max(cubes, step.cubes * units.most)
        paid = pay(state)
        assert (paid[1] >= 0).all()
        after, chances = seen_paths(belief, points, groups, mass)
        if depth == 2:
            low = pay(state, 0.5 if together else 0.0)[0]
            over += chance * (chances @ heat_potential(after @ masks, paid[0]) - reserve + paid[1])
            cheap += chance * (chances @ heat_potential(after @ masks, low) - reserve + paid[1])
            return
        for new, part in zip(after, chances, strict=True):
            ask(new, chance * part, state if together else paid, depth + 1)

    ask(np.full(8, 1 / 8), 1.0, (np.full(6, full), np.full(6, reserve), np.zeros(6), 0.0), 0)
    assert (over <= start).all()
    assert (cheap > start).any()  # half of the charge, or one of three forgotten


@pytest.mark.claim("H-3")
@pytest.mark.parametrize("nats", [2.0**-44, 1e-10, 1e-3, 0.05])
def test_the_cube_of_a_lopsided_vote_is_followed(pool, nats):
    vote = np.zeros((M, 1), dtype=np.int64)
    vote[0] = 1
    found = VoteAnswers(vote, LOG_P, nats, tracked=True).observe(0, SimulatedSource(0))
    at = np.abs(found.moves[0]).max() * M * M / (M - 1)  # of the root of the second moment
    assert at > 0
    exact = (M - 1) / M**2 * (3 * at**2 + 16 * at**4 + 15 * at**6 + 6 * at**8 + at**10)
    coarse = nats >= 1e-3
    assert found.cubes == pytest.approx(math.sqrt(exact) if coarse else 0.0, rel=1e-9)
    assert found.cubes <= VoteBalances(pool, ADVANTAGE, nats).cubes


@pytest.mark.claim("H-3")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_units_that_pay_later_pay_as_much(n_classes, monkeypatch):
    """The balances of the worst-placed units are the same as if all paid at every batch."""
    pool = Balanced(n_subsets=16).draw(200, rng=1)
    rng = np.random.default_rng(2)
    tables = [rng.integers(n_classes, size=(16, 20)) for _ in range(12)]

    def spend(watched):
        monkeypatch.setattr(balances, "WATCHED", watched)
        source = SimulatedSource(0)
        responder = Responder(
            pool, query_nats=1e-5, total_nats=math.inf, source=source, advantage=ADVANTAGE
        )
        units, settled, settle = responder._units, [], VoteBalances.settle
        with monkeypatch.context() as patch:
            patch.setattr(VoteBalances, "settle", lambda own: settled.append(settle(own)))
            left = []
            for table in tables:
                responder.reply_votes(table, n_classes=n_classes)
                left.append(units.increment_left)
        count = len(settled)
        units.settle()
        return left, units.balance, count

    at_once, balance, _ = spend(200)
    later, late_balance, n_settled = spend(60)
    assert 0 < n_settled < len(tables)
    np.testing.assert_allclose(later, at_once, rtol=1e-3)
    np.testing.assert_allclose(late_balance, balance, rtol=1e-3)
    assert (late_balance <= balance * (1 + 1e-5)).all()  # one price for several batches is more


def test_an_interrupted_batch_is_paid_in_full(pool, votes):
    units = VoteBalances(pool, ADVANTAGE, 1e-4)
    full = units.increment_left
    units.book(3, 1e-4)
    once = units.increment_left
    assert once < full
    units.book(3, 1e-4)
    assert units.fits(1, 1e-4)
    assert units.increment_left < once


@pytest.mark.claim("H-3")
def test_a_vote_that_is_all_but_known_is_still_charged(pool):
    vote = np.zeros((M, 1), dtype=np.int64)
    vote[0] = 1
    log_p = np.full(M, -math.log(M - 1))
    log_p[0] = -710.0
    found = VoteAnswers(vote, log_p, 1e-3, tracked=True).observe(3, SimulatedSource(0))
    assert np.isfinite(found.values).all()
    assert found.cubes <= VoteBalances(pool, ADVANTAGE, 1e-3).cubes


@pytest.mark.claim("H-3")
def test_whoever_is_stopped_at_any_moment_goes_on_with_everybodys_own_masks(monkeypatch):
    """At every product or choice of masks: units must not pay later by the masks of others."""
    monkeypatch.setattr(balances, "WATCHED", 6)
    pool = Balanced(n_subsets=M).draw(20, rng=0)
    masks = pool.masks().astype(np.int64)
    real, number, stopped = ViewTilts.masks, 0, True
    while stopped:  # until one is not stopped
        responder = Responder(
            pool,
            query_nats=0.002,
            total_nats=math.inf,
            source=SimulatedSource(0),
            advantage=0.9,
            two_votes=True,
        )
        responder.reply_votes(masks[:, [0, 3, 5, 9]], n_classes=2)  # some owe
        units, calls, number = responder._units, itertools.count(), number + 1

        def stops(self, *asked, calls=calls, number=number, **options):
            if next(calls) == number - 1:
                raise KeyboardInterrupt
            return real(self, *asked, **options)

        with monkeypatch.context() as patch:
            patch.setattr(ViewTilts, "masks", stops)
            try:
                responder.reply_votes(masks[:, [1, 2, 1, 7, 7, 1, 12, 13, 1]], n_classes=2)
                stopped = False
            except KeyboardInterrupt:
                stopped = True
        np.testing.assert_array_equal(units._masks, real(units._tilts, units._watched, np.float64))
        for said, array in zip(units._others_lowest, (units.balance, units.reserve), strict=True):
            assert said <= array[units._others].min() or units._booked or units._owed.any()
        responder.reply_votes(masks[:, :1], n_classes=2)
    assert number >= 3  # two were stopped


def transcripts(pool, n, seed=0):
    """How much is known of the unit that all questions are about, when no more are answered."""
    votes = np.repeat(pool.masks()[:, :1].astype(np.int64), 4, axis=1)
    source = SimulatedSource(seed)
    noise, sizes, counts = AnswerNoise(source), np.empty(n), np.empty(n)
    for number in range(n):
        responder = Responder(
            pool,
            query_nats=QUERY_NATS,
            total_nats=math.inf,
            source=source,
            advantage=ADVANTAGE,
            two_votes=True,
        )
        responder._noise = noise
        batch = votes
        while batch.shape[1]:
            try:
                responder.reply_votes(batch, n_classes=2)
            except BudgetExceededError:
                batch = batch[:, : batch.shape[1] // 2]
        inside = np.exp(responder.belief.log_p) @ pool.masks()[:, 0]
        sizes[number], counts[number] = abs(2 * inside - 1), responder.spent.n_releases
    return sizes, counts


@pytest.mark.claim("H-3")
def test_answers_about_one_unit_end_below_the_promise_and_use_it_up(pool):
    sizes, counts = transcripts(pool, 120)
    error = sizes.std() / math.sqrt(len(sizes))
    assert sizes.mean() - 3.1 * error <= ADVANTAGE
    assert sizes.mean() > 0.8 * ADVANTAGE
    assert counts.mean() > 0.9 * (0.5 * math.pi * ADVANTAGE**2) / (2 * QUERY_NATS)


@pytest.mark.claim("H-3")
def test_half_of_the_charge_is_caught(pool, monkeypatch):
    pay = VoteBalances.pay

    def half(units, moves, cubes, more):
        pay(units, moves * math.sqrt(0.5), cubes, more)

    monkeypatch.setattr(VoteBalances, "pay", half)
    sizes, _ = transcripts(pool, 120)
    assert sizes.mean() - 3.1 * sizes.std() / math.sqrt(len(sizes)) > ADVANTAGE
