"""``pac demo``: a mean with coins and a k-means fit from a pool, at three budgets each."""

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import load_breast_cancer, load_iris

from pacprivacy._checks import Matrix
from pacprivacy._rounding import percent_at_most
from pacprivacy.budget import Membership
from pacprivacy.cli.console import AsJson, Quiet, Verb, show, show_json, show_status, show_table
from pacprivacy.cli.options import Folder
from pacprivacy.cli.release import Full, check_release_folder, save_release
from pacprivacy.mechanism import KMeans, Mechanism, coerce_data
from pacprivacy.privatizing import privatize
from pacprivacy.release import Release
from pacprivacy.statistics import Mean

BUDGETS: Final = (0.55, 0.60, 0.75)
N_JOBS: Final = 2
N_SUBSETS: Final = 500
MEASURED: Final = 4  # radius, texture, perimeter and area of a tumour
SHOWN: Final = ("mean", 0.60)  # the release that is printed
LEGEND: Final = """\
mean           four measurements of 569 tumours; a coin decides for each patient
kmeans         three clusters of 150 iris flowers; the sample is one of a pool
target, proved  success of the best possible guess whether one given patient or
               flower was used; a coin has 50 %
distance       of the released numbers from those on all records: root mean
               square over the numbers, in standard deviations of each column
typical        the same over all samples and all draws of the noise
no noise       the same for a sample without noise
The data are public, so a demo may show distances; a real release cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One release of the demo, in figures; distances in standard deviations of the columns."""

    model: str
    sample: str
    target: float
    proved: float
    distance: float
    typical_distance: float
    typical_distance_without_noise: float
    files: dict[str, str]


def _demo(
    output: Folder = Path("pac-demo"),
    full: Full = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Privatise a mean, by coins, and a k-means fit, by a pool, at three budgets.

    Prints one release and a table of all six, and writes the files of each.
    Takes under a minute on two cores. Files of an earlier demo are replaced.
    """
    check_release_folder(output)
    begin = time.perf_counter()
    tables = {"mean": load_breast_cancer().data[:, :MEASURED], "kmeans": load_iris().data}
    models: dict[str, Mechanism] = {"mean": Mean(), "kmeans": KMeans(n_clusters=3)}
    rows: list[Row] = []
    cases = [(model, success) for model in models for success in BUDGETS]
    with show_status(f"privatising {len(cases)} times", quiet=quiet):
        releases = Parallel(n_jobs=N_JOBS)(
            delayed(_privatize)(models[model], tables[model], success) for model, success in cases
        )
    for (model, success), release in zip(cases, releases, strict=True):
        files = save_release(release, output / f"{model}-{100 * success:.0f}")
        rows.append(_measure(model, success, release, models[model], tables[model], files))
        if not (as_json or quiet) and (model, success) == SHOWN:
            _show_release(release, rows[-1], full=full)
    if as_json:
        show_json({"rows": [asdict(row) for row in rows], "folder": str(output)})
    elif not quiet:
        _show_rows(rows)
        show(f"\n{LEGEND}\n")
        show(f"Wrote {len(rows)} releases under {output} in {time.perf_counter() - begin:.0f} s.")
        show(f"Next: pac verify {rows[0].files['release']}")


def _privatize(mechanism: Mechanism, table: Matrix, success: float) -> Release:
    """Release a mean with coins, which are the default, or k-means from a pool."""
    n_subsets = None if isinstance(mechanism, Mean) else N_SUBSETS
    return privatize(mechanism, table, Membership(success), n_subsets=n_subsets, progress=False)


def _measure(
    model: str,
    success: float,
    release: Release,
    mechanism: Mechanism,
    table: Matrix,
    files: dict[str, str],
) -> Row:
    prepared = mechanism.prepare(coerce_data(table))
    goal = np.asarray(prepared.evaluate((table.copy(),), np.random.default_rng(0)))
    scales = np.broadcast_to(table.std(axis=0), goal.shape).ravel()
    bars = release.error_bars
    assert bars is not None  # of both models

    def size(errors: Matrix) -> float:
        return math.sqrt(float(np.square(errors / scales).mean()))

    bias = np.zeros(len(scales)) if bars.bias is None else bars.bias
    spread = np.hypot(bars.spread, bias)
    return Row(
        model=model,
        sample=release.certificate.sampling,
        target=success,
        proved=release.certificate.membership_bound,
        distance=size(np.ravel(release.value) - goal.ravel()),
        typical_distance=size(np.hypot(spread, bars.noise_std)),
        typical_distance_without_noise=size(spread),
        files=files,
    )


def _show_release(release: Release, row: Row, *, full: bool) -> None:
    show(f"The {row.model} at membership success {100 * row.target:.0f} %:", style="bold")
    show(f"{release.text()}\n")
    if full:
        show(f"{release.certificate}\n")


def _show_rows(rows: list[Row]) -> None:
    show("All six releases", style="bold")
    cells = [
        (
            row.model,
            row.sample,
            f"<= {100 * row.target:.0f} %",
            f"<= {percent_at_most(row.proved)} %",
            f"{row.distance:.3f}",
            f"{row.typical_distance:.3f}",
            f"{row.typical_distance_without_noise:.3f}",
        )
        for row in rows
    ]
    heads = ["model", "sample", "target", "proved", "distance", "typical", "no noise"]
    show_table(heads, cells, left=["sample"])


demo = Verb(function=_demo, example="  pac demo --output out/demo")
