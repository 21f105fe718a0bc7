"""What the best attacker gains on a DP release, by code that shares nothing with the library.

The advantage of the best guess is the total variation distance of two outputs. It is computed here
by quadrature, by convolution on a grid, and by dp-accounting asked directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import optimize, stats

from pacprivacy import dp
from pacprivacy.dp import DPRelease


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


# Ready methods on columns within [-1, 1]; a target is within [-1, 1] or -1 and 1.
N_STEPS = 100


class DPRecords(NamedTuple):
    X: Any
    y: Any
    delta: float


def _settings(records: DPRecords, epsilon: float) -> dict[str, Any]:
    return {
        "X": np.column_stack([records.X, np.ones(len(records.X))]),
        "y": records.y,
        "x_bound": math.sqrt(records.X.shape[1] + 1),
        "epsilon": epsilon,
        "delta": records.delta,
        "simulate": 0,
    }


def _laplace_column(records: DPRecords, epsilon: float) -> DPRelease:
    total = dp.sum_clipped(records.X[:, :1], clip_norm=1.0)
    return dp.laplace(total, sensitivity=1.0, epsilon=epsilon, neighbours="add_remove", simulate=0)


def gaussian_sum(records: DPRecords, epsilon: float) -> DPRelease:
    bound = math.sqrt(records.X.shape[1])
    total = dp.sum_clipped(records.X, clip_norm=bound)
    return dp.gaussian(
        total,
        sensitivity=bound,
        epsilon=epsilon,
        delta=records.delta,
        neighbours="add_remove",
        simulate=0,
    )


def _descent(loss: Any, batched: bool) -> Any:
    def run(records: DPRecords, epsilon: float) -> DPRelease:
        n, settings = len(records.X), _settings(records, epsilon)
        batch: Any = dp.FullBatch(n_public=n)
        if batched:
            batch = dp.PoissonBatch(size=n / 10, n_public=n)
        steps = dp.Steps(
            n_steps=N_STEPS, clip_norm=0.35 * settings["x_bound"], momentum=0.9, squares=0.99
        )
        return dp.dp_sgd(loss=loss, batch=batch, steps=steps, **settings)

    return run


def _output(records: DPRecords, epsilon: float) -> DPRelease:
    settings = _settings(records, epsilon)
    return dp.output_perturbation(classes=CLASSES, penalty=50.0, **settings)


def _objective(records: DPRecords, epsilon: float) -> DPRelease:
    settings = _settings(records, epsilon)
    penalty = 6 * dp.least_penalty(epsilon, x_bound=settings["x_bound"])
    return dp.objective_perturbation(classes=CLASSES, penalty=penalty, **settings)


CLASSES = (-1.0, 1.0)
DP_METHODS: dict[str, dict[str, Callable[[DPRecords, float], DPRelease]]] = {
    "sum": {"Laplace": _laplace_column, "Gaussian": gaussian_sum},
    "ridge": {
        "AdaSSP": lambda r, e: dp.adassp(y_bound=1.0, **_settings(r, e)),
        "noisy statistics": lambda r, e: dp.regression_from_statistics(
            y_bound=1.0, **_settings(r, e)
        ),
        "DP-GD": _descent(dp.Squared(y_bound=1.0), batched=False),
        "DP-SGD": _descent(dp.Squared(y_bound=1.0), batched=True),
    },
    "logistic": {
        "output perturbation": _output,
        "objective perturbation": _objective,
        "DP-GD": _descent(dp.Logistic(classes=CLASSES), batched=False),
        "DP-SGD": _descent(dp.Logistic(classes=CLASSES), batched=True),
    },
}


def mapped(X: Any, y: Any, model: str, delta: float) -> DPRecords:
    """Map every column to [-1, 1], and the target to what the model reads."""
    low, high = X.min(axis=0), X.max(axis=0)
    if model == "logistic":
        y = np.where(y == np.unique(y)[1], 1.0, -1.0)
    else:
        y = 2 * (y - y.min()) / (y.max() - y.min()) - 1
    return DPRecords(2 * (X - low) / (high - low) - 1, y, delta)


def calibrated(
    method: Callable[[DPRecords, float], DPRelease], records: DPRecords, target: float
) -> DPRelease:
    """Release at the epsilon where the certificate of the method states the advantage."""
    epsilon = dp.calibrate_to_advantage(
        lambda trial: 2 * method(records, trial).certificate.membership_bound - 1,
        target,
        delta=records.delta,
    )
    return method(records, epsilon)


def _gain_of(method: str, release: DPRelease) -> float:
    """What an attacker gains on a release, from its promise or its noise."""
    certificate = release.certificate
    if method == "Laplace":
        return laplace_gain((certificate.epsilon,))
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


def check_dp_methods(X: Any, y: Any, model: str, *, success: float) -> None:
    """Hold every DP method of a model to the success, by its certificate and by its gain."""
    target, records = 2 * success - 1, mapped(X, y, model, 1e-4)
    for name, method in DP_METHODS[model].items():
        release = calibrated(method, records, target)
        advantage = 2 * release.certificate.membership_bound - 1
        assert 0.99 * target <= advantage <= target + 1e-15, name
        within = 0.03 if name == "objective perturbation" else 0.01
        assert _gain_of(name, release) == pytest.approx(target, rel=within), name
