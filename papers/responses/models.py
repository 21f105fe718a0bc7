"""Answers of 128 boosted models to the test rows of Adult and Bank, computed once and kept.

The protocol of [RESP]: the census file's two parts put together (48842 rows), ``education``
dropped beside ``education-num``; train 80 %, test 20 %, seed 42; every training row in a random
half of 128 subsets; one model per subset; the test rows are the queries. The paper tunes XGBoost
on every subset (depth 3 to 5, rate up to 0.1, up to 200 trees); here every subset gets
histogram gradient boosting of depth 4, rate 0.1 and 200 trees, the middle of that grid.
Bank is ``bank-full`` here and ``bank-additional-full`` in the paper: other rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from pacprivacy._checks import Vector, freeze
from pacprivacy.sample import Balanced, Pool
from pacprivacy.simulation import train_subsets
from papers.datasets import Dataset, cache_folder, load_adult, load_bank

N_SUBSETS: Final = 128
SPLIT_SEED: Final = 42
TEST_SHARE: Final = 0.2
POOL_SEED: Final = 0
DATASETS: Final[dict[str, Callable[[], Dataset]]] = {"adult": load_adult, "bank": load_bank}
_DROPPED: Final = {"adult": ("education",), "bank": ()}
_VERSION: Final = 1

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """What every model says about every test row, with the truth.

    ``scores`` (m, q) are probabilities of class 1 and ``labels`` the votes; ``signs`` is +1 where a
    unit is in a subset, else -1. ``nonprivate`` is the test accuracy of the same model trained on
    the whole universe.
    """

    scores: Vector
    truth: Labels
    nonprivate: float
    pool: Pool
    labels: npt.NDArray[np.int8] = field(init=False)
    signs: npt.NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", (self.scores > 0.5).astype(np.int8))
        object.__setattr__(
            self, "signs", np.where(self.pool.masks(), np.float32(1), np.float32(-1))
        )
        for array in (self.scores, self.truth, self.labels, self.signs):
            freeze(array)

    @property
    def mean_accuracy(self) -> float:
        """Mean test accuracy of the models: what an answer without noise is worth."""
        return float((self.labels == self.truth).mean())


def split_dataset(name: str) -> tuple[Any, Any, Any, Any, list[int]]:
    """Return train and test rows and labels, and which columns hold categories."""
    loaded = DATASETS[name]()
    X, y = loaded.X, loaded.y
    if loaded.X_test is not None and loaded.y_test is not None:
        X, y = np.vstack([X, loaded.X_test]), np.concatenate([y, loaded.y_test])
    keep = [i for i, column in enumerate(loaded.feature_names) if column not in _DROPPED[name]]
    coded = [j for j, i in enumerate(keep) if loaded.feature_names[i] in loaded.categories]
    X_train, X_test, y_train, y_test = train_test_split(
        X[:, keep], y, test_size=TEST_SHARE, random_state=SPLIT_SEED
    )
    return X_train, X_test, y_train, y_test, coded


def make_booster(categorical: list[int]) -> Any:
    """Return the model that every subset trains."""
    return HistGradientBoostingClassifier(
        max_depth=4,
        learning_rate=0.1,
        max_iter=200,
        early_stopping=False,
        categorical_features=categorical,
        random_state=0,
    )


def load_answers(
    name: str,
    *,
    n_subsets: int = N_SUBSETS,
    n_jobs: int | None = None,
    folder: Path | None = None,
) -> Answers:
    """Return the answers of all models, from the cache where they are there."""
    X, X_test, y, y_test, coded = split_dataset(name)
    pool = Balanced(n_subsets=n_subsets, independent=True).draw(len(y), rng=POOL_SEED)
    place = (cache_folder() if folder is None else folder) / "responses"
    path = place / f"{name}-{n_subsets}-{_VERSION}-{pool.digest()[:16]}.npz"
    if path.is_file():
        with np.load(path) as kept:
            scores, nonprivate = kept["scores"], float(kept["nonprivate"])
    else:
        scores, nonprivate = _train_all(X, y, X_test, y_test, coded, pool, n_jobs)
        place.mkdir(parents=True, exist_ok=True)
        np.savez(path, scores=scores, nonprivate=nonprivate)
    return Answers(scores=scores, truth=y_test.astype(np.int64), nonprivate=nonprivate, pool=pool)


def _train_all(
    X: Any, y: Any, X_test: Any, y_test: Any, coded: list[int], pool: Pool, n_jobs: int | None
) -> tuple[Vector, float]:
    def train(parts: tuple[Any, ...], rng: np.random.Generator) -> Vector:
        fitted = make_booster(coded).fit(*parts)
        answers: Vector = fitted.predict_proba(X_test)[:, 1]
        return answers

    scores = np.stack(train_subsets(train, (X, y), pool, n_jobs=n_jobs, rng=POOL_SEED))
    whole = make_booster(coded).fit(X, y)
    return scores, float((whole.predict(X_test) == y_test).mean())
