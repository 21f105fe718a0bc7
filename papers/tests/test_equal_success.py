"""Every DP method on the papers' tables, at one success."""

from collections.abc import Callable

import numpy as np
import pytest

from gains import check_dp_methods
from papers import datasets

Require = Callable[..., None]

FILES = {
    "rice": ("rice_cammeo_osmancik.arff.gz",),
    "wine_white": ("winequality-white.csv.gz",),
    "adult": ("adult.data.gz", "adult.test.gz"),
}
NUMBERS_OF_ADULT = [0, 4, 10, 11, 12]


@pytest.mark.claim("DP-30")
@pytest.mark.parametrize("success", [0.588])
@pytest.mark.parametrize(
    ("table", "model"), [("rice", "logistic"), ("wine_white", "ridge"), ("adult", "logistic")]
)
def test_every_dp_method_has_the_advantage_of_the_target(
    table: str, model: str, success: float, require_data: Require
) -> None:
    require_data(*FILES[table])
    data = getattr(datasets, f"load_{table}")()
    chosen = np.random.default_rng(0).choice(len(data.X), size=400, replace=False)
    X, y = data.X[chosen], data.y[chosen]
    X = X[:, NUMBERS_OF_ADULT] if table == "adult" else X
    check_dp_methods(X[:, :3], y, "sum", success=success)
    check_dp_methods(X, y, model, success=success)
