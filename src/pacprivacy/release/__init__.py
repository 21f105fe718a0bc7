"""What leaves: a value with certified noise, its certificate, and how to check it."""

from pacprivacy.release.assess import Context, assess, write_certificate
from pacprivacy.release.bundle import Bundle
from pacprivacy.release.certificate import Certificate
from pacprivacy.release.dp_certificate import DPCertificate
from pacprivacy.release.dp_release import DPRelease
from pacprivacy.release.publish import Secret, publish
from pacprivacy.release.release import Release
from pacprivacy.release.verify import verify

__all__ = [
    "Bundle",
    "Certificate",
    "Context",
    "DPCertificate",
    "DPRelease",
    "Release",
    "Secret",
    "assess",
    "publish",
    "verify",
    "write_certificate",
]
