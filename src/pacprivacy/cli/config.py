"""``pac.toml``: options of a study that is repeated, written down once.

A section per verb holds its options without dashes, ``[study]`` those that several verbs share.
What is typed goes before what is in the file.
"""

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pacprivacy.errors import DataError

CONFIG_NAME: Final = "pac.toml"
# What means the same to every verb that has it.
SHARED: Final = (
    "data",
    "model",
    "target",
    "columns",
    "unit",
    "subsets",
    "rule",
    "bins",
    "ranges",
    "clusters",
    "components",
    "C",
    "trees",
    "depth",
    "jobs",
    "ledger",
    "dataset",
    "principal",
)
STUDY: Final = "study"


def read_config(path: Path | None, group: Any, called: str) -> dict[str, Any] | None:
    """Read the options of the verb that is called, by the names of its parameters.

    Every section is checked, also those of other verbs.
    """
    if path is None:
        path = Path(CONFIG_NAME)
        if not path.is_file():
            return None
    content = _load(path)
    shared = content.pop(STUDY, {})
    _check_section(path, STUDY, shared)
    for name in shared:
        if name not in SHARED:
            raise _unknown(f"{path}: option of [{STUDY}]", name, SHARED)
    return _read_group(path, content, group, shared, called=called)


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        reason = error.strerror or "not readable"
    except (ValueError, RecursionError) as error:  # also of bytes that are no text
        reason = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "not TOML"
    raise DataError(f"{path} must be a readable TOML file; got: {reason}. Correct or move it.")


def _read_group(
    path: Path,
    content: Mapping[str, Any],
    group: Any,
    shared: Mapping[str, Any],
    *,
    called: str | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """Read the sections of a group; ``called`` alone and those that the file has are loaded."""
    found: dict[str, Any] = {}
    for verb in content:
        if verb not in group.commands:
            known = tuple(f"{prefix}{name}" for name in group.commands)
            sections = known if prefix else (STUDY, *known)
            raise _unknown(f"{path}: section", f"{prefix}{verb}", sections)
    for verb in group.commands:
        if called is not None and verb != called and verb not in content:
            continue
        command = group.get_command(None, verb)
        section = content.get(verb, {})
        _check_section(path, f"{prefix}{verb}", section)
        if hasattr(command, "commands"):
            inner = _read_group(path, section, command, shared, prefix=f"{verb}.")
            found |= {verb: inner} if inner else {}
            continue
        parameters = dict(_named(command))
        for name in section:
            if name not in parameters:
                raise _unknown(f"{path}: option of [{prefix}{verb}]", name, tuple(parameters))
        wanted = {name: value for name, value in shared.items() if name in parameters} | section
        values = {
            parameters[name].name: _value(f"{path}: {prefix}{verb}.{name}", value, parameters[name])
            for name, value in wanted.items()
        }
        found |= {verb: values} if values else {}
    return found


def _named(command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of a verb by the names that a file gives them."""
    for parameter in command.params:
        first = parameter.opts[0]
        if first.startswith("--"):
            yield first.removeprefix("--"), parameter
        elif parameter.metavar is not None:
            yield parameter.metavar.lower(), parameter


def _value(name: str, value: Any, parameter: Any) -> Any:
    """Return a value as it would have been typed."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise DataError(f"{name} must be true or false; got {value!r}. Write it bare.")
        return value
    items = value if isinstance(value, list) else [value]
    if not items or not all(_is_plain(item) for item in items):
        raise DataError(
            f"{name} must be text or a number, or a list of those; got {type(value).__name__}. "
            'Write it as on the command line, for example "0,100".'
        )
    words = [str(item) for item in items]
    return words if parameter.multiple else ",".join(words)


def _is_plain(item: Any) -> bool:
    return isinstance(item, str | int | float) and not isinstance(item, bool)


def _check_section(path: Path, name: str, section: Any) -> None:
    if not isinstance(section, dict):
        raise DataError(
            f"{path}: {name} must be a section; got {type(section).__name__}. "
            f"Write [{name}] on a line of its own, and its options below."
        )


def _unknown(what: str, name: str, known: tuple[str, ...]) -> DataError:
    near = get_close_matches(name, known, n=1)
    advice = f"Did you mean {near[0]!r}?" if near else "'pac VERB --help' has the options."
    return DataError(f"{what} must be one of {', '.join(known)}; got {name[:40]!r}. {advice}")
