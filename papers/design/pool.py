"""The models of [DESIGN] released by our rules: one secret half of a pool, certified.

Ridge coefficients in the paper's coordinates, and logistic regressions on the paper's features,
fitted on every half of a balanced pool and released once. ``exact`` meets an information budget,
``risk`` the membership success that this budget implies. Simulations on public data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import public_generator
from pacprivacy.design import LinearTransform, LogisticFit, OrthogonalRidge, RidgePenalty
from pacprivacy.mechanism import Mechanism
from pacprivacy.noise import calibrate
from pacprivacy.sample import Balanced, Pool
from pacprivacy.simulation import run_mechanism
from pacprivacy.theory import posterior_success
from papers.design.data import REGRESSION, add_constant, load_binary, load_regression
from papers.simulate import budget_of, simulate_pool

PoolRule = Literal["exact", "risk"]

RULES: Final[tuple[PoolRule, ...]] = ("exact", "risk")
AS_GIVEN: Final = "the coordinates of the experiment, computed from all training rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """What simulated releases from a pool are worth under one rule and budget.

    ``exact`` meets the information budget, ridge with the penalty for its noise. ``risk`` meets the
    membership success that the budget implies, with the penalty that is best without noise.
    ``mi_upper_nats`` is the proved bound on the information that a release gives away, and
    ``no_noise`` the utility without noise, over the halves of the pool.
    """

    dataset: str
    rule: PoolRule
    mi_nats: float
    success: float
    mi_upper_nats: float
    metric: Literal["mean squared error", "accuracy"]
    utility: float
    standard_error: float
    no_noise: float
    noise_variance: float
    n_subsets: int
    n_releases: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Model:
    """A model that can be fitted on every half, and how good its weights are on test rows."""

    data: tuple[Any, Any]
    strata: Any
    mechanism: Callable[[float | None], Mechanism]
    scores: Callable[[Matrix], Vector]
    is_ridge: bool

    @property
    def metric(self) -> Literal["mean squared error", "accuracy"]:
        return "mean squared error" if self.is_ridge else "accuracy"


def pool_rows(
    dataset: str,
    mi_budgets: tuple[float, ...],
    rules: tuple[PoolRule, ...] = RULES,
    *,
    n_subsets: int = 256,
    n_releases: int = 1000,
    seed: int = 0,
) -> list[PoolRow]:
    """Return one row for every rule that applies and every budget."""
    model = _ridge(dataset) if dataset in REGRESSION else _logistic(dataset)
    n_records = len(model.data[1])
    strategy = Balanced(n_subsets=n_subsets, stratify=not model.is_ridge)
    pool = strategy.draw(
        n_records, rng=public_generator(seed, f"{dataset} pool"), strata=model.strata
    )
    fits = _Fits(model, pool)
    rows = []
    for rule in rules:
        for mi_nats in mi_budgets:
            rng = public_generator(seed, f"{dataset} {rule}", round(1e9 * mi_nats))
            rows.append(_row(dataset, fits, rule, mi_nats, n_releases, rng))
    return rows


class _Fits:
    """Fits on the pool, one set for each penalty."""

    def __init__(self, model: _Model, pool: Pool) -> None:
        self.model, self.pool = model, pool
        self._kept: dict[float | None, Matrix] = {}

    def values(self, aim: float | None) -> Matrix:
        """Return the weights of all halves, with the penalty for an information budget."""
        if aim not in self._kept:
            mechanism = self.model.mechanism(aim)
            outputs = run_mechanism(
                mechanism, self.model.data, self.pool, rng=0, n_jobs=1, progress=False
            )
            self._kept[aim] = outputs.values
        return self._kept[aim]


def _row(
    dataset: str,
    fits: _Fits,
    rule: PoolRule,
    mi_nats: float,
    n_releases: int,
    rng: np.random.Generator,
) -> PoolRow:
    model = fits.model
    # Only the penalty of a ridge for `exact` prepares for the noise.
    values = fits.values(mi_nats if rule == "exact" and model.is_ridge else None)
    plan = calibrate(values, budget_of(rule, mi_nats), pool=fits.pool, rng=0)
    scores = model.scores(simulate_pool(plan, n_releases, rng))
    return PoolRow(
        dataset=dataset,
        rule=rule,
        mi_nats=mi_nats,
        success=posterior_success(mi_nats),
        mi_upper_nats=plan.mi_upper,
        metric=model.metric,
        utility=float(scores.mean()),
        standard_error=float(scores.std() / np.sqrt(n_releases)),
        no_noise=float(model.scores(values).mean()),
        noise_variance=plan.total_variance,
        n_subsets=len(values),
        n_releases=n_releases,
    )


def _as_given(n_columns: int) -> LinearTransform:
    return LinearTransform(mean=np.zeros(n_columns), matrix=np.eye(n_columns), description=AS_GIVEN)


def _ridge(dataset: str) -> _Model:
    split = load_regression(dataset)
    transform = _as_given(split.Z.shape[1])
    return _Model(
        data=(split.Z, split.target),
        strata=None,
        mechanism=lambda aim: OrthogonalRidge(
            penalty=RidgePenalty(mi_nats=aim), transform=transform, universe_facts=True
        ),
        scores=split.test_errors,
        is_ridge=True,
    )


def _logistic(dataset: str) -> _Model:
    split = load_binary(dataset)
    d = split.X.shape[1] - split.has_constant  # the fit brings a constant of its own
    rows_test, truth = add_constant(split.X_test[:, :d]), split.y_test > 0
    labels = (split.y > 0).astype(np.int64)
    transform = _as_given(d)

    def accuracies(weights: Matrix) -> Vector:
        rates: Vector = ((rows_test @ weights.T > 0) == truth[:, None]).mean(axis=0)
        return rates

    return _Model(
        data=(split.X[:, :d].copy(), labels),
        strata=labels,
        mechanism=lambda _: LogisticFit(penalty=split.objective.penalty, transform=transform),
        scores=accuracies,
        is_ridge=False,
    )
