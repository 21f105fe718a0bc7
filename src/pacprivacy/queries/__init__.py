"""Data where it lives: tables with keys, queries as sums per unit, or by candidates."""

from pacprivacy.queries.query import cell_column as cell_column
from pacprivacy.queries.query_mechanism import (
    AT_LEAST as AT_LEAST,
    QueryMechanism as QueryMechanism,
    make_query_mechanism as make_query_mechanism,
    refuse_deep_nesting as refuse_deep_nesting,
)
from pacprivacy.queries.query_sums import QuerySums as QuerySums
from pacprivacy.queries.tables import (
    CandidateTables as CandidateTables,
    Tables as Tables,
)
