"""The base classifiers of [RPAC] without noise: how often they are right, beside the print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from papers.agreement import Cell, Comparison
from papers.page import Page, as_number, write_csv
from papers.residual.classifiers import CLASSIFIED, fit_logits
from papers.run import Job, Settings

# Test accuracy and its spread, section 6; half a unit of the last digit where none is printed.
PRINTED: Final = {
    "cifar10": (0.7181, 0.0088),
    "cifar100": (0.5914, 0.0090),
    "mnist": (0.9837, 0.00005),
    "ag_news": (0.9705, 0.00005),
}
FULL: Final = {
    "mnist": (60_000, 2),
    "cifar10": (10_000, 8),
    "cifar100": (5000, 12),
    "ag_news": (40_000, 4),
}
QUICK: Final = {"mnist": (2000, 2)}
REASONS: Final = (
    "a fifth, a tenth and a third of the training records; CIFAR-100 has the network of CIFAR-10; "
    ".9705 of AG-News is that of training texts (errata)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRow:
    """One classifier: how much it was trained, and how often it is right."""

    dataset: str
    n_train: int
    n_epochs: int
    test_accuracy: float
    train_accuracy: float


def measure_base(dataset: str, n_train: int, n_epochs: int, seed: int) -> BaseRow:
    """Train one classifier of the paper."""
    logits = fit_logits(dataset, n_train=n_train, n_epochs=n_epochs, n_candidates=64, seed=seed)
    return BaseRow(
        dataset=dataset,
        n_train=logits.n_train,
        n_epochs=n_epochs,
        test_accuracy=logits.test_accuracy,
        train_accuracy=logits.train_accuracy,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseClassifiers:
    """The section on classifiers without noise."""

    name: str = "base"
    title: str = "Base classifiers"
    covers: str = "the accuracies without noise of section 6"
    notes: tuple[str, ...] = (
        "The paper's networks, without batch normalisation and dropout, on as many records as are "
        "at hand; accuracy on 2000 test inputs.",
        "CIFAR-100 has the network of CIFAR-10 in place of six convolutions up to 256 channels, "
        "which 5000 images do not pay for.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        return tuple(
            Job(
                name=f"{CLASSIFIED[name][0]}, base classifier",
                function=measure_base,
                arguments=(name, n_train, n_epochs, settings.seed),
                kind=BaseRow,
                needs=("jax", "optax"),
            )
            for name, (n_train, n_epochs) in (QUICK if quick else FULL).items()
        )

    def write(self, page: Page, rows: Sequence[BaseRow], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        page.table(
            ["data", "trained on", "epochs", "test", "training", "printed"],
            [
                [
                    CLASSIFIED[row.dataset][0],
                    str(row.n_train),
                    str(row.n_epochs),
                    as_number(row.test_accuracy, 4),
                    as_number(row.train_accuracy, 4),
                    as_number(PRINTED[row.dataset][0], 4),
                ]
                for row in rows
            ],
        )

    def compare(self, rows: Sequence[BaseRow]) -> tuple[Comparison, ...]:
        cells = tuple(
            Cell(
                name=f"{CLASSIFIED[row.dataset][0]}, {row.n_train} rows",
                printed=PRINTED[row.dataset][0],
                ours=row.test_accuracy,
                spread=PRINTED[row.dataset][1],
            )
            for row in rows
        )
        trials = "one training each, 2000 test inputs"
        return (
            Comparison(
                section=self.name,
                item="Section 6, base accuracies",
                trials=trials,
                cells=cells,
                reason=REASONS,
            ),
        )


SECTION: Final = BaseClassifiers()
