"""Run the searches of [AF] many times and keep what they cost and what they reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from pacprivacy._random import SimulatedSource, public_generator
from pacprivacy.accuracy_first.above_threshold import Calibration
from pacprivacy.accuracy_first.output import LogisticProblem
from pacprivacy.accuracy_first.problem import Found
from pacprivacy.accuracy_first.ridge import RidgeProblem
from pacprivacy.accuracy_first.search import (
    Candidates,
    invert_theory,
    search_by_doubling,
    search_by_reduction,
)
from papers.accuracy_first.data import STUDIES, Study

__all__ = ["CALIBRATIONS", "GAMMA", "METHODS", "N_LEVELS", "SearchRow", "measure_study"]

GAMMA: Final = 0.1
N_LEVELS: Final = 1000
CALIBRATIONS: Final[tuple[Calibration, ...]] = ("tight", "theorem")
METHODS: Final = (*CALIBRATIONS, "doubling", "printed", "sure")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """What one method cost and reached at one accuracy, over some runs.

    ``epsilon`` is the mean ex-post loss, the sum of ``test_epsilon`` and ``level_epsilon``;
    ``share_accurate`` the share of runs with an excess risk of at most ``alpha``. ``norm`` is of
    the models released, ``norm_without_noise`` of the optimum.
    """

    study: str
    n_records: int
    n_features: int
    penalty: float
    method: str
    alpha: float
    gamma: float
    epsilon: float
    standard_error: float
    test_epsilon: float
    level_epsilon: float
    excess_risk: float
    largest_excess: float
    share_accurate: float
    share_accepted: float
    level: float
    n_levels: int
    norm: float
    norm_without_noise: float
    n_runs: int


def measure_study(name: str, alphas: tuple[float, ...], n_runs: int, seed: int) -> list[SearchRow]:
    """Return one row for every accuracy and method."""
    study = STUDIES[name]
    with threadpool_limits(limits=1):
        problem = study.prepare(seed)
        return [row for alpha in alphas for row in _measure(study, problem, alpha, n_runs, seed)]


def _measure(
    study: Study,
    problem: RidgeProblem | LogisticProblem,
    alpha: float,
    n_runs: int,
    seed: int,
) -> Iterator[SearchRow]:
    n_features = len(problem.best)
    printed = study.printed_epsilon(alpha, problem.n_records, n_features)
    sure = study.sure_epsilon(alpha, GAMMA, problem.n_records, n_features)
    found: dict[str, list[Found]] = {method: [] for method in METHODS}
    for run in range(n_runs):
        # The stream is named by its cell, so results do not depend on which others are run.
        stream = public_generator(seed, study.name, round(1e6 * alpha), run)
        source = SimulatedSource(stream)
        # The two tests look at the same candidates: half the work, and a paired comparison.
        candidates = Candidates(problem, alpha=alpha, n_levels=N_LEVELS, source=source)
        for calibration in CALIBRATIONS:
            found[calibration].append(
                search_by_reduction(
                    candidates, alpha=alpha, gamma=GAMMA, calibration=calibration, source=source
                )
            )
        found["doubling"].append(
            search_by_doubling(problem, alpha=alpha, gamma=GAMMA, source=source)
        )
        found["printed"].append(invert_theory(problem, epsilon=printed, source=source))
        found["sure"].append(invert_theory(problem, epsilon=sure, source=source))
    for method in METHODS:
        yield _summarise(study, problem, method, alpha, found[method])


def _summarise(
    study: Study,
    problem: RidgeProblem | LogisticProblem,
    method: str,
    alpha: float,
    found: list[Found],
) -> SearchRow:
    losses = np.array([run.epsilon for run in found])
    models = np.array([run.model for run in found])
    excess = problem.excess_risk(models)
    return SearchRow(
        study=study.name,
        n_records=problem.n_records,
        n_features=len(problem.best),
        penalty=study.penalty,
        method=method,
        alpha=alpha,
        gamma=GAMMA,
        epsilon=float(losses.mean()),
        standard_error=float(losses.std(ddof=1) / np.sqrt(len(losses))),
        test_epsilon=float(np.mean([run.test_epsilon for run in found])),
        level_epsilon=float(np.mean([run.level_epsilon for run in found])),
        excess_risk=float(excess.mean()),
        largest_excess=float(excess.max()),
        share_accurate=float((excess <= alpha).mean()),
        share_accepted=float(np.mean([run.accepted for run in found])),
        level=float(np.mean([run.level for run in found])),
        n_levels=found[0].n_levels,
        norm=float(np.linalg.norm(models, axis=1).mean()),
        norm_without_noise=float(np.linalg.norm(problem.best)),
        n_runs=len(found),
    )
