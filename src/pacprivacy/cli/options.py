"""Options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pacprivacy.cli.console import one_of, read_pair
from pacprivacy.errors import CertificateError, DataError
from pacprivacy.noise import RULES
from pacprivacy.reporting import FORMATS
from pacprivacy.tables import MODELS, ModelOptions, Ranges as DeclaredRanges

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
        help="Candidate subsets, even; default 2000, or 256 for a model fitted one by one.",
    ),
]
RuleName = Annotated[
    str | None,
    typer.Option(
        "--rule",
        metavar="NAME",
        help="Noise rule; the least certified noise if absent.",
        autocompletion=one_of(RULES),
    ),
]
Bins = Annotated[int | None, typer.Option("--bins", metavar="N", help="Histogram bins.")]
Ranges = Annotated[
    str | None,
    typer.Option(
        "--ranges",
        metavar="LIST",
        help="Of histogram (needed) and forest, public: 0,120 or 'age=0,120;pay=0,1e6'.",
    ),
]
UniverseFacts = Annotated[
    bool,
    typer.Option(
        "--universe-facts",
        help="Let exact ranges, means and scales of all records out; the certificate names them.",
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="TEXT", help="What the release is called.")
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
Folder = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the release files.")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw the result: .png, .svg or .pdf.")
]
BundleFile = Annotated[
    Path | None,
    typer.Option(
        "--bundle", metavar="FILE", help="The curator's bundle; curator.npz beside the release."
    ),
]
LedgerPlace = Annotated[
    str | None,
    typer.Option(
        "--ledger", metavar="PLACE", help="Spend from a ledger: SQLite file or postgresql:// URL."
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option("--dataset", metavar="NAME", help="Name in the ledger; the file's by default."),
]
Principal = Annotated[
    str | None, typer.Option("--principal", metavar="NAME", help="Who spends, in the ledger.")
]
Total = Annotated[
    str | None,
    typer.Option(
        "--total",
        metavar="TEXT",
        help="Budget of all releases together; the ledger's by default.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="FILE", help="Of the session's secret; beside the ledger by default."
    ),
]


def read_options(
    *, columns: str | None, ranges: str | None = None, **options: object
) -> ModelOptions:
    """Collect what belongs to the model, as typed by the user."""
    return ModelOptions(
        columns=None if columns is None else _split(columns),
        ranges=None if ranges is None else read_ranges("--ranges", ranges),
        **options,  # type: ignore[arg-type]
    )


def read_ranges(name: str, text: str) -> DeclaredRanges:
    """Read ``LO,HI`` for all columns, or ``COL=LO,HI`` for each, separated by semicolons."""
    if "=" not in text:
        return read_pair(name, text)
    pieces = (piece.partition("=") for piece in text.split(";"))
    return {
        column.strip(): read_pair(f"{name} for {column.strip()!r}", pair)
        for column, _, pair in pieces
    }


def find_bundle(release: Path, bundle: Path | None) -> Path:
    """Return the file of the curator's bundle, which must be there."""
    path = release.parent / "curator.npz" if bundle is None else bundle
    if not path.is_file():
        raise CertificateError(
            f"bundle must be a file; got {path}, which is not there. "
            f"Name it with --bundle, or ask the curator to run this."
        )
    return path


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
