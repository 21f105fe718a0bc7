"""scikit-learn estimators whose fit is a private release with a certificate."""

from pacprivacy.estimators.classifiers import PrivateForestClassifier, PrivateLinearSVC
from pacprivacy.estimators.unsupervised import PrivateKMeans, PrivatePCA
from pacprivacy.estimators.wrapper import PrivateEstimator

__all__ = [
    "PrivateEstimator",
    "PrivateForestClassifier",
    "PrivateKMeans",
    "PrivateLinearSVC",
    "PrivatePCA",
]
