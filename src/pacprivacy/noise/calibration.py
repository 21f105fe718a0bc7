"""Budget and outputs in, noise plan out."""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np

from pacprivacy._checks import SMALLEST_RANGE, Matrix, Vector, as_outputs, check_log_belief
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy._threads import few_threads
from pacprivacy.adversary import DEFAULT_GAMMA, Candidates, make_view, noiseless_risk
from pacprivacy.budget import AnyBudget, Limits, limits_of
from pacprivacy.errors import BudgetError, MechanismError, PoolError
from pacprivacy.noise.covariance import covariance_plan
from pacprivacy.noise.iid import calibrate_iid
from pacprivacy.noise.plan import Integers, NoisePlan, Revealed
from pacprivacy.noise.proof import Problem, certify
from pacprivacy.noise.rules import (
    Boxed,
    Empirical,
    Exact,
    Protect,
    Rule,
    Shaped,
    rule_name,
    search_of,
)
from pacprivacy.noise.search import exact_shapes, risk_shapes
from pacprivacy.noise.shapes import Shape, given_shape, weigh
from pacprivacy.noise.spread import AxisFrame, spread_of
from pacprivacy.theory import Estimate, entropy, mi_for_success

SAMPLED_COORDINATES = 64
NOISELESS = "the output meets the budget as it is; no noise was added"


def calibrate(
    outputs: object,
    budget: AnyBudget,
    *,
    rule: Rule | None = None,
    pool: Candidates | None = None,
    log_belief: Vector | None = None,
    caps: Vector | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> NoisePlan:
    """Find the noise under which one row of ``outputs`` may be released.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        The mechanism's output on every candidate subset.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        What every attacker is held to.
    rule : str or rule object, optional
        By default ``exact`` for information and ``risk`` where membership is limited.
    pool : Pool, optional
        Needed when membership is limited.
    log_belief : array of shape (m,), optional
        The attacker's belief before this release; uniform by default.
    caps : array of shape (n_units,), optional
        Success allowed per unit in this release, instead of the budget's one number; sessions
        use it for increments.
    gamma : float
        Failure probability of the Monte-Carlo proof.
    rng : Generator or int, optional
        For simulated draws; never for the secret.

    Returns
    -------
    NoisePlan
        ``total_variance``, the proved bounds, and how to sample.

    Guarantee
    ---------
    Claim N-6. For rules of kind *exact*, the secret being drawn from ``log_belief``, the release
    meets every limit of ``budget``: by closed form for the covariance rules, with probability
    ``1 - gamma`` over simulated draws for ``exact`` and ``risk``.
    """
    values = as_outputs(outputs)
    log_p = check_log_belief(log_belief, len(values))
    limits = limits_of(budget, len(values))
    independent = isinstance(rule, Boxed | Empirical)
    caps, priors = (None, None) if independent else resolve_caps(limits, caps, pool, log_p)
    chosen: Rule = rule if rule is not None else ("exact" if caps is None else "risk")
    name = rule_name(chosen)
    if isinstance(chosen, Boxed | Empirical):
        if log_belief is not None:
            raise BudgetError(
                f"rule must work for a secret from the pool; got {name}, which is for a single "
                f"release of a fresh secret. Leave the rule out in a session."
            )
        mi_nats = iid_budget(limits, pool)
        n_units = 0 if pool is None else pool.n_units
        return calibrate_iid(values, chosen, mi_nats=mi_nats, n_units=n_units)
    groups, nats = distinct_outputs(values, log_p)
    if is_free(groups, nats, limits, caps, pool, log_p):
        return noiseless_plan(values, groups, nats, rule=name)
    check_range(values)
    beta = gaussian_budget(limits, caps, priors)
    search = search_of(chosen, limits_membership=caps is not None)
    if search is None:
        return covariance_plan(values, chosen, log_p, mi_nats=beta)
    if search == "exact" and limits.mi_nats is None:
        limits = replace(limits, mi_nats=beta)
    problem = Problem(
        spread=spread_of(values, np.exp(log_p)),
        log_p=log_p,
        gamma=gamma,
        seed=coerce_seed(rng),
        mi_nats=limits.mi_nats,
        pool=pool,
        caps=caps,
        priors=priors,
    )
    with few_threads(len(values) * (values.shape[1] if pool is None else pool.n_units)):
        return _searched_plan(chosen, problem, gaussian_nats=beta)


def check_feasible(budget: AnyBudget, rule: Rule | None, pool: Candidates) -> None:
    """Refuse a budget or a rule that cannot work, before the mechanism is run at all."""
    if rule is not None:
        rule_name(rule)
    limits = limits_of(budget, pool.n_subsets)
    if isinstance(rule, Boxed | Empirical):
        iid_budget(limits, pool)
    else:
        resolve_caps(limits, None, pool, check_log_belief(None, pool.n_subsets))


def iid_budget(limits: Limits, pool: Candidates | None) -> float:
    """Return the information budget for an independent secret; refuse dependent pools."""
    if pool is None or not getattr(pool, "independent", False):
        raise PoolError(
            "pool must hold independent subsets for this rule: a confidence or empirical "
            "certificate speaks of a fresh draw. Use Half(...) or Poisson(...)."
        )
    budgets = [] if limits.mi_nats is None else [limits.mi_nats]
    if limits.success is not None:
        budgets.append(mi_for_success(limits.success, float(getattr(pool, "prior", 1.0))))
    return min(budgets)


def distinct_outputs(values: Matrix, log_p: Vector) -> tuple[Integers, float]:
    """Group candidates whose outputs agree bit for bit; return the groups and their entropy."""
    # A few coordinates tell most outputs apart; only those that agree there are read in full.
    step = -(-values.shape[1] // SAMPLED_COORDINATES)
    heads = [(row[::step] + 0.0).tobytes() for row in values]  # +0.0 turns -0.0 to 0.0
    repeated = {head for head, count in Counter(heads).items() if count > 1}
    seen: dict[bytes, int] = {}
    groups = np.empty(len(values), dtype=np.int64)
    for k, head in enumerate(heads):
        key = _digest(values[k] + 0.0) if head in repeated else head
        groups[k] = seen.setdefault(key, len(seen))
    mass = np.bincount(groups, np.exp(log_p))
    return groups, float(entropy(np.log(mass[mass > 0]))) if len(seen) > 1 else 0.0


def _digest(row: Vector) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=32, key=b"whole row").digest()


def noiseless_plan(values: Matrix, groups: Integers, nats: float, *, rule: str) -> NoisePlan:
    """Return the plan that releases the output itself, with its exact information."""
    _, first = np.unique(groups, return_index=True)
    return NoisePlan(
        rule=rule,
        kind="exact",
        frame=AxisFrame(axes=np.zeros(0, dtype=np.int64), center=values[0]),
        center=values[0].copy(),
        grid_step=np.zeros(0),
        units_per_std=np.zeros(0, dtype=np.int64),
        points=np.zeros((len(values), 0), dtype=np.int64),
        revealed=Revealed(groups=groups, bases=values[first]),
        outputs=values,
        log_det_nats=nats,
        information=Estimate(value=nats, lower=nats, upper=nats, confidence=1.0, n_draws=0),
        notes=(NOISELESS,),
    )


def resolve_caps(
    limits: Limits, caps: Vector | None, pool: Candidates | None, log_p: Vector
) -> tuple[Vector | None, Vector | None]:
    """Return success caps and priors per unit, or None where membership is not limited.

    A cap of one limits nothing (the unit may already be known) and comes back as infinity.
    """
    if caps is None and limits.success is None:
        return None, None
    if pool is None:
        raise BudgetError(
            "pool must be given when membership is limited; got None. "
            "Pass the pool the outputs were computed on."
        )
    groups = np.zeros(len(log_p), dtype=np.int64)
    blind = make_view(np.zeros((len(log_p), 1)), log_p, groups=groups)
    priors = noiseless_risk(blind, pool)
    if caps is None:
        assert limits.success is not None  # one of the two is given
        caps = np.full(pool.n_units, limits.success)
    if np.shape(caps) != (pool.n_units,):
        raise BudgetError(
            f"caps must hold one success per unit ({pool.n_units}); got shape {np.shape(caps)}. "
            f"Pass None to use the budget's one number."
        )
    caps = np.where(caps >= 1, np.inf, caps)
    if (caps <= priors).any():
        worst = float(priors.max())
        raise BudgetError(
            f"success must be above {worst:.4g}, the best guess that this pool allows on its "
            f"worst-placed unit before any release; got {float(caps.min()):.4g}. "
            f"Use a Balanced pool (prior exactly 1/2), more subsets, or a larger success."
        )
    return caps, priors


def check_range(values: Matrix) -> None:
    """Refuse outputs that differ by less than can be squared."""
    if float((values.max(axis=0) - values.min(axis=0)).max()) < SMALLEST_RANGE:
        raise MechanismError(
            f"outputs must differ by at least {SMALLEST_RANGE:g} somewhere, so that the difference "
            f"can be squared; they differ by less. Rescale them inside the mechanism."
        )


def gaussian_budget(limits: Limits, caps: Vector | None, priors: Vector | None) -> float:
    """Return the information budget that implies every limit through inequality (1)."""
    budgets = [] if limits.mi_nats is None else [limits.mi_nats]
    if caps is not None and priors is not None:
        limited = np.isfinite(caps)
        pairs = np.unique(np.stack([priors[limited], caps[limited]]), axis=1)
        budgets += [mi_for_success(float(cap), float(prior)) for prior, cap in pairs.T]
    return min(budgets)


def is_free(
    groups: Integers,
    nats: float,
    limits: Limits,
    caps: Vector | None,
    pool: Candidates | None,
    log_p: Vector,
) -> bool:
    """Whether the output may leave as it is."""
    if limits.mi_nats is not None and nats > limits.mi_nats:
        return False
    if caps is None or pool is None:
        return True
    view = make_view(np.zeros((len(log_p), 1)), log_p, groups=groups)
    return bool((noiseless_risk(view, pool) <= caps).all())


def _searched_plan(rule: Rule, problem: Problem, *, gaussian_nats: float) -> NoisePlan:
    """Try the promising shapes; keep the proved plan of least noise, or of least cost.

    ``gaussian_nats`` is a budget that implies every limit, so the closed form is always there.
    """
    spread, log_p, name = problem.spread, problem.log_p, rule_name(rule)
    if isinstance(rule, Shaped):
        return certify(given_shape(spread, rule), problem, rule=name)
    weighting = None
    if isinstance(rule, Exact | Protect):
        weighting = weigh(spread, np.exp(log_p), rule)
    formula: Rule = "waterfill" if weighting is None else rule
    gaussian = covariance_plan(spread.values, formula, log_p, mi_nats=gaussian_nats, spread=spread)
    plans = [replace(gaussian, rule=name)]
    if weighting is None:
        shapes = _promising_shapes(problem)
    else:
        found = _promising_shapes(replace(problem, spread=weighting.spread))
        shapes = [weighting.unweighted(shape) for shape in found]
    share = replace(problem, gamma=problem.gamma / max(1, len(shapes)))
    for shape in shapes:
        with suppress(BudgetError):  # a shape that cannot be proved leaves the others
            plans.append(certify(shape, share, rule=name))
    if weighting is None:
        return min(plans, key=lambda plan: plan.total_variance)
    return min(plans, key=weighting.cost_of)


def _promising_shapes(problem: Problem) -> list[Shape]:
    """Return the best shape for membership and the best for information, where both count."""
    spread, log_p, beta = problem.spread, problem.log_p, problem.mi_nats
    rng, shapes = problem.rng("shapes"), []
    if problem.caps is not None and problem.pool is not None:
        with suppress(BudgetError):
            shapes = risk_shapes(spread, problem.pool, log_p, problem.caps, rng=rng)[:1]
    if beta is not None:
        found = exact_shapes(spread, log_p, mi_nats=beta, rng=rng)
        shapes += found[:1] if shapes or len(found) > 1 else []
    return shapes


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
