"""Training on every candidate: models that are kept, for predictors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from pacprivacy._random import coerce_seed, public_generator
from pacprivacy._system import single_threaded
from pacprivacy.mechanism import Data
from pacprivacy.sample import Pool
from pacprivacy.simulation.run import RunFailure, coerce_for_run, explain_run_failure
from pacprivacy.simulation.workers import open_workers

Train = Callable[[tuple[Any, ...], np.random.Generator], Any]


def train_subsets(
    train: Train,
    data: Any,
    pool: Pool,
    *,
    n_jobs: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> tuple[Any, ...]:
    """Return ``train(rows of subset k, generator of subset k)`` for every subset; curator-only.

    Unlike :func:`run_mechanism` this keeps objects, such as fitted models, and measures nothing:
    whoever releases a function of them has to measure that function. The result does not depend on
    the workers; an error names the lowest-numbered subset that failed.
    """
    universe = coerce_for_run(pool, data)
    shared = (train, universe, pool, coerce_seed(rng))
    trained: dict[int, Any] = {}
    with open_workers(n_jobs) as workers:
        tasks = ((k,) for k in range(pool.n_subsets))
        with closing(workers.run(_train_one, shared, tasks)) as results:
            for k, result in results:
                trained[k] = result
    for k in range(pool.n_subsets):
        if isinstance(trained[k], RunFailure):
            raise trained[k].to_error()
    return tuple(trained[k] for k in range(pool.n_subsets))


def _train_one(shared: tuple[Train, Data, Pool, int], k: int) -> tuple[int, Any | RunFailure]:
    train, data, pool, seed = shared
    with single_threaded():
        try:
            return k, train(data.take(pool.rows(k)), public_generator(seed, "mechanism", k))
        except (Exception, SystemExit) as error:
            return k, explain_run_failure(k, error)
