"""The only pipeline: draw, run, calibrate, certify, spend, observe, publish, update the belief.

A session is about one secret and makes many releases, each chosen after seeing the ones before.
The use of the secret depends on its kind (:mod:`pacprivacy.session.secret`); here is the
order of the steps. ``privatize`` is a session of one release; ``plan`` is one that stops before
anything is spent.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pacprivacy._plots import draw
from pacprivacy._random import secret_source
from pacprivacy._system import show_stages
from pacprivacy.budget import AnyBudget, BudgetLike, Spent, as_budget
from pacprivacy.errors import (
    BudgetError,
    LedgerError,
    SecretError,
    UnansweredError,
)
from pacprivacy.mechanism import (
    Data,
    as_mechanism,
    mechanism_with_totals,
    titled_mechanism,
)
from pacprivacy.noise import AnyRule
from pacprivacy.queries import AT_LEAST, QueryMechanism, QuerySums, Tables
from pacprivacy.release import Release, warn_of_error_bars
from pacprivacy.sample import Coins, Pool, PoolStrategy
from pacprivacy.session.account import Account, LedgerPlace, open_account
from pacprivacy.session.coin_secret import CoinSecret, CoinState, SingleCoinSecret
from pacprivacy.session.dry_run import (
    DryRun,
    check_independent,
    default_session_coins,
    pool_reason,
)
from pacprivacy.session.pool_secret import PoolSecret, SinglePoolSecret
from pacprivacy.session.query_release import (
    QueryRelease,
    prepared_query,
    released_query,
)
from pacprivacy.session.refinement import Accuracy, GradualRelease, refine
from pacprivacy.session.secret import (
    Accounts,
    Plan,
    Purse,
    Receipt,
    Refinement,
    Request,
    SampleOptions,
    SecretHolder,
    SessionSecret,
    read_share,
)
from pacprivacy.session.state import AccountOwner

if TYPE_CHECKING:
    from pacprivacy.ledger import Ledger


Totals = bool | str | Sequence[str] | None


class Session(SecretHolder):
    """Adaptive releases about one secret subset, under one total budget.

    Parameters
    ----------
    data : array, frame, or tuple of those
        The universe of records.
    budget : Information, Membership, EpsilonEquivalent, ResidualEntropy or several with ``&``
        Total over all releases. Leave it out to resume from the ledger.
    sample, n_subsets, units, n_jobs, backend, rng, progress, simulate
        As in :func:`pacprivacy.privatize`; but by default there is a pool, since a session may be
        asked for anything, except over :class:`pacprivacy.Tables` of 200 units or more where
        membership alone is limited. With ``sample=pac.Coins()`` every unit has a coin, and a clock
        that adds up what releases of sums reveal of it, used or left out.
    ledger : path, postgresql:// URL or Ledger, optional
        Ledger that records every spend before the secret is used. A session that is opened again
        with the same ledger and names continues with the same pool, secret and belief.
    dataset, principal : str, optional
        Whose budget in the ledger is spent. Where the ledger has none that covers them, the
        session's ``budget`` becomes theirs.
    state : path, optional
        File of the secret and the belief (mode 0600); beside the ledger by default.

    Guarantee
    ---------
    Claim S-1. ``MI(secret; all releases) <= E[Σ charges] <= total``, also when a mechanism is
    chosen after seeing earlier releases.
    Claim H-1. For every unit, the attacker's expected success after the last release is at most
    the total, however releases are chosen and whenever one stops.
    Claim C-8. With coins the same holds against an attacker who knows all but one unit's coin.
    Claim H-2. The probability that a run reveals more about a unit is bounded as well.
    Claim K-1. With a ledger, no release is published without an entry, whatever crashes when.
    Claim R-4. In a fork of its process a session releases nothing and spends nothing.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> x = np.random.default_rng(0).normal(size=(64, 2))
    >>> with pac.Session(x, budget=pac.Information(0.5), n_subsets=32, rng=0) as session:
    ...     first = session.release(lambda d: d.mean(axis=0), pac.Information(0.25))
    ...     second = session.release(lambda d: d.std(axis=0), pac.Information(0.25))
    >>> session.odometer().spent.mi_nats <= 0.5
    True
    """

    KIND = "a session"
    INSTEAD = "Save its releases instead."
    NAME = "session"
    _secret: SessionSecret
    _planned: Plan | None
    _whole: AnyBudget | None = None  # what a request takes that names no budget and no share

    def __init__(
        self,
        data: Any,
        *,
        budget: BudgetLike | None = None,
        sample: Pool | PoolStrategy | Coins | None = None,
        n_subsets: int | None = None,
        units: Any = None,
        n_jobs: int | None = None,
        backend: str | None = None,
        rng: np.random.Generator | int | None = None,
        progress: bool | None = None,
        simulate: bool = False,
        ledger: str | Path | Ledger | None = None,
        dataset: str | None = None,
        principal: str | None = None,
        state: str | Path | None = None,
    ) -> None:
        options = SampleOptions(
            sample=sample,
            n_subsets=n_subsets,
            units=units,
            n_jobs=n_jobs,
            backend=backend,
            rng=rng,
            progress=progress,
            simulate=simulate,
        )
        place = LedgerPlace.of(ledger, dataset, principal, state)
        self._start(data, budget, options, place)

    @classmethod
    def with_options(
        cls,
        data: Any,
        budget: BudgetLike | None,
        options: SampleOptions,
        place: LedgerPlace | None = None,
    ) -> Self:
        """Open a session, given its options as records."""
        session = cls.__new__(cls)
        session._start(data, budget, options, place)
        return session

    def _start(
        self,
        data: Any,
        budget: BudgetLike | None,
        options: SampleOptions,
        place: LedgerPlace | None,
    ) -> None:
        records, options = options.with_data(data)
        limits, book = None if budget is None else as_budget(budget), None
        if place is not None:
            owner = AccountOwner(
                dataset=place.dataset,
                principal=place.principal,
                data_digest=records.digest(),
                budget=limits,
                options=options,
                has_tables=isinstance(records.parts[0], Tables),
            )
            book = open_account(place, owner)
        self._open(records, limits, options, book)

    def _open(
        self,
        data: Data,
        budget: AnyBudget | None,
        options: SampleOptions,
        book: Account | None = None,
    ) -> None:
        """Begin with a secret of which nothing is drawn yet, or go on from the account."""
        self._budget, self._planned = budget, None
        self._releases: list[Release] = []
        try:
            secret = self._new_secret(data, options, book)
            source = secret_source(secret.seed, simulate=options.simulate)
            super().__init__(secret.total(budget), source, secret, book)
            if self._book.state is not None:
                self._total = self._book.state.total
                secret.go_on(self._book.state)
            elif budget is None:
                dataset = "" if book is None else book.dataset
                raise BudgetError(
                    f"budget must be given for a new session; got None, and dataset {dataset!r} "
                    "has none to go on with. For example budget=pac.Information(1), or --total "
                    "'mi<=1'."
                )
        except BaseException:
            if book is not None:
                book.close()  # or the session stays locked while the error is handled
            raise

    def _new_secret(
        self, data: Data, options: SampleOptions, book: Account | None
    ) -> SessionSecret:
        """Return coins or a pool: as chosen, as stored, or else by default."""
        coins = options.sample
        if coins is None and book is not None and book.state is not None:
            coins = book.state.coins if isinstance(book.state, CoinState) else None
        elif coins is None:
            left = Spent() if book is None else book.left()
            coins = default_session_coins(data, self._budget, options, left)
        if not isinstance(coins, Coins):
            return PoolSecret(DryRun(data, options))
        options.check_for_coins()
        digest = "" if book is None else book.data_digest
        return CoinSecret(data, options, coins, data_digest=digest)

    @classmethod
    def resume(
        cls,
        data: Any,
        *,
        ledger: str | Path | Ledger,
        dataset: str | None = None,
        principal: str | None = None,
        state: str | Path | None = None,
        sample: Pool | PoolStrategy | Coins | None = None,
        units: Any = None,
        n_jobs: int | None = None,
        backend: str | None = None,
        rng: np.random.Generator | int | None = None,
        progress: bool | None = None,
    ) -> Self:
        """Resume a session that is on disk, under the total budget that it began with.

        The arguments are those of the constructor, ``units`` the same as before. Refused if there
        is no session.
        """
        options = SampleOptions(
            sample=sample, units=units, n_jobs=n_jobs, backend=backend, rng=rng, progress=progress
        )
        place = LedgerPlace.of(ledger, dataset, principal, state)
        return cls.with_options(data, None, options, place)

    def __repr__(self) -> str:
        return f"Session({self._spent.n_releases} releases, {self._secret.spent_text(self._spent)})"

    def _repr_html_(self) -> str:
        names = [html.escape(release.certificate.mechanism) for release in self._releases]
        items = "".join(f"<li>{name}</li>" for name in names)
        listed = f"<p>Released through this object:</p><ol>{items}</ol>" if names else ""
        return self.odometer()._repr_html_() + listed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def releases(self) -> tuple[Release, ...]:
        """The releases made through this object; those before a restart are not kept."""
        return tuple(self._releases)

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the budget spent after each release, under the total; needs matplotlib.

        Returns a figure, which a notebook shows; ``path`` is a file to write besides.
        """
        return draw("plot_session", self.releases, path)

    def release(
        self,
        mechanism: Any,
        budget: BudgetLike | None = None,
        *,
        share: float | str | None = None,
        rule: AnyRule | None = None,
        checkpoint: str | Path | None = None,
        name: str | None = None,
        totals: Totals = None,
    ) -> Release:
        """Release one more function of the secret subset.

        Parameters
        ----------
        mechanism : callable or Mechanism
            As in :func:`pacprivacy.privatize`.
        budget : Information, Membership, EpsilonEquivalent, ResidualEntropy or several with ``&``
            Budget of this release. ``Membership(q)`` is what a release may spend that is
            the only one under a total of ``q``; of such releases ``T`` fit, for ``T = ((Q - 1/2)
            / (q - 1/2))²`` and a total of ``Q``.
        share : float in (0, 1] or str, optional
            Instead: this share of the remaining budget. ``"1 of 10"`` plans for ten releases, this
            one included: units that paid less so far may pay more now. With neither, the whole
            remaining budget.
        name : str, optional
            Name of the release in its certificate and in the ledger.
        totals : bool, str or sequence of str, optional
            Which numbers are sums or counts over the records; see :func:`pacprivacy.privatize`.

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
            plan = self.plan(
                mechanism,
                budget,
                share=share,
                rule=rule,
                checkpoint=checkpoint,
                name=name,
                totals=totals,
            )
            release = self.publish(plan)[0]
        warn_of_error_bars(release.value, release.error_bars, plan.outputs)
        return release

    def plan(
        self,
        mechanism: Any,
        budget: BudgetLike | None = None,
        *,
        share: float | str | None = None,
        rule: AnyRule | None = None,
        checkpoint: str | Path | None = None,
        name: str | None = None,
        totals: Totals = None,
    ) -> Plan:
        """Return the planned release of :meth:`release` with the same options.

        Nothing is drawn or spent.
        """
        self.check_process()
        with self._lock:
            titled = mechanism_with_totals(titled_mechanism(mechanism, name), totals)
            return self._plan(self._request(titled, budget, share, rule, checkpoint))

    def _plan(self, request: Request) -> Plan:
        self.check_open()
        with show_stages(self._secret.progress):  # it is gone before the draw
            measured = self._measure(request)
            self._planned = self._secret.plan(request, measured, self._purse())
            return self._planned

    def _measure(self, request: Request) -> Any:
        """Read the input of a request from the records; the purse is read again after every stage.

        What is left changes where a mechanism releases on its own meanwhile.
        """
        notes = self._secret.settle(request)
        return self._secret.measure(request, self._purse(), notes)

    def sql(
        self,
        query: str,
        budget: BudgetLike | None = None,
        *,
        share: float | str | None = None,
        keys: Any = None,
        at_least: int = AT_LEAST,
        fill: float | None = None,
        edges: Mapping[str, Sequence[float]] | None = None,
        checkpoint: str | Path | None = None,
        name: str | None = None,
        principal: str | None = None,
    ) -> QueryRelease:
        """Release the answer to a query over :class:`pacprivacy.Tables`, the session's data.

        As :meth:`release`; for ``keys``, ``at_least``, ``fill`` and ``edges`` see
        :func:`pacprivacy.sql`. Releases for a ``principal`` are charged to it, under its own
        limit in the ledger. All principals share the secret, the balances and the total, whose
        budget is that of ``*``. A query of a principal that fails on the data is paid for
        (:class:`~pacprivacy.errors.UnansweredError`).
        """
        self.check_process()
        if principal is not None:
            self.account()  # refused where there is none
        data = self._secret.data
        checked = released_query(
            query,
            data,
            kind=self._secret.QUERY,
            keys=keys,
            at_least=at_least,
            fill=fill,
            edges=edges,
        )
        request = self._request(checked, budget, share, None, checkpoint)
        if principal is not None:
            return self._answer(request, checked, principal, name)
        with self._lock:
            prepared = prepared_query(checked, data)
            plan = self._plan(_with_query(request, prepared, name))
            answer = QueryRelease.of(self.publish(plan)[0], prepared)
            self._releases[-1] = answer
        warn_of_error_bars(answer.value, answer.error_bars, plan.outputs)
        return answer

    def _answer(
        self, request: Request, query: QueryMechanism, principal: str, name: str | None
    ) -> QueryRelease:
        """Charge a principal's query, read and plan it beside others, and draw its noise.

        Guarantee
        ---------
        Claim Q-4. The charge is on the disk before a row is read, and stays there if the query
        fails or the process is stopped. All failures give the same message, except those of the
        ledger.
        """
        if isinstance(query, QuerySums):
            query.check_words()
        with self._lock:
            self.check_open()
            price = self._secret.price(request, self._purse(principal))
            what = query.name
            receipt = self.prepay(price.charge, what, price.accounts, principal)
        try:
            prepared = prepared_query(query, self._secret.data)
            plan = self._secret.plan_paid(_with_query(request, prepared, name), price)
            with self._lock:
                observed = self.observe_paid(plan.sampler)
                release = self._released(plan, observed, receipt)
            return QueryRelease.of(release, prepared)
        except (LedgerError, SecretError):
            raise
        except Exception as error:
            raise UnansweredError from error

    def account(self) -> Account:
        """Return the session's place in its ledger; refuse where there is none."""
        if not isinstance(self._book, Account):
            raise LedgerError("ledger must be given to charge a principal; got none. Add ledger=.")
        return self._book

    def query_stop(self) -> Callable[[], None]:
        """Return a function by which another thread stops a query of this thread.

        Nothing is drawn then. Later it does nothing: released cells are elsewhere.
        """
        stop: Callable[[], None] = self._secret.data.parts[0].query_stop()
        return stop

    def refine(
        self,
        mechanism: Any,
        budget: BudgetLike,
        target: Accuracy,
        *,
        rule: AnyRule | None = None,
        levels: int | None = None,
        checkpoint: str | Path | None = None,
        name: str | None = None,
        totals: Totals = None,
    ) -> GradualRelease:
        """Release ever more precise observations until their mean is good enough.

        As :meth:`release`; for ``target`` and ``levels`` see :func:`pacprivacy.privatize`.
        """
        self.check_process()
        with self._lock:
            titled = mechanism_with_totals(titled_mechanism(mechanism, name), totals)
            request = self._request(titled, budget, None, rule, checkpoint)
            return refine(self, request, target, levels)

    # --- the steps, in the order in which they are taken ----------------------------------------

    def begin_refinement(self, request: Request, levels: int | None) -> Refinement:
        """Return the steps of growing precision that a request's budget pays for."""
        self.check_open()
        measured = self._measure(request)
        return self._secret.refinement(request, measured, self._purse(), levels)

    def plan_step(self, steps: Refinement) -> Plan | None:
        """Return the plan of the next step; None where nothing is left to spend."""
        self.check_open()
        self._planned = steps.next_plan(self._purse())
        return self._planned

    def publish(self, plan: Plan) -> tuple[Release, Any]:
        """Spend, draw the noise, remember the observation, and build the released value.

        Guarantee
        ---------
        Claim R-2. The certificate is complete before the secret is touched; the value is a
        function of the observation, the pool's outputs and the structure that all subsets share.
        """
        self.check_process()
        with self._lock:
            if plan is not self._planned or not plan.rests_on(self._spent, self._secret.balances):
                raise SecretError(
                    "plan must be the session's latest: the belief has moved on since; got "
                    "another. Plan it again."
                )
            self._planned = None
            return self._publish(plan)

    def _publish(self, plan: Plan) -> tuple[Release, Any]:
        unspent = self._spent
        try:
            observed, receipt = self.observe(
                plan.sampler,
                plan.charge,
                plan.outputs.mechanism_name,
                balances=None if self._secret.balances is None else plan.cost.accounts,
                first=plan.first_candidate,
            )
            release = self._released(plan, observed, receipt, counted=False)
            self._releases.append(release)
            return release, observed
        except BaseException:
            if self._spent is not unspent and self._spent.n_releases == unspent.n_releases:
                self.close()  # something was drawn that the belief does not know
            raise

    def _released(
        self, plan: Plan, observed: Any, receipt: Receipt | None, *, counted: bool = True
    ) -> Release:
        """Remember the observation, and build the released value; ``counted`` if it was prepaid."""
        belief, certificate, bundle = self._secret.remember(plan, observed)
        if not counted:
            self.keep(belief)
        self._book.commit(certificate, receipt)
        return Release(
            value=plan.value_of(observed),
            certificate=certificate,
            proof=bundle,
            error_bars=plan.bars_of(observed),
            model=plan.outputs.model,
        )

    @property
    def balances(self) -> Accounts | None:
        """Balance or clock of every unit; None without a total of membership."""
        return self._secret.balances

    def _request(
        self,
        mechanism: Any,
        budget: BudgetLike | None,
        share: float | str | None,
        rule: AnyRule | None,
        checkpoint: str | Path | None,
    ) -> Request:
        return Request(
            mechanism=as_mechanism(mechanism),
            budget=self._whole if budget is None else as_budget(budget),
            share=None if share is None else read_share(share),
            rule=rule,
            checkpoint=checkpoint,
        )

    def _purse(self, payer: str | None = None) -> Purse:
        """Return the remaining budget; the total is read again, since a pool may settle it."""
        if self._book.state is None:
            self._total = self._secret.total(self._budget)
        left = self._book.left(payer)
        return Purse(
            total=self._total,
            spent=self._spent,
            left=left,
            shared=left if payer is None else self._book.left(),
            own_limit=self._book.own_limit(),
            accounts=self._secret.balances,
        )


class SingleSession(Session):
    """A session of one release, which takes the whole budget and knows of no other.

    Without a ``sample`` it has coins where ``mechanism``, with all these options, can.
    """

    def __init__(
        self,
        data: Any,
        budget: BudgetLike,
        mechanism: Any = None,
        options: SampleOptions | None = None,
        *,
        rule: AnyRule | None = None,
        checkpoint: str | Path | None = None,
        totals: Totals = None,
    ) -> None:
        options = options or SampleOptions()
        check_independent(rule, options)
        self._reason: str | None = None  # why there is a pool
        records, options = options.with_data(data)
        limits = self._whole = as_budget(budget)
        if options.sample is None and mechanism is not None:
            of_pools = {"rule": rule, "checkpoint": checkpoint, "totals": totals}
            self._reason = pool_reason(
                as_mechanism(mechanism),
                records,
                options.units,
                limits,
                options=of_pools | options.of_pools,
            )
            if self._reason is None:
                options = replace(options, sample=Coins())
        self._open(records, limits, options)

    def _new_secret(
        self, data: Data, options: SampleOptions, book: Account | None
    ) -> SessionSecret:
        if isinstance(options.sample, Coins):
            options.check_for_coins()
            return SingleCoinSecret(data, options, options.sample)
        return SinglePoolSecret(DryRun(data, options, reason=self._reason))

    def publish(self, plan: Plan) -> tuple[Release, Any]:
        """Publish the one release; refuse a second, which knows nothing of the first."""
        self.check_process()
        with self._lock:
            if self._spent.n_releases:
                raise SecretError(
                    "a session of one release must make no other; it has made one. Open a "
                    "pac.Session for several."
                )
            return super().publish(plan)


def _with_query(request: Request, query: QueryMechanism, name: str | None) -> Request:
    return replace(request, mechanism=as_mechanism(titled_mechanism(query, name)))
