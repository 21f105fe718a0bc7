"""What every attack must do, whatever its method."""

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.audit import ATTACKS, DEFAULT_ATTACKS, AuditResult, Target, audit
from pacprivacy.errors import AuditError
from pacprivacy.noise import calibrate
from pacprivacy.release import Release

NAMES = list(ATTACKS)


@pytest.fixture(scope="module")
def release() -> Release:
    data = np.random.default_rng(0).normal(size=(40, 3))
    return pac.privatize(
        lambda x: x.mean(axis=0), data, pac.Membership(0.65), n_subsets=32, rng=0, simulate=True
    )


@pytest.fixture(scope="module")
def sound(release: Release) -> Target:
    """A procedure that really runs, with the noise of the certificate but for its float bits."""
    bundle = release.bundle
    plan = calibrate(bundle.outputs, pac.Membership(0.65), pool=bundle.pool, rng=0)
    std, step = plan.noise_std, plan.grid_step

    def run(k: int, rng: np.random.Generator) -> np.ndarray:
        noise = np.rint(std / step * rng.standard_normal(len(std))) * step
        return plan.center + plan.frame.expand(plan.points[k] * step + noise)

    return Target.of(bundle.outputs, bundle.pool, run)


def run_one(target: Target, release: Release, name: str, **options: object) -> AuditResult:
    (found,) = audit(target, release.certificate, attacks=[name], **options)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_result_depends_on_the_seed_alone(sound: Target, release: Release, name: str) -> None:
    first = run_one(sound, release, name, n_trials=300, rng=5)
    again = run_one(sound, release, name, n_trials=300, rng=5)
    assert first == again
    others = [run_one(sound, release, name, n_trials=300, rng=seed) for seed in (6, 7, 8)]
    assert any(other.successes != first.successes for other in others)


def test_result_does_not_depend_on_the_other_attacks(sound: Target, release: Release) -> None:
    together = audit(sound, release.certificate, attacks=NAMES, n_trials=300, rng=5)
    assert [found.attack for found in together] == NAMES
    for found in together:
        assert found == run_one(sound, release, found.attack, n_trials=300, rng=5)


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_release_stays_under_its_certificate(
    sound: Target, release: Release, name: str
) -> None:
    found = run_one(sound, release, name, n_trials=1000, rng=1)
    assert found.verdict == "holds"
    assert found.success.lower <= found.bound
    assert found.prior <= found.bound


@pytest.mark.parametrize("name", DEFAULT_ATTACKS)
def test_a_bundle_stays_under_its_certificate(release: Release, name: str) -> None:
    (found,) = audit(release, attacks=[name], n_trials=2000, rng=1)
    assert found.verdict == "holds"


@pytest.mark.parametrize("name", NAMES)
def test_success_comes_with_its_interval(sound: Target, release: Release, name: str) -> None:
    found = run_one(sound, release, name, n_trials=500, rng=1, gamma=0.05)
    assert found.success.lower < found.success.value < found.success.upper
    assert found.success.value == found.successes / found.n_trials
    assert found.success.n_draws == found.n_trials == 500
    assert found.success.confidence == pytest.approx(0.95)
    json.dumps(found.to_public_dict(), allow_nan=False)


@pytest.mark.parametrize("name", NAMES)
def test_too_few_trials_are_refused(sound: Target, release: Release, name: str) -> None:
    with pytest.raises(AuditError, match="n_trials must be at least 100; got 99"):
        run_one(sound, release, name, n_trials=99)


@pytest.mark.parametrize("name", NAMES)
def test_without_information_nobody_beats_a_blind_guess(release: Release, name: str) -> None:
    bundle = release.bundle
    mute = Target.of(bundle.outputs, bundle.pool, lambda k, rng: rng.standard_normal(3))
    found = run_one(mute, release, name, n_trials=1000, rng=2, gamma=1e-6)
    assert found.success.lower <= found.prior


@pytest.mark.parametrize("name", NAMES)
def test_without_noise_every_attack_sees_through(release: Release, name: str) -> None:
    bundle = release.bundle
    outputs = bundle.outputs
    bare = Target.of(outputs, bundle.pool, lambda k, rng: outputs[k])
    found = run_one(bare, release, name, n_trials=300, rng=2)
    assert found.verdict == "VIOLATED"
    linear = name in {"likelihood_ratio", "empirical_ratio"}  # they see means only
    assert found.success.value == pytest.approx(1.0, abs=0.3 if linear else 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_attacks_are_frozen_records(name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        ATTACKS[name].name = "other"  # type: ignore[misc]
