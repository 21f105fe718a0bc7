"""The page of [ALG]: all its figure groups, run and written."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pacprivacy.errors import DataError
from pacprivacy.experiments import (
    alg_attack,
    alg_bounds,
    alg_forest,
    alg_kmeans,
    alg_mean,
    alg_pca,
    alg_svm,
)
from pacprivacy.experiments.measure import FULL, QUICK, Settings
from pacprivacy.experiments.page import Page, make_folder
from pacprivacy.experiments.published import find_reference
from pacprivacy.experiments.section import Job, Section

__all__ = ["SECTIONS", "Progress", "reproduce_alg"]

SECTIONS: Final[tuple[Section, ...]] = (
    alg_kmeans.FIGURE,
    alg_svm.FIGURE,
    alg_pca.FIGURE,
    alg_forest.FIGURE,
    alg_mean.SECTION,
    alg_attack.SECTION,
    alg_bounds.SECTION,
)
TITLE: Final = "PAC-Private Algorithms (Sridhar, Xiao, Devadas, S&P 2025), recomputed"
PROTOCOL: Final = (
    "All releases on this page are **simulations** on public data: secrets and noise are seeded, "
    "so that the page can be made again. They protect nobody.",
    "*Paper's protocol*: one shuffle with seed 0; train / test rows Iris 100 / 49, Rice 2667 / "
    "1142, Dry Bean 9527 / 4083; the transformer is fitted on all rows, as published; independent "
    "random halves in which every class occurs; variances (without the n-1 correction) estimated "
    "on some halves, releases of fresh ones. `aniso` of the paper is our `diagonal`; its `iso` is "
    "the largest of those variances in every coordinate. Nothing is proved about such releases.",
    "*Ours*: a balanced, stratified pool of halves and their complements; the secret is uniform "
    "on the pool; noise is certified before the secret is drawn. `exact` meets the information "
    "budget of the row. `risk` meets the *membership success* that this budget implies, and "
    "nothing else: the information it gives away is larger and stands in the noise table.",
    "Our rules look for the least total noise variance, not for the least loss of accuracy: noise "
    "that is smaller in total but turned into a direction that decides can cost more.",
    "Success is of the best possible guess whether one given record was used; a coin has 50 %. "
    "From ln 2 nats on the paper's bound is 100 % and `risk` has nothing to limit.",
    "*Published* figures are checks and not targets; no seed was chosen. Where the reference "
    "files are not at hand the column says so.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What just finished: its name, its place in the count, and its seconds."""

    name: str
    n_done: int
    n_jobs: int
    seconds: float


def reproduce_alg(
    folder: Path,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    n_jobs: int = -1,
    report: Callable[[Progress], None] | None = None,
    settings: Settings | None = None,
) -> Path:
    """Recompute the tables and figures of [ALG].

    Parameters
    ----------
    folder : Path
        Where ``alg.md``, ``alg_<figure>.csv`` and ``alg_<figure>.png`` go.
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
    chosen = _choose(only)
    make_folder(folder)
    used = settings or (QUICK if quick else replace(FULL, checkpoints=folder / "checkpoints"))
    jobs = [(i, job) for i, s in enumerate(chosen) for job in s.jobs(used, quick=quick)]
    begin = time.perf_counter()
    results = _run(jobs, n_jobs, report)
    page = _begin_page(used, quick=quick, seconds=time.perf_counter() - begin)
    for number, section in enumerate(chosen):
        rows = [row for place, found in results if place == number for row in found]
        if not rows:
            continue
        page.heading(section.title)
        page.text(f"Stands for: {section.covers}.")
        page.bullets(section.notes)
        section.write(page, rows, folder / f"alg_{section.name}")
    return page.save(folder / "alg.md")


def _choose(only: Sequence[str]) -> list[Section]:
    known = [section.name for section in SECTIONS]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise DataError(
            f"only must name figures among {', '.join(known)}; got {unknown[0]!r}. "
            "Leave it out for all of them."
        )
    return [section for section in SECTIONS if not only or section.name in only]


def _run(
    jobs: Sequence[tuple[int, Job]], n_jobs: int, report: Callable[[Progress], None] | None
) -> list[tuple[int, list[Any]]]:
    """Share the work out; return rows with the number of their section, in the order of jobs."""
    from joblib import Parallel, delayed

    results: dict[int, list[Any]] = {}
    tasks = (delayed(_timed)(number, job) for number, (_, job) in enumerate(jobs))
    done = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)(tasks)
    for number, rows, seconds in done:
        results[number] = rows
        if report is not None:
            name = jobs[number][1].name
            report(
                Progress(name=name, n_done=len(results), n_jobs=len(jobs), seconds=seconds),
            )
    return [(place, results[number]) for number, (place, _) in enumerate(jobs)]


def _timed(number: int, job: Job) -> tuple[int, list[Any], float]:
    begin = time.perf_counter()
    rows = job.run()
    return number, rows, time.perf_counter() - begin


def _begin_page(settings: Settings, *, quick: bool, seconds: float) -> Page:
    page = Page(TITLE)
    kind = "quick" if quick else "full"
    page.text(
        f"Made by `pac reproduce alg{' --quick' if quick else ''}`: the {kind} run, "
        f"{seconds:.0f} seconds. Pools of {settings.n_subsets} subsets and {settings.n_halves} "
        f"halves (fewer where a fit is slow), {settings.n_releases} releases per cell, seed "
        f"{settings.seed}."
    )
    page.heading("Protocol")
    page.bullets(PROTOCOL)
    if find_reference("pac_algs_kmeans.csv") is None:
        page.text("The published figures are **not available** on this machine.")
    return page
