"""DP-SGD for any JAX loss: gradients of single records by automatic differentiation.

Needs ``pacprivacy[jax]``. Gradients are clipped, rounded and added in integers outside of JAX, by
the same code as for linear models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Vector
from pacprivacy.dp.batches import Batch, Places
from pacprivacy.dp.certificate import DPRelease
from pacprivacy.dp.clipping import ExactTotal, add_gradients
from pacprivacy.dp.descent import DescentPlan, Steps, private_descent
from pacprivacy.dp.noise import check_count, read_source
from pacprivacy.errors import DataError, MechanismError, PacPrivacyError

PADDED_TO: Final = 64  # records; so that few shapes are compiled

Integers = npt.NDArray[np.int64]
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
    """Train anything that JAX can differentiate under differential privacy.

    Parameters
    ----------
    loss : callable, public
        ``loss(weights, *record)`` returns the loss of one record as a scalar. It must not look at
        other records (no batch normalisation).
    start : pytree of arrays, public
        Starting point; it must not come from these records.
    data : tuple of arrays with equal first axes, curator-only
        One row of each array makes a record.
    epsilon, delta : float, public
        The promise.
    batch, steps : public
        As in :func:`~pacprivacy.dp.dp_sgd`.
    chunk : int, public
        Gradients computed side by side. With 1 they are computed one at a time, by one program,
        and nothing else can have an influence; more is faster and is noted as an assumption.
    simulate : Generator or int, optional
        Seed of batches and noise, for experiments; such a release protects nobody.

    Returns
    -------
    DPRelease
        ``value`` has the structure of ``start``, with numpy arrays.

    Guarantee
    ---------
    Claim G-3. ``(epsilon, delta)``-differential privacy under ``batch.neighbours`` of all iterates
    together. A gradient that is not finite counts as zero. Claim DP-17: what is refused is public.

    Examples
    --------
    >>> from pacprivacy.dp import PoissonBatch, Steps
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2)).astype("float32")
    >>> release = dp_sgd_jax(
    ...     lambda w, x: ((w["scale"] * x - x) ** 2).sum(), {"scale": np.zeros(2)}, (X,),
    ...     epsilon=4.0, delta=1e-5, batch=PoissonBatch(size=100, n_public=400),
    ...     steps=Steps(n_steps=10, learning_rate=1.0, clip_norm=1.0),
    ... )
    >>> release.value["scale"].shape
    (2,)
    """
    sums = _JaxSums(loss, start, data, clip_norm=steps.clip_norm, chunk=chunk)
    plan = DescentPlan.find(
        batch,
        steps,
        n_records=sums.n_records,
        n_weights=len(sums.start),
        epsilon=epsilon,
        delta=delta,
    )
    source = read_source(simulate)
    weights, std = private_descent(
        sums, sums.start, batch=batch, steps=steps, noise=plan.noise, source=source
    )
    certificate = plan.certify(
        f"JAX model of {len(weights)} weights",
        sums.assumptions(),
        std=std,
        simulation=source.is_simulation,
    )
    return DPRelease(value=sums.restore(weights), certificate=certificate)


class _JaxSums:
    """Sums of clipped gradients of single records."""

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
        self._jax = jax

        def gradient(weights: Any, record: tuple[Any, ...]) -> Any:
            return flatten(jax.grad(lambda tree: loss(tree, *record))(self._restore(weights)))[0]

        def gradients(weights: Any, records: tuple[Any, ...]) -> Any:
            size = None if chunk == 1 else chunk
            return jax.lax.map(lambda record: gradient(weights, record), records, batch_size=size)

        self._gradients = jax.jit(gradients)
        self._try_once(jax, gradients)

    @property
    def n_records(self) -> int:
        """Number of records."""
        return len(self._columns[0])

    def whole_sum(self, weights: Vector, places: Places) -> Integers:
        """Return the sum over the records at these places."""
        total = ExactTotal((len(weights),))
        at = np.asarray(weights, dtype=self._dtype)
        for begin in range(0, len(places), self._most()):
            chosen = places[begin : begin + self._most()]
            n_padded = -(-len(chosen) // PADDED_TO) * PADDED_TO
            padded = np.resize(chosen, n_padded)
            with without_checks(self._jax):  # or a record that makes a NaN would raise
                found = self._gradients(at, tuple(column[padded] for column in self._columns))
            add_gradients(total, np.asarray(found)[: len(chosen)], self._clip)
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
def without_checks(jax: Any) -> Iterator[None]:
    """Switch checks for NaN and infinity off: what they find is about single records."""
    with jax.debug_nans(False), jax.debug_infs(False), np.errstate(all="ignore"):
        yield


def import_jax(*modules: str) -> tuple[Any, ...]:
    """Import modules that come with the extra; say what is missing where they did not."""
    try:
        return tuple(import_module(name) for name in modules)
    except ImportError:
        raise PacPrivacyError(
            f"{' and '.join(modules)} must be installed for this. "
            "Run: pip install 'pacprivacy[jax]'"
        ) from None
