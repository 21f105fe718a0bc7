"""A release of descent where every unit has a coin: noisy sums of gradients, step after step.

Everything up to the draw is here. The certificate is complete before a coin is drawn; what the
steps released and what units paid are added to the curator's bundle after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from pacprivacy import _version, release as releasing
from pacprivacy._checks import Mask, as_told
from pacprivacy._random import BitSource
from pacprivacy._system import single_threaded
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import Data, Mechanism, StepMechanism, flatten
from pacprivacy.noise import (
    DescentPlan,
    DescentTranscript,
    plan_descent,
    simulate_descent_errors,
)
from pacprivacy.session.coin_release import Codes, CoinReleasePlan, CoinTerms
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
class DescentReleasePlan(CoinReleasePlan):
    """A plan of steps.

    In a session every unit pays all that it may spend: what it really spends is known only after
    the last step.
    """

    drawn: DescentSampler = field(repr=False)
    bundle: releasing.DescentBundle = field(repr=False)

    @property
    def sampler(self) -> DescentSampler:
        """Sampler of the noise."""
        return self.drawn

    def value_of(self, observed: DescentTranscript) -> Any:
        """Return the released value, a function of the released sums."""
        return self.outputs.restore(observed.weights.ravel())

    def bundle_of(self, observed: DescentTranscript) -> releasing.DescentBundle:
        """Return the bundle with what the steps released and what units paid."""
        return replace(self.bundle, integers=observed.integers, spent=observed.spent)


def plan_descent_release(
    mechanism: Mechanism,
    everything: Data,
    records: tuple[StepMechanism, Data, Codes],
    terms: CoinTerms,
) -> DescentReleasePlan:
    """Try the descent, fix its noise, and write the certificate.

    ``everything`` are all records as the mechanism has them, ``records`` as its steps do.
    """
    (settings, data, units), coins = records, terms.coins
    if coins.clip != "auto":
        raise MechanismError(
            "clip must be left out for a descent: gradients are shortened by clocks; got "
            f"{as_told(coins.clip)}. Drop it."
        )
    with single_threaded():
        plan = plan_descent(
            settings,
            settings.problem(data.parts),
            units,
            n_units=coins.n_units,
            success=terms.budget.success,
            keep=coins.keep,
            seed=coins.seed,
            allowed=terms.allowed,
        )
        allowed = np.sqrt(plan.allowed)
        payment = terms.pay(allowed, plan.total_variation)
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
            bars = _measure_errors(plan, outputs, (mechanism, everything), coins.seed)
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
    terms: CoinTerms,
    session: releasing.CoinSession | None,
) -> releasing.DescentBundle:
    coins = terms.coins
    n_features, n_scores = plan.shape
    several = plan.n_rows != coins.n_units
    return releasing.DescentBundle(
        integers=np.zeros((0, n_features, n_scores), dtype=np.int64),
        spent=np.zeros(coins.n_units),
        bits=np.array([step.bits for step in plan.noise], dtype=np.int64),
        step_units=np.array([step.units_per_std for step in plan.noise], dtype=np.int64),
        n_features=n_features,
        n_scores=n_scores,
        n_units=coins.n_units,
        keep=coins.keep,
        parameter=plan.parameter,
        rate=plan.rate,
        dimension=outputs.n_outputs,
        unit=coins.unit,
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
                *((f"number of rows ({plan.n_rows})",) if several else ()),
                "noise and length of the steps: from rehearsals on records of all units with "
                "noise of its own, rounded up",
                f"who may pay little more for their gradients has them shortened, each "
                f"{coins.unit} by what it has paid; used or left out makes no difference",
                *(() if bars is None else (bars.coin_sentence,)),
            ),
            notes=NO_ERRORS if bars is None else releasing.error_bar_notes(bars),
            software=_version.__version__,
        ),
    )
