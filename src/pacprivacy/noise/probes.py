"""Probes: simulated draws on which a search tries how much noise is enough; they prove nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary import (
    BeliefTilts,
    Heat,
    View,
    draw_view_blocks,
    finest_plane_step,
    heat_potential,
    heat_slope,
    is_banded,
    is_line,
    is_plane,
    is_short_line,
    line_advantage,
    line_posteriors,
    plane_advantage,
    view_log_ratios,
    view_posterior,
)
from pacprivacy.noise.lattice import Integers

PROBE_ELEMENTS = 1 << 23
LINE_STEP = 0.05  # of the noise, for outputs of rank 1
N_WORST = 128  # units that a search looks at
COARSE = 1024  # draws of a search by membership; the place that it finds is measured on more
MEASURED = 1 << 15
RANKING = (48, 256)  # draws that rank all units
RANKING_COST = 3 * 10**10  # multiplications
TINY_SCALE = 1e-15  # below, powers of it leave the range of single precision


class Probe:
    """Simulated draws of a view, kept so that any scale of the noise can be tried on them.

    For outputs of rank 1 a grid takes the place of the draws.
    """

    def __init__(self, view: View, rng: np.random.Generator, *, n_draws: int | None = None) -> None:
        m, points = view.n_subsets, view.points
        n = n_draws or int(np.clip(PROBE_ELEMENTS // m, 512, 8192))
        self.view, self.n_draws = view, n
        order = rng.permutation(n)
        cumulative = np.cumsum(np.exp(view.log_prior))
        strata = (order + rng.random(n)) / n * cumulative[-1]
        chosen = np.minimum(np.searchsorted(cumulative, strata, side="right"), m - 1)
        noise = _stratified_normals(rng, n, points.shape[1])
        signal, cross = view_log_ratios(view, chosen), noise @ points.T
        cross -= np.einsum("iq,iq->i", noise, points[chosen])[:, None]  # near ones stay apart
        # single precision is enough for a proposal unless the exponents are huge
        dtype = np.float32 if float(np.abs(signal).max(initial=0.0)) < 1e4 else np.float64
        self._signal = signal.astype(dtype)
        self._cross = cross.astype(dtype)
        self._log_prior = view.log_prior.astype(dtype)[None, :]
        if view.groups is not None:
            apart = view.groups[chosen][:, None] != view.groups[None, :]
            self._log_prior = np.where(apart, -np.inf, self._log_prior).astype(dtype)

    def posterior(self, scale: float, n_draws: int | None = None) -> npt.NDArray[Any]:
        """Return the posteriors on the first draws when the noise is ``scale`` times larger."""
        p, total = self._likelihoods(scale, n_draws)[1:]
        p /= total[:, None]
        return p

    def information(self, scale: float) -> tuple[float, float]:
        """Return the mean and the sample variance of the information gain."""
        log_p, p, total = self._likelihoods(scale)
        np.maximum(log_p, -80.0, out=log_p)  # where p is 0 the product must be 0, not NaN
        weighted = np.einsum("ij,ij->i", p, log_p, dtype=np.float64)
        gains = self.view.prior_entropy - np.log(total) + weighted / total
        return float(gains.mean()), float(gains.var(ddof=1))

    def weighted(self, scale: float) -> tuple[npt.NDArray[Any], Vector]:
        """Return posteriors and the weight of each: of the draws, or on a grid."""
        seen = self.view.scaled(scale)
        if is_short_line(seen):
            rows = list(line_posteriors(seen, LINE_STEP))
            return np.concatenate([p for p, _ in rows]), np.concatenate([w for _, w in rows])
        p = self.posterior(scale)
        return p, np.full(len(p), 1 / len(p))

    def _likelihoods(
        self, scale: float, n_draws: int | None = None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Vector]:
        dtype = self._signal.dtype if scale > TINY_SCALE else np.float64
        with np.errstate(over="ignore"):  # a candidate that far away is ruled out
            log_p = np.multiply(self._signal[:n_draws], 1 / scale**2, dtype=dtype)
        log_p += np.multiply(self._cross[:n_draws], 1 / scale, dtype=dtype)
        log_p += self._log_prior if len(self._log_prior) == 1 else self._log_prior[:n_draws]
        log_p -= log_p.max(axis=1, keepdims=True)
        p = np.exp(log_p)
        return log_p, p, p.sum(axis=1, dtype=np.float64)


def _ranking(tilts: BeliefTilts) -> int:
    """Return how many draws rank the units: fewer where units and candidates are many."""
    return int(np.clip(RANKING_COST // (tilts.rows * tilts.n_units), *RANKING))


class RiskProbe:
    """How far the success on any unit is above its cap, as a function of the scale.

    Only the units closest to their caps decide; they are found by :meth:`focus`.
    """

    width = 1.0  # of what is averaged, in units of what it may be

    def __init__(self, probe: Probe, tilts: BeliefTilts, caps: Vector) -> None:
        self._probe, self._tilts, self._caps = probe, tilts, caps
        self._choose(np.arange(min(tilts.n_units, 2 * N_WORST)))

    def focus(self, scale: float) -> None:
        """Keep the units that are closest to their caps at this scale: ranked on a few draws."""
        if self._tilts.n_units > 2 * N_WORST:
            few = self._probe.posterior(scale, _ranking(self._tilts))
            self.look_at(self._tilts.sizes(few.astype(np.float32)) / len(few), 8 * N_WORST)
            room = self._caps[self._chosen] - 0.5 * self._means(scale)[0]
            self._choose(self._chosen[np.argsort(room)[:N_WORST]])

    def look_at(self, size: Vector, n_kept: int = N_WORST) -> None:
        """Keep the units that are closest to their caps, given their advantage or what grows so."""
        if self._tilts.n_units > 2 * N_WORST:
            kept = min(n_kept, self._tilts.n_units - 1)
            self._choose(np.argpartition(self._room_left(size), kept)[:kept])

    def _choose(self, units: Integers) -> None:
        self._chosen = np.sort(units).astype(np.int64)
        self._masks = self._tilts.masks(self._chosen, np.float32)
        self._shift: Vector | float = 0.0

    def measure(self, scale: float, rng: np.random.Generator) -> None:
        """Find on many draws how far the advantage at this scale is from what the few say."""
        view = self._probe.view.scaled(scale)
        if is_line(view):
            return
        if is_plane(view):
            step = 2 * finest_plane_step(view)
            found = plane_advantage(view, self._tilts, self._chosen, step)[0]
            self._shift = found - self._means(scale)[0]
            return
        total = np.zeros(len(self._chosen))
        for draws in draw_view_blocks(view, MEASURED, rng):
            folded = self._tilts.fold(view_posterior(view, draws, np.float32))
            total += np.abs(folded @ self._masks).sum(axis=0, dtype=np.float64)
        self._shift = total / MEASURED - self._means(scale)[0]

    def _means(self, scale: float) -> tuple[Vector, Vector, npt.NDArray[Any]]:
        view = self._probe.view.scaled(scale)
        if is_banded(view):  # a grid, with nothing left to chance
            found = line_advantage(view, self._tilts, self._chosen, LINE_STEP)[0]
            return found, np.ones(1), found[None, :]
        p, weight = self._probe.weighted(scale)
        sizes = np.abs(self._tilts.fold(p).astype(np.float32, copy=False) @ self._masks)
        return weight @ sizes, weight, sizes

    def _room_left(self, size: Vector) -> Vector:
        return self._caps - 0.5 - 0.5 * size

    def excess(self, scale: float) -> tuple[float, float]:
        """Return the largest excess over a cap, and the variance of success there."""
        mean, weight, sizes = self._means(scale)
        over = 0.5 + 0.5 * (mean + self._shift) - self._caps[self._chosen]
        worst = int(np.argmax(over))
        variance = float(weight @ np.square(sizes[:, worst] - mean[worst]))
        return float(over[worst]), variance / 4


class HeatProbe(RiskProbe):
    """How far any unit's charge is above what is allowed, relative to it, at any scale."""

    def __init__(self, probe: Probe, tilts: BeliefTilts, heat: Heat) -> None:
        super().__init__(probe, tilts, heat.allowed)
        self._heat, (self._gain, self._square) = heat, heat.room()

    def measure(self, scale: float, rng: np.random.Generator) -> None:
        """Do nothing: the draws that are kept are many."""

    def focus(self, scale: float) -> None:
        """Keep the units whose mean square move is nearest to what is allowed."""
        if self._tilts.n_units > 2 * N_WORST:
            few = self._probe.posterior(scale, _ranking(self._tilts))
            folded, squares = self._tilts.fold(few), np.empty(self._tilts.n_units)
            for place, masks in self._tilts.blocks(np.arange(len(squares)), np.float32):
                moved = folded @ masks - self._heat.before[place].astype(np.float32)
                squares[place] = np.square(moved).mean(axis=0)
            self.look_at(np.sqrt(squares))

    def _room_left(self, size: Vector) -> Vector:
        ratio: Vector = -np.square(size) / self._caps
        return ratio

    def excess(self, scale: float) -> tuple[float, float]:
        """Return the largest excess over what is allowed, and the variance of what is averaged."""
        p, weight = self._probe.weighted(scale)
        here, gain, square = self._heat.of(self._chosen), self._gain, self._square
        tilted = (self._tilts.fold(p) @ self._masks).astype(np.float64)
        moved = tilted - here.before
        left = np.maximum(here.balance - here.allowed, 0.0)
        start, slope = heat_potential(here.before, left), heat_slope(here.before, here.balance)
        grown = (heat_potential(tilted, left) - start - slope * moved) / gain[self._chosen]
        squares = np.square(moved) / square[self._chosen]
        over = np.stack([weight @ grown, weight @ squares]) - 1
        which, worst = np.unravel_index(int(np.argmax(over)), over.shape)
        values = (grown, squares)[which][:, worst]
        self.width = float(1 / (gain, square)[which][self._chosen[worst]])
        return float(over[which, worst]), float(weight @ np.square(values - weight @ values))


def risk_probe(probe: Probe, tilts: BeliefTilts, limits: Vector | Heat) -> RiskProbe:
    """Return the probe for caps on success, or for balances."""
    kind: Any = HeatProbe if isinstance(limits, Heat) else RiskProbe
    found: RiskProbe = kind(probe, tilts, limits)
    return found


def _stratified_normals(rng: np.random.Generator, n: int, dimension: int) -> Matrix:
    """Return standard normals; the first few coordinates are stratified to reduce variance."""
    from scipy.special import ndtri  # slow to import, not always needed

    noise = rng.standard_normal((n, dimension))
    for column in range(min(dimension, 8)):
        noise[:, column] = ndtri((rng.permutation(n) + rng.random(n)) / n)
    return noise
