"""Plans from the covariance of the outputs over the pool, proved by the log-determinant bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy.errors import BudgetError
from pacprivacy.noise.formulas import (
    isotropic,
    isotropic_max,
    log_det_of_plan,
    proportional,
    waterfill,
)
from pacprivacy.noise.plan import NoisePlan, make_plan
from pacprivacy.noise.rules import AutoConfidence, Basis, Exact, Protect, Rule, rule_name
from pacprivacy.noise.shapes import Weighting, axis_shape, weigh
from pacprivacy.noise.spread import (
    AxisFrame,
    PublicFrame,
    Spread,
    SpreadFrame,
    spread_of,
    weighted_mean,
)

COLUMN_BLOCK = 4096
LARGEST_FULL_DIMENSION = 2048
FORMULAS = {"isotropic": isotropic, "isotropic_max": isotropic_max, "diagonal": proportional}

Planner: TypeAlias = Callable[[float], NoisePlan]


def covariance_plan(
    values: Matrix, rule: Rule, log_p: Vector, *, mi_nats: float, spread: Spread | None = None
) -> NoisePlan:
    """Return the plan of a covariance rule.

    ``spread`` is that of ``values`` under ``log_p`` where it is known already.

    Guarantee
    ---------
    Claim N-4. The log-determinant bound of the integer noise, lattice slack included, is at
    most ``mi_nats``; the plan is recomputed with a slightly smaller budget until it is.
    """
    weights = np.exp(log_p)
    plan_for = _planner(values, rule, weights, spread)
    budget = mi_nats * (1 - 1e-9)
    for attempt in range(20):
        plan = plan_for(budget)
        plan = replace(plan, log_det_nats=log_det_of_plan(plan, weights))
        if plan.log_det_nats <= mi_nats:
            return plan
        # the lattice moves in steps, so ever larger cuts
        budget *= min(1.0, mi_nats / plan.log_det_nats) * (1 - 1e-9 * 2**attempt)
    raise BudgetError(
        f"budget must leave the release something to say: mi_nats must be large enough for the "
        f"lattice of {plan.n_directions} directions; got {mi_nats:.3g}. Use at least "
        f"Membership(0.51) or Information(1e-4); with less the noise drowns everything."
    )


def _planner(values: Matrix, rule: Rule, weights: Vector, spread: Spread | None) -> Planner:
    """Measure the outputs once; return the function from a budget to a plan."""
    name = rule_name(rule)
    if name in {"spectral", "waterfill"}:
        known = spread_of(values, weights) if spread is None else spread
        return partial(_spread_plan, known, name)
    if isinstance(rule, Exact | Protect):
        known = spread_of(values, weights) if spread is None else spread
        return partial(_weighted_plan, weigh(known, weights, rule), name)
    center = weighted_mean(values, weights)
    if isinstance(rule, Basis):
        return partial(_basis_plan, values, center, rule, _turned(values, center, rule, weights))
    if name == "confidence":
        auto = rule if isinstance(rule, AutoConfidence) else AutoConfidence()
        return partial(_auto_confidence_plan, values, center, auto, weights)
    return partial(_axis_plan, values, center, name, axis_variances(values, center, weights))


def _spread_plan(spread: Spread, name: str, mi_nats: float) -> NoisePlan:
    formula = proportional if name == "spectral" else waterfill
    return make_plan(
        rule=name,
        frame=SpreadFrame(spread=spread),
        center=spread.center,
        noise_std=np.sqrt(formula(spread.eigenvalues, mi_nats=mi_nats)),
        values=spread.values,
    )


def _weighted_plan(weighting: Weighting, name: str, mi_nats: float) -> NoisePlan:
    """Return the least weighted noise that the log-determinant bound can certify."""
    noise_var = waterfill(weighting.spread.eigenvalues, mi_nats=mi_nats)
    shape = weighting.unweighted(axis_shape(noise_var))
    return shape.plan(weighting.plain, rule=name)


def _axis_plan(
    values: Matrix, center: Vector, name: str, variances: Vector, mi_nats: float
) -> NoisePlan:
    noise_var = FORMULAS[name](variances, mi_nats=mi_nats)
    axes = np.flatnonzero(noise_var > 0).astype(np.int64)
    return make_plan(
        rule=name,
        frame=AxisFrame(axes=axes, center=center),
        center=center,
        noise_std=np.sqrt(noise_var[axes]),
        values=values,
    )


def _turned(values: Matrix, center: Vector, rule: Basis, weights: Vector) -> Vector:
    """Return the variance of the outputs along each column of a public basis."""
    if len(rule.matrix) != values.shape[1]:
        raise BudgetError(
            f"matrix must have one row per output dimension ({values.shape[1]}); "
            f"got {len(rule.matrix)}. Build it for this output."
        )
    variances: Vector = weights @ np.square((values - center) @ rule.matrix)
    return variances


def _basis_plan(
    values: Matrix, center: Vector, rule: Basis, variances: Vector, mi_nats: float
) -> NoisePlan:
    noise_var = proportional(variances, mi_nats=mi_nats)
    keep = noise_var > 0
    return make_plan(
        rule="basis",
        frame=PublicFrame(basis=np.ascontiguousarray(rule.matrix[:, keep]), center=center),
        center=center,
        noise_std=np.sqrt(noise_var[keep]),
        values=values,
    )


def _auto_confidence_plan(
    values: Matrix, center: Vector, rule: AutoConfidence, weights: Vector, mi_nats: float
) -> NoisePlan:
    """Return the papers' Auto-PAC noise: inflated eigenvalues where they are well separated."""
    dimension = values.shape[1]
    if dimension > LARGEST_FULL_DIMENSION:
        raise BudgetError(
            f"the rule 'confidence' must decompose a {dimension} by {dimension} matrix; the most "
            f"it does is {LARGEST_FULL_DIMENSION}. Use 'waterfill'."
        )
    centred = values - center
    eigenvalues, vectors = np.linalg.eigh((centred.T * weights) @ centred)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    main, rest = rule.share * mi_nats, (1 - rule.share) * mi_nats
    large = np.sort(eigenvalues[eigenvalues > rule.security])
    gap = rule.radius * np.sqrt(dimension * rule.security) + 2 * rule.security
    separated = len(large) > 0 and (len(large) == 1 or float(np.diff(large).min()) > gap)
    if separated:
        inflated = eigenvalues + 10 * rule.security * main / rest
        noise_var = proportional(inflated, mi_nats=main)
    else:
        level = (eigenvalues.sum() + dimension * rule.security) / (2 * main)
        noise_var = np.full(dimension, level)
    return make_plan(
        rule="confidence",
        frame=PublicFrame(basis=np.ascontiguousarray(vectors), center=center),
        center=center,
        noise_std=np.sqrt(noise_var),
        values=values,
        notes=(
            "eigenvalues are separated" if separated else "eigenvalues are close: isotropic noise",
        ),
    )


def axis_variances(values: Matrix, center: Vector, weights: Vector) -> Vector:
    """Return the belief-weighted variance of each output coordinate; zero where it is constant."""
    variances = np.empty(values.shape[1])
    for start in range(0, values.shape[1], COLUMN_BLOCK):
        cols = slice(start, start + COLUMN_BLOCK)
        variances[cols] = weights @ np.square(values[:, cols] - center[cols])
    return variances
