"""DP-SGD for JAX losses."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from pacprivacy._random import SystemSource
from pacprivacy.dp import FixedBatch, Logistic, PoissonBatch, Steps, dp_sgd, dp_sgd_jax
from pacprivacy.errors import BudgetError, DataError, MechanismError, PacPrivacyError

jax = pytest.importorskip("jax")

STEPS = Steps(n_steps=12, learning_rate=1.0, clip_norm=0.5)
BATCH = PoissonBatch(size=100, n_public=1000)


def logistic(weights: Any, x: Any, y: Any) -> Any:
    return jax.numpy.logaddexp(0.0, -(2 * y - 1) * (x @ weights["w"]))


def data(n: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    y = generator.integers(2, size=n).astype(np.int32)
    X = generator.normal(size=(n, 3)) * 0.4 + np.where(y[:, None] == 1, 0.5, -0.5)
    return X.astype(np.float32), y


@pytest.mark.claim("G-1")
@pytest.mark.parametrize("chunk", [1, 64])
def test_jax_and_numpy_take_the_same_steps(chunk: int) -> None:
    X, y = data()
    common: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "batch": BATCH, "steps": STEPS}
    ours = dp_sgd(X, y, loss=Logistic(classes=(0, 1)), x_bound=10.0, simulate=5, **common)
    start = {"w": np.zeros(3, dtype=np.float32)}
    theirs = dp_sgd_jax(logistic, start, (X, y), chunk=chunk, simulate=5, **common)
    np.testing.assert_allclose(theirs.value["w"], ours.value, atol=2e-5)
    assert theirs.certificate.accounting == ours.certificate.accounting
    assumed = any("64 at a time" in line for line in theirs.certificate.assumptions)
    assert assumed == (chunk == 64)


def test_gradients_that_are_not_finite_count_as_zero() -> None:
    X, y = data(200)
    X[7] = np.inf
    release = dp_sgd_jax(
        logistic,
        {"w": np.zeros(3)},
        (X, y),
        epsilon=2.0,
        delta=1e-5,
        batch=FixedBatch(size=50),
        steps=STEPS,
        simulate=1,
    )
    assert np.isfinite(release.value["w"]).all()
    assert release.certificate.neighbours == "replace"


def test_bad_losses_are_refused_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def spend(self: object, size: int) -> None:
        raise AssertionError("something was drawn")

    monkeypatch.setattr(SystemSource, "words", spend)
    X, y = data(50)
    start = {"w": np.zeros(3)}
    good: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "batch": BATCH, "steps": STEPS}
    with pytest.raises(MechanismError, match="loss must return a scalar"):
        dp_sgd_jax(lambda w, x, y: x * w["w"], start, (X, y), **good)
    with pytest.raises(MechanismError, match="KeyError"):
        dp_sgd_jax(lambda w, x, y: w["v"].sum(), start, (X, y), **good)
    with pytest.raises(DataError, match="equal first axes"):
        dp_sgd_jax(logistic, start, (X, y[:3]), **good)
    with pytest.raises(DataError, match="start must be finite"):
        dp_sgd_jax(logistic, {"w": np.full(3, np.nan)}, (X, y), **good)
    with pytest.raises(BudgetError, match="epsilon"):
        dp_sgd_jax(logistic, start, (X, y), **(good | {"epsilon": -1.0}))
    with pytest.raises(BudgetError, match="chunk"):
        dp_sgd_jax(logistic, start, (X, y), chunk=0, **good)


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    X, y = data(50)
    with pytest.raises(PacPrivacyError, match=r"pip install '\.\[jax\]'"):
        dp_sgd_jax(
            logistic, {"w": np.zeros(3)}, (X, y), epsilon=1.0, delta=1e-5, batch=BATCH, steps=STEPS
        )
