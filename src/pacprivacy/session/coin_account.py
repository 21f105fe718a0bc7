"""The cost of releases with coins: the clock of every unit, and the terms of one release.

In a session every unit has a clock, which adds up the squares of its influence, used or left out.
A single release has no clocks: its terms follow from its budget alone.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Vector
from pacprivacy._rounding import at_least
from pacprivacy.adversary import (
    SESSION_SLACK,
    Clocks,
    influence_parameter,
    influence_success,
    session_cap,
)
from pacprivacy.budget import AnyBudget, Membership, Spent, budget_limits
from pacprivacy.errors import BudgetError, BudgetExceededError, LedgerError, PoolError
from pacprivacy.release import CoinSession
from pacprivacy.sample import canonical_unit_ids
from pacprivacy.session.secret import Cost, Price, Purse, Request, Share
from pacprivacy.statistics import CoinUnits

MARK_BYTES: Final = 16  # of a unit's id, hashed
MARK: Final = np.dtype((np.void, MARK_BYTES))
WIDEST_ID: Final = 16  # characters of a number with leading zeros, or with spaces
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
_ROUND_UP: Final = 1 + 2.0**-48
_ROUNDING_SHARE: Final = 2.0**-40  # of an influence: what squares and roots of it may be off


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
            for padded in (text.zfill(width), text.rjust(width), text.ljust(width)):
                yield _AS_NUMBERS, b"t" + padded.encode()
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinPayment:
    """Cost of a release; in a session also its place there."""

    cost: Cost
    session: CoinSession | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinTerms:
    """What a release may spend, and whose coins they are.

    ``parameter`` is the influence that a unit may have, ``allowed`` that of every unit of the
    table where there is an ``account``. ``prepaid`` is what a query of a principal has paid, with
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
        """Return what a release costs, given the charges of the table's units.

        Guarantee
        ---------
        Claim C-16. In a session they go to the clocks of these units, wherever those are.
        Claim K-2. The ledger is charged what the busiest clock gains; the largest payment of a unit
        where the owner's own limit is below the cap, as others fill clocks too.
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
        """Return what a query of a principal pays before its rows are read, answered or not.

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
        paid = replace(payment, session=replace(payment.session, charge=charge))
        prepaid = replace(self, prepaid=(paid, slack))
        return Price(charge=charge, accounts=payment.cost.accounts, terms=prepaid)


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
        """Whether the owner has a limit of its own below the cap of the clocks."""
        limit = self.purse.own_limit
        return limit is not None and limit < self.clocks.cap - LEDGER_STEP

    def at(self, purse: Purse) -> CoinAccount:
        """Return the account after other releases."""
        assert isinstance(purse.accounts, Clocks)  # of a session with coins
        return replace(self, clocks=purse.accounts, purse=purse)

    def terms(self, request: Request, *, principal: bool = False) -> CoinTerms:
        """Return what a release may spend: the request, never more than the remaining budget.

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
