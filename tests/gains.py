"""What the best attacker gains on a DP release, by code that shares nothing with the library.

The advantage of the best guess is the total variation distance of two outputs. It is computed here
by quadrature, by convolution on a grid, and by dp-accounting asked directly.
"""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import optimize, stats

from pacprivacy.comparison import Comparison, compare
from pacprivacy.comparison.contenders import MODELS, N_STEPS, ContenderRecords
from pacprivacy.dp import DPRelease

__all__ = ["check_comparison", "descent_gain", "gaussian_gain", "laplace_gain", "parameter_at"]


def gaussian_gain(mu: float) -> float:
    """Half the area between two unit Gaussians at distance ``mu``."""
    x = np.linspace(-12, 12 + mu, 40_001)
    return float(np.trapezoid(np.abs(stats.norm.pdf(x) - stats.norm.pdf(x, mu)), x) / 2)


def laplace_gain(shifts: tuple[float, ...], epsilon: float = 0.0, n: int = 1 << 13) -> float:
    """``sup P(S) - e^ε Q(S)`` for unit Laplace noise: losses on a grid, convolved."""
    x = stats.laplace.ppf((np.arange(200_000) + 0.5) / 200_000)
    step = 4 * sum(shifts) / n
    spectrum = np.ones(n // 2 + 1, dtype=complex)
    for shift in set(shifts):
        index = np.rint((np.abs(x - shift) - np.abs(x)) / step).astype(np.int64)
        one = np.bincount(index % n, minlength=n) / len(x)
        spectrum *= np.fft.rfft(one) ** shifts.count(shift)
    law, losses = np.fft.irfft(spectrum, n), step * np.fft.fftfreq(n, 1 / n)
    return float((law * np.maximum(0.0, -np.expm1(epsilon - losses)))[losses > epsilon].sum())


def descent_gain(noise: float, rate: float, n_steps: int) -> float:
    """Poisson-sampled Gaussian steps, by dp-accounting's accountant on its own."""
    one = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    return float(PLDAccountant().compose(one, n_steps).get_delta(0.0))


def parameter_at(epsilon: float, delta: float) -> float:
    """``μ`` of the Gaussian mechanism that has ``delta`` at ``epsilon``, by a root of the curve."""

    def excess(mu: float) -> float:
        first = stats.norm.cdf(mu / 2 - epsilon / mu)
        return float(first - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(optimize.brentq(excess, 1e-3, 20.0))


def _gain_of(method: str, release: DPRelease, n_features: int) -> float:
    """What an attacker gains on a release, from its promise or its noise."""
    certificate = release.certificate
    if method == "Laplace":
        return laplace_gain((certificate.epsilon / n_features,) * n_features)
    if method == "DP-SGD":
        assert certificate.accounting is not None
        return descent_gain(certificate.accounting["noise multiplier"], 0.1, N_STEPS)
    if method == "objective perturbation":
        assert certificate.accounting is not None
        left = certificate.accounting["epsilon of the linear term"]
        # The linear term; the solver's share is 2 % of ε and adds less than a quarter of that.
        tilt = gaussian_gain(parameter_at(left, certificate.delta))
        return tilt + 0.25 * certificate.accounting["epsilon of the solver"]
    return gaussian_gain(parameter_at(certificate.epsilon, certificate.delta))


def _check_rows(found: Comparison, records: ContenderRecords) -> None:
    target = 2 * found.success - 1
    rows = [row for row in found.rows if row.family == "DP"]
    assert [row.method for row in rows] == list(MODELS[found.model].methods)
    for row in rows:
        assert row.advantage is not None, row.note
        assert 0.99 * target <= row.advantage <= target
        assert row.epsilon is not None
        release = MODELS[found.model].methods[row.method](records, row.epsilon, 0)
        gain = _gain_of(row.method, release, records.X.shape[1])
        within = 0.03 if row.method == "objective perturbation" else 0.01
        assert gain == pytest.approx(target, rel=within), row.method


def _mapped(X: Any, y: Any, model: str, delta: float) -> ContenderRecords:
    low, high = X.min(axis=0), X.max(axis=0)
    target = None
    if model == "ridge":
        target = 2 * (y - y.min()) / (y.max() - y.min()) - 1
    elif model == "logistic":
        target = np.where(y == np.unique(y)[1], 1.0, -1.0)
    return ContenderRecords(X=2 * (X - low) / (high - low) - 1, y=target, delta=delta)


def check_comparison(X: Any, y: Any, model: str, *, success: float) -> None:
    """Compare PAC and DP on a few records, and hold every DP row to the success."""
    found = compare(
        X,
        None if model == "mean" else y,
        model=model,
        success=success,
        ranges=(X.min(axis=0), X.max(axis=0)),
        target_range=(float(np.min(y)), float(np.max(y))),
        test=None if model == "mean" else (X, y),
        delta=1e-4,
        rules=("diagonal",),
        n_subsets=8,
        n_releases=2,
        n_dp_releases=2,
        rng=0,
    )
    _check_rows(found, _mapped(X, y, model, 1e-4))
