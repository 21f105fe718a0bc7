"""Thousands of adaptive sessions: what the optimal attacker really learns stays as certified.

Sessions are simulated in bulk with the same mathematics as :class:`pacprivacy.Session` (weights
of the belief, waterfill, Bayes' rule); on real sessions it is checked that the bulk simulation
finds the same noise and the same beliefs. Planted mistakes must be caught by the same figures.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import logsumexp

import pacprivacy as pac
from pacprivacy.noise.formulas import waterfill
from pacprivacy.pool import Balanced, Pool
from pacprivacy.theory import clopper_pearson, empirical_bernstein, posterior_success

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

ASSESS = importlib.import_module("pacprivacy.release.certify")
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
        patch.setattr(ASSESS, "TOLD", ())
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
@pytest.mark.parametrize("seed", range(24))
def test_real_sessions_find_the_same_noise_and_beliefs(
    pool: Pool, tables: Array, seed: int
) -> None:
    share = TOTAL_NATS / N_RELEASES
    bulk = Bulk.start(1, M, 0)
    query = 0
    with pac.Session(
        DATA, budget=pac.Information(TOTAL_NATS), pool=pool, rng=seed, simulate=True
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
MEMBER_UNITS = 8
MEMBER_SESSIONS = 10_000
MEMBER_RELEASES = 8
INCREMENT = 0.015
GRID = np.arange(-9.0, 9.0, 0.2)
BATCH = 1000  # sessions at a time, so that the densities stay small
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


def expected_success(points: Array, log_p: Array, signs: Array) -> Array:
    """``E[V_i]`` after seeing each line of points under unit noise, by quadrature: (s, units)."""
    scale = (GRID[1] - GRID[0]) / math.sqrt(2 * math.pi)
    middle = (np.exp(log_p) * points).sum(axis=1, keepdims=True)
    found = np.empty((len(points), signs.shape[1]))
    for start in range(0, len(points), BATCH):
        rows = slice(start, start + BATCH)
        away = GRID[:, None] - (points[rows] - middle[rows])[:, None, :]
        # single precision: the quadrature itself is good to about 1e-4
        joint = np.exp(log_p[rows, None, :] - 0.5 * np.square(away), dtype=np.float32)
        found[rows] = 0.5 + 0.5 * scale * np.abs(joint @ signs.astype(np.float32)).sum(axis=1)
    return found


def noise_for(points: Array, log_p: Array, signs: Array, caps: Array) -> Array:
    """Least noise at which no unit's expected success exceeds its cap, one for each session."""
    spread = np.sqrt(
        (np.exp(log_p) * points**2).sum(axis=1) - (np.exp(log_p) * points).sum(axis=1) ** 2
    )
    low, high = np.full(len(points), -1.5), np.full(len(points), 8.0)
    for _ in range(14):
        middle = (low + high) / 2
        std = spread * np.exp(middle)
        found = expected_success(points / std[:, None], log_p, signs)
        over = (found > caps).any(axis=1)
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return np.asarray(spread * np.exp(high))


def member_signs(pool: Pool) -> Array:
    return np.where(pool.masks(), 1.0, -1.0)


def run_member_sessions(
    lines: Array, pool: Pool, caps_of: Callable[[Array], Array | None], seed: int
) -> tuple[Bulk, Array]:
    """Adaptive sessions; ``caps_of`` turns current successes into the caps of the next release.

    A session for which some cap is not above the current success makes no more releases.
    """
    signs = member_signs(pool)
    bulk = Bulk.start(MEMBER_SESSIONS, MEMBER_M, seed)
    query = np.zeros(MEMBER_SESSIONS, dtype=np.int64)
    for k in range(1, MEMBER_RELEASES + 1):
        now = 0.5 + 0.5 * np.abs(np.exp(bulk.log_p) @ signs)
        caps = caps_of(now)
        active = np.flatnonzero((caps > now + 1e-6).all(axis=1))
        points, log_p = lines[query[active]], bulk.log_p[active]
        std = noise_for(points, log_p, signs, caps[active])
        own = points[np.arange(len(active)), bulk.secret[active]]
        seen = own + std * bulk.rng.standard_normal(len(active))
        updated = log_p - 0.5 * np.square((seen[:, None] - points) / std[:, None])
        bulk.log_p[active] = updated - logsumexp(updated, axis=1, keepdims=True)
        query[active] = (k + (seen > np.median(lines))) % len(lines)
    return bulk, 0.5 + 0.5 * np.abs(np.exp(bulk.log_p) @ signs)


@pytest.mark.claim("S-2")
def test_membership_increments_stay_under_the_certificate(small_pool: Pool, lines: Array) -> None:
    certified = 0.5 + MEMBER_RELEASES * INCREMENT
    bulk, success = run_member_sessions(
        lines, small_pool, lambda now: np.minimum(1.0, now + INCREMENT), seed=8
    )
    lowest = [lower_mean(success[:, unit], 0.5) for unit in range(MEMBER_UNITS)]
    assert max(lowest) <= certified
    assert success.mean(axis=0).max() > 0.5 + 0.6 * MEMBER_RELEASES * INCREMENT  # it has teeth
    hits = max(bulk.member_hits(small_pool, unit) for unit in range(MEMBER_UNITS))
    assert lower_rate(hits, MEMBER_SESSIONS) <= certified


@pytest.mark.claim("S-2")
def test_capping_levels_instead_of_increments_is_caught(small_pool: Pool, lines: Array) -> None:
    """Runs above the cap stay there while the others are topped up again and again."""
    level = 0.5 + MEMBER_RELEASES * INCREMENT
    bulk, success = run_member_sessions(
        lines, small_pool, lambda now: np.full_like(now, level), seed=9
    )
    worst = int(success.mean(axis=0).argmax())
    assert lower_mean(success[:, worst], 0.5) > level
    assert lower_rate(bulk.member_hits(small_pool, worst), MEMBER_SESSIONS) > level


@pytest.mark.claim("S-2")
@pytest.mark.parametrize("seed", range(8))
def test_real_membership_sessions_charge_at_least_the_true_increment(
    small_pool: Pool, seed: int
) -> None:
    """Every charge of a real session covers the increment found by quadrature; beliefs agree."""
    signs = member_signs(small_pool)
    total = pac.Membership(0.5 + MEMBER_RELEASES * INCREMENT)
    log_p = np.full((1, MEMBER_M), -math.log(MEMBER_M))
    query, spent = 0, 0.0
    with pac.Session(
        MEMBER_DATA, budget=total, pool=small_pool, rng=seed, simulate=True
    ) as session:
        for k in range(1, 4):
            release = session.release(MEMBER_QUERIES[query], pac.Membership(0.5 + INCREMENT))
            bundle = release.bundle
            np.testing.assert_allclose(bundle.log_p, log_p[0], atol=1e-3)
            points = bundle.points[:, 0] / bundle.units_per_std[0]
            after = expected_success(points[None], log_p, signs)[0]
            before = 0.5 + 0.5 * np.abs(np.exp(log_p) @ signs)[0]
            charge = session.odometer().spent.success_increment - spent
            spent += charge
            assert (after - before).max() <= charge + 2e-4  # error of the quadrature
            assert charge <= INCREMENT + 1e-9
            std = float(bundle.grid_step[0] * bundle.units_per_std[0])
            log_p = log_p - 0.5 * np.square((float(release.value) - bundle.outputs[:, 0]) / std)
            log_p -= logsumexp(log_p, axis=1, keepdims=True)
            query = (k + int(float(release.value) > 2.0)) % len(MEMBER_QUERIES)
