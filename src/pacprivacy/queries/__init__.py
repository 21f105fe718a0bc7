"""Data where it lives: tables with keys, queries as mechanisms; several plans, one matrix."""

from pacprivacy.queries.plans import joined_rows as joined_rows
from pacprivacy.queries.query_mechanism import (
    AT_LEAST as AT_LEAST,
    QueryMechanism as QueryMechanism,
    arranged as arranged,
    arranged_keys as arranged_keys,
    column_names as column_names,
    query_mechanism as query_mechanism,
)
from pacprivacy.queries.tables import Tables as Tables, TablesWorld as TablesWorld
