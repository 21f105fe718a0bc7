"""Data where it lives: tables with keys, queries as sums per unit, or by candidates."""

from pacprivacy.queries.query_mechanism import (
    AT_LEAST as AT_LEAST,
    QueryMechanism as QueryMechanism,
    make_query_mechanism as make_query_mechanism,
    query_cell_names as query_cell_names,
    query_mechanism_arranged as query_mechanism_arranged,
    query_mechanism_cell as query_mechanism_cell,
    query_mechanism_columns as query_mechanism_columns,
    query_mechanism_keys as query_mechanism_keys,
    refuse_deep_nesting as refuse_deep_nesting,
)
from pacprivacy.queries.query_sums import QuerySums as QuerySums
from pacprivacy.queries.tables import (
    CandidateTables as CandidateTables,
    Tables as Tables,
)
