"""Pure formulas: no data, no randomness. All information is in nats."""

from __future__ import annotations

from pacprivacy.theory.concentration import (
    Estimate,
    bernstein_estimate,
    clopper_pearson,
    empirical_bernstein,
    std_upper_bound,
)
from pacprivacy.theory.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_equivalent,
    gaussian_parameter,
    gaussian_success,
)
from pacprivacy.theory.information import (
    bernoulli_kl,
    binary_entropy,
    entropy,
    information_slack,
    lattice_total_variation,
    log_det_bound,
)
from pacprivacy.theory.success import (
    DIVERGENCES,
    READ_AT_DELTA,
    DivergenceName,
    Readings,
    bernoulli_divergence,
    divergence_success,
    epsilon_equivalent,
    mi_for_success,
    posterior_success,
    read_as_dp,
    success_for_epsilon,
)

__all__ = [
    "DIVERGENCES",
    "READ_AT_DELTA",
    "DivergenceName",
    "Estimate",
    "Readings",
    "bernoulli_divergence",
    "bernoulli_kl",
    "bernstein_estimate",
    "binary_entropy",
    "clopper_pearson",
    "divergence_success",
    "empirical_bernstein",
    "entropy",
    "epsilon_equivalent",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_equivalent",
    "gaussian_parameter",
    "gaussian_success",
    "information_slack",
    "lattice_total_variation",
    "log_det_bound",
    "mi_for_success",
    "posterior_success",
    "read_as_dp",
    "std_upper_bound",
    "success_for_epsilon",
]
