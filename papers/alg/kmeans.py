"""k-means of [ALG]: accuracy of the nearest released centre, Iris, Rice and Dry Bean."""

from __future__ import annotations

from typing import Final

from pacprivacy.mechanism import KMeans
from papers.alg.models import Figure
from papers.alg.protocol import CLASSES, PublishedKey, Task

__all__ = ["FIGURE"]

_TRANSFORMERS: Final = {"iris": "power", "rice": "standard", "dry_bean": "min-max"}


def _task(dataset: str, *, max_halves: int = 4000, max_releases: int = 16_000) -> Task:
    classes = CLASSES[dataset]
    return Task(
        name=f"{dataset}_kmeans",
        dataset=dataset,
        model="k-means",
        transformer=_TRANSFORMERS[dataset],
        paper=KMeans(order="labels", warm_start=False, n_restarts=10, classes=classes),
        ours=KMeans(order="labels", classes=classes),
        published=PublishedKey(
            table="pac_algs_kmeans.csv", column="acc_private_mean", keys={"dataset": dataset}
        ),
        max_halves=max_halves,
        max_releases=max_releases,
    )


FIGURE: Final = Figure(
    name="kmeans",
    title="k-means",
    covers="Figures 2 to 4 ([ALG] has k-means and SVM there); published: Iris, Rice",
    tasks=(_task("iris"), _task("rice"), _task("dry_bean", max_halves=1000, max_releases=2000)),
    quick=("iris_kmeans", "rice_kmeans"),
    notes=(
        "k is the number of classes; centres are ordered by majority label; a test row gets the "
        "class of the nearest released centre.",
        "Paper's protocol: 10 random restarts per half. Ours: one start from the centres of the "
        "universe, which are public in this model and named in the certificate.",
    ),
)
