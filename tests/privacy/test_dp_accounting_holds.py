"""Accounting that was once too small: each attack, and what holds now."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

import pacprivacy as pac
from pacprivacy import dp
from pacprivacy.dp import (
    DPCertificate,
    DPLogisticRegression,
)
from pacprivacy.dp.accuracy_first import CovNR, NoiseReduction
from pacprivacy.dp.descent import plan_dp_descent_noise
from pacprivacy.dp.events import events_of
from pacprivacy.errors import BudgetError, CertificateError
from pacprivacy.estimators import search_cost
from pacprivacy.theory import gaussian_delta, gaussian_parameter

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(600, 3))
TARGET = X @ [1.0, -1.0, 0.5]
LABELS = TARGET > 0

# --- Poisson batches of records that are replaced -------------------------------------------


def true_delta(epsilon: float, rate: float, first: float, second: float) -> float:
    """δ(ε) of one sum with noise 1, for a record that adds ``first`` or ``second`` if drawn."""
    low = min(0.0, first, second) - 12.0
    x = np.linspace(low, max(0.0, first, second) + 12.0, 20_001)
    none, one, other = (np.exp(-((x - at) ** 2) / 2) for at in (0.0, first, second))
    apart = rate * one - math.exp(epsilon) * rate * other - math.expm1(epsilon) * (1 - rate) * none
    return float(np.maximum(0.0, apart).sum() * (x[1] - x[0]) / math.sqrt(2 * math.pi))


@pytest.mark.claim("DP-4")
def test_poisson_batches_under_replacement_are_refused() -> None:
    # Numbers between 50 and 51, noise of deviation 1: replacing one moves a sum by 1.
    rate, delta = 0.01, 1e-5
    truth = float(brentq(lambda e: true_delta(e, rate, 51.0, 50.0) - delta, 0.0, 12.0))
    assert truth == pytest.approx(3.139, abs=1e-3)
    event = dp.GaussianEvent(noise_multiplier=1.0, sampling=dp.PoissonSampling(rate=rate))
    with pytest.raises(BudgetError, match="must be 'add_remove' for Poisson batches"):
        dp.account(event, delta=delta, neighbours="replace")  # said 0.20


# --- the exponential mechanism --------------------------------------------------------------


@pytest.mark.claim("DP-8")
def test_monotone_scores_are_refused_where_records_are_replaced() -> None:
    # Counts of two answers: to replace a record moves one from the first to the second.
    def chance(scores: list[float], epsilon: float) -> float:
        law = np.exp(epsilon * (np.array(scores) - max(scores)))  # with the noise of monotone
        return float(law[0] * (1 - law[1] / 2))

    ratio = chance([1.0, 0.0], 1.0) / chance([0.0, 1.0], 1.0)
    assert math.log(ratio) > 1.4  # at a promised 1
    with pytest.raises(BudgetError, match="monotone must be False for neighbours='replace'"):
        dp.exponential(
            [1.0, 0.0], sensitivity=1.0, epsilon=1.0, neighbours="replace", monotone=True
        )
    added = dp.exponential(
        [1.0, 0.0], sensitivity=1.0, epsilon=1.0, neighbours="add_remove", monotone=True
    )
    assert added.certificate.epsilon == 1.0


# --- the grid -------------------------------------------------------------------------------


@pytest.mark.claim("G-3")
@pytest.mark.claim("L-3")
@pytest.mark.parametrize(("epsilon", "delta"), [(8.0, 1e-6), (2.0, 1e-9), (16.0, 1e-7)])
def test_a_million_weights_in_five_thousand_steps_are_not_refused(
    epsilon: float, delta: float
) -> None:
    noise, _ = plan_dp_descent_noise(
        dp.FullBatch(n_public=50_000),
        50_000,
        n_steps=5000,
        n_weights=10**6,
        epsilon=epsilon,
        delta=delta,
    )
    fewer = math.sqrt(5000) / gaussian_parameter(epsilon, delta)
    assert noise == pytest.approx(fewer, rel=1e-6)  # and the grid costs no noise


# --- certificates that are composed ---------------------------------------------------------

COMMON: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
STEPS = dp.Steps(n_steps=4, learning_rate=0.5, clip_norm=1.0)
LOSS = dp.Logistic(classes=(False, True))
COVARIANCE = CovNR(alpha=0.1, penalty=0.05, x_bound=2.0, y_bound=2.0)


def descend(batch: Any) -> Any:
    return dp.dp_sgd(X, LABELS, loss=LOSS, x_bound=2.0, batch=batch, steps=STEPS, **COMMON)


RELEASES: dict[str, Callable[[], Any]] = {
    "laplace": lambda: dp.laplace(1.0, sensitivity=1.0, epsilon=1.0, neighbours="replace"),
    "two numbers": lambda: dp.laplace(
        [1.0, 2.0], sensitivity=1.0, epsilon=1.0, neighbours="replace"
    ),
    "gaussian": lambda: dp.gaussian(
        [1.0, 2.0], sensitivity=1.0, neighbours="replace", **COMMON
    ),
    "exponential": lambda: dp.exponential(
        [1.0, 2.0], sensitivity=1.0, epsilon=1.0, neighbours="replace"
    ),
    "sum": lambda: dp.private_sum(TARGET, clip_norm=1.0, epsilon=1.0, neighbours="add_remove"),
    "mean": lambda: dp.private_mean(X, clip_norm=1.0, neighbours="replace", **COMMON),
    "adassp": lambda: dp.adassp(X, TARGET, x_bound=2.0, y_bound=2.0, **COMMON),
    "statistics": lambda: dp.regression_from_statistics(
        X, TARGET, x_bound=2.0, y_bound=2.0, penalty=1.0, **COMMON
    ),
    "pure statistics": lambda: dp.regression_from_statistics(
        X, TARGET, x_bound=2.0, y_bound=2.0, penalty=1.0, epsilon=1.0
    ),
    "clipped mean": lambda: dp.subsample_aggregate(
        np.mean,
        (TARGET,),
        n_blocks=20,
        size=1,
        aggregator=dp.MeanAggregator(clip_norm=1.0),
        **COMMON,
    ),
    "grid median": lambda: dp.subsample_aggregate(
        np.median, (TARGET,), n_blocks=20, size=1, epsilon=1.0, delta=1e-6,
        aggregator=dp.MedianAggregator(bounds=(-1.0, 1.0), n_points=20),
    ),
    "output": lambda: dp.output_perturbation(
        X, LABELS, classes=(False, True), penalty=10.0, x_bound=2.0, **COMMON
    ),
    "objective": lambda: dp.objective_perturbation(
        X, LABELS, classes=(False, True), penalty=10.0, x_bound=2.0, **COMMON
    ),
    "full": lambda: descend(dp.FullBatch(n_public=600)),
    "poisson": lambda: descend(dp.PoissonBatch(size=30, n_public=600)),
    "fixed": lambda: descend(dp.FixedBatch(size=30)),
    "with replacement": lambda: descend(dp.ReplacementBatch(size=30)),
    "search": lambda: dp.dp_search(
        X, LABELS, loss=LOSS, x_bound=2.0, batch=dp.FullBatch(n_public=600), candidates=[STEPS],
        score=lambda w: float(w[0]), mean_runs=2.0, **COMMON,
    ),
    "votes": lambda: dp.label_by_votes(np.array([[9, 3]]), neighbours="replace", **COMMON),
    "theory": lambda: COVARIANCE.release(X, TARGET, search="theory"),
}  # fmt: skip


@pytest.mark.claim("DP-20")
@pytest.mark.parametrize("name", RELEASES)
def test_every_certificate_carries_an_event_that_is_worth_its_promise(name: str) -> None:
    release = RELEASES[name]()
    certificate = release.certificate
    assert certificate.events
    again = DPCertificate.from_dict(json.loads(certificate.to_json()))
    assert again == certificate
    assert events_of(again) == events_of(certificate)
    found = dp.account(release, delta=certificate.delta)
    assert found.neighbours == certificate.neighbours
    # Not more than promised, and not much less: the median wastes some.
    assert found.best[1] <= certificate.epsilon * (1 + 1e-3)
    assert found.best[1] > 0.7 * certificate.epsilon
    more = dp.account([certificate] * 3, delta=max(3 * certificate.delta, 1e-6)).best[1]
    assert certificate.epsilon < more < 3.001 * certificate.epsilon


@pytest.mark.claim("DP-20")
def test_losses_that_were_found_afterwards_are_composed_at_their_worst() -> None:
    gradual = NoiseReduction([1.0], sensitivity=1.0, epsilons=[0.1, 1.0, 4.0], neighbours="replace")
    first = gradual.refine()
    assert first.certificate.epsilon == 0.1
    assert dp.account(first, delta=0.0).best[1] == pytest.approx(4.0)
    for search in ("reduction", "doubling"):
        release = COVARIANCE.release(X, TARGET, search=search)
        assert dp.account(release, delta=0.0).best[1] >= release.certificate.epsilon
    bare = DPCertificate(
        epsilon=0.1, delta=0.0, neighbours="replace", mechanism="some", kind="dp-ex-post"
    )
    with pytest.raises(CertificateError, match="must carry its events"):
        dp.account(bare, delta=1e-6)


@pytest.mark.claim("DP-20")
def test_what_cannot_be_composed_is_refused() -> None:
    replaced = RELEASES["laplace"]().certificate
    added = RELEASES["sum"]().certificate
    with pytest.raises(CertificateError, match="one relation"):
        dp.account([replaced, added], delta=1e-6)
    with pytest.raises(CertificateError, match="one relation"):
        dp.account(replaced, delta=1e-6, neighbours="add_remove")
    with pytest.raises(BudgetError, match="delta must be above 0"):
        dp.account(RELEASES["gaussian"](), delta=0.0)
    with pytest.raises(BudgetError, match="events, certificates or releases"):
        dp.account([replaced, 3.0], delta=1e-6)  # type: ignore[list-item]
    for forged in ({"event": "magic"}, {"event": "pure", "epsilon": -1.0}, 7, {"epsilon": 1.0}):
        plain = replaced.to_public_dict() | {"events": [forged]}
        with pytest.raises(CertificateError, match=r"events must be those|of the right types"):
            dp.account(DPCertificate.from_dict(plain), delta=1e-6)
    noiseless = DPCertificate(epsilon=math.inf, delta=0.0, neighbours="replace", mechanism="none")
    with pytest.raises(CertificateError, match="must carry its events"):
        dp.account(noiseless, delta=1e-6)
    seeded = dp.laplace(1.0, sensitivity=1.0, epsilon=1.0, neighbours="replace", simulate=0)
    assert "SIMULATION" in str(dp.account([replaced, seeded], delta=1e-6))


# --- fits that are searched -----------------------------------------------------------------

GRID = {"learning_rate": [1.0, 2.0, 4.0, 8.0]}


def searched() -> GridSearchCV:
    told: dict[str, Any] = {"x_bound": 2.0, "classes": (False, True), "neighbours": "replace"}
    model = DPLogisticRegression(method="descent", n_steps=10, **told, **COMMON)
    return GridSearchCV(model, GRID, cv=KFold(5)).fit(X, LABELS)


@pytest.mark.claim("DP-23")
def test_twenty_one_fits_cost_more_than_one() -> None:
    search = searched()
    one = search.best_estimator_.certificate_
    assert one.epsilon == 1.0
    assert any("this certificate covers one release" in said for said in one.not_promised)
    cost = search_cost(search)
    assert cost.n_releases == 21
    assert cost.delta == pytest.approx(21e-6)
    # 21 Gaussian mechanisms, by the closed form: their promises allow at least that.
    parameter = math.sqrt(21) * gaussian_parameter(1.0, 1e-6)
    exact = float(brentq(lambda e: gaussian_delta(e, parameter) - 21e-6, 0.1, 20.0))
    assert exact <= cost.epsilon <= 21.0
    promised = [dp.ApproximateEvent(epsilon=1.0, delta=1e-6, count=20)]
    assert cost.epsilon > 0.99 * dp.account(promised, delta=20e-6, neighbours="replace").best[1]
    assert search_cost(search, delta=1e-3).epsilon < cost.epsilon


@pytest.mark.claim("DP-23")
def test_fits_whose_relation_is_unknown_are_refused() -> None:
    unrefitted = GridSearchCV(
        DPLogisticRegression(
            method="descent", x_bound=2.0, classes=(False, True), neighbours="replace", n_steps=5
        ),
        {"learning_rate": [1.0]},
        cv=KFold(2),
        refit=False,
    ).fit(X, LABELS)
    with pytest.raises(CertificateError, match="which neighbours its fits are about"):
        search_cost(unrefitted)


@pytest.mark.claim("DP-23")
def test_the_last_fit_counts_as_the_costliest_candidate() -> None:
    model = DPLogisticRegression(
        **COMMON | {"method": "output", "delta": 0.0, "x_bound": 2.0, "classes": (False, True)}
    )
    search = GridSearchCV(model, {"epsilon": [0.1, 0.5]}, cv=KFold(2)).fit(X, LABELS)
    cost = search_cost(search)
    assert (cost.n_releases, cost.delta) == (5, 0.0)
    assert cost.epsilon == pytest.approx(2 * 0.1 + 2 * 0.5 + 0.5)


@pytest.mark.filterwarnings("ignore:every fit of a search")
def test_pac_and_dp_are_not_added_up() -> None:
    model = make_pipeline(
        pac.PrivatePCA(2, budget=pac.Information(1.0), rule="waterfill", n_subsets=16),
        DPLogisticRegression(
            method="descent", x_bound=2.0, classes=(False, True), neighbours="replace", n_steps=5
        ),
    )
    grid = {"dplogisticregression__learning_rate": [1.0]}
    search = GridSearchCV(model, grid, cv=KFold(2)).fit(X, LABELS)
    with pytest.raises(CertificateError, match="private in one sense"):
        search_cost(search)
