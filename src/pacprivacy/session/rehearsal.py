"""The pipeline up to the secret: draw the pool, run the mechanism on every subset, calibrate.

Everything here is a function of the universe and of public randomness. No secret is drawn, nothing
is spent, and what is found is for the curator alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy._random import coerce_seed
from pacprivacy.budget import AnyBudget, Information, Membership, Spent
from pacprivacy.mechanism import as_mechanism, coerce_data
from pacprivacy.noise import AnyRule, NoisePlan, calibrate
from pacprivacy.pool import Pool, PoolStrategy
from pacprivacy.simulation import Outputs, draw_candidates, run_mechanism


class Rehearsal:
    """What a release would be made of, for one pool and any number of mechanisms and budgets.

    The parameters are those of :func:`pacprivacy.privatize`.
    """

    def __init__(
        self,
        data: Any,
        *,
        pool: Pool | PoolStrategy | None = None,
        n_subsets: int | None = None,
        units: Any = None,
        n_jobs: int | None = None,
        rng: np.random.Generator | int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.data = coerce_data(data)
        self.seed = coerce_seed(rng)
        self.pool: Pool | None = None
        self._given = None if rng is None else self.seed
        self._request: Any = {"pool": pool, "n_subsets": n_subsets, "units": units}
        self._n_jobs, self._progress = n_jobs, progress

    def draw(
        self, mechanism: Any, *, checkpoint: str | Path | None = None, n_reserve: int = 0
    ) -> tuple[Pool, tuple[str, ...]]:
        """Return the pool, and notes on its size where it is drawn now; it is drawn once."""
        if self.pool is not None:
            return self.pool, ()
        self.pool, notes = draw_candidates(
            as_mechanism(mechanism),
            self.data,
            **self._request,
            checkpoint=checkpoint,
            rng=self._given,
            n_reserve=n_reserve,
        )
        return self.pool, notes

    def run(
        self, mechanism: Any, *, checkpoint: str | Path | None = None, rng: int | None = None
    ) -> Outputs:
        """Run a mechanism on every subset; ``rng`` stands in for the seed, where there is one."""
        prepared = as_mechanism(mechanism)
        pool, _ = self.draw(prepared, checkpoint=checkpoint)
        return run_mechanism(
            prepared,
            self.data,
            pool,
            n_jobs=self._n_jobs,
            checkpoint=checkpoint,
            rng=self._given if rng is None or self._given is None else rng,
            progress=self._progress,
        )

    def calibrate(
        self, outputs: Outputs, budget: AnyBudget, *, rule: AnyRule | None = None, **options: Any
    ) -> NoisePlan:
        """Find the noise under which one of the outputs may be released.

        ``options`` are the other arguments of :func:`pacprivacy.noise.calibrate`.
        """
        settings = {"pool": self.pool, "rng": self.seed} | options
        return calibrate(outputs, budget, rule=rule, **settings)


def information_of(share: Spent) -> AnyBudget:
    """Return what a calibration is asked for, where increments travel as caps."""
    if share.mi_nats is not None:
        return Information(share.mi_nats)
    assert share.success_increment is not None  # a share limits something
    return Membership(min(0.5 + share.success_increment, 1 - 1e-12))
