"""A secret of coins: one coin for every unit decides whether it is used.

A release reads the records once, finds the least noise that hides the contribution of every unit,
and only then tosses the coins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy import release as releasing
from pacprivacy._checks import Mask
from pacprivacy._random import BitSource
from pacprivacy.adversary import Belief, Clocks, cap_success, session_cap
from pacprivacy.budget import AnyBudget, Spent
from pacprivacy.errors import BudgetError, MechanismError, PoolError
from pacprivacy.mechanism import Mechanism, steps_of
from pacprivacy.queries import Tables
from pacprivacy.sample import (
    KEY_BYTES,
    Coins,
    check_exact_ids,
    code_units,
    draw_coins,
    keyed_coins,
    pool_unit_name,
)
from pacprivacy.session.coin_account import (
    MARK,
    CoinAccount,
    CoinTerms,
    Roster,
    coin_success,
    first_clocks,
    single_terms,
)
from pacprivacy.session.coin_release import (
    AverageRecords,
    CoinRecords,
    CoinReleasePlan,
    DeclaredRecords,
    DescentRecords,
    SumRecords,
)
from pacprivacy.session.dry_run import DryRun
from pacprivacy.session.refinement import CoinRefinement
from pacprivacy.session.secret import (
    Accounts,
    Observed,
    Odometer,
    Plan,
    Price,
    Purse,
    Request,
    SessionSecret,
)
from pacprivacy.session.state import CoinState, SessionState
from pacprivacy.statistics import (
    AveragedStatistic,
    CoinUnits,
    Statistic,
    SumStatistic,
    refuse_obstacles,
    statistic_with_coins,
)

_NO_CLOCKS: Final = Clocks(spent=np.zeros(0), cap=0.0)  # of a single release, which stores nothing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredByCoins:
    """A request, and what its release needs of the records; curator-only."""

    request: Request
    records: CoinRecords = field(repr=False)


class CoinSecret(SessionSecret):
    """The coins of all units, for one release or for many.

    Parameters
    ----------
    dry_run
        All records, and the unit of every row; every row is a unit where it has none. Of tables the
        units are the values of their key.
    coins : Coins
        How units are left out.
    single : bool
        One release takes all, and knows of no other.
    """

    balances: Clocks | None = None

    def __init__(
        self,
        dry_run: DryRun,
        coins: Coins,
        *,
        single: bool,
        simulate: bool,
        data_digest: str = "",
    ) -> None:
        if dry_run.has_options:
            raise PoolError(
                "n_subsets, n_jobs and backend must be left out where every unit has a coin; got "
                "one of them. Use a pool: sample=pac.Balanced()."
            )
        self.data, self.seed, units = dry_run.data, dry_run.seed, dry_run.units
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
            if not single:
                check_exact_ids(units)
            named = pool_unit_name(str(getattr(units, "name", "") or ""))
            self._codes, self._ids = code_units(units, self.data.n_rows)
            self.n_units = len(self._ids)
            if not isinstance(tables, Tables):
                self.unit = named or "unit"
        self.keep = coins.resolve(self.n_units)
        self._key: bytes | None = None
        self._held: releasing.ReleaseCoins | None = None

    # --- the secret -----------------------------------------------------------------------------

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
        if not same:
            roster.check_spellings(self._unit_ids(), len(marks))
        assert state.coins.keep is not None  # that of the session
        self._key, self.keep, self._roster = state.key, state.coins.keep, roster
        self.balances = state.clocks.extended(len(roster.marks))

    def reading(self, spent: Spent, total: Spent) -> Odometer:
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

    def measure(
        self, request: Request, purse: Purse, notes: tuple[str, ...] = ()
    ) -> MeasuredByCoins:
        """Read what every unit changes; refuse more than is left before the records are read."""
        _refuse_pool_options(request)
        self._terms(request, purse)
        return MeasuredByCoins(request=request, records=self._read(request.mechanism))

    def plan(self, measured: MeasuredByCoins, purse: Purse) -> CoinReleasePlan:
        return measured.records.plan(self._terms(measured.request, purse))

    def price(self, request: Request, purse: Purse) -> Price:
        _refuse_pool_options(request)
        return self._account(purse).terms(request, principal=True).price()

    def plan_paid(self, request: Request, price: Price) -> CoinReleasePlan:
        """Return the plan of a request that was paid for; it depends on no clock any more."""
        return self._read(request.mechanism).plan(price.terms)

    def refinement(
        self, measured: MeasuredByCoins, purse: Purse, levels: int | None
    ) -> CoinRefinement:
        records = measured.records
        if type(records) is not SumRecords:
            raise _no_sums(records.mechanism)
        return CoinRefinement(records, self._terms(measured.request, purse), levels)

    def _read(self, whole: Mechanism) -> CoinRecords:
        """Prepare a mechanism, and read what it needs of the records."""
        rows_per_unit = self._coins.rows_per_unit
        if rows_per_unit is not None:
            _refuse_gap_policy(whole)
            _refuse_undeclarable(whole, rows_per_unit)
            whole = whole.reading_by_entry()
        mechanism = whole.prepare(self.data)
        refuse_obstacles(mechanism)
        descent = steps_of(mechanism, self.data, self._codes)
        if descent is not None:
            if rows_per_unit is not None:
                raise MechanismError(
                    "a descent must not hide presence: its noise follows from all records. Leave "
                    "rows_per_unit out, or use pacprivacy.dp."
                )
            steps, data, codes = descent
            return DescentRecords(
                mechanism=mechanism, data=data, codes=codes, steps=steps, everything=self.data
            )
        statistic, data, codes = statistic_with_coins(mechanism, self.data, self._codes)
        averages = self._single and self.keep < 1.0 and rows_per_unit is None
        if averages and isinstance(statistic, AveragedStatistic):
            value = statistic.on_samples(data, codes, self._units)
            if value is not None:
                return AverageRecords(
                    mechanism=mechanism, data=data, codes=codes, statistic=statistic, value=value
                )
        if not isinstance(statistic, SumStatistic):
            raise _no_sums(mechanism)
        records = (statistic, data, codes)
        if rows_per_unit is None:
            return SumRecords.read(mechanism, records, self.n_units)
        return DeclaredRecords.declared(
            mechanism, records, self.n_units, rows_per_unit=rows_per_unit
        )

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
        if self._single:
            return single_terms(request, self._units, purse.spent, simulate=self._simulate)
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
