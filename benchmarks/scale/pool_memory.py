"""Peak memory and time of drawing a pool of 256 subsets over ten million units.

Usage: python benchmarks/scale/pool_memory.py [n_units] [n_subsets]

Each strategy runs in a process of its own, so that peaks do not mix. The figure includes the
interpreter and numpy; the packed subsets alone are n_units * n_subsets / 8 bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

LIMIT_MB = 400.0
STRATEGIES = (
    "Balanced(n_subsets={m})",
    "Balanced(n_subsets={m}, independent=True)",
    "Half(n_subsets={m})",
    "Poisson(n_subsets={m}, rate=0.5)",
)


def peak_mb() -> float:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


def measure(strategy: str, n_units: int) -> dict[str, object]:
    from pacprivacy import pool

    names = {"Balanced": pool.Balanced, "Half": pool.Half, "Poisson": pool.Poisson}
    start_mb, started = peak_mb(), time.perf_counter()
    drawn = eval(strategy, names).draw(n_units, rng=0)  # one of STRATEGIES
    seconds = time.perf_counter() - started
    worst = drawn.worst_prior
    return {
        "strategy": strategy,
        "n_units": n_units,
        "bits_mb": round(drawn.bits.nbytes / 1e6, 1),
        "before_mb": round(start_mb, 1),
        "peak_mb": round(peak_mb(), 1),
        "draw_s": round(seconds, 2),
        "worst_prior": worst,
        "worst_prior_s": round(time.perf_counter() - started - seconds, 2),
    }


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
        return 0
    n_units = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    m = int(sys.argv[2]) if len(sys.argv) > 2 else 256
    worst_mb = 0.0
    for strategy in STRATEGIES:
        command = [sys.executable, __file__, "--one", strategy.format(m=m), str(n_units)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        worst_mb = max(worst_mb, row["peak_mb"])
        print(
            f"{row['strategy']:<45} peak {row['peak_mb']:7.1f} MB  draw {row['draw_s']:6.2f} s  "
            f"worst prior {row['worst_prior']:.4f} in {row['worst_prior_s']:.2f} s"
        )
    print(f"limit {LIMIT_MB:.0f} MB: {'met' if worst_mb <= LIMIT_MB else 'exceeded'}")
    return 0 if worst_mb <= LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
