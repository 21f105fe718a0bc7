"""The page of [RPAC] on problems small enough for a test."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import pacprivacy as pac
from pacprivacy.adversary import exact_information
from pacprivacy.noise import AutoConfidence, Protect, calibrate, contrasts, spread_of
from pacprivacy.residual import LearnedNoise
from pacprivacy.sample import Balanced
from pacprivacy.theory import epsilon_equivalent, gaussian_parameter, posterior_success
from papers.page import Page
from papers.residual import QUICK, RESIDUAL, logits, mean
from papers.residual.classifiers import CLASSIFIED, fit_logits
from papers.residual.laws import (
    Measure,
    NoiseRow,
    law_of_dp,
    law_of_learned,
    law_of_printed_dp,
    law_of_rule,
    measure_law,
    noise_order,
    simulate_noise,
    true_information,
)

OUTPUTS = np.random.default_rng(0).standard_normal((48, 3)) @ np.diag([3.0, 1.0, 0.2])


def test_truth_of_a_rule_is_that_of_the_exact_adversary() -> None:
    for rule in ("diagonal", "spectral"):
        law = law_of_rule(rule, OUTPUTS, rule, 0.5, 0)
        plan = calibrate(OUTPUTS, pac.Information(0.5), rule=rule)
        assert law.total_variance == pytest.approx(plan.total_variance)
        found = true_information(law, OUTPUTS, n_draws=20_000, seed=0)
        other = exact_information(plan.view(OUTPUTS), n_draws=20_000, rng=1)
        assert found.lower <= other.upper
        assert other.lower <= found.upper


def test_laws_at_equal_truth_tell_the_budget() -> None:
    for rule in ("diagonal", "waterfill"):
        law = law_of_rule(rule, OUTPUTS, rule, 1.0, 0).at_true_information(OUTPUTS, 1.0, 0)
        found = true_information(law, OUTPUTS, n_draws=40_000, seed=1)
        assert found.value == pytest.approx(1.0, rel=0.02)


def test_noise_outside_the_span_of_the_outputs_helps_the_attacker() -> None:
    """Diagonal noise on outputs of one direction: its other part tells the noise along it."""
    line = np.linspace(-1, 1, 16)[:, None] * np.array([1.0, 1.0])
    law = law_of_rule("diagonal", line, "diagonal", 0.3, 0)
    skewed = replace(law, covariance=np.array([[1.0, 0.99], [0.99, 1.0]]))
    plain = replace(law, covariance=np.eye(2))
    narrow = replace(law, covariance=np.array([[1.0, -0.9], [-0.9, 1.0]]))
    values = [
        true_information(one, line, n_draws=10_000, seed=0).value for one in (skewed, plain, narrow)
    ]
    assert values == sorted(values)


def test_simulated_noise_has_the_covariance() -> None:
    law = law_of_rule("waterfill", OUTPUTS, "waterfill", 0.5, 0)
    noise = simulate_noise(law, 200_000, np.random.default_rng(0))
    np.testing.assert_allclose(
        np.cov(noise.T), law.covariance, atol=0.02 * np.abs(law.covariance).max()
    )


def learned_by_hand() -> LearnedNoise:
    m = len(OUTPUTS)
    return LearnedNoise(
        follower="mlp",
        mi_nats=0.5,
        claimed_nats=0.4,
        claimed_error=0.0,
        factor=np.diag([1.0, 2.0, 3.0]) @ np.tri(3),
        spread=spread_of(OUTPUTS, np.full(m, 1 / m)),
        log_p=np.full(m, -np.log(m)),
    )


def test_learned_noise_in_the_outputs_coordinates() -> None:
    learned = learned_by_hand()
    law = law_of_learned("SR-PAC, learned", learned)
    assert law.claimed_nats == 0.4
    assert law.total_variance == pytest.approx(learned.total_variance)
    basis = learned.spread.basis
    assert basis is not None
    factor = basis @ learned.factor
    np.testing.assert_allclose(law.covariance, factor @ factor.T)


def test_a_classifier_learns(require_data: Any) -> None:
    require_data("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz")
    logits = fit_logits("mnist", n_train=512, n_epochs=10, n_candidates=64, seed=0)
    assert logits.test_accuracy > 0.5


def test_protected_logit_differences_keep_more_accuracy_at_equal_information() -> None:
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    model = OneVsRestClassifier(LogisticRegression(max_iter=2000)).fit(X[rows[:500]], y[rows[:500]])
    candidates = rows[500:564]
    measure = Measure(
        dataset="digits",
        values=model.decision_function(X[candidates]),
        labels=y[candidates],
        n_draws=2000,
        n_releases=400_000,
        seed=0,
    )
    rules = {
        "protect": Protect(contrasts(10), weight=1e4),
        "Auto-PAC (A.2)": "spectral",
        "Auto-PAC (least trace)": "waterfill",
        "Efficient-PAC": "diagonal",
    }
    rows = {
        name: measure_law(
            law_of_rule(name, measure.values, rule, 0.25, 0), 0.25, "equal claim", measure
        )
        for name, rule in rules.items()
    }
    best = rows.pop("protect")
    assert best.claimed_nats is not None
    assert best.claimed_nats <= 0.25
    for row in rows.values():
        assert best.accuracy is not None
        assert row.accuracy is not None
        assert row.standard_error is not None
        assert best.accuracy > row.accuracy + 2 * row.standard_error


def test_every_section_names_its_work_and_its_data() -> None:
    jobs = [job for section in RESIDUAL.sections for job in section.jobs(QUICK, quick=True)]
    full = [job for section in RESIDUAL.sections for job in section.jobs(QUICK, quick=False)]
    assert len(jobs) < len(full)
    assert len({job.name for job in full}) == len(full)
    subsets = {name for name, (title, _) in CLASSIFIED.items() if "subset" in title}
    assert subsets == {"cifar10", "cifar100", "ag_news"}
    assert any("which input" in note for note in logits.SECTION.notes)


def noise_rows(dataset: str) -> list[NoiseRow]:
    return [
        NoiseRow(
            dataset=dataset,
            method=method,
            version=version,  # type: ignore[arg-type]
            mi_nats=mi,
            claimed_nats=None if method == "risk" else mi,
            true_nats=mi,
            true_upper=mi,
            noise_variance=(1 + rank) / mi,
            accuracy=0.5 / (1 + rank),
            standard_error=0.001,
            no_noise=0.9,
            n_candidates=8,
            n_train=100,
        )
        for rank, method in enumerate(
            ("SR-PAC, learned", "exact", "Auto-PAC (A.2)", "Efficient-PAC")
        )
        for version in ("equal claim", "equal truth")
        for mi in (0.25, 1.0)
    ]


def test_pages_show_every_rule_and_the_order(tmp_path: Path) -> None:
    page = Page("test")
    mean.SECTION.write(page, noise_rows("iris"), tmp_path / "mean")
    logits.SECTION.write(page, noise_rows("mnist"), tmp_path / "logits")
    text = page.save(tmp_path / "page.md").read_text(encoding="utf-8")
    for name in ("mean.png", "logits_equal_claim.png", "logits_equal_truth.png"):
        assert (tmp_path / name).stat().st_size > 5000
        assert name in text
    order = noise_order(noise_rows("iris"), "equal claim", 0.25)
    assert order.endswith("SR-PAC, learned 4, exact 8, Auto-PAC (A.2) 12, Efficient-PAC 16.")
    assert order in text


def test_baselines_are_what_they_say() -> None:
    auto, efficient, careful = (
        law_of_rule("baseline", OUTPUTS, rule, 0.25, 0)
        for rule in ("spectral", "diagonal", AutoConfidence())
    )
    values = np.linalg.eigvalsh(np.cov(OUTPUTS.T, bias=True))
    assert auto.total_variance == pytest.approx(np.sqrt(values).sum() ** 2 / 0.5, rel=1e-4)
    std = OUTPUTS.std(axis=0)
    assert efficient.total_variance == pytest.approx(std.sum() ** 2 / 0.5, rel=1e-4)
    np.testing.assert_allclose(efficient.covariance, np.diag(np.diag(efficient.covariance)))
    assert careful.total_variance > auto.total_variance


def test_differential_privacy_at_equal_success() -> None:
    found = law_of_dp(4, 1 / 4, sensitivity=0.04)
    # at 83.8 % success mu is 2 x 0.986: through epsilon 1.64 at a delta it was five times the noise
    assert found.claimed_nats is None
    assert np.sqrt(found.covariance[0, 0]) / 0.04 == pytest.approx(0.507, abs=0.001)
    assert law_of_dp(4, 0.7, sensitivity=0.04).total_variance == 0.0  # success may be certain


def test_the_printed_line_of_differential_privacy() -> None:
    """By hand: at 83.8 % and δ = 1e-5, ε = 1.64; noise on a sum over a random count."""
    law = law_of_printed_dp(4, 100, 1 / 4, clip=1.5)
    counts = np.random.default_rng(0).binomial(100, 0.5, size=200_000)
    std = 1.5 / gaussian_parameter(epsilon_equivalent(posterior_success(1 / 4), 1e-5), 1e-5)
    assert law.total_variance == pytest.approx(4 * std**2 * np.mean(1.0 / counts**2), rel=2e-3)
    assert law.total_variance > 5 * law_of_dp(4, 1 / 4, sensitivity=1.5 / 50).total_variance


def test_the_auto_pac_of_the_appendix_does_not_spend_its_budget() -> None:
    appendix, proposition = (
        calibrate(OUTPUTS, pac.Information(1.0), rule=rule) for rule in ("spectral", "waterfill")
    )
    assert appendix.log_det_nats < 0.7
    assert proposition.log_det_nats == pytest.approx(1.0, abs=1e-5)
    assert appendix.total_variance > 1.9 * proposition.total_variance


def test_conditional_entropy_is_concave_in_the_law_of_the_noise() -> None:
    """Two candidates one apart, noise on whole numbers: all laws on four points, by halves."""

    def left(law: np.ndarray) -> float:
        joint = np.stack([np.append(law, 0.0), np.append(0.0, law)]) / 2
        posterior = joint / np.maximum(joint.sum(axis=0), 1e-300)
        return -float((joint * np.log(np.maximum(posterior, 1e-300))).sum())

    rng, gaps = np.random.default_rng(0), []
    for first, second in rng.dirichlet(np.ones(4), size=(200, 2)):
        gaps.append(left((first + second) / 2) - (left(first) + left(second)) / 2)
    assert min(gaps) >= -1e-12
    assert max(gaps) > 0.05  # so it is not convex


def test_differential_privacy_at_tight_success_needs_less_noise_on_a_mean() -> None:
    features = load_iris().data
    scaled = (features - features.min(axis=0)) / np.ptp(features, axis=0)
    pool = Balanced(n_subsets=32).draw(len(scaled), rng=0)
    values = np.array([scaled[pool.rows(k)].mean(axis=0) for k in range(32)])
    for mi_nats in (1 / 16, 1 / 4):
        least = calibrate(values, pac.Information(mi_nats), rng=0).total_variance
        private = law_of_dp(4, mi_nats, sensitivity=2 / (len(scaled) // 2))
        assert private.total_variance < 0.4 * least
