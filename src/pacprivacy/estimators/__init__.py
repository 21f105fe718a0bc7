"""scikit-learn estimators whose fit is a private release with a certificate."""

from pacprivacy.estimators.predictor import PrivatePredictor
from pacprivacy.estimators.private_estimator import PrivateEstimator, search_cost
from pacprivacy.estimators.private_models import (
    PrivateForestClassifier,
    PrivateKMeans,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePCA,
    PrivatePoissonRegressor,
    PrivateQuantileRegressor,
    PrivateRidge,
)

__all__ = [
    "PrivateEstimator",
    "PrivateForestClassifier",
    "PrivateKMeans",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivatePoissonRegressor",
    "PrivatePredictor",
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "search_cost",
]
