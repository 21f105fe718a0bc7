"""``pac demo``: the Iris mean and a k-means fit at three budgets, from folds and from halves."""

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import load_iris

from pacprivacy._checks import Matrix, Vector
from pacprivacy._rounding import percent_at_most
from pacprivacy.budget import Membership
from pacprivacy.cli.console import AsJson, Quiet, Verb, show, show_json, show_status, show_table
from pacprivacy.cli.options import Folder
from pacprivacy.cli.release import Full, check_release_folder, save_release
from pacprivacy.mechanism import KMeans, Mechanism, coerce_data
from pacprivacy.privatizing import privatize
from pacprivacy.release import Release, as_pool_certificate
from pacprivacy.sample import Balanced
from pacprivacy.session import Rehearsal
from pacprivacy.statistics import Mean

BUDGETS: Final = (0.55, 0.60, 0.75)
N_JOBS: Final = 2
N_SUBSETS: Final = 500
SHOWN: Final = ("mean", 0.60)  # the release that is printed
LEGEND: Final = """\
asked, proved  success of the best possible guess whether one given flower was
               used; a coin has 50 %
folds          how many parts the flowers are split into; all but one are used
noise          total variance of the noise, in square centimetres
distance       of the released numbers from those on all 150 flowers: root mean
               square over the numbers, in standard deviations of each column
typical        the same over all candidates and all draws of the noise
halves         that of a release from random halves, with as much promised
The data are public, so a demo may show distances; a real release cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One release of the demo, in figures."""

    model: str
    asked: float
    proved: float
    mi_upper_nats: float
    folds: int
    noise_variance: float
    distance: float
    typical_distance: float
    typical_distance_without_noise: float
    typical_distance_of_halves: float
    typical_distance_of_halves_without_noise: float
    files: dict[str, str]


def _demo(
    output: Folder = Path("pac-demo"),
    full: Full = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Privatise the Iris mean and a k-means fit at three budgets.

    Prints one release and a table of all six beside what random halves would have given, and writes
    the files of each.
    Takes under a minute on two cores. Files of an earlier demo are replaced.
    """
    check_release_folder(output)
    begin = time.perf_counter()
    flowers = load_iris().data
    models: dict[str, Mechanism] = {"mean": Mean(), "kmeans": KMeans(n_clusters=3)}
    cases = [(model, success) for model in models for success in BUDGETS]
    with show_status(f"privatising {len(cases)} times", quiet=quiet):
        releases = Parallel(n_jobs=N_JOBS)(
            delayed(_privatize)(models[model], flowers, success) for model, success in cases
        )
    rows: list[Row] = []
    for (model, success), (release, halves) in zip(cases, releases, strict=True):
        goal = _answer_on_all(models[model], flowers)
        files = save_release(release, output / f"{model}-{100 * success:.0f}")
        rows.append(_measure(model, success, release, halves, goal, flowers, files))
        if not (as_json or quiet) and (model, success) == SHOWN:
            _show_release(release, rows[-1], full=full)
    if as_json:
        show_json({"rows": [asdict(row) for row in rows], "folder": str(output)})
    elif not quiet:
        _show_rows(rows)
        show(f"\n{LEGEND}\n")
        show(f"Wrote {len(rows)} releases under {output} in {time.perf_counter() - begin:.0f} s.")
        show(f"Next: pac verify {rows[0].files['release']}")


def _privatize(
    mechanism: Mechanism, flowers: Matrix, success: float
) -> tuple[Release, tuple[Matrix, Vector]]:
    """Release from folds; return also the outputs on halves and the noise they would need."""
    budget = Membership(success)
    release = privatize(mechanism, flowers, budget, n_subsets=N_SUBSETS, progress=False)
    halves = Rehearsal(flowers, sample=Balanced(n_subsets=N_SUBSETS), progress=False)
    outputs = halves.run(mechanism)
    return release, (outputs.values, halves.calibrate(outputs, budget).noise_variances())


def _answer_on_all(mechanism: Mechanism, flowers: Matrix) -> Matrix:
    prepared = mechanism.prepare(coerce_data(flowers))
    value = prepared.evaluate((flowers.copy(),), np.random.default_rng(0))
    return np.asarray(value, dtype=np.float64)


def _measure(
    model: str,
    success: float,
    release: Release,
    halves: tuple[Matrix, Vector],
    goal: Matrix,
    flowers: Matrix,
    files: dict[str, str],
) -> Row:
    scale = np.broadcast_to(flowers.std(axis=0), goal.shape).ravel()
    certificate = release.certificate

    def mean_square(values: Matrix) -> float:
        return float(np.square((values - goal.ravel()) / scale).mean())

    def typical(outputs: Matrix, variances: Vector) -> tuple[float, float]:
        alone = mean_square(outputs)
        return math.sqrt(alone + float((variances / scale**2).mean())), math.sqrt(alone)

    ours = typical(release.bundle.outputs, _noise_variances(release))
    theirs = typical(*halves)
    return Row(
        model=model,
        asked=success,
        proved=certificate.membership_bound,
        mi_upper_nats=as_pool_certificate(certificate).mi_upper_nats,
        folds=release.bundle.pool.folds,
        noise_variance=certificate.noise.total_variance,
        distance=math.sqrt(mean_square(np.ravel(release.value))),
        typical_distance=ours[0],
        typical_distance_without_noise=ours[1],
        typical_distance_of_halves=theirs[0],
        typical_distance_of_halves_without_noise=theirs[1],
        files=files,
    )


def _noise_variances(release: Release) -> Vector:
    """Return the variance of the noise of every released number, by coordinates in the bundle."""
    bundle = release.bundle
    steps, outputs = bundle.points * bundle.grid_step, bundle.outputs
    directions = np.linalg.lstsq(
        steps - steps.mean(axis=0), outputs - outputs.mean(axis=0), rcond=None
    )[0]
    noise_std = bundle.grid_step * bundle.units_per_std
    variances: Vector = np.square(noise_std) @ np.square(directions)
    return variances


def _show_release(release: Release, row: Row, *, full: bool) -> None:
    show(f"The {row.model} of Iris at membership success {100 * row.asked:.0f} %:", style="bold")
    show(f"{release.text()}\n")
    if full:
        show(f"{release.certificate}\n")


def _show_rows(rows: list[Row]) -> None:
    show("All six releases, and a candidate as it is", style="bold")
    cells = []
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        cells.append(
            (
                row.model,
                f"<= {100 * row.asked:.0f} %",
                f"<= {percent_at_most(row.proved)} %",
                f"{row.folds}",
                f"{row.noise_variance:.4f}",
                f"{row.distance:.3f}",
                f"{row.typical_distance:.3f}",
                f"{row.typical_distance_of_halves:.3f}",
            )
        )
        if following is None or following.model != row.model:
            plain = f"{row.typical_distance_without_noise:.3f}"
            half = f"{row.typical_distance_of_halves_without_noise:.3f}"
            cells.append((row.model, "none", "100 %", f"{row.folds}", "0", "", plain, half))
    heads = ["model", "asked", "proved", "folds", "noise", "distance", "typical", "halves"]
    show_table(heads, cells)


demo = Verb(function=_demo, example="  pac demo --output out/demo")
