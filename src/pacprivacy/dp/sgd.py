"""DP-SGD: linear models, and any JAX loss by gradients of single records.

Linear models have squared, logistic, hinge and softmax losses, and no gradient of a single record
is ever built. The gradients of a JAX loss (``pacprivacy[jax]``) are clipped, rounded and added in
integers outside of JAX.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import scipy

from pacprivacy._checks import Array, Integers, Matrix, Vector, as_told, check_positive
from pacprivacy.dp import records
from pacprivacy.dp.certificate import DPRelease
from pacprivacy.dp.descent import Batch, Steps, dp_descent_rate, release_dp_descent
from pacprivacy.dp.noise import check_count
from pacprivacy.dp.records import encode_record_labels, read_record_numbers
from pacprivacy.errors import BudgetError, DataError, MechanismError, PacPrivacyError


@dataclass(frozen=True, slots=True, kw_only=True)
class Squared:
    """Half the squared error, of targets clipped to a declared absolute value ``y_bound``."""

    n_scores: ClassVar[int] = 1
    y_bound: float

    def __post_init__(self) -> None:
        check_positive("y_bound", self.y_bound, advice="Use a value that targets rarely exceed.")

    def encode(self, y: Any, n_records: int) -> Array:
        """Return targets clipped to the bound; NaN for those that are not finite."""
        target = read_record_numbers(y, n_records)
        clipped = np.clip(target, -self.y_bound, self.y_bound)
        return np.where(np.isfinite(target), clipped, np.nan)

    def slopes(self, scores: Matrix, target: Array) -> Matrix:
        """Return the errors."""
        return np.asarray(np.nan_to_num(scores - target[:, None], nan=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _TwoClasses:
    n_scores: ClassVar[int] = 1
    classes: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(set(self.classes)) != 2 or len(self.classes) != 2:
            raise DataError(
                f"classes must be two different labels; got {as_told(self.classes)}. "
                "Use Softmax for more than two."
            )

    def encode(self, y: Any, n_records: int) -> Array:
        """Return -1 for the first class, 1 for the second, and 0 for any other label."""
        places = encode_record_labels(y, self.classes, n_records)
        return np.where(places < 0, 0.0, 2.0 * places - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logistic(_TwoClasses):
    """The logistic loss of two declared classes; the second one has positive scores."""

    def slopes(self, scores: Matrix, target: Array) -> Matrix:
        """Return the derivative."""
        signs = target[:, None]
        return np.asarray(-signs * scipy.special.expit(-scores * signs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinge(_TwoClasses):
    """The hinge loss of two declared classes; the second one has positive scores."""

    def slopes(self, scores: Matrix, target: Array) -> Matrix:
        """Return a subgradient."""
        signs = target[:, None]
        return np.asarray(-signs * (scores * signs < 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """The multinomial logistic loss of declared classes, one score each, in this order."""

    classes: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise DataError(
                f"classes must be at least two different labels; got {as_told(self.classes)}. "
                "Declare every label once."
            )

    @property
    def n_scores(self) -> int:
        """Scores per record."""
        return len(self.classes)

    def encode(self, y: Any, n_records: int) -> Array:
        """Return the number of each record's class, -1 for any other label."""
        return encode_record_labels(y, self.classes, n_records)

    def slopes(self, scores: Matrix, target: Array) -> Matrix:
        """Return probabilities, less one for the true class."""
        slopes: Matrix = scipy.special.softmax(scores, axis=1)
        slopes[np.arange(len(target)), target] -= 1.0
        slopes[target < 0] = 0.0
        return slopes


LinearLoss: TypeAlias = Squared | Logistic | Hinge | Softmax
WEIGHT_BITS: Final = 32
LARGEST_FACTOR: Final = 2.0**52
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
    rows = records.clip_to_whole_rows(X, x_bound)
    n_records, n_features = rows.whole.shape
    sums = LinearSGDSums(rows, loss.encode(y, n_records), loss, clip_norm=steps.clip_norm)
    shape = (n_features,) if loss.n_scores == 1 else (loss.n_scores, n_features)
    if steps.learning_rate is None:
        rate = dp_descent_rate(
            batch,
            n_records,
            steps,
            x_bound=x_bound,
            n_weights=math.prod(shape),
            epsilon=epsilon,
            delta=delta,
        )
        steps = replace(steps, learning_rate=rate)
    return release_dp_descent(
        sums,
        np.zeros(math.prod(shape)),
        lambda weights: weights.reshape(shape),
        batch=batch,
        steps=steps,
        epsilon=epsilon,
        delta=delta,
        simulate=simulate,
        what=f"linear model with {type(loss).__name__.lower()} loss",
        assumptions=(
            f"Rows are clipped to norm {x_bound:g}; that bound and {_declared(loss)} were fixed "
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

    @property
    def n_records(self) -> int:
        """Number of records."""
        return len(self._target)

    def whole_sum(self, weights: Vector, places: Integers) -> Integers:
        """Return the sum over the records at these places."""
        shape = (self._loss.n_scores, self._rows.whole.shape[1])
        grid, unit = _whole_weights(weights.reshape(shape))
        total = records.ExactTotal(shape)
        for start in range(0, len(places), records.CHUNK_ROWS):
            chosen = places[start : start + records.CHUNK_ROWS]
            rows = self._rows.whole[chosen]
            # Whole numbers below 2^53: exact, so no record's score depends on the others.
            scores = (rows @ grid.T) * (unit * self._rows.unit)
            factors = self._factors(scores, chosen)
            total.expect(len(chosen))
            total.add(factors.T @ rows)
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


def _declared(loss: LinearLoss) -> str:
    return "the bound of the target" if hasattr(loss, "y_bound") else "the set of labels"


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
    """Sums of clipped gradients of single records."""

    def __init__(
        self, loss: Loss, start: Any, data: tuple[Any, ...], *, clip_norm: float, chunk: int
    ) -> None:
        jax, flattening = import_sgd_jax("jax", "jax.flatten_util")
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
        self._jax = jax

        def gradient(weights: Any, record: tuple[Any, ...]) -> Any:
            return flatten(jax.grad(lambda tree: loss(tree, *record))(self._restore(weights)))[0]

        def gradients(weights: Any, rows: tuple[Any, ...]) -> Any:
            size = None if chunk == 1 else chunk
            return jax.lax.map(lambda record: gradient(weights, record), rows, batch_size=size)

        self._gradients = jax.jit(gradients)
        self._try_once(jax, gradients)

    @property
    def n_records(self) -> int:
        """Number of records."""
        return len(self._columns[0])

    def whole_sum(self, weights: Vector, places: Integers) -> Integers:
        """Return the sum over the records at these places."""
        total = records.ExactTotal((len(weights),))
        at = np.asarray(weights, dtype=self._dtype)
        for begin in range(0, len(places), self._most()):
            chosen = places[begin : begin + self._most()]
            n_padded = -(-len(chosen) // PADDED_TO) * PADDED_TO
            padded = np.resize(chosen, n_padded)
            with sgd_without_checks(self._jax):  # or a record that makes a NaN would raise
                gradients = self._gradients(at, tuple(column[padded] for column in self._columns))
            records.add_gradients_to_total(total, np.asarray(gradients)[: len(chosen)], self._clip)
        return total.held()

    def restore(self, weights: Vector) -> Any:
        """Return weights in the structure of the starting point."""
        return self._tree_map(np.asarray, self._restore(np.asarray(weights, dtype=self._dtype)))

    def assumptions(self) -> tuple[str, ...]:
        """Return what the promise rests on besides public settings."""
        alone = "The loss of a record depends on that record and the weights alone."
        if self._chunk == 1:
            return (alone,)
        return (
            alone,
            f"Gradients are computed {self._chunk} at a time; XLA computes the same gradient for a "
            "record wherever it stands among them.",
        )

    def _most(self) -> int:
        """Return how many gradients are held at once: about 256 MB of them."""
        fitting = (1 << 26) // max(1, len(self.start))
        return max(PADDED_TO, fitting // PADDED_TO * PADDED_TO)

    def _try_once(self, jax: Any, gradients: Callable[..., Any]) -> None:
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


@contextmanager
def sgd_without_checks(jax: Any) -> Iterator[None]:
    """Switch checks for NaN and infinity off: what they find is about single records."""
    with jax.debug_nans(False), jax.debug_infs(False), np.errstate(all="ignore"):
        yield


def import_sgd_jax(*modules: str) -> tuple[Any, ...]:
    """Import modules that come with the extra; say what is missing where they did not."""
    try:
        return tuple(import_module(name) for name in modules)
    except ImportError:
        raise PacPrivacyError(
            f"{' and '.join(modules)} must be installed for this. "
            "Run in a checkout: pip install '.[jax]'"
        ) from None
