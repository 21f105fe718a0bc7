"""The exponential mechanism over a finite list of hypotheses: the generic private learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix, check_positive
from pacprivacy.dp.clipping import sum_clipped
from pacprivacy.dp.composition import carried
from pacprivacy.dp.events import PureEvent
from pacprivacy.dp.exponential import choose_candidate, score_loss
from pacprivacy.dp.noise import check_neighbours, read_source
from pacprivacy.dp.records import as_array, read_rows
from pacprivacy.errors import DataError
from pacprivacy.release import DPCertificate, DPRelease, Neighbours

FAILURE: Final = 0.05


def choose_hypothesis(
    hypotheses: Sequence[Any],
    losses: Callable[[Any], Any],
    *,
    loss_bound: float,
    epsilon: float,
    neighbours: Neighbours,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release one hypothesis of a public list, likely one with a small total loss.

    Parameters
    ----------
    hypotheses : sequence, public
        The list; it must not depend on the records.
    losses : callable ``hypothesis -> array of shape (n,)``, curator-only
        Loss of each record under a hypothesis. A record's loss depends on that record alone, and
        there is one for every record: an error would be about the records.
    loss_bound : float > 0, public
        Losses are clipped to ``[0, loss_bound]``; what is not a number counts as the bound.
    epsilon : float > 0, public
        The promise.
    neighbours : {"add_remove", "replace"}, public
        Relation that the promise is about. Adding a record moves all totals upwards, so the
        choice under ``add_remove`` is as good at half the ``epsilon``.
    simulate : Generator or int, optional
        Seed of the choice, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        The value is the hypothesis.

    Guarantee
    ---------
    Claim DP-9. ``(epsilon, 0)``-differential privacy; with probability 0.95 the total loss is
    within the figure in the certificate of the best on the list.

    Examples
    --------
    >>> ages = np.arange(20.0, 60.0)
    >>> def error(threshold):
    ...     return (ages > 40) != (ages > threshold)
    >>> release = choose_hypothesis(
    ...     range(10, 80, 10), error, loss_bound=1.0, epsilon=2.0, neighbours="add_remove"
    ... )
    >>> release.value
    40
    """
    check_neighbours(neighbours)
    bound = check_positive("loss_bound", loss_bound, advice="Use 1 for errors.")
    listed = list(hypotheses)
    if not listed:
        raise DataError("hypotheses must hold at least one. Pass a public list.")
    monotone = neighbours == "add_remove"
    source = read_source(simulate)
    totals = np.array([_total(losses(hypothesis), bound) for hypothesis in listed])
    place = choose_candidate(
        -totals, sensitivity=bound, epsilon=epsilon, monotone=monotone, source=source
    )
    within = score_loss(
        len(listed), sensitivity=bound, epsilon=epsilon, failure=FAILURE, monotone=monotone
    )
    certificate = DPCertificate(
        epsilon=float(epsilon),
        delta=0.0,
        neighbours=neighbours,
        mechanism=f"exponential mechanism over {len(listed)} hypotheses",
        assumptions=(
            f"Losses are clipped to [0, {bound:g}], what is not a number to {bound:g}; the list of "
            "hypotheses is public.",
            "Every record has a loss, which depends on that record alone.",
        ),
        accounting={"method": "one exponential mechanism"},
        events=carried(PureEvent(epsilon=float(epsilon))),
        notes=(
            f"With probability {1 - FAILURE:g} the total loss is within {within:.6g} of the best "
            "on the list.",
        ),
        simulation=source.is_simulation,
    )
    return DPRelease(value=listed[place], certificate=certificate)


def _total(losses: Any, bound: float) -> float:
    """Return the sum of clipped losses, exactly."""
    given = as_array(losses)
    if given.ndim != 1:
        raise DataError(
            f"losses must be one number for each record; got {given.ndim} axes. Return a vector."
        )
    values = read_rows(given[:, None])
    clipped: Matrix = np.clip(np.nan_to_num(values, nan=bound), 0.0, bound)
    return float(sum_clipped(clipped, bound=bound, norm="l1")[0])
