"""``python -m pacprivacy``: the command ``pac``."""

from pacprivacy.cli.console import run_console

if __name__ == "__main__":
    run_console()
