"""``pac release``: a private release of a table in a file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pacprivacy.budget import parse_budget
from pacprivacy.cli.columns import unit_labels
from pacprivacy.cli.console import AsJson, Quiet, Verb, show, show_json, show_status
from pacprivacy.cli.models import MODELS, ModelOptions, find_model
from pacprivacy.cli.numbers import format_number, read_pair
from pacprivacy.cli.tables import read_table
from pacprivacy.errors import DataError
from pacprivacy.mechanism import BatchMechanism
from pacprivacy.noise.rules import rule_name
from pacprivacy.privatize import privatize
from pacprivacy.release import Release

__all__ = ["release", "save_release"]

SHOWN_NUMBERS: Final = 20

_Data = Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with a header.")]
_Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="DIR", help="Folder for the release files."),
]
_Model = Annotated[
    str, typer.Option("--model", metavar="NAME", help=f"What to release: {', '.join(MODELS)}.")
]
_Budget = Annotated[
    str,
    typer.Option(
        "--budget",
        metavar="TEXT",
        help='"membership<=0.6", "mi<=1/64", "epsilon<=1", or several joined with "&".',
    ),
]
_Target = Annotated[
    str | None,
    typer.Option("--target", metavar="COL", help="Describe this column alone; default all."),
]
_Columns = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="Columns to use; default all.")
]
_Unit = Annotated[
    str | None,
    typer.Option(
        "--unit", metavar="COL", help="Column that says whose row it is, if people have several."
    ),
]
_Subsets = Annotated[
    int | None,
    typer.Option("--subsets", metavar="N", help="Candidate subsets, even; default 1024."),
]
_Rule = Annotated[
    str | None,
    typer.Option("--rule", metavar="NAME", help="Noise rule; the least certified noise if absent."),
]
_Bins = Annotated[int | None, typer.Option("--bins", metavar="N", help="Histogram bins.")]
_Range = Annotated[
    str | None,
    typer.Option("--range", metavar="LO,HI", help="Histogram range; public. Default: the data's."),
]
_Jobs = Annotated[int | None, typer.Option("--jobs", metavar="N", help="Worker processes.")]
_Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="FILE", help="Go on from here after a stop."),
]
_Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", help="Of pool and proof; never of the secret or the noise."
    ),
]
_Simulate = Annotated[
    bool, typer.Option("--simulate", help="Seed the noise too: for trials, protects nobody.")
]


def _release(
    data: _Data,
    model: _Model,
    budget: _Budget,
    output: _Output,
    target: _Target = None,
    columns: _Columns = None,
    unit: _Unit = None,
    subsets: _Subsets = None,
    rule: _Rule = None,
    bins: _Bins = None,
    range_: _Range = None,
    jobs: _Jobs = None,
    checkpoint: _Checkpoint = None,
    seed: _Seed = None,
    simulate: _Simulate = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Release a statistic of a table, with noise and a certificate.

    The statistic is computed on a secret half of the records. Two files are written: release.json
    may be published; curator.npz is for the curator alone and serves 'pac verify'.
    """
    options = ModelOptions(
        target=target,
        columns=None if columns is None else _split(columns),
        unit=unit,
        bins=bins,
        range=None if range_ is None else read_pair("--range", range_),
    )
    # What can be refused without the data is refused before the data are read.
    limits = parse_budget(budget)
    chosen = find_model(model, options)
    if rule is not None:
        rule_name(rule)
    check_folder(output)
    table = read_table(data, labels=() if unit is None else (unit,))
    mechanism, universe = chosen.build(table, options)
    # A mechanism that runs subset by subset has a progress bar of its own.
    silent = quiet or not isinstance(mechanism, BatchMechanism)
    with warnings.catch_warnings(), show_status("finding the noise", quiet=silent):
        if quiet:
            warnings.simplefilter("ignore")
        found = privatize(
            mechanism,
            universe,
            limits,
            n_subsets=subsets,
            rule=rule,
            units=None if unit is None else unit_labels(table, unit),
            n_jobs=jobs,
            checkpoint=checkpoint,
            rng=seed,
            progress=False if quiet else None,
            simulate=simulate,
        )
    files = save_release(found, output)
    if as_json:
        show_json({**found.to_public_dict(), "files": files})
    elif not quiet:
        _show_release(found, files)


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot take a release, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"--output must be a folder; got the file {folder}. Choose another name.")
    if (folder / "release.json").exists():
        raise DataError(
            f"--output must not hold a release yet; got {folder / 'release.json'}. Choose another "
            "folder, or delete the file if it was never published: two releases tell more than one."
        )


def save_release(found: Release, folder: Path) -> dict[str, str]:
    """Write the two files and return their names."""
    try:
        public = found.save(folder)
    except OSError as error:
        raise DataError(
            f"--output must be a folder that can be written; got {folder} ({error.strerror}). "
            "Choose another."
        ) from None
    return {"release": str(public), "bundle": str(public.parent / "curator.npz")}


def _show_release(found: Release, files: dict[str, str]) -> None:
    show(str(found.certificate))
    if lines := _value_lines(found.value):
        show("\nReleased value", style="bold")
        show("\n".join(lines))
    show(f"\nWrote {files['release']} (may be published)")
    show(f"      {files['bundle']} (curator only; 'pac verify' needs it)")


def _value_lines(value: Any) -> list[str]:
    """Return a few named numbers as lines; nothing for a value that is better read in its file."""
    small = isinstance(value, dict) and len(value) <= SHOWN_NUMBERS
    if not small or not all(isinstance(item, float) for item in value.values()):
        return []
    width = max(len(name) for name in value)
    return [f"  {name:<{width}}  {format_number(item)}" for name, item in value.items()]


def _split(columns: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in columns.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise DataError(
            f"--columns must be distinct names with commas between; got {columns!r}. "
            "Write it as age,income."
        )
    return names


release = Verb(
    function=_release,
    example="""\
  pac release people.csv --model mean --budget "membership<=0.6" -o out
  pac release visits.parquet --model histogram --target age --bins 12 \\
      --range 0,120 --unit patient --budget "mi<=1/16" -o out-ages""",
)
