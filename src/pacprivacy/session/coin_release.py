"""One release of sums where every unit has a coin: the least noise, the certificate, the value.

Everything up to the draw is here; whose coins they are, and when they are drawn, is the secret's.
What all kinds of release with coins share is here too: their terms, what they cost, their plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pacprivacy import release as releasing
from pacprivacy._checks import Mask, Vector
from pacprivacy._random import BitSource
from pacprivacy._system import single_threaded
from pacprivacy.adversary import Clocks, influence_risk
from pacprivacy.budget import Membership, Spent
from pacprivacy.errors import BudgetExceededError, MechanismError, PacPrivacyError
from pacprivacy.mechanism import Data, Mechanism, flatten, total_numbers
from pacprivacy.noise import SumPlan, plan_declared, plan_sums
from pacprivacy.queries import Tables
from pacprivacy.session.secret import Accounts, Plan, Purse, Refinement, check_levels
from pacprivacy.simulation import Outputs
from pacprivacy.statistics import CoinUnits, Sums, SumStatistic, UnitSums, declared_sums

if TYPE_CHECKING:
    from pacprivacy.release import Release
    from pacprivacy.session.secret_holder import Odometer

NO_BARS_WITH_COINS: Final = (
    "No standard errors: how much the coins change the numbers is a fact of all records, and that "
    "would show who is in the table."
)
EMPTY_MARGIN_SD: Final = 6.0  # deviations by which a count must stay clear of its noise
Codes: TypeAlias = npt.NDArray[Any] | None  # of the unit of every row


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinPayment:
    """What a release costs; in a session also where it stands, and every clock after it."""

    charge: Spent
    clocks: Clocks | None = None
    session: releasing.CoinSession | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinTerms:
    """What a release may spend, and whose coins they are.

    ``parameter`` is the influence that a unit may have. ``allowed`` is that of every unit of the
    table in a session that stands at ``clocks`` and has spent ``before``; None for a single
    release. ``pay`` takes what these units pay, and the slack of the noise.
    """

    coins: CoinUnits
    budget: Membership
    parameter: float
    simulate: bool
    before: Spent
    pay: Callable[[Vector, float], CoinPayment]
    allowed: Vector | None = field(default=None, repr=False)
    clocks: Clocks | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinReleasePlan(Plan):
    """What would be released of the units that are used; the certificate follows from ``bundle``.

    ``before`` and ``clocks_before`` are what the session had spent, ``clocks`` what every unit has
    paid after.
    """

    bundle: releasing.CuratorBundle = field(repr=False)
    before: Spent
    clocks_before: Clocks | None = field(default=None, repr=False)
    clocks: Clocks | None = field(default=None, repr=False)

    @property
    def accounts(self) -> Clocks | None:
        """Amount that every unit will have paid."""
        return self.clocks

    def rests_on(self, spent: Spent, accounts: Accounts | None) -> bool:
        """Whether nothing was spent since the plan was made."""
        return self.before is spent and self.clocks_before is accounts

    def bundle_of(self, observed: Any) -> releasing.CuratorBundle:
        """Return the curator's bundle of a release."""
        return self.bundle


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumSampler:
    """Draws the noise around the sums of the used units."""

    plan: SumPlan
    sums: UnitSums = field(repr=False)

    def observe(self, kept: Mask, source: BitSource, /) -> Sums:
        """Return the noisy sums of the units that are used."""
        return self.plan.release(self.sums, kept, source)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumReleasePlan(CoinReleasePlan):
    """A plan of noisy sums, of which ``statistic`` makes the value."""

    drawn: SumSampler = field(repr=False)
    statistic: SumStatistic = field(repr=False)
    bundle: releasing.CoinBundle = field(repr=False)

    @property
    def sampler(self) -> SumSampler:
        """Sampler of the noise."""
        return self.drawn

    @property
    def is_exact(self) -> bool:
        """Whether no unit adds anything, so that there is no noise."""
        return self.drawn.plan.lattice.n_directions == 0

    def value_of(self, observed: Sums) -> Any:
        """Return the released value, a function of the noisy sums."""
        return self.outputs.restore(self.statistic.value(observed, self.drawn.plan.keep))

    def bars_of(self, observed: Sums) -> releasing.ErrorBars | None:
        """Return the error bars. If presence is hidden, compute them from the noisy sums.

        There are none if units may also be left out: the spread by the coins is computed from
        all records.
        """
        if self.bundle.declaration is None or self.drawn.plan.keep < 1:
            return self.error_bars
        plan, statistic = self.drawn.plan, self.statistic
        noise = np.sqrt(plan.noise_variances(statistic.jacobian(observed)))
        noise = statistic.arrange(statistic.declared_errors(observed, noise))
        value = statistic.value(observed, plan.keep)
        outputs = replace(self.outputs, values=value[None, :], on_all=value)
        return releasing.measure_coin_error_bars(
            outputs, (np.zeros(len(noise)), noise), share=plan.keep
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumRecords:
    """A statistic of sums and what every unit adds to them: all that is read of the records."""

    mechanism: Mechanism
    statistic: SumStatistic
    data: Data = field(repr=False)
    codes: Codes = field(repr=False)
    sums: UnitSums = field(repr=False)

    @classmethod
    def read(
        cls, mechanism: Mechanism, records: tuple[SumStatistic, Data, Codes], n_units: int
    ) -> SumRecords:
        """Read the records once."""
        statistic, data, codes = records
        with single_threaded():
            sums = statistic.contributions(data, codes).with_units(n_units)
        return cls(mechanism=mechanism, statistic=statistic, data=data, codes=codes, sums=sums)


def plan_sum_release(read: SumRecords, terms: CoinTerms) -> SumReleasePlan:
    """Find the noise that hides what every unit of the table adds.

    Guarantee
    ---------
    Claim C-8. No unit costs more than its allowance in ``terms``.
    """
    statistic, sums, coins = read.statistic, read.sums, terms.coins
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
        values = statistic.value(plan.clipped), statistic.value(sums.total())
        outputs = _outputs_of(read.mechanism, statistic, values, read.data)
        bars, notes = None, tuple[str, ...]((releasing.NO_INTERVALS,))
        if statistic.has_errors:
            bars = _error_bars(outputs, plan, read)
            notes = releasing.error_bar_notes(bars)
        payment = terms.pay(plan.charges, plan.lattice.total_variation)
        facts = (*plan.published, *(() if bars is None else (bars.coin_sentence,)))
        bundle = _bundle(plan, sums, outputs, terms, published=facts, notes=notes)
    bundle = replace(bundle, session=payment.session)
    return SumReleasePlan(
        certificate=releasing.write_coin_certificate(bundle),
        charge=payment.charge,
        outputs=outputs,
        error_bars=bars,
        drawn=SumSampler(plan=plan, sums=sums),
        statistic=statistic,
        bundle=bundle,
        before=terms.before,
        clocks_before=terms.clocks,
        clocks=payment.clocks,
    )


def plan_declared_release(
    mechanism: Mechanism,
    records: tuple[SumStatistic, Data, Codes],
    terms: CoinTerms,
    *,
    rows_per_unit: int,
) -> SumReleasePlan:
    """Find the noise by what was declared, and write the certificate; no figure of records.

    Guarantee
    ---------
    Claim C-9. Certificate, structure and error bars are functions of the declaration, the
    budget and the noisy sums.
    """
    statistic, data, codes = records
    if isinstance(data.parts[0], Tables):
        raise MechanismError(
            "a statistic must be of one table where presence is hidden; got joined tables. "
            "Pass a frame."
        )
    coins = terms.coins
    with single_threaded():
        statistic, declaration, sums = declared_sums(statistic, data, codes, rows_per_unit)
        sums = sums.with_units(coins.n_units)
        if mechanism.published:
            raise MechanismError(
                "nothing must be published exactly where presence is hidden; got "
                f"{mechanism.published[0]}. Declare it."
            )
        plan = plan_declared(sums, declaration, success=terms.budget.success, keep=coins.keep)
        nobody = replace(sums.total(), values=np.zeros((sums.n_cells, sums.block)))
        empty = statistic.value(replace(nobody, noise_std=plan.sum_noise_std), coins.keep)
        prepared: object = records[0]
        if mechanism is prepared and isinstance(statistic, Mechanism):
            mechanism = statistic  # with names as declared
        outputs = _outputs_of(mechanism, statistic, (empty, empty), data)
        notes = () if coins.keep == 1 else (NO_BARS_WITH_COINS,)
        bundle = _bundle(plan, sums, outputs, terms, published=plan.published, notes=notes)
    bundle = replace(bundle, declaration=declaration)
    return SumReleasePlan(
        certificate=releasing.write_coin_certificate(bundle),
        charge=Spent(n_releases=1, mu_squared=plan.parameter**2),
        outputs=outputs,
        error_bars=None,
        drawn=SumSampler(plan=plan, sums=sums),
        statistic=statistic,
        bundle=bundle,
        before=terms.before,
    )


def _error_bars(outputs: Outputs, plan: SumPlan, read: SumRecords) -> releasing.ErrorBars | None:
    """Return deviations of every number by coins and noise, and by the design of a survey."""
    statistic, sums = read.statistic, read.sums
    slopes = statistic.jacobian(plan.clipped)
    noise = statistic.arrange(np.sqrt(plan.noise_variances(slopes)))
    noise = np.hypot(noise, statistic.own_deviations(plan.clipped))
    spread = statistic.arrange(np.sqrt(plan.sampling_variances(sums, slopes)))

    def moved() -> npt.NDArray[np.float64]:
        """Return what every unit changes in every number, of sums in one cell."""
        return np.asarray(plan.factors[:, None] * (sums.values @ slopes[0].T))

    design = statistic.design_spread(moved, read.data, read.codes)
    return releasing.measure_coin_error_bars(
        outputs, (spread, noise), share=plan.keep, design=design
    )


def _bundle(
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


def _outputs_of(
    mechanism: Mechanism, statistic: SumStatistic, values: tuple[Vector, Vector], data: Data
) -> Outputs:
    """Return the outputs, given the value on all records after clipping, and as they are."""
    clipped, on_all = values
    structure = flatten(statistic.shaped(clipped, data))[1]
    rounds = mechanism.totals == "count" and bool(total_numbers("count", structure).all())
    return Outputs(
        values=clipped[None, :],
        structure=structure,
        mechanism_name=mechanism.name,
        public=mechanism.public,
        published=mechanism.published,
        seed=0,
        finish=mechanism.finish,
        rounds=rounds,
        model=mechanism.model,
        on_all=on_all,
    )


def _check_counts(statistic: SumStatistic, plan: SumPlan, sums: UnitSums) -> None:
    """Refuse groups that noise or coins may leave without a value, before anything is drawn."""
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


# --- refining --------------------------------------------------------------------------------

LOOKS: Final = 12
STEP_RATIO: Final = 2.0**-0.5  # of the precision after a step, to that after the next
MOST_FINER: Final = 4.0  # how much slack the coarsest grid adds to that of the finest


class CoinRefinement(Refinement):
    """Repeated noisy sums; each step has its own noise, grid and rounding.

    The precisions of the steps add up, and so do the squares that units pay for them. What a unit
    may pay in all is divided beforehand: a step from noise ``Σ_t`` to ``Σ_{t+1}`` costs ``|x|²`` in
    ``Σ_{t+1}⁻¹ - Σ_t⁻¹``.

    Guarantee
    ---------
    Claim C-23. All steps together, however one stops, cost no unit more than ``terms`` allow it.
    """

    def __init__(
        self,
        read: SumRecords,
        terms: CoinTerms,
        step_terms: Callable[[Vector, Purse], CoinTerms],
        levels: int | None,
    ) -> None:
        self._whole = plan_sum_release(read, terms)
        assert terms.allowed is not None  # of a session
        clip = self._whole.drawn.plan.radius or terms.coins.clip  # that of all steps
        self._read, self._step_terms = read, step_terms
        self._clip: Any = clip
        self._allowed = np.square(terms.allowed)
        self.outputs, self.n_looks = self._whole.outputs, check_levels(levels, LOOKS)
        self._level, self._precision, self._weight = 0, 0.0, 0.0
        self._total: npt.NDArray[np.float64] = np.zeros(1)
        self._variance: npt.NDArray[np.float64] = np.zeros(1)

    def next_plan(self, purse: Callable[[], Purse]) -> Plan | None:
        """Return the plan of the next step; None after the last, or where units have less left.

        A step whose noise would leave groups without a value is part of the one after it.
        """
        refused: PacPrivacyError | None = None
        while self._level < self.n_looks:
            self._level += 1
            precision = STEP_RATIO ** (self.n_looks - self._level)
            try:
                terms = self._step_terms((precision - self._precision) * self._allowed, purse())
                terms = replace(terms, coins=replace(terms.coins, clip=self._clip))
                plan = plan_sum_release(self._read, terms)
            except (BudgetExceededError, MechanismError) as error:
                refused = error
                continue
            self._precision = precision
            return plan
        if refused is not None and not self._weight:
            raise refused
        return None

    def add(self, plan: Plan, observed: Any) -> Any:
        """Return the value of the mean of all noisy sums, the last among them."""
        sums: Sums = observed
        assert sums.noise_std is not None  # of noisy sums
        variance = np.square(sums.noise_std)
        trace = float(variance.sum())
        weight = 1.0 / trace if trace > 0 else 1.0
        self._total = self._total + weight * sums.values
        self._variance = self._variance + weight**2 * variance
        self._weight += weight
        mean = replace(sums, values=self._total / self._weight, noise_std=self._noise_std())
        return plan.value_of(mean)

    def _noise_std(self) -> npt.NDArray[np.float64]:
        return np.asarray(np.sqrt(self._variance) / self._weight)

    def promise(
        self, steps: list[Release], odometer: Odometer
    ) -> tuple[releasing.Certificate, releasing.ErrorBars | None]:
        """Return the certificate of a release of the whole budget, and the bars of this mean."""
        whole, coins = self._whole.certificate, self._whole.bundle
        alike = np.full(1, coins.parameter)
        slack = MOST_FINER * self.n_looks * coins.total_variation
        bound = influence_risk(alike, keep=coins.keep, total_variation=slack).success
        whole = replace(
            whole,
            membership_bound=bound,
            epsilon_equivalent=releasing.certificate_epsilon(bound),
        )
        std, most = self._noise_std(), self._whole.drawn.plan.sum_noise_std
        scale = float(np.sqrt(np.square(std).sum() / max(np.square(most).sum(), 1e-300)))
        noise = replace(whole.noise, total_variance=whole.noise.total_variance * scale**2)
        bars = self._whole.error_bars
        bars = None if bars is None else bars.with_noise(scale)
        return replace(whole, noise=noise.rounded()), bars
