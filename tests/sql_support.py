"""What SQL is answered, and how: every construct with a query, as marks of tests.

``python -m tests.sql_support`` writes the lists of docs/reference/queries.md; a test compares them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pacprivacy as pac
from pacprivacy.queries import QueryMechanism, grammar
from pacprivacy.queries.tree import number

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "queries.md"
BEGIN, END = "<!-- support: begin -->\n", "<!-- support: end -->\n"
BEGIN_LISTS, END_LISTS = "<!-- lists: begin -->\n", "<!-- lists: end -->\n"
SUMS, ALONE, REFUSED = "sums per unit", "one query per candidate", "refused"
N = 120
VIA: dict[str, Any] = {"visits": "person", "tests": ("visit", "visits.visit")}
KEYS: Any = {"region": ["n", "s"], "r": ["n", "s"], "kind": ["a", "b", "c"], "dear": [True, False]}


def clinic_frames() -> dict[str, pd.DataFrame]:
    """People, their visits, tests of visits; prices are public."""
    rng = np.random.default_rng(1)
    n = 400
    visits = pd.DataFrame(
        {
            "visit": range(n),
            "person": rng.integers(0, N, n),
            "cost": rng.gamma(9, 5, n).round(2),
            "kind": rng.choice(["a", "b", "c"], n),
        }
    )
    visits.loc[::17, "cost"] = np.nan
    tests = pd.DataFrame({"visit": rng.integers(0, n, 300), "result": rng.normal(1e3, 1.0, 300)})
    people = pd.DataFrame({"id": range(N), "region": rng.choice(["n", "s"], N)})
    prices = pd.DataFrame({"kind": ["a", "b", "d"], "price": [1.5, 2.5, 9.0]})
    return {"people": people, "visits": visits, "tests": tests, "prices": prices}


def clinic_tables(frames: dict[str, pd.DataFrame]) -> pac.Tables:
    return pac.Tables(frames, unit="people.id", via=VIA)


def case(construct: str, plan: str, query: str, *said: str) -> Any:
    """Return a case of a test: a query, its plan or what its refusal says."""
    return pytest.param(query, *(said or (plan,)), marks=pytest.mark.sql(construct, plan))


JOIN = "FROM visits v JOIN people p ON v.person = p.id"
ANSWERED = [
    case("count, sum", SUMS,
         f"SELECT region, count(*) AS n, sum(cost) AS s {JOIN} GROUP BY region"),
    case("avg, stddev, variance", SUMS,
         f"SELECT region, avg(cost) AS a, stddev(cost) AS b, var_pop(cost) AS c {JOIN} GROUP BY 1"),
    case("avg, stddev, variance", SUMS,
         "SELECT stddev(result) AS a, var_samp(result) AS b, stddev_pop(result) AS c FROM tests"),
    case("arithmetic of aggregates, GROUP BY ALL", SUMS,
         f"SELECT region AS r, kind, sum(cost) / count(cost) AS c {JOIN} GROUP BY ALL"),
    case("arithmetic of aggregates, GROUP BY ALL", SUMS,
         "SELECT 2 * sum(cost * price) - count(*) AS x FROM visits JOIN prices USING (kind)"),
    case("corr, covariances, regr_slope", SUMS,
         "SELECT corr(result, cost) AS a, regr_slope(cost, result) AS b, "
         "covar_samp(cost, result) AS c FROM tests JOIN visits USING (visit)"),
    case("count of distinct units", SUMS, "SELECT count(DISTINCT person) AS n FROM visits"),
    case("FILTER, CASE, count_if", SUMS,
         "SELECT sum(cost) FILTER (WHERE kind = 'a') AS a, count_if(cost > 40) AS c, "
         "sum(CASE WHEN kind = 'b' THEN cost END) AS b FROM visits"),
    case("joins by keys, left joins of a private table", SUMS,
         "SELECT count(price) AS c, count(*) AS n FROM visits LEFT JOIN prices USING (kind)"),
    case("joins by keys, left joins of a private table", SUMS,
         "SELECT count(v.visit) AS c FROM people p LEFT JOIN visits v ON p.id = v.person"),
    case("subqueries and WITH that pick rows and columns", SUMS,
         "WITH w AS (SELECT cost * 2 AS d, kind FROM visits WHERE cost > 20) "
         "SELECT kind, sum(d) AS d FROM w GROUP BY kind"),
    case("subqueries and WITH that pick rows and columns", SUMS,
         "SELECT kind, sum(d) AS d FROM (SELECT cost * 2 d, kind FROM visits) t GROUP BY kind"),
    case("subqueries of public tables", SUMS,
         "SELECT count(*) AS n FROM visits WHERE kind IN (SELECT kind FROM prices)"),
    case("ROLLUP, CUBE, GROUPING SETS, GROUPING", SUMS,
         "SELECT kind, GROUPING(kind) AS g, count(*) AS n FROM visits GROUP BY ROLLUP (kind)"),
    case("ROLLUP, CUBE, GROUPING SETS, GROUPING", SUMS,
         f"SELECT kind, region, sum(cost) AS s {JOIN} GROUP BY CUBE (kind, region)"),
    case("ROLLUP, CUBE, GROUPING SETS, GROUPING", SUMS,
         f"SELECT kind, region, cost > 40 AS dear, avg(cost) AS a {JOIN} "
         "WHERE cost IS NOT NULL GROUP BY kind, GROUPING SETS ((region, dear), (region), ())"),
    case("median, quantile_cont (with coins read off counts)", SUMS,
         "SELECT kind, median(cost) AS m FROM visits GROUP BY ROLLUP (kind)"),
    case("median, quantile_cont (with coins read off counts)", SUMS,
         "SELECT median(cost) AS m, quantile_cont(cost, 0.9) AS q FROM visits"),
    case("median, quantile_cont (with coins read off counts)", SUMS,
         "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY cost) AS m FROM visits"),
    case("min, max, quantile_disc", ALONE,
         "SELECT quantile_disc(cost, 0.5) AS m, max(cost) AS h, min(cost) AS q FROM visits"),
    case("mode (the smallest of the commonest)", ALONE,
         "SELECT kind, mode(cost // 10) AS m FROM visits GROUP BY kind"),
    case("count or sum of distinct values", ALONE, "SELECT count(DISTINCT kind) AS n FROM visits"),
    case("every other aggregate that gives a number", ALONE,
         "SELECT skewness(cost) AS a, mad(cost) AS b, bool_or(cost > 90) AS d FROM visits"),
    case("aggregates of aggregates", ALONE,
         "SELECT avg(n) AS a FROM (SELECT person, count(*) AS n FROM visits GROUP BY person)"),
    case("aggregates of aggregates", ALONE,
         "WITH w AS (SELECT kind, person, max(cost) AS m FROM visits GROUP BY ALL) "
         "SELECT kind, avg(m) AS a FROM w WHERE m > (SELECT avg(m) FROM w) GROUP BY kind"),
    case("HAVING in a subquery", ALONE,
         "SELECT count(*) AS n FROM (SELECT person FROM visits GROUP BY 1 HAVING count(*) > 2)"),
    case("subqueries of private tables: scalar, EXISTS, IN", ALONE,
         "SELECT count(*) AS n FROM visits WHERE cost > (SELECT avg(cost) FROM visits)"),
    case("subqueries of private tables: scalar, EXISTS, IN", ALONE,
         "SELECT count(*) AS n FROM visits v WHERE NOT EXISTS "
         "(SELECT 1 FROM tests t WHERE t.visit = v.visit AND t.result > 1000)"),
    case("subqueries of private tables: scalar, EXISTS, IN", ALONE,
         "SELECT sum(cost) / (SELECT sum(cost) FROM visits) AS x FROM visits WHERE kind = 'a'"),
    case("UNION, EXCEPT, INTERSECT, DISTINCT in a subquery", ALONE,
         "SELECT count(*) AS n FROM (SELECT person, kind FROM visits UNION SELECT id, 'z' "
         "FROM people EXCEPT SELECT DISTINCT person, kind FROM visits WHERE cost > 60)"),
    case("rows of several units joined", ALONE,
         "SELECT count(*) AS n FROM visits a JOIN visits b ON a.kind = b.kind"),
    case("right, full, semi and anti joins; left joins of a public table", ALONE,
         "SELECT count(*) AS n FROM prices LEFT JOIN visits USING (kind)"),
    case("right, full, semi and anti joins; left joins of a public table", ALONE,
         "SELECT count(*) AS n FROM people ANTI JOIN visits ON id = person"),
    case("right, full, semi and anti joins; left joins of a public table", ALONE,
         "SELECT count(*) AS n, count(b.visit) AS m FROM visits a FULL JOIN visits b "
         "ON a.visit = b.visit + 1"),
    case("left joins between units that keep what has no match", ALONE,
         "SELECT count(*) AS n FROM visits a LEFT JOIN visits b ON a.visit = b.visit + 1 "
         "WHERE b.visit IS NULL"),
    case("left joins that keep what has no match", SUMS,
         "SELECT count(*) AS n FROM people p LEFT JOIN visits v ON p.id = v.person AND cost > 60 "
         "WHERE v.visit IS NULL"),
    case("left joins of subqueries", ALONE,
         "SELECT sum(v.one) AS s FROM people p LEFT JOIN (SELECT person, 1 AS one FROM visits "
         "WHERE cost > 60) v ON p.id = v.person"),
    case("windows in a subquery", ALONE,
         "SELECT avg(r) AS a FROM (SELECT rank() OVER (PARTITION BY kind ORDER BY cost, visit) "
         "AS r FROM visits)"),
    case("ORDER BY with LIMIT in a subquery", ALONE,
         "SELECT avg(cost) AS a FROM (SELECT cost FROM visits ORDER BY visit DESC LIMIT 30)"),
]  # fmt: skip

NOT_ANSWERED = [
    case("rows, columns that are neither key nor aggregate", REFUSED,
         "SELECT * FROM visits", "«*»"),
    case("rows, columns that are neither key nor aggregate", REFUSED,
         "SELECT cost FROM visits", "«cost»"),
    case("rows, columns that are neither key nor aggregate", REFUSED,
         "SELECT kind, cost, count(*) FROM visits GROUP BY kind", "«cost»"),
    case("rows, columns that are neither key nor aggregate", REFUSED,
         "SELECT cost + count(*) FROM visits GROUP BY kind", "«cost»"),
    case("rows, columns that are neither key nor aggregate", REFUSED,
         "SELECT (SELECT max(cost) FROM visits) AS m FROM visits", "must have an aggregate"),
    case("rows, columns that are neither key nor aggregate", REFUSED,
         "SELECT sum(COLUMNS('c.*')) FROM visits", "COLUMNS('c.*')"),
    case("outputs that are no numbers", REFUSED, "SELECT max(kind) FROM visits", "«max(kind)»"),
    case("outputs that are no numbers", REFUSED,
         "SELECT max(DATE '2020-01-01' + visit::INT) AS d FROM visits", "not DATE"),
    case("keys that were neither declared nor published", REFUSED,
         "SELECT kind, count(*) FROM visits GROUP BY kind", "keys="),
    case("keys that are lists or structures", REFUSED,
         "SELECT [kind] AS k, count(*) FROM visits GROUP BY 1", "«[kind]»"),
    case("DISTINCT, windows, set operations of the outer query", REFUSED,
         "SELECT DISTINCT kind FROM visits", "DISTINCT"),
    case("DISTINCT, windows, set operations of the outer query", REFUSED,
         "SELECT count(*) FROM visits UNION ALL SELECT count(*) FROM people", "set operation"),
    case("DISTINCT, windows, set operations of the outer query", REFUSED,
         "SELECT sum(count(*)) OVER () FROM visits GROUP BY kind", "windows"),
    case("random(), now(), settings, variables", REFUSED,
         "SELECT count(*) FROM visits WHERE cost > random()", "«random()»"),
    case("random(), now(), settings, variables", REFUSED,
         "SELECT count(*) FROM visits WHERE now() > TIMESTAMP '2020-01-01'", "«now()»"),
    case("random(), now(), settings, variables", REFUSED,
         "SELECT count(*) FROM visits WHERE DATE '2020-01-01' < today()", "every run"),
    case("random(), now(), settings, variables", REFUSED,
         "SELECT count(*) FROM visits WHERE TIMESTAMP '2020-01-01' < localtimestamp", "every run"),
    case("random(), now(), settings, variables", REFUSED,
         "SELECT count(*) FROM visits WHERE age(TIMESTAMP '2020-01-01') > INTERVAL 1 DAY", "«age("),
    case("random(), now(), settings, variables", REFUSED,
         "SELECT count(*) FROM visits WHERE gen_random_uuid()::VARCHAR > 'a'", "every run"),
    case("random(), now(), settings, variables", REFUSED,
         "SELECT count(*) FROM visits WHERE current_setting('threads') = '1'", "«current_setting("),
    case("random(), now(), settings, variables", REFUSED,
         "SELECT count(*) FROM visits WHERE getenv('HOME') = '/'", "«getenv("),
    case("random(), now(), settings, variables", REFUSED,
         "SELECT count(*) FROM visits WHERE cost > $limit", "«$limit»"),
    case("samples", REFUSED, "SELECT count(*) FROM visits USING SAMPLE 10", "SAMPLE"),
    case("samples", REFUSED, "SELECT count(*) FROM visits TABLESAMPLE 10%", "SAMPLE"),
    case("aggregates that depend on the order of rows", REFUSED,
         "SELECT first(cost) FROM visits", "«first(cost)»"),
    case("aggregates that depend on the order of rows", REFUSED,
         "SELECT string_agg(kind, ',') FROM visits", "order of rows"),
    case("aggregates that depend on the order of rows", REFUSED,
         "SELECT arg_max(cost, visit) FROM visits", "order of rows"),
    case("aggregates that depend on the order of rows", REFUSED,
         "SELECT sum(len(l)) FROM (SELECT list(cost) AS l FROM visits GROUP BY person)", "order"),
    case("rows picked without ORDER BY", REFUSED,
         "SELECT sum(cost) FROM (SELECT cost FROM visits LIMIT 3)", "«LIMIT 3»"),
    case("rows picked without ORDER BY", REFUSED,
         "SELECT sum(cost) FROM (SELECT DISTINCT ON (kind) cost FROM visits)", "«DISTINCT ON"),
    case("rows picked without ORDER BY", REFUSED,
         "SELECT sum(r) FROM (SELECT row_number() OVER () AS r FROM visits)", "«row_number()"),
    case("rows picked without ORDER BY", REFUSED,
         "SELECT sum(r) FROM (SELECT row_number() OVER w AS r FROM visits WINDOW w AS ())",
         "«row_number()"),
    case("rows picked without ORDER BY", REFUSED,
         "SELECT count(*) FROM visits POSITIONAL JOIN prices", "«POSITIONAL JOIN"),
    case("NATURAL and ASOF joins", REFUSED,
         "SELECT count(*) AS n FROM visits NATURAL JOIN prices", "NATURAL"),
    case("NATURAL and ASOF joins", REFUSED,
         "SELECT avg(b.cost) AS a FROM visits a ASOF JOIN visits b "
         "ON a.kind = b.kind AND a.visit >= b.visit + 1", "ASOF"),
    case("recursive WITH", REFUSED,
         "WITH RECURSIVE r(i) AS (SELECT visit FROM visits WHERE visit < 5 UNION SELECT v.visit "
         "FROM visits v JOIN r ON v.visit = r.i + 7) SELECT count(*) AS n, avg(i) AS a FROM r",
         "recursive"),
    case("range, generate_series, unnest", REFUSED,
         "SELECT count(*) AS n FROM visits, range(3) r(i)", "«range(3)"),
    case("PIVOT", REFUSED, "SELECT count(*) FROM (PIVOT visits ON kind USING sum(cost))", "PIVOT"),
    case("files, settings, the catalog, other tables", REFUSED,
         "SELECT count(*) FROM nowhere", "«nowhere»"),
    case("files, settings, the catalog, other tables", REFUSED,
         "SELECT count(*) FROM read_csv('people.csv')", "declared"),
    case("files, settings, the catalog, other tables", REFUSED,
         "SELECT count(*) FROM visits, '/etc/passwd'", "declared"),
    case("files, settings, the catalog, other tables", REFUSED,
         "SELECT count(*) FROM visits, duckdb_settings()", "«duckdb_settings()»"),
    case("files, settings, the catalog, other tables", REFUSED,
         "SELECT count(*) FROM visits, information_schema.tables", "«information_schema.tables»"),
    case("files, settings, the catalog, other tables", REFUSED,
         "SELECT count(*) FROM query('SELECT 1')", "declared"),
    case("files, settings, the catalog, other tables", REFUSED,
         "SELECT count(*) FROM sqlite_master, visits WHERE EXISTS "
         "(WITH sqlite_master AS (SELECT 1) SELECT * FROM sqlite_master)", "declared"),
    case("files, settings, the catalog, other tables", REFUSED,
         "SELECT count(*) FROM pac_whole.visits", "declared"),
    case("files, settings, the catalog, other tables", REFUSED,
         "SELECT count(*) FROM visits WHERE pac_unit = 3", "pac_"),
    case("files, settings, the catalog, other tables", REFUSED,
         "SELECT count(*) FROM visits LIMIT (SELECT max(visit) FROM visits)", "whole numbers"),
    case("public tables only (said to be public)", REFUSED,
         "SELECT count(*) FROM prices", "public"),
    case("writes, COPY, ATTACH, PRAGMA, SET, several statements", REFUSED,
         "DELETE FROM visits", "SELECT"),
    case("writes, COPY, ATTACH, PRAGMA, SET, several statements", REFUSED,
         "DROP TABLE visits", "SELECT"),
    case("writes, COPY, ATTACH, PRAGMA, SET, several statements", REFUSED,
         "COPY visits TO 'out.csv'", "SELECT"),
    case("writes, COPY, ATTACH, PRAGMA, SET, several statements", REFUSED,
         "ATTACH 'other.duckdb'", "SELECT"),
    case("writes, COPY, ATTACH, PRAGMA, SET, several statements", REFUSED,
         "PRAGMA database_list", "SELECT"),
    case("writes, COPY, ATTACH, PRAGMA, SET, several statements", REFUSED,
         "SET threads = 4", "SELECT"),
    case("writes, COPY, ATTACH, PRAGMA, SET, several statements", REFUSED,
         "SELECT count(*) FROM visits; SELECT 1", "one statement"),
    case("what the engine cannot read", REFUSED, "SELECT count(* FROM visits", "SQL"),
    case("what the engine cannot read", REFUSED, "SELECT sum(nothing) FROM visits", "«nothing»"),
    case("what the engine cannot read", REFUSED,
         "SELECT kind, count(*) FROM visits GROUP BY 7", "«7»"),
    case("what the engine cannot read", REFUSED, "SELECT count(*) FROM visits ORDER BY 4", "«4»"),
    case("what the engine cannot read", REFUSED,
         "SELECT count(*) FROM visits HAVING count(*) > 'x'", "HAVING"),
]  # fmt: skip


def cells_of_candidate(query: Any, tables: pac.Tables, units: Any) -> Any:
    """Return the columns of every cell of a query on the rows of these units, as its core says."""
    alone = QueryMechanism(query=query.query, name="", tables=tables, cells=query.cells, fill=-1.0)
    rows = tables.take(units).ask(query.query.core(number(1.0)))
    return replace(alone, nothing=alone._nothing())._aligned(rows)


def matrix() -> str:
    """Return the constructs of every plan, each with a test."""
    found = dict.fromkeys(mark.args for param in (*ANSWERED, *NOT_ANSWERED) for mark in param.marks)
    lines = []
    for plan in (SUMS, ALONE, REFUSED):
        constructs = "; ".join(construct for construct, its_plan in found if its_plan == plan)
        lines.append(f"- **{plan.capitalize()}:** {constructs}.")
    return "\n".join(lines) + "\n"


def lists() -> str:
    """Return the functions and types that are answered."""
    kinds = {
        "functions": grammar.SCALARS,
        "aggregates": grammar.AGGREGATES - {"count_star"},
        "windows, besides aggregates": grammar.RANKS | grammar.PICKS,
        "types": grammar.TYPES,
    }
    rows = [
        f"| {kind} | {', '.join(f'`{n}`' for n in sorted(names))} |"
        for kind, names in kinds.items()
    ]
    return "\n".join(["| kind | names |", "|---|---|", *rows]) + "\n"


def written_page(page: str) -> str:
    """Return the page with its tables as they are now."""
    for begin, end, table in ((BEGIN, END, matrix()), (BEGIN_LISTS, END_LISTS, lists())):
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    return page


def main() -> None:
    PAGE.write_text(written_page(PAGE.read_text()))


if __name__ == "__main__":
    main()
