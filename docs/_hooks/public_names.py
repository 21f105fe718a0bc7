"""List the public names of a package on its reference page when the site is built."""

import importlib
import re
from typing import Any

MARK = re.compile(r"^<!-- names of ([\w.]+) -->$", re.MULTILINE)


def directives(package: str) -> str:
    """Return what makes mkdocstrings show every class and function that a package offers."""
    module = importlib.import_module(package)
    offered = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
    names = [name for name in offered if callable(getattr(module, name))]
    return "\n\n".join(f"::: {package}.{name}" for name in names)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the names where a page asks for them (called by mkdocs)."""
    return MARK.sub(lambda match: directives(match[1]), markdown)
