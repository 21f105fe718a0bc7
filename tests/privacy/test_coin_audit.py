"""The audit of releases with coins: sound ones stay below the promise, planted bugs do not."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy import stats
from pacprivacy.audit import COIN_ATTACKS, CoinTarget, audit
from pacprivacy.cli import app
from pacprivacy.errors import AuditError
from pacprivacy.release import CoinBundle, CoinCertificate, Release
from pacprivacy.sample import Coins

N, KEEP = 400, 0.9


@pytest.fixture(scope="module")
def release() -> Release:
    x = np.random.default_rng(3).normal(10, 2, size=(N, 3))
    return pac.privatize(
        functools.partial(np.mean, axis=0), x, "membership<=0.6", sample=Coins(keep=KEEP)
    )


def verdicts(results: object) -> dict[str, str]:
    return {result.attack: result.verdict for result in results}  # type: ignore[attr-defined]


@pytest.mark.claim("U-1")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sound_releases_hold(release: Release, seed: int) -> None:
    results = audit(release, n_trials=4000, rng=seed, gamma=1e-6)
    assert [result.attack for result in results] == list(COIN_ATTACKS)
    assert results.holds
    informed, uninformed = results[0], results[1]
    # the worst unit costs nearly all that is allowed, and the informed attack is optimal
    assert informed.success.upper > 0.59
    assert uninformed.success.value < informed.success.upper


def test_everybody_is_attacked_too() -> None:
    x = np.random.default_rng(5).normal(size=300)
    everybody = pac.privatize(np.sum, x, "membership<=0.6", sample=Coins(keep=1))
    results = audit(everybody, n_trials=4000, rng=0, gamma=1e-6)
    assert [r.attack for r in results] == [a for a in COIN_ATTACKS if a != "uninformed"]
    assert results.holds


def halved(release: Release) -> tuple[CoinCertificate, CoinBundle]:
    """A bundle whose noise has half the deviation, under the same promise."""
    bundle, certificate = release.bundle, release.certificate
    assert isinstance(certificate, CoinCertificate)
    half = replace(bundle, units_per_std=bundle.units_per_std // 2)
    noise = replace(certificate.noise, largest_std=certificate.noise.largest_std / 2)
    return replace(certificate, noise=noise), half


@pytest.mark.claim("U-1")
def test_halved_noise_is_caught(release: Release) -> None:
    certificate, bundle = halved(release)
    found = verdicts(audit(bundle, certificate, n_trials=2000, rng=0))
    assert found["informed"] == found["false_alarms"] == "VIOLATED"
    assert found["group_2"] == found["group_5"] == "VIOLATED"


def test_halved_noise_ends_with_code_4(release: Release, tmp_path: Path) -> None:
    certificate, bundle = halved(release)
    replace(release, certificate=certificate, proof=bundle).save(tmp_path)
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "release.json"), "--seed", "1"])
    assert done.exit_code == 4
    assert "VIOLATED" in done.stdout
    sound = tmp_path / "sound"
    release.save(sound)
    done = CliRunner().invoke(app, ["audit", str(sound / "release.json"), "--seed", "1", "--json"])
    assert done.exit_code == 0
    content = json.loads(done.stdout)
    assert content["verdict"] == "holds"
    assert [result["attack"] for result in content["results"]] == list(COIN_ATTACKS)


# --- procedures, of whose noise nothing is believed -------------------------------------------

# Ten units of 10 among many of 1 at most: who is left out decides who is the tenth largest.
VALUES = np.concatenate([np.full(10, 10.0), np.random.default_rng(0).random(N - 10)])
MU = 0.5066  # influence at a success of 60 %
STD = 10.0 / MU


def promise(release: Release) -> CoinCertificate:
    assert isinstance(release.certificate, CoinCertificate)
    return release.certificate


def honest(used: np.ndarray, rng: np.random.Generator) -> float:
    return float(VALUES[used].sum() + rng.normal(0, STD))


def half_noise(used: np.ndarray, rng: np.random.Generator) -> float:
    return float(VALUES[used].sum() + rng.normal(0, STD / 2))


def clip_by_sample(used: np.ndarray, rng: np.random.Generator) -> float:
    members = VALUES[used]
    radius = np.sort(members)[-10]
    return float(np.minimum(members, radius).sum() + rng.normal(0, STD))


@pytest.mark.claim("U-1")
def test_honest_procedures_hold(release: Release) -> None:
    target = CoinTarget.of(honest, n_units=N, keep=KEEP, units=[0])
    assert audit(target, promise(release), n_trials=4000, rng=1, gamma=1e-6).holds


@pytest.mark.claim("U-1")
@pytest.mark.parametrize("procedure", [half_noise, clip_by_sample])
def test_planted_bugs_are_caught(release: Release, procedure: object) -> None:
    target = CoinTarget.of(procedure, n_units=N, keep=KEEP, units=[0])  # type: ignore[arg-type]
    found = verdicts(audit(target, promise(release), n_trials=4000, rng=1))
    assert found["informed"] == "VIOLATED"


@pytest.mark.claim("U-1")
def test_noise_from_members_only_is_caught(release: Release) -> None:
    values = np.concatenate([[10.0], np.full(N - 1, 1.0)])

    def members_only(used: np.ndarray, rng: np.random.Generator) -> float:
        return float(values[used].sum() + rng.normal(0, values[used].max() / MU))

    target = CoinTarget.of(members_only, n_units=N, keep=KEEP, units=[0])
    found = verdicts(audit(target, promise(release), n_trials=4000, rng=1))
    assert found["informed"] == "VIOLATED"


def test_what_does_not_fit_is_refused(release: Release) -> None:
    pool = pac.privatize(np.mean, np.arange(40.0), "membership<=0.75", n_subsets=16, rng=0)
    with pytest.raises(AuditError, match="attack must be one of informed"):
        audit(release, attacks=["bayes"])
    with pytest.raises(AuditError, match="certificate must belong to a release with coins"):
        audit(release.bundle, pool.certificate)
    with pytest.raises(AuditError, match="certificate must belong to a release with coins"):
        audit(release.bundle)
    other = pac.privatize(np.sum, np.arange(500.0), "membership<=0.6", sample=Coins(keep=KEEP))
    with pytest.raises(AuditError, match="bundle must belong to the certificate"):
        audit(other.bundle, release.certificate)
    with pytest.raises(AuditError, match="n_trials must be at least"):
        audit(release, n_trials=10)


def test_many_cells_and_units_of_several_rows() -> None:
    rng = np.random.default_rng(1)
    frame = {"g": rng.integers(0, 12, 3000).astype(str), "x": rng.normal(size=3000)}
    import pandas as pd

    units = rng.integers(0, 900, 3000)
    made = pac.privatize(
        stats.mean("x", by="g", fill=0), pd.DataFrame(frame), "membership<=0.6",
        units=units, sample=Coins(keep=KEEP),
    )  # fmt: skip
    assert audit(made, n_trials=2000, rng=4, gamma=1e-6).holds
