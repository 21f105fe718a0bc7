"""One secret candidate answers questions, under a budget per question and one in total."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Vector, freeze
from pacprivacy._random import BitSource, ProcessBound
from pacprivacy.accounting.answering import Answered, ScoreQuestions, VoteQuestions, unanimous
from pacprivacy.adversary import Belief
from pacprivacy.errors import BudgetError, BudgetExceededError, MechanismError, SecretError
from pacprivacy.noise.query import LEAST_NATS, UnitNoise
from pacprivacy.pool import Pool
from pacprivacy.release import Secret
from pacprivacy.theory.posterior import posterior_success

__all__ = ["AnswerOdometer", "Responder"]

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOdometer:
    """What the answers cost in the worst case, and what they really gave away so far.

    Attributes
    ----------
    n_queries, n_free : int
        Questions answered, and how many of them all candidates answered alike.
    spent_nats, total_nats : float
        Sum of the proved bounds of the answers so far, and what it may become.
    success_bound : float
        No attacker guesses a unit's membership with success above this, on average over secrets
        and noise, whatever is asked and whenever one stops: the bound at ``total_nats``. What was
        spent so far gives none, because where one stands depends on the answers.
    learned_nats : float
        ``KL(belief || uniform)`` in this transcript.
    best_guess_now : float
        Success of the optimal attacker on the worst-placed unit, given this transcript.
    mean_guess_now : float
        The same, averaged over the units.
    belief : array of shape (m,)
        The optimal attacker's posterior over the candidates.
    """

    n_queries: int
    n_free: int
    spent_nats: float
    total_nats: float
    success_bound: float
    learned_nats: float
    best_guess_now: float
    mean_guess_now: float
    belief: Vector = field(repr=False)

    def __post_init__(self) -> None:
        freeze(self.belief)


class Responder(ProcessBound):
    """Answers of one secret candidate, with the attacker's belief tracked over all of them.

    Parameters
    ----------
    pool : Pool
        The candidates. The secret is drawn here.
    query_nats, total_nats : float, public
        Budget of each question, and of all of them.
    source : BitSource
        The operating system for real answers.

    Guarantee
    ---------
    Claim F-2. ``MI(secret; all answers) <= E[Σ charges] <= total_nats``, whatever is asked in
    whatever order, also when a question depends on earlier answers.
    Claim R-4. In a fork nothing is answered or spent.

    Examples
    --------
    >>> from pacprivacy._random import SystemSource
    >>> from pacprivacy.pool import Balanced
    >>> pool = Balanced(n_subsets=8).draw(20, rng=0)
    >>> responder = Responder(pool, query_nats=0.01, total_nats=1.0, source=SystemSource())
    >>> votes = np.array([[0, 1, 1], [0, 1, 1], [0, 1, 1], [0, 1, 1]] * 2)
    >>> responder.answer_votes(votes, n_classes=2).argmax(axis=1).tolist()
    [0, 1, 1]
    >>> responder.odometer().spent_nats
    0.0
    """

    KIND = "a responder"
    INSTEAD = "Save the answers, or a model that was trained on them."

    def __init__(
        self, pool: Pool, *, query_nats: float, total_nats: float, source: BitSource
    ) -> None:
        if not LEAST_NATS <= query_nats <= total_nats:
            raise BudgetError(
                f"query_nats must be at least 2**-44 and at most the total ({total_nats:.6g}); "
                f"got {query_nats!r}. Use 2**-20."
            )
        self._pool, self._query_nats, self._total_nats = pool, query_nats, total_nats
        self._source, self._noise = source, UnitNoise(source)
        self._belief = Belief.uniform(pool.n_subsets)
        self._secret: Secret | None = Secret(pool.n_subsets, source)
        self._spent, self._n_queries, self._n_free = 0.0, 0, 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Responder({self._n_queries} answers, {self._spent:.4g} nats spent)"

    def close(self) -> None:
        """Forget the secret; no further answer is possible."""
        self._secret = None

    @property
    def belief(self) -> Belief:
        """What whoever saw all answers believes about the secret."""
        return self._belief

    @property
    def n_free(self) -> int:
        """Answers that cost nothing."""
        return self._n_free

    @property
    def spent_nats(self) -> float:
        """Sum of the charges so far."""
        return self._spent

    @property
    def left_nats(self) -> float:
        """What is left of the total."""
        return max(0.0, self._total_nats - self._spent)

    def answer_votes(self, labels: npt.NDArray[Any], *, n_classes: int) -> npt.NDArray[np.float64]:
        """Release one noisy one-hot vote per question.

        Parameters
        ----------
        labels : integer array of shape (m, q), curator-only
            Class number that each candidate gives to each question.
        n_classes : int
            Number of classes.

        Returns
        -------
        array of shape (q, n_classes)

        Raises
        ------
        BudgetExceededError
            If the total might not cover all of the questions; nothing is drawn or spent.
        """
        table = self._check(labels, n_axes=2)
        if table.size and (table.dtype.kind not in "iu" or not 0 <= table.min() <= table.max()):
            raise MechanismError(
                f"labels must be class numbers; got dtype {table.dtype}. Encode the classes."
            )
        if table.size and table.max() >= n_classes:
            raise MechanismError(
                f"labels must be below n_classes ({n_classes}); got a larger one. Count again."
            )
        with self._lock:
            state = (self._belief.log_p, self._query_nats, self._noise)
            if n_classes == 2:
                return self._release(table, VoteQuestions(table, *state))
            return self._release(table, ScoreQuestions(table, *state, n_classes=n_classes))

    def answer_scores(self, scores: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Release one noisy vector of class probabilities per question.

        ``scores`` has shape (m, q, n_classes). See :meth:`answer_votes`.
        """
        table = self._check(scores, n_axes=3).astype(np.float64, copy=False)
        if not np.isfinite(table).all():
            raise MechanismError(
                "scores must be finite; got NaN or infinite entries. Use models that always answer."
            )
        with self._lock:
            state = (self._belief.log_p, self._query_nats, self._noise)
            return self._release(table, ScoreQuestions(table, *state))

    def odometer(self) -> AnswerOdometer:
        """Return what was spent in the worst case and what was really learned."""
        success = self._belief.success_per_unit(self._pool)
        prior = self._pool.worst_prior
        return AnswerOdometer(
            n_queries=self._n_queries,
            n_free=self._n_free,
            spent_nats=self._spent,
            total_nats=self._total_nats,
            success_bound=posterior_success(self._total_nats, prior),
            learned_nats=self._belief.learned_nats,
            best_guess_now=float(success.max()),
            mean_guess_now=float(success.mean()),
            belief=np.exp(self._belief.log_p),
        )

    def _check(self, table: npt.NDArray[Any], *, n_axes: int) -> npt.NDArray[Any]:
        self.check_process()  # and not only below: a fork may have inherited a lock that is held
        array = np.asarray(table)
        if array.ndim != n_axes or len(array) != self._pool.n_subsets:
            raise MechanismError(
                f"answers must have {n_axes} axes, the first of length {self._pool.n_subsets}; "
                f"got shape {array.shape}. Give one row per candidate."
            )
        return array

    def _release(
        self, table: npt.NDArray[Any], questions: VoteQuestions | ScoreQuestions
    ) -> npt.NDArray[np.float64]:
        if self._secret is None:
            raise SecretError("responder must be open; it is closed. Start a new one.")
        costly = int(np.count_nonzero(~unanimous(table))) if table.size else 0
        worst = costly * self._query_nats
        if worst > self.left_nats * (1 + ROUNDING):
            affordable = int(self.left_nats * (1 + ROUNDING) / self._query_nats)
            raise BudgetExceededError(
                f"queries must fit in what is left, {self.left_nats:.6g} nats for {affordable} "
                f"that the candidates disagree on; got {costly} of those. Nothing was drawn or "
                f"spent. Ask fewer, or end here."
            )
        self.check_process()
        before = self._spent
        self._spent = before + worst  # booked first: an interruption must not make answers free
        if not table.size:
            return np.zeros((0, 0))
        answered: Answered = self._secret.observe(questions, self._source)
        self._belief = Belief(log_p=answered.log_p)
        self._spent = before + float(answered.charges.sum())
        self._n_queries += len(answered.charges)
        self._n_free += int(np.count_nonzero(answered.charges == 0.0))
        return np.array(answered.values)
