"""The record that every loader returns, and the indicator coding of its categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import freeze


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """A public benchmark data set as arrays that cannot be written to.

    Tables are float64 with one column per feature, and a column named in ``categories`` holds
    integer codes, with the category that each code stands for; images are uint8, texts objects.
    ``y`` holds class codes into ``target_names``, or the target itself. A result on a data set that
    ``is_subset`` is not a result on what was published.

    Examples
    --------
    >>> toy = Dataset(name="toy", X=np.zeros((2, 1)), y=np.array([0, 1]), task="classification",
    ...     feature_names=("age",), target_names=("no", "yes"), licence="-", source="-")
    >>> toy
    Dataset('toy', X=(2, 1), task='classification')
    >>> toy.n_records
    2
    """

    name: str
    X: npt.NDArray[Any]
    y: npt.NDArray[Any]
    task: Literal["classification", "regression"]
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    licence: str
    source: str
    is_subset: bool = False
    X_test: npt.NDArray[Any] | None = None
    y_test: npt.NDArray[Any] | None = None
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for array in (self.X, self.y, self.X_test, self.y_test):
            if array is not None:
                freeze(array)

    @property
    def n_records(self) -> int:
        """Number of records in the train split."""
        return len(self.y)

    def __repr__(self) -> str:
        test = "" if self.X_test is None else f", X_test={self.X_test.shape}"
        subset = ", is_subset=True" if self.is_subset else ""
        return f"Dataset({self.name!r}, X={self.X.shape}{test}, task={self.task!r}{subset})"


def one_hot(dataset: Dataset) -> Dataset:
    """Replace every coded column by one 0/1 column per category.

    The new columns stand where the coded column stood and are named ``column=category``.

    Examples
    --------
    >>> coded = Dataset(name="toy", X=np.array([[5.0, 1.0], [7.0, 0.0]]), y=np.array([0, 1]),
    ...     task="classification", feature_names=("age", "sex"), target_names=("no", "yes"),
    ...     licence="-", source="-", categories={"sex": ("F", "M")})
    >>> one_hot(coded).feature_names
    ('age', 'sex=F', 'sex=M')
    >>> one_hot(coded).X
    array([[5., 0., 1.],
           [7., 1., 0.]])
    """
    if not dataset.categories:
        return dataset
    names: list[str] = []
    for name in dataset.feature_names:
        levels = dataset.categories.get(name)
        names.extend([name] if levels is None else [f"{name}={level}" for level in levels])
    return replace(
        dataset,
        X=_expand(dataset.X, dataset),
        X_test=None if dataset.X_test is None else _expand(dataset.X_test, dataset),
        feature_names=tuple(names),
        categories={},
    )


def _expand(table: npt.NDArray[Any], dataset: Dataset) -> npt.NDArray[np.float64]:
    """Write the indicator columns straight into one array: KDD 1999 is too large to stack twice."""
    widths = [len(dataset.categories.get(name, (name,))) for name in dataset.feature_names]
    expanded = np.zeros((len(table), sum(widths)))
    rows = np.arange(len(table))
    start = 0
    for column, (name, width) in enumerate(zip(dataset.feature_names, widths, strict=True)):
        if name in dataset.categories:
            expanded[rows, start + table[:, column].astype(np.intp)] = 1.0
        else:
            expanded[:, start] = table[:, column]
        start += width
    return expanded
