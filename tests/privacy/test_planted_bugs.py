"""Mistakes that would break the promise, planted one by one, and the checks that catch them.

Each check passes on the library as it is and fails on the planted version. The main check is the
optimal attack on simulated releases: its success is held against the certificate.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource, SystemSource
from pacprivacy.errors import CertificateError, MechanismError
from pacprivacy.mechanism import Structure
from pacprivacy.noise import NoisePlan, calibrate
from pacprivacy.noise.plan import Observation, make_plan
from pacprivacy.release import verify
from pacprivacy.sample import Balanced, Pool
from pacprivacy.session import ReleaseSecret
from pacprivacy.theory import clopper_pearson

Array = npt.NDArray[np.float64]

ASSESS = importlib.import_module("pacprivacy.release.pool_certificate")
BALANCED = importlib.import_module("pacprivacy.sample.strategies")
RELEASE = importlib.import_module("pacprivacy.release")
POOL_SECRET = importlib.import_module("pacprivacy.session.pool_secret")
REHEARSAL = importlib.import_module("pacprivacy.session.dry_run")
WORKER = importlib.import_module("pacprivacy.simulation.run")

N_RELEASES = 4000
GAMMA = 1e-3
SUCCESS = 0.65
M = 16
DATA = 0.02 * np.random.default_rng(0).normal(size=(12, 2))


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ASSESS, "information_draws", lambda m: 4096)
        patch.setattr(ASSESS, "membership_draws", lambda m: 4096)
        yield


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Balanced(n_subsets=M).draw(len(DATA), rng=1)


@pytest.fixture(scope="module")
def outputs(pool: Pool) -> Array:
    return np.array([DATA[mask].mean(axis=0) for mask in pool.masks()])


@pytest.fixture(scope="module")
def plan(outputs: Array, pool: Pool) -> NoisePlan:
    found = calibrate(outputs, pac.Membership(SUCCESS), pool=pool, rng=2)
    assert found.membership is not None
    assert found.membership.upper <= SUCCESS
    return found


# --- the check: the optimal attack on what is really released -------------------------------

Sampler = Callable[[int, SimulatedSource], Any]
Likelihood = Callable[[Any], Array]


def attack(sample: Sampler, likelihood: Likelihood, pool: Pool, seed: int = 3) -> float:
    """Lower confidence bound of the optimal attacker's success on the worst-placed unit.

    The unit is chosen on the first half of the releases and attacked on the second.
    """
    source = SimulatedSource(seed)
    secrets = np.random.default_rng(seed).integers(M, size=N_RELEASES)
    signs = np.where(pool.masks(), 1.0, -1.0)
    right = np.empty((N_RELEASES, pool.n_units), dtype=bool)
    for i, secret in enumerate(secrets):
        log_p = likelihood(sample(int(secret), source))
        belief = np.exp(log_p - log_p.max())
        right[i] = np.sign(belief @ signs) == signs[secret]
    half = N_RELEASES // 2
    unit = int(right[:half].mean(axis=0).argmax())
    return clopper_pearson(int(right[half:, unit].sum()), half, gamma=2 * GAMMA).lower


def attack_plan(actual: NoisePlan, pool: Pool) -> float:
    return attack(actual.observe, actual.log_likelihood, pool)


@pytest.mark.claim("A-2", "N-6", "R-3")
def test_the_real_release_withstands_the_attack(plan: NoisePlan, pool: Pool) -> None:
    found = attack_plan(plan, pool)
    assert found <= SUCCESS
    assert found > 0.55  # the attack is a real one


# --- too little noise -----------------------------------------------------------------------


@pytest.mark.claim("N-6")
def test_halved_noise_is_caught(plan: NoisePlan, pool: Pool) -> None:
    planted = replace(plan, units_per_std=plan.units_per_std // 2)
    assert attack_plan(planted, pool) > SUCCESS


@pytest.mark.claim("N-6")
def test_a_standard_deviation_used_as_a_variance_is_caught(
    plan: NoisePlan, pool: Pool, outputs: Array
) -> None:
    """The variance is passed where the standard deviation belongs: below one, less noise."""
    assert plan.noise_std.max() < 0.5
    planted = make_plan(
        rule="planted",
        frame=plan.frame,
        center=plan.center,
        noise_std=np.square(plan.noise_std),
        values=outputs,
    )
    assert attack_plan(planted, pool) > SUCCESS


@pytest.mark.claim("R-1")
def test_halved_noise_does_not_verify(pool: Pool) -> None:
    """The same bug between the certificate and the release, found by recomputing."""
    release = pac.privatize(
        lambda x: x.mean(axis=0), DATA, pac.Information(0.3), rule="waterfill", sample=pool, rng=0
    )
    verify(release.certificate, release.bundle)
    halved = replace(release.bundle, units_per_std=release.bundle.units_per_std // 2)
    with pytest.raises(CertificateError):
        verify(release.certificate, halved)


# --- something unmeasured -------------------------------------------------------------------


@pytest.mark.claim("R-2")
def test_an_output_left_out_of_the_measured_vector_is_caught(
    pool: Pool, outputs: Array, plan: NoisePlan
) -> None:
    """Noise is found for the first coordinate alone; the second leaves beside it as it is."""
    first = calibrate(outputs[:, :1], pac.Membership(SUCCESS), pool=pool, rng=4)

    def sample(secret: int, source: SimulatedSource) -> tuple[Observation, float]:
        return first.observe(secret, source), float(outputs[secret, 1])

    def likelihood(seen: tuple[Observation, float]) -> Array:
        same = outputs[:, 1] == seen[1]
        return np.where(same, first.log_likelihood(seen[0]), -np.inf)

    assert attack_plan(first, pool) <= SUCCESS
    assert attack(sample, likelihood, pool) > SUCCESS


def labelled(x: Any) -> Any:
    return {"mean": x.mean(axis=0), "sign": "up" if x[:, 0].mean() > DATA[:, 0].mean() else "down"}


@pytest.mark.claim("M-1", "R-2")
def test_a_label_that_differs_between_subsets_is_refused(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> bool:
        try:
            pac.privatize(labelled, DATA, pac.Information(1), sample=pool, rule="waterfill", rng=0)
        except MechanismError as error:
            return "value['sign'] must have the same" in str(error)
        return False

    assert refused()
    monkeypatch.setattr(Structure, "difference", lambda self, other: None)
    assert not refused()


# --- a subset reused ------------------------------------------------------------------------


def are_all_different(pool: Pool) -> bool:
    return len({row.tobytes() for row in pool.bits}) == pool.n_subsets


@pytest.mark.claim("P-1")
def test_a_pool_that_reuses_a_subset_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert are_all_different(Balanced(n_subsets=64).draw(40, rng=5))
    real = BALANCED.public_generator
    # the planted bug: two subsets draw from the same stream
    monkeypatch.setattr(
        BALANCED,
        "public_generator",
        lambda seed, stream, k=0: real(seed, stream, 3 if k == 7 else k),
    )
    assert not are_all_different(Balanced(n_subsets=64).draw(40, rng=5))


@pytest.mark.claim("M-2")
def test_a_result_reused_for_another_subset_is_caught(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of subset 5 are those of subset 4: noise is then measured on the wrong outputs."""

    def outputs_are_right() -> bool:
        release = pac.privatize(
            lambda x: x.mean(axis=0), DATA, pac.Information(1), sample=pool, rule="waterfill", rng=0
        )
        expected = [DATA[pool.row_mask(k)].mean(axis=0) for k in range(M)]
        return np.array_equal(release.bundle.outputs, expected)

    assert outputs_are_right()
    real = WORKER.RunJob.evaluate

    def planted(job: Any, k: int) -> Any:
        return real(job, 4 if k == 5 else k)

    monkeypatch.setattr(WORKER.RunJob, "evaluate", planted)
    assert not outputs_are_right()


@pytest.mark.claim("N-6")
def test_noise_measured_with_a_reused_result_fails_the_attack() -> None:
    """Four candidates; the result of one was reused for another, so their gap is not hidden."""
    pool = Balanced(n_subsets=4).draw(4, rng=0)
    true = np.array([0.0, 1.0, 1.0, 0.0])[:, None]  # tells subset and complement apart
    reused = true.copy()
    reused[2:] = true[:2]  # subset k + 2 got the result of subset k
    signs = np.where(pool.masks(), 1.0, -1.0)

    def success(measured: Array) -> float:
        plan = calibrate(measured, pac.Membership(SUCCESS), pool=pool, rng=6)
        if plan.is_noiseless:  # the measured outputs tell nothing about any unit
            seen = [true[:, 0] == value for value in true[:, 0]]
            hits = [
                np.abs((same / same.sum()) @ signs).mean() for same in np.array(seen, dtype=float)
            ]
            return 0.5 + 0.5 * float(np.mean(hits))
        points = plan.whitened(measured)
        return 0.5 + 0.5 * math.erf(float(np.ptp(points)) / 2 / math.sqrt(2))

    assert success(true) <= SUCCESS
    assert success(reused) > SUCCESS


# --- the belief -----------------------------------------------------------------------------


@pytest.mark.claim("S-1")
def test_a_belief_ignored_in_the_second_release_does_not_verify(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second_release_verifies() -> bool:
        with pac.Session(
            DATA, budget=pac.Information(3), sample=pool, rng=7, simulate=True
        ) as session:
            session.release(lambda x: x.mean(axis=0), pac.Information(1.5), rule="waterfill")
            later = session.release(lambda x: x.std(axis=0), pac.Information(0.5), rule="waterfill")
        try:
            verify(later.certificate, later.bundle)
        except CertificateError:
            return False
        return True

    assert second_release_verifies()
    real = POOL_SECRET.calibrate

    def planted(outputs: Any, budget: Any, **options: Any) -> NoisePlan:
        options.pop("log_belief")
        found: NoisePlan = real(outputs, budget, **options)
        return found

    monkeypatch.setattr(POOL_SECRET, "calibrate", planted)
    assert not second_release_verifies()


# --- the order of work ----------------------------------------------------------------------


class Trace:
    """Writes down when the mechanism runs and when secret bits are drawn."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        words = SystemSource.words

        def watched(source: SystemSource, size: int) -> Any:
            self.events.append("draw")
            return words(source, size)

        patch.setattr(SystemSource, "words", watched)

    def mean(self, x: Any) -> Any:
        self.events.append("run")
        return x.mean(axis=0)

    def runs_come_first(self) -> bool:
        draws = [i for i, event in enumerate(self.events) if event == "draw"]
        runs = [i for i, event in enumerate(self.events) if event == "run"]
        return bool(draws) and len(runs) >= M and max(runs) < min(draws)


@pytest.mark.claim("R-3")
def test_a_secret_drawn_before_the_simulation_is_caught(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ordered() -> bool:
        trace = Trace(monkeypatch)
        pac.privatize(trace.mean, DATA, pac.Information(1), sample=pool, rule="waterfill", rng=0)
        return trace.runs_come_first()

    assert ordered()
    real = REHEARSAL.run_mechanism

    def planted(*args: Any, **options: Any) -> Any:
        ReleaseSecret(M, SystemSource())  # the index is drawn, then the mechanism runs
        return real(*args, **options)

    monkeypatch.setattr(REHEARSAL, "run_mechanism", planted)
    assert not ordered()


@pytest.mark.claim("S-1")
def test_a_session_draws_its_secret_after_the_first_simulation(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ordered() -> bool:
        trace = Trace(monkeypatch)
        with pac.Session(DATA, budget=pac.Information(1), sample=pool, rng=0) as session:
            session.release(trace.mean, pac.Information(0.5), rule="waterfill")
        return trace.runs_come_first()

    assert ordered()
    real = REHEARSAL.run_mechanism

    def planted(*args: Any, **options: Any) -> Any:
        ReleaseSecret(M, SystemSource())
        return real(*args, **options)

    monkeypatch.setattr(REHEARSAL, "run_mechanism", planted)
    assert not ordered()


@pytest.mark.claim("R-2")
def test_the_certificate_is_written_before_any_noise_is_drawn(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(monkeypatch)
    real = RELEASE.write_certificate

    def watched(*args: Any) -> Any:
        trace.events.append("certificate")
        return real(*args)

    monkeypatch.setattr(RELEASE, "write_certificate", watched)
    pac.privatize(trace.mean, DATA, pac.Information(1), sample=pool, rule="waterfill", rng=0)
    after = trace.events[trace.events.index("certificate") :]
    assert after.count("draw") >= 2  # the index and the noise come after
    assert trace.events[: -len(after)].count("draw") == 0
