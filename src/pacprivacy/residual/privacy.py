"""Residual privacy: reference laws, intrinsic privacy, disadvantage; of several releases.

A divergence is a name (``"kl"`` is in nats), or a convex ``f`` of arrays with ``f(1) = 0``, for
``Σ R f(p/R)``.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from pacprivacy._checks import ArrayLike, Matrix, Vector, as_outputs, check_log_belief
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary import (
    DEFAULT_GAMMA,
    View,
    draw_view_blocks,
    exact_information,
    information_divergences,
    information_draws,
    view_posterior,
)
from pacprivacy.budget import Information
from pacprivacy.errors import BudgetError, MechanismError, PoolError
from pacprivacy.noise import AnyRule, NoisePlan, calibrate
from pacprivacy.theory import (
    DIVERGENCES,
    DivergenceName,
    Estimate,
    bernoulli_kl,
    bernstein_estimate,
    entropy,
)

FLATTEST: Final = 1e-9  # directions of less relative variance do not move
Divergence: TypeAlias = DivergenceName | Callable[[Vector], Vector]


def reference_law(
    features: ArrayLike,
    kind: Literal["uniform", "truncated uniform", "gaussian", "sigmoid"],
    *,
    low: float = -math.inf,
    high: float = math.inf,
    log_belief: Vector | None = None,
) -> Vector:
    """Return ``ln R`` over the candidates for ``R(k) ∝ r(x_k)``.

    Parameters
    ----------
    features : array of shape (m,) or (m, q)
        ``x_k``: what the reference looks at, such as the candidates' outputs.
    kind : str
        ``uniform``: all alike. ``truncated uniform``: alike where every feature is within
        ``[low, high]``, none elsewhere. ``gaussian``: the normal density with the features' own
        mean and covariance. ``sigmoid``: the density that the sigmoid, applied to standardised
        features, pulls back from the uniform law (a product of logistic densities).
    low, high : float
        For ``truncated uniform``.
    log_belief : array of shape (m,), optional
        Law under which moments are matched; uniform by default.

    Returns
    -------
    array of shape (m,)
        Normalised; ``-inf`` where the reference rules a candidate out.
    """
    x = np.asarray(features, dtype=np.float64)
    x = x[:, None] if x.ndim == 1 else x.reshape(len(x), -1)
    weights = np.exp(check_log_belief(log_belief, len(x)))
    if kind == "uniform":
        log_r = np.zeros(len(x))
    elif kind == "truncated uniform":
        inside = ((x >= low) & (x <= high)).all(axis=1)
        if not inside.any():
            raise PoolError(
                f"low and high must leave at least one candidate; got {low} and {high}. "
                f"Widen the range."
            )
        log_r = np.where(inside, 0.0, -math.inf)
    elif kind == "gaussian":
        log_r = _gaussian_log_density(x, weights)
    elif kind == "sigmoid":
        log_r = _logistic_log_density(x, weights)
    else:
        raise PoolError(
            f"kind must be 'uniform', 'truncated uniform', 'gaussian' or 'sigmoid'; got {kind!r}. "
            f"Use 'uniform'."
        )
    return check_log_belief(log_r, len(x))


def _gaussian_log_density(x: Matrix, weights: Vector) -> Vector:
    """Return the normal log density up to a constant, along the directions that move."""
    centered = x - weights @ x
    values, vectors = np.linalg.eigh((centered.T * weights) @ centered)
    moving = values > FLATTEST * max(float(values[-1]), 1e-300)
    scores = centered @ vectors[:, moving] / np.sqrt(values[moving])
    log_density: Vector = -0.5 * np.square(scores).sum(axis=1)
    return log_density


def _logistic_log_density(x: Matrix, weights: Vector) -> Vector:
    centered = x - weights @ x
    std = np.sqrt(weights @ np.square(centered))
    scores = np.abs(centered[:, std > 0] / std[std > 0])
    # ln σ(s) + ln σ(-s), symmetric and without overflow
    log_density: Vector = -(scores + 2 * np.log1p(np.exp(-scores))).sum(axis=1)
    return log_density


def intrinsic_privacy(
    log_reference: ArrayLike | None = None,
    log_belief: Vector | None = None,
    *,
    n_subsets: int | None = None,
    divergence: Divergence = "kl",
) -> float:
    """Return ``-D(p || R)``: how close the secret is to the reference before any release.

    At most 0, and 0 if both laws agree. Laws are logarithms, uniform by default; ``n_subsets`` is
    needed where neither is there. The result is ``-inf`` where the reference rules out what the
    secret allows, but for the two bounded divergences.
    """
    sizes = [len(np.asarray(a)) for a in (log_reference, log_belief) if a is not None]
    size = sizes[0] if sizes else n_subsets
    if size is None or size < 2:
        raise PoolError(
            f"n_subsets must be at least 2 where no law is given; got {n_subsets}. "
            f"Pass the pool's size."
        )
    log_p = check_log_belief(log_belief, size)
    reference = None if log_reference is None else np.asarray(log_reference, dtype=np.float64)
    log_r = check_log_belief(reference, size)
    return 0.0 - max(0.0, _divergence(log_p, log_r, divergence))


def posterior_disadvantage(
    success: float, prior: float, *, intrinsic: float = 0.0, divergence: Divergence = "kl"
) -> float:
    """Return the remaining disadvantage of an attacker: ``intrinsic - D(success || prior)``.

    Both are chances, with the release and without it. ``intrinsic`` is that of
    :func:`intrinsic_privacy` for the same divergence.

    Guarantee
    ---------
    Claim RP-9. No attacker of a release falls below its residual privacy, whatever counts as
    success.
    """
    if not (0 <= success <= 1 and 0 <= prior <= 1):
        raise BudgetError(
            f"success and prior must be between 0 and 1; got {success} and {prior}. Pass "
            "fractions, not percentages."
        )
    if divergence == "kl":
        return intrinsic - bernoulli_kl(float(success), float(prior))
    with np.errstate(divide="ignore"):
        log_q, log_p = (np.log([rate, 1.0 - rate]) for rate in (success, prior))
    return intrinsic - max(0.0, _divergence(log_q, log_p, divergence))


def _check_divergence(kind: Divergence) -> None:
    if not callable(kind) and kind not in DIVERGENCES:
        names = ", ".join(DIVERGENCES)
        raise BudgetError(
            f"divergence must be one of {names} or a function; got {kind!r}. Use 'kl'."
        )


def _divergence(log_p: Vector, log_r: Vector, kind: Divergence) -> float:
    """Return a divergence of two normalised laws."""
    _check_divergence(kind)
    p, r = np.exp(log_p), np.exp(log_r)
    if kind == "total variation":
        return float(np.abs(p - r).sum()) / 2.0
    if kind == "squared Hellinger":
        return float(np.square(np.sqrt(p) - np.sqrt(r)).sum()) / 2.0
    if np.isneginf(log_r[p > 0]).any():
        return math.inf
    if kind == "kl":
        return float(p[p > 0] @ (log_p[p > 0] - log_r[p > 0]))
    p, r = p[r > 0], r[r > 0]
    if kind == "chi-square":
        return float((np.square(p - r) / r).sum())
    return float(r @ np.asarray(kind(p / r), dtype=np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Residual privacy of a release; every number is public.

    ``lost`` bounds every attacker's advantage: the divergence of (secret, release) from
    independence. ``residual`` is ``intrinsic - lost``. For the divergence ``"kl"``, in nats, that
    is the mean of ``-KL(posterior || R)`` over releases. ``information`` and ``entropy``, which is
    ``H(J | Z)``, are in nats whatever the divergence; ``prior_entropy`` is ``H(J)``.
    """

    intrinsic: float
    lost: Estimate
    residual: Estimate
    information: Estimate
    entropy: Estimate
    prior_entropy: float

    @property
    def share_left(self) -> float:
        """Proved share of the secret's entropy that remains."""
        return self.entropy.lower / self.prior_entropy if self.prior_entropy > 0 else 1.0


def residual_privacy(
    outputs: object,
    plan: NoisePlan,
    *,
    divergence: Divergence = "kl",
    log_reference: ArrayLike | None = None,
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Residual:
    """Return the residual privacy of a release of ``outputs`` under ``plan``.

    Laws are as in :func:`intrinsic_privacy`, draws as in
    :func:`pacprivacy.adversary.exact_information`. A function as ``divergence`` must be finite at
    0; it is about the noise in real numbers, without the lattice.

    Guarantee
    ---------
    Claims RP-3 and RP-9. With probability ``1 - gamma`` over simulated draws each, what is left is
    at least ``residual.lower`` and the secret's entropy at least ``entropy.lower``.
    """
    _check_divergence(divergence)
    view = plan.view(outputs, log_belief)
    information = exact_information(view, n_draws=n_draws, gamma=gamma, rng=rng)
    size = len(as_outputs(outputs))
    prior = float(entropy(check_log_belief(log_belief, size)))
    if callable(divergence):
        lost = _mean_divergence(view, divergence, n_draws, gamma, rng)
    elif divergence == "kl":
        lost = information
    else:
        together = information_divergences(view, n_draws=n_draws, gamma=gamma, rng=rng)
        lost = next(item.estimate for item in together if item.name == divergence)
    intrinsic = intrinsic_privacy(log_reference, log_belief, n_subsets=size, divergence=divergence)
    return Residual(
        intrinsic=intrinsic,
        lost=lost,
        residual=_less(intrinsic, lost),
        information=information,
        entropy=_less(prior, information),
        prior_entropy=prior,
    )


def _mean_divergence(
    view: View,
    f: Callable[[Vector], Vector],
    n_draws: int | None,
    gamma: float,
    rng: np.random.Generator | int | None,
) -> Estimate:
    """Return ``E_z Σ p_k f(P_k(z)/p_k)``; a convex ``f`` is largest at a point mass."""
    prior = np.exp(view.log_prior)
    alive = prior > 0
    law = prior[alive]
    with np.errstate(all="ignore"):
        at_zero, at_one = (float(f(np.array([t]))[0]) for t in (0.0, 1.0))
        top = float((law * f(1 / law) + (1 - law) * at_zero).max())
    if not (math.isfinite(top) and abs(at_one) <= 1e-12 and top > 0):
        raise BudgetError(
            f"divergence must be convex, 0 at 1 and finite at 0; got f(0) = {at_zero:g}, "
            f"f(1) = {at_one:g}. Extend it to 0 by its limit, or use a name."
        )
    n_draws = n_draws or information_draws(view.n_subsets)
    generator = public_generator(coerce_seed(rng), "mean divergence")
    blocks = [
        np.asarray(f(view_posterior(view, draws)[:, alive] / law)) @ law
        for draws in draw_view_blocks(view, n_draws, generator)
    ]
    values = np.clip(np.concatenate(blocks), 0.0, top)
    mean, variance = float(values.mean()), float(values.var(ddof=1))
    return bernstein_estimate(mean, variance, n_draws, low=0.0, high=top, gamma=gamma)


def _less(start: float, information: Estimate) -> Estimate:
    return Estimate(
        value=start - information.value,
        lower=start - information.upper,
        upper=start - information.lower,
        confidence=information.confidence,
        n_draws=information.n_draws,
    )


def compose_residual_privacy(entropies: Sequence[float], prior_entropy: float) -> float:
    """Bound the residual entropy after several releases of one secret: ``Σ H_i - (k-1) H(J)``.

    ``entropies`` are lower bounds of ``H(J | Z_i)``. Claim RP-3, for releases whose noises are
    independent given the secret.
    """
    if not entropies or any(h > prior_entropy * (1 + 1e-12) + 1e-12 for h in entropies):
        raise BudgetError(
            f"entropies must hold at least one number, none above the secret's own "
            f"{prior_entropy:.6g}; got {len(entropies)}. Pass H(J | Z) of each release."
        )
    lost = math.fsum(prior_entropy - h for h in entropies)
    return max(0.0, prior_entropy - lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPlan:
    """One plan for the stacked outputs of several mechanisms; curator-only.

    ``noise_by_mechanism`` is the total noise variance that each output gets, ``separate_variance``
    the total if each had its share of the budget for itself.
    """

    plan: NoisePlan
    dimensions: tuple[int, ...]
    noise_by_mechanism: tuple[float, ...]
    separate_variance: float

    def split(self, value: Vector) -> tuple[Vector, ...]:
        """Return the released vector of each mechanism."""
        return tuple(value[part] for part in _parts(self.dimensions))


def _parts(dimensions: Sequence[int]) -> Iterator[slice]:
    ends = [0, *itertools.accumulate(dimensions)]
    return (slice(start, stop) for start, stop in itertools.pairwise(ends))


def joint_plan(
    outputs: Sequence[object],
    mi_nats: float,
    *,
    rule: AnyRule = "exact",
    log_belief: Vector | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> JointPlan:
    """Find the least total noise for several mechanisms of one secret.

    ``outputs`` has an array of shape (m, d_i) for each mechanism, on the same candidates;
    ``mi_nats`` is for all of them together, ``rule`` finds noise on the stacked outputs.

    Guarantee
    ---------
    Claim RP-8. Everything that is released tells at most ``mi_nats`` about the secret, as N-6
    says for the stacked output. Use one release of the stacked plan: its parts must not be
    drawn again.
    """
    arrays = [as_outputs(one) for one in outputs]
    if not arrays or len({len(array) for array in arrays}) != 1:
        raise MechanismError(
            f"outputs must hold arrays with one row per candidate, of the same pool; got "
            f"{[len(array) for array in arrays]} rows. Evaluate every mechanism on the same pool."
        )
    plan = calibrate(
        np.hstack(arrays),
        Information(mi_nats),
        rule=rule,
        log_belief=log_belief,
        gamma=gamma,
        rng=rng,
    )
    share = Information(mi_nats / len(arrays))
    separate = [
        calibrate(array, share, rule="waterfill", log_belief=log_belief).total_variance
        for array in arrays
    ]
    dimensions = tuple(array.shape[1] for array in arrays)
    diagonal = np.diag(plan.noise_covariance())
    return JointPlan(
        plan=plan,
        dimensions=dimensions,
        noise_by_mechanism=tuple(float(diagonal[part].sum()) for part in _parts(dimensions)),
        separate_variance=float(sum(separate)),
    )
