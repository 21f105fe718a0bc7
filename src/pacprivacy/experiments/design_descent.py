"""Tables 2 and 4 of [DESIGN]: private logistic regression by gradient descent.

The paper's protocol: ``μ|w|²/2``, 50 steps, a fresh Poisson(1/2) subset for every step and
coordinate, noise of ``C`` times the closed-form variance, ``C = dT/2B``, one step size for each
coordinate, at most ``1/L``. Everything is a simulation on public data; nothing here protects
anybody.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._random import public_generator
from pacprivacy.design import StepRule
from pacprivacy.design.fresh import simulate_fresh
from pacprivacy.experiments.design_data import BinarySplit, load_binary
from pacprivacy.experiments.design_rows import DESIGN_BUDGETS, DesignRow, Mode, published_cell
from pacprivacy.theory.design import noise_ratio

__all__ = ["N_STEPS", "SETTINGS", "choose_steps", "descent_rows", "fresh_accuracies"]

N_STEPS: Final = 50
N_TRIALS: Final = 500
TRIALS_AT_ONCE: Final = 250

SETTINGS: Final[dict[str, Literal["universe"] | float]] = {
    "oracle": "universe",  # each coordinate's distance to the fit on all training rows
    "e0=0.01": 0.01**2,
    "e0=0.1": 0.1**2,
    "e0=1": 1.0,
}


def descent_rows(
    *,
    dataset: str = "mnist_0v7",
    settings: tuple[str, ...] = tuple(SETTINGS),
    mi_budgets: tuple[float, ...] = DESIGN_BUDGETS,
    n_trials: int = N_TRIALS,
    seed: int = 0,
) -> list[DesignRow]:
    """Return the cells of Tables 2 and 4: for every setting and budget post-hoc, then conscious.

    Parameters
    ----------
    dataset, settings, mi_budgets
        Which cells.
    n_trials : int
        Trainings per cell.
    seed : int
        Seed of subsets and noise.
    """
    split = load_binary(dataset)
    modes: tuple[Mode, ...] = ("post-hoc", "conscious")
    rows = []
    for setting in settings:
        for mi_nats in mi_budgets:
            for mode in modes:
                steps = choose_steps(split, setting, mi_nats=mi_nats, mode=mode)
                rng = public_generator(seed, f"{split.name} {setting} {mode}", int(1 / mi_nats))
                accuracies = fresh_accuracies(split, steps, mi_nats, n_trials=n_trials, rng=rng)
                rows.append(
                    DesignRow(
                        dataset=split.name,
                        setting=setting,
                        mode=mode,
                        mi_nats=mi_nats,
                        metric="accuracy",
                        utility=float(accuracies.mean()),
                        standard_error=float(accuracies.std() / np.sqrt(n_trials)),
                        n_releases=n_trials,
                        published=published_cell(
                            "gd_test_accuracy", split.name, setting, mi_nats=mi_nats, mode=mode
                        ),
                    )
                )
    return rows


def choose_steps(split: BinarySplit, setting: str, *, mi_nats: float, mode: Mode) -> Vector:
    """Return the step sizes of one cell."""
    rule = StepRule(mi_nats=mi_nats if mode == "conscious" else None, start_error=SETTINGS[setting])
    return rule.choose(split.objective, split.X, split.y, n_steps=N_STEPS)


def fresh_accuracies(
    split: BinarySplit,
    steps: Vector,
    mi_nats: float,
    *,
    n_trials: int,
    rng: np.random.Generator,
) -> Vector:
    """Return the test accuracy of many trainings with fresh secrets."""
    ratio = float(noise_ratio(mi_nats, n_dimensions=split.X.shape[1], n_steps=N_STEPS))
    found = []
    for start in range(0, n_trials, TRIALS_AT_ONCE):
        weights = simulate_fresh(
            split.X,
            split.y,
            split.objective,
            steps,
            np.full(N_STEPS, ratio),
            n_trials=min(TRIALS_AT_ONCE, n_trials - start),
            rng=rng,
        )
        found.append(split.accuracies(weights))
    return np.concatenate(found)
