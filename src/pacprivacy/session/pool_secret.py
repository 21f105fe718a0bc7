"""A secret from a pool: one of the candidate subsets, drawn once.

The attacker's belief over the pool is tracked exactly, and every release is calibrated against
that belief. Information adds up; membership is charged to a balance of every unit (math §14).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from pacprivacy import adversary, release as releasing
from pacprivacy._checks import Vector, check_log_belief
from pacprivacy._random import BitSource, ProcessBound, public_generator, uniform_below
from pacprivacy._system import begin, single_threaded
from pacprivacy.adversary import RESERVE, Balances, balance_advantage
from pacprivacy.budget import (
    BLIND,
    AnyBudget,
    Information,
    Membership,
    Spent,
    budget_limits,
    budget_needs_pool,
)
from pacprivacy.errors import BudgetError, BudgetExceededError, PoolError, SecretError
from pacprivacy.noise import (
    AnyRule,
    NoisePlan,
    Observation,
    as_rule,
    calibrate,
    check_rule_feasible,
)
from pacprivacy.sample import Coins, Pool
from pacprivacy.session.dry_run import DryRun, dry_run_information
from pacprivacy.session.refinement import PoolRefinement
from pacprivacy.session.secret import (
    Accounts,
    Cost,
    HeldSecret,
    Observed,
    Odometer,
    Plan,
    Purse,
    ReleaseSampler,
    Request,
    SessionSecret,
    Share,
)
from pacprivacy.session.state import (
    STATE_READERS,
    AccountOwner,
    Marks,
    SessionState,
    Storable,
    other_total,
    other_units,
    pack_state,
    read_record,
)
from pacprivacy.simulation import PROVING, SEARCHING, WRITING, Outputs, scale_run_outputs

ROUNDING: Final = 1e-9
MARGIN: Final = (
    1e-5  # a ledger rounds every charge up; balances are squares, where less would be lost
)
UNASKED: Final = 0.25  # part of the reserve for a release that says nothing about membership
POOL_VERSION: Final = 7  # of the file
_INDEX_BYTES: Final = 8  # of the secret, whatever it is


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluated:
    """A mechanism's value on every candidate, and notes on the pool; curator-only."""

    outputs: Outputs
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolPlan(Plan):
    """Planned release of one candidate of a pool.

    ``noise`` is around every candidate's output; the certificate follows from ``bundle``;
    ``belief`` is that of an attacker who saw the earlier releases.
    """

    noise: NoisePlan = field(repr=False)
    bundle: releasing.Bundle = field(repr=False)
    belief: adversary.Belief = field(repr=False)

    @property
    def sampler(self) -> NoisePlan:
        return self.noise

    @property
    def first_candidate(self) -> int:
        return self.noise.first_secret

    @property
    def is_exact(self) -> bool:
        return self.noise.is_noiseless

    def value_of(self, observed: Observation) -> Any:
        return self.outputs.restore(self.noise.value_of(observed))


class ReleaseSecret(ProcessBound, Storable):
    """The index of the subset that is really used. It cannot be printed, copied or forked."""

    __slots__ = ("_index", "_n_subsets")
    KIND = "the secret"
    INSTEAD = "Save the release, not the session."

    def __init__(self, n_subsets: int, source: BitSource, *, first: int = 0) -> None:
        self._index = first + uniform_below(source, n_subsets - first)
        self._n_subsets = n_subsets

    def __repr__(self) -> str:
        return f"Secret(one of {self._n_subsets})"

    @property
    def n_subsets(self) -> int:
        """Number of candidates; public."""
        return self._n_subsets

    def to_storage(self) -> int:
        """Return the index, for the session's own file (mode 0600) and nothing else."""
        self.check_process()
        return self._index

    @classmethod
    def from_storage(cls, index: int, n_subsets: int) -> Self:
        """Rebuild the secret of a session that goes on."""
        if not 0 <= index < n_subsets:
            raise SecretError("the stored secret must be of this pool. Restore the session's file.")
        secret = cls.__new__(cls)
        secret._index, secret._n_subsets = index, n_subsets
        return secret

    def to_content(self) -> bytes:
        numbers = (self.to_storage(), self._n_subsets)
        return b"".join(number.to_bytes(_INDEX_BYTES, "little") for number in numbers)

    @classmethod
    def from_content(cls, content: bytes) -> Self:
        index, n_subsets = np.frombuffer(content, dtype="<u8").tolist()
        return cls.from_storage(index, n_subsets)

    def observe(self, plan: ReleaseSampler[int, Observed], source: BitSource) -> Observed:
        """Draw the noise around the secret's output; refuse in a fork."""
        self.check_process()
        return plan.observe(self._index, source)


def check_stored_belief(log_p: Vector, secret: ReleaseSecret, n_subsets: int) -> None:
    """Refuse a belief or a secret of another pool, and a belief that is changed on reading."""
    if secret.n_subsets != n_subsets:
        raise ValueError("secret")
    if not np.allclose(log_p, check_log_belief(log_p, n_subsets), rtol=0, atol=1e-9):
        raise ValueError("the probabilities do not add up to one")


class _PoolRecord(msgspec.Struct, array_like=True, kw_only=True):
    """Content of the file."""

    marks: Marks
    arrays: dict[str, npt.NDArray[Any]]
    metadata: dict[str, Any]
    total: Spent
    n_releases: int
    log_p: Vector
    secret: ReleaseSecret
    balances: Balances | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PoolState(SessionState):
    """State of a session with a pool."""

    pool: Pool
    log_p: Vector
    secret: ReleaseSecret
    balances: Balances | None = None

    def to_bytes(self, marks: Marks) -> bytes:
        arrays, metadata = self.pool.to_arrays()
        record = _PoolRecord(
            marks=marks,
            arrays=arrays,
            metadata=metadata,
            total=self.total,
            n_releases=self.n_releases,
            log_p=self.log_p,
            secret=self.secret,
            balances=self.balances,
        )
        return pack_state(POOL_VERSION, record)

    @staticmethod
    def read(content: bytes) -> tuple[PoolState, Marks]:
        """Rebuild a state."""
        record = read_record(content, _PoolRecord)
        pool = Pool.from_arrays(record.arrays, record.metadata)
        check_stored_belief(record.log_p, record.secret, pool.n_subsets)
        if record.balances is not None:
            _check_balances(record.balances, pool.n_units)
        state = PoolState(
            total=record.total,
            n_releases=record.n_releases,
            pool=pool,
            log_p=record.log_p,
            secret=record.secret,
            balances=record.balances,
        )
        return state, record.marks

    def check_sample(self, opened: AccountOwner) -> None:
        n_subsets, sample = self.pool.n_subsets, opened.options.sample
        if isinstance(sample, Coins):
            raise PoolError(
                "sample must be of the kind that the session began with, a pool; got coins. Leave "
                "it out."
            )
        if opened.budget is not None and budget_limits(opened.budget, n_subsets) != self.total:
            raise other_total()
        is_other = isinstance(sample, Pool) and sample.digest() != self.pool.digest()
        if is_other or opened.options.n_subsets not in (None, n_subsets):
            raise PoolError(
                f"sample must be the one that the session began with, of {n_subsets} "
                f"subsets; got another. Leave out sample and n_subsets."
            )
        has_units = self.pool.row_units is not None
        if not isinstance(sample, Pool) and (opened.options.units is not None) != has_units:
            raise other_units()


def _check_balances(balances: Balances, n_units: int) -> None:
    """Refuse balances that no session could have."""
    full, per_unit = Balances.begin(balances.advantage, 1).worst, balances.per_unit
    if not 0 <= balances.reserve <= 1:
        raise ValueError("reserve")
    if per_unit.shape != (n_units,) or not 0 <= balances.worst <= per_unit.max() <= full:
        raise ValueError("balances")


STATE_READERS[POOL_VERSION] = PoolState.read


class HeldCandidate(HeldSecret):
    """The candidate that is used, of a pool that may be drawn later, and the belief about it."""

    balances: Balances | None = None

    def __init__(self, pool: Pool | None = None) -> None:
        self.pool: Pool | None = None
        self.secret: ReleaseSecret | None = None
        if pool is not None:
            self.begin(pool)

    def begin(self, pool: Pool) -> None:
        """Settle the pool; every candidate is equally likely to be the secret."""
        self.pool, self.belief = pool, adversary.Belief.uniform(pool.n_subsets)

    def go_on(self, state: SessionState) -> None:
        assert isinstance(state, PoolState)  # checked where the file was read
        self.pool, self.secret = state.pool, state.secret
        self.belief, self.balances = adversary.Belief(log_p=state.log_p), state.balances

    def draw(self, source: BitSource, *, first: int = 0) -> None:
        assert self.pool is not None  # drawn before anything is calibrated
        if self.secret is None:
            self.secret = ReleaseSecret(self.pool.n_subsets, source, first=first)

    def observe(self, sampler: ReleaseSampler[int, Observed], source: BitSource) -> Observed:
        assert self.secret is not None  # drawn before its charge was booked
        return self.secret.observe(sampler, source)

    def forget(self) -> None:
        self.secret = None

    def state(
        self,
        total: Spent,
        n_releases: int,
        *,
        balances: Accounts | None = None,
        belief: adversary.Belief | None = None,
    ) -> SessionState:
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

    def odometer(self, spent: Spent, total: Spent) -> Odometer:
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
    """Basis of a calibration besides the budget: pool, belief, balances, a seed of its own."""

    seed: int
    pool: Pool | None = None
    log_belief: Vector | None = None
    heat: adversary.Heat | None = None

    def find_noise(
        self, outputs: object, limit: AnyBudget, *, rule: AnyRule | None, gamma: float
    ) -> NoisePlan:
        """Find the noise under which one of the outputs may be released."""
        return calibrate(
            outputs,
            limit,
            rule=rule,
            pool=self.pool,
            log_belief=self.log_belief,
            heat=self.heat,
            gamma=gamma,
            rng=self.seed,
        )


Calibrate: TypeAlias = Callable[[AnyBudget, Calibration], NoisePlan]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccountShare:
    """Budget of a release; curator-only but for ``limits``.

    ``allowed`` is the most that each unit may pay of its balance in ``balances``, and ``part`` how
    much of the reserve that is left; None and unused where membership is not limited.
    """

    limits: Spent
    balances: Balances | None = None
    allowed: Vector | None = None
    part: float = 1.0

    def in_words(self) -> AnyBudget:
        """Return a share in words, for the certificate: never more than was allowed."""
        nats, allowed = self.limits.mi_nats, self.allowed
        budget: AnyBudget | None = None if nats is None else Information(nats)
        if allowed is not None:
            advantage = balance_advantage(float(allowed.max())) / (1 - RESERVE)
            member = Membership(min(BLIND + 0.5 * advantage * (1 + ROUNDING), 1 - 1e-12))
            budget = member if budget is None else budget & member
        assert budget is not None  # a session limits something
        return budget


def account_share(
    requested: Spent | None,
    share: Share | None,
    purse: Purse,
    balances: Balances | None,
    n_units: int,
) -> AccountShare:
    """Return the budget of a release: the request, never more than the remaining budget.

    Without a request it is a share of the remaining budget, or all of it.
    """
    left = purse.spent.left_of(purse.total).tightest(purse.left)
    portion, n_left = share or Share()
    if requested is not None and share is not None:
        raise BudgetError("budget and share must not both be given. Leave one out.")
    amounts = Spent() if requested is None else requested
    _check_remaining("information", amounts.mi_nats, left.mi_nats)
    nats = left.mi_nats
    if nats is not None and requested is None:
        nats *= portion
    if amounts.mi_nats is not None:
        nats = amounts.mi_nats if nats is None else min(nats, amounts.mi_nats)
    limits, level = Spent(mi_nats=nats), amounts.success_level
    if balances is None and level is None:
        return AccountShare(limits=limits)
    if balances is None:  # without a total, the release is held to its own budget
        assert level is not None  # or there would be nothing to hold it to
        balances = Balances.begin(2 * level - 1, n_units)
        return AccountShare(
            limits=replace(limits, success_increment=balances.increment_left),
            balances=balances,
            allowed=balances.per_unit,
        )
    if requested is None:
        part = portion
    else:
        part = UNASKED if nats is None or not left.mi_nats else min(1.0, nats / left.mi_nats)
    most = balances.increment_left
    if left.success_increment is not None and left.success_increment < most:
        most = left.success_increment * (1 - MARGIN)
    _check_remaining("membership", None if level is None else level - BLIND, most)
    allowed = balances.per_unit if share is None else part * balances.per_unit
    if n_left is not None:
        allowed = balances.planned(n_left, purse.spent.n_releases)
    if level is not None:
        cap = Balances.begin(2 * level - 1, 1).worst
        allowed = np.minimum(allowed, cap)
        part = min(1.0, cap / balances.worst)
    allowed = np.minimum(allowed, balances.per_unit - balances.least_after(most))
    lost = balances.increment_left - balances.after(allowed, part).increment_left
    return AccountShare(
        limits=replace(limits, success_increment=max(lost, 0.0)),
        balances=balances,
        allowed=allowed,
        part=part,
    )


def _check_remaining(name: str, wanted: float | None, left: float | None) -> None:
    """Refuse more than the remaining budget."""
    if left is not None and left <= ROUNDING:
        raise BudgetExceededError(
            f"the session's {name} budget is used up. Nothing was drawn or spent."
        )
    if wanted is not None and left is not None and wanted > left * (1 + ROUNDING):
        raise BudgetExceededError(
            f"{name} must be at most what is left, {left:.6g}; got {wanted:.6g}. Nothing was "
            f"drawn or spent. Ask for less or end the session."
        )


class PoolSecret(HeldCandidate, SessionSecret):
    """A candidate of a pool, and releases about it that follow one another."""

    def __init__(self, dry_run: DryRun) -> None:
        super().__init__()
        self.dry_run, self.data, self.seed = dry_run, dry_run.data, dry_run.seed
        self.progress = dry_run.options.progress
        self._n_proofs, self._has_begun = 0, False

    def go_on(self, state: SessionState) -> None:
        super().go_on(state)
        self.dry_run.pool, self._has_begun = self.pool, True

    def total(self, budget: AnyBudget | None) -> Spent:
        n_subsets = self.dry_run.n_subsets if self.pool is None else self.pool.n_subsets
        if budget is None or (n_subsets is None and budget_needs_pool(budget)):
            return Spent()
        return budget_limits(budget, n_subsets)

    # --- the work up to the draw ----------------------------------------------------------------

    def settle(self, request: Request) -> tuple[str, ...]:
        """Draw the pool if there is none; return notes on its size."""
        self._check_rule(request)
        pool, notes = self.dry_run.draw(
            request.mechanism, request.budget, rule=request.rule, checkpoint=request.checkpoint
        )
        if self.pool is None:
            self.begin(pool)
        return notes

    def measure(self, request: Request, purse: Purse, notes: tuple[str, ...]) -> Evaluated:
        """Run a mechanism on every candidate; refuse more than is left before it runs."""
        if not self._has_begun:
            self.balances, self._has_begun = self._first_balances(purse), True
        self._share(request, purse)
        mechanism, seed = request.mechanism, self._seed(purse.spent.n_releases)
        outputs = self.dry_run.run(mechanism, checkpoint=request.checkpoint, rng=seed)
        outputs = replace(outputs, on_all=self.dry_run.on_all(mechanism, outputs))
        if request.rule is None:  # a chosen rule is in the units of the mechanism
            outputs = scale_run_outputs(outputs)
        return Evaluated(outputs=outputs, notes=notes)

    def plan(
        self,
        request: Request,
        measured: Evaluated,
        purse: Purse,
        *,
        share: AccountShare | None = None,
        find_noise: Calibrate | None = None,
    ) -> PoolPlan:
        """Calibrate the noise to the belief, prove its bounds, and write the certificate.

        A step of a refinement has a ``share`` and a separate calibration.
        """
        assert self.pool is not None  # drawn in settle()
        share = self._share(request, purse) if share is None else share
        belief, outputs = self.current_belief, measured.outputs
        rests_on = self.calibration(share, purse.spent.n_releases)
        part = self._part(share, purse)
        budget = share.in_words() if request.budget is None else request.budget
        limit = budget if part is None else dry_run_information(share.limits)
        begin(SEARCHING)
        if find_noise is None:
            gamma = adversary.DEFAULT_GAMMA / 2
            noise = rests_on.find_noise(outputs, limit, rule=request.rule, gamma=gamma)
        else:
            noise = find_noise(limit, rests_on)
        bars, listed = releasing.measure_error_bars(outputs, noise, self.pool), outputs.published
        context = releasing.Context(
            outputs=outputs if bars is None else replace(outputs, published=(*listed, *bars.facts)),
            pool=self.pool,
            budget=budget,
            log_p=belief.log_p,
            gamma=adversary.DEFAULT_GAMMA,
            seed=rests_on.seed,
            simulation=self.dry_run.options.simulate,
            notes=(*measured.notes, *releasing.error_bar_notes(bars)),
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
        cost = Cost(
            charge=releasing.certificate_charge(noise, part, charges),
            before=purse.spent,
            accounts_before=self.balances,
            accounts=_balances_after(share, charges),
        )
        return PoolPlan(
            certificate=certificate,
            cost=cost,
            outputs=outputs,
            error_bars=bars,
            noise=noise,
            bundle=bundle,
            belief=belief,
        )

    def refinement(
        self, request: Request, measured: Evaluated, purse: Purse, levels: int | None
    ) -> PoolRefinement:
        share = self._share(request, purse)
        return PoolRefinement(self, (request, measured), share, purse, levels)

    def calibration(self, share: AccountShare, n_releases: int) -> Calibration:
        """Return the basis of the next calibration, with a seed that none before it has used."""
        assert self.pool is not None  # drawn in settle()
        seed, log_p, heat = self._proof_seed(n_releases), self.current_belief.log_p, None
        if share.balances is not None and share.allowed is not None:
            before = adversary.ViewTilts(self.pool).before(log_p, np.arange(self.pool.n_units))
            heat = share.balances.heat(before, share.allowed, share.part)
        return Calibration(pool=self.pool, seed=seed, log_belief=self._known(), heat=heat)

    def remember(
        self, plan: Plan, observed: Observation
    ) -> tuple[adversary.Belief, releasing.Certificate, releasing.Bundle]:
        assert self.pool is not None  # drawn in settle()
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

    def _proof_seed(self, n_releases: int) -> int:
        """Return a seed that no earlier choice or proof of this session has used."""
        number, self._n_proofs = self._n_proofs, self._n_proofs + 1
        return self._seed(n_releases, number)

    @property
    def current_belief(self) -> adversary.Belief:
        """Law of the secret of the next release, as every attacker knows it."""
        assert self.belief is not None  # set with the pool
        return self.belief

    # --- what only a secret of many releases has ------------------------------------------------

    def _check_rule(self, request: Request) -> None:
        """Refuse rules for a secret that is drawn with its pool."""
        chosen = as_rule(request.rule)
        if chosen.n_reserve:
            raise BudgetError(
                f"rule must work for a secret from the pool; got {chosen.name}, which is for a "
                f"single release of a fresh secret. Leave the rule out in a session."
            )

    def _share(self, request: Request, purse: Purse) -> AccountShare:
        """Return the budget of a release."""
        assert self.pool is not None  # drawn in settle()
        limits = None
        if request.budget is not None:
            limits = budget_limits(request.budget, self.pool.n_subsets)
        return account_share(limits, request.share, purse, self.balances, self.pool.n_units)

    def _first_balances(self, purse: Purse) -> Balances | None:
        """Return full balances, capped by the session's total and the ledger."""
        assert self.pool is not None  # drawn in settle()
        left = purse.total.above().tightest(purse.shared).success_increment
        return None if left is None else Balances.begin(2 * max(left, 0.0), self.pool.n_units)

    def _known(self) -> Vector | None:
        """Return the belief that noise must be calibrated to, if something was released."""
        return self.current_belief.log_p

    def _seed(self, n_releases: int, number: int = 0) -> int:
        """Return a seed of this release alone."""
        indices = (number,) if number else ()
        rng = public_generator(self.dry_run.seed, "session", n_releases, *indices)
        return int(rng.integers(2**62))

    def _part(self, share: AccountShare, purse: Purse) -> releasing.BundleSession | None:
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


class SinglePoolSecret(PoolSecret):
    """A candidate for one release, which takes all: no balances, no predecessors."""

    def _check_rule(self, request: Request) -> None: ...

    def _share(self, request: Request, purse: Purse) -> AccountShare:
        assert self.pool is not None  # drawn in settle()
        assert request.budget is not None  # a single release has one
        if request.share is not None:
            raise BudgetError("share must be left out for a single release, which takes all.")
        check_rule_feasible(request.budget, request.rule, self.pool)
        return AccountShare(limits=budget_limits(request.budget, self.pool.n_subsets).above())

    def _first_balances(self, purse: Purse) -> Balances | None:
        return None

    def _known(self) -> Vector | None:
        return None

    def _seed(self, n_releases: int, number: int = 0) -> int:
        return self.dry_run.seed

    def _part(self, share: AccountShare, purse: Purse) -> releasing.BundleSession | None:
        return None


def _balances_after(share: AccountShare, charges: Vector | None) -> Balances | None:
    """Return every unit's balance after a release; refuse one that some unit cannot pay."""
    left = share.balances
    if left is None or charges is None:
        return left
    if not (charges <= left.per_unit).all():
        raise BudgetExceededError(
            "the release must be paid for by every unit; what was proved of its noise is "
            "more than some have left. Nothing was drawn or spent. Ask for less."
        )
    return left.after(charges, share.part)
