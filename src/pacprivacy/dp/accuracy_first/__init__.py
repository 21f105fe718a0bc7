"""Accuracy first: ask for an accuracy, and pay the least privacy loss that reaches it."""

from pacprivacy.dp.accuracy_first.noise_levels import (
    BrownianReduction as BrownianReduction,
    Calibration as Calibration,
    InteractiveAboveThreshold as InteractiveAboveThreshold,
    NoiseReduction as NoiseReduction,
    ThresholdPlan as ThresholdPlan,
    doubling_levels as doubling_levels,
    geometric_levels as geometric_levels,
    plan_threshold as plan_threshold,
)
from pacprivacy.dp.accuracy_first.problems import (
    LogisticProblem as LogisticProblem,
    RidgeProblem as RidgeProblem,
    solve_trust_region as solve_trust_region,
)
from pacprivacy.dp.accuracy_first.search import CovNR as CovNR, OutputNR as OutputNR
