"""A secret of coins: who is used, one coin for every unit.

A release of sums needs one pass over the records: what every unit adds, the least noise under which
no unit shows, and only then the coins. In a session every unit has a clock, which adds up the
squares of its influence, used or left out.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy import release as releasing
from pacprivacy._checks import Mask, Vector
from pacprivacy._random import BitSource, coerce_seed
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
from pacprivacy.mechanism import Data, Mechanism, coerce_data, steps_of
from pacprivacy.queries import Tables
from pacprivacy.sample import (
    KEY_BYTES,
    Coins,
    canonical_unit_ids,
    code_units,
    draw_coins,
    keyed_coins,
    pool_unit_name,
)
from pacprivacy.session.account import read_share
from pacprivacy.session.average_release import plan_average_release
from pacprivacy.session.coin_release import (
    CoinPayment,
    CoinRefinement,
    CoinReleasePlan,
    CoinTerms,
    SumRecords,
    plan_declared_release,
    plan_sum_release,
)
from pacprivacy.session.descent_release import plan_descent_release
from pacprivacy.session.secret import (
    Accounts,
    Observed,
    Plan,
    Price,
    Purse,
    Request,
    SessionSecret,
)
from pacprivacy.session.secret_holder import Odometer
from pacprivacy.session.state import CoinState, SessionState
from pacprivacy.statistics import (
    AveragedStatistic,
    CoinUnits,
    Statistic,
    SumStatistic,
    statistic_with_coins,
)

MARK_BYTES: Final = 16  # of a unit's id, hashed
MARK: Final = np.dtype((np.void, MARK_BYTES))
WIDEST_ID: Final = 16  # digits of a number with leading zeros
_NUMERIC: Final = re.compile(r"\s*[+-]?[0-9]{1,30}(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\s*")
_ENCODINGS: Final = ("utf-8", "cp1252", "latin-1", "cp1250", "cp850", "mac_roman")
_AS_NUMBERS: Final = "numbers such as 7 for texts such as 007"
_AS_TEXTS: Final = "texts such as 007 for numbers such as 7"
_ENCODED: Final = "letters in another encoding"
_ADVICE: Final = {
    _AS_NUMBERS: 'Read the column of ids as texts, as before: with a schema, type = "id".',
    _AS_TEXTS: "Write those ids as before, without leading zeros; or begin a new session with a "
    'schema that says type = "id", which keeps ids as they are written.',
    _ENCODED: "Name the encoding of the file: --encoding cp1252, or encoding = in a schema.",
}
LEDGER_STEP: Final = 1e-11  # more than the ledger rounds a charge up
CROWD: Final = 10  # units that must be able to pay for a release
LEAST_INFLUENCE: Final = 1e-4  # of a release; below it the budget is used up
_ROUNDING_SHARE: Final = 2.0**-40  # of an influence: what squares and roots of it may be off
_NO_CLOCKS: Final = Clocks(spent=np.zeros(0), cap=0.0)  # of a single release, which stores nothing


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
        here = [places.setdefault(mark, len(places)) for mark in map(_mark, unit_ids)]
        if len(set(here)) < len(here):
            raise PoolError("units must differ; got two of one mark. Rename one of them.")
        known_places = np.array(here, dtype=np.int64)
        whole = np.frombuffer(b"".join(places), dtype=MARK)
        return cls(
            marks=whole, places=known_places, n_known=int(np.count_nonzero(known_places < n_before))
        )

    def check_spellings(self, unit_ids: tuple[bytes, ...], n_before: int) -> None:
        """Refuse new units that are known by another spelling, and are not in the table by it.

        Guarantee
        ---------
        Claim C-16. Ids that are read as another type, or in another encoding, than before begin no
        new clock: 007 read as 7 or the other way round, and José read as JosÃ©.
        """
        away = set(self.marks[:n_before].tolist()) - set(self.marks[self.places].tolist())
        if not away:
            return
        new = (i for i, place in zip(unit_ids, self.places, strict=True) if place >= n_before)
        for change, spelled in (each for unit_id in new for each in _spellings(unit_id)):
            if _mark(spelled) in away:
                raise PoolError(
                    f"ids must be read as in earlier releases; got {change}, which would give "
                    f"known units a new coin and a new clock. {_ADVICE[change]} If they are other "
                    "people, give them other ids. Nothing was charged."
                )

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


def _mark(unit_id: bytes) -> bytes:
    return hashlib.blake2b(unit_id, digest_size=MARK_BYTES).digest()


def _spellings(unit_id: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what else an id may have been called, and by what change, were it read otherwise."""
    text = unit_id[1:].decode("utf-8", "surrogatepass") if unit_id[:1] in (b"n", b"t") else ""
    if unit_id[:1] == b"n" and text.isdecimal():
        for width in range(len(text) + 1, WIDEST_ID + 1):
            yield _AS_NUMBERS, b"t" + text.zfill(width).encode()
    elif _NUMERIC.fullmatch(text) and math.isfinite(float(text)):
        number = int(text) if text.strip().lstrip("+-").isdecimal() else float(text)
        yield _AS_TEXTS, canonical_unit_ids([number])[0]
    if text.isascii():
        return
    for form in ("NFC", "NFD"):
        yield _ENCODED, b"t" + unicodedata.normalize(form, text).encode("utf-8", "surrogatepass")
    for read, written in itertools.permutations(_ENCODINGS, 2):
        with suppress(UnicodeError):
            yield _ENCODED, b"t" + text.encode(read).decode(written).encode()


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
        if not same:
            roster.check_spellings(self._unit_ids(), len(marks))
        assert state.coins.keep is not None  # that of the session
        self._key, self.keep, self._roster = state.key, state.coins.keep, roster
        self.balances = state.clocks.extended(len(roster.marks))

    def reading(self, spent: Spent, total: Spent) -> Odometer:
        """Return what is promised, and what the busiest unit has spent."""
        bound = None if total.mu_squared is None else cap_success(total.mu_squared)
        busiest = spent.mu_squared if self.balances is None else self.balances.busiest
        spent = replace(spent, mu_squared=busiest)
        return Odometer(spent=spent, total=total, success_bound=bound)

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

    def plan(self, request: Request, purse: Callable[[], Purse]) -> CoinReleasePlan:
        """Measure what every unit adds, find the least noise, and write the certificate."""
        _refuse_pool_options(request)
        self._terms(request, purse())  # refused here, before the records are read
        return self._plan(request, lambda: self._terms(request, purse()))

    def price(self, request: Request, purse: Purse) -> Price:
        """Return what a query of a principal pays before its rows are read, answered or not.

        Guarantee
        ---------
        Claim Q-4. Every unit of the table pays all that the query may cost it.
        """
        _refuse_pool_options(request)
        terms = self._terms(request, purse, principal=True)
        assert terms.allowed is not None  # a session has clocks
        assert purse.total.mu_squared is not None  # a session limits something
        slack = SESSION_SLACK * terms.parameter**2 / purse.total.mu_squared
        payment = terms.pay(terms.allowed, slack)
        charge = Spent(n_releases=1, mu_squared=terms.parameter**2)

        def pay(charges: Vector, needed: float) -> CoinPayment:
            if needed > slack:
                raise BudgetExceededError("a query must have fewer cells for its budget.")
            assert payment.session is not None  # of a session
            return replace(payment, session=replace(payment.session, charge=charge))

        return Price(charge=charge, accounts=payment.clocks, terms=replace(terms, pay=pay))

    def plan_paid(self, request: Request, price: Price) -> CoinReleasePlan:
        """Return the plan of a request that was paid for; it depends on no clock any more."""
        return self._plan(request, lambda: price.terms)

    def _plan(self, request: Request, terms: Callable[[], CoinTerms]) -> CoinReleasePlan:
        rows_per_unit, mechanism = self._coins.rows_per_unit, request.mechanism
        if rows_per_unit is not None:
            _refuse_gap_policy(mechanism)
            _refuse_undeclarable(mechanism, rows_per_unit)
            mechanism = mechanism.reading_by_entry()
        mechanism = mechanism.prepare(self.data)
        descent = steps_of(mechanism, self.data, self._codes)
        if descent is not None:
            if rows_per_unit is not None:
                raise MechanismError(
                    "a descent must not hide presence: its noise follows from all records. Leave "
                    "rows_per_unit out, or use pacprivacy.dp."
                )
            return plan_descent_release(mechanism, self.data, descent, terms())
        statistic, data, units = statistic_with_coins(mechanism, self.data, self._codes)
        averages = self._single and self.keep < 1.0 and rows_per_unit is None
        if averages and isinstance(statistic, AveragedStatistic):
            planned = plan_average_release(mechanism, (statistic, data, units), terms())
            if planned is not None:
                return planned
        if not isinstance(statistic, SumStatistic):
            raise _no_sums(mechanism)
        if rows_per_unit is not None:
            return plan_declared_release(
                mechanism, (statistic, data, units), terms(), rows_per_unit=rows_per_unit
            )
        read = SumRecords.read(mechanism, (statistic, data, units), self.n_units)
        return plan_sum_release(read, terms())

    def refinement(
        self, request: Request, purse: Callable[[], Purse], levels: int | None
    ) -> CoinRefinement:
        """Read the records once, and return the steps that add up to the request's budget."""
        _refuse_pool_options(request)
        before = self._terms(request, purse())  # refused here, before the records are read
        mechanism = request.mechanism.prepare(self.data)
        statistic, data, units = statistic_with_coins(mechanism, self.data, self._codes)
        if not isinstance(statistic, SumStatistic) or self._coins.rows_per_unit is not None:
            raise _no_sums(mechanism)
        read = SumRecords.read(mechanism, (statistic, data, units), self.n_units)
        return CoinRefinement(read, before, self._step_terms, levels)

    def _step_terms(self, allowed: Vector, purse: Purse) -> CoinTerms:
        """Return the terms of one step, for which units pay what ``allowed`` says at most."""
        now = self._allowances(None, purse)
        return self._terms_within(np.minimum(allowed, now), purse)

    def _pay(
        self,
        parameter: float,
        allowed: Vector | None,
        purse: Purse,
        charges: Vector,
        slack: float,
    ) -> CoinPayment:
        """Return what a release costs, given the charges of the table's units.

        Guarantee
        ---------
        Claim C-16. In a session they go to the clocks of these units, wherever those are.
        """
        before = self.balances
        if before is None or allowed is None:
            return CoinPayment(charge=Spent(n_releases=1, mu_squared=parameter**2))
        clocks = before.after(self.roster.spread(charges), slack)
        charge = Spent(n_releases=1, mu_squared=max(0.0, clocks.busiest - before.busiest))
        session = releasing.CoinSession(
            total=purse.total,
            before=purse.spent,
            charge=charge,
            clocks=before.spent[self.roster.places],
            allowed=allowed,
            absent=self.roster.largest_absent(before.spent),
            data_digest=self._data_digest,
        )
        return CoinPayment(charge=charge, clocks=clocks, session=session)

    def _terms_of(self, parameter: float, allowed: Vector | None, purse: Purse) -> CoinTerms:
        coins = CoinUnits(
            n_units=self.n_units,
            unit=self.unit,
            keep=self.keep,
            clip=self._coins.clip,
            seed=self.seed,
        )
        return CoinTerms(
            coins=coins,
            budget=Membership(min(influence_success(parameter), 1 - 1e-12)),
            parameter=parameter,
            simulate=self._simulate,
            before=purse.spent,
            pay=partial(self._pay, parameter, allowed, purse),
            allowed=allowed,
            clocks=self.balances,
        )

    def _terms(self, request: Request, purse: Purse, *, principal: bool = False) -> CoinTerms:
        """Return what a release may spend: what was requested, never more than what is left.

        A ``principal`` is charged the largest unit of each release, so that no unit may pay more
        than the principal has left.
        """
        if self._single:
            if request.share is not None:
                raise BudgetError("share must be left out for a single release, which takes all.")
            assert request.budget is not None  # a single release has one
            success = _success_of(request.budget)
            terms = self._terms_of(influence_parameter(success), None, purse)
            return replace(terms, budget=Membership(success))
        if request.budget is not None and request.share is not None:
            raise BudgetError("budget and share must not both be given. Leave one out.")
        _check_ledger(purse)
        allowed = self._allowances(request, purse, principal=principal)
        return self._terms_within(allowed, purse)

    def _terms_within(self, allowed: Vector, purse: Purse) -> CoinTerms:
        """Return the terms under which units pay at most what ``allowed`` says."""
        # What ten units may pay, so that no person alone decides how much noise there is.
        rank = max(0, self.n_units - CROWD)
        crowd = float(np.partition(allowed, rank)[rank])
        influence = np.sqrt(np.minimum(allowed, crowd)) * (1 - _ROUNDING_SHARE)
        parameter = float(influence.max())
        if not parameter > LEAST_INFLUENCE:
            raise BudgetExceededError(
                "the session's membership budget is used up. Nothing was drawn or spent."
            )
        return self._terms_of(parameter, influence, purse)

    def _allowances(
        self, request: Request | None, purse: Purse, *, principal: bool = False
    ) -> Vector:
        """Return the squared influence that every unit of the table may have in a release.

        Without a request it is all that is left.
        """
        clocks = self._clocks(purse)
        portion, n_left = read_share(None if request is None else request.share)
        allowed = clocks.allowances(portion, n_left, purse.spent.n_releases)
        left = purse.left.mu_squared
        if left is not None:  # no clock may pass what the ledger leaves
            room = max(0.0, clocks.busiest + left - LEDGER_STEP)
            allowed = np.minimum(allowed, np.maximum(room - clocks.spent, 0.0))
        if principal:
            unspent = purse.spent.left_of(purse.total).tightest(purse.left).mu_squared
            assert unspent is not None  # a session limits something
            allowed = np.minimum(allowed, max(0.0, unspent - LEDGER_STEP))
        allowed = allowed[self.roster.places]
        if request is None or request.budget is None:
            return allowed
        success = _success_of(request.budget)
        most, left_to_one = session_cap(success), float(allowed.max())
        if most > left_to_one * (1 + 1e-9) + 2 * LEDGER_STEP:
            left_success = at_least(influence_success(math.sqrt(left_to_one)), significant=4)
            raise BudgetExceededError(
                f"membership must be at most what is left to a unit, {left_success}; got "
                f"{success:.6g}. Nothing was drawn or spent. Ask for less or end the session."
            )
        return np.asarray(np.minimum(allowed, most))

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

    def remember(
        self, plan: Plan, observed: Any
    ) -> tuple[None, releasing.Certificate, releasing.CuratorBundle]:
        """Return certificate and bundle: the clocks were moved with the charge."""
        assert isinstance(plan, CoinReleasePlan)  # its own
        return None, plan.certificate, plan.bundle_of(observed)


def _no_sums(mechanism: Mechanism) -> MechanismError:
    return MechanismError(
        "a statistic must be a function of sums in a session or for everybody; got "
        f"{mechanism.name[:60]}, which is proved on average over coins. Release it by "
        "itself, with keep below 1."
    )


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


def _refuse_undeclarable(mechanism: Mechanism, rows_per_unit: int) -> None:
    """Refuse statistics without a declaration before the records are read."""
    if isinstance(mechanism, SumStatistic) and type(mechanism).declare is SumStatistic.declare:
        mechanism.declare(rows_per_unit)


def _refuse_gap_policy(mechanism: Mechanism) -> None:
    """Refuse to refuse gaps, before the records are read: the message would tell of them."""
    if isinstance(mechanism, Statistic) and mechanism.missing not in ("drop", "category"):
        raise MechanismError(
            "missing must be 'drop' or 'category' where presence is hidden; got "
            f"{mechanism.missing!r}: a refusal would tell of gaps. Drop them."
        )
