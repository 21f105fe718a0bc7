"""Sums per unit give the cells of one query per world, also where a world has no rows."""

from dataclasses import replace

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.mechanism import coerce_data, flatten
from pacprivacy.queries import make_query_mechanism
from pacprivacy.queries.query import SumsPlan, sums_plan
from tests.unit.queries.test_query_names import N, clinic_frames


@pytest.mark.claim("Q-1")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) AS n FROM (SELECT kind, count(*) AS c FROM visits WHERE x > 100 "
        "GROUP BY ROLLUP (kind))",
        "SELECT sum(a) AS s FROM (SELECT 1 AS a FROM visits WHERE person = 3 GROUP BY ())",
        "SELECT kind, max(x) AS m, (SELECT max(y) FROM visits) AS z FROM visits WHERE x > 100 "
        "GROUP BY ROLLUP (kind)",
        "SELECT CASE WHEN corr(x, 1) > 2 THEN count(*) ELSE 0 END AS n FROM visits",
        "SELECT CASE WHEN regr_slope(x, y) > 99 THEN count(*) ELSE 0 END AS n FROM visits "
        "WHERE visit < 2",
    ],
)
def test_plans_agree_where_a_world_has_no_rows_or_no_spread(text: str) -> None:
    tables = pac.Tables(clinic_frames(), unit="people.id", via={"visits": "person"})
    data, pool = coerce_data(tables), pac.Balanced(n_subsets=8).draw(N, rng=0)
    made = make_query_mechanism(text, tables, keys={"kind": ["a"]}, fill=-1.0).prepare(data)
    rng = np.random.default_rng(0)
    single = [flatten(made.evaluate(data.take(pool.rows(k)), rng))[0] for k in range(8)]
    sums = sums_plan(made.query, tables)
    if isinstance(sums, SumsPlan):
        both = replace(made, sums=sums).batch
        assert both is not None
        np.testing.assert_allclose(both(data, pool), single, rtol=1e-12)
