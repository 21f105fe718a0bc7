"""Algorithms that know of the noise to come: penalties and step sizes chosen for the release."""

from pacprivacy.design.penalty import Oracle, Penalty
from pacprivacy.design.ridge import JointRidge, OrthogonalRidge, predict_ridge
from pacprivacy.design.transform import LinearTransform, fit_ica, fit_standard, fit_whitening

__all__ = [
    "JointRidge",
    "LinearTransform",
    "Oracle",
    "OrthogonalRidge",
    "Penalty",
    "fit_ica",
    "fit_standard",
    "fit_whitening",
    "predict_ridge",
]
