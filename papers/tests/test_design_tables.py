"""The data and the tables of [DESIGN]: the split, and agreement with published figures."""

from collections.abc import Callable

import numpy as np
import pytest

from papers.design.data import load_binary, load_regression
from papers.design.descent import descent_rows
from papers.design.equal import equal_row
from papers.design.ridge import adassp_rows, ridge_rows

Require = Callable[..., None]


def test_credit_has_no_target_among_its_features(require_data: Require) -> None:
    require_data("default_credit_card_clients.csv.gz")
    split = load_binary("credit")
    assert split.has_constant
    assert (split.X[:, -1] == 1.0).all()
    best = split.objective.minimise(split.X, split.y)
    assert 0.79 <= float(split.accuracies(best[None])[0]) <= 0.82
    related = np.corrcoef(np.column_stack([split.X[:, :-1], split.y]).T)[-1, :-1]
    assert np.abs(related).max() < 0.5
    leaky = load_binary("credit_leaky")
    best = leaky.objective.minimise(leaky.X, leaky.y)
    assert float(leaky.accuracies(best[None])[0]) > 0.995  # as printed: 1.00


def test_credit_as_printed_is_met(require_data: Require) -> None:
    require_data("default_credit_card_clients.csv.gz")
    rows = descent_rows(
        dataset="credit_leaky",
        settings=("oracle",),
        mi_budgets=(1 / 64,),
        as_printed=True,
        n_trials=8,
    )
    assert len(rows) == 2
    for row in rows:
        assert row.published is not None
        assert row.utility == pytest.approx(row.published, abs=0.06)


def test_housing_is_split_like_wine(require_data: Require) -> None:
    require_data("california_housing_sklearn.csv.gz")
    split = load_regression("housing")
    assert split.Z.shape == (16512, 8)
    np.testing.assert_allclose(split.Z.T @ split.Z / len(split.Z), np.eye(8), atol=1e-6)
    best = split.Z.T @ split.target / np.square(split.Z).sum(axis=0)
    assert float(split.test_errors(best[None])[0]) == pytest.approx(0.556, abs=0.005)


def test_wine_tables_are_reproduced(require_data: Require) -> None:
    require_data("winequality-red.csv.gz", "winequality-white.csv.gz")
    rows = ridge_rows(n_repeats=4, seed=1)
    assert len(rows) == 80
    off = [row for row in rows if not row.agrees(within=0.02, relative=0.05)]
    assert not off


def test_wine_table_is_near_the_published_one(require_data: Require) -> None:
    require_data("winequality-red.csv.gz", "winequality-white.csv.gz")
    rows = adassp_rows(datasets=("wine_red", "wine_white"), n_releases=20)
    assert len(rows) == 40
    for row in rows:
        if row.bound == "largest norm" and row.published is not None:
            error = 3 * row.standard_error  # of 20 releases
            assert row.utility == pytest.approx(row.published, abs=0.03 + error)
    clipped = [row for row in rows if row.bound == "typical norm"]
    assert clipped[0].utility < 0.45  # red wine at the largest ε


def test_clipping_turns_the_comparison_on_housing(require_data: Require) -> None:
    require_data("california_housing_sklearn.csv.gz")
    rows = adassp_rows(datasets=("housing",), n_releases=5)
    found = {(row.bound, row.calibration, row.pure_epsilon): row.utility for row in rows}
    blind = float(np.mean(load_regression("housing").target ** 2))
    conscious = {0.36: 0.604, 0.18: 0.678, 0.09: 0.851}  # benchmarks/results/design_agreement.json
    for epsilon, error in conscious.items():
        assert found["largest norm", "paper's epsilon", epsilon] > 0.9 * blind > 1.4 * error
        for calibration in ("paper's epsilon", "equal success"):
            clipped = found["typical norm", calibration, epsilon]
            assert clipped < 0.72  # 0.60 to 0.64
            assert clipped < error or epsilon == 0.36  # level there, ahead below


def test_wine_table_has_adassp_at_its_own_success(require_data: Require) -> None:
    require_data("winequality-red.csv.gz", "winequality-white.csv.gz")
    rows = adassp_rows(datasets=("wine_red", "wine_white"), n_releases=5)
    found = {(r.dataset, r.bound, r.calibration, r.pure_epsilon): r for r in rows}
    for (dataset, bound, calibration, epsilon), row in found.items():
        if calibration == "equal success":
            gain, asked = 2 * row.own_success - 1, 2 * row.success - 1
            assert 0.999 * asked <= gain <= asked
            paper = found[dataset, bound, "paper's epsilon", epsilon]
            assert 2 * paper.own_success - 1 < 0.3 * asked  # 26 % at most, at the printed δ
            assert paper.epsilon < row.epsilon


def test_conscious_steps_win_on_mnist(require_data: Require) -> None:
    require_data("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz")
    rows = descent_rows(settings=("oracle",), mi_budgets=(1 / 4, 1 / 64), n_trials=8, seed=1)
    for post_hoc, conscious in zip(rows[::2], rows[1::2], strict=True):
        assert conscious.mode == "conscious"
        assert conscious.utility >= post_hoc.utility
        if conscious.published is not None:
            assert conscious.agrees(within=0.05)


def test_risk_beats_conscious_design_at_equal_success(
    require_data: Require,
) -> None:
    require_data("winequality-red.csv.gz")
    row = equal_row("wine_red", n_repeats=1, n_subsets=32, n_releases=300)
    assert row.success == pytest.approx(0.58816, abs=1e-5)
    assert row.gain > 0.1
    assert row.risk < row.same_information
    assert row.risk_nats > 1 / 64  # what is paid for it
