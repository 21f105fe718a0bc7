"""What the searches need to know about a learning problem, and what they found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pacprivacy._checks import Matrix, Vector, check_positive, freeze
from pacprivacy.dp import norms_of
from pacprivacy.errors import BudgetError, DataError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Numbers that are perturbed together, with an equal share of every level; curator-only."""

    name: str
    values: Vector
    sensitivity: float


class Problem(Protocol):
    """A model that is a function of perturbed numbers, and a risk to judge it by; curator-only."""

    @property
    def n_records(self) -> int:
        """Number of records, public."""
        ...

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is perturbed."""
        ...

    @property
    def excess_sensitivity(self) -> float:
        """How far one record moves the excess risk of a fixed model."""
        ...

    @property
    def block(self) -> int:
        """How many models are judged at a time."""
        ...

    @property
    def mechanism(self) -> str:
        """What is computed, in words."""
        ...

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the promise rests on, in sentences."""
        ...

    def model(self, noisy: tuple[Vector, ...]) -> Vector:
        """Return the model that the perturbed parts stand for."""
        ...

    def excess_risk(self, models: Matrix) -> Vector:
        """Return the risk of each row above the least risk; never released."""
        ...

    def coefficients(self, model: Vector) -> Vector:
        """Return the model in the units of the features and the target."""
        ...

    def theory_epsilon(self, alpha: float) -> float:
        """Return the level that the utility theorem demands."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """Where a search stopped; every field is public.

    Parameters
    ----------
    model : array
        The model released.
    level, n_levels : int
        The level reached (from 1) and how many there were.
    test_epsilon, level_epsilon : float
        What the tests and the releases cost; their sum is the ex-post loss.
    most_epsilon : float
        What a search that goes to the last level costs, known before it starts.
    accepted : bool
        Whether the test accepted the model; otherwise it is the last level, untested.
    noise : dict
        Scales of the noise by name.
    """

    model: Vector
    level: int
    n_levels: int
    test_epsilon: float
    level_epsilon: float
    most_epsilon: float
    accepted: bool
    noise: dict[str, float]

    def __post_init__(self) -> None:
        freeze(self.model)

    @property
    def epsilon(self) -> float:
        """The ex-post privacy loss."""
        return self.test_epsilon + self.level_epsilon


def check_request(
    *,
    alpha: float,
    gamma: float,
    penalty: float,
    neighbours: str,
    n_levels: int,
    radius: float | None,
) -> None:
    """Refuse a request that makes no sense, before any data are seen."""
    if radius is not None:
        check_positive("radius", radius, advice="Leave it out for what the penalty implies.")
    check_positive("alpha", alpha, advice="Use the excess risk that you can bear.")
    check_positive("penalty", penalty, advice="Use about 0.01.")
    if isinstance(gamma, bool) or not 0.0 < gamma < 1.0:
        raise BudgetError(f"gamma must be between 0 and 1; got {gamma!r}. Use 0.1.")
    if neighbours != "replace":
        raise BudgetError(
            f"neighbours must be 'replace'; got {neighbours!r}. These methods treat the number of "
            "records as public, so a record can be exchanged but not added."
        )
    if n_levels < 2:
        raise BudgetError(f"n_levels must be at least 2; got {n_levels}. Use 1000.")


def hold_within(proved: float, radius: float | None) -> float:
    """Return the length within which models are sought: what was declared, if it is less."""
    return proved if radius is None else min(proved, float(radius))


def describe_ball(radius: float) -> str:
    """Return what the length of models means for the promise of accuracy, in words."""
    return (
        f"Models have a length of at most {radius:.6g} in scaled units, a public number; excess "
        "risk is over the best of these."
    )


def check_number(n_records: int) -> None:
    """Refuse to learn from nobody; how many records there are is public."""
    if n_records == 0:
        raise DataError("X must have at least one row. Pass one row for each record.")


def shrink_rows(features: Matrix, bound: float, *, norm: int) -> Matrix:
    """Return rows divided by ``bound``, those longer than it shrunk to length 1."""
    limit = check_positive("x_bound", bound, advice="Use a length that rows rarely exceed.")
    lengths = norms_of(features, order=norm)  # an infinite one makes a row of zeros
    # The length is off by a factor within 1 ± (d + 2) 2^-53; three more roundings follow it.
    safe = 1.0 - (features.shape[1] + 16) * 2.0**-52
    return np.asarray(features * (safe / np.maximum(lengths, limit)), dtype=np.float64)
