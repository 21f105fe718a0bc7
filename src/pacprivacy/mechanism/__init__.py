"""What is computed on every subset, and how its value becomes a vector and back."""

from __future__ import annotations

from pacprivacy.mechanism.base import (
    Batch,
    Mechanism,
    Wrapper,
    as_mechanism,
    batch_of,
)
from pacprivacy.mechanism.data import (
    MINIMUM_ROWS,
    Classes,
    Data,
    check_classes,
    choose_pool,
    code_labels,
    coerce_data,
    find_classes,
    is_table,
    read_columns,
    read_labelled,
    read_table,
)
from pacprivacy.mechanism.flatten import Structure, flatten
from pacprivacy.mechanism.forest import Forest
from pacprivacy.mechanism.kmeans import KMeans
from pacprivacy.mechanism.pca import PCA
from pacprivacy.mechanism.sklearn import (
    EstimatorFit,
    declare_released,
    last_step,
    register_released,
)
from pacprivacy.mechanism.statistics import Covariance, Histogram, Mean, subset_sizes, subset_sums
from pacprivacy.mechanism.svm import LinearSVM

__all__ = [
    "MINIMUM_ROWS",
    "PCA",
    "Batch",
    "Classes",
    "Covariance",
    "Data",
    "EstimatorFit",
    "Forest",
    "Histogram",
    "KMeans",
    "LinearSVM",
    "Mean",
    "Mechanism",
    "Structure",
    "Wrapper",
    "as_mechanism",
    "batch_of",
    "check_classes",
    "choose_pool",
    "code_labels",
    "coerce_data",
    "declare_released",
    "find_classes",
    "flatten",
    "is_table",
    "last_step",
    "read_columns",
    "read_labelled",
    "read_table",
    "register_released",
    "subset_sizes",
    "subset_sums",
]
