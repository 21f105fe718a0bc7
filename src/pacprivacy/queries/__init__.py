"""Data where it lives: tables with keys, queries as mechanisms; several plans, one matrix."""

from pacprivacy.queries.query import JoinedRows as JoinedRows, joined_rows_plan as joined_rows_plan
from pacprivacy.queries.query_mechanism import (
    AT_LEAST as AT_LEAST,
    QueryMechanism as QueryMechanism,
    make_query_mechanism as make_query_mechanism,
    query_cell_names as query_cell_names,
    query_mechanism_arranged as query_mechanism_arranged,
    query_mechanism_cell as query_mechanism_cell,
    query_mechanism_columns as query_mechanism_columns,
    query_mechanism_keys as query_mechanism_keys,
)
from pacprivacy.queries.query_sums import QuerySums as QuerySums
from pacprivacy.queries.tables import (
    Tables as Tables,
    TablesWorld as TablesWorld,
)
