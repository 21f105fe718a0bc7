"""One certificate for a whole descent, from the budgets that its steps keep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from pacprivacy import _version
from pacprivacy._checks import Vector
from pacprivacy.budget import Information
from pacprivacy.noise import NoisePlan
from pacprivacy.pool import Pool
from pacprivacy.release import Certificate
from pacprivacy.release.certificate import NoiseSummary
from pacprivacy.release.promises import not_promised, open_parts
from pacprivacy.theory.posterior import epsilon_equivalent, posterior_success

__all__ = ["descent_certificate", "merge_noise", "summarise_noise"]

_PRIORS: Final = ("0.5", "0.01")


def summarise_noise(plan: NoisePlan) -> NoiseSummary:
    """Return the noise of one step in a few public numbers."""
    std = plan.noise_std
    moves = len(std) > 0
    return NoiseSummary(
        total_variance=plan.total_variance,
        smallest_std=float(std.min()) if moves else 0.0,
        largest_std=float(std.max()) if moves else 0.0,
        n_directions=plan.n_directions,
        smallest_grid_step=float(plan.grid_step.min()) if moves else 0.0,
        smallest_units_per_std=int(plan.units_per_std.min()) if moves else 0,
    )


def merge_noise(steps: Sequence[NoiseSummary]) -> NoiseSummary:
    """Return the noise of all steps: the sum of variances, the extremes of the rest."""
    noisy = [step for step in steps if step.n_directions] or list(steps)
    return NoiseSummary(
        total_variance=sum(step.total_variance for step in steps),
        smallest_std=min(step.smallest_std for step in noisy),
        largest_std=max(step.largest_std for step in noisy),
        n_directions=max(step.n_directions for step in noisy),
        smallest_grid_step=min(step.smallest_grid_step for step in noisy),
        smallest_units_per_std=min(step.smallest_units_per_std for step in noisy),
    )


def descent_certificate(
    *,
    budgets: Vector,
    noise: Sequence[NoiseSummary],
    pool: Pool,
    budget: Information,
    names: tuple[str, str, str],
    shape: tuple[int, ...],
    public: tuple[str, ...],
    notes: tuple[str, ...],
    simulation: bool,
) -> Certificate:
    """Write down what the budgets of all steps add up to.

    ``names`` are the rule, the mechanism and the output in words.

    Guarantee
    ---------
    Claim D-7. The sum of the budgets bounds the information of everything released.
    """
    total = math.fsum(budgets.tolist())
    success = posterior_success(total, pool.worst_prior)
    epsilon = epsilon_equivalent(success)
    rule, mechanism, output = names
    together = merge_noise(noise)
    return Certificate(
        kind="exact",
        budget=str(budget),
        rule=rule,
        mechanism=mechanism,
        output=output,
        scheme=pool.scheme,
        unit="group of rows" if pool.row_units is not None else "record",
        n_subsets=pool.n_subsets,
        n_units=pool.n_units,
        prior=pool.worst_prior,
        dimension=math.prod(shape),
        log_det_nats=total,
        information=None,
        mi_upper_nats=total,
        any_inference={prior: posterior_success(total, float(prior)) for prior in _PRIORS},
        membership=None,
        membership_mean=None,
        membership_bound=success,
        epsilon_equivalent=epsilon if math.isfinite(epsilon) else None,
        side_knowledge=(),
        noise=together,
        confidence=1.0,
        public=(
            "the universe of records, the mechanism and the noise law",
            f"number of subsets ({pool.n_subsets}) and how they are drawn ({pool.scheme})",
            *public,
        ),
        not_promised=not_promised(
            pool, mi_upper=total, exact_facts=open_parts(together.n_directions, math.prod(shape))
        ),
        notes=notes,
        simulation=simulation,
        composition={
            "release_number": len(budgets),
            "secrets": "one for all releases",
            "spent_nats_so_far": total,
            "total_nats": budget.mi_nats,
            "session_success_bound": success,
        },
        software=_version.__version__,
    )
