"""A differentially private release: a value that may leave, and its certificate."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pacprivacy._certificates import plain_value, release_html
from pacprivacy.release.dp_certificate import DP_SCHEMA, DPCertificate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DPRelease:
    """What may leave under differential privacy; the sibling of ``Release``, never mixed with it.

    Parameters
    ----------
    value : Any, public
        The perturbed output.
    certificate : DPCertificate, public
        What is promised, about which neighbours, on which assumptions.
    """

    value: Any
    certificate: DPCertificate

    def _repr_html_(self) -> str:
        return release_html(repr(self.value), self.certificate._repr_html_())

    def to_public_dict(self) -> dict[str, Any]:
        """Return value and certificate as plain JSON types."""
        return {
            "schema_version": DP_SCHEMA,
            "value": plain_value(self.value),
            "certificate": self.certificate.to_public_dict(),
        }

    def save(self, folder: str | Path) -> Path:
        """Write ``release.json`` into a folder; there is nothing for the curator to keep."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        public = target / "release.json"
        text = json.dumps(self.to_public_dict(), indent=2, allow_nan=False)
        public.write_text(text + "\n", encoding="utf-8")
        return public
