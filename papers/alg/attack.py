"""The attacks of [ALG] on Iris: what they achieve, beside what the certificate promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.audit import audit
from pacprivacy.privatizing import privatize
from pacprivacy.sample import Balanced
from pacprivacy.theory import posterior_success
from papers.alg.models import TASKS
from papers.alg.protocol import DATASETS, Task, load_split
from papers.charts import BUDGET_LABEL, INK, Line, Panel, Style, budget_ticks, draw_panels
from papers.page import Page, as_budget, as_percent, write_csv
from papers.run import Job, Settings
from papers.simulate import budget_of

__all__ = ["SECTION", "AttackRow", "measure_attacks"]

ATTACKED: Final = ("iris_kmeans", "iris_svm", "iris_svm_regularised")
BUDGETS: Final = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
RULES: Final = {"diagonal": "paper's formula", "risk": "`risk`"}
ATTACKS: Final = {
    "likelihood_ratio": "likelihood-ratio attack",
    "bayes": "best possible attack",
}
STYLES: Final = {
    ("diagonal", "likelihood_ratio"): Style(colour="#E69F00", marker="^", line="--"),
    ("diagonal", "bayes"): Style(colour="#D55E00", marker="s"),
    ("risk", "likelihood_ratio"): Style(colour="#0072B2", marker="D", line="-."),
    ("risk", "bayes"): Style(colour="#009E73", marker="o"),
}
PROMISED: Final = Style(colour=INK, marker="none", line=":")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackRow:
    """One attack on simulated releases: its success, 99 % interval, and the promise."""

    task: str
    dataset: str
    model: str
    rule: str
    mi_nats: float
    attack: str
    success: float
    lower: float
    upper: float
    promised: float
    verdict: str
    n_trials: int
    n_subsets: int


def measure_attacks(
    task: Task, budgets: Sequence[float], n_trials: int, settings: Settings
) -> Iterator[AttackRow]:
    """Attack releases under the paper's formula and under ``risk``, on the same pool.

    The noise of the formula is certified here on a finite pool, for which its variances are
    exact; the promise is about the worst-placed record.
    """
    split = load_split(task.dataset, task.transformer)
    rng = public_generator(settings.seed, f"{task.name} attack pool")
    strategy = Balanced(n_subsets=settings.n_subsets, stratify=True)
    pool = strategy.draw(len(split.y_train), rng=rng, strata=split.y_train)
    for rule in RULES:
        for mi_nats in budgets:
            stream = public_generator(settings.seed, f"{task.name} attack", round(1e9 * mi_nats))
            seed = coerce_seed(stream)
            release = privatize(
                task.ours,
                task.data(split),
                budget_of(rule, mi_nats),
                sample=pool,
                rule=rule,
                rng=seed,
                simulate=True,
                progress=False,
            )
            for found in audit(release, attacks=list(ATTACKS), n_trials=n_trials, rng=seed):
                yield AttackRow(
                    task=task.name,
                    dataset=task.dataset,
                    model=task.model,
                    rule=rule,
                    mi_nats=mi_nats,
                    attack=found.attack,
                    success=found.success.value,
                    lower=found.success.lower,
                    upper=found.success.upper,
                    promised=min(posterior_success(mi_nats), found.bound),
                    verdict=found.verdict,
                    n_trials=found.n_trials,
                    n_subsets=settings.n_subsets,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacks:
    """The section on attacks."""

    name: str = "attack"
    title: str = "Attacks"
    covers: str = "the figures on likelihood-ratio attacks, Iris"
    notes: tuple[str, ...] = (
        "Attacks guess the membership of one record, the worst-placed one they find in training, "
        "from simulated releases with other secrets; both know the pool, the model and the noise.",
        "Points are rates over a finite number of releases: the table has their intervals, and "
        "only an interval that lies above the promise as a whole speaks against it. Staying below "
        "proves nothing; the certificate does.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one piece of work per model."""
        budgets = tuple(mi for mi in BUDGETS if mi in settings.mi_budgets)
        trials = 2000 if quick else 10_000
        return tuple(
            Job(
                name=f"{TASKS[name].title}, attacks",
                function=measure_attacks,
                arguments=(TASKS[name], budgets, trials, settings),
            )
            for name in (ATTACKED[:1] if quick else ATTACKED)
            if budgets
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV file and the plot, and put both on the page."""
        write_csv(stem.with_suffix(".csv"), rows)
        names = list(dict.fromkeys(row.task for row in rows))
        picture = draw_panels(
            stem.with_suffix(".png"),
            [_panel([row for row in rows if row.task == name]) for name in names],
            title="Attacks on one record's membership",
            xlabel=BUDGET_LABEL,
            ticks=budget_ticks(sorted({row.mi_nats for row in rows})),
        )
        page.image(picture, "success of attacks against the budget, beside what is promised")
        page.table(
            ["model", "noise", "budget, nats", "attack", "success", "99 % interval", "promised"],
            [_cells(row) for row in rows],
        )


def _panel(rows: Sequence[AttackRow]) -> Panel:
    lines = [
        Line.of(
            f"{ATTACKS[attack]}, {RULES[rule].strip('`')}",
            style,
            [row for row in rows if (row.rule, row.attack) == (rule, attack)],
            "success",
        )
        for (rule, attack), style in STYLES.items()
    ]
    budgets = tuple(sorted({row.mi_nats for row in rows}))
    bound = tuple(posterior_success(mi) for mi in budgets)
    lines.append(Line(label="promised at most", style=PROMISED, x=budgets, y=bound))
    title = f"{DATASETS[rows[0].dataset]}, {rows[0].model}"
    return Panel(title=title, ylabel="success, %", lines=tuple(lines), percent=True)


def _cells(row: AttackRow) -> list[str]:
    return [
        f"{DATASETS[row.dataset]}, {row.model}",
        RULES[row.rule],
        as_budget(row.mi_nats),
        ATTACKS[row.attack],
        f"{100 * row.success:.1f} %",
        f"{100 * row.lower:.1f} to {100 * row.upper:.1f}",
        as_percent(row.promised) + ("" if row.verdict == "holds" else " VIOLATED"),
    ]


SECTION: Final = Attacks()
