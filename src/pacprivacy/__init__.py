"""Release any function of your data with a certificate of what every attacker can learn.

import pacprivacy as pac

release = pac.privatize(fit, (X, y), budget=pac.Membership(0.60))
release.value
print(release.certificate)
"""

from pacprivacy._version import __version__
from pacprivacy.accounting import Session
from pacprivacy.budget import EpsilonEquivalent, Information, Membership, parse_budget
from pacprivacy.pool import Balanced, Half, Poisson, Pool
from pacprivacy.privatize import privatize
from pacprivacy.release import Certificate, Release, verify

__all__ = [
    "Balanced",
    "Certificate",
    "EpsilonEquivalent",
    "Half",
    "Information",
    "Membership",
    "Poisson",
    "Pool",
    "Release",
    "Session",
    "__version__",
    "parse_budget",
    "privatize",
    "verify",
]
