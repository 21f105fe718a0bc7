"""Algorithms that know of the noise to come: penalties and step sizes chosen for the release."""

from pacprivacy.design.descent import Descent, DescentRun, Shares, StepRule, descend
from pacprivacy.design.gradient import MeanGradient, Objective
from pacprivacy.design.logistic import LogisticFit
from pacprivacy.design.ridge import (
    JointRidge,
    LinearTransform,
    OrthogonalRidge,
    Penalty,
    Snr,
    fit_ica,
    fit_standard,
    fit_whitening,
)
from pacprivacy.design.tuning import TunePoint, TuneResult, tune, tune_budgets

__all__ = [
    "Descent",
    "DescentRun",
    "JointRidge",
    "LinearTransform",
    "LogisticFit",
    "MeanGradient",
    "Objective",
    "OrthogonalRidge",
    "Penalty",
    "Shares",
    "Snr",
    "StepRule",
    "TunePoint",
    "TuneResult",
    "descend",
    "fit_ica",
    "fit_standard",
    "fit_whitening",
    "tune",
    "tune_budgets",
]
