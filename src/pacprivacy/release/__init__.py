"""What leaves: a value with certified noise, its certificate, and how to check it."""

from pacprivacy._certificates import Verified, verify
from pacprivacy.release.answers import AnswerBundle, certify_answers
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.certificate import Certificate, NoiseSummary
from pacprivacy.release.certify import (
    Context,
    assess,
    bundle_of,
    finite_epsilon,
    noise_summary,
    noiseless_membership,
    write_certificate,
)
from pacprivacy.release.composition import SessionPart, charge_of, learned_facts, success_bound
from pacprivacy.release.promises import not_promised, open_parts
from pacprivacy.release.release import Release, Sampler, Secret
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
    "not_promised",
    "open_parts",
    "success_bound",
    "verify",
    "write_certificate",
]
