"""Losses of linear models: what descent needs to know of squares, logits and hinges.

The gradient of such a loss in the weights is ``slope · x`` (an outer product where there are
several scores), so its norm is ``|slope| |x|`` and no gradient of a single record is ever built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import special

from pacprivacy._checks import Matrix, Vector, check_positive
from pacprivacy.dp.records import encode_labels, read_numbers
from pacprivacy.errors import DataError


class LinearLoss(Protocol):
    """A loss of scores ``X @ weights.T``; its labels or bounds are declared, not found.

    A record whose target was not declared is not refused: its loss and its slopes are zero.
    """

    @property
    def n_scores(self) -> int:
        """Scores per record."""
        ...

    def encode(self, y: Any, n_records: int) -> npt.NDArray[Any]:
        """Return the target as ``values`` and ``slopes`` read it; other shapes are refused."""
        ...

    def values(self, scores: Matrix, target: npt.NDArray[Any]) -> Vector:
        """Return the loss of every record."""
        ...

    def slopes(self, scores: Matrix, target: npt.NDArray[Any]) -> Matrix:
        """Return the derivative of every record's loss in its scores, of shape (n, n_scores)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Squared:
    """Half the squared error, of targets clipped to a declared bound.

    Parameters
    ----------
    y_bound : float > 0, public
        Targets are clipped to this absolute value; it must not be read off the data.

    Examples
    --------
    >>> loss = Squared(y_bound=2.0)
    >>> loss.slopes(np.array([[1.0]]), loss.encode([5.0], 1))
    array([[-1.]])
    """

    y_bound: float

    def __post_init__(self) -> None:
        check_positive("y_bound", self.y_bound, advice="Use a value that targets rarely exceed.")

    @property
    def n_scores(self) -> int:
        """Scores per record."""
        return 1

    def encode(self, y: Any, n_records: int) -> npt.NDArray[Any]:
        """Return targets clipped to the bound; NaN for those that are not finite."""
        target = read_numbers(y, n_records)
        clipped = np.clip(target, -self.y_bound, self.y_bound)
        return np.where(np.isfinite(target), clipped, np.nan)

    def values(self, scores: Matrix, target: npt.NDArray[Any]) -> Vector:
        """Return half the squared errors."""
        found: Vector = np.nan_to_num(0.5 * (scores[:, 0] - target) ** 2, nan=0.0)
        return found

    def slopes(self, scores: Matrix, target: npt.NDArray[Any]) -> Matrix:
        """Return the errors."""
        found: Matrix = np.nan_to_num(scores - target[:, None], nan=0.0)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _TwoClasses:
    classes: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(set(self.classes)) != 2 or len(self.classes) != 2:
            raise DataError(
                f"classes must be two different labels; got {self.classes!r}. "
                "Use Softmax for more than two."
            )

    @property
    def n_scores(self) -> int:
        """Scores per record."""
        return 1

    def encode(self, y: Any, n_records: int) -> npt.NDArray[Any]:
        """Return -1 for the first class, 1 for the second, and 0 for any other label."""
        places = encode_labels(y, self.classes, n_records)
        return np.where(places < 0, 0.0, 2.0 * places - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logistic(_TwoClasses):
    """The logistic loss of two declared classes.

    Parameters
    ----------
    classes : tuple of two labels, public
        The second one has positive scores. A record with another label has no influence.

    Examples
    --------
    >>> loss = Logistic(classes=("no", "yes"))
    >>> loss.slopes(np.array([[0.0]]), loss.encode(["yes"], 1))
    array([[-0.5]])
    """

    def values(self, scores: Matrix, target: npt.NDArray[Any]) -> Vector:
        """Return ``ln(1 + exp(-y s))``."""
        found: Vector = -special.log_expit(scores[:, 0] * target) * np.abs(target)
        return found

    def slopes(self, scores: Matrix, target: npt.NDArray[Any]) -> Matrix:
        """Return the derivative."""
        signs = target[:, None]
        found: Matrix = -signs * special.expit(-scores * signs)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinge(_TwoClasses):
    """The hinge loss of two declared classes.

    Parameters
    ----------
    classes : tuple of two labels, public
        The second one has positive scores. A record with another label has no influence.

    Examples
    --------
    >>> loss = Hinge(classes=(0, 1))
    >>> loss.slopes(np.array([[0.5], [1.5]]), loss.encode([1, 1], 2))
    array([[-1.],
           [-0.]])
    """

    def values(self, scores: Matrix, target: npt.NDArray[Any]) -> Vector:
        """Return ``max(0, 1 - y s)``."""
        found: Vector = np.maximum(0.0, np.abs(target) - scores[:, 0] * target)
        return found

    def slopes(self, scores: Matrix, target: npt.NDArray[Any]) -> Matrix:
        """Return a subgradient."""
        signs = target[:, None]
        found: Matrix = -signs * (scores * signs < 1.0)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """The multinomial logistic loss of declared classes.

    Parameters
    ----------
    classes : tuple of labels, public
        One score each, in this order. A record with another label has no influence.

    Examples
    --------
    >>> loss = Softmax(classes=("a", "b"))
    >>> loss.slopes(np.zeros((1, 2)), loss.encode(["b"], 1))
    array([[ 0.5, -0.5]])
    """

    classes: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise DataError(
                f"classes must be at least two different labels; got {self.classes!r}. "
                "Declare every label once."
            )

    @property
    def n_scores(self) -> int:
        """Scores per record."""
        return len(self.classes)

    def encode(self, y: Any, n_records: int) -> npt.NDArray[Any]:
        """Return the number of each record's class, -1 for any other label."""
        return encode_labels(y, self.classes, n_records)

    def values(self, scores: Matrix, target: npt.NDArray[Any]) -> Vector:
        """Return the negative log probabilities of the true classes."""
        chosen = scores[np.arange(len(target)), target]
        found: Vector = np.where(target < 0, 0.0, special.logsumexp(scores, axis=1) - chosen)
        return found

    def slopes(self, scores: Matrix, target: npt.NDArray[Any]) -> Matrix:
        """Return probabilities, less one for the true class."""
        found: Matrix = special.softmax(scores, axis=1)
        found[np.arange(len(target)), target] -= 1.0
        found[target < 0] = 0.0
        return found
