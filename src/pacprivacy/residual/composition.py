"""Several releases of one secret: their residual privacy, and jointly designed noise."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Vector, as_outputs
from pacprivacy.adversary import DEFAULT_GAMMA
from pacprivacy.budget import Information
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.noise import AnyRule, NoisePlan, calibrate


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
