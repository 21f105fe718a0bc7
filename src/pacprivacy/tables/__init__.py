"""Data as people have it: tables in files, their columns, and the models that run on them."""

from pacprivacy.tables.files import Table, numeric_matrix, read_table, unit_labels
from pacprivacy.tables.models import (
    MODELS,
    ModelOptions,
    Ranges,
    find_model,
    learned_columns,
    pairs_of,
)
from pacprivacy.tables.study import Study, read_study

__all__ = [
    "MODELS",
    "ModelOptions",
    "Ranges",
    "Study",
    "Table",
    "find_model",
    "learned_columns",
    "numeric_matrix",
    "pairs_of",
    "read_study",
    "read_table",
    "unit_labels",
]
