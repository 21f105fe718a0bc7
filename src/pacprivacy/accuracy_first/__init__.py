"""Accuracy first: ask for an accuracy, and pay the least privacy loss that reaches it."""

from pacprivacy.accuracy_first.above_threshold import (
    InteractiveAboveThreshold,
    ThresholdPlan,
    plan_threshold,
)
from pacprivacy.accuracy_first.doubling import DoublingMethod, TheoryInversion
from pacprivacy.accuracy_first.levels import doubling_levels, geometric_levels
from pacprivacy.accuracy_first.noise_reduction import NoiseReduction
from pacprivacy.accuracy_first.output import OutputNR
from pacprivacy.accuracy_first.ridge import CovNR
from pacprivacy.accuracy_first.trust_region import solve_trust_region

__all__ = [
    "CovNR",
    "DoublingMethod",
    "InteractiveAboveThreshold",
    "NoiseReduction",
    "OutputNR",
    "TheoryInversion",
    "ThresholdPlan",
    "doubling_levels",
    "geometric_levels",
    "plan_threshold",
    "solve_trust_region",
]
