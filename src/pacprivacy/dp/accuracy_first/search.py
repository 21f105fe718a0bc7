"""Search the least privacy loss that meets an accuracy: noise reduction, doubling, theory."""

from __future__ import annotations

import math

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._random import BitSource
from pacprivacy.dp import PureEvent, add_laplace, carried
from pacprivacy.dp.accuracy_first.above_threshold import (
    FLOAT_MARGIN,
    Calibration,
    InteractiveAboveThreshold,
    plan_threshold,
)
from pacprivacy.dp.accuracy_first.levels import doubling_levels, geometric_levels
from pacprivacy.dp.accuracy_first.noise_reduction import NoisyLevels
from pacprivacy.dp.accuracy_first.problem import Found, Problem
from pacprivacy.dp.accuracy_first.theory import doubling_loss
from pacprivacy.dp.certificate import DPCertificate, DPRelease


class Candidates:
    """The models of all levels, noisiest first, and their excess risks; curator-only.

    Levels are worked out when they are asked for, a few at a time; what is not released never
    leaves.
    """

    def __init__(self, problem: Problem, *, alpha: float, n_levels: int, source: BitSource) -> None:
        self.problem = problem
        self.levels = geometric_levels(
            1.0 / problem.n_records, 4.0 * problem.theory_epsilon(alpha), n_levels
        )
        self._share = 1.0 / len(problem.parts)
        self._noisy = [
            NoisyLevels(
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
    calibration: Calibration,
    source: BitSource,
) -> Found:
    """Lower the noise until the excess risk passes AboveThreshold.

    Guarantee
    ---------
    Claims AF-4 and AF-5. The ex-post loss is that of the test plus that of the level reached.
    """
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
    levels = doubling_levels(1.0 / problem.n_records, 4.0 * problem.theory_epsilon(alpha))
    reach, first = problem.excess_sensitivity, float(levels[0])
    test_epsilon = 2.0 * reach * math.log(len(levels) / gamma) / alpha
    for step, level in enumerate(levels, start=1):
        model, scales = _release_once(problem, float(level), source)
        excess = float(problem.excess_risk(model[None, :])[0])
        test = add_laplace(
            excess, sensitivity=reach * FLOAT_MARGIN, epsilon=test_epsilon, source=source
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


def as_release(
    problem: Problem, found: Found, *, alpha: float, gamma: float, method: str, simulation: bool
) -> DPRelease:
    """Return the model with the certificate of what it cost."""
    tested = method != "theory inversion"
    accounting = {"level": f"{found.level} of {found.n_levels}", "releases": found.level_epsilon}
    if tested:
        accounting["tests"] = found.test_epsilon
    certificate = DPCertificate(
        kind="dp-ex-post" if tested else "dp",
        epsilon=found.epsilon * (1 + 2.0**-50),  # the sums were rounded a few times
        delta=0.0,
        neighbours="replace",
        mechanism=f"{problem.mechanism}, {method}",
        assumptions=(*problem.assumptions, "The number of records is public."),
        accounting=accounting,
        noise=found.noise,
        events=carried(PureEvent(epsilon=found.most_epsilon * (1 + 2.0**-50))),
        notes=(_note(found, alpha, gamma, tested=tested),),
        simulation=simulation,
    )
    return DPRelease(value=problem.coefficients(found.model), certificate=certificate)


def _note(found: Found, alpha: float, gamma: float, *, tested: bool) -> str:
    goal = f"excess risk of at most {alpha:g}"
    if not tested:
        return f"A theorem promises an {goal}, on average; nothing was tested on these data."
    where = f"level {found.level} of {found.n_levels}"
    if found.accepted:
        return f"Stopped at {where}: {goal}, except with probability {gamma:g}."
    return f"No test was passed: the last level, {where}, was released; {goal} was NOT reached."
