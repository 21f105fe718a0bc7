"""``pac plan``: the cost of budgets, before anything is spent."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from pacprivacy.budget import AnyBudget, Membership, parse_budget
from pacprivacy.cli import options
from pacprivacy.cli.console import (
    Screen,
    Verb,
    option,
    read_console_number,
    show,
    show_status,
    show_table,
    tell_curator,
)
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.noise import as_rule, check_rule_feasible, propose_rule_noise
from pacprivacy.release import error_bar_rows, measure_error_bars
from pacprivacy.sample import Coins
from pacprivacy.session import DryRun, SampleOptions, SingleSession
from pacprivacy.simulation import Outputs, scale_run_outputs
from pacprivacy.tables import ModelStudy, find_model, read_model_study

SHOWN_NUMBERS: Final = 3  # for each budget
BUDGETS: Final = "52%,55%,60%,70%,80%,90%"
LEGEND: Final = """\
noise           standard deviation of the noise on a number, in its own units
standard error  of the released number as an estimate for all records
Nothing was released and no secret was drawn. The figures depend on the records:
they are for the curator, who chooses a budget with them."""


class PlanNumber(NamedTuple):
    """Noise of one number, and the standard error of the whole; curator-only."""

    name: str
    noise: float
    distance: float


Costs: TypeAlias = list[PlanNumber]  # of all numbers, under one budget


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    mechanism: str
    sample: str
    drawn: str
    costs: dict[str, Costs]
    refused: list[str]
    facts: dict[str, Any]

    @property
    def without_noise(self) -> Costs:
        """The standard errors that the sample alone would leave."""
        return [
            PlanNumber(each.name, 0.0, float(np.sqrt(max(0.0, each.distance**2 - each.noise**2))))
            for each in next(iter(self.costs.values()))
        ]

    def to_dict(self) -> dict[str, Any]:
        every = {**self.costs, "no promise": self.without_noise}
        rows = [
            {"budget": text, "numbers": [each._asdict() for each in numbers]}
            for text, numbers in every.items()
        ]
        return {
            "mechanism": self.mechanism,
            "sample": self.sample,
            **self.facts,
            "without_noise": rows.pop(),
            "rows": rows,
            "refused": self.refused,
        }

    def show(self) -> None:
        """Print a table of standard errors by budget."""
        show(f"{self.mechanism}: {self.drawn}\n", style="bold")
        without = self.without_noise
        cells = [
            (text if i == 0 else "", each.name, f"{each.noise:.3g}", f"{each.distance:.3g}")
            for text, numbers in {**self.costs, "no promise": without}.items()
            for i, each in enumerate(numbers[:SHOWN_NUMBERS])
        ]
        show_table(["budget", "number", "noise", "standard error"], cells, left=["number"])
        more = len(without) - SHOWN_NUMBERS
        if more > 0:
            show(f"... and {more} more numbers: --json has all.")
        if self.refused:
            show(f"Groups are too small for {', '.join(self.refused)}: noise may leave no value.")
        show(f"\n{LEGEND}")


def _plan(
    *,
    data: options.DataFile,
    model: options.ModelName,
    budgets: str = option(
        "LIST",
        'Success bounds such as 55%,60%, or budgets such as "mi<=1/16".',
        flags="--budgets --budget",
        default=BUDGETS,
    ),
    table: options.TableOptions,
    seed: int | None = option("N", "Of the pool and the draws.", least=0),
    screen: Screen,
) -> None:
    """Show privacy against utility for several budgets, before anything is spent.

    Finds the noise that each budget asks for. No secret is drawn and nothing is released. Where
    each person has a coin that takes one pass over the records, and the figures are those of a
    release. A pool runs the model on all candidates; its noise is an estimate, up to about a tenth
    below what a release will need.
    """
    limits = _read_budgets(budgets)
    study, reason = _read_study(data, model, table, limits, quiet=screen.quiet)
    if isinstance(study.sample, Coins):
        planned = _plan_coins(study, limits)
    else:
        options_of_run = SampleOptions(
            sample=study.sample,
            n_subsets=table.subsets,
            units=study.units,
            n_jobs=table.jobs,
            rng=seed,
            progress=screen.progress,
        )
        dry_run = DryRun(study.universe, options_of_run, reason=reason)
        planned = _plan_pool(dry_run, study, table, limits, quiet=screen.quiet)
    screen.show(planned.show, planned.to_dict())
    if screen.is_for_people and reason is not None and dry_run.pool is not None:
        show(f"\n{dry_run.pool.notes[-1]}")


def _read_study(
    data: Path,
    model: str,
    table: options.TableOptions,
    limits: dict[str, AnyBudget],
    *,
    quiet: bool,
) -> tuple[ModelStudy, str | None]:
    """Return what is planned, and why there is a pool; refuse what can be without the data."""
    model_options, reading = table.model(model), table.reading()
    find_model(model, model_options)
    as_rule(table.rule)
    sample = table.sampled(model)
    if isinstance(sample, Coins):
        for limit in limits.values():
            options.check_coin_budget(limit, name="--budgets")
    study = read_model_study(data, model, model_options, reading, sample=sample)
    tell_curator(study.notes, quiet=quiet)
    if study.sample is not None:
        return study, None
    reasons = (study.pool_reason(each, table.pool_options) for each in limits.values())
    reason = next((each for each in reasons if each is not None), None)
    return replace(study, sample=Coins() if reason is None else None), reason


def _plan_coins(study: ModelStudy, limits: dict[str, AnyBudget]) -> _Planned:
    costs: dict[str, Costs] = {}
    refused = []
    plan, reason = None, MechanismError("no budget was given")
    chosen = SampleOptions(sample=study.sample, units=study.units)
    with SingleSession(study.universe, next(iter(limits.values())), options=chosen) as session:
        for text, limit in limits.items():
            try:
                plan = session.plan(study.mechanism, limit)
            except MechanismError as error:  # groups that are too small for this budget
                refused.append(text)
                reason = error
                continue
            value = plan.outputs.restore(plan.outputs.values[0])
            costs[text] = [
                PlanNumber(row.name, row.noise_std, row.std_error)
                for row in error_bar_rows(value, plan.error_bars)
            ]
    if plan is None:
        raise reason
    certificate = plan.certificate
    n_units, keep = certificate.n_units or 0, certificate.used_prior
    used = "all are used" if keep == 1 else f"a coin for each: used with probability {keep:g}"
    return _Planned(
        mechanism=certificate.mechanism,
        sample="coins",
        drawn=f"{n_units:,} {certificate.units}, {used}",
        costs=costs,
        refused=refused,
        facts={"n_units": n_units, "keep": keep},
    )


def _plan_pool(
    dry_run: DryRun,
    study: ModelStudy,
    table: options.TableOptions,
    limits: dict[str, AnyBudget],
    *,
    quiet: bool,
) -> _Planned:
    with warnings.catch_warnings(), show_status("drawing the candidates", quiet=quiet) as begin:
        if quiet:
            warnings.simplefilter("ignore")
        mechanism, rule, checkpoint = study.mechanism, table.rule, table.checkpoint
        first = next(iter(limits.values()))
        pool, _ = dry_run.draw(mechanism, first, rule=rule, checkpoint=checkpoint)
        for limit in limits.values():
            check_rule_feasible(limit, rule, pool)
        outputs = dry_run.run(mechanism, checkpoint=checkpoint)
        begin("trying the budgets")
        outputs = replace(outputs, on_all=dry_run.on_all(mechanism, outputs))
        if rule is None:  # as in a release
            outputs = scale_run_outputs(outputs)
        costs = {text: _pool_costs(limit, dry_run, outputs, rule) for text, limit in limits.items()}
    return _Planned(
        mechanism=outputs.mechanism_name,
        sample="pool",
        drawn=f"{pool.n_subsets:,} candidate samples of {pool.n_units:,} units",
        costs=costs,
        refused=[],
        facts={"n_units": pool.n_units, "n_subsets": pool.n_subsets},
    )


def _pool_costs(budget: AnyBudget, dry_run: DryRun, outputs: Outputs, rule: str | None) -> Costs:
    pool = dry_run.pool
    assert pool is not None  # the outputs are those of its candidates
    noise = propose_rule_noise(outputs, budget, rule=rule, pool=pool, rng=dry_run.seed)
    bars = measure_error_bars(outputs, noise, pool)
    value = outputs.restore(outputs.values.mean(axis=0))
    return [
        PlanNumber(row.name, row.noise_std, float(np.hypot(row.spread, row.noise_std)))
        for row in error_bar_rows(value, bars)
    ]


def _read_budgets(text: str) -> dict[str, AnyBudget]:
    """Read budgets with commas between; a bare number bounds membership success."""
    budgets: dict[str, AnyBudget] = {}
    for part in text.split(","):
        words = part.strip()
        if not words:
            raise BudgetError(
                f"--budgets must be a list with commas between; got {text!r}. Write it as 55%,60%."
            )
        if "<" in words:
            budgets[words] = parse_budget(words)
        else:
            success = read_console_number("--budgets", words)
            budgets[f"success <= {100 * success:.4g} %"] = Membership(success)
    return budgets


plan = Verb(
    function=_plan,
    example="""\
  pac plan people.csv --model mean
  pac plan people.csv --model mean --columns income --budgets 55%,60%,75%
  pac plan people.csv --model kmeans --clusters 3 --sample pool
  pac plan people.csv --model ridge --target income --budgets "mi<=1/4,mi<=1\"""",
)
