"""Follow one secret candidate step by step, with the attacker's belief tracked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from pacprivacy._checks import Matrix, Vector, freeze
from pacprivacy._random import BitSource
from pacprivacy.accounting import Session
from pacprivacy.adversary import Belief
from pacprivacy.budget import AnyBudget, Information
from pacprivacy.design.certificate import summarise_noise
from pacprivacy.design.gradient import MeanGradient
from pacprivacy.design.objective import Objective
from pacprivacy.design.split import uniform_plan
from pacprivacy.noise import NoisePlan, Rule, calibrate
from pacprivacy.release import Certificate, Release, Secret
from pacprivacy.release.certificate import NoiseSummary

__all__ = ["DescentRun", "Split", "descend_in_session", "follow_secret"]

Split: TypeAlias = Literal["waterfill", "uniform"]
Gradients: TypeAlias = Callable[[Matrix], Matrix]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentRun:
    """What a descent released.

    Parameters
    ----------
    weights : array of shape (d,) or (d, k), public
        The last iterate.
    path : array of shape (T + 1, ...), public
        All iterates, the start included.
    budgets : array of shape (T,), public
        Budget of each step, fixed before the first.
    charges : array of shape (T,), public
        What each release really needed, given the ones before: an odometer. It depends on the
        releases, so its sum is not the bound; the budgets are.
    belief : Belief
        The attacker's belief over the pool at the end; public for whoever knows the pool.
    noise : tuple of NoiseSummary, public
        The noise of each step.
    certificate : Certificate or None, public
        What is promised about the whole descent.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> from pacprivacy import Information
    >>> from pacprivacy.design import Descent, descend
    >>> y = np.where(X[:, 0] > 0, 1.0, -1.0)
    >>> run = descend((X, y), Information(0.5), Descent(n_steps=5), n_subsets=32, rng=0)
    >>> run.path.shape, float(run.budgets.sum()) <= 0.5
    ((6, 2), True)
    """

    weights: Matrix
    path: Matrix
    budgets: Vector
    charges: Vector
    belief: Belief = field(repr=False)
    noise: tuple[NoiseSummary, ...] = field(repr=False)
    certificate: Certificate | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for array in (self.weights, self.path, self.budgets, self.charges):
            freeze(array)

    @property
    def mi_nats(self) -> float:
        """Proved bound on the information of everything released, in nats."""
        return math.fsum(self.budgets.tolist())


def follow_secret(
    gradients: Gradients,
    steps: Matrix,
    budgets: Vector,
    *,
    n_subsets: int,
    source: BitSource,
    split: Split = "waterfill",
) -> DescentRun:
    """Descend along the noisy gradients of one secret candidate, drawn from ``source``.

    Parameters
    ----------
    gradients : callable, curator-only
        Maps public weights to the flattened gradients of all candidates, shape (m, d).
    steps : array of the shape of the weights, public
        Step sizes.
    budgets : array of shape (T,), public
        Budget of each step in nats.
    n_subsets : int, public
        Number of candidates.
    source : BitSource
        Where the secret and the noise come from.
    split : "waterfill" or "uniform", public
        How the budget of a step is spread over directions.

    Guarantee
    ---------
    Claim D-7. ``MI(secret; all releases) <= Σ budgets``.
    """
    weights = np.zeros(steps.shape)
    path, charges, noise = [weights], [], []
    belief, secret = Belief.uniform(n_subsets), None
    for mi_nats in budgets:
        values = gradients(weights)
        plan = _plan(values, belief, float(mi_nats), split)
        if secret is None:  # drawn only after every candidate was evaluated
            secret = Secret(n_subsets, source)
        observation = secret.observe(plan, source)
        belief = belief.updated(plan.log_likelihood(observation))
        weights = weights - steps * plan.value_of(observation).reshape(steps.shape)
        path.append(weights)
        charges.append(max(0.0, plan.mi_upper))
        noise.append(summarise_noise(plan))
    return DescentRun(
        weights=weights.copy(),
        path=np.stack(path),
        budgets=np.array(budgets, dtype=np.float64),
        charges=np.array(charges),
        belief=belief,
        noise=tuple(noise),
    )


def _plan(values: Matrix, belief: Belief, mi_nats: float, split: Split) -> NoisePlan:
    if split == "uniform":
        return uniform_plan(values, belief.log_p, mi_nats=mi_nats)
    return calibrate(values, Information(mi_nats), rule="waterfill", log_belief=belief.log_p)


def descend_in_session(
    session: Session,
    objective: Objective,
    steps: Matrix,
    budgets: list[AnyBudget],
    *,
    rule: Rule | None = None,
) -> tuple[Matrix, tuple[Release, ...]]:
    """Descend by ordinary releases of a session: every step is certified and recorded.

    The reference for :func:`descend`, which gives the same weights for the same secret and noise
    without a full certificate at each step. Membership budgets work here too.

    Parameters
    ----------
    session : Session
        Over the data ``(X, y)``; each step is one of its releases.
    objective : Objective, public
        Loss and penalty.
    steps : array of the shape of the weights, public
        Step sizes.
    budgets : list of budgets, public
        One for each step.
    rule : str or rule object, optional
        Noise rule of every step; by default the session's.

    Returns
    -------
    weights, releases
        The last iterate, and the releases.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> import pacprivacy as pac
    >>> from pacprivacy.design import Objective
    >>> y = np.where(X[:, 0] > 0, 1.0, -1.0)
    >>> budgets = [pac.Information(1 / 8)] * 2
    >>> with pac.Session((X, y), budget=pac.Information(1), n_subsets=16, rng=0) as session:
    ...     weights, releases = descend_in_session(
    ...         session, Objective(), np.full(2, 0.5), budgets, rule="waterfill"
    ...     )
    >>> weights.shape, len(releases)
    ((2,), 2)
    """
    weights = np.zeros(np.shape(steps))
    releases = []
    for budget in budgets:
        here = MeanGradient(objective=objective, weights=weights)
        release = session.release(here, budget, rule=rule)
        releases.append(release)
        weights = weights - steps * np.asarray(release.value)
    return weights, tuple(releases)
