"""The tables among the papers' data: how they are read, and a loader for each.

Read without pandas. Categories become integer codes in alphabetical order; ``Dataset.categories``
says what each code stands for and :func:`~papers.datasets.one_hot` turns them into indicators. A
missing value (``?`` in Adult, ``unknown`` in Bank) is a category of its own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from sklearn import datasets as sklearn_datasets

from papers.datasets.record import Dataset
from papers.datasets.store import read_file

CC_BY: Final = "CC BY 4.0"

_ADULT_COLUMNS: Final = """
age workclass fnlwgt education education-num marital-status occupation relationship race sex
capital-gain capital-loss hours-per-week native-country income
"""
_ADULT_CATEGORICAL: Final = """
workclass education marital-status occupation relationship race sex native-country income
"""
_BANK_CATEGORICAL: Final = """
job marital education default housing loan contact month poutcome y
"""
_KDD_COLUMNS: Final = """
duration protocol_type service flag src_bytes dst_bytes land wrong_fragment urgent hot
num_failed_logins logged_in num_compromised root_shell su_attempted num_root num_file_creations
num_shells num_access_files num_outbound_cmds is_host_login is_guest_login count srv_count
serror_rate srv_serror_rate rerror_rate srv_rerror_rate same_srv_rate diff_srv_rate
srv_diff_host_rate dst_host_count dst_host_srv_count dst_host_same_srv_rate dst_host_diff_srv_rate
dst_host_same_src_port_rate dst_host_srv_diff_host_rate dst_host_serror_rate
dst_host_srv_serror_rate dst_host_rerror_rate dst_host_srv_rerror_rate label
"""


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
    X, y, names = _split_target(_csv("california_housing_sklearn.csv.gz"), "MedHouseVal")
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
    X, y, names = _split_classes(table, "default.payment.next.month", drop=("ID",))
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


def load_adult() -> Dataset:
    """Load Adult (Census Income): 32561 + 16281 people, 14 features, income above 50K or not.

    Codes are shared by the two splits, also for a category that only one of them holds.
    """
    _, _, test_rows = read_file("adult.test.gz").partition(b"\n")
    train, test = _parse_rows(
        [read_file("adult.data.gz"), test_rows],
        names=_ADULT_COLUMNS.split(),
        categorical=_ADULT_CATEGORICAL.split(),
        stopped=("income",),
    )
    X, y, names = _split_classes(train, "income")
    X_test, y_test, _ = _split_classes(test, "income")
    return Dataset(
        name="adult",
        X=X,
        y=y,
        X_test=X_test,
        y_test=y_test,
        task="classification",
        feature_names=names,
        target_names=train.levels["income"],
        licence=CC_BY,
        source="UCI id 2, doi:10.24432/C5XW20; Becker and Kohavi 1996",
        categories=_feature_levels(train, "income"),
    )


def load_bank() -> Dataset:
    """Load Bank Marketing (bank-full): 45211 calls, 16 features, subscribed or not."""
    names, body = _split_header("bank-full.csv.gz", delimiter=";")
    (table,) = _parse_rows(
        [body], names=names, categorical=_BANK_CATEGORICAL.split(), delimiter=";"
    )
    X, y, names = _split_classes(table, "y")
    return Dataset(
        name="bank",
        X=X,
        y=y,
        task="classification",
        feature_names=names,
        target_names=table.levels["y"],
        licence=CC_BY,
        source="UCI id 222, doi:10.24432/C5K306; Moro, Rita and Cortez 2014",
        categories=_feature_levels(table, "y"),
    )


def load_kdd99() -> Dataset:
    """Load KDD Cup 1999, the published 10 percent file: 494021 connections, 41 features.

    Labels are the 22 attacks and ``normal``, without their full stops. Many rows are exact
    duplicates, as published. About 160 MB of memory; ``one_hot`` makes that 470 MB.
    """
    (table,) = _parse_rows(
        [read_file("kddcup.data_10_percent.gz")],
        names=_KDD_COLUMNS.split(),
        categorical=("protocol_type", "service", "flag", "label"),
        stopped=("label",),
    )
    X, y, names = _split_classes(table, "label")
    return Dataset(
        name="kdd99",
        X=X,
        y=y,
        task="classification",
        feature_names=names,
        target_names=table.levels["label"],
        licence=CC_BY,
        source="UCI id 130, doi:10.24432/C51C7N; Stolfo et al. 1999",
        categories=_feature_levels(table, "label"),
    )


def _csv(file: str, *, delimiter: str = ",") -> _Table:
    names, body = _split_header(file, delimiter=delimiter)
    (table,) = _parse_rows([body], names=names, delimiter=delimiter)
    return table


def _from_arff(name: str, file: str, *, source: str) -> Dataset:
    table = _read_arff(file)
    X, y, names = _split_classes(table, "Class")
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
    X, y, names = _split_target(_csv(file, delimiter=";"), "quality")
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


def _feature_levels(table: _Table, target: str) -> Mapping[str, tuple[str, ...]]:
    return {name: levels for name, levels in table.levels.items() if name != target}


# --- how tables are read --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A parsed table: one float64 column per name, category codes where ``levels`` says so."""

    names: tuple[str, ...]
    values: npt.NDArray[np.float64]
    levels: Mapping[str, tuple[str, ...]]


class _Coder:
    """Numbers the strings of one column in the order in which they are met."""

    __slots__ = ("codes", "edge")

    def __init__(self, edge: str) -> None:
        self.codes: dict[str, int] = {}
        self.edge = edge

    def __call__(self, text: str) -> float:
        return float(self.codes.setdefault(text.strip(self.edge), len(self.codes)))


def _parse_rows(
    parts: Sequence[bytes],
    *,
    names: Sequence[str],
    categorical: Sequence[str] = (),
    stopped: Sequence[str] = (),
    delimiter: str = ",",
) -> tuple[_Table, ...]:
    """Parse several bodies of text with the same columns, coding categories alike in all.

    Categories are sorted, so that codes depend neither on the order of the rows nor on which
    split a category was met in first. Spaces around a category are dropped, and in the columns
    ``stopped`` (the labels of Adult's test split and of KDD 1999) the full stop after it too.
    """
    coders = {names.index(name): _Coder(" ." if name in stopped else " ") for name in categorical}
    converters: dict[int | str, Callable[[str], float]] = dict(coders.items())
    arrays = [
        np.loadtxt(
            io.TextIOWrapper(io.BytesIO(part), encoding="utf-8"),
            delimiter=delimiter,
            comments=None,
            quotechar='"',
            converters=converters,
            encoding="utf-8",
            ndmin=2,
        )
        for part in parts
    ]
    levels: dict[str, tuple[str, ...]] = {}
    for column, coder in coders.items():
        ordered = sorted(coder.codes)
        rank = np.empty(len(ordered))
        rank[[coder.codes[level] for level in ordered]] = np.arange(len(ordered))
        for array in arrays:
            array[:, column] = rank[array[:, column].astype(np.intp)]
        levels[names[column]] = tuple(ordered)
    return tuple(_Table(names=tuple(names), values=array, levels=levels) for array in arrays)


def _split_header(name: str, *, delimiter: str = ",") -> tuple[tuple[str, ...], bytes]:
    """Return the column names in the first line of a data file, and the text below it."""
    header, _, body = read_file(name).partition(b"\n")
    return tuple(next(csv.reader([header.decode().strip()], delimiter=delimiter))), body


def _read_arff(name: str) -> _Table:
    """Read an ARFF data file; attributes declared as ``{a, b, ...}`` become categories."""
    head, _, body = read_file(name).partition(b"@DATA")
    columns: list[str] = []
    categorical: list[str] = []
    for line in head.decode().splitlines():
        if line.upper().startswith("@ATTRIBUTE"):
            _, column, kind = line.split(maxsplit=2)
            columns.append(column)
            if kind.startswith("{"):
                categorical.append(column)
    (table,) = _parse_rows([body.lstrip()], names=columns, categorical=categorical)
    return table


def _split_target(
    table: _Table, target: str, *, drop: Sequence[str] = ()
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], tuple[str, ...]]:
    """Return the features, the target column and the features' names."""
    kept = [i for i, name in enumerate(table.names) if name != target and name not in drop]
    y = table.values[:, table.names.index(target)].copy()
    return table.values[:, kept], y, tuple(table.names[i] for i in kept)


def _split_classes(
    table: _Table, target: str, *, drop: Sequence[str] = ()
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], tuple[str, ...]]:
    """Like :func:`split_target`, with the target as integer class codes."""
    X, y, names = _split_target(table, target, drop=drop)
    return X, y.astype(np.int64), names
