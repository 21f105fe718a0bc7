"""Attacks on simulated releases, to compare with the promise of the certificate.

Nothing here comes from ``noise``: an auditor that shares the calibrator's code shares its
mistakes.
"""

from pacprivacy.audit.attacks import (
    Bayes as Bayes,
    Guess as Guess,
    LikelihoodRatio as LikelihoodRatio,
    Naming as Naming,
    Precision as Precision,
)
from pacprivacy.audit.coin_attacks import (
    COIN_ATTACKS as COIN_ATTACKS,
    CoinTarget as CoinTarget,
)
from pacprivacy.audit.results import (
    ATTACKS as ATTACKS,
    DEFAULT_ATTACKS as DEFAULT_ATTACKS,
    AuditPromise as AuditPromise,
    AuditResult as AuditResult,
    AuditResults as AuditResults,
    audit as audit,
    audit_text as audit_text,
)
from pacprivacy.audit.target import Releases as Releases, Target as Target
