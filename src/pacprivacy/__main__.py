"""``python -m pacprivacy``: the command ``pac``."""

from pacprivacy.cli.main import run

if __name__ == "__main__":
    run()
