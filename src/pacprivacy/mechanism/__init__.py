"""What is computed on every subset, and how its value becomes a vector and back."""

from __future__ import annotations

from pacprivacy.mechanism.base import (
    Batch,
    FunctionMechanism,
    Mechanism,
    Wrapper,
    as_mechanism,
    batch_of,
)
from pacprivacy.mechanism.data import Data, coerce_data
from pacprivacy.mechanism.flatten import Structure, flatten
from pacprivacy.mechanism.forest import Forest
from pacprivacy.mechanism.kmeans import KMeans
from pacprivacy.mechanism.pca import PCA
from pacprivacy.mechanism.sklearn import EstimatorFit, register_released
from pacprivacy.mechanism.statistics import Covariance, Histogram, Mean
from pacprivacy.mechanism.svm import LinearSVM

__all__ = [
    "PCA",
    "Batch",
    "Covariance",
    "Data",
    "EstimatorFit",
    "Forest",
    "FunctionMechanism",
    "Histogram",
    "KMeans",
    "LinearSVM",
    "Mean",
    "Mechanism",
    "Structure",
    "Wrapper",
    "as_mechanism",
    "batch_of",
    "coerce_data",
    "flatten",
    "register_released",
]
