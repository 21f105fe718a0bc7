"""``pac report``: a release explained on one page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from pacprivacy.cli.console import AsJson, Quiet, Verb, show, show_json, show_status
from pacprivacy.cli.report_data import build_report, check_belongs, read_audit
from pacprivacy.errors import CertificateError, PacPrivacyError
from pacprivacy.release import AnswerBundle, Bundle, Certificate, load_bundle
from pacprivacy.report import render_page

__all__ = ["report"]

BUNDLE_NAME: Final = "curator.npz"


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
    certificate = Certificate.read(release)
    others = [Certificate.read(path) for path in session or []]
    results = () if audit is None else read_audit(audit)
    found = _find_bundle(release, bundle, needed=curator)
    if found is not None:
        check_belongs(certificate, found)
    target = output or release.parent / ("curator.html" if curator else "report.html")
    with show_status("gathering the figures", quiet=quiet), _blame_file(release):
        data = build_report(
            certificate,
            bundle=found,
            curve=not no_curve,
            curator=curator,
            session=others,
            audit=results,
        )
        page = render_page(data)
    write_page(page, target, private=curator)
    if as_json:
        version = "curator" if curator else "public"
        show_json({"report": str(target), "version": version, "bytes": len(page.encode())})
    elif not quiet:
        who = "curator only" if curator else "may be published"
        show(f"Wrote {target} ({who}, {len(page.encode()) / 1024:.0f} kB)")
        if data.curve is None and not no_curve and found is None:
            show("No bundle beside the release, so the page has no noise against budget.")


@contextmanager
def _blame_file(release: Path) -> Iterator[None]:
    """Refuse a certificate whose figures are of the wrong kind, whatever trips over them."""
    try:
        yield
    except PacPrivacyError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise CertificateError(
            f"{release} must hold a certificate as it was written; its figures make no sense, or "
            f"those of another file given do not. Use the files as they were written."
        ) from None


def write_page(page: str, target: Path, *, private: bool) -> None:
    """Write the page; the curator's so that only its owner can read it."""
    try:
        if private:
            target.unlink(missing_ok=True)
            handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(page)
        else:
            target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CertificateError(
            f"--output must be a file that can be written; got {target} ({error.strerror}). "
            "Choose another."
        ) from None


def _find_bundle(release: Path, bundle: Path | None, *, needed: bool) -> Bundle | None:
    path = release.parent / BUNDLE_NAME if bundle is None else bundle
    if not path.is_file():
        if bundle is None and not needed:
            return None
        raise CertificateError(
            f"bundle must be a file; got {path}, which is not there. "
            f"Name it with --bundle, or leave out --curator."
        )
    found = load_bundle(path)
    if isinstance(found, AnswerBundle):  # of a predictor: it holds no outputs to draw
        if not needed:
            return None
        raise CertificateError(
            "bundle must be of a release for --curator; got that of a predictor, which holds no "
            "outputs. Leave out --curator."
        )
    return found


report = Verb(
    function=_report,
    example="""\
  pac report out/release.json
  pac report out/release.json --curator --audit audit.json -o curator.html""",
)
