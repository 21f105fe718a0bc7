"""The same directions of noise at another level: for a release that is refined step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy.adversary.view import View, make_view
from pacprivacy.errors import BudgetError
from pacprivacy.noise.bounds import log_det_of_plan, log_det_of_points
from pacprivacy.noise.certify import Problem, certify
from pacprivacy.noise.plan import Integers, NoisePlan, make_plan
from pacprivacy.noise.probe import smallest_scale
from pacprivacy.noise.spread import Spread

__all__ = ["noise_scale", "rescale"]

SIMULATED: Final = frozenset({"exact", "exact weighted", "protect", "risk"})
MAX_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    """The noise of a plan as a shape whose scale is free."""

    plan_before: NoisePlan
    noise_std: Vector

    @property
    def groups(self) -> Integers | None:
        """Groups of candidates that the plan tells apart without noise."""
        revealed = self.plan_before.revealed
        return None if revealed is None else revealed.groups

    def scaled(self, noise_scale: float) -> _Template:
        """Return the template with every standard deviation multiplied."""
        return replace(self, noise_std=self.noise_std * noise_scale)

    def view(self, spread: Spread, log_p: Vector) -> View:
        """Return what the attacker compares under this noise."""
        points = self.plan_before.frame.coordinates(spread.values) / self.noise_std
        return make_view(points, log_p, groups=self.groups)

    def plan(self, spread: Spread, *, rule: str, notes: tuple[str, ...] = ()) -> NoisePlan:
        """Put this noise on its lattice."""
        before = self.plan_before
        return make_plan(
            rule=rule,
            frame=before.frame,
            center=before.center,
            noise_std=self.noise_std,
            values=spread.values,
            revealed=before.revealed,
            notes=notes,
        )


def rescale(plan: NoisePlan, problem: Problem, *, gaussian_nats: float) -> NoisePlan:
    """Return a plan along the same directions, at the level that meets other limits.

    Parameters
    ----------
    plan : NoisePlan
        Gives the directions and the ratios of the noise; it must carry noise.
    problem : Problem
        The limits, and the belief that they are about.
    gaussian_nats : float
        Information that implies every limit; the closed form uses it.

    Guarantee
    ---------
    Claim N-8. The returned plan meets the limits of ``problem`` as any plan of its rule does:
    by the log-determinant bound, or with probability ``1 - gamma`` for ``exact`` and ``risk``.
    """
    if plan.is_noiseless:
        raise BudgetError("plan must carry noise to be scaled; got one without. Release it as is.")
    template = _Template(plan_before=plan, noise_std=plan.noise_std)
    closed = _by_log_det(template, problem, gaussian_nats)
    if plan.rule not in SIMULATED:
        return closed
    try:
        proved = certify(template, problem, rule=plan.rule)
    except BudgetError:  # too small a share for a proof by simulation
        return closed
    return min(proved, closed, key=lambda found: found.total_variance)


def noise_scale(plan: NoisePlan, reference: NoisePlan) -> float:
    """Return how much larger the noise of a rescaled plan is than that of its reference."""
    return float(np.sqrt(plan.total_variance / reference.total_variance))


def _by_log_det(template: _Template, problem: Problem, nats: float) -> NoisePlan:
    """Return the smallest scale that the log-determinant bound proves."""
    weights = np.exp(problem.log_p)
    points = template.view(problem.spread, problem.log_p).points
    scale = smallest_scale(
        lambda c: log_det_of_points(points / c, weights, template.groups) - nats * (1 - 1e-6),
        tolerance=1e-9,
    )
    for _ in range(MAX_ATTEMPTS):
        plan = template.scaled(scale).plan(problem.spread, rule=template.plan_before.rule)
        plan = replace(plan, log_det_nats=log_det_of_plan(plan, weights))
        if plan.log_det_nats <= nats:
            return plan
        scale *= 1.01
    raise BudgetError(
        f"mi_nats must be large enough for the lattice of {plan.n_directions} directions; got "
        f"{nats:.3g}. Use a larger budget or fewer levels."
    )
