"""The tables of the fight: private, tuning and test rows, in units of the tuning rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from papers import datasets

N_TUNING, N_TEST = 0.1, 0.2  # shares of a table without a test split of its own
RARE = 0.03  # deviation of the indicator of a category that hardly anybody has; left out


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Rows of one table; ``X`` and ``y`` are private, the others public."""

    X: Any
    y: Any
    X_tuning: Any
    y_tuning: Any
    X_test: Any
    y_test: Any

    @property
    def delta(self) -> float:
        """Where an epsilon is read; it has next to no part in the noise."""
        return len(self.X) ** -1.5


@cache
def load(name: str, *, most: int | None = None) -> Split:
    """Load a table; features and numeric targets in deviations from the tuning rows' mean.

    ``most`` private rows are kept where a run is to be quick.

    Scales come from public rows alone, and the same ones are given to both families.
    """
    read = datasets.one_hot(getattr(datasets, f"load_{name}")())
    rng = np.random.default_rng(0)
    X, y = np.asarray(read.X, dtype=np.float64), np.asarray(read.y)
    if read.X_test is None:
        order = rng.permutation(len(X))
        n_tuning, n_test = int(N_TUNING * len(X)), int(N_TEST * len(X))
        parts = np.split(order, [n_tuning, n_tuning + n_test])
        tuning, test, train = ((X[rows], y[rows]) for rows in parts)
    else:
        order = rng.permutation(len(read.X_test))
        cut = int(N_TUNING / (N_TUNING + N_TEST) * len(order))
        tuning, test = (
            (np.asarray(read.X_test, dtype=np.float64)[rows], np.asarray(read.y_test)[rows])
            for rows in np.split(order, [cut])
        )
        train = (X, y)
    if most is not None:
        train = (train[0][:most], train[1][:most])
    center, spread = tuning[0].mean(axis=0), tuning[0].std(axis=0)
    indicators = ((X == 0) | (X == 1)).all(axis=0)
    kept = spread > np.where(indicators, RARE, 0.0)
    if read.task != "classification":
        mean, std = tuning[1].mean(), tuning[1].std()
        tuning, test, train = ((A, (b - mean) / std) for A, b in (tuning, test, train))
    scaled = [((A - center)[:, kept] / spread[kept], b) for A, b in (train, tuning, test)]
    (X, y), (X_tuning, y_tuning), (X_test, y_test) = scaled
    return Split(X=X, y=y, X_tuning=X_tuning, y_tuning=y_tuning, X_test=X_test, y_test=y_test)


def with_constant(X: Any) -> Any:
    """Return the features and a column of ones."""
    return np.column_stack([X, np.ones(len(X))])


def clip_columns(X: Any, most: float) -> Any:
    """Clip every feature to so many deviations of the tuning rows."""
    return np.clip(X, -most, most)
