"""``pac reproduce``: a paper's tables and figures, recomputed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from pacprivacy.cli.console import Quiet, Verb, show
from pacprivacy.errors import DataError

__all__ = ["reproduce"]

PAPERS: Final = ("alg", "picture")


def _reproduce(
    paper: Annotated[
        str, typer.Argument(metavar="PAPER", help=f"What to recompute: {', '.join(PAPERS)}.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small run of every kind of figure, two minutes.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="A,B", help="Some figure groups, such as kmeans,svm."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the files.")
    ] = Path("reproduce"),
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", help="Worker processes; -1 for all cores.")
    ] = -1,
    quiet: Quiet = False,
) -> None:
    """Recompute the tables and figures of a paper, as CSV, PNG and a page.

    alg: PAC-Private Algorithms. The full run takes about an hour on two cores; fits that were
    done are kept in DIR/checkpoints when it is stopped. picture: the picture of the README.
    Everything is simulated on public data: what is written protects nobody.
    """
    if jobs == 0 or jobs < -1:
        raise DataError(f"jobs must be a positive number, or -1; got {jobs}. Use -1 for all cores.")
    if paper == "picture":
        if quick or only is not None:
            raise DataError("picture must be run without --quick and --only. Leave them out.")
        page = _picture(output, jobs)
    elif paper == "alg":
        page = _alg(output, jobs, quick=quick, only=only, quiet=quiet)
    else:
        raise DataError(f"paper must be one of {', '.join(PAPERS)}; got {paper!r}.")
    if not quiet:
        show(f"Wrote {page}")


def _picture(output: Path, jobs: int) -> Path:
    # The experiments bring scikit-learn along; other verbs need not wait for it.
    from pacprivacy.experiments.picture import draw_picture

    return draw_picture(output, n_jobs=jobs)


def _alg(output: Path, jobs: int, *, quick: bool, only: str | None, quiet: bool) -> Path:
    from pacprivacy.experiments.alg import Progress, reproduce_alg

    def tell(progress: Progress) -> None:
        if not quiet:
            count = f"{progress.n_done}/{progress.n_jobs}"
            show(f"{count} {progress.name}: {progress.seconds:.0f} s")

    names = tuple(name.strip() for name in only.split(",")) if only is not None else ()
    return reproduce_alg(output, quick=quick, only=names, n_jobs=jobs, report=tell)


reproduce = Verb(
    function=_reproduce,
    example="""\
  pac reproduce alg --quick -o out/quick
  pac reproduce alg --only kmeans,svm -o out/alg
  pac reproduce picture -o docs/images""",
)
