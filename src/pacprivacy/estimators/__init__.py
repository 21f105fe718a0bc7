"""scikit-learn estimators whose fit is a private release with a certificate."""

from pacprivacy.estimators.linear_models import (
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateQuantileRegressor,
    PrivateRidge,
)
from pacprivacy.estimators.predictor import PrivatePredictor
from pacprivacy.estimators.private_estimator import PrivateEstimator, search_cost
from pacprivacy.estimators.private_models import (
    PrivateForestClassifier,
    PrivateKMeans,
    PrivatePCA,
)

__all__ = [
    "PrivateEstimator",
    "PrivateForestClassifier",
    "PrivateKMeans",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivatePoissonRegressor",
    "PrivatePredictor",
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "search_cost",
]
