"""Output and objective perturbation, and regression from noisy statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from pacprivacy.dp import audit_dp
from pacprivacy.dp.linear_models import (
    MOST_CURVATURE,
    SOLVER_SHARE,
    TOLERANCE,
    _bound_norm,
    _parameter,
    least_penalty,
    minimise_perturbed,
    objective_perturbation,
    output_perturbation,
    perturbation_excess,
    regression_from_statistics,
    sign_perturbed_rows,
)
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.theory import gaussian_parameter

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = (X @ [2.0, -1.0, 0.5] + RNG.normal(size=400) > 0).astype(int)
SETTINGS: dict[str, Any] = {"classes": (0, 1), "x_bound": 2.0, "epsilon": 1.0, "delta": 1e-5}


def value(margins: np.ndarray) -> np.ndarray:
    """The logistic loss of the margin as a textbook writes it."""
    return np.logaddexp(0.0, -margins)


# --- the solver -----------------------------------------------------------------------------


@pytest.mark.claim("DP-10")
def test_the_minimiser_is_found() -> None:
    signed = sign_perturbed_rows(X, Y, x_bound=2.0, classes=(0, 1))
    assert np.linalg.norm(signed, axis=1).max() <= 2.0
    tilt = np.array([1.0, -2.0, 3.0])
    point, gradient = minimise_perturbed(signed, penalty=2.0, tilt=tilt, x_bound=2.0)

    def objective(theta: np.ndarray) -> float:
        return float(value(signed @ theta).sum() + theta @ theta + tilt @ theta)

    reference = minimize(objective, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    assert np.allclose(point, reference.x, atol=1e-5)
    assert gradient == pytest.approx(2e-6)


def hard_problems() -> Iterator[tuple[Any, float]]:
    """Rows and penalties at which a search by values stops short of the minimum."""
    rng = np.random.default_rng(5)
    for penalty in (1e-12, 1e-6, 1.0):
        for kind in ("separable", "noise", "tiny", "repeated", "one apart", "empty"):
            rows = rng.normal(size=(60, 3))
            labels = (rows[:, 0] > 0).astype(int)
            if kind == "noise":
                labels = rng.integers(0, 2, size=60)
            elif kind == "tiny":
                rows *= 1e-6
            elif kind == "repeated":
                rows, labels = np.repeat(rows[:1], 60, axis=0), np.arange(60) % 2
            elif kind == "one apart":
                rows, labels[0] = np.vstack([[[1.0, 0.0, 0.0]], 1e-3 * rows[1:]]), 0
            elif kind == "empty":
                rows, labels = rows[:0], labels[:0]
            yield sign_perturbed_rows(rows, labels, x_bound=1.0, classes=(0, 1)), penalty


@pytest.mark.claim("DP-10")
def test_the_gradient_is_reached_for_hard_problems_too() -> None:
    for signed, penalty in hard_problems():
        tilt = np.zeros(3)
        point, gradient = minimise_perturbed(signed, penalty=penalty, tilt=tilt, x_bound=1.0)
        assert _bound_norm(signed, penalty, tilt, point) <= gradient == TOLERANCE


@pytest.mark.claim("DP-17")
def test_a_solver_that_gives_up_uses_its_best_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pacprivacy.dp.linear_models.MOST_ITERATIONS", 2)
    signed = sign_perturbed_rows(X, Y, x_bound=2.0, classes=(0, 1))
    settings: dict[str, Any] = {"penalty": 1e-3, "tilt": np.zeros(3), "x_bound": 2.0}
    point, _ = minimise_perturbed(signed, **settings)
    short = _bound_norm(signed, 1e-3, np.zeros(3), point)
    start = _bound_norm(signed, 1e-3, np.zeros(3), np.zeros(3))
    assert TOLERANCE * 2.0 < short < start
    release = output_perturbation(X, Y, penalty=1e-3, simulate=0, **SETTINGS)
    text = " ".join(str(release.certificate).split())
    assert "the best point that was found takes its place" in text


def test_the_loss_is_what_the_proofs_need() -> None:
    m = np.linspace(-6, 6, 4001)
    slope = np.gradient(value(m), m)
    assert slope.min() >= -1.0
    assert slope.max() <= 0.0
    steepest = np.abs(np.gradient(slope, m)).max()
    assert steepest == pytest.approx(MOST_CURVATURE, rel=1e-3)


# --- output perturbation --------------------------------------------------------------------


@pytest.mark.claim("DP-10")
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_no_neighbour_moves_the_minimiser_further(neighbours: str) -> None:
    penalty, bound = 5.0, 2.0
    certificate = output_perturbation(
        X, Y, penalty=penalty, neighbours=neighbours, simulate=0, **SETTINGS
    ).certificate  # type: ignore[arg-type]
    assert certificate.accounting is not None
    sensitivity = certificate.accounting["Euclidean sensitivity"]
    times = 1 if neighbours == "add_remove" else 2
    assert sensitivity == pytest.approx(times * bound / penalty, rel=1e-5)
    farthest = 0.0
    for few in (1, 2, 30):
        base = sign_perturbed_rows(X[:few], Y[:few], x_bound=bound, classes=(0, 1))
        for direction in np.eye(3):
            row = bound * direction[None] * (1 - 1e-9)
            other = -row if neighbours == "replace" else np.zeros((0, 3))
            points = [
                minimise_perturbed(
                    np.concatenate([base * 1e-3, extra]),
                    penalty=penalty,
                    tilt=np.zeros(3),
                    x_bound=bound,
                )[0]
                for extra in (row, other)
            ]
            farthest = max(farthest, float(np.linalg.norm(points[0] - points[1])))
    assert 0.2 * sensitivity < farthest <= sensitivity


@pytest.mark.claim("DP-10")
def test_the_excess_is_within_its_theorem() -> None:
    signed = sign_perturbed_rows(X, Y, x_bound=2.0, classes=(0, 1))
    best, _ = minimise_perturbed(signed, penalty=5.0, tilt=np.zeros(3), x_bound=2.0)

    def objective(theta: np.ndarray) -> float:
        return float(value(signed @ theta).sum() + 2.5 * theta @ theta)

    excesses, std = [], 0.0
    for seed in range(100):
        release = output_perturbation(X, Y, penalty=5.0, simulate=seed, **SETTINGS)
        excesses.append(objective(release.value) - objective(best))
        std = release.certificate.noise["std"]  # type: ignore[index]
    fixed, each = perturbation_excess(std, 3, 5.0, 1.0)
    assert 0 < np.mean(excesses) < fixed + 400 * each
    assert f"{fixed:.4g} + {each:.4g} n" in release.certificate.notes[0]


def test_pure_privacy_takes_laplace_noise() -> None:
    pure = SETTINGS | {"delta": 0.0}
    release = output_perturbation(X, Y, penalty=5.0, simulate=0, **pure)
    assert release.certificate.delta == 0.0
    assert "Laplace" in str(release.certificate)


# --- objective perturbation -----------------------------------------------------------------


def worst_delta(penalty: float, std: float, neighbours: str) -> float:
    """Least δ at ε = 0.98 over a few neighbours, from the densities of the minimiser in 1-d."""
    reach = (9.0 * std + 5.0) / penalty
    theta = np.linspace(-reach, reach, 400_001)
    step = theta[1] - theta[0]

    def density(signed: list[float]) -> np.ndarray:
        b = -(sum(s * -expit(-s * theta) for s in signed) + penalty * theta)
        jacobian = sum(s * s * expit(s * theta) * expit(-s * theta) for s in signed) + penalty
        law: np.ndarray = np.exp(-((b / std) ** 2) / 2) * jacobian / (std * math.sqrt(2 * math.pi))
        assert law.sum() * step == pytest.approx(1.0, abs=1e-4)
        return law

    largest = 0.0
    for base in ([], [0.5], [-1.0, -1.0, 1.0]):
        pairs = [(base, [*base, s]) for s in (1.0, -1.0, 0.3)]
        if neighbours == "replace":
            pairs = [([*base, 1.0], [*base, -1.0]), ([*base, 0.2], [*base, 1.0])]
        for pair in pairs:
            p, q = (density(list(side)) for side in pair)
            for first, second in ((p, q), (q, p)):
                gap = first - math.exp(1 - SOLVER_SHARE) * second
                largest = max(largest, float(np.maximum(0.0, gap).sum() * step))
    return largest


@pytest.mark.claim("DP-12")
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_the_density_of_the_minimiser_keeps_the_promise(neighbours: str) -> None:
    """In one dimension the law of the minimiser is known: integrate the privacy curve itself."""
    epsilon, delta, bound = 1.0, 1e-3, 1.0
    penalty = 5.0 * least_penalty(epsilon, x_bound=bound)
    curvature = MOST_CURVATURE * bound**2
    left = (1 - SOLVER_SHARE) * epsilon - math.log1p(curvature / penalty)
    std = bound / _parameter(left, delta, neighbours)  # type: ignore[arg-type]

    assert worst_delta(penalty, std, neighbours) <= delta
    assert worst_delta(penalty, std / 4, neighbours) > delta  # the check can fail


@pytest.mark.claim("DP-12")
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_laplace_entries_make_objective_perturbation_pure(neighbours: Any) -> None:
    """In one dimension the density of the minimiser is known: its ratio is at most e^ε."""
    settings = {**SETTINGS, "delta": 0.0, "x_bound": 1.0, "neighbours": neighbours}
    rows, labels = np.linspace(-1, 1, 30)[:, None], (np.arange(30) % 3 > 0).astype(int)
    release = objective_perturbation(rows, labels, penalty=3.0, simulate=0, **settings)
    noise = release.certificate.noise
    assert noise is not None
    scale = noise["std of the linear term"] / math.sqrt(2)
    assert release.certificate.delta == 0.0
    theta = np.linspace(-4, 4, 4001)

    def log_density(x: np.ndarray, y: np.ndarray, scale: float) -> np.ndarray:
        signed = sign_perturbed_rows(x, y, x_bound=1.0, classes=(0, 1))[:, 0]
        margins = np.outer(theta, signed)
        tilt = (expit(-margins) * signed).sum(axis=1) - 3.0 * theta
        curvature = (expit(margins) * expit(-margins) * signed**2).sum(axis=1) + 3.0
        return np.asarray(-np.abs(tilt) / scale + np.log(curvature))

    def worst(scale: float) -> float:
        base = log_density(rows, labels, scale)
        ratios = [0.0]
        for x in (-1.0, 1.0):
            if neighbours == "add_remove":
                other = log_density(np.vstack([rows, [[x]]]), np.append(labels, 1), scale)
            else:
                swapped, flipped = rows.copy(), labels.copy()
                swapped[0], flipped[0] = x, 1
                other = log_density(swapped, flipped, scale)
            ratios.append(float(np.abs(base - other).max()))
        return max(ratios)

    assert worst(scale) <= 0.98
    assert worst(scale / 4) > 1.0  # the check can fail
    best = minimise_perturbed(
        sign_perturbed_rows(rows, labels, x_bound=1.0, classes=(0, 1)),
        penalty=3.0,
        tilt=np.zeros(1),
        x_bound=1.0,
    )[0]
    drawn = [
        objective_perturbation(rows, labels, penalty=3.0, simulate=s, **settings).value[0]
        for s in range(200)
    ]
    assert np.median(drawn) == pytest.approx(best[0], abs=0.15)


@pytest.mark.claim("DP-12")
def test_the_curvature_condition_is_checked() -> None:
    assert least_penalty(900.0, x_bound=2.0) < 1e-300  # without an overflow
    least = least_penalty(1.0, x_bound=2.0)
    assert least == pytest.approx(1.0 / math.expm1(0.98))
    with pytest.raises(BudgetError, match=r"penalty must be above 0.6.* one record adds curvature"):
        objective_perturbation(X, Y, penalty=0.99 * least, **SETTINGS)


@pytest.mark.claim("DP-12")
def test_objective_perturbation_is_closer_than_output_perturbation() -> None:
    best, _ = minimise_perturbed(
        sign_perturbed_rows(X, Y, x_bound=2.0, classes=(0, 1)),
        penalty=3.0,
        tilt=np.zeros(3),
        x_bound=2.0,
    )

    def error(method: Any) -> float:
        found = [method(X, Y, penalty=3.0, simulate=s, **SETTINGS).value - best for s in range(40)]
        return float(np.mean(np.square(found)))

    assert error(objective_perturbation) < 0.3 * error(output_perturbation)
    release = objective_perturbation(X, Y, penalty=3.0, simulate=0, **SETTINGS)
    assert release.certificate.accounting is not None
    parts = [v for k, v in release.certificate.accounting.items() if k.startswith("epsilon")]
    assert sum(parts) == pytest.approx(1.0)
    noise = release.certificate.noise
    assert noise is not None
    assert noise["std at the end"] < 1e-3 * noise["std of the linear term"] / 3.0
    # two points as near to their minimisers as the solver brings them, in the sum of 3 entries
    apart = 2 * TOLERANCE * 2.0 / 3.0 * math.sqrt(3)
    assert noise["std at the end"] >= math.sqrt(2) * apart / SOLVER_SHARE


@pytest.mark.claim("DP-10")
@pytest.mark.claim("DP-12")
@pytest.mark.parametrize("method", [output_perturbation, objective_perturbation])
def test_learners_pass_the_audit(method: Any) -> None:
    # One record against none beside it: the worst case of a Lipschitz loss.
    rows, labels = np.array([[1e-9], [1.0]]), np.array([1, 1])
    seeds = iter(range(10**6))

    def draw(side: int, n: int) -> np.ndarray:
        kept = slice(0, 1 + side)
        return np.array(
            [
                method(
                    rows[kept], labels[kept], classes=(0, 1), penalty=1.0, x_bound=1.0,
                    epsilon=1.0, delta=1e-2, simulate=next(seeds),
                ).value[0]
                for _ in range(n)
            ]
        )  # fmt: skip

    found = audit_dp(draw, epsilon=1.0, delta=1e-2, n_trials=1000)
    assert found.verdict == "holds"


# --- statistics -----------------------------------------------------------------------------


@pytest.mark.claim("DP-13")
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_statistics_have_the_noise_of_their_sensitivity(delta: float, neighbours: str) -> None:
    rng = np.random.default_rng(2)
    d, b, c = 3, 2.0, 3.0
    release = regression_from_statistics(
        rng.normal(size=(50, d)), rng.normal(size=50), epsilon=1.0, delta=delta, x_bound=b,
        y_bound=c, penalty=1.0, neighbours=neighbours, simulate=0,
    )  # type: ignore[arg-type]  # fmt: skip
    noise = release.certificate.noise
    assert noise is not None
    upper = np.triu_indices(d)
    farthest = {"moments": 0.0, "products": 0.0, "together": 0.0}
    order = 2 if delta else 1
    for _ in range(3000):
        rows = rng.normal(size=(2, d))
        rows *= b / np.linalg.norm(rows, axis=1, keepdims=True)
        if neighbours == "add_remove":
            rows[1] = 0.0
        moments = (np.outer(rows[0], rows[0]) - np.outer(rows[1], rows[1]))[upper]
        products = c * (rows[0] + rows[1])
        sizes = np.linalg.norm(moments, order), np.linalg.norm(products, order)
        scales = noise["std of moments"], noise["std of products"]
        if delta:
            together = math.hypot(sizes[0] / scales[0], sizes[1] / scales[1])
        else:
            together = math.sqrt(2) * (sizes[0] / scales[0] + sizes[1] / scales[1])
        farthest["together"] = max(farthest["together"], float(together))
    if delta:  # all noise in units of its deviation: one Gaussian mechanism of this parameter
        assert 0.7 * gaussian_parameter(1.0, delta) < farthest["together"]
        assert farthest["together"] <= gaussian_parameter(1.0, delta)
    else:
        assert 0.7 < farthest["together"] <= 1.0


@pytest.mark.claim("DP-13")
def test_statistics_give_the_regression_when_there_is_little_noise() -> None:
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, size=(5000, 3))
    target = rows @ [1.0, 2.0, -1.0]
    release = regression_from_statistics(
        rows, target, epsilon=20.0, delta=1e-3, x_bound=2.0, y_bound=4.0, penalty=0.0, simulate=0
    )
    assert np.allclose(release.value["coef"], [1.0, 2.0, -1.0], atol=0.02)
    assert np.array_equal(release.value["moments"], release.value["moments"].T)


@pytest.mark.claim("DP-13")
def test_statistics_pass_the_audit() -> None:
    rows = np.array([[0.1], [1.0]])
    targets = {0: np.array([0.0, 1.0]), 1: np.array([0.0, -1.0])}  # one target turns round
    seeds = iter(range(10**6))
    given: dict[str, Any] = {
        "penalty": 1.0, "x_bound": 1.0, "y_bound": 1.0, "epsilon": 1.0, "neighbours": "replace"
    }  # fmt: skip

    def draw(side: int, n: int) -> np.ndarray:
        found = []
        for _ in range(n):
            release = regression_from_statistics(
                rows, targets[side], delta=1e-2, simulate=next(seeds), **given
            )
            found.append(release.value["products"][0])
        return np.array(found)

    found = audit_dp(draw, epsilon=1.0, delta=1e-2, n_trials=1000)
    assert found.verdict == "holds"


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [output_perturbation, objective_perturbation])
def test_bad_input_is_refused(method: Any) -> None:
    with pytest.raises(BudgetError, match="epsilon must be"):
        method(X, Y, penalty=5.0, **(SETTINGS | {"epsilon": 0.0}))
    for delta in (-0.1, 1.0):
        with pytest.raises(BudgetError, match="delta must be"):
            method(X, Y, penalty=5.0, **(SETTINGS | {"delta": delta}))
    with pytest.raises(DataError, match="classes must be of the type"):
        method(X, Y.astype(str), penalty=5.0, **SETTINGS)
    with pytest.raises(DataError, match="classes must be the two labels"):
        method(X, Y, penalty=5.0, **(SETTINGS | {"classes": None}))
    with pytest.raises(BudgetError, match="x_bound must be"):
        method(X, Y, penalty=5.0, **(SETTINGS | {"x_bound": None}))
    with pytest.raises(BudgetError, match="penalty must be"):
        method(X, Y, penalty=0.0, **SETTINGS)
    with pytest.raises(DataError, match="X must have two axes"):
        method(X[:, 0], Y, penalty=5.0, **SETTINGS)
    with pytest.raises(BudgetError, match="neighbours must be"):
        method(X, Y, penalty=5.0, neighbours="both", **SETTINGS)


def test_regressions_refuse_bad_input() -> None:
    good: dict[str, Any] = {"epsilon": 1.0, "x_bound": 1.0, "y_bound": 1.0, "penalty": 1.0}
    for method in (regression_from_statistics,):
        for name in ("epsilon", "x_bound", "y_bound"):
            with pytest.raises(BudgetError, match=f"{name} must be"):
                method(X, X[:, 0], **(good | {name: None}))
        with pytest.raises(DataError, match="one entry for each"):
            method(X, X, **good)
        with pytest.raises(BudgetError, match="delta must be"):
            method(X, X[:, 0], delta=1.0, **good)
