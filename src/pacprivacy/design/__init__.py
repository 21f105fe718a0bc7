"""Algorithms that know of the noise to come: penalties and step sizes chosen for the release."""

from pacprivacy.design.descent import (
    Descent as Descent,
    Shares as Shares,
    StepRule as StepRule,
    descend as descend,
)
from pacprivacy.design.logistic import (
    LogisticFit as LogisticFit,
    MeanGradient as MeanGradient,
    Objective as Objective,
)
from pacprivacy.design.ridge import (
    JointRidge as JointRidge,
    LinearTransform as LinearTransform,
    OrthogonalRidge as OrthogonalRidge,
    Penalty as Penalty,
    Snr as Snr,
    fit_ica as fit_ica,
    fit_standard as fit_standard,
    fit_whitening as fit_whitening,
)
from pacprivacy.design.tuning import (
    TuneResult as TuneResult,
    tune as tune,
    tune_budgets as tune_budgets,
)
