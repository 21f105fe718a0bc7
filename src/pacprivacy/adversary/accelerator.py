"""Posteriors and sums over masks by JAX: on an accelerator where there is one, else on processors.

The draws are NumPy's own. Posteriors are found in double precision and rounded once to single,
products have true single precision, sums over draws are in double: within the error that claim A-2
adds for single precision, so the proved figures hold as they are. Masks travel packed and stay on
the device for the passes that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary.candidates import Units
from pacprivacy.errors import MechanismError

_ON_CPU: Final = (1 << 21, 1 << 28)  # cells of a block of masks, and bytes of masks that are kept
_BEYOND: Final = (1 << 27, 1 << 32)
_LEAST_WIDTH: Final = 64

ACCELERATED: ContextVar[bool] = ContextVar("accelerated", default=False)


@contextmanager
def accelerated() -> Iterator[None]:
    """Let proofs of membership be computed by JAX inside; needs ``pacprivacy[jax]``.

    What is proved is the same within rounding, and is verified without JAX.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> from pacprivacy.adversary import accelerated
    >>> people = np.random.default_rng(0).normal(size=(200, 4))
    >>> with accelerated():  # doctest: +SKIP
    ...     release = pac.privatize(lambda X: X.mean(axis=0), people, "membership<=0.6")
    """
    _programs()
    token = ACCELERATED.set(True)
    try:
        yield
    finally:
        ACCELERATED.reset(token)


class Accelerator:
    """Masks on a device, centred at ``share`` and scaled, as those of a :class:`ViewTilts`."""

    def __init__(
        self, inside: Callable[[Units | slice], npt.NDArray[np.uint8]], share: Vector, scale: Vector
    ) -> None:
        self._inside, self._share, self._scale = inside, share, scale
        self._kept: dict[bytes, tuple[Any, ...]] = {}

    def posterior(self, z: Matrix, points: Matrix, level: Vector) -> npt.NDArray[np.float32]:
        """Return ``softmax(z points' + level)`` in single precision, shape (N, m)."""
        _, double, programs = _programs()
        with double():
            rows = np.zeros((_padded(len(z)), z.shape[1]))
            rows[: len(z)] = z
            return np.asarray(programs[0](rows, points, level))[: len(z)]

    def sums(self, units: Units, folded: npt.NDArray[Any]) -> Iterator[tuple[slice, Matrix]]:
        """Yield places in ``units``, and there the sums of ``|a|``, ``a``, ``a²`` and ``|a| a``."""
        jax, double, programs = _programs()
        cells, most = _ON_CPU if jax.default_backend() == "cpu" else _BEYOND
        step = max(_LEAST_WIDTH, cells // folded.shape[1])
        with double():
            rows = np.zeros((_padded(len(folded)), folded.shape[1]), dtype=np.float32)
            rows[: len(folded)] = folded
            rows = jax.device_put(rows)
            for start in range(0, len(units), step):
                some = units[start : start + step]
                found = np.asarray(programs[1](rows, *self._masks(some, step, most)))
                yield slice(start, start + len(some)), found[:, : len(some)]

    def _masks(self, units: Units, step: int, most: int) -> tuple[Any, ...]:
        """Return packed masks of shape (m / 8, width), shares and scales; of nobody beyond them."""
        key = units.tobytes()
        if key not in self._kept:
            jax = _programs()[0]
            room = (0, min(step, _padded(len(units))) - len(units))
            follow = units[-1] - units[0] == len(units) - 1
            these = slice(int(units[0]), int(units[-1]) + 1) if follow else units
            packed = np.pad(np.packbits(self._inside(these), axis=0), ((0, 0), room))
            parts = (packed, *(np.pad(x[units], room) for x in (self._share, self._scale)))
            if packed.nbytes * (len(self._kept) + 1) > most:
                self._kept.clear()
            self._kept[key] = tuple(map(jax.device_put, parts))
        return self._kept[key]


def _padded(size: int) -> int:
    """Return the next power of two: every other size would be another program."""
    return max(_LEAST_WIDTH, 1 << (size - 1).bit_length())


@lru_cache(maxsize=1)
def _programs() -> tuple[Any, Any, tuple[Any, Any]]:
    """Return jax, what switches double precision on, and the two compiled functions."""
    try:
        import jax
        import jax.experimental
        import jax.numpy as jnp
    except ImportError:
        raise MechanismError(
            "jax must be installed for accelerated(); it is not. "
            "Run in a checkout: pip install '.[jax]'."
        ) from None
    exact = jax.lax.Precision.HIGHEST  # by default accelerators round factors to eleven bits

    def posterior(z: Any, points: Any, level: Any) -> Any:
        log_p = jnp.matmul(z, points.T, precision=exact) + level
        return jax.nn.softmax(log_p, axis=1).astype(jnp.float32)

    def sums(folded: Any, packed: Any, share: Any, scale: Any) -> Any:
        shifts = jnp.arange(7, -1, -1, dtype=jnp.uint8)[None, :, None]
        bits = ((packed[:, None, :] >> shifts) & 1).reshape(-1, packed.shape[1])
        masks = bits[: folded.shape[1]].astype(jnp.float32) - share.astype(jnp.float32)
        a = jnp.matmul(folded, masks * scale.astype(jnp.float32), precision=exact)
        size = jnp.abs(a)
        lines = (size, a, a * a, size * a)
        return jnp.stack([line.sum(axis=0, dtype=jnp.float64) for line in lines])

    if hasattr(jax, "enable_x64"):
        return jax, lambda: jax.enable_x64(True), (jax.jit(posterior), jax.jit(sums))
    before: Any = jax.experimental  # where it was
    return jax, before.enable_x64, (jax.jit(posterior), jax.jit(sums))
