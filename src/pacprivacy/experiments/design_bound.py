"""Error bounds of private descent beside the measured error, for a loss that is not quadratic.

One step size for all coordinates, as the bounds ask for (claim D-3). Fresh secrets, closed-form
variances, a normal variable in place of a subset's mean. A simulation on public data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pacprivacy._random import public_generator
from pacprivacy.experiments.design_descent import N_STEPS, load_digits
from pacprivacy.experiments.design_rows import DESIGN_BUDGETS, Mode
from pacprivacy.theory.descent import (
    contraction_bound,
    descent_bound,
    descent_step_exact,
    subset_mean_variance,
)
from pacprivacy.theory.design import noise_ratio

__all__ = ["BoundRow", "bound_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRow:
    """Squared distance of the last weights from the optimum: measured, and bounded.

    Attributes
    ----------
    step : float
        The step size.
    error, standard_error : float
        Mean over trainings, and its standard error.
    sharp : float
        Bound from the variances that the steps really had.
    bound : float
        ``J`` with the largest variance that any training met.
    predicted : float
        ``J`` with the variance at the start, which the step size was chosen by.
    """

    dataset: str
    mode: Mode
    mi_nats: float
    step: float
    error: float
    standard_error: float
    sharp: float
    bound: float
    predicted: float
    n_trials: int


def bound_rows(
    *,
    digits: tuple[int, int] = (0, 7),
    mi_budgets: tuple[float, ...] = DESIGN_BUDGETS,
    n_trials: int = 64,
    seed: int = 0,
) -> list[BoundRow]:
    """Return measured errors and bounds, post-hoc and conscious, for every budget."""
    modes: tuple[Mode, ...] = ("post-hoc", "conscious")
    return [_row(digits, mi_nats, mode, n_trials, seed) for mi_nats in mi_budgets for mode in modes]


def _row(digits: tuple[int, int], mi_nats: float, mode: Mode, n_trials: int, seed: int) -> BoundRow:
    split = load_digits(*digits)
    objective, (n, d) = split.objective, split.X.shape
    best = objective.minimise(split.X, split.y)
    share = float(subset_mean_variance(1.0, n))
    ratio = float(noise_ratio(mi_nats, n_dimensions=d, n_steps=N_STEPS))
    start_var = share * float(objective.gradient_spread(split.X, split.y, np.zeros(d)).sum())
    start_error, column = float(best @ best), split.y[:, None]
    step = float(
        descent_step_exact(
            start_error=start_error,
            gradient_var=start_var,
            convexity=objective.l2,
            n_steps=N_STEPS,
            ratio=ratio if mode == "conscious" else 0.0,
            largest=1.0 / objective.smoothness(split.X),
        )
    )
    rng = public_generator(seed, f"bound {mode}", int(1 / mi_nats))
    weights, released, worst = np.zeros((d, n_trials)), np.empty(N_STEPS), 0.0
    for t in range(N_STEPS):
        total = (1.0 + ratio) * share * objective.gradient_spread(split.X, column, weights)
        gradient = objective.gradient(split.X, column, weights)
        noise = np.sqrt(total) * rng.standard_normal(total.shape)
        weights = weights - step * (gradient + noise)
        released[t] = total.sum(axis=0).mean()
        worst = max(worst, float(total.sum(axis=0).max()) / (1.0 + ratio))
    errors = np.square(weights - best[:, None]).sum(axis=0)

    def bound(gradient_var: float) -> float:
        return float(
            descent_bound(
                step,
                start_error=start_error,
                gradient_var=gradient_var,
                convexity=objective.l2,
                n_steps=N_STEPS,
                ratio=ratio,
            )
        )

    sharp = contraction_bound(
        step, start_error=start_error, released_var=released, convexity=objective.l2
    )
    return BoundRow(
        dataset=split.name,
        mode=mode,
        mi_nats=mi_nats,
        step=step,
        error=float(errors.mean()),
        standard_error=float(errors.std() / np.sqrt(n_trials)),
        sharp=float(sharp),
        bound=bound(worst),
        predicted=bound(start_var),
        n_trials=n_trials,
    )
