"""Estimators under differential privacy, with scikit-learn's interface."""

from pacprivacy.dp.estimators.blocks import (
    PATEClassifier as PATEClassifier,
    SubsampleAggregate as SubsampleAggregate,
)
from pacprivacy.dp.estimators.linear import (
    DPBase as DPBase,
    DPLinearRegression as DPLinearRegression,
    DPLogisticRegression as DPLogisticRegression,
    DPSGDClassifier as DPSGDClassifier,
)
