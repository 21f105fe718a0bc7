"""The 22 queries of TPC-H, customers as units: their keys, and what is expected of each.

``KEYS`` are declared where groups are not found in the universe; ``EXPECTED`` says which queries
are answered with noise, which read public tables only, and which are refused.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import pacprivacy as pac
from pacprivacy.mechanism import coerce_data
from pacprivacy.queries import QueryMechanism, QuerySums, make_query_mechanism
from tests.sql_support import ALONE, SUMS, cells_of_candidate

VIA = {"orders": "o_custkey", "lineitem": ("l_orderkey", "orders.o_orderkey")}


def write_tpch(folder: Path, scale: float) -> None:
    """Write the tables as Parquet files."""
    beside = Path(sys.executable).parent / "tpchgen-cli"
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    assert program is not None, "tpchgen-cli is one of the development tools"
    made = [program, "parquet", "-s", str(scale), "-o", str(folder), "--quiet"]
    subprocess.run(made, check=True, capture_output=True)


def shop(folder: str | Path) -> pac.Tables:
    """Return the tables of a folder that :func:`write_tpch` has filled."""
    return pac.Tables(folder, unit="customer.c_custkey", via=VIA)


REVENUE = "sum(l_extendedprice * (1 - l_discount))"
QUERIES: dict[int, str] = {
    1: f"""SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty,
        sum(l_extendedprice) AS sum_base_price, {REVENUE} AS sum_disc_price,
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
        avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price,
        avg(l_discount) AS avg_disc, count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-09-02'
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    2: """SELECT s_acctbal, s_name, n_name, p_partkey FROM part, supplier, partsupp, nation, region
        WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = 15
        AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
        ORDER BY s_acctbal DESC LIMIT 100""",
    3: f"""SELECT l_orderkey, {REVENUE} AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey
        AND l_orderkey = o_orderkey AND o_orderdate < DATE '1995-03-15'
        AND l_shipdate > DATE '1995-03-15' GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate LIMIT 10""",
    4: """SELECT o_orderpriority, count(*) AS order_count FROM orders
        WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01'
        AND EXISTS (SELECT * FROM lineitem
                    WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority ORDER BY o_orderpriority""",
    5: f"""SELECT n_name, {REVENUE} AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
        AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
        AND r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01'
        AND o_orderdate < DATE '1995-01-01' GROUP BY n_name ORDER BY revenue DESC""",
    6: """SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
        AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    7: """SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue FROM (
        SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation,
        extract(year FROM l_shipdate) AS l_year, l_extendedprice * (1 - l_discount) AS volume
        FROM supplier, lineitem, orders, customer, nation n1, nation n2
        WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
        AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
        AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY')
             OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
        AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31') AS shipping
        GROUP BY supp_nation, cust_nation, l_year ORDER BY supp_nation, cust_nation, l_year""",
    8: """SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume)
        AS mkt_share FROM (SELECT extract(year FROM o_orderdate) AS o_year,
        l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation
        FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
        WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey
        AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey
        AND n1.n_regionkey = r_regionkey AND r_name = 'AMERICA'
        AND s_nationkey = n2.n_nationkey
        AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        AND p_type LIKE '%STEEL%') AS all_nations GROUP BY o_year ORDER BY o_year""",
    9: """SELECT nation, o_year, sum(amount) AS sum_profit FROM (SELECT n_name AS nation,
        extract(year FROM o_orderdate) AS o_year,
        l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
        FROM part, supplier, lineitem, partsupp, orders, nation
        WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey
        AND p_partkey = l_partkey AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey
        AND p_name LIKE '%green%') AS profit GROUP BY nation, o_year
        ORDER BY nation, o_year DESC""",
    10: f"""SELECT c_custkey, c_name, {REVENUE} AS revenue
        FROM customer, orders, lineitem WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND l_returnflag = 'R' GROUP BY c_custkey, c_name ORDER BY revenue DESC LIMIT 20""",
    11: """SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value
        FROM partsupp, supplier, nation WHERE ps_suppkey = s_suppkey
        AND s_nationkey = n_nationkey AND n_name = 'GERMANY' GROUP BY ps_partkey""",
    12: """SELECT l_shipmode,
        sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH'
            THEN 1 ELSE 0 END) AS high_line_count,
        sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH'
            THEN 1 ELSE 0 END) AS low_line_count
        FROM orders, lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
        AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
        AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
        GROUP BY l_shipmode ORDER BY l_shipmode""",
    13: """SELECT c_count, count(*) AS custdist FROM (SELECT c_custkey, count(o_orderkey) AS c_count
        FROM customer LEFT OUTER JOIN orders ON c_custkey = o_custkey
        AND o_comment NOT LIKE '%special%requests%' GROUP BY c_custkey) AS c_orders
        GROUP BY c_count ORDER BY custdist DESC, c_count DESC""",
    14: """SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%'
        THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
        / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
        FROM lineitem, part WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1995-09-01'
        AND l_shipdate < DATE '1995-10-01'""",
    15: f"""WITH revenue AS (SELECT l_suppkey AS supplier_no, {REVENUE} AS total_revenue
        FROM lineitem WHERE l_shipdate >= DATE '1996-01-01' GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, total_revenue FROM supplier, revenue
        WHERE s_suppkey = supplier_no
        AND total_revenue = (SELECT max(total_revenue) FROM revenue) ORDER BY s_suppkey""",
    16: """SELECT p_brand, p_type, count(DISTINCT ps_suppkey) AS supplier_cnt
        FROM partsupp, part WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45'
        GROUP BY p_brand, p_type""",
    17: """SELECT sum(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part
        WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
        AND l_quantity < (SELECT 0.2 * avg(l2.l_quantity) FROM lineitem l2
                          WHERE l2.l_partkey = p_partkey)""",
    18: """SELECT c_name, c_custkey, o_orderkey, sum(l_quantity) FROM customer, orders, lineitem
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey
                             HAVING sum(l_quantity) > 300)
        AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey LIMIT 100""",
    19: f"""SELECT {REVENUE} AS revenue FROM lineitem, part WHERE p_partkey = l_partkey
        AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON'
        AND ((p_brand = 'Brand#12' AND l_quantity BETWEEN 1 AND 11 AND p_size BETWEEN 1 AND 5)
          OR (p_brand = 'Brand#23' AND l_quantity BETWEEN 10 AND 20 AND p_size BETWEEN 1 AND 10)
          OR (p_brand = 'Brand#34'
              AND l_quantity BETWEEN 20 AND 30 AND p_size BETWEEN 1 AND 15))""",
    20: """SELECT s_name, s_address FROM supplier, nation WHERE s_suppkey IN (
        SELECT ps_suppkey FROM partsupp WHERE ps_availqty > (SELECT 0.5 * sum(l_quantity)
        FROM lineitem WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey))
        AND s_nationkey = n_nationkey AND n_name = 'CANADA' ORDER BY s_name""",
    21: """SELECT n_name, count(*) AS numwait FROM supplier, lineitem l1, orders, nation
        WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F'
        AND l1.l_receiptdate > l1.l_commitdate
        AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey
                    AND l2.l_suppkey <> l1.l_suppkey)
        AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey
                        AND l3.l_suppkey <> l1.l_suppkey
                        AND l3.l_receiptdate > l3.l_commitdate)
        AND s_nationkey = n_nationkey GROUP BY n_name ORDER BY numwait DESC LIMIT 100""",
    22: """SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal FROM (
        SELECT substring(c_phone, 1, 2) AS cntrycode, c_acctbal FROM customer
        WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
        AND c_acctbal > (SELECT avg(c_acctbal) FROM customer WHERE c_acctbal > 0.00)
        AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)) AS custsale
        GROUP BY cntrycode ORDER BY cntrycode""",
}
KEYS: dict[int, Any] = {
    4: {"o_orderpriority": ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]},
    12: {"l_shipmode": ["MAIL", "SHIP"]},
    13: {"c_count": list(range(41))},
    21: {"n_name": ["CANADA", "CHINA", "FRANCE", "GERMANY", "SAUDI ARABIA", "UNITED STATES"]},
    22: {"cntrycode": ["13", "17", "18", "23", "29", "30", "31"]},
}
EXPECTED = {
    "noise": (1, 4, 5, 6, 7, 8, 9, 12, 13, 14, 17, 19, 21, 22),
    "public": (2, 11, 16),
    "refused": (3, 10, 15, 18, 20),
}
FILL = {8: 0.0, 14: 0.0}
PLANS = {
    **dict.fromkeys((1, 5, 6, 7, 8, 9, 12, 14, 19), SUMS),
    **dict.fromkeys((4, 13, 17, 21, 22), ALONE),
}
REASONS = {
    3: "at least 20 units; got «l_orderkey»",
    10: "at least 20 units; got «c_custkey»",
    15: "«s_suppkey»",
    18: "at least 20 units; got «c_name»",
    20: "«s_name»",
}


def ask_tpch(
    number: int, tables: pac.Tables, kind: type[QueryMechanism] = QueryMechanism
) -> QueryMechanism:
    """Return a query of TPC-H with its cells and its plan."""
    keys = KEYS.get(number, "universe")
    asked = make_query_mechanism(
        QUERIES[number], tables, keys=keys, at_least=2, fill=FILL.get(number), kind=kind
    )
    return asked.prepare(coerce_data(tables))


def largest_difference(number: int, tables: pac.Tables, n_candidates: int) -> float:
    """Return by how much cells made of what units add differ from those of the query itself."""
    pool = pac.Balanced(n_subsets=n_candidates).draw(tables.n_units, rng=0)
    sums = ask_tpch(number, tables, QuerySums)
    assert isinstance(sums, QuerySums)
    added = sums.contributions(coerce_data(tables))
    differences = []
    for k in range(n_candidates):
        mine = sums.cell_values(added.total(pool.row_mask(k).astype(float)))
        other = cells_of_candidate(sums, tables, pool.rows(k))
        differences.append(np.abs(mine - other) / np.maximum(np.abs(other), 1e-300))
    return float(np.max(differences))
