"""The papers' benchmark data: a local folder first, then a download, always by checksum.

Every loader returns a :class:`Dataset`. Nothing here needs pandas; the CIFAR subsets need
Pillow. Set ``PACPRIVACY_DATA`` to a folder that holds the files; set ``PACPRIVACY_OFFLINE`` to
forbid downloads.
"""

from papers.datasets.media import (
    load_ag_news,
    load_cifar10_subset,
    load_cifar100_subset,
    load_mnist,
)
from papers.datasets.record import Dataset, one_hot
from papers.datasets.store import cache_folder, find_file, search_folders
from papers.datasets.tables import (
    load_adult,
    load_bank,
    load_california_housing,
    load_credit_default,
    load_dry_bean,
    load_iris,
    load_kdd99,
    load_rice,
    load_wine_red,
    load_wine_white,
)

__all__ = [
    "Dataset",
    "cache_folder",
    "find_file",
    "load_adult",
    "load_ag_news",
    "load_bank",
    "load_california_housing",
    "load_cifar10_subset",
    "load_cifar100_subset",
    "load_credit_default",
    "load_dry_bean",
    "load_iris",
    "load_kdd99",
    "load_mnist",
    "load_rice",
    "load_wine_red",
    "load_wine_white",
    "one_hot",
    "search_folders",
]
