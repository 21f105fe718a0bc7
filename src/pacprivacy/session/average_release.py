"""One release of a statistic that is no function of sums, where every unit has a coin.

Everything up to the draw is here; whose coins they are, and when they are drawn, is the secret's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from pacprivacy import _version, release as releasing
from pacprivacy._checks import Mask, Vector
from pacprivacy._random import BitSource
from pacprivacy.adversary import influence_parameter
from pacprivacy.budget import Membership, Spent
from pacprivacy.mechanism import Data, Mechanism, flatten
from pacprivacy.noise import AveragePlan, plan_average
from pacprivacy.session.secret import Accounts, Plan
from pacprivacy.simulation import Outputs
from pacprivacy.statistics import AveragedStatistic, CoinUnits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AverageSampler:
    """Draws the noise around the value of the used units."""

    plan: AveragePlan

    def observe(self, kept: Mask, source: BitSource, /) -> Vector:
        """Return the noisy value of the units that are used."""
        return self.plan.release(kept, source)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AverageReleasePlan(Plan):
    """What would be released of the units that are used; the certificate follows from ``bundle``.

    ``statistic`` shapes the numbers of the value, as of ``data``.
    """

    drawn: AverageSampler = field(repr=False)
    statistic: AveragedStatistic = field(repr=False)
    data: Data = field(repr=False)
    bundle: releasing.AverageBundle = field(repr=False)
    before: Spent

    @property
    def sampler(self) -> AverageSampler:
        """Sampler of the noise."""
        return self.drawn

    @property
    def accounts(self) -> None:
        """Units have no accounts: the release stands alone."""
        return

    def rests_on(self, spent: Spent, accounts: Accounts | None) -> bool:
        """Whether nothing was spent since the plan was made."""
        return self.before is spent

    def value_of(self, observed: Vector) -> Any:
        """Return the released value, a function of the noisy numbers."""
        return self.outputs.restore(self._shaped(observed))

    def _shaped(self, numbers: Vector) -> Vector:
        return flatten(self.statistic.shaped(numbers, self.data))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What was asked for, and whether coins and noise are those of a simulation."""

    budget: Membership
    simulate: bool


def plan_average_release(
    mechanism: Mechanism,
    statistic: AveragedStatistic,
    records: tuple[Data, npt.NDArray[Any] | None],
    *,
    coins: CoinUnits,
    promise: Promise,
    before: Spent,
) -> AverageReleasePlan | None:
    """Find the noise of a release, prove what it does, and write the certificate.

    None where it is not known how one unit moves the statistic.
    """
    (data, units), budget = records, promise.budget
    value = statistic.on_samples(data, units, coins)
    if value is None:
        return None
    plan = plan_average(
        value, success=budget.success, keep=coins.keep, seed=coins.seed, clip=coins.clip
    )
    value = plan.value
    structure = flatten(statistic.shaped(value.on_all, data))[1]

    def shaped(numbers: Vector) -> Vector:
        return flatten(statistic.shaped(numbers, data))[0]

    outputs = Outputs(
        values=shaped(value.on_all)[None, :],
        structure=structure,
        mechanism_name=mechanism.name,
        public=(*mechanism.public, *value.public),
        published=mechanism.published,
        seed=0,
        finish=mechanism.finish,
        model=mechanism.model,
        on_all=shaped(value.on_all),
    )
    deviations = (shaped(plan.spread), shaped(plan.noise_std))
    bars = releasing.measure_coin_error_bars(outputs, deviations, share=coins.keep)
    bundle = _bundle(plan, outputs, bars, coins, promise)
    return AverageReleasePlan(
        certificate=releasing.write_average_certificate(bundle),
        charge=Spent(n_releases=1, mu_squared=influence_parameter(budget.success) ** 2),
        outputs=outputs,
        error_bars=bars,
        drawn=AverageSampler(plan=plan),
        statistic=statistic,
        data=data,
        bundle=bundle,
        before=before,
    )


def _bundle(
    plan: AveragePlan,
    outputs: Outputs,
    bars: releasing.ErrorBars | None,
    coins: CoinUnits,
    promise: Promise,
) -> releasing.AverageBundle:
    facts = () if bars is None else (bars.coin_sentence,)
    return releasing.AverageBundle(
        proof=plan.proof,
        grid=plan.lattice.grid,
        units_per_std=plan.lattice.units_per_std,
        n_units=coins.n_units,
        keep=coins.keep,
        dimension=outputs.n_outputs,
        unit=coins.unit,
        simulation=promise.simulate,
        budget=promise.budget,
        stated=releasing.CuratorStatements(
            rule="average influence",
            mechanism=outputs.mechanism_name,
            output=outputs.structure.describe(),
            public=outputs.public,
            published=(*outputs.published, *plan.published, *facts),
            notes=releasing.error_bar_notes(bars),
            software=_version.__version__,
        ),
    )
