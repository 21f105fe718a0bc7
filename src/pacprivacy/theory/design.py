"""Privacy-conscious design: ridge penalties and descent steps that know of the noise to come.

A release whose every coordinate gets noise of ``C`` times its own variance over subsets has the
error ``Bias² + (1 + C) Variance + floor``. ``C``, the *noise ratio*, grows as the budget shrinks,
so a private release wants more regularisation and smaller steps than a public one. ``J`` is the
bound of claim D-3 on the error of noisy gradient descent. Everything broadcasts over dimensions
and budgets.
"""

from typing import Final

import numpy as np
from scipy import special, stats

from pacprivacy._checks import Array, ArrayLike
from pacprivacy.errors import BudgetError

_NEWTON_STEPS: Final = 3  # from the Wright omega function's 1e-16 these only remove cancellation
_TAIL_STDS: Final = 12.0  # a binomial is beyond these with probability below 1e-30


def noise_ratio(mi_nats: ArrayLike, *, n_dimensions: int = 1, n_steps: int = 1) -> Array:
    """Noise variance over output variance when a budget is split evenly."""
    budget = _above_zero("mi_nats", mi_nats, advice="Use about 0.02 for a success below 60 %.")
    if n_dimensions < 1 or n_steps < 1:
        raise BudgetError(
            f"n_dimensions and n_steps must be at least 1; got {n_dimensions} and {n_steps}. "
            "Count the released numbers."
        )
    return np.asarray(n_dimensions * n_steps / (2.0 * budget))


def ridge_penalty(signal: ArrayLike, noise_var: ArrayLike, *, ratio: ArrayLike = 0.0) -> Array:
    """Ridge penalty of one orthogonal coordinate that is best for the released coefficient.

    Guarantee
    ---------
    Claim D-2. Least expected squared error, whatever the sum of squares of the coordinate is.
    """
    power = np.square(np.asarray(signal, dtype=np.float64))
    spread = (1.0 + _not_negative("ratio", ratio)) * _not_negative("noise_var", noise_var)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        penalty = np.asarray(spread / power)
    return np.where(power == 0.0, np.inf, penalty)


def descent_step(
    *,
    start_error: ArrayLike,
    gradient_var: ArrayLike,
    convexity: ArrayLike,
    n_steps: int,
    ratio: ArrayLike = 0.0,
    largest: ArrayLike = np.inf,
    exact: bool = False,
) -> Array:
    """Step size by formula: the minimiser of ``J`` with ``(1-ημ)^T`` replaced by ``exp(-ημT)``.

    If ``exact``, the minimiser of ``J`` itself, on ``[0, min(largest, 1/μ)]``.

    Guarantee
    ---------
    Claim D-4. ``J`` has one stationary point on ``(0, 1/μ)``, a minimum; exactly, it is bracketed
    and halved down to neighbouring doubles.
    """
    pull, alpha = _pull(start_error, gradient_var, convexity, n_steps=n_steps, ratio=ratio)
    most, mu = _above_zero("largest", largest, advice="Pass 1/L."), _convexity(convexity)
    if exact:
        return np.asarray(_least_point(pull, np.minimum(most * mu, 1.0), n_steps) / mu)
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.log(np.real(special.wrightomega(pull + 1.0)))
        # e^u + u = z; near u = 0 the logarithm has lost digits that Newton's steps bring back.
        for _ in range(_NEWTON_STEPS):
            scaled = scaled - np.where(
                scaled < 1.0, (np.expm1(scaled) + scaled - pull) / (np.exp(scaled) + 1.0), 0.0
            )
    scaled = np.where(np.isinf(pull), np.inf, scaled)
    return np.asarray(np.minimum(scaled / alpha, most))


def _least_point(pull: Array, cap: Array, n_steps: int) -> Array:
    pull, cap = np.broadcast_arrays(pull, cap)
    flat, edge = pull.ravel(), cap.ravel()
    # Non-negative doubles are ordered like their bit patterns: bisecting those ends on the
    # smallest double at which J no longer falls, in at most 62 steps.
    low, high = np.zeros_like(edge).view(np.int64), edge.copy().view(np.int64)
    while np.any(high - low > 1):
        middle = low + (high - low) // 2
        falls = _stationarity(middle.view(np.float64), n_steps) < flat
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    return np.where(flat > 0.0, high.view(np.float64), 0.0).reshape(pull.shape)


def descent_shares(step: float, *, convexity: float, n_steps: int) -> Array:
    """Shares of the budget per step that minimise ``J``: later steps get more.

    Noise of an early step is contracted by every later one. With shares ``b_t`` the bound holds
    ``Σ_t (1-ημ)^(T-1-t) / b_t``, least for ``b_t ∝ (1-ημ)^((T-1-t)/2)``.
    """
    keep = 1.0 - float(step) * float(_convexity(convexity))
    if not 0.0 < keep <= 1.0:
        raise BudgetError(
            f"step must be at least 0 and below 1/convexity; got {step}. Cap it at 1/L."
        )
    ages = np.arange(_check_steps(n_steps) - 1, -1, -1, dtype=np.float64)
    # The first shares of a long run may be too small for a double: keep them positive.
    logs = np.maximum(0.5 * ages * np.log(keep), -300.0)
    shares: Array = np.exp(logs) / np.exp(logs).sum()
    return shares


def mean_inverse_size(n_records: int, *, rate: float = 0.5) -> float:
    """Return ``E[1/k | k >= 1]`` for ``k ~ Binomial(n, rate)``, the size of a Poisson subset."""
    if n_records < 1 or not 0.0 < rate <= 1.0:
        raise BudgetError(
            f"n_records must be at least 1 and rate above 0 and at most 1; got {n_records} and "
            f"{rate}. Use rate 0.5 for the smallest prior."
        )
    middle = n_records * rate
    reach = _TAIL_STDS * np.sqrt(middle * (1.0 - rate)) + 50.0
    sizes = np.arange(max(1, int(middle - reach)), min(n_records, int(middle + reach) + 1) + 1)
    weights = stats.binom.pmf(sizes, n_records, rate)
    return float((weights / sizes).sum() / weights.sum())


def subset_mean_variance(sample_variance: ArrayLike, n_records: int, *, rate: float = 0.5) -> Array:
    """Variance of the mean over a Poisson subset, given that it is not empty.

    Guarantee
    ---------
    Claim D-5. Exact: no estimate, whatever the values are.
    """
    if n_records < 2:
        raise BudgetError(f"n_records must be at least 2; got {n_records}. Pass more records.")
    spread = _not_negative("sample_variance", sample_variance)
    return np.asarray(spread * (mean_inverse_size(n_records, rate=rate) - 1.0 / n_records))


def _pull(
    start_error: ArrayLike,
    gradient_var: ArrayLike,
    convexity: ArrayLike,
    *,
    n_steps: int,
    ratio: ArrayLike,
) -> tuple[Array, Array]:
    """Return ``α e0²/β`` and ``α``; without gradient variance the first is infinite."""
    mu = _convexity(convexity)
    spread = (1.0 + _not_negative("ratio", ratio)) * _not_negative("gradient_var", gradient_var)
    alpha = mu * _check_steps(n_steps)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        pull = alpha * mu * _not_negative("start_error", start_error) / spread
    return np.where(np.isnan(pull), 0.0, pull), np.asarray(alpha)


def _stationarity(shrink: Array, n_steps: int) -> Array:
    """Return the increasing function whose value ``α e0²/β`` marks the minimum of ``J``.

    ``T h + (1-h)((1-h)^-T - 1)`` at ``h = ημ``; convex, zero at zero.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_keep = np.log1p(-shrink)
        # One power is kept apart so that the end h = 1 is T for T = 1 and infinite beyond.
        powers = np.exp((1 - n_steps) * log_keep) if n_steps > 1 else np.ones_like(shrink)
        grown = np.where(shrink < 0.5, (1.0 - shrink) * np.expm1(-n_steps * log_keep), 0.0)
        grown = np.where(shrink < 0.5, grown, powers - (1.0 - shrink))
    return np.asarray(n_steps * shrink + grown)


def _convexity(value: ArrayLike) -> Array:
    return _above_zero("convexity", value, advice="Use an l2 penalty: it is the strong convexity.")


def _check_steps(n_steps: int) -> int:
    if n_steps < 1:
        raise BudgetError(f"n_steps must be at least 1; got {n_steps}. Take one step.")
    return n_steps


def _above_zero(name: str, value: ArrayLike, *, advice: str) -> Array:
    """Return the argument as an array; refuse anything but numbers above 0."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array > 0.0):
        raise BudgetError(f"{name} must be above 0; got {_shown(value)}. {advice}")
    return array


def _not_negative(name: str, value: ArrayLike) -> Array:
    """Return the argument as an array; refuse negative and missing numbers."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(array >= 0.0):
        raise BudgetError(
            f"{name} must be at least 0; got {_shown(value)}. Pass variances, not deviations."
        )
    return array


def _shown(value: ArrayLike) -> str:
    """Describe an argument: a single number as it is, an array by its shape."""
    array = np.asarray(value)
    return str(value) if array.ndim == 0 else f"an array of shape {array.shape}"
