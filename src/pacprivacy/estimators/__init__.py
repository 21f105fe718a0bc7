"""scikit-learn estimators whose fit is a private release with a certificate."""

from pacprivacy.estimators.classifiers import (
    PrivateForestClassifier,
    PrivateLinearSVC,
    PrivateLogisticRegression,
)
from pacprivacy.estimators.cost import SearchCost
from pacprivacy.estimators.predictor import PrivatePredictor
from pacprivacy.estimators.ridge import PrivateRidge
from pacprivacy.estimators.search import ScoreWithCost, search_cost
from pacprivacy.estimators.unsupervised import PrivateKMeans, PrivatePCA
from pacprivacy.estimators.wrapper import PrivateEstimator

__all__ = [
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
    "search_cost",
]
