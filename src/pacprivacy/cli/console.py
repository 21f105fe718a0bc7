"""The command ``pac``: its verbs, options, output and error messages.

A verb is a module of this package with a ``Verb``, or a group, of its own name, loaded when it
is called. Errors are one line on stderr, never a traceback. Exit codes: 0 done, 1 a defect of this
program, 2 bad input, 3 budget refused, 4 an audit found a broken promise, 130 stopped by a signal.
"""

import inspect
import json
import math
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields, is_dataclass
from importlib import import_module
from typing import Annotated, Any, Final, Literal, Never, cast, get_type_hints

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup
from typer.main import get_command

from pacprivacy import _version
from pacprivacy._system import begin, show_stages
from pacprivacy.errors import BudgetError, BudgetExceededError, DataError, PacPrivacyError

# --- what verbs read and print -------------------------------------------------------------

_FORM: Final = re.compile(r"^\s*([^\s/%]+)\s*(?:/\s*([^\s/%]+)\s*)?(%?)\s*$")


def read_console_number(name: str, text: str) -> float:
    """Read a number, a fraction or a percentage."""
    match = _FORM.match(text)
    try:
        if match is None:
            raise ValueError
        value = float(match[1]) / float(match[2] or 1) / (100 if match[3] else 1)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not math.isfinite(value):
        raise BudgetError(
            f"{name} must be a number; got {text!r}. Write it as 0.25, 25% or 1/4."
        ) from None
    return value


def read_console_pair(name: str, text: str) -> tuple[float, float]:
    """Read ``LO,HI`` with LO below HI."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DataError(
            f"{name} must be two numbers LO,HI with LO below HI; got {text!r}. Write it as 0,100."
        )
    return low, high


def format_console_number(value: float) -> str:
    """Write a number with six significant digits."""
    return f"{value:.6g}"


_STYLES: Final = {"error": "bold red", "warning": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb's function and the examples under its help."""

    function: Callable[..., None]
    example: str

    def join(self, group: typer.Typer, name: str) -> None:
        """Make this a command of a group."""
        examples = f"\b\nExample:\n{self.example}"  # the first character: not to be wrapped
        group.command(name, epilog=examples)(_spread(self.function))


def _spread(function: Callable[..., None]) -> Callable[..., None]:
    """Return a verb's function with the fields of its records of options as options of its own."""
    signature = inspect.signature(function, eval_str=True)
    records: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        record = parameter.annotation
        if not is_dataclass(record):
            parameters.append(_parameter(parameter.name, record, parameter.default))
            continue
        records[parameter.name], hints = record, get_type_hints(record, include_extras=True)
        own = inspect.get_annotations(cast("type[object]", record))  # before inherited ones
        for item in sorted(fields(record), key=lambda each: each.name not in own):
            parameters.append(_parameter(item.name, hints[item.name], item))

    def verb(**values: Any) -> None:
        for name, record in records.items():
            values[name] = record(**{item.name: values.pop(item.name) for item in fields(record)})
        function(**values)

    verb.__doc__ = function.__doc__
    verb.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return verb


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """Return a parameter as Typer takes it, given a default or the field of an option."""
    if isinstance(default, Field):
        if "typed" in default.metadata:
            hint = Annotated[hint, default.metadata["typed"]]
        default = default.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def typed_option(
    metavar: str | None,
    help: str,
    *,
    flags: str = "",
    choices: Iterable[str] = (),
    least: int | None = None,
) -> Any:
    """Return an option for ``Annotated``, by its parameter's name unless there are ``flags``.

    Without a placeholder it takes no value.
    """
    known = tuple(choices)

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return typer.Option(
        *flags.split(),
        metavar=metavar,
        help=help,
        min=least,
        autocompletion=complete if known else None,
    )


def option(
    metavar: str,
    help: str,
    *,
    flags: str = "",
    default: Any = None,
    choices: Iterable[str] = (),
    least: int | None = None,
) -> Any:
    """Return an option as the default of a verb's parameter, or as a field of its options."""
    typed = typed_option(metavar, help, flags=flags, choices=choices, least=least)
    return field(default=default, metadata={"typed": typed})


def switch(flags: str, help: str) -> Any:
    """Return an option without a value, in the same places."""
    return field(default=False, metadata={"typed": typed_option(None, help, flags=flags)})


_COMMANDS: Final = re.compile("[^\t\n -~\xa0-\U0010ffff]")  # what terminals obey


def _printable(text: str) -> str:
    return _COMMANDS.sub("\N{REPLACEMENT CHARACTER}", text)


def show(text: str, *, style: str = "") -> None:
    """Print a text without wrapping its lines."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(_printable(text), style=style))


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What a verb prints: a text for people, JSON for machines, or nothing."""

    as_json: bool = switch("--json", "Print JSON for machines on stdout.")
    quiet: bool = switch("--quiet -q", "Print nothing but errors and JSON.")

    @property
    def is_for_people(self) -> bool:
        """Whether a text is printed."""
        return not (self.as_json or self.quiet)

    @property
    def progress(self) -> bool | None:
        """Whether the library shows its progress; None where it decides itself."""
        return False if self.quiet else None

    def show(self, text: str | Callable[[], object], content: Any) -> None:
        """Print a text or the output of a function; with ``--json``, plain types as JSON."""
        if self.as_json:
            sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")
        elif self.quiet:
            return
        elif isinstance(text, str):
            show(text)
        else:
            text()


@contextmanager
def show_status(text: str, *, quiet: bool) -> Iterator[Callable[[str], object]]:
    """Show the current stage and the elapsed time; yields a function that names the next stage."""
    with show_stages(False if quiet else None):
        begin(text)
        yield begin


def show_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = ()
) -> None:
    """Print a table without rules; the first column and ``left`` to the left, the rest right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        shown = Text(_printable(heading))  # as it is: no markup
        table.add_column(shown, justify="right" if number and heading not in left else "left")
    for row in rows:
        table.add_row(*(Text(_printable(cell)) for cell in row))
    Console(highlight=False).print(table)


def complain(message: str, *, kind: Literal["error", "warning"] = "error") -> None:
    """Print one line on stderr, whatever line breaks the message has."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    sentence = _printable(" ".join(message.split()))
    line = Text.assemble("pac: ", (f"{kind}:", _STYLES[kind]), " ", sentence)
    console.print(line)


def tell_curator(notes: Iterable[str], *, quiet: bool) -> None:
    """Print a note for the curator alone, on stderr; it is in no file."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for note in () if quiet else notes:
        console.print(Text.assemble("pac: ", ("curator only:", "cyan"), " ", _printable(note)))


_PARAMETERS: Final = (  # as the library names them, and as they are typed
    (r"a pool(?::| \()\s*(?:sample=)?pac\.Balanced(?:\(\))?\)?", "--sample pool"),
    (
        r"^budget must be given for a new session; got None, (.*?) For example .*",
        r'--total must be given for a new session, \1 For example --total "membership<=0.6".',
    ),
    (r"\bdataset=(?=')", "--dataset "),
    (r"^(attack|audit|budget|keep|missing|output|rule|unit|where) must\b", r"--\1 must"),
    (r"^q must\b", "--quantiles must"),
    (r"\bq=\(([\d., ]+)\)", lambda match: "--quantiles " + match[1].replace(" ", "")),
    (r"^n_(subsets|clusters|components) must\b", r"--\1 must"),
    (r"^mi_nats must\b", "mi must"),
    (r"\bkeys=\{'(\w+)': \[\.\.\.\]\}", r"--keys \1=A,B"),
    (r"\bkeys='universe'", "--keys universe"),
    (r", or AutoConfidence\(.*?Shaped\(covariance\)", ""),
    (r"\bclip='?auto'? must\b", "--clip auto must"),
    (r"\bsmaller keep\b", "smaller --keep"),
    (r"\b(fill|keep|clip)=(?=[\w.])", r"--\1 "),
    (r"\b(levels|where)=\.{3,4}", r"--\1."),
    (r"\bunits='([^']*)'", r"--unit \1"),
    (r"\b(missing|categories)='([^']*)'", r"--\1 \2"),
)


def _with_options(message: str) -> str:
    for pattern, typed in _PARAMETERS:
        message = re.sub(pattern, typed, message)
    return message


# --- the command ----------------------------------------------------------------------------

DEFECT: Final = 1
BAD_INPUT: Final = 2
BUDGET_REFUSED: Final = 3
INTERRUPTED: Final = 130

# Typer brings its own copy of click in some versions and imports click in others.
_USAGE: Final = (  # as Typer says it, and as we do
    (r" \(Possible options: ([^,)]+).*\)$", r". Did you mean \1?"),
    (r"^Invalid value for '(--[\w-]+)': Input should be ([^,]*).*$", r"\1 must be \2"),
)
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]

# For the list of verbs, which loads none of them.
VERBS: Final = {
    "demo": "Release a mean and a k-means fit of public data.",
    "plan": "Show privacy against utility for several budgets.",
    "schema": "Describe the columns of a table in a file, to be checked by hand.",
    "release": "Release a statistic or a model of a table.",
    "sql": "Answer a SQL query over tables.",
    "predict": "Apply a released model to new rows.",
    "serve": "Answer questions about a saved model or tables over HTTP.",
    "verify": "Recompute a certificate from the curator's bundle.",
    "audit": "Attack simulated releases and compare with the promise.",
    "report": "Write a page that explains a release.",
    "convert": "Read a budget as success rate, epsilon and Gaussian DP.",
    "reproduce": "Recompute the tables and figures of a paper.",
    "ledger": "Set budgets, show spending, and check the ledger.",
}

WELCOME: Final = """\
pac: release any function of your data with a certificate of what every attacker
can learn.

Type next:
  pac demo                         see it work on public data, in half a minute
  pac plan people.csv --model mean see what a budget costs, before it is spent
  pac release people.csv --model mean --budget "membership<=0.6" -o out
                                   a private release of your own table
  pac verify out/release.json      recompute its certificate
  pac audit out/release.json       attack it, beside its certificate
  pac report out/release.json      explain it on a page for its readers
  pac convert --mi 1/64            read a budget as success rate or epsilon
  pac --help                       all verbs; each has --help with an example"""


class _Verbs(TyperGroup):
    """Loads verbs on demand; turns their exceptions into one line and an exit code."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = dict.fromkeys(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in VERBS and self.commands[cmd_name] is None:
            verb = getattr(import_module(f"pacprivacy.cli.{cmd_name}"), cmd_name)
            group = verb
            if isinstance(verb, Verb):
                group = typer.Typer(rich_markup_mode=None, add_completion=False)
                verb.join(group, cmd_name)
            self.commands[cmd_name] = get_command(group)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            complain(str(error) or "stopped before it was done.")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if not _SIGNALS or isinstance(error, typer.Exit):
                return self._explain(error)
            complain("stopped before it was done.")  # a signal in the middle of something else
            raise typer.Exit(INTERRUPTED) from None

    @staticmethod
    def _explain(failed: Exception) -> Never:
        try:
            raise failed
        except PacPrivacyError as error:
            complain(_with_options(str(error)))
            code = BUDGET_REFUSED if isinstance(error, BudgetExceededError) else BAD_INPUT
            raise typer.Exit(code) from None
        except (typer.Exit, typer.Abort, _UsageError, BrokenPipeError):
            raise
        except OSError as error:  # of a path that no verb has checked: too long, no room left
            complain(
                f"files must be readable and writable; got {error.strerror or 'an error'} at "
                f"{str(error.filename)[:60]!r}. Check the path and the disk."
            )
            raise typer.Exit(BAD_INPUT) from None
        except MemoryError:
            complain("the work must fit into memory; it does not. Ask for less, or use fewer rows.")
            raise typer.Exit(BAD_INPUT) from None
        except Exception as error:
            if os.environ.get("PAC_TRACEBACK"):
                raise
            # The text of a foreign exception may hold data, so only its kind is shown.
            complain(
                f"a defect of this program ({type(error).__name__}). "
                "Set PAC_TRACEBACK=1 to see where, and report it."
            )
            raise typer.Exit(DEFECT) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except _UsageError as error:
            context = getattr(error, "ctx", None)
            verb = "pac" if context is None else context.command_path
            message = error.format_message()  # type: ignore[attr-defined]
            for theirs, ours in _USAGE:
                message = re.sub(theirs, ours, message)
            stop = "" if message.endswith((".", "?")) else "."
            complain(f"{message}{stop} See '{verb} --help'.")
            code = BAD_INPUT
        words = sys.argv[1:] if args is None else args
        if code == DEFECT and any(word.endswith("-completion") for word in words):
            complain("the shell must be bash, zsh, fish or PowerShell; got another. Run it there.")
            code = BAD_INPUT
        if standalone_mode:
            sys.exit(code)
        return code


app = typer.Typer(
    name="pac",
    cls=_Verbs,
    help="Release any function of your data with a certificate of what every attacker can learn.",
    epilog="Exit codes: 0 done, 2 bad input, 3 budget refused, 4 promise broken. "
    "'pac VERB --help' has examples.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


def _show_version(requested: bool) -> None:
    if requested:
        show(f"pacprivacy {_version.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _welcome(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and stop.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Suggest a first command if no verb is given."""
    if ctx.invoked_subcommand is None:
        show(WELCOME)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    complain(str(message), kind="warning")


_SIGNALS: Final[list[int]] = []  # that came


def _stop(number: int, _: Any) -> None:
    _SIGNALS.append(number)
    raise KeyboardInterrupt


def run_console() -> None:
    """Entry point of the script ``pac``."""
    warnings.showwarning = _show_warning
    signal.signal(signal.SIGTERM, _stop)  # as Ctrl-C does: worker processes are ended too
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
        signal.signal(signal.SIGINT, _stop)
    app(prog_name="pac")
