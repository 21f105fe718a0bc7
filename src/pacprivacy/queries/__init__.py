"""Data where it lives: tables with keys, queries as mechanisms; several plans, one matrix."""

from pacprivacy.queries.plans import joined_rows_plan as joined_rows_plan
from pacprivacy.queries.query_mechanism import (
    AT_LEAST as AT_LEAST,
    QueryMechanism as QueryMechanism,
    make_query_mechanism as make_query_mechanism,
    query_arranged as query_arranged,
    query_arranged_keys as query_arranged_keys,
    query_column_names as query_column_names,
)
from pacprivacy.queries.tables import (
    Tables as Tables,
    TablesWorld as TablesWorld,
    engine_unquoted as engine_unquoted,
)
