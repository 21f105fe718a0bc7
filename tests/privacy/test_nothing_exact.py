"""Released files hold no exact statistic of the universe, but for those that they list.

The scan looks for minimum, maximum, mean, standard deviation and counts of every column among the
numbers of a release, and for what follows from them: the mean target that an intercept lets out,
the grid between the extremes that thresholds lie on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import pacprivacy as pac
from pacprivacy._rounding import two_digits
from pacprivacy.cli.console import app
from pacprivacy.design import LogisticFit, OrthogonalRidge
from pacprivacy.mechanism import PCA, Forest, KMeans, LinearSVM
from pacprivacy.statistics import Covariance, Histogram, Mean
from pacprivacy.tables import MODELS as OFFERED

pytestmark = pytest.mark.usefixtures("few_draws")
N = 511
RNG = np.random.default_rng(7)
GROUP = np.repeat([0, 1, 2], [167, 161, 183])
X = np.column_stack(
    [
        RNG.normal(41.3, 9.7, N) + 4 * GROUP,
        RNG.lognormal(10.1, 0.6, N),
        RNG.normal(0.0137, 0.0041, N) - 0.003 * GROUP,
    ]
)
Y = X @ [0.31, 1e-4, -90.0] + RNG.normal(3.7, 1.1, N)
NAMES = ("age", "income", "rate")
RANGES = [(0.0, 128.0), (0.0, 262144.0), (-0.125, 0.125)]
DIGITS = 5e-7


def statistics() -> dict[str, list[float]]:
    """What no release may show: kind, and its values for all columns."""
    columns = [*X.T, Y]
    grid = np.linspace(0, 1, 32)
    return {
        "minimum": [float(c.min()) for c in columns],
        "maximum": [float(c.max()) for c in columns],
        "mean": [float(c.mean()) for c in columns],
        "standard deviation": [float(c.std(ddof=k)) for c in columns for k in (0, 1)]
        + [float(c.var(ddof=k)) for c in columns for k in (0, 1)],
        "minimum and maximum": [v for c in X.T for v in (c.min() + grid * np.ptp(c)).tolist()],
        "count": [*map(float, np.bincount(GROUP))],
    }


PLACES = (".error_bars.constants", ".error_bars.no_interval")  # of numbers, counted from 0


def numbers_in(content: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if path in PLACES:
        return
    if isinstance(content, dict):
        for key, value in content.items():
            yield from numbers_in(value, f"{path}.{key}")
        scalar = isinstance(content.get("intercept"), float)
        if "coef" in content and scalar:
            at_the_mean = np.dot(content["coef"], X.mean(axis=0)) + content["intercept"]
            yield f"{path}: prediction at the mean", float(at_the_mean)
    elif isinstance(content, list):
        for i, value in enumerate(content):
            yield from numbers_in(value, f"{path}[{i}]")
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield path, float(content)


def scan(content: dict[str, Any], published: list[str]) -> list[str]:
    """Return the numbers that equal a statistic which is not listed as exact."""
    listed = " ".join(item for item in published if "rounded" not in item)
    return [
        f"{path} is the {kind}"
        for path, number in numbers_in(content)
        for kind, values in statistics().items()
        if kind not in listed and any(math.isclose(number, v, rel_tol=DIGITS) for v in values)
    ]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "people.csv"
    adult, visits = RNG.choice(["no", "yes"], N).tolist(), RNG.poisson(2.0, N).tolist()
    columns = [*X.T.tolist(), Y.tolist(), [f"g{group}" for group in GROUP], adult, visits]
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    path.write_text(
        "\n".join([",".join([*NAMES, "cost", "region", "adult", "visits"]), *rows]) + "\n"
    )
    return path


LEARN = ["--columns", ",".join(NAMES)]
DECLARED = ["--ranges", "age=0,128;income=0,262144;rate=-0.125,0.125"]
MODELS: dict[str, list[str]] = {
    "mean": LEARN,
    "covariance": LEARN,
    "histogram": [*LEARN, *DECLARED],
    "kmeans": [*LEARN, "--clusters", "3"],
    "pca": [*LEARN, "--components", "2"],
    "svm": [*LEARN, "--target", "region"],
    "forest": [*LEARN, "--target", "region"],
    "ridge": [*LEARN, "--target", "cost"],
    "sum": LEARN,
    "count": [*LEARN, "--where", "age >= 40"],
    "median": LEARN,
    "quantiles": LEARN,
    "variance": LEARN,
    "crosstab": ["--columns", "region,adult"],
    "ols": [*LEARN, "--target", "cost"],
    "logistic": [*LEARN, "--target", "adult"],
    "poisson": [*LEARN, "--target", "visits"],
}
WITHOUT_RANGES = [option for option in MODELS["histogram"] if option not in DECLARED]


def release(table: Path, folder: Path, model: str, options: list[str]) -> dict[str, Any]:
    words = ["release", str(table), "--model", model, *options, "--budget", "mi<=1"]
    words += ["--subsets", "32", "--rule", "waterfill", "--seed", "5", "--simulate", "-q"]
    result = CliRunner().invoke(app, [*words, "-o", str(folder / model)])
    assert result.exit_code == 0, result.stderr
    content: dict[str, Any] = json.loads((folder / model / "release.json").read_text())
    return content


def test_every_model_of_the_command_line_is_scanned() -> None:
    assert set(MODELS) == set(OFFERED)  # a new model is scanned too: add its options above


@pytest.mark.claim("R-7")
@pytest.mark.parametrize("model", MODELS)
def test_no_model_shows_an_exact_statistic(table: Path, tmp_path: Path, model: str) -> None:
    content = release(table, tmp_path, model, MODELS[model])
    published = content["certificate"]["published"]
    assert scan(content, published) == []
    told = " ".join(published)
    assert "noise level" in told
    assert "spread" in told
    assert "number of candidates (32" in told
    assert ("class labels" in told) == (model in ("svm", "forest"))
    assert "minimum" not in told
    assert "target" not in told


COIN_MODELS = [
    *("mean", "sum", "count", "variance", "covariance", "crosstab", "histogram"),
    *("median", "quantiles", "ols", "ridge", "logistic", "poisson"),
]


@pytest.mark.claim("R-7")
@pytest.mark.parametrize("model", COIN_MODELS)
def test_no_model_with_coins_shows_an_exact_statistic(
    table: Path, tmp_path: Path, model: str
) -> None:
    words = ["release", str(table), "--model", model, *MODELS[model], "--simulate", "--seed", "5"]
    words += ["--budget", "membership<=0.6", "-q", "-o", str(tmp_path / model)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    content = json.loads((tmp_path / model / "release.json").read_text())
    assert content["certificate"]["sampling"] != "pool"
    assert scan(content, content["certificate"]["published"]) == []


MECHANISMS: dict[str, tuple[Any, Any]] = {
    "mean": (Mean(), X),
    "covariance": (Covariance(), X),
    "histogram": (Histogram(ranges=RANGES), X),
    "kmeans": (KMeans(n_clusters=3), X / X.std(axis=0)),
    "pca": (PCA(n_components=2), X),
    "svm": (LinearSVM(), (X / X.std(axis=0), GROUP)),
    "forest": (Forest(), (X, GROUP)),
    "strongly pulled forest": (Forest(pull=1.0), (X, GROUP)),
    "ridge": (OrthogonalRidge(), (X, Y)),
    "logistic": (LogisticFit(), (X, GROUP)),
    "function": (lambda x: {"mean": x.mean(axis=0), "max": np.quantile(x, 0.9, axis=0)}, X),
    "fitted": (
        lambda x, y: LogisticRegression(max_iter=5000).fit(x, y),
        (X / X.std(axis=0), GROUP),
    ),
}


def privatize(mechanism: Any, data: Any) -> dict[str, Any]:
    found = pac.privatize(
        mechanism, data, pac.Information(1), n_subsets=32, rule="waterfill", rng=5, simulate=True
    )
    return found.to_public_dict()


@pytest.mark.claim("R-7")
@pytest.mark.parametrize("name", MECHANISMS)
def test_no_mechanism_shows_an_exact_statistic(name: str) -> None:
    content = privatize(*MECHANISMS[name])
    assert scan(content, content["certificate"]["published"]) == []


@pytest.mark.claim("R-7")
@pytest.mark.parametrize(
    ("model", "options", "kind"),
    [
        ("histogram", WITHOUT_RANGES, "minimum"),
        ("pca", MODELS["pca"], "standard deviation"),
        ("ridge", MODELS["ridge"], "mean"),
    ],
)
def test_the_scan_finds_each_leak(
    table: Path, tmp_path: Path, model: str, options: list[str], kind: str
) -> None:
    """Facts that were asked for are found by the scan, and named in the list."""
    content = release(table, tmp_path, model, [*options, "--universe-facts"])
    assert any(found.endswith(f"is the {kind}") for found in scan(content, []))
    assert scan(content, content["certificate"]["published"]) == []


@pytest.mark.claim("R-7")
def test_the_scan_finds_the_extremes_that_thresholds_show() -> None:
    """Where the pull decides, all candidates agree and the threshold leaves as it is."""
    content = privatize(Forest(pull=1.0, universe_facts=True), (X, GROUP))
    found = scan(content, [])
    assert any("thresholds" in each and each.endswith("minimum and maximum") for each in found)
    assert scan(content, content["certificate"]["published"]) == []


@pytest.mark.claim("R-7")
def test_noise_is_published_with_two_digits() -> None:
    """To more of them, the noise of a mean would be the standard deviation of all records."""
    x = X[:, 0]
    found = pac.privatize(np.mean, x, pac.Information(1), n_subsets=64, rule="waterfill", rng=0)
    noise, bundle = found.certificate.noise, found.bundle
    exact = float((bundle.grid_step * bundle.units_per_std)[0])
    assert noise.largest_std == two_digits(noise.largest_std) == two_digits(exact)
    assert exact < noise.largest_std < 1.1 * exact
    assert math.log2(noise.smallest_units_per_std).is_integer()
    assert math.log2(noise.smallest_grid_step).is_integer()
    assert pac.verify(found.certificate, bundle).digest == found.certificate.digest


def test_a_release_that_needed_no_noise_says_so_first() -> None:
    ill = np.ones(200)
    agreed = pac.privatize(np.mean, ill, pac.Membership(0.6), n_subsets=32)
    assert agreed.value == 1.0
    assert str(agreed.certificate).startswith("No noise was needed: all candidates agree")
    free = pac.privatize(np.mean, X[:, 0], pac.Information(9), n_subsets=32, rule="waterfill")
    assert str(free.certificate).startswith("No noise was needed: the budget allows")
    noisy = pac.privatize(np.mean, X[:, 0], pac.Information(1), n_subsets=32, rule="waterfill")
    assert "No noise" not in noisy.certificate.promise
