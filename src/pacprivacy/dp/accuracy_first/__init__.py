"""Accuracy first: ask for an accuracy, and pay the least privacy loss that reaches it."""

from pacprivacy.dp.accuracy_first.above_threshold import (
    Calibration as Calibration,
    InteractiveAboveThreshold as InteractiveAboveThreshold,
    ThresholdPlan as ThresholdPlan,
    plan_threshold as plan_threshold,
)
from pacprivacy.dp.accuracy_first.models import (
    CovNR as CovNR,
    LogisticProblem as LogisticProblem,
    OutputNR as OutputNR,
    RidgeProblem as RidgeProblem,
    solve_trust_region as solve_trust_region,
)
from pacprivacy.dp.accuracy_first.noise_reduction import (
    NoiseReduction as NoiseReduction,
    doubling_levels as doubling_levels,
    geometric_levels as geometric_levels,
)
