"""Run a paper's figure groups and write its page: the same for every paper."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pacprivacy.errors import DataError
from pacprivacy.experiments.measure import Settings
from pacprivacy.experiments.page import Page, make_folder
from pacprivacy.experiments.published import find_reference
from pacprivacy.experiments.section import Job, Section

__all__ = ["Paper", "Progress", "run_paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper whose tables and figures are recomputed.

    Attributes
    ----------
    name : str
        Short name: of the command line and of the files.
    title : str
        Heading of the page.
    protocol : tuple of str
        What a reader must know about all sections.
    sections : tuple of Section
        The figure groups, in the order of the page.
    full, quick : Settings
        How much work the two kinds of run do.
    reference : str or None
        A file of published figures, by which the page tells whether they are at hand; none for a
        paper that prints no numbers.
    amount : callable
        Says in one sentence how much work some settings are.
    """

    name: str
    title: str
    protocol: tuple[str, ...]
    sections: tuple[Section, ...]
    full: Settings
    quick: Settings
    reference: str | None
    amount: Callable[[Settings], str]

    def choose(self, only: Sequence[str]) -> list[Section]:
        """Return the sections of these names; all if there are none."""
        known = [section.name for section in self.sections]
        unknown = [name for name in only if name not in known]
        if unknown:
            raise DataError(
                f"only must name figures among {', '.join(known)}; got {unknown[0]!r}. "
                "Leave it out for all of them."
            )
        return [section for section in self.sections if not only or section.name in only]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What just finished: its name, its place in the count, and its seconds."""

    name: str
    n_done: int
    n_jobs: int
    seconds: float


def run_paper(
    paper: Paper,
    folder: Path,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    n_jobs: int = -1,
    report: Callable[[Progress], None] | None = None,
    settings: Settings | None = None,
) -> Path:
    """Recompute the tables and figures of a paper.

    Parameters
    ----------
    paper : Paper
        What to recompute.
    folder : Path
        Where ``<paper>.md``, ``<paper>_<figure>.csv`` and ``<paper>_<figure>.png`` go.
    quick : bool
        Fewer budgets, data sets, subsets and releases.
    only : sequence of str
        Names of figure groups; all by default.
    n_jobs : int
        Worker processes; -1 for all cores. Results do not depend on it.
    report : callable, optional
        Told about every piece of work that finished.
    settings : Settings, optional
        How much work to do, instead of the quick or the full settings.

    Returns
    -------
    Path
        The page.
    """
    chosen = paper.choose(only)
    make_folder(folder)
    full = replace(paper.full, checkpoints=folder / "checkpoints")
    used = settings or (paper.quick if quick else full)
    jobs = [(i, job) for i, s in enumerate(chosen) for job in s.jobs(used, quick=quick)]
    begin = time.perf_counter()
    results = _run(jobs, n_jobs, used.checkpoints, report)
    page = _begin_page(paper, used, quick=quick, seconds=time.perf_counter() - begin)
    for number, section in enumerate(chosen):
        rows = [row for place, found in results if place == number for row in found]
        if not rows:
            continue
        page.heading(section.title)
        page.text(f"Stands for: {section.covers}.")
        page.bullets(section.notes)
        section.write(page, rows, folder / f"{paper.name}_{section.name}")
    return page.save(folder / f"{paper.name}.md")


def _run(
    jobs: Sequence[tuple[int, Job]],
    n_jobs: int,
    kept: Path | None,
    report: Callable[[Progress], None] | None,
) -> list[tuple[int, list[Any]]]:
    """Share the work out; return rows with the number of their section, in the order of jobs."""
    from joblib import Parallel, delayed

    results: dict[int, list[Any]] = {}
    tasks = (delayed(_timed)(number, job, kept) for number, (_, job) in enumerate(jobs))
    done = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)(tasks)
    for number, rows, seconds in done:
        results[number] = rows
        if report is not None:
            name = jobs[number][1].name
            report(
                Progress(name=name, n_done=len(results), n_jobs=len(jobs), seconds=seconds),
            )
    return [(place, results[number]) for number, (place, _) in enumerate(jobs)]


def _timed(number: int, job: Job, kept: Path | None) -> tuple[int, list[Any], float]:
    begin = time.perf_counter()
    rows = job.run() if job.kind is None or kept is None else _run_once(job, job.kind, kept)
    return number, rows, time.perf_counter() - begin


def _run_once(job: Job, kind: type[Any], folder: Path) -> list[Any]:
    """Read the rows of a job that was done before; do it and keep them if it was not."""
    same = f"{job.function.__module__}.{job.function.__qualname__}{job.arguments!r}"
    digest = hashlib.sha256(same.encode()).hexdigest()[:12]
    path = folder / f"{re.sub('[^a-z0-9]+', '-', job.name.lower())}-{digest}.json"
    if path.is_file():
        return [kind(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    rows = job.run()
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
    partial.replace(path)
    return rows


def _begin_page(paper: Paper, settings: Settings, *, quick: bool, seconds: float) -> Page:
    page = Page(paper.title)
    kind = "quick" if quick else "full"
    page.text(
        f"Made by `pac reproduce {paper.name}{' --quick' if quick else ''}`: the {kind} run, "
        f"{seconds:.0f} seconds. {paper.amount(settings)}"
    )
    page.heading("Protocol")
    page.bullets(paper.protocol)
    if paper.reference is not None and find_reference(paper.reference) is None:
        page.text("The published figures are **not available** on this machine.")
    return page
