"""Several mechanisms of one secret under one budget: the noise of all of them, chosen together.

Separate budgets pay for the same information twice where outputs move together. Stacking the
outputs and calibrating once pays for it once, and puts noise where it is cheapest in total.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Vector, as_outputs
from pacprivacy.adversary.information import DEFAULT_GAMMA
from pacprivacy.budget import Information
from pacprivacy.errors import MechanismError
from pacprivacy.noise import NoisePlan, Rule, calibrate
from pacprivacy.noise.weighting import noise_covariance

__all__ = ["JointPlan", "joint_plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPlan:
    """One plan for the stacked outputs of several mechanisms; curator-only.

    Attributes
    ----------
    plan : NoisePlan
        For all outputs together; its bounds are those of everything released.
    noise_by_mechanism : tuple of float
        Total noise variance that each mechanism's output gets.
    separate_variance : float
        Total noise if each mechanism had its share of the budget for itself.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(64, 1))
    >>> found = joint_plan([x, x + 0.1 * rng.normal(size=(64, 1))], 0.5, rng=0)
    >>> found.total_variance < 0.6 * found.separate_variance
    True
    >>> [len(part) for part in found.split(np.zeros(2))]
    [1, 1]
    """

    plan: NoisePlan
    dimensions: tuple[int, ...]
    noise_by_mechanism: tuple[float, ...]
    separate_variance: float

    @property
    def total_variance(self) -> float:
        """Total noise over all mechanisms."""
        return self.plan.total_variance

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
    rule: Rule = "exact",
    log_belief: Vector | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> JointPlan:
    """Find the least total noise for several mechanisms of one secret.

    Parameters
    ----------
    outputs : sequence of arrays of shape (m, d_i), curator-only
        Outputs of each mechanism on the same candidates.
    mi_nats : float > 0
        Budget for all of them together.
    rule : str or rule object
        How noise is found on the stacked outputs.

    Guarantee
    ---------
    Claim RP-8. Everything that is released tells at most ``mi_nats`` about the secret, as N-6
    says for the stacked output. Use one release of the stacked plan: its parts must not be
    drawn again.

    Examples
    --------
    >>> means, maxima = np.arange(8.0)[:, None], np.arange(8.0)[::-1, None] ** 2
    >>> found = joint_plan([means, maxima], 0.3, rule="waterfill")
    >>> found.plan.mi_upper <= 0.3, len(found.noise_by_mechanism)
    (True, 2)
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
    diagonal = np.diag(noise_covariance(plan))
    return JointPlan(
        plan=plan,
        dimensions=dimensions,
        noise_by_mechanism=tuple(float(diagonal[part].sum()) for part in _parts(dimensions)),
        separate_variance=float(sum(separate)),
    )
