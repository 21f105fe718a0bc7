"""A network as critic: a bound that holds, and finds gaps that linear features miss."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest

import pacprivacy as pac
from pacprivacy.errors import PacPrivacyError
from pacprivacy.noise import calibrate
from pacprivacy.residual import exact_gap, variational_gap

pytest.importorskip("jax")
from papers.residual.neural_critic import fit_neural_critic

pytestmark = pytest.mark.usefixtures("quick_compiler")
SMALL: dict[str, Any] = {"hidden": 32, "n_steps": 800, "n_train": 60_000, "batch": 1024, "rng": 1}
HEAVY = np.random.default_rng(0).standard_t(2.5, size=(256, 2))


@pytest.mark.claim("RP-7")
def test_the_bound_holds_and_a_network_sees_heavy_tails() -> None:
    plan = calibrate(HEAVY, pac.Information(1.0), rule="waterfill")
    truth = exact_gap(HEAVY, plan, rng=0)
    critic = fit_neural_critic(HEAVY, plan, **SMALL)
    found = variational_gap(HEAVY, plan, critic=critic, n_draws=200_000, gamma=1e-3, rng=0)
    linear = variational_gap(HEAVY, plan, n_draws=200_000, gamma=1e-3, rng=0)
    assert found.lower <= truth.upper
    assert found.lower > 0.4 * truth.value
    assert found.lower > linear.lower, (found.lower, linear.lower, truth.value)


def test_values_stay_within_the_stated_bounds_far_out() -> None:
    plan = calibrate(HEAVY, pac.Information(1.0), rule="waterfill")
    critic = fit_neural_critic(HEAVY, plan, **(SMALL | {"n_steps": 20, "n_train": 2000}))
    far = 1e6 * np.random.default_rng(0).normal(size=(100, 2))
    assert critic(far).min() >= critic.low
    assert critic(far).max() <= critic.high
    again = fit_neural_critic(HEAVY, plan, **(SMALL | {"n_steps": 20, "n_train": 2000}))
    np.testing.assert_array_equal(critic(far), again(far))


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.split(".")[0] in {"jax", "optax"}:
            raise ImportError(name)
        return real(name, *args, **options)

    plan = calibrate(HEAVY, pac.Information(1.0), rule="waterfill")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PacPrivacyError, match=r"pip install '\.\[jax\]'"):
        fit_neural_critic(HEAVY, plan)
