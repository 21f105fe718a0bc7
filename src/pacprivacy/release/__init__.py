"""What leaves: a value with certified noise, its certificate, and how to check it."""

from pacprivacy._certificates import Verified, verify
from pacprivacy.release.answers import AnswerBundle, certify_answers
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.certificate import Certificate, NoiseSummary, finite_epsilon
from pacprivacy.release.certify import (
    Context,
    assess,
    bundle_of,
    noise_summary,
    noiseless_membership,
    write_certificate,
)
from pacprivacy.release.composition import SessionPart, charge_of, learned_facts, success_bound
from pacprivacy.release.release import Release, Sampler, Secret
from pacprivacy.release.text import open_parts
from pacprivacy.release.verification import load_bundle

__all__ = [
    "AnswerBundle",
    "Bundle",
    "Certificate",
    "Context",
    "NoiseSummary",
    "Release",
    "Sampler",
    "Secret",
    "SessionPart",
    "Verified",
    "assess",
    "bundle_of",
    "certify_answers",
    "charge_of",
    "finite_epsilon",
    "learned_facts",
    "load_bundle",
    "noise_summary",
    "noiseless_membership",
    "open_parts",
    "success_bound",
    "verify",
    "write_certificate",
]
