"""Differential privacy, for comparison: another promise, about whether a record is in at all."""

from pacprivacy.dp.adassp import AdaSSP, adassp
from pacprivacy.dp.gaussian import gaussian_delta, gaussian_parameter

__all__ = ["AdaSSP", "adassp", "gaussian_delta", "gaussian_parameter"]
