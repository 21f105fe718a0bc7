"""What leaves: a value with certified noise, its certificate, and how to check it."""

from pacprivacy.release.answers import AnswerBundle, certify_answers
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.certificate import Certificate
from pacprivacy.release.certify import Context, assess, write_certificate
from pacprivacy.release.dp_certificate import DPCertificate
from pacprivacy.release.dp_release import DPRelease
from pacprivacy.release.release import Release, Secret, publish
from pacprivacy.release.verification import Verified, load_bundle, verify

__all__ = [
    "AnswerBundle",
    "Bundle",
    "Certificate",
    "Context",
    "DPCertificate",
    "DPRelease",
    "Release",
    "Secret",
    "Verified",
    "assess",
    "certify_answers",
    "load_bundle",
    "publish",
    "verify",
    "write_certificate",
]
