"""Accuracy first: ask for an accuracy, and pay the least privacy loss that reaches it.

A *method* is a request: a model, its bounds, an accuracy. On data it becomes a
*problem*: numbers that are perturbed, and a risk to judge models by. The searches (noise
reduction, doubling, theory) know nothing else of either. Neighbours differ in one record; scaled
records have a length of at most 1, targets are in [-1, 1], and the risk has penalty ``λ|θ|²/2``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np

from pacprivacy._checks import Matrix, Vector, check_positive, freeze
from pacprivacy._random import BitSource
from pacprivacy.dp import records
from pacprivacy.dp.certificate import DPRelease
from pacprivacy.dp.events import PureEvent, publish_event
from pacprivacy.dp.linear_models import (
    SOLVER,
    TOLERANCE,
    minimise_perturbed,
    solve_trust_region as solve_trust_region,
)
from pacprivacy.dp.noise import add_laplace, check_gamma, dp_noise_source
from pacprivacy.dp.noise_reduction import (
    FLOAT_MARGIN,
    Calibration as Calibration,
    InteractiveAboveThreshold as InteractiveAboveThreshold,
    NoiseReduction as NoiseReduction,
    NoisyLevels,
    ThresholdPlan as ThresholdPlan,
    doubling_levels as doubling_levels,
    geometric_levels as geometric_levels,
    plan_threshold as plan_threshold,
)
from pacprivacy.errors import BudgetError, DataError, MechanismError

LARGEST_PULL: Final = 0.27846455  # max of m/(1 + e^m): Lambert's W at 1/e, rounded up
Search = Literal["reduction", "doubling", "theory"]
SEARCHES: Final[dict[Search, str]] = {
    "reduction": "noise reduction",
    "doubling": "doubling",
    "theory": "theory inversion",
}


class Part(NamedTuple):
    """Numbers that get noise together, and their sensitivity in absolute sum."""

    name: str
    values: Vector
    sensitivity: float


class Problem(ABC):
    """A model as a function of noisy numbers, and a risk to judge it by; curator-only.

    All ``parts`` get noise, each from an equal share of a level. ``best`` is the model of least
    risk within ``radius``, ``unit`` converts models to the units of the features, and one record
    moves the excess risk of a fixed model by at most ``excess_sensitivity``.
    """

    mechanism: ClassVar[str]
    block: ClassVar[int] = 1  # how many models are judged at a time
    parts: tuple[Part, ...]
    best: Vector
    unit: float
    excess_sensitivity: float
    bounds: tuple[str, ...]  # what was done to the records, in sentences

    def __init__(self, shape: tuple[int, int], *, penalty: float, radius: float) -> None:
        self.n_records, self.n_features = shape
        if self.n_records == 0:
            raise DataError("X must have at least one row. Pass one row for each record.")
        self.penalty, self.radius = penalty, radius

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            *self.bounds,
            f"Models have a length of at most {self.radius:.6g} in scaled units, a public number; "
            "excess risk is over the best of these.",
            "The number of records is public.",
        )

    def model(self, noisy: tuple[Vector, ...]) -> Vector:
        """Return the model of noisy parts; by default a noisy optimum, shrunk to the radius."""
        length = float(np.linalg.norm(noisy[0]))
        return noisy[0] * (self.radius / length) if length > self.radius else noisy[0]

    @abstractmethod
    def excess_risk(self, models: Matrix) -> Vector:
        """Return the risk of each row above the least risk within the radius; never released."""

    @abstractmethod
    def theory_epsilon(self, alpha: float) -> float:
        """Return the ``ε`` at which the expected excess risk is at most ``alpha``, by theorem."""


class RidgeProblem(Problem):
    """Noise on the sums of clipped rows (claims AF-8 and DP-17); curator-only."""

    mechanism = "ridge regression from perturbed sums"

    def __init__(self, X: Any, y: Any, *, penalty: float, x_bound: float, y_bound: float) -> None:
        features, target = records.read_regression_records(X, y)
        super().__init__(features.shape, penalty=penalty, radius=0.5 / math.sqrt(penalty))
        rows = records.shrink_rows(features, x_bound, order=1) / x_bound
        values = np.clip(target / y_bound, -1.0, 1.0)
        gram, products = rows.T @ rows, rows.T @ values
        self._upper = np.triu_indices(self.n_features)
        # An entry off the diagonal counts twice, so that the sum of all is (Σ|x_i|)².
        self._weights = np.where(self._upper[0] == self._upper[1], 1.0, 2.0)
        # Rounding moves all entries of a sum over n rows together by at most n² 2^-53.
        sensitivity = 2.0 + 4.0 * float(self.n_records) ** 2 * 2.0**-53
        moments = self._weights * gram[self._upper]
        self.parts = (
            Part("moments", moments, sensitivity),
            Part("products", products, sensitivity),
        )
        # The loss of one record is at most (1 + R)²/2, for the model and for the best one.
        self.excess_sensitivity = (1.0 + self.radius) ** 2 / self.n_records
        self.bounds = (
            f"Rows are shrunk to absolute sum {x_bound:g}, targets clipped to {y_bound:g}; both "
            "bounds were fixed without looking at the data.",
            records.EMPTY_RECORDS,
        )
        self.unit = float(y_bound) / float(x_bound)
        self._risk = gram / self.n_records + penalty * np.eye(self.n_features)
        pull = products / self.n_records
        self.best = solve_trust_region(self._risk, pull, radius=self.radius)
        self._slope = self._risk @ self.best - pull  # zero, unless the best is on the sphere

    def model(self, noisy: tuple[Vector, ...]) -> Vector:
        """Minimise the perturbed risk over the ball that holds the solution."""
        moments, products = noisy
        matrix = np.zeros((self.n_features, self.n_features))
        matrix[self._upper] = moments / (self._weights * self.n_records)
        matrix += np.triu(matrix, 1).T + self.penalty * np.eye(self.n_features)
        return solve_trust_region(matrix, products / self.n_records, radius=self.radius)

    def excess_risk(self, models: Matrix) -> Vector:
        away = models - self.best
        curved = 0.5 * np.einsum("ki,ij,kj->k", away, self._risk, away)
        return np.asarray(curved + away @ self._slope)

    def theory_epsilon(self, alpha: float) -> float:
        products = 2.0 * self.radius * math.sqrt(self.n_features)
        moments = self.radius**2 * 0.5 * math.sqrt(self.n_features * (self.n_features + 3))
        return 4.0 * math.sqrt(2.0) * (products + moments) / (self.n_records * alpha)


class LogisticProblem(Problem):
    """Noise on the optimum for clipped rows (claims AF-9 and DP-17); curator-only."""

    block = 16
    mechanism = "logistic regression, perturbed optimum"

    def __init__(self, X: Any, y: Any, *, penalty: float, x_bound: float) -> None:
        features = records.read_records(X)
        radius = math.sqrt(LARGEST_PULL / penalty)
        super().__init__(features.shape, penalty=penalty, radius=radius)
        signs = records.encode_record_signs(y, (-1, 1), len(features))
        signed = records.shrink_rows(features, x_bound) * (signs / x_bound)[:, None]
        # Equal rows are summed once; real tables have many.
        self._rows, counts = np.unique(signed, axis=0, return_counts=True)
        self._weights = counts / self.n_records
        self.unit = 1.0 / float(x_bound)
        zeros = np.zeros(self.n_features)
        optimum, _ = minimise_perturbed(
            signed, penalty=penalty * self.n_records, tilt=zeros, x_bound=1.0
        )
        self.best = self.model((optimum,))
        self._least_risk = float(self._risk(self.best[None, :])[0])
        #: How far one record moves the exact optimum, in absolute sum.
        self.reach = 2.0 * math.sqrt(self.n_features) / (self.n_records * penalty)
        self.parts = (Part("coefficients", self.best, self.reach * (1.0 + 2.0 * TOLERANCE)),)
        # The loss ranges over ln((1 + e^M)/(1 + e^-M)) = M for models of length M.
        self.excess_sensitivity = 2.0 * self.radius / self.n_records
        self.bounds = (
            f"Rows are shrunk to length {float(x_bound):g}, which was fixed without looking at the "
            "data; labels are -1 or 1.",
            records.EMPTY_RECORDS,
            SOLVER,
        )

    def excess_risk(self, models: Matrix) -> Vector:
        return np.asarray(self._risk(models) - self._least_risk)

    def theory_epsilon(self, alpha: float) -> float:
        # The root of 2 sqrt(2) p/(nλε) + 4 p²/(n²λε²) = α: what the loss gains, and the penalty.
        reach = self.n_features / (self.n_records * self.penalty)
        linear, squared = 2.0 * math.sqrt(2.0) * reach, 4.0 * self.penalty * reach**2
        return (linear + math.sqrt(linear**2 + 4.0 * alpha * squared)) / (2.0 * alpha)

    def _risk(self, models: Matrix) -> Vector:
        margins = self._rows @ models.T
        # ln(1 + e^-m) for either sign of m; several times faster than logaddexp.
        losses = np.log(1.0 + np.exp(-np.abs(margins))) + np.maximum(-margins, 0.0)
        return np.asarray(
            self._weights @ losses + 0.5 * self.penalty * np.square(models).sum(axis=1)
        )


class RidgeOptimumProblem(RidgeProblem):
    """Noise on the ridge solution for clipped rows (claim AF-11); curator-only."""

    mechanism = "ridge regression, perturbed optimum"

    def __init__(self, X: Any, y: Any, *, penalty: float, x_bound: float, y_bound: float) -> None:
        super().__init__(X, y, penalty=penalty, x_bound=x_bound, y_bound=y_bound)
        #: How far one record moves the exact optimum, in absolute sum.
        self.reach = (self.radius + 2.0) * math.sqrt(self.n_features) / (self.n_records * penalty)
        # What float64 adds to the sums, and to the solution of a system of this condition.
        rounding = 1.0 + 2e-6 + 4.0 * float(self.n_records) ** 2 * 2.0**-53
        self.parts = (Part("coefficients", self.best, self.reach * rounding),)

    model = Problem.model  # the optimum itself gets the noise

    def theory_epsilon(self, alpha: float) -> float:
        return self.reach * math.sqrt(self.n_features * (1.0 + self.penalty) / alpha)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchOutcome:
    """Last step of a search; every field is public.

    The tests and the releases cost ``test_epsilon`` and ``level_epsilon``, together the ex-post
    loss; ``most_epsilon`` is the cost of the last level, known before the start. A model
    that was not ``accepted`` is that of the last level, untested.
    """

    model: Vector
    level: int = 1
    n_levels: int = 1
    test_epsilon: float = 0.0
    level_epsilon: float
    most_epsilon: float
    accepted: bool = False
    noise: dict[str, float]

    def __post_init__(self) -> None:
        freeze(self.model)

    @property
    def epsilon(self) -> float:
        """The ex-post privacy loss."""
        return self.test_epsilon + self.level_epsilon


class SearchCandidates:
    """The models of all levels, noisiest first, and their excess risks; curator-only."""

    def __init__(self, problem: Problem, *, alpha: float, n_levels: int, source: BitSource) -> None:
        self.problem = problem
        self.levels = geometric_levels(
            1.0 / problem.n_records, 4.0 * problem.theory_epsilon(alpha), n_levels
        )
        shares = self.levels / len(problem.parts)
        self._noisy = [
            NoisyLevels(part.values, sensitivity=part.sensitivity, epsilons=shares, source=source)
            for part in problem.parts
        ]
        self._models: list[Vector] = []
        self._excess: list[float] = []

    def model(self, level: int) -> Vector:
        return self._models[level].copy()

    def excess_risk(self, level: int) -> float:
        """Return the excess risk of a level; compute more levels if needed."""
        while level >= len(self._excess):
            n_models = min(self.problem.block, len(self.levels) - len(self._excess))
            models = [
                self.problem.model(tuple(part.refine() for part in self._noisy))
                for _ in range(n_models)
            ]
            self._models += models
            self._excess += self.problem.excess_risk(np.array(models)).tolist()
        return self._excess[level]

    def noise_scales(self, level: int) -> dict[str, float]:
        parts = zip(self.problem.parts, self._noisy, strict=True)
        return {part.name: noisy.noise_scale(level) for part, noisy in parts}


def search_by_reduction(
    candidates: SearchCandidates,
    *,
    alpha: float,
    gamma: float,
    calibration: Calibration,
    source: BitSource,
) -> SearchOutcome:
    """Lower the noise until the excess risk passes AboveThreshold (claims AF-4 and AF-5)."""
    n_levels, reach = len(candidates.levels), candidates.problem.excess_sensitivity
    plan = plan_threshold(
        alpha, gamma=gamma, n_levels=n_levels, sensitivity=reach, calibration=calibration
    )
    search = InteractiveAboveThreshold(
        threshold=plan.threshold, sensitivity=reach, epsilon=plan.epsilon, source=source
    )
    level = 0
    while not search.ask(-candidates.excess_risk(level)) and level < n_levels - 1:
        level += 1
    threshold_scale, query_scale = search.noise_scales
    tests = {"threshold": threshold_scale, "queries": query_scale}
    return SearchOutcome(
        model=candidates.model(level),
        level=level + 1,
        n_levels=n_levels,
        test_epsilon=plan.epsilon,
        level_epsilon=float(candidates.levels[level]),
        most_epsilon=plan.epsilon + float(candidates.levels[-1]),
        accepted=search.is_over,
        noise=candidates.noise_scales(level) | tests,
    )


def search_by_doubling(
    problem: Problem, *, alpha: float, gamma: float, source: BitSource
) -> SearchOutcome:
    """Release afresh at twice the level until a noisy test is passed (claim AF-7)."""
    levels = doubling_levels(1.0 / problem.n_records, 4.0 * problem.theory_epsilon(alpha))
    reach, first, n_levels = problem.excess_sensitivity, float(levels[0]), len(levels)
    test_epsilon = 2.0 * reach * math.log(n_levels / gamma) / alpha
    for step, level in enumerate(levels, start=1):
        one = search_by_theory(problem, epsilon=float(level), source=source)
        test = add_laplace(
            float(problem.excess_risk(one.model[None, :])[0]),
            sensitivity=reach * FLOAT_MARGIN,
            epsilon=test_epsilon,
            source=source,
        )
        accepted = bool(test.values <= 0.5 * alpha)
        if accepted or step == n_levels:
            break

    def loss(steps: int) -> float:
        return search_by_doubling_loss(
            steps, first=first, sensitivity=reach, n_steps=n_levels, alpha=alpha, gamma=gamma
        )

    spent = (2.0**step - 1.0) * first
    return SearchOutcome(
        model=one.model,
        level=step,
        n_levels=n_levels,
        test_epsilon=loss(step) - spent,
        level_epsilon=spent,
        most_epsilon=loss(n_levels),
        accepted=accepted,
        noise=one.noise | {"tests": test.noise_scale},
    )


def search_by_doubling_loss(
    step: int, *, first: float, sensitivity: float, n_steps: int, alpha: float, gamma: float
) -> float:
    """Return the ex-post loss of the doubling method that stops at ``step`` (1, 2, ...)."""
    tests = 2.0 * step * sensitivity * math.log(n_steps / gamma) / alpha
    return tests + (2.0**step - 1.0) * first


def search_by_theory(problem: Problem, *, epsilon: float, source: BitSource) -> SearchOutcome:
    """Release once, at the level that a utility theorem demands; nothing is tested."""
    share = epsilon / len(problem.parts)
    noisy = [
        add_laplace(part.values, sensitivity=part.sensitivity, epsilon=share, source=source)
        for part in problem.parts
    ]
    parts = zip(problem.parts, noisy, strict=True)
    return SearchOutcome(
        model=problem.model(tuple(perturbed.values for perturbed in noisy)),
        level_epsilon=epsilon,
        most_epsilon=epsilon,
        noise={part.name: perturbed.noise_scale for part, perturbed in parts},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(ABC):
    """Options and searches of :class:`CovNR` and :class:`OutputNR`."""

    alpha: float
    penalty: float
    x_bound: float
    gamma: float = 0.1
    neighbours: Literal["replace"] = "replace"
    n_levels: int = 1000
    calibration: Calibration = "tight"
    y_bound: float | None = None

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha, advice="Use the excess risk that you can bear.")
        check_positive("penalty", self.penalty, advice="Use about 0.01.")
        check_positive("x_bound", self.x_bound, advice="Use a length that rows rarely exceed.")
        check_gamma(self.gamma)
        if self.neighbours != "replace":
            raise BudgetError(
                f"neighbours must be 'replace'; got {self.neighbours!r}. These methods treat the "
                "number of records as public, so a record can be exchanged but not added."
            )
        if self.n_levels < 2:
            raise BudgetError(f"n_levels must be at least 2; got {self.n_levels}. Use 1000.")
        if self.y_bound is not None:
            check_positive("y_bound", self.y_bound, advice="Use what targets rarely exceed.")

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
        """Return the coefficients, in the units of ``X`` and ``y``, and their cost.

        ``"reduction"`` lowers the noise of one release until a test is passed, ``"doubling"``
        releases afresh with twice the ``ε`` until one is, and ``"theory"`` releases once, with the
        ``ε`` that the utility theorem demands: ordinary differential privacy, without a test.

        Guarantee
        ---------
        Claims AF-4 and AF-5; AF-7 for doubling, AF-8 and AF-9 for theory.
        """
        if search not in SEARCHES:
            raise MechanismError(
                f"search must be one of {', '.join(SEARCHES)}; got {search!r}. Leave it out."
            )
        problem, source = self.prepare(X, y), dp_noise_source(simulate)
        alpha, gamma = self.alpha, self.gamma
        if search == "theory":
            epsilon = problem.theory_epsilon(alpha)
            outcome = search_by_theory(problem, epsilon=epsilon, source=source)
        elif search == "doubling":
            outcome = search_by_doubling(problem, alpha=alpha, gamma=gamma, source=source)
        else:
            candidates = SearchCandidates(
                problem, alpha=alpha, n_levels=self.n_levels, source=source
            )
            outcome = search_by_reduction(
                candidates, alpha=alpha, gamma=gamma, calibration=self.calibration, source=source
            )
        rounded = 1 + 2.0**-50  # the sums were rounded a few times
        tests = {} if search == "theory" else {"tests": outcome.test_epsilon}
        return publish_event(
            outcome.model * problem.unit,
            (outcome.epsilon * rounded, 0.0, "replace"),
            PureEvent(epsilon=outcome.most_epsilon * rounded),
            simulation=source.is_simulation,
            kind="dp-ex-post" if tests else "dp",
            mechanism=f"{problem.mechanism}, {SEARCHES[search]}",
            assumptions=problem.assumptions,
            accounting={
                "level": f"{outcome.level} of {outcome.n_levels}",
                "releases": outcome.level_epsilon,
                **tests,
            },
            noise=outcome.noise,
            notes=(self._note(outcome, tested=bool(tests)),),
        )

    def _note(self, outcome: SearchOutcome, *, tested: bool) -> str:
        goal = f"excess risk of at most {self.alpha:g}"
        if not tested:
            return f"A theorem promises an {goal}, on average; nothing was tested on these data."
        where = f"level {outcome.level} of {outcome.n_levels}"
        if outcome.accepted:
            return f"Stopped at {where}: {goal}, except with probability {self.gamma:g}."
        return f"No test was passed: the last level, {where}, was released; {goal} was NOT reached."


@dataclass(frozen=True, slots=True, kw_only=True)
class CovNR(Method):
    """Ridge regression: :class:`OutputNR`, but with the noise on ``XᵀX`` and ``Xᵀy``.

    The risk is ``1/2n |y - Xθ|² + λ/2 |θ|²`` of rows divided by ``x_bound``, a sum of absolute
    entries, and targets divided by ``y_bound``; ``alpha`` and ``penalty`` are in these units.

    Guarantee
    ---------
    Claims AF-4, AF-5 and AF-8, as of :class:`OutputNR`.
    """

    y_bound: float

    def prepare(self, X: Any, y: Any) -> RidgeProblem:
        return RidgeProblem(X, y, penalty=self.penalty, x_bound=self.x_bound, y_bound=self.y_bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputNR(Method):
    """Strongly convex risks: lower the noise on the optimum until the risk is good.

    Logistic regression, ``1/n Σ ln(1 + exp(-y θ·x)) + λ/2 |θ|²`` of rows divided by ``x_bound``; or
    the ridge regression of :class:`CovNR`, if ``y_bound`` is given.

    Parameters
    ----------
    alpha, penalty : float > 0, public
        Excess risk that is required, and ``λ``.
    gamma : float in (0, 1), public
        Probability with which the accuracy may be missed.
    neighbours : {"replace"}, public
        Relation that the promise is about; the number of records is public.
    n_levels : int, public
        Levels from ``1/n`` to four times what the theorem demands.
    calibration : {"tight", "theorem"}, public
        How the test is calibrated; see :func:`plan_threshold`.
    y_bound : float > 0, public, optional
        Targets are numbers, clipped to it, and not labels.

    Guarantee
    ---------
    Claims AF-4, AF-5, AF-9 and AF-11. The ex-post loss is in the certificate; with probability
    ``1 - gamma`` a model that was accepted has excess risk at most ``alpha``.
    """

    def prepare(self, X: Any, y: Any) -> Problem:
        if self.y_bound is None:
            return LogisticProblem(X, y, penalty=self.penalty, x_bound=self.x_bound)
        return RidgeOptimumProblem(
            X, y, penalty=self.penalty, x_bound=self.x_bound, y_bound=self.y_bound
        )
