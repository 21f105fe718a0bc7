"""``pac compare``: PAC and differential privacy beside each other, at one attacker success."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from pacprivacy.budget import limits_of, parse_budget
from pacprivacy.cli import options
from pacprivacy.cli.console import (
    AsJson,
    Quiet,
    Verb,
    one_of,
    read_pair,
    show,
    show_json,
    show_status,
)
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.tables import Table, numeric_matrix, read_table, unit_labels

MODELS: Final = ("mean", "ridge", "logistic")


def _compare(
    data: options.DataFile,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="NAME",
            help=f"What to fit: {', '.join(MODELS)}.",
            autocompletion=one_of(MODELS),
        ),
    ],
    ranges: Annotated[
        str,
        typer.Option(
            "--ranges",
            metavar="LIST",
            help='What features can be, known without the file: "0,1" for all of them, or '
            '"age=0,120;income=0,1e6".',
        ),
    ],
    budget: Annotated[
        str,
        typer.Option(
            "--budget", metavar="TEXT", help='Attacker success of all rows: "membership<=0.588".'
        ),
    ] = "membership<=0.588",
    target: options.Target = None,
    columns: options.Columns = None,
    target_range: Annotated[
        str | None,
        typer.Option("--target-range", metavar="LO,HI", help="What the target of ridge can be."),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option("--delta", metavar="D", help="Where epsilon is read; n^-1.5 if left out."),
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
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the rows: .png, .svg or .pdf."),
    ] = None,
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
    success = limits_of(parse_budget(budget)).success
    if success is None:
        raise BudgetError(f'budget must limit membership; got {budget!r}. Try "membership<=0.588".')
    if model not in MODELS:
        raise DataError(f"model must be one of {', '.join(MODELS)}; got {model!r}.")
    if model != "mean" and target is None:
        raise DataError(f"target must be named for {model}. Add --target COL.")
    table = read_table(data, labels=[target] if target else [])
    names = _features(table, target, columns)
    X = numeric_matrix(table, names)
    # Brings in scikit-learn, which other verbs need not wait for.
    from pacprivacy.comparison import compare as run

    with show_status("comparing", quiet=quiet):
        found = run(
            X,
            _read_target(table, target, model),
            model=model,
            success=success,
            ranges=_read_ranges(ranges, names),
            target_range=None
            if target_range is None
            else read_pair("--target-range", target_range),
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


def _features(table: Table, target: str | None, columns: str | None) -> list[str]:
    if columns is not None:
        return [name.strip() for name in columns.split(",")]
    return [name for name in table.names if name != target]


def _read_target(table: Table, target: str | None, model: str) -> Any:
    if model == "mean" or target is None:
        return None
    if model == "ridge":
        return numeric_matrix(table, [target])[:, 0]
    return unit_labels(table, target)


def _read_ranges(text: str, names: list[str]) -> tuple[Any, Any]:
    """Read ``LO,HI`` for all columns, or ``name=LO,HI`` for each, separated by semicolons."""
    if "=" not in text:
        return read_pair("--ranges", text)
    found: dict[str, tuple[float, float]] = {}
    for piece in text.split(";"):
        name, _, pair = piece.partition("=")
        found[name.strip()] = read_pair(f"--ranges for {name.strip()!r}", pair)
    missing = [name for name in names if name not in found]
    unknown = [name for name in found if name not in names]
    if missing or unknown:
        wrong = f"none for {missing[0]!r}" if missing else f"one for {unknown[0]!r}, unknown"
        raise DataError(
            f"--ranges must hold one range for every column that is used; got {wrong}. "
            f"The columns are {', '.join(names[:8])}."
        )
    low, high = zip(*(found[name] for name in names), strict=True)
    return np.array(low), np.array(high)


compare = Verb(
    function=_compare,
    example="""\
  pac compare people.csv --model mean --columns age --ranges 0,120
  pac compare people.csv --model logistic --target smokes \\
      --ranges "age=0,120;income=0,1e6" --plot compare.png""",
)
