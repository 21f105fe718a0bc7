"""Data as people have it: tables in files, their columns, and the models that run on them."""

from pacprivacy.tables.categories import ModelOptions as ModelOptions, Ranges as Ranges
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
    find_model as find_model,
    learned_columns as learned_columns,
    pairs_of as pairs_of,
    read_study as read_study,
)
from pacprivacy.tables.prediction import predict as predict
