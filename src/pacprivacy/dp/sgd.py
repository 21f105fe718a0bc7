"""DP-SGD for linear models: squared, logistic, hinge and softmax losses."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector
from pacprivacy.dp.batches import Batch, Places
from pacprivacy.dp.certificate import DPRelease
from pacprivacy.dp.clipping import (
    CHUNK_ROWS,
    ROW_BITS,
    SLACK,
    SUM_BITS,
    ExactTotal,
    WholeRows,
    whole_rows,
)
from pacprivacy.dp.descent import DescentPlan, Steps, private_descent, read_start
from pacprivacy.dp.losses import LinearLoss
from pacprivacy.dp.noise import read_source
from pacprivacy.dp.records import EMPTY_RECORDS, finite_rows
from pacprivacy.errors import BudgetError

WEIGHT_BITS: Final = 32
LARGEST_FACTOR: Final = 2.0**52
_TINY: Final = 1e-300

Integers = npt.NDArray[np.int64]


def dp_sgd(
    X: Any,
    y: Any,
    *,
    loss: LinearLoss,
    epsilon: float,
    delta: float,
    x_bound: float,
    batch: Batch,
    steps: Steps,
    start: Vector | None = None,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Train a linear model by stochastic gradient descent under differential privacy.

    Parameters
    ----------
    X, y : arrays of shapes (n, d) and (n,), curator-only
        Features and target; append a column of ones for an intercept.
    loss : Logistic, Softmax, Hinge or Squared, public
        With the declared labels or the bound of the target.
    epsilon, delta : float, public
        The promise; ``delta`` below ``1/n``.
    x_bound : float > 0, public
        Rows are clipped to this norm. It must not be read off the data.
    batch : PoissonBatch, FixedBatch, ReplacementBatch or FullBatch, public
        Which records a step looks at; it decides the relation of the promise. Plain gradient
        descent on all records is ``FullBatch``.
    steps : Steps, public
        Number and length of the steps, clipping norm, last or average iterate.
    start : array, optional, public
        Starting point; zero by default. It must not come from these records.
    simulate : Generator or int, optional
        Seed of batches and noise, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        ``value`` holds the weights: of shape (d,), or (n_classes, d) for ``Softmax``.

    Guarantee
    ---------
    Claim G-3. ``(epsilon, delta)``-differential privacy under ``batch.neighbours`` of all iterates
    together; clipping, sampling, rounding and discrete noise are included. Claim DP-17: what is
    refused is public.

    Examples
    --------
    >>> from pacprivacy.dp import Logistic, PoissonBatch, Steps
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(5000, 2))
    >>> release = dp_sgd(
    ...     X, X[:, 0] > 0, loss=Logistic(classes=(False, True)), epsilon=1.0, delta=1e-6,
    ...     x_bound=1.5, batch=PoissonBatch(size=250, n_public=5000),
    ...     steps=Steps(n_steps=60, learning_rate=1.0, clip_norm=1.0),
    ... )
    >>> bool(np.mean((X @ release.value > 0) == (X[:, 0] > 0)) > 0.9)
    True
    """
    rows = whole_rows(X, x_bound)
    n_records, n_features = rows.whole.shape
    sums = LinearSums(rows, loss.encode(y, n_records), loss, clip_norm=steps.clip_norm)
    shape = (n_features,) if loss.n_scores == 1 else (loss.n_scores, n_features)
    first = read_start(start, shape)
    plan = DescentPlan.find(
        batch, steps, n_records=n_records, n_weights=len(first), epsilon=epsilon, delta=delta
    )
    source = read_source(simulate)
    weights, std = private_descent(
        sums, first, batch=batch, steps=steps, noise=plan.noise, source=source
    )
    certificate = plan.certify(
        f"linear model with {type(loss).__name__.lower()} loss",
        (
            f"Rows are clipped to norm {x_bound:g}; that bound and {_declared(loss)} were fixed "
            "without looking at the records.",
            EMPTY_RECORDS,
        ),
        std=std,
        simulation=source.is_simulation,
    )
    return DPRelease(value=weights.reshape(shape), certificate=certificate)


class LinearSums:
    """Sums of clipped gradients of a linear model, without a gradient of any single record.

    Parameters
    ----------
    rows : WholeRows, curator-only
        Clipped features in whole multiples of their unit.
    target : array, curator-only
        As encoded by the loss.
    loss : LinearLoss, public
        Whose gradient is ``slopes · x``.
    clip_norm : float > 0, public
        Norm to which that is shrunk.

    Guarantee
    ---------
    Claim G-1. What a record adds to a sum depends on that record and the weights alone, and has
    a norm of at most ``2^40``, in whole multiples of ``2^-40`` of the clipping norm.
    """

    def __init__(
        self, rows: WholeRows, target: npt.NDArray[Any], loss: LinearLoss, *, clip_norm: float
    ) -> None:
        self._rows, self._target, self._loss, self._clip = rows, target, loss, clip_norm
        bound = rows.unit * (1 << ROW_BITS)
        if not 1e-100 < clip_norm / bound < 1e100:
            raise BudgetError(
                f"clip_norm must be of the order of x_bound; got {clip_norm:g} for {bound:g}. "
                "Rescale the features."
            )
        # Times the unit of the rows, this is 2^-40 of the clipping norm.
        self._slope_unit = clip_norm * 2.0**-SUM_BITS / rows.unit

    @property
    def n_records(self) -> int:
        """Number of records."""
        return len(self._target)

    def whole_sum(self, weights: Vector, places: Places) -> Integers:
        """Return the sum over the records at these places."""
        shape = (self._loss.n_scores, self._rows.whole.shape[1])
        grid, unit = _whole_weights(weights.reshape(shape))
        total = ExactTotal(shape)
        for start in range(0, len(places), CHUNK_ROWS):
            chosen = places[start : start + CHUNK_ROWS]
            rows = self._rows.whole[chosen]
            # Whole numbers below 2^53: exact, so no record's score depends on the others.
            scores = (rows @ grid.T) * (unit * self._rows.unit)
            factors = self._factors(scores, chosen)
            total.expect(len(chosen))
            total.add(factors.T @ rows)
        return total.held().ravel()

    def _factors(self, scores: Matrix, chosen: Places) -> Matrix:
        """Return slopes, clipped so that slope times row is within the norm, as whole numbers."""
        slopes = finite_rows(self._loss.slopes(scores, self._target[chosen]))
        lengths = self._rows.norms[chosen] * np.sqrt((slopes**2).sum(axis=1))
        shrink = SLACK * np.minimum(1.0, self._clip / np.maximum(lengths, _TINY))
        whole = np.trunc(slopes * (shrink / self._slope_unit)[:, None])
        factors: Matrix = np.clip(whole, -LARGEST_FACTOR, LARGEST_FACTOR)
        return factors


def _whole_weights(weights: Matrix) -> tuple[Matrix, float]:
    """Return weights as whole multiples of a unit, small enough for exact scores."""
    length = float(np.sqrt((weights**2).sum(axis=1)).max())
    if not 1e-100 < length < 1e100:
        return np.zeros_like(weights), 1.0
    unit = math.ldexp(1.0, math.frexp(length)[1] - WEIGHT_BITS)
    return np.trunc(weights / unit), unit


def _declared(loss: LinearLoss) -> str:
    return "the bound of the target" if hasattr(loss, "y_bound") else "the set of labels"
