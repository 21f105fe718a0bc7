"""What a membership release costs: time and noise, old against new.

Usage: python benchmarks/noise/folds.py [TABLE ...] [--long]

Every row is stored in benchmarks/results/folds.json as soon as it is measured; rows that are not
measured again stay as they were. Without a name, all tables. They are:

time    everything but the fits, before (commit 339204d, checked out beside the temporary files)
        and now: CPU seconds of ``privatize`` with rule ``risk`` from the last evaluation to the
        end. Both sides get the same outputs and the same pool, in a process each. The case with
        m = 4096 takes the old side ten minutes; it runs with --long.
size    CPU seconds of a mean of two columns in all, n = 10^5 and (--long) 10^6, two tails.
line    the variance of ``risk`` on one-dimensional means over the least by quadrature.
means   error against the mean of all records at 58.8 %: halves, folds that ``auto`` chooses, and
        Gaussian DP with the largest norm as its clip, at the same advantage. Columns are
        standardised; 2000 candidates for both pools; seed 0, fixed beforehand.
models  the same pools for models: accuracy and noise, halves against ``auto``, 1000 candidates.

Membership is at most 60 % unless a table says otherwise. ``means`` and ``models`` need the data.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks" / "results" / "folds.json"
TEMPORARY = Path(tempfile.gettempdir()) / "pacprivacy-folds"
BEFORE = "339204d"
CAP = 0.6
FASTER, SAME_NOISE = 10.0, 0.01
LESS_OVER = 0.05
KEY_ROWS = 64  # rows that tell a subset from all others


# --- one measurement in a process of its own ---------------------------------------------------


def measure(path: Path) -> dict[str, float]:
    """Release stored outputs and return what everything but their computation took."""
    import pacprivacy as pac

    with np.load(path) as saved:
        values, n = saved["values"], int(saved["n"])
    pool = pac.Balanced(n_subsets=len(values)).draw(n, rng=0)
    index = {np.flatnonzero(m)[:KEY_ROWS].tobytes(): k for k, m in enumerate(each_mask(pool))}
    marks = []

    def stored(rows: Any) -> Any:
        found = values[index[rows[:KEY_ROWS].tobytes()]]
        marks.append(time.process_time())
        return found

    release = pac.privatize(
        stored,
        np.arange(n),
        pac.Membership(CAP),
        sample=pool,
        rule="risk",
        rng=1,
        n_jobs=1,
        progress=False,
    )
    cpu = time.process_time() - marks[-1]
    std = release.bundle.grid_step * release.bundle.units_per_std  # certificates round it
    return {
        "cpu_s": round(cpu, 2),
        "total_variance": float(np.square(std).sum()),
        "membership_bound": release.certificate.membership_bound,
    }


def measure_mean(n: int, tail: str) -> dict[str, float]:
    """Release a mean of two columns and return what all of it took."""
    import pacprivacy as pac
    from pacprivacy.statistics import Mean

    rng = np.random.default_rng(0)
    data = rng.normal(size=(n, 2)) if tail == "normal" else rng.lognormal(size=(n, 2))
    start = time.process_time()
    halves = pac.Balanced(n_subsets=1024)  # as in the older tree
    release = pac.privatize(
        Mean(), data, pac.Membership(CAP), sample=halves, rng=1, n_jobs=1, progress=False
    )
    cpu = time.process_time() - start
    return {"cpu_s": round(cpu, 2), "total_variance": release.certificate.noise.total_variance}


def each_mask(pool: Any) -> Any:
    """Yield the masks of a pool, one at a time."""
    return (pool.mask(k) for k in range(pool.n_subsets))


def in_child(tree: Path, *arguments: str) -> dict[str, Any]:
    """Run one measurement on the code of a tree and return what it printed."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--child", *arguments],
        env=environment,
        cwd=TEMPORARY,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def tree_before() -> Path:
    """Return a checkout of the code as it was before."""
    tree = TEMPORARY / BEFORE
    if not tree.exists():
        command = ["git", "worktree", "add", "--detach", "--force", str(tree), BEFORE]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return tree


# --- time --------------------------------------------------------------------------------------


def task_outputs(name: str, n_subsets: int) -> tuple[int, Any]:
    """Return the size of a data set and a model of [ALG] on every subset."""
    from pacprivacy.sample import Balanced
    from pacprivacy.simulation import run_mechanism
    from papers.alg import models
    from papers.alg.protocol import load_split

    task = models.TASKS[name]
    split = load_split(task.dataset, task.transformer)
    n = len(split.y_train)
    pool = Balanced(n_subsets=n_subsets).draw(n, rng=0)
    found = run_mechanism(task.ours, task.data(split), pool, rng=0, n_jobs=1, progress=False)
    return n, found.values


def mean_outputs(n: int, dimension: int, n_subsets: int) -> tuple[int, Any]:
    """Return normal means on every subset."""
    from pacprivacy.sample import Balanced

    pool = Balanced(n_subsets=n_subsets).draw(n, rng=0)
    data = np.random.default_rng(0).normal(size=(n, dimension))
    return n, np.stack([data[mask].mean(axis=0) for mask in each_mask(pool)])


CASES: dict[str, Callable[[], tuple[int, Any]]] = {
    "Dry Bean k-means, m=512": lambda: task_outputs("dry_bean_kmeans", 512),
    "Rice forest, m=1024": lambda: task_outputs("rice_forest", 1024),
    "mean n=10^4 d=10, m=1024": lambda: mean_outputs(10_000, 10, 1024),
    "mean n=10^5 d=20, m=4096": lambda: mean_outputs(100_000, 20, 4096),
}
LONG_CASES = ("mean n=10^5 d=20, m=4096",)


def measure_time(long: bool) -> Iterator[dict[str, Any]]:
    """Return the time of everything but the fits, before and now."""
    for number, (name, outputs) in enumerate(CASES.items()):
        if name in LONG_CASES and not long:
            continue
        path = TEMPORARY / f"case-{number}.npz"
        if not path.exists():
            n, values = outputs()
            np.savez(path, values=values, n=n)
        before = in_child(tree_before(), "stored", str(path))
        now = in_child(ROOT, "stored", str(path))
        ratio = before["cpu_s"] / now["cpu_s"]
        noise = now["total_variance"] / before["total_variance"]
        yield (
            {
                "case": name,
                "before": before,
                "now": now,
                "times_less": round(ratio, 1),
                "noise_over_before": round(noise, 4),
                "met": ratio >= FASTER and noise <= 1 + SAME_NOISE,
            }
        )


# --- size --------------------------------------------------------------------------------------

MOST_SECONDS = {100_000: 15.0, 1_000_000: 200.0}


def measure_size(long: bool) -> Iterator[dict[str, Any]]:
    """Return the time of a mean of two columns of many rows."""
    for (n, most), tail in itertools.product(MOST_SECONDS.items(), ("normal", "lognormal")):
        if n > 100_000 and not long:
            continue
        found = in_child(ROOT, "mean", str(n), tail)
        yield {"n": n, "tail": tail, **found, "most": most, "met": found["cpu_s"] < most}


# --- line --------------------------------------------------------------------------------------

LINES = ((60, 128), (400, 1024))
CAPS = (0.52, 0.55, 0.588, 0.65, 0.75, 0.85, 0.95)
NODES, NODES_PER_STD, MOST_NODES = 20_001, 12, 500_000
REACH = 9.0


def least_variance(values: Any, masks: Any, cap: float, near: float) -> float:
    """Return the least variance of Gaussian noise that keeps every unit below the cap.

    Success is half of one plus the distance between the mixtures with and without the unit,
    integrated on a fine grid; the root is found by bisection around ``near``.
    """
    weights = masks / masks.sum(axis=0) - ~masks / (~masks).sum(axis=0)

    def worst(std: float) -> float:
        low, high = values.min() - REACH * std, values.max() + REACH * std
        nodes = max(NODES, math.ceil(NODES_PER_STD * (high - low) / std))
        if nodes > MOST_NODES:  # so little noise that nobody is hidden at all
            return 1.0
        z, step = np.linspace(low, high, nodes, retstep=True)
        total = np.zeros(weights.shape[1])
        for part in np.array_split(z, max(20, len(z) // 2000)):
            density = np.exp(-0.5 * np.square((part[:, None] - values) / std))
            total += np.abs(density @ weights).sum(axis=0)
        advantage = 0.5 * total * step / (std * math.sqrt(2 * math.pi))
        return float(0.5 + 0.5 * advantage.max())

    low = high = math.sqrt(near)
    while worst(high) > cap:
        high *= 1.05
    while worst(low := low / 1.05) <= cap:
        high = low
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if worst(middle) <= cap else (middle, high)
    return high**2


def measure_line(long: bool) -> Iterator[dict[str, Any]]:
    """Return how much noise ``risk`` adds to one-dimensional means, over the least."""
    from pacprivacy.budget import Membership
    from pacprivacy.noise import calibrate
    from pacprivacy.sample import Balanced

    for n, m in LINES:
        pool = Balanced(n_subsets=m).draw(n, rng=0)
        masks = pool.masks()
        data = np.random.default_rng(0).normal(size=n)
        values = np.array([data[mask].mean() for mask in masks])
        for cap in CAPS:
            plan = calibrate(values[:, None], Membership(cap), rule="risk", pool=pool, rng=1)
            least = least_variance(values, masks, cap, plan.total_variance)
            over = plan.total_variance / least - 1
            yield (
                {"n": n, "m": m, "cap": cap, "over_least": round(over, 5), "met": over <= LESS_OVER}
            )


# --- folds -------------------------------------------------------------------------------------

FOLD_CAP = 0.588
MEAN_SUBSETS, MODEL_SUBSETS = 2000, 1000
MOST_ERROR, MOST_OVER_DP = 0.60, 1.25
MOST_NOISE = 0.35
RELEASES = 400


def plan_pools(mechanism: Any, data: Any, n_subsets: int) -> dict[str, Any]:
    """Return the plan of a release from halves, and from the folds that are chosen."""
    import pacprivacy as pac

    return {
        name: pac.plan(
            mechanism,
            data,
            pac.Membership(FOLD_CAP),
            sample=pac.Balanced(n_subsets=n_subsets, folds=folds),
            rng=0,
            n_jobs=1,
            progress=False,
        )
        for name, folds in (("halves", 2), ("folds", "auto"))
    }


def own_variance(plan: Any) -> float:
    """Return the total variance of a plan's noise in the units of the released value."""

    scales = 1.0 if plan.outputs.scales is None else plan.outputs.scales
    return float((plan.noise.noise_variances() * np.square(scales)).sum())


def mean_universes() -> dict[str, Any]:
    """Return three tables, standardised."""
    from papers.datasets import load_iris, load_wine_white

    wine = load_wine_white().X
    few = wine[np.random.default_rng(0).permutation(len(wine))[:300]]
    tables = {"Iris": load_iris().X, "white wine, 300 rows": few, "white wine": wine}
    return {name: (X - X.mean(axis=0)) / X.std(axis=0) for name, X in tables.items()}


def measure_means(long: bool) -> Iterator[dict[str, Any]]:
    """Return the error of private means against those of all records."""
    from scipy.special import ndtri

    from pacprivacy.statistics import Mean

    strength = 2 * float(ndtri(FOLD_CAP))  # of Gaussian DP: success F(mu/2)
    for name, X in mean_universes().items():
        errors, folds = {}, 0
        for kind, plan in plan_pools(Mean(), X, MEAN_SUBSETS).items():
            assert plan.outputs.scales is None  # standardised already
            apart = np.square(plan.outputs.values - X.mean(axis=0)).sum(axis=1).mean()
            errors[kind] = math.sqrt(apart + plan.noise.total_variance)
            folds = plan.bundle.pool.folds
        clip = float(np.linalg.norm(X, axis=1).max())
        errors["gaussian_dp"] = math.sqrt(X.shape[1]) * clip / (len(X) * strength)
        ratio, over = errors["folds"] / errors["halves"], errors["folds"] / errors["gaussian_dp"]
        yield (
            {
                "data": name,
                "n": len(X),
                "folds_chosen": folds,
                "error": {kind: round(error, 5) for kind, error in errors.items()},
                "folds_over_halves": round(ratio, 3),
                "folds_over_dp": round(over, 3),
                "met": ratio <= MOST_ERROR and over <= MOST_OVER_DP,
            }
        )


class RidgeClassifier:
    """Least squares on one column per class, with a small penalty."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes

    def __call__(self, X: Any, y: Any) -> Any:
        """Return coefficients, the last row those of a constant."""
        rows = np.column_stack([X, np.ones(len(X))])
        goal = np.where(y[:, None] == np.arange(self.n_classes), 1.0, -1.0)
        return np.linalg.solve(rows.T @ rows + np.eye(rows.shape[1]), rows.T @ goal)

    def predict(self, value: Any, X: Any) -> Any:
        """Return the class with the largest score."""
        return (X @ value[:-1] + value[-1]).argmax(axis=1)


def model_tasks() -> dict[str, tuple[Any, Any, Any]]:
    """Return models, splits and what tells how good a value is."""
    from papers.alg import models
    from papers.alg.protocol import load_split

    split = load_split("dry_bean", "standard")
    ridge = RidgeClassifier(7)
    found: dict[str, tuple[Any, Any, Any]] = {
        "Dry Bean ridge": (
            ridge,
            split,
            lambda value: float(np.mean(ridge.predict(value, split.X_test) == split.y_test)),
        )
    }
    for title, name in (
        ("Rice k-means", "rice_kmeans"),
        ("Rice SVM C=1", "rice_svm"),
        ("Dry Bean SVM C=1", "dry_bean_svm"),
    ):
        task = models.TASKS[name]
        own = load_split(task.dataset, task.transformer)
        found[title] = (task.ours, own, lambda v, task=task, own=own: task.score(v, own))
    return found


def measure_models(long: bool) -> Iterator[dict[str, Any]]:
    """Return accuracy and noise of models from halves and from folds."""
    from pacprivacy.mechanism import as_mechanism, coerce_data
    from papers.simulate import simulate_pool

    for name, (model, split, score) in model_tasks().items():
        if name == "Dry Bean SVM C=1" and not long:
            continue
        universe = (split.X_train, split.y_train)
        data, mechanism = coerce_data(universe), as_mechanism(model).prepare(coerce_data(universe))
        everyone = data.take(np.arange(data.n_rows))
        row: dict[str, Any] = {
            "case": name,
            "no_privacy": score(mechanism.evaluate(everyone, np.random.default_rng(0))),
        }
        for kind, plan in plan_pools(model, universe, MODEL_SUBSETS).items():
            drawn = simulate_pool(plan.noise, RELEASES, np.random.default_rng(1))
            row[kind] = {
                "folds": plan.bundle.pool.folds,
                "accuracy": float(np.mean([score(plan.outputs.restore(v)) for v in drawn])),
                "total_variance": own_variance(plan),
            }
        noise = row["folds"]["total_variance"] / row["halves"]["total_variance"]
        lost = {kind: row["no_privacy"] - row[kind]["accuracy"] for kind in ("halves", "folds")}
        row["noise_over_halves"] = round(noise, 3)
        row["lost_over_halves"] = round(lost["folds"] / lost["halves"], 3)
        row["met"] = {
            "Dry Bean ridge": lost["folds"] <= 0.5 * lost["halves"],
            "Rice k-means": noise <= MOST_NOISE,
        }.get(name, noise <= 1.0)
        yield row


TABLES: dict[str, Callable[[bool], Iterator[dict[str, Any]]]] = {
    "time": measure_time,
    "size": measure_size,
    "line": measure_line,
    "means": measure_means,
    "models": measure_models,
}


def main(names: list[str], *, long: bool) -> int:
    """Measure, print and store, table by table."""
    TEMPORARY.mkdir(exist_ok=True)
    for name in names or list(TABLES):
        for row in TABLES[name](long):
            print(json.dumps(row), flush=True)
            content = json.loads(RESULT.read_text()) if RESULT.exists() else {}
            kept = [other for other in content.get(name, []) if _key(other) != _key(row)]
            content[name] = [*kept, row]
            RESULT.write_text(json.dumps(content, indent=2) + "\n")
    content = json.loads(RESULT.read_text())
    met = all(row["met"] for rows in content.values() for row in rows)
    print(f"requirements: {'met' if met else 'NOT met'}")
    return 0 if met else 1


def _key(row: dict[str, Any]) -> str:
    """Return what names a row: everything that was not measured."""
    return json.dumps([row.get(part) for part in ("case", "n", "m", "tail", "cap", "data")])


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:2] == ["--child", "stored"]:
        print(json.dumps(measure(Path(arguments[2]))))
    elif arguments[:2] == ["--child", "mean"]:
        print(json.dumps(measure_mean(int(arguments[2]), arguments[3])))
    else:
        chosen = [word for word in arguments if word != "--long"]
        sys.exit(main(chosen, long="--long" in arguments))
