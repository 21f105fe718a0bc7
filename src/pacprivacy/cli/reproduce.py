"""``pac reproduce``: a paper's tables and figures, recomputed.

The papers are not part of the library: they live in the folder ``papers`` of the source checkout,
which registers them under the entry points ``pacprivacy.papers``. Each is a function
``(folder, *, quick, only, n_jobs, report)`` that writes its files, calls ``report`` after every
piece, and returns its page.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Final

import typer

from pacprivacy.cli.console import Screen, Verb, option, show, switch
from pacprivacy.errors import DataError

GROUP: Final = "pacprivacy.papers"


def _reproduce(
    *,
    paper: Annotated[
        str, typer.Argument(metavar="PAPER", help="What to recompute: see the names below.")
    ],
    quick: bool = switch("--quick", "Run every kind of figure on a small scale, in minutes."),
    only: str | None = option("A,B", "Some figure groups, such as kmeans,svm."),
    output: Path = option(
        "DIR", "Folder for the files.", flags="--output -o", default=Path("reproduce")
    ),
    jobs: int = option("N", "Worker processes; -1 for all cores.", default=-1),
    screen: Screen,
) -> None:
    """Recompute the tables and figures of a paper, as CSV, PNG and a page.

    Needs the source checkout with its folder papers installed: pip install --editable ./papers.

    alg: PAC-Private Algorithms. design: Privacy-Conscious Algorithm Design, and private answers.
    residual: Residual-PAC Privacy. accuracy-first: Accuracy First. A full run takes up to an
    hour on two cores; what was done is kept in DIR/checkpoints when it is stopped. agreement: the
    printed figures beside ours, as stored.
    Everything is simulated on public data: what is written protects nobody.
    """
    if jobs == 0 or jobs < -1:
        raise DataError(f"jobs must be a positive number, or -1; got {jobs}. Use -1 for all cores.")
    run = _find(paper)
    page = run(
        output,
        quick=quick,
        only=() if only is None else tuple(part.strip() for part in only.split(",")),
        n_jobs=jobs,
        report=lambda progress: show(str(progress)) if screen.is_for_people else None,
    )
    screen.show(f"Wrote {page}", {"paper": paper, "page": str(page)})


def _find(paper: str) -> Callable[..., Path]:
    papers = {entry.name: entry for entry in entry_points(group=GROUP)}
    if not papers:
        raise DataError(
            "the papers must be installed; got none, since they are in the source checkout and not "
            "in the package. In a checkout run: pip install --editable ./papers"
        )
    if paper not in papers:
        raise DataError(f"paper must be one of {', '.join(sorted(papers))}; got {paper!r}.")
    run: Callable[..., Path] = papers[paper].load()
    return run


reproduce = Verb(
    function=_reproduce,
    example="""\
  pac reproduce alg --quick -o out/quick
  pac reproduce alg --only kmeans,svm -o out/alg
  pac reproduce design --only ridge,descent -o out/design
  pac reproduce residual --quick -o out/residual
  pac reproduce accuracy-first --quick -o out/accuracy-first
  pac reproduce agreement""",
)
