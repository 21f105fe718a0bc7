"""Algorithms that know of the noise to come: penalties and step sizes chosen for the release."""

from pacprivacy.design.descent import (
    Descent,
    DescentRun,
    MeanGradient,
    Objective,
    Shares,
    StepRule,
    descend,
)
from pacprivacy.design.logistic import ClassFrame, LogisticFit, class_scores
from pacprivacy.design.ridge import (
    JointRidge,
    LinearTransform,
    Oracle,
    OrthogonalRidge,
    Penalty,
    Snr,
    fit_ica,
    fit_standard,
    fit_whitening,
    predict_ridge,
)
from pacprivacy.design.tuning import TunePoint, TuneResult, tune, tune_budgets

__all__ = [
    "ClassFrame",
    "Descent",
    "DescentRun",
    "JointRidge",
    "LinearTransform",
    "LogisticFit",
    "MeanGradient",
    "Objective",
    "Oracle",
    "OrthogonalRidge",
    "Penalty",
    "Shares",
    "Snr",
    "StepRule",
    "TunePoint",
    "TuneResult",
    "class_scores",
    "descend",
    "fit_ica",
    "fit_standard",
    "fit_whitening",
    "predict_ridge",
    "tune",
    "tune_budgets",
]
