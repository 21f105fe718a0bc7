"""Simulated releases with fixed seeds: what ``golden/test_same_numbers.py`` holds on to.

A case is a function that releases something and returns what left: releases, certificates, arrays
and numbers, in dictionaries and lists. What is released is called ``value`` or ``values``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy import design, dp, mechanism, noise, residual, statistics
from pacprivacy._random import SimulatedSource, SystemSource
from pacprivacy.audit import audit
from pacprivacy.cli import app
from pacprivacy.dp import accuracy_first
from pacprivacy.ledger import Ledger
from pacprivacy.theory import gaussian_delta, gaussian_parameter
from papers.residual.equilibrium import anisotropy, budget_curve
from papers.residual.examples import example_outputs
from papers.residual.laws import law_of_dp, law_of_rule

# --- doors: how the library is seeded and read; with the imports, what a new name touches first --

JOBS: int | None = None  # worker processes; the numbers do not depend on it


def seeded(seed: int = 1) -> dict[str, Any]:
    """Settings with which ``privatize`` and ``Session`` simulate."""
    return {"rng": seed, "simulate": True, "n_jobs": JOBS}


SIMULATED: dict[str, Any] = {"rng": 1, "simulate": True}


def seeded_fit(seed: int = 1) -> dict[str, Any]:
    """Settings with which an estimator simulates."""
    return {"random_state": seed, "simulate": True}


def seeded_dp(seed: int = 1) -> dict[str, Any]:
    """Settings with which a function of ``pacprivacy.dp`` simulates."""
    return {"simulate": seed}


@contextmanager
def seeded_system(seed: int = 1) -> Iterator[None]:
    """Seed the operating system's randomness, for what refuses to be simulated."""
    source = SimulatedSource(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemSource, "words", lambda self, size: source.words(size))
        yield


def odometer(session: Any) -> dict[str, Any]:
    """What a session has spent and what has been learned."""
    seen = session.odometer()
    return {
        "n_releases": seen.spent.n_releases,
        "spent_nats": seen.spent.mi_nats,
        "total_nats": seen.total.mi_nats,
        "spent_success": seen.spent.success_increment,
        "total_success": seen.total.success_level,
        "learned_nats": seen.learned_nats,
        "best_guess_now": seen.best_guess_now,
    }


# --- cases -------------------------------------------------------------------------------------
# Everything of the library is called inside a function, so that a new name touches one case.

Case = Callable[[], Any]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__.replace("_", " ")] = function
    return function


def draw_table(n: int, seed: int) -> tuple[Any, Any, Any]:
    """Return features, a target and two classes that depend on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 2.0, 0.5] + [0.0, 1.0, -1.0]
    target = X @ [1.0, -0.5, 0.25] + 0.3 * rng.normal(size=n)
    return X, target, (target + 0.2 * rng.normal(size=n) > target.mean()).astype(int)


X, TARGET, LABELS = draw_table(24, 0)
THREE = np.digitize(TARGET, np.quantile(TARGET, [0.33, 0.66]))
SIGNS = np.where(LABELS == 1, 1.0, -1.0)
CENTRED = X - X.mean(axis=0)
UNITS = np.arange(24) // 2
ASKED = draw_table(30, 1)[0]
TREE = DecisionTreeClassifier(max_depth=2, random_state=0)
SMALL: dict[str, Any] = {"n_subsets": 16}

INFORMATION = pac.Information(1 / 4)
MEMBERSHIP = pac.Membership(0.7)


def column_means(rows: Any) -> Any:
    return rows.mean(axis=0)


def summary(rows: Any) -> dict[str, Any]:
    return {"mean": rows.mean(axis=0)[:2], "spread": float(rows.std()), "top": [rows[:, 0].max()]}


def pair(X: Any, y: Any) -> tuple[Any, float]:
    return X[y == 1].mean(axis=0), float(y.mean())


def noisy_fit(X: Any, y: Any, rng: Any) -> Any:
    return (X + 0.01 * rng.normal(size=X.shape)).T @ y / len(y)


def least_squares(X: Any, y: Any) -> Any:
    return LinearRegression().fit(X, y)


def majority(X: Any, y: Any) -> int:
    return int(y.mean() > 0.5)


def release(what: Any, data: Any, budget: Any = INFORMATION, **settings: Any) -> Any:
    return pac.privatize(what, data, budget, **(SMALL | seeded() | settings))


# Every kind of output.

OUTPUTS: dict[str, tuple[Callable[[], Any], Any]] = {
    "mean": (lambda: statistics.Mean(), X),
    "covariance": (lambda: statistics.Covariance(), X[:, :2]),
    "histogram": (lambda: statistics.Histogram(bins=4, ranges=(-3.0, 3.0)), X[:, 0]),
    "k-means": (lambda: mechanism.KMeans(n_clusters=2), X),
    "k-means by labels": (lambda: mechanism.KMeans(order="labels", n_init=2), (X, LABELS)),
    "pca": (lambda: mechanism.PCA(n_components=2), X),
    "pca about the universe": (lambda: mechanism.PCA(n_components=1, center="universe"), X),
    "svm": (lambda: mechanism.LinearSVM(C=0.5), (X, LABELS)),
    "forest": (lambda: mechanism.Forest(n_estimators=2, max_depth=2), (X, LABELS)),
    "orthogonal ridge": (
        lambda: design.OrthogonalRidge(penalty=design.RidgePenalty(mi_nats=0.25)),
        (X, TARGET),
    ),
    "whitened ridge": (
        lambda: design.OrthogonalRidge(penalty=0.5, transform="whitening"),
        (X, TARGET),
    ),
    "logistic fit": (lambda: design.LogisticFit(penalty=0.2), (X, LABELS)),
    "estimator": (
        lambda: mechanism.EstimatorFit(estimator=LogisticRegression(C=0.3), seed=3),
        (X, LABELS),
    ),
    "pipeline": (
        lambda: mechanism.EstimatorFit(estimator=make_pipeline(StandardScaler(), Ridge())),
        (X, TARGET),
    ),
    "function of an estimator": (lambda: least_squares, (X, TARGET)),
    "dictionary": (lambda: summary, X),
    "tuple": (lambda: pair, (X, LABELS)),
    "function with public randomness": (lambda: noisy_fit, (X, TARGET)),
    "number": (lambda: np.median, TARGET),
    "number all agree on": (lambda: lambda rows: 7.0, TARGET),
    "decision": (lambda: majority, (X, LABELS)),
}
LONG_SEARCHES = ("k-means by labels", "pca about the universe", "function of an estimator")


def release_output(name: str, budget: Any = INFORMATION, **settings: Any) -> Any:
    make, data = OUTPUTS[name]
    return release(make(), data, budget, **settings)


for _name in OUTPUTS:
    _rule = "waterfill" if _name in LONG_SEARCHES else None
    CASES[f"output {_name}"] = partial(release_output, _name, rule=_rule)

# Every rule, on two outputs: a mean under information, and another under membership.

RULES: dict[str, tuple[Callable[[], Any], str]] = {
    "isotropic": (lambda: "isotropic", "k-means"),
    "isotropic_max": (lambda: "isotropic_max", "svm"),
    "diagonal": (lambda: "diagonal", "forest"),
    "spectral": (lambda: "spectral", "covariance"),
    "waterfill": (lambda: "waterfill", "dictionary"),
    "confidence": (lambda: "confidence", "tuple"),
    "exact": (lambda: "exact", "mean"),
    "risk": (lambda: "risk", "pca"),
    "auto confidence": (
        lambda: noise.AutoConfidence(security=1e-2, share=0.8, radius=2.0),
        "histogram",
    ),
    "exact of a cost": (lambda: noise.Exact(cost=[1.0, 4.0, 9.0]), "mean"),
    "protect": (lambda: noise.Protect([1.0, 0.0, 0.0]), "mean"),
    "shaped": (lambda: noise.Shaped(np.diag([1.0, 2.0, 0.5])), "mean"),
}
for _name, (_make, _other) in RULES.items():
    CASES[f"rule {_name}"] = lambda make=_make: release(column_means, X, rule=make())
    CASES[f"rule {_name}, {_other}, membership"] = lambda make=_make, name=_other: release_output(
        name, MEMBERSHIP, rule=make()
    )


def release_fresh(rule: Any, what: Any = column_means, pool: Any = None) -> Any:
    """Release about a subset that is drawn with the pool."""
    pool = pac.Half(n_subsets=64) if pool is None else pool
    return release(what, X, rule=rule, sample=pool, n_subsets=None)


BOX = {"low": -4.0, "high": 4.0}
CASES |= {
    "rule boxed diagonal": lambda: release_fresh(noise.Boxed(**BOX)),
    "rule boxed isotropic": lambda: release_fresh(
        noise.Boxed(**BOX, shape="isotropic", gamma=1e-3)
    ),
    "rule empirical diagonal": lambda: release_fresh(noise.Empirical()),
    "rule empirical isotropic": lambda: release_fresh(noise.Empirical(shape="isotropic")),
    "rule empirical isotropic_max": lambda: release_fresh(
        noise.Empirical(shape="isotropic_max", tolerance=1e-3)
    ),
    "rule empirical, poisson": lambda: release_fresh(
        noise.Empirical(), summary, pac.Poisson(n_subsets=64)
    ),
}

# Every budget.

BUDGETS: dict[str, Callable[[], Any]] = {
    "information": lambda: pac.Information(0.02),
    "more than the secret holds": lambda: pac.Information(50.0),
    "membership": lambda: pac.Membership(0.6),
    "both": lambda: pac.Membership(0.65) & pac.Information(1 / 2),
    "epsilon": lambda: pac.EpsilonEquivalent(1.0),
    "residual share": lambda: pac.ResidualEntropy(share=0.9),
    "residual nats": lambda: pac.ResidualEntropy(nats=2.0),
    "read": lambda: pac.parse_budget("mi<=1/8 & membership<=62%"),
}
for _name, _make in BUDGETS.items():
    CASES[f"budget {_name}"] = lambda make=_make: release(column_means, X[:, :2], make())

# Every pool.


def release_from(pool: Any, what: Any = column_means, data: Any = X, **settings: Any) -> Any:
    return release(what, data, sample=pool, n_subsets=None, rule="waterfill", **settings)


CASES |= {
    "pool balanced": lambda: release_from(pac.Balanced(n_subsets=20)),
    "pool independent": lambda: release_from(pac.Balanced(n_subsets=20, independent=True)),
    "pool half": lambda: release_from(pac.Half(n_subsets=20)),
    "pool poisson": lambda: release_from(pac.Poisson(n_subsets=20, rate=0.4)),
    "pool ready": lambda: release_from(pac.Balanced(n_subsets=12).draw(24, rng=5)),
    "pool units": lambda: release_from(pac.Balanced(n_subsets=16), units=UNITS),
    "pool half of units": lambda: release_from(pac.Half(n_subsets=20), units=UNITS),
    "pool stratified": lambda: release_from(
        pac.Balanced(n_subsets=16, stratify=True), mechanism.LinearSVM(), (X, LABELS)
    ),
    "pool half of every class": lambda: release_from(
        pac.Half(n_subsets=16, every_class=True), mechanism.KMeans(order="labels"), (X, LABELS)
    ),
}

# Sessions.


def session_of(
    total: Any, *asked: tuple[Any, Any, Any], data: Any = X, **settings: Any
) -> dict[str, Any]:
    with pac.Session(data, budget=total, **(SMALL | seeded() | settings)) as session:
        made = [session.release(what, share, rule=rule) for what, share, rule in asked]
        return {"releases": made, "odometer": odometer(session)}


@case
def session_of_information() -> Any:
    with pac.Session(X, budget=pac.Information(1.0), **SMALL, **seeded()) as session:
        first = session.release(column_means, pac.Information(1 / 4))
        wide = int(np.argmax(np.abs(first.value)))  # chosen after seeing the first
        second = session.release(lambda rows: rows[:, wide].var(), pac.Information(1 / 4))
        third = session.release(summary, pac.Information(1 / 2), rule="waterfill")
        return {"releases": [first, second, third], "odometer": odometer(session)}


CASES |= {
    "session of membership": lambda: session_of(
        pac.Membership(0.65),
        (column_means, pac.Membership(0.55), "risk"),
        (np.median, pac.Membership(0.6), "diagonal"),
    ),
    "session of both": lambda: session_of(
        pac.Membership(0.8) & pac.Information(1.0),
        (column_means, pac.Membership(0.6) & pac.Information(1 / 2), None),
        (statistics.Covariance(), pac.Membership(0.7) & pac.Information(1 / 4), "waterfill"),
    ),
    "session of units": lambda: session_of(
        pac.Information(1.0),
        (column_means, INFORMATION, "waterfill"),
        (mechanism.KMeans(n_clusters=2), INFORMATION, None),
        units=UNITS,
    ),
}


def closeness(value: Any, known: Any) -> float:
    return -float(np.abs(np.asarray(value) - known).max())


def near(score: float) -> Any:
    return pac.Accuracy(at_least=score, on=X.mean(axis=0), metric=closeness)


def gradual(found: Any) -> dict[str, Any]:
    return {
        "value": found.value,
        "certificate": found.certificate,
        "reached": found.reached,
        "scores": [[look.score, look.cautious] for look in found.looks],
        "values": [step.value for step in found.steps],
        "spent_nats": found.spent.mi_nats,
        "learned_nats": found.certificate.composition["learned_nats"],
    }


@case
def session_refined() -> Any:
    with pac.Session(X, budget=pac.Information(4.0), **SMALL, **seeded()) as session:
        before = session.release(np.median, INFORMATION, rule="waterfill")
        found = session.refine(column_means, pac.Information(3.0), near(-0.9), rule="waterfill")
        return {"before": before, **gradual(found), "odometer": odometer(session)}


@case
def session_in_a_ledger() -> Any:
    with tempfile.TemporaryDirectory() as folder, seeded_system(4):
        place = {"ledger": Path(folder) / "study.db", "dataset": "people", "principal": "ann"}
        with pac.Session(X, budget=pac.Information(1.0), **SMALL, rng=2, **place) as session:
            first = session.release(column_means, INFORMATION, rule="waterfill")
        with pac.Session.resume(X, rng=3, **place) as session:
            second = session.release(column_means, INFORMATION, rule="waterfill")
            seen = odometer(session)
        balances = Ledger(place["ledger"]).balance("people", "ann")
        left = [balance.left.mi_nats for balance in balances]
        return {"releases": [first, second], "odometer": seen, "left": left}


CASES |= {
    "target under information": lambda: gradual(
        release(column_means, X, pac.Information(2.0), target=near(-0.9), levels=3)
    ),
    "target under membership": lambda: gradual(
        release(column_means, X, MEMBERSHIP, target=near(0.0), levels=2, rule="diagonal")
    ),
}

# Answers of one secret model.


def answers(output: str, labels: Any, estimator: Any, budget: Any) -> Any:
    model = pac.PrivatePredictor(
        estimator,
        n_subsets=12,
        query_budget=pac.Information(0.01),
        budget=budget,
        output=output,
        **seeded_fit(),
    ).fit(X, labels)
    parts = [model.answer(ASKED[:10]), model.answer(ASKED[10:13])]
    shares = model.predict_proba(ASKED[13:20])
    labelled = model.predict(ASKED[20:])
    seen = model.odometer()
    return {
        "values": [*parts, shares, labelled],
        "certificate": model.certificate_,
        "odometer": {
            "n_queries": seen.spent.n_releases,
            "n_free": seen.n_free,
            "spent_nats": seen.spent.mi_nats,
            "total_nats": seen.total.mi_nats,
            "success_bound": seen.success_bound,
            "learned_nats": seen.learned_nats,
            "best_guess_now": seen.best_guess_now,
            "mean_guess_now": seen.mean_guess_now,
            "belief": seen.belief,
        },
    }


CASES |= {
    "predictor, votes of two classes": lambda: answers(
        "one_hot", LABELS, TREE, pac.Information(1.0)
    ),
    "predictor, votes of three classes": lambda: answers(
        "one_hot", THREE, TREE, pac.Information(1.0)
    ),
    "predictor, probabilities": lambda: answers(
        "score", LABELS, LogisticRegression(), pac.Information(1.0)
    ),
}

# Algorithms that know of the noise to come.


def descent(**settings: Any) -> Any:
    plan = design.Descent(objective=design.Objective(penalty=0.2), n_steps=6, **settings)
    run = design.descend((CENTRED, SIGNS), pac.Information(1.0), plan, **SMALL, **SIMULATED)
    return {
        "value": run.weights,
        "values": run.path,
        "budgets": run.budgets,
        "charges": run.charges,
        "certificate": run.certificate,
    }


CASES |= {
    "descent, logistic": lambda: descent(),
    "descent, post-hoc": lambda: descent(step="post-hoc"),
}


@case
def descent_in_a_session() -> Any:
    objective, weights, made = design.Objective(penalty=0.1), np.zeros(3), []
    data = (CENTRED, SIGNS)
    with pac.Session(data, budget=pac.Information(1.0), **SMALL, **seeded()) as session:
        for _ in range(2):
            gradient = design.DescentGradient(objective=objective, weights=weights)
            made.append(session.release(gradient, INFORMATION, rule="waterfill"))
            weights = weights - 0.5 * made[-1].value
        return {"values": weights, "releases": made, "odometer": odometer(session)}


@case
def tuned_parameter() -> Any:
    found = design.tune_budgets(
        lambda bound: lambda rows: np.clip(rows, -bound, bound).mean(),
        [0.5, 1.0, 4.0],
        TARGET,
        [pac.Information(0.01), pac.Information(1.0)],
        lambda value: -(float(value) ** 2),
        rule="waterfill",
        n_releases=50,
        rng=1,
        **SMALL,
    )
    points = [
        [p.theta, p.utility, p.standard_error, p.no_noise, p.noise_variance, p.mi_upper_nats]
        for result in found
        for p in result.points
    ]
    return {"points": points, "release": release(found[0].mechanism(), TARGET, rule="waterfill")}


# Private estimators.


def attributes(model: Any) -> dict[str, Any]:
    """What a fitted estimator has learned, without its certificate."""
    left_out = ("certificate_", "release_", "run_")
    return {
        name: value
        for name, value in vars(model).items()
        if name.endswith("_") and not name.startswith("_") and name not in left_out
    }


def fit(kind: Any, *args: Any, on: tuple[Any, ...], **settings: Any) -> Any:
    model = kind(*args, **(SMALL | seeded_fit() | {"budget": INFORMATION} | settings))
    model.set_params(n_jobs=JOBS).fit(*on)
    return {"values": attributes(model), "certificate": model.certificate_}


CASES |= {
    "fit estimator": lambda: fit(pac.PrivateEstimator, Ridge(alpha=2.0), on=(X, TARGET)),
    "fit estimator, released": lambda: fit(
        pac.PrivateEstimator,
        SklearnKMeans(2, n_init=1),
        released=["cluster_centers_"],
        on=(X,),
    ),
    "fit forest": lambda: fit(pac.PrivateForestClassifier, 2, max_depth=2, on=(X, LABELS)),
    "fit k-means": lambda: fit(pac.PrivateKMeans, 2, on=(X,)),
    "fit svm": lambda: fit(pac.PrivateLinearSVC, 0.5, on=(X, LABELS)),
    "fit svm of three classes": lambda: fit(pac.PrivateLinearSVC, 0.5, on=(X, THREE)),
    "fit logistic": lambda: fit(pac.PrivateLogisticRegression, 0.2, on=(X, LABELS)),
    "fit pca": lambda: fit(pac.PrivatePCA, 2, on=(X,)),
    "fit ridge": lambda: fit(pac.PrivateRidge, on=(X, TARGET)),
    "fit ridge post-hoc": lambda: fit(
        pac.PrivateRidge, "post-hoc", rule="waterfill", on=(X, TARGET)
    ),
    "fit ridge of a penalty": lambda: fit(pac.PrivateRidge, 0.5, on=(X, TARGET)),
    "fit with a target": lambda: fit(
        pac.PrivateRidge,
        0.5,
        budget=pac.Information(2.0),
        target=pac.Accuracy(at_least=0.5, on=(X, TARGET)),
        levels=3,
        on=(X, TARGET),
    ),
}


# Differential privacy.

DP_X, DP_TARGET, DP_LABELS = draw_table(400, 2)
BOUNDED = DP_X / 8.0
NUMBERS = np.array([[3.0, -1.0], [0.5, 100.0]])
PURE: dict[str, Any] = {"epsilon": 0.8, "neighbours": "replace"}
MIXED: dict[str, Any] = {**PURE, "delta": 1e-5}
BOUNDS: dict[str, Any] = {"x_bound": 4.0, "y_bound": 4.0}
MARGINS: dict[str, Any] = {"classes": (0, 1), "penalty": 8.0, "x_bound": 2.0}
BLOCKS: dict[str, Any] = {"n_blocks": 20, "size": 3, "epsilon": 2.0}


def sgd(batch: Any = None, loss: Any = None, labels: Any = DP_LABELS, n_steps: int = 8) -> Any:
    steps = dp.Steps(n_steps=n_steps, learning_rate=1.0, clip_norm=0.5, average=loss is not None)
    return dp.dp_sgd(
        BOUNDED,
        labels,
        loss=dp.Logistic(classes=(0, 1)) if loss is None else loss,
        epsilon=2.0,
        delta=1e-5,
        x_bound=1.0,
        batch=dp.FullBatch(n_public=400) if batch is None else batch,
        steps=steps,
        **seeded_dp(),
    )


CASES |= {
    "dp laplace": lambda: dp.laplace(NUMBERS, sensitivity=0.5, **PURE, **seeded_dp()),
    "dp gaussian, analytic": lambda: dp.gaussian(NUMBERS, sensitivity=0.5, **MIXED, **seeded_dp()),
    "dp sum": lambda: dp.private_sum(DP_X, clip_norm=2.0, **PURE, **seeded_dp()),
    "dp sum, gaussian": lambda: dp.private_sum(DP_X, clip_norm=2.0, **MIXED, **seeded_dp()),
    "dp mean": lambda: dp.private_mean(DP_X, clip_norm=2.0, **PURE, **seeded_dp()),
    "dp mean, gaussian": lambda: dp.private_mean(
        DP_X, clip_norm=2.0, **(MIXED | {"neighbours": "add_remove"}), n_public=390, **seeded_dp()
    ),
    "dp exponential": lambda: [
        dp.exponential(
            [0.0, 1.0, 1.5, 1.4],
            sensitivity=0.5,
            **(PURE | {"neighbours": "add_remove"}),
            monotone=seed % 2 == 0,
            **seeded_dp(seed),
        )
        for seed in range(6)
    ],
    "dp gd": lambda: dp.dp_sgd(
        BOUNDED,
        DP_LABELS,
        loss=dp.Logistic(classes=(0, 1)),
        epsilon=2.0,
        delta=1e-5,
        x_bound=1.0,
        steps=dp.Steps(n_steps=8, learning_rate=1.0, clip_norm=0.5, penalty=0.01),
        batch=dp.FullBatch(n_public=400),
        **seeded_dp(),
    ),
    "dp sgd, full": lambda: sgd(),
    "dp sgd, poisson": lambda: sgd(dp.PoissonBatch(size=40, n_public=400)),
    "dp sgd, fixed": lambda: sgd(dp.FixedBatch(size=40)),
    "dp sgd, replacement": lambda: sgd(dp.ReplacementBatch(size=40), n_steps=2),
    "dp sgd, squared loss": lambda: sgd(loss=dp.Squared(y_bound=3.0), labels=DP_TARGET),
    "dp sgd, hinge loss": lambda: sgd(loss=dp.Hinge(classes=(0, 1))),
    "dp sgd, softmax loss": lambda: sgd(loss=dp.Softmax(classes=(0, 1))),
    "dp output": lambda: dp.output_perturbation(DP_X, DP_LABELS, **MARGINS, **PURE, **seeded_dp()),
    "dp output, gaussian": lambda: dp.output_perturbation(
        DP_X, DP_LABELS, **MARGINS, **MIXED, **seeded_dp()
    ),
    "dp objective": lambda: dp.objective_perturbation(
        DP_X, DP_LABELS, **MARGINS, **MIXED, **seeded_dp()
    ),
    "dp statistics": lambda: dp.regression_from_statistics(
        DP_X, DP_TARGET, **BOUNDS, penalty=5.0, epsilon=1.0, **seeded_dp()
    ),
    "dp statistics, gaussian": lambda: dp.regression_from_statistics(
        DP_X, DP_TARGET, **BOUNDS, penalty=5.0, epsilon=1.0, delta=1e-5, **seeded_dp()
    ),
    "dp aggregate, mean": lambda: dp.subsample_aggregate(
        column_means,
        (DP_X,),
        **BLOCKS,
        aggregator=dp.MeanAggregator(clip_norm=3.0),
        **seeded_dp(),
    ),
    "dp aggregate, mean, gaussian": lambda: dp.subsample_aggregate(
        column_means,
        (DP_X,),
        **BLOCKS,
        aggregator=dp.MeanAggregator(clip_norm=3.0),
        delta=1e-5,
        **seeded_dp(),
    ),
    "dp aggregate, median": lambda: dp.subsample_aggregate(
        column_means,
        (DP_X,),
        **BLOCKS,
        aggregator=dp.MedianAggregator(bounds=(-3.0, 3.0), n_points=101),
        **seeded_dp(),
    ),
}


@case
def dp_adassp() -> Any:
    found = dp.adassp(DP_X, DP_TARGET, epsilon=1.0, delta=1e-5, **BOUNDS, **seeded_dp())
    return {
        "value": found.value["coef"],
        "penalty": found.value["penalty"],
        "epsilon": found.certificate.epsilon,
        "delta": found.certificate.delta,
        "noise_std": tuple(found.certificate.noise.values()),
    }


@case
def dp_pate() -> Any:
    settings = {"classes": (0, 1), "n_teachers": 12, "neighbours": "replace"}
    votes = dp.count_pate_votes(TREE, DP_X, DP_LABELS, ASKED, **settings, source=SimulatedSource(3))
    made = dp.label_by_votes(votes, epsilon=3.0, delta=1e-5, neighbours="replace", **seeded_dp())
    return {"values": votes, "release": made}


@case
def dp_search() -> Any:
    rates = (0.1, 1.0)
    return dp.dp_search(
        BOUNDED,
        DP_LABELS,
        candidates=[dp.Steps(n_steps=5, learning_rate=r, clip_norm=0.5) for r in rates],
        score=lambda weights: float(((BOUNDED @ weights > 0) == DP_LABELS).mean()),
        loss=dp.Logistic(classes=(0, 1)),
        epsilon=2.0,
        delta=1e-5,
        x_bound=1.0,
        batch=dp.FullBatch(n_public=400),
        mean_runs=3.0,
        **seeded_dp(),
    )


@case
def dp_accounts() -> Any:
    events = {
        "laplace": dp.LaplaceEvent(noise_multiplier=5.0, count=4),
        "pure": dp.PureEvent(epsilon=0.1, count=10),
        "gaussian": dp.GaussianEvent(noise_multiplier=4.0, count=10),
        "poisson": dp.GaussianEvent(
            noise_multiplier=1.5, count=20, sampling=dp.PoissonSampling(rate=0.02)
        ),
    }
    batch = dp.PoissonBatch(size=20, n_public=1000)
    return {
        **{
            name: dict(dp.account(event, delta=1e-6, discretization=1e-2).epsilons)
            for name, event in events.items()
        },
        "epsilon": dp.dp_descent_epsilon(batch, 1000, n_steps=20, noise=2.0, delta=1e-5),
        "delta": gaussian_delta(1.0, 0.5),
        "parameter": gaussian_parameter(1.0, 1e-6),
        "score loss": dp.exponential_score_loss(8, sensitivity=1.0, epsilon=1.0, gamma=0.05),
        "penalty": dp.least_penalty(0.5, x_bound=2.0),
        "noise": dp.dp_search_noise(
            dp.FullBatch(n_public=5),
            5,
            n_steps=10,
            mean_runs=5.0,
            epsilon=2.0,
            delta=1e-5,
        ),
    }


def fit_dp(kind: Any, *args: Any, on: Any, **settings: Any) -> Any:
    model = kind(*args, epsilon=2.0, delta=1e-5, **settings, **seeded_fit()).fit(DP_X, on)
    return {"values": attributes(model), "certificate": model.certificate_}


LINEAR: dict[str, Any] = {"on": DP_TARGET, "alpha": 5.0, **BOUNDS}
LOGISTIC: dict[str, Any] = {
    "on": DP_LABELS,
    "classes": (0, 1),
    "x_bound": 4.0,
    "n_public": 400,
    "n_steps": 8,
}
CASES |= {
    "dp fit linear, adassp": lambda: fit_dp(dp.DPLinearRegression, **LINEAR),
    "dp fit linear, statistics": lambda: fit_dp(dp.DPLinearRegression, "statistics", **LINEAR),
    "dp fit logistic, descent": lambda: fit_dp(
        dp.DPLogisticRegression, method="descent", **LOGISTIC
    ),
    "dp fit logistic, objective": lambda: fit_dp(
        dp.DPLogisticRegression, method="objective", **LOGISTIC
    ),
    "dp fit logistic, output": lambda: fit_dp(dp.DPLogisticRegression, method="output", **LOGISTIC),
    "dp fit sgd": lambda: fit_dp(
        dp.DPSGDClassifier, batch_size=40, fit_intercept=False, **LOGISTIC
    ),
}

# Accuracy first.

ROWS = draw_table(3000, 3)[0] / 12.0
RISE = np.clip(ROWS @ [1.0, -0.5, 0.2], -1, 1)


def least_loss(kind: str, way: str | None = None) -> Any:
    asked = {"penalty": 0.05, "x_bound": 1.0, "n_levels": 40}
    if kind == "CovNR":
        method, y = accuracy_first.CovNR(alpha=0.05, y_bound=1.0, **asked), RISE
    else:
        method, y = accuracy_first.OutputNR(alpha=0.1, **asked), np.where(RISE > 0, 1, -1)
    searches = {None: "reduction", "DoublingMethod": "doubling", "TheoryInversion": "theory"}
    return method.release(ROWS, y, search=searches[way], **seeded_dp())


for _name in ("CovNR", "OutputNR"):
    for _way in (None, "DoublingMethod", "TheoryInversion"):
        CASES[f"accuracy first, {_name}, {_way}"] = partial(least_loss, _name, _way)


@case
def accuracy_first_noise_reduction() -> Any:
    gradual = accuracy_first.NoiseReduction(
        np.array([1.0, 2.0]),
        sensitivity=1.0,
        epsilons=accuracy_first.geometric_levels(0.1, 4.0, 4),
        neighbours="replace",
        **seeded_dp(),
    )
    return [gradual.refine() for _ in range(4)]


@case
def accuracy_first_threshold() -> Any:
    plan = accuracy_first.plan_threshold(0.1, gamma=0.1, n_levels=50, sensitivity=1e-3)
    counts = []
    for seed in range(10):
        search = accuracy_first.InteractiveAboveThreshold(
            threshold=plan.threshold,
            sensitivity=1e-3,
            epsilon=plan.epsilon,
            source=SimulatedSource(seed),
        )
        said = [
            query for query in np.linspace(-0.12, 0.0, 50) if search.is_over or search.ask(query)
        ]
        counts.append(len(said))
    return {"values": counts, "plan": [plan.threshold, plan.epsilon, plan.gamma]}


# Residual privacy.


def plan_numbers(plan: Any) -> dict[str, Any]:
    return {
        "integers": [plan.units_per_std, plan.points],
        "grid_step": plan.grid_step,
        "total_variance": plan.total_variance,
        "mi_upper": plan.mi_upper,
        "rule": plan.rule,
    }


@case
def residual_quantities() -> Any:
    outputs = example_outputs("sign beside normal", n_subsets=16)
    plan = noise.calibrate(outputs, pac.Information(0.5), rule="waterfill", rng=1)
    left = residual.residual_privacy(outputs, plan, n_draws=20_000, rng=1)
    gaps = [
        residual.exact_gap(outputs, plan, n_draws=20_000, rng=1),
        residual.sliced_gap(outputs, plan, n_directions=64, rng=1),
        residual.variational_gap(
            outputs, plan, n_draws=20_000, n_train=4_000, n_features=32, rng=1
        ),
    ]
    return {
        "plan": plan_numbers(plan),
        "intrinsic": left.intrinsic,
        "residual": [left.residual.value, left.residual.lower, left.residual.upper],
        "entropy": [left.entropy.value, left.entropy.lower, left.entropy.upper],
        # the upper end of the two lower bounds is the log-determinant bound, which is elsewhere
        "gaps": [
            [gap.value, gap.lower, gap.upper if gap is gaps[0] else None, gap.n_draws]
            for gap in gaps
        ],
        "corrected": residual.corrected_budget(0.5, gaps[0]),
        "anisotropy": anisotropy(plan),
    }


@case
def residual_curves() -> Any:
    votes = example_outputs("votes", n_subsets=16)
    sign = example_outputs("sign beside normal", n_subsets=16)
    curve = budget_curve(votes, [0.2, 0.6], rule="waterfill", n_draws=4096, rng=1)
    joint = residual.joint_plan([votes, sign], 0.5, rule="waterfill", rng=1)
    baselines = [
        law_of_rule(str(rule), sign, rule, 0.5, 1)
        for rule in ("spectral", noise.AutoConfidence(security=1e-3, share=0.9), "diagonal")
    ]
    baselines.append(law_of_dp(2, 0.5, sensitivity=0.1))
    return {
        "curve": [curve.budgets, curve.true_mi, curve.noise, curve.uneven],
        "plan": plan_numbers(joint.plan),
        "joint": [*joint.noise_by_mechanism, joint.separate_variance],
        "baselines": [[b.covariance, b.claimed_nats] for b in baselines],
    }


# What is built on releases: audits, commands.


@case
def audited() -> Any:
    found = audit(release(column_means, X, rule="waterfill"), n_trials=200, rng=1)
    return {"hits": [[r.n_trials, r.successes, r.success.value, r.bound] for r in found]}


def command(words: str) -> Any:
    """Run ``pac`` on a table of the records; return what it says as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "people.csv"
        lines = ["a,b,c,target,label"]
        lines += [
            f"{a:.3f},{b:.3f},{c:.3f},{t:.3f},{'ny'[k]}"
            for (a, b, c), t, k in zip(X, TARGET, LABELS, strict=True)
        ]
        table.write_text("\n".join(lines) + "\n")
        said = words.replace("TABLE", str(table)).replace("FOLDER", str(Path(folder) / "out"))
        result = CliRunner().invoke(app, [*said.split(), "--json"])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        found.pop("files", None)
        return found


CASES |= {
    "pac release k-means": lambda: command(
        "release TABLE --model kmeans --columns a,b,c --clusters 2 --budget mi<=1/4 -o FOLDER"
        " --subsets 16 --seed 1 --simulate"
    ),
    "pac release ridge": lambda: command(
        "release TABLE --model ridge --columns a,b,c --target target --budget membership<=0.7"
        " -o FOLDER --subsets 16 --seed 1 --simulate"
    ),
    "pac plan": lambda: command(
        "plan TABLE --model svm --columns a,b,c --target label --subsets 16 --seed 1"
        " --budgets 60%,mi<=1/4"
    ),
    "pac convert": lambda: command("convert --mi 1/64"),
}


# Coins: sums of every kind, and a session of them.

MANY, MANY_TARGETS, _ = draw_table(400, 2)
COINS: dict[str, tuple[Any, Any]] = {
    "mean": (statistics.Mean(), MANY),
    "covariance": (statistics.Covariance(), MANY),
    "histogram": (statistics.Histogram(bins=[-9, -1, 0, 1, 9]), MANY[:, 0]),
    "function": (np.std, MANY_TARGETS),
}
for _name, (_statistic, _data) in COINS.items():
    CASES[f"coins, {_name}"] = lambda statistic=_statistic, data=_data: pac.privatize(
        statistic, data, MEMBERSHIP, sample=pac.Coins(), rng=0, simulate=True
    )


@case
def coins_of_people_in_a_session() -> Any:
    units = np.arange(400) // 2
    settings: dict[str, Any] = {"sample": pac.Coins(keep=0.8), "units": units}
    with pac.Session(MANY, budget=MEMBERSHIP, rng=0, simulate=True, **settings) as session:
        first = session.release(statistics.Mean(), share="1 of 3")
        second = session.release(statistics.Covariance(), share=0.5)
    return first, second
