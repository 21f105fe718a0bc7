"""A release where every unit has a coin, up to the draw: records, noise, certificate, plan.

There are three kinds: sums, whose noise hides the contribution of every unit; averages, proved over
the coins; and descents, noisy sums of gradients step after step. Each reads its records once and
makes a plan under given terms. The coins themselves belong to the secret.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy import release as releasing
from pacprivacy._checks import Mask, Vector, as_told
from pacprivacy._random import BitSource
from pacprivacy._system import single_threaded
from pacprivacy.adversary import SESSION_SLACK
from pacprivacy.budget import Membership, Spent
from pacprivacy.errors import BudgetExceededError, MechanismError
from pacprivacy.mechanism import (
    Data,
    Mechanism,
    StepMechanism,
    Structure,
    flatten,
    total_numbers,
)
from pacprivacy.noise import (
    AveragePlan,
    DescentPlan,
    DescentTranscript,
    SumPlan,
    plan_average,
    plan_declared,
    plan_descent,
    plan_sums,
    simulate_descent_errors,
)
from pacprivacy.queries import Tables
from pacprivacy.release import CoinSession
from pacprivacy.session.secret import Cost, Plan, Price
from pacprivacy.simulation import Outputs
from pacprivacy.statistics import (
    AveragedStatistic,
    CoinUnits,
    Declaration,
    SampleValue,
    Sums,
    SumStatistic,
    UnitSums,
    declared_sums,
)

if TYPE_CHECKING:
    from pacprivacy.session.coin_secret import CoinAccount

NO_BARS_WITH_COINS: Final = (
    "No standard errors: how much the coins change the numbers is a fact of all records, and that "
    "would show who is in the table."
)
NO_ERRORS: Final = ("no intervals: how sure coefficients are was not measured",)
_ROUND_UP: Final = 1 + 2.0**-48
EMPTY_MARGIN_SD: Final = 6.0  # deviations by which a count must stay clear of its noise
Codes: TypeAlias = npt.NDArray[Any] | None  # of the unit of every row


class CoinPayment(NamedTuple):
    """Cost of a release; in a session also its place there."""

    cost: Cost
    session: CoinSession | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinTerms:
    """Budget of a release, and the owner of the coins.

    ``parameter`` is the influence that a unit may have, ``allowed`` that of every unit of the
    table where there is an ``account``. ``prepaid`` is the payment of a principal's query, with
    the slack that its noise may have.
    """

    coins: CoinUnits
    budget: Membership
    parameter: float
    simulate: bool
    before: Spent
    account: CoinAccount | None = field(default=None, repr=False)
    allowed: Vector | None = field(default=None, repr=False)
    prepaid: tuple[CoinPayment, float] | None = field(default=None, repr=False)

    def charge(self, parameter: float | None = None) -> Spent:
        """Return the cost of the unit of the largest influence."""
        largest = self.parameter if parameter is None else parameter
        return Spent(n_releases=1, mu_squared=largest**2)

    def pay(self, charges: Vector, slack: float) -> CoinPayment:
        """Return the cost of a release, given the charges of the table's units.

        Guarantee
        ---------
        Claim C-16. In a session they go to the clocks of these units, wherever those are.
        Claim K-2. The ledger is charged the gain of the busiest clock; the largest payment of a
        unit where the owner's own limit is below the cap, as others fill clocks too.
        """
        account = self.account
        if account is None or self.allowed is None:
            return CoinPayment(cost=Cost(charge=self.charge(), before=self.before))
        if self.prepaid is not None:
            payment, most = self.prepaid
            if slack > most:
                raise BudgetExceededError("a query must have fewer cells for its budget.")
            return payment
        clocks = account.clocks.after(account.roster.spread(charges), slack)
        charge = self.charge(float(charges.max(initial=0.0)) * _ROUND_UP)
        if not account.pays_largest:
            gained = max(0.0, clocks.busiest - account.clocks.busiest)
            charge = Spent(n_releases=1, mu_squared=gained)
        session = CoinSession(
            total=account.purse.total,
            before=account.purse.spent,
            charge=charge,
            clocks=account.clocks.spent[account.roster.places],
            allowed=self.allowed,
            absent=account.roster.largest_absent(account.clocks.spent),
            data_digest=account.data_digest,
        )
        cost = Cost(
            charge=charge, before=self.before, accounts_before=account.clocks, accounts=clocks
        )
        return CoinPayment(cost=cost, session=session)

    def price(self) -> Price:
        """Return the cost of a query of a principal before its rows are read, answered or not.

        Guarantee
        ---------
        Claim Q-4. Every unit of the table pays all that the query may cost it.
        """
        assert self.account is not None  # of a session
        assert self.allowed is not None  # of a session
        total = self.account.purse.total.mu_squared
        assert total is not None  # a session limits something
        slack = SESSION_SLACK * self.parameter**2 / total
        payment = self.pay(self.allowed, slack)
        assert payment.session is not None  # of a session
        charge = self.charge()
        paid = payment._replace(session=replace(payment.session, charge=charge))
        prepaid = replace(self, prepaid=(paid, slack))
        return Price(charge=charge, accounts=payment.cost.accounts, terms=prepaid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinReleasePlan(Plan):
    """Planned release of the used units; the certificate follows from ``bundle``."""

    bundle: releasing.CuratorBundle = field(repr=False)

    @property
    def sampler(self) -> CoinReleasePlan:
        """Sampler of the noise: the plan itself."""
        return self

    @abstractmethod
    def observe(self, kept: Mask, source: BitSource, /) -> Any:
        """Return the noisy value, or sums, of the units that are used."""

    def bundle_of(self, observed: Any) -> releasing.CuratorBundle:
        """Return the curator's bundle of a release."""
        return self.bundle


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinRecords(ABC):
    """A mechanism and its records, as a release with coins reads them, once; curator-only."""

    mechanism: Mechanism
    data: Data = field(repr=False)
    codes: Codes = field(repr=False)

    @abstractmethod
    def plan(self, terms: CoinTerms) -> CoinReleasePlan:
        """Find the noise and write the certificate."""

    def outputs(
        self,
        values: Vector,
        structure: Structure,
        on_all: Vector | None = None,
        *,
        source: Mechanism | None = None,
    ) -> Outputs:
        """Return the outputs with the names of ``source``, by default the mechanism."""
        mechanism = self.mechanism if source is None else source
        return Outputs(
            values=values.reshape(1, -1),
            structure=structure,
            mechanism_name=mechanism.name,
            public=mechanism.public,
            published=mechanism.published,
            seed=0,
            finish=mechanism.finish,
            model=mechanism.model,
            on_all=on_all,
        )


# --- sums ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumReleasePlan(CoinReleasePlan):
    """A plan of noisy sums, of which ``statistic`` makes the value."""

    noise: SumPlan
    sums: UnitSums = field(repr=False)
    statistic: SumStatistic = field(repr=False)
    bundle: releasing.CoinBundle = field(repr=False)

    def observe(self, kept: Mask, source: BitSource, /) -> Sums:
        """Return the noisy sums of the units that are used."""
        return self.noise.release(self.sums, kept, source)

    @property
    def is_exact(self) -> bool:
        """Whether no unit adds anything, so that there is no noise."""
        return self.noise.lattice.n_directions == 0

    def value_of(self, observed: Sums) -> Any:
        return self.outputs.restore(self.statistic.value(observed, self.noise.keep))

    def bars_of(self, observed: Sums) -> releasing.ErrorBars | None:
        """Return the error bars. If presence is hidden, compute them from the noisy sums.

        There are none if units may also be left out: the spread by the coins is computed from
        all records.
        """
        if self.bundle.declaration is None or self.noise.keep < 1:
            return self.error_bars
        plan, statistic = self.noise, self.statistic
        noise = np.sqrt(plan.noise_variances(statistic.jacobian(observed)))
        noise = statistic.arrange(statistic.declared_errors(observed, noise))
        value = statistic.value(observed, plan.keep)
        outputs = replace(self.outputs, values=value[None, :], on_all=value)
        return releasing.measure_coin_error_bars(
            outputs, (np.zeros(len(noise)), noise), share=plan.keep
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumRecords(CoinRecords):
    """A statistic of sums, and the contribution of every unit to them."""

    statistic: SumStatistic
    sums: UnitSums = field(repr=False)

    @classmethod
    def read(
        cls, mechanism: Mechanism, records: tuple[SumStatistic, Data, Codes], n_units: int
    ) -> SumRecords:
        """Read the records once."""
        statistic, data, codes = records
        with single_threaded():
            sums = statistic.contributions(data, codes).with_units(n_units)
        return cls(mechanism=mechanism, data=data, codes=codes, statistic=statistic, sums=sums)

    def plan(self, terms: CoinTerms) -> SumReleasePlan:
        """Find the noise that hides the contribution of every unit.

        Guarantee
        ---------
        Claim C-8. No unit costs more than its allowance in ``terms``.
        """
        statistic, sums, coins = self.statistic, self.sums, terms.coins
        with single_threaded():
            plan = plan_sums(
                sums,
                success=terms.budget.success,
                keep=coins.keep,
                slopes=statistic.output_slopes(sums),
                clip=coins.clip,
                allowed=terms.allowed,
            )
            if terms.allowed is not None and not (plan.charges <= terms.allowed).all():
                raise BudgetExceededError(
                    "the release must be paid for by every unit; rounding takes some above what "
                    "they have left. Nothing was drawn or spent. Ask for less."
                )
            _check_counts(statistic, plan, sums)
            outputs = self._outputs_of(statistic.value(plan.clipped), statistic.value(sums.total()))
            bars, notes = None, tuple[str, ...]((releasing.NO_INTERVALS,))
            if statistic.has_errors:
                bars = self._error_bars(outputs, plan)
                notes = releasing.error_bar_notes(bars)
            payment = terms.pay(plan.charges, plan.lattice.total_variation)
            facts = (*plan.published, *(() if bars is None else (bars.coin_sentence,)))
            bundle = _sum_bundle(plan, sums, outputs, terms, published=facts, notes=notes)
        bundle = replace(bundle, session=payment.session)
        return SumReleasePlan(
            certificate=releasing.write_coin_certificate(bundle),
            error_bars=bars,
            noise=plan,
            sums=sums,
            statistic=statistic,
            bundle=bundle,
            outputs=outputs,
            cost=payment.cost,
        )

    def _outputs_of(
        self, clipped: Vector, on_all: Vector, source: Mechanism | None = None
    ) -> Outputs:
        """Return the outputs, given the value on all records after clipping, and as they are."""
        structure = flatten(self.statistic.shaped(clipped, self.data))[1]
        outputs = self.outputs(clipped, structure, on_all, source=source)
        counts = (source or self.mechanism).totals == "count"
        rounds = counts and bool(total_numbers("count", structure).all())
        return replace(outputs, rounds=rounds)

    def _error_bars(self, outputs: Outputs, plan: SumPlan) -> releasing.ErrorBars | None:
        """Return deviations of every number by coins and noise, and by the design of a survey."""
        statistic, sums = self.statistic, self.sums
        slopes = statistic.jacobian(plan.clipped)
        noise = statistic.arrange(np.sqrt(plan.noise_variances(slopes)))
        noise = np.hypot(noise, statistic.own_deviations(plan.clipped))
        spread = statistic.arrange(np.sqrt(plan.sampling_variances(sums, slopes)))

        def moved() -> npt.NDArray[np.float64]:
            """Return each unit's influence on every number, of sums in one cell."""
            return np.asarray(plan.factors[:, None] * (sums.values @ slopes[0].T))

        design = statistic.design_spread(moved, self.data, self.codes)
        return releasing.measure_coin_error_bars(
            outputs, (spread, noise), share=plan.keep, design=design
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeclaredRecords(SumRecords):
    """Sums whose noise follows from a declaration alone, so that presence is hidden."""

    declaration: Declaration
    named: Mechanism  # the mechanism, with names as declared

    @classmethod
    def declared(
        cls,
        mechanism: Mechanism,
        records: tuple[SumStatistic, Data, Codes],
        n_units: int,
        *,
        rows_per_unit: int,
    ) -> DeclaredRecords:
        """Read the records within the declared ranges."""
        prepared, data, codes = records
        if isinstance(data.parts[0], Tables):
            raise MechanismError(
                "a statistic must be of one table where presence is hidden; got joined tables. "
                "Pass a frame."
            )
        with single_threaded():
            statistic, declaration, sums = declared_sums(prepared, data, codes, rows_per_unit)
        if mechanism.published:
            raise MechanismError(
                "nothing must be published exactly where presence is hidden; got "
                f"{mechanism.published[0]}. Declare it."
            )
        itself: object = prepared
        named = statistic if mechanism is itself and isinstance(statistic, Mechanism) else mechanism
        return cls(
            mechanism=mechanism,
            data=data,
            codes=codes,
            statistic=statistic,
            sums=sums.with_units(n_units),
            declaration=declaration,
            named=named,
        )

    def plan(self, terms: CoinTerms) -> SumReleasePlan:
        """Find the noise by the declarations, and write the certificate; no figure of records.

        Guarantee
        ---------
        Claim C-9. Certificate, structure and error bars are functions of the declaration, the
        budget and the noisy sums.
        """
        statistic, sums, coins = self.statistic, self.sums, terms.coins
        with single_threaded():
            plan = plan_declared(
                sums, self.declaration, success=terms.budget.success, keep=coins.keep
            )
            nobody = replace(sums.total(), values=np.zeros((sums.n_cells, sums.block)))
            empty = statistic.value(replace(nobody, noise_std=plan.sum_noise_std), coins.keep)
            outputs = self._outputs_of(empty, empty, self.named)
            notes = () if coins.keep == 1 else (NO_BARS_WITH_COINS,)
            bundle = _sum_bundle(plan, sums, outputs, terms, published=plan.published, notes=notes)
        bundle = replace(bundle, declaration=self.declaration)
        return SumReleasePlan(
            certificate=releasing.write_coin_certificate(bundle),
            noise=plan,
            sums=sums,
            statistic=statistic,
            bundle=bundle,
            outputs=outputs,
            cost=Cost(charge=terms.charge(plan.parameter), before=terms.before),
        )


def _sum_bundle(
    plan: SumPlan,
    sums: UnitSums,
    outputs: Outputs,
    terms: CoinTerms,
    *,
    published: tuple[str, ...],
    notes: tuple[str, ...],
) -> releasing.CoinBundle:
    stored, coins = releasing.StoredContributions.of(plan, sums), terms.coins
    return releasing.CoinBundle(
        integers=stored.integers,
        units=stored.units,
        starts=stored.starts,
        grid=plan.lattice.grid,
        units_per_std=plan.lattice.units_per_std,
        n_units=coins.n_units,
        n_entries=len(sums.values),
        keep=coins.keep,
        parameter=plan.parameter,
        dimension=outputs.n_outputs,
        unit=coins.unit,
        clip=coins.clip,
        contributions_digest=stored.digest,
        simulation=terms.simulate,
        budget=terms.budget,
        stated=releasing.CuratorStatements.about(
            outputs, rule="least trace", published=published, notes=notes
        ),
    )


def _check_counts(statistic: SumStatistic, plan: SumPlan, sums: UnitSums) -> None:
    """Refuse groups that may have no value after noise and coins, before anything is drawn."""
    total, keep = plan.clipped, plan.keep
    spread = np.sqrt(keep * (1 - keep) * sums.squares(plan.factors))
    noise = plan.sum_noise_std
    for sign in (-1.0, 1.0):
        shifted = keep * total.values + sign * EMPTY_MARGIN_SD * np.hypot(spread, noise)
        value = statistic.value(Sums(values=shifted, centre=total.centre, noise_std=noise), keep)
        n_lost = int(np.count_nonzero(~np.isfinite(value)))
        if n_lost:
            raise MechanismError(
                f"groups must be large enough for this budget; got {n_lost} of {len(value)} "
                "numbers that noise may leave without a value. Merge groups, or say what stands "
                "for them: fill=0."
            )


# --- averages -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AverageReleasePlan(CoinReleasePlan):
    """A plan of a noisy value, whose numbers ``records`` put in order."""

    noise: AveragePlan
    records: AverageRecords = field(repr=False)

    def observe(self, kept: Mask, source: BitSource, /) -> Vector:
        """Return the noisy value of the units that are used."""
        return self.noise.release(kept, source)

    def value_of(self, observed: Vector) -> Any:
        return self.outputs.restore(self.records.shaped(observed))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AverageRecords(CoinRecords):
    """A statistic that is no function of sums, and its value on every sample."""

    statistic: AveragedStatistic
    value: SampleValue = field(repr=False)

    def shaped(self, numbers: Vector) -> Vector:
        """Return numbers in the order of the released value."""
        return flatten(self.statistic.shaped(numbers, self.data))[0]

    def plan(self, terms: CoinTerms) -> AverageReleasePlan:
        """Find the noise of a release, prove its bounds, and write the certificate."""
        coins = terms.coins
        plan = plan_average(
            self.value,
            success=terms.budget.success,
            keep=coins.keep,
            seed=coins.seed,
            clip=coins.clip,
        )
        value = plan.value
        on_all = self.shaped(value.on_all)
        structure = flatten(self.statistic.shaped(value.on_all, self.data))[1]
        outputs = self.outputs(on_all, structure, on_all)
        outputs = replace(outputs, public=(*outputs.public, *value.public))
        deviations = (self.shaped(plan.spread), self.shaped(plan.noise_std))
        bars = releasing.measure_coin_error_bars(outputs, deviations, share=coins.keep)
        facts = () if bars is None else (bars.coin_sentence,)
        bundle = releasing.AverageBundle(
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
        return AverageReleasePlan(
            certificate=releasing.write_average_certificate(bundle),
            error_bars=bars,
            noise=plan,
            records=self,
            bundle=bundle,
            outputs=outputs,
            cost=Cost(charge=terms.charge(), before=terms.before),
        )


# --- descents -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentReleasePlan(CoinReleasePlan):
    """A plan of steps.

    In a session every unit pays all that it may spend: what it really spends is known only after
    the last step.
    """

    noise: DescentPlan
    bundle: releasing.DescentBundle = field(repr=False)

    def observe(self, kept: Mask, source: BitSource, /) -> DescentTranscript:
        """Return the releases of the steps from the gradients of the used units."""
        return self.noise.release(kept, source)

    def value_of(self, observed: DescentTranscript) -> Any:
        return self.outputs.restore(observed.weights.ravel())

    def bundle_of(self, observed: DescentTranscript) -> releasing.DescentBundle:
        """Return the bundle with the releases and the costs of the steps."""
        return replace(self.bundle, integers=observed.integers, spent=observed.spent)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentRecords(CoinRecords):
    """The ``steps`` of a descent and their records; ``everything`` is as the mechanism has it.

    The certificate is complete before a coin is drawn; the releases and the costs of the steps are
    added to the curator's bundle after it.
    """

    steps: StepMechanism
    everything: Data = field(repr=False)

    def plan(self, terms: CoinTerms) -> DescentReleasePlan:
        """Try the descent, fix its noise, and write the certificate."""
        steps, coins = self.steps, terms.coins
        if coins.clip != "auto":
            raise MechanismError(
                "clip must be left out for a descent: gradients are shortened by clocks; got "
                f"{as_told(coins.clip)}. Drop it."
            )
        with single_threaded():
            plan = plan_descent(
                steps,
                steps.problem(self.data.parts),
                self.codes,
                n_units=coins.n_units,
                success=terms.budget.success,
                keep=coins.keep,
                seed=coins.seed,
                allowed=terms.allowed,
            )
            allowed = np.sqrt(plan.allowed)
            payment = terms.pay(allowed, plan.total_variation)
            outputs = self.outputs(plan.rehearsed, flatten(plan.rehearsed)[1])
            outputs = replace(
                outputs,
                public=tuple(dict.fromkeys((*outputs.public, *steps.public))),
                published=tuple(dict.fromkeys((*outputs.published, *steps.published))),
            )
            session = payment.session
            if session is not None:
                session = replace(session, allowed=allowed)
            bars = self._error_bars(plan, outputs, coins.seed) if steps.errors else None
            bundle = _descent_bundle(plan, outputs, bars, terms, session)
        return DescentReleasePlan(
            certificate=releasing.write_coin_certificate(bundle),
            error_bars=bars,
            noise=plan,
            bundle=bundle,
            outputs=outputs,
            cost=payment.cost,
        )

    def _error_bars(
        self, plan: DescentPlan, outputs: Outputs, seed: int
    ) -> releasing.ErrorBars | None:
        """Return error bars around the value on all records; None where they cannot be measured."""
        errors = simulate_descent_errors(plan, seed=seed)
        if errors is None:
            return None
        mechanism = self.mechanism
        try:
            on_all = mechanism.evaluate(self.everything.parts, np.random.default_rng(0))
        except MechanismError:  # no largest likelihood
            return None
        return releasing.measure_shifted_error_bars(
            outputs,
            errors.end,
            (errors.by_coins, errors.by_noise),
            flatten(mechanism.finish(on_all))[0],
            share=plan.keep,
        )


def _descent_bundle(
    plan: DescentPlan,
    outputs: Outputs,
    bars: releasing.ErrorBars | None,
    terms: CoinTerms,
    session: releasing.CoinSession | None,
) -> releasing.DescentBundle:
    coins = terms.coins
    n_features, n_scores = plan.shape
    several = plan.n_rows != coins.n_units
    return releasing.DescentBundle(
        integers=np.zeros((0, n_features, n_scores), dtype=np.int64),
        spent=np.zeros(coins.n_units),
        bits=np.array([step.bits for step in plan.noise], dtype=np.int64),
        step_units=np.array([step.units_per_std for step in plan.noise], dtype=np.int64),
        n_features=n_features,
        n_scores=n_scores,
        n_units=coins.n_units,
        keep=coins.keep,
        parameter=plan.parameter,
        rate=plan.rate,
        dimension=outputs.n_outputs,
        unit=coins.unit,
        rows_digest=plan.rows_digest,
        simulation=terms.simulate,
        budget=terms.budget,
        session=session,
        stated=releasing.CuratorStatements.about(
            outputs,
            rule="clocks of gradients",
            public=(f"length of a step: {plan.rate:g}",),
            published=(
                *((f"number of rows ({plan.n_rows})",) if several else ()),
                "noise and length of the steps: from rehearsals on records of all units with "
                "noise of its own, rounded up",
                f"who may pay little more for their gradients has them shortened, each "
                f"{coins.unit} by what it has paid; used or left out makes no difference",
                *(() if bars is None else (bars.coin_sentence,)),
            ),
            notes=NO_ERRORS if bars is None else releasing.error_bar_notes(bars),
        ),
    )
