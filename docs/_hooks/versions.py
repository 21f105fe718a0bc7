"""Build the site of each series of versions in its own folder, with a list of all of them."""

import json
from pathlib import Path
from typing import Any

from pacprivacy import __version__

SERIES = ".".join(__version__.split(".")[:2])
REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>pacprivacy</title>
<meta http-equiv="refresh" content="0; url={newest}/"></head>
<body><a href="{newest}/">The documentation of pacprivacy {newest}</a></body></html>
"""


def on_config(config: Any) -> Any:
    """Build into a folder named after the series (called by mkdocs)."""
    config["site_dir"] = str(Path(config["site_dir"]) / SERIES)
    return config


def on_post_build(config: Any) -> None:
    """List the versions beside this one; the first page leads to the newest (called by mkdocs)."""
    site = Path(config["site_dir"]).parent
    series = sorted(
        (path.parent.name for path in site.glob("*/index.html")),
        key=lambda name: [int(part) for part in name.split(".")],
        reverse=True,
    )
    listed = [{"version": name, "title": name, "aliases": []} for name in series]
    (site / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (site / "index.html").write_text(REDIRECT.format(newest=series[0]), encoding="utf-8")
