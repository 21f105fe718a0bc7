"""Limits on an attacker's gain, as plain immutable data.

``Information`` bounds every inference about the secret; ``Membership`` bounds the best guess of
one unit's membership; ``EpsilonEquivalent`` is ``Membership`` in the vocabulary of differential
privacy. Join them with ``&``: the noise then meets all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Final, TypeAlias

from pacprivacy._checks import Amount, Count, check_positive
from pacprivacy._rounding import at_least, at_most
from pacprivacy.errors import BudgetError

BLIND: Final = 0.5  # success of a guess without a release, both cases being equally likely


def _percent(rate: float) -> str:
    return at_most(rate, significant=4, percent=True)


class _Joins:
    """Gives budgets the ``&`` operator and refuses ``and``, which would drop one budget."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise BudgetError(
            "budgets must be joined with &; got 'and', 'or' or a test of truth. "
            "Write it as in pac.Membership(0.6) & pac.Information(1)."
        )

    def __and__(self, other: AnyBudget) -> Combined:
        if not isinstance(other, _Joins):
            raise BudgetError(
                f"a budget must be joined with another one; got {type(other).__name__}. "
                "Write pac.Membership(0.6) & pac.Information(1)."
            )
        mine = self.parts if isinstance(self, Combined) else (self,)
        theirs = other.parts if isinstance(other, Combined) else (other,)
        return Combined(mine + theirs)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Information(_Joins):
    """At most ``mi_nats`` nats of mutual information between the secret and the release.

    Through math (1) this bounds *every* inference about which subset was used.

    Examples
    --------
    >>> Information(1 / 4)
    Information(mi_nats=0.25)
    """

    mi_nats: float

    def __post_init__(self) -> None:
        advice = "Use about 0.02 to keep any membership guess below 60 %."
        object.__setattr__(self, "mi_nats", check_positive("mi_nats", self.mi_nats, advice=advice))

    def __str__(self) -> str:
        return f"mutual information <= {at_most(self.mi_nats, significant=6)} nats"


@dataclass(frozen=True, slots=True)
class Membership(_Joins):
    """No attacker guesses the membership of any one unit with success above ``success``.

    Examples
    --------
    >>> Membership(0.6) & Information(1)
    Combined(parts=(Membership(success=0.6), Information(mi_nats=1.0)))
    """

    success: float

    def __post_init__(self) -> None:
        advice = "Use 0.6 for a strong promise, 0.75 for a moderate one."
        value = check_positive("success", self.success, advice=advice)
        if 50 < value < 100:
            advice = f"Write {value / 100:g} for {value:g} %."
        if not 0.5 < value < 1:
            raise BudgetError(
                f"success must be above 1/2 (a coin guesses that well) and below 1; "
                f"got {self.success!r}. {advice}"
            )
        object.__setattr__(self, "success", value)

    def __str__(self) -> str:
        return f"membership success <= {_percent(self.success)} %"


@dataclass(frozen=True, slots=True)
class EpsilonEquivalent(_Joins):
    """``Membership`` at the success that pure ``epsilon``-DP would allow; not a DP claim.

    Examples
    --------
    >>> round(EpsilonEquivalent(1.0).membership.success, 4)
    0.7311
    """

    epsilon: float

    def __post_init__(self) -> None:
        advice = "Use 1 for a moderate promise."
        object.__setattr__(self, "epsilon", check_positive("epsilon", self.epsilon, advice=advice))
        if self.membership_success >= 1:
            raise BudgetError(
                f"epsilon must leave the attacker some doubt; got {self.epsilon!r}. Use at most 30."
            )

    @property
    def membership_success(self) -> float:
        """The membership success that pure epsilon-DP allows at prior one half."""
        return 1 / (1 + math.exp(-self.epsilon))

    @property
    def membership(self) -> Membership:
        """The equivalent membership budget."""
        return Membership(self.membership_success)

    def __str__(self) -> str:
        return (
            f"membership success <= {_percent(self.membership_success)} % "
            f"(that of epsilon = {at_most(self.epsilon, significant=4)}; "
            "not a differential-privacy claim)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualEntropy(_Joins):
    """At least this much of the secret's entropy is left after the release.

    Stated as a ``share`` of the entropy before, or in ``nats``. The secret is uniform over ``m``
    candidates, so this is ``Information(ln m - nats)``, which ``on(m)`` returns.

    Examples
    --------
    >>> ResidualEntropy(share=0.9).on(1024)
    Information(mi_nats=0.693...)
    >>> str(ResidualEntropy(nats=6.5))
    'residual entropy >= 6.5 nats'
    """

    share: float | None = None
    nats: float | None = None

    def __post_init__(self) -> None:
        if (self.share is None) == (self.nats is None):
            raise BudgetError(
                "share or nats must be given, and only one of them; got "
                f"{self.share!r} and {self.nats!r}. Use share=0.9."
            )
        if self.nats is not None:
            check_positive("nats", self.nats, advice="Use a share, such as share=0.9.")
        elif not 0 < check_positive("share", self.share or 0.0, advice="Use 0.9.") < 1:
            raise BudgetError(f"share must be between 0 and 1; got {self.share!r}. Use 0.9.")

    def on(self, n_subsets: int) -> Information:
        """Return the equivalent information budget for a pool of ``n_subsets`` candidates."""
        before = math.log(n_subsets)
        left = before * self.share if self.share is not None else float(self.nats or 0.0)
        if not left < before:
            raise BudgetError(
                f"residual entropy must be below that of the secret, {before:.4g} nats for "
                f"{n_subsets} candidates; got {left:.4g}. Ask for less or draw a larger pool."
            )
        return Information(before - left)

    def __str__(self) -> str:
        if self.nats is not None:
            return f"residual entropy >= {at_least(self.nats, significant=6)} nats"
        share = at_least(self.share or 0.0, significant=4, percent=True)
        return f"residual entropy >= {share} % of the secret's"


@dataclass(frozen=True, slots=True)
class Combined(_Joins):
    """Several budgets at once; all of them hold."""

    parts: tuple[Information | Membership | EpsilonEquivalent | ResidualEntropy, ...]

    def __str__(self) -> str:
        return " and ".join(str(part) for part in self.parts)


AnyBudget: TypeAlias = Information | Membership | EpsilonEquivalent | ResidualEntropy | Combined


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Amounts of privacy: spent, charged or allowed; public.

    ``None`` where nothing is said. The kinds are never added to each other.

    Parameters
    ----------
    n_releases : int
        Releases, or answers.
    mi_nats : float, optional
        Mutual information between the secret index and what left, in nats.
    success_level : float, optional
        Success of the best guess about one unit's membership: 0.6.
    success_increment : float, optional
        Increment: 0.1 takes a prior of 0.5 to a level of 0.6.
    mu_squared : float, optional
        Squared influence of one unit, in deviations of the noise, where every unit has a coin.
    epsilon, delta : float, optional
        Differential privacy.
    gamma : float
        Bound on the probability that one of the proofs is wrong.

    Examples
    --------
    >>> fit = Spent(n_releases=1, mi_nats=0.25, success_level=0.6)
    >>> total = fit + Spent(n_releases=1, mi_nats=0.5, success_level=0.7)
    >>> total.n_releases, total.mi_nats, total.success_level, total.epsilon
    (2, 0.75, 0.7, None)
    """

    n_releases: Count = 0
    mi_nats: Amount | None = None
    success_level: Amount | None = None
    success_increment: Amount | None = None
    mu_squared: Amount | None = None
    epsilon: Amount | None = None
    delta: Amount | None = None
    gamma: Amount = 0.0

    def sums(self) -> dict[str, Any]:
        """Return the stated amounts of the kinds that add up, by name."""
        return {name: value for name in SUMS if (value := getattr(self, name)) is not None}

    def __add__(self, other: Spent) -> Spent:
        """Add two amounts; of two levels the higher one counts."""
        return Spent(
            n_releases=self.n_releases + other.n_releases,
            success_level=_joined(max, self.success_level, other.success_level),
            gamma=min(1.0, self.gamma + other.gamma),
            **_merged(add, self.sums(), other.sums()),
        )

    def left_of(self, limits: Spent) -> Spent:
        """Return the remaining limits of each amount."""
        spent = self.sums()
        left = {name: limit - spent.get(name, 0.0) for name, limit in limits.sums().items()}
        return Spent(**left)

    def tightest(self, other: Spent) -> Spent:
        """Return limits that meet both."""
        level = _joined(min, self.success_level, other.success_level)
        return Spent(success_level=level, **_merged(min, self.sums(), other.sums()))

    def above(self) -> Spent:
        """Say a level of success as an increment above a guess without a release."""
        if self.success_level is None:
            return self
        return replace(self, success_level=None, success_increment=self.success_level - BLIND)


SUMS: Final = ("mi_nats", "success_increment", "mu_squared", "epsilon", "delta")


def _joined(
    join: Callable[[float, float], float], first: float | None, second: float | None
) -> float | None:
    """Join two amounts, either of which may be missing."""
    if first is None or second is None:
        return first if second is None else second
    return join(first, second)


def _merged(
    join: Callable[[float, float], float], first: dict[str, Any], second: dict[str, Any]
) -> dict[str, Any]:
    return {**first, **second, **{k: join(first[k], second[k]) for k in first if k in second}}


BudgetLike: TypeAlias = AnyBudget | str


def as_budget(budget: BudgetLike) -> AnyBudget:
    """Return a budget, given one or the text of one."""
    return parse_budget(budget) if isinstance(budget, str) else budget


def budget_needs_pool(budget: BudgetLike) -> bool:
    """Whether the limits of a budget depend on the number of candidates."""
    budget = as_budget(budget)
    parts = budget.parts if isinstance(budget, Combined) else (budget,)
    return any(isinstance(part, ResidualEntropy) for part in parts)


def budget_limits(budget: BudgetLike, n_subsets: int | None = None) -> Spent:
    """Reduce a budget to its tightest limits, of success as a level.

    ``n_subsets`` is the number of candidates, which residual entropy is about.
    """
    budget = as_budget(budget)
    if isinstance(budget, Information):
        return Spent(mi_nats=budget.mi_nats)
    if isinstance(budget, Membership):
        return Spent(success_level=budget.success)
    if isinstance(budget, EpsilonEquivalent):
        return Spent(success_level=budget.membership_success)
    if isinstance(budget, ResidualEntropy):
        if n_subsets is None:
            raise BudgetError(
                "budget must say how many candidates it is about; got residual entropy alone. "
                "Use .on(n_subsets), for example pac.ResidualEntropy(share=0.9).on(1024)."
            )
        return Spent(mi_nats=budget.on(n_subsets).mi_nats)
    if isinstance(budget, Combined):
        return reduce(Spent.tightest, (budget_limits(part, n_subsets) for part in budget.parts))
    raise BudgetError(
        f"budget must be Information, Membership, EpsilonEquivalent, ResidualEntropy or several "
        f"joined with &; "
        f"got {type(budget).__name__}. For example pac.Membership(0.6)."
    )


_FORM = re.compile(
    r"^\s*(?P<kind>[a-z_]+)\s*(?P<sign><=|>=|=|:)\s*(?P<a>[0-9.eE+-]+)(?:\s*/\s*(?P<b>[0-9.eE+-]+))?"
    r"\s*(?P<percent>%?)\s*$"
)
_KINDS: dict[str, type[Information] | type[Membership] | type[EpsilonEquivalent]] = {
    "membership": Membership,
    "success": Membership,
    "mi": Information,
    "information": Information,
    "epsilon": EpsilonEquivalent,
    "eps": EpsilonEquivalent,
}


def parse_budget(text: str) -> AnyBudget:
    """Read a budget as people type it.

    Examples
    --------
    >>> parse_budget("membership<=0.6")
    Membership(success=0.6)
    >>> parse_budget("mi<=1/64 & membership<=58.8%")
    Combined(parts=(Information(mi_nats=0.015625), Membership(success=0.588)))
    >>> parse_budget("residual>=90%")
    ResidualEntropy(share=0.9, nats=None)
    """
    joined: AnyBudget | None = None
    for piece in re.split(r"&|,|\band\b", text.lower()):
        match = _FORM.match(piece)
        kind = _KINDS.get(match["kind"]) if match else None
        is_floor = match is not None and match["kind"] in ("residual", "residual_entropy")
        wrong_way = match is not None and match["sign"] == ("<=" if is_floor else ">=")
        if match is None or wrong_way or (kind is None and not is_floor):
            raise BudgetError(
                f"budget must look like 'membership<=0.6', 'mi<=1/4', 'epsilon<=1' or "
                f"'residual>=0.9', joined with '&'; got {text!r}. Try \"membership<=0.6\"."
            )
        try:
            value = float(match["a"]) / (float(match["b"]) if match["b"] else 1.0)
        except (ValueError, ZeroDivisionError):
            raise BudgetError(f'budget must hold a number; got {text!r}. Try "mi<=1/64".') from None
        value = value / 100 if match["percent"] else value
        budget: AnyBudget = ResidualEntropy(share=value) if kind is None else kind(value)
        joined = budget if joined is None else joined & budget
    assert joined is not None  # re.split yields at least one piece
    return joined
