"""Release any function of your data with a certificate of what every attacker can learn.

import pacprivacy as pac

release = pac.privatize(fit, (X, y), budget=pac.Membership(0.60))
release.value
print(release.certificate)

Every name is loaded on first use, so that the import itself takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pacprivacy._version import __version__ as __version__

if TYPE_CHECKING:
    from pacprivacy.budget import EpsilonEquivalent as EpsilonEquivalent
    from pacprivacy.budget import Information as Information
    from pacprivacy.budget import Membership as Membership
    from pacprivacy.budget import ResidualEntropy as ResidualEntropy
    from pacprivacy.budget import parse_budget as parse_budget
    from pacprivacy.comparison import compare as compare
    from pacprivacy.estimators import PrivateEstimator as PrivateEstimator
    from pacprivacy.estimators import PrivateForestClassifier as PrivateForestClassifier
    from pacprivacy.estimators import PrivateKMeans as PrivateKMeans
    from pacprivacy.estimators import PrivateLinearSVC as PrivateLinearSVC
    from pacprivacy.estimators import PrivateLogisticRegression as PrivateLogisticRegression
    from pacprivacy.estimators import PrivatePCA as PrivatePCA
    from pacprivacy.estimators import PrivatePredictor as PrivatePredictor
    from pacprivacy.estimators import PrivateRidge as PrivateRidge
    from pacprivacy.pool import Balanced as Balanced
    from pacprivacy.pool import Half as Half
    from pacprivacy.pool import Poisson as Poisson
    from pacprivacy.pool import Pool as Pool
    from pacprivacy.privatizing import plan as plan
    from pacprivacy.privatizing import privatize as privatize
    from pacprivacy.release import Certificate as Certificate
    from pacprivacy.release import Release as Release
    from pacprivacy.release import verify as verify
    from pacprivacy.reporting import report as report
    from pacprivacy.session import Accuracy as Accuracy
    from pacprivacy.session import Session as Session

# What type checkers read above, for the interpreter; a test holds the two together.
_NAMES_OF = {
    "budget": "EpsilonEquivalent Information Membership ResidualEntropy parse_budget",
    "comparison": "compare",
    "estimators": "PrivateEstimator PrivateForestClassifier PrivateKMeans PrivateLinearSVC "
    "PrivateLogisticRegression PrivatePCA PrivatePredictor PrivateRidge",
    "pool": "Balanced Half Poisson Pool",
    "privatizing": "plan privatize",
    "release": "Certificate Release verify",
    "reporting": "report",
    "session": "Accuracy Session",
}
_HOME_OF = {name: home for home, names in _NAMES_OF.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
