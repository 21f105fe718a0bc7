"""Figure 1 of [RPAC]: noisy logits of small classifiers, rule by rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pacprivacy.noise import AnyRule, Protect, contrasts
from pacprivacy.residual import Training, learn_noise_curve
from papers.charts import Panel, draw_panels
from papers.page import Page, as_budget, as_number, write_csv
from papers.residual.classifiers import CLASSIFIED, fit_logits
from papers.residual.laws import (
    FULL_TRAINING,
    QUICK_TRAINING,
    STYLES,
    VERSIONS,
    Measure,
    NoiseRow,
    law_of_learned,
    law_of_rule,
    measure_law,
    noise_order,
    panel,
)
from papers.run import Job, Settings

BUDGETS: Final = (1 / 4, 1 / 2, 1.0, 2.0, 4.0)
QUICK_BUDGETS: Final = (1 / 4, 1.0)
PROTECT_WEIGHT: Final = 1e4
N_DRAWS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work the logits are: training rows and epochs, candidates, releases, steps."""

    n_train: int
    n_epochs: int
    n_candidates: int
    n_releases: int
    mi_budgets: tuple[float, ...]
    training: Training


QUICK: Final = Effort(
    n_train=3000,
    n_epochs=3,
    n_candidates=64,
    n_releases=500_000,
    mi_budgets=QUICK_BUDGETS,
    training=QUICK_TRAINING,
)
FULL: Final = Effort(
    n_train=20_000,
    n_epochs=4,
    n_candidates=256,
    n_releases=1_000_000,
    mi_budgets=BUDGETS,
    training=FULL_TRAINING,
)


def measure_logits(dataset: str, effort: Effort, seed: int) -> Iterator[NoiseRow]:
    """Measure every rule on the logits of one classifier."""
    logits = fit_logits(
        dataset,
        n_train=effort.n_train,
        n_epochs=effort.n_epochs,
        n_candidates=effort.n_candidates,
        seed=seed,
    )
    values = logits.values
    measure = Measure(
        dataset=dataset,
        values=values,
        n_draws=N_DRAWS,
        n_releases=effort.n_releases,
        seed=seed,
        labels=logits.labels,
        n_train=logits.n_train,
    )
    protect = Protect(contrasts(values.shape[1]), weight=PROTECT_WEIGHT)
    rules: dict[str, AnyRule] = {
        "Efficient-PAC": "diagonal",
        "Auto-PAC (A.2)": "spectral",
        "Auto-PAC (least trace)": "waterfill",
        "exact": "exact",
        "protect": protect,
    }
    learned = learn_noise_curve(values, effort.mi_budgets, training=effort.training, rng=seed)
    for mi_nats, noise in zip(effort.mi_budgets, learned, strict=True):
        laws = [law_of_rule(method, values, rule, mi_nats, seed) for method, rule in rules.items()]
        laws.append(law_of_learned("SR-PAC, learned", noise))
        for law in laws:
            yield measure_law(law, mi_nats, "equal claim", measure)
            scaled = law.at_true_information(values, mi_nats, seed)
            yield measure_law(scaled, mi_nats, "equal truth", measure)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitFigure:
    """The section on logits."""

    name: str = "logits"
    title: str = "Noise on logits"
    covers: str = "Figure 1"
    notes: tuple[str, ...] = (
        "**What is secret here:** which input of a finite, *public* set was used, each equally "
        "likely. The classifier and the set are public. Nothing is promised to the records that "
        "the classifier was trained on, nor to an input outside the set.",
        "The classifiers are the paper's networks for CIFAR-10, MNIST and AG-News without batch "
        "normalisation and dropout, briefly trained; CIFAR-100 has that of CIFAR-10. "
        "CIFAR-10, CIFAR-100 and AG-News are **subsets** of what was published.",
        "Accuracy: how often the largest *released* logit is the right class, over simulated "
        "releases of random candidates.",
        "*Equal claim*: every rule meets the budget in its own reckoning; for SR-PAC that is what "
        "its decoder sees, which proves nothing. *Equal truth*: noise scaled until the exact "
        "adversary learns the budget.",
        "`protect` looks for the least noise on logit *differences*; the common level of the "
        "logits, which no prediction depends on, takes the noise first, so its *total* noise is "
        "large.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        effort = QUICK if quick else FULL
        return tuple(
            Job(
                name=f"{CLASSIFIED[name][0]}, logits",
                function=measure_logits,
                arguments=(name, effort, settings.seed),
                kind=NoiseRow,
                needs=("jax", "optax"),
            )
            for name in (("mnist",) if quick else tuple(CLASSIFIED))
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        names = list(dict.fromkeys(row.dataset for row in rows))
        ticks = [(mi, as_budget(mi)) for mi in sorted({row.mi_nats for row in rows})]
        for version in VERSIONS:
            path = stem.parent / f"{stem.name}_{version.replace(' ', '_')}.png"
            chosen = [row for row in rows if row.version == version]
            draw_panels(
                path,
                [one for name in names for one in _panels(chosen, name)],
                title=f"Logits, {version}",
                xlabel="budget in nats",
                ticks=ticks,
            )
            page.image(path, f"noise, accuracy and true information of logits, {version}")
        for name in names:
            page.heading(CLASSIFIED[name][0], level=3)
            _write_table(page, [row for row in rows if row.dataset == name])


def _panels(rows: Sequence[NoiseRow], name: str) -> list[Panel]:
    """Return noise, accuracy, and the truth; where that is equal, accuracy beside ``exact``'s."""
    mine = [row for row in rows if row.dataset == name]
    title = CLASSIFIED[name][0]
    panels = [
        panel(mine, title=title, ylabel="noise variance", field="noise_variance"),
        panel(mine, title=title, ylabel="accuracy of the largest logit", field="accuracy"),
    ]
    if mine[0].version == "equal claim":
        return [*panels, panel(mine, title=title, ylabel="true nats", field="true_nats")]
    exact = {row.mi_nats: row.accuracy for row in mine if row.method == "exact"}
    gains = [
        replace(row, accuracy=row.accuracy - level)
        for row in mine
        if row.accuracy is not None and (level := exact.get(row.mi_nats)) is not None
    ]
    return [*panels, panel(gains, title=title, ylabel="accuracy less exact's", field="accuracy")]


def _write_table(page: Page, rows: Sequence[NoiseRow]) -> None:
    first = rows[0]
    page.text(
        f"Trained on {first.n_train} records; {first.n_candidates} candidates, accuracy on them "
        f"without noise {as_number(first.no_noise)}."
    )
    order = list(STYLES)
    tightest = min(row.mi_nats for row in rows)
    page.bullets([noise_order(rows, version, tightest) for version in VERSIONS])
    for version in VERSIONS:
        page.table(
            [f"rule, {version}", "budget", "claimed, nats", "true, nats", "noise", "accuracy"],
            [
                [
                    row.method,
                    as_budget(row.mi_nats),
                    as_number(row.claimed_nats, 4),
                    as_number(row.true_nats, 4),
                    f"{row.noise_variance:.4g}",
                    f"{as_number(row.accuracy, 4)} ± {row.standard_error:.1g}",
                ]
                for row in sorted(
                    (r for r in rows if r.version == version),
                    key=lambda r: (r.mi_nats, order.index(r.method)),
                )
            ],
        )


SECTION: Final = LogitFigure()
