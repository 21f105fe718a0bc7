"""The only pipeline: draw, run, calibrate, certify, spend, observe, publish, update the belief.

A session is about one secret and makes many releases, each chosen after seeing the ones before.
The attacker's belief over the pool is tracked exactly, and every release is calibrated against
that belief. Information adds up; membership is charged to a balance of every unit (math §14).
``privatize`` is a session of one release; ``plan`` is one that stops before anything is spent.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from pacprivacy import adversary, release as releasing
from pacprivacy._plots import draw
from pacprivacy._random import public_generator, secret_source
from pacprivacy._rounding import at_most
from pacprivacy._system import begin, few_threads, show_stages
from pacprivacy.budget import (
    AnyBudget,
    BudgetLike,
    Spent,
    as_budget,
    budget_limits,
    budget_needs_pool,
)
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    LedgerError,
    PoolError,
    SecretError,
)
from pacprivacy.mechanism import (
    as_mechanism,
    mechanism_with_totals,
    split_data_units,
    titled_mechanism,
)
from pacprivacy.noise import AnyRule, NoisePlan, Observation, as_rule, check_rule_feasible
from pacprivacy.queries import AT_LEAST
from pacprivacy.sample import Pool, PoolStrategy
from pacprivacy.session.account import Account, AccountShare, Holder, account_share, open_account
from pacprivacy.session.keeper import Keeper, Reading
from pacprivacy.session.query_release import QueryRelease, prepared_query, released_query
from pacprivacy.session.refinement import Accuracy, GradualRelease, refine
from pacprivacy.session.rehearsal import Prospect, Rehearsal, rehearsal_information
from pacprivacy.simulation import PROVING, SEARCHING, WRITING, Outputs, scale_run_outputs

if TYPE_CHECKING:
    from pacprivacy.ledger import Ledger


Totals = bool | str | Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluated:
    """A mechanism on every candidate, and what its release may spend; curator-only."""

    outputs: Outputs
    budget: AnyBudget
    share: AccountShare
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What would be released: everything but the draw. Nothing was spent.

    Parameters
    ----------
    certificate : Certificate, public
        What would be promised, with the proved figures.
    charge : Spent, public
        What the release would cost.
    noise : NoisePlan, curator-only
        The noise around every candidate's output: its shape, its size, its bounds.
    outputs : Outputs, curator-only
        The mechanism on every candidate.
    bundle : Bundle, curator-only
        Everything that the certificate follows from.
    belief : Belief, curator-only
        That of whoever saw the earlier releases.
    error_bars : ErrorBars, public, optional
        How sure each number would be.
    balances : Balances, curator-only
        What the charge leaves of every unit's membership balance, where there are any.
    more : Prospect, curator-only, optional
        What more candidates and folds would buy, where a black box has the default number.

    Examples
    --------
    >>> import numpy as np
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=200)
    >>> found = pac.plan(np.mean, ages, pac.Membership(0.6), n_subsets=64, rng=0)
    >>> found.certificate.noise.largest_std < 10
    True
    """

    certificate: releasing.Certificate
    charge: Spent
    noise: NoisePlan = field(repr=False)
    outputs: Outputs = field(repr=False)
    bundle: releasing.Bundle = field(repr=False)
    belief: adversary.Belief = field(repr=False)
    error_bars: releasing.ErrorBars | None = field(default=None, repr=False)
    balances: adversary.Balances | None = field(default=None, repr=False)
    more: Prospect | None = field(default=None, repr=False)

    @property
    def times_least(self) -> float | None:
        """How many times the least variance of any noise this one has, at most; curator-only.

        None where nothing is known. For outputs of many numbers the bound is loose (claim N-9).
        """
        return self.bundle.times_least()

    def __str__(self) -> str:
        text = f"PLAN: nothing was released or spent.\n{self.certificate}"
        ratio = self.times_least
        if ratio is not None:
            text += (
                f"\nfor the curator: the noise has at most {at_most(ratio, significant=2)} times "
                f"the least variance that noise of any law needs here."
            )
        return text if self.more is None else f"{text}\nfor the curator: {self.more}."


class Session(Keeper):
    """Adaptive releases about one secret subset, under one total budget.

    Parameters
    ----------
    data : array, frame, or tuple of those
        The universe of records.
    budget : Information, Membership, EpsilonEquivalent, ResidualEntropy or several with ``&``
        Total over all releases. Left out when a session goes on from its ledger.
    sample, n_subsets, units, n_jobs, backend, rng, progress, simulate
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
    Claim H-1. For every unit, the attacker's expected success after the last release is at most
    the total, however releases are chosen and whenever one stops.
    Claim H-2. The probability that some run tells more than that of a unit is bounded as well.
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
    >>> session.odometer().spent.mi_nats <= 0.5
    True
    """

    KIND = "a session"
    INSTEAD = "Save its releases instead."
    NAME = "session"

    def __init__(
        self,
        data: Any,
        *,
        budget: BudgetLike | None = None,
        sample: Pool | PoolStrategy | None = None,
        n_subsets: int | None = None,
        units: Any = None,
        secrets: Literal["same", "fresh"] = "same",
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
        if secrets not in ("same", "fresh"):
            raise BudgetError(f"secrets must be 'same' or 'fresh'; got {secrets!r}. Use 'same'.")
        self._fresh, self._alone, self._simulate = secrets == "fresh", False, simulate
        budget = None if budget is None else as_budget(budget)
        data, units = split_data_units(data, units)
        self._budget = budget
        total = self._read_total(sample.n_subsets if isinstance(sample, Pool) else n_subsets)
        self._rehearsal = Rehearsal(
            data,
            sample=sample,
            n_subsets=n_subsets,
            units=units,
            n_jobs=n_jobs,
            backend=backend,
            rng=rng,
            progress=progress,
        )
        book = None
        if ledger is not None:
            holder = Holder(
                dataset=dataset or "default",
                principal=principal or "default",
                data_digest=self._rehearsal.data.digest(),
                budget=budget,
                sample=sample,
                n_subsets=n_subsets,
                units=units,
            )
            book = open_account(ledger, holder, state=state, fresh=self._fresh, simulate=simulate)
        elif any(name is not None for name in (dataset, principal, state)):
            raise LedgerError(
                "ledger must be given with dataset, principal or state; got none. "
                "Add ledger='study.db'."
            )
        super().__init__(total, secret_source(self._rehearsal.seed, simulate=simulate), book)
        self._releases: list[releasing.Release] = []
        self._planned: Plan | None = None
        self._n_proofs = 0
        if (found := self._book.state) is not None:
            self._total, self._pool, self._secret = found.total, found.pool, found.secret
            self._rehearsal.pool = found.pool
            self._belief, self._balances = adversary.Belief(log_p=found.log_p), found.balances
        elif budget is None:
            self.close()
            raise BudgetError(
                f"budget must be given for a new session; got None, and dataset {dataset!r} has "
                "none to go on with. For example budget=pac.Information(1), or --total 'mi<=1'."
            )

    @classmethod
    def alone(
        cls, data: Any, budget: BudgetLike, *, rule: AnyRule | None = None, **options: Any
    ) -> Self:
        """Open a session of one release, which takes the whole budget and knows of no other."""
        if not options.get("simulate"):
            _check_independent(rule, options.get("sample"), options.get("rng"))
        session = cls(data, budget=budget, **options)
        session._alone = True
        return session

    @classmethod
    def resume(cls, data: Any, *, ledger: str | Path | Ledger, **options: Any) -> Self:
        """Go on with a session that is on disk, under the total budget that it began with.

        Takes ``units`` (the same as before), ``dataset``, ``principal``, ``state``, ``n_jobs``,
        ``backend``, ``rng`` and ``progress`` as the constructor does; refuses if there is nothing
        to go on with.
        """
        return cls(data, ledger=ledger, **options)

    def __repr__(self) -> str:
        nats = self._spent.mi_nats or 0.0
        return f"Session({self._spent.n_releases} releases, {nats:.4g} nats spent)"

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
    def releases(self) -> tuple[releasing.Release, ...]:
        """The releases made through this object; those before a restart are not kept."""
        return tuple(self._releases)

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw what was spent after each release, under the total; needs matplotlib.

        Returns a figure, which a notebook shows; ``path`` is a file to write besides.
        """
        return draw("plot_session", self.releases, path)

    def odometer(self) -> Reading:
        """Return what is promised, what was spent, and what was learned in this run."""
        n = self._spent.n_releases
        prior = 1 - 2.0**-n if self._fresh and n else None
        return replace(super().odometer(), ever_used_prior=prior)

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
    ) -> releasing.Release:
        """Release one more function of the secret subset.

        Parameters
        ----------
        mechanism : callable or Mechanism
            As in :func:`pacprivacy.privatize`.
        budget : Information, Membership, EpsilonEquivalent, ResidualEntropy or several with ``&``
            What this release may spend. ``Membership(q)`` is what a release may spend that is
            the only one under a total of ``q``; of such releases ``T`` fit, for ``T = ((Q - 1/2)
            / (q - 1/2))²`` and a total of ``Q``.
        share : float in (0, 1] or str, optional
            Instead: this share of what is left, of every limit. ``"1 of 10"`` plans for ten
            releases to come, this one included: units that were asked about less than others
            have saved, and may pay more now. With neither, all that is left.
        name : str, optional
            What the release is called in its certificate and in the ledger.
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
            plan = self._plan(
                mechanism_with_totals(titled_mechanism(mechanism, name), totals),
                budget,
                share=share,
                rule=rule,
                checkpoint=checkpoint,
            )
            found = self.publish(plan)[0]
        releasing.warn_of_error_bars(found.value, found.error_bars, plan.outputs)
        return found

    @contextmanager
    def charged_to(self, principal: str) -> Iterator[Account]:
        """Let what is released inside be charged to a principal, under its own limit in the ledger.

        All principals share the secret, the balances and the total, whose budget is that of ``*``.
        A query that fails on the data is paid for (:class:`~pacprivacy.errors.UnansweredError`).
        """
        book = self._book
        if not isinstance(book, Account):
            raise LedgerError("ledger must be given to charge a principal; got none. Add ledger=.")
        with self._lock:
            before, book.payer = book.payer, principal
            try:
                yield book
            finally:
                book.payer = before

    def plan(self, mechanism: Any, budget: BudgetLike | None = None, **options: Any) -> Plan:
        """Return what :meth:`release`, with the same options, would release.

        Nothing is drawn or spent.
        """
        self.check_process()
        with self._lock:
            titled = titled_mechanism(mechanism, options.pop("name", None))
            titled = mechanism_with_totals(titled, options.pop("totals", None))
            found = self._plan(titled, budget, **options)
            if self._alone and budget is not None:
                limit, rule = as_budget(budget), options.get("rule")
                more = self._rehearsal.prospect(titled, limit, found.outputs, rule=rule)
                found = self._planned = replace(found, more=more)
            return found

    def _plan(self, mechanism: Any, budget: BudgetLike | None, **asked: Any) -> Plan:
        with show_stages(self._rehearsal.progress):  # it is gone before the draw
            evaluated = self.evaluate(mechanism, budget, **asked)
            outputs, rule = evaluated.outputs, asked.get("rule")
            calibrate = partial(self._rehearsal.calibrate, outputs, rule=rule)
            return self.prepare(evaluated, calibrate)

    def sql(
        self,
        query: str,
        budget: BudgetLike | None = None,
        *,
        share: float | str | None = None,
        keys: Any = None,
        at_least: int = AT_LEAST,
        fill: float | None = None,
        checkpoint: str | Path | None = None,
        name: str | None = None,
    ) -> QueryRelease:
        """Release the answer to a query over :class:`pacprivacy.Tables`, the session's data.

        As :meth:`release`; for ``keys``, ``at_least`` and ``fill`` see :func:`pacprivacy.sql`.
        """
        self.check_process()
        with self._lock:  # who pays is read under it: another thread may ask for a principal
            data = self._rehearsal.data
            asked = released_query(query, data, keys, at_least, fill)
            with self._paid(asked, budget, share):
                asked = prepared_query(asked, data)
                made = self.release(asked, budget, share=share, checkpoint=checkpoint, name=name)
                found = QueryRelease.of(made, asked)
            self._releases[self._releases.index(made)] = found
            return found

    def _paid(self, asked: Any, budget: BudgetLike | None, share: float | str | None) -> Any:
        """Let a query fail at its principal's cost; the curator, who has the rows, pays nothing."""
        if self._book.payer is None:
            return nullcontext()
        limit = None if budget is None else as_budget(budget)

        def price() -> tuple[Spent, adversary.Balances | None]:
            self._draw(as_mechanism(asked))
            charge, after = self._share(limit, share, None).forfeit()
            return charge, None if self._balances is None else after

        return self.paid(price, asked.name)

    def query_stop(self) -> Callable[[], None]:
        """Return what another thread calls to stop a query of this thread that reads its tables.

        Nothing is drawn then. Later it does nothing: released cells are elsewhere.
        """
        stop: Callable[[], None] = self._rehearsal.data.parts[0].query_stop()
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
            if self._fresh:
                raise BudgetError(
                    "secrets must be 'same' to refine: observations of different subsets have no "
                    "common mean. Use secrets='same'."
                )
            settings = (rule, levels, checkpoint)
            declared = mechanism_with_totals(titled_mechanism(mechanism, name), totals)
            return refine(self, declared, as_budget(budget), target, settings)

    # --- the steps, in the order in which they are taken ----------------------------------------

    def evaluate(
        self,
        mechanism: Any,
        budget: BudgetLike | None,
        *,
        share: float | str | None = None,
        rule: AnyRule | None = None,
        checkpoint: str | Path | None = None,
    ) -> Evaluated:
        """Draw the pool if there is none, and run a mechanism on every candidate."""
        self.check_open()
        chosen = as_rule(rule)
        if chosen.n_reserve and not self._alone:
            raise BudgetError(
                f"rule must work for a secret from the pool; got {chosen.name}, which is for a "
                f"single release of a fresh secret. Leave the rule out in a session."
            )
        limit = None if budget is None else as_budget(budget)
        prepared = as_mechanism(mechanism)
        notes = self._draw(prepared, limit, rule=rule, checkpoint=checkpoint)
        self._share(limit, share, rule)  # refused here, before the mechanism runs
        outputs = self._rehearsal.run(prepared, checkpoint=checkpoint, rng=self._stream())
        outputs = replace(outputs, on_all=self._rehearsal.on_all(prepared, outputs))
        if rule is None:  # a rule that was asked for is in the units of the mechanism
            outputs = scale_run_outputs(outputs)
        # What is left now: a mechanism may have made a release of its own.
        given = self._share(limit, share, rule)
        asked = given.said() if limit is None else limit
        return Evaluated(outputs=outputs, budget=asked, share=given, notes=notes)

    def _draw(self, mechanism: Any, *limit: AnyBudget | None, **asked: Any) -> tuple[str, ...]:
        pool, notes = self._rehearsal.draw(mechanism, *limit, **asked)
        if self._pool is None:
            self._pool, self._belief = pool, adversary.Belief.uniform(pool.n_subsets)
            self._total = self._read_total(pool.n_subsets)
            self._balances = self._first_balances(pool.n_units)
        return notes

    def prepare(self, evaluated: Evaluated, calibrate: Callable[..., NoisePlan]) -> Plan:
        """Calibrate the noise to the belief, prove what it does, and write the certificate."""
        assert self._pool is not None  # drawn in evaluate()
        pool, share, belief = self._pool, evaluated.share, self.belief
        given, part, asked = self.calibration(share), None, evaluated.budget
        if not self._alone:
            part = releasing.BundleSession(
                total=self._total,
                before=self._spent,
                share=share.limits,
                fresh=self._fresh,
                balances=share.balances,
                allowed=share.allowed,
                part=share.part,
            )
            asked = rehearsal_information(share.limits)
        begin(SEARCHING)
        noise = calibrate(asked, gamma=adversary.DEFAULT_GAMMA / 2, **given)
        outputs = evaluated.outputs
        bars, said = releasing.measure_error_bars(outputs, noise, pool), outputs.published
        context = releasing.Context(
            outputs=outputs if bars is None else replace(outputs, published=(*said, *bars.facts)),
            pool=pool,
            budget=evaluated.budget,
            log_p=belief.log_p,
            gamma=adversary.DEFAULT_GAMMA,
            seed=given["rng"],
            simulation=self._simulate,
            notes=(*evaluated.notes, *releasing.error_bar_notes(bars)),
            session=part,
        )
        with few_threads(pool.n_subsets * pool.n_units):
            begin(PROVING)
            # the charge is the best bound that is proved
            noise = releasing.certified_plan(noise, context)
            begin(WRITING)
            bundle = releasing.bundle_of(noise, context)
            certificate = releasing.write_certificate(bundle, noise)
        charges, left = releasing.certified_charges(noise, bundle), share.balances
        if left is not None and charges is not None:
            if not (charges <= left.per_unit).all():
                raise BudgetExceededError(
                    "the release must be paid for by every unit; what was proved of its noise is "
                    "more than some have left. Nothing was drawn or spent. Ask for less."
                )
            left = left.after(charges, share.part)
        self._planned = Plan(
            certificate=certificate,
            charge=releasing.certificate_charge(noise, part, charges),
            balances=left,
            noise=noise,
            outputs=outputs,
            bundle=bundle,
            belief=belief,
            error_bars=bars,
        )
        return self._planned

    def publish(self, plan: Plan) -> tuple[releasing.Release, Observation]:
        """Spend, draw the noise, remember what was seen, and build the released value.

        Guarantee
        ---------
        Claim R-2. The certificate is complete before the secret is touched; the value is a
        function of the observation, the pool's outputs and the structure that all subsets share.
        """
        self.check_process()
        with self._lock:
            part = plan.bundle.session
            moved = part is not None and (
                part.before is not self._spent
                or (self._balances is not None and part.balances is not self._balances)
            )
            if plan is not self._planned or moved:
                raise SecretError(
                    "plan must be the session's latest: the belief has moved on since; got "
                    "another. Plan it again."
                )
            self._planned = None
            return self._publish(plan)

    def _publish(self, plan: Plan) -> tuple[releasing.Release, Observation]:
        unspent = self._spent
        if self._fresh:
            self._secret = None
        try:
            name, first = plan.outputs.mechanism_name, plan.noise.first_secret
            left = None if self._balances is None else plan.balances
            terms: Any = {"balances": left, "first": first, "exact": plan.noise.is_noiseless}
            seen = self.observe(plan.noise, plan.charge, name, **terms)
            certificate, bundle = self._remember(plan, seen)
            value = plan.outputs.restore(plan.noise.value_of(seen))
        except BaseException:
            if self._spent is not unspent and self._spent.n_releases == unspent.n_releases:
                self.close()  # something was drawn that the belief does not know
            raise
        release = releasing.Release(
            value=value,
            certificate=certificate,
            proof=bundle,
            error_bars=plan.error_bars,
            model=plan.outputs.model,
        )
        self._releases.append(release)
        return release, seen

    def _remember(
        self, plan: Plan, seen: Observation
    ) -> tuple[releasing.Certificate, releasing.Bundle]:
        """Keep the belief after a release, and say in its certificate what was learned."""
        assert self._pool is not None  # drawn in evaluate()
        certificate, bundle, part = plan.certificate, plan.bundle, plan.bundle.session
        belief = plan.belief
        if part is not None:
            belief = belief.updated(plan.noise.log_likelihood(seen))
        if part is not None and not self._fresh:
            learned = releasing.certificate_learned_facts(belief, self._pool)
            facts = {**(certificate.composition or {}), **learned}
            certificate = replace(certificate, composition=facts)
            bundle = replace(bundle, session=replace(part, observation=seen))
        self.keep(belief)
        self._n_proofs = 0
        self._book.commit(certificate)
        return certificate, bundle

    # --- what the steps are held to -------------------------------------------------------------

    @property
    def balances(self) -> adversary.Balances | None:
        """What every unit may still lose; None where membership has no total."""
        return self._balances

    @property
    def belief(self) -> adversary.Belief:
        """What the secret of the next release is drawn from, in the eyes of every attacker."""
        assert self._belief is not None  # set with the pool
        return adversary.Belief.uniform(len(self._belief.log_p)) if self._fresh else self._belief

    def calibration(self, share: AccountShare) -> dict[str, Any]:
        """Return what a calibration is told besides the budget: belief, balances, its own seed."""
        if self._alone:
            return {"pool": self._pool, "rng": self.proof_seed()}
        assert self._pool is not None  # drawn in evaluate()
        log_p, heat = self.belief.log_p, None
        if share.balances is not None and share.allowed is not None:
            before = adversary.ViewTilts(self._pool).before(log_p, np.arange(self._pool.n_units))
            heat = share.balances.heat(before, share.allowed, share.part)
        return {"pool": self._pool, "log_belief": log_p, "heat": heat, "rng": self.proof_seed()}

    def proof_seed(self) -> int:
        """Return a seed that no earlier choice or proof of this session has used."""
        number, self._n_proofs = self._n_proofs, self._n_proofs + 1
        return self._stream(*((number,) if number else ()))

    def _stream(self, *indices: int) -> int:
        seed = self._rehearsal.seed
        if self._alone:
            return seed
        stream = public_generator(seed, "session", self._spent.n_releases, *indices)
        return int(stream.integers(2**62))

    def _read_total(self, n_subsets: int | None) -> Spent:
        """Return the limits of the budget, as far as they can be told before the pool is drawn."""
        if self._budget is None or (n_subsets is None and budget_needs_pool(self._budget)):
            return Spent()
        total = budget_limits(self._budget, n_subsets)
        if self._fresh and total.success_level is not None:
            raise BudgetError(
                "budget must be Information when secrets are fresh: increments of membership "
                "add up for one secret only. Use secrets='same'."
            )
        return total

    def _first_balances(self, n_units: int) -> adversary.Balances | None:
        """Return full balances under the session's total and what the ledger leaves; or None."""
        left = self._total.above().tightest(self._book.left(shared=True)).success_increment
        if self._alone or left is None:
            return None
        return adversary.Balances.begin(2 * max(left, 0.0), n_units)

    def _share(
        self, budget: AnyBudget | None, share: float | str | None, rule: AnyRule | None
    ) -> AccountShare:
        """Return what a release may spend: what was asked, never more than what is left."""
        assert self._pool is not None  # drawn in evaluate()
        asked = None if budget is None else budget_limits(budget, self._pool.n_subsets)
        if self._alone and budget is not None and asked is not None:  # one release has both
            check_rule_feasible(budget, rule, self._pool)
            return AccountShare(limits=asked.above())
        left = self._spent.left_of(self._total).tightest(self._book.left())
        done, units = self._spent.n_releases, self._pool.n_units
        return account_share(asked, share, left, self._balances, units, done)


def _check_independent(
    rule: AnyRule | None,
    sample: Pool | PoolStrategy | None,
    rng: np.random.Generator | int | None,
) -> None:
    """Refuse a pool that somebody may have seen, where the secret is one of its subsets."""
    if not as_rule(rule).n_reserve:
        return
    if isinstance(sample, Pool):
        raise PoolError(
            "sample must be a strategy for a confidence or empirical certificate: the secret is "
            "a subset of it, which nobody may have seen. Pass Half(...) or Poisson(...) itself."
        )
    if rng is not None:
        raise BudgetError(
            "rng must be None for a confidence or empirical certificate: the secret subset is "
            "drawn with the pool. Leave rng out, or set simulate=True."
        )
