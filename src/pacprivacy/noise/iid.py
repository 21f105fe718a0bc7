"""Noise for a fresh, independent secret subset: certificates of kind *confidence* and *empirical*.

Here the secret is not one of a known pool but a new draw from an infinite family of subsets, so
the covariance of its output is estimated. The last few subsets are kept out of the estimate and
of the centre that the noise is added to; the secret is one of those.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, as_outputs
from pacprivacy.errors import BudgetError, PoolError
from pacprivacy.noise.formulas import isotropic, isotropic_max, proportional
from pacprivacy.noise.plan import NoisePlan, make_plan
from pacprivacy.noise.rules import Boxed, Empirical, IidRule
from pacprivacy.noise.spread import AxisFrame
from pacprivacy.theory import (
    information_slack,
    lattice_total_variation,
    log_det_bound,
    std_upper_bound,
)

N_RESERVE = 16
SHRINKS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # shares of the budget left to the lattice
CHECK_EVERY = 10
FORMULAS = {"diagonal": proportional, "isotropic": isotropic, "isotropic_max": isotropic_max}


def calibrate_iid(outputs: object, rule: IidRule, *, mi_nats: float, n_units: int) -> NoisePlan:
    """Find noise for a secret that is independent of the subsets used to estimate its spread.

    Parameters
    ----------
    outputs : array of shape (m + N_RESERVE, d), curator-only
        Outputs on independent subsets; the secret is one of the last ``N_RESERVE``.
    rule : Boxed or Empirical
        ``Boxed`` clips into a declared box and gives a proof; ``Empirical`` is the papers'
        practice and gives none.
    mi_nats : float
        Budget on the mutual information.
    n_units : int
        Units in the universe; the secret is one of at most ``2**n_units`` subsets.

    Guarantee
    ---------
    Claim N-7. For ``Boxed``, with probability ``1 - rule.gamma`` over the simulation, the mutual
    information between the secret subset and the release is at most ``mi_nats``. For
    ``Empirical`` nothing is claimed.
    """
    values = as_outputs(outputs)
    if len(values) < N_RESERVE + 2:
        raise PoolError(
            f"outputs must have at least {N_RESERVE + 2} rows for an independent secret; got "
            f"{len(values)}. Use more subsets."
        )
    if isinstance(rule, Boxed):
        values = np.clip(values, rule.low, rule.high)
    variances = iid_variances(values, rule)
    axes = np.flatnonzero(variances > 0).astype(np.int64)
    if isinstance(rule, Empirical) and np.ptp(values[:, variances == 0], axis=0).any():
        raise BudgetError(
            "a coordinate that moves must have a variance in the simulation; one has none. "
            "Use more subsets, rescale the output, or use the rule Boxed(...)."
        )
    center = _center(values[:-N_RESERVE])
    for shrink in SHRINKS:
        noise_var = FORMULAS[rule.shape](variances, mi_nats=mi_nats * (1 - shrink))
        plan = make_plan(
            rule=f"{rule.name} {rule.shape}",
            frame=AxisFrame(axes=axes, center=center),
            center=center,
            noise_std=np.sqrt(noise_var[axes]),
            values=values,
            kind="confidence" if isinstance(rule, Boxed) else "empirical",
            notes=_notes(values, rule),
        )
        bound = iid_log_det(plan.grid_step, plan.units_per_std, variances[axes], n_units)
        if bound <= mi_nats:
            first = len(values) - N_RESERVE
            return replace(plan, log_det_nats=bound, first_secret=first, iid_rule=rule)
    raise BudgetError(
        f"mi_nats must be large enough for the lattice of {len(axes)} directions; got "
        f"{mi_nats}. Use a larger budget."
    )


def _center(simulated: Matrix) -> Vector:
    """Return the mean of the simulated outputs; a coordinate that is constant keeps its value.

    The reserved outputs have no part in it: the secret is one of them, and the centre is released
    to the last bit.
    """
    center: Vector = simulated.mean(axis=0)
    still = np.ptp(simulated, axis=0) == 0
    center[still] = simulated[0, still]
    return center


def iid_log_det(
    grid_step: Vector, units_per_std: npt.NDArray[np.int64], variances: Vector, n_units: int
) -> float:
    """Return the log-determinant bound for these variances (Hadamard) on the lattice.

    Rounding to the grid moves an output by at most half a step, so its standard deviation grows
    by at most that.
    """
    rounded = np.square(np.sqrt(variances) + 0.5 * grid_step)
    bound = log_det_bound(rounded, np.square(grid_step * units_per_std))
    slack = lattice_total_variation(len(grid_step), units_per_std)
    return bound * (1 + 1e-12) + information_slack(slack, 2**n_units)


def iid_variances(values: Matrix, rule: IidRule) -> Vector:
    """Return upper bounds (Boxed) or plain estimates (Empirical) of the output's variances."""
    simulated = values[:-N_RESERVE]
    if isinstance(rule, Empirical):
        return np.asarray(simulated.var(axis=0))
    std = std_upper_bound(
        simulated.std(axis=0, ddof=1),
        rule.high - rule.low,
        n_subsets=len(simulated),
        n_dimensions=values.shape[1],
        gamma=rule.gamma,
    )
    return np.square(std)


def _notes(values: Matrix, rule: IidRule) -> tuple[str, ...]:
    if isinstance(rule, Boxed):
        return (
            f"outputs are clipped into [{rule.low:g}, {rule.high:g}]",
            f"holds with probability 1 - {rule.gamma:.1g} over the simulated subsets",
        )
    simulated = values[:-N_RESERVE]
    earlier = simulated[: max(2, len(simulated) - CHECK_EVERY)].var(axis=0)
    moved = float(np.abs(simulated.var(axis=0) - earlier).max())
    met = "met" if moved < rule.tolerance else "NOT met"
    return (
        f"variances moved by {moved:.2g} over the last {CHECK_EVERY} subsets; the papers' "
        f"stopping rule (tolerance {rule.tolerance:.1g}) was {met}",
        "this is a heuristic, not a proof",
    )
