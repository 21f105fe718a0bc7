"""A release of descent where every unit has a coin: noisy sums of gradients, step after step.

Everything up to the draw is here. The certificate is complete before a coin is drawn; what the
steps released and what units paid are added to the curator's bundle after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pacprivacy import _version, release as releasing
from pacprivacy._checks import Mask, Vector
from pacprivacy._random import BitSource
from pacprivacy.adversary import Clocks
from pacprivacy.budget import Membership, Spent
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, Mechanism, StepMechanism, flatten
from pacprivacy.noise import (
    DescentPlan,
    DescentTranscript,
    plan_descent,
    simulate_descent_errors,
)
from pacprivacy.session.secret import Accounts, Plan
from pacprivacy.simulation import Outputs

NO_ERRORS: Final = ("no intervals: how sure coefficients are was not measured",)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentSampler:
    """Draws the noise of every step around the gradients of the used units."""

    plan: DescentPlan

    def observe(self, kept: Mask, source: BitSource, /) -> DescentTranscript:
        """Return what the steps released."""
        return self.plan.release(kept, source)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentReleasePlan(Plan):
    """What would be released of the units that are used; the certificate follows from ``bundle``.

    In a session every unit pays all that it may spend: what it really spends is known only after
    the last step.
    """

    drawn: DescentSampler = field(repr=False)
    bundle: releasing.DescentBundle = field(repr=False)
    before: Spent
    clocks_before: Clocks | None = field(default=None, repr=False)
    clocks: Clocks | None = field(default=None, repr=False)

    @property
    def sampler(self) -> DescentSampler:
        """Sampler of the noise."""
        return self.drawn

    @property
    def accounts(self) -> Clocks | None:
        """Amount that every unit will have paid."""
        return self.clocks

    def rests_on(self, spent: Spent, accounts: Accounts | None) -> bool:
        """Whether nothing was spent since the plan was made."""
        return self.before is spent and self.clocks_before is accounts

    def value_of(self, observed: DescentTranscript) -> Any:
        """Return the released value, a function of the released sums."""
        return self.outputs.restore(observed.weights.ravel())

    def bundle_of(self, observed: DescentTranscript) -> releasing.DescentBundle:
        """Return the bundle with what the steps released and what units paid."""
        return replace(self.bundle, integers=observed.integers, spent=observed.spent)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoinPayment:
    """What a release costs; in a session also where it stands, and every clock after it."""

    charge: Spent
    clocks: Clocks | None = None
    session: releasing.CoinSession | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentTerms:
    """What a descent may spend, and whose coins they are.

    ``allowed`` is the influence that every unit of the table may have in a session that stands at
    ``clocks``; None for a single release. ``pay`` takes what these units pay, the slack and the
    most that one may.
    """

    budget: Membership
    keep: float
    n_units: int
    unit: str
    seed: int
    simulate: bool
    before: Spent
    pay: Callable[[Vector, float, float], CoinPayment]
    allowed: Vector | None = field(default=None, repr=False)
    clocks: Clocks | None = None


def plan_descent_release(
    mechanism: Mechanism,
    everything: Data,
    records: tuple[StepMechanism, Data, npt.NDArray[Any] | None],
    terms: DescentTerms,
) -> DescentReleasePlan:
    """Rehearse the descent, fix its noise, and write the certificate.

    ``everything`` are all records as the mechanism has them, ``records`` as its steps do.
    """
    settings, data, units = records
    plan = plan_descent(
        settings,
        settings.problem(data.parts),
        units,
        n_units=terms.n_units,
        success=terms.budget.success,
        keep=terms.keep,
        seed=terms.seed,
        allowed=terms.allowed,
    )
    allowed = np.sqrt(plan.allowed)
    payment = terms.pay(allowed, plan.total_variation, plan.parameter)
    outputs = Outputs(
        values=plan.rehearsed.reshape(1, -1),
        structure=flatten(plan.rehearsed)[1],
        mechanism_name=mechanism.name,
        public=tuple(dict.fromkeys((*mechanism.public, *settings.public))),
        published=tuple(dict.fromkeys((*mechanism.published, *settings.published))),
        seed=0,
        finish=mechanism.finish,
        model=mechanism.model,
    )
    session = payment.session
    if session is not None:
        session = replace(session, allowed=allowed)
    bars = None
    if settings.errors:
        bars = _measure_errors(plan, outputs, (mechanism, everything), terms.seed)
    bundle = _bundle(plan, outputs, bars, terms, session)
    return DescentReleasePlan(
        certificate=releasing.write_coin_certificate(bundle),
        charge=payment.charge,
        outputs=outputs,
        error_bars=bars,
        drawn=DescentSampler(plan=plan),
        bundle=bundle,
        before=terms.before,
        clocks_before=terms.clocks,
        clocks=payment.clocks,
    )


def _measure_errors(
    plan: DescentPlan, outputs: Outputs, source: tuple[Mechanism, Data], seed: int
) -> releasing.ErrorBars | None:
    """Return error bars around the value on all records; None where they cannot be measured."""
    errors = simulate_descent_errors(plan, seed=seed)
    if errors is None:
        return None
    mechanism, everything = source
    try:
        on_all = mechanism.evaluate(everything.parts, np.random.default_rng(0))
    except MechanismError:  # no largest likelihood
        return None
    return releasing.measure_shifted_error_bars(
        outputs,
        errors.end,
        (errors.by_coins, errors.by_noise),
        flatten(mechanism.finish(on_all))[0],
        share=plan.keep,
    )


def _bundle(
    plan: DescentPlan,
    outputs: Outputs,
    bars: releasing.ErrorBars | None,
    terms: DescentTerms,
    session: releasing.CoinSession | None,
) -> releasing.DescentBundle:
    n_features, n_scores = plan.problem.shape
    several = plan.problem.n_rows != terms.n_units
    return releasing.DescentBundle(
        integers=np.zeros((0, n_features, n_scores), dtype=np.int64),
        spent=np.zeros(terms.n_units),
        bits=np.array([step.bits for step in plan.noise], dtype=np.int64),
        step_units=np.array([step.units_per_std for step in plan.noise], dtype=np.int64),
        n_features=n_features,
        n_scores=n_scores,
        n_units=terms.n_units,
        keep=terms.keep,
        parameter=plan.parameter,
        rate=plan.rate,
        dimension=outputs.n_outputs,
        unit=terms.unit,
        rows_digest=plan.rows_digest,
        simulation=terms.simulate,
        budget=terms.budget,
        session=session,
        stated=releasing.CuratorStatements(
            rule="clocks of gradients",
            mechanism=outputs.mechanism_name,
            output=outputs.structure.describe(),
            public=(*outputs.public, f"length of a step: {plan.rate:g}"),
            published=(
                *outputs.published,
                *((f"number of rows ({plan.problem.n_rows})",) if several else ()),
                "noise of every step and the length of steps: from a rehearsal on all records with "
                "noise of its own, rounded up",
                f"who may pay little more for their gradients has them shortened, each "
                f"{terms.unit} by what it has paid; used or left out makes no difference",
                *(() if bars is None else (bars.coin_sentence,)),
            ),
            notes=NO_ERRORS if bars is None else releasing.error_bar_notes(bars),
            software=_version.__version__,
        ),
    )
