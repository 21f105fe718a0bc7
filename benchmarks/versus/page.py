"""Redraw the pictures of docs/versus.md and its tables from the JSON.

Usage: python benchmarks/versus/page.py

Reads benchmarks/results/versus/*.json and computes nothing anew. Tables stand between the marks
``<!-- name -->`` and ``<!-- end name -->`` of the page; the words around them are written by hand.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from papers.charts import INK, new_figure, soften

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "versus"
PAGE = ROOT / "docs" / "versus.md"
IMAGES = ROOT / "docs" / "images"
TASKS = (
    "mean", "median", "quantiles", "crosstab", "histogram", "ols", "ridge", "quantile regression",
    "kmeans", "components", "logistic", "classifier", "probe", "boosting",
)  # fmt: skip
LOOKS = {"pac": ("best PAC method", "#0072B2", "o"), "dp": ("best DP method", "#D55E00", "s")}


def load_results() -> list[dict[str, Any]]:
    """Return all cells that are stored, by task, with the best method of both sides in each row."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    for result in read:
        better = max if result["larger_is_better"] else min
        for row in result["rows"]:  # the best ones on test rows, on both sides
            row["rivals"] = {rival["method"]: rival for rival in row["dp"]}
            row["dp"] = better(row["dp"], key=lambda rival: rival["score"])
            row["pac"] = better([row["pool"], *row.get("coins", [])], key=lambda one: one["score"])
    return sorted(read, key=lambda result: TASKS.index(result["task"]))


def winner(row: dict[str, Any], larger_is_better: bool) -> str:
    """Return who is ahead by more than both intervals together allow."""
    ahead = row["pac"]["score"] - row["dp"]["score"]
    if abs(ahead) <= math.hypot(row["pac"]["half_width"], row["dp"]["half_width"]):
        return "level"
    return "PAC" if (ahead > 0) == larger_is_better else "DP"


def main() -> int:
    """Write everything that follows from the results."""
    results = load_results()
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    accurate = [result for result in results if result["metric"] == "accuracy"]
    others = [result for result in results if result["metric"] != "accuracy"]
    for chosen, name, title in (
        (accurate, "versus-accuracy.png", "Accuracy on test rows: higher is better"),
        (others, "versus-error.png", "Error: lower is better"),
    ):
        if chosen:
            draw(chosen, IMAGES / name, title)
    return 0


def fill(text: str, results: list[dict[str, Any]]) -> str:
    """Return the page with its tables written anew."""
    for name, table in (
        ("scores", score_table(results)),
        ("predictor", predictor_table(results)),
        ("missing", missing_cells(results)),
    ):
        begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + "\n" + table + "\n" + end + rest.partition(end)[2]
    return text


def _number(score: float, half_width: float) -> str:
    """Return a score with the digits that its interval leaves."""
    digits = max(3, 1 - math.floor(math.log10(max(half_width, 1e-6))))
    return f"{score:.{digits}f}"


def score_table(results: list[dict[str, Any]]) -> str:
    """Return a line for each task: both sides at every level, who is ahead in bold."""
    levels = [f"{50 * (1 + row['advantage']):.1f} %" for row in results[0]["rows"]]
    sides = " | ".join(f"PAC, {level} | DP, {level}" for level in levels)
    lines = [
        f"| task | {sides} | without privacy | best methods |",
        "|---|" + "--:|" * (2 * len(levels) + 1) + "---|",
    ]
    for result in results:
        cells = [f"{result['task']}, {result['data']}: {result['metric']}"]
        for row in result["rows"]:
            ahead = winner(row, result["larger_is_better"])
            for side, best in (("PAC", row["pac"]), ("DP", row["dp"])):
                score = _number(best["score"], best["half_width"])
                cells.append(f"**{score}**" if side == ahead else score)
        cells.append(f"{result['without_privacy']:.4f}")
        cells.append("; ".join(_methods(result["rows"], side) for side in ("pac", "dp")))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _methods(rows: list[dict[str, Any]], side: str) -> str:
    return " / ".join(dict.fromkeys(row[side]["method"] for row in rows))


def missing_cells(results: list[dict[str, Any]]) -> str:
    """Return how many cells were run in full, and the others by name."""
    source = Path(__file__).with_name("fight.py").read_text(encoding="utf-8")
    names = re.findall(r'^    "([\w-]+)": Cell\(', source, re.MULTILINE)
    sizes = {result["cell"]: result["settings"]["pool"]["size"] for result in results}
    rest = [f"{name} ({sizes.get(name, 'not run')})" for name in names if sizes.get(name) != "full"]
    listed = f"; not so: {', '.join(rest)}" if rest else ""
    return f"Run in full: {len(names) - len(rest)} of {len(names)} tasks{listed}.\n"


def predictor_table(results: list[dict[str, Any]]) -> str:
    """Return how far behind the model without privacy each way to answer is, in points."""
    lines = [
        "| data | success | PAC predictor | DP-EBM | PATE student | all models agree |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        for row in result["rows"] if result["task"] == "boosting" else ():
            scores = [row["pool"], row["rivals"]["DP-EBM"], row["rivals"]["PATE student"]]
            behind = [100 * (result["without_privacy"] - each["score"]) for each in scores]
            cells = [
                result["data"],
                f"{50 * (1 + row['advantage']):.1f} %",
                *(f"{points:.2f}" for points in behind),
                f"{100 * row['pool']['unanimous_share']:.1f} %",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(results: list[dict[str, Any]], path: Path, title: str) -> None:
    """Draw one panel for each cell: three levels, both families, and no privacy."""
    n_columns = 3
    n_lines = -(-len(results) // n_columns)
    figure = new_figure(3.6 * n_columns, 2.5 * n_lines + 0.9)
    grid = figure.subplots(n_lines, n_columns, squeeze=False).ravel()
    for axes, result in zip(grid, results, strict=False):
        places = [50 * (1 + row["advantage"]) for row in result["rows"]]
        for family, (label, colour, marker) in LOOKS.items():
            axes.errorbar(
                places,
                [row[family]["score"] for row in result["rows"]],
                yerr=[row[family]["half_width"] for row in result["rows"]],
                color=colour, marker=marker, markersize=6, capsize=3, label=label,
            )  # fmt: skip
        axes.axhline(result["without_privacy"], color=INK, ls=":", lw=1.2, label="without privacy")
        axes.set_title(f"{result['task']}, {result['data']}", fontsize=10, color=INK, loc="left")
        axes.set_ylabel(result["metric"], fontsize=8, color=INK)
        axes.set_xticks(places, [f"{place:g} %" for place in places])
        axes.set_xlim(places[0] - 1.5, places[-1] + 1.5)
        soften(axes)
    for axes in grid[len(results) :]:
        axes.set_visible(False)
    figure.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK)
    figure.supxlabel("guaranteed membership success", fontsize=9, color=INK)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper right", ncols=3, frameon=False, labelcolor=INK
    )
    figure.savefig(path)


if __name__ == "__main__":
    raise SystemExit(main())
