"""``pac serve`` under load, under kill -9, under bad requests, and under the optimal attack.

Usage: python benchmarks/serve/load.py [share] [part ...]

Parts: ``load`` (100,000 requests over 16 connections, half of them with 1 row and half with 100),
``kill`` (20 kills while it answers), ``fuzz`` (500 bad requests), ``attack`` (1000 answers with 20
kills, 40 secrets, with small and with large questions; beside a service that forgets at every
stop). All of it takes about ten minutes on two idle cores. What is run is merged into
benchmarks/results/serve.json as it goes, so that a run that is cut short keeps its parts.
``share`` is a part of all that, for a quick look, whose results are in the system's folder of
temporary files.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[2] / "tests")]

from tests.serving import (  # noqa: E402
    Attack,
    Client,
    Folder,
    Server,
    malformed,
    people,
    send_raw,
)

RESULTS = HERE.parents[1] / "results" / "serve.json"
N_CONNECTIONS = 16
QUESTIONS = people(2000, seed=5)[0]
OPTIONS = ("--rate", "1000000", "--quiet")
Keep = Callable[[dict[str, Any]], None]


class Truth:
    """What the models say to every question, and which of them is the secret one."""

    def __init__(self, folder: Folder) -> None:
        model = folder.load()
        self.votes = model._tabulate(QUESTIONS)
        model.close()
        self.agreed = np.ptp(self.votes, axis=0) == 0
        self.mine = self.votes[int.from_bytes(folder.stored().secret, "little")]


class Tally:
    """What clients were told."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.spent: dict[str, list[float]] = {}
        self.wrong = self.refused = self.n_answers = 0
        self.z: list[Any] = []
        self.noisy: list[Any] = []

    def add(self, truth: Truth, who: str, asked: Any, found: dict[str, Any]) -> None:
        values, std = np.array(found["values"])[:, 1], np.array(found["noise_std"])
        free = np.array(found["unanimous"])
        exact = free & (values == truth.mine[asked]) & (np.array(found["charges_nats"]) == 0)
        # A vote that is nearly certain by now leaves as it is, for its entropy (claim F-1).
        sure = (std == 0) & (values == truth.mine[asked])
        right = (free == truth.agreed[asked]) & (exact | ~free & ((std > 0) | sure))
        self.wrong += int((~right).sum())
        self.n_answers += len(asked)
        self.spent.setdefault(who, []).append(found["spent"]["mi_nats"])
        noisy = std > 0
        self.z.append((values - truth.mine[asked])[noisy] / std[noisy])
        self.noisy.append(values[noisy])


async def _ask(reader: Any, writer: Any, token: str, rows: Any) -> tuple[int, bytes]:
    body = msgspec.json.encode({"rows": rows.tolist()})
    head = (
        f"POST /predict HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in answer.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    return int(answer[9:12]), await reader.readexactly(length)


async def _connection(
    port: int, folder: Folder, truth: Truth, tally: Tally, number: int, n: int, size: int
) -> None:
    who = ("ann", "bob")[number % 2]
    rng = np.random.default_rng(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    for _ in range(n):
        asked = rng.integers(len(QUESTIONS), size=size)
        began = time.perf_counter()
        status, body = await _ask(reader, writer, folder.tokens[who], QUESTIONS[asked])
        tally.seconds.append(time.perf_counter() - began)
        if status == 200:
            tally.add(truth, who, asked, msgspec.json.decode(body))
        else:
            tally.refused += 1
    writer.close()


def load(share: float, folder: Folder, keep: Keep) -> dict[str, Any]:
    """Ask from 16 connections; check every answer and every charge."""
    truth, found = Truth(folder), {}
    server = Server(folder, *OPTIONS)
    told: dict[str, list[float]] = {}
    noisy = []
    for size in (1, 100):
        per_connection = max(1, round(share * 50_000 / N_CONNECTIONS))
        tally, used = Tally(), _cpu_s(server)
        began = time.perf_counter()

        async def all_of_them(tally: Tally = tally, n: int = per_connection, q: int = size) -> None:
            await asyncio.gather(
                *(
                    _connection(server.port, folder, truth, tally, i, n, q)
                    for i in range(N_CONNECTIONS)
                )
            )

        asyncio.run(all_of_them())
        seconds = time.perf_counter() - began
        z = np.concatenate(tally.z)
        for who, charges in tally.spent.items():
            told.setdefault(who, []).extend(charges)
        noisy.append(np.concatenate(tally.noisy))
        p50, p99 = np.quantile(tally.seconds, (0.5, 0.99))
        found[f"batches of {size}"] = {
            "requests": len(tally.seconds),
            "answers": tally.n_answers,
            "answers_per_second": round(tally.n_answers / seconds),
            "requests_per_second": round(len(tally.seconds) / seconds),
            "p50_ms": round(1e3 * p50, 1),
            "p99_ms": round(1e3 * p99, 1),
            "wrong": tally.wrong,
            "refused": tally.refused,
            "with_noise": len(z),
            "noise_z_mean": round(float(z.mean()), 4),
            "noise_z_std": round(float(z.std()), 4),
            "server_cpu_ms_per_request": round(
                1e3 * (_cpu_s(server) - used) / len(tally.seconds), 2
            ),
        }
        keep(found)
    server.stop()
    values = np.concatenate(noisy)
    return {
        **found,
        "same_noise_twice": len(values) - len(np.unique(values)),
        **accounts(folder, told),
    }


def _cpu_s(server: Server) -> float:
    """Return the processor time that a server has used."""
    words = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def accounts(folder: Folder, told: dict[str, list[float]]) -> dict[str, Any]:
    """Compare what clients were told with the ledger."""
    entries = [entry for entry in folder.ledger.entries() if entry.kind == "reserve"]
    short = 0
    for who, charges in told.items():
        reserved = math.fsum(e.amounts.mi_nats or 0.0 for e in entries if e.principal == who)
        short += reserved < math.fsum(charges)
    return {
        "charged_nats": round(math.fsum(nats for all_ in told.values() for nats in all_), 9),
        "ledger_nats": round(math.fsum(e.amounts.mi_nats or 0.0 for e in entries), 9),
        "principals_short_in_the_ledger": short,
        "ledger_entries": len(entries),
        "ledger_intact": folder.ledger.verify().ok,
    }


def kill(share: float, folder: Folder, keep: Keep) -> dict[str, Any]:
    """Kill the server while three clients ask, again and again."""
    truth, tally = Truth(folder), Tally()
    n_kills, rng = max(2, round(20 * share)), np.random.default_rng(0)
    secret, lock = folder.stored().secret, threading.Lock()

    def ask(who: str, port: int, seed: int) -> None:
        client, own = Client(port, folder.tokens[who]), np.random.default_rng(seed)
        try:
            while True:
                asked = own.integers(len(QUESTIONS), size=int(own.choice([1, 100])))
                status, body = client.predict(QUESTIONS[asked])
                with lock:
                    if status == 200:
                        tally.add(truth, who, asked, body)
                    else:
                        tally.refused += 1
        except (OSError, ValueError, HTTPException):
            return  # the server is gone

    for number in range(n_kills):
        server = Server(folder, *OPTIONS)
        threads = [
            threading.Thread(target=ask, args=(who, server.port, 100 * number + i))
            for i, who in enumerate(("ann", "bob", "ann"))
        ]
        for thread in threads:
            thread.start()
        time.sleep(float(rng.uniform(0.3, 2.0)))
        server.kill()
        for thread in threads:
            thread.join()
        found = _after_kills(number + 1, folder, tally, secret)
        keep(found)
    return found


def _after_kills(n_kills: int, folder: Folder, tally: Tally, secret: bytes) -> dict[str, Any]:
    """Look at the books, after the last kill so far."""
    values, z = np.concatenate(tally.noisy), np.concatenate(tally.z)
    return {
        "kills": n_kills,
        "answers": tally.n_answers,
        "wrong": tally.wrong,
        "refused": tally.refused,
        "same_secret": folder.stored().secret == secret,
        "same_noise_twice": len(values) - len(np.unique(values)),
        "noise_z_std": round(float(z.std()), 4),
        **accounts(folder, tally.spent),
    }


def fuzz(share: float, folder: Folder, keep: Keep) -> dict[str, Any]:
    """Send requests that are wrong; count what comes back."""
    server, statuses, odd = Server(folder, *OPTIONS), {}, 0
    token = folder.tokens["ann"]
    state = folder.stored()
    for content in malformed(max(50, round(500 * share)), token, seed=1):
        answer = send_raw(server.port, content)
        status = answer[9:12].decode(errors="replace")
        statuses[status] = statuses.get(status, 0) + 1
        leaks = (b"Traceback", token.encode(), b"site-packages", str(folder.path).encode())
        odd += not status.startswith("4") or any(leak in answer for leak in leaks)
    up = Client(server.port, token).predict(QUESTIONS[:3])[0] == 200
    server.stop()
    log = (folder.path / "log").read_text()
    return {
        "requests": sum(statuses.values()),
        "statuses": dict(sorted(statuses.items())),
        "not_4xx_or_leaking": odd,
        "still_up": up,
        "tracebacks_in_log": log.count("Traceback"),
        "token_in_log": token in log,
        "charged_by_them": folder.stored().spent.n_releases - state.spent.n_releases - 3,
    }


def _attacked(job: tuple[Attack, bool, Path, int]) -> Any:
    setting, forget, place, seed = job
    if forget:
        return setting.run(place, 1000, 20, seed=seed, forget=True)
    return setting.run_killed(place, 1000, 20, seed=seed)


def attack(share: float, place: Path, keep: Keep) -> dict[str, Any]:
    """Let the optimal attacker see all answers of services that are killed 20 times."""
    n_runs, found = max(4, round(40 * share)), {"promised": 0.6}
    settings = {
        "goes_on, nearly all answered": (Attack(query_nats=4e-5), False),
        "goes_on, until it refuses": (Attack(), False),
        "forgets": (Attack(), True),
    }
    for name, (setting, forget) in settings.items():
        jobs = [(setting, forget, place / f"{name}{seed}", seed) for seed in range(n_runs)]
        with ProcessPoolExecutor(os.cpu_count()) as workers:
            runs = list(workers.map(_attacked, jobs))
        success = 0.5 + 0.5 * np.array([tilt[:3] for tilt, *_ in runs])
        per_unit = success.mean(axis=0)
        found[name] = {
            "secrets": n_runs,
            "kills": 20,
            "query_nats": setting.query_nats,
            "answers_seen": round(float(np.mean([seen for *_, seen, _ in runs]))),
            "best_guess": round(float(per_unit.max()), 4),
            "mean_guess": round(float(per_unit.mean()), 4),
            "standard_error": round(float(success.std(axis=0).max() / math.sqrt(n_runs)), 4),
            "hits": round(float(np.mean([right[:3] for _, right, *_ in runs])), 4),
        }
        keep(found)
    return found


def main() -> None:
    words = sys.argv[1:]
    share = float(words.pop(0)) if words and words[0].replace(".", "").isdigit() else 1.0
    place = RESULTS if share == 1 else Path(tempfile.gettempdir()) / "serve.json"
    results = json.loads(place.read_text()) if place.exists() else {}
    for name in words or ("load", "kill", "fuzz", "attack"):
        began = time.perf_counter()

        def keep(found: dict[str, Any], name: str = name, began: float = began) -> None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            results[name] = found | {
                "share_of_full": share,
                "seconds": round(time.perf_counter() - began, 1),
                "client_cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
                "load_average": round(os.getloadavg()[0], 1),
                "cores": os.cpu_count(),
            }
            place.write_text(json.dumps(results, indent=2) + "\n")
            print(name, json.dumps(results[name], indent=2), flush=True)

        with tempfile.TemporaryDirectory() as folder:
            if name == "attack":
                found = attack(share, Path(folder), keep)
            else:
                budget = "mi<=8" if name == "load" else "mi<=1/2"
                served = Folder.make(Path(folder), budget=budget, n_subsets=64, query=2**-20, n=400)
                found = {"load": load, "kill": kill, "fuzz": fuzz}[name](share, served, keep)
        keep(found)
    print(f"kept in {place}")


if __name__ == "__main__":
    main()
