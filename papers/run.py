"""What a paper's page is made of, and how it is run: the same for every paper.

A :class:`Paper` has sections (figure groups). A section says which pieces of work it consists of
(:class:`Job`), for some :class:`Settings`, and how the rows that they return are shown. Pieces are
shared out over worker processes; each draws from streams that are named by what it does, so that
results depend on the settings alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from pacprivacy.errors import DataError
from papers.agreement import Compares, Comparison, add_to_page, write_comparisons
from papers.page import Page, make_folder
from papers.published import find_reference

MI_BUDGETS: Final = tuple(2.0**power for power in range(-7, 3))  # 1/128 .. 4 nats


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much work a run does; results depend on nothing else, workers included.

    ``n_halves`` independent halves of the paper's protocol serve the variances, as many the
    releases, with ``n_noises`` draws for each half. Our pools have ``n_subsets``, or
    ``n_folds`` folds of which each subset leaves one out, and ``n_releases`` simulated releases per
    cell. ``n_trials`` trainings are made where each is a descent of its own, ``n_repeats`` runs of
    a protocol where one run has an error that the next one shows. ``checkpoints`` is a folder
    for slow outputs, so that a run can be stopped and resumed.
    """

    mi_budgets: tuple[float, ...] = MI_BUDGETS
    n_halves: int = 4000
    n_noises: int = 4
    n_subsets: int = 512
    n_folds: int = 4
    n_releases: int = 4000
    n_trials: int = 500
    n_repeats: int = 8
    seed: int = 0
    checkpoints: Path | None = None


SIMULATED: Final = (
    "All releases on this page are **simulations** on public data: secrets and noise are seeded, "
    "so that the page can be made again. They protect nobody."
)
FULL: Final = Settings()
QUICK: Final = Settings(
    mi_budgets=(1 / 64, 1 / 4), n_halves=400, n_noises=4, n_subsets=64, n_releases=400
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A piece of work: ``function(*arguments, **options)`` returns one record or several.

    Arguments that print alike must mean the same. If records of class ``kind`` hold numbers and
    text only, a full run keeps them, so that it can be stopped and goes on where it was. Without
    the modules in ``needs``, of extras, the work is left out.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: type[Any] | None = None
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """The needed modules that are not installed."""
        return tuple(name for name in self.needs if find_spec(name) is None)

    def run(self) -> tuple[list[Any], float]:
        """Do the work, on one thread, since workers are processes; return rows and CPU seconds."""
        begin = time.process_time()
        with threadpool_limits(limits=1):
            found = self.function(*self.arguments, **self.options)
            rows = [found] if is_dataclass(found) else list(found)
        return rows, time.process_time() - begin

    def run_once(self, folder: Path) -> tuple[list[Any], float]:
        """Read the rows if the work was done before; do it and keep them if it was not."""
        if self.kind is None:
            return self.run()
        same = f"{self.function.__module__}.{self.function.__qualname__}{self.arguments!r}"
        if self.options:
            same += repr(dict(self.options))
        digest = hashlib.sha256(same.encode()).hexdigest()[:12]
        path = folder / f"{re.sub('[^a-z0-9]+', '-', self.name.lower())}-{digest}.json"
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            return [self.kind(**row) for row in kept["rows"]], kept["cpu_seconds"]
        rows, seconds = self.run()
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        content = {"cpu_seconds": seconds, "rows": [asdict(row) for row in rows]}
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.replace(path)
        return rows, seconds


class Section(Protocol):
    """A figure group of a paper: of ``--only``, of the files, and of the page.

    ``covers`` says which tables and figures of the paper it stands for, ``notes`` what a reader
    must know about the protocol.
    """

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def covers(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return the work of a quick or of a full run."""
        ...

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write ``stem``.csv and ``stem``.png and put both on the page."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What just finished: its name, its place in the count, and its CPU seconds."""

    name: str
    n_done: int
    n_jobs: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.n_done}/{self.n_jobs} {self.name}: {self.seconds:.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper whose tables and figures are recomputed, section by section of its page.

    ``reference`` is a file of published figures, by which the page tells whether they are at hand;
    None for a paper that prints no numbers. ``amount`` says in one sentence how much work some
    settings are, with their fields in braces.
    """

    name: str
    title: str
    protocol: tuple[str, ...]
    sections: tuple[Section, ...]
    full: Settings
    quick: Settings
    reference: str | None
    amount: str

    def reproduce(
        self,
        folder: Path,
        *,
        quick: bool = False,
        only: Sequence[str] = (),
        n_jobs: int = -1,
        report: Callable[[Progress], None] | None = None,
        settings: Settings | None = None,
    ) -> Path:
        """Recompute the tables and figures; ``pac reproduce`` calls this.

        Parameters
        ----------
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
        chosen = self._choose(only)
        make_folder(folder)
        full = replace(self.full, checkpoints=folder / "checkpoints")
        used = settings or (self.quick if quick else full)
        listed = [(place, j) for place, s in enumerate(chosen) for j in s.jobs(used, quick=quick)]
        jobs = [(place, job) for place, job in listed if not job.missing]
        left_out = [job for _, job in listed if job.missing]
        if not jobs:
            raise DataError(
                f"{' and '.join(left_out[0].missing)} must be installed for all of this. "
                "Run in a checkout: pip install '.[jax]'"
            )
        results, seconds = _run(jobs, n_jobs, used.checkpoints, report)
        page = self._begin_page(used, quick=quick, seconds=seconds)
        if left_out:
            names = "; ".join(job.name for job in left_out)
            page.text(f"Left out, for want of {' and '.join(left_out[0].missing)}: {names}.")
        comparisons: list[Comparison] = []
        for number, section in enumerate(chosen):
            rows = [row for place, found in results if place == number for row in found]
            if not rows:
                continue
            page.heading(section.title)
            page.text(f"Stands for: {section.covers}.")
            page.bullets(section.notes)
            section.write(page, rows, folder / f"{self.name}_{section.name}")
            if isinstance(section, Compares):
                comparisons += section.compare(rows)
        if comparisons:
            page.heading("Agreement with the printed figures")
            add_to_page(page, comparisons)
            write_comparisons(folder / f"{self.name}_agreement.json", comparisons)
        return page.save(folder / f"{self.name}.md")

    def _choose(self, only: Sequence[str]) -> list[Section]:
        """Return the sections of these names; all if there are none."""
        known = [section.name for section in self.sections]
        unknown = [name for name in only if name not in known]
        if unknown:
            raise DataError(
                f"only must name figures among {', '.join(known)}; got {unknown[0]!r}. "
                "Leave it out for all of them."
            )
        return [section for section in self.sections if not only or section.name in only]

    def _begin_page(self, settings: Settings, *, quick: bool, seconds: float) -> Page:
        page = Page(self.title)
        kind = "quick" if quick else "full"
        page.text(
            f"Made by `pac reproduce {self.name}{' --quick' if quick else ''}`: the {kind} run, "
            f"{seconds:.0f} seconds of one core. {self.amount.format_map(asdict(settings))}"
        )
        page.heading("Protocol")
        page.bullets((SIMULATED, *self.protocol))
        if self.reference is not None and find_reference(self.reference) is None:
            page.text("The published figures are **not available** on this machine.")
        return page


def _run(
    jobs: Sequence[tuple[int, Job]],
    n_jobs: int,
    kept: Path | None,
    report: Callable[[Progress], None] | None,
) -> tuple[list[tuple[int, list[Any]]], float]:
    """Share the work out; return rows with the number of their section in order, and CPU seconds.

    Work that was kept counts as long as it took when it was done.
    """
    results: dict[int, list[Any]] = {}
    total = 0.0
    tasks = (delayed(_numbered)(number, job, kept) for number, (_, job) in enumerate(jobs))
    done = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)(tasks)
    for number, rows, seconds in done:
        results[number] = rows
        total += seconds
        if report is not None:
            name = jobs[number][1].name
            report(
                Progress(name=name, n_done=len(results), n_jobs=len(jobs), seconds=seconds),
            )
    return [(place, results[number]) for number, (place, _) in enumerate(jobs)], total


def _numbered(number: int, job: Job, kept: Path | None) -> tuple[int, list[Any], float]:
    return number, *(job.run() if kept is None else job.run_once(kept))
