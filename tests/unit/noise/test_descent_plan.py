"""Descent with coins: rows, units, clocks, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    CertificateError,
    DataError,
    MechanismError,
)
from pacprivacy.mechanism import Descent, LinearProblem, Lloyd, coerce_data
from pacprivacy.noise import DescentUnits, StepNoise, plan_descent
from pacprivacy.release import DescentBundle, recompute_descent

RNG = np.random.default_rng(0)
N = 400
X = RNG.normal(size=(N, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 0.0]
Z = (X - [0.0, 50.0, 0.0]) / [1.0, 10.0, 0.1]
Y = (Z @ [2.0, -1.0, 0.0] + RNG.logistic(size=N) > 0).astype(int)
LABELS = np.array(["no", "yes"])[Y]
COINS: dict[str, Any] = {"sample": pac.Coins(keep=0.9), "simulate": True, "rng": 0}


def test_norms_of_units_are_those_of_their_own_sums() -> None:
    codes = RNG.integers(0, 40, size=N)
    codes[:40] = np.arange(40)
    rows, slopes = RNG.integers(-99, 99, (N, 4)) * 1.0, RNG.integers(-99, 99, (N, 2)) * 1.0
    problem = LinearProblem(rows=rows, targets=slopes, loss=Descent()._loss)
    units, ordered = DescentUnits.sort(problem, codes, 40)
    truth = [np.linalg.norm(rows[codes == u].T @ slopes[codes == u]) for u in range(40)]
    norms = units.norms(ordered.rows, ordered.targets, np.linalg.norm(ordered.rows, axis=1))
    assert (norms >= truth).all()
    np.testing.assert_allclose(norms, truth, rtol=1e-9)
    lengths = np.linalg.norm(rows, axis=1)
    single = DescentUnits(n_units=N, codes=None).norms(rows, slopes, lengths)
    np.testing.assert_allclose(single, lengths * np.linalg.norm(slopes, axis=1), rtol=1e-9)


@pytest.mark.parametrize("std", [1e-4, 0.3, 1.0, 77.7, 1e6])
def test_noise_has_many_steps_and_is_not_below_what_was_asked(std: float) -> None:
    noise = StepNoise.at_least(std)
    assert std <= noise.std <= std * (1 + 2.0**-20)
    assert 2**29 <= noise.units_per_std <= 2**31


def test_every_batch_has_units_in_rehearsals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pacprivacy.noise.descent_plan.MOST_REHEARSED", 4)
    data = coerce_data((X, Y))
    fit = Descent(n_batches=9, n_steps=18).prepare(data)
    problem = fit.problem(data.parts)
    plan = plan_descent(fit, problem, None, n_units=N, success=0.6, keep=0.9, seed=0)
    assert np.isfinite(plan.rehearsed).all()
    assert plan.rehearsed.any()


def test_no_clock_passes_its_limit_with_several_rows_a_unit() -> None:
    codes = np.arange(N) // 5
    fit = Descent(n_steps=8, loss="logistic")
    data = coerce_data((X, Y))
    fit = fit.prepare(data)
    allowed = np.linspace(0.0, 0.5, 80)  # some may pay nothing, and are left out
    plan = plan_descent(
        fit, fit.problem(data.parts), codes, n_units=80, success=0.6, keep=0.9, seed=0,
        allowed=allowed,
    )  # fmt: skip
    transcript = plan.release(np.ones(80, bool), SimulatedSource(1))
    assert (transcript.spent <= np.minimum(allowed, plan.parameter) ** 2).all()
    assert transcript.spent[0] == 0.0 < transcript.spent[1:].min()
    with pytest.raises(BudgetError, match="kept must be one truth value"):
        plan.release(np.ones(N, bool), SimulatedSource(1))


@pytest.mark.parametrize(
    ("loss", "y", "options"),
    [
        ("logistic", LABELS, {}),
        ("softmax", LABELS, {}),
        ("hinge", LABELS, {}),
        ("squared", 100 + 7 * Z[:, 0], {}),
        ("quantile", 100 + 7 * Z[:, 0], {"level": 0.8}),
        ("poisson", np.random.default_rng(1).poisson(np.exp(0.7 * Z[:, 0] + 2)), {}),
    ],
)
def test_every_loss_finds_the_direction(loss: Any, y: Any, options: Any) -> None:
    release = pac.privatize(Descent(loss=loss, **options), (X, y), pac.Membership(0.9), **COINS)
    coef = release.value["coef"][-1] * [1.0, 10.0, 0.1]
    assert coef[0] > 0
    assert coef[0] > 2 * abs(coef[2])
    again = pac.privatize(Descent(loss=loss, **options), (X, y), pac.Membership(0.9), **COINS)
    np.testing.assert_array_equal(release.value["coef"], again.value["coef"])
    if loss == "poisson":
        assert coef[0] == pytest.approx(0.7, abs=0.2)
    elif loss == "squared":
        assert coef[0] == pytest.approx(7.0, abs=2.0)


def test_pools_descend_without_noise_between_the_steps() -> None:
    release = pac.privatize(
        Descent(rate=0.3), (X[:60], LABELS[:60]), pac.Membership(0.9), n_subsets=32, rng=0
    )
    assert release.value["coef"].shape == (1, 3)
    assert release.certificate.sampling != "coins"


def test_bundle_is_stored_verified_and_replayed(tmp_path: Path) -> None:
    fit = Descent(n_steps=5)
    release = pac.privatize(fit, (X, LABELS), pac.Membership(0.6), **COINS)
    release.save(tmp_path)
    held = DescentBundle.load(tmp_path / "curator.npz")
    assert held.spent.max() <= held.parameter**2
    pac.verify(release.certificate, tmp_path / "curator.npz")
    pac.report(tmp_path / "release.json", tmp_path / "report.html")
    recompute_descent(held, fit, (X, LABELS))
    with pytest.raises(CertificateError, match="other features follow"):
        recompute_descent(held, fit, (X + 1e-2, LABELS))
    with pytest.raises(CertificateError, match="no descent"):
        recompute_descent(held, np.mean, X)


@pytest.mark.claim("R-1")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spent": np.full(N, 1.0)}, "paid more than is allowed"),
        ({"step_units": np.full(5, 2**20)}, "too few steps|more than the budget"),
        ({"integers": np.zeros((3, 4, 1), dtype=np.int64)}, "steps are missing"),
        ({"parameter": 0.6}, "more than the budget stands for"),
    ],
)
def test_forged_bundles_are_refused(change: dict[str, Any], reason: str) -> None:
    release = pac.privatize(Descent(n_steps=5), (X, LABELS), pac.Membership(0.6), **COINS)
    with pytest.raises(CertificateError, match=reason):
        pac.verify(release.certificate, replace(release.bundle, **change))


@pytest.mark.claim("R-1")
@pytest.mark.parametrize("fit", [Descent(n_steps=3), Lloyd(n_clusters=2)])
def test_the_released_value_follows_from_the_last_step(fit: Any) -> None:
    data = X if isinstance(fit, Lloyd) else (X, LABELS)
    release = pac.privatize(fit, data, pac.Membership(0.9), **COINS)
    recompute_descent(release.bundle, fit, data, value=release.value)
    integers = release.bundle.integers.copy()
    integers[-1, 0] *= 2
    forged = replace(release.bundle, integers=integers)
    pac.verify(release.certificate, forged)  # no clock shows the last step
    with pytest.raises(CertificateError, match="value of the release"):
        recompute_descent(forged, fit, data, value=release.value)
    value = release.value * 1.001 if isinstance(fit, Lloyd) else {**release.value, "intercept": 1.0}
    with pytest.raises(CertificateError, match="value of the release"):
        recompute_descent(release.bundle, fit, data, value=value)


@pytest.mark.claim("C-8")
def test_who_may_pay_next_to_nothing_is_left_out_of_the_noise_too() -> None:
    data = coerce_data((X, Y))
    fit = Descent(n_steps=3).prepare(data)

    def plan(least: float) -> Any:
        allowed = np.where(np.arange(N) < 100, least, 0.3)
        return plan_descent(
            fit, fit.problem(data.parts), None, n_units=N, success=0.62, keep=0.9, seed=0,
            allowed=allowed,
        )  # fmt: skip

    little = plan(1e-5)
    assert little.noise == plan(0.0).noise
    assert (little.allowed[:100] == 0).all()


@pytest.mark.claim("C-8")
def test_a_session_charges_what_a_descent_may_spend() -> None:
    with pac.Session((X, LABELS), budget="membership<=0.6", **COINS) as session:
        first = session.release(Descent(n_steps=4), share=0.5)
        assert first.bundle.session is not None
        second = session.release(Descent(n_steps=4))
        clocks = second.bundle.session.clocks
        assert (clocks >= first.bundle.spent).all()  # what may be spent, not what was
        pac.verify(second.certificate, second.bundle)
        with pytest.raises(BudgetExceededError, match="used up"):
            session.release(Descent(n_steps=4))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ((X, np.ones(N)), "at least two classes"),
        ((X, Z[:, 0]), "class labels"),
        ((np.ones((N, 2)), LABELS), "must be given features that vary"),
        ((np.where(np.arange(N)[:, None] == 0, 1e200, X), LABELS), "must be smaller than"),
        ((X, LABELS[:-1]), "must"),
        (X, "features and labels"),
    ],
)
def test_wrong_data_are_refused_with_nothing_spent(data: Any, match: str) -> None:
    with pytest.raises((MechanismError, DataError), match=match):
        pac.privatize(Descent(), data, pac.Membership(0.6), **COINS)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "absolute"},
        {"n_steps": 0},
        {"rate": "fast"},
        {"momentum": 1.0},
        {"radius": 0.0},
        {"n_batches": 0},
        {"penalty": -1.0},
        {"level": 0.0},
    ],
)
def test_wrong_settings_are_refused(options: Any) -> None:
    with pytest.raises(MechanismError, match="must be"):
        Descent(**options)


def test_constant_columns_have_no_weight() -> None:
    wide = np.column_stack([X, np.full(N, 3.0)])
    release = pac.privatize(Descent(), (wide, LABELS), pac.Membership(0.6), **COINS)
    assert release.value["coef"][0, 3] == 0.0


@pytest.mark.claim("C-14")
def test_lloyd_finds_clusters_and_is_replayed(tmp_path: Path) -> None:
    points = RNG.normal(size=(900, 2)) * [1.0, 0.2] + np.repeat([[0, 0], [9, 0], [18, 3]], 300, 0)
    fit = Lloyd(n_clusters=3)
    release = pac.privatize(fit, points, pac.Membership(0.6), **COINS)
    centres = release.value[release.value[:, 0].argsort()]
    np.testing.assert_allclose(centres, [[0, 0], [9, 0], [18, 3]], atol=0.5)
    pac.verify(release.certificate, release.bundle)
    recompute_descent(release.bundle, fit, points)
    assert release.bundle.spent.max() <= release.bundle.parameter**2
    several = pac.privatize(fit, points, pac.Membership(0.6), units=np.arange(900) // 2, **COINS)
    assert "number of rows (900)" in several.certificate.published
    declared = Lloyd(n_clusters=3, start=[[0, 0], [9, 0], [18, 3]])
    near = pac.privatize(declared, points, pac.Membership(0.6), **COINS)
    np.testing.assert_allclose(near.value, [[0, 0], [9, 0], [18, 3]], atol=0.5)
    near.save(tmp_path)
    pac.verify(near.certificate, tmp_path / "curator.npz")
    with pytest.raises(MechanismError, match="by more than rounding"):
        pac.privatize(fit, np.add(points, [0.0, 1e15]), pac.Membership(0.6), **COINS)
    for start in ([[0.0]], [[np.nan, 0.0], [1.0, 1.0]], [["a", "b"], ["c", "d"]]):
        with pytest.raises(MechanismError, match="start must have shape"):
            pac.privatize(Lloyd(n_clusters=2, start=start), points, pac.Membership(0.6), **COINS)


@pytest.mark.claim("C-14")
def test_a_declared_radius_sets_the_noise_and_shortens_gradients() -> None:
    data = coerce_data((X, Y))
    noise = []
    for radius, rows in ((1.0, data), (1.0, coerce_data((7 * X[:, ::-1] + 1, Y))), (2.0, data)):
        fit = Descent(n_steps=4, radius=radius).prepare(rows)
        problem = fit.problem(rows.parts)
        plan = plan_descent(fit, problem, None, n_units=N, success=0.6, keep=0.9, seed=0)
        std = radius * np.sqrt(fit.n_steps) / plan.parameter
        assert all(std <= step.std <= 1.1 * std for step in plan.noise)
        noise.append([step.std for step in plan.noise])
        spent = plan.release(np.ones(N, bool), SimulatedSource(1)).spent
        longest = np.sqrt(spent.max() / fit.n_steps) * min(noise[-1])
        assert longest <= 1.1 * radius  # the noise is rounded up to two digits
    assert noise[0] == noise[1] != noise[2]  # whatever the records are
