"""What a private search over settings costs, and what it is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._random import public_generator
from pacprivacy.dp import (
    DPRelease,
    Logistic,
    PoissonBatch,
    Steps,
    dp_descent_noise,
    dp_search,
    dp_search_noise,
    dp_sgd,
)
from papers.charts import Line, Panel, Style, draw_panels
from papers.cs208.curves import DELTA, scaled_rows
from papers.cs208.data import load_study
from papers.page import Page, as_number, write_csv
from papers.run import Job, Settings

STUDY: Final = "adult"
N_STEPS: Final = 60
RATES: Final = (0.01, 0.1, 1.0, 10.0, 100.0)
CLIPS: Final = (0.1, 1.0)
MEANS: Final = (2.0, 5.0, 10.0)
EPSILONS: Final = (0.1, 0.25, 0.5, 1.0, 2.0)
QUICK_EPSILONS: Final = (0.25, 1.0)
CANDIDATES: Final = tuple(
    Steps(n_steps=N_STEPS, learning_rate=rate, clip_norm=norm) for rate in RATES for norm in CLIPS
)
STYLES: Final = (
    Style(colour="#D55E00", marker="s", line="--"),
    Style(colour="#56B4E9", marker="D", line="-."),
    Style(colour="#0072B2", marker="o"),
    Style(colour="#009E73", marker="^", line=":"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """Accuracy and noise of one way to choose settings."""

    how: str
    epsilon: float
    accuracy: float
    standard_error: float
    noise_multiplier: float
    n_runs: int


def measure_search(how: str, epsilons: Sequence[float], n_runs: int, seed: int) -> list[SearchRow]:
    """Measure one way to choose: a setting at random, or a search of some mean."""
    data = load_study(STUDY)
    batch = PoissonBatch(size=data.n_public // 20, n_public=data.n_public)
    rows, tested = scaled_rows(data, data.X), scaled_rows(data, data.X_test)
    public, answers = scaled_rows(data, data.questions), data.answers

    def score(weights: Vector) -> float:
        return float(np.mean((public @ weights > 0) == (answers == data.classes[1])))

    found = []
    for epsilon in epsilons:
        common: dict[str, Any] = {
            "loss": Logistic(classes=data.classes),
            "epsilon": epsilon,
            "delta": DELTA,
            "x_bound": float(np.sqrt(2.0)),
            "batch": batch,
        }
        train, noise = _trainer(how, batch, epsilon, score)
        scores = []
        for run in range(n_runs):
            # The same seeds for every ε and way, so that differences are not of luck alone.
            generator = public_generator(seed, "search", run)
            release = train(rows, data.y, generator, common)
            weights = release.value["weights"] if how != ALONE else release.value
            scores.append(np.mean((tested @ weights > 0) == (data.y_test == data.classes[1])))
        found.append(
            SearchRow(
                how=how,
                epsilon=epsilon,
                accuracy=float(np.mean(scores)),
                standard_error=float(np.std(scores, ddof=1) / np.sqrt(n_runs)),
                noise_multiplier=noise,
                n_runs=n_runs,
            )
        )
    return found


ALONE: Final = "one setting at random"


def _trainer(
    how: str, batch: PoissonBatch, epsilon: float, score: Callable[[Vector], float]
) -> tuple[Callable[..., DPRelease], float]:
    if how == ALONE:

        def alone(X: Any, y: Any, generator: np.random.Generator, common: Any) -> DPRelease:
            steps = CANDIDATES[int(generator.integers(len(CANDIDATES)))]
            return dp_sgd(X, y, steps=steps, simulate=generator, **common)

        noise = dp_descent_noise(batch, 0, n_steps=N_STEPS, epsilon=epsilon, delta=DELTA)
        return alone, noise
    mean_runs = float(how.split()[-1])

    def search(X: Any, y: Any, generator: np.random.Generator, common: Any) -> DPRelease:
        return dp_search(
            X,
            y,
            candidates=CANDIDATES,
            score=score,
            mean_runs=mean_runs,
            simulate=generator,
            **common,
        )

    noise = dp_search_noise(
        batch, 0, n_steps=N_STEPS, mean_runs=mean_runs, epsilon=epsilon, delta=DELTA
    )
    return search, noise


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSection:
    """Settings drawn at random, and searches of growing size."""

    name: str
    title: str
    covers: str
    notes: tuple[str, ...]

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        """Return one piece of work for each way to choose."""
        means = MEANS[:2] if quick else MEANS
        ways = (ALONE, *(f"search, mean {mean:g}" for mean in means))
        n_runs = max(8, 3 * settings.n_trials)
        return tuple(
            Job(
                name=f"Choosing settings: {how}",
                function=measure_search,
                arguments=(how, QUICK_EPSILONS if quick else EPSILONS, n_runs, settings.seed),
                kind=SearchRow,
            )
            for how in ways
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        """Write the CSV file and the plot, and put both on the page."""
        write_csv(stem.with_suffix(".csv"), rows)
        ways = list(dict.fromkeys(row.how for row in rows))
        panels = [
            Panel(title=title, ylabel=title, lines=_lines(rows, ways, name), log_y=log)
            for title, name, log in (
                ("accuracy", "accuracy", False),
                ("noise multiplier", "noise_multiplier", True),
            )
        ]
        epsilons = sorted({row.epsilon for row in rows})
        picture = draw_panels(
            stem.with_suffix(".png"),
            panels,
            title="Adult: settings at random, and the best of a random number of runs",
            xlabel="ε of everything together, at δ = 1e-5",
            ticks=[(epsilon, f"{epsilon:g}") for epsilon in epsilons],
        )
        page.image(picture, "accuracy and noise against ε, with and without search")
        cells = {(row.how, row.epsilon): row for row in rows}
        page.table(
            ["ε", *(f"{how}: accuracy" for how in ways), *(f"{how}: noise" for how in ways)],
            [
                [
                    f"{epsilon:g}",
                    *(_accuracy(cells[how, epsilon]) for how in ways),
                    *(as_number(cells[how, epsilon].noise_multiplier) for how in ways),
                ]
                for epsilon in epsilons
            ],
        )


def _accuracy(row: SearchRow) -> str:
    return f"{row.accuracy:.3f} ± {row.standard_error:.1g}"


def _lines(rows: Sequence[SearchRow], ways: Sequence[str], name: str) -> tuple[Line, ...]:
    return tuple(
        Line.of(how, STYLES[place], [row for row in rows if row.how == how], name, x="epsilon")
        for place, how in enumerate(ways)
    )


SECTION: Final = SearchSection(
    name="search",
    title="What a search costs",
    covers="choosing hyper-parameters privately: the best of a random number of runs",
    notes=(
        "Ten settings of DP-SGD with 60 steps: step lengths 0.01 to 100, clipping norms 0.1 and 1. "
        "Each run of a search draws one of them; the best on 2000 public rows is released. The "
        "number of runs is geometric, so that ε covers them all.",
        "The noise multiplier is that of every run: a search needs more, because its ε pays for "
        "the choice, by Rényi accounting.",
    ),
)
