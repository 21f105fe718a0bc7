"""Run every benchmark, one after another; each prints its figures and stores them in results/."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def main(only: list[str]) -> int:
    """Run the benchmarks whose path contains one of ``only``, or all of them."""
    scripts = sorted(HERE.glob("*/*.py"))
    chosen = [path for path in scripts if not only or any(word in str(path) for word in only)]
    failed = []
    for path in chosen:
        name = path.relative_to(HERE)
        print(f"\n== {name}", flush=True)
        start = time.perf_counter()
        code = subprocess.run([sys.executable, str(path)], check=False).returncode
        print(f"-- {name}: {time.perf_counter() - start:.0f} s, exit code {code}", flush=True)
        if code:
            failed.append(str(name))
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
