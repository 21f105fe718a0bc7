"""The page of [RPAC]: its figure groups, and what a reader must know about all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from papers import run
from papers.residual import base, logits, mean
from papers.run import Paper

__all__ = ["RESIDUAL"]

FULL: Final = replace(
    run.FULL,
    mi_budgets=(1 / 64, 1 / 16, 1 / 4, 1 / 2, 1.0, 2.0),
    n_subsets=256,
    n_releases=100_000,
)
QUICK: Final = replace(run.QUICK, mi_budgets=(1 / 16, 1 / 4, 1.0), n_subsets=64, n_releases=20_000)
PROTOCOL: Final = (
    "`Efficient-PAC` is our `diagonal`. *Auto-PAC* is two things in the paper: in appendix A.2 a "
    "noise in proportion to the spread along the principal directions (our `spectral`), which "
    "spends less than the budget; in section 3 and Proposition 2 the least trace whose "
    "log-determinant bound *equals* the budget (our `waterfill`). Both are here. `exact` is the "
    "least noise found whose *true* information is proved to meet the budget.",
    "`SR-PAC, learned` follows Algorithm 2: the noise is learned against a decoder that is "
    "learned along. Its budget is met in the decoder's eyes only: *learned, not certified*. The "
    "true information beside it comes from the exact adversary.",
    "The paper prints no numbers for these figures, so orders are compared and not values.",
)


RESIDUAL: Final = Paper(
    name="residual",
    title="Residual-PAC Privacy, recomputed",
    protocol=PROTOCOL,
    sections=(mean.SECTION, base.SECTION, logits.SECTION),
    full=FULL,
    quick=QUICK,
    reference=None,
    amount=(
        "Pools of {n_subsets} halves for the means; truth from {n_releases} "
        "simulated releases there, seed {seed}."
    ),
)
