"""From a promising shape to a certified plan: scale it, then prove it on fresh draws.

The scale is searched with common random numbers, with room for the width of the interval. The
proof uses fresh draws; when it fails, the noise grows and a fresh share of the failure probability
is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from pacprivacy._checks import Vector
from pacprivacy._random import public_generator
from pacprivacy.adversary import (
    Heat,
    MembershipRisk,
    View,
    ViewTilts,
    advantage_room,
    exact_information,
    has_line_advantage,
    heat_charges,
    heat_draws,
    heat_room,
    make_view,
    membership_risk,
)
from pacprivacy.errors import BudgetError
from pacprivacy.noise.plan import (
    NoisePlan,
    PlanProblem,
    Spread,
    log_det_of_plan,
    log_det_of_points,
    make_plan,
)
from pacprivacy.noise.shapes import (
    COARSE_DRAWS,
    SAFETY_MARGIN_SD,
    RiskShapeProbe,
    Shape,
    ShapeProbe,
    risk_shape_probe,
    shape_scale,
)
from pacprivacy.sample import Pool
from pacprivacy.theory import Estimate, empirical_bernstein

Claim: TypeAlias = Literal["information", "membership", "charges"]

INFORMATION_COST = 8 * 10**8  # posterior entries in one verification
POSTERIOR_COST = 10**8  # posterior entries in one verification of membership
FEW_SUBSETS = 64  # a draw among fewer candidates costs about as much as among these
INFORMATION_MARGIN = 0.004  # share of the budget that the interval may take, if draws allow
MEMBERSHIP_MARGIN = 0.005
HEAT_COST = 4 * 10**8  # posterior entries in one verification of charges
HEAT_DRAWS = 1 << 18
HEAT_ROOM = 0.01  # of a charge, for the search being on draws too
HEAT_STEP = 0.015  # a failed proof of charges makes the noise this much larger
HEAT_MARGIN = 0.04  # share of a charge that the interval may take, if draws allow
MAX_ATTEMPTS = 20
MAX_TIGHTENINGS = 1
SMALL_GAIN = 2e-3  # a scale that is smaller by less than this is not worth another proof
SMALL_MEMBERSHIP_GAIN = 0.004  # such proofs cost more
SAFE_SHARE = 0.8  # share of the room left by a proof that the next attempt tries to use
SMALLEST_SCALE = 1e-12
LARGEST_RATIO = 2.0**39  # of an output to the noise; the lattice has room for a little more
SCALE_TOLERANCE = 3e-4
SAME_SCALE = 0.1  # logarithm of a scale at which the same units are the worst placed


def prove_shape(
    shape: Scalable, problem: PlanProblem, *, rule: str, notes: tuple[str, ...] = ()
) -> NoisePlan:
    """Return a plan of this shape that provably meets the problem's limits (claim N-5).

    Attempt ``k`` uses ``gamma 2^-k``, so retries are paid for.
    """
    search = _Search(shape, problem)
    effort = search.effort()
    scale = search.smallest(effort)
    best: NoisePlan | None = None
    for attempt in range(1, MAX_ATTEMPTS + 1):
        plan = shape.scaled(scale).plan(problem.spread, rule=rule, notes=notes)
        plan = prove(plan, problem, effort, attempt)
        if not problem.is_met(plan):
            if best is not None:
                return best
            step = (0.005 if problem.heat is None else HEAT_STEP) * 2 ** (attempt // 3)
            scale = max(search.enlarged(scale, plan, effort), scale * (1 + step))
            continue
        best = plan
        tighter = search.tightened(scale, best)
        small = SMALL_GAIN if problem.caps is None else SMALL_MEMBERSHIP_GAIN
        if attempt > MAX_TIGHTENINGS or tighter > scale * (1 - small):
            return best
        scale = tighter
    if best is not None:
        return best
    raise BudgetError(
        f"budget must be provable with {effort.information_draws or effort.membership_draws} "
        f"draws; {MAX_ATTEMPTS} attempts failed. Use a larger budget or fewer units."
    )


def prove(plan: NoisePlan, problem: PlanProblem, effort: Effort, attempt: int) -> NoisePlan:
    """Return the plan with its proved figures; the problem says whether they are enough."""
    view = plan.view(problem.values, problem.log_p)
    plan = replace(plan, log_det_nats=log_det_of_plan(plan, np.exp(problem.log_p)))
    if problem.mi_nats is not None and plan.log_det_nats > problem.mi_nats:
        proof = _proof("information", problem, effort.information_draws, attempt)
        plan = proof.on_plan(plan, view)
    if problem.caps is not None and problem.pool is not None:
        proof = _proof("membership", problem, effort.membership_draws, attempt)
        plan = proof.on_plan(plan, view, problem.pool, problem.caps)
    if problem.heat is not None and problem.pool is not None:
        proof = _proof("charges", problem, effort.membership_draws, attempt)
        plan = proof.on_plan(plan, view, problem.pool, problem.heat)
    return plan


def _proof(
    claim: Claim,
    problem: PlanProblem,
    n_draws: int,
    attempt: int,
) -> Proof:
    return Proof(
        claim=claim,
        stream=f"verify-{claim}",
        seed=problem.seed,
        attempt=attempt,
        n_draws=n_draws,
        gamma=problem.gamma * 2.0**-attempt / max(1, problem.claims),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Number of fresh draws of the proof, and the margin of the proposal for its interval."""

    information_draws: int = 0
    information_room: float = 0.0
    membership_draws: int = 0
    membership_room: float = 0.0


def _draws_for(
    room: float, half_width: Callable[[float, int], float], variance: float, *, most: int
) -> tuple[int, float]:
    """Return the number of draws for half-width ``room``, if affordable, and their half-width."""
    draws = min(8192, most)
    while draws < most and half_width(variance, draws) > room:
        draws = min(2 * draws, most)
    return draws, half_width(1.1 * variance, draws)


class _Search:
    """Scales that should pass, by bisection on common random numbers."""

    def __init__(self, shape: Scalable, problem: PlanProblem) -> None:
        self._shape, self._problem = shape, problem
        self._gamma = problem.gamma / 2 / max(1, problem.claims)  # of the first attempt
        view = self._view = shape.view(problem.spread, problem.log_p)
        coarse = problem.mi_nats is None and problem.heat is None
        self._probe = ShapeProbe(
            view, problem.rng("propose"), n_draws=COARSE_DRAWS if coarse else None
        )
        self._near = 1.0
        farthest = float(np.abs(view.points).max(initial=0.0))
        self._least = max(SMALLEST_SCALE, farthest / LARGEST_RATIO)
        self._risk: RiskShapeProbe | None = None
        if problem.per_unit is not None and problem.pool is not None:
            self._risk = risk_shape_probe(self._probe, ViewTilts(problem.pool), problem.per_unit)
            self._risk.focus(1.0)

    def effort(self) -> Effort:
        """Choose draws so that the interval takes a small share of the budget."""
        problem, view = self._problem, self._view
        gamma, m = self._gamma, view.n_subsets
        info_draws, info_room, risk_draws, risk_room = 0, 0.0, 0, 0.0
        if problem.mi_nats is not None:
            info_draws, info_room = _draws_for(
                INFORMATION_MARGIN * problem.mi_nats,
                partial(empirical_bernstein, width=math.log(m), gamma=gamma / 2),
                self._probe.information(1.0)[1],
                most=max(4096, INFORMATION_COST // max(m, FEW_SUBSETS)),
            )
        variance = 0.0
        if self._risk is not None:
            scale = shape_scale(lambda c: self._excess(c), tolerance=0.02)
            if abs(math.log(scale)) > SAME_SCALE:
                self._risk.focus(scale)
            self._near = shape_scale(lambda c: self._excess(c), start=scale, tolerance=0.02)
            variance = self._risk.excess(self._near)[1]
        if self._risk is not None and problem.heat is not None:
            width = self._risk.width
            if not has_line_advantage(view.scaled(self._near)):
                risk_draws, risk_room = _draws_for(
                    HEAT_MARGIN,
                    partial(heat_room, width=width, gamma=gamma),
                    variance,
                    most=min(HEAT_DRAWS, max(4096, HEAT_COST // max(m, FEW_SUBSETS))),
                )
                risk_room = min(0.5, risk_room + HEAT_ROOM)
            needed = heat_draws(problem.heat, gamma)
            risk_draws = max(risk_draws, min(needed, HEAT_COST // max(m, FEW_SUBSETS)))
        if self._risk is not None and problem.caps is not None and problem.pool is not None:
            priors = np.full(len(problem.caps), 0.5) if problem.priors is None else problem.priors
            room = float((problem.caps - priors).min())
            margin = min(room, max(1 - float(problem.caps.min()), 0.1 * room))  # of a cap near one
            risk_draws, risk_room = _draws_for(
                MEMBERSHIP_MARGIN * margin,
                partial(advantage_room, view.scaled(self._near), problem.pool, gamma=gamma),
                variance,
                most=max(4096, POSTERIOR_COST // max(m, FEW_SUBSETS)),
            )
            if not self._has_grid(self._near):
                risk_room += 2 * math.sqrt(variance / risk_draws)  # the draws may be unlucky
            risk_room = min(risk_room, 0.5 * room)
        return Effort(
            information_draws=info_draws,
            information_room=info_room,
            membership_draws=risk_draws,
            membership_room=risk_room,
        )

    def smallest(self, effort: Effort) -> float:
        """Return the smallest scale at which every limit holds with the room that a proof needs."""
        scale = self._least
        if self._problem.mi_nats is not None:
            room = effort.information_room
            scale = max(scale, self._information_scale(self._problem.mi_nats, room))
        if self._risk is not None:
            room = effort.membership_room
            start = self._near
            if self._problem.heat is not None:  # charges come in steps: end just above the least
                start = shape_scale(lambda c: self._excess(c) + room, start=start, tolerance=0.01)
            needed = shape_scale(lambda c: self._excess(c) + room, start=start)
            scale = max(scale, needed)
        return scale

    def enlarged(self, scale: float, failed: NoisePlan, effort: Effort) -> float:
        """Return the smallest scale for the worst-placed units of the proof."""
        shown, caps = scale, self._problem.caps
        if self._risk is not None and failed.membership is not None and caps is not None:
            here, variance = self._risk.excess(scale)
            over = float((failed.membership.per_unit - caps).max())
            if over > 0:
                if not self._has_grid(scale):
                    over += SAFETY_MARGIN_SD * math.sqrt(variance / effort.membership_draws)
                shown = shape_scale(lambda c: self._excess(c) - here + over, start=scale)
            self._risk.look_at(2 * failed.membership.per_unit - 1)
        if self._risk is not None and failed.charges is not None:
            self._risk.look_at(np.sqrt(np.minimum(failed.charges, 1.0)))
        return max(shown, self.smallest(effort))

    def _has_grid(self, scale: float) -> bool:
        return has_line_advantage(self._view.scaled(scale))

    def _excess(self, scale: float) -> float:
        assert self._risk is not None  # membership is limited
        return self._risk.excess(scale)[0]

    def tightened(self, scale: float, proved: NoisePlan) -> float:
        """Return a smaller scale that uses most of the slack of a proof."""
        problem, candidates = self._problem, [self._least]
        if problem.mi_nats is not None:
            if proved.information is None:
                return scale  # the Gaussian bound is what binds, and it has no room
            spare = SAFE_SHARE * (problem.mi_nats - proved.information.upper)
            here = self._probe.information(scale)[0]
            candidates.append(
                shape_scale(
                    lambda c: self._probe.information(c)[0] - here - spare,
                    start=scale,
                    tolerance=SCALE_TOLERANCE,
                )
            )
        if self._risk is not None and problem.caps is not None:
            assert proved.membership is not None  # membership was proved
            spare = SAFE_SHARE * float((problem.caps - proved.membership.upper_per_unit).min())
            here = self._excess(scale)
            candidates.append(shape_scale(lambda c: self._excess(c) - here - spare, start=scale))
        if self._risk is not None and problem.heat is not None:
            return scale  # a charge that is proved is either nearly all or far below
        return min(scale, max(candidates))

    def _information_scale(self, beta: float, room: float) -> float:
        """Return the smaller scale of the Gaussian bound and of the exact information."""
        by_bound = max(self._least, _log_det_scale(self._shape, self._problem, beta))
        if room >= beta:
            return by_bound
        truth = self._probe
        by_truth = shape_scale(
            lambda c: truth.information(c)[0] - beta + room, tolerance=SCALE_TOLERANCE
        )
        # The bound needs no draws; a scale smaller by a hair would need millions.
        return by_truth if by_truth < by_bound * (1 - SMALL_GAIN) else by_bound


def _log_det_scale(shape: Scalable, problem: PlanProblem, nats: float) -> float:
    """Return the scale at which the log-determinant bound holds, before rounding to the grid."""
    weights = np.exp(problem.log_p)
    points = shape.view(problem.spread, problem.log_p).points
    return shape_scale(
        lambda c: log_det_of_points(points / c, weights, None) - nats * (1 - 1e-6),
        tolerance=1e-9,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    """The noise of a plan as a shape with a free scale."""

    plan_before: NoisePlan
    noise_std: Vector

    def scaled(self, noise_scale: float) -> _Template:
        return replace(self, noise_std=self.noise_std * noise_scale)

    def view(self, spread: Spread, log_p: Vector) -> View:
        points = self.plan_before.frame.coordinates(spread.values) / self.noise_std
        return make_view(points, log_p)

    def plan(self, spread: Spread, *, rule: str, notes: tuple[str, ...] = ()) -> NoisePlan:
        before = self.plan_before
        return make_plan(
            rule=rule,
            frame=before.frame,
            center=before.center,
            noise_std=self.noise_std,
            values=spread.values,
            notes=notes,
        )


Scalable: TypeAlias = Shape | _Template


def prove_rescaled(plan: NoisePlan, problem: PlanProblem, *, simulated: bool) -> NoisePlan:
    """Return a plan with the same ratios of noise for other limits (claim N-8)."""
    if plan.is_noiseless:
        raise BudgetError("plan must carry noise to be scaled; got one without. Release it as is.")
    template = _Template(plan_before=plan, noise_std=plan.noise_std)
    closed = _by_log_det(template, problem)
    if not simulated:
        return closed
    try:
        proved = prove_shape(template, problem, rule=plan.rule)
    except BudgetError:  # too small a share for a proof by simulation
        return closed
    return min(proved, closed, key=lambda plan: plan.total_variance)


def _by_log_det(template: _Template, problem: PlanProblem) -> NoisePlan:
    """Return the least noise of a shape that the log-determinant bound proves."""
    weights, nats = np.exp(problem.log_p), problem.gaussian_nats
    scale = _log_det_scale(template, problem, nats)
    for _ in range(MAX_ATTEMPTS):
        plan = template.scaled(scale).plan(problem.spread, rule=template.plan_before.rule)
        plan = replace(plan, log_det_nats=log_det_of_plan(plan, weights))
        if plan.log_det_nats <= nats:
            return plan
        scale *= 1.01
    raise BudgetError(
        f"mi_nats must be large enough for the lattice of {plan.n_directions} directions; got "
        f"{nats:.3g}. Use a larger budget or fewer levels."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The simulated draws behind one Monte-Carlo claim, so that it can be recomputed."""

    claim: Claim
    stream: str
    seed: int
    attempt: int
    n_draws: int
    gamma: float

    def information(self, view: View) -> Estimate:
        return exact_information(view, n_draws=self.n_draws, gamma=self.gamma, rng=self._rng())

    def membership(self, view: View, pool: Pool, caps: Vector | None = None) -> MembershipRisk:
        rng = self._rng()
        return membership_risk(
            view, pool, caps=caps, n_draws=self.n_draws, gamma=self.gamma, rng=rng
        )

    def charges(self, view: View, pool: Pool, heat: Heat) -> Vector:
        """Return the proved charge of every unit's balance, on these draws."""
        rng = self._rng()
        return heat_charges(view, pool, heat, n_draws=self.n_draws, gamma=self.gamma, rng=rng)

    def _rng(self) -> np.random.Generator:
        return public_generator(self.seed, self.stream, self.attempt)

    def on_plan(
        self,
        plan: NoisePlan,
        view: View,
        pool: Pool | None = None,
        limit: Heat | Vector | None = None,
    ) -> NoisePlan:
        """Return a plan with the claim of this proof, computed on the draws that it names."""
        proofs = (*plan.proofs, self)
        if self.claim == "information":
            return replace(plan, information=self.information(view), proofs=proofs)
        assert pool is not None  # a claim about membership is about a pool
        if self.claim == "charges":
            assert isinstance(limit, Heat)  # a claim about charges is about balances
            return replace(plan, charges=self.charges(view, pool, limit), proofs=proofs)
        assert not isinstance(limit, Heat)  # a claim about membership has caps, or no limit
        return replace(plan, membership=self.membership(view, pool, limit), proofs=proofs)
