"""PCA: orientation, the measured mean, all subsets at once, post-processing, refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.decomposition

from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import PCA, coerce_data, flatten
from pacprivacy.mechanism.pca import align_pca_basis, orthonormalise_pca_basis
from pacprivacy.sample import Balanced
from pacprivacy.simulation import run_mechanism

RNG = np.random.default_rng(0)
MIXING = RNG.normal(size=(5, 5)) * np.array([[3.0], [2.0], [1.0], [0.4], [0.2]])
X = RNG.normal(size=(200, 5)) @ MIXING + np.array([5.0, -3.0, 0.0, 1.0, 9.0])
POOL = Balanced(n_subsets=16).draw(200, rng=0)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def prepare(data: Any = X, **options: Any) -> PCA:
    return PCA(**options).prepare(coerce_data(data))


def random_rotation(d: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


# --- what is computed ------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 4, 5])
def test_spans_what_scikit_learn_spans(d: int) -> None:
    subset = X[::2]
    value = prepare(n_components=d).evaluate((subset,), rng())
    model = sklearn.decomposition.PCA(d).fit(subset)
    projector = value["components"].T @ value["components"]
    np.testing.assert_allclose(projector, model.components_.T @ model.components_, atol=1e-10)
    np.testing.assert_allclose(value["components"] @ value["components"].T, np.eye(d), atol=1e-12)
    np.testing.assert_allclose(value["mean"], model.mean_, rtol=1e-12)


def test_more_columns_than_rows() -> None:
    wide = np.random.default_rng(3).normal(size=(40, 90)) * np.geomspace(5, 0.1, 90)
    mechanism = prepare(wide, n_components=3)
    value = mechanism.evaluate((wide[::2],), rng())
    expected = sklearn.decomposition.PCA(3).fit(wide[::2]).components_
    np.testing.assert_allclose(
        value["components"].T @ value["components"], expected.T @ expected, atol=1e-10
    )


def test_restores_exactly_with_all_components() -> None:
    mechanism = prepare(n_components=5)
    value = mechanism.finish(mechanism.evaluate((X[::2],), rng()))
    np.testing.assert_allclose(PCA.restore(value, X), X, atol=1e-10)
    assert PCA.restoration_error(value, X) < 1e-12


def test_restoration_error_is_relative() -> None:
    value = {"components": np.array([[1.0, 0.0]]), "mean": np.zeros(2)}
    assert PCA.restoration_error(value, np.array([[3.0, 4.0]])) == pytest.approx(4 / 5)
    shifted = {"components": np.array([[1.0, 0.0]]), "mean": np.array([0.0, 4.0])}
    assert PCA.restoration_error(shifted, np.array([[3.0, 4.0]])) == pytest.approx(0.0)


# --- orientation -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_signs_and_rotations_of_the_fit_are_gone(seed: int) -> None:
    basis = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:3]
    fit = np.linalg.svd(X[::2] - X[::2].mean(axis=0), full_matrices=False)[2][:3]
    aligned = align_pca_basis(fit, basis)
    np.testing.assert_allclose(
        align_pca_basis(random_rotation(3, seed) @ fit, basis), aligned, atol=1e-12
    )
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(3, 1))
    np.testing.assert_allclose(align_pca_basis(signs * fit[::-1], basis), aligned, atol=1e-12)


def test_no_rotation_comes_nearer_to_the_reference() -> None:
    basis = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:3]
    fit = np.linalg.svd(X[::2] - X[::2].mean(axis=0), full_matrices=False)[2][:3]
    aligned = align_pca_basis(fit, basis)
    least = np.linalg.norm(aligned - basis)
    for seed in range(50):
        assert np.linalg.norm(random_rotation(3, seed) @ aligned - basis) >= least


def test_aligned_components_move_less_than_flipped_ones() -> None:
    def plain(data: Any) -> Any:
        fit = sklearn.decomposition.PCA(4, svd_solver="full").fit(data)
        return fit.components_ * np.sign(data[0, 0] - 5.0)

    aligned = run_mechanism(PCA(n_components=4), X, POOL, rng=0).values[:, :20].std(axis=0).sum()
    assert aligned < run_mechanism(plain, X, POOL, rng=0).values.std(axis=0).sum() / 5


def test_rotating_the_data_rotates_the_value() -> None:
    turn = random_rotation(5, 9)
    plain = prepare(n_components=2)
    turned = prepare(X @ turn, n_components=2)
    assert plain.basis is not None
    object.__setattr__(turned, "basis", plain.basis @ turn)
    value = plain.evaluate((X[::2],), rng())
    other = turned.evaluate((X[::2] @ turn,), rng())
    np.testing.assert_allclose(other["components"], value["components"] @ turn, atol=1e-9)
    np.testing.assert_allclose(other["mean"], value["mean"] @ turn, atol=1e-9)


# --- everything that is released is measured ---------------------------------------------------


def test_the_mean_is_in_the_measured_vector() -> None:
    vector, structure = flatten(prepare(n_components=2).evaluate((X[::2],), rng()))
    assert structure.describe() == "dict('components': array[2, 5], 'mean': array[5])"
    np.testing.assert_allclose(vector[10:], X[::2].mean(axis=0), rtol=1e-12)
    assert run_mechanism(PCA(n_components=2), X, POOL, rng=0).values[:, 10:].std(axis=0).min() > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakyPCA(PCA):
    """The published mistake: the mean of the subset is used, and left out of the vector."""

    def prepare(self, data: Any) -> PCA:
        return self

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Any:
        return {"components": PCA.evaluate(self, parts, rng)["components"]}


def test_a_mean_left_out_of_the_vector_is_caught() -> None:
    sound = prepare(n_components=2)
    leaky = LeakyPCA(n_components=2, basis=sound.basis, mean=sound.mean)
    vector, structure = flatten(leaky.evaluate((X[::2],), rng()))
    whole, right = flatten(sound.evaluate((X[::2],), rng()))
    assert vector.size == whole.size - 5
    assert structure.difference(right) is not None
    # What is not in the vector cannot come back: finish has no mean to attach the span to.
    with pytest.raises(KeyError):
        leaky.finish(structure.restore(vector))


def test_a_public_mean_is_that_of_the_universe_for_every_subset() -> None:
    mechanism = prepare(n_components=2, center="universe")
    assert any("mean of the whole universe" in text for text in mechanism.public)
    for k in range(4):
        value = mechanism.evaluate((X[POOL.rows(k)],), rng())
        assert list(value) == ["components"]
        assert mechanism.finish(value)["mean"].tobytes() == X.mean(axis=0).tobytes()


def test_components_about_a_public_mean_are_those_of_moments_about_it() -> None:
    value = prepare(n_components=2, center="universe").evaluate((X[:40],), rng())
    expected = np.linalg.svd(X[:40] - X.mean(axis=0), full_matrices=False)[2][:2]
    np.testing.assert_allclose(
        value["components"].T @ value["components"], expected.T @ expected, atol=1e-10
    )


def test_the_basis_is_named_and_cannot_be_written_to() -> None:
    mechanism = prepare(n_components=2)
    assert any("reference basis" in text for text in mechanism.public)
    assert not any("mean" in text for text in mechanism.public)
    assert mechanism.basis is not None
    assert mechanism.mean is not None
    assert not mechanism.basis.flags.writeable
    assert not mechanism.mean.flags.writeable
    assert repr(mechanism) == "PCA(n_components=2, center='subset', orthonormal=True)"


# --- after the release -----------------------------------------------------------------------


def test_released_components_are_made_orthonormal() -> None:
    mechanism = prepare(n_components=3)
    value = mechanism.evaluate((X[::2],), rng())
    noisy = {
        "components": value["components"] + 0.3 * np.random.default_rng(1).normal(size=(3, 5)),
        "mean": value["mean"] + 0.1,
    }
    released = mechanism.finish(noisy)
    np.testing.assert_allclose(
        released["components"] @ released["components"].T, np.eye(3), atol=1e-12
    )
    np.testing.assert_array_equal(released["mean"], noisy["mean"])
    nearest = np.linalg.norm(released["components"] - noisy["components"])
    for seed in range(50):
        other = np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 3)))[0].T
        assert np.linalg.norm(other - noisy["components"]) >= nearest
    assert PCA.restoration_error(released, X) < PCA.restoration_error(noisy, X)
    raw = prepare(n_components=3, orthonormal=False).finish(noisy)
    np.testing.assert_array_equal(raw["components"], noisy["components"])


def test_orthonormal_rows_stay() -> None:
    rows = random_rotation(5, 2)[:3]
    np.testing.assert_allclose(orthonormalise_pca_basis(rows), rows, atol=1e-12)


def test_frames_are_read() -> None:
    frame = pd.DataFrame(X)
    frame.columns = [f"c{i}" for i in range(5)]
    mechanism = prepare(frame, n_components=2)
    value = mechanism.finish(mechanism.evaluate((frame.iloc[::2],), rng()))
    assert PCA.restoration_error(value, frame) == PCA.restoration_error(value, X)


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components must be a whole number of at least 1; got 0"),
        ({"n_components": 0.95}, "n_components must be a whole number"),
        ({"n_components": 2, "center": "origin"}, "center must be 'subset' or 'universe'"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MechanismError, match=message):
        PCA(**options)


@pytest.mark.parametrize(
    ("data", "d", "rank"),
    [
        (X, 6, 5),
        (X[:4], 5, 4),
        (X[:4], 4, 3),  # four rows about their mean
        (np.column_stack([X, X[:, 0] + X[:, 1]]), 6, 5),
        (np.column_stack([X[:, :2], np.ones(200)]), 3, 2),
        (np.full((20, 3), 0.1), 1, 0),
    ],
)
def test_more_components_than_rank(data: Any, d: int, rank: int) -> None:
    with pytest.raises(MechanismError, match=f"rank of every subset; got {d} for rank {rank}"):
        prepare(data, n_components=d)


def test_more_components_than_the_rank_of_a_subset() -> None:
    data = X.copy()
    data[2:, 4] = data[2:, 0]  # the fifth direction is in two rows only
    with pytest.raises(MechanismError, match="got 5 for rank 4"):
        prepare(data, n_components=5).evaluate((data[2:],), rng())
    with pytest.raises(MechanismError, match="got 5 for rank"):
        run_mechanism(PCA(n_components=5), data, POOL, rng=0)


def test_a_cut_between_equal_eigenvalues() -> None:
    square = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    with pytest.raises(MechanismError, match="must not part equal eigenvalues"):
        prepare(square, n_components=1)
    assert prepare(square, n_components=2).basis is not None


def test_string_features() -> None:
    with pytest.raises(MechanismError, match="must be given numbers"):
        prepare(np.array([["a"], ["b"], ["c"], ["d"]]), n_components=1)


def test_unprepared() -> None:
    with pytest.raises(MechanismError, match=r"Call prepare\(data\)"):
        PCA(n_components=1).evaluate((X,), rng())


def test_the_signs_of_the_reference_do_not_depend_on_memory_order() -> None:
    X = np.random.default_rng(5).normal(size=(60, 4)) * [3.0, 2.0, 1.0, 0.5]
    for order in ("C", "F"):
        prepared = PCA(n_components=3).prepare(coerce_data(np.asarray(X, order=order)))
        assert prepared.basis is not None
        largest = np.abs(prepared.basis).argmax(axis=1)
        assert (prepared.basis[np.arange(3), largest] > 0).all()
