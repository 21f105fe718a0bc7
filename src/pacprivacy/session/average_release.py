"""One release of a statistic that is no function of sums, where every unit has a coin.

Everything up to the draw is here; whose coins they are, and when they are drawn, is the secret's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pacprivacy import release as releasing
from pacprivacy._checks import Mask, Vector
from pacprivacy._random import BitSource
from pacprivacy.adversary import influence_parameter
from pacprivacy.budget import Spent
from pacprivacy.mechanism import Data, Mechanism, flatten
from pacprivacy.noise import AveragePlan, plan_average
from pacprivacy.session.coin_release import Codes, CoinReleasePlan, CoinTerms
from pacprivacy.simulation import Outputs
from pacprivacy.statistics import AveragedStatistic


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AverageSampler:
    """Draws the noise around the value of the used units."""

    plan: AveragePlan

    def observe(self, kept: Mask, source: BitSource, /) -> Vector:
        """Return the noisy value of the units that are used."""
        return self.plan.release(kept, source)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AverageReleasePlan(CoinReleasePlan):
    """A plan of a noisy value; ``statistic`` shapes its numbers, as of ``data``."""

    drawn: AverageSampler = field(repr=False)
    statistic: AveragedStatistic = field(repr=False)
    data: Data = field(repr=False)

    @property
    def sampler(self) -> AverageSampler:
        """Sampler of the noise."""
        return self.drawn

    def value_of(self, observed: Vector) -> Any:
        """Return the released value, a function of the noisy numbers."""
        return self.outputs.restore(flatten(self.statistic.shaped(observed, self.data))[0])


def plan_average_release(
    mechanism: Mechanism, records: tuple[AveragedStatistic, Data, Codes], terms: CoinTerms
) -> AverageReleasePlan | None:
    """Find the noise of a release, prove what it does, and write the certificate.

    None where it is not known how one unit moves the statistic.
    """
    (statistic, data, units), coins, budget = records, terms.coins, terms.budget
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
    bundle = _bundle(plan, outputs, bars, terms)
    return AverageReleasePlan(
        certificate=releasing.write_average_certificate(bundle),
        charge=Spent(n_releases=1, mu_squared=influence_parameter(budget.success) ** 2),
        outputs=outputs,
        error_bars=bars,
        drawn=AverageSampler(plan=plan),
        statistic=statistic,
        data=data,
        bundle=bundle,
        before=terms.before,
    )


def _bundle(
    plan: AveragePlan,
    outputs: Outputs,
    bars: releasing.ErrorBars | None,
    terms: CoinTerms,
) -> releasing.AverageBundle:
    coins = terms.coins
    facts = () if bars is None else (bars.coin_sentence,)
    return releasing.AverageBundle(
        proof=plan.proof,
        grid=plan.lattice.grid,
        units_per_std=plan.lattice.units_per_std,
        n_units=coins.n_units,
        keep=coins.keep,
        dimension=outputs.n_outputs,
        unit=coins.unit,
        simulation=terms.simulate,
        budget=terms.budget,
        stated=releasing.CuratorStatements.about(
            outputs,
            rule="average influence",
            published=(*plan.published, *facts),
            notes=releasing.error_bar_notes(bars),
        ),
    )
