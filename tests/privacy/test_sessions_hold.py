"""Thousands of adaptive sessions: what the optimal attacker really learns stays as certified.

Sessions are simulated in bulk with the same mathematics as :class:`pacprivacy.Session` (weights
of the belief, waterfill, Bayes' rule); on real sessions it is checked that the bulk simulation
finds the same noise and the same beliefs. Planted mistakes must be caught by the same figures.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import logsumexp, ndtri

import pacprivacy as pac
from pacprivacy.adversary import Balances, Heat, heat_potential
from pacprivacy.adversary.heat import LADDER
from pacprivacy.noise.plan import waterfill
from pacprivacy.sample import Balanced, Pool
from pacprivacy.theory import clopper_pearson, empirical_bernstein, posterior_success

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

ASSESS = importlib.import_module("pacprivacy.release.pool_certificate")
CERTIFY = importlib.import_module("pacprivacy.noise.proof")
CONFIDENCE = 0.999
GAMMA = 1 - CONFIDENCE

N_SESSIONS = 10_000
N_RELEASES = 8
TOTAL_NATS = 0.5
M = 64
DATA = np.random.default_rng(0).gamma(2.0, size=(30, 2))
QUERIES: list[Callable[[Array], Array]] = [
    lambda x: x.mean(axis=0),
    lambda x: np.log(x).mean(axis=0),
    lambda x: np.median(x, axis=0),
    lambda x: (x[:, 0] > x[:, 1]).mean() + x.max(axis=0),
]


def next_query(n_done: int, last: Array) -> Indices:
    """Choose the next query from the last released values: which side, and how far out."""
    return (n_done + (last[..., 0] > last[..., 1]) + 2 * (last.sum(axis=-1) > 4.0)) % len(QUERIES)


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Balanced(n_subsets=M).draw(len(DATA), rng=1)


@pytest.fixture(scope="module")
def tables(pool: Pool) -> Array:
    """Every query on every subset, shape (queries, m, d)."""
    return np.array([[query(DATA[mask]) for mask in pool.masks()] for query in QUERIES])


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ASSESS, "information_draws", lambda m: 2048)
        patch.setattr(ASSESS, "membership_draws", lambda m: 2048)
        patch.setattr(ASSESS, "SIDE_KNOWLEDGE_SIZES", ())
        patch.setattr(CERTIFY, "POSTERIOR_COST", 10**6)
        yield


# --- the bulk simulation --------------------------------------------------------------------


def fill(eigenvalues: Array, beta: float) -> Array:
    """Waterfill for many spectra at once, shape (s, d)."""
    top = eigenvalues.max(axis=1, keepdims=True)
    scaled = np.maximum(eigenvalues / np.maximum(top, 1e-300), 1e-300)
    low, high = np.full((len(scaled), 1), -60.0), np.full((len(scaled), 1), 60.0)
    for _ in range(70):
        level = np.exp((low + high) / 2)
        noise = level * scaled / (scaled + np.sqrt(scaled**2 + 2 * level * scaled))
        over = 0.5 * np.log1p(scaled / noise).sum(axis=1, keepdims=True) > beta
        low, high = np.where(over, (low + high) / 2, low), np.where(over, high, (low + high) / 2)
    level = np.exp(high)
    return top * level * scaled / (scaled + np.sqrt(scaled**2 + 2 * level * scaled))


@dataclass
class Bulk:
    """Many sessions side by side: their secrets and the attacker's beliefs."""

    secret: Indices
    log_p: Array
    rng: np.random.Generator

    @classmethod
    def start(cls, n_sessions: int, m: int, seed: int) -> "Bulk":
        rng = np.random.default_rng(seed)
        secret = rng.integers(m, size=n_sessions)
        return cls(secret=secret, log_p=np.full((n_sessions, m), -math.log(m)), rng=rng)

    def frame(self, outputs: Array, log_p: Array) -> tuple[Array, Array, Array]:
        """Weighted mean, principal directions and variances of outputs of shape (s, m, d)."""
        p = np.exp(log_p)
        center = np.einsum("sk,skd->sd", p, outputs)
        centred = outputs - center[:, None]
        values, vectors = np.linalg.eigh(np.einsum("sk,ski,skj->sij", p, centred, centred))
        return center, vectors, np.maximum(values, 0.0)

    def release(self, outputs: Array, beta: float, *, ignore_belief: bool = False) -> Array:
        """Release one output of each session with waterfill noise; return the values."""
        uniform = np.full_like(self.log_p, -math.log(self.log_p.shape[1]))
        center, vectors, values = self.frame(outputs, uniform if ignore_belief else self.log_p)
        noise = fill(values, beta)
        own = outputs[np.arange(len(self.secret)), self.secret]
        turned = np.einsum("sd,sdq->sq", own - center, vectors)
        seen = turned + np.sqrt(noise) * self.rng.standard_normal(noise.shape)
        self.update(outputs, center, vectors, noise, seen)
        return center + np.einsum("sdq,sq->sd", vectors, seen)

    def update(
        self, outputs: Array, center: Array, vectors: Array, noise: Array, seen: Array
    ) -> None:
        """Bayes' rule on what was seen."""
        turned = np.einsum("skd,sdq->skq", outputs - center[:, None], vectors)
        log_p = self.log_p - 0.5 * (np.square(seen[:, None] - turned) / noise[:, None]).sum(axis=2)
        self.log_p = log_p - logsumexp(log_p, axis=1, keepdims=True)

    def see(self, points: Array, std: Array) -> None:
        """Release one number of each session under normal noise, and update the beliefs."""
        self.see_some(np.arange(len(self.secret)), points, std)

    def see_some(self, rows: Indices, points: Array, std: Array) -> None:
        """The same for some of the sessions."""
        own = points[np.arange(len(rows)), self.secret[rows]]
        seen = own + std * self.rng.standard_normal(len(rows))
        updated = self.log_p[rows] - 0.5 * np.square((seen[:, None] - points) / std[:, None])
        self.log_p[rows] = updated - logsumexp(updated, axis=1, keepdims=True)

    @property
    def learned_nats(self) -> Array:
        """``KL(belief || uniform)`` of each session; its mean is the transcript's information."""
        p = np.exp(self.log_p)
        entropy = -np.where(p > 0, p * self.log_p, 0.0).sum(axis=1)
        return math.log(self.log_p.shape[1]) - entropy

    def member_hits(self, pool: Pool, unit: int) -> int:
        """How often the optimal guess of one unit's membership is right."""
        inside = pool.masks()[:, unit]
        guess = np.exp(self.log_p) @ inside > 0.5
        return int((guess == inside[self.secret]).sum())

    def naming_hits(self) -> int:
        """How often the most likely candidate is the secret."""
        return int((self.log_p.argmax(axis=1) == self.secret).sum())


def lower_mean(values: Array, width: float) -> float:
    """Lower confidence bound of a mean of bounded numbers."""
    variance = float(values.var(ddof=1))
    return float(
        values.mean() - empirical_bernstein(variance, len(values), width=width, gamma=GAMMA)
    )


def lower_rate(hits: int, trials: int) -> float:
    return clopper_pearson(hits, trials, gamma=2 * GAMMA).lower


def run_sessions(tables: Array, budgets: list[float], seed: int, n: int = N_SESSIONS) -> Bulk:
    bulk = Bulk.start(n, tables.shape[1], seed)
    query = np.zeros(n, dtype=np.int64)
    for k, beta in enumerate(budgets, start=1):
        value = bulk.release(tables[query], beta)
        query = next_query(k, value)
    return bulk


# --- information ----------------------------------------------------------------------------


def test_the_bulk_waterfill_is_the_library_one() -> None:
    rng = np.random.default_rng(2)
    spectra = np.exp(rng.normal(scale=2, size=(50, 3)))
    for beta in (1 / 64, 1 / 16, 2.0):
        expected = [waterfill(row, mi_nats=beta) for row in spectra]
        np.testing.assert_allclose(fill(spectra, beta), expected, rtol=1e-9)


@pytest.mark.claim("S-1")
@pytest.mark.parametrize("seed", range(8))
def test_real_sessions_find_the_same_noise_and_beliefs(
    pool: Pool, tables: Array, seed: int
) -> None:
    share = TOTAL_NATS / N_RELEASES
    bulk = Bulk.start(1, M, 0)
    query = 0
    with pac.Session(
        DATA, budget=pac.Information(TOTAL_NATS), sample=pool, rng=seed, simulate=True
    ) as session:
        for k in range(1, N_RELEASES + 1):
            release = session.release(QUERIES[query], pac.Information(share), rule="waterfill")
            np.testing.assert_allclose(release.bundle.log_p, bulk.log_p[0], atol=1e-3)
            outputs = tables[[query]]
            np.testing.assert_allclose(release.bundle.outputs, outputs[0])
            center, vectors, values = bulk.frame(outputs, bulk.log_p)
            noise = fill(values, share)
            total = np.square(release.bundle.grid_step * release.bundle.units_per_std).sum()
            assert total == pytest.approx(noise.sum(), rel=1e-3)
            seen = np.einsum("sd,sdq->sq", release.value[None] - center, vectors)
            bulk.update(outputs, center, vectors, noise, seen)
            query = int(next_query(k, release.value))
        assert session.odometer().learned_nats == pytest.approx(bulk.learned_nats[0], abs=1e-3)
        assert session.odometer().spent.mi_nats <= TOTAL_NATS


@pytest.mark.claim("S-1")
def test_ten_thousand_sessions_stay_under_the_certificate(pool: Pool, tables: Array) -> None:
    bulk = run_sessions(tables, [TOTAL_NATS / N_RELEASES] * N_RELEASES, seed=3)
    learned = bulk.learned_nats
    assert lower_mean(learned, math.log(M)) <= TOTAL_NATS
    # the test has teeth: the bound is nearly used up, so a tenth more would be seen
    assert learned.mean() > 0.9 * TOTAL_NATS
    for unit in (0, 7, 29):
        hits = bulk.member_hits(pool, unit)
        assert lower_rate(hits, N_SESSIONS) <= posterior_success(TOTAL_NATS, 0.5)
        assert lower_rate(hits, N_SESSIONS) > 0.5  # something is learned
    naming = bulk.naming_hits()
    assert lower_rate(naming, N_SESSIONS) <= posterior_success(TOTAL_NATS, 1 / M)
    assert lower_rate(naming, N_SESSIONS) > 1 / M


@pytest.mark.claim("S-1")
def test_noise_of_three_quarters_is_caught(tables: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth more information per release is enough to break the certificate."""
    real = fill
    monkeypatch.setitem(globals(), "fill", lambda values, beta: 0.75 * real(values, beta))
    bulk = run_sessions(tables, [TOTAL_NATS / N_RELEASES] * N_RELEASES, seed=4)
    assert lower_mean(bulk.learned_nats, math.log(M)) > TOTAL_NATS


def adaptive_pair(ignore_belief: bool, seed: int) -> Bulk:
    """First a fine reading; then a question about the candidates that are still likely."""
    n = 4000
    first = np.linspace(-1.7, 1.7, M)[:, None]
    bulk = Bulk.start(n, M, seed)
    bulk.release(np.broadcast_to(first, (n, M, 1)), 2.0)
    likely = np.argsort(-bulk.log_p, axis=1)[:, :8]
    second = np.zeros((n, M, 1))
    second[np.arange(n)[:, None], likely, 0] = np.array([1.0, -1.0] * 4)
    bulk.release(second, 0.25, ignore_belief=ignore_belief)
    return bulk


@pytest.mark.claim("S-1")
def test_a_belief_ignored_in_the_second_release_is_caught() -> None:
    total = 2.0 + 0.25
    honest = adaptive_pair(ignore_belief=False, seed=5)
    assert lower_mean(honest.learned_nats, math.log(M)) <= total
    planted = adaptive_pair(ignore_belief=True, seed=5)
    assert lower_mean(planted.learned_nats, math.log(M)) > total


# --- membership -----------------------------------------------------------------------------

MEMBER_M = 16
MEMBER_UNITS = 6
MEMBER_SESSIONS = 600
MEMBER_TOTAL = 0.588
N_HALVINGS = 10  # of the range in which a noise level is searched
GRID = np.arange(-9.0, 9.1, 0.25)
FINE = np.arange(-12.0, 12.0, 0.005)
MEMBER_DATA = np.random.default_rng(6).gamma(2.0, size=MEMBER_UNITS)
MEMBER_QUERIES: list[Callable[[Array], float]] = [
    lambda x: float(x.mean()),
    lambda x: float(np.log(x).mean()),
    lambda x: float(x.max()),
]


@pytest.fixture(scope="module")
def small_pool() -> Pool:
    return Balanced(n_subsets=MEMBER_M).draw(MEMBER_UNITS, rng=7)


@pytest.fixture(scope="module")
def lines(small_pool: Pool) -> Array:
    masks = small_pool.masks()
    return np.array([[query(MEMBER_DATA[mask]) for mask in masks] for query in MEMBER_QUERIES])


def tilt(log_p: Array, signs: Array) -> Array:
    """What the attacker believes of every unit, shape (s, units): 2 Q - 1."""
    return np.asarray(np.exp(log_p) @ signs)


def tilts_after(
    points: Array, log_p: Array, signs: Array, grid: Array = GRID
) -> tuple[Array, Array]:
    """The tilts (s, nodes, units) that unit noise leaves, and the weights (s, nodes)."""
    middle = (np.exp(log_p) * points).sum(axis=1, keepdims=True)
    away = grid[:, None] - (points - middle)[:, None, :]
    joint = np.exp(log_p[:, None, :] - 0.5 * np.square(away))
    mass = joint.sum(axis=2)
    step = (grid[1] - grid[0]) / math.sqrt(2 * math.pi)
    return joint @ signs / np.maximum(mass, 1e-300)[:, :, None], step * mass


def overcharged(
    points: Array, log_p: Array, signs: Array, terms: Heat, grid: Array = GRID
) -> tuple[Array, Array]:
    """By how much each unit breaks (7) and the floor at its allowed charge: (s, units) each."""
    after, mass = tilts_after(points, log_p, signs, grid)
    shape = (len(points), signs.shape[1])
    left = np.maximum(terms.balance - terms.allowed, 0.0).reshape(shape)
    grown = np.einsum("sz,szu->su", mass, heat_potential(after, left[:, None]))
    goal = heat_potential(terms.before, terms.balance).reshape(shape) + terms.extra
    before = terms.before.reshape(shape)
    square = np.einsum("sz,szu->su", mass, np.square(after - before[:, None]))
    return grown - goal, square - terms.allowed.reshape(shape) - terms.extra_square


@dataclass
class Filter:
    """Balances of many sessions side by side, as :class:`pacprivacy.Session` keeps them."""

    full: Balances
    balance: Array
    reserve: Array
    plant: str = ""

    def terms(self, before: Array, share: Array, plan: tuple[int, int] | None = None) -> Heat:
        """What every unit of every session is held to, sessions and units in one row."""
        full = replace(self.full, per_unit=self.balance.ravel(), reserve=float(self.reserve.min()))
        allowed = (share[:, None] * self.balance).ravel() if plan is None else full.planned(*plan)
        return full.heat(before.ravel(), allowed, float(share.min()))


def run_heat(
    tables: Array,
    pool: Pool,
    choose: Callable[[int, Array, Array], tuple[Array, Array]],
    *,
    n_releases: int,
    plant: str = "",
    n: int = MEMBER_SESSIONS,
    seed: int = 8,
    watch: Callable[[Array], None] | None = None,
    planned: bool = False,
) -> tuple[Bulk, Array, Array]:
    """Adaptive sessions: ``choose`` gives outputs (s, m) and shares (s,), 0 where one ends.

    With ``planned`` every release is one of those to come.

    ``plant`` names a mistake: "stale" calibrates and charges as if nothing had been released,
    "wrong side" charges half of what (7) asks for, "top up" sets balances to what the attacker
    has not learned yet.
    """
    signs = np.where(pool.masks(), 1.0, -1.0)
    bulk = Bulk.start(n, pool.n_subsets, seed)
    full = Balances.begin(2 * MEMBER_TOTAL - 1, pool.n_units)
    state = Filter(full=full, balance=np.tile(full.per_unit, (n, 1)), reserve=np.ones(n))
    for k in range(n_releases):
        outputs, share = choose(k, bulk.log_p, tilt(bulk.log_p, signs))
        if plant == "top up":
            state.balance = topped_up(tilt(bulk.log_p, signs), full)
        going = np.flatnonzero(share > 0)
        log_p, points = bulk.log_p[going], outputs[going]
        known = np.full_like(log_p, -math.log(pool.n_subsets)) if plant == "stale" else log_p
        here = replace_rows(state, going)
        plan = (n_releases - k, k) if planned else None
        terms = here.terms(tilt(known, signs), share[going], plan)
        low, high = np.full(len(going), -4.0), np.full(len(going), 6.0)
        spread = np.maximum(np.ptp(points, axis=1), 1e-12)
        for _ in range(N_HALVINGS):
            middle = (low + high) / 2
            std = spread * np.exp(middle)
            broken = np.maximum(*overcharged(points / std[:, None], known, signs, terms))
            over = (broken > 1e-9).any(axis=1)
            low, high = np.where(over, middle, low), np.where(over, high, middle)
        std = spread * np.exp(high)
        after, mass = tilts_after(points / std[:, None], known, signs)
        square = np.einsum("sz,szu->su", mass, np.square(after - tilt(known, signs)[:, None]))
        charge = np.minimum(terms.quick(square.ravel()), terms.allowed).reshape(square.shape)
        floor = np.maximum(square - terms.extra_square, 1e-12).ravel()
        for step in LADDER:
            tried = replace(terms, allowed=step * floor)
            grown, _ = overcharged(points / std[:, None], known, signs, tried)
            enough = np.where(grown <= 1e-9, tried.allowed.reshape(square.shape), np.inf)
            charge = np.minimum(charge, enough)
        state.balance[going] = np.maximum(
            state.balance[going] - charge * (0.5 if plant == "wrong side" else 1.0), 0.0
        )
        state.reserve[going] *= 1 - share[going].min()
        if watch is not None:
            watch(np.square(std))
        bulk.see_some(going, points, std)
    return bulk, np.abs(tilt(bulk.log_p, signs)), state.balance


def replace_rows(state: Filter, rows: Indices) -> Filter:
    return replace(state, balance=state.balance[rows], reserve=state.reserve[rows])


def topped_up(now: Array, full: Balances) -> Array:
    """The balance with which the potential is what it was at the start, whatever has happened."""
    goal, low, high = (
        heat_potential(0.0, full.worst),
        np.zeros_like(now),
        np.full_like(now, full.worst),
    )
    for _ in range(40):
        middle = (low + high) / 2
        fits = heat_potential(now, middle) <= goal
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.maximum(low, 1e-9)


def lowest(sizes: Array) -> float:
    """Largest of the lower 99 % bounds of the mean success, simultaneous over units."""
    z = -ndtri(0.01 / sizes.shape[1])
    bounds = sizes.mean(axis=0) - z * sizes.std(axis=0, ddof=1) / math.sqrt(len(sizes))
    return float(0.5 + 0.5 * bounds.max())


def repeated(signs: Array, n_releases: int) -> Callable[[int, Array, Array], tuple[Array, Array]]:
    """One statistic over and over: the membership of the first unit itself."""

    def choose(k: int, log_p: Array, now: Array) -> tuple[Array, Array]:
        n = len(log_p)
        return np.tile(signs[:, 0], (n, 1)), np.full(n, 1 / (n_releases - k))

    return choose


def adaptive(
    lines: Array, signs: Array, seed: int
) -> Callable[[int, Array, Array], tuple[Array, Array]]:
    """Mechanism, share and end by what was seen: sure of a unit, the attacker goes on with it."""
    coins = np.random.default_rng(seed)

    def choose(k: int, log_p: Array, now: Array) -> tuple[Array, Array]:
        n, target = len(log_p), np.abs(now).argmax(axis=1)
        likely = np.exp(log_p) >= np.median(np.exp(log_p), axis=1, keepdims=True)
        aimed = signs.T[target] * likely
        outputs = np.where(coins.random((n, 1)) < 0.5, aimed, lines[coins.integers(3, size=n)])
        share = np.where(np.abs(now).max(axis=1) > 0.2, 0.5, 0.25)
        return outputs, np.where(np.abs(now).max(axis=1) > 0.7, 0.0, share)

    return choose


@pytest.mark.claim("H-1", "H-2")
def test_adaptive_sessions_stay_below_their_total(small_pool: Pool, lines: Array) -> None:
    signs = np.where(small_pool.masks(), 1.0, -1.0)
    _, sizes, _ = run_heat(lines, small_pool, adaptive(lines, signs, 1), n_releases=8)
    assert lowest(sizes) <= MEMBER_TOTAL
    assert sizes.mean(axis=0).max() > 0.08  # something is learned
    advantage = 2 * MEMBER_TOTAL - 1
    for far in (0.4, 0.6):
        rate = int((sizes >= far).sum(axis=0).max())
        assert lower_rate(rate, len(sizes)) <= 0.5 * math.pi * (advantage / far) ** 2


@pytest.fixture(scope="module")
def honest_repeated(small_pool: Pool, lines: Array) -> tuple[Bulk, Array, Array]:
    signs = np.where(small_pool.masks(), 1.0, -1.0)
    return run_heat(lines, small_pool, repeated(signs, 8), n_releases=8)


@pytest.mark.claim("H-1")
def test_a_repeated_statistic_uses_the_total_up(
    honest_repeated: tuple[Bulk, Array, Array],
) -> None:
    _, sizes, balance = honest_repeated
    assert lowest(sizes) <= MEMBER_TOTAL
    assert 0.5 + 0.5 * sizes[:, 0].mean() > 0.575
    assert balance[:, 0].max() < 0.01 * Balances.begin(2 * MEMBER_TOTAL - 1, 1).worst


@pytest.mark.claim("H-1")
def test_planned_sessions_use_the_total_up_and_no_more(small_pool: Pool, lines: Array) -> None:
    """ "1 of k": savings are spent by whoever is asked about, never beyond the total."""
    signs = np.where(small_pool.masks(), 1.0, -1.0)
    plans = {"seen": adaptive(lines, signs, 1), "same": repeated(signs, 8)}
    found = {
        name: run_heat(lines, small_pool, choose, n_releases=8, planned=True)[1]
        for name, choose in plans.items()
    }
    assert max(map(lowest, found.values())) <= MEMBER_TOTAL
    assert 0.5 + 0.5 * found["same"][:, 0].mean() > 0.575


def cornering(signs: Array) -> Callable[[int, Array, Array], tuple[Array, Array]]:
    """First which subset it is or its complement, which tells of no unit; then about one unit."""
    pair = np.arange(MEMBER_M) % (MEMBER_M // 2)

    def choose(k: int, log_p: Array, now: Array) -> tuple[Array, Array]:
        n, likely = len(log_p), pair == pair[log_p.argmax(axis=1)][:, None]
        outputs = np.tile(pair.astype(float), (n, 1)) if k == 0 else signs[:, 0] * likely
        return outputs, np.full(n, 1 / (4 - k))

    return choose


@pytest.mark.claim("H-1")
@pytest.mark.parametrize("plant", ["stale", "wrong side", "top up"])
def test_planted_mistakes_are_caught(
    small_pool: Pool, lines: Array, honest_repeated: tuple[Bulk, Array, Array], plant: str
) -> None:
    """A belief that is not updated, half of the charge, balances set by where the run stands."""
    signs = np.where(small_pool.masks(), 1.0, -1.0)
    if plant == "stale":
        choose, count = cornering(signs), 4
        _, honest, _ = run_heat(lines, small_pool, choose, n_releases=count)
    else:
        choose, count = repeated(signs, 8), 8
        _, honest, _ = honest_repeated
    _, planted, _ = run_heat(lines, small_pool, choose, n_releases=count, plant=plant)
    assert lowest(honest) <= MEMBER_TOTAL < lowest(planted)


@pytest.mark.claim("H-1")
@pytest.mark.parametrize("seed", range(3))
def test_real_sessions_charge_every_unit_enough(small_pool: Pool, seed: int) -> None:
    """Every charge of a real session satisfies (7) and the floor, by quadrature; beliefs agree."""
    signs = np.where(small_pool.masks(), 1.0, -1.0)
    log_p = np.full((1, MEMBER_M), -math.log(MEMBER_M))
    query = 0
    with pac.Session(
        MEMBER_DATA, budget=pac.Membership(0.6), sample=small_pool, rng=seed, simulate=True
    ) as session:
        for share in (0.3, 0.4, 1.0):
            release = session.release(MEMBER_QUERIES[query], share=share)
            bundle, part = release.bundle, release.bundle.session
            assert part is not None
            assert part.balances is not None
            np.testing.assert_allclose(bundle.log_p, log_p[0], atol=1e-3)
            points = (bundle.points[:, 0] / bundle.units_per_std[0])[None]
            paid = part.balances.per_unit - session.balances.per_unit  # type: ignore[union-attr]
            terms = replace(part.heat(small_pool, bundle.log_p), allowed=paid)
            for over in overcharged(points, log_p, signs, terms, FINE):
                assert over.max() <= 1e-6  # error of the quadrature
            assert paid.max() > 0.9 * share * part.balances.per_unit[paid.argmax()]  # and not more
            pac.verify(release.certificate, bundle)
            std = float(bundle.grid_step[0] * bundle.units_per_std[0])
            log_p = log_p - 0.5 * np.square((float(release.value) - bundle.outputs[:, 0]) / std)
            log_p -= logsumexp(log_p, axis=1, keepdims=True)
            query = (query + 1 + int(float(release.value) > 2.0)) % len(MEMBER_QUERIES)
