"""How far coins and noise move the end of a descent, to first order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.mechanism import FEATURE_BITS
from pacprivacy.noise.descent_plan import DescentPlan

N_PATHS: Final = 1000  # deviations are exact to about 2 %
MOST_WEIGHTS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentErrors:
    """The end without coins and noise, and simulated distances from it, one line a path."""

    end: Vector
    by_coins: Matrix
    by_noise: Matrix


def simulate_descent_errors(plan: DescentPlan, *, seed: int) -> DescentErrors | None:
    """Simulate the distance of paths from the path without coins and noise; None if unknown.

    A path that is off by ``d`` has a gradient that is off by ``Hd``, ``H`` being the second
    derivatives of the rows whose gradient is not shortened: the others stay as long as they are.
    The error by noise is a new one at every step; that by coins is what a sample of the units adds
    at the end, the same at every step. A function of all records, the plan and public randomness.
    """
    walk = _walk(plan)
    if walk is None:
        return None
    end, bends, gradients = walk
    values, vectors = np.linalg.eigh((1.0 / plan.keep - 1.0) * gradients.T @ gradients)
    generator = public_generator(seed, "descent-errors")
    size = (len(end), N_PATHS)
    sample = vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * generator.normal(size=size))
    shifts = []
    for by_noise in (False, True):
        path = plan.settings.path(size, plan.rate)
        for noise, hessian in zip(plan.noise, bends, strict=True):
            std = noise.std / (plan.keep * plan.n_rows)
            error = generator.normal(size=size) * std if by_noise else sample
            path.move(hessian @ path.weights + error, std)
        shifts.append(path.result.T)
    if not all(np.isfinite(shift).all() for shift in shifts):
        return None
    return DescentErrors(end=end.ravel(), by_coins=shifts[0], by_noise=shifts[1])


def _walk(plan: DescentPlan) -> tuple[Matrix, list[Matrix], Matrix] | None:
    """Descend without coins and noise; return the end, second derivatives, and last gradients."""
    if len(plan.batches) > 1:
        return None
    problem, units, (clock,) = plan.batches[0].problem, plan.batches[0].units, plan.clocks()
    path = plan.settings.path(plan.shape, plan.rate)
    bends: list[Matrix] = []
    for place, noise in enumerate(plan.noise):
        rows, slopes = problem.step(path.weights)
        paid = clock.pay(rows, slopes, noise, 1.0 / (len(plan.noise) - place))
        paid = np.ldexp(paid, FEATURE_BITS - noise.bits)
        grid = math.ldexp(1.0, FEATURE_BITS - noise.bits)
        free = np.asarray((np.abs(paid) >= np.abs(slopes) - grid).all(axis=1), dtype=np.float64)
        hessian = problem.hessian(path.weights, free)
        if hessian is None or len(hessian) > MOST_WEIGHTS:
            return None
        bends.append(hessian)
        path.move(np.ldexp(rows.T @ paid, -FEATURE_BITS) / problem.n_rows, 0.0)
    return path.result, bends, units.gradients(rows, paid) / problem.n_rows
