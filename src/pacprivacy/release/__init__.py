"""What leaves: a value with certified noise, its certificate, and how to check it."""

from pacprivacy.release.answers import AnswerBundle, certify_answers
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.certificate import Certificate, NoiseSummary, finite_epsilon
from pacprivacy.release.certify import (
    Context,
    assess,
    noise_summary,
    noiseless_membership,
    write_certificate,
)
from pacprivacy.release.composition import SessionPart, Spent, charge_of, learned_facts
from pacprivacy.release.dp_certificate import (
    NEIGHBOURS,
    NOT_PROMISED,
    ONE_RELEASE,
    DPCertificate,
    Neighbours,
)
from pacprivacy.release.dp_release import DPRelease
from pacprivacy.release.release import Release, Secret, publish
from pacprivacy.release.text import open_parts
from pacprivacy.release.verification import Verified, load_bundle, verify

__all__ = [
    "NEIGHBOURS",
    "NOT_PROMISED",
    "ONE_RELEASE",
    "AnswerBundle",
    "Bundle",
    "Certificate",
    "Context",
    "DPCertificate",
    "DPRelease",
    "Neighbours",
    "NoiseSummary",
    "Release",
    "Secret",
    "SessionPart",
    "Spent",
    "Verified",
    "assess",
    "certify_answers",
    "charge_of",
    "finite_epsilon",
    "learned_facts",
    "load_bundle",
    "noise_summary",
    "noiseless_membership",
    "open_parts",
    "publish",
    "verify",
    "write_certificate",
]
