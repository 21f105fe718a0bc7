"""What a session asks of its secret, whatever kind it is.

A session evaluates what is to be released, certifies a plan for it, writes the charge down, lets
the secret be seen and remembers what was seen. How samples are drawn is in
:mod:`pacprivacy.sample`; here is what one session does with one of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pacprivacy._random import BitSource
from pacprivacy.adversary import Balances, Belief
from pacprivacy.budget import AnyBudget, Spent
from pacprivacy.errors import SecretError
from pacprivacy.mechanism import Mechanism
from pacprivacy.noise import AnyRule, NoisePlan, Observation
from pacprivacy.release import Bundle, Certificate, ErrorBars, ReleaseSampler
from pacprivacy.session.rehearsal import Prospect
from pacprivacy.simulation import Outputs

if TYPE_CHECKING:
    from pacprivacy.session.account import AccountShare
    from pacprivacy.session.keeper import Reading
    from pacprivacy.session.state import SessionState

Observed = TypeVar("Observed")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """One release, as it was asked for: a mechanism, and what it may spend."""

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
class Evaluated:
    """A mechanism on every candidate, and what its release may spend; curator-only."""

    outputs: Outputs
    budget: AnyBudget
    share: AccountShare
    rule: AnyRule | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What would be released: everything but the draw. Nothing was spent.

    Parameters
    ----------
    certificate : Certificate, public
        What would be promised, with the proved figures.
    charge : Spent, public
        What the release would cost.
    noise : NoisePlan, curator-only
        The noise around every candidate's output: its shape, its size, its bounds.
    outputs : Outputs, curator-only
        The mechanism on every candidate.
    bundle : Bundle, curator-only
        Everything that the certificate follows from.
    belief : Belief, curator-only
        That of whoever saw the earlier releases.
    error_bars : ErrorBars, public, optional
        How sure each number would be.
    balances : Balances, curator-only
        What the charge leaves of every unit's membership balance, where there are any.
    more : Prospect, curator-only, optional
        What more candidates and folds would buy, where a black box has the default number.

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
    noise: NoisePlan = field(repr=False)
    outputs: Outputs = field(repr=False)
    bundle: Bundle = field(repr=False)
    belief: Belief = field(repr=False)
    error_bars: ErrorBars | None = field(default=None, repr=False)
    balances: Balances | None = field(default=None, repr=False)
    more: Prospect | None = field(default=None, repr=False)

    def __str__(self) -> str:
        text = f"PLAN: nothing was released or spent.\n{self.certificate}"
        return text if self.more is None else f"{text}\nfor the curator: {self.more}."


class HeldSecret(ABC):
    """A secret in one process, and what is known about it: what a keeper asks of it."""

    balances: Balances | None = None
    """What every unit may still lose; None where membership has no total."""
    belief: Belief | None = None
    """What whoever saw the releases believes; None before anything can be believed."""

    def __reduce__(self) -> NoReturn:
        raise SecretError(
            "a secret must stay in its session; got a request to pickle or copy it. Save the "
            "session's releases instead."
        )

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it is settled what the secret is drawn from."""

    @abstractmethod
    def draw(self, source: BitSource, *, first: int = 0) -> None:
        """Draw the secret if there is none, from candidate number ``first`` on."""

    @abstractmethod
    def observe(self, sampler: ReleaseSampler[Observed], source: BitSource) -> Observed:
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
        balances: Balances | None = None,
        belief: Belief | None = None,
    ) -> SessionState:
        """Return all that is needed to go on, with other balances or another belief."""

    @abstractmethod
    def reading(self, spent: Spent, total: Spent) -> Reading:
        """Return what is promised, what was spent, and what was learned in this run."""


class SessionSecret(HeldSecret):
    """What a session asks of its secret besides: the work up to the draw, and the memory of it."""

    @abstractmethod
    def total(self, budget: AnyBudget | None) -> Spent:
        """Return the limits of a session's budget, as far as they can be told by now."""

    @abstractmethod
    def evaluate(self, request: Request, purse: Callable[[], Purse]) -> Evaluated:
        """Run a mechanism; refuse, before and after that, what exceeds the budget that is left."""

    @abstractmethod
    def certify(self, evaluated: Evaluated, purse: Purse) -> Plan:
        """Calibrate the noise, prove what it does, and write the certificate."""

    @abstractmethod
    def forfeit(
        self, request: Request, purse: Callable[[], Purse]
    ) -> tuple[Spent, Balances | None]:
        """Return what a request pays that fails on the data, and what that leaves of balances."""

    @abstractmethod
    def remember(self, plan: Plan, observed: Observation) -> tuple[Belief, Certificate, Bundle]:
        """Return the belief after a release, its certificate and its bundle."""
