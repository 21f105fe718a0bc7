"""The pipeline up to the secret: choose the sample, evaluate all candidates, calibrate.

Everything here is a function of all records and of public randomness. No secret is drawn, nothing
is spent, and the results are for the curator alone.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy._checks import Matrix, Vector, as_told
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy._system import available_memory, begin, single_threaded
from pacprivacy.budget import (
    AnyBudget,
    BudgetLike,
    Information,
    Membership,
    Spent,
    budget_limits,
)
from pacprivacy.errors import BudgetError, PoolError, QueryError
from pacprivacy.mechanism import Data, Mechanism, as_mechanism, coerce_data
from pacprivacy.noise import AnyRule, NoisePlan, as_rule, calibrate, propose_rule_noise
from pacprivacy.queries import Tables
from pacprivacy.release import plural_text
from pacprivacy.sample import (
    Balanced,
    Coins,
    Pool,
    PoolStrategy,
    canonical_unit_ids,
    pool_unit_name,
    strategy_fold_choices,
)
from pacprivacy.session.secret import SampleOptions
from pacprivacy.simulation import (
    Outputs,
    read_checkpoint_seed,
    run_mechanism,
    run_on_all,
    scale_run_outputs,
)
from pacprivacy.statistics import coin_obstacle

SUBSETS_BATCHED = 2000  # by default, where all are evaluated by matrix products
SUBSETS_OF_MANY = ((200_000, 512), (20_000, 1000))  # above so many records: proofs take long
SUBSETS_BLACK_BOX = 256
TRYING = "trying folds"
FEWEST_UNITS = 200  # with coins by default: 20 of them are left out on average
_LABELS_AT_ONCE = 1024
AS_GOOD = 1.05  # errors closer than this cannot be ranked by pilots


class DryRun:
    """Parts of a planned release, for one pool and any number of mechanisms and budgets.

    ``reason`` is why there is a pool.
    """

    def __init__(
        self, data: Any, options: SampleOptions | None = None, *, reason: str | None = None
    ) -> None:
        self.options = options or SampleOptions()
        self.data, self.seed = coerce_data(data), coerce_seed(self.options.rng)
        self.pool: Pool | None = None
        self._given = None if self.options.rng is None else self.seed
        self._reason = reason
        self._fixed: tuple[Any, Mechanism] | None = None  # what was prepared for the pilots

    @property
    def n_subsets(self) -> int | None:
        """Number of candidates, if it was chosen."""
        sample = self.options.sample
        return sample.n_subsets if isinstance(sample, Pool) else self.options.n_subsets

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
        drawn = self.pool
        if drawn is not None:
            return drawn, ()
        prepared, chosen_rule = as_mechanism(mechanism), as_rule(rule)
        sample, units = self.options.sample, self.options.units
        if isinstance(sample, Pool):
            if self.options.n_subsets not in (None, sample.n_subsets) or units is not None:
                raise PoolError(
                    "n_subsets and units must be left out when a drawn pool is given. "
                    "Pass a strategy such as Balanced() to have it drawn."
                )
            self.pool = sample
            return sample, ()
        strategy, notes = self._strategy(prepared, chosen_rule.n_reserve)
        seed = self._given
        if seed is None and checkpoint is not None:
            seed = read_checkpoint_seed(checkpoint)
        seed = coerce_seed(seed)
        chosen: tuple[str, ...] = ()
        if isinstance(strategy, Balanced) and strategy.folds == "auto":
            folds = 2
            if budget is not None and _weighs_folds(budget, rule, strategy.n_subsets):
                folds, chosen = self._settle_folds(prepared, budget, strategy, seed)
                if self.pool is not None:  # a mechanism has made a release of its own meanwhile
                    return self.pool, ()
            strategy = replace(strategy, folds=folds)
        labels = self.data.parts[-1] if len(self.data.parts) > 1 else None
        if units is None:
            _check_memory(strategy, self.data.n_rows)
        pool = strategy.draw(self.data.n_rows, rng=seed, units=units, strata=labels)
        tables = self.data.parts[0]  # whose rows are their units
        if units is None and isinstance(tables, Tables) and (called := pool_unit_name(tables.unit)):
            pool = replace(pool, unit=called)
        if self._reason is not None:
            why = f"Sample: a pool of {pool.n_subsets:,} candidates, because {self._reason}."
            chosen = (*chosen, why)
        self.pool = replace(pool, notes=(*pool.notes, *chosen)) if chosen else pool
        return self.pool, notes

    def _strategy(
        self, mechanism: Mechanism, n_reserve: int
    ) -> tuple[PoolStrategy, tuple[str, ...]]:
        """Return how candidates are drawn, and a public note where their number is the default.

        ``n_reserve`` more are drawn for a secret that must be independent of the others.
        """
        strategy: Any = self.options.sample
        if strategy is None:
            strategy = Balanced(folds="auto")
        if not isinstance(strategy, PoolStrategy):
            raise PoolError(
                f"sample must be a Pool or a strategy; got {as_told(strategy)}. "
                "Write pac.Half() or pac.Balanced()."
            )
        notes: tuple[str, ...] = ()
        if self.options.n_subsets is not None:
            strategy = strategy.with_subsets(self.options.n_subsets)
        elif strategy.n_subsets is None:
            fewer = (m for above, m in SUBSETS_OF_MANY if self.data.n_rows > above)
            default = next(fewer, SUBSETS_BATCHED)
            if mechanism.by_subset:
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
        self, mechanism: Mechanism, budget: AnyBudget, strategy: Balanced, seed: int
    ) -> tuple[int, tuple[str, ...]]:
        """Predict the error of a release for a few numbers of folds; return the best, and say so.

        A pool of few candidates is drawn for each; all pilots together are a quarter of the run for
        a black box, half of it where candidates are evaluated at once. The error is that of one
        release against the value on all records: the noise, and how far candidates are from that
        value. Among numbers that are about as good the least is taken: with few folds, an attacker
        gains less from side knowledge of who is left out.

        Guarantee
        ---------
        Claim P-4. A function of the universe and of public randomness, which the note says.
        """
        assert strategy.n_subsets is not None  # known before the folds are
        choices = strategy_fold_choices(strategy.n_subsets, self.data.n_rows, self.options.units)
        if len(choices) == 1:
            return choices[0], ()
        fixed = self._prepare(mechanism)
        advance = begin(TRYING, len(choices))
        part = 4 if mechanism.by_subset else 2
        size = strategy.n_subsets // (part * len(choices))
        errors: list[float] = []
        for k in choices:
            outputs, pool = self._pilot(fixed, strategy, k, size, seed)
            if not errors:
                goal = run_on_all(fixed, self.data)
            if goal.shape != outputs.values.shape[1:]:
                return 2, ()  # a value whose size is that of the subset: nothing to compare
            if not errors:  # units that the release has too
                deviations = scale_run_outputs(outputs).scales
                scales = np.ones(goal.size) if deviations is None else deviations
            errors.append(_error(outputs.values / scales, goal / scales, budget, pool))
            del outputs, pool  # one at a time: pools of many units are large
            advance(1)
        near = [e <= AS_GOOD**2 * min(errors) for e in errors]
        best = choices[near.index(True)]
        gain = math.sqrt(errors[choices.index(best)] / errors[0]) if errors[0] > 0 else 1.0
        return best, (
            f"{best} folds were chosen from {', '.join(map(str, choices))} by trying few subsets "
            f"of each on the whole universe, which makes the choice a public fact about it; the "
            f"predicted error against the value on all records is {gain:.2f} of that of halves.",
        )

    def _pilot(
        self, fixed: Mechanism, strategy: Balanced, folds: int, size: int, seed: int
    ) -> tuple[Outputs, Pool]:
        """Run a prepared mechanism on few candidates; the run itself repeats its warnings."""
        options = replace(
            self.options,
            sample=replace(strategy, folds=folds, n_subsets=max(2, size // folds) * folds),
            n_subsets=None,
            rng=public_generator(seed, "pilot", folds),
            progress=False,
        )
        dry_run = DryRun(self.data, options)
        dry_run._fixed = fixed, fixed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = dry_run.run(fixed)
        assert dry_run.pool is not None  # drawn by the run
        return outputs, dry_run.pool

    def run(
        self, mechanism: Any, *, checkpoint: str | Path | None = None, rng: int | None = None
    ) -> Outputs:
        """Run a mechanism on every candidate; ``rng`` replaces the seed, where there is one."""
        prepared = as_mechanism(mechanism)
        pool, _ = self.draw(prepared, checkpoint=checkpoint)
        return run_mechanism(
            self._prepare(prepared),
            self.data,
            pool,
            n_jobs=self.options.n_jobs,
            backend=self.options.backend,
            checkpoint=checkpoint,
            rng=self._given if rng is None or self._given is None else rng,
            progress=self.options.progress,
            fixed=True,
        )

    def on_all(self, mechanism: Mechanism, like: Outputs) -> Vector:
        """Return the value on all records, to compare candidates with; curator-only.

        NaN where the mechanism has none there, or one of another shape. Its warnings are those of
        the candidates, which were shown.
        """
        none: Vector = np.full(like.n_outputs, np.nan)
        try:
            with warnings.catch_warnings(), single_threaded():
                warnings.simplefilter("ignore")
                value = run_on_all(self._prepare(mechanism), self.data)
        except QueryError:  # an interrupt of the engine must end the release
            raise
        except Exception:  # a function may do anything
            return none
        return value if value.shape == none.shape else none

    def _prepare(self, mechanism: Mechanism) -> Mechanism:
        if self._fixed is None or self._fixed[0] is not mechanism:
            self._fixed = mechanism, mechanism.prepare(self.data)
        return self._fixed[1]

    def calibrate(
        self, outputs: Outputs, budget: AnyBudget, *, rule: AnyRule | None = None
    ) -> NoisePlan:
        return calibrate(outputs, budget, rule=rule, pool=self.pool, rng=self.seed)


def _check_memory(strategy: PoolStrategy, n_units: int) -> None:
    """Refuse a pool that does not fit into memory, before it is drawn."""
    needed, free = (strategy.n_subsets or 0) * n_units / 8, available_memory()
    if free is not None and needed > free:
        raise PoolError(
            f"the pool must fit into memory; got {strategy.n_subsets} subsets of {n_units} units, "
            f"which need {needed / 1e9:.3g} GB where {free / 1e9:.3g} GB are free. "
            "Use a smaller n_subsets, or coins: sample=pac.Coins()."
        )


def _weighs_folds(budget: AnyBudget, rule: AnyRule | None, n_subsets: int | None) -> bool:
    """Return whether the number of folds is chosen: membership is limited, by the default rule."""
    default = rule is None or rule == "risk"
    return default and budget_limits(budget, n_subsets).success_level is not None


def _error(values: Matrix, goal: Vector, budget: AnyBudget, pool: Pool) -> float:
    with single_threaded():
        noise = propose_rule_noise(values, budget, pool=pool, rng=pool.seed).total_variance
    return noise + float(np.square(values - goal).sum(axis=1).mean())


def dry_run_information(share: Spent) -> AnyBudget:
    """Return the limits of a calibration, with increments as caps."""
    if share.mi_nats is not None:
        return Information(share.mi_nats)
    assert share.success_increment is not None  # a share limits something
    return Membership(min(0.5 + share.success_increment, 1 - 1e-12))


def check_independent(rule: AnyRule | None, options: SampleOptions) -> None:
    """Refuse a pool that others may have seen, if the secret is one of its subsets."""
    if options.simulate or not as_rule(rule).n_reserve:
        return
    if isinstance(options.sample, Pool):
        raise PoolError(
            "sample must be a strategy for a confidence or empirical certificate: the secret is "
            "a subset of it, which nobody may have seen. Pass Half(...) or Poisson(...) itself."
        )
    if options.rng is not None:
        raise BudgetError(
            "rng must be None for a confidence or empirical certificate: the secret subset is "
            "drawn with the pool. Leave rng out, or set simulate=True."
        )


# --- which sample there is where none is chosen --------------------------------------------------
# The choice depends on options, types and the number of units alone, never on values of records or
# on who is used. Where it is a pool, the certificate says why.


def pool_reason(
    mechanism: Mechanism,
    data: Data,
    units: Any,
    budget: BudgetLike,
    *,
    options: Mapping[str, Any],
) -> str | None:
    """Return why a release without a ``sample`` has a pool, to follow "because"; None for coins.

    ``options`` are options of pools by name, ``units`` labels of rows or None.

    Guarantee
    ---------
    Claim C-1. A function of the mechanism, the options, the types of the data, and whether there
    are at least 200 units: the last is a fact of all records, and no fact of the sample.
    """
    unit = pool_unit_name(str(getattr(units, "name", "") or "")) or "unit"
    if units is None:
        tables = data.parts[0]
        unit = pool_unit_name(tables.unit) or "unit" if isinstance(tables, Tables) else "record"
    reason = coin_obstacle(mechanism, data)
    if reason is not None:
        return reason.format(unit=unit, units=plural_text(unit))
    if not _limits_membership_alone(budget):
        return "the budget is not about membership alone"
    if not _has_units(units, data.n_rows, FEWEST_UNITS):
        return f"the table has fewer than {FEWEST_UNITS} {plural_text(unit)}"
    chosen = (name for name, value in options.items() if value is not None)
    return next((f"{name} was set, which is for pools" for name in chosen), None)


def _has_units(labels: Any, n_rows: int, least: int) -> bool:
    """Return whether there are so many units, reading no more labels than it takes."""
    if labels is None or n_rows < least:
        return n_rows >= least
    entries, units = np.asarray(labels), set[bytes]()
    for start in range(0, n_rows, _LABELS_AT_ONCE):
        try:
            units.update(canonical_unit_ids(entries[start : start + _LABELS_AT_ONCE]))
        except PoolError:  # labels that no coin can be keyed to; a pool takes or refuses them
            return False
        if len(units) >= least:
            return True
    return False


def _limits_membership_alone(budget: BudgetLike) -> bool:
    limits = budget_limits(budget, n_subsets=2)
    return limits.success_level is not None and limits.mi_nats is None


def default_session_coins(
    data: Data, budget: AnyBudget | None, options: SampleOptions, left: Spent
) -> Coins | None:
    """Return coins for a session on tables; None for a pool. ``left`` is the ledger's budget.

    Queries have coins where tables have many units and membership alone is limited.
    """
    if options.are_for_pools or budget is None:
        return None
    if left.mu_squared is None and (left.mi_nats, left.success_increment) != (None, None):
        return None  # the ledger has a budget for pools alone
    tables = data.parts[0]
    many = isinstance(tables, Tables) and tables.n_units >= FEWEST_UNITS
    return Coins() if many and _limits_membership_alone(budget) else None
