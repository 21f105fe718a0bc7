"""What a search over parameters costs: every fit of it is a release.

A grid search fits a private model for every candidate and fold, and looks at all of them. The
certificate of the best model alone would hide the others.
"""

import math
from dataclasses import asdict, replace
from typing import Any, Final

from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from pacprivacy import dp
from pacprivacy._sklearn import find_inside
from pacprivacy.adversary import DEFAULT_GAMMA
from pacprivacy.budget import Spent, budget_limits
from pacprivacy.dp.estimators import DPBase
from pacprivacy.errors import CertificateError
from pacprivacy.estimators.base import PrivateBase
from pacprivacy.noise import as_rule
from pacprivacy.sample import Balanced
from pacprivacy.session import SUBSETS_BATCHED
from pacprivacy.theory import posterior_success

DISCRETIZATION: Final = 1e-3


def search_cost(search: Any, *, delta: float | None = None) -> Spent:
    """Add up what a fitted search over private estimators may have released.

    Every fit counts at what its budget allows, also one that raised: whoever raised may have seen
    what was released. Where a budget limits only membership, its information counts at
    ``ln(n_subsets)``. ``delta`` is that of the total, for differential privacy; the sum over all
    fits by default.

    Guarantee
    ---------
    Claim E-2. The secrets of all fits together, and all that the search released, have mutual
    information at most ``mi_nats``; the best guess of one record's membership in one given fit
    succeeds at most with ``success_level``. Both hold except with probability ``gamma`` over the
    draws of the proofs. Claim DP-23 for differential privacy: all fitted models together are
    ``(epsilon, delta)``-private; scores on private records and the choice made by them are not
    covered.

    Examples
    --------
    >>> import numpy as np
    >>> from pacprivacy.dp import DPLinearRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(120, 2))
    >>> model = DPLinearRegression("statistics", x_bound=2.0, y_bound=1.0)
    >>> search = GridSearchCV(model, {"alpha": [1.0, 10.0]}, cv=2)
    >>> search_cost(search.fit(X, X[:, 0])).n_releases
    5
    """
    check_is_fitted(search)
    candidates = [_cost_of_fit(search, params) for params in search.cv_results_["params"]]
    fits = [cost for cost in candidates for _ in range(search.n_splits_)]
    if search.refit:  # of the candidate that costs most: the choice depends on the other fits
        fits.append(_largest(candidates))
    total = sum(fits[1:], fits[0])
    return total if total.epsilon is None else _compose(search, fits, total, delta)


def _cost_of_fit(search: Any, params: Any) -> Spent:
    model = clone(search.estimator).set_params(**clone(params, safe=False))
    steps = [step for _, step in getattr(model, "steps", [("", model)])]
    private = [step for step in steps if isinstance(step, PrivateBase | DPBase)]
    others = [step for step in steps if not isinstance(step, PrivateBase | DPBase)]
    if not private or any(True for _ in find_inside(others, PrivateBase | DPBase)):
        raise CertificateError(
            f"search must be over a private estimator or a pipeline of them; got "
            f"{type(model).__name__}, whose number of releases is not known. Search over the "
            "private estimator itself."
        )
    if len({isinstance(step, DPBase) for step in private}) > 1:
        raise CertificateError(
            f"estimator must be private in one sense; got a {type(model).__name__} with PAC "
            "and DP steps, whose costs do not add up. Search over one of them."
        )
    costs = [_allowed(step) for step in private]
    return sum(costs[1:], costs[0])


def _allowed(model: PrivateBase | DPBase) -> Spent:
    """Return what the budget of one private estimator allows one fit."""
    if isinstance(model, DPBase):
        return Spent(n_releases=1, epsilon=float(model.epsilon), delta=float(model.delta))
    rule = as_rule(model.rule)
    if rule.n_reserve:
        raise CertificateError(
            f"search must use a rule for a finite pool to be counted by its budget; got "
            f"{rule.name!r}. Use rule='risk' or 'waterfill'."
        )
    limits = budget_limits(model.get_params(deep=False)["budget"])
    n_subsets = model.n_subsets or getattr(model.sample, "n_subsets", None) or SUBSETS_BATCHED
    nats = math.log(n_subsets)  # nobody learns more than the secret itself
    nats = nats if limits.mi_nats is None else min(nats, limits.mi_nats)
    success = limits.success_level
    if success is None:
        even = model.sample is None or isinstance(model.sample, Balanced)
        success = posterior_success(nats, 0.5) if even else 1.0
    return Spent(n_releases=1, mi_nats=nats, success_level=success, gamma=DEFAULT_GAMMA)


def _largest(costs: list[Spent]) -> Spent:
    amounts = [asdict(cost) for cost in costs]
    first = amounts[0]
    return Spent(**{name: first[name] and max(each[name] for each in amounts) for name in first})


def _compose(search: Any, fits: list[Spent], total: Spent, delta: float | None) -> Spent:
    """Compose the promises of all fits, or add them up if that is less."""
    best = getattr(search, "best_estimator_", None)
    relations = {model.certificate_.neighbours for model in find_inside(best, DPBase)}
    searched = {name.split("__")[-1] for params in search.cv_results_["params"] for name in params}
    if len(relations) != 1 or searched & {"neighbours", "sampling"}:
        raise CertificateError(
            "search must tell which neighbours its fits are about; got none, or several. Use "
            "refit=True and one setting of neighbours and sampling."
        )
    assert total.epsilon is not None  # of differential privacy
    assert total.delta is not None
    at = total.delta if delta is None else float(delta)
    events = [
        dp.ApproximateEvent(epsilon=fit.epsilon or 0.0, delta=fit.delta)
        if fit.delta
        else dp.PureEvent(epsilon=fit.epsilon or 0.0)
        for fit in fits
    ]
    epsilon = dp.account(
        events, delta=at, neighbours=relations.pop(), discretization=DISCRETIZATION
    ).best[1]
    least = min(epsilon, total.epsilon) if at >= total.delta else epsilon
    return replace(total, epsilon=least, delta=at)
