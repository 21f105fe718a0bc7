"""What a search over parameters costs: every fit of it is a release.

A grid search fits a private model for every candidate and fold, and looks at all of them. Each
fit draws a secret subset of its own, so that what is learned about all secrets together is at
most the sum; the certificate of the best model alone would hide the others.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.utils.validation import check_is_fitted

from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy._sklearn import (
    find_inside,
    private_steps,
    read_new as read_new,
    read_seed as read_seed,
)
from pacprivacy.adversary import DEFAULT_GAMMA
from pacprivacy.budget import Spent, budget_limits
from pacprivacy.dp.estimators import DPBase, DPSearchCost, dp_search_cost, note_dp_fit
from pacprivacy.errors import CertificateError
from pacprivacy.estimators.base import PrivateBase
from pacprivacy.noise import as_rule
from pacprivacy.pool import Balanced
from pacprivacy.release import Certificate
from pacprivacy.session import SUBSETS_BATCHED
from pacprivacy.theory import posterior_success

SCHEMA_VERSION: Final = 2
NO_FIT: Final = Spent(mi_nats=0.0, success_level=0.5)

_ADVICE: Final = (
    "Use scoring=ScoreWithCost(...), which notes what each fit costs, refit='score' and "
    "error_score='raise'."
)


def _spent_by(certificate: Certificate) -> Spent:
    """Read what one release spent off its certificate."""
    return Spent(
        n_releases=1,
        mi_nats=certificate.mi_upper_nats,
        success_level=certificate.membership_bound,
        gamma=1.0 - certificate.confidence,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCost:
    """What a whole search has released; every field is public.

    Parameters
    ----------
    candidates : tuple of (str, Spent)
        Each candidate's parameters, and what its fits on all folds spent. Every fit has a secret
        of its own; ``success_level`` bounds the guess of membership in one of the subsets.
    refit : Spent
        The fit of the best candidate on all records.
    total : Spent
        The sum.
    certificate : Certificate, optional
        That of the best model, with the total of the search in its ``composition``.

    Examples
    --------
    >>> from pacprivacy.budget import Spent
    >>> fit = Spent(n_releases=2, mi_nats=0.25, success_level=0.6)
    >>> refit = Spent(n_releases=1, mi_nats=0.125, success_level=0.6)
    >>> cost = SearchCost(candidates=(("C=1", fit),), refit=refit, total=fit + refit)
    >>> cost.total.mi_nats, cost.ever_used_prior
    (0.375, 0.875)
    """

    candidates: tuple[tuple[str, Spent], ...]
    refit: Spent
    total: Spent
    certificate: Certificate | None = field(default=None, repr=False)

    @property
    def any_inference(self) -> float:
        """Bound on the success of any guess with prior 1/2 about the secrets."""
        assert self.total.mi_nats is not None  # every fit states it
        return posterior_success(self.total.mi_nats, 0.5)

    @property
    def ever_used_prior(self) -> float:
        """How well a blind guess does at whether a record was used in any of the fits."""
        return 1.0 - 2.0**-self.total.n_releases

    def __str__(self) -> str:
        rows = [*self.candidates, ("refit", self.refit), ("total", self.total)]
        lines = [
            f"{at_most(cost.mi_nats or 0.0, significant=4):>10} nats  "
            f"{cost.n_releases:>4} releases  {name}"
            for name, cost in rows
        ]
        level = percent_at_most(self.total.success_level or 1.0)
        lines.append(
            f"Each fit has a secret of its own: no attacker guesses whether one record was used in "
            f"one given fit with success above {level} %. That it "
            f"was used in some fit is likely beforehand ({100 * self.ever_used_prior:.4g} %)."
        )
        return "\n".join(lines)

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""
        return {
            "schema_version": SCHEMA_VERSION,
            "candidates": [{"params": name, **asdict(cost)} for name, cost in self.candidates],
            "refit": asdict(self.refit),
            "total": asdict(self.total),
            "any_inference": self.any_inference,
            "ever_used_prior": self.ever_used_prior,
            "certificate": self.certificate and self.certificate.to_public_dict(),
        }


@dataclass(frozen=True, slots=True)
class ScoreWithCost:
    """Scoring for a search that notes, beside the score, what each fit has cost.

    Parameters
    ----------
    scoring : str or callable, optional
        How predictions are scored, as in scikit-learn; by default the estimator's ``score``.
    public : tuple of arrays, optional
        ``(X, y)`` that are not about the records. Every fit is scored on them instead of on the
        fold left out; under differential privacy a choice by such scores costs nothing more.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.model_selection import GridSearchCV
    >>> X = np.random.default_rng(0).normal(size=(120, 2))
    >>> model = pac.PrivateEstimator(Ridge(), budget=pac.Information(0.1), n_subsets=16)
    >>> grid = {"estimator__alpha": [1.0, 10.0]}
    >>> search = GridSearchCV(model, grid, cv=2, scoring=ScoreWithCost(), refit="score")
    >>> cost = search_cost(search.fit(X, X[:, 0]))
    >>> cost.total.n_releases, cost.total.mi_nats <= 0.5
    (5, True)
    """

    scoring: Any = None
    public: tuple[Any, ...] | None = None

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> dict[str, float]:
        """Return ``score`` and the parts of what was spent, or those of a DP event."""
        scorer = check_scoring(estimator, self.scoring)
        data = self.public or ((X,) if y is None else (X, y))
        score = float(scorer(estimator, *data))
        if _is_dp(estimator):
            return {"score": score, **note_dp_fit(estimator)}
        cost = asdict(_measured(estimator))
        return {"score": score, **{name: part for name, part in cost.items() if part is not None}}


def search_cost(search: Any, *, delta: float | None = None) -> SearchCost | DPSearchCost:
    """Add up everything that a fitted search has released.

    Parameters
    ----------
    search : fitted GridSearchCV, RandomizedSearchCV or halving search
        Over a private estimator, or a pipeline with private steps. With
        ``scoring=ScoreWithCost(...)`` the costs are those of the certificates. Without, and for
        fits that raised, each fit is counted at what its budget allows, and at ``ln(n_subsets)``
        where that limits only membership: whoever raised may have seen what was released. Over
        estimators of differential privacy the events of all fits are composed; without
        :class:`ScoreWithCost` each fit is one event of its ``epsilon`` and ``delta``.
    delta : float, optional
        The ``δ`` of the total, for differential privacy; the sum over all fits by default.

    Returns
    -------
    SearchCost, or DPSearchCost for estimators of differential privacy

    Raises
    ------
    CertificateError
        If nothing private is inside, if both kinds are, or if what it cost cannot be told.

    Guarantee
    ---------
    Claim E-2. The secrets of all fits together, and all that the search released, have mutual
    information at most ``total.mi_nats``; the best guess of one record's membership in one given
    fit succeeds at most with ``total.success_level``. Both hold except with probability
    ``total.gamma`` over the draws of the proofs. Claim DP-23 for differential privacy: all fitted
    models together are ``(epsilon, delta)``-private; the cost says whether that covers the choice.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> from pacprivacy.estimators import ScoreWithCost
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.model_selection import GridSearchCV
    >>> X = np.random.default_rng(0).normal(size=(120, 2))
    >>> model = pac.PrivateEstimator(Ridge(), budget=pac.Information(0.1), n_subsets=16)
    >>> noted = {"scoring": ScoreWithCost(), "refit": "score"}
    >>> search = GridSearchCV(model, {"estimator__alpha": [1.0, 10.0]}, cv=2, **noted)
    >>> search_cost(search.fit(X, X[:, 0])).total.n_releases
    5
    """
    check_is_fitted(search)
    if _is_dp(search.estimator):
        scored = isinstance(search.scoring, ScoreWithCost) and search.scoring.public is not None
        return dp_search_cost(search, delta=delta, scored_on_public=scored)
    candidates = tuple(_candidate_costs(search))
    best = getattr(search, "best_estimator_", None)
    refit = NO_FIT if best is None else _measured(best)
    total = sum((cost for _, cost in candidates), refit)
    cost = SearchCost(candidates=candidates, refit=refit, total=total)
    if best is None:
        return cost
    certificate = [model.certificate_ for model in _find_fitted(best)][-1]
    unclear = (
        f"Whether a record was used in any of the {total.n_releases} fits of the search: that is "
        f"likely beforehand ({100 * cost.ever_used_prior:.4g} %); the bound is on one given fit."
    )
    certificate = replace(
        certificate,
        composition=_composition(cost),
        not_promised=(*certificate.not_promised, unclear),
    )
    return replace(cost, certificate=certificate)


def _is_dp(estimator: Any) -> bool:
    """Tell which kind of privacy is inside; refuse both at once."""
    dp = any(True for _ in find_inside(estimator, DPBase))
    if dp and any(True for _ in find_inside(estimator, PrivateBase)):
        raise CertificateError(
            f"estimator must be private in one sense; got a {type(estimator).__name__} with PAC "
            "and DP steps, whose costs do not add up. Search over one of them."
        )
    return dp


def _composition(cost: SearchCost) -> dict[str, Any]:
    return {
        "release_number": cost.total.n_releases,
        "secrets": "fresh for every release",
        "search": f"{len(cost.candidates)} candidates, each fitted on every fold, and one refit",
        "spent_nats_so_far": cost.total.mi_nats,
        "any_guess_at_prior_half": cost.any_inference,
        "session_success_bound": cost.total.success_level,
        "probability_that_a_proof_is_wrong": cost.total.gamma,
        "prior_of_ever_used": cost.ever_used_prior,
    }


def _candidate_costs(search: Any) -> Iterator[tuple[str, Spent]]:
    results = search.cv_results_
    for i, params in enumerate(results["params"]):
        shown = ", ".join(f"{name}={value}" for name, value in params.items())
        model = clone(search.estimator).set_params(**clone(params, safe=False))
        fits = [_recorded(results, i, k) or _declared(model) for k in range(search.n_splits_)]
        yield shown, sum(fits, NO_FIT)


def _recorded(results: Mapping[str, Any], candidate: int, split: int) -> Spent | None:
    """Return the cost that :class:`ScoreWithCost` noted; ``None`` where there is no such note."""
    names = ("n_releases", "mi_nats", "success_level", "gamma")
    if f"split{split}_test_mi_nats" not in results:
        return None
    found = {name: float(results[f"split{split}_test_{name}"][candidate]) for name in names}
    same = len(set(found.values())) == 1  # error_score, which stands in every field
    if same or not all(value >= 0.0 for value in found.values()):  # NaN by default
        return None
    return Spent(
        n_releases=int(found["n_releases"]),
        mi_nats=found["mi_nats"],
        success_level=found["success_level"],
        gamma=found["gamma"],
    )


def _measured(estimator: Any) -> Spent:
    """Add up the certificates of all private estimators inside a fitted one."""
    costs = [_spent_by(model.certificate_) for model in _find_fitted(estimator)]
    if not costs:
        raise CertificateError(
            f"estimator must hold a fitted private estimator; got a {type(estimator).__name__} "
            "without. Search over PrivateEstimator or a pipeline with private steps."
        )
    return sum(costs, NO_FIT)


def _declared(estimator: Any) -> Spent:
    """Bound the cost of one fit by what was asked, where each private step is fitted once."""
    private = private_steps(estimator, PrivateBase, _ADVICE)
    return sum((_asked(model) for model in private), NO_FIT)


def _asked(model: PrivateBase) -> Spent:
    if as_rule(model.rule).n_reserve:
        raise CertificateError(
            f"search must use a rule for a finite pool to be counted by its budget; got "
            f"{as_rule(model.rule).name!r}. {_ADVICE}"
        )
    limits = budget_limits(model.get_params(deep=False)["budget"])
    n_subsets = model.n_subsets or getattr(model.pool, "n_subsets", None) or SUBSETS_BATCHED
    nats = math.log(n_subsets)  # nobody learns more than the secret itself
    nats = nats if limits.mi_nats is None else min(nats, limits.mi_nats)
    success = limits.success_level
    if success is None:
        even = model.pool is None or isinstance(model.pool, Balanced)
        success = posterior_success(nats, 0.5) if even else 1.0
    return Spent(n_releases=1, mi_nats=nats, success_level=success, gamma=DEFAULT_GAMMA)


def _find_fitted(estimator: Any) -> Iterator[PrivateBase]:
    found = find_inside(estimator, PrivateBase)
    return (model for model in found if hasattr(model, "certificate_"))
