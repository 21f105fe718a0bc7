"""Residual-PAC: what is left private, how far the Gaussian bound is off, and noise beyond it."""

from pacprivacy.residual.examples import EXAMPLES, example_outputs
from pacprivacy.residual.gap import Gap, corrected_budget, exact_gap
from pacprivacy.residual.quantities import (
    Residual,
    compose_entropies,
    intrinsic_privacy,
    posterior_disadvantage,
    residual_privacy,
)
from pacprivacy.residual.reference import reference_law
from pacprivacy.residual.slices import sliced_gap
from pacprivacy.residual.variational import ReleaseSampler, variational_gap

__all__ = [
    "EXAMPLES",
    "Gap",
    "ReleaseSampler",
    "Residual",
    "compose_entropies",
    "corrected_budget",
    "exact_gap",
    "example_outputs",
    "intrinsic_privacy",
    "posterior_disadvantage",
    "reference_law",
    "residual_privacy",
    "sliced_gap",
    "variational_gap",
]
