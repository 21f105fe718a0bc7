"""Release any function of your data with a certificate of what every attacker can learn.

import pacprivacy as pac

release = pac.privatize(fit, (X, y), budget=pac.Membership(0.60))
release.value
print(release.certificate)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pacprivacy._version import __version__
from pacprivacy.budget import (
    EpsilonEquivalent,
    Information,
    Membership,
    ResidualEntropy,
    parse_budget,
)
from pacprivacy.pool import Balanced, Half, Poisson, Pool
from pacprivacy.privatize import privatize
from pacprivacy.release import Certificate, Release, verify
from pacprivacy.session import Accuracy, Session

if TYPE_CHECKING:
    from pacprivacy.comparison import compare
    from pacprivacy.estimators import (
        PrivateEstimator,
        PrivateForestClassifier,
        PrivateKMeans,
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivatePCA,
        PrivatePredictor,
        PrivateRidge,
    )
    from pacprivacy.reporting import report

__all__ = [
    "Accuracy",
    "Balanced",
    "Certificate",
    "EpsilonEquivalent",
    "Half",
    "Information",
    "Membership",
    "Poisson",
    "Pool",
    "PrivateEstimator",
    "PrivateForestClassifier",
    "PrivateKMeans",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivatePredictor",
    "PrivateRidge",
    "Release",
    "ResidualEntropy",
    "Session",
    "__version__",
    "compare",
    "parse_budget",
    "privatize",
    "report",
    "verify",
]


def __getattr__(name: str) -> Any:
    # scikit-learn takes half a second to import; only those who use the estimators pay for it.
    if name.startswith("Private") and name in __all__:
        return getattr(import_module("pacprivacy.estimators"), name)
    if name == "compare":
        return import_module("pacprivacy.comparison").compare
    if name == "report":
        return import_module("pacprivacy.reporting").report
    raise AttributeError(f"module 'pacprivacy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
