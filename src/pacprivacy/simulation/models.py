"""Train something on every subset and keep what comes back, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.mechanism import Data, coerce_data
from pacprivacy.pool import Pool
from pacprivacy.simulation.backends import count_workers
from pacprivacy.simulation.threads import single_threaded
from pacprivacy.simulation.worker import Failure, explain

__all__ = ["Train", "train_subsets"]

Train = Callable[[tuple[Any, ...], np.random.Generator], Any]


def train_subsets(
    train: Train,
    data: Any,
    pool: Pool,
    *,
    n_jobs: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> tuple[Any, ...]:
    """Return ``train(rows of subset k, generator of subset k)`` for every subset, in order.

    Unlike :func:`run_mechanism` this keeps objects, such as fitted models, and measures nothing:
    whoever releases a function of them has to measure that function.

    Parameters
    ----------
    train : callable
        Takes the parts of the data at the subset's rows, and the subset's public generator.
    data : array, frame, or tuple of those
        The universe.
    pool : Pool
        The subsets.
    n_jobs : int, optional
        Workers, through joblib; results do not depend on them.
    rng : Generator, int or None
        Seed of the public streams.

    Returns
    -------
    tuple, curator-only

    Raises
    ------
    MechanismError
        If training fails on a subset; names the lowest-numbered one that came back as failed.
    """
    import joblib  # slow to import, not always needed

    universe = coerce_data(data)
    if universe.n_rows != pool.n_rows:
        raise DataError(
            f"data must have as many rows as the pool ({pool.n_rows}); got {universe.n_rows}. "
            "Draw the pool for this data."
        )
    seed, numbers = coerce_seed(rng), range(pool.n_subsets)
    if count_workers(n_jobs) == 1:
        trained = [_train_one(train, universe, pool.rows(k), seed, k) for k in numbers]
    else:
        tasks = (
            joblib.delayed(_train_one)(train, universe, pool.rows(k), seed, k) for k in numbers
        )
        try:
            trained = joblib.Parallel(n_jobs=n_jobs)(tasks)
        except (KeyboardInterrupt, MechanismError):
            raise
        except Exception as error:
            raise MechanismError(
                f"training must run in worker processes; got {type(error).__name__}: {error}. "
                "Use fewer workers, n_jobs=1, or joblib.parallel_config(backend='threading')."
            ) from error
    for result in trained:
        if isinstance(result, Failure):
            raise result.to_error()
    return tuple(trained)


def _train_one(
    train: Train, data: Data, rows: npt.NDArray[np.int64], seed: int, k: int
) -> Any | Failure:
    with single_threaded():
        try:
            return train(data.take(rows), public_generator(seed, "mechanism", k))
        except Exception as error:
            return explain(k, error)
