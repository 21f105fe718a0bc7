"""PCA of [ALG]: restoration error on Rice, Dry Bean and the CIFAR-10 subset."""

from __future__ import annotations

from typing import Final

from pacprivacy.mechanism import PCA
from papers.alg.models import Figure
from papers.alg.protocol import PublishedKey, Task

__all__ = ["FIGURE"]

# data set, components, most halves, most subsets of our pool, most releases
_CASES: Final = (
    ("rice", 1, 4000, 512, 16_000),
    ("rice", 6, 4000, 512, 16_000),
    ("dry_bean", 1, 4000, 512, 16_000),
    ("dry_bean", 8, 4000, 512, 16_000),
    ("cifar10_subset", 1, 32, 64, 64),
    ("cifar10_subset", 14, 32, 64, 64),
)


def _task(
    dataset: str, n_components: int, max_halves: int, max_subsets: int, max_releases: int
) -> Task:
    return Task(
        name=f"{dataset}_pca_{n_components}",
        dataset=dataset,
        model=f"PCA, d = {n_components}",
        transformer="min-max",
        paper=PCA(n_components=n_components, centre="universe", orthonormal=False),
        ours=PCA(n_components=n_components),
        metric="restoration error",
        published=PublishedKey(
            table="pac_algs_pca.csv",
            column="restoration_error_private",
            keys={"dataset": dataset, "d": n_components},
        ),
        max_halves=max_halves,
        max_subsets=max_subsets,
        max_releases=max_releases,
    )


FIGURE: Final = Figure(
    name="pca",
    title="PCA",
    covers="Figures 6 and 7; published: Rice with d = 1 and 6",
    tasks=tuple(_task(*case) for case in _CASES),
    quick=("rice_pca_6",),
    notes=(
        "Restoration error is |X - restored| / |X| in the Frobenius norm on the test rows; lower "
        "is better.",
        "Components are aligned with those of the universe by orthogonal Procrustes.",
        "Paper's protocol: only the components get noise, the mean is the universe's, and noisy "
        "components are used as they are (what reproduces the published figures). Ours: the mean "
        "of the half is measured and gets noise too, and released components are made "
        "orthonormal again, which costs no privacy.",
        "CIFAR-10 is the subset of 10000 + 2000 images; a result on it is not one on CIFAR-10. "
        "It is tested on its own test images (the published run tested on a train batch). A fit "
        "takes seconds, so few halves are used.",
    ),
)
