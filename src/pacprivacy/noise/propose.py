"""How much noise a budget will ask for: the calibrator's proposal, without its proof.

The proof of a plan takes most of the time of :func:`~pacprivacy.noise.calibrate`. A curve over
many budgets needs only the proposals, which are up to about a tenth below what is then proved.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from pacprivacy._checks import Vector, as_outputs, check_log_belief
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.membership import Candidates
from pacprivacy.budget import AnyBudget, limits_of
from pacprivacy.errors import BudgetError
from pacprivacy.noise.calibrate import (
    calibrate,
    check_range,
    distinct_outputs,
    gaussian_budget,
    is_free,
    resolve_caps,
)
from pacprivacy.noise.costs import Exact, Protect, Shaped
from pacprivacy.noise.covariance import covariance_plan
from pacprivacy.noise.exact import exact_shapes
from pacprivacy.noise.risk import risk_shapes
from pacprivacy.noise.rules import Rule, search_of
from pacprivacy.noise.spread import spread_of
from pacprivacy.noise.weighting import weigh

__all__ = ["propose_variance"]


def propose_variance(
    outputs: object,
    budget: AnyBudget,
    *,
    pool: Candidates | None = None,
    rule: Rule | None = None,
    log_belief: Vector | None = None,
    rng: np.random.Generator | int | None = None,
) -> float:
    """Return about the total variance of the noise that :func:`calibrate` will find.

    An estimate for people who choose a budget; nothing may be released on it. No secret is
    involved: it is a function of the outputs on all candidates.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        The mechanism's output on every candidate subset.
    budget, pool, rule, log_belief, rng
        As in :func:`calibrate`; of the rules, those for a secret from the pool.

    Examples
    --------
    >>> from pacprivacy.budget import Information
    >>> outputs = np.array([[0.0], [1.0], [0.0], [1.0]])
    >>> tight = propose_variance(outputs, Information(0.01), rule="waterfill")
    >>> bool(tight > propose_variance(outputs, Information(0.1), rule="waterfill"))
    True
    """
    values = as_outputs(outputs)
    log_p = check_log_belief(log_belief, len(values))
    limits = limits_of(budget, len(values))
    caps, priors = resolve_caps(limits, None, pool, log_p)
    groups, nats = distinct_outputs(values, log_p)
    if is_free(groups, nats, limits, caps, pool, log_p):
        return 0.0
    check_range(values)
    if isinstance(rule, Shaped):  # nothing to search for: what is proved is found as fast
        plan = calibrate(values, budget, rule=rule, pool=pool, log_belief=log_belief, rng=rng)
        return plan.total_variance
    beta = gaussian_budget(limits, caps, priors)
    if rule is not None and search_of(rule, limits_membership=caps is not None) is None:
        return covariance_plan(values, rule, log_p, mi_nats=beta).total_variance
    plain = spread_of(values, np.exp(log_p))
    weighting = None
    if isinstance(rule, Exact | Protect):
        weighting = weigh(plain, np.exp(log_p), rule)
    spread = plain if weighting is None else weighting.spread
    formula: Rule = rule if isinstance(rule, Exact | Protect) else "waterfill"
    closed = covariance_plan(values, formula, log_p, mi_nats=beta, spread=plain)
    generator = public_generator(coerce_seed(rng), "propose")
    asked = []
    with suppress(BudgetError):  # what cannot be reached by a search is reached in closed form
        if caps is not None and pool is not None:
            asked.append(risk_shapes(spread, pool, log_p, caps, rng=generator)[0])
        if limits.mi_nats is not None:
            asked.append(exact_shapes(spread, log_p, mi_nats=limits.mi_nats, rng=generator)[0])
        if weighting is not None:
            asked = [weighting.unweighted(shape) for shape in asked]
        # Noise that meets two limits is at least the larger of what each asks for.
        return min(closed.total_variance, max(shape.total_variance for shape in asked))
    return closed.total_variance
