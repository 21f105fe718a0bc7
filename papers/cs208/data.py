"""The data of [CS208]'s curves: Adult and two digits of MNIST, scaled by public constants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, freeze
from pacprivacy.errors import DataError
from papers.datasets import load_adult, load_mnist, one_hot

Labels = npt.NDArray[np.int64]

N_QUESTIONS: Final = 2000  # rows of the test split that serve PATE as public questions
DIGITS: Final = (0, 7)
# Ends of ranges that are known without the data: ages in years, hours in a week, and so on.
ADULT_RANGES: Final = {
    "age": 100.0,
    "fnlwgt": 1.5e6,
    "education-num": 16.0,
    "capital-gain": 1e5,
    "capital-loss": 1e4,
    "hours-per-week": 100.0,
}
LOGARITHMIC: Final = ("capital-gain", "capital-loss")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Study:
    """A classification task with everything that is declared about it.

    ``X, y`` are protected; accuracy is measured on the test records. ``questions`` are public rows,
    none of them among the others, with labels ``answers``. Rows are clipped to the norm
    ``x_bound``; ``n_public`` is the number of records, rounded.
    """

    title: str
    X: Matrix
    y: Labels
    X_test: Matrix
    y_test: Labels
    questions: Matrix
    answers: Labels
    classes: tuple[int, ...]
    x_bound: float
    n_public: int

    def __post_init__(self) -> None:
        for array in (self.X, self.y, self.X_test, self.y_test, self.questions, self.answers):
            freeze(array)


@cache
def load_study(name: str) -> Study:
    """Load a study by its name: ``adult`` or ``mnist``."""
    if name == "adult":
        return _adult()
    if name == "mnist":
        return _mnist()
    raise DataError(f"study must be one of {', '.join(STUDIES)}; got {name!r}.")


STUDIES: Final = {"adult": "Adult, income above 50K", "mnist": "MNIST, 0 against 7"}


def _adult() -> Study:
    data = one_hot(load_adult())
    assert data.X_test is not None
    assert data.y_test is not None
    X, X_test = data.X.copy(), data.X_test.copy()
    for column, name in enumerate(data.feature_names):
        if name not in ADULT_RANGES:
            continue
        for table in (X, X_test):
            values = np.clip(table[:, column], 0.0, ADULT_RANGES[name])
            if name in LOGARITHMIC:
                table[:, column] = np.log1p(values) / np.log1p(ADULT_RANGES[name])
            else:
                table[:, column] = values / ADULT_RANGES[name]
    return Study(
        title=STUDIES["adult"],
        X=X,
        y=data.y.copy(),
        X_test=X_test[N_QUESTIONS:],
        y_test=data.y_test[N_QUESTIONS:].copy(),
        questions=X_test[:N_QUESTIONS],
        answers=data.y_test[:N_QUESTIONS].copy(),
        classes=(0, 1),
        x_bound=3.2,
        n_public=32_000,
    )


def _mnist() -> Study:
    data = load_mnist()
    assert data.X_test is not None
    assert data.y_test is not None
    chosen, tested = np.isin(data.y, DIGITS), np.isin(data.y_test, DIGITS)
    X_test, y_test = _halve(data.X_test[tested]), data.y_test[tested]
    n_questions = len(y_test) // 4
    return Study(
        title=STUDIES["mnist"],
        X=_halve(data.X[chosen]),
        y=data.y[chosen],
        X_test=X_test[n_questions:],
        y_test=y_test[n_questions:],
        questions=X_test[:n_questions],
        answers=y_test[:n_questions],
        classes=DIGITS,
        x_bound=5.0,
        n_public=12_000,
    )


def _halve(images: npt.NDArray[np.uint8]) -> Matrix:
    """Return images at half their resolution, as rows between 0 and 1."""
    blocks = images.reshape(len(images), 14, 2, 14, 2) / 255.0
    rows: Matrix = blocks.mean(axis=(2, 4)).reshape(len(images), -1)
    return rows
