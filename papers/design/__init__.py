"""The page of [DESIGN] and [RESP]: its figure groups, and what holds for all of them."""

from __future__ import annotations

from typing import Final

from papers import responses
from papers.design import decomposition, descent, gain, ridge, secret
from papers.design.tables import DESIGN_BUDGETS
from papers.run import Paper, Settings

__all__ = ["DESIGN"]

PROTOCOL: Final = (
    "*Post-hoc* parameters (penalty, step size) are best without privacy; *conscious* ones are "
    "best for the noise to come. Both come from all training rows or from a constant, never from "
    "the secret.",
    "*Paper's rule*: Poisson subsets, a fresh secret for every coordinate (and step), noise of C "
    "times the variance, with C = d/2B or dT/2B. Nothing is proved about such releases.",
    "*Ours*: one secret half of a balanced pool, noise certified before it is drawn. `exact` meets "
    "the information budget of the row; `risk` meets the *membership success* that this budget "
    "implies, and nothing else: the information it gives away is larger and stands beside it.",
    "Success is of the best possible guess whether one given record was used; a coin has 50 %.",
    "*Published* figures are checks and not targets; no seed was chosen.",
)


DESIGN: Final = Paper(
    name="design",
    title="Privacy-Conscious Algorithm Design (Sridhar, Zhu, Devadas, S&P 2026), recomputed",
    protocol=PROTOCOL,
    sections=(
        decomposition.SECTION,
        ridge.SECTION,
        gain.SECTION,
        descent.SECTION,
        secret.SECTION,
        responses.SECTION,
    ),
    full=Settings(mi_budgets=DESIGN_BUDGETS, n_subsets=256, n_releases=1000),
    quick=Settings(
        mi_budgets=(1 / 64, 1 / 4), n_subsets=64, n_releases=400, n_trials=24, n_repeats=2
    ),
    reference=None,
    amount=(
        "Pools of {n_subsets} subsets with {n_releases} releases per cell, "
        "{n_trials} trainings per cell of a descent, {n_repeats} runs of the "
        "ridge protocol, seed {seed}."
    ),
)
