"""The tables of [RESP] on Adult and Bank: accuracy of private answers, and what they give away.

A transcript asks every test row once, in random order, with one secret model; seeded secrets and
noise on public data, which protect nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy._random import SimulatedSource, public_generator
from pacprivacy.accounting.responder import Responder
from pacprivacy.theory.posterior import posterior_success
from papers.published import Published
from papers.responses.models import Answers, load_answers

__all__ = [
    "BOUND_POWERS",
    "BOUND_QUESTIONS",
    "BoundCell",
    "ResponseRow",
    "bound_cells",
    "measure_responses",
]

ACCURACY_TABLE: Final = "responses_accuracy.csv"
BOUND_TABLE: Final = "responses_mi_to_posterior.csv"
BOUND_POWERS: Final = tuple(range(4, 33, 4))
BOUND_QUESTIONS: Final = tuple(10**k for k in range(7))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRow:
    """What private answers at one budget per question are worth, and what they cost.

    Attributes
    ----------
    neg_log2_b : int
        Budget of a question is ``2**-neg_log2_b`` nats.
    accuracy, standard_error : float
        Mean over transcripts.
    no_noise, nonprivate : float
        Mean accuracy of the models, and of a model of all training rows.
    spent_nats, success : float
        Mean of the sum of charges, and the bound on membership success that it gives.
    counted_nats, counted_success : float
        The same where every question is charged in full, as published.
    attacker : float
        Success of the optimal attacker, averaged over transcripts and units.
    published, published_nonprivate : float or None
        The published accuracies, where they are at hand.
    """

    dataset: str
    output: str
    neg_log2_b: int
    n_queries: int
    n_transcripts: int
    accuracy: float
    standard_error: float
    no_noise: float
    nonprivate: float
    free_share: float
    spent_nats: float
    success: float
    counted_nats: float
    counted_success: float
    attacker: float
    published: float | None
    published_nonprivate: float | None

    @property
    def gap(self) -> float:
        """Accuracy lost to the non-private model."""
        return self.nonprivate - self.accuracy

    @property
    def published_gap(self) -> float | None:
        """The same, as published."""
        if self.published is None or self.published_nonprivate is None:
            return None
        return self.published_nonprivate - self.published


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCell:
    """The bound on membership success after many questions charged in full."""

    neg_log2_b: int
    n_queries: int
    success: float
    published: float | None


def bound_cells() -> list[BoundCell]:
    """Return the published table of bounds, recomputed."""
    table = Published(BOUND_TABLE)
    return [
        BoundCell(
            neg_log2_b=power,
            n_queries=count,
            success=posterior_success(count * 2.0**-power),
            published=table.value(
                "posterior_success_bound_prior_0.5", log2_b=float(-power), T=float(count)
            ),
        )
        for power in BOUND_POWERS
        for count in BOUND_QUESTIONS
    ]


def measure_responses(
    dataset: str,
    output: str,
    powers: Sequence[int],
    *,
    n_transcripts: int,
    n_queries: int | None = None,
    seed: int = 0,
    answers: Answers | None = None,
) -> list[ResponseRow]:
    """Simulate transcripts at every budget.

    Parameters
    ----------
    dataset : {"adult", "bank"}
        Where the models' answers come from.
    output : {"one_hot", "score"}
        Votes or probabilities.
    powers : sequence of int
        Budgets per question, as ``2**-power``.
    n_transcripts : int
        Fresh secrets and orders.
    n_queries : int, optional
        Questions per transcript: the test rows, over again in fresh orders; once by default.
    seed : int
        Of secrets, noise and orders.
    answers : Answers, optional
        The models' answers; trained or read from the cache by default.
    """
    found = load_answers(dataset, n_jobs=-1) if answers is None else answers
    rows = []
    for power in powers:
        runs = [
            _transcript(
                found,
                output,
                power,
                n_queries or len(found.truth),
                public_generator(seed, f"{dataset} {output} {power}", trial),
            )
            for trial in range(n_transcripts)
        ]
        rows.append(_row(dataset, output, power, n_queries or len(found.truth), runs, found))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    accuracy: float
    spent_nats: float
    free_share: float
    attacker: float


def _transcript(
    answers: Answers, output: str, power: int, n_queries: int, rng: np.random.Generator
) -> _Run:
    order = _order(len(answers.truth), n_queries, rng)
    budget = 2.0**-power
    responder = Responder(
        answers.pool,
        query_nats=budget,
        total_nats=n_queries * budget,
        source=SimulatedSource(rng),
    )
    if output == "one_hot":
        released = responder.answer_votes(answers.labels[:, order], n_classes=2)
    else:
        ones = answers.scores[:, order]
        released = responder.answer_scores(np.stack([1.0 - ones, ones], axis=2))
    tilt = np.abs(np.exp(responder.belief.log_p) @ answers.signs)
    return _Run(
        accuracy=float((released.argmax(axis=1) == answers.truth[order]).mean()),
        spent_nats=responder.spent_nats,
        free_share=responder.n_free / n_queries,
        attacker=float(0.5 + 0.5 * tilt.mean()),
    )


def _order(n_rows: int, n_queries: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    passes = [rng.permutation(n_rows) for _ in range(-(-n_queries // n_rows))]
    return np.concatenate(passes)[:n_queries]


def _row(
    dataset: str, output: str, power: int, n_queries: int, runs: list[_Run], answers: Answers
) -> ResponseRow:
    accuracies = np.array([run.accuracy for run in runs])
    spent = float(np.mean([run.spent_nats for run in runs]))
    counted = n_queries * 2.0**-power
    table = Published(ACCURACY_TABLE)
    keys: dict[str, str | float] = {
        "dataset": dataset,
        "output": output,
        "neg_log2_b": float(power),
    }
    spread = float(accuracies.std(ddof=1)) if len(runs) > 1 else float("nan")
    return ResponseRow(
        dataset=dataset,
        output=output,
        neg_log2_b=power,
        n_queries=n_queries,
        n_transcripts=len(runs),
        accuracy=float(accuracies.mean()),
        standard_error=spread / float(np.sqrt(len(runs))),
        no_noise=answers.mean_accuracy,
        nonprivate=answers.nonprivate,
        free_share=float(np.mean([run.free_share for run in runs])),
        spent_nats=spent,
        success=posterior_success(spent),
        counted_nats=counted,
        counted_success=posterior_success(counted),
        attacker=float(np.mean([run.attacker for run in runs])),
        published=table.value("top1_mean", **keys),
        published_nonprivate=table.value("nonprivate_full_U", **keys),
    )
