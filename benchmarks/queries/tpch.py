"""TPC-H, customers as units: what private answers cost, and how exact they are.

Usage: python benchmarks/queries/tpch.py [scale factor] [part ...]

Parts: ``coins`` (median relative error of Q1, Q5 and Q6 at membership 0.6 with a coin for every
customer, and CPU time beside the GROUP BY group and customer of the engine alone),
``time`` (matrix of all worlds over the plain query, same process, one thread, CPU time),
``utility`` (median relative error of the sums and averages of Q1, Q5 and Q6 at membership 0.6,
over 400 simulated releases of one plan, beside the published rule, noise of variance Var/(2 MI) at
1/128 nats on the same cells). ``tpchgen-cli`` makes the tables in a temporary folder. What is run
is merged into benchmarks/results/tpch.json.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

import pacprivacy as pac  # noqa: E402
from pacprivacy._random import SimulatedSource  # noqa: E402
from pacprivacy.mechanism import coerce_data, flatten  # noqa: E402
from pacprivacy.noise import plan_sums  # noqa: E402
from pacprivacy.queries import QuerySums  # noqa: E402
from pacprivacy.sample import draw_coins  # noqa: E402
from tests.tpch import EXPECTED, QUERIES, ask_tpch, shop, write_tpch  # noqa: E402

RESULTS = HERE.parents[1] / "results" / "tpch.json"
SIZES = (128, 1024)
MOST = {128: 3.0, 1024: 6.0}
USEFUL = (1, 5, 6)
PUBLISHED_NATS = 1 / 128
N_RELEASES = 400


def time_plans(tables: pac.Tables) -> dict[str, Any]:
    """Compare the matrix of all worlds with the plain query, where sums per unit give it."""
    data, rows = coerce_data(tables), {}
    for number in EXPECTED["noise"]:
        started = time.process_time()
        mechanism = ask_tpch(number, tables)
        planned = time.process_time() - started
        batch = mechanism.batch
        if mechanism.sums is None:
            rows[f"Q{number}"] = {"plan": mechanism.plan}
            continue
        assert batch is not None
        plain = []
        connection = tables.connect()
        connection.execute("SET search_path = 'pac_base'")
        for _ in range(3):
            started = time.process_time()
            connection.execute(QUERIES[number]).fetchall()
            plain.append(time.process_time() - started)
        connection.execute("SET search_path = 'main'")
        row: dict[str, Any] = {"plain_s": round(min(plain), 3), "planning_s": round(planned, 3)}
        for m in SIZES:
            pool = pac.Balanced(n_subsets=m).draw(tables.n_units, rng=0)
            tables.forget()
            started = time.process_time()
            batch(data, pool)
            spent = time.process_time() - started
            row[f"m={m}"] = round(spent / min(plain), 2)
        rows[f"Q{number}"] = row
        print(f"Q{number}", row, flush=True)
    ratios = {m: [r[f"m={m}"] for r in rows.values() if f"m={m}" in r] for m in SIZES}
    medians = {f"m={m}": statistics.median(ratios[m]) for m in SIZES}
    met = all(medians[f"m={m}"] <= MOST[m] for m in SIZES)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"queries": rows, "median": medians, "met": met, "peak_gb": round(memory, 2)}


def utility(tables: pac.Tables) -> dict[str, Any]:
    """Return the relative error of many releases of one plan, beside the published rule."""
    data, found = coerce_data(tables), {}
    for number in USEFUL:
        mechanism = ask_tpch(number, tables)
        truth = flatten(mechanism.evaluate(data.take(np.arange(tables.n_units)), None))[0]
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = pac.plan(mechanism, tables, pac.Membership(0.6), rng=number)
        spent = time.process_time() - started
        rng, source = np.random.default_rng(number), SimulatedSource(number)
        errors = []
        for secret in rng.integers(plan.certificate.n_subsets, size=N_RELEASES):
            seen = plan.noise.observe(int(secret), source)
            value = flatten(plan.outputs.restore(plan.noise.value_of(seen)))[0]
            errors.append(np.abs(value - truth) / np.abs(truth))
        pool = pac.Balanced(n_subsets=128).draw(tables.n_units, rng=1)
        batch = mechanism.batch
        assert batch is not None
        values = batch(data, pool)
        noise = np.sqrt(values.var(axis=0) / (2 * PUBLISHED_NATS))
        rule = np.abs(np.random.default_rng(0).normal(size=(1000, len(truth)))) * noise
        found[f"Q{number}"] = {
            "cells": len(truth),
            "folds": plan.certificate.scheme,
            "median_error": float(np.median(errors)),
            "published_rule": float(np.median(rule / np.abs(truth))),
            "cpu_s": round(spent, 1),
        }
        print(f"Q{number}", found[f"Q{number}"], flush=True)
    return {"queries": found, "met": all(r["median_error"] <= 0.01 for r in found.values())}


COINS = {0.99: {1: 0.0005, 5: 0.009, 6: 0.0006}, 0.999: {1: 0.0003, 5: 0.008, 6: 0.0003}}
N_COIN_RELEASES = 100


def coins(tables: pac.Tables) -> dict[str, Any]:
    """Return the relative error of releases with coins, and what they cost."""
    data, rows, met = coerce_data(tables), {}, True
    for number in USEFUL:
        started = time.process_time()
        query = ask_tpch(number, tables, kind=QuerySums)
        assert isinstance(query, QuerySums)
        assert query.sums is not None
        prepared = time.process_time() - started
        tables.forget()
        started = time.process_time()
        tables.ask_kept(query.sums.query, "SELECT count(*) FROM {}")
        engine = time.process_time() - started
        started = time.process_time()
        sums = query.contributions(data)
        truth = query.value(sums.total())
        row: dict[str, Any] = {"cells": len(truth), "prepared_s": prepared, "engine_s": engine}
        row["contributions_s"] = time.process_time() - started
        slopes = query.output_slopes(sums)
        for keep, most in COINS.items():
            started = time.process_time()
            plan = plan_sums(sums, success=0.6, keep=keep, slopes=slopes)
            row[f"plan_s at {keep}"] = time.process_time() - started
            source, errors = SimulatedSource(number), []
            for _ in range(N_COIN_RELEASES):
                kept = draw_coins(tables.n_units, keep, source)
                value = query.value(plan.release(sums, kept, source), keep)
                errors.append(np.abs(value - truth) / np.abs(truth))
            row[f"median_error at {keep}"] = float(np.median(errors))
            met &= row[f"median_error at {keep}"] <= most[number]
        rows[f"Q{number}"] = {k: float(f"{v:.3g}") for k, v in row.items()}
        print(f"Q{number}", rows[f"Q{number}"], flush=True)
    return {"queries": rows, "met": met}


def main(scale: str, parts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_tpch(Path(folder), float(scale))
        tables = shop(folder)
        found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        for part in parts:
            run = {"coins": coins, "time": time_plans, "utility": utility}[part]
            found[part] = {"scale_factor": float(scale), **run(tables)}
            RESULTS.write_text(json.dumps(found, indent=2) + "\n")
            print(part, {k: v for k, v in found[part].items() if k != "queries"}, flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0] if given else "1", given[1:] or ["coins", "time", "utility"])
