"""Loaders of the tables with categorical columns: Adult, Bank Marketing, KDD Cup 1999.

Categories become integer codes in alphabetical order; ``Dataset.categories`` says what each
code stands for and :func:`~papers.datasets.one_hot` turns them into indicators. A missing
value (``?`` in Adult, ``unknown`` in Bank) is a category of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from papers.datasets.record import Dataset
from papers.datasets.store import read_file
from papers.datasets.tables import Table, parse_rows, split_classes, split_header

__all__ = ["load_adult", "load_bank", "load_kdd99"]

CC_BY: Final = "CC BY 4.0"

_ADULT_COLUMNS: Final = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
_ADULT_CATEGORICAL: Final = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
    "income",
)
_BANK_CATEGORICAL: Final = (
    "job",
    "marital",
    "education",
    "default",
    "housing",
    "loan",
    "contact",
    "month",
    "poutcome",
    "y",
)
_KDD_COLUMNS: Final = (
    "duration",
    "protocol_type",
    "service",
    "flag",
    "src_bytes",
    "dst_bytes",
    "land",
    "wrong_fragment",
    "urgent",
    "hot",
    "num_failed_logins",
    "logged_in",
    "num_compromised",
    "root_shell",
    "su_attempted",
    "num_root",
    "num_file_creations",
    "num_shells",
    "num_access_files",
    "num_outbound_cmds",
    "is_host_login",
    "is_guest_login",
    "count",
    "srv_count",
    "serror_rate",
    "srv_serror_rate",
    "rerror_rate",
    "srv_rerror_rate",
    "same_srv_rate",
    "diff_srv_rate",
    "srv_diff_host_rate",
    "dst_host_count",
    "dst_host_srv_count",
    "dst_host_same_srv_rate",
    "dst_host_diff_srv_rate",
    "dst_host_same_src_port_rate",
    "dst_host_srv_diff_host_rate",
    "dst_host_serror_rate",
    "dst_host_srv_serror_rate",
    "dst_host_rerror_rate",
    "dst_host_srv_rerror_rate",
    "label",
)


def load_adult() -> Dataset:
    """Load Adult (Census Income): 32561 + 16281 people, 14 features, income above 50K or not.

    Codes are shared by the two splits, also for a category that only one of them holds.
    """
    _, _, test_rows = read_file("adult.test.gz").partition(b"\n")
    train, test = parse_rows(
        [read_file("adult.data.gz"), test_rows],
        names=_ADULT_COLUMNS,
        categorical=_ADULT_CATEGORICAL,
        stopped=("income",),
    )
    X, y, names = split_classes(train, "income")
    X_test, y_test, _ = split_classes(test, "income")
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
    names, body = split_header("bank-full.csv.gz", delimiter=";")
    (table,) = parse_rows([body], names=names, categorical=_BANK_CATEGORICAL, delimiter=";")
    X, y, names = split_classes(table, "y")
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
    (table,) = parse_rows(
        [read_file("kddcup.data_10_percent.gz")],
        names=_KDD_COLUMNS,
        categorical=("protocol_type", "service", "flag", "label"),
        stopped=("label",),
    )
    X, y, names = split_classes(table, "label")
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


def _feature_levels(table: Table, target: str) -> Mapping[str, tuple[str, ...]]:
    return {name: levels for name, levels in table.levels.items() if name != target}
