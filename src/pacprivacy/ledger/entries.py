"""The entries of a ledger, their amounts, and the chain of hashes that holds them together.

A thousand spends of 0.001 must use up a budget of 1 exactly, on every machine. Sums of floats do
not do that, so amounts are whole multiples of 1e-12 (delta: 1e-18): charges are rounded up, limits
down. ``Units`` maps the kinds that are given to these numbers; they are never added together.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final, Literal, TypeAlias

from pacprivacy.budget import SUMS, Spent
from pacprivacy.errors import BudgetError

Units: TypeAlias = Mapping[str, int]
FAMILIES: Final = (SUMS[:2], SUMS[2:3], SUMS[3:])  # pools, coins, differential privacy
_DIGITS: Final = dict(zip(SUMS, (12, 12, 12, 12, 18), strict=True))
_LARGEST: Final = dict(zip(SUMS, (1e6, 1.0, 1e6, 1e6, 1.0), strict=True))
_EXACT: Final = Context(prec=60)


def amounts_charged(charge: Spent) -> Units:
    return _scaled(charge, ROUND_CEILING)


def amounts_allowed(limits: Spent) -> Units:
    return _scaled(limits, ROUND_FLOOR)


def amounts_of(units: Units) -> Spent:
    return Spent(**{name: value / 10 ** _DIGITS[name] for name, value in units.items()})


def _scaled(amounts: Spent, rounding: str) -> Units:
    """Scale the shortest decimal that reads back as the float, so that 0.001 is a thousandth."""
    if amounts.success_level is not None:
        raise BudgetError(
            "success must be an increment in a ledger: levels do not add up; got success_level. "
            "Use success_increment=0.1."
        )
    if amounts.epsilon is not None and amounts.delta is None:
        amounts = replace(amounts, delta=0.0)
    if amounts.delta is not None and amounts.epsilon is None:
        raise BudgetError("epsilon must be given with delta; got delta alone. Add epsilon=.")
    stated = amounts.sums()
    if not stated:
        raise BudgetError(
            "a charge must state at least one amount; got none. Use Spent(mi_nats=0.25)."
        )
    scaled = {}
    for name, value in stated.items():
        exact = Decimal(repr(_checked(name, value))).scaleb(_DIGITS[name], context=_EXACT)
        scaled[name] = int(exact.to_integral_value(rounding=rounding))
    return scaled


def _checked(name: str, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 <= number <= _LARGEST[name]:
        raise BudgetError(
            f"{name} must be a number from 0 to {_LARGEST[name]:g}; got {value!r}. "
            f"Leave it out where it does not apply."
        )
    return number


EntryKind = Literal["budget", "reserve", "commit", "cancel"]
EVERY: Final = "*"
ENTRY_VERSION: Final = 2
COLUMNS: Final = {
    "mi_nats": "mi_nats_e12",
    "success_increment": "success_e12",
    "mu_squared": "mu_squared_e12",
    "epsilon": "epsilon_e12",
    "delta": "delta_e18",
}
SINCE: Final = {"mu_squared": 2}  # version of an entry from which on it has an amount


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line of the ledger; every field is public and none says anything about a secret.

    ``budget`` sets limits for a dataset and a principal (``*`` stands for all of them together),
    ``reserve`` spends, ``commit`` says that the release exists and names its certificate,
    ``cancel`` gives back what was reserved and not used. The place in the chain (the last four
    fields) is found on appending.
    """

    kind: EntryKind
    dataset: str
    principal: str
    units: Units = field(default_factory=dict)
    session: str | None = None
    reservation: str | None = None
    what: str = ""
    certificate: str | None = None
    version: int = ENTRY_VERSION
    seq: int = 0
    time: str = ""
    previous: str = ""
    hash: str = field(default="", compare=False)

    @property
    def amounts(self) -> Spent:
        return amounts_of(self.units)

    def covered(self) -> dict[str, Any]:
        """Return the fields that the hash covers, as plain JSON types: all but the hash.

        An amount that is not of the entry's version is covered if it was added to the row.
        """
        columns = {
            column: self.units.get(kind)
            for kind, column in COLUMNS.items()
            if self.version >= SINCE.get(kind, 1) or kind in self.units
        }
        return {
            "seq": self.seq,
            "version": self.version,
            "kind": self.kind,
            "time": self.time,
            "dataset": self.dataset,
            "principal": self.principal,
            "session": self.session,
            "reservation": self.reservation,
            **columns,
            "what": self.what,
            "certificate": self.certificate,
            "previous": self.previous,
        }

    def to_public_dict(self) -> dict[str, Any]:
        return {"schema_version": self.version, **self.covered(), "hash": self.hash}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Result of a check of the whole ledger; ``broken_entry`` is the first wrong entry."""

    n_entries: int
    head: str
    broken_entry: int | None = None
    problem: str | None = None

    @property
    def ok(self) -> bool:
        return self.problem is None


def genesis_hash(ledger_id: str, created: str) -> str:
    return _digest({"ledger": ledger_id, "created": created})


def entry_hash(entry: LedgerEntry) -> str:
    return _digest(entry.covered())


def _digest(fields: dict[str, Any]) -> str:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def entry_scopes(dataset: str, principal: str) -> tuple[tuple[str, str], ...]:
    """Return the budgets of a principal: its own, all principals', all datasets', everything."""
    return tuple((d, p) for d in (dataset, EVERY) for p in (principal, EVERY))


def check_entries(entries: Iterable[LedgerEntry], first: str) -> Iterator[str]:
    """Yield the hash of each entry in turn, or raise ``ValueError`` on the first wrong one.

    Guarantee
    ---------
    Claim K-3. Every entry is numbered without gaps, names the hash of the one before it, has
    the hash of its own fields, refers to an earlier open reservation where it must, and takes no
    budget above its limits.
    """
    previous = first
    books = _Books()
    for number, entry in enumerate(entries, start=1):
        if entry.seq != number:
            raise ValueError(f"entry {number} is missing")
        if entry.previous != previous:
            raise ValueError("it does not follow from the entry before it")
        try:
            previous = entry_hash(entry)
        except (TypeError, ValueError):
            raise ValueError("a field has the wrong type") from None
        if entry.hash != previous:
            raise ValueError("its hash does not match its fields")
        books.follow(entry)
        yield previous


class _Books:
    """Replays the entries: budgets, spends, and open reservations."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str, str], Units] = {}
        self._spent: dict[tuple[str, str], dict[str, int]] = {}
        self._open: dict[str, LedgerEntry] = {}
        self._reserved: set[str] = set()

    def follow(self, entry: LedgerEntry) -> None:
        scope = (entry.dataset, entry.principal)
        if entry.kind == "budget":
            if scope in self._limits:
                raise ValueError("it sets a budget that was set before")
            self._limits[scope] = entry.units
        elif entry.kind == "reserve":
            self._reserve(entry)
        elif entry.kind in ("commit", "cancel"):
            reserved = self._open.pop(entry.reservation or "", None)
            if reserved is None or (reserved.dataset, reserved.principal) != scope:
                raise ValueError("it refers to no open reservation")
            if entry.kind == "cancel":
                if entry.units != reserved.units:
                    raise ValueError("it gives back another amount than was reserved")
                self._add(reserved, -1)
        else:
            raise ValueError("its kind is unknown")

    def _reserve(self, entry: LedgerEntry) -> None:
        if entry.reservation is None or entry.reservation in self._reserved:
            raise ValueError("its reservation has no name of its own")
        self._reserved.add(entry.reservation)
        self._open[entry.reservation] = entry
        self._add(entry, 1)
        covering = [s for s in entry_scopes(entry.dataset, entry.principal) if s in self._limits]
        if not covering:
            raise ValueError("no budget covers it")
        for scope in covering:
            spent = self._spent[scope]
            if any(spent.get(name, 0) > limit for name, limit in self._limits[scope].items()):
                raise ValueError("it goes over a budget")

    def _add(self, entry: LedgerEntry, sign: int) -> None:
        for scope in entry_scopes(entry.dataset, entry.principal):
            spent = self._spent.setdefault(scope, {})
            for name, amount in entry.units.items():
                spent[name] = spent.get(name, 0) + sign * amount
