"""PATE: teachers on disjoint records vote on public questions; noisy winners teach a student."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy

from pacprivacy._checks import Array, Integers, Vector
from pacprivacy._random import BitSource
from pacprivacy.dp import aggregate, noise
from pacprivacy.dp.accounting import accounting_noise_advantage
from pacprivacy.dp.certificate import DPRelease, Neighbours, check_neighbours
from pacprivacy.dp.events import gaussian_event, publish_event
from pacprivacy.dp.records import encode_record_labels, record_array
from pacprivacy.errors import BudgetError, DataError

CHECKS_SHARE: Final = 0.2  # of the squared parameter, for comparing counts with a threshold
ASSUMPTIONS: Final = (
    "A record is in the block of one teacher, so it changes one vote for each question.",
    aggregate.ALONE,
    "The questions are public and the classes were declared.",
)
ORDERS: Final = tuple(np.concatenate([np.linspace(1.25, 10, 36), np.arange(11.0, 200.0)]))


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
    least_records: int = aggregate.LEAST_RECORDS,
    n_jobs: int | None = None,
) -> Integers:
    """Train one teacher on each block of records and count their votes on public questions.

    A teacher is a clone with seeds of its own; one that cannot be trained votes for the first
    class. A record with a label that was not declared is left out. The votes, of shape
    (n_questions, n_classes), are curator-only; a record changes those of one teacher. Where the
    number of records is public, fewer than ``least_records`` for each are refused.

    Guarantee
    ---------
    Claims DP-14 and DP-17. A teacher's votes are a function of its records and its seed; what is
    refused is public.
    """
    features = record_array(X)
    codes = encode_record_labels(y, tuple(classes), len(features))
    asked = np.asarray(questions)
    if asked.ndim != 2 or asked.shape[0] == 0 or asked.shape[1:] != features.shape[1:]:
        raise DataError(
            f"questions must have the features of X, {features.shape[1:]}; got shape "
            f"{asked.shape}. Pass public rows of the same columns."
        )
    seeds = aggregate.draw_aggregate_seeds(n_teachers, source)
    blocks = aggregate.draw_aggregate_blocks(
        len(features),
        n_teachers,
        neighbours=neighbours,
        source=source,
        least_records=least_records,
    )
    teach = _Teach(estimator=estimator, questions=asked, n_classes=len(classes))
    default = np.zeros(len(asked), dtype=np.int64)
    answers = aggregate.map_aggregate_blocks(
        teach, (features, codes), blocks, seeds=seeds, failed=default, n_jobs=n_jobs
    )
    votes = np.zeros((len(asked), len(classes)), dtype=np.int64)
    for answer in answers:
        votes[np.arange(len(asked)), answer] += 1
    return votes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Teach:
    """Train one teacher and let it answer; a class of its own so that workers can load it."""

    estimator: Any
    questions: Array
    n_classes: int

    def __call__(self, features: Array, codes: Integers) -> Integers:
        known = codes >= 0
        features, codes = features[known], codes[known]
        if len(np.unique(codes)) == 1:
            return np.full(len(self.questions), codes[0], dtype=np.int64)
        answer = aggregate.fit_aggregate_block(self.estimator, features, codes).predict(
            self.questions
        )
        one_each = np.asarray(answer, dtype=np.int64).reshape(len(self.questions))
        return np.clip(one_each, 0, self.n_classes - 1)


def label_by_votes(
    votes: Integers,
    *,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release, for every question, the place of the class with the most votes after noise.

    A record can change one vote for every question; the promise is about all of them together. A
    student that learns from public questions and these answers costs nothing more.

    Guarantee
    ---------
    Claim DP-15. ``(epsilon, delta)``-differential privacy, whatever the votes are.

    Examples
    --------
    >>> votes = np.array([[95, 5], [10, 90]])
    >>> label_by_votes(votes, epsilon=2.0, delta=1e-6, neighbours="replace", simulate=0).value
    array([0, 1])
    """
    check_neighbours(neighbours)
    counts = _read_votes(votes)
    parameter = noise.dp_noise_parameter(epsilon, delta, counts.size)
    source = noise.dp_noise_source(simulate)
    reach = math.sqrt(2.0 * len(counts)) * (1 + 1e-12)
    noisy = noise.add_gaussian(
        counts.astype(np.float64), sensitivity=reach, parameter=parameter, source=source
    )
    return publish_event(
        np.argmax(noisy.values, axis=1),
        (epsilon, delta, neighbours),
        gaussian_event(parameter, counts.size),
        simulation=source.is_simulation,
        advantage=accounting_noise_advantage(epsilon, delta, counts.size),
        mechanism=f"PATE: {len(counts)} questions answered by noisy majorities",
        assumptions=ASSUMPTIONS,
        accounting={"method": "one Gaussian mechanism for all votes", "questions": len(counts)},
        noise={"std of votes": noisy.noise_std},
    )


def label_by_confident_votes(
    votes: Integers,
    *,
    threshold: float,
    n_answers: int,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release labels of the first ``n_answers`` questions on which the teachers seem to agree.

    Confident-GNMax (Papernot et al. 2018). The largest count of every question gets noise and is
    compared with the threshold; where it is above, the majority is asked for, with less noise,
    since few questions are answered. The value holds places of classes, and -1 for no answer.

    Parameters
    ----------
    threshold : float, public
        In votes; about six tenths of the teachers.
    n_answers : int, public
        At most so many questions are answered; they are paid for whether there are so many or not.

    Guarantee
    ---------
    Claim DP-32. ``(epsilon, delta)``-differential privacy, whatever the votes are; that a question
    got no answer is covered too.

    Examples
    --------
    >>> votes = np.array([[980, 20], [520, 480], [30, 970]])
    >>> label_by_confident_votes(
    ...     votes, threshold=700, n_answers=2, epsilon=2.0, delta=1e-6, neighbours="replace",
    ...     simulate=0,
    ... ).value
    array([ 0, -1,  1])
    """
    check_neighbours(neighbours)
    counts = _read_votes(votes)
    noise.check_count("n_answers", n_answers)
    if not math.isfinite(threshold):
        raise BudgetError(f"threshold must be a finite number of votes; got {threshold!r}.")
    n_answers = min(n_answers, len(counts))
    n_numbers = len(counts) + n_answers * counts.shape[1]
    parameter = noise.dp_noise_parameter(epsilon, delta, n_numbers)
    source = noise.dp_noise_source(simulate)
    checked = noise.add_gaussian(
        counts.max(axis=1).astype(np.float64),
        sensitivity=math.sqrt(len(counts)) * (1 + 1e-12),
        parameter=parameter * math.sqrt(CHECKS_SHARE) * (1 - 1e-12),
        source=source,
    )
    chosen = np.flatnonzero(checked.values >= threshold)[:n_answers]
    asked = np.zeros((n_answers, counts.shape[1]))
    asked[: len(chosen)] = counts[chosen]
    noisy = noise.add_gaussian(
        asked,
        sensitivity=math.sqrt(2.0 * n_answers) * (1 + 1e-12),
        parameter=parameter * math.sqrt(1.0 - CHECKS_SHARE) * (1 - 1e-12),
        source=source,
    )
    labels = np.full(len(counts), -1, dtype=np.int64)
    labels[chosen] = np.argmax(noisy.values, axis=1)[: len(chosen)]
    return publish_event(
        labels,
        (epsilon, delta, neighbours),
        gaussian_event(parameter, n_numbers),
        simulation=source.is_simulation,
        advantage=accounting_noise_advantage(epsilon, delta, n_numbers),
        mechanism=(
            f"PATE: at most {n_answers} of {len(counts)} questions answered by noisy majorities, "
            f"those with a noisy count of at least {threshold:g}"
        ),
        assumptions=ASSUMPTIONS,
        accounting={
            "method": "one Gaussian mechanism for checks and votes",
            "questions": len(counts),
            "answers": n_answers,
        },
        noise={"std of checks": checked.noise_std, "std of votes": noisy.noise_std},
    )


def _read_votes(votes: Integers) -> Integers:
    counts = np.asarray(votes)
    if counts.ndim != 2 or counts.shape[1] < 2 or counts.dtype.kind not in "iu":
        raise DataError(
            f"votes must be whole numbers of shape (n_questions, n_classes); got {counts.shape} "
            f"and dtype {counts.dtype}. Use count_pate_votes."
        )
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDependentLoss:
    """The privacy loss for the votes that were cast; curator-only, because they are private.

    ``epsilon`` is by the data-dependent analysis, never above ``independent_epsilon``, which holds
    for any votes, as the certificate counts it.
    """

    epsilon: float
    delta: float
    independent_epsilon: float

    def __str__(self) -> str:
        return (
            f"ε = {self.epsilon:.4g} at δ = {self.delta:g} for these votes (any votes: "
            f"{self.independent_epsilon:.4g}). This figure depends on the\nrecords and is not "
            "private itself: do not publish it."
        )


def pate_data_dependent_loss(
    votes: Integers, *, noise_std: float, delta: float
) -> DataDependentLoss:
    """Account for answers by how clear the majorities were (Papernot et al. 2018).

    Not a promise: the figure itself depends on the records.

    Guarantee
    ---------
    Claim DP-16. A bound on the Rényi loss at these records and any neighbour; ``epsilon`` is at
    most that of the certificate that promised these answers.
    """
    from dp_accounting.rdp import compute_epsilon  # slow to import, not always needed

    if not noise_std >= 1e-6 or not 0.0 < delta < 1.0:
        raise BudgetError(
            f"noise_std must be positive and delta in (0, 1); got {noise_std!r} and {delta!r}. "
            "Take them from the certificate."
        )
    counts = np.asarray(votes, dtype=np.int64)
    orders = np.array(ORDERS)
    flat = orders / noise_std**2
    total = np.zeros(len(orders))
    for row in np.asarray(counts):
        total += np.minimum(flat, _renyi_of_majority(_chance_of_upset(row, noise_std), noise_std))
    found = float(compute_epsilon(orders, total, delta)[0])
    # Not by Rényi divergences: they give more than the exact curve that the noise came from.
    reach = math.sqrt(2.0 * len(counts))
    independent = noise.dp_noise_epsilon(reach / noise_std, delta, counts.size)
    return DataDependentLoss(
        epsilon=min(found, independent), delta=float(delta), independent_epsilon=independent
    )


def _chance_of_upset(row: Integers, noise_std: float) -> float:
    """Return a bound on the probability that the winner of the votes does not win."""
    winner = int(np.argmax(row))
    gaps = row[winner] - np.delete(row, winner)
    chance = 0.5 * float(scipy.special.erfc(gaps / (2.0 * noise_std)).sum())
    # Discrete noise is within this total variation of a rounded continuous one, and rounding can
    # make a tie of a small difference.
    tie = len(gaps) / (noise_std * math.sqrt(4.0 * math.pi)) * noise_std / noise.UNITS_PER_SCALE
    return min(1.0, chance + tie + len(row) / (16.0 * float(noise.UNITS_PER_SCALE) ** 2))


def _renyi_of_majority(upset: float, noise_std: float) -> Vector:
    """Return the Rényi bound at ``ORDERS`` for an outcome with this chance of not being shown."""
    orders = np.array(ORDERS)
    none: Vector = np.full(len(orders), np.inf)
    if not 0.0 < upset < 1.0:
        return none
    second = noise_std * math.sqrt(math.log(1.0 / upset))
    first = second + 1.0
    if second <= 1.0:
        return none
    loss_1, loss_2 = first / noise_std**2, second / noise_std**2
    log_limit = (second - 1.0) * loss_2 - second * (
        math.log(first / (first - 1.0)) + math.log(second / (second - 1.0))
    )
    if math.log(upset) > log_limit:
        return none
    inner = (math.log(upset) + loss_2) * (second - 1.0) / second
    if inner >= 0.0:
        return none
    log_a = math.log1p(-upset) - math.log1p(-math.exp(inner))
    log_b = loss_1 - math.log(upset) / (first - 1.0)
    both = np.logaddexp(
        math.log1p(-upset) + (orders - 1.0) * log_a, math.log(upset) + (orders - 1.0) * log_b
    )
    return np.where(orders <= first, both / (orders - 1.0), np.inf)
