"""Secret randomness from the operating system, public randomness from named seeded streams.

The secret index and the noise come from :class:`SystemSource`. :class:`SimulatedSource` has
the same interface over a seeded generator; whatever is drawn from it is marked *simulation*.

What was drawn is kept in one process: a fork has the same secret, the same noise drawn ahead and
its own copy of the budget, so two processes together would give away what neither may. Whatever
holds a secret, noise or a budget is a :class:`ProcessBound` and asks before it uses them.
"""

import hashlib
import operator
import os
import random
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NoReturn, Protocol, Self

import numpy as np
import numpy.typing as npt
from numpy.random import mtrand

from pacprivacy._checks import as_told
from pacprivacy.errors import PoolError, SecretError

SEED_BITS: Final = 128
_ONE_AT_A_TIME: Final = threading.RLock()


class BitSource(Protocol):
    """Anything that yields independent uniform 64-bit words."""

    @property
    def is_simulation(self) -> bool:
        """Whether the words come from a seed, and so keep nothing secret."""
        ...

    def words(self, size: int) -> npt.NDArray[np.uint64]:
        """Return ``size`` independent uniform 64-bit words."""
        ...


class SystemSource:
    """Words from the operating system's cryptographic generator."""

    __slots__ = ()
    is_simulation: Final = False

    def words(self, size: int) -> npt.NDArray[np.uint64]:
        """Return ``size`` independent uniform 64-bit words."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


class SimulatedSource:
    """Words from a seeded generator: for experiments and tests, never for a real release."""

    __slots__ = ("_generator",)
    is_simulation: Final = True

    def __init__(self, seed: int | np.random.Generator) -> None:
        self._generator = np.random.default_rng(seed)

    def words(self, size: int) -> npt.NDArray[np.uint64]:
        """Return ``size`` independent uniform 64-bit words."""
        raw = self._generator.bit_generator
        if isinstance(raw, np.random.PCG64):  # the same words in less time
            return np.asarray(raw.random_raw(size))
        return self._generator.integers(0, 2**64, size=size, dtype=np.uint64)


class Process:
    """Identity of a process, distinct from its forks and from later processes."""

    __slots__ = ("_mark", "_number")
    _current: ClassVar[object] = object()

    def __init__(self) -> None:
        self._number, self._mark = os.getpid(), Process._current

    @property
    def is_here(self) -> bool:
        """Whether the calling code runs in this process."""
        # The mark changes with every fork that Python knows of, the number with every fork at all:
        # numbers are used again, and some servers fork behind Python's back.
        return self._mark is Process._current and self._number == os.getpid()

    @staticmethod
    def _begin() -> None:
        Process._current = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Process._begin)


class ProcessBound:
    """Something that holds a secret, noise drawn ahead or a budget; it cannot be copied.

    A subclass calls :meth:`check_process` before it takes noise, spends, or waits for a lock that
    another thread may have held when the process was forked.

    Guarantee
    ---------
    Claim R-4. :meth:`check_process` returns in the process that made the object and in no other.
    """

    __slots__ = ("_process",)
    _process: Process
    KIND: ClassVar[str] = "a secret"
    INSTEAD: ClassVar[str] = "Make one in each process, each with a budget of its own."

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember the process, even if ``__init__`` is not called."""
        instance = super().__new__(cls)
        instance._process = Process()
        return instance

    def __reduce__(self) -> NoReturn:
        raise SecretError(
            f"{self.KIND} must stay in its process; got a request to pickle or copy it. "
            f"{self.INSTEAD}"
        )

    def check_process(self) -> None:
        """Refuse to go on in a fork."""
        if not self._process.is_here:
            raise SecretError(
                f"{self.KIND} must stay in its process; got another one, a fork of it. Nothing "
                f"was drawn or spent. Make one in each process, each with a budget of its own."
            )


@contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Seed the global generators of NumPy and Python for a block of code.

    Other libraries draw from these by default (``random_state=None``). Their draws then depend on
    ``seed`` alone, and the generators are restored afterwards. One block at a time in a process:
    other threads wait.
    """
    with _ONE_AT_A_TIME:
        theirs = mtrand.get_bit_generator()
        state = np.random.get_state(legacy=False)  # noqa: NPY002
        python = random.getstate()
        mtrand.set_bit_generator(np.random.MT19937(seed))
        random.seed(seed)
        try:
            yield
        finally:
            mtrand.set_bit_generator(theirs)
            np.random.set_state(state)  # noqa: NPY002
            random.setstate(python)


def uniform_below(source: BitSource, bound: int) -> int:
    """Draw an integer uniformly from ``0 .. bound-1``, exactly (by rejection)."""
    if not 1 <= bound <= 2**63:
        raise ValueError(f"bound must be between 1 and 2**63; got {bound}.")
    limit = (2**64 // bound) * bound
    while True:
        word = int(source.words(1)[0])
        if word < limit:
            return word % bound


def fresh_seed() -> int:
    """Return a new 128-bit seed from the operating system."""
    return secrets.randbits(SEED_BITS)


def coerce_seed(rng: np.random.Generator | int | None) -> int:
    """Turn an ``rng`` argument into one integer seed.

    ``None`` means a fresh secret seed.
    """
    if rng is None:
        return fresh_seed()
    if isinstance(rng, np.random.Generator):
        return int.from_bytes(rng.bytes(SEED_BITS // 8), "little")
    try:
        seed = operator.index(rng)
    except TypeError:
        seed = -1
    if seed < 0:
        raise PoolError(
            "rng must be an integer of at least 0, a numpy Generator, or None; got "
            f"{as_told(rng)}. Leave it out for a seed that nobody knows."
        )
    return seed


def public_generator(seed: int, stream: str, *indices: int) -> np.random.Generator:
    """Return the generator of one named stream; streams are independent.

    The stream depends on ``(seed, stream, indices)`` alone, so results do not depend on the
    number of workers, on chunking or on restarts.
    """
    name = int.from_bytes(hashlib.blake2b(stream.encode(), digest_size=4).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(name, *indices)))


def secret_source(seed: int, *, simulate: bool) -> BitSource:
    """Return random words of the operating system, or of a public seed in a simulation."""
    return SimulatedSource(public_generator(seed, "simulation")) if simulate else SystemSource()
