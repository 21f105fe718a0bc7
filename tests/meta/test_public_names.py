"""Every public name says what it is and shows an example; pytest runs the example as a doctest."""

import importlib
import inspect

import pytest

PACKAGES = (
    "pacprivacy",
    "pacprivacy.accounting",
    "pacprivacy.accuracy_first",
    "pacprivacy.adversary",
    "pacprivacy.audit",
    "pacprivacy.budget",
    "pacprivacy.design",
    "pacprivacy.dp",
    "pacprivacy.errors",
    "pacprivacy.estimators",
    "pacprivacy.mechanism",
    "pacprivacy.noise",
    "pacprivacy.pool",
    "pacprivacy.release",
    "pacprivacy.report",
    "pacprivacy.residual",
    "pacprivacy.residual.learned",
    "pacprivacy.simulation",
    "pacprivacy.theory",
)

# Not classes or functions: their meaning is where they are used.
CONSTANTS = {
    "pacprivacy": {"__version__"},
    "pacprivacy.audit": {"ATTACKS", "DEFAULT_ATTACKS"},
    "pacprivacy.budget": {"AnyBudget"},
    "pacprivacy.noise": {"RULES", "Rule"},
    "pacprivacy.pool": {"DEFAULT_SUBSETS"},
    "pacprivacy.residual": {"EXAMPLES"},
    "pacprivacy.theory": {"DIVERGENCES"},
}


def lacks(obj: object) -> list[str]:
    """What the docstring of a public object is missing."""
    own = vars(obj).get("__doc__") if isinstance(obj, type) else obj.__doc__
    doc = inspect.cleandoc(own or "")
    if not doc:
        return ["a docstring"]
    _, heading, examples = doc.partition("Examples\n--------\n")
    return [] if heading and ">>> " in examples else ["an Examples section that runs"]


def public(package: str) -> list[str]:
    module = importlib.import_module(package)
    return sorted(set(module.__all__) - CONSTANTS.get(package, set()))


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in PACKAGES for name in public(package)]
)
def test_public_name_has_an_example(package: str, name: str) -> None:
    found = lacks(getattr(importlib.import_module(package), name))
    assert not found, f"{package}.{name} needs {found[0]}"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_that_is_offered_exists(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert CONSTANTS.get(package, set()) <= set(module.__all__)


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

    assert lacks(bare) == lacks(Inherits) == ["a docstring"]
    assert lacks(words) == lacks(empty) == ["an Examples section that runs"]
    assert lacks(importlib.import_module("pacprivacy").privatize) == []
