"""The certificate of a responder: written before the first answer, about all of them."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Annotated, ClassVar, Self

import msgspec

from pacprivacy import _version
from pacprivacy.adversary import VoteBalances
from pacprivacy.budget import AnyBudget, Information, budget_limits
from pacprivacy.errors import BudgetError
from pacprivacy.noise import UNITS
from pacprivacy.release.bundle import (
    Arrays,
    CuratorBundle,
    Record,
    plain_bundle_budget,
    read_bundle_budget,
)
from pacprivacy.release.certificate import CertificateNoise
from pacprivacy.release.pool_certificate import PoolCertificate
from pacprivacy.sample import Pool
from pacprivacy.theory import membership_success

_NOTES = (
    "Every answer is calibrated to the belief that all earlier answers leave; the noise figures "
    "are upper limits for one answer.",
    "A question on which all candidates agree is answered without noise and costs nothing.",
)
_EXACT_FACTS = (
    "the answers on which all candidates agree",
    "which questions those are",
    "the noise level of the other answers",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Words:
    """Statements of a certificate on the curator's word."""

    mechanism: str
    output: str
    n_classes: Annotated[int, msgspec.Meta(ge=1)]
    simulation: bool
    public: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    software: str = _version.__version__


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnswerBundle(_Words, CuratorBundle):
    """The pool and the terms that the certificate of a responder follows from; curator-only.

    ``budget`` is what all answers together may give away, ``query_budget`` what one may. An answer
    has ``n_classes`` numbers.
    """

    KIND: ClassVar[str] = "answers"

    pool: Pool
    budget: AnyBudget
    query_budget: Information

    def __repr__(self) -> str:
        return f"AnswerBundle(curator-only, pool of {self.pool.n_subsets})"

    @property
    def query_nats(self) -> float:
        """Most that one answer may reveal, in nats."""
        return self.query_budget.mi_nats

    @property
    def advantage(self) -> float | None:
        """Promised advantage about one unit; each unit is charged on its own."""
        level = budget_limits(self.budget, self.pool.n_subsets).success_level
        return None if level is None else 2 * level - 1

    @property
    def two_votes(self) -> bool:
        """Whether all answers are votes between two classes."""
        return self.n_classes == 2 and self.output.startswith("one_hot ")

    @property
    def total_nats(self) -> float:
        """Most that all answers may reveal, in nats; infinite under a membership budget alone."""
        nats = budget_limits(self.budget, self.pool.n_subsets).mi_nats
        return math.inf if nats is None else nats

    def to_archive(self) -> tuple[Arrays, Record]:
        pool_arrays, pool_metadata = self.pool.to_arrays()
        record = {
            "pool": pool_metadata,
            "budget": plain_bundle_budget(self.budget),
            "query_budget": plain_bundle_budget(self.query_budget),
            **{item.name: getattr(self, item.name) for item in fields(_Words)},
        }
        return pool_arrays, record

    @classmethod
    def from_archive(cls, arrays: Arrays, record: Record) -> Self:
        query = read_bundle_budget(record["query_budget"])
        if not isinstance(query, Information):
            raise TypeError("query_budget")
        return cls(
            pool=Pool.from_arrays(arrays, record["pool"]),
            budget=read_bundle_budget(record["budget"]),
            query_budget=query,
            **asdict(msgspec.convert(record, _Words)),
        )


def certify_answer_bundle(bundle: AnswerBundle) -> PoolCertificate:
    """Write the certificate of all answers, past and future.

    Claim F-2: ``mi_upper_nats`` bounds the information of all answers, since a question beyond it
    is refused. Claims H-3, H-4: so is the success on any unit where membership is charged.
    """
    pool, advantage = bundle.pool, bundle.advantage
    total = min(bundle.total_nats, math.log(pool.n_subsets))
    bound = membership_success(total, pool.worst_prior)
    if advantage is not None:
        bound = min(bound, 0.5 + 0.5 * advantage)
        units = VoteBalances(pool, advantage, bundle.query_nats, two_votes=bundle.two_votes)
        if not units.fits(1, bundle.query_nats):
            raise BudgetError(
                f"query_budget must leave room for one answer at least within {bundle.budget}, "
                f"whatever it is; got {bundle.query_budget}. Use pac.Information(2**-20)."
            )
    return PoolCertificate.about(
        pool,
        mi_upper=total,
        bound=bound,
        exact_facts=_EXACT_FACTS,
        public=("the questions", *bundle.public),
        published=bundle.published,
        kind="exact",
        budget=f"{bundle.budget} in total, {bundle.query_budget} per answer",
        rule="waterfill for every answer",
        mechanism=bundle.mechanism,
        output=bundle.output,
        dimension=bundle.n_classes,
        log_det_nats=total,
        noise=_largest_noise(bundle),
        confidence=1.0,
        notes=(*_NOTES, *pool.notes),
        simulation=bundle.simulation,
        composition={
            "secrets": "one for all answers",
            "nats_per_answer": bundle.query_nats,
            "total_nats": total,
            "session_success_bound": bound,
        },
        software=bundle.software,
    )


def _largest_noise(bundle: AnswerBundle) -> CertificateNoise:
    # Points of a simplex have total variance 1 - 1/c at most, in c - 1 directions; waterfill needs
    # no more than proportional noise, (Σ sqrt λ)² / 2β <= (c - 1) (1 - 1/c) / 2β.
    rank = bundle.n_classes - 1
    most = rank * (1 - 1 / bundle.n_classes) / (2 * bundle.query_nats)
    return CertificateNoise(
        total_variance=most,
        smallest_std=0.0,
        largest_std=math.sqrt(most),
        n_directions=rank,
        smallest_grid_step=0.0,
        smallest_units_per_std=UNITS,
    )
