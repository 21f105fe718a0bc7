"""``pac plan``: the cost of budgets, before anything is spent."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from pacprivacy.budget import AnyBudget, Membership, budget_limits, parse_budget
from pacprivacy.cli import options
from pacprivacy.cli.console import (
    AsJson,
    Quiet,
    Verb,
    option,
    read_console_number,
    show,
    show_json,
    show_status,
    show_table,
    tell_curator,
)
from pacprivacy.errors import BudgetError, DataError, MechanismError
from pacprivacy.noise import as_rule, check_rule_feasible, propose_rule_noise
from pacprivacy.release import error_bar_rows, measure_error_bars
from pacprivacy.reporting import PlanNumber, PlanRow, plot_plan
from pacprivacy.sample import Coins, Pool
from pacprivacy.session import DryRun, Session
from pacprivacy.simulation import Outputs, scale_run_outputs
from pacprivacy.tables import ModelStudy, find_model, read_model_study

SHOWN_NUMBERS: Final = 3  # for each budget
BUDGETS: Final = "52%,55%,60%,70%,80%,90%"
COIN_LEGEND: Final = """\
noise           standard deviation of the noise on a number, in its own units
standard error  of the released number as an estimate for all records
Nothing was released and no coin was tossed. The figures depend on the records:
they are for the curator, who chooses a budget with them."""
LEGEND: Final = """\
noise     root mean square of the noise on a number, in its own units
distance  of the released number from the answer on all records, root mean
          square over all candidate subsets and all draws of the noise
Nothing was released and no secret was drawn. The figures depend on the records:
they are for the curator, who chooses a budget with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One task on one public table, PAC and DP at the same advantage: a row of ``advice.json``.

    ``ahead`` is PAC, DP, or level where the 95 % intervals of the two overlap.
    """

    task: str
    data: str
    n_records: int
    metric: str
    advantage: float
    pac: float
    dp: float
    without_privacy: float
    pac_method: str
    dp_method: str
    ahead: str

    def __str__(self) -> str:
        better = "both were level" if self.ahead == "level" else f"{self.ahead} was ahead"
        return (
            f"  {self.data}, {self.n_records} records, {self.metric}: {better};\n"
            f"  {self.pac:.4g} by PAC, {self.dp:.4g} by {self.dp_method}, "
            f"{self.without_privacy:.4g} without privacy"
        )


@cache
def measurements() -> tuple[Measurement, ...]:
    """Return all measurements of PAC against DP."""
    text = resources.files("pacprivacy.cli").joinpath("advice.json").read_text("utf-8")
    return tuple(Measurement(**row) for row in json.loads(text))


def advise(task: str, *, success: float) -> list[Measurement]:
    """Return the measurements of a task at the nearest membership success; none if unmeasured."""
    rows = [row for row in measurements() if row.task == task]
    nearest = min((abs(row.advantage - (2 * success - 1)) for row in rows), default=0.0)
    return [row for row in rows if abs(row.advantage - (2 * success - 1)) == nearest]


def who_is_ahead(rows: list[Measurement]) -> str:
    """Return the winner on more tables: PAC, DP, or level."""
    count = Counter(row.ahead for row in rows)
    if count["PAC"] == count["DP"]:
        return "level"
    return "PAC" if count["PAC"] > count["DP"] else "DP"


def describe_advice(rows: list[Measurement]) -> str:
    """Return the advice that measurements of one task support, with the measurements."""
    method = Counter(row.dp_method for row in rows).most_common(1)[0][0]
    prefer = {
        "PAC": "prefer PAC, where its promise is the one you need",
        "DP": f"prefer DP ({method}), if bounds are known",
        "level": "choose by the promise that you need",
    }[who_is_ahead(rows)]
    success = 50 + 50 * rows[0].advantage
    lines = [
        f"Advice, {rows[0].task}: {prefer}.",
        f"Both tuned, at {success:.1f} % membership success, on public data:",
    ]
    return "\n".join([*lines, *map(str, rows)])


_Budgets = Annotated[
    str,
    option("--budgets", "LIST", 'Success bounds such as 55%,60%, or budgets such as "mi<=1/16".'),
]
_Seed = Annotated[
    int | None, typer.Option("--seed", min=0, metavar="N", help="Of the pool and the draws.")
]
_Certify = Annotated[
    bool, typer.Option("--certify", help="Prove every figure as a release would: much slower.")
]
_Pool = Annotated[
    bool, typer.Option("--pool", help="Where each person has a coin: show a pool's cost, too.")
]
_Plot = Annotated[Path | None, option("--plot", "FILE", "Draw the curve: .png, .svg or .pdf.")]


def _plan(
    *,
    data: options.DataFile,
    model: options.ModelName,
    budgets: _Budgets = BUDGETS,
    table: options.TableOptions,
    seed: _Seed = None,
    certify: _Certify = False,
    pool: _Pool = False,
    plot: _Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show privacy against utility for several budgets, before anything is spent.

    Finds the noise that each budget would ask for. No secret is drawn and nothing is released.
    Where each person has a coin that takes one pass over the records, and the figures are those of
    a release. A pool runs the model on all candidates; without --certify its noise is an estimate,
    up to about a tenth below what a release will need.
    """
    limits = _read_budgets(budgets)
    options.check_plot_option(plot)
    study, reason = _read_study(data, model, table, limits, pool=pool, quiet=quiet)
    before: dict[str, Any] = {}
    if isinstance(study.sample, Coins):
        planned = _plan_coins(study, limits)
        _show_coins(planned, plot=plot, pool=pool, as_json=as_json, quiet=quiet)
        if not pool:
            return
        plot, before = None, {"coins": planned.to_dict()}
    dry_run = DryRun(
        study.universe,
        sample=None if isinstance(study.sample, Coins) else study.sample,
        n_subsets=table.subsets,
        units=study.units,
        n_jobs=table.jobs,
        rng=seed,
        progress=False if quiet else None,
        reason=reason,
    )
    rows, outputs = _plan_pool(dry_run, study, table, limits, certify=certify, quiet=quiet)
    if plot is not None:
        plot_plan(rows, plot, title=f"{outputs.mechanism_name}: cost of a budget")
    assert dry_run.pool is not None  # drawn by the run
    if as_json:
        named = {"mechanism": outputs.mechanism_name, "n_subsets": dry_run.pool.n_subsets}
        figures = {"certified": certify, **_plain_rows(rows, model, limits)}
        show_json({**before, **named, **figures})
    elif not quiet:
        _show(rows, outputs, dry_run.pool, _without_noise(rows[0]))
        if reason is not None:
            show(f"\n{dry_run.pool.notes[-1]}")
        if advice := _advise(model, list(limits.values())):
            show(f"\n{describe_advice(advice)}")
        if plot is not None:
            show(f"Plot: {plot}")


def _read_study(
    data: Path,
    model: str,
    table: options.TableOptions,
    limits: dict[str, AnyBudget],
    *,
    pool: bool,
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
    elif pool and sample is not None:
        raise DataError("--pool must come with coins; got --sample pool. Leave it out.")
    study = read_model_study(data, model, model_options, reading, sample=sample)
    tell_curator(study.notes, quiet=quiet)
    if study.sample is not None:
        return study, None
    reasons = (study.pool_reason(each, table.pool_options) for each in limits.values())
    reason = next((each for each in reasons if each is not None), None)
    return replace(study, sample=Coins() if reason is None else None), reason


def _plan_pool(
    dry_run: DryRun,
    study: ModelStudy,
    table: options.TableOptions,
    limits: dict[str, AnyBudget],
    *,
    certify: bool,
    quiet: bool,
) -> tuple[list[PlanRow], Outputs]:
    """Return what every budget asks for with a pool, and the values of its candidates."""
    with warnings.catch_warnings(), show_status("drawing the candidates", quiet=quiet) as begin:
        if quiet:
            warnings.simplefilter("ignore")
        mechanism, rule, checkpoint = study.mechanism, table.rule, table.checkpoint
        first = next(iter(limits.values()))
        drawn, _ = dry_run.draw(mechanism, first, rule=rule, checkpoint=checkpoint)
        for limit in limits.values():
            check_rule_feasible(limit, rule, drawn)
        outputs = dry_run.run(mechanism, checkpoint=checkpoint)
        begin("trying the budgets")
        outputs = replace(outputs, on_all=dry_run.on_all(mechanism, outputs))
        if rule is None:  # as in a release
            outputs = scale_run_outputs(outputs)
        rows = [
            _row(text, limit, dry_run, outputs, rule=rule, certify=certify)
            for text, limit in limits.items()
        ]
    return rows, outputs


def _plain_rows(rows: list[PlanRow], model: str, limits: Mapping[str, AnyBudget]) -> dict[str, Any]:
    """Return the figures of a pool as plain JSON types."""
    return {
        "without_noise": _plain(_without_noise(rows[0])),
        "rows": [_plain(row) for row in rows],
        "advice": _advice_dict(_advise(model, list(limits.values()))),
    }


def _show_coins(
    planned: _PlannedCoins, *, plot: Path | None, pool: bool, as_json: bool, quiet: bool
) -> None:
    """Show and draw the cost of budgets with coins; as JSON together with the cost of a pool."""
    if plot is not None:
        plot_plan(planned.rows, plot, title=f"{planned.mechanism}: cost of a budget")
    if as_json and not pool:
        show_json(planned.to_dict())
    if as_json or quiet:
        return
    planned.show()
    if plot is not None:
        show(f"Plot: {plot}")
    if pool:
        show("\nThe same from a pool:\n", style="bold")


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlannedCoins:
    """Cost of budgets with a coin for every unit; curator-only."""

    mechanism: str
    n_units: int
    units: str
    keep: float
    rows: list[PlanRow]
    refused: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""
        return {
            "mechanism": self.mechanism,
            "sample": "coins",
            "n_units": self.n_units,
            "keep": self.keep,
            "without_noise": _plain(_without_noise(self.rows[0])),
            "rows": [_plain(row) for row in self.rows],
            "refused": self.refused,
        }

    def show(self) -> None:
        """Print a table of standard errors by budget."""
        used = "all are used" if self.keep == 1 else f"each is used with probability {self.keep:g}"
        show(f"{self.mechanism}: {self.n_units:,} {self.units}, {used}\n", style="bold")
        sampling = _without_noise(self.rows[0])
        cells = [
            (row.budget if i == 0 else "", number.name, f"{number.noise:.3g}",
             f"{number.distance:.3g}")
            for row in (*self.rows, sampling)
            for i, number in enumerate(row.numbers[:SHOWN_NUMBERS])
        ]  # fmt: skip
        show_table(["budget", "number", "noise", "standard error"], cells, left=["number"])
        _show_more(sampling)
        if self.refused:
            show(f"Groups are too small for {', '.join(self.refused)}: noise may leave no value.")
        show(f"\n{COIN_LEGEND}")


def _plan_coins(study: ModelStudy, limits: dict[str, AnyBudget]) -> _PlannedCoins:
    """Return the standard errors under every budget, as a release would have them."""
    rows, refused = [], []
    plan, reason = None, MechanismError("no budget was given")
    with Session.alone(
        study.universe, next(iter(limits.values())), sample=study.sample, units=study.units
    ) as session:
        for text, limit in limits.items():
            try:
                plan = session.plan(study.mechanism, limit)
            except MechanismError as error:  # groups that are too small for this budget
                refused.append(text)
                reason = error
                continue
            value = plan.outputs.restore(plan.outputs.values[0])
            numbers = (
                PlanNumber(row.name, row.noise_std, row.std_error)
                for row in error_bar_rows(value, plan.error_bars)
            )
            rows.append(PlanRow(budget=text, numbers=tuple(numbers)))
    if plan is None:
        raise reason
    certificate = plan.certificate
    return _PlannedCoins(
        mechanism=certificate.mechanism,
        n_units=certificate.n_units or 0,
        units=certificate.units,
        keep=certificate.used_prior,
        rows=rows,
        refused=refused,
    )


def _without_noise(row: PlanRow) -> PlanRow:
    numbers = (
        PlanNumber(number.name, 0.0, float(np.sqrt(max(0.0, number.distance**2 - number.noise**2))))
        for number in row.numbers
    )
    return PlanRow(budget="no promise", numbers=tuple(numbers))


def _plain(row: PlanRow) -> dict[str, Any]:
    numbers = [number._asdict() for number in row.numbers]
    return {"budget": row.budget, "numbers": numbers}


def _advice_dict(rows: list[Measurement]) -> dict[str, Any] | None:
    if not rows:
        return None
    first, ahead = rows[0], who_is_ahead(rows)
    table = [asdict(row) for row in rows]
    return {"task": first.task, "advantage": first.advantage, "rows": table, "ahead": ahead}


def _advise(model: str, budgets: list[AnyBudget]) -> list[Measurement]:
    """Return the measurements of a model at the middle membership limit."""
    levels = sorted(x for b in budgets if (x := budget_limits(b, 2).success_level) is not None)
    return advise(model, success=levels[len(levels) // 2]) if levels else []


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


def _row(
    text: str,
    budget: AnyBudget,
    dry_run: DryRun,
    outputs: Outputs,
    *,
    rule: str | None,
    certify: bool,
) -> PlanRow:
    """Return the cost of a budget, for outputs in the units of the release."""
    pool = dry_run.pool
    assert pool is not None  # the outputs are those of its subsets
    if certify:
        noise = dry_run.calibrate(outputs, budget, rule=rule)
    else:
        noise = propose_rule_noise(outputs, budget, rule=rule, pool=pool, rng=dry_run.seed)
    bars = measure_error_bars(outputs, noise, pool)
    value = outputs.restore(outputs.values.mean(axis=0))
    return PlanRow(
        budget=text,
        numbers=tuple(
            PlanNumber(row.name, row.noise_std, float(np.hypot(row.spread, row.noise_std)))
            for row in error_bar_rows(value, bars)
        ),
    )


def _show(rows: list[PlanRow], outputs: Outputs, pool: Pool, sampling: PlanRow) -> None:
    show(
        f"{outputs.mechanism_name}: {outputs.n_outputs} numbers, {pool.n_subsets} candidate "
        f"subsets of {pool.n_units} units\n",
        style="bold",
    )
    cells = []
    for row in (*rows, sampling):
        for i, (name, *figures) in enumerate(row.numbers[:SHOWN_NUMBERS]):
            texts = (f"{figure:.3g}" for figure in figures)
            cells.append((row.budget if i == 0 else "", name, *texts))
    show_table(["budget", "number", "noise", "distance"], cells, left=["number"])
    _show_more(sampling)
    show(f"\n{LEGEND}")


def _show_more(row: PlanRow) -> None:
    more = len(row.numbers) - SHOWN_NUMBERS
    if more > 0:
        show(f"... and {more} more numbers: --json has all.")


plan = Verb(
    function=_plan,
    example="""\
  pac plan people.csv --model mean
  pac plan people.csv --model mean --columns income --pool
  pac plan people.csv --model kmeans --clusters 3 --budgets 55%,60%,75%
  pac plan people.csv --model ridge --target income \\
      --budgets "mi<=1/16,mi<=1/4,mi<=1" --plot plan.png""",
)
