"""Disjoint blocks of records, each of which is given to one fit: a record touches one of them.

A fit is code of others, which may draw from global generators, keep state between calls, warn or
fail. Every block therefore gets a copy of the fit as it was handed over, and global generators
that were seeded for this block by the secret source: what comes out is a function of the block's
records and of its seed, whatever happens in other blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import cloudpickle
import numpy as np
import numpy.typing as npt

from pacprivacy._random import BitSource, own_generators
from pacprivacy.dp.certificate import Neighbours
from pacprivacy.dp.noise import check_neighbours
from pacprivacy.dp.records import as_array
from pacprivacy.errors import DataError, MechanismError
from pacprivacy.noise import uniform_integers

LEAST_RECORDS: Final = 2
ALONE: Final = (
    "A record is in one block. The fit of a block depends on its records and on a seed of its own: "
    "NumPy's and Python's global generators are seeded for every block, and each one gets a fresh "
    "copy of the fit, which keeps no other state between blocks."
)
Places = npt.NDArray[np.int64]


def draw_blocks(
    n_records: int,
    n_blocks: int,
    *,
    neighbours: Neighbours,
    source: BitSource,
    least_records: int = LEAST_RECORDS,
) -> list[Places]:
    """Draw which records are in which block.

    Guarantee
    ---------
    Claim DP-14. Neighbours can be dealt so that all blocks but one are equal.
    """
    check_neighbours(neighbours)
    _check_number(n_blocks)
    if neighbours == "add_remove":
        chosen = uniform_integers(np.full(n_records, n_blocks, dtype=np.int64), source)
    else:
        if n_records < n_blocks * least_records:
            raise DataError(
                f"n_blocks must leave {least_records} or more records for each; got {n_blocks} "
                f"blocks of {n_records} records. Use fewer blocks."
            )
        order = np.argsort(source.words(n_records), kind="stable")
        chosen = np.empty(n_records, dtype=np.int64)
        chosen[order] = np.arange(n_records) % n_blocks
    return [np.flatnonzero(chosen == block) for block in range(n_blocks)]


def draw_seeds(n_blocks: int, source: BitSource) -> list[int]:
    """Draw a seed of 128 bits for every block."""
    _check_number(n_blocks)
    words = source.words(2 * n_blocks).tolist()
    return [low | high << 64 for low, high in zip(words[::2], words[1::2], strict=True)]


def map_blocks(
    fit: Callable[..., Any],
    data: Sequence[Any],
    blocks: Sequence[Places],
    *,
    seeds: Sequence[int],
    failed: Any,
    n_jobs: int | None = None,
) -> list[Any]:
    """Run ``fit`` on the records of every block; where it fails, return ``failed``.

    That a block fails depends on its records, so it must not show: neither as an error nor as a
    warning.

    Guarantee
    ---------
    Claim DP-14. The result of a block is a function of its records and its seed alone, if ``fit``
    has no state besides its own and that of the global generators of NumPy and Python.
    """
    from joblib import Parallel, delayed

    packed = _pack(fit)
    parts = [as_array(part) for part in data]
    calls = (
        delayed(_run)(packed, tuple(part[rows] for part in parts), seed, failed)
        for rows, seed in zip(blocks, seeds, strict=True)
    )
    return list(Parallel(n_jobs=n_jobs, backend="loky")(calls))


def fit_fresh(estimator: Any, rows: npt.NDArray[Any], target: npt.NDArray[Any]) -> Any:
    """Fit a clone of a scikit-learn estimator; without odd records, where it refuses them.

    Seeds that were left open are drawn from NumPy's global generator, which is the block's own.
    A record that is not finite is left out if the estimator fails with it: others can be fitted.
    """
    try:
        return _seeded_clone(estimator).fit(rows, target)
    except Exception:
        finite = _finite_records(rows) & _finite_records(target)
        if finite.all():
            raise
    return _seeded_clone(estimator).fit(rows[finite], target[finite])


def _check_number(n_blocks: int) -> None:
    if n_blocks < 2:
        raise DataError(f"n_blocks must be at least 2; got {n_blocks}. Use about 50.")


def _seeded_clone(estimator: Any) -> Any:
    from sklearn.base import clone
    from sklearn.utils import check_random_state

    fresh, generator = clone(estimator), check_random_state(None)
    seeds = {
        name: int(generator.randint(np.iinfo(np.int32).max))
        for name, value in sorted(fresh.get_params().items())
        if value is None and name.split("__")[-1] == "random_state"
    }
    return fresh.set_params(**seeds)


def _finite_records(part: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if part.dtype.kind != "f":
        return np.ones(len(part), dtype=np.bool_)
    return np.asarray(np.isfinite(part.reshape(len(part), -1)).all(axis=1))


def _pack(fit: Callable[..., Any]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(fit))
    except Exception as error:
        raise MechanismError(
            "fit must be possible to pickle, so that every block gets a copy that no other block "
            f"has used; it raised {type(error).__name__}. Keep files and locks out of it."
        ) from None


def _run(packed: bytes, parts: tuple[Any, ...], seed: int, failed: Any) -> Any:
    with own_generators(seed):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return cloudpickle.loads(packed)(*parts)
        except (Exception, SystemExit):  # whatever it is, it must not leave
            return failed
