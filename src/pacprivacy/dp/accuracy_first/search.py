"""Search the least privacy loss that meets an accuracy: noise reduction, doubling, theory.

A *method* is what a user asks for: a model, its bounds, an accuracy. On data it becomes a
*problem*: numbers that are perturbed, and a risk to judge models by. The searches know nothing
else of either.
"""

import math
from dataclasses import dataclass

import numpy as np

from pacprivacy._checks import Vector, freeze
from pacprivacy._random import BitSource
from pacprivacy.dp.accuracy_first import noise_levels, threshold
from pacprivacy.dp.accuracy_first.problems import Problem
from pacprivacy.dp.noise import add_laplace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchFound:
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
    """The models of all levels, noisiest first, and their excess risks; curator-only.

    Levels are worked out when they are asked for, a few at a time; what is not released never
    leaves.
    """

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
    calibration: threshold.Calibration,
    source: BitSource,
) -> SearchFound:
    """Lower the noise until the excess risk passes AboveThreshold.

    Guarantee
    ---------
    Claims AF-4 and AF-5. The ex-post loss is that of the test plus that of the level reached.
    """
    n_levels, reach = len(candidates.levels), candidates.problem.excess_sensitivity
    plan = threshold.plan_threshold(
        alpha, gamma=gamma, n_levels=n_levels, sensitivity=reach, calibration=calibration
    )
    search = threshold.InteractiveAboveThreshold(
        threshold=plan.threshold, sensitivity=reach, epsilon=plan.epsilon, source=source
    )
    level = 0
    while not search.ask(-candidates.excess_risk(level)) and level < n_levels - 1:
        level += 1
    threshold_scale, query_scale = search.noise_scales
    return SearchFound(
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
) -> SearchFound:
    """Release afresh at twice the level, with a noisy test each time; the losses add up.

    Guarantee
    ---------
    Claim AF-7.
    """
    levels = noise_levels.doubling_levels(
        1.0 / problem.n_records, 4.0 * problem.theory_epsilon(alpha)
    )
    reach, first = problem.excess_sensitivity, float(levels[0])
    test_epsilon = 2.0 * reach * math.log(len(levels) / gamma) / alpha
    for step, level in enumerate(levels, start=1):
        model, scales = _release_once(problem, float(level), source)
        excess = float(problem.excess_risk(model[None, :])[0])
        test = add_laplace(
            excess, sensitivity=reach * threshold.FLOAT_MARGIN, epsilon=test_epsilon, source=source
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
    return SearchFound(
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
    """Return the ex-post loss of the doubling method that stops at ``step`` (1, 2, ...).

    ``2 k Δ ln(T/γ)/α`` for ``k`` noisy tests, ``(2^k - 1) ε_1`` for ``k`` independent releases.
    """
    tests = 2.0 * step * sensitivity * math.log(n_steps / gamma) / alpha
    return tests + (2.0**step - 1.0) * first


def search_by_theory(problem: Problem, *, epsilon: float, source: BitSource) -> SearchFound:
    """Release once, at the level that a utility theorem demands; nothing is tested."""
    model, scales = _release_once(problem, epsilon, source)
    return SearchFound(
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
