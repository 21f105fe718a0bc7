"""Many releases under a membership budget: what fits, what it costs, what the attacker gets.

Usage: python benchmarks/noise/heat.py [part ...] [--quick]

Parts: ``fits`` (equal releases against the exact joint law), ``noise`` (against flat increments),
``sessions`` (ten thousand adaptive ones), ``answers`` (Adult and Bank, against the budget of
implied information). What is run is merged into benchmarks/results/heat.json.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from pacprivacy._random import SimulatedSource, SystemSource
from pacprivacy.adversary import Balances, Heat, ViewTilts, first_balance, heat_charges, make_view
from pacprivacy.budget import Membership
from pacprivacy.errors import BudgetExceededError
from pacprivacy.noise import calibrate
from pacprivacy.sample import Balanced
from pacprivacy.session import Responder
from pacprivacy.theory import mi_for_success
from papers.responses.models import load_answers, split_dataset
from tests.privacy import test_sessions_hold as hold

RESULTS = Path(__file__).resolve().parents[1] / "results" / "heat.json"
TOTAL, M, N_UNITS, N_EQUAL = 0.588, 64, 40, 30


def fits(quick: bool) -> dict[str, Any]:
    """Count equal releases until a balance is used up; beside what the joint law allows."""
    rng = np.random.default_rng(0)
    pool = Balanced(n_subsets=M).draw(N_UNITS, rng=1)
    data = rng.normal(size=(N_UNITS, 4))
    found: dict[str, Any] = {}
    for d in (1, 4):
        values = pool.masks() @ data[:, :d] / (N_UNITS / 2)
        alone = calibrate(values, Membership(TOTAL), pool=pool, rng=2)
        points = alone.whitened(values) / math.sqrt(N_EQUAL)  # as many as that are like one
        counts = [_equal(pool, points, seed) for seed in range(3 if quick else 12 // d)]
        exact, by_squares = _joint_law(pool, points), _joint_law(pool, points, squares=True)
        share = float(np.mean(counts)) / exact
        found[f"mean_d{d}"] = {"exact": exact, "fit": float(np.mean(counts)), "share": share}
        # H-2 charges at least mean squares: on average no more fit than these leave room for
        found[f"mean_d{d}"]["mean_squares_allow"] = by_squares
        found[f"mean_d{d}"]["runs"] = counts
    for bits in (11, 12, 16, 20):
        found[f"votes_{bits}_bits"] = _equal_votes(5 if quick else 40, 2.0**-bits)
    return found


def _joint_law(pool: Any, points: Any, *, squares: bool = False) -> float:
    """Return how many equal releases the law of all together allows, by simulation.

    With ``squares``, how many a total on the mean square of what is known allows.
    """
    rng, n, low, high = np.random.default_rng(0), 400_000, 0.5 * N_EQUAL, 2.0 * N_EQUAL
    secret, noise = rng.integers(M, size=n), rng.standard_normal((n, points.shape[1]))
    for _ in range(12):
        middle = 0.5 * (low + high)
        many = points * math.sqrt(middle)
        logs = (many[secret] + noise) @ many.T - 0.5 * np.square(many).sum(axis=1)
        belief = np.exp(logs - logs.max(axis=1, keepdims=True))
        belief /= belief.sum(axis=1, keepdims=True)
        known = np.abs(2 * belief @ pool.masks() - 1)
        most = np.square(known).mean(axis=0).max() if squares else known.mean(axis=0).max()
        limit = first_balance(2 * TOTAL - 1) if squares else 2 * TOTAL - 1
        low, high = (middle, high) if most <= limit else (low, middle)
    return low


def _equal(pool: Any, points: Any, seed: int) -> int:
    rng, log_p = np.random.default_rng(seed), np.full(M, -math.log(M))
    secret, count = int(rng.integers(M)), 0
    balances = Balances.begin(2 * TOTAL - 1, pool.n_units)
    while count < 2 * N_EQUAL:
        view = make_view(points, log_p)
        before = ViewTilts(pool).before(log_p, np.arange(pool.n_units))
        part = 1 / max(N_EQUAL - count, 1) if count < N_EQUAL else 1.0
        heat: Heat = balances.heat(before, np.array(balances.per_unit), part)
        charges = heat_charges(view, pool, heat, n_draws=400_000, gamma=1e-9, rng=rng)
        if (charges > balances.per_unit).any():
            break
        balances, count = balances.after(charges, part), count + 1
        seen = points[secret] + rng.standard_normal(points.shape[1])
        log_p = log_p - 0.5 * np.square(seen - points).sum(axis=1)
        log_p -= np.logaddexp.reduce(log_p)
    return count


def _equal_votes(runs: int, nats: float) -> dict[str, Any]:
    advantage = 0.1
    pool = Balanced(n_subsets=16).draw(6, rng=0)
    vote = pool.masks()[:, :1].astype(np.int64)
    apart = math.sqrt(4 * math.expm1(2 * nats))
    exact = (2 * float(ndtri(0.5 + 0.5 * advantage)) / apart) ** 2
    counts = []
    for seed in range(runs):
        responder = Responder(
            pool,
            query_nats=nats,
            total_nats=math.inf,
            source=SimulatedSource(seed),
            advantage=advantage,
            two_votes=True,
        )
        batch = np.repeat(vote, max(4, int(exact / 100)), axis=1)
        while batch.shape[1]:
            try:
                responder.reply_votes(batch, n_classes=2)
            except BudgetExceededError:
                batch = batch[:, : batch.shape[1] // 2]
        counts.append(responder.spent.n_releases)
    return {"exact": exact, "fit": float(np.mean(counts)), "share": float(np.mean(counts)) / exact}


def noise(quick: bool) -> dict[str, Any]:
    """Compare total noise variance at 30 releases with flat increments of success.

    ``repeated``: one question about one unit. ``aimed``: half of the questions are about the unit
    of which most is known, the others means and maxima. ``diverse``: means under weights that are
    drawn anew, of the candidates that are still likely. Shares are equal, ``1/(T - t)`` of what is
    left, or planned, "1 of T - t".
    """
    found: dict[str, Any] = {}
    for m, n_units, n in ((16, 6, 400), (64, 40, 200)):
        pool = Balanced(n_subsets=m).draw(n_units, rng=7)
        data = hold.MEMBER_DATA if n_units == 6 else np.random.default_rng(6).gamma(2.0, size=40)
        found[f"m{m}_n{n_units}"] = _against_flat(pool, data, n // 10 if quick else n)
    return found


def _against_flat(pool: Any, data: Any, n: int) -> dict[str, Any]:
    masks, n_releases = pool.masks(), 30
    lines = np.array([[q(data[mask]) for mask in masks] for q in hold.MEMBER_QUERIES])
    signs = np.where(masks, 1.0, -1.0)
    found: dict[str, Any] = {}
    for name in ("repeated", "aimed", "diverse"):
        totals = {}
        for rule in ("equal", "planned", "flat"):
            coins = np.random.default_rng(3)

            def choose(k: int, log_p: Any, now: Any, name: str = name, coins: Any = coins) -> Any:
                share = np.full(len(log_p), 1 / (n_releases - k))
                if name == "repeated":
                    return np.tile(signs[:, 0], (len(log_p), 1)), share
                likely = np.exp(log_p) >= np.median(np.exp(log_p), axis=1, keepdims=True)
                if name == "diverse":
                    return _within_one(coins.normal(size=now.shape) @ signs.T) * likely, share
                aimed = signs.T[np.abs(now).argmax(axis=1)] * likely
                other = _within_one(lines[coins.integers(3, size=len(log_p))])
                return np.where(coins.random((len(log_p), 1)) < 0.5, aimed, other), share

            totals[rule] = _total_noise(pool, choose, n, n_releases, rule)
        flat, error = totals["flat"]
        found[name] = {"flat": flat, "flat_error": error, "n_sessions": n}
        for rule in ("equal", "planned"):
            mean, spread = totals[rule]
            ratio = flat / mean
            found[name][rule] = mean
            found[name][f"{rule}_ratio"] = ratio
            found[name][f"{rule}_ratio_error"] = ratio * math.hypot(error / flat, spread / mean)
    return found


def _within_one(values: Any) -> Any:
    """Return numbers of a range of two, around their mean."""
    return 2 * (values - values.mean(axis=1, keepdims=True)) / np.ptp(values, axis=1)[:, None]


def _total_noise(pool: Any, choose: Any, n: int, n_releases: int, rule: str) -> tuple[float, float]:
    """Return the mean over sessions of the sum of noise variances, and its standard error."""
    variances: list[Any] = []
    if rule != "flat":
        hold.run_heat(
            np.zeros(0),
            pool,
            choose,
            n_releases=n_releases,
            n=n,
            watch=variances.append,
            planned=rule == "planned",
        )
        return _mean_and_error(np.sum(variances, axis=0))
    signs = np.where(pool.masks(), 1.0, -1.0)
    bulk, step = hold.Bulk.start(n, pool.n_subsets, 8), (2 * TOTAL - 1) / n_releases
    for k in range(n_releases):
        now = hold.tilt(bulk.log_p, signs)
        points, _ = choose(k, bulk.log_p, now)
        spread = np.maximum(np.ptp(points, axis=1), 1e-12)
        low, high = np.full(n, -4.0), np.full(n, 6.0)
        for _ in range(hold.N_HALVINGS):
            middle = (low + high) / 2
            scaled = points / (spread * np.exp(middle))[:, None]
            after, mass = hold.tilts_after(scaled, bulk.log_p, signs)
            grown = np.einsum("sz,szu->su", mass, np.abs(after)) - np.abs(now)
            over = (grown > step).any(axis=1)
            low, high = np.where(over, middle, low), np.where(over, high, middle)
        std = spread * np.exp(high)
        variances.append(np.square(std))
        bulk.see(points, std)
    return _mean_and_error(np.sum(variances, axis=0))


def _mean_and_error(totals: Any) -> tuple[float, float]:
    return float(totals.mean()), float(totals.std(ddof=1) / math.sqrt(len(totals)))


def sessions(quick: bool) -> dict[str, Any]:
    """Run adaptive sessions, and ones that repeat a statistic, under a total of 0.588."""
    n = 1000 if quick else 10_000
    pool = Balanced(n_subsets=16).draw(6, rng=7)
    masks = pool.masks()
    lines = np.array([[q(hold.MEMBER_DATA[mask]) for mask in masks] for q in hold.MEMBER_QUERIES])
    signs = np.where(masks, 1.0, -1.0)
    found: dict[str, Any] = {"n_sessions": n, "total": TOTAL}
    plans = {"adaptive": hold.adaptive(lines, signs, 1), "repeated": hold.repeated(signs, 8)}
    for name, choose in plans.items():
        sizes = np.concatenate(
            [
                hold.run_heat(lines, pool, choose, n_releases=8, n=500, seed=100 + part)[1]
                for part in range(n // 500)
            ]
        )
        found[name] = {
            "mean_success_of_worst_unit": float(0.5 + 0.5 * sizes.mean(axis=0).max()),
            "lower_99_simultaneous": hold.lowest(sizes),
            "share_above_0.6": float((sizes >= 0.6).mean(axis=0).max()),
            "bound_on_that": 0.5 * math.pi * ((2 * TOTAL - 1) / 0.6) ** 2,
        }
    return found


def answers(quick: bool) -> dict[str, Any]:
    """Count answers at 0.55 membership on Adult and Bank until the budget ends, old and new."""
    found: dict[str, Any] = {}
    for name in ("adult", "bank"):
        pool, votes = _votes(name, quick)
        disputed = (votes != votes[:1]).any(axis=0)
        table = votes[:, disputed]
        rows: dict[str, Any] = {"n_units": pool.n_units, "disputed": float(disputed.mean())}
        for rule, most in (("information", None), ("units", 0.1)):
            total = mi_for_success(0.55, 0.5) if most is None else math.inf
            responder = Responder(
                pool,
                query_nats=2.0**-20,
                total_nats=total,
                source=SystemSource(),
                advantage=most,
                two_votes=True,
            )
            rng, batch, spent = np.random.default_rng(0), 2048, 0.0
            while batch and spent < (20 if quick else 600):
                asked = table[:, rng.integers(table.shape[1], size=batch)]
                started = time.process_time()
                try:
                    responder.reply_votes(asked, n_classes=2)
                except BudgetExceededError:
                    batch //= 2
                spent += time.process_time() - started
            count = responder.spent.n_releases
            rows[rule] = {"disputed_answers": count, "per_second": count / spent}
            rows[rule]["ended"] = batch == 0
        rows["times_as_many"] = (
            rows["units"]["disputed_answers"] / rows["information"]["disputed_answers"]
        )
        found[name] = rows
    return found


def _votes(name: str, quick: bool) -> tuple[Any, Any]:
    """Return the pool and the votes of 128 boosted models; of 128 small trees if quick."""
    if not quick:
        loaded = load_answers(name)
        return loaded.pool, (loaded.scores > 0.5).astype(np.int16)
    X, X_test, y, _, _ = split_dataset(name)
    pool = Balanced(n_subsets=128).draw(len(y), rng=0)
    tree = DecisionTreeClassifier(max_depth=6, random_state=0)
    fitted = (tree.fit(X[pool.rows(k)], y[pool.rows(k)]) for k in range(128))
    return pool, np.stack([model.predict(X_test) for model in fitted]).astype(np.int16)


PARTS = {"fits": fits, "noise": noise, "sessions": sessions, "answers": answers}


def main() -> int:
    """Run the parts that are asked for, and store them."""
    asked = [name for name in sys.argv[1:] if name in PARTS] or list(PARTS)
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with threadpool_limits(limits=1):
        for name in asked:
            stored[name] = PARTS[name]("--quick" in sys.argv)
            stored[name]["quick"] = "--quick" in sys.argv
            print(name, json.dumps(stored[name], indent=2))
            RESULTS.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
