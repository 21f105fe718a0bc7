"""The inner loops of many answers about one secret: calibrate, draw, release, update the belief.

Each question is a release of its own, calibrated to the belief that all earlier answers leave.
Nothing here is kept: the caller takes over the belief when the answers leave, or never.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_log_belief, freeze
from pacprivacy._random import BitSource
from pacprivacy.noise.calibrate import distinct_outputs
from pacprivacy.noise.query import (
    UNITS,
    UnitNoise,
    plan_query,
    usable_nats,
    vote_charge,
    vote_gap,
)
from pacprivacy.theory.information import binary_entropy

__all__ = ["Answered", "ScoreQuestions", "VoteQuestions", "unanimous"]

Labels = npt.NDArray[np.integer]
Mask = npt.NDArray[np.bool_]

_BLOCK = 4096  # questions whose votes are unpacked at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What left, what it cost, and the belief of whoever saw it.

    Attributes
    ----------
    values : array of shape (q, c), public
        One released vector per question.
    charges : array of shape (q,), public
        Proved bound on the information of each, in nats.
    log_p : array of shape (m,)
        Log belief over the candidates after the last answer.
    """

    values: Matrix
    charges: Vector
    log_p: Vector

    def __post_init__(self) -> None:
        for array in (self.values, self.charges, self.log_p):
            freeze(array)


def unanimous(table: npt.NDArray[np.generic]) -> Mask:
    """Return which questions all candidates answer alike; shape (m, q, ...) in, (q,) out."""
    same = table == table[:1]
    agree: Mask = same.reshape(len(table), table.shape[1], -1).all(axis=(0, 2))
    return agree


class VoteQuestions:
    """Two-class votes: one direction, so noise, charge and belief have closed forms.

    Parameters
    ----------
    votes : array of shape (m, q) of 0 and 1, curator-only
        What every candidate answers to every question.
    log_p : array of shape (m,)
        Log belief before the first question.
    query_nats : float, public
        Budget of every question.
    """

    def __init__(
        self, votes: Labels, log_p: Vector, query_nats: float, noise: UnitNoise | None = None
    ) -> None:
        self._votes, self._log_p, self._noise = votes, log_p, noise
        self._budget = query_nats

    def observe(self, index: int, source: BitSource) -> Answered:
        """Answer every question from candidate ``index``."""
        noise = UnitNoise(source) if self._noise is None else self._noise
        n_subsets, n_questions = self._votes.shape
        answers = self._votes[index].astype(np.float64)
        charges = np.zeros(n_questions)
        costly = np.flatnonzero(~unanimous(self._votes))
        log_p = self._log_p.copy()
        for start in range(0, len(costly), _BLOCK):
            block = costly[start : start + _BLOCK]
            log_p = check_log_belief(log_p, n_subsets)
            _answer_votes(
                np.ascontiguousarray(self._votes[:, block].T, dtype=np.float64),
                self._votes[index, block].tolist(),
                noise.take(len(block)).tolist(),
                log_p,
                self._budget,
                (answers, charges, block),
            )
        values = np.stack([1.0 - answers, answers], axis=1)
        return Answered(values=values, charges=charges, log_p=check_log_belief(log_p, n_subsets))


def _answer_votes(
    rows: Matrix,
    mine: list[int],
    noise: list[int],
    log_p: Vector,
    budget: float,
    out: tuple[Vector, Vector, npt.NDArray[np.int64]],
) -> None:
    """Answer a block of two-class questions; ``log_p`` and ``out`` are written to."""
    answers, charges, where = out
    usable, slack = usable_nats(budget, n_directions=1, n_subsets=len(log_p))
    others = 1.0 - rows
    belief, scratch = np.exp(log_p), np.empty(len(log_p))
    for i, (vote, drawn) in enumerate(zip(mine, noise, strict=True)):
        row = rows[i]
        ones, zeros = float(belief @ row), float(belief @ others[i])
        least = min(ones, zeros)
        # The entropy of the vote is at least ``least``, so this asks for it only when it may pay.
        if least <= budget and (nats := _vote_entropy(least)) <= budget:
            answers[where[i]], charges[where[i]] = vote, nats
            if least > 0:
                np.copyto(log_p, -np.inf, where=row != vote)
                log_p -= math.log(ones if vote else zeros)
                np.exp(log_p, out=belief)
            continue
        gap = vote_gap(ones, zeros, usable)
        charges[where[i]] = vote_charge(ones, zeros, gap, slack)
        seen = gap * vote + drawn
        answers[where[i]] = seen / gap
        # ln of the likelihood ratio of a vote of one to a vote of zero, in exact integers
        ratio = gap * (2 * seen - gap) / (2 * UNITS * UNITS)
        np.multiply(row, ratio, out=scratch)
        log_p += scratch
        log_p -= _log_mix(zeros, ones, ratio)
        np.exp(log_p, out=belief)


def _vote_entropy(least: float) -> float:
    return binary_entropy(min(max(least, 0.0), 0.5))


def _log_mix(zeros: float, ones: float, ratio: float) -> float:
    """Return ``ln(zeros + ones e^ratio)`` without overflow."""
    if ratio > 0:
        return ratio + math.log(zeros * math.exp(-ratio) + ones)
    return math.log(zeros + ones * math.exp(ratio))


class ScoreQuestions:
    """Vectors as answers: class probabilities, or votes among several classes.

    Parameters
    ----------
    table : array, curator-only
        Class probabilities of shape (m, q, c), or labels of shape (m, q) with ``n_classes``.
    log_p, query_nats
        As in :class:`VoteQuestions`.
    n_classes : int, optional
        Number of classes, where the table holds labels.
    """

    def __init__(
        self,
        table: npt.NDArray[np.generic],
        log_p: Vector,
        query_nats: float,
        noise: UnitNoise | None = None,
        *,
        n_classes: int | None = None,
    ) -> None:
        self._table, self._log_p, self._noise = table, log_p, noise
        self._budget, self._n_classes = query_nats, n_classes

    def observe(self, index: int, source: BitSource) -> Answered:
        """Answer every question from candidate ``index``."""
        noise = UnitNoise(source) if self._noise is None else self._noise
        n_questions = self._table.shape[1]
        free = unanimous(self._table)
        values = np.array([self._outputs(i)[0][self._group(i, index)] for i in range(n_questions)])
        charges, log_p = np.zeros(n_questions), self._log_p.copy()
        for i in np.flatnonzero(~free).tolist():
            outputs, groups = self._outputs(i)
            values[i], charges[i], log_p = self._answer(outputs, groups, index, log_p, noise)
        return Answered(values=values, charges=charges, log_p=log_p)

    def _outputs(self, i: int) -> tuple[Matrix, Labels]:
        """Return the possible outputs of question ``i``, and which one each candidate gives."""
        if self._n_classes is None:
            return np.asarray(self._table[:, i], dtype=np.float64), np.arange(len(self._log_p))
        return np.eye(self._n_classes), np.asarray(self._table[:, i], dtype=np.int64)

    def _group(self, i: int, index: int) -> int:
        return index if self._n_classes is None else int(np.asarray(self._table[index, i]))

    def _answer(
        self, outputs: Matrix, groups: Labels, index: int, log_p: Vector, noise: UnitNoise
    ) -> tuple[Vector, float, Vector]:
        belief = np.exp(log_p)
        totals = np.bincount(groups, belief, minlength=len(outputs)).astype(np.float64)
        mass: Vector = totals / totals.sum()
        exact = _as_it_is(outputs, mass, self._budget)
        if exact is not None:
            classes, nats = exact
            told = log_p.copy()
            told[classes[groups] != classes[groups[index]]] = -np.inf
            return outputs[groups[index]], nats, check_log_belief(told, len(log_p))
        plan = plan_query(outputs, mass, mi_nats=self._budget, n_subsets=len(log_p))
        seen = plan.points[groups[index]] + noise.take(plan.points.shape[1])
        learned = log_p + plan.log_likelihood(seen)[groups]
        return plan.value_of(seen), plan.charge, check_log_belief(learned, len(log_p))


def _as_it_is(
    outputs: Matrix, mass: Vector, budget: float
) -> tuple[npt.NDArray[np.int64], float] | None:
    """Return distinct outputs and their entropy if the budget covers it, else None."""
    top = int(np.argmax(mass))
    rest = float(mass[(outputs != outputs[top]).any(axis=1)].sum())
    if min(rest, 1.0 - rest) > budget:  # the entropy of "this output or another" is larger still
        return None
    with np.errstate(divide="ignore"):
        classes, nats = distinct_outputs(outputs, np.log(mass))
    return (classes, nats) if nats <= budget else None
