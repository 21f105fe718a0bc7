"""The page of [ALG]: its figure groups, and what a reader must know about all of them."""

from __future__ import annotations

from typing import Final

from papers.alg import attack, bounds, mean, models, spread
from papers.run import FULL, QUICK, Paper

__all__ = ["ALG"]

PROTOCOL: Final = (
    "*Paper's protocol*: one shuffle with seed 0; train / test rows Iris 100 / 49, Rice 2667 / "
    "1142, Dry Bean 9527 / 4083; the transformer is fitted on all rows, as published; independent "
    "random halves in which every class occurs; variances (without the n-1 correction) estimated "
    "on some halves, releases of fresh ones. `aniso` of the paper is our `diagonal`; its `iso` is "
    "the largest of those variances in every coordinate. Nothing is proved about such releases.",
    "*Ours*: a balanced, stratified pool of halves and their complements; the secret is uniform "
    "on the pool; noise is certified before the secret is drawn. `exact` meets the information "
    "budget of the row. `risk` meets the *membership success* that this budget implies, and "
    "nothing else: the information it gives away is larger and stands in the noise table. "
    "*All but a fold* is `risk` on a pool whose subsets leave out one of a few folds; the promise "
    "is the same.",
    "Our rules look for the least total noise variance, not for the least loss of accuracy: noise "
    "that is smaller in total but turned into a direction that decides can cost more.",
    "Success is of the best possible guess whether one given record was used; a coin has 50 %. "
    "From ln 2 nats on the paper's bound is 100 % and `risk` has nothing to limit.",
    "*Published* figures are checks and not targets; no seed was chosen. Where the reference "
    "files are not at hand the column says so.",
)


ALG: Final = Paper(
    name="alg",
    title="PAC-Private Algorithms (Sridhar, Xiao, Devadas, S&P 2025), recomputed",
    protocol=PROTOCOL,
    sections=(
        models.KMEANS,
        models.SVM,
        models.COMPONENTS,
        models.FOREST,
        mean.SECTION,
        attack.SECTION,
        bounds.SECTION,
        spread.SECTION,
    ),
    full=FULL,
    quick=QUICK,
    reference="pac_algs_kmeans.csv",
    amount=(
        "Pools of {n_subsets} subsets and {n_halves} halves (fewer where a fit "
        "is slow), {n_releases} releases per cell, seed {seed}."
    ),
)
