"""A secret of coins: who is used, one coin for every unit.

A release of sums needs one pass over the records: what every unit adds, the least noise under which
no unit shows, and only then the coins. In a session every unit has a clock, which adds up the
squares of its influence, used or left out.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy import _version, release as releasing
from pacprivacy._checks import Mask, Vector, as_told
from pacprivacy._random import BitSource, coerce_seed
from pacprivacy._rounding import at_least
from pacprivacy._system import single_threaded
from pacprivacy.adversary import (
    Belief,
    Clocks,
    cap_success,
    influence_parameter,
    influence_success,
    session_cap,
)
from pacprivacy.budget import AnyBudget, Membership, Spent, budget_limits
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    LedgerError,
    MechanismError,
    PoolError,
)
from pacprivacy.mechanism import (
    Data,
    Mechanism,
    StepMechanism,
    coerce_data,
    flatten,
    steps_of,
    total_numbers,
)
from pacprivacy.noise import SumPlan, plan_declared, plan_sums
from pacprivacy.queries import Tables
from pacprivacy.sample import (
    KEY_BYTES,
    Coins,
    code_units,
    draw_coins,
    keyed_coins,
    pool_unit_name,
)
from pacprivacy.session.account import read_share
from pacprivacy.session.average_release import (
    AverageReleasePlan,
    Promise,
    plan_average_release,
)
from pacprivacy.session.descent_release import (
    CoinPayment,
    DescentReleasePlan,
    DescentTerms,
    plan_descent_release,
)
from pacprivacy.session.keeper import Reading
from pacprivacy.session.secret import Accounts, Observed, Plan, Purse, Request, SessionSecret
from pacprivacy.session.state import CoinState, SessionState
from pacprivacy.simulation import Outputs
from pacprivacy.statistics import (
    AveragedStatistic,
    CoinUnits,
    Statistic,
    Sums,
    SumStatistic,
    UnitSums,
    declared_sums,
    statistic_with_coins,
)

MARK_BYTES: Final = 16  # of a unit's id, hashed
MARK: Final = np.dtype((np.void, MARK_BYTES))
LEDGER_STEP: Final = 1e-11  # more than the ledger rounds a charge up
NO_BARS_WITH_COINS: Final = (
    "No standard errors: how much the coins change the numbers is a fact of all records, and that "
    "would show who is in the table."
)
CROWD: Final = 10  # units that must be able to pay for a release
LEAST_INFLUENCE: Final = 1e-4  # of a release; below it the budget is used up
_ROUNDING_SHARE: Final = 2.0**-40  # of an influence: what squares and roots of it may be off
_NO_CLOCKS: Final = Clocks(spent=np.zeros(0), cap=0.0)  # of a single release, which stores nothing
EMPTY_MARGIN_SD: Final = 6.0  # deviations by which a count must stay clear of its noise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumSampler:
    """Draws the noise around the sums of the used units."""

    plan: SumPlan
    sums: UnitSums = field(repr=False)

    def observe(self, kept: Mask, source: BitSource, /) -> Sums:
        """Return the noisy sums of the units that are used."""
        return self.plan.release(self.sums, kept, source)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinPlan(Plan):
    """What would be released of the units that are used.

    ``statistic`` makes the value of noisy sums; the certificate follows from ``bundle``. ``before``
    and ``clocks_before`` are what the session had spent, ``clocks`` what every unit has paid after.
    """

    drawn: SumSampler = field(repr=False)
    statistic: SumStatistic = field(repr=False)
    bundle: releasing.CoinBundle = field(repr=False)
    before: Spent
    clocks_before: Clocks | None = field(default=None, repr=False)
    clocks: Clocks | None = field(default=None, repr=False)

    @property
    def sampler(self) -> SumSampler:
        """Sampler of the noise."""
        return self.drawn

    @property
    def accounts(self) -> Clocks | None:
        """Amount that every unit will have paid."""
        return self.clocks

    def rests_on(self, spent: Spent, accounts: Accounts | None) -> bool:
        """Whether nothing was spent since the plan was made."""
        return self.before is spent and self.clocks_before is accounts

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
class Roster:
    """The units that a session has met: a mark for each, in the order of the clocks.

    ``places`` are those of the table's units among them, ``n_known`` of which came before.
    """

    marks: npt.NDArray[np.void] = field(repr=False)
    places: npt.NDArray[np.int64] = field(repr=False)
    n_known: int

    @classmethod
    def begin(cls, unit_ids: tuple[bytes, ...]) -> Self:
        """Return the units of a first table, all new."""
        return cls.of(np.zeros(0, dtype=MARK), unit_ids)

    @classmethod
    def of(cls, marks: npt.NDArray[np.void], unit_ids: tuple[bytes, ...]) -> Self:
        """Find the units of a table among those that are known, and add the new ones."""
        places: dict[bytes, int] = {mark: i for i, mark in enumerate(marks.tolist())}
        n_before = len(places)
        here = [
            places.setdefault(mark, len(places))
            for mark in (hashlib.blake2b(i, digest_size=MARK_BYTES).digest() for i in unit_ids)
        ]
        if len(set(here)) < len(here):
            raise PoolError("units must differ; got two of one mark. Rename one of them.")
        found = np.array(here, dtype=np.int64)
        whole = np.frombuffer(b"".join(places), dtype=MARK)
        return cls(marks=whole, places=found, n_known=int(np.count_nonzero(found < n_before)))

    def spread(self, charges: Vector) -> Vector:
        """Return charges of all units that the session has met: none for those who are away."""
        every = np.zeros(len(self.marks))
        every[self.places] = charges
        return every

    def largest_absent(self, clocks: Vector) -> float:
        """Return the clock of the busiest unit that is not in the table."""
        away = np.ones(len(clocks), dtype=np.bool_)
        away[self.places] = False
        return float(clocks[away].max(initial=0.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Allowance:
    """What a release may spend: the most of one unit, and of each, as influence."""

    budget: Membership
    parameter: float
    of_units: Vector | None = None


class CoinSecret(SessionSecret):
    """The coins of all units, for one release or for many.

    Parameters
    ----------
    data, units
        All records, and whose row is whose; every row is a unit where ``units`` is None. Of tables
        the units are the values of their key.
    coins : Coins
        How units are left out.
    single : bool
        One release takes all, and knows of no other.
    """

    balances: Clocks | None = None

    def __init__(
        self,
        data: Any,
        coins: Coins,
        *,
        units: Any = None,
        single: bool,
        simulate: bool,
        rng: np.random.Generator | int | None = None,
        data_digest: str = "",
    ) -> None:
        self.data: Data = coerce_data(data)
        self.seed = coerce_seed(rng)
        self._coins, self._single, self._simulate = coins, single, simulate
        self._data_digest = data_digest
        self.unit, self.n_units = "record", self.data.n_rows
        tables = self.data.parts[0]
        if isinstance(tables, Tables):
            self.unit = pool_unit_name(tables.unit) or "unit"
            if not single:  # coins follow from what units are called
                units = tables.unit_keys()
        self._labels = units
        self._codes: npt.NDArray[np.int32] | None = None
        self._ids: tuple[bytes, ...] | None = None
        self._roster: Roster | None = None
        if coins.rows_per_unit is not None and not single:
            raise PoolError(
                "rows_per_unit must be left out in a session: presence is hidden in single "
                "releases. Use pac.privatize."
            )
        if units is not None:
            named = pool_unit_name(str(getattr(units, "name", "") or ""))
            self._codes, self._ids = code_units(units, self.data.n_rows)
            self.n_units = len(self._ids)
            if not isinstance(tables, Tables):
                self.unit = named or "unit"
        self.keep = coins.resolve(self.n_units)
        self._key: bytes | None = None
        self._held: releasing.ReleaseCoins | None = None

    # --- the secret -----------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the units are known; they are from the start."""
        return True

    def draw(self, source: BitSource, *, first: int = 0) -> None:
        """Toss the coins if they are not: one by one, or all by a key that is stored."""
        if self._held is not None:
            return
        if self._single:
            kept = draw_coins(self.n_units, self.keep, source)
        else:
            if self._key is None:
                self._key = source.words(KEY_BYTES // 8).tobytes()
            kept = keyed_coins(self._unit_ids(), self.keep, self._key)
        self._held = releasing.ReleaseCoins(kept)

    def _unit_ids(self) -> tuple[bytes, ...]:
        if self._ids is None:
            self._ids = tuple(b"n%d" % i for i in range(self.n_units))
        return self._ids

    def observe(
        self, sampler: releasing.ReleaseSampler[Mask, Observed], source: BitSource
    ) -> Observed:
        """Draw the noise around the sums of the used units."""
        assert self._held is not None  # drawn before its charge was booked
        return self._held.observe(sampler, source)

    def forget(self) -> None:
        """Forget the coins; with a ledger the session's file still has their key."""
        self._held = self._key = None

    def state(
        self,
        total: Spent,
        n_releases: int,
        *,
        balances: Accounts | None = None,
        belief: Belief | None = None,
    ) -> SessionState:
        """Return all that is needed to go on, with other clocks."""
        return CoinState(
            total=total,
            n_releases=n_releases,
            key=self._key or bytes(KEY_BYTES),
            coins=replace(self._coins, keep=self.keep),
            has_units=self._labels is not None,
            marks=b"" if self._single else self.roster.marks.tobytes(),
            clocks=balances if isinstance(balances, Clocks) else _NO_CLOCKS,
            unpaid=None if balances is self.balances else self.balances,
        )

    @property
    def roster(self) -> Roster:
        """All units that the session has met, and those of the table among them."""
        if self._roster is None:
            self._roster = Roster.begin(self._unit_ids())
        return self._roster

    def go_on(self, state: SessionState) -> None:
        """Take over what a file holds; units that are new begin with a clock at zero.

        Guarantee
        ---------
        Claim C-16. A unit that is called as before has the coin and the clock that it had, also if
        it was away in between.
        """
        assert isinstance(state, CoinState)  # checked where the file was read
        marks = np.frombuffer(state.marks, dtype=MARK)
        roster = Roster.of(marks, self._unit_ids())
        same = len(roster.marks) == len(marks) == self.n_units
        if (not same and not state.has_units) or not roster.n_known:
            raise PoolError(
                "units must be those that the session began with, by the same names; got other "
                "units. Pass the same units, or begin a new session."
            )
        assert state.coins.keep is not None  # that of the session
        self._key, self.keep, self._roster = state.key, state.coins.keep, roster
        self.balances = state.clocks.extended(len(roster.marks))

    def reading(self, spent: Spent, total: Spent) -> Reading:
        """Return what is promised, and what the busiest unit has spent."""
        bound = None if total.mu_squared is None else cap_success(total.mu_squared)
        return Reading(spent=spent, total=total, success_bound=bound)

    def spent_text(self, spent: Spent) -> str:
        """Return what the busiest unit has spent."""
        influence = math.sqrt(spent.mu_squared or 0.0)
        return f"influence {influence:.4g} spent by the busiest unit"

    # --- the work up to the draw ----------------------------------------------------------------

    def total(self, budget: AnyBudget | None) -> Spent:
        """Return the squared influence that a unit may have in all."""
        if budget is None:
            return Spent()
        return Spent(mu_squared=session_cap(_success_of(budget)))

    def plan(
        self, request: Request, purse: Callable[[], Purse]
    ) -> CoinPlan | AverageReleasePlan | DescentReleasePlan:
        """Measure what every unit adds, find the least noise, and write the certificate."""
        _refuse_pool_options(request)
        self._allow(request, purse())  # refused here, before the records are read
        if self._coins.rows_per_unit is not None:
            _refuse_gap_policy(request.mechanism)
        mechanism = request.mechanism.prepare(self.data)
        descent = steps_of(mechanism, self.data, self._codes)
        if descent is not None:
            return self._plan_descent(request, purse, mechanism, descent)
        statistic, data, units = statistic_with_coins(mechanism, self.data, self._codes)
        if isinstance(statistic, AveragedStatistic):
            planned = self._plan_average(request, purse, mechanism, statistic, (data, units))
            if planned is not None:
                return planned
        if not isinstance(statistic, SumStatistic):
            raise MechanismError(
                "a statistic must be a function of sums in a session or for everybody; got "
                f"{mechanism.name[:60]}, which is proved on average over coins. Release it by "
                "itself, with keep below 1."
            )
        if self._coins.rows_per_unit is not None:
            return self._plan_declared(request, purse, mechanism, (statistic, data, units))
        return self._plan_sums(request, purse, mechanism, (statistic, data, units))

    def _plan_sums(
        self,
        request: Request,
        purse: Callable[[], Purse],
        mechanism: Mechanism,
        records: tuple[SumStatistic, Data, npt.NDArray[Any] | None],
    ) -> CoinPlan:
        """Find the noise that hides what every unit of the table adds."""
        statistic, data, units = records
        with single_threaded():
            sums = statistic.contributions(data, units).with_units(self.n_units)
            allowance, before = self._allow(request, purse()), purse()
            plan = plan_sums(
                sums,
                success=allowance.budget.success,
                keep=self.keep,
                slopes=statistic.output_slopes(sums),
                clip=self._coins.clip,
                allowed=allowance.of_units,
            )
            if allowance.of_units is not None and not (plan.charges <= allowance.of_units).all():
                raise BudgetExceededError(
                    "the release must be paid for by every unit; rounding takes some above what "
                    "they have left. Nothing was drawn or spent. Ask for less."
                )
            _check_counts(statistic, plan, sums)
            values = statistic.value(plan.clipped), statistic.value(sums.total())
            outputs = _outputs_of(mechanism, statistic, values, data)
            bars = releasing.measure_coin_error_bars(
                outputs, self._deviations(statistic, plan, sums), share=self.keep
            )
            bundle = self._bundle(plan, sums, outputs, bars, allowance)
        slack = plan.lattice.total_variation
        payment = self._pay(allowance, before, plan.charges, slack, plan.parameter)
        bundle = replace(bundle, session=payment.session)
        return CoinPlan(
            certificate=releasing.write_coin_certificate(bundle),
            charge=payment.charge,
            outputs=outputs,
            error_bars=bars,
            drawn=SumSampler(plan=plan, sums=sums),
            statistic=statistic,
            bundle=bundle,
            before=before.spent,
            clocks_before=self.balances,
            clocks=payment.clocks,
        )

    def _plan_descent(
        self,
        request: Request,
        purse: Callable[[], Purse],
        mechanism: Mechanism,
        descent: tuple[StepMechanism, Data, npt.NDArray[Any] | None],
    ) -> DescentReleasePlan:
        """Fix the noise of every step of a descent, and write the certificate."""
        if self._coins.rows_per_unit is not None:
            raise MechanismError(
                "a descent must not hide presence: its noise follows from all records. Leave "
                "rows_per_unit out, or use pacprivacy.dp."
            )
        if self._coins.clip != "auto":
            raise MechanismError(
                "clip must be left out for a descent: gradients are shortened by clocks; got "
                f"{as_told(self._coins.clip)}. Drop it."
            )
        allowance, standing = self._allow(request, purse()), purse()
        terms = DescentTerms(
            budget=allowance.budget,
            keep=self.keep,
            n_units=self.n_units,
            unit=self.unit,
            seed=self.seed,
            simulate=self._simulate,
            before=standing.spent,
            pay=partial(self._pay, allowance, standing),
            allowed=allowance.of_units,
            clocks=self.balances,
        )
        with single_threaded():
            return plan_descent_release(mechanism, self.data, descent, terms)

    def _plan_declared(
        self,
        request: Request,
        purse: Callable[[], Purse],
        mechanism: Mechanism,
        records: tuple[SumStatistic, Data, npt.NDArray[Any] | None],
    ) -> CoinPlan:
        """Find the noise by what was declared, and write the certificate; no figure of records.

        Guarantee
        ---------
        Claim C-9. Certificate, structure and error bars are functions of the declaration, the
        budget and the noisy sums.
        """
        statistic, data, units = records
        if isinstance(self.data.parts[0], Tables):
            raise MechanismError(
                "a statistic must be of one table where presence is hidden; got joined tables. "
                "Pass a frame."
            )
        with single_threaded():
            statistic, declaration, sums = declared_sums(
                statistic, data, units, self._coins.rows_per_unit or 1
            )
            sums = sums.with_units(self.n_units)
            if mechanism.published:
                raise MechanismError(
                    "nothing must be published exactly where presence is hidden; got "
                    f"{mechanism.published[0]}. Declare it."
                )
            allowance, before = self._allow(request, purse()), purse()
            plan = plan_declared(
                sums, declaration, success=allowance.budget.success, keep=self.keep
            )
            nobody = replace(sums.total(), values=np.zeros((sums.n_cells, sums.block)))
            empty = statistic.value(replace(nobody, noise_std=plan.sum_noise_std), self.keep)
            prepared: object = records[0]
            if mechanism is prepared and isinstance(statistic, Mechanism):
                mechanism = statistic  # with names as declared
            outputs = _outputs_of(mechanism, statistic, (empty, empty), data)
            bundle = self._bundle(plan, sums, outputs, None, allowance)
        notes = () if self.keep == 1 else (NO_BARS_WITH_COINS,)
        bundle = replace(
            bundle, declaration=declaration, stated=replace(bundle.stated, notes=notes)
        )
        return CoinPlan(
            certificate=releasing.write_coin_certificate(bundle),
            charge=Spent(n_releases=1, mu_squared=plan.parameter**2),
            outputs=outputs,
            error_bars=None,
            drawn=SumSampler(plan=plan, sums=sums),
            statistic=statistic,
            bundle=bundle,
            before=before.spent,
        )

    def _plan_average(
        self,
        request: Request,
        purse: Callable[[], Purse],
        mechanism: Mechanism,
        statistic: AveragedStatistic,
        records: tuple[Data, npt.NDArray[Any] | None],
    ) -> AverageReleasePlan | None:
        """Plan a release whose promise is an average over coins; it joins no session."""
        if not self._single or self.keep == 1.0 or self._coins.rows_per_unit is not None:
            return None
        coins = CoinUnits(
            n_units=self.n_units,
            unit=self.unit,
            keep=self.keep,
            clip=self._coins.clip,
            seed=self.seed,
        )
        promise = Promise(budget=self._allow(request, purse()).budget, simulate=self._simulate)
        with single_threaded():
            return plan_average_release(
                mechanism, statistic, records, coins=coins, promise=promise, before=purse().spent
            )

    def _pay(
        self, allowance: _Allowance, before: Purse, charges: Vector, slack: float, parameter: float
    ) -> CoinPayment:
        """Return what a release costs, given the charges of the table's units.

        Guarantee
        ---------
        Claim C-16. In a session they go to the clocks of these units, wherever those are.
        """
        if self.balances is None or allowance.of_units is None:
            return CoinPayment(charge=Spent(n_releases=1, mu_squared=parameter**2))
        clocks = self.balances.after(self.roster.spread(charges), slack)
        added = max(0.0, clocks.busiest - self.balances.busiest)
        charge = Spent(n_releases=1, mu_squared=added)
        session = releasing.CoinSession(
            total=before.total,
            before=before.spent,
            charge=charge,
            clocks=self.balances.spent[self.roster.places],
            allowed=allowance.of_units,
            absent=self.roster.largest_absent(self.balances.spent),
            data_digest=self._data_digest,
        )
        return CoinPayment(charge=charge, clocks=clocks, session=session)

    def _allow(self, request: Request, purse: Purse) -> _Allowance:
        """Return what a release may spend: what was asked, never more than what is left."""
        if self._single:
            if request.share is not None:
                raise BudgetError("share must be left out for a single release, which takes all.")
            assert request.budget is not None  # a single release has one
            budget = Membership(_success_of(request.budget))
            return _Allowance(budget=budget, parameter=influence_parameter(budget.success))
        if request.budget is not None and request.share is not None:
            raise BudgetError("budget and share must not both be given. Leave one out.")
        _check_ledger(purse)
        clocks = self._clocks(purse)
        portion, n_left = read_share(request.share)
        allowed = clocks.allowances(portion, n_left, purse.spent.n_releases)
        left = purse.left.mu_squared
        if left is not None:  # no clock may pass what the ledger leaves
            room = max(0.0, clocks.busiest + left - LEDGER_STEP)
            allowed = np.minimum(allowed, np.maximum(room - clocks.spent, 0.0))
        allowed = allowed[self.roster.places]
        if request.budget is not None:
            most, left_to_one = session_cap(_success_of(request.budget)), float(allowed.max())
            if most > left_to_one * (1 + 1e-9) + 2 * LEDGER_STEP:
                left_success = at_least(influence_success(math.sqrt(left_to_one)), significant=4)
                raise BudgetExceededError(
                    f"membership must be at most what is left to a unit, {left_success}; got "
                    f"{_success_of(request.budget):.6g}. Nothing was drawn or spent. Ask for less "
                    f"or end the session."
                )
            allowed = np.minimum(allowed, most)
        # What ten units may pay, so that no person alone decides how much noise there is.
        rank = max(0, self.n_units - CROWD)
        crowd = float(np.partition(allowed, rank)[rank])
        influence = np.sqrt(np.minimum(allowed, crowd)) * (1 - _ROUNDING_SHARE)
        parameter = float(influence.max())
        if not parameter > LEAST_INFLUENCE:
            raise BudgetExceededError(
                "the session's membership budget is used up. Nothing was drawn or spent."
            )
        return _Allowance(
            budget=Membership(min(influence_success(parameter), 1 - 1e-12)),
            parameter=parameter,
            of_units=influence,
        )

    def _clocks(self, purse: Purse) -> Clocks:
        """Return the clocks, which begin under the total and what the ledger leaves."""
        if self.balances is None:
            assert purse.total.mu_squared is not None  # a session limits something
            cap = purse.total.mu_squared
            shared = purse.shared().mu_squared
            if shared is not None:
                cap = min(cap, shared)
            self.balances = Clocks(spent=np.zeros(len(self.roster.marks)), cap=cap)
        return self.balances

    def _deviations(
        self, statistic: SumStatistic, plan: SumPlan, sums: UnitSums
    ) -> tuple[Vector, Vector]:
        """Return deviations of every number, by the coins and by the noise."""
        slopes = statistic.jacobian(plan.clipped)
        noise = np.sqrt(plan.noise_variances(slopes))
        coins = np.sqrt(plan.sampling_variances(sums, slopes))
        return statistic.arrange(coins), statistic.arrange(noise)

    def _bundle(
        self,
        plan: SumPlan,
        sums: UnitSums,
        outputs: Outputs,
        bars: releasing.ErrorBars | None,
        allowance: _Allowance,
    ) -> releasing.CoinBundle:
        stored = releasing.StoredContributions.of(plan, sums)
        facts = () if bars is None else (bars.coin_sentence,)
        return releasing.CoinBundle(
            integers=stored.integers,
            units=stored.units,
            starts=stored.starts,
            grid=plan.lattice.grid,
            units_per_std=plan.lattice.units_per_std,
            n_units=self.n_units,
            n_entries=len(sums.values),
            keep=self.keep,
            parameter=plan.parameter,
            dimension=outputs.n_outputs,
            unit=self.unit,
            clip=self._coins.clip,
            contributions_digest=stored.digest,
            simulation=self._simulate,
            budget=allowance.budget,
            stated=releasing.CuratorStatements(
                rule="least trace",
                mechanism=outputs.mechanism_name,
                output=outputs.structure.describe(),
                public=outputs.public,
                published=(*outputs.published, *plan.published, *facts),
                notes=releasing.error_bar_notes(bars),
                software=_version.__version__,
            ),
        )

    def forfeit(
        self, request: Request, purse: Callable[[], Purse]
    ) -> tuple[Spent, Accounts | None]:
        """Return what a request pays that fails on the data."""
        raise BudgetError("a session with coins must have no principals besides its own.")

    def remember(
        self, plan: Plan, observed: Any
    ) -> tuple[None, releasing.Certificate, releasing.CuratorBundle]:
        """Return certificate and bundle: the clocks were moved with the charge."""
        assert isinstance(plan, CoinPlan | AverageReleasePlan | DescentReleasePlan)  # its own
        if isinstance(plan, DescentReleasePlan):
            return None, plan.certificate, plan.bundle_of(observed)
        return None, plan.certificate, plan.bundle


def _success_of(budget: AnyBudget) -> float:
    limits = budget_limits(budget, n_subsets=2)
    if limits.success_level is None or limits.mi_nats is not None:
        raise BudgetError(
            f"budget must limit membership alone where every unit has a coin; got {budget}. Use "
            "membership<=0.6, or a pool: sample=pac.Balanced()."
        )
    return limits.success_level


def _check_ledger(purse: Purse) -> None:
    """Refuse a ledger that limits this dataset in other kinds only, before anything is computed."""
    kinds = (purse.left.mi_nats, purse.left.success_increment)
    if purse.left.mu_squared is None and kinds != (None, None):
        raise LedgerError(
            "the ledger must have a budget for coins on this dataset; it has one for pools alone. "
            "Set one: pac ledger create LEDGER --dataset NAME --membership 0.6."
        )


def _refuse_pool_options(request: Request) -> None:
    if request.rule is not None or request.checkpoint is not None:
        raise BudgetError(
            "rule and checkpoint must be left out where every unit has a coin: noise has one rule, "
            "and there is one pass. Use a pool: sample=pac.Balanced()."
        )


def _refuse_gap_policy(mechanism: Mechanism) -> None:
    """Refuse to refuse gaps, before the records are read: the message would tell of them."""
    if isinstance(mechanism, Statistic) and mechanism.missing not in ("drop", "category"):
        raise MechanismError(
            "missing must be 'drop' or 'category' where presence is hidden; got "
            f"{mechanism.missing!r}: a refusal would tell of gaps. Drop them."
        )


def _outputs_of(
    mechanism: Mechanism, statistic: SumStatistic, values: tuple[Vector, Vector], data: Data
) -> Outputs:
    """Return the outputs, given the value on all records after clipping, and as they are."""
    clipped, on_all = values
    structure = flatten(statistic.shaped(clipped, data))[1]
    totals = mechanism.totals
    rounds = totals == "count" and bool(total_numbers("count", structure).all())
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
