"""Data as people have it: tables in files, their columns, and the models that run on them."""

from pacprivacy.tables.categories import (
    ModelOptions as ModelOptions,
    Ranges as Ranges,
    rows_where as rows_where,
)
from pacprivacy.tables.files import (
    Reading as Reading,
    Table as Table,
    check_known as check_known,
    numeric_matrix as numeric_matrix,
    read_table as read_table,
    unit_labels as unit_labels,
)
from pacprivacy.tables.models import (
    MODELS as MODELS,
    Study as Study,
    described_columns as described_columns,
    find_model as find_model,
    learned_columns as learned_columns,
    numbers_of as numbers_of,
    pairs_of as pairs_of,
    read_study as read_study,
)
from pacprivacy.tables.prediction import predict as predict
