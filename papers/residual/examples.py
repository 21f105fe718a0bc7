"""Pools of outputs of known shape, for comparing estimators and noise rules.

Each is a few hundred outputs, one row per candidate, made without any data.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.special import ndtri

from pacprivacy._checks import Matrix
from pacprivacy._random import public_generator
from pacprivacy.errors import MechanismError

EXAMPLES: Final = (
    "gaussian",
    "bimodal",
    "heavy tail",
    "votes",
    "skewed votes",
    "rank deficient",
    "k-means",
    "sign beside normal",
    "two signs",
)


def example_outputs(name: str, *, n_subsets: int = 256, seed: int = 0) -> Matrix:
    """Return the outputs of one shape, one row per candidate.

    Parameters
    ----------
    name : str
        ``gaussian``: normal, five coordinates of unequal spread. ``bimodal``: two far clusters.
        ``heavy tail``: a t law with two degrees of freedom. ``votes``: one-hot, four labels
        equally often. ``skewed votes``: one-hot, four labels, the first in 70 %. ``rank
        deficient``: two normal directions in six coordinates. ``k-means``: three centres in the
        plane, whose labels are swapped in a fifth of the candidates. ``sign beside normal``: a
        coordinate of -1 or 1 beside normal quantiles. ``two signs``: two such coordinates.
    n_subsets : int
        Number of candidates.
    seed : int
        Of the shapes that are drawn.
    """
    rng = public_generator(seed, f"example {name}")
    signs = np.where(np.arange(n_subsets) % 2, 1.0, -1.0)
    if name == "gaussian":
        drawn: Matrix = rng.standard_normal((n_subsets, 5)) * [1.0, 0.7, 0.5, 0.3, 0.1]
        return drawn
    if name == "bimodal":
        clusters: Matrix = signs[:, None] * np.array([1.0, 0.5])
        clusters += 0.1 * rng.standard_normal((n_subsets, 2))
        return clusters
    if name == "heavy tail":
        return np.asarray(rng.standard_t(2.0, size=(n_subsets, 3)), dtype=np.float64)
    if name == "votes":
        return np.eye(4)[np.arange(n_subsets) % 4]
    if name == "skewed votes":
        shares = np.array([0.7, 0.15, 0.1, 0.05])
        edges = np.searchsorted(np.cumsum(shares), (np.arange(n_subsets) + 0.5) / n_subsets)
        return np.eye(4)[edges]
    if name == "rank deficient":
        return rng.standard_normal((n_subsets, 2)) @ rng.standard_normal((2, 6))
    if name == "k-means":
        return _flipped_centres(n_subsets, rng)
    if name == "sign beside normal":
        quantiles = ndtri((np.arange(n_subsets // 2) + 0.5) / (n_subsets // 2))
        return np.stack([signs, np.repeat(quantiles / quantiles.std(), 2)], axis=1)
    if name == "two signs":
        return np.stack([signs, np.where(np.arange(n_subsets) // 2 % 2, 1.0, -1.0)], axis=1)
    raise MechanismError(
        f"name must be one of {', '.join(EXAMPLES)}; got {name!r}. Take one from EXAMPLES."
    )


def _flipped_centres(n_subsets: int, rng: np.random.Generator) -> Matrix:
    """Return three centres in the plane; two of them swap names in a fifth of the candidates."""
    centres = np.array([[0.0, 0.0], [2.0, 0.5], [0.5, 2.0]])
    noisy = centres + 0.05 * rng.standard_normal((n_subsets, 3, 2))
    flipped = rng.random(n_subsets) < 0.2
    noisy[flipped] = noisy[flipped][:, [1, 0, 2]]
    return noisy.reshape(n_subsets, 6)
