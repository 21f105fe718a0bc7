"""The command ``pac``: one file per verb, on top of the library and imported by nothing."""

from pacprivacy.cli.main import app as app, run as run
