"""Principal components with coins: what they are, what is released, and that it is hidden."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import coerce_data
from pacprivacy.noise import plan_sums
from pacprivacy.statistics import PrincipalComponents, Sums

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 4)) @ np.linalg.qr(RNG.normal(size=(4, 4)))[0] * [4, 2, 1, 1] + 7.0
BUDGET = "membership<=0.6"


def test_without_noise_they_are_those_of_scikit_learn() -> None:
    statistic = PrincipalComponents(n_components=2)
    value = statistic.finish(statistic.value(statistic.contributions(coerce_data(X)).total()))
    fitted = PCA(2).fit(X)
    signs = np.sign((value["components"] * fitted.components_).sum(axis=1))
    np.testing.assert_allclose(value["components"], signs[:, None] * fitted.components_, atol=1e-8)
    np.testing.assert_allclose(value["mean"], fitted.mean_)
    np.testing.assert_allclose(value["explained_variance"], fitted.explained_variance_)
    ratio = value["explained_variance_ratio"]
    np.testing.assert_allclose(ratio, fitted.explained_variance_ratio_)


def test_every_direction_of_a_restored_row_is_weighed() -> None:
    """Moving the sums in any way moves what is read: no direction is without noise."""
    statistic = PrincipalComponents(n_components=2)
    sums = statistic.contributions(coerce_data(X))
    slopes = statistic.output_slopes(sums)
    assert slopes.shape == (1, 4 + 10, 1 + 4 + 10)
    assert np.linalg.matrix_rank(slopes[0]) == 14


def test_the_estimator_has_coins_and_learns() -> None:
    model = pac.PrivatePCA(2, budget=BUDGET, random_state=0, simulate=True).fit(X)
    assert model.certificate_.sampling == "coins"
    assert "no intervals" in "".join(model.certificate_.notes)
    assert "standard error" not in str(model.certificate_)
    fitted = PCA(2).fit(X)
    shared = np.linalg.svd(model.components_ @ fitted.components_.T)[1]
    assert shared.min() > 0.99
    assert model.explained_variance_ == pytest.approx(fitted.explained_variance_, rel=0.1)
    assert 0.5 < model.explained_variance_ratio_.sum() < 1
    assert model.inverse_transform(model.transform(X)).shape == X.shape
    pac.verify(model.certificate_, model.release_.bundle)


def test_what_is_for_pools_has_a_pool() -> None:
    model = pac.PrivatePCA(1, budget=BUDGET, random_state=0, simulate=True, n_subsets=100)
    assert model.fit(X[:300]).certificate_.sampling != "coins"


def test_many_columns_have_a_pool_and_are_refused_with_coins() -> None:
    wide = np.random.default_rng(1).normal(size=(300, 31)) * np.arange(1, 32)
    options = {"budget": "membership<=0.9", "random_state": 0, "simulate": True}
    assert pac.PrivatePCA(1, **options).fit(wide).certificate_.sampling != "coins"  # type: ignore[arg-type]
    with pytest.raises(MechanismError, match="at most 30 columns"):
        pac.PrivatePCA(1, sample=pac.Coins(), **options).fit(wide)  # type: ignore[arg-type]
    with pytest.raises(MechanismError, match="as many as components"):
        pac.PrivatePCA(5, **options).fit(X)  # type: ignore[arg-type]


@pytest.mark.claim("C-20")
def test_who_knows_all_others_reaches_the_promise_and_no_more() -> None:
    """Compares the released moments with and without the unit that costs most."""
    statistic = PrincipalComponents(n_components=2)
    rows = X[:300]
    sums = statistic.contributions(coerce_data(rows))
    success = 0.7
    plan = plan_sums(sums, success=success, keep=0.9, slopes=statistic.output_slopes(sums))
    unit = int(np.argmax(plan.charges))
    covariance = plan.lattice.covariances[0]
    inverse = np.linalg.pinv(covariance, hermitian=True)
    moved = plan.factors[unit] * sums.values[unit]
    others = plan.factors @ sums.values - moved
    source, n = SimulatedSource(1), 3000

    def reached(noise_share: float) -> float:
        right = 0
        for draw in range(n):
            kept = np.ones(len(rows), dtype=np.bool_)
            kept[unit] = draw % 2 == 0
            seen = plan.release(sums, kept, source).values[0] - others
            clean = moved if kept[unit] else 0.0
            seen = clean + noise_share * (seen - clean)
            right += ((seen - moved / 2) @ inverse @ moved > 0) == kept[unit]
        return right / n

    spread = 3 * 0.5 / np.sqrt(n)
    assert success - 0.03 - spread < reached(1.0) < success + spread
    assert reached(0.5) > success + spread


def test_the_value_reads_sums_alone() -> None:
    statistic = PrincipalComponents(n_components=1)
    wild = np.random.default_rng(2).normal(size=(1, 15))
    wild[0, 0] = 50.0
    value = statistic.finish(statistic.value(Sums(values=wild, centre=np.zeros(4))))
    assert np.isfinite(np.concatenate([np.ravel(each) for each in value.values()])).all()
