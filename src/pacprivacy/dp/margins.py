"""Linear classifiers as minimisers: losses of the margin, and their regularised sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from scipy import special

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy.dp.records import encode_labels, finite_rows, norms_of, read_rows
from pacprivacy.errors import DataError, MechanismError

TOLERANCE: Final = 1e-6  # of the gradient at the minimiser, in units of one record's gradient
MOST_ITERATIONS: Final = 1000
MOST_IDLE: Final = 5  # of them without progress, where only rounding is left
MOST_TRIALS: Final = 200  # of the length of one step
SOLVER: Final = (
    "The minimiser is found to a gradient of a millionth of what one record can add. Where float64 "
    "does not suffice for that, the best point that was found takes its place; neither is said."
)
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
    """Return rows clipped to ``x_bound``, negated for the first of two declared classes.

    A record that is not finite, or that has another label, becomes a row of zeros.
    """
    bound = check_positive("x_bound", x_bound, advice="Use a norm that rows rarely exceed.")
    if classes is None or len(set(classes)) != 2:
        raise DataError(
            f"classes must be the two labels, declared; got {classes!r}. They must not be read "
            "off the data."
        )
    rows = finite_rows(read_rows(X))
    places = encode_labels(y, tuple(classes), len(rows))
    signs = np.where(places < 0, 0.0, 2.0 * places - 1.0)
    # The factor leaves room for the rounding of the norm itself.
    shrink = np.minimum(1.0, (1.0 - 1e-9) * bound / np.maximum(norms_of(rows), 1e-300))
    return np.asarray(rows * (signs[:, None] * shrink))


@np.errstate(all="ignore")
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
        within ``gradient / penalty`` of the minimiser. Where float64 does not suffice, the point
        with the least gradient that was met: an error would be about the records.

    Guarantee
    ---------
    Claim DP-10. The gradient is reached where
    ``(d + 2) n^1.5 x_bound loss.most_curvature <= 10^9 sqrt(penalty)``.
    """
    allowed = TOLERANCE * x_bound
    point = best = np.zeros(signed.shape[1])
    least = math.inf

    def gradient_at(where: Vector) -> Vector:
        slopes = loss.slope(signed @ where)
        return np.asarray(signed.T @ slopes + penalty * where + tilt)

    gradient = gradient_at(point)
    idle = 0
    for _ in range(MOST_ITERATIONS):
        size = float(np.linalg.norm(gradient))
        idle += 1
        if size < least:
            best, least, idle = point, size, 0
        if least <= allowed / 4 and (
            idle > MOST_IDLE or _bound_norm(signed, loss, penalty, tilt, best) <= allowed
        ):
            break
        move = _newton_step(signed, loss, penalty, gradient, point)
        point, gradient = _follow(gradient_at, point, gradient, move, enough=0.5 * least)
    return best, allowed


def _bound_norm(
    signed: Matrix, loss: MarginLoss, penalty: float, tilt: Vector, point: Vector
) -> float:
    """Return a bound on the norm of the gradient, with what rounding could hide."""
    n, d = signed.shape
    terms = np.ascontiguousarray((signed * loss.slope(signed @ point)[:, None]).T)
    gradient = terms.sum(axis=1) + penalty * point + tilt  # numpy adds rows of floats pairwise
    row = float(norms_of(signed).max(initial=0.0))
    size = float(np.linalg.norm(point))
    margins = loss.most_curvature * row * size * (d + 2) * _UNIT + 8 * _UNIT
    sums = (2.0 * math.log2(n + 2) + 16.0) * _UNIT
    error = n * row * (margins + sums) + (penalty * size + float(np.linalg.norm(tilt))) * 4 * _UNIT
    return float(np.linalg.norm(gradient) + error)


def _newton_step(
    signed: Matrix, loss: MarginLoss, penalty: float, gradient: Vector, point: Vector
) -> Vector:
    """Return Newton's step, or one along the gradient where the former is not one downwards."""
    weights = loss.curvature(signed @ point)
    hessian = (signed * weights[:, None]).T @ signed + penalty * np.eye(len(point))
    try:
        move = -np.linalg.solve(hessian, gradient)
    except np.linalg.LinAlgError:
        move = np.zeros_like(gradient)
    if not float(gradient @ move) < 0.0:
        move = -gradient / float(np.trace(hessian))
    return np.asarray(move)


def _follow(
    gradient_at: Callable[[Vector], Vector],
    point: Vector,
    gradient: Vector,
    move: Vector,
    *,
    enough: float,
) -> tuple[Vector, Vector]:
    """Go along ``move`` until the slope has at least halved, and not past the lowest point.

    The slopes of a convex function are compared, not its values: near the minimum these differ by
    less than float64 can tell. A full step to a gradient below ``enough`` is taken as it is.
    """
    slope = float(gradient @ move)
    short, length, far = 0.0, 1.0, math.inf
    for _ in range(MOST_TRIALS):
        trial = point + length * move
        found = gradient_at(trial)
        steep = float(found @ move)
        if length == 1.0 and float(np.linalg.norm(found)) <= enough:
            break
        if steep > 0.0:
            far = length
        elif steep < 0.5 * slope:
            short = length
        else:
            break
        length = 2.0 * length if far == math.inf else 0.5 * (short + far)
    return trial, found
