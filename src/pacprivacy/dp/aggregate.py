"""Fits on disjoint blocks of records: a private middle of them, or their votes (PATE).

A fit may draw from global generators, keep state between calls, warn or fail. Every block therefore
gets a copy of the fit as it was handed over, and global generators seeded for this block by the
secret source: the result is a function of the block's records and of its seed. A teacher of PATE is
such a fit: teachers vote on public questions, and noisy winners teach a student.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import cloudpickle
import numpy as np

from pacprivacy._checks import Array, Integers, Mask, Matrix, Vector, check_positive
from pacprivacy._random import BitSource, own_generators
from pacprivacy.dp.accounting import accounting_noise_advantage
from pacprivacy.dp.certificate import DPRelease, Neighbours, check_neighbours
from pacprivacy.dp.events import Event, PureEvent, noise_event, publish_event
from pacprivacy.dp.mechanisms import choose_quantile
from pacprivacy.dp.noise import (
    add_gaussian,
    add_noise,
    check_dp_noise_promise,
    dp_noise_parameter,
    dp_noise_source,
)
from pacprivacy.dp.records import encode_record_labels, record_array, sum_clipped
from pacprivacy.errors import BudgetError, DataError, MechanismError
from pacprivacy.noise import uniform_lattice_integers

LEAST_RECORDS: Final = 2
ALONE: Final = (
    "A record is in one block. The fit of a block depends on its records and on a seed of its own: "
    "NumPy's and Python's global generators are seeded for every block, and each one gets a fresh "
    "copy of the fit, which keeps no other state between blocks."
)


def draw_aggregate_blocks(
    n_records: int, n_blocks: int, *, neighbours: Neighbours, source: BitSource
) -> tuple[list[Integers], list[int]]:
    """Draw which records are in which block, and a seed for each block (claim DP-14)."""
    check_neighbours(neighbours)
    if n_blocks < 2:
        raise DataError(f"n_blocks must be at least 2; got {n_blocks}. Use about 50.")
    words = source.words(2 * n_blocks).tolist()
    seeds = [low | high << 64 for low, high in zip(words[::2], words[1::2], strict=True)]
    if neighbours == "add_remove":
        chosen = uniform_lattice_integers(np.full(n_records, n_blocks, dtype=np.int64), source)
    else:
        if n_records < n_blocks * LEAST_RECORDS:
            raise DataError(
                f"n_blocks must leave {LEAST_RECORDS} or more records for each; got {n_blocks} "
                f"blocks of {n_records} records. Use fewer blocks."
            )
        order = np.argsort(source.words(n_records), kind="stable")
        chosen = np.empty(n_records, dtype=np.int64)
        chosen[order] = np.arange(n_records) % n_blocks
    return [np.flatnonzero(chosen == block) for block in range(n_blocks)], seeds


def map_aggregate_blocks(
    fit: Callable[..., Any],
    data: Sequence[Any],
    blocks: Sequence[Integers],
    *,
    seeds: Sequence[int],
    failed: Any,
    n_jobs: int | None = None,
) -> list[Any]:
    """Run ``fit`` on the records of every block (claim DP-14); where it fails, return ``failed``.

    That a block fails depends on its records: neither an error nor a warning must show it.
    """
    from joblib import Parallel, delayed, effective_n_jobs

    packed = _pack(fit)
    parts = [record_array(part) for part in data]
    calls = (
        (packed, tuple(part[rows] for part in parts), seed, failed)
        for rows, seed in zip(blocks, seeds, strict=True)
    )
    if effective_n_jobs(n_jobs) == 1:
        return [_run(*call) for call in calls]
    return list(Parallel(n_jobs=n_jobs, backend="loky")(delayed(_run)(*call) for call in calls))


def fit_aggregate_block(estimator: Any, rows: Array, target: Array) -> Any:
    """Fit a clone with the block's own seeds; without odd records, where it refuses them."""
    try:
        return _seeded_clone(estimator).fit(rows, target)
    except Exception:
        finite = _finite_records(rows) & _finite_records(target)
        if finite.all():
            raise
    return _seeded_clone(estimator).fit(rows[finite], target[finite])


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


def _finite_records(part: Array) -> Mask:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanAggregator:
    """The mean of vectors that are scaled down to length ``clip_norm``, with noise.

    The length is Euclidean, or the sum of absolute entries where ``delta`` is 0.
    """

    clip_norm: float

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm, advice="Use a length outputs rarely exceed.")

    def center(self, size: int) -> Vector:
        return np.zeros(size)

    def combine(
        self, outputs: Matrix, epsilon: float, delta: float, source: BitSource
    ) -> tuple[Vector, dict[str, float], Event]:
        k, reach = len(outputs), 2.0 * self.clip_norm
        total = sum_clipped(outputs, clip_norm=self.clip_norm, norm="l2" if delta else "l1")
        noisy = add_noise(total, sensitivity=reach, epsilon=epsilon, delta=delta, source=source)
        event = noise_event(epsilon, delta, outputs.shape[1])
        return np.asarray(noisy.values / k), {"std": noisy.noise_std / k}, event

    def describe(self) -> str:
        return f"Each block's output is scaled down to length {self.clip_norm:g}."


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianAggregator:
    """Points of a declared grid near the medians; ``bounds`` are its ends, for all or for each."""

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

    def center(self, size: int) -> Vector:
        return np.asarray(np.broadcast_to(np.add(*self.bounds) / 2.0, (size,)))

    def combine(
        self, outputs: Matrix, epsilon: float, delta: float, source: BitSource
    ) -> tuple[Vector, dict[str, float], Event]:
        size = outputs.shape[1]
        lower, upper = (np.broadcast_to(end, (size,)) for end in self.bounds)
        share = _share_of_choices(epsilon, delta, size)
        medians = np.empty(size)
        for j in range(size):
            medians[j] = choose_quantile(
                outputs[:, j],
                np.linspace(lower[j], upper[j], self.n_points),
                0.5,
                epsilon=share,
                neighbours="replace",  # one block's output may be any other
                source=source,
            )
        event = PureEvent(epsilon=share, count=size)
        return medians, {"epsilon of each coordinate": share}, event

    def describe(self) -> str:
        return f"Medians are chosen from {self.n_points} points of a grid that was declared."


Aggregator: TypeAlias = MeanAggregator | MedianAggregator


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
    n_jobs: int | None = None,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Fit on disjoint blocks of the records and release a private middle of the ``size`` numbers.

    Parameters
    ----------
    fit : callable, public
        From the parts of ``data`` of one block to ``size`` numbers. Any function will do that can
        be pickled: every block gets a separate copy, and global generators seeded for it. Where
        it raises or returns something else, the aggregator's centre takes its place, unseen.
    data : sequence of arrays of equal length, curator-only
        The records.
    aggregator : MeanAggregator or MedianAggregator, public
        The private middle, with its declared bounds.
    n_jobs : int, optional
        Worker processes, through joblib.

    Guarantee
    ---------
    Claims DP-14 and DP-17. ``(epsilon, delta)``-differential privacy, whatever ``fit`` computes.
    """
    check_dp_noise_promise(epsilon, delta, neighbours)
    lengths = {len(part) for part in data}
    if len(lengths) != 1:
        raise DataError("data must be arrays of equal length. Pass a tuple such as (X, y).")
    n_records = lengths.pop()
    source = dp_noise_source(simulate)
    blocks, seeds = draw_aggregate_blocks(n_records, n_blocks, neighbours=neighbours, source=source)
    center = aggregator.center(size)

    def checked(*parts: Any) -> Vector:
        numbers = np.asarray(fit(*parts), dtype=np.float64).ravel()
        good = numbers.shape == center.shape and bool(np.isfinite(numbers).all())
        return numbers.copy() if good else center

    fits = map_aggregate_blocks(checked, data, blocks, seeds=seeds, failed=center, n_jobs=n_jobs)
    value, noise, event = aggregator.combine(np.stack(fits), epsilon, delta, source)
    return publish_event(
        value,
        (epsilon, delta, neighbours),
        event,
        simulation=source.is_simulation,
        mechanism=f"subsample and aggregate over {n_blocks} blocks by {type(aggregator).__name__}",
        assumptions=(
            aggregator.describe(),
            "A block on which the fit fails counts as the centre of the outputs' range.",
            ALONE,
        ),
        accounting={"method": "one aggregation in which one block may change"},
        noise=noise,
    )


def _share_of_choices(epsilon: float, delta: float, n_choices: int) -> float:
    """Return the ``ε`` of each of several pure choices that compose to the promise."""
    basic = epsilon / n_choices
    if delta == 0.0:
        return basic
    log = math.log(1.0 / delta)
    # ρ + 2 sqrt(ρ ln(1/δ)) = ε, each choice ε₀²/2 of ρ; rounded down.
    root = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
    return max(basic, math.sqrt(2.0 / n_choices) * root * (1 - 1e-12))


def count_pate_votes(
    estimator: Any,
    X: Any,
    y: Any,
    questions: Any,
    *,
    classes: Sequence[Any],
    n_teachers: int,
    neighbours: Neighbours,
    source: BitSource,
    n_jobs: int | None = None,
) -> Integers:
    """Train one teacher on each block of records and count their votes on public questions.

    A teacher that cannot be trained votes for the first class; a record with a label that was not
    declared is left out. The votes, of shape (n_questions, n_classes), are curator-only.

    Guarantee
    ---------
    Claims DP-14 and DP-17. A teacher's votes are a function of its records and its seed; a record
    changes those of one teacher; refusals are public.
    """
    features = record_array(X)
    codes = encode_record_labels(y, tuple(classes), len(features))
    public_rows = np.asarray(questions)
    if (
        public_rows.ndim != 2
        or public_rows.shape[0] == 0
        or public_rows.shape[1:] != features.shape[1:]
    ):
        raise DataError(
            f"questions must have the features of X, {features.shape[1:]}; got shape "
            f"{public_rows.shape}. Pass public rows of the same columns."
        )
    blocks, seeds = draw_aggregate_blocks(
        len(features), n_teachers, neighbours=neighbours, source=source
    )

    def teach(features: Array, codes: Integers) -> Integers:
        known = codes >= 0
        features, codes = features[known], codes[known]
        if len(np.unique(codes)) == 1:
            return np.full(len(public_rows), codes[0], dtype=np.int64)
        answer = fit_aggregate_block(estimator, features, codes).predict(public_rows)
        one_each = np.asarray(answer, dtype=np.int64).reshape(len(public_rows))
        return np.clip(one_each, 0, len(classes) - 1)

    default = np.zeros(len(public_rows), dtype=np.int64)
    answers = map_aggregate_blocks(
        teach, (features, codes), blocks, seeds=seeds, failed=default, n_jobs=n_jobs
    )
    votes = np.zeros((len(public_rows), len(classes)), dtype=np.int64)
    for answer in answers:
        votes[np.arange(len(public_rows)), answer] += 1
    return votes


def label_by_votes(
    votes: Integers,
    *,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release, for every question, the place of the class with the most votes after noise.

    A student that learns from public questions and these answers costs nothing more.

    Guarantee
    ---------
    Claim DP-15. ``(epsilon, delta)``-differential privacy of all answers, whatever the votes are.
    """
    check_neighbours(neighbours)
    counts = np.asarray(votes)
    if counts.ndim != 2 or counts.shape[1] < 2 or counts.dtype.kind not in "iu":
        raise DataError(
            f"votes must be whole numbers of shape (n_questions, n_classes); got {counts.shape} "
            f"and dtype {counts.dtype}. Use count_pate_votes."
        )
    parameter = dp_noise_parameter(epsilon, delta, counts.size)
    source = dp_noise_source(simulate)
    reach = math.sqrt(2.0 * len(counts)) * (1 + 1e-12)
    noisy = add_gaussian(
        counts.astype(np.float64), sensitivity=reach, parameter=parameter, source=source
    )
    return publish_event(
        np.argmax(noisy.values, axis=1),
        (epsilon, delta, neighbours),
        noise_event(epsilon, delta, counts.size),
        simulation=source.is_simulation,
        advantage=accounting_noise_advantage(epsilon, delta, counts.size),
        mechanism=f"PATE: {len(counts)} questions answered by noisy majorities",
        assumptions=(
            "A record is in the block of one teacher, so it changes one vote for each question.",
            ALONE,
            "The questions are public and the classes were declared.",
        ),
        accounting={"method": "one Gaussian mechanism for all votes", "questions": len(counts)},
        noise={"std of votes": noisy.noise_std},
    )
