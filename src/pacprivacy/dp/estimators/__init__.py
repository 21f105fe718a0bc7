"""Estimators under differential privacy, with scikit-learn's interface."""

from pacprivacy.dp.estimators.base import DPBase as DPBase
from pacprivacy.dp.estimators.linear import (
    DPLinearRegression as DPLinearRegression,
    DPLogisticRegression as DPLogisticRegression,
    DPSGDClassifier as DPSGDClassifier,
)
from pacprivacy.dp.estimators.pate import PATEClassifier as PATEClassifier
from pacprivacy.dp.estimators.subsample_aggregate import SubsampleAggregate as SubsampleAggregate
