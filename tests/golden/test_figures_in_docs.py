"""Figures that pages print are those that were measured, or that a formula gives."""

import json
import re
import runpy
from pathlib import Path

import pytest

from pacprivacy.theory import posterior_success
from papers.accuracy_first import ACCURACY_FIRST
from papers.alg import ALG
from papers.design import DESIGN
from papers.residual import RESIDUAL

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "choose-a-budget.md").read_text(encoding="utf-8")
MEASURED = json.loads((ROOT / "benchmarks" / "results" / "noise_iris.json").read_text("utf-8"))


def table(first_heading: str) -> list[list[str]]:
    """The rows of the table of the page whose first column has this heading."""
    tables = re.findall(r"(?:^\|.*\|\n)+", PAGE, re.MULTILINE)
    (found,) = [text for text in tables if text.startswith(f"| {first_heading} |")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in found.splitlines()[2:]]


def digits(text: str) -> int:
    """How many significant digits a printed figure has."""
    return len(text.replace(".", "").lstrip("0"))


def test_noise_of_rules_is_what_was_measured() -> None:
    rows = {
        row["output"]: row for row in MEASURED["rows"] if round(100 * row["success"], 1) == 58.8
    }
    shown = table("output")
    assert {row[0] for row in shown} == set(rows)
    for name, numbers, *printed in shown:
        assert int(numbers) == rows[name]["dimension"]
        for rule, text in zip(("diagonal", "waterfill", "risk"), printed, strict=True):
            found = rows[name]["total_variance"][rule]
            assert float(text) == pytest.approx(float(f"{found:.{digits(text) - 1}e}")), (
                name,
                rule,
            )


def test_success_at_priors_follows_from_the_budget() -> None:
    shown = table("nats")
    assert len(shown) == 4
    for nats, half, hundredth in shown:
        numerator, _, denominator = nats.partition("/")
        budget = float(numerator) / float(denominator or 1)
        for text, prior in ((half, 0.5), (hundredth, 0.01)):
            found = 100 * posterior_success(budget, prior)
            assert float(text.removesuffix(" %")) == pytest.approx(found, abs=0.051)


def test_the_fight_on_its_page_is_the_one_that_was_measured() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "versus" / "page.py"))
    results = script["load_results"]()
    page = (ROOT / "docs" / "versus.md").read_text(encoding="utf-8")
    assert script["fill"](page, results) == page


def test_the_readme_says_what_was_measured_against_differential_privacy() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    ((success, *printed),) = re.findall(
        r"right ([\d.]+) times in 100, the means of Adult have an error of (\.\d+) with coins and "
        r"(\.\d+) with tuned DP, those of white wine (\.\d+) and (\.\d+)",
        text,
    )
    coins = json.loads((ROOT / "benchmarks" / "results" / "coins.json").read_text("utf-8"))
    measured = [
        f"{error:.4f}".lstrip("0")
        for cell in coins["cells"]
        if cell["cell"] in ("mean-adult", "mean-wine")
        for row in cell["rows"]
        if round(50 + 50 * row["advantage"], 1) == float(success)
        for error in (row["default"]["error"], row["dp"])
    ]
    assert printed == measured
    ((n_ahead, n_tasks),) = re.findall(r"level or ahead in \[(\d+) of (\d+) tasks\]", text)
    script = runpy.run_path(str(ROOT / "benchmarks" / "versus" / "page.py"))
    ahead = [
        (result["task"], script["winner"](row, result["larger_is_better"]))
        for result in script["load_results"]()
        for row in result["rows"]
        if round(50 + 50 * row["advantage"], 1) == float(success)
    ]
    assert [sum(who != "DP" for _, who in ahead), len(ahead)] == [int(n_ahead), int(n_tasks)]
    assert {task for task, who in ahead if who == "DP"} == {"crosstab", "histogram"}
    assert "PAC" in {who for _, who in ahead}


def named(text: str) -> set[tuple[str, int]]:
    """The figures and tables that a text names: "Figures 2 to 4 and 6" are four."""
    found = set()
    for kind, said in re.findall(r"(Figure|Table)s? (\d+(?:(?:, | and | to )\d+)*)", text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", said):
            found |= {(kind, n) for n in range(int(first), int(last or first) + 1)}
    return found


def test_every_group_of_a_paper_and_every_figure_that_it_stands_for_has_a_row() -> None:
    groups = (ROOT / "docs" / "howto" / "reproduce.md").read_text(encoding="utf-8")
    for paper, page in (
        (ALG, "alg"), (DESIGN, "design"), (RESIDUAL, "residual"),
        (ACCURACY_FIRST, "accuracy-first"),
    ):  # fmt: skip
        text = (ROOT / "docs" / "papers" / f"{page}.md").read_text(encoding="utf-8")
        rows = [line for line in text.splitlines() if line.startswith("|")]
        covered = set().union(*(named(section.covers) for section in paper.sections))
        assert covered
        assert covered <= named("\n".join(rows)), (page, covered - named("\n".join(rows)))
        for section in paper.sections:
            assert f"`{section.name}`" in groups, (paper.name, section.name)


def test_coverage_on_its_page_is_what_was_measured_and_within_bounds() -> None:
    stored = json.loads((ROOT / "benchmarks/results/coverage.json").read_text("utf-8"))
    page = (ROOT / "docs" / "howto" / "own-function.md").read_text(encoding="utf-8")
    rows = [row for pool in stored["pools"] for row in pool["rows"]]
    shares = [
        row["covered"][target] / row["releases"]
        for row in rows
        for target in ("records", "population")
    ]
    assert f"between {100 * min(shares):.1f} and {100 * max(shares):.1f} times in 100" in page
    assert all(row["releases"] >= 400 for row in rows)
    assert 0.91 <= min(shares) <= max(shares) <= 0.99


def test_refinements_were_attacked_as_the_claim_says() -> None:
    found = json.loads((ROOT / "benchmarks/results/refinements.json").read_text("utf-8"))
    claims = (ROOT / "docs" / "claims" / "session.md").read_text(encoding="utf-8")
    runs, hits, rate = found["runs"], max(found["hits"]), found["promised"]
    deviation = (runs * rate * (1 - rate)) ** 0.5
    assert f"in {runs:,} runs the best attacker was right {hits:,} times" in claims
    assert f"where 70 % are {rate * runs:,.0f} ± {deviation:.0f}" in claims
    assert runs >= 2000
    assert hits <= rate * runs + 3 * deviation


STUDY_ROWS = {
    "explained hours (`ols`)": "hours explained",
    "quartiles of weights": "weights, quartiles",
    "ages, a histogram": "ages",
    "relationship, shares": "relationship",
}


def test_errors_of_a_study_are_what_was_measured() -> None:
    page = (ROOT / "docs" / "howto" / "repeated-study.md").read_text(encoding="utf-8")
    tables = json.loads((ROOT / "benchmarks" / "results" / "study.json").read_text("utf-8"))[
        "tables"
    ]
    cells = re.findall(r"(?<=\| )([^|\n]+) \| (\d\.\d\d)(?= \|)", page)
    shown = {STUDY_ROWS.get(name, name): float(error) for name, error in cells}
    assert shown == pytest.approx({name: each["error"] for name, each in tables.items()}, abs=0.006)
