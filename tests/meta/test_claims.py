"""A claim has a proof in docs/claims and at least one test marked with its id, and only such."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pacprivacy"
CLAIMS = ROOT / "docs" / "claims"
TESTS = (ROOT / "tests", ROOT / "papers" / "tests")

CLAIM_ID = r"[A-Z]{1,3}-[0-9]+"
HEADING = re.compile(rf"^#{{2,4}}\s+(?:Claim\s+)?({CLAIM_ID})\b", re.MULTILINE)
IN_DOCSTRING = re.compile(rf"\b[Cc]laims?\s+({CLAIM_ID}(?:(?:,\s*|\s+and\s+){CLAIM_ID})*)")


def complain(rule: str, found: list[str]) -> None:
    assert not found, f"{rule}:\n  " + "\n  ".join(found)


def stated_claims(folder: Path) -> dict[str, list[str]]:
    """Where each claim has a heading."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.md")):
        for claim in HEADING.findall(path.read_text(encoding="utf-8")):
            found.setdefault(claim, []).append(path.name)
    return found


def marked_claims(text: str) -> Iterator[str]:
    """The ids in every ``pytest.mark.claim(...)`` of a test module."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "claim"
            and ast.unparse(node.func).endswith("mark.claim")
        ):
            for argument in node.args:
                yield str(ast.literal_eval(argument))


@cache
def claims_in_tests() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted(path for folder in TESTS for path in folder.rglob("test_*.py")):
        for claim in marked_claims(path.read_text(encoding="utf-8")):
            found.setdefault(claim, []).append(path.relative_to(ROOT).as_posix())
    return found


def test_every_marked_claim_is_stated() -> None:
    stated = stated_claims(CLAIMS)
    complain(
        "tests are marked with claims that no heading in docs/claims states "
        "(write '## X-1 Title' there)",
        [
            f"{claim} in {', '.join(sorted(set(paths)))}"
            for claim, paths in claims_in_tests().items()
            if claim not in stated
        ],
    )


def test_every_stated_claim_is_tested() -> None:
    tested = claims_in_tests()
    complain(
        "claims without a test (mark one with @pytest.mark.claim)",
        [f"{c} in {', '.join(p)}" for c, p in stated_claims(CLAIMS).items() if c not in tested],
    )


def test_every_claim_named_in_the_source_is_stated() -> None:
    stated = stated_claims(CLAIMS)
    complain(
        "docstrings rest on claims that docs/claims does not state",
        [
            f"{claim} in {path.relative_to(ROOT)}"
            for path in sorted(SOURCE.rglob("*.py"))
            for group in IN_DOCSTRING.findall(path.read_text(encoding="utf-8"))
            for claim in re.findall(CLAIM_ID, group)
            if claim not in stated
        ],
    )


def test_every_claim_is_stated_once_and_indexed() -> None:
    index = (CLAIMS / "README.md").read_text(encoding="utf-8")
    stated = stated_claims(CLAIMS)
    twice = [f"{claim} in {', '.join(p)}" for claim, p in stated.items() if len(p) > 1]
    complain("claims stated more than once", twice)
    complain(
        "claims whose letter the table in docs/claims/README.md does not list beside their page",
        [
            f"{claim} in {path}"
            for claim, paths in stated.items()
            for path in paths
            if not re.search(rf"\]\({Path(path).name}\) \|[^|]*\b{claim.split('-')[0]}\b", index)
        ],
    )


def test_claims_are_read_as_written(tmp_path: Path) -> None:
    (tmp_path / "noise.md").write_text("# Noise\n\n## N-1 Title\n### Claim N-2: other\ntext N-9\n")
    assert stated_claims(tmp_path) == {"N-1": ["noise.md"], "N-2": ["noise.md"]}
    assert list(marked_claims("@pytest.mark.claim('N-1')\ndef test(): ...")) == ["N-1"]
    assert list(marked_claims("pytestmark = [pytest.mark.claim('N-2', 'N-3')]")) == ["N-2", "N-3"]
    assert IN_DOCSTRING.findall("Claim N-3. Assumes; claims N-1 and N-2.") == ["N-3", "N-1 and N-2"]


def test_the_files_that_the_documentation_names_are_there() -> None:
    pattern = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")
    roots = (SOURCE, ROOT, ROOT / "tests", SOURCE.parent)
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for name in pattern.findall(page.read_text(encoding="utf-8"))
        if not any((root / name).exists() for root in roots)
    ]
    complain("a file that moved is named by its new place", missing)


def test_no_merge_is_left_half_done() -> None:
    complain(
        "lines of a merge that nobody resolved",
        [
            f"{page.relative_to(ROOT)}:{number}"
            for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"))
            for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
            if line.startswith(("<<<<<<< ", ">>>>>>> ", "======="))
        ],
    )
