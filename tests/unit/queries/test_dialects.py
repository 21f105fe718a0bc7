"""Statements for servers, as text: no server is needed to see what leaves."""

import pytest

import pacprivacy as pac
from pacprivacy.errors import QueryError
from pacprivacy.queries.dialects import POSTGRES, SPARK, Dialect, ServerRelation
from pacprivacy.queries.query import parse_query
from tests.servers import CLINIC, clinic_frames

RELATIONS = {
    ("visits",): ServerRelation(text="(here)", text_columns=frozenset({"person", "kind", "code"}))
}
BOTH = pytest.mark.parametrize("dialect", [POSTGRES, SPARK], ids=lambda dialect: dialect.name)


@pytest.fixture(scope="module")
def clinic() -> pac.Tables:
    return pac.Tables(clinic_frames(), **CLINIC)


def written(output: str, clinic: pac.Tables, dialect: Dialect, kind: str = "BIGINT") -> str:
    """Return the statement of one output over visits."""
    query = parse_query(f"SELECT {output} AS n FROM visits", clinic).select
    return dialect.write(query, RELATIONS, {query.items[0].name: kind})


@pytest.mark.claim("Q-6")
def test_spark_reads_names_and_texts_as_they_are(clinic: pac.Tables) -> None:
    text = written("sum(CASE WHEN kind = 'a''b\\${c}' THEN points END)", clinic, SPARK)
    assert "FROM (here) AS `t0`" in text
    assert "CAST('a\\u0027b\\u005c\\u0024\\u007bc\\u007d' AS STRING)" in text
    assert '"' not in text


@pytest.mark.claim("Q-6")
def test_spark_adds_floats_in_one_order_and_whole_numbers_as_they_are(clinic: pac.Tables) -> None:
    floats = written("sum(cost) FILTER (WHERE points > 0)", clinic, SPARK, "DOUBLE")
    assert "array_sort(collect_list(CAST(`t0`.`cost` AS DOUBLE)) FILTER" in floats
    assert "sum(`t0`.`points`)" in written("sum(points)", clinic, SPARK, "HUGEINT")
    assert 'sum("t0"."cost")' in written("sum(cost)", clinic, POSTGRES, "DOUBLE")


@pytest.mark.claim("Q-6")
@BOTH
@pytest.mark.parametrize(
    "output",
    [
        "sum(round(cost))",
        "count(*) FILTER (WHERE code = points)",
        "count(*) FILTER (WHERE CASE WHEN points > 0 THEN code END = 1)",
        "count(*) FILTER (WHERE code IN (1, 2))",
        "sum(TRY_CAST(code AS INTEGER))",
        "count(*) FILTER (WHERE kind LIKE code)",
        "sum(points) FILTER (WHERE person IN (SELECT id FROM people))",
    ],
)
def test_what_may_mean_another_thing_is_refused(
    output: str, dialect: Dialect, clinic: pac.Tables
) -> None:
    with pytest.raises(QueryError, match=f"tables in {dialect.name}"):
        written(output, clinic, dialect)


@pytest.mark.claim("Q-6")
@pytest.mark.parametrize(
    "output", ["sum(CAST(cost AS INTEGER))", "sum(sqrt(cost))", "sum(ln(cost))"]
)
def test_spark_neither_cuts_digits_off_nor_goes_on_without_a_value(
    output: str, clinic: pac.Tables
) -> None:
    assert written(output, clinic, POSTGRES)
    with pytest.raises(QueryError, match="tables in Spark"):
        written(output, clinic, SPARK)


@BOTH
def test_keys_of_several_kinds_may_be_grouped(dialect: Dialect, clinic: pac.Tables) -> None:
    text = "SELECT kind, points, GROUPING(kind, points) AS g, count(*) FROM visits GROUP BY CUBE"
    query = parse_query(f"{text} (kind, points)", clinic).select
    kinds = {item.name: "BIGINT" for item in query.items}
    assert "GROUPING SETS" in dialect.write(query, RELATIONS, kinds)
