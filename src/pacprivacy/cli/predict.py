"""``pac predict``: a released model on new rows."""

import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from pacprivacy.cli.console import Screen, Verb, option, tell_curator
from pacprivacy.cli.options import DataFile, PublicKey, ReadingOptions, split_option_names
from pacprivacy.errors import DataError
from pacprivacy.release import Release
from pacprivacy.tables import check_table_columns, predict as apply_model, read_table


def _predict(
    *,
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="The release.json of a model.")
    ],
    data: DataFile,
    output: Path | None = option("FILE", "CSV to write; default stdout.", flags="--output -o"),
    keep: str | None = option("A,B", "Columns of the file to copy."),
    public_key: PublicKey = None,
    reading: ReadingOptions,
    screen: Screen,
) -> None:
    """Apply a released model to new rows.

    For ols, ridge, logistic, poisson, svm, forest (predictions), kmeans (the nearest centre) and
    pca (coordinates). One line for every row of the file; rows with gaps have empty predictions.

    Only what was released is used, so this costs no privacy and no budget, however often it is
    done. What is predicted tells about the new rows, which no certificate protects.
    """
    source = Release.load(release, public_key=public_key)
    if output is not None and not output.parent.is_dir():
        raise DataError(
            f"--output must be in a folder that is there; got {str(output.parent)[:60]!r}. "
            "Make it, or choose another."
        )
    table = read_table(data, reading.typed())
    kept = () if keep is None else split_option_names("--keep", keep)
    check_table_columns(table, kept)
    predicted, known = apply_model(source, table)
    columns = {name: table.columns[name].labels.tolist() for name in kept} | predicted
    if screen.as_json:
        plain = {name: [None if v == "" else v for v in items] for name, items in columns.items()}
        screen.show("", plain)
    elif output is None:
        _write(sys.stdout, columns)
    if output is not None:
        with output.open("w", encoding="utf-8", newline="") as file:
            _write(file, columns)
    n_gaps = len(known) - int(known.sum())
    notes = [f"{n_gaps:,} of {len(known):,} rows have gaps and no prediction"] if n_gaps else []
    tell_curator((*table.notes, *notes), quiet=screen.quiet)


def _write(file: TextIO, columns: Mapping[str, Any]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))


predict = Verb(
    function=_predict,
    example="""\
  pac predict out/release.json new.csv -o predicted.csv
  pac predict out/release.json new.parquet --keep id""",
)
