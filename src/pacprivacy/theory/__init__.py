"""Pure formulas: no data, no randomness. All information is in nats."""

from pacprivacy.theory.concentration import (
    Estimate as Estimate,
    bernstein_estimate as bernstein_estimate,
    clopper_pearson as clopper_pearson,
    empirical_bernstein as empirical_bernstein,
    std_upper_bound as std_upper_bound,
)
from pacprivacy.theory.information import (
    bernoulli_kl as bernoulli_kl,
    binary_entropy as binary_entropy,
    entropy as entropy,
    information_slack as information_slack,
    lattice_total_variation as lattice_total_variation,
    log_det_bound as log_det_bound,
)
from pacprivacy.theory.success import (
    DIVERGENCES as DIVERGENCES,
    READ_AT_DELTA as READ_AT_DELTA,
    DivergenceName as DivergenceName,
    Readings as Readings,
    bernoulli_divergence as bernoulli_divergence,
    divergence_success as divergence_success,
    epsilon_equivalent as epsilon_equivalent,
    gaussian_delta as gaussian_delta,
    gaussian_epsilon as gaussian_epsilon,
    gaussian_equivalent as gaussian_equivalent,
    gaussian_parameter as gaussian_parameter,
    gaussian_success as gaussian_success,
    membership_success as membership_success,
    mi_for_membership as mi_for_membership,
    mi_for_success as mi_for_success,
    posterior_success as posterior_success,
    read_as_dp as read_as_dp,
    success_at as success_at,
    success_for_epsilon as success_for_epsilon,
)
