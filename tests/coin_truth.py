"""What attackers reach where every unit has a coin: by enumeration of all samples of few units.

Shares no code with the library: outputs on every sample go in, advantages come out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erf, ndtr

STEP = 0.02  # of what an attacker tells apart, in deviations of the noise
REACH = 9.0


def gauss(distance: Any) -> Any:
    """The advantage of telling two Gaussians at this distance."""
    return erf(np.asarray(distance) / math.sqrt(8.0))


def samples(n: int) -> np.ndarray:
    """All samples of n units, one a line; line number and sample agree bit by bit."""
    return (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1


def probabilities(n: int, keep: float) -> np.ndarray:
    """How likely every sample is."""
    size = samples(n).sum(axis=1)
    return keep**size * (1 - keep) ** (n - size)


def informed(outputs: np.ndarray) -> np.ndarray:
    """Distances between the outputs with and without each unit, for all samples of the others.

    ``outputs`` are in deviations of the noise, one line a sample.
    """
    n = round(math.log2(len(outputs)))
    lines = np.arange(2**n)
    moves = []
    for unit in range(n):
        without = lines[(lines >> unit) & 1 == 0]
        moves.append(np.linalg.norm(outputs[without | 1 << unit] - outputs[without], axis=1))
    return np.array(moves)


def average_advantage(outputs: np.ndarray, keep: float) -> np.ndarray:
    """Of an attacker who knows all other coins, on average over these."""
    n = round(math.log2(len(outputs)))
    others = probabilities(n - 1, keep)
    return np.asarray(gauss(informed(outputs)) @ others)


def interval_laws(
    outputs: np.ndarray, keep: float, std: np.ndarray | float = 1.0, step: float = STEP
) -> tuple[np.ndarray, np.ndarray]:
    """How likely a release of one number is in every interval, with each unit used or left out.

    Whoever decides by the interval attacks, so what follows is never too much. ``std`` may differ
    from sample to sample.
    """
    n = round(math.log2(len(outputs)))
    chance, inside = probabilities(n, keep), samples(n)
    std = np.broadcast_to(np.asarray(std, dtype=float), outputs.shape)
    low, high = outputs.min() - REACH * std.max(), outputs.max() + REACH * std.max()
    edges = np.arange(low, high + step, step * std.min())
    chances = np.diff(ndtr((edges[:, None] - outputs) / std), axis=0)
    used = chances @ (chance[:, None] * inside) / keep
    return used, chances @ (chance[:, None] * ~inside) / (1 - keep)


def blind_gain(laws: tuple[np.ndarray, np.ndarray], prior: float) -> np.ndarray:
    """Success at a prior of the best attack on such laws, minus that of a blind guess."""
    best = np.maximum(prior * laws[0], (1 - prior) * laws[1]).sum(axis=0)
    return np.asarray(best - max(prior, 1 - prior))


def hit_rate(laws: tuple[np.ndarray, np.ndarray], false_alarms: float) -> np.ndarray:
    """Share of used units that the best attack finds at a rate of false alarms."""
    hits = []
    for used, out in zip(laws[0].T, laws[1].T, strict=True):
        order = np.argsort(-used / np.maximum(out, 1e-300), kind="stable")
        rates = np.concatenate([[0.0], np.cumsum(out[order])])
        found = np.concatenate([[0.0], np.cumsum(used[order])])
        hits.append(np.interp(false_alarms, rates, found))
    return np.array(hits)


def uninformed(
    outputs: np.ndarray, keep: float, std: np.ndarray | float = 1.0, prior: float = 0.5
) -> np.ndarray:
    """Of the attacker who knows no coin, for one number: success at the prior minus a blind guess.

    At prior 1/2 that is half the advantage. ``std`` may differ from sample to sample.
    """
    return blind_gain(interval_laws(outputs, keep, std), prior)


def total_variation(
    first: Callable[[np.ndarray], np.ndarray],
    second: Callable[[np.ndarray], np.ndarray],
    *,
    reach: float = 12.0,
) -> float:
    """Of two densities on the line."""
    grid = np.linspace(-reach, reach, 400_001)
    return float(0.5 * np.abs(first(grid) - second(grid)).sum() * (grid[1] - grid[0]))


def normal(mean: float, std: float) -> Callable[[np.ndarray], np.ndarray]:
    """A Gaussian density."""
    return lambda x: np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))


def lattice_outputs(plan: Any, sums: Any, n: int) -> np.ndarray:
    """What a plan releases before noise, in deviations of its noise, for every sample."""
    none = np.zeros(n, dtype=bool)
    lattice = plan.lattice
    scale = lattice.units_per_std.ravel().astype(float)
    units = np.array([lattice.add(sums, plan.factors, np.arange(n) == i).ravel() for i in range(n)])
    assert not lattice.add(sums, plan.factors, none).any()
    rng = np.random.default_rng(0)
    for mask in rng.random((3, n)) < 0.5:  # totals are sums of units, exactly
        total = lattice.add(sums, plan.factors, mask).ravel()
        assert np.array_equal(total, units[mask].sum(axis=0))
    return (samples(n).astype(np.int64) @ units) / scale
