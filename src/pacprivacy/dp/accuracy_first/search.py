"""Search the least privacy loss that meets an accuracy: noise reduction, doubling, theory.

A *method* is what a user asks for: a model, its bounds, an accuracy. On data it becomes a
*problem*: numbers that are perturbed, and a risk to judge models by. The searches know nothing
else of either.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from pacprivacy._checks import Vector, check_positive, freeze
from pacprivacy._random import BitSource
from pacprivacy.dp import DPRelease
from pacprivacy.dp.accuracy_first import noise_levels
from pacprivacy.dp.accuracy_first.problems import LogisticProblem, Problem, RidgeProblem
from pacprivacy.dp.events import publish_event
from pacprivacy.dp.noise import add_laplace, check_epsilon_delta, dp_noise_source
from pacprivacy.errors import BudgetError, MechanismError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchOutcome:
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


class SearchCandidates:
    """The models of all levels, noisiest first, and their excess risks; curator-only."""

    def __init__(
        self,
        problem: Problem,
        *,
        alpha: float,
        n_levels: int,
        source: BitSource,
        delta: float = 0.0,
    ) -> None:
        self.problem = problem
        self.levels = noise_levels.geometric_levels(
            1.0 / problem.n_records, 4.0 * problem.theory_epsilon(alpha), n_levels
        )
        self._share = share = 1.0 / len(problem.parts)
        self._noisy = [
            noise_levels.draw_levels(
                part.values,
                sensitivity=part.length if delta else part.sensitivity,
                epsilons=share * self.levels,
                delta=share * delta,
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
        parts = self.problem.parts
        if isinstance(self._noisy[0], noise_levels.BrownianLevels):
            scales = [noisy.noise_scale(level) for noisy in self._noisy]
        else:
            scales = [part.sensitivity / (self._share * self.levels[level]) for part in parts]
        return {part.name: float(scale) for part, scale in zip(parts, scales, strict=True)}


def search_by_reduction(
    candidates: SearchCandidates,
    *,
    alpha: float,
    gamma: float,
    calibration: noise_levels.Calibration,
    source: BitSource,
) -> SearchOutcome:
    """Lower the noise until the excess risk passes AboveThreshold (claims AF-4 and AF-5)."""
    n_levels, reach = len(candidates.levels), candidates.problem.excess_sensitivity
    plan = noise_levels.plan_threshold(
        alpha, gamma=gamma, n_levels=n_levels, sensitivity=reach, calibration=calibration
    )
    search = noise_levels.InteractiveAboveThreshold(
        threshold=plan.threshold, sensitivity=reach, epsilon=plan.epsilon, source=source
    )
    level = 0
    while not search.ask(-candidates.excess_risk(level)) and level < n_levels - 1:
        level += 1
    threshold_scale, query_scale = search.noise_scales
    return SearchOutcome(
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


def search_by_doubling(
    problem: Problem, *, alpha: float, gamma: float, source: BitSource
) -> SearchOutcome:
    """Release afresh at twice the level until a noisy test is passed (claim AF-7)."""
    levels = noise_levels.doubling_levels(
        1.0 / problem.n_records, 4.0 * problem.theory_epsilon(alpha)
    )
    reach, first = problem.excess_sensitivity, float(levels[0])
    test_epsilon = 2.0 * reach * math.log(len(levels) / gamma) / alpha
    for step, level in enumerate(levels, start=1):
        model, scales = _release_once(problem, float(level), source)
        excess = float(problem.excess_risk(model[None, :])[0])
        test = add_laplace(
            excess,
            sensitivity=reach * noise_levels.FLOAT_MARGIN,
            epsilon=test_epsilon,
            source=source,
        )
        accepted = bool(test.values <= 0.5 * alpha)
        if accepted or step == len(levels):
            break
    total, most = (
        search_by_doubling_loss(
            steps, first=first, sensitivity=reach, n_steps=len(levels), alpha=alpha, gamma=gamma
        )
        for steps in (step, len(levels))
    )
    spent = (2.0**step - 1.0) * first
    return SearchOutcome(
        model=model,
        level=step,
        n_levels=len(levels),
        test_epsilon=total - spent,
        level_epsilon=spent,
        most_epsilon=most,
        accepted=accepted,
        noise={**scales, "tests": test.noise_scale},
    )


def search_by_doubling_loss(
    step: int, *, first: float, sensitivity: float, n_steps: int, alpha: float, gamma: float
) -> float:
    """Return the ex-post loss of the doubling method that stops at ``step`` (1, 2, ...)."""
    tests = 2.0 * step * sensitivity * math.log(n_steps / gamma) / alpha
    return tests + (2.0**step - 1.0) * first


def search_by_theory(problem: Problem, *, epsilon: float, source: BitSource) -> SearchOutcome:
    """Release once, at the level that a utility theorem demands; nothing is tested."""
    model, scales = _release_once(problem, epsilon, source)
    return SearchOutcome(
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
        part.name: perturbed.noise_scale
        for part, perturbed in zip(problem.parts, noisy, strict=True)
    }
    return problem.model(tuple(perturbed.values for perturbed in noisy)), scales


Search = Literal["reduction", "doubling", "theory"]


SEARCHES: Final[dict[Search, str]] = {
    "reduction": "noise reduction",
    "doubling": "doubling",
    "theory": "theory inversion",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(ABC):
    """What is asked for, and the search by noise reduction; see :class:`OutputNR`."""

    alpha: float
    penalty: float
    x_bound: float
    gamma: float = 0.1
    neighbours: Literal["replace"] = "replace"
    n_levels: int = 1000
    calibration: noise_levels.Calibration = "tight"
    radius: float | None = None
    delta: float = 0.0

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
        if self.delta:
            check_epsilon_delta(1.0, self.delta)
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

        ``"reduction"`` lowers the noise of one release until a test is passed, ``"doubling"``
        releases afresh with twice the ``ε`` until one is, and ``"theory"`` releases once, with the
        ``ε`` that the utility theorem demands: ordinary differential privacy, without a test.

        Guarantee
        ---------
        Claims AF-4 and AF-5; AF-7 for doubling, AF-8 and AF-9 for theory, AF-10 for ``delta``.
        """
        if search not in SEARCHES:
            raise MechanismError(
                f"search must be one of {', '.join(SEARCHES)}; got {search!r}. Leave it out."
            )
        if self.delta and search != "reduction":
            raise MechanismError(
                f"search must be 'reduction' with a delta; got {search!r}. Leave out one of them."
            )
        problem, source = self.prepare(X, y), dp_noise_source(simulate)
        if search == "theory":
            epsilon = problem.theory_epsilon(self.alpha)
            outcome = search_by_theory(problem, epsilon=epsilon, source=source)
        elif search == "doubling":
            outcome = search_by_doubling(problem, alpha=self.alpha, gamma=self.gamma, source=source)
        else:
            outcome = search_by_reduction(
                SearchCandidates(
                    problem,
                    alpha=self.alpha,
                    n_levels=self.n_levels,
                    source=source,
                    delta=self.delta,
                ),
                alpha=self.alpha,
                gamma=self.gamma,
                calibration=self.calibration,
                source=source,
            )
        return self._publish(problem, outcome, search, source)

    def _publish(
        self, problem: Problem, outcome: SearchOutcome, search: Search, source: BitSource
    ) -> DPRelease:
        """Return the model with the certificate of what it cost."""
        tested = search != "theory"
        accounting: dict[str, Any] = {
            "level": f"{outcome.level} of {outcome.n_levels}",
            "releases": outcome.level_epsilon,
        }
        if tested:
            accounting["tests"] = outcome.test_epsilon
        rounded = 1 + 2.0**-50  # the sums were rounded a few times
        return publish_event(
            problem.coefficients(outcome.model),
            (outcome.epsilon * rounded, self.delta, "replace"),
            noise_levels.noise_level_event(outcome.most_epsilon * rounded, self.delta),
            simulation=source.is_simulation,
            kind="dp-ex-post" if tested else "dp",
            mechanism=f"{problem.mechanism}, {SEARCHES[search]}"
            + (" with Gaussian noise" if self.delta else ""),
            assumptions=problem.assumptions,
            accounting=accounting,
            noise=outcome.noise,
            notes=(self._note(outcome, tested=tested), *noise_levels.noise_level_notes(self.delta)),
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
    Claims AF-4, AF-5, AF-8 and AF-10, as of :class:`OutputNR`.
    """

    y_bound: float

    def __post_init__(self) -> None:
        Method.__post_init__(self)
        check_positive("y_bound", self.y_bound, advice="Use a value that targets rarely exceed.")

    def prepare(self, X: Any, y: Any) -> RidgeProblem:
        """Return the sums of the clipped data; curator-only."""
        return RidgeProblem(
            X,
            y,
            penalty=self.penalty,
            x_bound=self.x_bound,
            y_bound=self.y_bound,
            radius=self.radius,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputNR(Method):
    """Regularised logistic regression: lower the noise on the optimum until the risk is good.

    The risk is ``1/n Σ ln(1 + exp(-y θ·x)) + λ/2 |θ|²`` of rows divided by ``x_bound``.

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
    radius : float > 0, optional, public
        Length within which models are sought, by default what the penalty implies. A smaller one
        makes the test cheaper; excess risk is over the best model of at most this length.
    delta : float in [0, 1), public
        Above 0, the noise is Gaussian: less for more than about ``ln(1/δ)`` features. The loss is
        above what the certificate says with at most this probability.

    Guarantee
    ---------
    Claims AF-4, AF-5, AF-9 and AF-10. The ex-post loss is in the certificate; with probability
    ``1 - gamma`` a model that was accepted has excess risk at most ``alpha``.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-0.7, 0.7, size=(20_000, 2))
    >>> method = OutputNR(alpha=0.1, penalty=0.01, x_bound=1.0, n_levels=100)
    >>> release = method.release(X, np.where(X[:, 0] > 0, 1, -1), simulate=0)
    >>> release.value.shape, release.certificate.kind
    ((2,), 'dp-ex-post')
    """

    def prepare(self, X: Any, y: Any) -> LogisticProblem:
        """Return the optimum on the clipped data; curator-only."""
        return LogisticProblem(X, y, penalty=self.penalty, x_bound=self.x_bound, radius=self.radius)
