"""What a session asks of its secret, whatever kind it is.

A session plans a release, writes the charge down, lets the secret be seen and remembers what was
seen. How samples are drawn is in :mod:`pacprivacy.sample`; here is what one session does with one
of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from pacprivacy._checks import as_told
from pacprivacy._random import BitSource
from pacprivacy.adversary import Balances, Belief, Clocks
from pacprivacy.budget import AnyBudget, Spent
from pacprivacy.errors import BudgetError, SecretError
from pacprivacy.mechanism import Data, Mechanism
from pacprivacy.noise import AnyRule
from pacprivacy.release import Certificate, CuratorBundle, ErrorBars, ReleaseSampler
from pacprivacy.simulation import Outputs

if TYPE_CHECKING:
    from pacprivacy.release import Release
    from pacprivacy.session.secret_holder import Odometer
    from pacprivacy.session.state import SessionState

Observed = TypeVar("Observed")
Accounts: TypeAlias = Balances | Clocks  # what every unit may still lose, or has paid


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """Request for one release: a mechanism and what it may spend."""

    mechanism: Mechanism
    budget: AnyBudget | None = None
    share: float | str | None = None
    rule: AnyRule | None = None
    checkpoint: str | Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """What a session may spend: its total, what is spent, and what its account leaves.

    ``left`` is the payer's; ``shared`` returns what all payers have together.
    """

    total: Spent
    spent: Spent
    left: Spent
    shared: Callable[[], Spent]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan(ABC):
    """What would be released: everything but the draw. Nothing was spent.

    Parameters
    ----------
    certificate : Certificate, public
        Certificate of the release, with the proved figures.
    charge : Spent, public
        Cost of the release.
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
    charge: Spent
    outputs: Outputs = field(repr=False)
    error_bars: ErrorBars | None = field(default=None, repr=False)

    @property
    @abstractmethod
    def sampler(self) -> ReleaseSampler[Any, Any]:
        """Sampler of the noise around the value of the secret sample."""

    @property
    @abstractmethod
    def accounts(self) -> Accounts | None:
        """Balance of every unit after the charge, where units have accounts."""

    @property
    def first_candidate(self) -> int:
        """The first candidate that may be the secret."""
        return 0

    @property
    def is_exact(self) -> bool:
        """Whether the value is published exactly."""
        return False

    @abstractmethod
    def rests_on(self, spent: Spent, accounts: Accounts | None) -> bool:
        """Whether nothing was spent since the plan was made."""

    @abstractmethod
    def value_of(self, observed: Any) -> Any:
        """Return the released value, a function of what was observed."""

    def bars_of(self, observed: Any) -> ErrorBars | None:
        """Return the error bars of a release; by default those that were measured before."""
        return self.error_bars

    def __str__(self) -> str:
        return f"PLAN: nothing was released or spent.\n{self.certificate}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Price:
    """What a query of a principal pays before its rows are read, and the terms that it buys."""

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
    def next_plan(self, purse: Callable[[], Purse]) -> Plan | None:
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
    """Return the number of looks; refuse what is none."""
    count = default if levels is None else levels
    if count < 1 or count != int(count):
        raise BudgetError(f"levels must be a positive whole number; got {as_told(levels)}. Use 12.")
    return int(count)


class HeldSecret(ABC):
    """A secret in one process, and what is known about it."""

    balances: Accounts | None = None
    """Remaining balance of every unit; None without a total of membership."""
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
        """Let the secret be seen through noise; its charge is on the disk."""

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
        """Return all that is needed to go on, with other balances or another belief."""

    @abstractmethod
    def reading(self, spent: Spent, total: Spent) -> Odometer:
        """Return the promise, the amounts spent, and what was learned in this run."""


class SessionSecret(HeldSecret):
    """What a session asks of its secret besides: the work up to the draw, and the memory of it."""

    data: Data
    """All records; curator-only."""
    seed: int
    """Root of public randomness."""
    progress: bool | None = None
    """Whether a bar shows how far the work is."""

    def spent_text(self, spent: Spent) -> str:
        """Return what was spent, in a few words."""
        return f"{spent.mi_nats or 0.0:.4g} nats spent"

    @abstractmethod
    def total(self, budget: AnyBudget | None) -> Spent:
        """Return the limits of a session's budget, as far as they can be told by now."""

    @abstractmethod
    def go_on(self, state: SessionState) -> None:
        """Take over what a file holds."""

    @abstractmethod
    def plan(self, request: Request, purse: Callable[[], Purse]) -> Plan:
        """Compute what noise rests on, prove what the noise does, and write the certificate.

        Releases beyond the remaining budget are refused.
        """

    @abstractmethod
    def refinement(
        self, request: Request, purse: Callable[[], Purse], levels: int | None
    ) -> Refinement:
        """Return the steps of growing precision that a request's budget pays for."""

    def price(self, request: Request, purse: Purse) -> Price:
        """Return what a query of a principal pays, whether it is answered or fails."""
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
        """Return what is believed after a release, its certificate and its bundle."""
