"""The page in the browser: the same for everyone; what it shows it asks for with a token."""

from __future__ import annotations

from importlib import resources
from typing import Final

from pacprivacy.reporting import page_content_source, read_page_template


def _read(name: str) -> str:
    return resources.files("pacprivacy.serve").joinpath("templates", name).read_text("utf-8")


_CSS: Final = read_page_template("report.css") + _read("service.css")
_JS: Final = _read("service.js")
PAGE: Final = _read("service.html").replace("/*css*/", _CSS).replace("/*js*/", _JS)
PAGE_POLICY: Final = (
    f"default-src 'none'; script-src '{page_content_source(_JS)}'; "
    f"style-src '{page_content_source(_CSS)}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
