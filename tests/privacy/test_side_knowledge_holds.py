"""What a certificate says about side knowledge is what an attacker with side knowledge gains.

The attacker here is written anew: masks, distances and Bayes, without the library's adversary.
"""

import numpy as np
import numpy.typing as npt
import pytest

import pacprivacy as pac
from pacprivacy.release import Release

Matrix = npt.NDArray[np.float64]
N_SETS = 150
N_DRAWS = 1500


@pytest.fixture(scope="module")
def release() -> Release:
    data = np.random.default_rng(4).lognormal(size=(40, 2))
    budget = pac.Membership(0.6)
    return pac.privatize(lambda x: x.mean(axis=0), data, budget, n_subsets=64, rng=0)


def gains_of_one_set(
    points: Matrix, inside: npt.NDArray[np.bool_], n_told: int, rng: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """Success on every other unit before and after, for one random set of told units."""
    told = rng.permutation(inside.shape[1])[:n_told]
    secret = rng.integers(len(inside))
    left = np.flatnonzero((inside[:, told] == inside[secret, told]).all(axis=1))
    chosen = rng.choice(left, size=N_DRAWS)
    seen = points[chosen] + rng.normal(size=(N_DRAWS, points.shape[1]))
    distances = np.square(seen[:, None, :] - points[left]).sum(axis=2)
    belief = np.exp(-0.5 * (distances - distances.min(axis=1, keepdims=True)))
    belief /= belief.sum(axis=1, keepdims=True)
    others = np.delete(inside[left].astype(float), told, axis=1)
    share, shares = others.mean(axis=0), belief @ others
    return np.maximum(share, 1 - share), np.maximum(shares, 1 - shares).mean(axis=0)


@pytest.mark.claim("A-2")
@pytest.mark.parametrize("n_told", [1, 2, 4])
def test_the_certificate_does_not_understate_side_knowledge(release: Release, n_told: int) -> None:
    assert release.bundle is not None
    points = release.bundle.whitened
    inside = release.bundle.pool.masks()
    rng = np.random.default_rng(n_told)
    gains, differences = [], []
    for _ in range(N_SETS):
        before, after = gains_of_one_set(points, inside, n_told, rng)
        gains.append(float((after - before).max()))
        differences.append(float(after.max() - before.max()))
    said = {item.n_told: item for item in release.certificate.side_knowledge}[n_told]
    assert said.mean_increment is not None
    assert said.largest_increment is not None
    truth = float(np.mean(gains))
    assert truth > 0.08
    # eight sets stand for all: three standard errors of their mean
    room = 3 * float(np.std(gains)) / np.sqrt(said.n_sets)
    assert truth - room <= said.mean_increment <= truth + room
    assert said.mean_increment <= said.largest_increment <= max(gains) + room
    assert float(np.mean(differences)) < truth / 2, "the example shows why units must not be mixed"
