"""Declared ranges hide that a unit is in the table at all; planted bugs do not."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pacprivacy as pac
from coin_truth import gauss, normal, total_variation
from pacprivacy import stats
from pacprivacy._random import SimulatedSource
from pacprivacy.cli import app
from pacprivacy.dp import audit_dp
from pacprivacy.errors import BudgetError, CertificateError, MechanismError, PacPrivacyError
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import plan_declared
from pacprivacy.release import CoinBundle, recompute_contributions, write_coin_certificate
from pacprivacy.sample import Coins
from pacprivacy.statistics import (
    Declaration,
    Histogram,
    TableMean,
    first_rows,
    sums as sums_module,
)

pytestmark = pytest.mark.claim("C-9")

BUDGET = "membership<=0.6"
PROMISED = 0.2
RANGES = {"x": (-1.0, 3.0), "z": (0.0, 10.0), "w": (0.0, 2.0)}
LEVELS = {"g": ["a", "b", "c"]}
EDGES: dict[str, list[Any]] = {  # corners of the domain, what lies outside it, and gaps
    "x": [-1.0, 3.0, 1.0, np.nan, 1e9, -np.inf],
    "z": [0.0, 10.0, np.nan, np.inf],
    "w": [2.0, 0.0, 1e9, np.nan],
    "g": ["a", "c", None, "other"],
}
STATISTICS: dict[str, Any] = {
    "mean": stats.mean("x", ranges=RANGES),
    "means": stats.mean(["x", "z"], ranges=RANGES),
    "mean by group": stats.mean("x", by="g", levels=LEVELS, ranges=RANGES),
    "weighted mean": stats.mean("x", weights="w", ranges=RANGES),
    "shares": stats.mean("g", levels=LEVELS, ranges=RANGES),
    "shares and mean": stats.mean(["g", "x"], levels=LEVELS, ranges=RANGES),
    "sum": stats.sum(["x", "z"], by="g", levels=LEVELS, ranges=RANGES),
    "weighted sum": stats.sum("x", weights="w", ranges=RANGES),
    "count": stats.count(),
    "count of levels": stats.count(["g", "x"], levels=LEVELS),
    "crosstab": stats.crosstab("g", "g", levels=LEVELS),
    "variance": stats.variance(["x", "z"], ranges=RANGES),
    "variance of levels": stats.variance("g", levels=LEVELS),
    "sum of x": stats.sum("x", ranges=RANGES),
    "where": stats.mean("x", where="z > 2", ranges=RANGES),
    "gaps as a level": stats.count("g", levels=LEVELS, missing="category"),
}


def base_table(n: int = 12) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "x": rng.uniform(-1, 3, n),
            "z": rng.uniform(0, 10, n),
            "w": rng.uniform(0, 2, n),
            "g": rng.choice(["a", "b", "c"], n),
            "unit": np.arange(n) // 2,
        }
    )


TABLE = base_table(400).drop(columns="unit")


def corner_rows(columns: list[str]) -> pd.DataFrame:
    """Rows at all corners of the declared domain, and outside it."""
    rows = [
        dict(zip(columns, row, strict=True)) for row in itertools.product(*map(EDGES.get, columns))
    ]
    filled = {"x": 1.0, "z": 5.0, "w": 1.0, "g": "b"}
    return pd.DataFrame([{**filled, **row} for row in rows])


def noisy_integers(statistic: Any, table: pd.DataFrame, rows: int) -> tuple[np.ndarray, Any]:
    """What the release adds noise to, in whole numbers; and the plan."""
    plan = pac.plan(statistic, table, BUDGET, sample=Coins(rows_per_unit=rows), units="unit", rng=0)
    drawn: Any = plan
    everybody = np.ones(len(drawn.noise.factors), dtype=bool)
    return drawn.noise.lattice.add(drawn.sums, drawn.noise.factors, everybody), plan


@pytest.mark.parametrize("name", STATISTICS)
def test_no_unit_of_the_domain_moves_the_release_by_more_than_is_promised(name: str) -> None:
    """All corners of the domain, one to three rows of a unit, searched for the worst."""
    statistic, worst = STATISTICS[name], 0.0
    base = base_table()
    used = [c for c in ("x", "z", "w", "g") if c in f"{statistic!r}" or c == "x"]
    corners = corner_rows(used)
    rng = np.random.default_rng(2)
    for rows in (1, 3):
        without, plan = noisy_integers(statistic, base, rows)
        scale = plan.noise.lattice.units_per_std.astype(float)
        mu = plan.certificate.presence.mu
        same = [np.full(rows + 2, i) for i in range(len(corners))]
        mixed = [rng.integers(0, len(corners), rows) for _ in range(10)]
        picks = [same[i] for i in rng.permutation(len(same))[:24]] + mixed
        for pick in picks:
            added = corners.iloc[pick].assign(unit=99)
            at = int(rng.integers(0, len(base)))  # among the others
            table = pd.concat([base[:at], added, base[at:]], ignore_index=True)
            with_unit, other = noisy_integers(statistic, table, rows)
            assert other.certificate.to_json() == plan.certificate.to_json()
            np.testing.assert_array_equal(
                other.noise.lattice.units_per_std, plan.noise.lattice.units_per_std
            )
            np.testing.assert_array_equal(other.noise.lattice.grid, plan.noise.lattice.grid)
            moved = float(np.linalg.norm((with_unit - without) / scale))
            assert moved <= mu
            worst = max(worst, moved / mu)
    assert worst > 0.99, "more noise than the declaration needs"


def test_what_a_unit_adds_does_not_depend_on_others() -> None:
    """Bit by bit: another table around it must not tip a rounding."""
    rng = np.random.default_rng(3)
    n = 2000
    table = pd.DataFrame(
        {
            "x": rng.normal(1, 1, n),
            "z": rng.normal(5, 3, n),
            "g": rng.choice(list("abc"), n),
            "w": rng.uniform(0, 2, n),
            "unit": rng.integers(0, 700, n),
        }
    )
    for name in ("shares and mean", "weighted mean", "variance", "sum"):
        whole, _ = noisy_integers(STATISTICS[name], table, 2)
        for unit in (3, 100, 350):
            first = table.unit <= unit
            halves = [
                noisy_integers(STATISTICS[name], table[part], 2)[0] for part in (first, ~first)
            ]
            np.testing.assert_array_equal(whole, halves[0] + halves[1])


def test_rows_of_a_unit_are_capped_by_its_own_rows() -> None:
    units = np.array([5, 3, 5, 5, 3, 5, 1])
    assert first_rows(units, 2).tolist() == [0, 1, 2, 4, 6]
    for gone in (5, 3, 1):
        kept = np.flatnonzero(units != gone)
        again = kept[first_rows(units[kept], 2)]
        assert set(again) == {r for r in first_rows(units, 2) if units[r] != gone}
    assert first_rows(np.zeros(0, dtype=int), 2).tolist() == []


def test_a_histogram_of_several_columns() -> None:
    statistic = Histogram(bins=4, ranges=(0.0, 4.0))
    table = pd.DataFrame({"a": [0.5, 1.5, 9.0, 1.0], "b": [3.5, -1.0, 2.0, 0], "unit": range(4)})
    without, plan = noisy_integers(statistic, table, 2)
    extra = pd.DataFrame({"a": [4.0, 4.0, 4.0], "b": [0.0, 0.0, 0.0], "unit": [7, 7, 7]})
    with_unit, _ = noisy_integers(statistic, pd.concat([extra, table]), 2)
    moved = np.linalg.norm((with_unit - without) / plan.noise.lattice.units_per_std.astype(float))
    mu = plan.certificate.presence.mu
    assert 0.999 * mu < moved <= mu


# --- nothing of the records is in what leaves ------------------------------------------------


def test_every_byte_but_the_value_is_the_same_for_other_records(tmp_path: Path) -> None:
    tables = [base_table(12), base_table(12).iloc[:10], base_table(300)]
    tables[2]["x"] = 1e6
    for name in ("mean by group", "shares", "sum", "variance", "count of levels"):
        texts = set()
        for number, table in enumerate(tables):
            release = pac.privatize(
                STATISTICS[name], table, BUDGET, sample=Coins(rows_per_unit=2), units="unit"
            )
            public = json.loads(
                release.save(tmp_path / f"{name}{number}").read_text(encoding="utf-8")
            )
            assert "published" not in public["certificate"]
            assert public["certificate"]["n_units"] is None
            texts.add(json.dumps({**public, "value": 0, "error_bars": 0, "digest": 0}))
        assert len(texts) == 1


def test_error_bars_are_a_function_of_what_was_released() -> None:
    """The same noisy sums from different records have the same value and error bars."""
    plans: list[Any] = [
        pac.plan(STATISTICS["means"], table, BUDGET, sample=Coins(rows_per_unit=1))
        for table in (TABLE[:12], TABLE)
    ]
    drawn = plans[0].observe(np.ones(12, dtype=bool), _source())
    for plan in plans:
        assert plan.error_bars is None
    bars = [plan.bars_of(drawn).to_public_dict() for plan in plans]
    assert bars[0] == bars[1]
    assert plans[0].value_of(drawn) == plans[1].value_of(drawn)
    coins = pac.privatize(
        STATISTICS["means"], TABLE, BUDGET, sample=Coins(keep=0.9, rows_per_unit=1)
    )
    assert "No standard errors" in str(coins.certificate)
    assert coins.error_bars is None, "what coins change is a fact of all records"


def _source() -> Any:
    return SimulatedSource(np.random.default_rng(0))


def test_empty_groups_and_tables_are_released_like_others() -> None:
    table = base_table(12).assign(g="a")
    found = pac.privatize(
        STATISTICS["mean by group"], table, BUDGET, sample=Coins(rows_per_unit=1), units="unit"
    )
    assert found.value["b"] == 1.0, "the middle of the range"
    assert found.std_error["b"] >= 2.0
    filled = stats.mean("x", by="g", levels=LEVELS, ranges=RANGES, fill=-7.0)
    again = pac.privatize(filled, table, BUDGET, sample=Coins(rows_per_unit=1), units="unit")
    assert again.value["b"] == -7.0


# --- what is not declared --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statistic", "said"),
    [
        (stats.mean(["x", "z"], ranges={"x": (0, 1)}), "got none for 'z'"),
        (stats.mean("x", by="g", ranges=RANGES), "got none for 'g'"),
        (stats.count(by="g"), "got none for 'g'"),
        (stats.mean("x", weights="w", ranges={"x": (0, 1)}), "got none for 'w'"),
        (stats.mean("x", weights="w", ranges={"x": (0, 1), "w": (-1, 1)}), "begin at 0"),
        (stats.mean("x", missing="error", ranges=RANGES), "missing must be"),
        (stats.median("x", ranges=RANGES), "function of sums"),
        (Histogram(bins=3, universe_facts=True), "edges of the records"),
        (np.mean, "declared ranges"),
    ],
)
def test_whatever_is_not_declared_is_refused(statistic: Any, said: str) -> None:
    table = TABLE[["x"]] if isinstance(statistic, Histogram) else TABLE
    data: Any = table["x"].to_numpy() if statistic is np.mean else table
    with pytest.raises(PacPrivacyError, match=said):
        pac.privatize(statistic, data, BUDGET, sample=Coins(rows_per_unit=1))


def test_without_rows_per_unit_there_is_no_claim() -> None:
    found = pac.privatize(STATISTICS["mean"], TABLE, BUDGET, sample=Coins(keep=1))
    assert found.certificate.presence is None  # type: ignore[attr-defined]
    assert found.certificate.n_units == 400
    assert "not a DP claim" in str(found.certificate)
    assert "in the table at all" not in found.certificate.promise


def test_a_radius_has_no_part() -> None:
    with pytest.raises(PacPrivacyError, match="clip must be left out"):
        Coins(rows_per_unit=1, clip=None)
    for high in (1e41, 1e-41):
        wide = stats.mean("x", ranges={"x": (0, high)})
        with pytest.raises(PacPrivacyError, match="ranges must be"):
            pac.privatize(wide, TABLE, BUDGET, sample=Coins(rows_per_unit=1))


@pytest.mark.parametrize("high", [1e40, 1e-39])
def test_extreme_ranges_are_released_whatever_the_records_are(high: float) -> None:
    for statistic in (
        stats.variance("x", ranges={"x": (0, high)}),
        stats.mean("x", ranges={"x": (-high, high)}),
    ):
        for factor in (1.0, 1e300):
            table = TABLE.assign(x=factor * TABLE.x)
            found = pac.privatize(statistic, table, BUDGET, sample=Coins(rows_per_unit=1))
            assert math.isfinite(found.value["x"])


@pytest.mark.parametrize("rows", [0, -1, 1.5, True, "2", 2**21])
def test_rows_per_unit_must_be_a_count(rows: Any) -> None:
    with pytest.raises(PacPrivacyError, match="rows_per_unit must be"):
        Coins(rows_per_unit=rows)


def test_sessions_and_wrong_ranges_are_refused() -> None:
    with pytest.raises(PacPrivacyError, match="left out in a session"):
        pac.Session(base_table(), budget=BUDGET, sample=Coins(rows_per_unit=1))
    for ranges in ({"x": (1, 0)}, {"x": 3}, [0, 1], {"x": (0, math.inf)}, {"x": (0, True)}):
        with pytest.raises(MechanismError, match="ranges must be pairs"):
            stats.mean("x", ranges=ranges)  # type: ignore[arg-type]


# --- an audit, and planted bugs --------------------------------------------------------------


def _draw(statistic: Any, tables: tuple[Any, Any], distinguisher: Callable[[Any], float]) -> Any:
    plans: list[Any] = [
        pac.plan(statistic, table, BUDGET, sample=Coins(rows_per_unit=1), units="unit")
        for table in tables
    ]
    source = _source()

    def draw(side: int, n: int) -> np.ndarray:
        plan = plans[side]
        everybody = np.ones(len(plan.noise.factors), dtype=bool)
        return np.array([distinguisher(plan.observe(everybody, source)) for _ in range(n)])

    return draw, plans[0].certificate.presence


def test_releases_pass_the_audit_of_differential_privacy() -> None:
    base = base_table()
    extra = pd.DataFrame({"x": [3.0], "z": [0.0], "w": [2.0], "g": ["a"], "unit": [99]})
    tables = (base, pd.concat([base, extra], ignore_index=True))
    # The direction in which the unit moves the sums, in deviations, is the best test.
    draw, presence = _draw(
        STATISTICS["weighted mean"],
        tables,
        lambda sums: float((sums.values / sums.noise_std**2 * [2.0, 4.0]).sum()),
    )
    found = audit_dp(draw, epsilon=presence.epsilon, delta=presence.delta, n_trials=4000)
    assert found.verdict == "holds", str(found)
    too_little = audit_dp(draw, epsilon=0.05, delta=1e-5, n_trials=4000)
    assert too_little.verdict != "holds", "the audit sees the unit"


def breach(statistic: Any, base: pd.DataFrame, extra: pd.DataFrame, rows: int = 1) -> float:
    """How far one unit moves a release, over what is promised; infinite where it shows exactly."""
    tables = base, pd.concat([extra.assign(unit=99), base], ignore_index=True)
    try:
        (without, plan), (with_unit, other) = (noisy_integers(statistic, t, rows) for t in tables)
    except BudgetError:  # found by the plan itself
        return math.inf
    shown = [
        (each.certificate.to_json(), each.noise.centre.tolist(), each.outputs.values.tolist())
        for each in (plan, other)
    ]
    if shown[0] != shown[1]:
        return math.inf
    scale = plan.noise.lattice.units_per_std.astype(float)
    return float(np.linalg.norm((with_unit - without) / scale)) / plan.certificate.presence.mu


BASE = pd.DataFrame({"x": [3.0, 2.0] * 20, "unit": np.repeat(np.arange(20), 2)})
EXTRA = pd.DataFrame({"x": [-1.0, -1.0]})


def test_the_library_has_no_breach() -> None:
    assert 0.99 < breach(STATISTICS["mean"], BASE, EXTRA, 2) <= 1.0


def test_planted_a_centre_from_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    declare = TableMean.declare

    def planted(self: Any, rows: int) -> Any:
        statistic, declaration = declare(self, rows)
        layout = replace(statistic.layout, centre=self.layout.centre)
        return replace(statistic, layout=layout), declaration

    monkeypatch.setattr(TableMean, "declare", planted)
    assert breach(STATISTICS["mean"], BASE, EXTRA) == math.inf


def test_planted_a_cap_by_place_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows of the *table*: a unit that comes first pushes others' rows out."""
    planted = lambda units, most: np.arange(min(len(units), 20 * most))  # noqa: E731
    monkeypatch.setattr("pacprivacy.statistics.numpy_functions.first_rows", planted)
    assert breach(STATISTICS["sum of x"], BASE, EXTRA, 2) > 1.1


def test_planted_rows_without_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pacprivacy.statistics.numpy_functions.first_rows",
        lambda units, most: np.arange(len(units)),
    )
    assert breach(STATISTICS["mean"], BASE, pd.DataFrame({"x": [-1.0] * 5})) > 2


def test_planted_an_undeclared_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableMean, "_check_declared", lambda self, layout: None)
    assert breach(stats.mean("x"), BASE, EXTRA) > 2


def test_planted_a_shared_count_where_nobody_has_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether any record has a gap would decide how many sums there are."""
    block = "pacprivacy.statistics.sums.shape_block"
    original = sums_module.shape_block
    monkeypatch.setattr(
        block,
        lambda formula, X, weights, shared: original(
            formula, X, weights, shared=not np.isnan(X).any()
        ),
    )
    base = BASE.assign(z=1.0)
    assert breach(STATISTICS["means"], base, EXTRA.assign(z=np.nan)) == math.inf


def test_planted_the_exact_number_of_rows() -> None:
    """A noisy sum over the exact count: a small table shows by the size of the noise alone."""
    reached = total_variation(normal(0.0, 1.0), normal(0.0, 0.5))  # one row at the centre, or two
    assert reached > PROMISED + 0.1
    plan: Any = pac.plan(STATISTICS["mean"], TABLE, BUDGET, sample=Coins(rows_per_unit=1))
    assert gauss(1.0 / float(plan.noise.lattice.noise_std[0, 0])) <= PROMISED


def test_planted_noise_by_the_records() -> None:
    """Calibrated to the records, the noise itself tells that the largest unit is there."""
    larger = pd.concat([TABLE, TABLE.iloc[:1].assign(z=60.0)], ignore_index=True)
    noise = [
        pac.plan(stats.mean("z"), each, BUDGET, sample=Coins(keep=1, clip=None)).certificate.noise
        for each in (TABLE, larger)
    ]
    assert noise[0] != noise[1]
    same = [
        pac.plan(
            stats.mean("z", ranges=RANGES), each, BUDGET, sample=Coins(rows_per_unit=1)
        ).certificate.noise
        for each in (TABLE, larger)
    ]
    assert same[0] == same[1]


# --- the certificate, and forged ones --------------------------------------------------------


@pytest.fixture(scope="module")
def release() -> Any:
    return pac.privatize(
        STATISTICS["mean by group"],
        base_table(200),
        BUDGET,
        sample=Coins(rows_per_unit=2),
        units="unit",
    )


def test_the_certificate_says_both(release: Any, tmp_path: Path) -> None:
    text = " ".join(str(release.certificate).split())
    assert "Also hides whether a unit is in the table at all" in text
    assert "x: -1 to 3; 3 groups; rows of one unit: 2" in text
    assert "not a DP claim" not in text
    assert release.certificate.membership_bound <= 0.6
    presence = release.certificate.presence
    assert 2 * pac.Membership(0.6).success - 1 == pytest.approx(gauss(presence.mu), abs=1e-6)
    path = release.save(tmp_path)
    again = pac.Release.load(path)
    assert again.certificate == release.certificate
    assert again.value == release.value
    assert "presence" in pac.verify(again.certificate, tmp_path / "curator.npz").recomputed


def test_contributions_follow_from_the_records(release: Any) -> None:
    table, statistic = base_table(200), STATISTICS["mean by group"]
    recompute_contributions(release.bundle, statistic, table, units="unit")
    wider = stats.mean("x", by="g", levels=LEVELS, ranges={"x": (-1.0, 30.0)})
    for mechanism, data in ((statistic, table.assign(x=0.0)), (wider, table)):
        with pytest.raises(CertificateError):
            recompute_contributions(release.bundle, mechanism, data, units="unit")


def test_a_report_tells_no_number_of_units(release: Any, tmp_path: Path) -> None:
    release.save(tmp_path)
    page = CliRunner().invoke(app, ["report", str(tmp_path / "release.json")])
    assert page.exit_code == 0, page.output
    written = next(tmp_path.glob("*.html")).read_text(encoding="utf-8")
    assert "everybody: all units were used" in written
    assert "Also hides whether a unit is in the table at all" in written


def _forged(declaration: Declaration) -> dict[str, Declaration]:
    column = declaration.columns[0]
    return {
        "narrower range": replace(declaration, columns=(replace(column, low=0.9, high=1.1),)),
        "wider range": replace(declaration, columns=(replace(column, high=30.0),)),
        "more rows": replace(declaration, rows_per_unit=3),
        "heavier weights": replace(declaration, largest_weight=2.0),
        "fewer groups": replace(declaration, n_cells=2),
        "another statistic": replace(declaration, statistic="sum"),
    }


@pytest.mark.parametrize(
    "name",
    ["narrower range", "wider range", "more rows", "heavier weights", "fewer groups",
     "another statistic"],
)  # fmt: skip
def test_a_forged_declaration_is_refused(release: Any, name: str) -> None:
    bundle: CoinBundle = release.bundle
    assert bundle.declaration is not None
    forged = replace(bundle, declaration=_forged(bundle.declaration)[name])
    with pytest.raises((CertificateError, ValueError)):
        pac.verify(write_coin_certificate(forged), forged)


@pytest.mark.parametrize(
    "change",
    [
        lambda b: replace(b, parameter=b.parameter * 2),
        lambda b: replace(b, units_per_std=np.asarray(b.units_per_std // 2)),
        lambda b: replace(b, stated=replace(b.stated, published=("the largest age: 99",))),
        lambda b: replace(b, grid=np.asarray(b.grid / 2)),
    ],
)
def test_a_forged_bundle_is_refused(release: Any, change: Callable[[Any], Any]) -> None:
    forged = change(release.bundle)
    with pytest.raises(CertificateError):
        pac.verify(write_coin_certificate(forged), forged)


@pytest.mark.parametrize(
    "change",
    [
        {"n_units": 200},
        {"published": ["number of units (200)"]},
        {"presence": {"mu": 0.1, "epsilon": 0.2, "delta": 1e-5, "declared": "x"}},
        {"presence": None},
    ],
)
def test_a_forged_certificate_is_refused(release: Any, change: dict[str, Any]) -> None:
    plain = json.loads(release.certificate.to_json())
    with pytest.raises(CertificateError):
        pac.verify(pac.Certificate.from_dict({**plain, **change}), release.bundle)


def test_no_epsilon_is_stated_that_is_not_proved() -> None:
    found = pac.privatize(
        STATISTICS["mean"], TABLE, "membership<=0.9999999", sample=Coins(rows_per_unit=1)
    )
    presence = found.certificate.presence  # type: ignore[attr-defined]
    assert presence.epsilon is None
    assert "epsilon" not in str(presence)


def test_noise_is_that_of_the_declaration_alone() -> None:
    """Shares of the count and the sum: within 25 % of the least for a mean near the centre."""
    sums = STATISTICS["mean"].prepare(coerce_data(base_table(50)))
    statistic, declaration = sums.declare(1)
    plan = plan_declared(
        statistic.contributions(coerce_data(base_table(50))), declaration, success=0.6, keep=1.0
    )
    count, total = plan.lattice.noise_std[0]
    assert total == pytest.approx(math.sqrt(1.25) * 2.0 / plan.parameter, rel=1e-5)
    assert count == pytest.approx(math.sqrt(5.0) / plan.parameter, rel=1e-5)
