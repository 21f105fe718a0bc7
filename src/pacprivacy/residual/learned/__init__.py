"""Learned noise: the game of [RPAC] between a law of noise and a decoder. Needs ``[jax]``.

What is learned is *not certified*. :func:`check_learned` measures what a learned decoder missed;
:func:`plan_from` turns the shape of Gaussian noise into a plan with a proof of its own.
"""

from pacprivacy.residual.learned.check import (
    NeuralCritic,
    Shortfall,
    check_learned,
    fit_neural_critic,
    plan_from,
)
from pacprivacy.residual.learned.families import Flow, Gaussian, Mixture
from pacprivacy.residual.learned.learn import (
    LearnedNoise,
    LearningStep,
    Training,
    learn_curve,
    learn_noise,
)

__all__ = [
    "Flow",
    "Gaussian",
    "LearnedNoise",
    "LearningStep",
    "Mixture",
    "NeuralCritic",
    "Shortfall",
    "Training",
    "check_learned",
    "fit_neural_critic",
    "learn_curve",
    "learn_noise",
    "plan_from",
]
