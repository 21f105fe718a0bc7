"""Search the least privacy loss that meets an accuracy: noise reduction, doubling, theory.

A *method* is what a user asks for: a model, its bounds, an accuracy. On data it becomes a
*problem*: numbers that are perturbed, and a risk to judge models by. The searches know nothing
else of either.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np

from pacprivacy._checks import Matrix, Vector, check_positive, freeze
from pacprivacy._random import BitSource
from pacprivacy.dp import DPRelease, PureEvent
from pacprivacy.dp.accuracy_first import mechanisms
from pacprivacy.dp.clipping import norms_of
from pacprivacy.dp.events import publish
from pacprivacy.dp.noise import add_laplace, read_source
from pacprivacy.errors import BudgetError, DataError, MechanismError

Search = Literal["reduction", "doubling", "theory"]
SEARCHES: Final[dict[Search, str]] = {
    "reduction": "noise reduction",
    "doubling": "doubling",
    "theory": "theory inversion",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Numbers that are perturbed together, with an equal share of every level; curator-only."""

    name: str
    values: Vector
    sensitivity: float


class Problem(ABC):
    """A model that is a function of perturbed numbers, and a risk to judge it by; curator-only.

    ``parts`` are perturbed; ``best`` is the model of least risk within the radius, which is the
    length that no optimum exceeds or a smaller one that was declared. ``excess_sensitivity`` is how
    far one record moves the excess risk of a fixed model; ``bounds`` says what was done to the
    records.
    """

    mechanism: ClassVar[str]
    block: ClassVar[int] = 1  # how many models are judged at a time
    parts: tuple[Part, ...]
    best: Vector
    excess_sensitivity: float
    bounds: tuple[str, ...]

    def __init__(
        self, shape: tuple[int, int], *, penalty: float, proved: float, radius: float | None
    ) -> None:
        self.n_records, self.n_features = shape
        if self.n_records == 0:
            raise DataError("X must have at least one row. Pass one row for each record.")
        self.penalty = penalty
        self.radius = proved if radius is None else min(proved, float(radius))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the promise rests on, in sentences."""
        return (
            *self.bounds,
            f"Models have a length of at most {self.radius:.6g} in scaled units, a public number; "
            "excess risk is over the best of these.",
            "The number of records is public.",
        )

    @abstractmethod
    def model(self, noisy: tuple[Vector, ...]) -> Vector:
        """Return the model that the perturbed parts stand for."""

    @abstractmethod
    def excess_risk(self, models: Matrix) -> Vector:
        """Return the risk of each row above the least risk within the radius; never released."""

    @abstractmethod
    def coefficients(self, model: Vector) -> Vector:
        """Return the model in the units of the features and the target."""

    @abstractmethod
    def theory_epsilon(self, alpha: float) -> float:
        """Return the level that the utility theorem demands."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """Where a search stopped; every field is public.

    The tests and the releases cost ``test_epsilon`` and ``level_epsilon``, together the ex-post
    loss; ``most_epsilon`` is what going to the last level costs, known before the start. A model
    that was not ``accepted`` is that of the last level, untested.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(ABC):
    """What is asked for, and the search by noise reduction; see :class:`OutputNR`."""

    alpha: float
    penalty: float
    x_bound: float
    gamma: float = 0.1
    neighbours: Literal["replace"] = "replace"
    n_levels: int = 1000
    calibration: mechanisms.Calibration = "tight"
    radius: float | None = None

    def __post_init__(self) -> None:
        if self.radius is not None:
            check_positive("radius", self.radius, advice="Leave it out for what penalty implies.")
        check_positive("alpha", self.alpha, advice="Use the excess risk that you can bear.")
        check_positive("penalty", self.penalty, advice="Use about 0.01.")
        check_positive("x_bound", self.x_bound, advice="Use a length that rows rarely exceed.")
        if isinstance(self.gamma, bool) or not 0.0 < self.gamma < 1.0:
            raise BudgetError(f"gamma must be between 0 and 1; got {self.gamma!r}. Use 0.1.")
        if self.neighbours != "replace":
            raise BudgetError(
                f"neighbours must be 'replace'; got {self.neighbours!r}. These methods treat the "
                "number of records as public, so a record can be exchanged but not added."
            )
        if self.n_levels < 2:
            raise BudgetError(f"n_levels must be at least 2; got {self.n_levels}. Use 1000.")

    @abstractmethod
    def prepare(self, X: Any, y: Any) -> Problem:
        """Return the problem on clipped data; curator-only."""

    def release(
        self,
        X: Any,
        y: Any,
        *,
        search: Search = "reduction",
        simulate: np.random.Generator | int | None = None,
    ) -> DPRelease:
        """Return the coefficients, in the units of ``X`` and ``y``, and what they cost.

        Parameters
        ----------
        search : {"reduction", "doubling", "theory"}
            Lower the noise of one release until a test is passed; release afresh with twice the
            ``ε`` until a noisy test is passed; or release once, with the ``ε`` that the utility
            theorem demands. The last is ordinary differential privacy, and tests nothing.

        Guarantee
        ---------
        Claims AF-4 and AF-5; AF-7 for doubling, AF-8 and AF-9 for theory.
        """
        if search not in SEARCHES:
            raise MechanismError(
                f"search must be one of {', '.join(SEARCHES)}; got {search!r}. Leave it out."
            )
        problem, source = self.prepare(X, y), read_source(simulate)
        goal = {"alpha": self.alpha, "gamma": self.gamma}
        if search == "theory":
            epsilon = problem.theory_epsilon(self.alpha)
            found = invert_theory(problem, epsilon=epsilon, source=source)
        elif search == "doubling":
            found = search_by_doubling(problem, **goal, source=source)
        else:
            found = search_by_reduction(
                Candidates(problem, alpha=self.alpha, n_levels=self.n_levels, source=source),
                **goal,
                calibration=self.calibration,
                source=source,
            )
        return self._publish(problem, found, search, source)

    def _publish(
        self, problem: Problem, found: Found, search: Search, source: BitSource
    ) -> DPRelease:
        """Return the model with the certificate of what it cost."""
        tested = search != "theory"
        accounting: dict[str, Any] = {
            "level": f"{found.level} of {found.n_levels}",
            "releases": found.level_epsilon,
        }
        if tested:
            accounting["tests"] = found.test_epsilon
        rounded = 1 + 2.0**-50  # the sums were rounded a few times
        return publish(
            problem.coefficients(found.model),
            (found.epsilon * rounded, 0.0, "replace"),
            PureEvent(epsilon=found.most_epsilon * rounded),
            simulation=source.is_simulation,
            kind="dp-ex-post" if tested else "dp",
            mechanism=f"{problem.mechanism}, {SEARCHES[search]}",
            assumptions=problem.assumptions,
            accounting=accounting,
            noise=found.noise,
            notes=(self._note(found, tested=tested),),
        )

    def _note(self, found: Found, *, tested: bool) -> str:
        goal = f"excess risk of at most {self.alpha:g}"
        if not tested:
            return f"A theorem promises an {goal}, on average; nothing was tested on these data."
        where = f"level {found.level} of {found.n_levels}"
        if found.accepted:
            return f"Stopped at {where}: {goal}, except with probability {self.gamma:g}."
        return f"No test was passed: the last level, {where}, was released; {goal} was NOT reached."


class Candidates:
    """The models of all levels, noisiest first, and their excess risks; curator-only.

    Levels are worked out when they are asked for, a few at a time; what is not released never
    leaves.
    """

    def __init__(self, problem: Problem, *, alpha: float, n_levels: int, source: BitSource) -> None:
        self.problem = problem
        self.levels = mechanisms.geometric_levels(
            1.0 / problem.n_records, 4.0 * problem.theory_epsilon(alpha), n_levels
        )
        self._share = 1.0 / len(problem.parts)
        self._noisy = [
            mechanisms.NoisyLevels(
                part.values,
                sensitivity=part.sensitivity,
                epsilons=self._share * self.levels,
                source=source,
            )
            for part in problem.parts
        ]
        self._models: list[Vector] = []
        self._excess: list[float] = []

    def model(self, level: int) -> Vector:
        """Return the model of a level that was worked out."""
        return self._models[level].copy()

    def excess_risk(self, level: int) -> float:
        """Return the excess risk of a level, working out more levels where it must."""
        while level >= len(self._excess):
            n_models = min(self.problem.block, len(self.levels) - len(self._excess))
            models = np.array(
                [
                    self.problem.model(tuple(part.refine() for part in self._noisy))
                    for _ in range(n_models)
                ]
            )
            self._models += list(models)
            self._excess += self.problem.excess_risk(models).tolist()
        return self._excess[level]

    def noise_scales(self, level: int) -> dict[str, float]:
        """Return the scales of the noise at a level, by the names of the parts."""
        epsilon = self._share * float(self.levels[level])
        return {part.name: part.sensitivity / epsilon for part in self.problem.parts}


def search_by_reduction(
    candidates: Candidates,
    *,
    alpha: float,
    gamma: float,
    calibration: mechanisms.Calibration,
    source: BitSource,
) -> Found:
    """Lower the noise until the excess risk passes AboveThreshold.

    Guarantee
    ---------
    Claims AF-4 and AF-5. The ex-post loss is that of the test plus that of the level reached.
    """
    n_levels, reach = len(candidates.levels), candidates.problem.excess_sensitivity
    plan = mechanisms.plan_threshold(
        alpha, gamma=gamma, n_levels=n_levels, sensitivity=reach, calibration=calibration
    )
    search = mechanisms.InteractiveAboveThreshold(
        threshold=plan.threshold, sensitivity=reach, epsilon=plan.epsilon, source=source
    )
    level = 0
    while not search.ask(-candidates.excess_risk(level)) and level < n_levels - 1:
        level += 1
    threshold_scale, query_scale = search.noise_scales
    return Found(
        model=candidates.model(level),
        level=level + 1,
        n_levels=n_levels,
        test_epsilon=plan.epsilon,
        level_epsilon=float(candidates.levels[level]),
        most_epsilon=plan.epsilon + float(candidates.levels[-1]),
        accepted=search.is_over,
        noise={
            **candidates.noise_scales(level),
            "threshold": threshold_scale,
            "queries": query_scale,
        },
    )


def search_by_doubling(problem: Problem, *, alpha: float, gamma: float, source: BitSource) -> Found:
    """Release afresh at twice the level, with a noisy test each time; the losses add up.

    Guarantee
    ---------
    Claim AF-7.
    """
    levels = mechanisms.doubling_levels(
        1.0 / problem.n_records, 4.0 * problem.theory_epsilon(alpha)
    )
    reach, first = problem.excess_sensitivity, float(levels[0])
    test_epsilon = 2.0 * reach * math.log(len(levels) / gamma) / alpha
    for step, level in enumerate(levels, start=1):
        model, scales = _release_once(problem, float(level), source)
        excess = float(problem.excess_risk(model[None, :])[0])
        test = add_laplace(
            excess, sensitivity=reach * mechanisms.FLOAT_MARGIN, epsilon=test_epsilon, source=source
        )
        accepted = bool(test.values <= 0.5 * alpha)
        if accepted or step == len(levels):
            break
    total, most = (
        doubling_loss(
            steps, first=first, sensitivity=reach, n_steps=len(levels), alpha=alpha, gamma=gamma
        )
        for steps in (step, len(levels))
    )
    spent = (2.0**step - 1.0) * first
    return Found(
        model=model,
        level=step,
        n_levels=len(levels),
        test_epsilon=total - spent,
        level_epsilon=spent,
        most_epsilon=most,
        accepted=accepted,
        noise={**scales, "tests": test.noise_scale},
    )


def doubling_loss(
    step: int, *, first: float, sensitivity: float, n_steps: int, alpha: float, gamma: float
) -> float:
    """Return the ex-post loss of the doubling method that stops at ``step`` (1, 2, ...).

    ``2 k Δ ln(T/γ)/α`` for ``k`` noisy tests, ``(2^k - 1) ε_1`` for ``k`` independent releases.
    """
    tests = 2.0 * step * sensitivity * math.log(n_steps / gamma) / alpha
    return tests + (2.0**step - 1.0) * first


def invert_theory(problem: Problem, *, epsilon: float, source: BitSource) -> Found:
    """Release once, at the level that a utility theorem demands; nothing is tested."""
    model, scales = _release_once(problem, epsilon, source)
    return Found(
        model=model,
        level=1,
        n_levels=1,
        test_epsilon=0.0,
        level_epsilon=epsilon,
        most_epsilon=epsilon,
        accepted=False,
        noise=scales,
    )


def _release_once(
    problem: Problem, epsilon: float, source: BitSource
) -> tuple[Vector, dict[str, float]]:
    share = epsilon / len(problem.parts)
    noisy = [
        add_laplace(part.values, sensitivity=part.sensitivity, epsilon=share, source=source)
        for part in problem.parts
    ]
    scales = {
        part.name: found.noise_scale for part, found in zip(problem.parts, noisy, strict=True)
    }
    return problem.model(tuple(found.values for found in noisy)), scales


def shrink_rows(features: Matrix, bound: float, *, norm: int) -> Matrix:
    """Return rows divided by ``bound``, those longer than it shrunk to length 1."""
    limit = check_positive("x_bound", bound, advice="Use a length that rows rarely exceed.")
    lengths = norms_of(features, order=norm)  # an infinite one makes a row of zeros
    # The length is off by a factor within 1 ± (d + 2) 2^-53; three more roundings follow it.
    safe = 1.0 - (features.shape[1] + 16) * 2.0**-52
    return np.asarray(features * (safe / np.maximum(lengths, limit)), dtype=np.float64)
