"""An audit catches planted mistakes, and does not accuse a sound release."""

import bisect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.adversary import membership_risk
from pacprivacy.adversary.exact import DEFAULT_GAMMA
from pacprivacy.audit import AuditPromise, Guess, Releases, Target, audit
from pacprivacy.audit.results import _Game, _measure
from pacprivacy.noise import NoisePlan, calibrate
from pacprivacy.release import Release
from pacprivacy.sample import Balanced
from pacprivacy.theory import gaussian_equivalent, mi_for_membership, mi_for_success

Array = np.ndarray[Any, np.dtype[np.float64]]
N_SUBSETS = 64
TARGET = Target.of(np.zeros((4, 1)), Balanced(n_subsets=4).draw(4, rng=0), lambda k, g: [0.0])


@cache
def scaled_iris() -> Array:
    features = load_iris().data
    low, high = features.min(axis=0), features.max(axis=0)
    return (features - low) / (high - low)


def mean(x: Array) -> Array:
    return x.mean(axis=0)


def covariance(x: Array) -> Array:
    return np.cov(x.T)[np.triu_indices(x.shape[1])]


def kmeans(x: Array) -> Array:
    start = np.quantile(x, [0.2, 0.5, 0.8], axis=0)
    return KMeans(3, init=start[[0, 1, 2]], n_init=1).fit(x).cluster_centers_


BUDGETS = {
    "membership 0.588": pac.Membership(0.588),
    "membership 0.675": pac.Membership(0.675),
    "information 1/16": pac.Information(1 / 16),
}


@cache
def released(mechanism: Callable[[Array], Array], budget: str, n_subsets: int) -> Release:
    return pac.privatize(
        mechanism, scaled_iris(), BUDGETS[budget], n_subsets=n_subsets, rng=0, simulate=True
    )


# --- a sound release ------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [mean, covariance, kmeans], ids=lambda f: f.__name__)
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_sound_release_is_not_accused(mechanism: Callable[[Array], Array], budget: str) -> None:
    release = released(mechanism, budget, N_SUBSETS)
    for found in audit(release, n_trials=4000, rng=1):
        assert found.success.lower <= found.bound, found
        assert found.success.confidence == pytest.approx(0.99)


def test_the_bayes_attack_is_as_strong_as_the_certificate_says() -> None:
    """Otherwise "holds" would only mean that the attack is weak."""
    release = released(mean, "membership 0.675", 32)
    assert release.certificate.membership is not None
    exact = release.certificate.membership.value
    (found,) = audit(release, attacks=["bayes"], n_trials=20_000, gamma=1e-6, rng=1)
    assert found.success.lower <= exact <= found.success.upper
    assert found.success.upper - found.success.lower < 0.04


# --- planted mistakes -----------------------------------------------------------------------


class Planted:
    """A certified release of the covariance, and its noise plan to tamper with."""

    def __init__(self) -> None:
        budget = BUDGETS["membership 0.588"]
        self.release = released(covariance, "membership 0.588", N_SUBSETS)
        self.pool = self.release.bundle.pool
        self.outputs = self.release.bundle.outputs
        self.plan: NoisePlan = calibrate(
            self.outputs, budget, pool=self.pool, gamma=DEFAULT_GAMMA / 2, rng=0
        )
        law = self.release.bundle.grid_step * self.release.bundle.units_per_std
        np.testing.assert_array_equal(self.plan.noise_std, law)

    def sound(self, k: int, rng: np.random.Generator) -> Array:
        return self.plan.value_of(self.plan.observe(k, SimulatedSource(rng)))

    def with_noise(self, k: int, std: Array, rng: np.random.Generator) -> Array:
        """Return an output with continuous noise, which is quicker than that on the lattice."""
        return self.outputs[k] + self.plan.frame.expand(std * rng.standard_normal(len(std)))

    def caught_by(self, procedure: Any, outputs: Array | None = None, **settings: Any) -> set[str]:
        target = Target.of(self.outputs if outputs is None else outputs, self.pool, procedure)
        settings = {"n_trials": 1000, "rng": 1} | settings
        results = audit(target, self.release.certificate, **settings)
        return {found.attack for found in results if found.verdict == "VIOLATED"}


@pytest.fixture(scope="module")
def planted() -> Planted:
    return Planted()


def test_the_procedure_that_really_runs_is_not_accused(planted: Planted) -> None:
    assert planted.caught_by(planted.sound) == set()


def test_halved_noise_is_caught(planted: Planted) -> None:
    def halved(k: int, rng: np.random.Generator) -> Array:
        return planted.with_noise(k, 0.5 * planted.plan.noise_std, rng)

    # the ratio attacks are weaker than the Bayes attack and need more trials to be sure
    attacks = ["bayes", "likelihood_ratio", "empirical_ratio"]
    assert planted.caught_by(halved, attacks=attacks, n_trials=4000) == set(attacks)


def test_an_output_left_out_of_the_noise_is_caught(planted: Planted) -> None:
    """The plan covers the covariance; the mean leaves beside it as it is."""
    pool = planted.pool
    means = np.array([scaled_iris()[pool.rows(k)].mean(axis=0) for k in range(pool.n_subsets)])
    everything = np.hstack([planted.outputs, means])

    def left_out(k: int, rng: np.random.Generator) -> Array:
        return np.concatenate([planted.with_noise(k, planted.plan.noise_std, rng), means[k]])

    attacks = ["bayes", "naming"]
    assert planted.caught_by(left_out, everything, attacks=attacks) == set(attacks)


def test_variance_for_standard_deviation_is_caught(planted: Planted) -> None:
    def confused(k: int, rng: np.random.Generator) -> Array:
        return planted.with_noise(k, planted.plan.noise_std**2, rng)

    attacks = ["bayes", "likelihood_ratio", "naming"]
    assert planted.caught_by(confused, attacks=attacks) == set(attacks)


def test_noise_in_floats_is_caught_by_its_bits_only() -> None:
    """Right law, wrong arithmetic: the low bits tell, nothing else does."""
    release = pac.privatize(
        covariance, scaled_iris(), pac.Information(1 / 16), rule="diagonal", n_subsets=16, rng=0
    )
    outputs, pool = release.bundle.outputs, release.bundle.pool
    std = release.bundle.grid_step * release.bundle.units_per_std
    assert len(std) == outputs.shape[1]

    def in_floats(k: int, rng: np.random.Generator) -> Array:
        return outputs[k] + std * rng.standard_normal(len(std))

    target = Target.of(outputs, pool, in_floats, declared_std=std)
    results = audit(target, release.certificate, n_trials=2000, rng=1)
    assert {found.attack for found in results if found.verdict == "VIOLATED"} == {"precision"}
    (by_bits,) = (found for found in results if found.attack == "precision")
    assert by_bits.success.lower > by_bits.bound + 0.05


# --- units that are in most candidates ------------------------------------------------------


FOLDS = Balanced(n_subsets=200, folds=10).draw(30, rng=0)


def fold_target(noise_std: float) -> Target:
    """Return a release that shows, under noise, only whether unit 0 is in."""
    outputs = FOLDS.masks()[:, :1].astype(np.float64)
    return Target.of(outputs, FOLDS, lambda k, g: outputs[k] + noise_std * g.standard_normal(1))


@cache
def certificate_on_folds(nats: float) -> pac.Certificate:
    data = np.random.default_rng(0).normal(size=FOLDS.n_units)
    return pac.privatize(np.mean, data, pac.Information(nats), sample=FOLDS, rng=0).certificate


def certificate_of(*, nats: float, success: float) -> pac.Certificate:
    made = certificate_on_folds(nats)
    found: pac.Certificate = replace(made, mi_upper_nats=nats, membership_bound=success)
    return found


def noise_for(nats: float, share: float) -> float:
    """Return the noise at which the information about unit 0 is just this much."""

    def information(std: float) -> float:
        z = np.linspace(-12 * std, 1 + 12 * std, 20001)
        inside, outside = (np.exp(-0.5 * ((z - at) / std) ** 2) for at in (1.0, 0.0))
        mixture = share * inside + (1 - share) * outside
        terms = share * inside * np.log(inside / mixture)
        terms += (1 - share) * outside * np.log(outside / mixture)
        return float(terms.sum() * (z[1] - z[0]) / (std * np.sqrt(2 * np.pi)))

    return float(brentq(lambda std: information(std) - nats, 0.3, 30.0))


@pytest.mark.claim("U-1")
@pytest.mark.claim("T-6")
@pytest.mark.parametrize("attack", ["bayes", "likelihood_ratio", "empirical_ratio"])
def test_a_prior_of_one_half_where_a_unit_is_mostly_in_is_caught(attack: str) -> None:
    asked, share = 0.65, 0.9
    wrong = mi_for_success(asked)  # as if the unit were in half of the candidates
    target = fold_target(noise_for(wrong, share))
    certificate = certificate_of(nats=wrong, success=asked)
    (caught,) = audit(target, certificate, attacks=[attack], n_trials=4000, rng=0)
    assert caught.verdict == "VIOLATED"
    right = mi_for_membership(asked, share)
    sound = fold_target(noise_for(right, share))
    certificate = certificate_of(nats=right, success=asked)
    (held,) = audit(sound, certificate, attacks=[attack], n_trials=4000, rng=0)
    assert held.verdict == "holds"
    assert held.success.lower > asked - 0.09  # Gaussian noise reaches 0.62


@pytest.mark.claim("U-1")
def test_who_always_says_in_is_right_every_other_time() -> None:
    target = fold_target(1.0)

    class AlwaysIn:
        name, question, notes = "always in", "", ()
        guesses = (Guess(prior=0.5, unit=0),)

        def train(self, target: Target, shadow: Releases) -> "AlwaysIn":
            return self

        def hits(self, releases: Releases) -> Any:
            return target.members(np.array([0]))[releases.indices]

    certificate = certificate_of(nats=0.1, success=0.6)
    (found,) = audit(target, certificate, attacks=[AlwaysIn()], n_trials=4000, rng=0)
    assert found.verdict == "holds"  # it would not at the pool's own prior, 90 %
    assert found.success.lower < 0.5 < found.success.upper
    assert found.prior == 0.5


@pytest.mark.claim("U-1")
def test_attacks_reach_the_advantage_at_every_share() -> None:
    success = 0.69  # of telling two normals apart
    target = fold_target(1 / gaussian_equivalent(success))
    certificate = certificate_of(nats=0.5, success=success)
    for found in audit(target, certificate, attacks=["bayes", "likelihood_ratio"], rng=0):
        assert found.verdict == "holds"
        assert found.success.value == pytest.approx(success, abs=0.03)


# --- false alarms ---------------------------------------------------------------------------


class Counted:
    """A trained attack that is right on a given number of releases, with every guess."""

    name, question, notes = "counted", "heads", ()

    def __init__(self, successes: int, n_guesses: int) -> None:
        self.successes = successes
        self.guesses = (Guess(prior=0.5),) * n_guesses

    def train(self, target: Target, shadow: Releases) -> "Counted":
        return self

    def hits(self, releases: Releases) -> Any:
        right = np.arange(len(releases)) < self.successes
        return np.repeat(right[:, None], len(self.guesses), axis=1)


@pytest.mark.claim("U-1")
@pytest.mark.parametrize("n_guesses", [1, 3])
@pytest.mark.parametrize("rate", [0.52, 0.588, 0.97])
@pytest.mark.parametrize("n_trials", [100, 2000])
def test_false_alarms_are_as_rare_as_promised(rate: float, n_guesses: int, n_trials: int) -> None:
    """At the very bound, the worst case: the exact chance of an alarm, from binomial tails."""
    gamma = 0.05
    seen = np.zeros((n_trials, 0))
    trials = Releases(indices=np.zeros(n_trials, dtype=np.int64), values=seen, groups=None)
    promise = AuditPromise(mi_nats=mi_for_success(rate), membership=1.0)
    game = _Game(target=TARGET, trials=trials, promise=promise, gamma=gamma, seed=0)

    def accused(successes: int) -> bool:
        attack = Counted(successes, n_guesses)
        return _measure(attack, attack, game).verdict == "VIOLATED"

    first = bisect.bisect_left(range(n_trials + 1), True, key=accused)
    chance = n_guesses * binom.sf(first - 1, n_trials, rate)
    assert chance <= gamma / 2
    if n_trials == 2000:  # and alarms are not so rare as to be useless
        assert chance >= gamma / 4


@pytest.mark.claim("U-1")
def test_the_bound_is_the_one_of_the_certificate() -> None:
    """A certificate that claims too little is accused on a release that is otherwise sound."""
    release = released(mean, "membership 0.675", 32)
    risk = membership_risk(release.bundle.view, release.bundle.pool, n_draws=20_000, rng=3)
    for claimed, verdict in ((risk.lower - 0.05, "VIOLATED"), (risk.upper, "holds")):
        certificate = replace(release.certificate, membership_bound=claimed)
        (found,) = audit(release, certificate, attacks=["bayes"], n_trials=4000, rng=1)
        assert found.bound == claimed
        assert found.verdict == verdict
