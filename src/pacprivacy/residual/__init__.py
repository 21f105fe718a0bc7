"""Residual-PAC: what is left private, how far the Gaussian bound is off, and noise beyond it."""

from pacprivacy.residual.critics import NeuralCritic, ReleaseSampler, fit_neural_critic
from pacprivacy.residual.equilibrium import (
    BudgetCurve,
    Equilibrium,
    JointPlan,
    Step,
    anisotropy,
    budget_curve,
    find_equilibrium,
    free_budget,
    joint_plan,
)
from pacprivacy.residual.gap import (
    Gap,
    corrected_budget,
    exact_gap,
    sliced_gap,
    variational_gap,
)
from pacprivacy.residual.learned_noise import (
    LearnedNoise,
    LearningStep,
    Shortfall,
    Training,
    check_learned_noise,
    learn_noise,
    learn_noise_curve,
    plan_learned_noise,
)
from pacprivacy.residual.noise_families import (
    FlowNoise,
    GaussianNoise,
    MixtureNoise,
)
from pacprivacy.residual.privacy import (
    Residual,
    compose_entropies,
    intrinsic_privacy,
    posterior_disadvantage,
    reference_law,
    residual_privacy,
)

__all__ = [
    "BudgetCurve",
    "Equilibrium",
    "FlowNoise",
    "Gap",
    "GaussianNoise",
    "JointPlan",
    "LearnedNoise",
    "LearningStep",
    "MixtureNoise",
    "NeuralCritic",
    "ReleaseSampler",
    "Residual",
    "Shortfall",
    "Step",
    "Training",
    "anisotropy",
    "budget_curve",
    "check_learned_noise",
    "compose_entropies",
    "corrected_budget",
    "exact_gap",
    "find_equilibrium",
    "fit_neural_critic",
    "free_budget",
    "intrinsic_privacy",
    "joint_plan",
    "learn_noise",
    "learn_noise_curve",
    "plan_learned_noise",
    "posterior_disadvantage",
    "reference_law",
    "residual_privacy",
    "sliced_gap",
    "variational_gap",
]
