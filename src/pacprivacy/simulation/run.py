"""Run a mechanism on every subset of a pool."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy._random import coerce_seed
from pacprivacy.errors import DataError
from pacprivacy.mechanism import as_mechanism, batch_of, coerce_data
from pacprivacy.pool import Pool
from pacprivacy.simulation.batch import run_at_once
from pacprivacy.simulation.checkpoint import read_header
from pacprivacy.simulation.notices import Notice, collect_notices, show_notices
from pacprivacy.simulation.outputs import Outputs
from pacprivacy.simulation.subsets import SubsetRun
from pacprivacy.simulation.threads import single_threaded
from pacprivacy.simulation.worker import Job

__all__ = ["run_mechanism"]


def run_mechanism(
    mechanism: Any,
    data: Any,
    pool: Pool,
    *,
    n_jobs: int | None = None,
    checkpoint: str | Path | None = None,
    rng: np.random.Generator | int | None = None,
    progress: bool | None = None,
) -> Outputs:
    """Evaluate a mechanism on all subsets of a pool.

    Parameters
    ----------
    mechanism : callable or Mechanism
        See :func:`pacprivacy.mechanism.as_mechanism`.
    data : array, frame, list, or tuple of those
        See :func:`pacprivacy.mechanism.coerce_data`.
    pool : Pool
        The subsets; its number of rows is that of the data.
    n_jobs : int, optional
        Workers, through joblib; -1 for all cores. None is one, or what
        ``joblib.parallel_config`` says.
    checkpoint : path, optional
        A file (readable by its owner only) from which the same call goes on after a stop.
        Mechanisms that evaluate all subsets at once do not need one and write none.
    rng : Generator, int or None
        Seed of the mechanism's public streams. None draws a fresh one, or takes that of the
        checkpoint.
    progress : bool, optional
        Show a bar on stderr; None shows it if stderr is a terminal.

    Returns
    -------
    Outputs

    Raises
    ------
    MechanismError
        If the mechanism fails on a subset, gives other results when run again, or returns
        another structure on another subset. No subset is left out.
    CheckpointError
        If the checkpoint belongs to another run.
    InterruptedRun
        If the user pressed Ctrl-C; the message says how to go on.

    Guarantee
    ---------
    Claim M-2. Assumes that the mechanism is a function of its subset and of ``rng``. The result
    does not depend on workers, on batches or on restarts, to the last bit.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> pool = pac.Balanced(n_subsets=8).draw(20, rng=0)
    >>> run_mechanism(np.mean, np.arange(20.0), pool).values.shape
    (8, 1)
    """
    universe = coerce_data(data)
    if universe.n_rows != pool.n_rows:
        raise DataError(
            f"data must have as many rows as the pool ({pool.n_rows}); got {universe.n_rows}. "
            "Draw the pool for this data."
        )
    path = None if checkpoint is None else Path(checkpoint)
    prepared = as_mechanism(mechanism).prepare(universe)
    seed = _choose_seed(rng, path)
    job = Job(mechanism=prepared, data=universe, seed=seed)
    run = SubsetRun(job=job, pool=pool, path=path)
    own: list[Notice] = []
    try:
        with collect_notices(own), single_threaded():
            batch = batch_of(prepared)
            if batch is not None:
                values, structure = run_at_once(batch, job, pool)
            else:
                values, structure = run.execute(n_jobs=n_jobs, progress=progress)
    except BaseException:
        with suppress(Warning):  # a filter that makes warnings errors must not hide this one
            show_notices([*own, *run.notices])
        raise
    show_notices([*own, *run.notices])
    return Outputs(
        values=values,
        structure=structure,
        mechanism_name=prepared.name,
        public=prepared.public,
        seed=seed,
        finish=prepared.finish,
    )


def _choose_seed(rng: np.random.Generator | int | None, path: Path | None) -> int:
    if rng is None and path is not None:
        header = read_header(path)
        if header is not None:
            return header.seed
    return coerce_seed(rng)
