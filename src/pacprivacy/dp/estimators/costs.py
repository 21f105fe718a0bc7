"""What fits under differential privacy cost, alone and together in a search over parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import msgspec
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, PredefinedSplit, RandomizedSearchCV

from pacprivacy import dp
from pacprivacy._rounding import at_most
from pacprivacy._sklearn import find_inside, private_steps
from pacprivacy.dp.certificate import ONE_RELEASE
from pacprivacy.dp.estimators.base import DPBase
from pacprivacy.dp.events import carried_events
from pacprivacy.errors import CertificateError

SCHEMA_VERSION: Final = 1
DISCRETIZATION: Final = 1e-3  # of privacy losses; rounded to the safe side


# Columns of ``cv_results_`` hold numbers, so an event is noted as some. No value that stands in all
# of them, such as a search's ``error_score``, is taken for a note.
RELATIONS: Final[dict[dp.Neighbours, float]] = {"add_remove": 0.25, "replace": 0.75}


KINDS: Final = ("gaussian", "laplace", "pure", "approximate")
SAMPLINGS: Final = (None, "poisson", "fixed", "with replacement")


NOTED: Final = (
    "dp_relation",
    "dp_kind",
    "dp_amount",
    "dp_delta",
    "dp_count",
    "dp_numbers",
    "dp_sampling",
    "dp_rate",
    "dp_batch",
    "dp_promised_epsilon",
    "dp_promised_delta",
    "dp_releases",
    "dp_simulation",
)


ADVICE: Final = (
    "Use scoring=ScoreWithCost(...) and refit='score', which notes the event of each fit."
)


FOLDS: Final = {
    "replace": "Which records a fold holds does not depend on what they say.",
    "add_remove": "Which fold a record is in depends neither on it nor on the others.",
}


OTHERS: Final = "Other releases about the same records, before or after this search."
FAILED: Final = "That fits of the search failed, which may depend on the records."


CHOICE: Final = (
    "The scores of the search and the choice made by them: they were computed from records that "
    "were left out of a fit, without noise. Score on public data with ScoreWithCost(public=...)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DPFitCost:
    """What one or more fits cost together; every field is public.

    An accountant is told the ``events``; ``promised`` and ``delta`` are sums of what the fits
    promised.
    """

    events: tuple[dp.Event, ...]
    promised: float
    delta: float
    neighbours: dp.Neighbours
    n_releases: int = 1
    simulation: bool = False

    def __add__(self, other: DPFitCost) -> DPFitCost:
        if self.neighbours != other.neighbours:
            raise CertificateError(
                "fits must be about one relation to be added up; got 'add_remove' and 'replace'. "
                "Search over one of them at a time."
            )
        return DPFitCost(
            events=(*self.events, *other.events),
            promised=self.promised + other.promised,
            delta=self.delta + other.delta,
            neighbours=self.neighbours,
            n_releases=self.n_releases + other.n_releases,
            simulation=self.simulation or other.simulation,
        )

    @classmethod
    def of(cls, certificate: dp.DPCertificate) -> DPFitCost:
        """Read the cost of one release off its certificate."""
        return cls(
            events=tuple(dp.events_of(certificate)),
            promised=certificate.epsilon,
            delta=certificate.delta,
            neighbours=certificate.neighbours,
            simulation=certificate.simulation,
        )

    @property
    def epsilon(self) -> float:
        """The least ``ε`` at :attr:`delta` that ``dp.account`` finds."""
        return self.best_at(self.delta)[1]

    def best_at(self, delta: float) -> tuple[str, float]:
        """Return the method and the least ``ε`` at another ``δ``."""
        found = _best(tuple(sorted(self.events, key=repr)), self.neighbours, delta)
        by_promise = ("sum of the promises", self.promised)
        return by_promise if delta >= self.delta and by_promise[1] <= found[1] else found


@dataclass(frozen=True, slots=True, kw_only=True)
class DPSearchCost:
    """What a whole search has cost under differential privacy; every field is public.

    Parameters
    ----------
    candidates : tuple of (str, DPFitCost)
        Each candidate's parameters, and the cost of its fits on all folds.
    refit : DPFitCost, optional
        The fit of the best candidate on all records.
    total : DPFitCost
        All of them.
    delta : float
        The ``δ`` that :attr:`epsilon` is at.
    covers_choice : bool
        Whether the choice of the best candidate looked at released models and public data only.
    certificate : DPCertificate
        Of all fits together; it says what it does not cover.
    """

    candidates: tuple[tuple[str, DPFitCost], ...]
    refit: DPFitCost | None
    total: DPFitCost
    delta: float
    covers_choice: bool
    certificate: dp.DPCertificate | None = field(default=None, repr=False)

    @property
    def epsilon(self) -> float:
        """The ``ε`` of all fits together."""
        return self.total.best_at(self.delta)[1]

    @property
    def covers(self) -> str:
        """What the total is about, as one sentence."""
        what = "all fitted models of the search together"
        if self.covers_choice:
            return f"Covers {what}, and the choice among them, made on public data."
        return f"Covers {what}; not the scores, nor the choice made by them."

    def __str__(self) -> str:
        rows = [*self.candidates, *([("refit", self.refit)] if self.refit else [])]
        lines = [
            f"ε {_up(cost.epsilon):>8}  δ {cost.delta:>8.3g}  {cost.n_releases:>4} fits  {name}"
            for name, cost in rows
        ]
        total = self.total.n_releases
        lines.append(f"ε {_up(self.epsilon):>8}  δ {self.delta:>8.3g}  {total:>4} fits  total")
        return "\n".join([*lines, self.covers])

    def to_public_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""

        def plain(cost: DPFitCost) -> dict[str, Any]:
            return {"epsilon": cost.epsilon, "delta": cost.delta, "n_releases": cost.n_releases}

        return {
            "schema_version": SCHEMA_VERSION,
            "candidates": [{"params": name, **plain(cost)} for name, cost in self.candidates],
            "refit": self.refit and plain(self.refit),
            "total": {**plain(self.total), "epsilon": self.epsilon, "delta": self.delta},
            "covers": self.covers,
            "certificate": self.certificate and self.certificate.to_public_dict(),
        }


def _up(epsilon: float) -> str:
    return at_most(epsilon, significant=4) if math.isfinite(epsilon) else "infinite"


@lru_cache(maxsize=256)
def _best(
    events: tuple[dp.Event, ...], neighbours: dp.Neighbours, delta: float
) -> tuple[str, float]:
    return dp.account(
        events, delta=delta, neighbours=neighbours, discretization=DISCRETIZATION
    ).best


def note_dp_fit(estimator: Any) -> dict[str, float]:
    """Return the event of a fitted estimator as numbers, for the columns of a search."""
    cost = _measured(estimator)
    event = cost.events[0]
    if len(cost.events) > 1:  # several steps are noted as one promise: their sums
        event = _promise(cost.best_at(cost.delta)[1], cost.delta)
    (plain,) = carried_events(event)
    drawn = plain.get("sampling") or {}
    values = (
        RELATIONS[cost.neighbours],
        1 + KINDS.index(plain["event"]),
        plain.get("noise_multiplier", plain.get("epsilon")),
        plain.get("delta", 0),
        plain["count"],
        plain.get("n_numbers", 0),
        SAMPLINGS.index(drawn.get("kind")),
        drawn.get("rate", drawn.get("n_records", 0)),
        drawn.get("removal", drawn.get("batch_size")) or 0,
        cost.promised,
        cost.delta,
        cost.n_releases,
        cost.simulation,
    )
    return dict(zip(NOTED, map(float, values), strict=True))


def dp_search_cost(search: Any, *, delta: float | None, scored_on_public: bool) -> DPSearchCost:
    """Compose the fits of a search; see :func:`~pacprivacy.estimators.search_cost`.

    Guarantee
    ---------
    Claim DP-23.
    """
    best = getattr(search, "best_estimator_", None)
    refit = None if best is None else _measured(best)
    candidates = tuple(_candidate_costs(search, refit))
    fixed = isinstance(search, GridSearchCV | RandomizedSearchCV)  # fits do not wait for scores
    covers_choice = scored_on_public and fixed and search.refit in ("score", False)
    if covers_choice and refit is not None:
        # Which candidate is fitted again depends on the others: count the costliest promise.
        models = [_with_params(search, params) for params in search.cv_results_["params"]]
        asked = [_declared(model, refit.neighbours) for model in models]
        largest = max(cost.promised for cost in asked), max(cost.delta for cost in asked)
        refit = replace(refit, events=(_promise(*largest),), promised=largest[0], delta=largest[1])
    parts = [cost for _, cost in candidates] + ([refit] if refit else [])
    total = sum(parts[1:], parts[0])
    at = total.delta if delta is None else float(delta)
    cost = DPSearchCost(
        candidates=candidates, refit=refit, total=total, delta=at, covers_choice=covers_choice
    )
    return replace(cost, certificate=_certify(search, cost))


def _certify(search: Any, cost: DPSearchCost) -> dp.DPCertificate:
    best = getattr(search, "best_estimator_", None)
    models = [] if best is None else [m.certificate_ for m in find_inside(best, DPBase)]
    method, epsilon = cost.total.best_at(cost.delta)
    uncovered = () if cost.covers_choice else (CHOICE,)
    base = dp.DPCertificate(
        epsilon=epsilon,
        delta=cost.delta,
        neighbours=cost.total.neighbours,
        mechanism=(
            f"{cost.total.n_releases} fits of a search: {len(cost.candidates)} candidates on "
            f"{search.n_splits_} folds{', and one more fit of the best' if models else ''}"
        ),
        assumptions=(
            *dict.fromkeys(said for model in models for said in model.assumptions),
            FOLDS[cost.total.neighbours],
        ),
        accounting={"method": method, "fits": cost.total.n_releases},
        events=carried_events(*cost.total.events),
        notes=(cost.covers,),
        simulation=cost.total.simulation,
    )
    kept = [said for said in base.not_promised if said != ONE_RELEASE]
    noted = [note is not None for notes in _notes(search) for note in notes]
    failed = (FAILED,) if any(noted) and not all(noted) else ()
    more = (*uncovered, *failed, *_about_folds(search, cost.total.neighbours), OTHERS)
    return replace(base, not_promised=(*kept, *more))


def _about_folds(search: Any, neighbours: dp.Neighbours) -> tuple[str, ...]:
    """Say where the assumption about folds does not hold as it stands."""
    by_default = search.cv is None or isinstance(search.cv, int)
    named = type(search.cv).__name__
    if "Stratified" in named or (by_default and is_classifier(search.estimator)):
        return (
            "How records were dealt into folds: the labels decided, so that one record can move "
            "others to another fold. Use cv=KFold(...) or a PredefinedSplit.",
        )
    if neighbours == "add_remove" and not isinstance(search.cv, PredefinedSplit):
        return (
            "How records were dealt into folds: by their places, which one record more or less "
            "moves. Use a PredefinedSplit.",
        )
    return ()


def _candidate_costs(search: Any, refit: DPFitCost | None) -> Iterator[tuple[str, DPFitCost]]:
    notes = _notes(search)
    told = [fit for fits in [*notes, [refit]] for fit in fits if fit is not None]
    for params, fits in zip(search.cv_results_["params"], notes, strict=True):
        shown = ", ".join(f"{name}={value}" for name, value in params.items())
        costs = [fit for fit in fits if fit is not None]
        if len(costs) < len(fits):
            neighbours = _relation(search, [fit.neighbours for fit in told])
            asked = _declared(_with_params(search, params), neighbours)
            costs += [asked] * (len(fits) - len(costs))
        yield shown, sum(costs[1:], costs[0])


def _notes(search: Any) -> list[list[DPFitCost | None]]:
    """Return what was noted of each candidate on each fold."""
    places = range(len(search.cv_results_["params"]))
    return [[_recorded(search.cv_results_, i, k) for k in range(search.n_splits_)] for i in places]


def _with_params(search: Any, params: Mapping[str, Any]) -> Any:
    return clone(search.estimator).set_params(**clone(params, safe=False))


def _recorded(results: Mapping[str, Any], candidate: int, split: int) -> DPFitCost | None:
    """Return the cost that ``ScoreWithCost`` noted; None where there is no such note."""
    columns = [f"split{split}_test_{name}" for name in NOTED]
    if columns[0] not in results:
        return None
    noted = dict(zip(NOTED, (float(results[name][candidate]) for name in columns), strict=True))
    relations = [name for name, value in RELATIONS.items() if value == noted["dp_relation"]]
    if not relations or noted["dp_kind"] not in range(1, 1 + len(KINDS)):
        return None  # the fit failed; the note is the search's error_score
    return DPFitCost(
        events=(_event(noted),),
        promised=noted["dp_promised_epsilon"],
        delta=noted["dp_promised_delta"],
        neighbours=relations[0],
        n_releases=int(noted["dp_releases"]),
        simulation=bool(noted["dp_simulation"]),
    )


def _event(noted: Mapping[str, float]) -> dp.Event:
    kind, drawn = KINDS[int(noted["dp_kind"]) - 1], SAMPLINGS[int(noted["dp_sampling"])]
    first, second = noted["dp_rate"], noted["dp_batch"]
    plain: dict[str, Any] = {"event": kind, "count": int(noted["dp_count"])}
    if kind in ("gaussian", "laplace"):
        plain |= {"noise_multiplier": noted["dp_amount"], "n_numbers": int(noted["dp_numbers"])}
    else:
        plain["epsilon"] = noted["dp_amount"]
    if kind == "approximate":
        plain["delta"] = noted["dp_delta"]
    if drawn == "poisson":
        plain["sampling"] = {"kind": drawn, "rate": first, "removal": second or None}
    elif drawn:
        plain["sampling"] = {"kind": drawn, "n_records": int(first), "batch_size": int(second)}
    event: dp.Event = msgspec.convert(plain, dp.Event)
    return event


def _measured(estimator: Any) -> DPFitCost:
    """Add up the certificates of all estimators of differential privacy inside a fitted one."""
    models = [m for m in find_inside(estimator, DPBase) if hasattr(m, "certificate_")]
    costs = [DPFitCost.of(model.certificate_) for model in models]
    if not costs:
        raise CertificateError(
            f"estimator must hold a fitted private estimator; got a {type(estimator).__name__} "
            "without. Search over a DP estimator or a pipeline with DP steps."
        )
    return sum(costs[1:], costs[0])


def _declared(estimator: Any, neighbours: dp.Neighbours) -> DPFitCost:
    """Bound the cost of one fit by what was asked, where each private step is fitted once."""
    private = private_steps(estimator, DPBase, ADVICE)
    return DPFitCost(
        events=tuple(_promise(model.epsilon, model.delta) for model in private),
        promised=math.fsum(model.epsilon for model in private),
        delta=math.fsum(model.delta for model in private),
        neighbours=neighbours,
        n_releases=len(private),
        simulation=any(model.simulate for model in private),
    )


def _relation(search: Any, told: Sequence[dp.Neighbours]) -> dp.Neighbours:
    """Return the relation of fits without a note, where all fits must be about the same."""
    searched = {name.split("__")[-1] for params in search.cv_results_["params"] for name in params}
    if not told or searched & {"neighbours", "sampling"}:
        raise CertificateError(
            "search must tell which neighbours each fit is about; got fits without a note of it. "
            f"{ADVICE}"
        )
    return told[0]


def _promise(epsilon: float, delta: float) -> dp.Event:
    if delta:
        return dp.ApproximateEvent(epsilon=float(epsilon), delta=float(delta))
    return dp.PureEvent(epsilon=float(epsilon))
