"""Subsample and aggregate: fit on disjoint blocks, release a private middle of the fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy._random import BitSource
from pacprivacy.dp.blocks import ALONE, LEAST_RECORDS, draw_blocks, draw_seeds, map_blocks
from pacprivacy.dp.certificate import DPCertificate, DPRelease, Neighbours
from pacprivacy.dp.clipping import sum_clipped
from pacprivacy.dp.events import Event, PureEvent, carried, noise_event
from pacprivacy.dp.mechanisms import choose_candidate
from pacprivacy.dp.noise import add_noise, check_promise, read_source
from pacprivacy.errors import BudgetError, DataError


class Aggregator(Protocol):
    """A private middle of vectors, of which a record can change one."""

    def centre(self, size: int) -> Vector:
        """Return the public vector that stands for a block on which the fit failed."""

    def combine(
        self, outputs: Matrix, epsilon: float, delta: float, source: BitSource
    ) -> tuple[Vector, dict[str, float]]:
        """Return the private middle, and the noise by name."""

    def event(self, size: int, epsilon: float, delta: float) -> Event:
        """Return what an accountant is told about the noise."""

    def describe(self) -> str:
        """Return what is assumed of the outputs, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedMean:
    """The mean of vectors that are scaled down to a declared length, with noise.

    ``clip_norm`` is the largest length that a block's output may have: Euclidean, or the sum of
    absolute entries where ``delta`` is 0.
    """

    clip_norm: float

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm, advice="Use a length outputs rarely exceed.")

    def centre(self, size: int) -> Vector:
        """Return zeros."""
        return np.zeros(size)

    def combine(
        self, outputs: Matrix, epsilon: float, delta: float, source: BitSource
    ) -> tuple[Vector, dict[str, float]]:
        """Return the noisy sum of clipped outputs over their number."""
        k, reach = len(outputs), 2.0 * self.clip_norm
        total = sum_clipped(outputs, clip_norm=self.clip_norm, norm="l2" if delta else "l1")
        noisy = add_noise(total, sensitivity=reach, epsilon=epsilon, delta=delta, source=source)
        return np.asarray(noisy.values / k), {"std": noisy.noise_std / k}

    def event(self, size: int, epsilon: float, delta: float) -> Event:
        """Return one Gaussian or Laplace mechanism."""
        return noise_event(epsilon, delta, size)

    def describe(self) -> str:
        """Return what is assumed of the outputs, in words."""
        return f"Each block's output is scaled down to length {self.clip_norm:g}."


@dataclass(frozen=True, slots=True, kw_only=True)
class GridMedian:
    """A point of a declared grid near the median, in every coordinate; no clipping is needed.

    ``bounds`` are the ends of the grid, for all coordinates or for each; ``n_points`` counts its
    points, ends included.
    """

    bounds: tuple[float | Vector, float | Vector]
    n_points: int = 1001

    def __post_init__(self) -> None:
        lower, upper = self.bounds
        finite = np.isfinite(lower).all() and np.isfinite(upper).all()
        if not finite or not np.all(np.less(lower, upper)) or self.n_points < 2:
            raise BudgetError(
                "bounds must be two finite ends, the lower one first, with at least two points "
                "between them. Declare a range in which outputs may lie."
            )

    def centre(self, size: int) -> Vector:
        """Return the middle of the grid."""
        return np.asarray(np.broadcast_to(np.add(*self.bounds) / 2.0, (size,)))

    def combine(
        self, outputs: Matrix, epsilon: float, delta: float, source: BitSource
    ) -> tuple[Vector, dict[str, float]]:
        """Choose every coordinate by the exponential mechanism, scored by ranks."""
        size = outputs.shape[1]
        lower, upper = (np.broadcast_to(end, (size,)) for end in self.bounds)
        share = _share_of_choices(epsilon, delta, size)
        found = np.empty(size)
        for j in range(size):
            grid = np.linspace(lower[j], upper[j], self.n_points)
            column = np.sort(outputs[:, j])
            below = np.searchsorted(column, grid, side="left")
            above = len(column) - np.searchsorted(column, grid, side="right")
            place = choose_candidate(
                -np.maximum(below, above).astype(np.float64),
                sensitivity=1.0,
                epsilon=share,
                monotone=False,
                source=source,
            )
            found[j] = grid[place]
        return found, {"epsilon of each coordinate": share}

    def event(self, size: int, epsilon: float, delta: float) -> Event:
        """Return one choice for each coordinate."""
        return PureEvent(epsilon=_share_of_choices(epsilon, delta, size), count=size)

    def describe(self) -> str:
        """Return what is assumed of the outputs, in words."""
        return f"Medians are chosen from {self.n_points} points of a grid that was declared."


def subsample_aggregate(
    fit: Callable[..., Any],
    data: Sequence[Any],
    *,
    n_blocks: int,
    size: int,
    aggregator: Aggregator,
    epsilon: float,
    delta: float = 0.0,
    neighbours: Neighbours = "add_remove",
    least_records: int = LEAST_RECORDS,
    n_jobs: int | None = None,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Fit on disjoint blocks of the records and release a private middle of the ``size`` numbers.

    Parameters
    ----------
    fit : callable, public
        From the parts of ``data`` of one block to ``size`` numbers. Any function will do that can
        be pickled: every block gets a copy of its own, and global generators seeded for it, so
        what it does with a record touches one block only. Where it raises or returns something
        else, the aggregator's centre takes its place, unseen; so try it on public data first.
    data : sequence of arrays of equal length, curator-only
        The records.
    n_blocks, size : int, public
        Number of blocks, and of numbers that ``fit`` returns.
    aggregator : ClippedMean or GridMedian, public
        The private middle, with its declared bounds.
    least_records : int, public
        Refuse if blocks would have fewer records than this, where their number is public.
    n_jobs : int, optional
        Worker processes, through joblib.

    Guarantee
    ---------
    Claim DP-14. ``(epsilon, delta)``-differential privacy, whatever ``fit`` computes. Claim DP-17:
    what is refused is public.

    Examples
    --------
    >>> ages = np.random.default_rng(0).normal(40, 10, size=4000)
    >>> release = subsample_aggregate(
    ...     np.median, (ages,), n_blocks=200, size=1, epsilon=1.0,
    ...     aggregator=GridMedian(bounds=(0.0, 100.0)),
    ... )
    >>> bool(abs(release.value[0] - 40) < 2)
    True
    """
    check_promise(epsilon, delta, neighbours)
    lengths = {len(part) for part in data}
    if len(lengths) != 1:
        raise DataError("data must be arrays of equal length. Pass a tuple such as (X, y).")
    n_records = lengths.pop()
    source = read_source(simulate)
    seeds = draw_seeds(n_blocks, source)
    blocks = draw_blocks(
        n_records, n_blocks, neighbours=neighbours, source=source, least_records=least_records
    )
    centre = aggregator.centre(size)
    checked = _Checked(fit=fit, centre=centre)
    fits = map_blocks(checked, data, blocks, seeds=seeds, failed=centre, n_jobs=n_jobs)
    outputs = np.stack(fits)
    value, noise = aggregator.combine(outputs, epsilon, delta, source)
    certificate = DPCertificate(
        epsilon=float(epsilon),
        delta=float(delta),
        neighbours=neighbours,
        mechanism=f"subsample and aggregate over {n_blocks} blocks by {type(aggregator).__name__}",
        assumptions=(
            aggregator.describe(),
            "A block on which the fit fails counts as the centre of the outputs' range.",
            ALONE,
        ),
        accounting={"method": "one aggregation in which one block may change"},
        noise=noise,
        events=carried(aggregator.event(size, epsilon, delta)),
        simulation=source.is_simulation,
    )
    return DPRelease(value=value, certificate=certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """A fit, or the centre where it does not return numbers of the right size."""

    fit: Callable[..., Any]
    centre: Vector

    def __call__(self, *parts: Any) -> Vector:
        numbers = np.asarray(self.fit(*parts), dtype=np.float64).ravel()
        good = numbers.shape == self.centre.shape and bool(np.isfinite(numbers).all())
        return numbers.copy() if good else self.centre


def _share_of_choices(epsilon: float, delta: float, n_choices: int) -> float:
    """Return the ``ε`` of each of several pure choices that compose to the promise."""
    basic = epsilon / n_choices
    if delta == 0.0:
        return basic
    log = math.log(1.0 / delta)
    # ρ + 2 sqrt(ρ ln(1/δ)) = ε, each choice ε₀²/2 of ρ; rounded down.
    root = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
    return max(basic, math.sqrt(2.0 / n_choices) * root * (1 - 1e-12))
