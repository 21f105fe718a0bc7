"""The door from records to their pictures: the only place below ``reporting`` that names it.

A release, a session and an audit can be drawn, but do not know how. The package that draws is
imported when a picture is asked for, and nothing that it computes comes back into a record.
"""

from importlib import import_module
from typing import Any


def draw(name: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of :mod:`pacprivacy.reporting` by its name, and return its figure."""
    return getattr(import_module("pacprivacy.reporting"), name)(*arguments, **options)
