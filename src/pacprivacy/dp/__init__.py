"""Differential privacy: another promise, about whether a record is in at all.

Every mechanism returns a ``DPRelease``: a value, and the certificate of its promise. Parameters
that mechanisms share are explained here and nowhere else:

``X, y``, *curator-only*
    Features and target or labels, one row each; odd records count as empty ones.
``epsilon, delta``
    The promise; ``delta`` below ``1/n``, or 0 for pure differential privacy.
``neighbours``
    ``"add_remove"`` or ``"replace"``: what counts as a difference of one record.
``x_bound, y_bound, clip_norm, classes``
    Rows are clipped to this Euclidean norm, targets to this absolute value, contributions to this
    norm; of two classes, the second has positive scores. They are declared: a bound read off
    the data is a release without noise.
``penalty``
    Of ``penalty |θ|²/2``, beside the sum of losses unless it says otherwise.
``gamma``
    Probability with which something about *utility* may not hold.
``simulate``
    Seed of the noise, for experiments; such a release protects nobody.
"""

import importlib
import typing

from pacprivacy.dp.accounting import (
    Accounts as Accounts,
    TradeOffCurve as TradeOffCurve,
    account as account,
    advantage as advantage,
    calibrate_to_advantage as calibrate_to_advantage,
    trade_off as trade_off,
    verify_dp as verify_dp,
)
from pacprivacy.dp.aggregate import (
    MeanAggregator as MeanAggregator,
    MedianAggregator as MedianAggregator,
    count_pate_votes as count_pate_votes,
    label_by_votes as label_by_votes,
    subsample_aggregate as subsample_aggregate,
)
from pacprivacy.dp.audit import DPAudit as DPAudit, audit_dp as audit_dp
from pacprivacy.dp.certificate import (
    DPCertificate as DPCertificate,
    DPRelease as DPRelease,
    Neighbours as Neighbours,
)
from pacprivacy.dp.descent import (
    Batch as Batch,
    FixedBatch as FixedBatch,
    FullBatch as FullBatch,
    PoissonBatch as PoissonBatch,
    ReplacementBatch as ReplacementBatch,
    Steps as Steps,
    dp_descent_epsilon as dp_descent_epsilon,
    dp_descent_noise as dp_descent_noise,
)
from pacprivacy.dp.events import (
    ApproximateEvent as ApproximateEvent,
    Event as Event,
    FixedSampling as FixedSampling,
    GaussianEvent as GaussianEvent,
    LaplaceEvent as LaplaceEvent,
    PoissonSampling as PoissonSampling,
    PureEvent as PureEvent,
    ReplacementSampling as ReplacementSampling,
    events_of as events_of,
)
from pacprivacy.dp.linear_models import (
    adassp as adassp,
    least_penalty as least_penalty,
    objective_perturbation as objective_perturbation,
    output_perturbation as output_perturbation,
    regression_from_statistics as regression_from_statistics,
)
from pacprivacy.dp.mechanisms import (
    exponential as exponential,
    exponential_score_loss as exponential_score_loss,
    gaussian as gaussian,
    laplace as laplace,
    private_mean as private_mean,
    private_sum as private_sum,
)
from pacprivacy.dp.records import clip as clip, sum_clipped as sum_clipped
from pacprivacy.dp.sgd import (
    Hinge as Hinge,
    LinearLoss as LinearLoss,
    Logistic as Logistic,
    Softmax as Softmax,
    Squared as Squared,
    dp_search as dp_search,
    dp_search_noise as dp_search_noise,
    dp_sgd as dp_sgd,
    dp_sgd_jax as dp_sgd_jax,
)
from pacprivacy.dp.statistics import (
    STATISTICS as STATISTICS,
    release_dp_statistic as release_dp_statistic,
)

if typing.TYPE_CHECKING:
    from pacprivacy.dp.estimators import (
        DPLinearRegression as DPLinearRegression,
        DPLogisticRegression as DPLogisticRegression,
        DPSGDClassifier as DPSGDClassifier,
    )


def __getattr__(name: str) -> type:
    # scikit-learn takes half a second to import; only those who use the estimators pay for it.
    if name[0].isupper():
        estimator: type = getattr(importlib.import_module("pacprivacy.dp.estimators"), name)
        return estimator
    raise AttributeError(f"module 'pacprivacy.dp' has no attribute {name!r}")
