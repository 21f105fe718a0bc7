"""Accuracy first: spend until what was released is good enough, never more than a cap."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pacprivacy._rounding import at_most
from pacprivacy.accounting.odometer import Odometer
from pacprivacy.accounting.refinement import Refinement, level_shares
from pacprivacy.accounting.target import Accuracy, Look
from pacprivacy.adversary.information import DEFAULT_GAMMA
from pacprivacy.budget import AnyBudget, Limits
from pacprivacy.errors import BudgetError
from pacprivacy.noise.rules import Boxed, Empirical, Rule, rule_name
from pacprivacy.release import Certificate, Release
from pacprivacy.release.assess import finite_epsilon
from pacprivacy.theory.posterior import posterior_success

if TYPE_CHECKING:
    from pacprivacy.accounting.session import Session

__all__ = ["GradualRelease", "refine"]

Settings = tuple[Rule | None, int | None, str | Path | None]
_TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradualRelease(Release):
    """What was released until it was good enough, or until the cap.

    Parameters
    ----------
    value : Any, public
        Same structure that the mechanism returned: the precision-weighted mean of the steps.
    certificate : Certificate, public
        Promises the *cap*; what was really spent and learned stands under ``composition``.
    reached : bool, public
        Whether the target was reached.
    looks : tuple of Look, public
        The figure of merit after every step.
    spent : Odometer, public
        What the session has spent and what has really been learned.
    steps : tuple of Release
        Every observation, each with a certificate of its own that can be verified. ``bundle``
        is that of the last one.

    Examples
    --------
    >>> import pacprivacy as pac
    >>> ages = np.random.default_rng(0).normal(40, 10, size=200)
    >>> def closeness(mean, known):
    ...     return -abs(mean - known)
    >>> near = pac.Accuracy(at_least=-1.0, on=40.0, metric=closeness)
    >>> release = pac.privatize(
    ...     np.mean, ages, pac.Information(1), target=near, n_subsets=64, rule="waterfill"
    ... )
    >>> release.certificate.mi_upper_nats
    1.0
    >>> release.spent.spent_nats <= 1.0
    True
    """

    reached: bool
    looks: tuple[Look, ...]
    spent: Odometer
    steps: tuple[Release, ...] = field(repr=False)

    def save(self, folder: str | Path) -> Path:
        """Write ``release.json`` (public), and every step in a folder of its own.

        The steps can be verified one by one; their ``curator.npz`` are for the curator alone.
        """
        target = Path(folder)
        for number, step in enumerate(self.steps, start=1):
            step.save(target / f"step-{number:02d}")
        public = target / "release.json"
        text = json.dumps(self.to_public_dict(), indent=2, allow_nan=False)
        public.write_text(text + "\n", encoding="utf-8")
        return public


def refine(
    session: Session, mechanism: Any, budget: AnyBudget, target: Accuracy, settings: Settings
) -> GradualRelease:
    """Release observations of growing precision until the target or the budget is reached.

    Guarantee
    ---------
    Claim S-3. The information of all observations together is at most the expected sum of what
    was charged, which is at most the budget; stopping depends on what was released and on
    public data only.
    """
    rule, levels, checkpoint = settings
    if isinstance(rule, Boxed | Empirical):
        raise BudgetError(
            f"rule must work for a secret from the pool when there is a target; got "
            f"{rule_name(rule)}. Leave the rule out."
        )
    if not isinstance(target, Accuracy):
        raise BudgetError(
            f"target must be an Accuracy; got {type(target).__name__}. "
            "For example pac.Accuracy(at_least=0.9, on=(X_public, y_public))."
        )
    if session._fresh:
        raise BudgetError(
            "secrets must be 'same' to refine: observations of different subsets have no common "
            "mean. Use secrets='same'."
        )
    outputs, share, notes = session._evaluate(mechanism, budget, checkpoint)
    fractions = level_shares(share, levels)
    steps = Refinement(outputs, share, rule=rule)
    releases: list[Release] = []
    looks: list[Look] = []
    value: Any = None
    start = session._spent
    for number, fraction in enumerate(fractions):
        belief, pool = session._belief, session._pool
        assert belief is not None  # set by _evaluate
        assert pool is not None  # likewise
        if number == 0:
            before = belief.success_per_unit(pool)
            caps = None if share.success is None else np.minimum(1.0, before + share.success)
            steps.begin(pool=pool, log_belief=belief.log_p, caps=caps, rng=session._proof_seed())
        part = _part(
            share,
            fraction,
            steps,
            session._spent.nats - start.nats,
            session._spent.success - start.success,
        )
        if part is None:
            continue
        plans: list[Any] = []

        def calibrator(asked: AnyBudget, _made: list[Any] = plans, **given: Any) -> Any:
            _made.append(steps.plan(asked, **given))
            return _made[-1]

        release, observation = session._publish(outputs, budget, part, calibrator, notes)
        value = outputs.restore(steps.add(plans[-1], observation))
        releases.append(release)
        looks.append(target.look(value, n_looks=len(fractions)))
        if looks[-1].enough or plans[-1].is_noiseless:
            break
    return GradualRelease(
        value=value,
        bundle=releases[-1].bundle,
        certificate=_certificate(session, budget, target, share, steps, releases, looks),
        reached=looks[-1].enough,
        looks=tuple(looks),
        spent=session.odometer(),
        steps=tuple(releases),
    )


def _part(
    share: Limits, fraction: float, steps: Refinement, nats: float, success: float
) -> Limits | None:
    """Return what the next step may spend, given what this refinement spent before."""
    room = steps.ceiling_nats * (fraction if share.mi_nats is not None else 1.0) - nats
    increment = None if share.success is None else fraction * share.success - success
    if room <= _TINY or (increment is not None and increment <= _TINY):
        return None
    return Limits(mi_nats=room, success=increment)


def _certificate(
    session: Session,
    budget: AnyBudget,
    target: Accuracy,
    share: Limits,
    steps: Refinement,
    releases: list[Release],
    looks: list[Look],
) -> Certificate:
    """Write down the cap as the promise, and the rest as facts about this run."""
    last, seen = releases[-1].certificate, session.odometer()
    nats = steps.ceiling_nats
    bound = posterior_success(nats, last.prior)
    if share.success is not None:
        bound = min(bound, last.prior + share.success)
    if session._spent.n_releases > len(releases):  # a part of a longer session
        bound = float((last.composition or {}).get("session_success_bound", bound))
    return replace(
        last,
        budget=str(budget),
        rule=f"{last.rule}, refined over {len(releases)} observations",
        log_det_nats=nats,
        information=None,
        mi_upper_nats=nats,
        any_inference={p: posterior_success(nats, float(p)) for p in last.any_inference},
        membership=None,
        membership_mean=None,
        membership_bound=bound,
        epsilon_equivalent=finite_epsilon(bound),
        side_knowledge=(),
        noise=replace(last.noise, total_variance=steps.total_variance),
        confidence=1 - len(releases) * DEFAULT_GAMMA if last.confidence < 1 else 1.0,
        notes=(*last.notes, *_notes(target, looks, releases)),
        composition={
            **(last.composition or {}),
            "session_success_bound": bound,
            "target": str(target),
            "target_reached": "yes" if looks[-1].enough else "no",
            "scores": ", ".join(f"{look.score:.6g}" for look in looks),
            "learned_nats": seen.learned_nats,
            "best_guess_now": seen.best_guess_now,
        },
    )


def _notes(target: Accuracy, looks: list[Look], releases: list[Release]) -> tuple[str, ...]:
    last = looks[-1]
    if last.enough:
        verdict = f"Target {target}: reached after {len(looks)} observations, {last.score:.4g}."
    else:
        best = max(look.cautious for look in looks)
        verdict = (
            f"Target {target}: NOT reached under the budget; the best of {len(looks)} looks was "
            f"{best:.4g}, {at_most(target.at_least - best, decimals=4)} short."
        )
    return (
        verdict,
        "The promise is the budget, not what was spent: a figure that depends on where one "
        "stopped is not a bound on what was learned.",
        "The figures for the noise are those of the mean of all observations; the standard "
        "deviations and the grid are those of the last one.",
    )
