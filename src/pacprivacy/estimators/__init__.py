"""scikit-learn estimators whose fit is a private release with a certificate."""

from pacprivacy.estimators.classifiers import (
    PrivateForestClassifier,
    PrivateLinearSVC,
    PrivateLogisticRegression,
)
from pacprivacy.estimators.cost import SearchCost
from pacprivacy.estimators.dp_aggregate import SubsampleAggregate
from pacprivacy.estimators.dp_cost import DPFitCost, DPSearchCost
from pacprivacy.estimators.dp_logistic import DPLogisticRegression
from pacprivacy.estimators.dp_pate import PATEClassifier
from pacprivacy.estimators.dp_regression import DPLinearRegression
from pacprivacy.estimators.dp_sgd import DPSGDClassifier
from pacprivacy.estimators.predictor import PrivatePredictor
from pacprivacy.estimators.ridge import PrivateRidge
from pacprivacy.estimators.search import ScoreWithCost, search_cost
from pacprivacy.estimators.unsupervised import PrivateKMeans, PrivatePCA
from pacprivacy.estimators.wrapper import PrivateEstimator

__all__ = [
    "DPFitCost",
    "DPLinearRegression",
    "DPLogisticRegression",
    "DPSGDClassifier",
    "DPSearchCost",
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
