"""Certificates of differential privacy: the promise follows from the events, the rest is named."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import pacprivacy as pac
from pacprivacy import dp
from pacprivacy.dp import DPCertificate
from pacprivacy.dp.accounting import NOT_CHECKABLE_DP, ORDERS, renyi_divergences, verify_dp
from pacprivacy.dp.accuracy_first import NoiseReduction
from pacprivacy.errors import BudgetError, CertificateError

X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
LABELS = X[:, 0] > 0
COMMON: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def descend() -> Any:
    return dp.dp_sgd(
        X,
        LABELS,
        loss=dp.Logistic(classes=(False, True)),
        x_bound=2.0,
        batch=dp.PoissonBatch(size=30, n_public=300),
        steps=dp.Steps(n_steps=4, learning_rate=0.5, clip_norm=1.0),
        **COMMON,
    )


def gradual() -> Any:
    levels = [0.1, 1.0, 4.0]
    return NoiseReduction([1.0], sensitivity=1.0, epsilons=levels, neighbours="replace").refine()


RELEASES: dict[str, Callable[[], Any]] = {
    "laplace": lambda: dp.laplace(1.0, sensitivity=1.0, epsilon=1.0, neighbours="replace"),
    "two numbers": lambda: dp.laplace(
        [1.0, 2.0], sensitivity=1.0, epsilon=1.0, neighbours="replace"
    ),
    "gaussian": lambda: dp.gaussian([1.0, 2.0], sensitivity=1.0, neighbours="replace", **COMMON),
    "objective": lambda: dp.objective_perturbation(
        X, LABELS, classes=(False, True), penalty=10.0, x_bound=2.0, **COMMON
    ),
    "descent": descend,
    "ex post": gradual,
}
TELL_THE_ADVANTAGE = {"laplace", "gaussian", "descent"}


@pytest.fixture(scope="module")
def certificates() -> dict[str, DPCertificate]:
    return {name: make().certificate for name, make in RELEASES.items()}


@pytest.mark.claim("R-6")
@pytest.mark.parametrize("name", RELEASES)
def test_a_real_certificate_is_verified(certificates: dict[str, DPCertificate], name: str) -> None:
    certificate = certificates[name]
    found = verify_dp(certificate)
    names = {field.name for field in fields(DPCertificate)}
    assert set(found.recomputed) | set(found.not_checkable) == names
    assert not set(found.recomputed) & set(found.not_checkable)
    assert ("epsilon" in found.not_checkable) == (name == "ex post")
    if certificate.advantage is not None:
        assert ("advantage" in found.recomputed) == (name in TELL_THE_ADVANTAGE)
    assert found.digest == certificate.digest


@pytest.mark.claim("R-6")
@pytest.mark.parametrize("name", RELEASES)
def test_a_forged_promise_is_refused(certificates: dict[str, DPCertificate], name: str) -> None:
    real = certificates[name]
    smaller = 0.99 * real.epsilon if real.kind == "dp" else 1.1 * 4.0
    forged = [
        replace(real, epsilon=smaller),
        replace(real, events=()),
        replace(real, not_promised=()),
        replace(real, not_promised=real.not_promised[1:]),
        replace(real, events=({"event": "magic"},)),
        replace(real, events=({"event": "pure", "epsilon": 9.0},), kind="dp"),
    ]
    if real.delta:
        forged.append(replace(real, delta=1e-12))
    if name in TELL_THE_ADVANTAGE:
        assert real.advantage is not None
        forged.append(replace(real, advantage=0.99 * real.advantage))
    for certificate in forged:
        with pytest.raises(CertificateError, match="must") as error:
            verify_dp(certificate)
        assert "\n" not in str(error.value)


@pytest.mark.claim("R-6", "DP-2")
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-6, 1e-12), (20.0, 1e-30), (600.0, 1e-6)])
def test_a_promise_at_the_edge_is_verified(epsilon: float, delta: float) -> None:
    """Where discrete noise costs more than δ, its Rényi divergences are those of continuous."""
    promise: Any = {"epsilon": epsilon, "delta": delta, "neighbours": "replace"}
    certificate = dp.gaussian([1.0, 2.0], sensitivity=1.0, **promise).certificate
    assert verify_dp(certificate).digest
    with pytest.raises(CertificateError, match="epsilon must follow"):
        verify_dp(replace(certificate, epsilon=0.9 * epsilon))


def test_whoever_states_more_than_the_events_cost_is_not_refused(
    certificates: dict[str, DPCertificate],
) -> None:
    verify_dp(replace(certificates["gaussian"], epsilon=2.0, advantage=0.5))


def test_the_table_names_fields() -> None:
    assert set(NOT_CHECKABLE_DP) < {field.name for field in fields(DPCertificate)}
    assert not set(NOT_CHECKABLE_DP) & {"epsilon", "delta", "advantage"}


def test_one_function_verifies_both_kinds(certificates: dict[str, DPCertificate]) -> None:
    certificate = certificates["laplace"]
    assert pac.verify(certificate) == verify_dp(certificate)
    with pytest.raises(CertificateError, match="bundle must be left out"):
        pac.verify(certificate, "curator.npz")
    release = pac.privatize(np.mean, X[:, 0], pac.Information(0.1), n_subsets=16, simulate=True)
    with pytest.raises(CertificateError, match="bundle must be given"):
        pac.verify(release.certificate)
    with pytest.raises(CertificateError, match="must be a Certificate or a DPCertificate"):
        pac.verify({"epsilon": 1.0})


@pytest.mark.claim("DP-32")
def test_the_trade_off_curve_is_a_little_below_the_gaussian_one() -> None:
    """The curve of three runs is that of one with noise smaller by the root of three."""
    curve = dp.trade_off(dp.GaussianEvent(noise_multiplier=2.0, count=3))
    rates = np.array([0.001, 0.05, 0.3, 0.8])
    truth = norm.cdf(norm.isf(rates) - math.sqrt(3) / 2)
    assert (curve.misses(rates) <= truth + 1e-12).all()
    np.testing.assert_allclose(curve.misses(rates), truth, atol=2e-3)
    # Randomised response at ε = 1: two straight lines that meet on the diagonal.
    pure = dp.trade_off(dp.PureEvent(epsilon=1.0))
    corner = 1 / (1 + math.e)
    assert pure.misses(corner) == pytest.approx(corner, abs=2e-3)
    assert pure.misses(0.0) == pytest.approx(1.0, abs=2e-3)
    with pytest.raises(BudgetError, match="false_alarms"):
        curve.misses(1.5)


def test_a_gaussian_run_is_concentrated_without_a_logarithm() -> None:
    """ρ-zCDP with ρ = 1/2m², m the noise multiplier: a divergence of ρ times the order."""
    found = renyi_divergences(dp.GaussianEvent(noise_multiplier=3.0), "add_remove")
    assert found == pytest.approx(np.array(ORDERS) / 18)
