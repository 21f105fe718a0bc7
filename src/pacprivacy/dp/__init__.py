"""Differential privacy: another promise, about whether a record is in at all.

Every mechanism returns a ``DPRelease``: a value, and the certificate of its promise. What
they ask for has the same name everywhere:

``X, y``, *curator-only*
    Features and target or labels, one row each. A record that is not finite, or whose label was
    not declared, counts as an empty one.
``epsilon, delta``
    The promise; ``delta`` below ``1/n``, or 0 for pure differential privacy.
``neighbours``
    ``"add_remove"`` or ``"replace"``: what counts as a difference of one record.
``x_bound, y_bound, loss_bound, classes``
    What a record may say: rows are clipped to this Euclidean norm, targets to this absolute value,
    losses to this range; of two classes, the second has positive scores. They are declared; one
    that is read off the data is a release without noise.
``clip_norm``
    Norm to which what is computed from a record (a row of a sum, a gradient, a block's output) is
    shrunk; declared as well.
``penalty``
    Of ``penalty |θ|²/2``, beside the sum of losses unless it says otherwise.
``gamma``
    Probability with which something said about *utility* may not hold.
``simulate``
    Seed of the noise, for experiments; such a release protects nobody.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pacprivacy.dp.accounting import (
    Accounts,
    account,
    advantage,
    calibrate_to_advantage,
    zcdp_epsilon,
)
from pacprivacy.dp.adaptive import Filter, Odometer
from pacprivacy.dp.aggregate import ClippedMean, GridMedian, subsample_aggregate
from pacprivacy.dp.audit import DPAudit, audit_dp
from pacprivacy.dp.certificate import DPCertificate, DPRelease, Neighbours
from pacprivacy.dp.descent import (
    Batch,
    FixedBatch,
    FullBatch,
    PoissonBatch,
    ReplacementBatch,
    Steps,
    descent_epsilon,
    descent_noise,
)
from pacprivacy.dp.events import (
    ApproximateEvent,
    Event,
    FixedSampling,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampling,
    PureEvent,
    ReplacementSampling,
    events_of,
)
from pacprivacy.dp.losses import Hinge, LinearLoss, Logistic, Softmax, Squared
from pacprivacy.dp.mechanisms import (
    choose_hypothesis,
    exponential,
    gaussian,
    laplace,
    private_mean,
    private_sum,
    score_loss,
)
from pacprivacy.dp.pate import DataDependentLoss, count_votes, data_dependent_loss, label_by_votes
from pacprivacy.dp.perturbation import (
    least_penalty,
    objective_perturbation,
    output_perturbation,
    ridge_output_perturbation,
)
from pacprivacy.dp.records import clip, sum_clipped
from pacprivacy.dp.regression import adassp, regression_from_statistics
from pacprivacy.dp.search import RandomRuns, dp_search, pure_search, search_noise
from pacprivacy.dp.sgd import dp_sgd, dp_sgd_jax
from pacprivacy.dp.verification import verify_dp

if TYPE_CHECKING:
    from pacprivacy.dp.estimators import (
        DPFitCost,
        DPLinearRegression,
        DPLogisticRegression,
        DPSearchCost,
        DPSGDClassifier,
        PATEClassifier,
        SubsampleAggregate,
    )

__all__ = [
    "Accounts",
    "ApproximateEvent",
    "Batch",
    "ClippedMean",
    "DPAudit",
    "DPCertificate",
    "DPFitCost",
    "DPLinearRegression",
    "DPLogisticRegression",
    "DPRelease",
    "DPSGDClassifier",
    "DPSearchCost",
    "DataDependentLoss",
    "Event",
    "Filter",
    "FixedBatch",
    "FixedSampling",
    "FullBatch",
    "GaussianEvent",
    "GridMedian",
    "Hinge",
    "LaplaceEvent",
    "LinearLoss",
    "Logistic",
    "Neighbours",
    "Odometer",
    "PATEClassifier",
    "PoissonBatch",
    "PoissonSampling",
    "PureEvent",
    "RandomRuns",
    "ReplacementBatch",
    "ReplacementSampling",
    "Softmax",
    "Squared",
    "Steps",
    "SubsampleAggregate",
    "account",
    "adassp",
    "advantage",
    "audit_dp",
    "calibrate_to_advantage",
    "choose_hypothesis",
    "clip",
    "count_votes",
    "data_dependent_loss",
    "descent_epsilon",
    "descent_noise",
    "dp_search",
    "dp_sgd",
    "dp_sgd_jax",
    "events_of",
    "exponential",
    "gaussian",
    "label_by_votes",
    "laplace",
    "least_penalty",
    "objective_perturbation",
    "output_perturbation",
    "private_mean",
    "private_sum",
    "pure_search",
    "regression_from_statistics",
    "ridge_output_perturbation",
    "score_loss",
    "search_noise",
    "subsample_aggregate",
    "sum_clipped",
    "verify_dp",
    "zcdp_epsilon",
]


def __getattr__(name: str) -> Any:
    # scikit-learn takes half a second to import; only those who use the estimators pay for it.
    if name in __all__:
        return getattr(import_module("pacprivacy.dp.estimators"), name)
    raise AttributeError(f"module 'pacprivacy.dp' has no attribute {name!r}")
