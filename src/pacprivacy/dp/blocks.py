"""Disjoint blocks of records, each of which is given to one fit: a record touches one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._random import BitSource
from pacprivacy.dp.laplace import check_neighbours
from pacprivacy.errors import DataError
from pacprivacy.noise.lattice import uniform_integers
from pacprivacy.release.dp_certificate import Neighbours

__all__ = ["draw_blocks", "map_blocks"]

LEAST_RECORDS: Final = 2
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

    Parameters
    ----------
    n_records, n_blocks : int
        How many records, and how many blocks they are dealt to.
    neighbours : {"add_remove", "replace"}, public
        Under ``add_remove`` every record draws its block by itself, so that one record more
        leaves the others where they are; sizes differ. Under ``replace`` blocks are of equal
        size, within one.
    source : BitSource
        Random words.
    least_records : int, public
        Refuse if a block would have fewer records than this on average.

    Returns
    -------
    list of arrays, curator-only
        Places of the records of each block, in ascending order.

    Raises
    ------
    DataError
        If there are too few records; nothing was spent.

    Guarantee
    ---------
    Claim DP-14. Neighbours can be dealt so that all blocks but one are equal.

    Examples
    --------
    >>> from pacprivacy.dp.noise import read_source
    >>> blocks = draw_blocks(10, 3, neighbours="replace", source=read_source(0))
    >>> sorted(map(len, blocks))
    [3, 3, 4]
    """
    check_neighbours(neighbours)
    if n_blocks < 2 or n_records < n_blocks * least_records:
        raise DataError(
            f"n_blocks must be at least 2 and leave {least_records} or more records for each; got "
            f"{n_blocks} blocks of {n_records} records. Use fewer blocks."
        )
    if neighbours == "add_remove":
        chosen = uniform_integers(np.full(n_records, n_blocks, dtype=np.int64), source)
    else:
        order = np.argsort(source.words(n_records), kind="stable")
        chosen = np.empty(n_records, dtype=np.int64)
        chosen[order] = np.arange(n_records) % n_blocks
    return [np.flatnonzero(chosen == block) for block in range(n_blocks)]


def map_blocks(
    fit: Callable[..., Any],
    data: Sequence[Any],
    blocks: Sequence[Places],
    *,
    failed: Any,
    n_jobs: int | None = None,
) -> list[Any]:
    """Run ``fit`` on the records of every block; where it fails, return ``failed``.

    That a block fails depends on its records, so it must not show: neither as an error nor as a
    warning.

    Examples
    --------
    >>> map_blocks(lambda x: 1 / int(x[0]), (np.array([0, 4]),), [[0], [1]], failed=9.0)
    [9.0, 0.25]
    """
    from joblib import Parallel, delayed

    calls = (
        delayed(_run)(fit, tuple(np.asarray(part)[rows] for part in data), failed)
        for rows in blocks
    )
    return list(Parallel(n_jobs=n_jobs)(calls))


def _run(fit: Callable[..., Any], parts: tuple[Any, ...], failed: Any) -> Any:
    import warnings

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return fit(*parts)
    except Exception:  # whatever it is, it must not leave
        return failed
