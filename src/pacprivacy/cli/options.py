"""Options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pacprivacy.cli.console import one_of, read_pair
from pacprivacy.errors import DataError
from pacprivacy.noise import RULES
from pacprivacy.reporting import FORMATS
from pacprivacy.tables import MODELS, ModelOptions

DataFile = Annotated[
    Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with a header.")
]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME",
        help=f"What to release: {', '.join(MODELS)}.",
        autocompletion=one_of(MODELS),
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="COL",
        help="Column to predict; for a model without one, the only column to describe.",
    ),
]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="Columns to use; default all.")
]
Unit = Annotated[
    str | None,
    typer.Option(
        "--unit", metavar="COL", help="Column that says whose row it is, if people have several."
    ),
]
Subsets = Annotated[
    int | None,
    typer.Option(
        "--subsets",
        metavar="N",
        help="Candidate subsets, even; default 1024, or 256 for a model fitted one by one.",
    ),
]
RuleName = Annotated[
    str | None,
    typer.Option(
        "--rule",
        metavar="NAME",
        help="Noise rule; the least certified noise if absent.",
        autocompletion=one_of(name for name in RULES if name != "basis"),
    ),
]
Bins = Annotated[int | None, typer.Option("--bins", metavar="N", help="Histogram bins.")]
Range = Annotated[
    str | None,
    typer.Option("--range", metavar="LO,HI", help="Histogram range; public. Default: the data's."),
]
Clusters = Annotated[int | None, typer.Option("--clusters", metavar="N", help="Of kmeans.")]
Components = Annotated[
    int | None, typer.Option("--components", metavar="N", help="Directions that pca keeps.")
]
Cost = Annotated[
    float | None,
    typer.Option("--C", metavar="X", help="Inverse regularisation of svm; less is stabler."),
]
Trees = Annotated[int | None, typer.Option("--trees", metavar="N", help="Of forest; default 3.")]
Depth = Annotated[
    int | None, typer.Option("--depth", metavar="N", help="Of the forest's trees; default 3.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", metavar="N", help="Worker processes.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="FILE", help="Go on from here after a stop."),
]


def read_options(*, columns: str | None, range_: str | None, **options: object) -> ModelOptions:
    """Collect what belongs to the model, as typed by the user."""
    return ModelOptions(
        columns=None if columns is None else _split(columns),
        range=None if range_ is None else read_pair("--range", range_),
        **options,  # type: ignore[arg-type]
    )


def check_plot(plot: Path | None) -> None:
    """Refuse a picture that cannot be drawn, before any work is done for it."""
    if plot is None:
        return
    if plot.suffix.lower() not in FORMATS:
        raise DataError(
            f"--plot must end in {', '.join(FORMATS)}; got {plot.name[:60]!r}. Name it plot.png."
        )
    if not plot.parent.is_dir():
        raise DataError(
            f"--plot must be in a folder that is there; got {str(plot.parent)[:60]!r}. "
            "Make it, or choose another."
        )


def _split(columns: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in columns.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise DataError(
            f"--columns must be distinct names with commas between; got {columns!r}. "
            "Write it as age,income."
        )
    return names
