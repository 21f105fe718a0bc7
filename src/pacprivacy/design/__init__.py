"""Algorithms designed for their noise: penalties and step sizes chosen for the release."""

from pacprivacy.design.descent import (
    Descent as Descent,
    DescentGradient as DescentGradient,
    descend as descend,
)
from pacprivacy.design.objective import LogisticFit as LogisticFit, Objective as Objective
from pacprivacy.design.ridge import (
    LinearTransform as LinearTransform,
    OrthogonalRidge as OrthogonalRidge,
    RidgePenalty as RidgePenalty,
    Snr as Snr,
    fit_ica_transform as fit_ica_transform,
    fit_standard_transform as fit_standard_transform,
    fit_whitening_transform as fit_whitening_transform,
)
from pacprivacy.design.tuning import (
    TuneResult as TuneResult,
    tune as tune,
    tune_budgets as tune_budgets,
)
