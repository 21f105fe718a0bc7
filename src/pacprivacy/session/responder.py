"""Many answers about one secret, in one call: calibrate, draw, release, update the belief.

Each question is a separate release, calibrated to the belief after all earlier answers.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_log_belief, freeze
from pacprivacy._random import BitSource
from pacprivacy.adversary import (
    WIDEST_ANSWER,
    WIDEST_VOTE,
    WORST_VOTE,
    Belief,
    VoteBalances,
    vote_path_charges,
)
from pacprivacy.budget import Spent
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    MechanismError,
)
from pacprivacy.noise import (
    LEAST_NATS,
    UNITS,
    AnswerNoise,
    answer_vote_charge,
    answer_vote_gap,
    distinct_plan_outputs,
    plan_answer,
    usable_answer_nats,
)
from pacprivacy.sample import Pool
from pacprivacy.session.pool_secret import HeldCandidate, ReleaseSecret
from pacprivacy.session.secret import Odometer, SecretHolder, SpendLog
from pacprivacy.theory import binary_entropy

Labels = npt.NDArray[np.integer]
Mask = npt.NDArray[np.bool_]

_BLOCK = 4096  # questions whose votes are unpacked at a time
FEW_OUTPUTS = 24  # whose distances are summed over in threes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One vector per question, its noise, its cost in nats, and the log belief after the last one.

    ``noise_std`` is the largest standard deviation of a number of the answer, 0 where it is exact.
    Where membership is charged, ``moves`` (q, m) are how the belief may move at each question, in
    root mean square, with ``more`` for what no row describes; ``cubes`` bounds the cube of a move
    over its square, 0 where rows say how long the path of the belief may be.
    """

    values: Matrix
    charges: Vector
    noise_std: Vector
    log_p: Vector
    moves: Matrix | None = None
    cubes: float = 0.0
    more: float = 0.0

    def __post_init__(self) -> None:
        for array in (self.values, self.charges, self.noise_std, self.log_p, self.moves):
            if array is not None:
                freeze(array)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Released answers to some questions, one vector each; public.

    ``noise_std`` is the largest standard deviation of a number of each answer, 0 where it is exact;
    ``unanimous`` says which questions all candidates answer alike: exact facts of the universe,
    free of charge. ``charges`` bounds the information of each answer, in nats; ``spent`` what all
    cost.
    """

    values: Matrix
    noise_std: Vector
    unanimous: Mask
    charges: Vector
    spent: Spent


_NO_REPLY: Final = Reply(
    values=np.zeros((0, 0)),
    noise_std=np.zeros(0),
    unanimous=np.zeros(0, dtype=np.bool_),
    charges=np.zeros(0),
    spent=Spent(),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResponderState:
    """State of a responder between two answers: all it needs to resume; curator-only."""

    secret: ReleaseSecret
    log_p: Vector
    spent: Spent
    n_free: int
    units: dict[str, npt.NDArray[Any]] | None

    def __repr__(self) -> str:
        return f"ResponderState(curator-only, {self.spent.n_releases} answers)"


def _unanimous_answers(table: npt.NDArray[np.generic]) -> Mask:
    """Return which questions all candidates answer alike; shape (m, q, ...) in, (q,) out."""
    same = table == table[:1]
    agree: Mask = same.reshape(len(table), table.shape[1], -1).all(axis=(0, 2))
    return agree


@dataclass
class _Questions:
    """Outputs of all candidates for some questions, and the budget of each answer.

    With ``tracked``, the moves of the belief are returned.
    """

    table: npt.NDArray[Any]
    log_p: Vector
    query_nats: float
    noise: AnswerNoise | None = None
    tracked: bool = field(default=False, kw_only=True)


class VoteAnswers(_Questions):
    """Two-class votes (m, q): one direction, so noise, charge and belief have closed forms.

    With ``tracked``, votes are at most ``WIDEST_VOTE`` apart, squared, so that beliefs can be
    followed.
    """

    def only_move(self, most: float) -> tuple[Matrix, float]:
        """Return the moves of the belief at the one question that is not unanimous, and cubes.

        ``most`` is the largest ``|s|``.
        """
        votes = self.table[:, ~_unanimous_answers(self.table)].T.astype(np.float64)
        belief = np.exp(self.log_p)
        ones, zeros = float(belief @ votes[0]), float(belief @ (1.0 - votes[0]))
        usable, _ = usable_answer_nats(self.query_nats, n_directions=1, n_subsets=len(belief))
        gap = _tracked_gap(ones, zeros, usable) if min(ones, zeros) > 0 else 0
        moves = belief[None].copy()
        cubes = _scale_moves(moves, votes, np.array([float(gap)]), np.array([ones]))
        return moves, cubes * most

    def observe(self, index: int, source: BitSource) -> Answered:
        noise = AnswerNoise(source) if self.noise is None else self.noise
        n_subsets, n_questions = self.table.shape
        answers = self.table[index].astype(np.float64)
        charges, noise_std = np.zeros(n_questions), np.zeros(n_questions)
        costly = np.flatnonzero(~_unanimous_answers(self.table))
        log_p = self.log_p.copy()
        moves = np.zeros((len(costly) if self.tracked else 0, n_subsets))
        cubes = 0.0
        for start in range(0, len(costly), _BLOCK):
            block = costly[start : start + _BLOCK]
            log_p = check_log_belief(log_p, n_subsets)
            widest = _answer_votes(
                np.ascontiguousarray(self.table[:, block].T, dtype=np.float64),
                self.table[index, block].tolist(),
                noise.take(len(block)).tolist(),
                log_p,
                self.query_nats,
                (answers, charges, noise_std, block),
                moves[start : start + _BLOCK] if self.tracked else None,
            )
            cubes = max(cubes, widest)
        values = np.stack([1.0 - answers, answers], axis=1)
        return Answered(
            values=values,
            charges=charges,
            noise_std=noise_std,
            log_p=check_log_belief(log_p, n_subsets),
            moves=moves if self.tracked else None,
            cubes=cubes,
        )


def _answer_votes(
    rows: Matrix,
    mine: list[int],
    noise: list[int],
    log_p: Vector,
    budget: float,
    out: tuple[Vector, Vector, Vector, npt.NDArray[np.int64]],
    moves: Matrix | None = None,
) -> float:
    """Answer a block of two-class questions; ``log_p``, ``out`` and ``moves`` are written to.

    Returns what :func:`_scale_moves` does.
    """
    answers, charges, noise_std, where = out
    tracked, others = moves is not None, 1.0 - rows
    usable, slack = usable_answer_nats(budget, n_directions=1, n_subsets=len(log_p))
    belief, scratch = np.exp(log_p), np.empty(len(log_p))
    gaps, shares = np.zeros(len(rows)), np.zeros(len(rows))
    for i, (vote, drawn) in enumerate(zip(mine, noise, strict=True)):
        row = rows[i]
        ones, zeros = float(belief @ row), float(belief @ others[i])
        least = min(ones, zeros)
        # The entropy of the vote is at least ``least``, so this asks for it only when it may pay.
        if (
            not tracked
            and least <= budget
            and (nats := binary_entropy(min(max(least, 0.0), 0.5))) <= budget
        ):
            answers[where[i]], charges[where[i]] = vote, nats
            if least > 0:
                np.copyto(log_p, -np.inf, where=row != vote)
                log_p -= math.log(ones if vote else zeros)
                np.exp(log_p, out=belief)
            continue
        if least <= 0:  # all candidates that are still possible vote alike
            answers[where[i]] = vote
            continue
        gap = (_tracked_gap if tracked else answer_vote_gap)(ones, zeros, usable)
        if moves is not None:
            moves[i], gaps[i], shares[i] = belief, gap, ones
        charges[where[i]] = answer_vote_charge(ones, zeros, gap, slack)
        noisy = gap * vote + drawn
        answers[where[i]], noise_std[where[i]] = noisy / gap, UNITS / gap
        # ln of the likelihood ratio of a vote of one to a vote of zero, in exact integers
        ratio = gap * (2 * noisy - gap) / (2 * UNITS * UNITS)
        np.multiply(row, ratio, out=scratch)
        log_p += scratch
        log_p -= _log_mix(zeros, ones, ratio)
        np.exp(log_p, out=belief)
    return 0.0 if moves is None else _scale_moves(moves, rows, gaps, shares)


def _tracked_gap(ones: float, zeros: float, usable: float) -> int:
    """Return a distance of two votes that allows tracked beliefs."""
    if math.expm1(2 * usable) >= WIDEST_VOTE * ones * zeros:
        return int(UNITS * math.sqrt(WIDEST_VOTE))
    return answer_vote_gap(ones, zeros, usable)


def _scale_moves(moves: Matrix, rows: Matrix, gaps: Vector, shares: Vector) -> float:
    """Compute the charges of votes from the beliefs before them, in ``moves``.

    Returns a bound of ``E |a' - a|³ / E (a' - a)²`` over the votes, for ``|s| <= 1``; 0 where all
    are charged by their paths.
    """
    apart = np.square(gaps / UNITS)
    path, square = vote_path_charges(shares, apart), np.expm1(apart)  # chi-square of the two votes
    by_path = np.isfinite(path)
    moves *= rows - shares[:, None]
    moves *= np.sqrt(np.where(by_path, path, square))[:, None]
    fourth = square * (3 + square * (16 + square * (15 + square * (6 + square))))  # over the second
    cubes = fourth * (shares * (1 - shares) + 1e-15)
    return math.sqrt(float(cubes[~by_path].max(initial=0.0)))


def _log_mix(zeros: float, ones: float, ratio: float) -> float:
    """Return ``ln(zeros + ones e^ratio)`` without overflow."""
    if ratio > 0:
        return ratio + math.log(zeros * math.exp(-ratio) + ones)
    return math.log(zeros + ones * math.exp(ratio))


@dataclass
class ScoreAnswers(_Questions):
    """Vectors as answers: class probabilities (m, q, c), or votes (m, q) among ``n_classes``."""

    n_classes: int | None = field(default=None, kw_only=True)

    def observe(self, index: int, source: BitSource) -> Answered:
        noise = AnswerNoise(source) if self.noise is None else self.noise
        n_questions = self.table.shape[1]
        free = _unanimous_answers(self.table)
        possible = map(self._outputs, range(n_questions))
        values = np.array([outputs[groups[index]] for outputs, groups in possible])
        charges, noise_std = np.zeros(n_questions), np.zeros(n_questions)
        log_p, steps = self.log_p.copy(), []
        for i in np.flatnonzero(~free).tolist():
            values[i], charges[i], noise_std[i], log_p, step = self._answer(
                *self._outputs(i), index, log_p, noise
            )
            steps += [] if step is None else [step]
        return Answered(
            values=values,
            charges=charges,
            noise_std=noise_std,
            log_p=log_p,
            moves=np.concatenate([np.zeros((0, len(log_p))), *(step.moves for step in steps)])
            if self.tracked
            else None,
            cubes=max((step.cubes for step in steps), default=0.0),
            more=math.fsum(step.more for step in steps),
        )

    def _outputs(self, i: int) -> tuple[Matrix, Labels]:
        """Return the possible outputs of question ``i``, and which one each candidate gives."""
        if self.n_classes is None:
            return np.asarray(self.table[:, i], dtype=np.float64), np.arange(len(self.log_p))
        return np.eye(self.n_classes), np.asarray(self.table[:, i], dtype=np.int64)

    def _answer(
        self, outputs: Matrix, groups: Labels, index: int, log_p: Vector, noise: AnswerNoise
    ) -> tuple[Vector, float, float, Vector, "_Step | None"]:
        belief = np.exp(log_p)
        totals = np.bincount(groups, belief, minlength=len(outputs)).astype(np.float64)
        mass: Vector = totals / totals.sum()
        exact = None if self.tracked else _as_it_is(outputs, mass, self.query_nats)
        if exact is not None:
            classes, nats = exact
            learned = log_p.copy()
            learned[classes[groups] != classes[groups[index]]] = -np.inf
            return outputs[groups[index]], nats, 0.0, check_log_belief(learned, len(log_p)), None
        widest = WIDEST_ANSWER if self.tracked else math.inf
        plan = plan_answer(
            outputs, mass, mi_nats=self.query_nats, n_subsets=len(log_p), widest=widest
        )
        step = _step_of(plan.points / UNITS, mass, belief, groups) if self.tracked else None
        noisy = plan.points[groups[index]] + noise.take(plan.points.shape[1])
        learned = log_p + plan.log_likelihood(noisy)[groups]
        variances = np.square(plan.basis) @ plan.noise_var
        std, after = math.sqrt(float(variances.max())), check_log_belief(learned, len(log_p))
        return plan.value_of(noisy), plan.charge, std, after, step


class _Step(NamedTuple):
    """Moves of the belief by one answer; as in :class:`Answered`."""

    moves: Matrix
    cubes: float
    more: float


def _step_of(points: Matrix, mass: Vector, belief: Vector, groups: Labels) -> _Step:
    """Return the move of an answer whose outputs lie at ``points``, in units of the noise.

    Few outputs are summed over one by one. Of many the part that is linear in the distance is,
    and the rest is bounded (claim H-3).
    """
    centred = points - mass @ points
    cubes = 3 * math.sqrt(WORST_VOTE * float(mass @ np.square(centred).sum(axis=1)))
    if len(points) > FEW_OUTPUTS:
        size = np.square(centred).sum(axis=1)
        apart = 3 * np.maximum(size[:, None] + size - 2 * centred @ centred.T, 0.0)
        rest = float(mass @ (np.expm1(apart) - apart) @ mass) / 3
        return _Step((belief[:, None] * centred[groups]).T, cubes, rest * (1 + 1e-9) + 1e-18)
    away = points - points[:, None]
    kernel = np.einsum("l,lij->ij", mass, np.expm1(3 * away @ away.transpose(0, 2, 1))) / 3
    center = np.eye(len(mass)) - mass
    values, vectors = np.linalg.eigh(center @ kernel @ center.T)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))
    return _Step((belief[:, None] * roots[groups]).T, cubes, 1e-12 * float(values.max()))


def _as_it_is(
    outputs: Matrix, mass: Vector, budget: float
) -> tuple[npt.NDArray[np.int64], float] | None:
    """Return distinct outputs and their entropy if the budget covers it, else None."""
    top = int(np.argmax(mass))
    rest = float(mass[(outputs != outputs[top]).any(axis=1)].sum())
    if min(rest, 1.0 - rest) > budget:  # the entropy of "this output or another" is larger still
        return None
    with np.errstate(divide="ignore"):
        classes, nats = distinct_plan_outputs(outputs, np.log(mass))
    return (classes, nats) if nats <= budget else None


ROUNDING = 1e-9


class Responder(SecretHolder):
    """Answers of one secret candidate, with the attacker's belief tracked over all of them.

    ``query_nats`` and ``total_nats`` are the budgets of each question and of all, infinite where
    only membership is limited; ``advantage`` that of guessing one unit's membership after all
    answers. Votes between ``two_votes`` classes alone need less of a reserve. Charges are written
    to ``book``, by default forgotten with the process. The secret is drawn here, unless there is a
    ``state``.

    Guarantee
    ---------
    Claim F-2. ``MI(secret; all answers) <= E[Σ charges] <= total_nats``, for any questions in any
    order, also when a question depends on earlier answers.
    Claims H-3, H-4. With ``advantage``, so is that of the best guess about any unit.
    Claim R-4. In a fork nothing is answered or spent.
    """

    KIND = "a responder"
    INSTEAD = "Save the answers, or a model that was trained on them."
    NAME = "responder"

    def __init__(
        self,
        pool: Pool,
        *,
        query_nats: float,
        total_nats: float,
        source: BitSource,
        advantage: float | None = None,
        two_votes: bool = False,
        book: SpendLog | None = None,
        state: ResponderState | None = None,
    ) -> None:
        if not LEAST_NATS <= query_nats <= total_nats:
            raise BudgetError(
                f"query_nats must be at least 2**-44 and at most the total ({total_nats:.6g}); "
                f"got {query_nats!r}. Use 2**-20."
            )
        limited = total_nats if math.isfinite(total_nats) else None
        level = None if advantage is None else 0.5 + 0.5 * advantage
        self._secret: HeldCandidate = HeldCandidate(pool)
        super().__init__(Spent(mi_nats=limited, success_level=level), source, self._secret, book)
        self._units = None
        if advantage is not None:
            self._units = VoteBalances(pool, advantage, query_nats, two_votes=two_votes)
        self._n_subsets = pool.n_subsets
        self._query_nats, self._noise, self._n_free = query_nats, AnswerNoise(source), 0
        if state is None:
            self._secret.draw(source)
            return
        self._secret.secret = state.secret
        self._secret.belief = Belief(log_p=state.log_p)
        self._spent, self._n_free = state.spent, state.n_free
        if self._units is not None:
            self._units.restore(state.units or {})

    def __repr__(self) -> str:
        return f"Responder({self._spent.n_releases} answers, {self._spent.mi_nats:.4g} nats spent)"

    @property
    def belief(self) -> Belief:
        """Belief about the secret of an attacker who saw all answers."""
        assert self._secret.belief is not None  # set with the pool
        return self._secret.belief

    @property
    def n_free(self) -> int:
        return self._n_free

    def state(self) -> ResponderState:
        assert self._secret.secret is not None  # drawn or read at the start
        return ResponderState(
            secret=self._secret.secret,
            log_p=self.belief.log_p,
            spent=self._spent,
            n_free=self._n_free,
            units=None if self._units is None else self._units.to_arrays(),
        )

    def hand_over(self, book: SpendLog) -> None:
        """Store the state in a book and close: the book continues from here."""
        self.check_process()
        with self._lock:
            self.check_open()
            try:
                book.flush(self.state)
            finally:  # also if it fails: the book may have the state all the same
                book.close()
                self.close()

    def flush(self) -> None:
        """Store the state, if there is a book; then replies may be published.

        Guarantee
        ---------
        Claim V-1. When this returns, the belief after every reply so far is on the disk. If it
        fails, this is closed and no reply may be published.
        """
        with self._lock:
            try:
                self._book.flush(self.state)
            except BaseException:
                self.close()
                raise

    def reply_votes(
        self, labels: npt.NDArray[Any], *, n_classes: int, payer: str | None = None
    ) -> Reply:
        """Answer questions by one noisy one-hot vote each; publish after :meth:`flush` only.

        ``labels`` has shape (m, q): the class number that each candidate gives to each question.
        ``payer`` is the principal who asks, by default the owner of the book. If the total might
        not cover all of the questions, nothing is drawn or spent.
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
            now, tracked = self._now(), self._units is not None
            if n_classes == 2:
                return self._release(table, VoteAnswers(table, *now, tracked=tracked), payer)
            answers = ScoreAnswers(table, *now, n_classes=n_classes, tracked=tracked)
            return self._release(table, answers, payer)

    def reply_scores(self, scores: npt.NDArray[Any], *, payer: str | None = None) -> Reply:
        """Answer questions by one noisy vector each; ``scores`` has shape (m, q, n_classes)."""
        # + 0.0: the sign of a zero would reveal the vote
        table = self._check(scores, n_axes=3).astype(np.float64, copy=False) + 0.0
        if not np.isfinite(table).all():
            raise MechanismError(
                "scores must be finite; got NaN or infinite entries. Use models that always answer."
            )
        with self._lock:
            tracked = self._units is not None
            return self._release(table, ScoreAnswers(table, *self._now(), tracked=tracked), payer)

    def _now(self) -> tuple[Vector, float, AnswerNoise]:
        return self.belief.log_p, self._query_nats, self._noise

    def odometer(self) -> Odometer:
        belief = np.exp(self.belief.log_p)
        return replace(super().odometer(), n_free=self._n_free, belief=belief)

    def _check(self, table: npt.NDArray[Any], *, n_axes: int) -> npt.NDArray[Any]:
        self.check_process()  # and not only below: a fork may have inherited a lock that is held
        array = np.asarray(table)
        if array.ndim != n_axes or len(array) != self._n_subsets:
            raise MechanismError(
                f"answers must have {n_axes} axes, the first of length {self._n_subsets}; "
                f"got shape {array.shape}. Give one row per candidate."
            )
        return array

    def _check_fits(
        self, units: VoteBalances, questions: VoteAnswers | ScoreAnswers, costly: int
    ) -> None:
        """Refuse questions that some unit's balance might not cover."""
        if costly == 1 and isinstance(questions, VoteAnswers):  # its cost is known before
            fits = units.holds(*questions.only_move(units.most))
        else:
            fits = units.fits(costly, self._query_nats)
        if not fits:
            raise BudgetExceededError(
                f"queries must fit in what is left of every unit's membership balance, "
                f"whatever the answers are; got {costly} that the candidates disagree on. "
                f"Nothing was drawn or spent. Ask fewer at a time, or end here."
            )

    def _worst_charge(self, costly: int) -> Spent:
        """Return the most that so many answers cost; refuse more than the remaining budget."""
        limit = self._spent.left_of(self._total).mi_nats
        left = math.inf if limit is None else max(0.0, limit) * (1 + ROUNDING)
        if costly * self._query_nats > left:
            raise BudgetExceededError(
                f"queries must fit in what is left, {left:.6g} nats for "
                f"{int(left / self._query_nats)} that the candidates disagree on; got {costly} of "
                f"those. Nothing was drawn or spent. Ask fewer, or end here."
            )
        return Spent(mi_nats=costly * self._query_nats)

    def _release(
        self,
        table: npt.NDArray[Any],
        questions: VoteAnswers | ScoreAnswers,
        payer: str | None,
    ) -> Reply:
        self.check_open()
        if not table.size:
            return _NO_REPLY
        agreed = _unanimous_answers(table)
        costly = int(np.count_nonzero(~agreed))
        worst = self._worst_charge(costly)
        before, units, had = self._spent, self._units, 0.0
        if units is not None:
            had = units.increment_left
            self._check_fits(units, questions, costly)
            most = units.worst_increment(costly, self._query_nats)
            worst = replace(worst, success_increment=most)
            units.book(costly, self._query_nats)
        # The worst is charged first: an interruption must not make answers free.
        try:
            answered: Answered = self.observe(questions, worst, "answers", payer=payer)[0]
        except BaseException:
            if units is not None and self._spent is before:  # refused: nothing was drawn
                units.unbook()
            raise
        belief = Belief(log_p=answered.log_p)
        if units is not None and costly and answered.moves is not None:
            units.pay(answered.moves, answered.cubes * units.most, answered.more)
        charge = Spent(mi_nats=float(answered.charges.sum()))
        if units is not None:
            charge = replace(charge, success_increment=max(0.0, had - units.increment_left))
        self._spent = before + charge
        self._book.settle(charge, payer)
        self.keep(belief, n_releases=len(answered.charges))
        self._n_free += int(np.count_nonzero(answered.charges == 0.0))
        return Reply(
            values=answered.values,
            noise_std=answered.noise_std,
            unanimous=agreed,
            charges=answered.charges,
            spent=charge,
        )
