"""``pac report``: the page about a release."""

from pathlib import Path
from typing import Annotated

import typer

from pacprivacy.cli.main import AsJson, Quiet, Verb, show, show_json, show_status
from pacprivacy.reporting import BUNDLE_NAME, report as write_report


def _report(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="The release.json to explain.")
    ],
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", metavar="FILE", help="The curator's bundle; curator.npz beside the release."
        ),
    ] = None,
    curator: Annotated[
        bool,
        typer.Option(
            "--curator", help="The curator's version, with risk per unit; do not publish."
        ),
    ] = False,
    audit: Annotated[
        Path | None,
        typer.Option("--audit", metavar="FILE", help="What 'pac audit --json' printed, to show."),
    ] = None,
    session: Annotated[
        list[Path] | None,
        typer.Option(
            "--session", metavar="FILE", help="Another release of the same session; may repeat."
        ),
    ] = None,
    no_curve: Annotated[
        bool, typer.Option("--no-curve", help="Leave out noise against budget: faster.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The page; report.html beside the release."
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a page that says what a release promises, for readers of all kinds.

    One HTML file that works offline and prints well. The public version holds what the
    certificate says and, if the bundle is at hand, noise against budget: a function of all records
    and the pool, not of the secret. The curator's version adds the risk per unit and the noise
    per direction.
    """
    with show_status("gathering the figures", quiet=quiet):
        page = write_report(
            release,
            output,
            bundle=bundle,
            curator=curator,
            audit=audit or (),
            session=session or (),
            curve=not no_curve,
        )
    size = page.stat().st_size
    if as_json:
        version = "curator" if curator else "public"
        show_json({"report": str(page), "version": version, "bytes": size})
    elif not quiet:
        who = "curator only" if curator else "may be published"
        show(f"Wrote {page} ({who}, {size / 1024:.0f} kB)")
        if not no_curve and not (bundle or release.parent / BUNDLE_NAME).is_file():
            show("No bundle beside the release, so the page has no noise against budget.")


report = Verb(
    function=_report,
    example="""\
  pac report out/release.json
  pac report out/release.json --curator --audit audit.json -o curator.html""",
)
