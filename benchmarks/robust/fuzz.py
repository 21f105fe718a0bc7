"""``pac`` with 2000 commands and files by chance; the tests run a slice of it.

Usage: python benchmarks/robust/fuzz.py [results.json] [number of runs]

Counts exit codes per verb. Fails if there is a code other than 0, 2 and 3 (or 4 of ``audit``), a
traceback, an error that is not one line, a spend without a release, or a run of over a minute.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2] / "tests"))

from fuzzing import Outcome, make_world, run_once  # noqa: E402

N_RUNS, MOST_SECONDS = 2000, 60
RESULTS = HERE.parents[1] / "results" / "fuzz.json"


class TooLong(BaseException):
    """A run that does not end; not an Exception, so that nothing takes it for one of its own."""


def _stop(*_: Any) -> None:
    raise TooLong


def run_all(n_runs: int) -> list[Outcome]:
    signal.signal(signal.SIGALRM, _stop)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        world, place = Path(folder) / "world", Path(folder) / "runs"
        world.mkdir()
        place.mkdir()
        make_world(world)
        for number in range(n_runs):
            signal.alarm(MOST_SECONDS)
            try:
                found.append(run_once(number, world, place))
            except TooLong:
                found.append(Outcome(number, (), (), -1, f"over {MOST_SECONDS} s"))
            finally:
                signal.alarm(0)
    return found


def main() -> int:
    n_runs = int(sys.argv[2]) if len(sys.argv) > 2 else N_RUNS
    started = time.perf_counter()
    outcomes = run_all(n_runs)
    codes = Counter(outcome.code for outcome in outcomes)
    problems = [outcome for outcome in outcomes if outcome.problem is not None]
    for outcome in problems:
        print(f"{outcome.number}: {outcome.problem}\n  {' '.join(outcome.arguments)[:200]!r}")
    damaged = sum(bool(outcome.damaged) for outcome in outcomes)
    print(f"{n_runs} runs, {damaged} with damaged files, exit codes {dict(sorted(codes.items()))}")
    print(f"{len(problems)} problems, {time.perf_counter() - started:.0f} s")
    record = {
        "runs": n_runs,
        "with_damaged_files": damaged,
        "exit_codes": {str(code): count for code, count in sorted(codes.items())},
        "problems": len(problems),
        "passed": not problems,
    }
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    target.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
