"""Data as people have it: tables in files, their columns, and the models that run on them."""

from pacprivacy.tables.cells import Reading as Reading
from pacprivacy.tables.models import (
    MODELS as MODELS,
    ModelStudy as ModelStudy,
    described_model_columns as described_model_columns,
    find_model as find_model,
    find_model_name as find_model_name,
    model_numbers as model_numbers,
    model_ranges as model_ranges,
    read_model_study as read_model_study,
)
from pacprivacy.tables.schema import (
    SUFFIXES as SUFFIXES,
    Schema as Schema,
    declared_levels as declared_levels,
    read_folder as read_folder,
    schema_notes as schema_notes,
)
from pacprivacy.tables.studies import (
    StudyFile as StudyFile,
    read_study as read_study,
    survey_study as survey_study,
)
from pacprivacy.tables.table import (
    Table as Table,
    check_table_columns as check_table_columns,
    read_table as read_table,
    table_identities as table_identities,
    table_unit_labels as table_unit_labels,
)
from pacprivacy.tables.terms import (
    ModelOptions as ModelOptions,
    Ranges as Ranges,
    category_rows_where as category_rows_where,
    predict as predict,
)
