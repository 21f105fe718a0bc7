"""Descent on any loss that JAX can differentiate: the gradient of every record by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Array, Matrix, Vector
from pacprivacy._system import import_jax, without_jax_checks
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism.data import Parts
from pacprivacy.mechanism.descent import (
    FEATURE_BITS,
    DescentPath,
    GradientSteps,
    StepProblem,
)

RECORDS: Final = 256  # whose gradients are computed side by side
MOST_NUMBERS: Final = 1 << 28  # of all gradients of a step
RATES: Final = (0.02, 0.1, 0.5, 2.0, 8.0)
RADII: Final = (0.25, 1.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JaxProblem(StepProblem):
    """Records, and functions of weights and records; a row's contribution is its gradient."""

    columns: tuple[Array, ...] = field(repr=False)
    n_weights: int
    gradients: Callable[..., Any] = field(repr=False)
    losses: Callable[..., Any] = field(repr=False)

    @property
    def arrays(self) -> tuple[Matrix, ...]:
        return tuple(column.reshape(len(column), -1) for column in self.columns)

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_weights, 1

    def ordered(self, order: npt.NDArray[np.int64]) -> Self:
        return replace(self, columns=tuple(column[order] for column in self.columns))

    def step(self, weights: Matrix) -> tuple[Matrix, Matrix]:
        if self.n_rows * self.n_weights > MOST_NUMBERS:
            raise MechanismError(
                f"gradients of a step must have at most {MOST_NUMBERS} numbers; got "
                f"{self.n_rows * self.n_weights}. Use more batches: n_batches=."
            )
        rows = np.array(self._of_records(self.gradients, weights), dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows) / self.n_weights)
        missing = ~np.isfinite(lengths)
        rows[missing], lengths[missing] = 0.0, 0.0
        rows /= np.maximum(lengths, 1e-300)[:, None]
        np.rint(np.ldexp(rows, FEATURE_BITS, out=rows), out=rows)
        return rows, lengths[:, None]

    def mean_loss(self, weights: Matrix) -> float:
        return float(np.mean(self._of_records(self.losses, weights)))

    def _of_records(self, function: Callable[..., Any], weights: Matrix) -> Array:
        with without_jax_checks():  # or a record that makes a NaN would raise
            return np.asarray(function(weights[:, 0], self.columns))


@dataclass(frozen=True, kw_only=True, eq=False)
class JaxDescent(GradientSteps):
    """Weights by gradient descent on any loss that JAX can differentiate (extra ``[jax]``).

    With coins every step is a noisy sum of gradients of single records, and each unit pays for its
    own; see :class:`pacprivacy.Descent`, whose parameters have the same meaning. Nothing is scaled.

    Parameters
    ----------
    loss : callable, public
        ``loss(weights, *record)`` returns the loss of one record as a scalar.
    start : pytree of arrays, public
        Weights at the start, of the structure that is released; not computed from these records.
    n_steps, rate, radius, n_batches, momentum, average, public
        As for ``Descent``; rates are not relative to a curvature, which is unknown.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> fit = JaxDescent(loss=lambda w, x, y: (x @ w - y) ** 2, start=np.zeros(2), rate=0.1)
    >>> release = pac.privatize(fit, (X, X[:, 0]), "membership<=0.6", sample=pac.Coins())
    >>> bool(release.value[0] > 0.5)
    True
    """

    loss: Callable[..., Any]
    start: Any = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not np.isfinite(self._flat).all():
            raise MechanismError("start must be finite; got NaN or infinite entries. Use zeros.")

    @property
    def _flat(self) -> Vector:
        return np.asarray(self._ravelled[0], dtype=np.float64)

    @property
    def _ravelled(self) -> tuple[Any, Callable[..., Any]]:
        (flattening,) = import_jax("jax.flatten_util")
        pair: tuple[Any, Callable[..., Any]] = flattening.ravel_pytree(self.start)
        return pair

    @property
    def name(self) -> str:
        return f"descent, JAX loss of {len(self._flat)} weights, {self.n_steps} steps"

    @property
    def public(self) -> tuple[str, ...]:
        return ("loss, weights at the start, number and length of steps, radius",)

    @property
    def trials(self) -> tuple[float, ...]:
        return RATES if self.rate == "auto" else (float(self.rate),)

    @property
    def plain_trial(self) -> float:
        return self.trials[0]

    @property
    def radii(self) -> tuple[float, ...]:
        return RADII if self.radius == "auto" else (float(self.radius),)

    def problem(self, parts: Parts) -> JaxProblem:
        (jax,), (flat, restore) = import_jax("jax"), self._ravelled
        columns = tuple(np.asarray(part) for part in parts)
        size = min(RECORDS, len(columns[0]))

        def value(weights: Any, record: tuple[Any, ...]) -> Any:
            return self.loss(restore(weights), *record)

        def each(function: Callable[..., Any]) -> Callable[..., Any]:
            def of_records(weights: Any, rows: tuple[Any, ...]) -> Any:
                at = weights.astype(flat.dtype)
                return jax.lax.map(lambda row: function(at, row), rows, batch_size=size)

            return of_records

        gradients = each(jax.grad(value))
        try:
            jax.eval_shape(gradients, flat, columns)
        except Exception as error:
            raise MechanismError(
                "loss must return a scalar for one record and be differentiable by JAX; it raised "
                f"{type(error).__name__}. Try it on a single row of made-up data."
            ) from None
        return JaxProblem(
            columns=columns,
            n_weights=len(flat),
            gradients=jax.jit(gradients),
            losses=jax.jit(each(value)),
        )

    def path(self, shape: tuple[int, int], trial: float) -> DescentPath:
        return DescentPath(settings=self, rate=trial, weights=self._flat[:, None])

    def finish(self, value: Any) -> Any:
        (jax,), (flat, restore) = import_jax("jax"), self._ravelled
        return jax.tree_util.tree_map(np.asarray, restore(np.ravel(value).astype(flat.dtype)))
