"""Attacks run as attacks, on simulated releases, beside what the certificate promises.

Nothing here comes from ``noise``: an auditor that shares the calibrator's code shares its
mistakes.
"""

from pacprivacy.audit.attack import Attack, Guess, Trained
from pacprivacy.audit.differential import DPAudit, audit_dp
from pacprivacy.audit.membership import Bayes, LikelihoodRatio, Precision
from pacprivacy.audit.reconstruction import FreeOverlap, Naming, Overlap, Reconstruction
from pacprivacy.audit.results import AuditResult, AuditResults, results_text
from pacprivacy.audit.run import ATTACKS, DEFAULT_ATTACKS, Promise, audit
from pacprivacy.audit.target import Releases, Target

__all__ = [
    "ATTACKS",
    "DEFAULT_ATTACKS",
    "Attack",
    "AuditResult",
    "AuditResults",
    "Bayes",
    "DPAudit",
    "FreeOverlap",
    "Guess",
    "LikelihoodRatio",
    "Naming",
    "Overlap",
    "Precision",
    "Promise",
    "Reconstruction",
    "Releases",
    "Target",
    "Trained",
    "audit",
    "audit_dp",
    "results_text",
]
