"""What others would add: the papers' PAC rules and differential privacy at equal success."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pacprivacy._checks import Matrix, Vector, as_outputs, check_log_belief, check_positive, freeze
from pacprivacy._random import coerce_seed
from pacprivacy.adversary import exact_information
from pacprivacy.budget import Information
from pacprivacy.errors import BudgetError
from pacprivacy.noise import AnyRule, AutoConfidence, NoisePlan, calibrate, noise_covariance
from pacprivacy.residual.stackelberg import anisotropy
from pacprivacy.theory import gaussian_equivalent, posterior_success


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Noise of a baseline in the output's coordinates; curator-only.

    Attributes
    ----------
    name : str
        Which baseline.
    covariance : array of shape (d, d)
        Of the noise.
    promise : {"PAC", "DP"}
        What it stands for: another promise where it is differential privacy.
    mi_upper : float or None
        Proved information on the pool; None for differential privacy, which speaks of no pool.
    """

    name: str
    covariance: Matrix
    promise: Literal["PAC", "DP"]
    mi_upper: float | None

    def __post_init__(self) -> None:
        freeze(self.covariance)

    @property
    def total_variance(self) -> float:
        """Expected squared length of the noise."""
        return float(np.trace(self.covariance))


def _pac(name: str, outputs: object, mi_nats: float, rule: AnyRule) -> Baseline:
    plan: NoisePlan = calibrate(as_outputs(outputs), Information(mi_nats), rule=rule)
    return Baseline(
        name=name, covariance=noise_covariance(plan), promise="PAC", mi_upper=plan.mi_upper
    )


def auto_pac(outputs: object, mi_nats: float) -> Baseline:
    """Auto-PAC: noise in proportion to the spread along the principal directions."""
    return _pac("Auto-PAC", outputs, mi_nats, "spectral")


def auto_pac_confidence(
    outputs: object,
    mi_nats: float,
    *,
    security: float = 1e-3,
    share: float = 0.9,
    radius: float = 1.0,
) -> Baseline:
    """Auto-PAC with confidence: eigenvalues inflated for their estimation.

    The parameters are those of :class:`pacprivacy.noise.AutoConfidence`.
    """
    rule = AutoConfidence(security=security, share=share, radius=radius)
    return _pac("Auto-PAC with confidence", outputs, mi_nats, rule)


def efficient_pac(outputs: object, mi_nats: float) -> Baseline:
    """Efficient-PAC: noise in proportion to the spread of each output coordinate."""
    return _pac("Efficient-PAC", outputs, mi_nats, "diagonal")


def mean_sensitivity(
    clip_norm: float, n_records: int, *, neighbours: Literal["replace", "add or remove"] = "replace"
) -> float:
    """Return how far one record moves the mean of records clipped to a norm.

    ``2 C / n`` when a record is replaced by another, ``C / n`` when one is added to or removed
    from a sum that is divided by a public ``n``.
    """
    norm = check_positive("clip_norm", clip_norm, advice="Use a bound on most records' norm.")
    if n_records < 1:
        raise BudgetError(f"n_records must be positive; got {n_records}. Count the records.")
    return (2 if neighbours == "replace" else 1) * norm / n_records


def dp_gaussian(dimension: int, mi_nats: float, *, sensitivity: float) -> Baseline:
    """Gaussian mechanism of differential privacy at the success that a PAC budget allows.

    An information budget bounds any guess with prior 1/2 by some success ``q``; this is the noise
    under which the best guess whether a record is in has the same: ``Φ(μ/2) = q``, ``μ`` the
    sensitivity over the standard deviation. No ``(ε, δ)`` is in between. It is another promise,
    about whether a record is in the data at all.

    Parameters
    ----------
    dimension : int
        Of the output.
    mi_nats : float > 0
        The PAC budget.
    sensitivity : float > 0
        Euclidean sensitivity of the output after clipping, for example
        :func:`mean_sensitivity`.
    """
    reach = check_positive("sensitivity", sensitivity, advice="Clip the records first.")
    parameter = gaussian_equivalent(posterior_success(float(mi_nats)))
    if parameter == 0.0:
        raise BudgetError(
            f"mi_nats must allow more than a blind guess; got {mi_nats}. Use about 0.02."
        )
    variance = 0.0 if math.isinf(parameter) else (reach / parameter) ** 2
    return Baseline(
        name="DP Gaussian",
        covariance=variance * np.eye(dimension),
        promise="DP",
        mi_upper=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCurve:
    """What a rule does at each budget; curator-only.

    Attributes
    ----------
    rule : str
        Public name of the rule.
    budgets, true_mi, noise, uneven : arrays of shape (n,)
        Budget and true information in nats, total noise variance, and
        :func:`~pacprivacy.residual.anisotropy` of the noise.
    """

    rule: str
    budgets: Vector
    true_mi: Vector
    noise: Vector
    uneven: Vector

    def __post_init__(self) -> None:
        for array in (self.budgets, self.true_mi, self.noise, self.uneven):
            freeze(array)

    @property
    def privacy_slope(self) -> Vector:
        """Nats of true information per nat of budget, between consecutive budgets.

        A rule that spends what it is given has slope 1. The log-determinant rules fall below it
        where outputs are not Gaussian: part of every further nat buys nothing.
        """
        slope: Vector = np.diff(self.true_mi) / np.diff(self.budgets)
        return slope

    @property
    def utility_slope(self) -> Vector:
        """Change of total noise per nat of budget, between consecutive budgets; negative."""
        slope: Vector = np.diff(self.noise) / np.diff(self.budgets)
        return slope

    @property
    def is_coherent(self) -> bool:
        """Whether a larger budget never has more noise (within 1 %, the search's grain)."""
        return bool((self.noise[1:] <= 1.01 * self.noise[:-1]).all())


def budget_curve(
    outputs: object,
    budgets: Sequence[float],
    *,
    rule: AnyRule = "exact",
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> BudgetCurve:
    """Calibrate at each budget and measure what the noise really tells.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        The mechanism's output on every candidate subset.
    budgets : sequence of float
        In nats, increasing.
    rule, log_belief
        As in :func:`pacprivacy.noise.calibrate`.
    n_draws : int, optional
        Simulated releases behind each true information.
    """
    grid = np.asarray(budgets, dtype=np.float64)
    if grid.ndim != 1 or len(grid) < 2 or not (np.diff(grid) > 0).all():
        raise BudgetError(
            f"budgets must be at least two increasing numbers; got {len(grid)}. Sort them."
        )
    values, seed = as_outputs(outputs), coerce_seed(rng)
    log_p = check_log_belief(log_belief, len(values))
    plans = [calibrate(values, Information(b), rule=rule, log_belief=log_p, rng=seed) for b in grid]
    true_mi = [
        plan.mi_upper
        if plan.is_noiseless
        else exact_information(plan.view(values, log_p), n_draws=n_draws, rng=seed).value
        for plan in plans
    ]
    return BudgetCurve(
        rule=plans[0].rule,
        budgets=grid,
        true_mi=np.array(true_mi),
        noise=np.array([plan.total_variance for plan in plans]),
        uneven=np.array([anisotropy(plan) for plan in plans]),
    )
