"""``pac report``: the page about a release."""

from pathlib import Path
from typing import Annotated

import typer

from pacprivacy._values import release_file
from pacprivacy.cli.console import Screen, Verb, option, show_status, switch
from pacprivacy.release import Release
from pacprivacy.reporting import report as write_report


def _report(
    *,
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="The release.json to explain, or its folder.")
    ],
    title: str = option("TEXT", "What the page is called.", default=""),
    by: str = option("NAME", "Who answers for it.", default=""),
    dataset: str = option("NAME", "What the data are called.", default=""),
    date: str | None = option("TEXT", "When; today by default."),
    officer: bool = switch("--officer", "One printed page for a privacy officer."),
    audit: Path | None = option("FILE", "What 'pac audit --json' printed, to show."),
    session: list[Path] | None = option("FILE", "Another release of the same session; may repeat."),
    output: Path | None = option(
        "FILE", "The page; report.html beside the release.", flags="--output -o"
    ),
    excel: Path | None = option(
        "FILE", "Write the numbers to an Excel file, too: one sheet a table."
    ),
    screen: Screen,
) -> None:
    """Write a page about the release and its promise.

    One HTML file that works offline and prints on two pages. It is a function of the release file.
    The officer's page is a certificate on one page, with a glossary.
    """
    with show_status("gathering the figures", quiet=screen.quiet):
        page = write_report(
            release,
            output,
            title=title,
            by=by,
            dataset=dataset,
            date=date,
            officer=officer,
            audit=audit or (),
            session=session or (),
        )
    if excel is not None:
        Release.load(release_file(release)).to_excel(excel)
    size = page.stat().st_size
    version = "officer" if officer else "public"
    screen.show(
        f"Wrote {page} (may be published, {size / 1024:.0f} kB)",
        {"report": str(page), "version": version, "bytes": size},
    )


report = Verb(
    function=_report,
    example="""\
  pac report out/release.json --title "Incomes by region" --by "A. Curator"
  pac report out/release.json --officer
  pac report out/release.json --excel values.xlsx
  pac report out/release.json --audit audit.json""",
)
