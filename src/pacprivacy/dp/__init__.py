"""Differential privacy, for comparison: another promise, about whether a record is in at all."""

from pacprivacy.dp.adassp import AdaSSP, adassp
from pacprivacy.dp.clip import clip
from pacprivacy.dp.descent import Steps
from pacprivacy.dp.descent_accounting import descent_epsilon, descent_noise
from pacprivacy.dp.descent_batches import (
    FixedBatch,
    FullBatch,
    PoissonBatch,
    ReplacementBatch,
)
from pacprivacy.dp.gaussian import gaussian_delta, gaussian_parameter
from pacprivacy.dp.losses import Hinge, Logistic, Softmax, Squared
from pacprivacy.dp.sgd import dp_gd, dp_sgd

__all__ = [
    "AdaSSP",
    "FixedBatch",
    "FullBatch",
    "Hinge",
    "Logistic",
    "PoissonBatch",
    "ReplacementBatch",
    "Softmax",
    "Squared",
    "Steps",
    "adassp",
    "clip",
    "descent_epsilon",
    "descent_noise",
    "dp_gd",
    "dp_sgd",
    "gaussian_delta",
    "gaussian_parameter",
]
