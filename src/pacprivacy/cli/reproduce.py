"""``pac reproduce``: a paper's tables and figures, recomputed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from pacprivacy.cli.console import AsJson, Quiet, Verb, show, show_json
from pacprivacy.errors import DataError

__all__ = ["reproduce"]

PAPERS: Final = ("alg", "design", "residual", "accuracy-first", "cs208", "picture")


def _reproduce(
    paper: Annotated[
        str, typer.Argument(metavar="PAPER", help=f"What to recompute: {', '.join(PAPERS)}.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small run of every kind of figure, minutes.")
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
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Recompute the tables and figures of a paper, as CSV, PNG and a page.

    alg: PAC-Private Algorithms. design: Privacy-Conscious Algorithm Design, and private answers.
    residual: Residual-PAC Privacy (needs jax). accuracy-first: Accuracy First. cs208: learning
    under differential privacy (needs jax). A full run takes up to an hour on two cores; what was
    done is kept in DIR/checkpoints when it is stopped. picture: the picture of the README.
    Everything is simulated on public data: what is written protects nobody.
    """
    if jobs == 0 or jobs < -1:
        raise DataError(f"jobs must be a positive number, or -1; got {jobs}. Use -1 for all cores.")
    if paper == "picture":
        if quick or only is not None:
            raise DataError("picture must be run without --quick and --only. Leave them out.")
        page = _picture(output, jobs)
    elif paper in PAPERS:
        page = _paper(paper, output, jobs, quick=quick, only=only, quiet=quiet or as_json)
    else:
        raise DataError(f"paper must be one of {', '.join(PAPERS)}; got {paper!r}.")
    if as_json:
        show_json({"paper": paper, "page": str(page)})
    elif not quiet:
        show(f"Wrote {page}")


def _picture(output: Path, jobs: int) -> Path:
    # The experiments bring scikit-learn along; other verbs need not wait for it.
    from pacprivacy.experiments.picture import draw_picture

    return draw_picture(output, n_jobs=jobs)


def _paper(
    name: str, output: Path, jobs: int, *, quick: bool, only: str | None, quiet: bool
) -> Path:
    from pacprivacy.experiments.accuracy_first import ACCURACY_FIRST
    from pacprivacy.experiments.alg import ALG
    from pacprivacy.experiments.cs208 import CS208
    from pacprivacy.experiments.design import DESIGN
    from pacprivacy.experiments.residual import RESIDUAL
    from pacprivacy.experiments.run import Progress, run_paper

    def tell(progress: Progress) -> None:
        if not quiet:
            count = f"{progress.n_done}/{progress.n_jobs}"
            show(f"{count} {progress.name}: {progress.seconds:.0f} s")

    names = tuple(part.strip() for part in only.split(",")) if only is not None else ()
    paper = {one.name: one for one in (ALG, DESIGN, RESIDUAL, ACCURACY_FIRST, CS208)}[name]
    return run_paper(paper, output, quick=quick, only=names, n_jobs=jobs, report=tell)


reproduce = Verb(
    function=_reproduce,
    example="""\
  pac reproduce alg --quick -o out/quick
  pac reproduce alg --only kmeans,svm -o out/alg
  pac reproduce design --only ridge,equal -o out/design
  pac reproduce residual --quick -o out/residual
  pac reproduce accuracy-first --quick -o out/accuracy-first
  pac reproduce cs208 --quick -o out/cs208
  pac reproduce picture -o docs/images""",
)
