"""Every public name says what it is; those that users meet first show an example that runs."""

import importlib
import inspect
import pkgutil

import pytest

import pacprivacy

PACKAGES = (
    "pacprivacy",
    *(f"pacprivacy.{found.name}" for found in pkgutil.iter_modules(pacprivacy.__path__)),
)
DOORS = tuple(
    name
    for name in PACKAGES
    if name == "pacprivacy"
    or importlib.import_module(name).__spec__.submodule_search_locations is not None
)
WITH_EXAMPLES = ("pacprivacy", "pacprivacy.estimators")


def lacks(obj: object, *, example: bool) -> list[str]:
    """What the docstring of a public object is missing."""
    own = vars(obj).get("__doc__") if isinstance(obj, type) else obj.__doc__
    doc = inspect.cleandoc(own or "")
    if not doc:
        return ["a docstring"]
    _, heading, examples = doc.partition("Examples\n--------\n")
    shown = bool(heading) and ">>> " in examples
    return [] if shown or not example else ["an Examples section that runs"]


def names_of(package: str) -> list[str]:
    """What a door offers: its ``__all__``; where there is none, all that it imports."""
    module = importlib.import_module(package)
    held = [n for n, o in vars(module).items() if n[0] != "_" and not inspect.ismodule(o)]
    return list(getattr(module, "__all__", held))


def public(package: str) -> list[str]:
    """Classes and functions of a door; constants and types are explained where they are used."""
    offered = {name: getattr(importlib.import_module(package), name) for name in names_of(package)}
    return sorted(n for n, o in offered.items() if inspect.isclass(o) or inspect.isfunction(o))


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in DOORS for name in public(package)]
)
def test_public_name_is_explained(package: str, name: str) -> None:
    thing = getattr(importlib.import_module(package), name)
    found = lacks(thing, example=package in WITH_EXAMPLES)
    assert not found, f"{package}.{name} needs {found[0]}"


@pytest.mark.parametrize("package", DOORS)
def test_every_name_that_is_offered_exists(package: str) -> None:
    module = importlib.import_module(package)
    offered = names_of(package)
    assert offered
    assert [name for name in offered if not hasattr(module, name)] == []


def test_missing_examples_are_found() -> None:
    def bare() -> None: ...

    def words() -> None:
        """Do it."""

    def empty() -> None:
        """Do it.

        Examples
        --------
        In words only.
        """

    class Inherits(str):
        pass

    assert lacks(bare, example=False) == lacks(Inherits, example=False) == ["a docstring"]
    missing = ["an Examples section that runs"]
    assert lacks(words, example=True) == lacks(empty, example=True) == missing
    assert lacks(words, example=False) == []
    assert lacks(pacprivacy.privatize, example=True) == []
