"""``pac serve --tables`` under load, kill -9 and bad requests; processor time an answer.

Usage: python benchmarks/serve/queries.py [share] [part ...]

Parts: ``load`` (10,000 small queries over 8 connections), ``kill`` (20 kills while it answers),
``fuzz`` (500 bad requests), ``large`` (a group-by over 10^6 rows over 8 connections, beside the
engine's own GROUP BY cell and unit). ``share`` is a part of all that, for a quick look. What is run
is merged into benchmarks/results/serve_queries.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[2] / "tests")]

from tests.serving import (  # noqa: E402
    SHOP_QUERY,
    SHOP_REGIONS,
    Client,
    Server,
    ask_from_all,
    ask_shop,
    make_shop,
    malformed,
    send_raw,
    serve_shop,
    shop_books,
)

RESULTS = HERE.parents[1] / "results" / "serve_queries.json"
CONNECTIONS = 8
LARGE = "SELECT region, person, count(*), sum(cost) FROM visits GROUP BY region, person"


def cpu_s(server: Server) -> float:
    """Return the processor time that a server has used."""
    words = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def load(share: float, place: Path) -> dict[str, Any]:
    """Small queries from all connections."""
    n = max(2, round(share * 10_000 / CONNECTIONS))
    folder = make_shop(place, 4000, 2000)
    server = serve_shop(folder, 2 * n * CONNECTIONS)
    used, began = cpu_s(server), time.perf_counter()
    statuses, seconds = ask_from_all(folder, server.port, n)
    cpu, wall = cpu_s(server) - used, time.perf_counter() - began
    server.stop()
    return {
        "queries": len(statuses),
        "statuses": {str(s): statuses.count(s) for s in sorted(set(statuses))},
        "cpu_ms": round(1e3 * cpu / len(statuses), 1),
        "wall_ms": round(1e3 * wall / len(statuses), 1),
        "p50_ms": round(1e3 * float(np.median(seconds))),
        **shop_books(folder, statuses.count(200)),
    }


def kill(share: float, place: Path) -> dict[str, Any]:
    """Kill the server while all connections ask, again and again."""
    n_kills, rng = max(2, round(20 * share)), np.random.default_rng(0)
    folder, statuses = make_shop(place, 4000, 2000), []
    for _ in range(n_kills):
        server = serve_shop(folder, 5000)
        timer = threading.Timer(float(rng.uniform(1, 3)), server.process.kill)
        timer.start()
        statuses += ask_from_all(folder, server.port, 10_000)[0]
        timer.join()
        server.kill()
    return {"kills": n_kills, **shop_books(folder, statuses.count(200))}


def fuzz(share: float, place: Path) -> dict[str, Any]:
    """Bad requests: nothing but 4xx, no leak, nothing charged."""
    folder = make_shop(place, 4000, 2000)
    server, token = serve_shop(folder, 5000), folder.tokens["ann"]
    good = json.dumps({"query": SHOP_QUERY, "keys": {"region": SHOP_REGIONS}}).encode()
    statuses: dict[str, int] = {}
    odd = 0
    for content in malformed(max(50, round(500 * share)), token, seed=1, path="/sql", good=good):
        answer = send_raw(server.port, content)
        status = answer[9:12].decode(errors="replace")
        statuses[status] = statuses.get(status, 0) + 1
        leaks = (b"Traceback", token.encode(), b"site-packages", b"7777777", bytes(folder.path))
        odd += not status.startswith("4") or any(leak in answer for leak in leaks)
    up = ask_shop(Client(server.port, token))[0] == 200
    server.stop()
    log = (folder.path / "log").read_text()
    return {
        "requests": sum(statuses.values()),
        "statuses": dict(sorted(statuses.items())),
        "not_4xx_or_leaking": odd,
        "still_up": up,
        "tracebacks_in_log": log.count("Traceback"),
        **shop_books(folder, int(up)),
    }


def large(share: float, place: Path) -> dict[str, Any]:
    """A group-by over 10^6 rows of 10^5 people, beside the engine's own.

    All ask the same query; a reader keeps its sums per unit until it reads another.
    """
    folder, n = make_shop(place, 1_000_000, 100_000), max(1, round(5 * share))
    with duckdb.connect(str(place / "shop.duckdb"), config={"threads": 1}) as shop:
        shop.execute(f"CREATE TEMP TABLE out AS {LARGE}")
        began = time.process_time()
        for _ in range(5):
            shop.execute(f"CREATE OR REPLACE TEMP TABLE out AS {LARGE}")
        engine = (time.process_time() - began) / 5
    server = serve_shop(folder, 4 * n * CONNECTIONS)
    ask_shop(Client(server.port, folder.tokens["ann"]))  # tables are opened at the first
    used = cpu_s(server)
    statuses, seconds = ask_from_all(folder, server.port, n)
    cpu = (cpu_s(server) - used) / len(statuses)
    server.stop()
    return {
        "queries": len(statuses),
        "engine_cpu_s": round(engine, 3),
        "cpu_s": round(cpu, 3),
        "over_engine": round(cpu / engine, 2),
        "p50_s": round(float(np.median(seconds)), 2),
        **shop_books(folder, statuses.count(200) + 1),
    }


PARTS = {"load": load, "kill": kill, "fuzz": fuzz, "large": large}


def main() -> None:
    words = sys.argv[1:]
    share = float(words.pop(0)) if words and words[0].replace(".", "").isdigit() else 1.0
    for name in words or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            found = PARTS[name](share, Path(folder))
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[name] = found | {"share_of_full": share, "cores": os.cpu_count()}
        print(name, json.dumps(results[name], indent=2), flush=True)
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
