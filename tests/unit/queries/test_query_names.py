"""Names, positions and stars mean what they mean to DuckDB: the same number, on the same rows."""

from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow
import pytest

import pacprivacy as pac
from pacprivacy.errors import QueryError
from pacprivacy.mechanism import coerce_data
from pacprivacy.queries import make_query_mechanism
from pacprivacy.queries.query import parse_query
from pacprivacy.queries.sums_plan import IN_SUBQUERY, sums_plan

N = 12


def clinic_frames() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(3)
    visits = {
        "visit": range(40),
        "person": rng.integers(0, N, 40),
        "kind": rng.choice(["a", "b", "c"], 40),
        "x": rng.integers(0, 6, 40),
        "y": rng.integers(-3, 5, 40),
    }
    people = {
        "id": range(N),
        "kind": rng.choice(["a", "c"], N),
        "é": range(N),
        "É": range(9, N + 9),
    }
    return {
        "people": pd.DataFrame(people),
        "visits": pd.DataFrame(visits),
        "prices": pd.DataFrame({"kind": ["a", "b", "d"], "price": [1, 2, 9]}),
    }


def numbers_of_both(text: str, frames: dict[str, pd.DataFrame], **via: str) -> tuple[Any, Any]:
    """Return the numbers of a query by the library, for all units, and by a plain engine."""
    tables = pac.Tables(frames, unit="people.id", via=via)
    data, none = coerce_data(tables), None
    made = make_query_mechanism(text, tables).prepare(data)
    ours = made.evaluate(data.take(np.arange(tables.n_units)), none)  # type: ignore[arg-type]
    with duckdb.connect(":memory:") as engine:
        for name, frame in frames.items():
            engine.register("frame", frame)
            engine.execute(f'CREATE TABLE "{name}" AS SELECT * FROM frame')
        (row,) = engine.execute(text).fetchall()
    return list(ours.values()), list(row)


def check_same(text: str, frames: dict[str, pd.DataFrame] | None = None, **via: str) -> None:
    ours, plain = numbers_of_both(text, frames or clinic_frames(), **(via or {"visits": "person"}))
    assert ours == pytest.approx(plain, rel=1e-12)


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(
    "inner",
    [
        "SELECT x AS a, y AS b, 1 AS k FROM visits ORDER BY k, b DESC, visit LIMIT 5",
        "SELECT sum(x) AS a, y AS b, 2 AS k FROM visits GROUP BY k, b HAVING y > 0",
        "SELECT sum(x) AS a, 1 AS k FROM visits GROUP BY 2",
    ],
)
def test_a_whole_number_behind_an_alias_is_no_position(inner: str) -> None:
    check_same(f"SELECT sum(a) AS s FROM ({inner})")


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize("order", ["y", "y + 0", "-y", "y DESC", "abs(y)"])
def test_inside_an_expression_of_order_by_a_column_goes_before_an_alias(order: str) -> None:
    check_same(
        "SELECT sum(a) AS s FROM "
        f"(SELECT x AS a, visit - 7 AS y FROM visits ORDER BY {order}, visit LIMIT 5)"
    )


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) AS n FROM (SELECT y AS a, x AS a FROM visits WHERE a > 2)",
        "SELECT sum(b) AS s FROM (SELECT y AS a, x AS a, a + 1 AS b FROM visits)",
        "SELECT sum(visit) AS s FROM (SELECT y AS a, visit, -visit AS a FROM visits ORDER BY a "
        "LIMIT 3)",
        "SELECT sum(b) AS s FROM (SELECT min(x) AS a, 9 AS a, count(*) AS b FROM visits GROUP BY y "
        "HAVING a > 5)",
    ],
)
def test_of_two_aliases_of_a_name_the_last_is_meant(text: str) -> None:
    check_same(text)


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(a) AS s FROM (SELECT 1 AS a FROM visits GROUP BY ())",
        "SELECT sum(a) AS s FROM (SELECT 1 AS a FROM visits GROUP BY GROUPING SETS (()))",
        "SELECT count(*) AS n, sum(x) AS s FROM visits GROUP BY ()",
        "SELECT sum(a) AS s FROM (SELECT sum(x) AS a FROM visits GROUP BY GROUPING SETS ((y), ()))",
    ],
)
def test_a_group_of_no_key_is_one_row(text: str) -> None:
    check_same(text)


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
def test_a_star_shows_a_column_beside_using_as_it_is(kind: str) -> None:
    joined = f"prices s {kind} visits v USING (kind) JOIN people p ON p.id = v.person"
    named = "'' AS a, 0 AS c, 0 AS d, 0 AS e, 0 AS x, 0 AS y, 0 AS i, '' AS b, 0 AS j, 0 AS k"
    check_same(
        "SELECT count_if(b = 'a') AS n, count_if(a = 'a') AS m "
        f"FROM (SELECT {named} WHERE false UNION ALL SELECT * FROM {joined}) q"
    )


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT count_if(a = 'a') AS n, count_if(b = 'a') AS m FROM "
        "(SELECT '' AS a, 0 AS o, 0 AS d, 0 AS e, '' AS b, 0 AS f, 0 AS g, 0 AS h, 0 AS i, 0 AS j "
        "WHERE false UNION ALL SELECT * FROM prices c, visits RIGHT JOIN people USING (kind)) q",
        "SELECT count(*) AS n FROM (visits v JOIN prices s USING (kind)), "
        "(people p JOIN prices w USING (kind))",
        "SELECT count(*) AS n FROM visits v SEMI JOIN prices s USING (kind) JOIN prices s "
        "USING (kind) WHERE kind = 'a'",
        "SELECT count(*) AS n FROM prices s, (SELECT visit, person AS id FROM visits) v "
        "JOIN people p USING (id)",
        "SELECT count_if(kind = 'a') AS n FROM people p JOIN (prices s FULL JOIN visits v "
        "USING (kind)) USING (kind)",
    ],
)
def test_each_using_merges_columns_of_its_own_sides(text: str) -> None:
    check_same(text)


def doubled(n: int) -> str:
    """Return outputs that are each twice the one before."""
    return ", ".join(["x AS a0", *(f"a{i} + a{i} AS a{i + 1}" for i in range(n))])


@pytest.mark.claim("Q-4")
@pytest.mark.parametrize(
    "text",
    [
        f"SELECT sum(a90) AS s FROM (SELECT {doubled(90)} FROM visits)",
        f"SELECT {doubled(90).replace('x AS', 'sum(x) AS')} FROM visits",
        f"SELECT count(*) AS n FROM visits WHERE {'(x > 1 AND (x > 2 OR ' * 200}true{'))' * 200}",
        f"SELECT sum(x) AS s FROM (SELECT {'sum(' * 150}x{') OVER ()' * 150} AS x FROM visits)",
    ],
)
def test_a_query_that_grows_or_is_too_deep_is_refused_at_once(text: str) -> None:
    tables = pac.Tables(clinic_frames(), unit="people.id", via={"visits": "person"})
    with pytest.raises(QueryError, match="must"):
        make_query_mechanism(text, tables)


@pytest.mark.claim("Q-2")
def test_subqueries_that_double_a_column_are_not_written_out() -> None:
    inner = "SELECT x FROM visits"
    for _ in range(40):
        inner = f"SELECT x + x - x AS x FROM ({inner})"
    tables = pac.Tables(clinic_frames(), unit="people.id", via={"visits": "person"})
    query = parse_query(f"SELECT sum(x) AS s FROM ({inner})", tables)
    assert sums_plan(query, tables) == IN_SUBQUERY


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(
    "inner",
    [
        "SELECT count(*) FROM (SELECT -99 AS y, s.price FROM prices s WHERE y > 1)",
        "SELECT max(b) FROM (SELECT -99 AS y, y AS b FROM prices s)",
        "SELECT max(c) FROM (SELECT price // 3 AS y, count(*) AS c FROM prices s GROUP BY y)",
        "SELECT max(p) FROM (SELECT price AS p, -price AS y FROM prices ORDER BY y + 0 LIMIT 1)",
    ],
)
def test_an_alias_goes_before_a_column_of_the_query_around(inner: str) -> None:
    check_same(f"SELECT sum(coalesce(({inner}), 0)) AS s FROM visits v")


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(
    "text",
    [
        'SELECT sum("É") AS s FROM people',
        'SELECT sum(P."é") AS s FROM people p',
        'SELECT sum("É") AS s FROM (SELECT "é" AS "É" FROM people)',
    ],
)
def test_only_plain_letters_have_a_case(text: str) -> None:
    check_same(text)


@pytest.mark.claim("Q-2")
def test_columns_that_cannot_be_read_are_not_passed_over() -> None:
    """A star without them would mean something else."""
    people = pyarrow.table({"id": [0, 1, 2], "x": [1, 1, 1], "z": [[1], [2], [1]]})
    tables = pac.Tables({"people": people}, unit="people.id")
    with pytest.raises(QueryError, match=r"'z' is \w+INT"):
        make_query_mechanism("SELECT count(*) AS n FROM (SELECT DISTINCT * FROM people)", tables)
    assert make_query_mechanism(
        "SELECT count(*) AS n FROM (SELECT DISTINCT id FROM people)", tables
    )


@pytest.mark.claim("Q-2")
@pytest.mark.parametrize(
    "source",
    [
        "people p(a, b)",
        "(SELECT id FROM people) p(a)",
        "(SELECT * EXCLUDE (id) FROM people)",
        "(SELECT id FROM people QUALIFY row_number() OVER (ORDER BY id) > 3)",
        "(SELECT lag(id IGNORE NULLS) OVER (ORDER BY id) FROM people)",
    ],
)
def test_what_the_tree_cannot_hold_is_refused(source: str) -> None:
    tables = pac.Tables(clinic_frames(), unit="people.id", via={"visits": "person"})
    with pytest.raises(QueryError, match="must not use"):
        make_query_mechanism(f"SELECT count(*) AS n FROM {source}", tables)


@pytest.mark.claim("Q-2")
def test_a_cte_names_no_columns() -> None:
    tables = pac.Tables(clinic_frames(), unit="people.id", via={"visits": "person"})
    with pytest.raises(QueryError, match="WITH must not use ALIASES"):
        make_query_mechanism(
            "WITH w(a) AS (SELECT id FROM people) SELECT count(*) AS n FROM w", tables
        )
