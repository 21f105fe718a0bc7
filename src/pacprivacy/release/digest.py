"""The digest of a certificate: one number by which ledger, report page and ``verify`` name it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["digest_of"]


def digest_of(plain: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a certificate, given as plain JSON types.

    It is taken of the JSON with sorted keys and no spaces, so that anyone who has the certificate
    can compute it, however the file was laid out.

    Examples
    --------
    >>> digest_of({"b": 1, "a": [0.5]}) == digest_of({"a": [0.5], "b": 1})
    True
    """
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
