"""One secret, many releases, each chosen after seeing the ones before.

The attacker's belief over the pool is tracked exactly, and every release is calibrated against
that belief. Information adds up; membership composes by increments (math §6).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from pacprivacy._random import (
    BitSource,
    ProcessBound,
    SimulatedSource,
    SystemSource,
    coerce_seed,
    public_generator,
)
from pacprivacy._threads import few_threads
from pacprivacy.adversary import DEFAULT_GAMMA, Belief
from pacprivacy.budget import AnyBudget, Limits, limits_of
from pacprivacy.errors import BudgetError, SecretError
from pacprivacy.mechanism import as_mechanism, coerce_data
from pacprivacy.noise import AnyRule, NoisePlan, Observation, as_rule, calibrate
from pacprivacy.pool import Pool, PoolStrategy
from pacprivacy.release import (
    Bundle,
    Certificate,
    Context,
    Release,
    Secret,
    SessionPart,
    assess,
    charge_of,
    publish,
)
from pacprivacy.session.spending import (
    Odometer,
    Shown,
    as_budget,
    check_left,
    read_odometer,
    share_of,
    tighter,
    with_belief,
)
from pacprivacy.session.state import Book, Standing, Unrecorded, check_no_names
from pacprivacy.simulation import Outputs, draw_candidates, run_mechanism

if TYPE_CHECKING:
    from pacprivacy.ledger.ledger import Ledger
    from pacprivacy.session.refinement import Accuracy, GradualRelease


class Session(Shown, ProcessBound):
    """Adaptive releases about one secret subset, under one total budget.

    Parameters
    ----------
    data : array, frame, or tuple of those
        The universe of records.
    budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
        Total over all releases. Left out when a session goes on from its ledger.
    pool, n_subsets, units, n_jobs, rng, progress, simulate
        As in :func:`pacprivacy.privatize`.
    secrets : {"same", "fresh"}
        One secret throughout (default), or an independent one for every release. With fresh
        secrets only information can be totalled, and the question "was this unit *ever* used"
        has a high prior; the certificate prints it.
    ledger : path, postgresql:// URL or Ledger, optional
        Where every spend is written before the secret is used. A session that is opened again
        with the same ledger and names goes on with the same pool, secret and belief.
    dataset, principal : str, optional
        Whose budget in the ledger is spent. Where the ledger has none that covers them, the
        session's ``budget`` becomes theirs.
    state : path, optional
        File of the secret and the belief (mode 0600); beside the ledger by default.

    Guarantee
    ---------
    Claim S-1. ``MI(secret; all releases) <= E[Σ charges] <= total``, also when a mechanism is
    chosen after seeing earlier releases.
    Claim S-2. For every unit, the attacker's expected success after the last release is at most
    its prior plus the sum of the increments charged, at most the total.
    Claim K-1. With a ledger, no release leaves without an entry, whatever crashes when.
    Claim R-4. In a fork of its process a session releases nothing and spends nothing.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> x = np.random.default_rng(0).normal(size=(64, 2))
    >>> with pac.Session(x, budget=pac.Information(0.5), n_subsets=32, rng=0) as session:
    ...     first = session.release(lambda d: d.mean(axis=0), pac.Information(0.25))
    ...     second = session.release(lambda d: d.std(axis=0), pac.Information(0.25))
    >>> session.odometer().spent_nats <= 0.5
    True
    """

    KIND = "a session"
    INSTEAD = "Save its releases instead."

    def __init__(
        self,
        data: Any,
        *,
        budget: AnyBudget | None = None,
        pool: Pool | PoolStrategy | None = None,
        n_subsets: int | None = None,
        units: Any = None,
        secrets: Literal["same", "fresh"] = "same",
        n_jobs: int | None = None,
        rng: np.random.Generator | int | None = None,
        progress: bool | None = None,
        simulate: bool = False,
        ledger: str | Path | Ledger | None = None,
        dataset: str | None = None,
        principal: str | None = None,
        state: str | Path | None = None,
    ) -> None:
        self._total = Limits() if budget is None else limits_of(budget)
        if secrets not in ("same", "fresh"):
            raise BudgetError(f"secrets must be 'same' or 'fresh'; got {secrets!r}. Use 'same'.")
        if secrets == "fresh" and self._total.success is not None:
            raise BudgetError(
                "budget must be Information when secrets are fresh: increments of membership "
                "add up for one secret only. Use secrets='same'."
            )
        self._data = coerce_data(data)
        self._pool_request = (pool, n_subsets, units)
        self._fresh, self._n_jobs, self._progress = secrets == "fresh", n_jobs, progress
        self._seed, self._seeded = coerce_seed(rng), rng is not None
        self._simulate = simulate
        self._source: BitSource = SystemSource()
        if simulate:
            self._source = SimulatedSource(public_generator(self._seed, "simulation"))
        self._pool: Pool | None = None
        self._belief: Belief | None = None
        self._secret: Secret | None = None
        self._releases: list[Release] = []
        self._closed, self._n_proofs = False, 0
        self._lock = threading.RLock()
        self._book: Book = Unrecorded()
        if ledger is not None:
            # Here: a session without a ledger should not wait for SQLAlchemy.
            from pacprivacy.session.account import Holder, open_account

            who = Holder.of(self._data, self._total, self._pool_request, dataset, principal)
            fresh = self._fresh
            self._book = open_account(ledger, who, state=state, fresh=fresh, simulate=simulate)
        else:
            check_no_names(dataset, principal, state)
        self._spent = self._book.spent()
        if (found := self._book.state) is not None:
            self._total, self._pool, self._secret = found.total, found.pool, found.secret
            self._belief = Belief(log_p=found.log_p)
        if self._total == Limits():
            self.close()
            raise BudgetError(
                "budget must be given for a new session; got None, and there is none to go on "
                "with. For example budget=pac.Information(1)."
            )

    @classmethod
    def resume(cls, data: Any, *, ledger: str | Path | Ledger, **options: Any) -> Self:
        """Go on with a session that is on disk, under the total budget that it began with.

        Takes ``units`` (the same as before), ``dataset``, ``principal``, ``state``, ``n_jobs``,
        ``rng`` and ``progress`` as the constructor does; refuses if there is nothing to go on with.
        """
        return cls(data, ledger=ledger, **options)

    def __repr__(self) -> str:
        return f"Session({self._spent.n_releases} releases, {self._spent.nats:.4g} nats spent)"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget the secret; no further release is possible from this object.

        With a ledger the secret stays in the session's file, from which it can go on.
        """
        self._secret, self._closed = None, True
        self._book.close()

    @property
    def releases(self) -> tuple[Release, ...]:
        """The releases made through this object; those before a restart are not kept."""
        return tuple(self._releases)

    def release(
        self,
        mechanism: Any,
        budget: AnyBudget,
        *,
        rule: AnyRule | None = None,
        checkpoint: str | Path | None = None,
    ) -> Release:
        """Release one more function of the secret subset.

        Parameters
        ----------
        mechanism : callable or Mechanism
            As in :func:`pacprivacy.privatize`.
        budget : Information, Membership, EpsilonEquivalent, or several joined with ``&``
            Share of the total for this release. ``Membership(q)`` stands for an increment of
            ``q`` minus the prior.

        Raises
        ------
        BudgetExceededError
            If the share is not left; nothing is evaluated, drawn or spent.
        LedgerError
            If the ledger or the session's file cannot be written. Nothing was released; what
            the ledger had reserved stays spent.
        SecretError
            If the session is closed, or this is a fork of its process. Nothing was spent.
        """
        self.check_process()  # before the lock, which a fork may have inherited while it was held
        with self._lock:
            as_rule(rule)
            outputs, share, notes = self._evaluate(mechanism, budget, checkpoint)
            calibrator = partial(calibrate, outputs, rule=rule)
            return self._publish(outputs, budget, share, calibrator, notes)[0]

    def refine(
        self,
        mechanism: Any,
        budget: AnyBudget,
        target: Accuracy,
        *,
        rule: AnyRule | None = None,
        levels: int | None = None,
        checkpoint: str | Path | None = None,
    ) -> GradualRelease:
        """Release ever more precise observations until their mean is good enough.

        As :meth:`release`; for ``target`` and ``levels`` see :func:`pacprivacy.privatize`.
        """
        from pacprivacy.session.refinement import refine

        self.check_process()
        with self._lock:
            return refine(self, mechanism, budget, target, (rule, levels, checkpoint))

    def odometer(self) -> Odometer:
        """Return what was spent in the worst case and what was really learned."""
        return read_odometer(self._spent, self._total, self._belief, self._pool, fresh=self._fresh)

    def _evaluate(
        self, mechanism: Any, budget: AnyBudget, checkpoint: str | Path | None
    ) -> tuple[Outputs, Limits, tuple[str, ...]]:
        """Run a mechanism on every candidate; return the outputs and the share that is left."""
        self._check_open()
        asked = limits_of(budget)
        check_left("information", asked.mi_nats, self._left().mi_nats)
        prepared = as_mechanism(mechanism)
        candidates, notes = self._candidates(prepared, checkpoint)
        prior = candidates.worst_prior
        share_of(asked, self._left(prior), prior)
        outputs = run_mechanism(
            prepared,
            self._data,
            candidates,
            n_jobs=self._n_jobs,
            checkpoint=checkpoint,
            rng=self._stream() if self._seeded else None,
            progress=self._progress,
        )
        # What is left now: a mechanism may have made a release of its own.
        return outputs, share_of(asked, self._left(prior), prior), notes

    def _check_open(self) -> None:
        if self._closed:
            raise SecretError("session must be open; it is closed. Start a new session.")

    def _stream(self, *indices: int) -> int:
        stream = public_generator(self._seed, "session", self._spent.n_releases, *indices)
        return int(stream.integers(2**62))

    def _proof_seed(self) -> int:
        """Return a seed that no earlier choice or proof of this session has used."""
        number, self._n_proofs = self._n_proofs, self._n_proofs + 1
        return self._stream(*((number,) if number else ()))

    def _candidates(
        self, mechanism: Any, checkpoint: str | Path | None
    ) -> tuple[Pool, tuple[str, ...]]:
        """Return the session's pool; it is drawn for the first release and kept."""
        if self._pool is not None:
            return self._pool, ()
        pool, n_subsets, units = self._pool_request
        self._pool, notes = draw_candidates(
            mechanism,
            self._data,
            pool,
            n_subsets=n_subsets,
            units=units,
            checkpoint=checkpoint,
            rng=self._seed if self._seeded else None,
        )
        self._belief = Belief.uniform(self._pool.n_subsets)
        return self._pool, notes

    def _left(self, prior: float | None = None) -> Limits:
        """Return what both the session's total and the ledger leave; increments if a prior."""
        return tighter(self._spent.left_of(self._total, prior), self._book.left())

    def _publish(
        self,
        outputs: Outputs,
        budget: AnyBudget,
        share: Limits,
        calibrator: Callable[..., NoisePlan],
        notes: tuple[str, ...],
    ) -> tuple[Release, Observation]:
        assert self._pool is not None  # drawn in release()
        assert self._belief is not None  # set with the pool
        belief = Belief.uniform(self._pool.n_subsets) if self._fresh else self._belief
        before = belief.success_per_unit(self._pool)
        seed = self._proof_seed()
        plan = calibrator(
            as_budget(share),
            pool=self._pool,
            log_belief=belief.log_p,
            caps=None if share.success is None else np.minimum(1.0, before + share.success),
            gamma=DEFAULT_GAMMA / 2,
            rng=seed,
        )
        context = Context(
            outputs=outputs,
            pool=self._pool,
            budget=budget,
            log_p=belief.log_p,
            gamma=DEFAULT_GAMMA,
            seed=seed,
            simulation=self._simulate,
            notes=notes,
            session=SessionPart(
                total=self._total, before=self._spent, share=share, fresh=self._fresh
            ),
        )
        with few_threads(self._pool.n_subsets * self._pool.n_units):
            plan = assess(plan, context)  # first: the charge is the best bound that is proved
        charge = charge_of(plan, share, before)
        self.check_process()  # again: the mechanism may have forked, or closed the session, and
        self._check_open()  # then there must be no second secret under the belief of the first
        if self._secret is None or self._fresh:
            self._secret = Secret(self._pool.n_subsets, self._source)
        unspent = self._spent
        try:
            release, observation = publish(
                plan,
                context,
                self._secret,
                self._source,
                spend=lambda: self._spend(charge, outputs.mechanism_name),
                keep=lambda seen, *written: self._keep(
                    seen, belief.updated(plan.log_likelihood(seen)), *written
                ),
            )
        except BaseException:
            if self._spent is not unspent and self._spent.n_releases == unspent.n_releases:
                self.close()  # something was drawn that the belief does not know
            raise
        self._releases.append(release)
        return release, observation

    def _spend(self, charge: Limits, what: str) -> None:
        """Book a charge; the secret is not used before this returns."""
        assert self._belief is not None  # set with the pool
        self._book.spend(charge, what, self._standing(self._belief, self._spent.n_releases))
        self._spent = self._spent.charged(charge)

    def _keep(
        self, seen: Observation, belief: Belief, certificate: Certificate, bundle: Bundle
    ) -> tuple[Certificate, Bundle]:
        """Remember a release, on disk where there is a ledger, before anyone sees its value."""
        assert self._pool is not None  # drawn in release()
        if not self._fresh:
            certificate, bundle = with_belief(certificate, bundle, seen, belief, self._pool)
        spent = self._spent.released()
        self._book.keep(self._standing(belief, spent.n_releases))
        self._belief, self._spent, self._n_proofs = belief, spent, 0
        self._book.commit(certificate)
        return certificate, bundle

    def _standing(self, belief: Belief, count: int) -> Standing:
        assert self._pool is not None  # drawn in release()
        assert self._secret is not None  # drawn before the charge is booked
        return Standing(
            total=self._total, n_releases=count, pool=self._pool, belief=belief, secret=self._secret
        )
