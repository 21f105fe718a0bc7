"""scikit-learn estimators whose fit is a private release with a certificate."""

from pacprivacy.estimators.cost import FitCost, SearchCost
from pacprivacy.estimators.dp_aggregate import SubsampleAggregate
from pacprivacy.estimators.dp_cost import DPFitCost, DPSearchCost
from pacprivacy.estimators.dp_logistic import DPLogisticRegression
from pacprivacy.estimators.dp_pate import PATEClassifier
from pacprivacy.estimators.dp_regression import DPLinearRegression
from pacprivacy.estimators.dp_sgd import DPSGDClassifier
from pacprivacy.estimators.models import (
    PrivateForestClassifier,
    PrivateKMeans,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePCA,
    PrivateRidge,
)
from pacprivacy.estimators.predictor import PrivatePredictor
from pacprivacy.estimators.search import ScoreWithCost, search_cost
from pacprivacy.estimators.wrapper import PrivateEstimator

__all__ = [
    "DPFitCost",
    "DPLinearRegression",
    "DPLogisticRegression",
    "DPSGDClassifier",
    "DPSearchCost",
    "FitCost",
    "PATEClassifier",
    "PrivateEstimator",
    "PrivateForestClassifier",
    "PrivateKMeans",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivatePredictor",
    "PrivateRidge",
    "ScoreWithCost",
    "SearchCost",
    "SubsampleAggregate",
    "search_cost",
]
