"""scikit-learn estimators whose fit is a private release with a certificate."""

from pacprivacy.estimators.classifiers import PrivateForestClassifier, PrivateLinearSVC
from pacprivacy.estimators.cost import FitCost, SearchCost
from pacprivacy.estimators.predictor import PrivatePredictor
from pacprivacy.estimators.search import ScoreWithCost, search_cost
from pacprivacy.estimators.unsupervised import PrivateKMeans, PrivatePCA
from pacprivacy.estimators.wrapper import PrivateEstimator

__all__ = [
    "FitCost",
    "PrivateEstimator",
    "PrivateForestClassifier",
    "PrivateKMeans",
    "PrivateLinearSVC",
    "PrivatePCA",
    "PrivatePredictor",
    "ScoreWithCost",
    "SearchCost",
    "search_cost",
]
