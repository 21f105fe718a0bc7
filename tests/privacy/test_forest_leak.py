"""The published mistake of private forests, planted: thresholds noised, leaf labels let out bare.

The optimal attacker sees through it, and stays below the certificate when the leaf scores are
part of the measured vector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import beta as beta_law
from sklearn.datasets import load_iris

from pacprivacy._random import SimulatedSource
from pacprivacy.adversary import View, exact_information, membership_risk
from pacprivacy.budget import Information
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Forest, coerce_data
from pacprivacy.noise import NoisePlan, calibrate
from pacprivacy.sample import Balanced, Pool
from pacprivacy.simulation import run_mechanism
from pacprivacy.theory import posterior_success

MI_NATS = 1 / 16
N_DRAWS = 20_000
N_RELEASES = 600
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Case:
    """The forest on every subset of a pool over Iris, and the labels a bare release shows."""

    data: tuple[Any, Any]
    pool: Pool
    full: Matrix
    thresholds: Matrix
    labels: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class WithBareLabels:
    """A noise plan for the thresholds, seen by whoever is shown the leaf labels as well."""

    plan: NoisePlan
    groups: npt.NDArray[np.int64]

    def view(self, outputs: Matrix) -> View:
        return replace(self.plan.view(outputs), groups=self.groups)


@cache
def case() -> Case:
    X, y = load_iris(return_X_y=True)
    pool = Balanced(n_subsets=128, stratify=True).draw(len(y), rng=1, strata=y)
    outputs = run_mechanism(Forest(), (X, y), pool)
    values = [outputs.structure.restore(row) for row in outputs.values]
    labels = np.stack([value["leaves"].argmax(axis=2).ravel() for value in values])
    return Case(
        data=(X, y),
        pool=pool,
        full=np.array(outputs.values),
        thresholds=np.stack([value["thresholds"].ravel() for value in values]),
        labels=labels,
        groups=np.unique(labels, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64),
    )


def test_bare_labels_alone_are_worth_nats() -> None:
    shares = np.bincount(case().groups) / len(case().groups)
    assert -(shares * np.log(shares)).sum() > 1.6


@pytest.mark.claim("M-3")
def test_the_audit_catches_bare_labels() -> None:
    planted = case()
    plan = calibrate(planted.thresholds, Information(MI_NATS), rule="waterfill", rng=0)
    bound = posterior_success(MI_NATS)
    # As a statement about the thresholds alone, the certificate is right ...
    assert plan.log_det_nats <= MI_NATS
    alone = exact_information(plan.view(planted.thresholds), n_draws=N_DRAWS, rng=0)
    assert alone.lower <= MI_NATS
    # ... but with the labels the attacker has fifty times what it promises.
    leaky = WithBareLabels(plan=plan, groups=planted.groups)
    found = exact_information(leaky.view(planted.thresholds), n_draws=N_DRAWS, rng=0)
    assert found.lower > 50 * MI_NATS
    risk = membership_risk(leaky.view(planted.thresholds), planted.pool, n_draws=N_DRAWS, rng=0)
    assert risk.lower > bound + 0.2
    # Not of one unlucky record only: this is the mean over all of them.
    assert risk.mean.lower > bound + 0.05


@pytest.mark.claim("M-3")
def test_measured_leaf_scores_stay_below_the_certificate() -> None:
    sound = case()
    plan = calibrate(sound.full, Information(MI_NATS), rule="waterfill", rng=0)
    found = exact_information(plan.view(sound.full), n_draws=N_DRAWS, rng=0)
    assert found.lower <= MI_NATS
    assert min(found.upper, plan.log_det_nats) <= MI_NATS
    risk = membership_risk(plan.view(sound.full), sound.pool, n_draws=N_DRAWS, rng=0)
    assert risk.upper < posterior_success(MI_NATS)


def attack(outputs: Matrix, groups: npt.NDArray[np.int64] | None, unit: int) -> tuple[int, int]:
    """Guess one unit's membership on simulated releases; return successes and tries."""
    plan = calibrate(outputs, Information(MI_NATS), rule="waterfill", rng=0)
    member = case().pool.masks()[:, unit]
    source, rng = SimulatedSource(7), np.random.default_rng(7)
    right = 0
    for secret in rng.integers(len(outputs), size=N_RELEASES):
        log_p = plan.log_likelihood(plan.observe(int(secret), source))
        if groups is not None:
            log_p = np.where(groups == groups[secret], log_p, -np.inf)
        belief = np.exp(log_p - log_p.max())
        guess = belief[member].sum() > belief[~member].sum()
        right += bool(guess == member[secret])
    return right, N_RELEASES


def worst_unit() -> int:
    planted = case()
    plan = calibrate(planted.thresholds, Information(MI_NATS), rule="waterfill", rng=0)
    leaky = WithBareLabels(plan=plan, groups=planted.groups)
    risk = membership_risk(leaky.view(planted.thresholds), planted.pool, n_draws=4096, rng=0)
    return int(risk.per_unit.argmax())


def test_an_attack_on_releases_breaks_the_planted_one_and_not_ours() -> None:
    bound = posterior_success(MI_NATS)
    unit = worst_unit()
    right, tries = attack(case().thresholds, case().groups, unit)
    assert beta_law.ppf(0.005, right, tries - right + 1) > bound  # Clopper-Pearson, 99 %
    right, tries = attack(case().full, None, unit)
    assert beta_law.ppf(0.005, right, tries - right + 1) < bound


def test_released_labels_follow_the_measured_scores_and_nothing_else() -> None:
    sound = case()
    outputs = run_mechanism(Forest(), sound.data, sound.pool)
    n_scores = 3 * sound.labels.shape[1]
    for j, k in ((0, 1), (5, 90), (17, 64)):
        mixed = np.concatenate([sound.full[j, :n_scores], sound.full[k, n_scores:]])
        shown = outputs.restore(mixed)["leaves"].argmax(axis=2).ravel()
        np.testing.assert_array_equal(shown, sound.labels[j])
        assert (sound.labels[j] != sound.labels[k]).any()


def test_the_library_refuses_bare_labels_as_strings() -> None:
    forest = Forest().prepare(coerce_data(case().data))

    def published(X: Any, y: Any) -> dict[str, Any]:
        value = forest.evaluate((X, y), np.random.default_rng(0))
        labels = value["leaves"].argmax(axis=2).ravel()
        return {"thresholds": value["thresholds"], "labels": [f"class {c}" for c in labels]}

    with pytest.raises(MechanismError, match="labels"):
        run_mechanism(published, case().data, case().pool)
