"""Accuracy first: ask for an accuracy, and pay the least privacy loss that reaches it."""

from pacprivacy.dp.accuracy_first.above_threshold import (
    InteractiveAboveThreshold,
    ThresholdPlan,
    plan_threshold,
)
from pacprivacy.dp.accuracy_first.doubling import DoublingMethod, TheoryInversion
from pacprivacy.dp.accuracy_first.levels import doubling_levels, geometric_levels
from pacprivacy.dp.accuracy_first.noise_reduction import NoiseReduction
from pacprivacy.dp.accuracy_first.output import OutputNR
from pacprivacy.dp.accuracy_first.ridge import CovNR
from pacprivacy.dp.accuracy_first.trust_region import solve_trust_region

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
