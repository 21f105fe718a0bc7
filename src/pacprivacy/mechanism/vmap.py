"""Training functions of JAX on all candidates at once, by ``vmap`` in chunks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix, check_count
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import Data, Parts, Value
from pacprivacy.mechanism.mechanism import Mechanism
from pacprivacy.mechanism.structure import flatten
from pacprivacy.mechanism.sums import subset_sizes
from pacprivacy.sample import Pool

_CHUNK_BYTES: Final = 1 << 28  # of records that are gathered for candidates trained side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class VmapMechanism(Mechanism):
    """A training function of JAX, run on many candidates side by side.

    ``train(X, key)`` or ``train(X, y, key)`` sees the records of one candidate as JAX arrays and
    returns an array, or a dictionary or tuple of arrays: what is released. The key is the same for
    every candidate, so that they differ by their records alone. Candidates of the same size are
    trained together; in single precision they round differently alone and side by side, and what is
    released are the values of the latter.

    Parameters
    ----------
    train : callable
        A function that ``jax.vmap`` and ``jax.jit`` can transform.
    seed : int, public
        Of the key.
    chunk : int, public, optional
        Candidates trained side by side; by default as many as 256 MB of records hold, or an eighth
        of an accelerator's memory.
    agreement : float, public
        How far the value of a candidate alone may be from its value among others, as a share of
        the largest number. Further means that ``train`` is not a function of its records.
    name : str, public
        What the certificate calls it.
    """

    train: Callable[..., Any]
    seed: int = 0
    chunk: int | None = None
    agreement: float = 1e-3
    name: str = field(default="JAX training")

    def __post_init__(self) -> None:
        if self.chunk is not None:
            check_count("chunk", self.chunk, 1, advice="Leave it out.")

    @property
    def public(self) -> tuple[str, ...]:
        """What every candidate starts from."""
        return (f"start of the training: the key of seed {self.seed}, for every candidate",)

    def evaluate(self, parts: Parts, rng: np.random.Generator) -> Value:
        """Return the value of one candidate."""
        jax = _jax()
        arrays = [jax.numpy.asarray(part)[None] for part in _arrays(parts)]
        return jax.tree.map(
            lambda leaf: np.asarray(leaf)[0], _trainer(self.train, self.seed)(*arrays)
        )

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the values of all candidates, shape (m, d)."""
        jax = _jax()
        parts, trainer = _arrays(data.parts), _trainer(self.train, self.seed)
        on_device = [jax.numpy.asarray(part) for part in parts]
        sizes = subset_sizes(pool).astype(np.int64)
        values: list[Any] = [None] * pool.n_subsets
        for size in np.unique(sizes):
            each = max(1, int(size) * sum(part[:1].nbytes for part in parts))
            chunk = self.chunk or max(1, _chunk_bytes(jax) // each)
            same = np.flatnonzero(sizes == size)
            for start in range(0, len(same), chunk):
                block = same[start : start + chunk]
                # The last chunk is filled up, so that one program serves all of them.
                filled = np.resize(block, min(chunk, len(same)))
                index = jax.numpy.asarray(np.stack([pool.rows(k) for k in filled]))
                trained = trainer(*(part[index] for part in on_device))
                leaves = jax.tree.map(np.asarray, trained)
                for place, k in enumerate(block):
                    values[k] = flatten(jax.tree.map(lambda leaf, at=place: leaf[at], leaves))[0]
        return np.stack(values)


@lru_cache(maxsize=4)
def _trainer(train: Callable[..., Any], seed: int) -> Any:
    """Return the compiled function of many candidates; kept, because compiling takes seconds."""
    jax = _jax()
    key = jax.random.key(seed)
    return jax.jit(jax.vmap(lambda *parts: train(*parts, key)))


def _chunk_bytes(jax: Any) -> int:
    """Return how many bytes of records to gather: an eighth of the memory of an accelerator."""
    stats = jax.devices()[0].memory_stats() or {}  # of a processor there are none
    return max(_CHUNK_BYTES, int(stats.get("bytes_limit", 0)) // 8)


def _arrays(parts: Parts) -> list[Any]:
    arrays = [np.asarray(part) for part in parts]
    if any(array.dtype.kind not in "biuf" for array in arrays):
        raise MechanismError("VmapMechanism must be given numbers; got text. Encode it first.")
    wide = [array for array in arrays if array.dtype.kind in "iu" and array.dtype.itemsize > 4]
    if not _jax().config.jax_enable_x64 and any(
        array.size and (array.min() < -(2**31) or array.max() >= 2**31) for array in wide
    ):
        raise MechanismError(
            "integers must be within 32 bits, which is all that JAX keeps of them; got larger "
            "ones. Pass them as floats, or set jax_enable_x64."
        )
    return arrays


def _jax() -> Any:
    try:
        import jax
    except ImportError:
        raise MechanismError(
            "jax must be installed for VmapMechanism; it is not. "
            "Run in a checkout: pip install '.[jax]'."
        ) from None
    return jax
