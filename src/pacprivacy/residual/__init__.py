"""Residual-PAC: what is left private, how far the Gaussian bound is off, and noise beyond it."""

from pacprivacy.residual.equilibrium import (
    Equilibrium as Equilibrium,
    anisotropy as anisotropy,
    budget_curve as budget_curve,
    find_equilibrium as find_equilibrium,
    free_budget as free_budget,
    joint_plan as joint_plan,
)
from pacprivacy.residual.gap import (
    ReleaseSampler as ReleaseSampler,
    corrected_budget as corrected_budget,
    exact_gap as exact_gap,
    fit_neural_critic as fit_neural_critic,
    sliced_gap as sliced_gap,
    variational_gap as variational_gap,
)
from pacprivacy.residual.learned_noise import (
    LearnedNoise as LearnedNoise,
    LearningStep as LearningStep,
    Shortfall as Shortfall,
    Training as Training,
    check_learned_noise as check_learned_noise,
    learn_noise as learn_noise,
    learn_noise_curve as learn_noise_curve,
    plan_learned_noise as plan_learned_noise,
)
from pacprivacy.residual.noise_families import (
    FlowNoise as FlowNoise,
    GaussianNoise as GaussianNoise,
    MixtureNoise as MixtureNoise,
)
from pacprivacy.residual.privacy import (
    Residual as Residual,
    compose_entropies as compose_entropies,
    intrinsic_privacy as intrinsic_privacy,
    posterior_disadvantage as posterior_disadvantage,
    reference_law as reference_law,
    residual_privacy as residual_privacy,
)
