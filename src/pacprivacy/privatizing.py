"""The whole story in one short function: read this first.

records -> pool of subsets -> mechanism on every subset -> noise plan -> release + certificate
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy._checks import check_log_belief
from pacprivacy._random import SimulatedSource, SystemSource, coerce_seed, public_generator
from pacprivacy.adversary import DEFAULT_GAMMA
from pacprivacy.budget import AnyBudget
from pacprivacy.errors import BudgetError, PoolError
from pacprivacy.mechanism import as_mechanism, coerce_data
from pacprivacy.noise import AnyRule, as_rule, calibrate, check_feasible
from pacprivacy.pool import Pool, PoolStrategy
from pacprivacy.release import Context, Release, Secret, publish
from pacprivacy.session import Accuracy, Session
from pacprivacy.simulation import draw_candidates, run_mechanism


def privatize(
    mechanism: Any,
    data: Any,
    budget: AnyBudget,
    *,
    pool: Pool | PoolStrategy | None = None,
    n_subsets: int | None = None,
    rule: AnyRule | None = None,
    units: Any = None,
    n_jobs: int | None = None,
    checkpoint: str | Path | None = None,
    rng: np.random.Generator | int | None = None,
    progress: bool | None = None,
    simulate: bool = False,
    target: Accuracy | None = None,
    levels: int | None = None,
) -> Release:
    """Release a function of data with a certificate that holds against every attacker.

    Parameters
    ----------
    mechanism : callable or Mechanism
        ``f(data)`` or ``f(X, y)``; returns numbers, arrays, dicts or tuples of them, or a
        fitted scikit-learn estimator.
    data : array, frame, or tuple of those
        The universe of records. The release is computed on a secret half of it.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        What every attacker is held to.
    pool : Pool or strategy, optional
        Which subsets are candidates; random halves and their complements by default.
    n_subsets : int, optional
        Number of candidates; 1024 where all are evaluated at once, else 256.
    rule : str or rule object, optional
        How noise is found; the least certified noise by default.
    units : array, optional
        Group label of each row, when a person has several rows.
    n_jobs : int, optional
        Worker processes, through joblib.
    checkpoint : path, optional
        File from which an interrupted run goes on.
    rng : Generator or int, optional
        Seed of public randomness (pool, mechanism, proof). Never of the secret or the noise.
    progress : bool, optional
        Progress bar on stderr; by default only on a terminal.
    simulate : bool
        Take the secret and the noise from ``rng`` too. For experiments: the certificate says
        that such a release protects nobody.
    target : Accuracy, optional
        Stop spending once the released value is good enough on public data: observations of
        growing precision leave one after the other, the value is their mean, and ``budget`` is
        the most that they may cost together.
    levels : int, optional
        Number of looks when there is a target; 12 for information, 4 where membership is limited.

    Returns
    -------
    Release
        ``value`` (same structure as the mechanism's) and ``certificate``; a ``GradualRelease``
        when there is a target.

    Guarantee
    ---------
    Claim R-3. The release meets ``budget`` against every attacker who knows the universe, the
    pool, the mechanism and the noise law. All subsets are evaluated before the secret is drawn.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=200)
    >>> release = pac.privatize(np.mean, ages, pac.Membership(0.6), n_subsets=64, rng=0)
    >>> bool(release.certificate.membership_bound <= 0.6)
    True
    """
    if target is not None:
        cap = Session(
            data,
            budget=budget,
            pool=pool,
            n_subsets=n_subsets,
            units=units,
            n_jobs=n_jobs,
            rng=rng,
            progress=progress,
            simulate=simulate,
        )
        with cap as session:
            return session.refine(
                mechanism, budget, target, rule=rule, levels=levels, checkpoint=checkpoint
            )
    if levels is not None:
        raise BudgetError("levels must come with a target; got levels alone. Leave it out.")
    seed = coerce_seed(rng)
    universe = coerce_data(data)
    prepared = as_mechanism(mechanism)
    given = None if rng is None else seed
    n_reserve = as_rule(rule).n_reserve
    if n_reserve and isinstance(pool, Pool) and not simulate:
        raise PoolError(
            "pool must be a strategy for a confidence or empirical certificate: the secret is one "
            "of its subsets, which nobody may have seen. Pass Half(...) or Poisson(...) itself."
        )
    if n_reserve and rng is not None and not simulate:
        raise BudgetError(
            "rng must be None for a confidence or empirical certificate: the secret subset is "
            "drawn with the pool. Leave rng out, or set simulate=True."
        )
    candidates, notes = draw_candidates(
        prepared,
        universe,
        pool,
        n_subsets=n_subsets,
        units=units,
        checkpoint=checkpoint,
        rng=given,
        n_reserve=n_reserve,
    )
    check_feasible(budget, rule, candidates)
    outputs = run_mechanism(
        prepared,
        universe,
        candidates,
        n_jobs=n_jobs,
        checkpoint=checkpoint,
        rng=given,
        progress=progress,
    )
    plan = calibrate(outputs, budget, rule=rule, pool=candidates, gamma=DEFAULT_GAMMA / 2, rng=seed)
    context = Context(
        outputs=outputs,
        pool=candidates,
        budget=budget,
        log_p=check_log_belief(None, candidates.n_subsets),
        gamma=DEFAULT_GAMMA,
        seed=seed,
        simulation=simulate,
        notes=notes,
    )
    source = SimulatedSource(public_generator(seed, "simulation")) if simulate else SystemSource()
    secret = Secret(candidates.n_subsets, source, first=plan.first_secret)
    return publish(plan, context, secret, source)[0]
