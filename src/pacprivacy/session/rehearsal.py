"""The pipeline up to the secret: draw the pool, run the mechanism on every subset, calibrate.

Everything here is a function of the universe and of public randomness. No secret is drawn, nothing
is spent, and what is found is for the curator alone.
"""

import math
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._progress import begin, expect
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.budget import AnyBudget, Information, Membership, Spent, limits_of
from pacprivacy.errors import PoolError
from pacprivacy.mechanism import Mechanism, as_mechanism, batch_of, coerce_data
from pacprivacy.noise import AnyRule, NoisePlan, as_rule, calibrate, propose_variance
from pacprivacy.pool import Balanced, Pool, PoolStrategy, fold_choices, unit_name
from pacprivacy.simulation import (
    EVALUATING,
    Outputs,
    count_workers,
    read_checkpoint_seed,
    run_mechanism,
    scale_outputs,
    seconds_after,
    value_on_all,
)

SUBSETS_BATCHED = 2000  # by default, where all are evaluated by matrix products
SUBSETS_OF_MANY = 512  # where the proof for so many records would take minutes
MANY_RECORDS = 5_000
SUBSETS_BLACK_BOX = 256
TRYING = "trying folds"
AS_GOOD = 1.05  # an error that pilots do not tell from the least


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
        self._wanted, self._n_subsets, self._units = pool, n_subsets, units
        self._n_jobs, self.progress = n_jobs, progress

    def draw(
        self,
        mechanism: Any,
        budget: AnyBudget | None = None,
        *,
        rule: AnyRule | None = None,
        checkpoint: str | Path | None = None,
    ) -> tuple[Pool, tuple[str, ...]]:
        """Return the pool, and notes on its size where it is drawn now; it is drawn once.

        The number of folds is settled for a budget on membership under the default rule, where
        the strategy leaves it open.
        """
        if self.pool is not None:
            return self.pool, ()
        prepared, asked = as_mechanism(mechanism), as_rule(rule)
        if isinstance(self._wanted, Pool):
            if self._n_subsets not in (None, self._wanted.n_subsets) or self._units is not None:
                raise PoolError(
                    "n_subsets and units must be left out when a drawn pool is given. "
                    "Pass a strategy such as Balanced() to have it drawn."
                )
            self.pool = self._wanted
            return self.pool, ()
        strategy, notes = self._strategy(prepared, asked.n_reserve)
        seed = self._given
        if seed is None and checkpoint is not None:
            seed = read_checkpoint_seed(checkpoint)
        seed = coerce_seed(seed)
        chosen: tuple[str, ...] = ()
        if isinstance(strategy, Balanced) and strategy.folds == "auto":
            folds = 2
            if rule is None or rule == "risk":
                folds, chosen = self._settle_folds(prepared, budget, strategy, seed)
            strategy = replace(strategy, folds=folds)
        labels = self.data.parts[-1] if len(self.data.parts) > 1 else None
        pool = strategy.draw(self.data.n_rows, rng=seed, units=self._units, strata=labels)
        key = getattr(self.data.parts[0], "unit", None)  # of tables, whose rows are their units
        if self._units is None and isinstance(key, str) and (called := unit_name(key)):
            pool = replace(pool, unit=called)
        self.pool = replace(pool, notes=(*pool.notes, *chosen)) if chosen else pool
        return self.pool, notes

    def _strategy(
        self, mechanism: Mechanism, n_reserve: int
    ) -> tuple[PoolStrategy, tuple[str, ...]]:
        """Return how candidates are drawn, and a public note where their number is the default.

        ``n_reserve`` more are drawn for a secret that must be independent of the others.
        """
        strategy: Any = Balanced(folds="auto") if self._wanted is None else self._wanted
        notes: tuple[str, ...] = ()
        if self._n_subsets is not None:
            strategy = strategy.with_subsets(self._n_subsets)
        elif strategy.n_subsets is None:
            default = SUBSETS_OF_MANY if self.data.n_rows > MANY_RECORDS else SUBSETS_BATCHED
            if batch_of(mechanism) is None:
                default = SUBSETS_BLACK_BOX
            if isinstance(strategy, Balanced) and strategy.folds != "auto":
                default = -(-default // strategy.folds) * strategy.folds
            strategy = strategy.with_subsets(default)
            notes = (
                f"{default} subsets is the default here; a larger n_subsets lowers what side "
                f"knowledge gives away and often the noise, for proportionally more work.",
            )
        if strategy.n_subsets == 2:
            warnings.warn(
                "n_subsets=2 makes two candidates: whoever knows one unit's membership knows the "
                "secret. Leave it out, or use at least 64.",
                stacklevel=2,
            )
        if n_reserve:
            strategy = strategy.with_subsets((strategy.n_subsets or 0) + n_reserve)
        return strategy, notes

    def _settle_folds(
        self, mechanism: Mechanism, budget: AnyBudget | None, strategy: Balanced, seed: int
    ) -> tuple[int, tuple[str, ...]]:
        """Predict the error of a release for a few numbers of folds; return the best, and say so.

        A pool of few candidates is drawn for each; all pilots together are a quarter of the run for
        a black box, half of it where candidates are evaluated at once. The error is that of one
        release against the value on all records: the noise, and how far candidates are from that
        value. Among numbers that are about as good the least is taken: with few folds, being told
        who is out helps an attacker less.

        Guarantee
        ---------
        Claim P-4. A function of the universe and of public randomness, which the note says.
        """
        assert strategy.n_subsets is not None  # known before the folds are
        if budget is None or limits_of(budget, strategy.n_subsets).success_level is None:
            return 2, ()
        choices = fold_choices(strategy.n_subsets, self.data.n_rows, self._units)
        if len(choices) == 1:
            return choices[0], ()
        advance, started = begin(TRYING, len(choices)), time.perf_counter()
        goal = value_on_all(mechanism, self.data)
        part, runs = 2, 1.0
        if batch_of(mechanism) is None:
            each = time.perf_counter() - started
            part, runs = 4, strategy.n_subsets * each / count_workers(self._n_jobs)
        after = seconds_after(strategy.n_subsets, self.data.n_rows)
        expect({TRYING: runs / part, EVALUATING: runs, **after})
        size = strategy.n_subsets // (part * len(choices))
        errors: list[float] = []
        scales: Vector | None = None
        for k in choices:
            pilot = replace(strategy, folds=k, n_subsets=max(2, size // k) * k)
            rehearsal = Rehearsal(
                self.data,
                pool=pilot,
                units=self._units,
                n_jobs=self._n_jobs,
                rng=public_generator(seed, "pilot", k),
                progress=False,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the run itself says it again
                outputs = rehearsal.run(mechanism)
            if scales is None:  # in units that the release has too, the same for all
                found = scale_outputs(outputs).scales
                scales = np.ones(outputs.n_outputs) if found is None else found
            values = outputs.values / scales
            noise = propose_variance(values, budget, pool=rehearsal.pool, rng=rehearsal.seed)
            advance(1)
            errors.append(noise + float(np.square(values - goal / scales).sum(axis=1).mean()))
        near = [e <= AS_GOOD**2 * min(errors) for e in errors]
        best = choices[near.index(True)]
        gain = math.sqrt(errors[choices.index(best)] / errors[0]) if errors[0] > 0 else 1.0
        return best, (
            f"{best} folds were chosen from {', '.join(map(str, choices))} by trying few subsets "
            f"of each on the whole universe, which makes the choice a public fact about it; the "
            f"predicted error against the value on all records is {gain:.2f} of that of halves.",
        )

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
            progress=self.progress,
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
