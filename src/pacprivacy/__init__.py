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
    from pacprivacy import stats as stats
    from pacprivacy.budget import (
        EpsilonEquivalent as EpsilonEquivalent,
        Information as Information,
        Membership as Membership,
        ResidualEntropy as ResidualEntropy,
        parse_budget as parse_budget,
    )
    from pacprivacy.estimators import (
        PrivateEstimator as PrivateEstimator,
        PrivateForestClassifier as PrivateForestClassifier,
        PrivateKMeans as PrivateKMeans,
        PrivateLinearRegression as PrivateLinearRegression,
        PrivateLinearSVC as PrivateLinearSVC,
        PrivateLogisticRegression as PrivateLogisticRegression,
        PrivatePCA as PrivatePCA,
        PrivatePoissonRegressor as PrivatePoissonRegressor,
        PrivatePredictor as PrivatePredictor,
        PrivateQuantileRegressor as PrivateQuantileRegressor,
        PrivateRidge as PrivateRidge,
    )
    from pacprivacy.mechanism import Descent as Descent
    from pacprivacy.privatizing import plan as plan, privatize as privatize, sql as sql
    from pacprivacy.queries import Tables as Tables
    from pacprivacy.release import Certificate as Certificate, Release as Release, verify as verify
    from pacprivacy.reporting import report as report
    from pacprivacy.sample import (
        Balanced as Balanced,
        Coins as Coins,
        Half as Half,
        Poisson as Poisson,
        Pool as Pool,
    )
    from pacprivacy.session import Accuracy as Accuracy, Session as Session
    from pacprivacy.statistics import Study as Study, check_influence as check_influence

# What type checkers read above, for the interpreter; a test holds the two together.
_NAMES_OF = {
    "budget": "EpsilonEquivalent Information Membership ResidualEntropy parse_budget",
    "estimators": "PrivateEstimator PrivateForestClassifier PrivateKMeans PrivateLinearRegression "
    "PrivateLinearSVC PrivateLogisticRegression PrivatePCA PrivatePoissonRegressor "
    "PrivatePredictor PrivateQuantileRegressor PrivateRidge",
    "mechanism": "Descent",
    "sample": "Balanced Coins Half Poisson Pool",
    "privatizing": "plan privatize sql",
    "release": "Certificate Release verify",
    "reporting": "report",
    "session": "Accuracy Session",
    "queries": "Tables",
    "statistics": "Study check_influence",
}
_SPACES = ("stats",)
_HOME_OF = {name: home for home, names in _NAMES_OF.items() for name in names.split()}

__all__ = ["__version__", *sorted((*_HOME_OF, *_SPACES))]


def __getattr__(name: str) -> Any:
    if name in _SPACES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
