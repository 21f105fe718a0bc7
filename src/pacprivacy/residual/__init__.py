"""Residual-PAC: what is left private, and noise that is learned against a decoder."""

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
    Residual as Residual,
    compose_residual_privacy as compose_residual_privacy,
    intrinsic_privacy as intrinsic_privacy,
    residual_privacy as residual_privacy,
)
