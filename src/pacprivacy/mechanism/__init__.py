"""Computations on every subset, and their values as vectors."""

from pacprivacy.mechanism.columns import (
    GAP_LEVEL as GAP_LEVEL,
    ISO as ISO,
    SECONDS_A_DAY as SECONDS_A_DAY,
    Columns as Columns,
    ComparedColumn as ComparedColumn,
    Kind as Kind,
    are_dates_clear as are_dates_clear,
    code_column_levels as code_column_levels,
    code_plain_levels as code_plain_levels,
    column_levels as column_levels,
    date_name as date_name,
    declared_column_levels as declared_column_levels,
    fill_column_means as fill_column_means,
    find_date_formats as find_date_formats,
    is_data_table as is_data_table,
    is_number_text as is_number_text,
    is_one_column as is_one_column,
    is_text_column as is_text_column,
    list_columns as list_columns,
    plain_level as plain_level,
    read_data_table as read_data_table,
    read_dates as read_dates,
)
from pacprivacy.mechanism.conditions import Condition as Condition
from pacprivacy.mechanism.data import (
    CLASS_LABELS as CLASS_LABELS,
    MINIMUM_ROWS as MINIMUM_ROWS,
    Classes as Classes,
    Data as Data,
    MatrixLike as MatrixLike,
    Parts as Parts,
    UnitLabels as UnitLabels,
    Value as Value,
    check_data_classes as check_data_classes,
    choose_data_pool as choose_data_pool,
    code_data_labels as code_data_labels,
    coerce_data as coerce_data,
    find_data_classes as find_data_classes,
    identity_warning as identity_warning,
    is_identity_column as is_identity_column,
    is_identity_name as is_identity_name,
    products_of_columns as products_of_columns,
    read_data_columns as read_data_columns,
    read_data_numbers as read_data_numbers,
    read_labelled_data as read_labelled_data,
    repeated_identities as repeated_identities,
    split_data_units as split_data_units,
    subset_sizes as subset_sizes,
    subset_sums as subset_sums,
    symmetric_matrices as symmetric_matrices,
)
from pacprivacy.mechanism.descent import (
    FEATURE_BITS as FEATURE_BITS,
    Descent as Descent,
    DescentFeatures as DescentFeatures,
    LinearProblem as LinearProblem,
    LossName as LossName,
    StepMechanism as StepMechanism,
    StepPath as StepPath,
    StepProblem as StepProblem,
    steps_of as steps_of,
)
from pacprivacy.mechanism.estimator import (
    EstimatorFit as EstimatorFit,
    LinearSVM as LinearSVM,
    declare_estimator_released as declare_estimator_released,
    estimator_takes_frames as estimator_takes_frames,
    estimator_takes_gaps as estimator_takes_gaps,
    last_estimator_step as last_estimator_step,
)
from pacprivacy.mechanism.forest import Forest as Forest
from pacprivacy.mechanism.jax_descent import JaxDescent as JaxDescent
from pacprivacy.mechanism.kmeans import KMeans as KMeans
from pacprivacy.mechanism.lloyd import Lloyd as Lloyd
from pacprivacy.mechanism.mechanism import (
    FILLED_GAPS as FILLED_GAPS,
    AppliedModel as AppliedModel,
    Batch as Batch,
    FilledMechanism as FilledMechanism,
    FunctionMechanism as FunctionMechanism,
    Mechanism as Mechanism,
    MechanismScaling as MechanismScaling,
    MechanismWrapper as MechanismWrapper,
    Named as Named,
    NamedMechanism as NamedMechanism,
    RowsMechanism as RowsMechanism,
    Scaling as Scaling,
    as_mechanism as as_mechanism,
    fixed_mechanism as fixed_mechanism,
    mechanism_with_totals as mechanism_with_totals,
    titled_mechanism as titled_mechanism,
)
from pacprivacy.mechanism.pca import PCA as PCA, fix_pca_signs as fix_pca_signs
from pacprivacy.mechanism.structure import (
    Structure as Structure,
    flatten as flatten,
    node_type as node_type,
    node_value as node_value,
    shown_name as shown_name,
    total_numbers as total_numbers,
)
