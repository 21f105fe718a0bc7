"""One secret in one process: its interface, and the only place where it is used.

A session plans a release, writes the charge down, draws noise around the secret's value and
remembers what was released. The secret is a candidate of a pool or a coin for every unit, behind
one interface. :meth:`SecretHolder.observe` is the only place where anything is charged and a
secret is used; sessions and responders share it.
"""

from __future__ import annotations

import html
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeVar,
)

import numpy as np

from pacprivacy._checks import Vector, as_told, freeze
from pacprivacy._random import BitSource, ProcessBound, coerce_seed
from pacprivacy._rounding import at_most, percent_at_most
from pacprivacy.adversary import Balances, Belief, Clocks
from pacprivacy.budget import BLIND, AnyBudget, Spent
from pacprivacy.errors import BudgetError, PoolError, SecretError
from pacprivacy.mechanism import Data, Mechanism, coerce_data, split_data_units
from pacprivacy.noise import AnyRule
from pacprivacy.queries import QueryMechanism
from pacprivacy.release import Certificate, CuratorBundle, ErrorBars
from pacprivacy.sample import Coins, Pool, PoolStrategy
from pacprivacy.simulation import Outputs

if TYPE_CHECKING:
    from pacprivacy.ledger import Reservation
    from pacprivacy.release import Release
    from pacprivacy.session.responder import ResponderState
    from pacprivacy.session.state import SessionState

Observed = TypeVar("Observed")
Secret_contra = TypeVar("Secret_contra", contravariant=True)
Observed_co = TypeVar("Observed_co", covariant=True)
Accounts: TypeAlias = Balances | Clocks  # what every unit may still lose, or has paid
Receipt: TypeAlias = "Reservation"
LEARNED: Final = "Learned in this run (for the curator)"


# --- the secret itself --------------------------------------------------------------------------


class ReleaseSampler(Protocol[Secret_contra, Observed_co]):
    """Something that draws a release, given the secret: a candidate's index, or the coins."""

    def observe(self, secret: Secret_contra, source: BitSource, /) -> Observed_co:
        """Draw the noise around the value of the secret sample."""
        ...


# --- a release, from request to plan ------------------------------------------------------------


class Share(NamedTuple):
    """A share of the remaining budget, and the planned number of releases, if it has one."""

    portion: float = 1.0
    n_left: int | None = None


def read_share(share: float | str) -> Share:
    """Return a share, from a number or from ``"1 of 10"``."""
    if isinstance(share, str):
        match = re.fullmatch(r"1 of ([1-9]\d{0,8})", share.strip())
        if match:
            return Share(1 / int(match[1]), int(match[1]))
    elif 0 < share <= 1:
        return Share(share)
    raise BudgetError(
        f"share must be above 0 and at most 1, or one of the releases to come, such as "
        f"'1 of 10'; got {as_told(share)}. Use 0.2."
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleOptions:
    """Options of the sample and of runs; see :func:`pacprivacy.privatize`."""

    sample: Pool | PoolStrategy | Coins | None = None
    n_subsets: int | None = None
    units: Any = None
    n_jobs: int | None = None
    backend: str | None = None
    rng: np.random.Generator | int | None = None
    progress: bool | None = None
    simulate: bool = False

    @property
    def of_pools(self) -> dict[str, int | str | None]:
        """The options that only a pool has, by name."""
        return {"n_subsets": self.n_subsets, "n_jobs": self.n_jobs, "backend": self.backend}

    @property
    def are_for_pools(self) -> bool:
        """Whether an option is set that only a pool has."""
        return any(value is not None for value in self.of_pools.values())

    def check_for_coins(self) -> None:
        """Refuse options of pools where every unit has a coin."""
        if self.are_for_pools:
            raise PoolError(
                "n_subsets, n_jobs and backend must be left out where every unit has a coin; got "
                "one of them. Use a pool: sample=pac.Balanced()."
            )

    def with_data(self, data: Any) -> tuple[Data, SampleOptions]:
        """Return data without the column of units, and the options with its labels and a seed."""
        parts, units = split_data_units(data, self.units)
        seed = None if self.rng is None else coerce_seed(self.rng)
        return coerce_data(parts), replace(self, units=units, rng=seed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """Request for one release: a mechanism and its budget."""

    mechanism: Mechanism
    budget: AnyBudget | None = None
    share: Share | None = None
    rule: AnyRule | None = None
    checkpoint: str | Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """Budget of a session: its total, the amount spent, and the rest in its ledger.

    ``left`` remains to the payer, ``shared`` to the owner of the session; ``own_limit`` is the
    squared influence in the owner's own budget, if it has one. ``accounts`` are the balances or
    clocks of the units, where they have any.
    """

    total: Spent
    spent: Spent
    left: Spent
    shared: Spent
    own_limit: float | None = None
    accounts: Accounts | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cost:
    """Cost of a release, and the amount spent at the time of its plan.

    ``accounts`` are the balances or clocks of the units after the charge, where they have any.
    """

    charge: Spent
    before: Spent
    accounts_before: Accounts | None = field(default=None, repr=False)
    accounts: Accounts | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan(ABC):
    """Planned release: everything but the draw. Nothing was spent.

    Parameters
    ----------
    certificate : Certificate, public
        Certificate of the release, with the proved figures.
    cost : Cost
        Cost of the release, and the amount spent before it.
    outputs : Outputs, curator-only
        The value on every candidate; with coins, on all records after clipping.
    error_bars : ErrorBars, public, optional
        How sure each number would be.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=200)
    >>> plan = pac.plan(np.mean, ages, pac.Membership(0.6), n_subsets=64, rng=0)
    >>> plan.certificate.noise.largest_std < 10
    True
    """

    certificate: Certificate
    cost: Cost
    outputs: Outputs = field(repr=False)
    error_bars: ErrorBars | None = field(default=None, repr=False)

    @property
    def charge(self) -> Spent:
        """Cost of the release; public."""
        return self.cost.charge

    @property
    @abstractmethod
    def sampler(self) -> ReleaseSampler[Any, Any]:
        """Sampler of the noise around the value of the secret sample."""

    @property
    def first_candidate(self) -> int:
        """The first candidate that may be the secret."""
        return 0

    @property
    def is_exact(self) -> bool:
        """Whether the value is published exactly."""
        return False

    def rests_on(self, spent: Spent, accounts: Accounts | None) -> bool:
        """Whether nothing was spent since the plan was made."""
        return self.cost.before is spent and self.cost.accounts_before is accounts

    @abstractmethod
    def value_of(self, observed: Any) -> Any:
        """Return the released value, a function of the observation."""

    def bars_of(self, observed: Any) -> ErrorBars | None:
        """Return the error bars of a release; by default those that were measured before."""
        return self.error_bars

    def __str__(self) -> str:
        return f"PLAN: nothing was released or spent.\n{self.certificate}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Price:
    """Cost of a query of a principal before its rows are read, and the terms that it buys."""

    charge: Spent
    accounts: Accounts | None
    terms: Any = field(repr=False)


class Refinement(ABC):
    """Steps of growing precision that share one budget; curator-only."""

    outputs: Outputs
    """The value on all records, or on every candidate."""
    n_looks: int
    """Number of steps at most."""

    @abstractmethod
    def next_plan(self, purse: Purse) -> Plan | None:
        """Return the plan of the next step; None where nothing is left to spend."""

    @abstractmethod
    def add(self, plan: Plan, observed: Any) -> Any:
        """Return the precision-weighted mean of all observations, the last among them."""

    @abstractmethod
    def promise(
        self, steps: list[Release], odometer: Odometer
    ) -> tuple[Certificate, ErrorBars | None]:
        """Return the certificate, which promises the cap, and the error bars of the mean."""


def check_levels(levels: int | None, default: int) -> int:
    """Return the number of looks; refuse any other value."""
    count = default if levels is None else levels
    if count < 1 or count != int(count):
        raise BudgetError(f"levels must be a positive whole number; got {as_told(levels)}. Use 12.")
    return int(count)


# --- what a session asks of a secret ------------------------------------------------------------


class HeldSecret(ABC):
    """A secret in one process, and the attacker's belief about it."""

    balances: Accounts | None = None
    """Remaining balance, or clock, of every unit; None without a total of membership."""
    belief: Belief | None = None
    """Belief of an attacker who saw the releases; None if there is none yet."""

    def __reduce__(self) -> NoReturn:
        raise SecretError(
            "a secret must stay in its session; got a request to pickle or copy it. Save the "
            "session's releases instead."
        )

    @abstractmethod
    def draw(self, source: BitSource, *, first: int = 0) -> None:
        """Draw the secret if there is none, from candidate number ``first`` on."""

    @abstractmethod
    def observe(self, sampler: ReleaseSampler[Any, Observed], source: BitSource) -> Observed:
        """Draw the noise around the secret's value; its charge is on the disk."""

    @abstractmethod
    def forget(self) -> None:
        """Forget the secret; with a ledger the session's file still has it."""

    @abstractmethod
    def state(
        self,
        total: Spent,
        n_releases: int,
        *,
        balances: Accounts | None = None,
        belief: Belief | None = None,
    ) -> SessionState:
        """Return the state to store, with other balances or another belief."""

    @abstractmethod
    def odometer(self, spent: Spent, total: Spent) -> Odometer:
        """Return the promise, the amounts spent, and the information revealed in this run."""


class SessionSecret(HeldSecret):
    """A secret that a session releases functions of: the work up to the draw, and the memory."""

    data: Data
    """All records; curator-only."""
    seed: int
    """Root of public randomness."""
    progress: bool | None = None
    """Whether a bar shows progress."""
    QUERY: ClassVar[type[QueryMechanism]] = QueryMechanism
    """How queries are read: as functions of sums, or of a candidate's tables."""

    def spent_text(self, spent: Spent) -> str:
        """Return the spent amounts, in a few words."""
        return f"{spent.mi_nats or 0.0:.4g} nats spent"

    @abstractmethod
    def total(self, budget: AnyBudget | None) -> Spent:
        """Return the limits of a session's budget, without those fixed later."""

    @abstractmethod
    def go_on(self, state: SessionState) -> None:
        """Continue from the contents of a file."""

    def settle(self, request: Request) -> tuple[str, ...]:
        """Fix the conditions of a budget, once; return notes on it for the certificate."""
        return ()

    @abstractmethod
    def measure(self, request: Request, purse: Purse, notes: tuple[str, ...]) -> Any:
        """Read the input of a release from the records; refuse more than the remaining budget."""

    @abstractmethod
    def plan(self, request: Request, measured: Any, purse: Purse) -> Plan:
        """Find the noise, prove its bounds, and write the certificate."""

    @abstractmethod
    def refinement(
        self, request: Request, measured: Any, purse: Purse, levels: int | None
    ) -> Refinement:
        """Return the steps of growing precision that a request's budget pays for."""

    def price(self, request: Request, purse: Purse) -> Price:
        """Return the cost of a query of a principal, whether it is answered or fails."""
        raise BudgetError(
            "sample must be coins for queries of principals; got a pool. Use sample=pac.Coins()."
        )

    def plan_paid(self, request: Request, price: Price) -> Plan:
        """Return the plan of a query that was paid for; needs no lock."""
        raise NotImplementedError

    @abstractmethod
    def remember(
        self, plan: Plan, observed: Any
    ) -> tuple[Belief | None, Certificate, CuratorBundle]:
        """Return the belief after a release, its certificate and its bundle."""


# --- what was spent, and the holder of the secret -----------------------------------------------


class SpendLog:
    """Record of the expenses of a session; this one lasts as long as its process."""

    state: SessionState | None = None
    """Stored session; ``None`` for a new one."""

    def spent(self) -> Spent:
        """Return the amount spent before this process, crashed attempts included."""
        return Spent(mi_nats=0.0, success_increment=0.0)

    def left(self, payer: str | None = None) -> Spent:
        """Return the rest of a payer's budget, by default the owner's; None where unlimited."""
        return Spent()

    def own_limit(self) -> float | None:
        """Return the owner's own limit on squared influence; 0 if other data sets share it."""
        return None

    def spend(
        self, charge: Spent, what: str, state: Callable[[], SessionState], payer: str | None = None
    ) -> Receipt | None:
        """Write a charge down; the secret is not used before this returns."""
        return None

    def keep(self, state: Callable[[], SessionState]) -> None:
        """Store the belief after a release; nobody sees the release before this returns."""

    def commit(self, certificate: Certificate, receipt: Receipt | None) -> None:
        """Record the certificate; nobody sees the release before this returns."""

    def settle(self, charge: Spent, payer: str | None = None) -> None:
        """Record the true cost of answers, at most the booked one."""

    def flush(self, state: Callable[[], ResponderState]) -> None:
        """Store the state of a responder; nobody sees its answers before this returns."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    """The promise, the amounts spent, and the information revealed in this run; curator-only.

    ``spent`` is the sum of the proved bounds so far; for success, what the smallest balance of any
    unit has lost. ``total`` is its limit. ``success_bound`` is the promise: no attacker guesses a
    unit's membership with more success, on average over secrets and noise, for any requests and any
    stopping. The amounts spent so far give no bound, because they depend on the values
    that were released. ``learned_nats`` and the guesses of the optimal attacker are of
    this run, and no promise. ``n_free`` answers all candidates gave alike; ``belief`` is the
    optimal attacker's.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> data = np.random.default_rng(0).normal(size=40)
    >>> with pac.Session(data, budget=pac.Information(1), n_subsets=16) as session:
    ...     _ = session.release(np.mean, pac.Information(1 / 4), rule="waterfill")
    >>> odometer = session.odometer()
    >>> odometer.spent.n_releases, odometer.spent.mi_nats <= 1 / 4
    (1, True)
    """

    spent: Spent
    total: Spent
    learned_nats: float = 0.0
    best_guess_now: float = 0.5
    mean_guess_now: float = 0.5
    success_bound: float | None = None
    n_free: int = 0
    belief: Vector | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.belief is not None:
            freeze(self.belief)

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("Releases", str(self.spent.n_releases))]
        if self.success_bound is not None:
            most = percent_at_most(self.success_bound)
            rows.insert(0, ("Promised membership success", f"at most {most} %"))
        cap = self.total.mu_squared
        if cap is not None:
            share = percent_at_most((self.spent.mu_squared or 0.0) / cap)
            used = f"{share} % of what a unit may spend"
            return [*rows, ("Spent by the busiest unit", used)]
        return [*rows, *self._pool_rows()]

    def _pool_rows(self) -> list[tuple[str, str]]:
        spent, total = self.spent, self.total
        nats = f"{at_most(spent.mi_nats or 0.0, significant=4)} nats"
        if total.mi_nats is not None:
            nats += f" of {at_most(total.mi_nats, significant=4)}"
        rows = [("Information spent", nats)]
        if total.success_level is not None:
            points = percent_at_most(spent.success_increment or 0.0)
            limit = f"{100 * (total.success_level - BLIND):.4g}"
            rows.append(("Membership spent", f"{points} of {limit} points"))
        guess = percent_at_most(self.best_guess_now)
        learned = at_most(self.learned_nats, significant=4)
        return [*rows, (LEARNED, f"{learned} nats; best guess about one unit {guess} %")]

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self._rows())

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th style="text-align:left">{name}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        return f"<div><p><b>Session</b></p><table>{cells}</table></div>"


class SecretHolder(ProcessBound):
    """Keeps one secret, and the amount spent of a total.

    Guarantee
    ---------
    Claim R-4. In a fork of its process nothing is spent or drawn.
    """

    NAME: ClassVar[str]

    def __init__(
        self, total: Spent, source: BitSource, secret: HeldSecret, book: SpendLog | None = None
    ) -> None:
        self._total, self._source, self._secret = total, source, secret
        self._book = SpendLog() if book is None else book
        self._spent = self._book.spent()
        self._closed = False
        self._lock = threading.RLock()

    @property
    def spent(self) -> Spent:
        """Amounts spent so far."""
        return self._spent

    def close(self) -> None:
        """Forget the secret; nothing more is released from this object.

        With a ledger the secret stays in the session's file, from which it can go on.
        """
        self._closed = True
        self._secret.forget()
        self._book.close()

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def check_open(self) -> None:
        """Refuse to go on after :meth:`close`."""
        if self._closed:
            raise SecretError(f"{self.NAME} must be open; it is closed. Start a new {self.NAME}.")

    def observe(
        self,
        sampler: ReleaseSampler[Any, Observed],
        charge: Spent,
        what: str,
        *,
        balances: Accounts | None = None,
        first: int = 0,
        payer: str | None = None,
    ) -> tuple[Observed, Receipt | None]:
        """Charge, and only then draw the noise around the secret's value.

        Failures before the charge cost nothing; after it, the charge stays spent. ``balances``
        are what the charge leaves of every unit's. The secret is drawn here if there is none yet,
        from candidate number ``first`` on. The receipt is that of the ledger, if there is one.
        """
        receipt = self._charge(charge, what, balances, first=first, payer=payer)
        return self._secret.observe(sampler, self._source), receipt

    def prepay(
        self, charge: Spent, what: str, balances: Accounts | None, payer: str
    ) -> Receipt | None:
        """Charge a query of a principal before its rows are read."""
        receipt = self._charge(charge, what, balances, payer=payer)
        self._spent = self._spent + Spent(n_releases=1)
        return receipt

    def observe_paid(self, sampler: ReleaseSampler[Any, Observed]) -> Observed:
        """Draw the noise once, for the charge of :meth:`prepay`."""
        self.check_process()
        self.check_open()
        return self._secret.observe(sampler, self._source)

    def _charge(
        self,
        charge: Spent,
        what: str,
        balances: Accounts | None,
        *,
        first: int = 0,
        payer: str | None = None,
    ) -> Receipt | None:
        self.check_process()  # last of all: a mechanism may have forked, or closed the session,
        self.check_open()  # and then there must be no second secret under the belief of the first
        self._secret.draw(self._source, first=first)

        def state() -> SessionState:
            return self._secret.state(self._total, self._spent.n_releases, balances=balances)

        try:
            receipt = self._book.spend(charge, what, state, payer)
        except SecretError:
            self.close()  # another process has gone on with the secret
            raise
        self._secret.balances = balances
        self._spent = self._spent + replace(charge, n_releases=0)
        return receipt

    def keep(self, belief: Belief | None, n_releases: int = 1) -> None:
        """Remember the released value, on disk where there is a ledger, before anyone sees it."""
        secret, spent = self._secret, self._spent + Spent(n_releases=n_releases)
        self._book.keep(
            lambda: secret.state(
                self._total, spent.n_releases, balances=secret.balances, belief=belief
            )
        )
        secret.belief, self._spent = belief, spent

    def odometer(self) -> Odometer:
        """Return the promise, the amounts spent, and the information revealed in this run."""
        return self._secret.odometer(self._spent, self._total)
