"""Accuracy first: ask for an accuracy, and pay the least privacy loss that reaches it."""

from pacprivacy.dp.accuracy_first.above_threshold import (
    Calibration,
    InteractiveAboveThreshold,
    ThresholdPlan,
    plan_threshold,
)
from pacprivacy.dp.accuracy_first.logistic import LogisticProblem, OutputNR
from pacprivacy.dp.accuracy_first.noise_reduction import (
    NoiseReduction,
    doubling_levels,
    geometric_levels,
)
from pacprivacy.dp.accuracy_first.ridge import CovNR, RidgeProblem, solve_trust_region

__all__ = [
    "Calibration",
    "CovNR",
    "InteractiveAboveThreshold",
    "LogisticProblem",
    "NoiseReduction",
    "OutputNR",
    "RidgeProblem",
    "ThresholdPlan",
    "doubling_levels",
    "geometric_levels",
    "plan_threshold",
    "solve_trust_region",
]
