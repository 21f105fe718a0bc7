"""Any success criterion over a finite list of guesses."""

from __future__ import annotations

import numpy as np

from pacprivacy._checks import Matrix, Vector
from pacprivacy._random import coerce_seed, public_generator
from pacprivacy.adversary.draws import draw_blocks, posterior
from pacprivacy.adversary.information import DEFAULT_GAMMA, default_draws
from pacprivacy.adversary.view import Observable, view_of
from pacprivacy.errors import PoolError
from pacprivacy.theory.concentration import Estimate, bernstein_estimate

__all__ = ["criterion_success"]


def criterion_success(
    outputs: object,
    plan: Observable,
    score: Matrix,
    *,
    log_belief: Vector | None = None,
    n_draws: int | None = None,
    gamma: float = DEFAULT_GAMMA,
    rng: np.random.Generator | int | None = None,
) -> Estimate:
    """Best expected score of an attacker who picks one guess from a finite list.

    Parameters
    ----------
    outputs : array of shape (m, d), curator-only
        One row per candidate subset.
    plan : NoisePlan
        The noise under which one row is released.
    score : array of shape (m, n_guesses)
        ``score[k, a]`` in [0, 1]: how well guess ``a`` does when subset ``k`` is the secret.

    Returns
    -------
    Estimate
        ``E_z[max_a Σ_k P_k(z) score[k, a]]`` with an interval at confidence ``1 - gamma``.

    Guarantee
    ---------
    Claim A-3. No attacker limited to these guesses scores above ``upper`` on average.

    Examples
    --------
    Naming the subset is ``score = numpy.eye(m)``.

    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> outputs = np.linspace(-1.0, 1.0, 8)[:, None]
    >>> from pacprivacy.noise import calibrate
    >>> plan = calibrate(outputs, pac.Information(0.1), rule="waterfill")
    >>> found = criterion_success(outputs, plan, np.eye(8), n_draws=20_000, rng=0)
    >>> 1 / 8 < found.value <= found.upper < 1 / 2
    True
    """
    view = view_of(outputs, plan, log_belief)
    table = np.asarray(score, dtype=np.float64)
    if table.ndim != 2 or len(table) != view.n_subsets or not ((table >= 0) & (table <= 1)).all():
        raise PoolError(
            f"score must be an array of shape ({view.n_subsets}, n_guesses) with entries in "
            f"[0, 1]; got shape {table.shape}. Rescale the scores."
        )
    n_draws = n_draws or default_draws(view.n_subsets)
    generator = public_generator(coerce_seed(rng), "criterion")
    total = total_sq = 0.0
    for draws in draw_blocks(view, n_draws, generator):
        best = (posterior(view, draws) @ table).max(axis=1)
        total += float(best.sum())
        total_sq += float(best @ best)
    mean = total / n_draws
    variance = max(0.0, (total_sq - n_draws * mean**2) / (n_draws - 1))
    found = bernstein_estimate(mean, variance, n_draws, low=0.0, high=1.0, gamma=gamma)
    return Estimate(
        value=found.value,
        lower=max(0.0, found.lower - view.slack),
        upper=min(1.0, found.upper + view.slack),
        confidence=found.confidence,
        n_draws=n_draws,
    )
