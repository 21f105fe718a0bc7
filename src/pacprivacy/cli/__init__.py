"""The command ``pac``: one file per verb, on top of the library and imported by nothing."""

from pacprivacy.cli.console import app as app, run_console as run_console
