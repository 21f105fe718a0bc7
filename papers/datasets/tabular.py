"""Loaders of the numeric tables."""

from __future__ import annotations

from typing import Final

import numpy as np
from sklearn import datasets as sklearn_datasets

from papers.datasets.record import Dataset
from papers.datasets.tables import (
    Table,
    parse_rows,
    read_arff,
    split_classes,
    split_header,
    split_target,
)

__all__ = [
    "load_california_housing",
    "load_credit_default",
    "load_dry_bean",
    "load_iris",
    "load_rice",
    "load_wine_red",
    "load_wine_white",
]

CC_BY: Final = "CC BY 4.0"


def load_iris() -> Dataset:
    """Load Fisher's Iris: 150 flowers, 4 lengths, 3 species; it ships with scikit-learn.

    Examples
    --------
    >>> load_iris()
    Dataset('iris', X=(150, 4), task='classification')
    """
    bunch = sklearn_datasets.load_iris()
    return Dataset(
        name="iris",
        X=np.array(bunch.data, dtype=np.float64),
        y=np.array(bunch.target, dtype=np.int64),
        task="classification",
        feature_names=tuple(bunch.feature_names),
        target_names=tuple(str(name) for name in bunch.target_names),
        licence=CC_BY,
        source="UCI id 53, doi:10.24432/C56C76; Fisher 1936; the copy in scikit-learn",
    )


def load_rice() -> Dataset:
    """Load Rice (Cammeo and Osmancik): 3810 grains, 7 measurements, 2 varieties."""
    return _from_arff(
        "rice",
        "rice_cammeo_osmancik.arff.gz",
        source="UCI id 545, doi:10.24432/C5MW4Z; Cinar and Koklu 2019",
    )


def load_dry_bean() -> Dataset:
    """Load Dry Bean: 13611 beans, 16 measurements, 7 varieties; 68 rows are duplicates."""
    return _from_arff(
        "dry_bean",
        "dry_bean.arff.gz",
        source="UCI id 602, doi:10.24432/C50S4B; Koklu and Ozkan 2020",
    )


def load_wine_red() -> Dataset:
    """Load Wine Quality, red: 1599 wines, 11 measurements, a score as target."""
    return _wine("wine_red", "winequality-red.csv.gz")


def load_wine_white() -> Dataset:
    """Load Wine Quality, white: 4898 wines, 11 measurements, a score as target."""
    return _wine("wine_white", "winequality-white.csv.gz")


def load_california_housing() -> Dataset:
    """Load California Housing: 20640 census block groups with scikit-learn's 8 features.

    The target is the median house value in units of 100 000 dollars.
    """
    X, y, names = split_target(_csv("california_housing_sklearn.csv.gz"), "MedHouseVal")
    return Dataset(
        name="california_housing",
        X=X,
        y=y,
        task="regression",
        feature_names=names,
        target_names=("MedHouseVal",),
        licence="none stated",
        source="StatLib houses; Pace and Barry 1997",
    )


def load_credit_default() -> Dataset:
    """Load Default of Credit Card Clients: 30000 clients, 23 features, default or not.

    The row number ``ID`` is left out. The published integer codes of sex, education and
    marriage are kept as numbers.
    """
    table = _csv("default_credit_card_clients.csv.gz")
    X, y, names = split_classes(table, "default.payment.next.month", drop=("ID",))
    return Dataset(
        name="credit_default",
        X=X,
        y=y,
        task="classification",
        feature_names=names,
        target_names=("no default", "default"),
        licence=CC_BY,
        source="UCI id 350, doi:10.24432/C55S3H; Yeh and Lien 2009",
    )


def _csv(file: str, *, delimiter: str = ",") -> Table:
    names, body = split_header(file, delimiter=delimiter)
    (table,) = parse_rows([body], names=names, delimiter=delimiter)
    return table


def _from_arff(name: str, file: str, *, source: str) -> Dataset:
    table = read_arff(file)
    X, y, names = split_classes(table, "Class")
    return Dataset(
        name=name,
        X=X,
        y=y,
        task="classification",
        feature_names=names,
        target_names=table.levels["Class"],
        licence=CC_BY,
        source=source,
    )


def _wine(name: str, file: str) -> Dataset:
    X, y, names = split_target(_csv(file, delimiter=";"), "quality")
    return Dataset(
        name=name,
        X=X,
        y=y,
        task="regression",
        feature_names=names,
        target_names=("quality",),
        licence=CC_BY,
        source="UCI id 186, doi:10.24432/C56S3T; Cortez et al. 2009",
    )
