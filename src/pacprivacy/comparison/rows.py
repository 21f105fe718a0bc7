"""One data set, one model, every PAC rule and every DP method at the same attacker success."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import SimulatedSource, coerce_seed, public_generator
from pacprivacy.budget import Membership
from pacprivacy.comparison.models import MODELS, Model, Records
from pacprivacy.comparison.record import Comparison, ComparisonRow
from pacprivacy.dp import DPCertificate, calibrate_to_advantage
from pacprivacy.errors import BudgetError, DataError, PacPrivacyError
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import calibrate
from pacprivacy.pool import Pool
from pacprivacy.simulation import Outputs, draw_candidates, run_mechanism

RULES: Final = ("diagonal", "waterfill", "exact", "risk")
TEST_SHARE: Final = 0.25


def compare(
    X: Any,
    y: Any = None,
    *,
    model: str,
    success: float,
    ranges: tuple[Any, Any],
    target_range: tuple[float, float] | None = None,
    test: tuple[Any, Any] | None = None,
    delta: float | None = None,
    rules: tuple[str, ...] = RULES,
    n_subsets: int = 256,
    n_releases: int = 200,
    n_dp_releases: int = 20,
    rng: np.random.Generator | int | None = None,
) -> Comparison:
    """Release one model in every way the library knows, at equal guaranteed membership success.

    Parameters
    ----------
    X, y : arrays of shapes (n, d) and (n,)
        Records; the target is left out for ``model="mean"``.
    model : {"mean", "ridge", "logistic"}
        What is fitted.
    success : float in (1/2, 1)
        The best attacker's success at guessing one record's membership, for every row: a PAC
        budget ``Membership(success)``, and for each method of differential privacy the ``ε`` at
        which its own advantage is ``2 success - 1``.
    ranges : pair of numbers or of arrays of length d
        Least and largest value of every feature. Features are clipped to them; they must be known
        without these records, since DP rests on them.
    target_range : pair of numbers, optional
        The same for the target of ``ridge``.
    test : pair of arrays, optional
        Rows on which the models are judged; by default a quarter of the records is kept out.
    delta : float, optional
        Where the ``ε`` of a method is read; ``1/n^1.5`` by default. The noise follows from the
        success; ``delta`` has next to no part in it.
    rules : tuple of str
        PAC noise rules.
    n_subsets, n_releases, n_dp_releases : int
        Candidates of the pool, and simulated releases of every row.
    rng : Generator or int, optional
        Seed of everything: a comparison protects nobody.

    Returns
    -------
    Comparison
        For the curator: it was computed from the records without a promise.

    Guarantee
    ---------
    Claim DP-30. ``δ(0)`` of every row of differential privacy is at most ``2 success - 1``, and at
    least 99.9 % of it: none is given more noise than the success asks for.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
    >>> settings = {"success": 0.7, "ranges": (-1, 1), "rules": ("waterfill",), "n_subsets": 16}
    >>> found = compare(X, X[:, 0] > 0, model="logistic", n_dp_releases=2, **settings)
    >>> found.rows[0].family, found.metric
    ('PAC', 'accuracy')
    """
    chosen = _find(model)
    promise = Membership(success)
    seed = coerce_seed(rng)
    train, judged = _read(X, y, chosen, ranges, target_range, test, delta, seed)
    goal = _fit_all(chosen, train)
    rows = _pac_rows(chosen, train, judged, promise, goal, rules, n_subsets, n_releases, seed)
    for name in chosen.methods:
        rows.append(_dp_row(name, chosen, train, judged, promise, goal, n_dp_releases, seed))
    return Comparison(
        model=model,
        metric=chosen.metric,
        larger_is_better=chosen.larger_is_better,
        without_privacy=chosen.judge(goal, judged),
        success=promise.success,
        n_records=len(train.X),
        rows=tuple(rows),
    )


def _find(model: str) -> Model:
    if model not in MODELS:
        raise DataError(f"model must be one of {', '.join(MODELS)}; got {model!r}. Use 'logistic'.")
    return MODELS[model]


def _read(
    X: Any,
    y: Any,
    model: Model,
    ranges: tuple[Any, Any],
    target_range: tuple[float, float] | None,
    test: tuple[Any, Any] | None,
    delta: float | None,
    seed: int,
) -> tuple[Records, Records]:
    """Map features and target to [-1, 1]; return the records, and the rows that judge."""
    features = _mapped(X, ranges, "ranges")
    target = _target(y, len(features), model, target_range)
    kept = 1 / len(features) ** 1.5 if delta is None else delta
    if not 0.0 < kept < 1.0:
        raise BudgetError(f"delta must be between 0 and 1; got {delta!r}. Use below 1/n.")
    whole = Records(X=features, y=target, delta=kept)
    if model.target is None:
        return whole, whole
    if test is not None:
        others = _mapped(test[0], ranges, "ranges")
        judged = _target(test[1], len(others), model, target_range, like=y)
        return whole, Records(X=others, y=judged, delta=kept)
    order = public_generator(seed, "split").permutation(len(features))
    cut = int(TEST_SHARE * len(features))
    assert target is not None  # the model has one
    parts = [Records(X=features[i], y=target[i], delta=kept) for i in (order[cut:], order[:cut])]
    return parts[0], parts[1]


def _mapped(values: Any, ranges: tuple[Any, Any], name: str) -> Matrix:
    """Clip to declared ranges and map them to [-1, 1]."""
    array = np.asarray(values, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    low, high = (np.asarray(end, dtype=np.float64) for end in ranges)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise DataError(
            f"{name} must be two finite ends, the first below the second. Declare what the "
            "values can be, without looking at them."
        )
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise DataError("X must be a table of finite numbers. Drop or fill missing entries.")
    if low.ndim and low.shape != (array.shape[1],):
        raise DataError(
            f"{name} must have one pair for each of {array.shape[1]} features; got {low.size}. "
            "Give one pair of numbers to use it for all."
        )
    mapped: Matrix = 2 * (np.clip(array, low, high) - low) / (high - low) - 1
    return mapped


def _target(
    y: Any, n: int, model: Model, target_range: tuple[float, float] | None, like: Any = None
) -> Vector | None:
    if model.target is None:
        return None
    if y is None or len(y) != n:
        raise DataError(f"y must hold one target for each of {n} records. Pass X and y.")
    if model.target == "numbers":
        if target_range is None:
            raise DataError(
                "target_range must be declared for ridge; got None. Give the least and the "
                "largest value that a target can have."
            )
        return np.asarray(_mapped(y, target_range, "target_range")[:, 0], dtype=np.float64)
    labels = np.unique(np.asarray(y if like is None else like))
    if len(labels) != 2 or not np.isin(np.asarray(y), labels).all():
        raise DataError(
            f"y must have two classes for logistic; got {len(labels)}. "
            "Compare one class against the rest."
        )
    return np.where(np.asarray(y) == labels[1], 1.0, -1.0)


def _fit_all(model: Model, train: Records) -> Vector:
    """Return the parameters of the fit on all records, without any privacy."""
    data = coerce_data(train.parts if len(train.parts) > 1 else train.parts[0])
    mechanism = model.mechanism().prepare(data)
    rng = public_generator(0, "fit")
    return model.vector(mechanism.finish(mechanism.evaluate(data.parts, rng)))


def _pac_rows(
    model: Model,
    train: Records,
    judged: Records,
    promise: Membership,
    goal: Vector,
    rules: tuple[str, ...],
    n_subsets: int,
    n_releases: int,
    seed: int,
) -> list[ComparisonRow]:
    data = coerce_data(train.parts if len(train.parts) > 1 else train.parts[0])
    mechanism = model.mechanism()
    pool, _ = draw_candidates(mechanism, data, None, n_subsets=n_subsets, units=None, rng=seed)
    outputs = run_mechanism(mechanism, data, pool, rng=seed, progress=False)
    return [
        _pac_row(rule, model, outputs, pool, judged, promise, goal, n_releases, seed)
        for rule in rules
    ]


def _pac_row(
    rule: str,
    model: Model,
    outputs: Outputs,
    pool: Pool,
    judged: Records,
    promise: Membership,
    goal: Vector,
    n_releases: int,
    seed: int,
) -> ComparisonRow:
    try:
        plan = calibrate(outputs, promise, rule=rule, pool=pool, rng=seed)
    except BudgetError as error:
        return _refused("PAC", rule, promise, error)
    rng = public_generator(seed, "releases")
    source = SimulatedSource(rng)
    found = [
        model.vector(outputs.restore(plan.value_of(plan.observe(int(secret), source))))
        for secret in rng.integers(pool.n_subsets, size=n_releases)
    ]
    return _row("PAC", rule, model, found, judged, promise, goal, mi_nats=plan.mi_upper)


def _dp_row(
    name: str,
    model: Model,
    train: Records,
    judged: Records,
    promise: Membership,
    goal: Vector,
    n_releases: int,
    seed: int,
) -> ComparisonRow:
    method = model.methods[name]
    try:
        epsilon = calibrate_to_advantage(
            lambda trial: _advantage(method(train, trial, seed).certificate),
            2.0 * promise.success - 1.0,
            delta=train.delta,
        )
        releases = [method(train, epsilon, seed + 1 + k) for k in range(n_releases)]
    except PacPrivacyError as error:
        return _refused("DP", name, promise, error)
    spent = releases[0].certificate
    found = [np.ravel(release.value) for release in releases]
    row = _row("DP", name, model, found, judged, promise, goal)
    return replace(
        row,
        epsilon=spent.epsilon,
        delta=spent.delta,
        advantage=_advantage(spent),
        neighbours=spent.neighbours,
    )


def _advantage(certificate: DPCertificate) -> float:
    return 2.0 * certificate.membership_bound - 1.0


def _refused(family: Any, name: str, promise: Membership, error: Exception) -> ComparisonRow:
    """Return the row of a method that cannot keep the promise on these records."""
    return ComparisonRow(
        family=family,
        method=name,
        utility=None,
        standard_error=None,
        distance=None,
        success=promise.success,
        note=f"refused ({type(error).__name__})",
    )


def _row(
    family: Any,
    name: str,
    model: Model,
    found: list[Vector],
    judged: Records,
    promise: Membership,
    goal: Vector,
    *,
    mi_nats: float | None = None,
) -> ComparisonRow:
    utilities = np.array([model.judge(vector, judged) for vector in found])
    distance = float(np.sqrt(np.mean([np.square(vector - goal).sum() for vector in found])))
    return ComparisonRow(
        family=family,
        method=name,
        utility=float(utilities.mean()),
        standard_error=float(utilities.std(ddof=1) / np.sqrt(len(found))),
        distance=distance,
        success=promise.success,
        n_releases=len(found),
        mi_nats=mi_nats,
    )
