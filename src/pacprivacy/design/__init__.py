"""Algorithms that know of the noise to come: penalties and step sizes chosen for the release."""

from pacprivacy.design.descent import (
    Descent as Descent,
    DescentGradient as DescentGradient,
    DescentStepRule as DescentStepRule,
    Shares as Shares,
    descend as descend,
)
from pacprivacy.design.logistic import LogisticFit as LogisticFit
from pacprivacy.design.objective import Objective as Objective
from pacprivacy.design.ridge import (
    JointRidge as JointRidge,
    OrthogonalRidge as OrthogonalRidge,
    RidgePenalty as RidgePenalty,
    Snr as Snr,
)
from pacprivacy.design.transforms import (
    LinearTransform as LinearTransform,
    fit_ica_transform as fit_ica_transform,
    fit_standard_transform as fit_standard_transform,
    fit_whitening_transform as fit_whitening_transform,
)
from pacprivacy.design.tuning import (
    TuneResult as TuneResult,
    tune as tune,
    tune_budgets as tune_budgets,
)
