"""Observations of growing precision of one output, and their precision-weighted mean.

Going from noise of covariance ``Σ`` to less noise ``Σ'`` is the same as one more independent
observation with covariance ``(Σ'^{-1} - Σ^{-1})^{-1}``. So nothing is ever taken back: each
step releases a fresh observation, calibrated to the belief that the earlier ones leave.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pacprivacy._checks import Vector, as_outputs, check_log_belief
from pacprivacy._random import coerce_seed
from pacprivacy.accounting.shares import as_budget
from pacprivacy.adversary.membership import Candidates
from pacprivacy.budget import AnyBudget, Limits, limits_of
from pacprivacy.errors import BudgetError
from pacprivacy.noise import NoisePlan, Rule, calibrate
from pacprivacy.noise.calibrate import (
    distinct_outputs,
    gaussian_budget,
    is_free,
    noiseless_plan,
    resolve_caps,
)
from pacprivacy.noise.certify import Problem
from pacprivacy.noise.plan import Observation
from pacprivacy.noise.rescale import noise_scale, rescale
from pacprivacy.noise.spread import spread_of

__all__ = ["INFORMATION_LEVELS", "MEMBERSHIP_LEVELS", "Refinement", "level_shares"]

INFORMATION_LEVELS: Final = 12
MEMBERSHIP_LEVELS: Final = 4
_RATIO: Final = {"information": 2.0**-0.5, "membership": 0.5}


def level_shares(share: Limits, levels: int | None) -> tuple[float, ...]:
    """Return the part of a share that may be spent up to each level, growing to 1.

    Information adds up exactly, so its levels are many and close. Increments of membership
    lose with every step, so there they are few and far apart.

    Examples
    --------
    >>> [round(part, 3) for part in level_shares(Limits(mi_nats=1.0), 3)]
    [0.5, 0.707, 1.0]
    >>> level_shares(Limits(success=0.1), None)
    (0.125, 0.25, 0.5, 1.0)
    """
    kind = "information" if share.success is None else "membership"
    count = levels or (INFORMATION_LEVELS if kind == "information" else MEMBERSHIP_LEVELS)
    if count < 1 or count != int(count):
        raise BudgetError(f"levels must be a positive whole number; got {levels!r}. Use 12.")
    return tuple(_RATIO[kind] ** (count - 1 - k) for k in range(int(count)))


class Refinement:
    """Noise of one fixed shape at falling levels, and what was seen so far; curator-only.

    Parameters
    ----------
    outputs : Outputs or array of shape (m, d)
        The mechanism on every candidate.
    share : Limits
        What all steps together may spend; ``success`` is an increment.
    rule : str or rule object, optional
        How the shape of the noise is found, at the whole share.

    Guarantee
    ---------
    Claim S-3. Every plan of :meth:`plan` meets its own limits under the belief it is given, so
    Claims S-1 and S-2 hold for the transcript whatever rule ends it. The estimate is a function
    of the observations.

    Examples
    --------
    >>> from pacprivacy._random import SystemSource
    >>> from pacprivacy.budget import Information
    >>> outputs, log_p = np.linspace(-1, 1, 8)[:, None], np.full(8, -np.log(8))
    >>> steps = Refinement(outputs, Limits(mi_nats=1.0), rule="waterfill")
    >>> for nats in (0.25, 0.75):
    ...     plan = steps.plan(Information(nats), log_belief=log_p)
    ...     observation = plan.observe(3, SystemSource())
    ...     log_p = log_p + plan.log_likelihood(observation)
    ...     log_p -= np.logaddexp.reduce(log_p)
    ...     estimate = steps.add(plan, observation)
    >>> estimate.shape, steps.n_observations
    ((1,), 2)
    """

    def __init__(self, outputs: object, share: Limits, *, rule: Rule | None = None) -> None:
        self._values, self._share, self._rule = as_outputs(outputs), share, rule
        self._base: NoisePlan | None = None
        self._spread = spread_of(self._values, np.full(len(self._values), 1 / len(self._values)))
        self._weighted: Vector = np.zeros(self._values.shape[1])
        self._precision = 0.0
        self.n_observations = 0

    @property
    def total_variance(self) -> float:
        """Expected squared length of the noise that is left in the estimate."""
        if self._base is None or self._precision == 0.0:
            return 0.0
        return self._base.total_variance / self._precision

    @property
    def ceiling_nats(self) -> float:
        """Information that no transcript exceeds, chosen before anything is released."""
        if self._share.mi_nats is not None:
            return self._share.mi_nats
        most = float(np.log(len(self._values)))
        return most if self._base is None else min(most, 1.25 * self._base.mi_upper)

    def begin(self, *, pool: Candidates, log_belief: Vector, caps: Vector | None, rng: int) -> None:
        """Find the shape of the noise, at the whole share; nothing is drawn."""
        plan = calibrate(
            self._values,
            as_budget(self._share),
            rule=self._rule,
            pool=pool,
            log_belief=log_belief,
            caps=caps,
            rng=rng,
        )
        self._base = None if plan.is_noiseless else plan

    def plan(
        self,
        budget: AnyBudget,
        *,
        pool: Candidates | None = None,
        log_belief: Vector | None = None,
        caps: Vector | None = None,
        gamma: float = 1e-9,
        rng: np.random.Generator | int | None = None,
    ) -> NoisePlan:
        """Return the plan of the next observation; the arguments are those of ``calibrate``."""
        seed = coerce_seed(rng)
        if self._base is None:
            first = calibrate(
                self._values,
                budget,
                rule=self._rule,
                pool=pool,
                log_belief=log_belief,
                caps=caps,
                gamma=gamma,
                rng=seed,
            )
            self._base = None if first.is_noiseless else first
            return first
        log_p = check_log_belief(log_belief, len(self._values))
        limits = limits_of(budget)
        allowed, priors = resolve_caps(limits, caps, pool, log_p)
        groups, left = distinct_outputs(self._values, log_p)
        if is_free(groups, left, limits, allowed, pool, log_p):  # little is left to be learned
            return noiseless_plan(self._values, groups, left, rule=self._base.rule)
        problem = Problem(
            spread=self._spread,
            log_p=log_p,
            gamma=gamma,
            seed=seed,
            mi_nats=limits.mi_nats,
            pool=pool,
            caps=allowed,
            priors=priors,
        )
        nats = gaussian_budget(limits, allowed, priors)
        return rescale(self._base, problem, gaussian_nats=nats)

    def add(self, plan: NoisePlan, observation: Observation) -> Vector:
        """Return the estimate with one more observation."""
        self.n_observations += 1
        value = plan.value_of(observation)
        if plan.is_noiseless or self._base is None:
            return value
        weight = noise_scale(plan, self._base) ** -2
        self._weighted = self._weighted + weight * value
        self._precision += weight
        return np.asarray(self._weighted / self._precision, dtype=np.float64)
