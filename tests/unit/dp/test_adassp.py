"""AdaSSP: the exact Gaussian condition, sensitivities, exact sums, and what it is worth."""

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

from pacprivacy.dp import DPRelease, adassp
from pacprivacy.dp.linear_models import (
    regression_sensitivities,
)
from pacprivacy.dp.records import ROW_BITS, WholeRows, regression_sums
from pacprivacy.errors import BudgetError, DataError
from pacprivacy.theory import gaussian_delta, gaussian_parameter


def regression(n: int = 2000, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, size=(n, d))
    return X, X @ np.linspace(1, -1, d) + 0.1 * generator.normal(size=n)


def noise_std(fit: DPRelease) -> list[float]:
    """Noise of the least eigenvalue, of the entries of XᵀX and of Xᵀy."""
    assert fit.certificate.noise is not None
    return list(fit.certificate.noise.values())


@pytest.mark.claim("D-9")
@pytest.mark.parametrize("epsilon", [0.05, 0.36, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.05])
def test_gaussian_parameter_agrees_with_the_accountant(epsilon: float, delta: float) -> None:
    found = gaussian_parameter(epsilon, delta)
    theirs = GaussianPrivacyLoss.from_privacy_guarantee(
        DifferentialPrivacyParameters(epsilon, delta)
    ).standard_deviation
    assert found == pytest.approx(1 / theirs, rel=1e-4)  # their search stops at 1e-7 or so
    assert gaussian_delta(epsilon, found) <= delta
    assert gaussian_delta(epsilon, found * 1.001) > delta


def test_gaussian_delta_by_integration() -> None:
    x = np.linspace(-12, 14, 2_000_001)
    for epsilon, parameter in ((1.0, 1.0), (0.1, 0.5), (3.0, 2.0)):
        p = np.exp(-((x - parameter) ** 2) / 2) / math.sqrt(2 * math.pi)
        q = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        direct = np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * (x[1] - x[0])
        assert gaussian_delta(epsilon, parameter) == pytest.approx(direct, rel=1e-6)


@pytest.mark.claim("D-9")
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_no_record_moves_a_statistic_further_than_stated(neighbours: str) -> None:
    generator = np.random.default_rng(1)
    x_bound, y_bound = 2.0, 3.0
    reach = regression_sensitivities(x_bound, y_bound, neighbours)  # type: ignore[arg-type]
    upper = np.triu_indices(3)
    worst = np.zeros(3)

    def statistics(X: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        gram, products = regression_sums(X, y, x_bound, y_bound)
        return [np.linalg.eigvalsh(gram)[:1], gram[upper], products]

    for _ in range(400):
        X = generator.normal(size=(6, 3)) * np.exp(generator.normal(0, 3))
        y = generator.normal(size=6) * 10
        extreme = np.zeros((1, 3))
        extreme[0, generator.integers(3)] = generator.choice([-9.0, 9.0])
        other = np.vstack([X[:5], extreme]), np.append(y[:5], generator.choice([-99.0, 99.0]))
        near = other if neighbours == "replace" else (X[:5], y[:5])
        if generator.random() < 0.5 and neighbours == "add_remove":
            X, y = other
        moved = [
            np.linalg.norm(a - b) for a, b in zip(statistics(X, y), statistics(*near), strict=True)
        ]
        worst = np.maximum(worst, moved)
    assert (worst <= np.array(reach) * (1 + 1e-6)).all()
    assert (worst[1:] > 0.6 * np.array(reach)[1:]).all()  # the bounds are nearly reached


@pytest.mark.claim("D-9")
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.09, 1e-6), (1.64, 1e-5), (6.0, 1e-9)])
def test_noise_of_the_three_releases_together_keeps_the_promise(
    neighbours: str, epsilon: float, delta: float
) -> None:
    X, y = regression(n=200)
    fit = adassp(
        X,
        y,
        epsilon=epsilon,
        delta=delta,
        x_bound=1.5,
        y_bound=2.0,
        neighbours=neighbours,  # type: ignore[arg-type]
        simulate=0,
    )
    reach = regression_sensitivities(1.5, 2.0, neighbours)  # type: ignore[arg-type]
    joint = math.sqrt(sum((s / std) ** 2 for s, std in zip(reach, noise_std(fit), strict=True)))
    assert gaussian_delta(epsilon, joint) <= delta
    assert gaussian_delta(epsilon, joint * 1.001) > delta * 0.99  # and no more noise than that
    shares = [s / std for s, std in zip(reach, noise_std(fit), strict=True)]
    np.testing.assert_allclose(shares, shares[0], rtol=1e-4)


@pytest.mark.claim("D-9")
def test_clipping_keeps_the_bounds_and_sums_are_exact() -> None:
    generator = np.random.default_rng(2)
    X = generator.normal(size=(5000, 2)) * np.exp(generator.normal(size=(5000, 1)))
    y = generator.normal(size=5000) * 4
    whole = WholeRows(X, 1.25).whole
    largest = 1 << ROW_BITS
    assert (np.sqrt((whole**2).sum(axis=1)) <= largest).all()
    inside = np.linalg.norm(X, axis=1) < 1.25
    np.testing.assert_allclose(whole[inside] * 1.25 / largest, X[inside], atol=2e-6)
    target = np.trunc(np.clip(y / 2.0, -1, 1) * largest)
    gram, products = regression_sums(X, y, 1.25, 2.0)
    rows = [[Fraction(int(v), largest) for v in row] for row in whole]
    assert gram[0, 1] == pytest.approx(float(sum(r[0] * r[1] for r in rows)) * 1.25**2, rel=1e-15)
    exact = sum(r[1] * Fraction(int(t), largest) for r, t in zip(rows, target, strict=True))
    assert products[1] == pytest.approx(float(exact) * 2.5, rel=1e-15)


def test_penalty_is_that_of_the_paper() -> None:
    X, y = regression(n=400)
    fit = adassp(X, y, epsilon=0.05, delta=1e-6, x_bound=1.8, y_bound=2.0, simulate=3)
    # So little data that the least eigenvalue counts as zero: only the Gram noise decides.
    wanted = noise_std(fit)[1] * math.sqrt(3 * math.log(2 * 9 / 0.05))
    assert fit.value["penalty"] == pytest.approx(wanted)
    X, y = regression(n=200_000)
    fit = adassp(X, y, epsilon=1.0, delta=1e-6, x_bound=1.8, y_bound=2.0, simulate=3)
    assert fit.value["penalty"] == 0.0
    np.testing.assert_allclose(fit.value["coef"], [1.0, 0.0, -1.0], atol=0.02)


def test_noise_reaches_the_coefficients() -> None:
    X, y = regression(n=5000)
    fits = np.array(
        [
            adassp(X, y, epsilon=0.5, delta=1e-6, x_bound=1.8, y_bound=2.0, simulate=i).value[
                "coef"
            ]
            for i in range(300)
        ]
    )
    single = adassp(X, y, epsilon=0.5, delta=1e-6, x_bound=1.8, y_bound=2.0, simulate=0)
    # With w the coefficient, noise of Xᵀy and of XᵀX w add up; the Gram matrix is about n/3.
    strength = 5000 / 3 + single.value["penalty"]
    noise_var = noise_std(single)[2] ** 2 + 2 * noise_std(single)[1] ** 2
    spread = fits.std(axis=0) * strength / math.sqrt(noise_var)
    assert (spread > 0.5).all()
    assert (spread < 1.5).all()


def test_real_noise_is_not_seeded_and_is_said() -> None:
    X, y = regression(n=500)
    settings = {"epsilon": 1.0, "delta": 1e-6, "x_bound": 1.8, "y_bound": 2.0}
    first, second = adassp(X, y, **settings), adassp(X, y, **settings)
    assert not np.array_equal(first.value["coef"], second.value["coef"])
    assert "one has one record more" in str(first.certificate)
    assert "SIMULATION" not in str(first.certificate)
    seeded = adassp(X, y, **settings, neighbours="replace", simulate=1)
    assert "SIMULATION" in " ".join(str(seeded.certificate).split())
    assert "differ in the content of one record" in " ".join(str(seeded.certificate).split())
    again = adassp(X, y, **settings, neighbours="replace", simulate=1)
    np.testing.assert_array_equal(seeded.value["coef"], again.value["coef"])


def test_adassp_is_refused_in_words() -> None:
    X, y = regression(n=50)
    good = {"epsilon": 1.0, "delta": 1e-6, "x_bound": 1.8, "y_bound": 2.0}
    for bad, match in (
        ({"epsilon": 0.0}, "epsilon must be a positive"),
        ({"delta": 0.0}, "delta must be between 0 and 1"),
        ({"x_bound": -1.0}, "x_bound must be a positive"),
        ({"y_bound": np.inf}, "y_bound must be a positive"),
        ({"neighbours": "swap"}, "neighbours must be"),
        ({"gamma": 1.0}, "gamma must be between"),
    ):
        with pytest.raises(BudgetError, match=match):
            adassp(X, y, **(good | bad))
    with pytest.raises(DataError, match="one entry for each"):
        adassp(X, y[:10], **good)
    with pytest.raises(BudgetError, match="delta must be between"):
        gaussian_parameter(1.0, 2.0)
