"""Ridge mechanisms: batches against loops, penalties, transforms, the papers' wine tables."""

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import pacprivacy as pac
from pacprivacy.design import (
    LinearTransform,
    OrthogonalRidge,
    RidgePenalty,
    fit_ica_transform,
    fit_standard_transform,
    fit_whitening_transform,
)
from pacprivacy.design.ridge import noise_ratio, ridge_penalty_per_coordinate
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.estimators import PrivateRidge
from pacprivacy.mechanism import coerce_data
from pacprivacy.sample import Balanced, Poisson
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import CoinUnits


def correlated(n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    hidden = generator.laplace(size=(n, 3))
    X = hidden @ generator.normal(size=(3, 3)) * [1.0, 10.0, 0.1] + [5.0, -3.0, 0.2]
    y = hidden @ [1.0, -0.5, 0.2] + generator.normal(size=n) + 7.0
    return X, y


def universe_coordinates(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return fit_whitening_transform(X).apply(X), y - y.mean()


# --- transforms -------------------------------------------------------------------------------


@pytest.mark.parametrize("fit", [fit_ica_transform, fit_whitening_transform])
def test_orthogonal_coordinates_are_uncorrelated_over_the_universe(
    fit: Callable[[np.ndarray], LinearTransform],
) -> None:
    X, _ = correlated()
    Z = fit(X).apply(X)
    np.testing.assert_allclose(Z.T @ Z / len(Z), np.eye(3), atol=1e-8)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-10)


def test_independent_components_are_those_of_scikit_learn() -> None:
    from sklearn.decomposition import FastICA
    from sklearn.preprocessing import StandardScaler

    X, _ = correlated()
    scaled = StandardScaler().fit_transform(X)
    other = FastICA(whiten="unit-variance", random_state=3, max_iter=1000).fit_transform(scaled)
    np.testing.assert_allclose(fit_ica_transform(X, seed=3).apply(X), other, atol=1e-8)


@pytest.mark.parametrize("fit", [fit_ica_transform, fit_whitening_transform])
def test_constant_and_repeated_columns_are_left_out(
    fit: Callable[[np.ndarray], LinearTransform],
) -> None:
    X, _ = correlated()
    wide = np.hstack([X, X[:, :1] * 2.0, np.ones((len(X), 1))])
    transform = fit(wide)
    assert transform.n_outputs == 3
    Z = transform.apply(wide)
    np.testing.assert_allclose(Z.T @ Z / len(Z), np.eye(3), atol=1e-6)
    with pytest.raises(MechanismError, match="X must have a column that varies"):
        fit(np.ones((10, 2)))


def test_standardising_keeps_constant_columns_at_zero() -> None:
    X = np.hstack([correlated()[0], np.ones((240, 1))])
    Z = fit_standard_transform(X).apply(X)
    np.testing.assert_allclose(Z.std(axis=0), [1, 1, 1, 0], atol=1e-12)


def test_transforms_refuse_other_shapes() -> None:
    with pytest.raises(MechanismError, match="matrix must have one row for each entry of mean"):
        LinearTransform(mean=np.zeros(2), matrix=np.eye(3), description="bad")
    with pytest.raises(MechanismError, match="X must have 3 columns"):
        fit_standard_transform(correlated()[0]).apply(np.zeros((4, 2)))


# --- penalties --------------------------------------------------------------------------------


@pytest.mark.claim("D-2")
def test_conscious_penalty_is_the_post_hoc_one_times_one_plus_the_noise_ratio() -> None:
    Z, target = universe_coordinates(*correlated())
    for snr in ("universe", 0.5):
        post_hoc = ridge_penalty_per_coordinate(RidgePenalty(snr=snr), Z, target)
        conscious = ridge_penalty_per_coordinate(RidgePenalty(snr=snr, mi_nats=1 / 16), Z, target)
        ratio = 1 + float(noise_ratio(1 / 16, n_dimensions=3))
        np.testing.assert_allclose(conscious, ratio * post_hoc, rtol=1e-13)


def test_penalties_by_hand() -> None:
    Z, target = universe_coordinates(*correlated())
    np.testing.assert_array_equal(ridge_penalty_per_coordinate(2.5, Z, target), [2.5] * 3)
    np.testing.assert_allclose(ridge_penalty_per_coordinate(RidgePenalty(snr=4.0), Z, target), 0.25)
    signal = np.linalg.lstsq(Z, target, rcond=None)[0]  # orthogonal: equal to one at a time
    noise_var = ((target - Z @ signal) ** 2).sum() / (len(Z) - 4)
    found = ridge_penalty_per_coordinate(RidgePenalty(), Z, target)
    np.testing.assert_allclose(found, noise_var / signal**2, rtol=1e-9)


def test_penalties_are_refused_in_words() -> None:
    Z, target = universe_coordinates(*correlated())
    with pytest.raises(MechanismError, match="penalty must be a number of at least 0"):
        ridge_penalty_per_coordinate(-1.0, Z, target)
    with pytest.raises(MechanismError, match="snr must be 'universe'"):
        RidgePenalty(snr="oracle")  # type: ignore[arg-type]
    with pytest.raises(MechanismError, match="snr must be a positive finite number"):
        RidgePenalty(snr=-1.0)
    with pytest.raises(BudgetError, match="mi_nats must be a positive finite number"):
        RidgePenalty(mi_nats=0.0)


# --- mechanisms -------------------------------------------------------------------------------

MECHANISMS = [
    OrthogonalRidge(),
    OrthogonalRidge(penalty=RidgePenalty(mi_nats=1 / 8), transform="whitening"),
    OrthogonalRidge(penalty=0.7),
    OrthogonalRidge(penalty=RidgePenalty(mi_nats=1 / 8, snr=0.3)),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
@pytest.mark.parametrize("strategy", [Balanced(n_subsets=16), Poisson(n_subsets=16)])
def test_batch_equals_the_loop_over_subsets(
    mechanism: OrthogonalRidge, strategy: Balanced | Poisson
) -> None:
    data = coerce_data(correlated())
    fixed = mechanism.prepare(data)
    pool = strategy.draw(data.n_rows, rng=1)
    batch = fixed.batch(data, pool)
    rng = np.random.default_rng(0)
    loop = [fixed.evaluate(data.take(pool.rows(k)), rng) for k in range(16)]
    np.testing.assert_allclose(batch, loop, rtol=1e-9)
    assert batch.std(axis=0).min() > 0


def test_batch_with_units_of_several_rows() -> None:
    data = coerce_data(correlated())
    units = np.repeat(np.arange(80), 3)
    pool = Balanced(n_subsets=8).draw(240, rng=2, units=units)
    fixed = OrthogonalRidge().prepare(data)
    loop = [fixed.evaluate(data.take(pool.rows(k)), np.random.default_rng(0)) for k in range(8)]
    np.testing.assert_allclose(fixed.batch(data, pool), loop, rtol=1e-9)


def test_orthogonal_ridge_is_one_ridge_for_each_coordinate() -> None:
    X, y = correlated()
    data = coerce_data((X, y))
    fixed = OrthogonalRidge(penalty=RidgePenalty(mi_nats=0.25)).prepare(data)
    assert fixed.frame is not None
    Z, target = fixed.frame.coordinates(data.parts, "test")
    chosen = np.arange(0, 240, 2)
    found = fixed.evaluate((X[chosen], y[chosen]), np.random.default_rng(0))
    for j, penalty in enumerate(fixed.frame.penalty):
        model = Ridge(alpha=penalty, fit_intercept=False).fit(Z[chosen, j : j + 1], target[chosen])
        assert found[j] == pytest.approx(model.coef_[0], rel=1e-9)


def test_given_transform_and_infinite_penalty() -> None:
    X = np.tile([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], (5, 1))
    y = X[:, 0]  # nothing to learn from the second column, exactly
    transform = LinearTransform(mean=np.zeros(2), matrix=np.eye(2), description="mine")
    fixed = OrthogonalRidge(penalty=RidgePenalty(), transform=transform).prepare(
        coerce_data((X, y))
    )
    assert fixed.frame is not None
    assert fixed.frame.penalty[1] == np.inf
    value = fixed.evaluate((X, y), np.random.default_rng(0))
    assert value[0] != 0.0
    assert value[1] == 0.0
    assert "mine" in fixed.public
    assert "given from outside" in RidgePenalty(snr=2.0).describe()


def test_what_came_from_the_universe_is_in_the_certificate() -> None:
    data = correlated()
    mechanism = OrthogonalRidge(penalty=RidgePenalty(mi_nats=0.5))
    release = pac.privatize(
        mechanism, data, pac.Information(0.5), rule="waterfill", n_subsets=16, rng=0, simulate=True
    )
    public = " ".join(release.certificate.public)
    assert "independent components" in public
    assert "estimated on all records" in public
    assert "for the noise to come" in public
    assert set(release.value) == {"coef", "intercept"}
    # The intercept is measured: the mean of the target does not follow from the release.
    X, y = data
    shown = release.value["intercept"] + X.mean(axis=0) @ release.value["coef"]
    assert abs(shown - y.mean()) > 1e-3
    assert not any("target" in fact for fact in release.certificate.published)


def test_the_mean_of_the_target_leaves_only_where_it_was_asked_for() -> None:
    X, y = correlated()
    model = PrivateRidge(
        1.0, budget=pac.Information(0.5), universe_facts=True, n_subsets=16, random_state=0
    ).fit(X, y)
    assert model.intercept_ + X.mean(axis=0) @ model.coef_ == pytest.approx(y.mean())
    assert any("mean of the target" in fact for fact in model.certificate_.published)


def test_conscious_penalties_lower_the_released_error() -> None:
    X, y = correlated(seed=4)
    pool = Balanced(n_subsets=256).draw(240, rng=0)
    errors = {}
    for name, aim in (("post-hoc", None), ("conscious", 1 / 64)):
        ridge = OrthogonalRidge(penalty=RidgePenalty(mi_nats=aim), universe_facts=True)
        outputs = run_mechanism(ridge, (X, y), pool)
        noise_var = float(noise_ratio(1 / 64, n_dimensions=3)) * outputs.values.var(axis=0)
        Z, target = fit_ica_transform(X).apply(X), y - y.mean()
        bias = outputs.values.mean(axis=0) - Z.T @ target / (Z**2).sum(axis=0)
        errors[name] = (bias**2 + outputs.values.var(axis=0) + noise_var).sum()
    assert errors["conscious"] < 0.5 * errors["post-hoc"]


def test_mechanisms_are_refused_in_words() -> None:
    X, y = correlated()
    with pytest.raises(MechanismError, match="transform must be 'ica'"):
        OrthogonalRidge(transform="pca")  # type: ignore[arg-type]
    with pytest.raises(MechanismError, match="frame must be fixed"):
        OrthogonalRidge().evaluate((X, y), np.random.default_rng(0))
    with pytest.raises(MechanismError, match="target of numbers"):
        OrthogonalRidge().prepare(coerce_data((X, np.where(y > 7, "high", "low"))))
    with pytest.raises(MechanismError, match="coordinates that are not zero on every record"):
        OrthogonalRidge(
            transform=LinearTransform(mean=np.zeros(3), matrix=np.zeros((3, 1)), description="0")
        ).prepare(coerce_data((X, y)))
    zeros = LinearTransform(mean=np.zeros(1), matrix=np.eye(1), description="as it is")
    sparse = np.zeros((20, 1))
    sparse[0] = 1.0
    fixed = OrthogonalRidge(penalty=0.0, transform=zeros).prepare(coerce_data((sparse, y[:20])))
    with pytest.raises(MechanismError, match="penalty must be above 0 where a subset"):
        fixed.evaluate((sparse[1:], y[1:20]), np.random.default_rng(0))


# --- the estimator ----------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", ["conscious", "post-hoc", 2.0])
def test_private_ridge_fits_and_predicts(penalty: str | float) -> None:
    X, y = correlated()
    model = PrivateRidge(
        penalty,  # type: ignore[arg-type]
        budget=pac.Information(0.5),
        rule="waterfill",
        n_subsets=16,
        random_state=0,
        simulate=True,
    ).fit(X, y)
    assert model.coef_.shape == (3,)
    assert model.predict(X).shape == (240,)
    assert model.score(X, y) > -1.0
    assert model.certificate_.mi_upper_nats <= 0.5
    said = " ".join(model.certificate_.public)
    assert ("for the noise to come" in said) == (penalty == "conscious")


def test_private_ridge_chooses_its_penalty_by_the_budget() -> None:
    assert PrivateRidge()._mechanism(None) == OrthogonalRidge(penalty=RidgePenalty())
    both = PrivateRidge(budget=pac.Information(0.25) & pac.Membership(0.6))
    assert both._mechanism(None) == OrthogonalRidge(penalty=RidgePenalty(mi_nats=0.25))
    with pytest.raises(MechanismError, match="alpha must be"):
        PrivateRidge("best").fit(*correlated())  # type: ignore[arg-type]


@pytest.mark.claim("C-13")
def test_with_coins_a_ridge_is_fitted_at_once_and_is_the_same_on_all_records() -> None:
    X, y = correlated(600)
    data = coerce_data((X, y))
    ridge = OrthogonalRidge(penalty=40.0).prepare(data)
    plain = ridge.finish(ridge.evaluate((X, y), np.random.default_rng(0)))
    coins = CoinUnits(n_units=600, unit="record", keep=0.9, clip="auto", seed=0)
    value = ridge.on_samples(data, None, coins)
    np.testing.assert_allclose(value.on_all[:-1], plain["coef"], rtol=1e-8)
    np.testing.assert_allclose(value.on_all[-1], plain["intercept"], rtol=1e-8)
    options = {"budget": "membership<=0.8", "sample": pac.Coins(), "simulate": True}
    model = PrivateRidge(40.0, random_state=0, **options).fit(X, y)
    error = model.release_.std_error["coef"]
    assert (np.abs(model.coef_ - plain["coef"]) < 5 * error).all()
    assert model.certificate_.sampling == "average"
    facts = PrivateRidge(40.0, universe_facts=True, **options).fit(X, y)
    assert "mean of the target over all records" in facts.certificate_.published


def test_a_coordinate_without_signal_is_left_out_with_coins() -> None:
    X, y = correlated(600)
    X = np.column_stack([X, np.zeros(600)])
    model = PrivateRidge("post-hoc", sample=pac.Coins(), simulate=True)
    assert model.fit(X, y).coef_[-1] == 0
