"""The whole story in two short functions: read this first.

records -> a coin for every unit -> what every unit changes -> noise plan -> release + certificate
records -> pool of candidates -> mechanism on every candidate -> noise plan -> release + certificate

Statistics that state the influence of one unit have coins, all other functions a pool. The steps
themselves are those of a session, here of one release.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pacprivacy.budget import BudgetLike
from pacprivacy.errors import BudgetError
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import AnyRule
from pacprivacy.queries import AT_LEAST, QuerySums, Tables
from pacprivacy.release import Release
from pacprivacy.sample import Coins, Pool, PoolStrategy
from pacprivacy.session import (
    Accuracy,
    Plan,
    QueryRelease,
    SampleOptions,
    Session,
    SingleSession,
    released_query,
)


def privatize(
    mechanism: Any,
    data: Any,
    budget: BudgetLike,
    *,
    sample: Pool | PoolStrategy | Coins | None = None,
    n_subsets: int | None = None,
    rule: AnyRule | None = None,
    units: Any = None,
    n_jobs: int | None = None,
    backend: str | None = None,
    checkpoint: str | Path | None = None,
    rng: np.random.Generator | int | None = None,
    progress: bool | None = None,
    simulate: bool = False,
    target: Accuracy | None = None,
    levels: int | None = None,
    name: str | None = None,
    totals: bool | str | Sequence[str] | None = None,
) -> Release:
    """Release a function of data with a certificate that holds against every attacker.

    Parameters
    ----------
    mechanism : callable or Mechanism
        ``f(data)`` or ``f(X, y)``; returns numbers, arrays, dicts or tuples of them, or a
        fitted scikit-learn estimator.
    data : array, frame, or tuple of those
        The universe of records. The release is computed on a secret part of it.
    budget : Information, Membership, EpsilonEquivalent, ResidualEntropy or several with ``&``
        Limits on every attacker; or the text of one, ``"membership<=0.6"``.
    sample : Coins, Pool or strategy, optional
        How the used units are chosen. By default :class:`pacprivacy.Coins`, a coin for every unit,
        where the mechanism states the influence of one unit: ``pac.stats`` and NumPy's functions of
        columns do. It is a pool where the mechanism does not, where the budget is not membership
        alone, where there are fewer than 200 units, and where an option of pools is set; the
        certificate says why. The default pool is ``Balanced(folds="auto")``: all but a fold, in as
        many folds as a pilot finds best where membership is limited and a fold has 100 subsets;
        halves and their complements otherwise.
    n_subsets : int, optional
        Number of candidates of a pool; 2000 where all are evaluated at once, else 256.
    rule : str or rule object, optional
        How the noise of a pool is found; the least certified noise by default.
    units : array or str, optional
        Group label of each row, when a person has several rows; or the column of a frame that
        holds it, which the mechanism then does not see.
    n_jobs : int, optional
        Worker processes, through joblib.
    backend : str, optional
        Backend: ``"loky"``, ``"threading"`` or, with an open client, ``"dask"``; by default
        as joblib is configured.
    checkpoint : path, optional
        File from which an interrupted run resumes.
    rng : Generator or int, optional
        Seed of public randomness (pool, mechanism, proof). Never of the secret or the noise.
    progress : bool, optional
        ``False`` hides the progress bar that a terminal shows.
    simulate : bool
        Take the secret and the noise from ``rng`` too. For experiments: the certificate says
        that such a release protects nobody.
    target : Accuracy, optional
        Stop spending once the released value is good enough on public data: observations of
        growing precision are released one by one, the value is their mean, and ``budget`` is
        the most that they may cost together.
    levels : int, optional
        Number of looks when there is a target; 12 for information, 4 where membership is limited.
    name : str, optional
        Name of the release in its certificate.
    totals : bool, str or sequence of str, optional
        Which numbers are sums or counts over the records: ``True`` for all, or their names, as
        ``"count"`` for the line of ``frame.describe()``. Those of a candidate are divided by its
        share of the units, so that the release is an estimate for all records. By default
        ``np.sum``, ``np.nansum``, ``sum``, ``math.fsum``, ``len``, ``np.size``,
        ``np.count_nonzero``, and ``sum`` and ``count`` of frames are totals, and no other function
        is. A number that is further from its value on all records than its error explains has no
        interval.

    Returns
    -------
    Release
        ``value`` (same structure as the mechanism's) and ``certificate``; a ``GradualRelease``
        when there is a target.

    Guarantee
    ---------
    Claim C-2. With coins, statistics of sums meet ``budget`` against every attacker, also those who
    know every coin but one; claim C-10: other statistics meet it on average over the coins.
    Claim R-3. With a pool, the release meets ``budget`` against every attacker who knows the
    universe, the pool, the mechanism and the noise law. All candidates are evaluated before the
    secret is drawn.
    Claim C-1. Which of the two it is depends on options, types and the number of units alone.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=1000)
    >>> release = pac.privatize(np.mean, ages, "membership<=0.6")
    >>> release.certificate.sampling, release.certificate.membership_bound <= 0.6
    ('coins', True)
    """
    if target is None and levels is not None:
        raise BudgetError("levels must come with a target; got levels alone. Leave it out.")
    options = SampleOptions(
        sample=sample,
        n_subsets=n_subsets,
        units=units,
        n_jobs=n_jobs,
        backend=backend,
        rng=rng,
        progress=progress,
        simulate=simulate,
    )
    if target is not None:
        with Session.with_options(data, budget, options) as session:
            return session.refine(
                mechanism,
                budget,
                target,
                levels=levels,
                rule=rule,
                checkpoint=checkpoint,
                name=name,
                totals=totals,
            )
    with SingleSession(
        data, budget, mechanism, options, rule=rule, checkpoint=checkpoint, totals=totals
    ) as single:
        return single.release(mechanism, rule=rule, checkpoint=checkpoint, name=name, totals=totals)


def plan(
    mechanism: Any,
    data: Any,
    budget: BudgetLike,
    *,
    sample: Pool | PoolStrategy | Coins | None = None,
    n_subsets: int | None = None,
    rule: AnyRule | None = None,
    units: Any = None,
    n_jobs: int | None = None,
    backend: str | None = None,
    checkpoint: str | Path | None = None,
    rng: np.random.Generator | int | None = None,
    progress: bool | None = None,
    totals: bool | str | Sequence[str] | None = None,
) -> Plan:
    """Return the plan of a release without drawing it: nothing is spent.

    The parameters are those of :func:`privatize`. The certificate is the one that a release with
    the same ``rng`` has; it depends on the records, as every certificate does, and is for the
    curator until something is released.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=1000)
    >>> plan = pac.plan(np.mean, ages, "membership<=0.6")
    >>> plan.certificate.sampling, plan.certificate.n_units
    ('coins', 1000)
    """
    options = SampleOptions(
        sample=sample,
        n_subsets=n_subsets,
        units=units,
        n_jobs=n_jobs,
        backend=backend,
        rng=rng,
        progress=progress,
    )
    with SingleSession(
        data, budget, mechanism, options, rule=rule, checkpoint=checkpoint, totals=totals
    ) as session:
        return session.plan(mechanism, rule=rule, checkpoint=checkpoint, totals=totals)


def sql(
    query: str,
    tables: Tables,
    budget: BudgetLike,
    *,
    keys: Any = None,
    at_least: int = AT_LEAST,
    fill: float | None = None,
    edges: Mapping[str, Sequence[float]] | None = None,
    sample: Pool | PoolStrategy | Coins | None = None,
    n_subsets: int | None = None,
    n_jobs: int | None = None,
    backend: str | None = None,
    checkpoint: str | Path | None = None,
    rng: np.random.Generator | int | None = None,
    progress: bool | None = None,
    simulate: bool = False,
    name: str | None = None,
) -> QueryRelease:
    """Release the answer to a query over tables, every cell with noise and an interval.

    Parameters
    ----------
    query : str
        A SELECT of aggregates, in the SQL of DuckDB. HAVING, ORDER BY and LIMIT of the outer query
        are taken of the released numbers.
    tables : Tables
        The universe: who is protected, and how each private table reaches them.
    budget : Information, Membership, EpsilonEquivalent, ResidualEntropy or several with ``&``
        Limits on every attacker, for the whole answer and not for each cell.
    keys : mapping, list or "universe", optional
        The groups of a GROUP BY: values of every key, a list of groups, or ``"universe"``, which
        publishes the groups in the data; the certificate says so.
    at_least : int
        With ``keys="universe"``: groups with fewer units are left out.
    fill : float, optional
        Value reported for an empty group, which has no average. Without it such queries are
        refused; counts and sums of empty groups are zero.
    edges : mapping of output to numbers, optional
        With coins: limits of the bins that medians and quantiles of an output are read from, lowest
        and highest value included. By default they are finest about the quantile of all records,
        which is published rounded to a sixteenth of a deviation.
    sample, n_subsets, n_jobs, backend, rng, progress, simulate
        As for :func:`privatize`. By default every unit has a coin (:class:`pacprivacy.Coins`) where
        the query is a function of sums over units, membership alone is limited and there are 200
        units or more; any other query is answered from a pool.
    checkpoint : path, optional
        Checkpoint file of queries by candidate, to resume after a stop; as for
        :func:`privatize`. Other plans write none.
    name : str, optional
        Name of the release in its certificate and in the ledger, before the query.

    Returns
    -------
    QueryRelease
        A release whose ``frame`` has the query's columns, each with its noise and 95 % interval.

    Guarantee
    ---------
    Claim Q-2. One noise draw for each cell, under one certificate for all; what a
    candidate answers is the core of the query on its tables. Claim Q-5 for coins.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import pacprivacy as pac
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"id": range(400), "region": rng.choice(["north", "south"], 400)})
    >>> visits = pd.DataFrame({"person": rng.integers(0, 400, 900), "cost": rng.gamma(9, 5, 900)})
    >>> clinic = pac.Tables({"people": people, "visits": visits}, unit="people.id",
    ...                     via={"visits": "person"})
    >>> found = pac.sql("SELECT region, avg(cost) AS cost FROM visits JOIN people ON person = id "
    ...                 "GROUP BY region", clinic, "membership<=0.75", n_subsets=128,
    ...                 keys={"region": ["north", "south"]})
    >>> list(found.frame.columns)
    ['region', 'cost', 'cost noise', 'cost low', 'cost high']
    """
    options = SampleOptions(
        sample=sample,
        n_subsets=n_subsets,
        n_jobs=n_jobs,
        backend=backend,
        rng=rng,
        progress=progress,
        simulate=simulate,
    )
    sums = None  # the sample is chosen by what the query is
    if sample is None:
        data = coerce_data(tables)
        sums = released_query(
            query, data, kind=QuerySums, keys=keys, at_least=at_least, fill=fill, edges=edges
        )
    with SingleSession(tables, budget, sums, options, checkpoint=checkpoint) as session:
        return session.sql(
            query,
            keys=keys,
            at_least=at_least,
            fill=fill,
            edges=edges,
            checkpoint=checkpoint,
            name=name,
        )
