"""When a released value is good enough: a figure of merit on public data, and a threshold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pacprivacy import noise
from pacprivacy._certificates import write_release
from pacprivacy._checks import Vector, as_outputs, as_told
from pacprivacy._rounding import at_most
from pacprivacy.adversary import DEFAULT_GAMMA, Balances
from pacprivacy.budget import AnyBudget, Spent
from pacprivacy.errors import BudgetError, MechanismError
from pacprivacy.release import (
    NAMED,
    ErrorBars,
    PoolCertificate,
    Release,
    certificate_epsilon,
    error_bar_notes,
    warn_of_error_bars,
)
from pacprivacy.session.rehearsal import rehearsal_information
from pacprivacy.theory import empirical_bernstein, membership_success, posterior_success

if TYPE_CHECKING:
    from pacprivacy.session.account import AccountShare
    from pacprivacy.session.pool_secret import Calibration, Evaluated, PoolPlan
    from pacprivacy.session.secret import Request
    from pacprivacy.session.session import Session

FEW_ROWS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a released value: its figure of merit, and whether that was enough; public."""

    score: float
    cautious: float
    enough: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accuracy:
    """A released value is good enough when its figure of merit on *public* data is.

    Parameters
    ----------
    at_least : float, public
        Threshold of the figure of merit.
    on : tuple, public
        Validation data, such as ``(X, y)``. It must not hold records that are to be protected:
        nothing is promised about it.
    metric : callable, optional
        ``metric(value, *on)`` returns the figure of merit, larger being better: one number, or
        one number in [0, 1] for every row (then their mean counts). By default the value's own
        ``score(*on)``, for fitted estimators.
    confidence : float in (0, 1), optional
        With numbers for every row: ask that the *population's* mean reaches the threshold at
        this confidence, over all looks together, and not only the mean of these rows.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> fitted = LogisticRegression().fit(X, [0, 0, 1, 1])
    >>> Accuracy(at_least=0.9, on=(X, [0, 0, 1, 1])).look(fitted, n_looks=1)
    Look(score=1.0, cautious=1.0, enough=True)
    """

    at_least: float
    on: Any = field(repr=False)
    metric: Callable[..., Any] | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.on, tuple):
            object.__setattr__(self, "on", (self.on,))
        if not np.isfinite(self.at_least):
            raise BudgetError(f"at_least must be a finite number; got {self.at_least!r}. Use 0.9.")
        if self.confidence is not None and not 0.0 < self.confidence < 1.0:
            raise BudgetError(
                f"confidence must be between 0 and 1; got {self.confidence!r}. Use 0.99."
            )

    def __str__(self) -> str:
        sure = "" if self.confidence is None else f" at confidence {self.confidence:g}"
        name = "score" if self.metric is None else getattr(self.metric, "__name__", "metric")
        return f"{name} >= {self.at_least:g} on public data{sure}"

    def look(self, value: Any, *, n_looks: int) -> Look:
        """Judge a released value; ``n_looks`` shares the confidence out over all looks."""
        found = self._measure(value)
        if not (found.size and np.isfinite(found).all()):
            raise MechanismError(
                "metric must return finite numbers; got NaN, an infinity or nothing. What was "
                "spent stays spent. Use a metric that is defined for every released value."
            )
        score = float(found.mean())
        cautious = score if self.confidence is None else self._lower(found, n_looks)
        return Look(score=score, cautious=cautious, enough=cautious >= self.at_least)

    def _measure(self, value: Any) -> Vector:
        if self.metric is None and not hasattr(value, "score"):
            raise MechanismError(
                f"metric must be given for a value without a score method; got "
                f"{type(value).__name__}. Pass metric=function(value, *on)."
            )
        measured = value.score(*self.on) if self.metric is None else self.metric(value, *self.on)
        found: Vector = np.atleast_1d(np.asarray(measured, dtype=np.float64))
        return found

    def _lower(self, found: Vector, n_looks: int) -> float:
        """Return a lower bound of the population's mean that holds over all looks."""
        assert self.confidence is not None  # checked by the caller
        if found.ndim != 1 or len(found) < FEW_ROWS or found.min() < 0 or found.max() > 1:
            raise MechanismError(
                "metric must return one number in [0, 1] for every row when a confidence is "
                "asked for. Leave confidence out, or return for example predicted == y."
            )
        gamma, n = (1 - self.confidence) / n_looks, len(found)
        if np.isin(found, (0.0, 1.0)).all():  # a count: the exact bound of Clopper and Pearson
            from scipy.stats import beta

            hits = int(found.sum())
            return float(beta.ppf(gamma, hits, n - hits + 1)) if hits else 0.0
        width = empirical_bernstein(float(found.var(ddof=1)), n, width=1.0, gamma=gamma)
        return float(found.mean()) - width


INFORMATION_LEVELS: Final = 12
MEMBERSHIP_LEVELS: Final = 4
_RATIO: Final = {"information": 2.0**-0.5, "membership": 0.5}


def refinement_shares(share: Spent, levels: int | None) -> tuple[float, ...]:
    """Return the part of a share that may be spent up to each level, growing to 1.

    Information adds up exactly, so its levels are many and close. Increments of membership
    lose with every step, so there they are few and far apart.
    """
    kind = "information" if share.success_increment is None else "membership"
    count = levels or (INFORMATION_LEVELS if kind == "information" else MEMBERSHIP_LEVELS)
    if count < 1 or count != int(count):
        raise BudgetError(f"levels must be a positive whole number; got {as_told(levels)}. Use 12.")
    return tuple(_RATIO[kind] ** (count - 1 - k) for k in range(int(count)))


class Refinement:
    """Noise of one fixed shape at falling levels, and what was seen so far; curator-only.

    ``share`` is what all steps together may spend; the shape is found by the rule at the whole
    share.

    Guarantee
    ---------
    Claim S-3. Every plan of :meth:`plan` meets its own limits under the belief it is given, so
    Claims S-1 and H-1 hold for the transcript whatever rule ends it. The estimate is a function of
    the observations.
    """

    def __init__(self, outputs: object, share: Spent, *, rule: noise.AnyRule | None = None) -> None:
        self._values, self._share, self._rule = as_outputs(outputs), share, rule
        self._base: noise.NoisePlan | None = None
        self._spread = noise.spread_of(
            self._values, np.full(len(self._values), 1 / len(self._values))
        )
        self._weighted: Vector = np.zeros(self._values.shape[1])
        self._precision = 0.0
        self.n_observations = 0

    @property
    def total_variance(self) -> float:
        if self._base is None or self._precision == 0.0:
            return 0.0
        return self._base.total_variance / self._precision

    @property
    def ceiling_nats(self) -> float:
        """Information that no transcript exceeds, chosen before anything is released."""
        if self._share.mi_nats is not None:
            return self._share.mi_nats
        most = float(np.log(len(self._values)))
        return most if self._base is None else min(most, 1.25 * self._base.mi_upper)

    def begin(self, rests_on: Calibration) -> None:
        """Find the shape of the noise, at the whole share; nothing is drawn."""
        self._first(rehearsal_information(self._share), rests_on, DEFAULT_GAMMA)

    def _first(self, budget: AnyBudget, rests_on: Calibration, gamma: float) -> noise.NoisePlan:
        plan = noise.calibrate(
            self._values,
            budget,
            rule=self._rule,
            pool=rests_on.pool,
            log_belief=rests_on.log_belief,
            heat=rests_on.heat,
            gamma=gamma,
            rng=rests_on.seed,
        )
        self._base = None if plan.is_noiseless else plan
        return plan

    def plan(
        self, limit: AnyBudget, rests_on: Calibration, *, gamma: float = DEFAULT_GAMMA
    ) -> noise.NoisePlan:
        if self._base is None:
            return self._first(limit, rests_on, gamma)
        rule = noise.as_rule(self._rule)
        problem = rule.pose(
            self._values,
            limit,
            pool=rests_on.pool,
            log_belief=rests_on.log_belief,
            heat=rests_on.heat,
            gamma=gamma,
            rng=rests_on.seed,
            measured=self._spread,
        )
        free = problem.noiseless_plan(self._base.rule)
        if free is not None:  # little is left to be learned
            return free
        return noise.prove_rescaled(self._base, problem, simulated=rule.is_simulated)

    def add(self, plan: noise.NoisePlan, observation: noise.Observation) -> Vector:
        self.n_observations += 1
        value = plan.value_of(observation)
        if plan.is_noiseless or self._base is None:
            return value
        weight = float(np.sqrt(plan.total_variance / self._base.total_variance)) ** -2
        self._weighted = self._weighted + weight * value
        self._precision += weight
        return np.asarray(self._weighted / self._precision, dtype=np.float64)


_TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GradualRelease(Release):
    """What was released until it was good enough, or until the cap.

    ``value`` is the precision-weighted mean of the ``steps``, each a release with a certificate of
    its own that can be verified; ``bundle`` is that of the last one. The certificate promises the
    *cap*; what was really spent and learned stands under ``composition``. ``looks`` are the figures
    of merit after every step, ``reached`` says whether the last was enough, ``spent`` what the
    session has spent.
    """

    reached: bool
    looks: tuple[Look, ...]
    spent: Spent
    steps: tuple[Release, ...] = field(repr=False)

    def save(self, folder: str | Path, *, sign: str | Path | None = None) -> Path:
        """Write ``release.json`` (public), and every step in a folder of its own.

        The steps can be verified one by one; their ``curator.npz`` are for the curator alone.
        """
        target = Path(folder)
        for number, step in enumerate(self.steps, start=1):
            step.save(target / f"step-{number:02d}", sign=sign)
        public = target / "release.json"
        write_release(public, self.to_public_dict(), sign=sign)
        self.write_values(target)
        return public


def refine(
    session: Session, request: Request, target: Accuracy, levels: int | None
) -> GradualRelease:
    """Release observations of growing precision until the target or the budget is reached.

    Guarantee
    ---------
    Claim S-3. The information of all observations together is at most the expected sum of what
    was charged, which is at most the budget; stopping depends on what was released and on
    public data only.
    """
    rule = request.rule
    if noise.as_rule(rule).n_reserve:
        raise BudgetError(
            f"rule must work for a secret from the pool when there is a target; got "
            f"{noise.as_rule(rule).name}. Leave the rule out."
        )
    if not isinstance(target, Accuracy):
        raise BudgetError(
            f"target must be an Accuracy; got {type(target).__name__}. "
            "For example pac.Accuracy(at_least=0.9, on=(X_public, y_public))."
        )
    evaluated = session.evaluate(request)
    outputs, share = evaluated.outputs, evaluated.share
    fractions = refinement_shares(share.limits, levels)
    steps = Refinement(outputs, share.limits, rule=rule)
    steps.begin(session.calibration(share))

    def next_noise(_: Evaluated, limit: AnyBudget, rests_on: Calibration) -> noise.NoisePlan:
        return steps.plan(limit, rests_on, gamma=DEFAULT_GAMMA / 2)

    releases: list[Release] = []
    looks: list[Look] = []
    value: Any = None
    start, done, now = session.spent.mi_nats or 0.0, 0.0, share.balances
    for fraction in fractions:
        gone = (session.spent.mi_nats or 0.0) - start
        now = session.balances or now  # a metric may have made a release of its own
        nats = steps.ceiling_nats * (1.0 if share.limits.mi_nats is None else fraction) - gone
        part = _part(share, (done, fraction), nats, now)
        if part is None:
            continue
        done = fraction
        plan = session.prepare(replace(evaluated, share=part), next_noise)
        release, observation = session.publish(plan)
        now = plan.balances
        value = outputs.restore(steps.add(plan.noise, observation))
        releases.append(release)
        looks.append(target.look(value, n_looks=len(fractions)))
        if looks[-1].enough or plan.noise.is_noiseless:
            break
    certificate = _certificate(session, evaluated.budget, target, steps, releases, looks)
    certificate, bars = _with_error_bars(certificate, plan, steps)
    warn_of_error_bars(value, bars, outputs)
    return GradualRelease(
        value=value,
        proof=releases[-1].bundle,
        error_bars=bars,
        certificate=certificate,
        reached=looks[-1].enough,
        looks=tuple(looks),
        spent=session.spent,
        steps=tuple(releases),
    )


def _with_error_bars(
    certificate: PoolCertificate, last: PoolPlan, steps: Refinement
) -> tuple[PoolCertificate, ErrorBars | None]:
    """Return the certificate with the error bars of the mean of all observations."""
    bars = last.error_bars
    if bars is None or not last.noise.total_variance > 0:
        return certificate, bars
    last_notes = error_bar_notes(bars)
    bars = bars.with_noise((steps.total_variance / last.noise.total_variance) ** 0.5)
    bars = bars.compared(last.outputs)
    published = (text for text in certificate.published if not text.startswith(NAMED))
    notes = (note for note in certificate.notes if note not in last_notes)
    return replace(
        certificate,
        published=(*published, bars.sentence),
        notes=(*notes, *error_bar_notes(bars)),
    ), bars


def _part(
    share: AccountShare, fractions: tuple[float, float], nats: float, now: Balances | None
) -> AccountShare | None:
    """Return what the next step may spend, given what the steps before it have left."""
    done, fraction = fractions
    if nats <= _TINY:
        return None
    if share.balances is None or share.allowed is None or now is None:
        return replace(share, limits=replace(share.limits, mi_nats=nats))
    paid = share.balances.per_unit - now.per_unit
    allowed = np.minimum(fraction * share.allowed - paid, now.per_unit)
    if (allowed <= _TINY * share.allowed).any():
        return None
    part = min(1.0, (fraction - done) * share.part / (1 - done * share.part))
    lost = now.increment_left - now.after(allowed, part).increment_left
    limits = Spent(mi_nats=nats, success_increment=max(lost, 0.0))
    return replace(share, limits=limits, balances=now, allowed=allowed, part=part)


def _certificate(
    session: Session,
    budget: AnyBudget,
    target: Accuracy,
    steps: Refinement,
    releases: list[Release],
    looks: list[Look],
) -> PoolCertificate:
    """Write down the cap as the promise, and the rest as facts about this run."""
    last, seen = releases[-1].certificate, session.odometer()
    assert isinstance(last, PoolCertificate)  # of a pool
    nats = steps.ceiling_nats
    bound = membership_success(nats, last.prior)
    limit = float((last.composition or {}).get("session_success_bound", 1.0))
    longer = session.spent.n_releases > len(releases)  # a part of a longer session
    bound = limit if longer else min(bound, limit)
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
        epsilon_equivalent=certificate_epsilon(bound),
        side_knowledge=(),
        noise=replace(last.noise, total_variance=steps.total_variance).rounded(),
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
