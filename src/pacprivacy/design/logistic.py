"""Logistic regression as one release: every subset's fit by the same fixed number of steps.

All subsets descend side by side, two matrix products a step. Unlike private descent, which
releases every gradient, only the fitted weights are released, so any budget and any noise rule
works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pacprivacy._checks import Matrix, Vector, check_count, check_positive
from pacprivacy.design.objective import Objective
from pacprivacy.design.ridge import LinearTransform, fit_standard
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import (
    Classes,
    Data,
    Mechanism,
    code_labels,
    find_classes,
    read_columns,
    read_labelled,
)
from pacprivacy.pool import Pool

Array = npt.NDArray[np.float64]

_CELLS_AT_ONCE: Final = 2**23  # scores of records and subsets held at a time, about 64 MB


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassFrame:
    """What the universe fixes before any subset is fitted; public in this model."""

    transform: LinearTransform
    classes: Classes
    n_records: int
    smoothness: float

    @classmethod
    def of(cls, data: Data, transform: LinearTransform | None, name: str) -> Self:
        """Standardise the features, unless a transform is given, and list the classes."""
        X, y = read_labelled(data.parts, name)
        chosen = fit_standard(X) if transform is None else transform
        rows = with_constant(chosen.apply(X))
        top = float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1])
        return cls(
            transform=chosen,
            classes=find_classes(y, name),
            n_records=len(y),
            smoothness=top,
        )

    def read(self, parts: tuple[Any, ...], name: str) -> tuple[Matrix, Array]:
        """Return features with a constant column, and targets of shape (n,) or (n, k) in ±1."""
        X, y = read_labelled(parts, name)
        codes = code_labels(y, self.classes, name)
        if len(self.classes) == 2:
            targets = np.where(codes == 1, 1.0, -1.0)
        else:
            targets = np.where(codes[:, None] == np.arange(len(self.classes)), 1.0, -1.0)
        return with_constant(self.transform.apply(X)), targets

    def finish(self, weights: Array) -> dict[str, Any]:
        """Return coefficients and intercepts for the original features, and the classes."""
        columns = np.asarray(weights, dtype=np.float64).reshape(self.transform.n_outputs + 1, -1)
        coef = self.transform.matrix @ columns[:-1]
        return {
            "coef": coef.T.copy(),
            "intercept": columns[-1] - self.transform.mean @ coef,
            "classes": np.asarray(self.classes),
        }

    def describe(self) -> tuple[str, ...]:
        """Return what came from the universe, for the certificate."""
        return (
            self.transform.description,
            "logistic regression classes: the labels that occur in the universe",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticFit(Mechanism):
    """Weights of a regularised logistic regression, one against the rest if there are many classes.

    The measured value has shape (d + 1,) or (d + 1, k): weights of the standardised features and
    of a constant. The *released* value is a dict with ``coef``, ``intercept`` and ``classes``.

    Parameters
    ----------
    l2 : float > 0, public
        Penalty on all weights. More of it makes the fit move less between subsets.
    n_steps : int >= 1, public
        Steps of accelerated gradient descent from zero; what they compute is what is released,
        whether or not it has converged.
    transform : LinearTransform, public, optional
        Of the features; by default they are standardised over the universe.
    frame : ClassFrame, public
        Set by :meth:`prepare`.
    """

    l2: float = 0.1
    n_steps: int = 100
    transform: LinearTransform | None = None
    frame: ClassFrame | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_positive("l2", self.l2, advice="Use about 0.1.", error=MechanismError)
        check_count("n_steps", self.n_steps, 1, advice="Use about 100.")

    @property
    def name(self) -> str:
        """Name shown in the certificate."""
        return "logistic regression"

    @property
    def public(self) -> tuple[str, ...]:
        """What was computed from the whole universe."""
        return () if self.frame is None else self.frame.describe()

    def prepare(self, data: Data) -> Self:
        """Fix scales, classes and step sizes on the whole universe."""
        return replace(self, frame=ClassFrame.of(data, self.transform, self.name))

    def evaluate(self, parts: tuple[Any, ...], rng: np.random.Generator) -> Array:
        """Return the weights of one subset."""
        rows, targets = self._fixed().read(parts, self.name)
        columns = targets.reshape(len(rows), -1)
        inside = np.ones((len(rows), 1))
        fitted = [self._descend(rows, column, inside)[0] for column in columns.T]
        return fitted[0] if targets.ndim == 1 else np.stack(fitted, axis=1)

    def batch(self, data: Data, pool: Pool) -> Matrix:
        """Return the flattened weights of all subsets, which descend side by side."""
        rows, targets = self._fixed().read(data.parts, self.name)
        columns = targets.reshape(len(rows), -1)
        at_once = max(1, _CELLS_AT_ONCE // len(rows))
        blocks = []
        for start in range(0, pool.n_subsets, at_once):
            subsets = range(start, min(start + at_once, pool.n_subsets))
            inside = np.stack([pool.row_mask(k) for k in subsets], axis=1).astype(np.float64)
            self._check_classes(columns, inside)
            fitted = [self._descend(rows, column, inside) for column in columns.T]
            blocks.append(np.stack(fitted, axis=2).reshape(len(subsets), -1))
        return np.concatenate(blocks)

    def finish(self, value: Any) -> dict[str, Any]:
        """Turn released weights into those of the original features."""
        return self._fixed().finish(value)

    def _descend(self, rows: Matrix, targets: Vector, inside: Matrix) -> Matrix:
        """Return the weights after the last step for every column of ``inside``, shape (m, d)."""
        frame, sizes = self._fixed(), inside.sum(axis=0)
        # A subset's Gram matrix is at most that of the universe, so this bounds its smoothness.
        top = 0.25 * frame.smoothness * frame.n_records / sizes + self.l2
        ratio = np.sqrt(self.l2 / top)
        momentum = (1.0 - ratio) / (1.0 + ratio)
        loss = Objective(loss="logistic", l2=self.l2)
        weights = ahead = np.zeros((rows.shape[1], len(sizes)))
        for _ in range(self.n_steps):
            slopes = loss.slopes(rows @ ahead, targets[:, None]) * inside
            pull = rows.T @ slopes / sizes + self.l2 * ahead
            new = ahead - pull / top
            ahead = new + momentum * (new - weights)
            weights = new
        return np.ascontiguousarray(weights.T)

    def _check_classes(self, columns: Matrix, inside: Matrix) -> None:
        members = (columns > 0).T.astype(np.float64) @ inside
        if len(columns.T) == 1:
            members = np.vstack([members, inside.sum(axis=0) - members])
        if not members.all():
            raise MechanismError(
                f"{self.name} must see every class in every subset; got a subset without one. "
                "Draw the pool with Balanced(stratify=True), or merge rare classes."
            )

    def _fixed(self) -> ClassFrame:
        if self.frame is None:
            raise MechanismError(
                "frame must be fixed before a subset is fitted; got None. "
                "Call prepare(data) with the whole universe first."
            )
        return self.frame


def class_scores(value: Mapping[str, Any], X: Any) -> Matrix:
    """Return the scores of a *released* value: shape (n,) for two classes, else (n, k)."""
    rows = read_columns((X,), "class_scores")
    scores: Matrix = rows @ np.asarray(value["coef"]).T + np.asarray(value["intercept"])
    return scores[:, 0] if len(value["classes"]) == 2 else scores


def with_constant(rows: Matrix) -> Matrix:
    """Return the rows with a column of ones."""
    return np.hstack([rows, np.ones((len(rows), 1))])
