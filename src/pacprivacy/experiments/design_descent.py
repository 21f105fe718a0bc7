"""Table 4 of [DESIGN]: private logistic regression by gradient descent on pairs of digits.

The paper's protocol: pixels in [0, 1], centred, principal components to 95 % of the variance,
``μ|w|²/2``, no intercept, 50 steps, a fresh Poisson(1/2) subset for every step and coordinate,
noise of ``C`` times the closed-form variance, ``C = dT/2B``, one step size for each coordinate,
at most ``1/L``. Everything is a simulation on public data; nothing here protects anybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import public_generator
from pacprivacy.datasets import load_mnist
from pacprivacy.design import Objective, StepRule
from pacprivacy.design.fresh import simulate_fresh
from pacprivacy.experiments.design_rows import DESIGN_BUDGETS, DesignRow, Mode, published_cell
from pacprivacy.theory.design import noise_ratio

__all__ = ["N_STEPS", "DigitSplit", "choose_steps", "descent_rows", "load_digits"]

N_STEPS: Final = 50
N_TRIALS: Final = 500
KEPT_VARIANCE: Final = 0.95
PIXEL_RANGE: Final = 255.0
TRIALS_AT_ONCE: Final = 250

SETTINGS: Final[dict[str, Literal["universe"] | float]] = {
    "oracle": "universe",  # each coordinate's distance to the fit on all training rows
    "e0=0.01": 0.01**2,
    "e0=0.1": 0.1**2,
    "e0=1": 1.0,
}
_PENALTIES: Final = {(0, 7): 0.1}  # every other pair: 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DigitSplit:
    """Two digits in principal components; targets are -1 and 1."""

    name: str
    objective: Objective
    X: Matrix
    y: Vector
    X_test: Matrix
    y_test: Vector

    def __post_init__(self) -> None:
        for array in (self.X, self.y, self.X_test, self.y_test):
            freeze(array)

    def accuracies(self, weights: Matrix) -> Vector:
        """Return the test accuracy of every row of weights."""
        hits: npt.NDArray[np.bool_] = (self.X_test @ weights.T > 0) == (self.y_test[:, None] > 0)
        rates: Vector = hits.mean(axis=0)
        return rates


@cache
def load_digits(first: int = 0, second: int = 7) -> DigitSplit:
    """Return the split of two digits of MNIST."""
    mnist = load_mnist()
    assert mnist.X_test is not None  # MNIST has a test split
    assert mnist.y_test is not None
    X, y = _pick(mnist.X, mnist.y, first, second)
    X_test, y_test = _pick(mnist.X_test, mnist.y_test, first, second)
    mean = X.mean(axis=0)
    spread, axes = np.linalg.eigh((X - mean).T @ (X - mean))
    spread, axes = spread[::-1], axes[:, ::-1]
    n_kept = int(np.searchsorted(np.cumsum(spread) / spread.sum(), KEPT_VARIANCE)) + 1
    kept = axes[:, :n_kept]
    return DigitSplit(
        name=f"mnist_{first}v{second}",
        objective=Objective(loss="logistic", l2=_PENALTIES.get((first, second), 1.0)),
        X=(X - mean) @ kept,
        y=y,
        X_test=(X_test - mean) @ kept,
        y_test=y_test,
    )


def _pick(
    images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], first: int, second: int
) -> tuple[Matrix, Vector]:
    chosen = (labels == first) | (labels == second)
    pixels: Matrix = images[chosen].reshape(int(chosen.sum()), -1) / PIXEL_RANGE
    return pixels, np.where(labels[chosen] == second, 1.0, -1.0)


def descent_rows(
    *,
    digits: tuple[int, int] = (0, 7),
    settings: tuple[str, ...] = tuple(SETTINGS),
    mi_budgets: tuple[float, ...] = DESIGN_BUDGETS,
    n_trials: int = N_TRIALS,
    seed: int = 0,
) -> list[DesignRow]:
    """Return the cells of Table 4: for every setting and budget post-hoc, then conscious.

    Parameters
    ----------
    digits, settings, mi_budgets
        Which cells.
    n_trials : int
        Trainings per cell.
    seed : int
        Seed of subsets and noise.
    """
    split = load_digits(*digits)
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


def choose_steps(split: DigitSplit, setting: str, *, mi_nats: float, mode: Mode) -> Vector:
    """Return the step sizes of one cell."""
    rule = StepRule(mi_nats=mi_nats if mode == "conscious" else None, start_error=SETTINGS[setting])
    return rule.choose(split.objective, split.X, split.y, n_steps=N_STEPS)


def fresh_accuracies(
    split: DigitSplit,
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
