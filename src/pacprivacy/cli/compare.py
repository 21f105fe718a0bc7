"""``pac compare``: PAC and differential privacy beside each other, at one attacker success."""

from typing import Annotated, Any, Final

import numpy as np
import typer

from pacprivacy.budget import budget_limits, parse_budget
from pacprivacy.cli import options
from pacprivacy.cli.console import (
    AsJson,
    Quiet,
    Verb,
    console_choices,
    option,
    read_console_pair,
    show,
    show_json,
    show_status,
)
from pacprivacy.comparison import compare as run_comparison
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.tables import (
    Table,
    learned_model_columns,
    model_ranges,
    read_table,
    table_matrix,
    table_unit_labels,
)

MODELS: Final = ("mean", "ridge", "logistic")


def _compare(
    data: options.DataFile,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="NAME",
            help=f"What to fit: {', '.join(MODELS)}.",
            autocompletion=console_choices(MODELS),
        ),
    ],
    ranges: Annotated[
        str,
        option(
            "--ranges",
            "LIST",
            'What features can be, known without the file: "0,1" for all of them, or '
            '"age=0,120;income=0,1e6".',
        ),
    ],
    budget: Annotated[
        str,
        option("--budget", "TEXT", 'Attacker success of all rows: "membership<=0.588".'),
    ] = "membership<=0.588",
    target: options.Target = None,
    columns: options.Columns = None,
    target_range: Annotated[
        str | None, option("--target-range", "LO,HI", "What the target of ridge can be.")
    ] = None,
    delta: Annotated[
        float | None, option("--delta", "D", "Where epsilon is read; n^-1.5 if left out.")
    ] = None,
    subsets: Annotated[
        int, typer.Option("--subsets", metavar="N", min=2, help="Candidate subsets of PAC.")
    ] = 256,
    releases: Annotated[
        int, typer.Option("--releases", metavar="N", min=2, help="Simulated releases of PAC rows.")
    ] = 200,
    seed: Annotated[
        int, typer.Option("--seed", min=0, metavar="N", help="Of the whole comparison.")
    ] = 0,
    plot: options.Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare every PAC rule and every DP method at the same guaranteed membership success.

    Each DP method is calibrated by its own privacy-loss distribution: its delta at epsilon = 0 is
    the advantage that the success stands for.

    Everything is simulated: nothing is released and no secret is drawn. The figures depend on
    the records, so they are for the curator. The two families promise different things; the
    table says which.
    """
    success = budget_limits(parse_budget(budget)).success_level
    if success is None:
        raise BudgetError(f'budget must limit membership; got {budget!r}. Try "membership<=0.588".')
    if model not in MODELS:
        raise DataError(f"model must be one of {', '.join(MODELS)}; got {model!r}. Choose one.")
    if model != "mean" and target is None:
        raise DataError(f"target must be named for {model}. Add --target COL.")
    table = read_table(data)
    names = learned_model_columns(
        table, options.TableOptions(target=target, columns=columns).model()
    )
    X = table_matrix(table, names)
    low, high = zip(
        *model_ranges(options.read_range_options("--ranges", ranges), names), strict=True
    )
    with show_status("comparing", quiet=quiet):
        found = run_comparison(
            X,
            _read_target(table, target, model),
            model=model,
            success=success,
            ranges=(np.array(low), np.array(high)),
            target_range=None
            if target_range is None
            else read_console_pair("--target-range", target_range),
            delta=delta,
            n_subsets=subsets,
            n_releases=releases,
            n_dp_releases=max(2, releases // 10),
            rng=seed,
        )
    if plot is not None:
        found.plot(plot)
    if as_json:
        show_json(found.to_public_dict())
    elif not quiet:
        show(str(found))
        if plot is not None:
            show(f"\nWrote {plot}")


def _read_target(table: Table, target: str | None, model: str) -> Any:
    if model == "mean" or target is None:
        return None
    if model == "ridge":
        return table_matrix(table, [target])[:, 0]
    return table_unit_labels(table, target)


compare = Verb(
    function=_compare,
    example="""\
  pac compare people.csv --model mean --columns age --ranges 0,120
  pac compare people.csv --model logistic --target smokes \\
      --ranges "age=0,120;income=0,1e6" --plot compare.png""",
)
