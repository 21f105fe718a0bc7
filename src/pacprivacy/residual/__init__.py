"""Residual-PAC: remaining privacy, the Gaussianity gap, and noise learned against a decoder."""

from pacprivacy.residual.gap import (
    BoundedCritic as BoundedCritic,
    ReleaseSampler as ReleaseSampler,
    corrected_budget as corrected_budget,
    exact_gap as exact_gap,
    sliced_gap as sliced_gap,
    variational_gap as variational_gap,
)
from pacprivacy.residual.learned_noise import (
    LearnedNoise as LearnedNoise,
    NoiseShortfall as NoiseShortfall,
    Training as Training,
    check_learned_noise as check_learned_noise,
    learn_noise as learn_noise,
    learn_noise_curve as learn_noise_curve,
    plan_learned_noise as plan_learned_noise,
)
from pacprivacy.residual.privacy import (
    JointPlan as JointPlan,
    Residual as Residual,
    compose_residual_privacy as compose_residual_privacy,
    intrinsic_privacy as intrinsic_privacy,
    joint_plan as joint_plan,
    posterior_disadvantage as posterior_disadvantage,
    reference_law as reference_law,
    residual_privacy as residual_privacy,
)
