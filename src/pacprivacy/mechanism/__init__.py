"""What is computed on every subset, and how its value becomes a vector and back."""

from pacprivacy.mechanism.base import (
    Batch as Batch,
    FilledMechanism as FilledMechanism,
    Mechanism as Mechanism,
    MechanismColumns as MechanismColumns,
    MechanismWrapper as MechanismWrapper,
    NamedMechanism as NamedMechanism,
    RowsMechanism as RowsMechanism,
    Scaling as Scaling,
    as_mechanism as as_mechanism,
    fixed_mechanism as fixed_mechanism,
    mechanism_batch as mechanism_batch,
    mechanism_model as mechanism_model,
    mechanism_published as mechanism_published,
    mechanism_totals as mechanism_totals,
    titled_mechanism as titled_mechanism,
)
from pacprivacy.mechanism.columns import (
    GAP_LEVEL as GAP_LEVEL,
    Columns as Columns,
    code_column_levels as code_column_levels,
    column_levels as column_levels,
    fill_column_means as fill_column_means,
    is_identity_column as is_identity_column,
    is_text_column as is_text_column,
)
from pacprivacy.mechanism.conditions import Condition as Condition
from pacprivacy.mechanism.data import (
    CLASS_LABELS as CLASS_LABELS,
    MINIMUM_ROWS as MINIMUM_ROWS,
    Classes as Classes,
    Data as Data,
    check_classes as check_classes,
    choose_pool as choose_pool,
    code_labels as code_labels,
    coerce_data as coerce_data,
    find_classes as find_classes,
    is_table as is_table,
    power_of_two as power_of_two,
    read_columns as read_columns,
    read_labelled as read_labelled,
    read_table as read_table,
    split_units as split_units,
)
from pacprivacy.mechanism.flatten import Structure as Structure, flatten as flatten
from pacprivacy.mechanism.forest import Forest as Forest
from pacprivacy.mechanism.kmeans import KMeans as KMeans
from pacprivacy.mechanism.nodes import node_type as node_type, node_value as node_value
from pacprivacy.mechanism.pca import PCA as PCA
from pacprivacy.mechanism.sklearn import (
    EstimatorFit as EstimatorFit,
    declare_released as declare_released,
    last_step as last_step,
    register_released as register_released,
    takes_frames as takes_frames,
)
from pacprivacy.mechanism.statistics import (
    Covariance as Covariance,
    Histogram as Histogram,
    Mean as Mean,
    subset_sizes as subset_sizes,
    subset_sums as subset_sums,
)
from pacprivacy.mechanism.svm import LinearSVM as LinearSVM
