"""A secret from a pool: one of the candidate subsets, drawn once.

The attacker's belief over the pool is tracked exactly, and every release is calibrated against
that belief. Information adds up; membership is charged to a balance of every unit (math §14).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from pacprivacy import adversary, release as releasing
from pacprivacy._checks import Vector
from pacprivacy._random import BitSource, public_generator
from pacprivacy._system import begin, single_threaded
from pacprivacy.budget import AnyBudget, Spent, budget_limits, budget_needs_pool
from pacprivacy.errors import BudgetError, BudgetExceededError
from pacprivacy.noise import (
    AnyRule,
    NoisePlan,
    Observation,
    as_rule,
    calibrate,
    check_rule_feasible,
)
from pacprivacy.sample import Pool
from pacprivacy.session.account import AccountShare, account_share
from pacprivacy.session.dry_run import DryRun, dry_run_information
from pacprivacy.session.pool_refinement import PoolRefinement
from pacprivacy.session.secret import (
    Accounts,
    HeldSecret,
    Observed,
    Plan,
    Purse,
    Request,
    SessionSecret,
)
from pacprivacy.session.secret_holder import Odometer
from pacprivacy.session.state import PoolState, SessionState
from pacprivacy.simulation import PROVING, SEARCHING, WRITING, Outputs, scale_run_outputs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluated:
    """A mechanism on every candidate, and what its release may spend; curator-only."""

    outputs: Outputs
    budget: AnyBudget
    share: AccountShare
    rule: AnyRule | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolPlan(Plan):
    """What would be released of one candidate of a pool.

    ``noise`` is around every candidate's output; the certificate follows from ``bundle``;
    ``belief`` is that of whoever saw the earlier releases; ``balances`` are what the charge leaves
    of every unit.
    """

    noise: NoisePlan = field(repr=False)
    bundle: releasing.Bundle = field(repr=False)
    belief: adversary.Belief = field(repr=False)
    balances: adversary.Balances | None = field(default=None, repr=False)

    @property
    def sampler(self) -> releasing.ReleaseSampler[int, Observation]:
        """The noise."""
        return self.noise

    @property
    def accounts(self) -> adversary.Balances | None:
        """Balance of every unit after the charge."""
        return self.balances

    @property
    def first_candidate(self) -> int:
        """The first candidate that may be the secret."""
        return self.noise.first_secret

    @property
    def is_exact(self) -> bool:
        """Whether the value is published exactly."""
        return self.noise.is_noiseless

    def rests_on(self, spent: Spent, accounts: Accounts | None) -> bool:
        """Whether nothing was spent since the plan was made."""
        part = self.bundle.session
        if part is None:
            return True
        return part.before is spent and (accounts is None or part.balances is accounts)

    def value_of(self, observed: Observation) -> Any:
        """Return the released value."""
        return self.outputs.restore(self.noise.value_of(observed))


class HeldCandidate(HeldSecret):
    """The candidate that is used, of a pool that may be drawn later, and the belief about it."""

    balances: adversary.Balances | None = None

    def __init__(self, pool: Pool | None = None) -> None:
        self.pool: Pool | None = None
        self.secret: releasing.ReleaseSecret | None = None
        if pool is not None:
            self.begin(pool)

    def begin(self, pool: Pool) -> None:
        """Settle the pool; every candidate is equally likely to be the secret."""
        self.pool, self.belief = pool, adversary.Belief.uniform(pool.n_subsets)

    def go_on(self, state: SessionState) -> None:
        """Take over what a file holds."""
        assert isinstance(state, PoolState)  # checked where the file was read
        self.pool, self.secret = state.pool, state.secret
        self.belief, self.balances = adversary.Belief(log_p=state.log_p), state.balances

    def draw(self, source: BitSource, *, first: int = 0) -> None:
        """Draw the secret if there is none, from candidate number ``first`` on."""
        assert self.pool is not None  # drawn before anything is calibrated
        if self.secret is None:
            self.secret = releasing.ReleaseSecret(self.pool.n_subsets, source, first=first)

    def observe(
        self, sampler: releasing.ReleaseSampler[int, Observed], source: BitSource
    ) -> Observed:
        """Draw the noise around the secret's output."""
        assert self.secret is not None  # drawn before its charge was booked
        return self.secret.observe(sampler, source)

    def forget(self) -> None:
        """Forget the secret; with a ledger the session's file still has it."""
        self.secret = None

    def state(
        self,
        total: Spent,
        n_releases: int,
        *,
        balances: Accounts | None = None,
        belief: adversary.Belief | None = None,
    ) -> SessionState:
        """Return all that is needed to go on, with other balances or another belief."""
        known = belief or self.belief
        assert self.pool is not None  # drawn before anything is calibrated
        assert known is not None  # set with the pool
        assert self.secret is not None  # drawn before the charge is booked
        assert not isinstance(balances, adversary.Clocks)  # a pool has none
        return PoolState(
            total=total,
            n_releases=n_releases,
            pool=self.pool,
            log_p=known.log_p,
            secret=self.secret,
            balances=balances,
        )

    def reading(self, spent: Spent, total: Spent) -> Odometer:
        """Return the promise, the amounts spent, and what was learned in this run."""
        if self.pool is None or self.belief is None:
            return Odometer(spent=spent, total=total)
        success = self.belief.success_per_unit(self.pool)
        return Odometer(
            spent=spent,
            total=total,
            learned_nats=self.belief.learned_nats,
            best_guess_now=float(success.max()),
            mean_guess_now=float(success.mean()),
            success_bound=releasing.certificate_success_bound(total, self.pool.worst_prior),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a calibration rests on besides the budget: pool, belief, balances, a seed of its own."""

    seed: int
    pool: Pool | None = None
    log_belief: Vector | None = None
    heat: adversary.Heat | None = None


Calibrate: TypeAlias = Callable[[Evaluated, AnyBudget, Calibration], NoisePlan]


class OneRelease:
    """One release takes all, and knows of no other: no balances, no predecessors."""

    def check_rule(self, rule: AnyRule | None) -> None:
        """Refuse a rule that does not fit; every rule is for one release."""

    def share(self, request: Request, purse: Purse, secret: PoolSecret) -> AccountShare:
        """Return what a release may spend: what was requested, never more than what is left."""
        assert secret.pool is not None  # drawn before
        assert request.budget is not None  # a single release has one
        if request.share is not None:
            raise BudgetError("share must be left out for a single release, which takes all.")
        check_rule_feasible(request.budget, request.rule, secret.pool)
        limits = budget_limits(request.budget, secret.pool.n_subsets)
        return AccountShare(limits=limits.above())

    def balances(self, purse: Purse, n_units: int) -> adversary.Balances | None:
        """Return full balances, where releases follow."""
        return None

    def learned(self, belief: adversary.Belief) -> Vector | None:
        """Return the belief that noise must be calibrated to, if something was released."""
        return None

    def seed(self, root: int, n_releases: int, number: int) -> int:
        """Return a seed of public randomness that nothing before it has used."""
        return root

    def part(self, share: AccountShare, purse: Purse) -> releasing.BundleSession | None:
        """Return the place of a release among others, if there are any."""
        return None


class ManyReleases(OneRelease):
    """Releases of one candidate that follow one another."""

    def check_rule(self, rule: AnyRule | None) -> None:
        """Refuse rules for a secret that is drawn with its pool."""
        chosen = as_rule(rule)
        if chosen.n_reserve:
            raise BudgetError(
                f"rule must work for a secret from the pool; got {chosen.name}, which is for a "
                f"single release of a fresh secret. Leave the rule out in a session."
            )

    def share(self, request: Request, purse: Purse, secret: PoolSecret) -> AccountShare:
        """Return what was asked, or a share of what is left; never more than that."""
        pool = secret.pool
        assert pool is not None  # drawn before
        limits = None
        if request.budget is not None:
            limits = budget_limits(request.budget, pool.n_subsets)
        left = purse.spent.left_of(purse.total).tightest(purse.left)
        done = purse.spent.n_releases
        return account_share(limits, request.share, left, secret.balances, pool.n_units, done)

    def balances(self, purse: Purse, n_units: int) -> adversary.Balances | None:
        """Return full balances under the session's total and what the ledger leaves."""
        left = purse.total.above().tightest(purse.shared()).success_increment
        return None if left is None else adversary.Balances.begin(2 * max(left, 0.0), n_units)

    def learned(self, belief: adversary.Belief) -> Vector:
        """Return the belief."""
        return belief.log_p

    def seed(self, root: int, n_releases: int, number: int) -> int:
        """Return a seed of this release alone."""
        indices = (number,) if number else ()
        return int(public_generator(root, "session", n_releases, *indices).integers(2**62))

    def part(self, share: AccountShare, purse: Purse) -> releasing.BundleSession:
        """Return the total, what went before, and what this release may take of balances."""
        return releasing.BundleSession(
            total=purse.total,
            before=purse.spent,
            share=share.limits,
            fresh=False,
            balances=share.balances,
            allowed=share.allowed,
            part=share.part,
        )


class PoolSecret(HeldCandidate, SessionSecret):
    """A candidate of a pool, under the terms of one release or of many."""

    def __init__(self, dry_run: DryRun, terms: OneRelease, *, simulate: bool) -> None:
        super().__init__()
        self.dry_run, self._terms, self._simulate = dry_run, terms, simulate
        self.data, self.seed, self.progress = dry_run.data, dry_run.seed, dry_run.progress
        self._n_proofs = 0

    def go_on(self, state: SessionState) -> None:
        """Take over what a file holds."""
        super().go_on(state)
        self.dry_run.pool = self.pool

    def plan(self, request: Request, purse: Callable[[], Purse]) -> PoolPlan:
        """Run a mechanism on every candidate, calibrate the noise and write the certificate."""
        evaluated = self.evaluate(request, purse)
        return self.certify(evaluated, purse())

    def total(self, budget: AnyBudget | None) -> Spent:
        """Return the limits of a budget, as far as they can be told before the pool is drawn."""
        n_subsets = self.dry_run.n_subsets if self.pool is None else self.pool.n_subsets
        if budget is None or (n_subsets is None and budget_needs_pool(budget)):
            return Spent()
        return budget_limits(budget, n_subsets)

    def evaluate(self, request: Request, purse: Callable[[], Purse]) -> Evaluated:
        """Draw the pool if there is none, and run a mechanism on every candidate."""
        self._terms.check_rule(request.rule)
        notes = self._settle(request, purse)
        before = purse()
        self._terms.share(request, before, self)  # refused here, before the mechanism runs
        root = self._seed(before.spent.n_releases)
        mechanism, checkpoint = request.mechanism, request.checkpoint
        outputs = self.dry_run.run(mechanism, checkpoint=checkpoint, rng=root)
        outputs = replace(outputs, on_all=self.dry_run.on_all(mechanism, outputs))
        if request.rule is None:  # a rule that was asked for is in the units of the mechanism
            outputs = scale_run_outputs(outputs)
        # What is left now: a mechanism may have made a release of its own.
        share = self._terms.share(request, purse(), self)
        return Evaluated(
            outputs=outputs,
            budget=share.in_words() if request.budget is None else request.budget,
            share=share,
            rule=request.rule,
            notes=notes,
        )

    def _settle(self, request: Request, purse: Callable[[], Purse]) -> tuple[str, ...]:
        """Draw the pool if there is none; return notes on its size."""
        pool, notes = self.dry_run.draw(
            request.mechanism, request.budget, rule=request.rule, checkpoint=request.checkpoint
        )
        if self.pool is None:
            self.begin(pool)
            try:
                self.balances = self._terms.balances(purse(), pool.n_units)
            except BaseException:  # or the total would not be held from here on
                self.pool = self.belief = None
                raise
        return notes

    def refinement(
        self, request: Request, purse: Callable[[], Purse], levels: int | None
    ) -> PoolRefinement:
        """Run a mechanism on every candidate, and return the steps that its budget pays for."""
        evaluated = self.evaluate(request, purse)
        return PoolRefinement(self, evaluated, purse(), levels)

    def calibration(self, share: AccountShare, n_releases: int) -> Calibration:
        """Return what the next calibration rests on, with a seed that none before it has used."""
        assert self.pool is not None  # drawn in evaluate()
        seed, log_p = self._proof_seed(n_releases), self.now.log_p
        heat = None
        if share.balances is not None and share.allowed is not None:
            before = adversary.ViewTilts(self.pool).before(log_p, np.arange(self.pool.n_units))
            heat = share.balances.heat(before, share.allowed, share.part)
        known = self._terms.learned(self.now)
        return Calibration(pool=self.pool, seed=seed, log_belief=known, heat=heat)

    def certify(
        self, evaluated: Evaluated, purse: Purse, calibrate: Calibrate | None = None
    ) -> PoolPlan:
        """Calibrate the noise to the belief, prove what it does, and write the certificate."""
        assert self.pool is not None  # drawn in evaluate()
        share, belief = evaluated.share, self.now
        rests_on = self.calibration(share, purse.spent.n_releases)
        part = self._terms.part(share, purse)
        limit = evaluated.budget if part is None else dry_run_information(share.limits)
        begin(SEARCHING)
        noise = (calibrate or find_noise)(evaluated, limit, rests_on)
        outputs = evaluated.outputs
        bars, listed = releasing.measure_error_bars(outputs, noise, self.pool), outputs.published
        context = releasing.Context(
            outputs=outputs if bars is None else replace(outputs, published=(*listed, *bars.facts)),
            pool=self.pool,
            budget=evaluated.budget,
            log_p=belief.log_p,
            gamma=adversary.DEFAULT_GAMMA,
            seed=rests_on.seed,
            simulation=self._simulate,
            notes=(*evaluated.notes, *releasing.error_bar_notes(bars)),
            session=part,
        )
        with single_threaded():
            begin(PROVING)
            # the charge is the best bound that is proved
            noise = releasing.certified_plan(noise, context)
            begin(WRITING)
            bundle = releasing.bundle_of(noise, context)
            certificate = releasing.write_certificate(bundle, noise)
        charges = releasing.certified_charges(noise, bundle)
        return PoolPlan(
            certificate=certificate,
            charge=releasing.certificate_charge(noise, part, charges),
            balances=_balances_after(share, charges),
            noise=noise,
            outputs=outputs,
            bundle=bundle,
            belief=belief,
            error_bars=bars,
        )

    def remember(
        self, plan: Plan, observed: Observation
    ) -> tuple[adversary.Belief, releasing.Certificate, releasing.Bundle]:
        """Return the belief after a release, its certificate and its bundle."""
        assert self.pool is not None  # drawn in evaluate()
        assert isinstance(plan, PoolPlan)  # its own
        certificate, bundle, part = plan.certificate, plan.bundle, plan.bundle.session
        belief = plan.belief
        self._n_proofs = 0
        if part is None:
            return belief, certificate, bundle
        belief = belief.updated(plan.noise.log_likelihood(observed))
        learned = releasing.certificate_learned_facts(belief, self.pool)
        facts = {**(certificate.composition or {}), **learned}
        certificate = replace(certificate, composition=facts)
        bundle = replace(bundle, session=replace(part, observation=observed))
        return belief, certificate, bundle

    @property
    def now(self) -> adversary.Belief:
        """Law of the secret of the next release, as every attacker knows it."""
        assert self.belief is not None  # set with the pool
        return self.belief

    def _seed(self, n_releases: int, number: int = 0) -> int:
        return self._terms.seed(self.dry_run.seed, n_releases, number)

    def _proof_seed(self, n_releases: int) -> int:
        """Return a seed that no earlier choice or proof of this session has used."""
        number, self._n_proofs = self._n_proofs, self._n_proofs + 1
        return self._seed(n_releases, number)


def find_noise(evaluated: Evaluated, limit: AnyBudget, rests_on: Calibration) -> NoisePlan:
    """Find the noise under which one of the outputs may be released."""
    return calibrate(
        evaluated.outputs,
        limit,
        rule=evaluated.rule,
        pool=rests_on.pool,
        log_belief=rests_on.log_belief,
        heat=rests_on.heat,
        gamma=adversary.DEFAULT_GAMMA / 2,
        rng=rests_on.seed,
    )


def _balances_after(share: AccountShare, charges: Vector | None) -> adversary.Balances | None:
    """Return what a release leaves of every unit's balance; refuse one that some cannot pay."""
    left = share.balances
    if left is None or charges is None:
        return left
    if not (charges <= left.per_unit).all():
        raise BudgetExceededError(
            "the release must be paid for by every unit; what was proved of its noise is "
            "more than some have left. Nothing was drawn or spent. Ask for less."
        )
    return left.after(charges, share.part)
