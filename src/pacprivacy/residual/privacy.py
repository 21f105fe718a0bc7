"""What is left private: intrinsic and residual privacy, residual entropy."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import ArrayLike, Vector, as_outputs, check_log_belief
from pacprivacy.adversary import DEFAULT_GAMMA, exact_information
from pacprivacy.errors import BudgetError, PoolError
from pacprivacy.noise import NoisePlan
from pacprivacy.theory import DIVERGENCES, DivergenceName, Estimate, entropy


def intrinsic_privacy(
    log_reference: ArrayLike | None = None,
    log_belief: Vector | None = None,
    *,
    n_subsets: int | None = None,
    divergence: DivergenceName | Callable[[Vector], Vector] = "kl",
) -> float:
    """Return ``-D(p || R)``: how close the secret is to the reference before any release.

    At most 0, and 0 if both laws agree. Laws are logarithms, uniform by default; ``n_subsets`` is
    needed where neither is there. ``divergence`` is a name (``"kl"`` is in nats), or a convex ``f``
    with ``f(1) = 0`` for ``Σ R f(p/R)``; the result is ``-inf`` where the reference rules out what
    the secret allows, but for the two bounded divergences.
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


def _divergence(
    log_p: Vector, log_r: Vector, kind: DivergenceName | Callable[[Vector], Vector]
) -> float:
    """Return a divergence of two normalised laws."""
    if not callable(kind) and kind not in DIVERGENCES:
        names = ", ".join(DIVERGENCES)
        raise BudgetError(f"divergence must be one of {names} or a function; got {kind!r}.")
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
    """What a release leaves private, in nats; every number is public.

    ``residual`` is ``intrinsic - information``, the mean of ``-KL(posterior || R)`` over releases;
    ``entropy`` is ``H(J | Z)``, ``prior_entropy`` ``H(J)``.
    """

    intrinsic: float
    information: Estimate
    residual: Estimate
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
    log_reference: ArrayLike | None = None,
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Residual:
    """Return what is left private when one of ``outputs`` is released under ``plan``.

    Laws are as in :func:`intrinsic_privacy`, draws as in
    :func:`pacprivacy.adversary.exact_information`.

    Guarantee
    ---------
    Claim RP-3. With probability ``1 - gamma`` over simulated draws, what is left is at least
    ``residual.lower`` and the secret's entropy at least ``entropy.lower``.
    """
    view = plan.view(outputs, log_belief)
    information = exact_information(view, n_draws=n_draws, gamma=gamma, rng=rng)
    size = len(as_outputs(outputs))
    prior = float(entropy(check_log_belief(log_belief, size)))
    intrinsic = intrinsic_privacy(log_reference, log_belief, n_subsets=size)
    return Residual(
        intrinsic=intrinsic,
        information=information,
        residual=_less(intrinsic, information),
        entropy=_less(prior, information),
        prior_entropy=prior,
    )


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
