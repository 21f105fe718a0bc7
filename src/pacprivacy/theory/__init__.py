"""Pure formulas: no data, no randomness. All information is in nats."""

from __future__ import annotations

from pacprivacy.theory.concentration import (
    Estimate,
    bernstein_estimate,
    clopper_pearson,
    empirical_bernstein,
    std_upper_bound,
)
from pacprivacy.theory.information import (
    bernoulli_kl,
    binary_entropy,
    entropy,
    information_slack,
    lattice_information_slack,
    lattice_total_variation,
    log_det_bound,
)
from pacprivacy.theory.posterior import (
    DIVERGENCES,
    bernoulli_divergence,
    divergence_success,
    epsilon_equivalent,
    mi_for_success,
    overlap_prior,
    posterior_success,
    success_for_epsilon,
)

__all__ = [
    "DIVERGENCES",
    "Estimate",
    "bernoulli_divergence",
    "bernoulli_kl",
    "bernstein_estimate",
    "binary_entropy",
    "clopper_pearson",
    "divergence_success",
    "empirical_bernstein",
    "entropy",
    "epsilon_equivalent",
    "information_slack",
    "lattice_information_slack",
    "lattice_total_variation",
    "log_det_bound",
    "mi_for_success",
    "overlap_prior",
    "posterior_success",
    "std_upper_bound",
    "success_for_epsilon",
]
