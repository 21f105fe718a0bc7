"""``pac demo``: a mean, with a coin for everybody, and a k-means fit, from a pool."""

import warnings
from pathlib import Path
from typing import Any, Final

from sklearn.datasets import load_breast_cancer, load_iris

from pacprivacy._values import row_texts
from pacprivacy.budget import Membership
from pacprivacy.cli.console import Screen, Verb, show, show_status
from pacprivacy.cli.options import Folder
from pacprivacy.cli.release import Full, check_release_folder, save_release
from pacprivacy.errors import NoisyWarning
from pacprivacy.mechanism import KMeans, Mechanism, coerce_data
from pacprivacy.privatizing import privatize
from pacprivacy.release import Release
from pacprivacy.simulation import run_on_all
from pacprivacy.statistics import Mean

SUCCESS: Final = 0.60
N_SUBSETS: Final = 500
MEASURED: Final = 4  # radius, texture, perimeter and area of a tumour
TITLES: Final = {
    "mean": "Mean radius, texture, perimeter, area of 569 tumours; a coin decides for each record:",
    "kmeans": "Centres of two clusters of 150 iris flowers; the sample is one of a pool:",
}


def _demo(
    *,
    output: Folder = Path("pac-demo"),
    full: Full = False,
    screen: Screen,
) -> None:
    """Privatise a mean and a k-means fit of public data, and compare with the exact values.

    Takes half a minute on two cores. Files of an earlier demo are replaced.
    """
    check_release_folder(output)
    tables = {"mean": load_breast_cancer().data[:, :MEASURED], "kmeans": load_iris().data}
    models: dict[str, Mechanism] = {"mean": Mean(), "kmeans": KMeans(n_clusters=2)}
    rows = []
    for name, mechanism in models.items():
        with show_status(f"privatising the {name}", quiet=screen.quiet), warnings.catch_warnings():
            warnings.simplefilter("ignore", NoisyWarning)
            release = privatize(
                mechanism,
                tables[name],
                Membership(SUCCESS),
                n_subsets=N_SUBSETS if name == "kmeans" else None,
            )
        files = save_release(release, output / name)
        exact = _exact(mechanism, tables[name])
        rows.append(_plain(name, release, exact, files))
        if screen.is_for_people:
            _show(name, release, exact, full=full)
    text = (
        "The data are public, so a demo may show exact values; a real release cannot.\n"
        f"Next: pac verify {output / 'mean' / 'release.json'}"
    )
    screen.show(text, {"rows": rows, "folder": str(output)})


def _exact(mechanism: Mechanism, table: Any) -> list[float]:
    data = coerce_data(table)
    return [float(x) for x in run_on_all(mechanism.prepare(data), data)]


def _plain(
    name: str, release: Release, exact: list[float], files: dict[str, str]
) -> dict[str, Any]:
    certificate = release.certificate
    return {
        "model": name,
        "sample": certificate.sampling,
        "target": SUCCESS,
        "proved": certificate.membership_bound,
        "released": [row.value for row in release.rows()],
        "exact": exact,
        "files": files,
    }


def _show(name: str, release: Release, exact: list[float], *, full: bool) -> None:
    show(TITLES[name], style="bold")
    pairs = zip(release.rows(), exact, strict=True)
    shown = ", ".join(row_texts(row._replace(value=value))[0] for row, value in pairs)
    show(f"{release.text()}\nExact values: {shown}\n")
    if full:
        show(f"{release.certificate}\n")


demo = Verb(function=_demo, example="  pac demo --output out/demo")
