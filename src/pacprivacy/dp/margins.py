"""Linear classifiers as minimisers: losses of the margin, and their regularised sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from scipy import special

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy.dp.losses import encode_labels
from pacprivacy.errors import DataError, MechanismError

__all__ = [
    "LogisticMargin",
    "MarginLoss",
    "SmoothHinge",
    "minimise_margins",
    "read_margin_loss",
    "sign_rows",
]

TOLERANCE: Final = 1e-6  # of the gradient at the minimiser, in units of one record's gradient
MOST_ITERATIONS: Final = 200
MOST_ROWS: Final = 1 << 22
_UNIT: Final = 2.0**-53


class MarginLoss(Protocol):
    """A convex loss ``f(m)`` of the margin ``m = ±x·θ`` with ``-1 <= f' <= 0``."""

    @property
    def most_curvature(self) -> float:
        """Largest second derivative."""
        ...

    def value(self, margins: Vector) -> Vector:
        """Return the loss."""
        ...

    def slope(self, margins: Vector) -> Vector:
        """Return the derivative."""
        ...

    def curvature(self, margins: Vector) -> Vector:
        """Return the second derivative, where there is one."""
        ...


@dataclass(frozen=True, slots=True)
class LogisticMargin:
    """``ln(1 + exp(-m))``."""

    @property
    def most_curvature(self) -> float:
        """One quarter."""
        return 0.25

    def value(self, margins: Vector) -> Vector:
        """Return the loss."""
        return np.asarray(-special.log_expit(margins))

    def slope(self, margins: Vector) -> Vector:
        """Return the derivative."""
        return np.asarray(-special.expit(-margins))

    def curvature(self, margins: Vector) -> Vector:
        """Return the second derivative."""
        return np.asarray(special.expit(margins) * special.expit(-margins))


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothHinge:
    """The hinge, rounded by a parabola within ``width`` of the margin 1."""

    width: float = 0.5

    @property
    def most_curvature(self) -> float:
        """``1 / (2 width)``."""
        return 0.5 / self.width

    def value(self, margins: Vector) -> Vector:
        """Return the loss."""
        short = 1.0 - margins
        inside = (short + self.width) ** 2 / (4.0 * self.width)
        return np.where(np.abs(short) <= self.width, inside, np.maximum(0.0, short))

    def slope(self, margins: Vector) -> Vector:
        """Return the derivative."""
        return np.asarray(-np.clip((1.0 - margins + self.width) / (2.0 * self.width), 0.0, 1.0))

    def curvature(self, margins: Vector) -> Vector:
        """Return the second derivative, where there is one."""
        return np.where(np.abs(1.0 - margins) < self.width, self.most_curvature, 0.0)


_LOSSES: Final[dict[str, MarginLoss]] = {
    "logistic": LogisticMargin(),
    "smooth_hinge": SmoothHinge(),
}


def read_margin_loss(loss: str | MarginLoss) -> MarginLoss:
    """Return the loss of that name, or the loss itself."""
    if not isinstance(loss, str):
        return loss
    if loss not in _LOSSES:
        raise MechanismError(
            f"loss must be one of {', '.join(_LOSSES)}; got {loss!r}. Use 'logistic'."
        )
    return _LOSSES[loss]


def sign_rows(X: Any, y: Any, *, x_bound: float, classes: Sequence[Any] | None) -> Matrix:
    """Return rows clipped to ``x_bound``, negated for the first of two declared classes."""
    bound = check_positive("x_bound", x_bound, advice="Use a norm that rows rarely exceed.")
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
        raise DataError(
            f"X must be finite numbers of shape (n, d); got shape {rows.shape}. "
            "Drop or fill what is missing."
        )
    if len(rows) > MOST_ROWS:
        raise DataError(f"X must have at most {MOST_ROWS} rows; got {len(rows)}. Use a part.")
    if classes is None or len(set(classes)) != 2:
        raise DataError(
            f"classes must be the two labels, declared; got {classes!r}. They must not be read "
            "off the data."
        )
    codes = encode_labels(y, tuple(classes), len(rows))
    signs = 2.0 * np.asarray(codes, dtype=np.float64) - 1.0
    lengths = np.linalg.norm(rows, axis=1)
    # The factor leaves room for the rounding of the norm itself.
    shrink = np.minimum(1.0, (1.0 - 1e-9) * bound / np.maximum(lengths, 1e-300))
    return np.asarray(rows * (signs * shrink)[:, None])


def minimise_margins(
    signed: Matrix, loss: MarginLoss, *, penalty: float, tilt: Vector, x_bound: float
) -> tuple[Vector, float]:
    """Minimise ``Σ f(s_i·θ) + penalty |θ|²/2 + tilt·θ``, up to a small gradient.

    Parameters
    ----------
    signed : array of shape (n, d), curator-only
        Rows from :func:`sign_rows`.
    loss : MarginLoss, public
        ``f``.
    penalty : float > 0, public
        Curvature that is added.
    tilt : array of shape (d,), curator-only
        Linear term; zeros for none.
    x_bound : float, public
        Largest norm of a row.

    Returns
    -------
    point, gradient : array of shape (d,) and float
        A point at which the norm of the gradient is at most ``gradient``, a public number; it is
        within ``gradient / penalty`` of the minimiser.

    Raises
    ------
    MechanismError
        If that is not reached; nothing was released.
    """
    d = signed.shape[1]
    allowed = TOLERANCE * x_bound
    point = np.zeros(d)
    value, gradient = _objective(signed, loss, penalty, tilt, point)
    for _ in range(MOST_ITERATIONS):
        size = float(np.linalg.norm(gradient))
        if size <= allowed / 4:
            _check_gradient(signed, loss, penalty, tilt, point, allowed)
            return point, allowed
        weights = loss.curvature(signed @ point)
        hessian = (signed * weights[:, None]).T @ signed + penalty * np.eye(d)
        move = -np.linalg.solve(hessian, gradient)
        step, slope = 1.0, float(gradient @ move)
        while True:
            trial = point + step * move
            new_value, new_gradient = _objective(signed, loss, penalty, tilt, trial)
            if new_value <= value + 1e-4 * step * slope or (
                step == 1.0 and np.linalg.norm(new_gradient) <= 0.5 * size
            ):
                break
            step /= 2.0
            if step < 1e-12:
                raise _not_reached(allowed)
        point, value, gradient = trial, new_value, new_gradient
    raise _not_reached(allowed)


def _objective(
    signed: Matrix, loss: MarginLoss, penalty: float, tilt: Vector, point: Vector
) -> tuple[float, Vector]:
    margins = signed @ point
    value = (
        math.fsum(loss.value(margins)) + penalty * float(point @ point) / 2 + float(tilt @ point)
    )
    gradient = signed.T @ loss.slope(margins) + penalty * point + tilt
    return value, np.asarray(gradient, dtype=np.float64)


def _check_gradient(
    signed: Matrix, loss: MarginLoss, penalty: float, tilt: Vector, point: Vector, allowed: float
) -> None:
    """Refuse a point at which rounding could hide a gradient larger than allowed."""
    n, d = signed.shape
    terms = np.ascontiguousarray((signed * loss.slope(signed @ point)[:, None]).T)
    gradient = terms.sum(axis=1) + penalty * point + tilt  # numpy adds rows of floats pairwise
    row = float(np.sqrt(np.einsum("ij,ij->i", signed, signed).max()))
    size = float(np.linalg.norm(point))
    margins = loss.most_curvature * row * size * (d + 2) * _UNIT + 8 * _UNIT
    sums = (2.0 * math.log2(n + 2) + 16.0) * _UNIT
    error = n * row * (margins + sums) + (penalty * size + float(np.linalg.norm(tilt))) * 4 * _UNIT
    if not float(np.linalg.norm(gradient)) + error <= allowed:
        raise _not_reached(allowed)


def _not_reached(allowed: float) -> MechanismError:
    return MechanismError(
        f"minimiser must be found to a gradient of {allowed:.3g}; it was not, and nothing was "
        "released. Use a larger penalty, or scale the features."
    )
