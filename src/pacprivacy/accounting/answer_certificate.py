"""The certificate of a responder: written before the first answer, about all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pacprivacy import _version
from pacprivacy.noise.query import UNITS
from pacprivacy.pool import Pool
from pacprivacy.release import Certificate
from pacprivacy.release.assess import finite_epsilon, unit_name
from pacprivacy.release.certificate import SCOPE, NoiseSummary
from pacprivacy.theory.posterior import posterior_success

__all__ = ["AnswerTerms", "certify_answers"]

_NOTES = (
    "Every answer is calibrated to the belief that all earlier answers leave; the noise figures "
    "are upper limits for one answer.",
    "A question on which all candidates agree is answered without noise and costs nothing.",
    "Which questions candidates agree on is a function of the universe, and not of the secret.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTerms:
    """What a certificate says besides the pool; public."""

    mechanism: str
    output: str
    budget: str
    n_classes: int
    query_nats: float
    total_nats: float
    simulation: bool
    public: tuple[str, ...] = ()


def certify_answers(pool: Pool, terms: AnswerTerms) -> Certificate:
    """Write down what holds for everything that will ever be answered.

    Guarantee
    ---------
    Claim F-2. ``mi_upper_nats`` bounds the information of all answers together, since a question
    that would go beyond it is refused.
    """
    total, prior = terms.total_nats, pool.worst_prior
    bound = posterior_success(total, prior)
    return Certificate(
        kind="exact",
        budget=terms.budget,
        rule="waterfill for every answer",
        mechanism=terms.mechanism,
        output=terms.output,
        scheme=pool.scheme,
        unit=unit_name(pool),
        n_subsets=pool.n_subsets,
        n_units=pool.n_units,
        prior=prior,
        dimension=terms.n_classes,
        log_det_nats=total,
        information=None,
        mi_upper_nats=total,
        any_inference={p: posterior_success(total, float(p)) for p in ("0.5", "0.01")},
        membership=None,
        membership_mean=None,
        membership_bound=bound,
        epsilon_equivalent=finite_epsilon(bound),
        side_knowledge=(),
        noise=_largest_noise(terms),
        confidence=1.0,
        public=(
            "the universe of records, the mechanism and the noise law",
            f"number of subsets ({pool.n_subsets}) and how they are drawn ({pool.scheme})",
            "the questions",
            *terms.public,
        ),
        not_promised=_not_promised(pool),
        notes=(*_NOTES, *pool.notes),
        simulation=terms.simulation,
        composition={
            "secrets": "one for all answers",
            "nats_per_answer": terms.query_nats,
            "total_nats": total,
            "session_success_bound": bound,
        },
        software=_version.__version__,
    )


def _largest_noise(terms: AnswerTerms) -> NoiseSummary:
    # Points of a simplex have total variance 1 - 1/c at most, in c - 1 directions; waterfill needs
    # no more than proportional noise, (Σ sqrt λ)² / 2β <= (c - 1) (1 - 1/c) / 2β.
    rank = terms.n_classes - 1
    most = rank * (1 - 1 / terms.n_classes) / (2 * terms.query_nats)
    return NoiseSummary(
        total_variance=most,
        smallest_std=0.0,
        largest_std=math.sqrt(most),
        n_directions=rank,
        smallest_grid_step=0.0,
        smallest_units_per_std=UNITS,
    )


def _not_promised(pool: Pool) -> tuple[str, ...]:
    return (
        f"Side knowledge: whoever knows the pool and the true membership of about "
        f"{math.ceil(math.log2(pool.n_subsets))} units knows the secret without any release.",
        SCOPE,
        "Answers and releases made outside this certificate from the same secret subset.",
    )
