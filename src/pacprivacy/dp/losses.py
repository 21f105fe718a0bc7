"""Losses of linear models: of scores, for descent, and of the margin, for minimisers.

The gradient of a loss of scores in the weights is ``slope · x`` (an outer product where there are
several scores), so its norm is ``|slope| |x|`` and no gradient of a single record is ever built.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import scipy

from pacprivacy._checks import Array, Matrix, Vector, as_told, check_positive
from pacprivacy.dp.records import encode_record_labels, read_record_numbers
from pacprivacy.errors import DataError, MechanismError


class LinearLoss(Protocol):
    """A loss of scores ``X @ weights.T``; its labels or bounds are declared, not found.

    A record whose target was not declared is not refused: its slopes are zero.
    """

    @property
    def n_scores(self) -> int:
        """Scores per record."""

    def encode(self, y: Any, n_records: int) -> Array:
        """Return the target as ``slopes`` reads it; other shapes are refused."""

    def slopes(self, scores: Matrix, target: Array) -> Matrix:
        """Return the derivative of every record's loss in its scores, of shape (n, n_scores)."""


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
        found: Matrix = scipy.special.softmax(scores, axis=1)
        found[np.arange(len(target)), target] -= 1.0
        found[target < 0] = 0.0
        return found


class MarginLoss(Protocol):
    """A convex loss ``f(m)`` of the margin ``m = ±x·θ`` with ``-1 <= f' <= 0``."""

    @property
    def most_curvature(self) -> float:
        """Largest second derivative."""

    def slope(self, margins: Vector) -> Vector:
        """Return the derivative."""

    def curvature(self, margins: Vector) -> Vector:
        """Return the second derivative, where there is one."""


@dataclass(frozen=True, slots=True)
class LogisticMargin:
    """``ln(1 + exp(-m))``."""

    most_curvature: ClassVar[float] = 0.25

    def slope(self, margins: Vector) -> Vector:
        """Return the derivative."""
        return np.asarray(-scipy.special.expit(-margins))

    def curvature(self, margins: Vector) -> Vector:
        """Return the second derivative."""
        return np.asarray(scipy.special.expit(margins) * scipy.special.expit(-margins))


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothHinge:
    """The hinge, rounded by a parabola within ``width`` of the margin 1."""

    width: float = 0.5

    @property
    def most_curvature(self) -> float:
        """``1 / (2 width)``."""
        return 0.5 / self.width

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
