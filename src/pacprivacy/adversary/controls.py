"""Variance reduction for the information: known means, and candidates where the doubt is.

The information gain of a simulated release is predicted from the candidate and from the noise by
functions whose means are known exactly; only the rest is averaged. Candidates on which the rest
varies most are drawn more often and weighted down. The mean stays what it was, every draw stays
bounded, and the variance falls by a factor of 5 to 50.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.adversary.draws import Draws, posterior
from pacprivacy.adversary.view import View

__all__ = ["Controls", "fit_controls"]

CLIP: Final = 2.5  # squares of the noise count up to the square of this
CLIP_MEAN: Final = (
    math.erf(CLIP / math.sqrt(2))
    - CLIP * math.sqrt(2 / math.pi) * math.exp(-(CLIP**2) / 2)
    + CLIP**2 * math.erfc(CLIP / math.sqrt(2))
)  # E min(n², CLIP²) for a standard normal n
LINEAR_CLIP: Final = 4.0  # standard deviations
MAX_STARTS: Final = 2048  # larger pools do without the gain at the candidates themselves
BLOCK: Final = 1 << 19
QUANTILES: Final = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99)
FEWEST: Final = 48  # pilot draws for which a bin has coefficients of its own
ROUNDING: Final = 1e-12
EVEN_SHARE: Final = 0.5  # of the draws are from the belief itself, so no weight exceeds its inverse


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """A prediction of the gain with known mean, and the law that candidates are drawn from.

    The prediction for candidate ``j`` and noise ``n`` is ``base[j]`` plus two functions of the
    noise with mean zero: ``gradient[j]·n``, clipped symmetrically, and clipped squares along the
    ``axes``, each less its mean. Curator-only.
    """

    base: Vector
    gradient: Matrix
    clip: Vector
    curvature: Vector
    axes: Matrix
    linear: Vector
    quadratic: Vector
    prior: Vector
    proposal: Vector

    def predict(self, draws: Draws) -> Vector:
        """Return the predicted gain of each draw."""
        j = draws.indices
        first, second = _noise_terms(self.gradient, self.axes, self.curvature, draws)
        first = np.clip(first, -self.clip[j], self.clip[j])
        predicted: Vector = self.base[j] + self.linear[j] * first + self.quadratic[j] * second
        return predicted

    def adjust(self, draws: Draws, gains: Vector) -> Vector:
        """Return numbers whose mean over draws of the proposal is that of the gains."""
        weights = self.prior[draws.indices] / self.proposal[draws.indices]
        adjusted: Vector = self.mean + weights * (gains - self.predict(draws))
        return adjusted

    @property
    def mean(self) -> float:
        """Mean of the prediction over candidates and noise."""
        return float(self.prior @ self.base)

    def range(self, low: float, high: float) -> tuple[float, float]:
        """Return numbers between which ``adjust`` lies for gains between ``low`` and ``high``."""
        total = float(self.curvature.sum())
        ends = np.stack([self.quadratic * total * (CLIP**2 - CLIP_MEAN)])
        ends = np.concatenate([ends, -self.quadratic[None] * total * CLIP_MEAN])
        swing = np.abs(self.linear) * self.clip
        least = self.base + ends.min(axis=0) - swing
        most = self.base + ends.max(axis=0) + swing
        weights = self.prior / self.proposal
        below = self.mean + float((weights * (low - most)).min())
        above = self.mean + float((weights * (high - least)).max())
        room = ROUNDING * (1 + abs(below) + abs(above))
        return below - room, above + room

    def drawn_from(self, view: View) -> View:
        """Return the view with the proposal in place of the belief, to draw from."""
        return replace(view, log_prior=np.log(self.proposal))


def _noise_terms(
    gradient: Matrix, axes: Matrix, curvature: Vector, draws: Draws
) -> tuple[Vector, Vector]:
    first = np.einsum("iq,iq->i", gradient[draws.indices], draws.noise)
    squares = np.minimum(np.square(draws.noise @ axes), CLIP**2) - CLIP_MEAN
    return first, squares @ curvature


def fit_controls(view: View, draws: Draws, gains: Vector) -> Controls:
    """Fit a prediction on pilot draws, separately for candidates of different standing.

    Whatever the fit, the known means are those of the functions, so nothing rests on it.
    """
    prior, points = np.exp(view.log_prior), view.points
    values, axes = np.linalg.eigh((points.T * prior) @ points)
    values = np.maximum(values, 0.0)
    curvature = values / (1 + values) ** 2  # of the gain of a Gaussian of this covariance
    along = points @ axes
    own = np.square(along) @ curvature
    start, gradient = own, (along * curvature) @ axes.T
    if view.n_subsets <= MAX_STARTS:
        start, gradient = _gain_at_candidates(view)
    first, second = _noise_terms(gradient, axes, curvature, draws)
    bins = _bins(start, draws)
    j, m = draws.indices, view.n_subsets
    base, clip = np.empty(m), np.empty(m)
    linear, quadratic, doubt = np.empty(m), np.empty(m), np.empty(m)
    for bin_ in range(int(bins.max()) + 1):
        mine, chosen = bins == bin_, bins[j] == bin_
        clip[mine] = LINEAR_CLIP * float(first[chosen].std())
        clipped = np.clip(first[chosen], -clip[mine][0], clip[mine][0])
        table = np.column_stack(
            [np.ones(len(clipped)), own[j[chosen]], start[j[chosen]], clipped, second[chosen]]
        )
        c = np.linalg.lstsq(table, gains[chosen], rcond=1e-8)[0]
        base[mine] = c[0] + c[1] * own[mine] + c[2] * start[mine]
        linear[mine], quadratic[mine] = c[3], c[4]
        doubt[mine] = float(np.std(gains[chosen] - table @ c))
    even = np.where(prior > 0, prior, 0.0)
    uneven = even * np.maximum(doubt, 1e-12)
    proposal = EVEN_SHARE * even + (1 - EVEN_SHARE) * uneven / uneven.sum()
    return Controls(
        base=base,
        gradient=gradient,
        clip=clip,
        curvature=curvature,
        axes=axes,
        linear=linear,
        quadratic=quadratic,
        prior=prior,
        proposal=np.maximum(proposal, 1e-300),
    )


def _bins(start: Vector, draws: Draws) -> npt.NDArray[np.int64]:
    """Sort candidates into bins by their standing; each bin has enough pilot draws."""
    edges = np.unique(np.quantile(start[draws.indices], QUANTILES))
    bins = np.searchsorted(edges, start, side="right")
    counts = np.bincount(bins[draws.indices], minlength=len(edges) + 1)
    kept, filled = np.zeros(len(counts), dtype=np.int64), 0
    label = 0
    for place, count in enumerate(counts):
        kept[place] = label
        filled += int(count)
        if filled >= FEWEST and counts[place + 1 :].sum() >= FEWEST:
            label, filled = label + 1, 0
    return kept[bins]


def _gain_at_candidates(view: View) -> tuple[Vector, Matrix]:
    """Return the gain of a release that equals a candidate's output, and its gradient there."""
    m, points = view.n_subsets, view.points
    gain, gradient = np.empty(m), np.empty_like(points)
    block = max(16, BLOCK // m)
    for begin in range(0, m, block):
        rows = np.arange(begin, min(begin + block, m))
        draws = Draws(indices=rows, noise=np.zeros((len(rows), points.shape[1])))
        p = posterior(view, draws)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(p > 0, np.log(p) - view.log_prior, 0.0)
        weighted = p * ratio
        gain[rows] = weighted.sum(axis=1)
        gradient[rows] = weighted @ points - gain[rows, None] * (p @ points)
    return gain, gradient
