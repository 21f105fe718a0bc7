"""A secret of coins: one coin for every unit decides whether it is used.

A release reads the records once, finds the least noise that hides the contribution of every unit,
and only then tosses the coins. In a session every unit has a clock, which adds up the squares of
its influence, used or left out; a single release has none: its terms follow from its budget alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy import release as releasing
from pacprivacy._checks import Mask, Vector
from pacprivacy._random import BitSource, ProcessBound, coerce_seed
from pacprivacy._rounding import at_least
from pacprivacy.adversary import (
    SESSION_SLACK,
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
from pacprivacy.mechanism import Data, Mechanism, steps_of
from pacprivacy.queries import QuerySums, Tables
from pacprivacy.sample import (
    KEY_BYTES,
    MARK_BYTES,
    Coins,
    Roster,
    check_exact_ids,
    code_units,
    draw_coins,
    keyed_coins,
    pool_unit_name,
)
from pacprivacy.session.coin_release import (
    AverageRecords,
    Codes,
    CoinRecords,
    CoinReleasePlan,
    CoinTerms,
    DeclaredRecords,
    DescentRecords,
    SumRecords,
)
from pacprivacy.session.refinement import CoinRefinement
from pacprivacy.session.secret import (
    Accounts,
    Observed,
    Odometer,
    Plan,
    Price,
    Purse,
    ReleaseSampler,
    Request,
    SampleOptions,
    SessionSecret,
    Share,
)
from pacprivacy.session.state import (
    STATE_READERS,
    AccountOwner,
    Marks,
    SessionState,
    other_total,
    other_units,
    pack_state,
    read_record,
)
from pacprivacy.statistics import (
    AveragedStatistic,
    CoinUnits,
    Statistic,
    SumStatistic,
    refuse_obstacles,
    statistic_with_coins,
)

LEDGER_STEP: Final = 1e-11  # more than the ledger rounds a charge up
COIN_VERSION: Final = 8  # of the file
CROWD: Final = 10  # units that must be able to pay for a release
LEAST_INFLUENCE: Final = 1e-4  # of a release; below it the budget is used up
_ROUNDING_SHARE: Final = 2.0**-40  # of an influence: what squares and roots of it may be off


def single_terms(request: Request, coins: CoinUnits, before: Spent, *, simulate: bool) -> CoinTerms:
    """Return the terms of a single release, which takes the whole budget."""
    if request.share is not None:
        raise BudgetError("share must be left out for a single release, which takes all.")
    assert request.budget is not None  # a single release has one
    success = coin_success(request.budget)
    return CoinTerms(
        coins=coins,
        budget=Membership(success),
        parameter=influence_parameter(success),
        simulate=simulate,
        before=before,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinAccount:
    """The clocks of a session's units, and its remaining budgets."""

    coins: CoinUnits
    simulate: bool
    roster: Roster = field(repr=False)
    clocks: Clocks = field(repr=False)
    purse: Purse
    data_digest: str = ""

    @property
    def pays_largest(self) -> bool:
        """Whether the owner has a lower limit than the cap of the clocks."""
        limit = self.purse.own_limit
        return limit is not None and limit < self.clocks.cap - LEDGER_STEP

    def with_purse(self, purse: Purse) -> CoinAccount:
        """Return the account after other releases."""
        assert isinstance(purse.accounts, Clocks)  # of a session with coins
        return replace(self, clocks=purse.accounts, purse=purse)

    def terms(self, request: Request, *, principal: bool = False) -> CoinTerms:
        """Return the budget of a release: the request, never more than the remaining budget.

        A ``principal`` is charged the largest unit of each release, so that no unit may pay more
        than the principal has left.
        """
        if request.budget is not None and request.share is not None:
            raise BudgetError("budget and share must not both be given. Leave one out.")
        _check_ledger(self.purse)
        allowed = self._allowances(request.share, principal=principal)
        if request.budget is not None:
            allowed = _within_budget(allowed, coin_success(request.budget))
        return self._terms_within(allowed)

    def step_terms(self, allowed: Vector) -> CoinTerms:
        """Return the terms of one step of a refinement, within ``allowed`` and the clocks."""
        return self._terms_within(np.minimum(allowed, self._allowances(None)))

    def _terms_within(self, allowed: Vector) -> CoinTerms:
        """Return the terms under which units pay at most ``allowed``."""
        # What ten units may pay, so that no person alone decides how much noise there is.
        rank = max(0, self.coins.n_units - CROWD)
        crowd = float(np.partition(allowed, rank)[rank])
        influence = np.sqrt(np.minimum(allowed, crowd)) * (1 - _ROUNDING_SHARE)
        parameter = float(influence.max())
        if not parameter > LEAST_INFLUENCE:
            raise BudgetExceededError(
                "the session's membership budget is used up. Nothing was drawn or spent."
            )
        return CoinTerms(
            coins=self.coins,
            budget=Membership(min(influence_success(parameter), 1 - 1e-12)),
            parameter=parameter,
            simulate=self.simulate,
            before=self.purse.spent,
            account=self,
            allowed=influence,
        )

    def _allowances(self, share: Share | None, *, principal: bool = False) -> Vector:
        """Return the squared influence that every unit of the table may have in a release."""
        clocks, purse = self.clocks, self.purse
        portion, n_left = share or Share()
        allowed = clocks.allowances(portion, n_left, purse.spent.n_releases)
        left = purse.left.mu_squared
        if left is not None:  # no clock may pass the budget in the ledger
            room = max(0.0, clocks.busiest + left - LEDGER_STEP)
            allowed = np.minimum(allowed, np.maximum(room - clocks.spent, 0.0))
        if principal or self.pays_largest:
            unspent = purse.spent.left_of(purse.total).tightest(purse.left).mu_squared
            assert unspent is not None  # a session limits something
            allowed = np.minimum(allowed, max(0.0, unspent - LEDGER_STEP))
        return np.asarray(allowed[self.roster.places])


def _within_budget(allowed: Vector, success: float) -> Vector:
    """Return the allowances under a budget of success; refuse more than units have left."""
    most, left_to_one = session_cap(success), float(allowed.max())
    if most > left_to_one * (1 + 1e-9) + 2 * LEDGER_STEP:
        left_success = at_least(influence_success(math.sqrt(left_to_one)), significant=4)
        raise BudgetExceededError(
            f"membership must be at most what is left to a unit, {left_success}; got "
            f"{success:.6g}. Nothing was drawn or spent. Ask for less or end the session."
        )
    return np.asarray(np.minimum(allowed, most))


def first_clocks(purse: Purse, n_units: int) -> Clocks:
    """Return the clocks of a new session, capped by its total and the ledger."""
    cap = purse.total.mu_squared
    assert cap is not None  # a session limits something
    shared = purse.shared.mu_squared
    return Clocks(spent=np.zeros(n_units), cap=cap if shared is None else min(cap, shared))


def coin_success(budget: AnyBudget) -> float:
    """Return the success that a budget allows; refuse one that limits anything else."""
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CoinState(SessionState):
    """State of a session with coins: the key of the coins, and every unit's clock.

    ``marks`` are 16 bytes for each unit that the session has met, in the order of ``clocks``.
    ``unpaid`` are the clocks before the charge of a release that is about to be reserved.
    """

    key: bytes
    coins: Coins
    has_units: bool
    marks: bytes
    clocks: Clocks
    unpaid: Clocks | None = None

    @property
    def may_grow(self) -> bool:
        """Whether units have names, so that they can be recognised in another table."""
        return self.has_units

    @property
    def is_complete(self) -> bool:
        """Clocks have paid for the release before it is drawn, and there is no belief."""
        return True

    def settled(self, upcoming: str, *, paid: bool) -> SessionState:
        """Return the state with the clocks from before a release that was never reserved."""
        if not upcoming:
            return self
        if paid or self.unpaid is None:
            return replace(self, n_releases=self.n_releases + paid, unpaid=None)
        return replace(self, clocks=self.unpaid, unpaid=None)

    def to_bytes(self, marks: Marks) -> bytes:
        return pack_state(COIN_VERSION, (marks, self))

    @staticmethod
    def read(content: bytes) -> tuple[CoinState, Marks]:
        """Rebuild a state; refuse clocks that no session could have."""
        marks, state = read_record(content, tuple[Marks, CoinState])
        cap = state.total.mu_squared
        if cap is None:
            raise ValueError("total")
        clocks = _checked_clocks(state.clocks, cap)
        unpaid = None if state.unpaid is None else _checked_clocks(state.unpaid, cap)
        if unpaid is not None and not (unpaid.spent <= clocks.spent).all():
            raise ValueError("clocks")
        if len(state.key) != KEY_BYTES or state.coins.keep is None:
            raise ValueError("key")
        if len(state.marks) != MARK_BYTES * len(state.clocks.spent):
            raise ValueError("units")
        return replace(state, clocks=clocks, unpaid=unpaid), marks

    def check_sample(self, opened: AccountOwner) -> None:
        if opened.budget is not None:
            level = budget_limits(opened.budget).success_level
            if level is None or session_cap(level) != self.total.mu_squared:
                raise other_total()
        sample = opened.options.sample
        if sample is not None and not isinstance(sample, Coins):
            raise PoolError(
                "sample must be of the kind that the session began with, coins; got a pool. Leave "
                "it out."
            )
        if sample is not None and sample.keep not in (None, self.coins.keep):
            raise PoolError(
                f"keep must be that of the session, {self.coins.keep:g}; got "
                f"{sample.keep:g}. Leave it out."
            )
        if not opened.has_tables and (opened.options.units is not None) != self.has_units:
            raise other_units()


def _checked_clocks(clocks: Clocks, cap: float) -> Clocks:
    """Return stored clocks under the session's cap; refuse any that no session could have."""
    spent = clocks.spent
    if spent.dtype != np.float64 or spent.ndim != 1 or not 0 <= clocks.slack <= SESSION_SLACK:
        raise ValueError("clocks")
    if not ((spent >= 0) & (spent <= cap)).all():
        raise ValueError("clocks")
    return replace(clocks, cap=cap)


STATE_READERS[COIN_VERSION] = CoinState.read


class ReleaseCoins(ProcessBound):
    """Who is really used. It cannot be printed, copied or forked."""

    __slots__ = ("_kept",)
    KIND = "the secret"
    INSTEAD = "Save the release, not the session."

    def __init__(self, kept: Mask) -> None:
        self._kept = kept

    def __repr__(self) -> str:
        return f"Coins(of {len(self._kept)} units)"

    def observe(self, plan: ReleaseSampler[Mask, Observed], source: BitSource) -> Observed:
        """Draw the noise around the sums of the used units; refuse in a fork."""
        self.check_process()
        return plan.observe(self._kept, source)


class CoinSecret(SessionSecret):
    """The coins of all units, by a key that is stored, and a clock for every unit.

    Every row is a unit where ``options`` have none; of tables the units are the values of their
    key. ``coins`` say how units are left out.
    """

    QUERY = QuerySums
    balances: Clocks | None = None

    def __init__(
        self, data: Data, options: SampleOptions, coins: Coins, *, data_digest: str = ""
    ) -> None:
        self.data, self.seed = data, coerce_seed(options.rng)
        self._coins, self._simulate, self._data_digest = coins, options.simulate, data_digest
        self._check_coins()
        labels, self.unit = self._labels(options.units)
        self._has_units = labels is not None
        self.n_units = data.n_rows
        self._codes: npt.NDArray[np.int64] | None = None
        self._ids: tuple[bytes, ...] | None = None
        if labels is not None:
            codes, self._ids = code_units(labels, data.n_rows)
            self._codes = codes.astype(np.int64)
            self.n_units = len(self._ids)
        self.keep = coins.resolve(self.n_units)
        self._roster: Roster | None = None
        self._key: bytes | None = None
        self._held: ReleaseCoins | None = None

    def _check_coins(self) -> None:
        if self._coins.rows_per_unit is not None:
            raise PoolError(
                "rows_per_unit must be left out in a session: presence is hidden in single "
                "releases. Use pac.privatize."
            )

    def _labels(self, units: Any) -> tuple[Any, str]:
        """Return the unit of every row, and its name: coins follow from the names of units."""
        tables, called = self.data.parts[0], str(getattr(units, "name", "") or "")
        if isinstance(tables, Tables):
            units, called = tables.unit_keys(), tables.unit
        if units is None:
            return None, "record"
        check_exact_ids(units)
        return units, pool_unit_name(called) or "unit"

    # --- the secret -----------------------------------------------------------------------------

    def draw(self, source: BitSource, *, first: int = 0) -> None:
        if self._held is None:
            self._held = ReleaseCoins(self._toss(source))

    def _toss(self, source: BitSource) -> Mask:
        if self._key is None:
            self._key = source.words(KEY_BYTES // 8).tobytes()
        return keyed_coins(self._unit_ids(), self.keep, self._key)

    def _unit_ids(self) -> tuple[bytes, ...]:
        if self._ids is None:
            self._ids = tuple(b"n%d" % i for i in range(self.n_units))
        return self._ids

    def observe(self, sampler: ReleaseSampler[Mask, Observed], source: BitSource) -> Observed:
        assert self._held is not None  # drawn before its charge was booked
        return self._held.observe(sampler, source)

    def forget(self) -> None:
        self._held = self._key = None

    def state(
        self,
        total: Spent,
        n_releases: int,
        *,
        balances: Accounts | None = None,
        belief: Belief | None = None,
    ) -> SessionState:
        assert self._key is not None  # drawn before the charge is booked
        assert isinstance(balances, Clocks)  # of coins
        return CoinState(
            total=total,
            n_releases=n_releases,
            key=self._key,
            coins=replace(self._coins, keep=self.keep),
            has_units=self._has_units,
            marks=self.roster.marks.tobytes(),
            clocks=balances,
            unpaid=None if balances is self.balances else self.balances,
        )

    @property
    def roster(self) -> Roster:
        """All units that the session has met, and those of the table among them."""
        if self._roster is None:
            self._roster = Roster.of(b"", self._unit_ids())
        return self._roster

    def go_on(self, state: SessionState) -> None:
        """Take over the contents of a file; units that are new begin with a clock at zero.

        Guarantee
        ---------
        Claim C-16. A unit that is called as before has the coin and the clock that it had, also if
        it was away in between.
        """
        assert isinstance(state, CoinState)  # checked where the file was read
        roster, n_before = Roster.of(state.marks, self._unit_ids()), len(state.clocks.spent)
        same = len(roster.marks) == n_before == self.n_units
        if (not same and not state.has_units) or not roster.n_known:
            raise PoolError(
                "units must be those that the session began with, by the same names; got other "
                "units. Pass the same units, or begin a new session."
            )
        if not same:
            roster.check_spellings(self._unit_ids(), n_before)
        assert state.coins.keep is not None  # that of the session
        self._key, self.keep, self._roster = state.key, state.coins.keep, roster
        self.balances = state.clocks.extended(len(roster.marks))

    def odometer(self, spent: Spent, total: Spent) -> Odometer:
        bound = None if total.mu_squared is None else cap_success(total.mu_squared)
        busiest = spent.mu_squared if self.balances is None else self.balances.busiest
        spent = replace(spent, mu_squared=busiest)
        return Odometer(spent=spent, total=total, success_bound=bound)

    def spent_text(self, spent: Spent) -> str:
        influence = math.sqrt(spent.mu_squared or 0.0)
        return f"influence {influence:.4g} spent by the busiest unit"

    # --- the work up to the draw ----------------------------------------------------------------

    def total(self, budget: AnyBudget | None) -> Spent:
        """Return the squared influence that a unit may have in all."""
        if budget is None:
            return Spent()
        return Spent(mu_squared=session_cap(coin_success(budget)))

    def measure(self, request: Request, purse: Purse, notes: tuple[str, ...]) -> CoinRecords:
        """Read each unit's influence; refuse more than is left before the records are read."""
        _refuse_pool_options(request)
        self._terms(request, purse)
        return self._read(request.mechanism)

    def plan(self, request: Request, measured: CoinRecords, purse: Purse) -> CoinReleasePlan:
        return measured.plan(self._terms(request, purse))

    def price(self, request: Request, purse: Purse) -> Price:
        _refuse_pool_options(request)
        return self._account(purse).terms(request, principal=True).price()

    def plan_paid(self, request: Request, price: Price) -> CoinReleasePlan:
        """Return the plan of a prepaid request; it does not depend on clocks."""
        return self._read(request.mechanism).plan(price.terms)

    def refinement(
        self, request: Request, measured: CoinRecords, purse: Purse, levels: int | None
    ) -> CoinRefinement:
        if type(measured) is not SumRecords:
            raise _no_sums(measured.mechanism)
        return CoinRefinement(measured, self._terms(request, purse), levels)

    def _read(self, whole: Mechanism) -> CoinRecords:
        """Prepare a mechanism, and read its input from the records."""
        mechanism = whole.prepare(self.data)
        refuse_obstacles(mechanism)
        descent = steps_of(mechanism, self.data, self._codes)
        if descent is None:
            return self._records(
                mechanism, *statistic_with_coins(mechanism, self.data, self._codes)
            )
        steps, data, codes = descent
        return DescentRecords(
            mechanism=mechanism, data=data, codes=codes, steps=steps, everything=self.data
        )

    def _records(
        self, mechanism: Mechanism, statistic: object, data: Data, codes: Codes
    ) -> CoinRecords:
        """Return the input of a statistic from its records."""
        if not isinstance(statistic, SumStatistic):
            raise _no_sums(mechanism)
        return SumRecords.read(mechanism, (statistic, data, codes), self.n_units)

    @property
    def _units(self) -> CoinUnits:
        return CoinUnits(
            n_units=self.n_units,
            unit=self.unit,
            keep=self.keep,
            clip=self._coins.clip,
            seed=self.seed,
        )

    def _terms(self, request: Request, purse: Purse) -> CoinTerms:
        return self._account(purse).terms(request)

    def _account(self, purse: Purse) -> CoinAccount:
        """Return the clocks of all units, which begin at zero."""
        if self.balances is None:
            self.balances = first_clocks(purse, len(self.roster.marks))
        return CoinAccount(
            coins=self._units,
            simulate=self._simulate,
            roster=self.roster,
            clocks=self.balances,
            purse=purse,
            data_digest=self._data_digest,
        )

    def remember(
        self, plan: Plan, observed: Any
    ) -> tuple[None, releasing.Certificate, releasing.CuratorBundle]:
        assert isinstance(plan, CoinReleasePlan)  # its own
        return None, plan.certificate, plan.bundle_of(observed)


class SingleCoinSecret(CoinSecret):
    """Coins for one release, which takes the whole budget: no key, no clocks, no predecessors.

    It may also prove its promise over the coins, or hide presence.
    """

    def _check_coins(self) -> None: ...

    def _labels(self, units: Any) -> tuple[Any, str]:
        tables, called = self.data.parts[0], str(getattr(units, "name", "") or "")
        if isinstance(tables, Tables):  # whose rows are their units
            called = tables.unit
        elif units is None:
            return None, "record"
        return units, pool_unit_name(called) or "unit"

    def _toss(self, source: BitSource) -> Mask:
        return draw_coins(self.n_units, self.keep, source)

    def _terms(self, request: Request, purse: Purse) -> CoinTerms:
        return single_terms(request, self._units, purse.spent, simulate=self._simulate)

    def _read(self, whole: Mechanism) -> CoinRecords:
        rows_per_unit = self._coins.rows_per_unit
        if rows_per_unit is None:
            return super()._read(whole)
        _refuse_gap_policy(whole)
        _refuse_undeclarable(whole, rows_per_unit)
        records = super()._read(whole.reading_by_entry())
        if isinstance(records, DescentRecords):
            raise MechanismError(
                "a descent must not hide presence: its noise follows from all records. Leave "
                "rows_per_unit out, or use pacprivacy.dp."
            )
        return records

    def _records(
        self, mechanism: Mechanism, statistic: object, data: Data, codes: Codes
    ) -> CoinRecords:
        rows_per_unit = self._coins.rows_per_unit
        if rows_per_unit is not None and isinstance(statistic, SumStatistic):
            return DeclaredRecords.declared(
                mechanism, (statistic, data, codes), self.n_units, rows_per_unit=rows_per_unit
            )
        if rows_per_unit is None and self.keep < 1.0 and isinstance(statistic, AveragedStatistic):
            value = statistic.on_samples(data, codes, self._units)
            if value is not None:
                return AverageRecords(
                    mechanism=mechanism, data=data, codes=codes, statistic=statistic, value=value
                )
        return super()._records(mechanism, statistic, data, codes)


def _no_sums(mechanism: Mechanism) -> MechanismError:
    return MechanismError(
        "a statistic must be a function of sums in a session or for everybody; got "
        f"{mechanism.name[:60]}, which is proved on average over coins. Release it by "
        "itself, with keep below 1."
    )


def _refuse_pool_options(request: Request) -> None:
    if request.rule is not None or request.checkpoint is not None:
        raise BudgetError(
            "rule and checkpoint must be left out where every unit has a coin: noise has one rule, "
            "and there is one pass. Use a pool: sample=pac.Balanced()."
        )


def _refuse_undeclarable(mechanism: Mechanism, rows_per_unit: int) -> None:
    """Refuse statistics without a declaration before the records are read."""
    if isinstance(mechanism, SumStatistic) and type(mechanism).declare is SumStatistic.declare:
        mechanism.declare(rows_per_unit)


def _refuse_gap_policy(mechanism: Mechanism) -> None:
    """Refuse statistics that would refuse gaps: the message would reveal them."""
    if isinstance(mechanism, Statistic) and mechanism.missing not in ("drop", "category"):
        raise MechanismError(
            "missing must be 'drop' or 'category' where presence is hidden; got "
            f"{mechanism.missing!r}: a refusal would tell of gaps. Drop them."
        )
