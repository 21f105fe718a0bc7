"""DP-SGD and DP-GD for linear models: sums, batches, accounting, promises."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from pacprivacy._random import SimulatedSource, SystemSource
from pacprivacy.dp import (
    DPRelease,
    FixedBatch,
    FullBatch,
    Hinge,
    Logistic,
    PoissonBatch,
    ReplacementBatch,
    Softmax,
    Squared,
    Steps,
    clip,
    dp_descent_epsilon,
    dp_descent_noise,
    dp_sgd,
)
from pacprivacy.dp.descent import DPDescentNoise, dp_descent_rate, run_dp_descent
from pacprivacy.dp.records import SUM_BITS, ExactTotal, WholeRows
from pacprivacy.dp.sgd import LinearSGDSums
from pacprivacy.errors import BudgetError, DataError, MechanismError
from pacprivacy.theory import gaussian_delta

ADD_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
STEPS = Steps(n_steps=20, learning_rate=0.5, clip_norm=1.0)
LOSSES = [
    Squared(y_bound=3.0),
    Logistic(classes=(0, 1)),
    Hinge(classes=(0, 1)),
    Softmax(classes=(0, 1, 2)),
]


def named(value: object) -> str:
    return type(value).__name__


def targets(loss: Any, n: int, generator: np.random.Generator) -> np.ndarray:
    if isinstance(loss, Squared):
        return generator.normal(size=n) * 4
    return generator.integers(len(loss.classes), size=n)


def values(loss: Any, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Losses as a textbook writes them."""
    score = scores[:, 0]
    if isinstance(loss, Squared):
        return (score - target) ** 2 / 2
    if isinstance(loss, Logistic):
        return np.log1p(np.exp(-score * target))
    if isinstance(loss, Hinge):
        return np.maximum(0, 1 - score * target)
    return -np.log(np.exp(scores)[np.arange(len(target)), target] / np.exp(scores).sum(axis=1))


def whole_gradients(gradients: np.ndarray, norm: float) -> np.ndarray:
    """Sum of clipped gradients, in whole multiples of 2^-40 of the norm."""
    total = ExactTotal((gradients.shape[1],))
    total.add_rows(gradients, norm, norm * 2.0**-SUM_BITS)
    return total.held()


def length(vector: np.ndarray) -> float:
    """Norm of an integer vector, without a rounding that could hide an excess."""
    return math.sqrt(sum(int(entry) ** 2 for entry in vector))


# --- losses and sums ----------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_slopes_are_derivatives(loss: Any) -> None:
    generator = np.random.default_rng(0)
    target = loss.encode(targets(loss, 40, generator), 40)
    scores = generator.normal(size=(40, loss.n_scores))
    slopes = loss.slopes(scores, target)
    for k in range(loss.n_scores):
        step = np.zeros(loss.n_scores)
        step[k] = 1e-6
        found = (values(loss, scores + step, target) - values(loss, scores - step, target)) / 2e-6
        np.testing.assert_allclose(slopes[:, k], found, atol=1e-7)


@pytest.mark.claim("G-1")
@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_sums_are_those_of_clipped_gradients(loss: Any) -> None:
    generator = np.random.default_rng(1)
    X = generator.normal(size=(200, 4))
    y = targets(loss, 200, generator)
    rows, target = WholeRows(X, 2.0), loss.encode(y, 200)
    weights = generator.normal(size=(loss.n_scores, 4))
    clipped = clip(X, 2.0)
    slopes = loss.slopes(clipped @ weights.T, target)
    each = np.einsum("nk,nd->nkd", slopes, clipped).reshape(200, -1)
    for norm in (0.3, 100.0):
        sums = LinearSGDSums(rows, target, loss, clip_norm=norm)
        found = sums.whole_sum(weights.ravel(), np.arange(200)) / 2.0**SUM_BITS * norm
        np.testing.assert_allclose(found, clip(each, norm).sum(axis=0), atol=200 * norm * 4e-6)
        direct = whole_gradients(each, norm) / 2.0**SUM_BITS * norm
        np.testing.assert_allclose(found, direct, atol=200 * norm * 4e-6)


@pytest.mark.claim("G-1")
@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_no_record_adds_more_than_the_norm_whatever_else_is_there(loss: Any) -> None:
    generator = np.random.default_rng(2)
    X = generator.normal(size=(300, 7)) * np.exp(generator.normal(0, 4, size=(300, 1)))
    y = targets(loss, 300, generator)
    sums = LinearSGDSums(WholeRows(X, 1.0), loss.encode(y, 300), loss, clip_norm=0.05)
    weights = generator.normal(size=7 * loss.n_scores) * 3
    alone = np.array([sums.whole_sum(weights, np.array([i])) for i in range(300)])
    lengths = [length(row) for row in alone]
    assert max(lengths) <= 2**SUM_BITS
    assert max(lengths) > 0.99 * 2**SUM_BITS  # some record is clipped, and used in full
    for _ in range(20):
        places = generator.permutation(300)[: generator.integers(1, 300)]
        together = sums.whole_sum(weights, places)
        np.testing.assert_array_equal(together, alone[places].sum(axis=0))


@pytest.mark.claim("G-1")
def test_gradients_of_any_size_are_clipped() -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(50, 3)) * 10.0 ** generator.integers(-200, 200, size=(50, 1))
    rows = np.vstack([rows, [[np.nan, 1, 1], [np.inf, 0, 0], [0, 0, 0], [1e308, 1e308, 1e308]]])
    for norm in (1e-290, 1e-9, 0.7, 1e30):
        for row in rows:
            assert length(whole_gradients(row[None], norm)) <= 2**SUM_BITS
    assert (np.linalg.norm(clip(rows[:50], 1e-9), axis=1) <= 1e-9 * (1 + 1e-12)).all()
    assert length(whole_gradients(rows[-1:], 0.7)) > 0.999 * 2**SUM_BITS
    assert not whole_gradients(rows[-4:-1], 0.7).any()


@pytest.mark.claim("G-1")
@pytest.mark.parametrize(("n", "d"), [(9000, 3), (50, 5000), (5, 9000)])
def test_gradients_are_added_one_by_one_whatever_the_blocks(n: int, d: int) -> None:
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(n, d)).astype(np.float32)
    rows[2], rows[3, 1], rows[4] = 0.0, np.nan, 1e-30
    alone = [whole_gradients(rows[i : i + 1], 0.7) for i in range(min(n, 60))]
    some = rows[: len(alone)]
    np.testing.assert_array_equal(whole_gradients(some, 0.7), np.sum(alone, axis=0))
    halves = whole_gradients(rows[: n // 2], 0.7) + whole_gradients(rows[n // 2 :], 0.7)
    np.testing.assert_array_equal(whole_gradients(rows, 0.7), halves)
    assert not alone[3].any()
    clipped = clip(rows[:2].astype(np.float64), 0.7).sum(axis=0)
    np.testing.assert_allclose(np.sum(alone[:2], axis=0) * 0.7 / 2.0**SUM_BITS, clipped, rtol=1e-6)


@pytest.mark.claim("G-1")
def test_totals_are_exact_for_any_number_and_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["pacprivacy.dp.records"], "INT64_ROWS", 1 << 12)
    generator = np.random.default_rng(6)
    total, exact = ExactTotal((2,)), [0, 0]
    for _ in range(50):
        part = generator.integers(-(2**52), 2**52, size=2)
        total.add(part.astype(np.float64), 3000)
        exact = [a + int(b) for a, b in zip(exact, part, strict=True)]
    assert total.held().tolist() == exact
    assert total.rounded().tolist() == [float(a) for a in exact]
    for sign in (1, -1):
        large = ExactTotal((1,))
        for _ in range(3000):  # beyond 2^63
            large.add(np.array([sign * 2.0**52]), 4096)
        assert large.held()[0] == (2**62 - 1 if sign > 0 else -(2**62))
        assert large.rounded()[0] == sign * 3000 * 2.0**52


@pytest.mark.claim("DP-17")
@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_a_target_that_was_not_declared_has_no_slope(loss: Any) -> None:
    for odd in (math.nan, math.inf, "?", None):
        target = loss.encode([odd], 1)
        scores = np.full((1, loss.n_scores), 0.3)
        assert not loss.slopes(scores, target).any()


@pytest.mark.claim("G-1")
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("noise", [0.001, 0.7, 3.0, 1000.0])
def test_rounded_sums_stay_within_the_noise(neighbours: Any, noise: float) -> None:
    generator = np.random.default_rng(4)
    d, reach = 50, 1 if neighbours == "add_remove" else 2
    noisy = DPDescentNoise(noise, d, neighbours, SimulatedSource(0))
    assert 2**29 <= noisy.units <= 2**31
    assert noisy.std == pytest.approx(noise, rel=1e-5)
    half = (1 << noisy.shift) >> 1
    for _ in range(200):
        base = generator.integers(-(2**50), 2**50, size=d)
        move = generator.normal(size=d)
        move = np.trunc(move / np.linalg.norm(move) * reach * 2.0**SUM_BITS).astype(np.int64)
        apart = ((base + move + half) >> noisy.shift) - ((base + half) >> noisy.shift)
        assert noisy.units / length(apart) >= noise / reach


def test_noise_of_a_step_is_the_stated_one() -> None:
    noisy = DPDescentNoise(2.0, 4, "add_remove", SimulatedSource(5), 4096)
    whole = np.array([0, 2**SUM_BITS, -3 * 2**SUM_BITS, 12345])
    drawn = np.array([noisy.release(whole) for _ in range(20_000)])
    np.testing.assert_allclose(drawn.mean(axis=0), [0, 1, -3, 0], atol=0.1)
    for column in drawn.T:
        ratio = column.var() / 4.0
        assert stats.chi2.ppf(1e-8, 19_999) < ratio * 19_999 < stats.chi2.isf(1e-8, 19_999)
    assert abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 0.05


# --- batches ------------------------------------------------------------------------------------


def test_batches_follow_their_laws() -> None:
    source, n, repeats = SimulatedSource(6), 20, 4000
    poisson = [PoissonBatch(size=25, n_public=100).draw(n, source) for _ in range(repeats)]
    counts = np.bincount(np.concatenate(poisson), minlength=n)
    assert abs(counts / repeats - 0.25).max() < 0.04
    assert np.std([len(b) for b in poisson]) == pytest.approx(math.sqrt(20 * 0.1875), rel=0.1)
    for size in (3, 15, 20):
        fixed = [FixedBatch(size=size).draw(n, source) for _ in range(repeats)]
        assert all(len(np.unique(b)) == size for b in fixed)
        counts = np.bincount(np.concatenate(fixed), minlength=n)
        assert abs(counts / repeats - size / n).max() < 0.04
    draws = np.concatenate([ReplacementBatch(size=50).draw(n, source) for _ in range(repeats)])
    assert stats.chisquare(np.bincount(draws, minlength=n)).pvalue > 1e-6
    np.testing.assert_array_equal(FullBatch(n_public=5).draw(3, source), [0, 1, 2])
    np.testing.assert_array_equal(PoissonBatch(size=5, n_public=5).draw(3, source), [0, 1, 2])
    pairs = [tuple(sorted(FixedBatch(size=2).draw(5, source))) for _ in range(repeats)]
    assert stats.chisquare(np.unique(pairs, axis=0, return_counts=True)[1]).pvalue > 1e-6


# --- accounting ---------------------------------------------------------------------------------


@pytest.mark.claim("G-2")
def test_epsilon_of_poisson_batches_is_that_of_dp_accounting() -> None:
    batch = PoissonBatch(size=30, n_public=1000)
    event = dp_accounting.PoissonSampledDpEvent(0.03, dp_accounting.GaussianDpEvent(1.5))
    theirs = PLDAccountant(ADD_REMOVE).compose(event, 200).get_epsilon(1e-5)
    ours = dp_descent_epsilon(batch, 7, n_steps=200, noise=1.5, delta=1e-5)
    assert ours == pytest.approx(theirs, rel=1e-9)
    noise = dp_descent_noise(batch, 7, n_steps=200, epsilon=theirs, delta=1e-5)
    assert 1.5 <= noise < 1.5 * 1.003


@pytest.mark.claim("G-2")
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_full_batches_follow_the_exact_gaussian_curve(neighbours: Any) -> None:
    batch = FullBatch(n_public=10, neighbours=neighbours)
    noise = dp_descent_noise(batch, 10, n_steps=25, epsilon=0.8, delta=1e-6)
    reach = 1 if neighbours == "add_remove" else 2
    assert gaussian_delta(0.8, 5 * reach / noise) == pytest.approx(1e-6, rel=1e-6)
    assert gaussian_delta(0.8, 5 * reach / noise) <= 1e-6
    again = dp_descent_epsilon(batch, 10, n_steps=25, noise=noise, delta=1e-6)
    assert again == pytest.approx(0.8, rel=1e-8)


@pytest.mark.claim("G-2")
def test_a_large_delta_does_not_search_for_ever() -> None:
    """Three batches of a sixth leave a record out with probability .58: δ = .5 needs no noise."""
    batch = PoissonBatch(size=10, n_public=60)
    assert 0 < dp_descent_noise(batch, 60, n_steps=3, epsilon=5.0, delta=0.5) <= 1 / 4


@pytest.mark.claim("G-2")
def test_batches_of_all_records_cost_what_no_sampling_costs() -> None:
    settings = {"n_steps": 9, "noise": 12.0, "delta": 1e-5}
    exact = dp_descent_epsilon(FullBatch(neighbours="replace"), 40, **settings)
    fixed = dp_descent_epsilon(FixedBatch(size=40), 40, **settings)
    assert exact <= fixed < exact * 1.001


@pytest.mark.claim("G-2")
@pytest.mark.parametrize("batch", [FixedBatch(size=30), ReplacementBatch(size=30)], ids=named)
def test_no_pair_of_neighbours_costs_more_than_stated(batch: Any) -> None:
    """Records of opposite gradients, all others zero: the law of the loss is known exactly."""
    n, n_steps, noise, delta = 100, 30, 3.0, 1e-3
    if isinstance(batch, FixedBatch):
        times, chances = np.array([0, 1]), np.array([0.7, 0.3])
    else:
        times = np.arange(31)
        chances = stats.binom.pmf(times, 30, 1 / n)
    stated = dp_descent_epsilon(batch, n, n_steps=n_steps, noise=noise, delta=delta)
    generator = np.random.default_rng(7)

    def density(x: np.ndarray, sign: int) -> np.ndarray:
        return sum(
            p * stats.norm.pdf(x, sign * k, noise)
            for k, p in zip(times, chances, strict=True)
            if p > 1e-9
        )

    for other in (-1, 0):  # the replacement pulls the other way, or not at all
        drawn = generator.choice(times, p=chances, size=(20_000, n_steps))
        x = drawn + noise * generator.normal(size=drawn.shape)
        loss = np.log(density(x, 1) / density(x, other)).sum(axis=1)
        lost = np.maximum(0.0, -np.expm1(stated - loss))
        margin = 5 * lost.std() / math.sqrt(len(lost))
        assert lost.mean() - margin < delta
        if other == -1:  # and the bound is not idle: at a third of it the same pair breaks it
            lost = np.maximum(0.0, -np.expm1(stated / 3 - loss))
            assert lost.mean() - 5 * lost.std() / math.sqrt(len(lost)) > delta


@pytest.mark.claim("G-2")
def test_fixed_batches_cost_less_than_the_renyi_figure() -> None:
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        1000, 20, dp_accounting.GaussianDpEvent(2.0)
    )
    renyi = RdpAccountant(neighboring_relation=REPLACE).compose(event, 500).get_epsilon(1e-5)
    settings = {"n_steps": 500, "noise": 4.0, "delta": 1e-5}
    ours = dp_descent_epsilon(FixedBatch(size=20), 1000, **settings)
    repeated = dp_descent_epsilon(ReplacementBatch(size=20), 1000, **settings)
    poisson = dp_descent_epsilon(PoissonBatch(size=20, n_public=1000), 1000, **settings)
    assert poisson < ours < repeated < renyi
    assert ours > poisson * 1.9  # a replaced record moves a sum by twice as much


# --- releases -----------------------------------------------------------------------------------


def blobs(n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(8)
    y = generator.integers(2, size=n)
    X = generator.normal(size=(n, 2)) * 0.4 + np.where(y[:, None] == 1, 0.5, -0.5)
    return X, y


@pytest.mark.claim("G-3")
@pytest.mark.parametrize(
    "batch",
    [
        PoissonBatch(size=300, n_public=3000),
        FixedBatch(size=300),
        ReplacementBatch(size=300),
        FullBatch(n_public=3000),
        FullBatch(neighbours="replace"),
    ],
    ids=lambda b: f"{named(b)}-{b.neighbours}",
)
@pytest.mark.parametrize("average", [False, True])
def test_every_batch_learns_and_states_its_relation(batch: Any, average: bool) -> None:
    X, y = blobs()
    steps = Steps(n_steps=20, learning_rate=1.0, clip_norm=0.5, average=average)
    release = dp_sgd(
        X,
        y,
        loss=Logistic(classes=(0, 1)),
        epsilon=1.0,
        delta=1e-6,
        x_bound=1.0,
        batch=batch,
        steps=steps,
        simulate=0,
    )
    assert isinstance(release, DPRelease)
    assert np.mean((X @ release.value > 0) == y) > 0.93
    certificate = release.certificate
    assert certificate.neighbours == batch.neighbours
    assert (certificate.epsilon, certificate.delta) == (1.0, 1e-6)
    assert certificate.simulation
    assert 0.98 < certificate.accounting["epsilon"] <= 1.0
    assert ("average iterate" if average else "last iterate") in certificate.mechanism
    assert certificate.noise["sum of gradients"] == pytest.approx(
        0.5 * certificate.accounting["noise multiplier"], rel=1e-5
    )


def test_average_is_the_mean_of_all_iterates() -> None:
    class Recorder:
        n_records = 5

        def __init__(self) -> None:
            self.seen: list[np.ndarray] = []

        def whole_sum(self, weights: np.ndarray, places: np.ndarray) -> np.ndarray:
            self.seen.append(weights)
            return np.full(3, 2**SUM_BITS)

    results = {}
    for average in (False, True):
        recorder = Recorder()
        steps = Steps(n_steps=7, learning_rate=0.5, clip_norm=2.0, average=average, penalty=0.1)
        results[average], std = run_dp_descent(
            recorder,
            np.ones(3),
            batch=FullBatch(n_public=10),
            steps=steps,
            noise=0.01,
            source=SimulatedSource(1),
        )
    np.testing.assert_array_equal(recorder.seen[0], np.ones(3))
    iterates = [*recorder.seen[1:], results[False]]
    np.testing.assert_allclose(results[True], np.mean(iterates, axis=0), rtol=1e-12)
    # Sum 1 clipping norm, divided by the public size: 2/10; the penalty adds 0.1 of the weight.
    np.testing.assert_allclose(recorder.seen[1], 1 - 0.5 * (0.2 + 0.1), atol=0.01)
    assert std == pytest.approx(0.01, rel=1e-5)


def test_softmax_and_squared_have_their_shapes() -> None:
    generator = np.random.default_rng(9)
    X = generator.normal(size=(4000, 3))
    y = np.argmax(X, axis=1)
    release = dp_sgd(
        X,
        np.array(["a", "b", "c"])[y],
        loss=Softmax(classes=("a", "b", "c")),
        epsilon=2.0,
        delta=1e-6,
        x_bound=3.0,
        batch=PoissonBatch(size=400, n_public=4000),
        steps=Steps(n_steps=40, learning_rate=1.0, clip_norm=1.0),
        simulate=1,
    )
    assert release.value.shape == (3, 3)
    assert np.mean(np.argmax(X @ release.value.T, axis=1) == y) > 0.9
    fitted = dp_sgd(
        X,
        X @ [1.0, 0.0, -1.0],
        loss=Squared(y_bound=4.0),
        epsilon=2.0,
        delta=1e-6,
        x_bound=3.0,
        steps=Steps(n_steps=50, learning_rate=0.5, clip_norm=3.0),
        batch=FullBatch(n_public=4000),
        simulate=1,
    )
    np.testing.assert_allclose(fitted.value, [1.0, 0.0, -1.0], atol=0.1)


@pytest.mark.claim("G-3")
def test_number_of_records_does_not_show_under_add_remove() -> None:
    """A record with gradient zero, added: weights and certificate are the same to the bit."""
    X, y = blobs(500)
    settings: dict[str, Any] = {
        "loss": Squared(y_bound=1.0),
        "epsilon": 1.0,
        "delta": 1e-6,
        "x_bound": 1.0,
        "steps": STEPS,
        "batch": FullBatch(n_public=480),
        "simulate": 4,
    }
    less = dp_sgd(X, y, **settings)
    more = dp_sgd(np.vstack([X, [[0.0, 0.0]]]), np.append(y, 0), **settings)
    np.testing.assert_array_equal(less.value, more.value)
    assert less.certificate == more.certificate


def test_noise_and_batches_come_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs(300)
    asked = []
    words = SystemSource.words
    monkeypatch.setattr(
        SystemSource, "words", lambda self, size: asked.append(size) or words(self, size)
    )
    settings: dict[str, Any] = {
        "loss": Logistic(classes=(0, 1)),
        "epsilon": 1.0,
        "delta": 1e-6,
        "x_bound": 1.0,
        "batch": PoissonBatch(size=30, n_public=300),
        "steps": STEPS,
    }
    first, second = dp_sgd(X, y, **settings), dp_sgd(X, y, **settings)
    assert not np.array_equal(first.value, second.value)
    assert asked.count(300) == 2 * STEPS.n_steps  # one coin for each record and step
    assert not first.certificate.simulation


def test_bad_input_is_refused_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs(60)

    def spend(self: object, size: int) -> None:
        raise AssertionError("something was drawn")

    monkeypatch.setattr(SystemSource, "words", spend)
    good: dict[str, Any] = {
        "loss": Logistic(classes=(0, 1)),
        "epsilon": 1.0,
        "delta": 1e-6,
        "x_bound": 1.0,
        "batch": FixedBatch(size=30),
        "steps": STEPS,
    }
    for bad, error, match in (
        ({"epsilon": 0.0}, BudgetError, "epsilon must be a positive"),
        ({"epsilon": -1.0}, BudgetError, "epsilon must be a positive"),
        ({"delta": 0.0}, BudgetError, "delta must be between 0 and 1"),
        ({"delta": 1.0}, BudgetError, "delta must be between 0 and 1"),
        ({"delta": 1e-38}, BudgetError, "delta must be large enough for the grid"),
        ({"x_bound": None}, BudgetError, "x_bound must be a positive"),
        ({"x_bound": 1e200}, BudgetError, "clip_norm must be of the order"),
        ({"batch": FixedBatch(size=61)}, DataError, "size must be at most"),
        ({"loss": Softmax(classes=("0", "1"))}, DataError, "classes must be of the type of y"),
    ):
        with pytest.raises(error, match=match):
            dp_sgd(X, y, **(good | bad))
    with pytest.raises(DataError, match="X must have two axes"):
        dp_sgd(X[0], y, **good)
    with pytest.raises(DataError, match="X must hold numbers"):
        dp_sgd(X.astype(str), y, **good)
    with pytest.raises(DataError, match="one entry for each"):
        dp_sgd(X, y[:3], **good)
    for batch in (FullBatch(neighbours="replace"), ReplacementBatch(size=3)):
        with pytest.raises(DataError, match="at least one row"):
            dp_sgd(X[:0], y[:0], **(good | {"batch": batch}))
    with pytest.raises(BudgetError, match="n_public must be given"):
        dp_sgd(X, y, **(good | {"batch": FullBatch()}))
    with pytest.raises(BudgetError, match="y_bound"):
        Squared(y_bound=0.0)
    with pytest.raises(DataError, match="two different labels"):
        Hinge(classes=(1, 1))
    with pytest.raises(BudgetError, match="size must be"):
        PoissonBatch(size=20, n_public=10)
    with pytest.raises(BudgetError, match="whole number"):
        FixedBatch(size=2.5)  # type: ignore[arg-type]
    for bad in ({"n_steps": 0}, {"penalty": -1.0}, {"penalty": 3.0}):
        with pytest.raises((BudgetError, MechanismError)):
            Steps(**({"n_steps": 1, "learning_rate": 0.5, "clip_norm": 1.0} | bad))


# --- momentum, Adam, and the rate that follows from the noise ---------------------------------


@pytest.mark.claim("G-3")
@pytest.mark.parametrize("squares", [0.0, 0.9])
def test_momentum_and_adam_see_released_gradients_only(
    monkeypatch: pytest.MonkeyPatch, squares: float
) -> None:
    released = np.random.default_rng(3).normal(size=(5, 2))
    queue = list(released)
    monkeypatch.setattr(DPDescentNoise, "release", lambda self, whole: queue.pop(0))
    steps = Steps(n_steps=5, learning_rate=0.1, clip_norm=2.0, momentum=0.8, squares=squares)
    batch = FullBatch(n_public=4)
    sums = LinearSGDSums(
        WholeRows(np.ones((4, 2)), 2.0),
        np.ones(4),
        Logistic(classes=(0, 1)),
        clip_norm=2.0,
    )
    source = SimulatedSource(np.random.default_rng(0))
    told: dict[str, Any] = {"batch": batch, "noise": 0.25, "source": source}
    weights, std = run_dp_descent(sums, np.zeros(2), steps=steps, **told)
    gradients = released * 2.0 / 4
    expected = np.zeros(2)
    for done in range(1, 6):
        ages = np.arange(done)[::-1]

        def mean(values: Any, keep: float, ages: Any = ages) -> Any:
            return np.average(values, axis=0, weights=keep**ages)

        move = mean(gradients[:done], 0.8)
        if squares:
            noise = (std * 0.5) ** 2
            signal = mean(gradients[:done] ** 2, squares) - noise
            move = move / np.sqrt(np.maximum(signal, 0.1 * noise))
        expected = expected - 0.1 * move
    np.testing.assert_allclose(weights, expected, rtol=1e-12)


@pytest.mark.parametrize("x_bound", [1.0, 40.0])
def test_the_rate_follows_from_the_noise_and_the_units_of_features(x_bound: float) -> None:
    told: dict[str, Any] = {"n_weights": 3, "delta": 1e-6}
    batch = FullBatch(n_public=5000)
    steps = Steps(n_steps=50, clip_norm=0.5 * x_bound)

    def rate(epsilon: float, **changed: Any) -> float:
        return dp_descent_rate(
            batch, 0, replace(steps, **changed), x_bound=x_bound, epsilon=epsilon, **told
        )

    noise = dp_descent_noise(batch, 0, n_steps=50, epsilon=1.0, delta=1e-6)
    moved = rate(1.0) * noise * steps.clip_norm / 5000 * np.sqrt(50) * x_bound
    assert moved == pytest.approx(1.0, rel=1e-6)
    assert rate(0.1) < rate(1.0) < rate(2.0)
    assert rate(30.0) == pytest.approx(100.0 / (0.5 * x_bound**2))
    assert rate(1.0, penalty=1e9) * 1e9 == pytest.approx(0.5)
    assert rate(1.0, squares=0.99) == pytest.approx(1.5 / np.sqrt(50) / x_bound)


def test_weights_of_momentum_and_missing_rates_are_refused() -> None:
    for bad in ({"momentum": 1.0}, {"squares": -0.1}):
        with pytest.raises(MechanismError, match="at least 0 and below 1"):
            Steps(n_steps=5, clip_norm=1.0, **bad)
    with pytest.raises(MechanismError, match="learning_rate must be given"):
        _ = Steps(n_steps=5, clip_norm=1.0).rate
