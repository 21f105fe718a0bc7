"""Boosted trees: 10^5 answers of a PAC predictor, DP-EBM, and a student of PATE.

The predictor answers 10^5 questions (test rows, over and over, none from a cache) from one secret
of 128 boosted models; the DP methods publish a model. DP-EBM composes two Gaussian mechanisms (bins
and boosting); its advantage is that of both together.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from contenders.problem import (
    ADVANTAGES,
    N_DRAWS,
    N_SEEDS,
    Clock,
    DPMethod,
    Problem,
    Size,
    describe,
    fight_dp,
)
from pacprivacy._random import SimulatedSource, public_generator
from pacprivacy.dp import count_pate_votes, label_by_votes
from pacprivacy.dp.noise import dp_noise_source
from pacprivacy.errors import BudgetExceededError
from pacprivacy.sample import Balanced
from pacprivacy.session.responder import Responder
from pacprivacy.theory import gaussian_parameter, gaussian_success
from papers.responses.models import make_booster, split_dataset

N_SUBSETS, FOLDS, N_QUERIES = 128, 16, 100_000
QUERY_NATS = tuple(2.0**-power for power in (20, 22, 24, 26, 28))


def measure_answers(name: str, size: Size) -> dict[str, Any]:
    """Return the cell of one table."""
    X, others, y, y_others, coded = split_dataset(name)
    tuning, test = np.split(np.random.default_rng(0).permutation(len(others)), [len(others) // 3])
    clock = Clock()
    whole = make_booster(coded).fit(X, y)
    nonprivate = float(np.mean(whole.predict(others[test]) == y_others[test]))
    pac = _answer(X, y, others[test], y_others[test], coded, clock)
    problem = _rivals((X, y), (others[tuning], y_others[tuning]), (others[test], y_others[test]))
    rivals = fight_dp(replace(problem(coded), tuned=size.tuned), clock)
    rows = [{"advantage": level, "pool": pac[level], "dp": rivals[level]} for level in ADVANTAGES]
    return {
        "n_records": len(y),
        "without_privacy": nonprivate,
        "rows": rows,
        "cpu_seconds": clock.parts,
    }


def _answer(
    X: Any, y: Any, questions: Any, truth: Any, coded: list[int], clock: Clock
) -> dict[float, dict[str, Any]]:
    """Train one model for each candidate of one pool; answer with three seeds and score."""
    scores: dict[float, list[list[float]]] = {level: [] for level in ADVANTAGES}
    nats: dict[float, float] = {}
    pool = Balanced(n_subsets=N_SUBSETS, folds=FOLDS).draw(len(y), rng=1)
    votes = np.empty((N_SUBSETS, len(questions)), dtype=np.int8)
    for k in range(N_SUBSETS):
        inside = pool.mask(k)
        votes[k] = make_booster(coded).fit(X[inside], y[inside]).predict(questions)
    clock.lap("pool_training")
    passes = -(-N_QUERIES // len(truth))
    for level in ADVANTAGES:
        for seed in range(1, N_SEEDS + 1):
            drawn = []
            for draw in range(N_DRAWS):
                rng = public_generator(seed, "fight answers", draw)
                orders = [rng.permutation(len(truth)) for _ in range(passes)]
                order = np.concatenate(orders)[:N_QUERIES]
                released, nats[level] = _transcript(
                    pool, votes[:, order], level, nats.get(level, QUERY_NATS[0]), rng
                )
                drawn.append(float((released.argmax(axis=1) == truth[order]).mean()))
            scores[level].append(drawn)
    clock.lap("pool_releases")
    return {
        level: describe(scores[level])
        | {
            "method": f"predictor, {N_QUERIES} answers",
            "setting": f"{nats[level]:.3g} nats for each answer",
            "folds": FOLDS,
            "n_subsets": N_SUBSETS,
            "tried": len(QUERY_NATS),
            "without_noise": float((votes == truth).mean()),
            "unanimous_share": float((votes == votes[0]).all(axis=0).mean()),
            "needs": "the models stay with the curator; no settings tuned",
        }
        for level in ADVANTAGES
    }


def _transcript(
    pool: Any, votes: Any, level: float, nats: float, rng: np.random.Generator
) -> tuple[Any, float]:
    """Answer all questions at the largest price that fits, from this one downwards."""
    for price in [each for each in QUERY_NATS if each <= nats]:
        responder = Responder(
            pool,
            query_nats=price,
            total_nats=float("inf"),
            advantage=level,
            source=SimulatedSource(rng),
        )
        try:
            return responder.reply_votes(votes, n_classes=2).values, price
        except BudgetExceededError:
            continue
    raise BudgetExceededError("no price fits")


def _rivals(train: Any, tuning: Any, test: Any) -> Any:
    (X, y), (X_tuning, y_tuning), (X_test, y_test) = train, tuning, test
    delta = len(y) ** -1.5
    bounds = np.stack([X_tuning.min(axis=0), X_tuning.max(axis=0)], axis=1)  # of public rows

    def score(rows: Any, truth: Any) -> Any:
        return lambda predict: float(np.mean(predict(rows) == truth))

    def problem(coded: list[int]) -> Problem:
        levels = {j: int(X[:, j].max()) + 1 for j in coded}  # declared categories
        kinds = ["nominal" if j in coded else "continuous" for j in range(X.shape[1])]

        def boost(setting: Any, epsilon: float, seed: int) -> tuple[Any, float]:
            from interpret.privacy import DPExplainableBoostingClassifier

            n_rounds, rate = setting
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = DPExplainableBoostingClassifier(
                    feature_types=kinds,
                    epsilon=epsilon,
                    delta=delta,
                    privacy_bounds=bounds,
                    max_rounds=n_rounds,
                    learning_rate=rate,
                    random_state=seed,
                    n_jobs=1,
                ).fit(X, y)
            return fitted.predict, told(setting, epsilon)

        def told(setting: Any, epsilon: float) -> float:
            # A tenth of epsilon and half of delta pay for the bins, the rest for boosting.
            parts = [gaussian_parameter(share * epsilon, delta / 2) for share in (0.1, 0.9)]
            return 2 * gaussian_success(float(np.hypot(*parts))) - 1

        def encode(rows: Any) -> Any:
            low, high = bounds.T
            columns = [
                np.eye(levels[j])[rows[:, j].astype(int)]
                if j in levels
                else ((np.clip(rows[:, j], low[j], high[j]) - low[j]) / (high[j] - low[j]))[:, None]
                for j in range(rows.shape[1])
            ]
            return np.hstack(columns)

        votes: dict[Any, Any] = {}
        asked, encoded = encode(X_tuning), encode(X)

        def teach(setting: Any, epsilon: float, seed: int) -> tuple[Any, float]:
            n_teachers, n_questions = setting
            key = (n_teachers, seed // 10_000)  # teachers are trained once for each seed
            if key not in votes:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    votes[key] = count_pate_votes(
                        LogisticRegression(max_iter=200), encoded, y, asked, classes=(0, 1),
                        n_teachers=n_teachers, neighbours="add_remove",
                        source=dp_noise_source(key[1]), n_jobs=1,
                    )  # fmt: skip
            chosen = votes[key][:n_questions]
            release = label_by_votes(
                chosen, epsilon=epsilon, delta=delta, neighbours="add_remove", simulate=seed
            )
            labels = release.value
            if len(np.unique(labels)) == 1:
                constant = int(labels[0])
                return (lambda rows: np.full(len(rows), constant)), _told(release)
            student = LogisticRegression(C=0.1, max_iter=200).fit(asked[:n_questions], labels)
            return (lambda rows: student.predict(encode(rows))), _told(release)

        return Problem(
            data=None,
            n_records=len(y),
            delta=delta,
            tuning=score(X_tuning, y_tuning),
            test=score(X_test, y_test),
            larger_is_better=True,
            pac_make=lambda setting: None,
            pac_settings=(),
            dp_methods=(
                DPMethod(
                    name="DP-EBM",
                    settings=tuple(product((100, 300), (0.2, 0.5, 1.0))),
                    release=boost,
                    advantage=told,
                ),
                DPMethod(
                    name="PATE student",
                    settings=tuple(product((100, 300), (100, 400))),
                    release=teach,
                ),
            ),
            n_tuning_draws=2,
            dp_needs="ranges and categories; rounds and rate, or teachers and questions (tuned)",
        )

    return problem


def _told(release: Any) -> float:
    return 2 * release.certificate.membership_bound - 1
