"""Accuracy first: ask for an accuracy, and pay the least privacy loss that reaches it."""

from pacprivacy.dp.accuracy_first.methods import CovNR as CovNR, OutputNR as OutputNR
from pacprivacy.dp.accuracy_first.noise_levels import (
    BrownianReduction as BrownianReduction,
    NoiseReduction as NoiseReduction,
    doubling_levels as doubling_levels,
    geometric_levels as geometric_levels,
)
from pacprivacy.dp.accuracy_first.problems import (
    LogisticProblem as LogisticProblem,
    RidgeProblem as RidgeProblem,
    solve_trust_region as solve_trust_region,
)
from pacprivacy.dp.accuracy_first.threshold import (
    Calibration as Calibration,
    InteractiveAboveThreshold as InteractiveAboveThreshold,
    ThresholdPlan as ThresholdPlan,
    plan_threshold as plan_threshold,
)
