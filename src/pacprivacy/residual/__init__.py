"""Residual-PAC: what is left private, how far the Gaussian bound is off, and noise beyond it."""

from pacprivacy.residual.curves import (
    Baseline,
    BudgetCurve,
    auto_pac,
    auto_pac_confidence,
    budget_curve,
    dp_gaussian,
    efficient_pac,
    mean_sensitivity,
)
from pacprivacy.residual.examples import EXAMPLES, example_outputs
from pacprivacy.residual.gap import (
    Gap,
    ReleaseSampler,
    corrected_budget,
    exact_gap,
    sliced_gap,
    variational_gap,
)
from pacprivacy.residual.quantities import (
    Residual,
    compose_entropies,
    intrinsic_privacy,
    posterior_disadvantage,
    reference_law,
    residual_privacy,
)
from pacprivacy.residual.stackelberg import (
    Equilibrium,
    JointPlan,
    Step,
    anisotropy,
    free_budget,
    joint_plan,
    stackelberg,
)

__all__ = [
    "EXAMPLES",
    "Baseline",
    "BudgetCurve",
    "Equilibrium",
    "Gap",
    "JointPlan",
    "ReleaseSampler",
    "Residual",
    "Step",
    "anisotropy",
    "auto_pac",
    "auto_pac_confidence",
    "budget_curve",
    "compose_entropies",
    "corrected_budget",
    "dp_gaussian",
    "efficient_pac",
    "exact_gap",
    "example_outputs",
    "free_budget",
    "intrinsic_privacy",
    "joint_plan",
    "mean_sensitivity",
    "posterior_disadvantage",
    "reference_law",
    "residual_privacy",
    "sliced_gap",
    "stackelberg",
    "variational_gap",
]
