"""Releases that are proved on average over the coins, end to end."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import pacprivacy as pac
from pacprivacy.adversary import DrawnInfluence
from pacprivacy.errors import CertificateError, MechanismError
from pacprivacy.mechanism import coerce_data
from pacprivacy.release import (
    AverageBundle,
    AverageCertificate,
    recompute_average,
    verify,
    write_average_certificate,
)
from pacprivacy.sample import Coins
from pacprivacy.statistics.influence import OwnValue

BUDGET = "membership<=0.588"
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "income": np.exp(RNG.normal(size=3000)),
        "age": RNG.integers(18, 80, 3000).astype(float),
        "region": RNG.choice(list("abc"), 3000),
    }
)
TABLE["cost"] = 2 * TABLE["age"] + 10 * RNG.normal(size=3000)


def release(statistic: Any, data: Any = TABLE, **options: Any) -> Any:
    return pac.privatize(statistic, data, BUDGET, sample=Coins(), simulate=True, rng=1, **options)


def check(made: Any, tmp_path: Path) -> AverageCertificate:
    """A certificate on average that is read, stored and verified."""
    certificate = made.certificate
    assert isinstance(certificate, AverageCertificate)
    assert pac.Certificate.from_dict(certificate.to_public_dict()) == certificate
    text = " ".join(str(certificate).split())
    assert "on average over the coins" in text
    assert "more than 3 deviations of the noise at most" in text
    assert certificate.moves["3"] <= 0.176 / 4
    made.save(tmp_path)
    for bundle in (made.bundle, tmp_path / "curator.npz"):
        verified = verify(certificate, bundle)
        assert "membership_bound" in verified.recomputed
        assert "moves" in verified.recomputed
    return certificate


@pytest.mark.claim("C-10")
@pytest.mark.claim("C-11")
def test_histograms_of_numpy_with_declared_edges() -> None:
    x = np.random.default_rng(0).normal(size=2000)
    for options in ({"bins": [-9, 0, 9]}, {"bins": 2, "range": (-9, 9)}):
        made = release(functools.partial(np.histogram, **options), x)
        assert made.certificate.sampling == "coins"
        np.testing.assert_allclose(made.value, np.histogram(x, **options)[0], atol=90)
    with pytest.raises(MechanismError, match="what one unit changes"):
        release(np.histogram, x)  # its edges would be the extremes


def test_medians_and_quantiles_of_numpy(tmp_path: Path) -> None:
    x = TABLE[["income", "age"]].to_numpy()
    made = release(np.median, x[:, 0])
    certificate = check(made, tmp_path)
    assert certificate.n_draws == 0
    assert certificate.confidence == 1
    assert "order statistics" in " ".join(str(certificate).split())
    low, high = made.interval()
    assert low < np.median(x[:, 0]) < high
    several = release(functools.partial(np.quantile, q=(0.1, 0.9), axis=0), x)
    np.testing.assert_allclose(several.value, np.quantile(x, (0.1, 0.9), axis=0), rtol=0.1)
    one = release(functools.partial(np.percentile, q=75, axis=0), x)
    assert one.value.shape == (2,)


def test_quantiles_by_group_with_a_condition_and_gaps(tmp_path: Path) -> None:
    gaps = TABLE.assign(income=TABLE["income"].where(RNG.random(3000) < 0.9))
    made = release(pac.stats.quantiles("income", q=(0.25, 0.5), by="region", where="age>=30"), gaps)
    check(made, tmp_path)
    truth = gaps[gaps["age"] >= 30].groupby("region")["income"].quantile([0.25, 0.5])
    frame = made.to_frame().set_index("name")
    for (region, q), number in truth.items():
        row = frame.loc[f"{region}.{q:g}"]
        assert abs(row["value"] - number) < 5 * row["standard_error"]


@pytest.mark.claim("C-13")
def test_least_squares_by_draws(tmp_path: Path) -> None:
    made = release(pac.stats.ols("cost", columns=("age", "region")))
    certificate = check(made, tmp_path)
    assert 1 - certificate.confidence < 1.1e-9
    row = made.to_frame().set_index("name").loc["age"]
    assert abs(row["value"] - 2) < 5 * row["standard_error"] < 0.2


@pytest.mark.claim("C-13")
def test_least_squares_and_ridge_with_several_rows_of_a_unit(tmp_path: Path) -> None:
    people = RNG.integers(0, 1200, 3000)
    for statistic in (
        pac.stats.ols("cost", columns=("age", "region"), where="age >= 20"),
        pac.stats.ridge("cost", columns=("age", "income"), penalty=50.0),
    ):
        made = release(statistic, units=people)
        check(made, tmp_path)
        row = made.to_frame().set_index("name").loc["age"]
        assert abs(row["value"] - 2) < 5 * row["standard_error"] < 0.3


@pytest.mark.claim("C-15")
def test_quantiles_with_several_rows_of_a_unit(tmp_path: Path) -> None:
    people = RNG.integers(0, 1200, 3000)
    gaps = TABLE.assign(income=TABLE["income"].where(RNG.random(3000) < 0.9))
    statistic = pac.stats.quantiles("income", q=(0.25, 0.5), by="region", where="age >= 25")
    made = release(statistic, gaps, units=people)
    certificate = check(made, tmp_path)
    assert certificate.n_units == len(np.unique(people))
    assert certificate.n_draws > 0
    truth = gaps[gaps["age"] >= 25].groupby("region")["income"].quantile([0.25, 0.5])
    frame = made.to_frame().set_index("name")
    for (region, q), number in truth.items():
        row = frame.loc[f"{region}.{q:g}"]
        assert abs(row["value"] - number) < 5 * row["standard_error"] < 1


def test_a_ridge_is_that_of_scikit_learn_with_coins_and_without() -> None:
    X = TABLE[["age", "income"]].to_numpy()
    slopes = Ridge(alpha=300.0).fit((X - X.mean(0)) / X.std(0), TABLE["cost"]).coef_ / X.std(0)
    ridge = pac.stats.ridge("cost", columns=("age", "income"), penalty=300.0)
    coins = release(ridge).to_frame().set_index("name")
    pool = pac.privatize(ridge, TABLE, "mi<=4", sample=pac.Balanced(), n_subsets=64, simulate=True)
    for name, slope in zip(("age", "income"), slopes, strict=True):
        for row in (coins.loc[name], pool.to_frame().set_index("name").loc[name]):
            assert abs(row["value"] - slope) < 4 * row["standard_error"]
    with pytest.raises(MechanismError, match="penalty must be a number"):
        pac.stats.ridge("cost", penalty=-1.0)


def test_averages_join_no_session_and_need_coins() -> None:
    with pac.Session(TABLE, budget="membership<=0.7", sample=Coins(), simulate=True) as session:
        for statistic in (pac.stats.median("age"), pac.stats.ols("cost", columns="age")):
            with pytest.raises(MechanismError, match="proved on average"):
                session.release(statistic, share="1 of 4")
    with pytest.raises(MechanismError, match="keep below 1"):
        pac.privatize(pac.stats.median("age"), TABLE, BUDGET, sample=Coins(keep=1))


@pytest.mark.claim("C-11")
@pytest.mark.parametrize(
    "statistic", [pac.stats.median("income"), pac.stats.ols("cost", columns="age")]
)
def test_a_bundle_with_less_noise_proves_nothing(statistic: Any) -> None:
    made = release(statistic)
    bundle: AverageBundle = made.bundle
    forged = replace(bundle, units_per_std=bundle.units_per_std // 2)
    with pytest.raises(CertificateError, match="must prove the budget"):
        verify(made.certificate, forged)
    with pytest.raises(CertificateError):
        verify(replace(made.certificate, moves={**made.certificate.moves, "3": 0.0}), bundle)


@pytest.mark.claim("C-11")
@pytest.mark.parametrize(
    "change",
    [
        {"large_moves": 1.0},
        {"large_moves": float("nan")},
        {"advantage": -1.0},
        {"n_drawn": 500},
        {"distances": np.array([[0.0], [np.nan], [0.0]]), "n_drawn": 1},
    ],
)
def test_a_damaged_proof_by_draws_is_not_read(tmp_path: Path, change: dict[str, Any]) -> None:
    bundle: AverageBundle = release(pac.stats.ols("cost", columns="age")).bundle
    proof = DrawnInfluence(
        distances=np.zeros((3, 1)),
        advantage=0.1,
        large_moves=0.01,
        n_drawn=1,
        farthest=0.0,
        off_event=0.0,
        noise_std=bundle.grid * bundle.units_per_std,
    )
    replace(bundle, proof=proof).save(tmp_path / "fine.npz")
    AverageBundle.load(tmp_path / "fine.npz")
    replace(bundle, proof=replace(proof, **change)).save(tmp_path / "damaged.npz")
    with pytest.raises(CertificateError, match="readable curator bundle"):
        AverageBundle.load(tmp_path / "damaged.npz")


@pytest.mark.claim("C-11")
def test_a_bundle_without_noise_proves_nothing() -> None:
    made = release(pac.stats.ols("cost", columns="age"))
    bundle: AverageBundle = made.bundle
    none = bundle.grid[:0]
    proof = DrawnInfluence(
        distances=np.zeros((0, 0)),
        advantage=0.1,
        large_moves=0.01,
        n_drawn=0,
        farthest=0.0,
        off_event=0.0,
        noise_std=none,
    )
    forged = replace(bundle, proof=proof, grid=none, units_per_std=bundle.units_per_std[:0])
    with pytest.raises(CertificateError, match="there is no noise"):
        verify(made.certificate, forged)


@pytest.mark.claim("C-11")
def test_a_mechanism_that_fails_or_warns_does_not_tell_on_whom() -> None:
    class Failing:
        def evaluate(self, parts: Any, rng: Any) -> Any:
            warnings.warn("rows of the sample", RuntimeWarning, stacklevel=1)
            raise RuntimeError("rows of the sample")

    value = OwnValue(
        mechanism=cast(Any, Failing()),
        data=coerce_data(np.arange(8.0)),
        codes=np.arange(8),
        n_units=8,
        on_all=np.array([3.5]),
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert value.value(np.ones(8, dtype=bool)).tolist() == [3.5]
    assert not told


@pytest.mark.claim("R-1")
def test_the_window_of_a_consistent_forger_does_not_survive_the_records() -> None:
    values = np.random.default_rng(3).normal(size=600)
    bundle, forged = release(np.median, values).bundle, release(np.median, values / 2).bundle
    verify(write_average_certificate(forged), forged)  # nothing in the files shows it
    recompute_average(bundle, np.median, values)
    with pytest.raises(CertificateError, match="other records are around"):
        recompute_average(forged, np.median, values)
    with pytest.raises(CertificateError, match="its noise does not follow"):
        recompute_average(replace(bundle, grid=bundle.grid / 2), np.median, values)
    drawn = pac.stats.ols("cost", columns="age")
    with pytest.raises(CertificateError, match="in no file"):
        recompute_average(release(drawn).bundle, drawn, TABLE)


def test_verify_names_what_a_file_of_a_quantile_cannot_show() -> None:
    values = np.random.default_rng(3).normal(size=600)
    release = pac.privatize(np.median, values, "membership<=0.7", sample=pac.Coins())
    seen = pac.verify(release.certificate, release.bundle)
    assert "records around each quantile" in seen.not_checkable["n_draws"]
