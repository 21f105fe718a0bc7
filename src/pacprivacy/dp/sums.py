"""Sums and means of clipped rows: where the sensitivity of most releases comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pacprivacy._checks import check_positive
from pacprivacy.dp.clipping import sum_clipped
from pacprivacy.dp.gaussian_mechanism import gaussian_analytic
from pacprivacy.dp.laplace import laplace
from pacprivacy.dp.noise import check_epsilon_delta, check_neighbours
from pacprivacy.dp.records import EMPTY_RECORDS, as_array
from pacprivacy.errors import BudgetError
from pacprivacy.release import DPRelease, Neighbours


def private_sum(
    rows: Any,
    *,
    bound: float,
    epsilon: float,
    delta: float = 0.0,
    neighbours: Neighbours,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release the sum of rows, each scaled down to ``min(1, bound/|row|)`` of itself.

    Parameters
    ----------
    rows : array of shape (n,) or (n, d), curator-only
        One number or row for each record; one that is not finite counts as zero.
    bound : float > 0, public
        Largest length of a row: the sum of absolute entries for ``delta=0``, which takes Laplace
        noise, and Euclidean otherwise. It must not be read off the data.
    epsilon, delta : float, public
        The promise.
    neighbours : {"add_remove", "replace"}, public
        Relation that the promise is about; a replacement moves the sum by twice the bound.
    simulate : Generator or int, optional
        Seed of the noise, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        The value is a number, or an array of shape (d,).

    Guarantee
    ---------
    Claims DP-1, DP-2 and DP-3. ``(epsilon, delta)``-differential privacy; clipping and summation
    are inside, so nothing is left to declare. Claim DP-17: what is refused is public.

    Examples
    --------
    >>> ages = np.arange(20.0, 60.0)
    >>> release = private_sum(ages, bound=100.0, epsilon=1.0, neighbours="add_remove")
    >>> round(release.certificate.noise["laplace scale"], 4)
    100.0
    """
    check_neighbours(neighbours)
    check_positive("epsilon", epsilon, advice="Use about 1.")
    limit = check_positive("bound", bound, advice="Use a length that rows rarely exceed.")
    values = as_array(rows)
    flat = values.ndim == 1
    total: Any = sum_clipped(
        values[:, None] if flat else rows, bound=limit, norm="l2" if delta else "l1"
    )
    sensitivity = limit if neighbours == "add_remove" else 2.0 * limit
    total = total[0] if flat else total
    if delta:
        check_epsilon_delta(epsilon, delta)
        release = gaussian_analytic(
            total,
            sensitivity=sensitivity,
            epsilon=epsilon,
            delta=delta,
            neighbours=neighbours,
            simulate=simulate,
        )
    else:
        release = laplace(
            total,
            sensitivity=sensitivity,
            epsilon=epsilon,
            neighbours=neighbours,
            simulate=simulate,
        )
    kind = "Euclidean length" if delta else "sum of absolute entries"
    said = f"Rows are scaled down to a {kind} of at most {limit:g}, which was declared."
    certificate = replace(
        release.certificate, assumptions=(said, *release.certificate.assumptions[1:], EMPTY_RECORDS)
    )
    return DPRelease(value=release.value, certificate=certificate)


def private_mean(
    rows: Any,
    *,
    bound: float,
    epsilon: float,
    delta: float = 0.0,
    neighbours: Neighbours,
    n_public: int | None = None,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release the sum of clipped rows over a *public* number of records.

    Parameters are those of :func:`private_sum`, and ``n_public``: the number that the sum is
    divided by. Under ``replace`` the number of records is public and is the default. Under
    ``add_remove`` it is not, so it must be given; an estimate will do.

    Examples
    --------
    >>> ages = np.arange(20.0, 60.0)
    >>> release = private_mean(ages, bound=100.0, epsilon=50.0, neighbours="replace")
    >>> bool(abs(release.value - 39.5) < 5)
    True
    """
    check_neighbours(neighbours)
    if n_public is None and neighbours == "add_remove":
        raise BudgetError(
            "n_public must be given where records may be added or removed: their true number is "
            "not public; got None. Pass a public estimate, or use neighbours='replace'."
        )
    n = check_positive("n_public", len(rows) if n_public is None else n_public, advice="Use n.")
    release = private_sum(
        rows, bound=bound, epsilon=epsilon, delta=delta, neighbours=neighbours, simulate=simulate
    )
    noise = {name: scale / n for name, scale in (release.certificate.noise or {}).items()}
    notes = (f"The sum was divided by {n:g}, which is public.",)
    certificate = replace(release.certificate, noise=noise, notes=notes)
    return DPRelease(value=release.value / n, certificate=certificate)
