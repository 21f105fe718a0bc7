"""At equal guaranteed membership success: privacy-conscious design by information, and ``risk``.

The question of the whole page in one table. Both columns promise that no guess of one record's
membership is right more often than 58.8 %: the paper's design through the information that implies
it, ours by calibrating to that success itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pacprivacy.theory import posterior_success
from papers.design.data import REGRESSION
from papers.design.descent import descent_rows
from papers.design.pool import PoolRow, pool_rows
from papers.design.ridge import ridge_rows
from papers.design.tables import DesignRow

MI_NATS: Final = 1 / 64  # its bound on membership success is 58.8 %


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualRow:
    """Both promises on one data set, at the same guaranteed membership success.

    ``conscious`` is the paper's protocol with oracle parameters, ``same_information`` our pool at
    the same information, ``risk`` our pool at the same success with the estimators' defaults, and
    ``risk_nats`` the proved bound on the information that it gives away.
    """

    dataset: str
    metric: Literal["mean squared error", "accuracy"]
    success: float
    conscious: float
    conscious_error: float
    same_information: float
    risk: float
    risk_error: float
    no_noise: float
    risk_nats: float
    n_trials: int
    n_subsets: int
    n_releases: int

    @property
    def gain(self) -> float:
        """How much better ``risk`` is: error taken away, or accuracy won."""
        better = self.risk - self.conscious
        return better if self.metric == "accuracy" else -better


def equal_row(
    dataset: str,
    *,
    n_trials: int = 500,
    n_repeats: int = 8,
    n_subsets: int = 256,
    n_releases: int = 1000,
    seed: int = 0,
) -> EqualRow:
    """Measure one data set under both promises."""
    if dataset in REGRESSION:
        paper = ridge_rows(
            datasets=(dataset,),
            settings=("oracle",),
            mi_budgets=(MI_NATS,),
            n_repeats=n_repeats,
            seed=seed,
        )
    else:
        paper = descent_rows(
            dataset=dataset,
            settings=("oracle",),
            mi_budgets=(MI_NATS,),
            n_trials=n_trials,
            seed=seed,
        )
    ours = pool_rows(
        dataset,
        (MI_NATS,),
        ("exact", "risk"),
        n_subsets=n_subsets,
        n_releases=n_releases,
        seed=seed,
    )
    return _join(paper[1], ours[0], ours[1])


def _join(conscious: DesignRow, exact: PoolRow, risk: PoolRow) -> EqualRow:
    return EqualRow(
        dataset=risk.dataset,
        metric=risk.metric,
        success=posterior_success(MI_NATS),
        conscious=conscious.utility,
        conscious_error=conscious.standard_error,
        same_information=exact.utility,
        risk=risk.utility,
        risk_error=risk.standard_error,
        no_noise=risk.no_noise,
        risk_nats=risk.mi_upper_nats,
        n_trials=conscious.n_releases,
        n_subsets=risk.n_subsets,
        n_releases=risk.n_releases,
    )
