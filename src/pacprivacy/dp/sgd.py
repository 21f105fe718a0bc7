"""DP-SGD: linear models, any JAX loss by gradients of single records, and a search over settings.

Linear models never need the gradient of a single record. Those of a JAX loss (``pacprivacy[jax]``)
are clipped, rounded and added in integers outside of JAX. A search that keeps the best of many runs
costs more than one run; if the number of runs is itself random, the cost stays bounded (Liu and
Talwar 2019; Papernot and Steinke 2022).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import scipy

from pacprivacy._checks import Array, Integers, Matrix, Vector, as_told, check_positive
from pacprivacy._random import BitSource, uniform_below
from pacprivacy._system import import_jax, without_jax_checks
from pacprivacy.dp import descent, records
from pacprivacy.dp.accounting import as_dp_accounting
from pacprivacy.dp.certificate import DPRelease
from pacprivacy.dp.descent import Batch, Steps, dp_descent_rate, release_dp_descent
from pacprivacy.dp.events import ApproximateEvent, publish_event
from pacprivacy.dp.noise import (
    check_count,
    check_epsilon_delta,
    dp_noise_price,
    dp_noise_slack,
    dp_noise_source,
)
from pacprivacy.dp.records import encode_record_labels, encode_record_signs, read_record_numbers
from pacprivacy.errors import BudgetError, DataError, MechanismError, PacPrivacyError


@dataclass(frozen=True, slots=True, kw_only=True)
class Squared:
    """Half the squared error, of targets clipped to a declared absolute value ``y_bound``."""

    n_scores: ClassVar[int] = 1
    declared: ClassVar[str] = "the bound of the target"
    y_bound: float

    def __post_init__(self) -> None:
        check_positive("y_bound", self.y_bound, advice="Use a value that targets rarely exceed.")

    def encode(self, y: Any, n_records: int) -> Array:
        target = read_record_numbers(y, n_records)
        clipped = np.clip(target, -self.y_bound, self.y_bound)
        return np.where(np.isfinite(target), clipped, np.nan)

    def slopes(self, scores: Matrix, target: Array) -> Matrix:
        return np.asarray(np.nan_to_num(scores - target[:, None], nan=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _TwoClasses:
    n_scores: ClassVar[int] = 1
    declared: ClassVar[str] = "the set of labels"
    classes: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(set(self.classes)) != 2 or len(self.classes) != 2:
            raise DataError(
                f"classes must be two different labels; got {as_told(self.classes)}. "
                "Use Softmax for more than two."
            )

    def encode(self, y: Any, n_records: int) -> Array:
        return encode_record_signs(y, self.classes, n_records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logistic(_TwoClasses):
    """The logistic loss of two declared classes; the second one has positive scores."""

    def slopes(self, scores: Matrix, target: Array) -> Matrix:
        signs = target[:, None]
        return np.asarray(-signs * scipy.special.expit(-scores * signs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinge(_TwoClasses):
    """The hinge loss of two declared classes; the second one has positive scores."""

    def slopes(self, scores: Matrix, target: Array) -> Matrix:
        signs = target[:, None]
        return np.asarray(-signs * (scores * signs < 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """The multinomial logistic loss of declared classes, one score each, in this order."""

    declared: ClassVar[str] = "the set of labels"
    classes: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise DataError(
                f"classes must be at least two different labels; got {as_told(self.classes)}. "
                "Declare every label once."
            )

    @property
    def n_scores(self) -> int:
        return len(self.classes)

    def encode(self, y: Any, n_records: int) -> Array:
        return encode_record_labels(y, self.classes, n_records)

    def slopes(self, scores: Matrix, target: Array) -> Matrix:
        slopes: Matrix = scipy.special.softmax(scores, axis=1)
        slopes[np.arange(len(target)), target] -= 1.0
        slopes[target < 0] = 0.0
        return slopes


LinearLoss: TypeAlias = Squared | Logistic | Hinge | Softmax
WEIGHT_BITS: Final = 32
LARGEST_FACTOR: Final = 2.0**52
COUNT_SLACK: Final = 2.0**-40  # distance of the law of the drawn number of runs from the stated one
MOST_RUNS: Final = 1e4  # on average
GEOMETRIC: Final = 1.0  # the law of the number of runs, as dp-accounting numbers them
SEARCH_ORDERS: Final = (*range(2, 65), 80, 96, 128, 192, 256)
_TINY: Final = 1e-300


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
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Train a linear model by stochastic gradient descent under differential privacy.

    Append a column of ones for an intercept. The value holds the weights: of shape (d,), or
    (n_classes, d) for ``Softmax``.

    Parameters
    ----------
    loss : Logistic, Softmax, Hinge or Squared, public
        With the declared labels or the bound of the target.
    batch : PoissonBatch, FixedBatch, ReplacementBatch or FullBatch, public
        Which records a step looks at; it decides the relation of the promise.
    steps : Steps, public
        Number and length of the steps, clipping norm, last or average iterate.

    Guarantee
    ---------
    Claims G-3 and DP-17. ``(epsilon, delta)``-differential privacy under ``batch.neighbours`` of
    all iterates together; clipping, sampling, rounding and discrete noise are included.
    """
    rows = records.WholeRows(X, x_bound)
    target = loss.encode(y, len(rows.whole))
    sums = LinearSGDSums(rows, target, loss, clip_norm=steps.clip_norm)
    n_weights = math.prod(sums.shape)
    if steps.learning_rate is None:
        rate = dp_descent_rate(
            batch,
            len(target),
            steps,
            x_bound=x_bound,
            n_weights=n_weights,
            epsilon=epsilon,
            delta=delta,
        )
        steps = replace(steps, learning_rate=rate)
    return release_dp_descent(
        sums,
        np.zeros(n_weights),
        lambda weights: weights.reshape(sums.shape),
        batch=batch,
        steps=steps,
        epsilon=epsilon,
        delta=delta,
        simulate=simulate,
        what=f"linear model with {type(loss).__name__.lower()} loss",
        assumptions=(
            f"Rows are clipped to norm {x_bound:g}; that bound and {loss.declared} were fixed "
            "without looking at the records.",
            records.EMPTY_RECORDS,
        ),
    )


class LinearSGDSums:
    """Sums of clipped gradients ``slopes · x``; none of a single record is built (claim G-1)."""

    def __init__(
        self, rows: records.WholeRows, target: Array, loss: LinearLoss, *, clip_norm: float
    ) -> None:
        self._rows, self._target, self._loss, self._clip = rows, target, loss, clip_norm
        bound = rows.unit * (1 << records.ROW_BITS)
        if not 1e-100 < clip_norm / bound < 1e100:
            raise BudgetError(
                f"clip_norm must be of the order of x_bound; got {clip_norm:g} for {bound:g}. "
                "Rescale the features."
            )
        # Times the unit of the rows, this is 2^-40 of the clipping norm.
        self._slope_unit = clip_norm * 2.0**-records.SUM_BITS / rows.unit
        n_features = rows.whole.shape[1]
        self.shape = (n_features,) if loss.n_scores == 1 else (loss.n_scores, n_features)

    @property
    def n_records(self) -> int:
        return len(self._target)

    def whole_sum(self, weights: Vector, places: Integers) -> Integers:
        shape = (self._loss.n_scores, self._rows.whole.shape[1])
        grid, unit = _whole_weights(weights.reshape(shape))
        total = records.ExactTotal(shape)
        for start in range(0, len(places), records.CHUNK_ROWS):
            chosen = places[start : start + records.CHUNK_ROWS]
            rows = self._rows.whole[chosen]
            # Whole numbers below 2^53: exact, so no record's score depends on the others.
            scores = (rows @ grid.T) * (unit * self._rows.unit)
            factors = self._factors(scores, chosen)
            total.add(factors.T @ rows, len(chosen))
        return total.held().ravel()

    def _factors(self, scores: Matrix, chosen: Integers) -> Matrix:
        """Return slopes, clipped so that slope times row is within the norm, as whole numbers."""
        slopes = records.finite_records(self._loss.slopes(scores, self._target[chosen]))
        lengths = self._rows.norms[chosen] * np.sqrt((slopes**2).sum(axis=1))
        shrink = records.SLACK * np.minimum(1.0, self._clip / np.maximum(lengths, _TINY))
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


def dp_search_noise(
    batch: Batch,
    n_records: int,
    *,
    n_steps: int,
    mean_runs: float,
    epsilon: float,
    delta: float,
    n_weights: int = 0,
) -> float:
    """Return the noise of every run, over the clipping norm, that keeps ``(ε, δ)`` for a search.

    The noise is discrete on ``n_weights`` weights, continuous for 0.

    Guarantee
    ---------
    Claim G-4. The figure is dp-accounting's Rényi bound for repeating and selecting.
    """
    import dp_accounting  # slow to import, not always needed
    from dp_accounting.rdp import RdpAccountant

    epsilon, delta = check_epsilon_delta(epsilon, delta)
    if not 1.0 < mean_runs <= MOST_RUNS:
        raise BudgetError(
            f"mean_runs must be above 1 and at most {MOST_RUNS:g}; got {mean_runs!r}. Use 5."
        )
    left = delta
    if n_weights:
        left -= mean_runs * dp_noise_slack(epsilon, n_weights * n_steps)
        left -= dp_noise_price(epsilon, COUNT_SLACK)
        descent.check_dp_descent_delta(left, epsilon, delta)

    def epsilon_at(noise: float) -> float:
        event = descent.dp_descent_event(batch, n_records, n_steps=1, noise=noise)
        known = as_dp_accounting(event, batch.neighbours)
        if known is None:
            raise BudgetError(
                "batch must be Poisson, of fixed size without replacement, or full for a search; "
                "got draws with replacement, whose Rényi divergences are not known. Use FixedBatch."
            )
        run = dp_accounting.SelfComposedDpEvent(known[0], n_steps)
        search = dp_accounting.dp_event.RepeatAndSelectDpEvent(run, mean_runs, GEOMETRIC)
        accountant = RdpAccountant(SEARCH_ORDERS, known[1]).compose(search)
        return float(accountant.get_epsilon(left))

    return descent.least_dp_descent_noise(epsilon_at, epsilon)


def dp_search(
    X: Any,
    y: Any,
    *,
    candidates: Sequence[Steps],
    score: Callable[[Vector], float],
    loss: LinearLoss,
    epsilon: float,
    delta: float,
    x_bound: float,
    batch: Batch,
    mean_runs: float,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Train linear models with settings drawn at random, and release the one with the best score.

    The value holds ``weights``, the number of the ``candidate``, and its ``score``; other
    parameters are those of :func:`dp_sgd`.

    Parameters
    ----------
    candidates : sequence of Steps, public
        Settings to draw from, uniformly, for every run; all with the same number of steps.
    score : callable, public
        Takes released weights; larger is better. It must not look at these records.
    mean_runs : float, public
        Mean of the number of runs, which is geometric. The number that is drawn is not released.

    Guarantee
    ---------
    Claim G-4. ``(epsilon, delta)``-differential privacy of the whole search.
    """
    rows = records.WholeRows(X, x_bound)
    target = loss.encode(y, len(rows.whole))
    n_records, n_steps = len(target), _same_steps(candidates)
    n_weights = loss.n_scores * rows.whole.shape[1]
    batch.size_for(n_records)
    noise = dp_search_noise(
        batch,
        n_records,
        n_steps=n_steps,
        mean_runs=mean_runs,
        epsilon=epsilon,
        delta=delta,
        n_weights=n_weights,
    )
    source = dp_noise_source(simulate)

    def train(steps: Steps) -> Vector:
        sums = LinearSGDSums(rows, target, loss, clip_norm=steps.clip_norm)
        weights, _ = descent.run_dp_descent(
            sums, np.zeros(n_weights), batch=batch, steps=steps, noise=noise, source=source
        )
        return weights.reshape(sums.shape)

    best: dict[str, Any] = {}
    for _ in range(draw_search_runs(mean_runs, source)):
        number = uniform_below(source, len(candidates))
        weights = train(candidates[number])
        reached = float(score(weights))
        if not best or reached > best["score"] or math.isnan(best["score"]):
            best = {"weights": weights, "candidate": number, "score": reached}
    about = descent.describe_dp_descent(batch, candidates[0], n_records)
    return publish_event(
        best,
        (epsilon, delta, batch.neighbours),
        ApproximateEvent(epsilon=float(epsilon), delta=float(delta)),
        simulation=source.is_simulation,
        mechanism=(
            f"best of a random number of runs (mean {mean_runs:g}) with "
            f"{len(candidates)} settings drawn at random; each run {about.split(':')[0]}"
        ),
        assumptions=(
            f"Rows are clipped to norm {x_bound:g}.",
            "The score looks at released weights and public data only.",
            descent.PUBLIC,
        ),
        accounting={
            "method": "Rényi, repeat and select (dp-accounting)",
            "noise multiplier": noise,
            "steps": n_steps,
        },
        noise={"sum of gradients, in clipping norms": noise},
    )


def draw_search_runs(mean_runs: float, source: BitSource) -> int:
    """Draw a geometric number of runs; exact up to rounding of the chance to stop."""
    limit = math.floor(1.0 / mean_runs * 2.0**63)
    n_runs = 1
    while uniform_below(source, 1 << 63) >= limit:
        n_runs += 1
    return n_runs


def _same_steps(candidates: Sequence[Steps]) -> int:
    numbers = {steps.n_steps for steps in candidates if steps.rate}
    if len(numbers) != 1:
        raise MechanismError(
            "candidates must be at least one, all with the same number of steps, so that every run "
            f"costs the same; got {sorted(numbers)}. Search over step numbers in separate searches."
        )
    return numbers.pop()


PADDED_TO: Final = 64  # records; so that few shapes are compiled

Loss = Callable[..., Any]


def dp_sgd_jax(
    loss: Loss,
    start: Any,
    data: tuple[Any, ...],
    *,
    epsilon: float,
    delta: float,
    batch: Batch,
    steps: Steps,
    chunk: int = 1,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Train anything that JAX can differentiate under differential privacy, as :func:`dp_sgd`.

    Parameters
    ----------
    loss : callable, public
        ``loss(weights, *record)`` returns the loss of one record as a scalar. It must not look at
        other records (no batch normalisation).
    start : pytree of arrays, public
        Starting point, of the structure that is released; it must not come from these records.
    data : tuple of arrays with equal first axes, curator-only
        One row of each array makes a record; a gradient that is not finite counts as zero.
    chunk : int, public
        Gradients computed side by side. With 1 they are computed one at a time, by one program,
        and nothing else can have an influence; more is faster and is noted as an assumption.

    Guarantee
    ---------
    Claims G-3 and DP-17, as of :func:`dp_sgd`.
    """
    sums = _JaxSums(loss, start, data, clip_norm=steps.clip_norm, chunk=chunk)
    return release_dp_descent(
        sums,
        sums.start,
        sums.restore,
        batch=batch,
        steps=steps,
        epsilon=epsilon,
        delta=delta,
        simulate=simulate,
        what=f"JAX model of {len(sums.start)} weights",
        assumptions=sums.assumptions(),
    )


class _JaxSums:
    def __init__(
        self, loss: Loss, start: Any, data: tuple[Any, ...], *, clip_norm: float, chunk: int
    ) -> None:
        jax, flattening = import_jax("jax", "jax.flatten_util")
        flatten = flattening.ravel_pytree
        check_count("chunk", chunk)
        if not all(hasattr(column, "dtype") for column in data):
            raise DataError(
                "data must be a tuple of arrays, whose types are public; got something else. Use "
                "np.asarray(column, dtype=...)."
            )
        self._columns = [np.asarray(column) for column in data]
        if not self._columns or len({column.shape[:1] for column in self._columns}) != 1:
            raise DataError(
                "data must be a tuple of arrays with equal first axes; got rows of shapes "
                f"{[column.shape[1:] for column in self._columns]}. Pass for example (X, y)."
            )
        flat, self._restore = flatten(start)
        self.start: Vector = np.asarray(flat, dtype=np.float64)
        if not np.isfinite(self.start).all():
            raise DataError("start must be finite; got NaN or infinite entries.")
        self._dtype, self._tree_map = np.dtype(flat.dtype), jax.tree_util.tree_map
        self._clip, self._chunk = clip_norm, chunk
        self._unit = clip_norm * 2.0**-records.SUM_BITS

        def gradient(weights: Any, record: tuple[Any, ...]) -> Any:
            return flatten(jax.grad(lambda tree: loss(tree, *record))(self._restore(weights)))[0]

        def gradients(weights: Any, rows: tuple[Any, ...]) -> Any:
            size = None if chunk == 1 else chunk
            return jax.lax.map(lambda record: gradient(weights, record), rows, batch_size=size)

        self._gradients = jax.jit(gradients)
        self._check_loss(jax, gradients)

    @property
    def n_records(self) -> int:
        return len(self._columns[0])

    def whole_sum(self, weights: Vector, places: Integers) -> Integers:
        total = records.ExactTotal((len(weights),))
        at = np.asarray(weights, dtype=self._dtype)
        fitting = (1 << 26) // max(1, len(self.start))  # about 256 MB of gradients
        n_held = max(PADDED_TO, fitting // PADDED_TO * PADDED_TO)
        for begin in range(0, len(places), n_held):
            chosen = places[begin : begin + n_held]
            n_padded = -(-len(chosen) // PADDED_TO) * PADDED_TO
            padded = np.resize(chosen, n_padded)
            with without_jax_checks():  # or a record that makes a NaN would raise
                gradients = self._gradients(at, tuple(column[padded] for column in self._columns))
            total.add_rows(np.asarray(gradients)[: len(chosen)], self._clip, self._unit)
        return total.held()

    def restore(self, weights: Vector) -> Any:
        return self._tree_map(np.asarray, self._restore(np.asarray(weights, dtype=self._dtype)))

    def assumptions(self) -> tuple[str, ...]:
        alone = "The loss of a record depends on that record and the weights alone."
        if self._chunk == 1:
            return (alone,)
        return (
            alone,
            f"Gradients are computed {self._chunk} at a time; XLA computes the same gradient for a "
            "record wherever it stands among them.",
        )

    def _check_loss(self, jax: Any, gradients: Callable[..., Any]) -> None:
        """Find mistakes of the loss by shapes alone, before anything is drawn."""
        shapes = tuple(
            jax.ShapeDtypeStruct(
                (PADDED_TO, *column.shape[1:]), jax.dtypes.canonicalize_dtype(column.dtype)
            )
            for column in self._columns
        )
        weights = jax.ShapeDtypeStruct(self.start.shape, self._dtype)
        try:
            jax.eval_shape(gradients, weights, shapes)
        except PacPrivacyError:
            raise
        except Exception as error:
            raise MechanismError(
                "loss must return a scalar for one record and be differentiable by JAX; it raised "
                f"{type(error).__name__}. Try it on a single row of made-up data."
            ) from None
