"""Release until a value is good enough: a target on public data, and the loop that meets it.

Observations of growing precision are released one after the other; the value is their
precision-weighted mean. The promise is the cap, not the amount spent, because stopping depends on
the noise. With coins the squares that units pay add up, so the cap is divided beforehand; with a
pool every step is calibrated to the belief after the steps before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pacprivacy import noise
from pacprivacy._checks import Vector, as_outputs
from pacprivacy._rounding import at_most
from pacprivacy._values import write_release
from pacprivacy.adversary import DEFAULT_GAMMA, Balances, influence_risk
from pacprivacy.budget import AnyBudget, Spent
from pacprivacy.errors import (
    BudgetError,
    BudgetExceededError,
    MechanismError,
    PacPrivacyError,
)
from pacprivacy.release import (
    NAMED,
    Certificate,
    ErrorBars,
    PoolCertificate,
    Release,
    certificate_epsilon,
    error_bar_notes,
    warn_of_error_bars,
)
from pacprivacy.session.dry_run import dry_run_information
from pacprivacy.session.secret import Plan, Purse, Refinement, check_levels
from pacprivacy.statistics import Sums
from pacprivacy.theory import empirical_bernstein, membership_success, posterior_success

if TYPE_CHECKING:
    from pacprivacy.session.coin_release import CoinTerms, SumRecords
    from pacprivacy.session.pool_secret import (
        AccountShare,
        Calibration,
        Evaluated,
        PoolPlan,
        PoolSecret,
    )
    from pacprivacy.session.secret import Odometer, Request
    from pacprivacy.session.session import Session

FEW_ROWS: Final = 2
COIN_LEVELS: Final = 12
STEP_RATIO: Final = 2.0**-0.5  # of the precision after a step, to that after the next
MOST_FINER: Final = 4.0  # how much slack the coarsest grid adds to that of the finest
INFORMATION_LEVELS: Final = 12
MEMBERSHIP_LEVELS: Final = 4
_RATIO: Final = {"information": 2.0**-0.5, "membership": 0.5}
_TINY: Final = 1e-12


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
        figures = self._measure(value)
        if not (figures.size and np.isfinite(figures).all()):
            raise MechanismError(
                "metric must return finite numbers; got NaN, an infinity or nothing. What was "
                "spent stays spent. Use a metric that is defined for every released value."
            )
        score = float(figures.mean())
        cautious = score if self.confidence is None else self._lower(figures, n_looks)
        return Look(score=score, cautious=cautious, enough=cautious >= self.at_least)

    def _measure(self, value: Any) -> Vector:
        if self.metric is None and not hasattr(value, "score"):
            raise MechanismError(
                f"metric must be given for a value without a score method; got "
                f"{type(value).__name__}. Pass metric=function(value, *on)."
            )
        measured = value.score(*self.on) if self.metric is None else self.metric(value, *self.on)
        figures: Vector = np.atleast_1d(np.asarray(measured, dtype=np.float64))
        return figures

    def _lower(self, figures: Vector, n_looks: int) -> float:
        """Return a lower bound of the population's mean that holds over all looks."""
        assert self.confidence is not None  # checked by the caller
        if figures.ndim != 1 or len(figures) < FEW_ROWS or figures.min() < 0 or figures.max() > 1:
            raise MechanismError(
                "metric must return one number in [0, 1] for every row when a confidence is "
                "asked for. Leave confidence out, or return for example predicted == y."
            )
        gamma, n = (1 - self.confidence) / n_looks, len(figures)
        if np.isin(figures, (0.0, 1.0)).all():  # a count: the exact bound of Clopper and Pearson
            from scipy.stats import beta

            hits = int(figures.sum())
            return float(beta.ppf(gamma, hits, n - hits + 1)) if hits else 0.0
        width = empirical_bernstein(float(figures.var(ddof=1)), n, width=1.0, gamma=gamma)
        return float(figures.mean()) - width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GradualRelease(Release):
    """Releases until the value was good enough, or until the cap.

    ``value`` is the precision-weighted mean of the ``steps``, each a release with a certificate of
    its own that can be verified; ``bundle`` is that of the last one. The certificate promises the
    *cap*; ``composition`` has the amounts really spent and learned. ``looks`` are the figures
    of merit after every step, ``reached`` says whether the last was enough, ``spent`` what the
    session has spent.
    """

    reached: bool
    looks: tuple[Look, ...]
    spent: Spent
    steps: tuple[Release, ...] = field(repr=False)

    def save(self, folder: str | Path, *, sign: str | Path | None = None) -> Path:
        """Write ``release.json`` (public), and every step in a separate folder.

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
    Claims S-3 and C-23. All observations together stay within the budget; stopping depends on what
    was released and on public data only.
    """
    if not isinstance(target, Accuracy):
        raise BudgetError(
            f"target must be an Accuracy; got {type(target).__name__}. "
            "For example pac.Accuracy(at_least=0.9, on=(X_public, y_public))."
        )
    steps = session.begin_refinement(request, levels)
    releases: list[Release] = []
    looks: list[Look] = []
    value: Any = None
    while (plan := session.plan_step(steps)) is not None:
        release, observed = session.publish(plan)
        value = steps.add(plan, observed)
        releases.append(release)
        looks.append(target.look(value, n_looks=steps.n_looks))
        if looks[-1].enough or plan.is_exact:
            break
    certificate, bars = steps.promise(releases, session.odometer())
    warn_of_error_bars(value, bars, steps.outputs)
    return GradualRelease(
        value=value,
        proof=releases[-1].bundle,
        error_bars=bars,
        certificate=_judged(certificate, target, looks),
        reached=looks[-1].enough,
        looks=tuple(looks),
        spent=session.spent,
        steps=tuple(releases),
    )


def _judged(certificate: Certificate, target: Accuracy, looks: list[Look]) -> Certificate:
    """Return the certificate with the target, and whether it was reached."""
    last = looks[-1]
    if last.enough:
        verdict = f"Target {target}: reached after {len(looks)} observations, {last.score:.4g}."
    else:
        best = max(look.cautious for look in looks)
        verdict = (
            f"Target {target}: NOT reached under the budget; the best of {len(looks)} looks was "
            f"{best:.4g}, {at_most(target.at_least - best, decimals=4)} short."
        )
    notes = (
        verdict,
        "The promise is the budget, not what was spent: a figure that depends on where one "
        "stopped is not a bound on what was learned.",
        "The figures for the noise are those of the mean of all observations; the standard "
        "deviations and the grid are those of the last one.",
    )
    return replace(
        certificate,
        notes=(*certificate.notes, *notes),
        composition={
            **(certificate.composition or {}),
            "target": str(target),
            "target_reached": "yes" if last.enough else "no",
            "scores": ", ".join(f"{look.score:.6g}" for look in looks),
        },
    )


# --- with coins ---------------------------------------------------------------------------------


class CoinRefinement(Refinement):
    """Repeated noisy sums; each step has its own noise, grid and rounding.

    The precisions of the steps add up, and so do the squares that units pay for them. What a unit
    may pay in all is divided beforehand: a step from noise ``Σ_t`` to ``Σ_{t+1}`` costs ``|x|²`` in
    ``Σ_{t+1}⁻¹ - Σ_t⁻¹``.

    Guarantee
    ---------
    Claim C-23. All steps together, however one stops, cost no unit more than ``terms`` allow it.
    """

    def __init__(self, records: SumRecords, terms: CoinTerms, levels: int | None) -> None:
        self._whole = records.plan(terms)
        assert terms.account is not None  # of a session
        assert terms.allowed is not None  # of a session
        clip = self._whole.noise.radius or terms.coins.clip  # that of all steps
        self._records, self._coins = records, replace(terms.coins, clip=clip)
        self._account, self._allowed = terms.account, np.square(terms.allowed)
        self.outputs, self.n_looks = self._whole.outputs, check_levels(levels, COIN_LEVELS)
        self._level, self._precision, self._weight = 0, 0.0, 0.0
        self._total: Vector = np.zeros(1)
        self._variance: Vector = np.zeros(1)

    def next_plan(self, purse: Purse) -> Plan | None:
        """Return the plan of the next step; None after the last, or where units have less left.

        A step under whose noise a group might have no value is merged into the next one.
        """
        refused: PacPrivacyError | None = None
        while self._level < self.n_looks:
            self._level += 1
            precision = STEP_RATIO ** (self.n_looks - self._level)
            try:
                allowed = (precision - self._precision) * self._allowed
                step = self._account.with_purse(purse).step_terms(allowed)
                plan = self._records.plan(replace(step, coins=self._coins))
            except (BudgetExceededError, MechanismError) as error:
                refused = error
                continue
            self._precision = precision
            return plan
        if refused is not None and not self._weight:
            raise refused
        return None

    def add(self, plan: Plan, observed: Any) -> Any:
        sums: Sums = observed
        assert sums.noise_std is not None  # of noisy sums
        variance = np.square(sums.noise_std)
        trace = float(variance.sum())
        weight = 1.0 / trace if trace > 0 else 1.0
        self._total = self._total + weight * sums.values
        self._variance = self._variance + weight**2 * variance
        self._weight += weight
        mean = replace(sums, values=self._total / self._weight, noise_std=self._noise_std())
        return plan.value_of(mean)

    def _noise_std(self) -> Vector:
        return np.asarray(np.sqrt(self._variance) / self._weight)

    def promise(
        self, steps: list[Release], odometer: Odometer
    ) -> tuple[Certificate, ErrorBars | None]:
        """Return the certificate of a release of the whole budget, and the bars of this mean."""
        whole, coins = self._whole.certificate, self._whole.bundle
        alike = np.full(1, coins.parameter)
        slack = MOST_FINER * self.n_looks * coins.total_variation
        bound = influence_risk(alike, keep=coins.keep, total_variation=slack).success
        whole = replace(
            whole,
            membership_bound=bound,
            epsilon_equivalent=certificate_epsilon(bound),
        )
        std, most = self._noise_std(), self._whole.noise.sum_noise_std
        scale = float(np.sqrt(np.square(std).sum() / max(np.square(most).sum(), 1e-300)))
        noise = replace(whole.noise, total_variance=whole.noise.total_variance * scale**2)
        bars = self._whole.error_bars
        bars = None if bars is None else bars.with_noise(scale)
        return replace(whole, noise=noise.rounded()), bars


# --- of a pool ----------------------------------------------------------------------------------


def refinement_shares(share: Spent, levels: int | None) -> tuple[float, ...]:
    """Return the part of a share that may be spent up to each level, growing to 1.

    Information adds up exactly, so its levels are many and close. Increments of membership
    lose with every step, so there they are few and far apart.
    """
    kind = "information" if share.success_increment is None else "membership"
    count = check_levels(levels, INFORMATION_LEVELS if kind == "information" else MEMBERSHIP_LEVELS)
    return tuple(_RATIO[kind] ** (count - 1 - k) for k in range(count))


class FallingNoise:
    """Noise of one fixed shape at falling levels, and the mean of observations; curator-only.

    ``share`` is the budget of all steps together; the rule finds the shape at the whole share.

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
        self._first(dry_run_information(self._share), rests_on, DEFAULT_GAMMA)

    def _first(self, budget: AnyBudget, rests_on: Calibration, gamma: float) -> noise.NoisePlan:
        plan = rests_on.find_noise(self._values, budget, rule=self._rule, gamma=gamma)
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


class PoolRefinement(Refinement):
    """Steps about one candidate; each is calibrated to the belief after the steps before it.

    Guarantee
    ---------
    Claim S-3. A step pays the rest of cap and ceiling up to its level.
    """

    def __init__(
        self,
        secret: PoolSecret,
        evaluated: tuple[Request, Evaluated],
        share: AccountShare,
        purse: Purse,
        levels: int | None,
    ) -> None:
        self._secret, (self._request, self._evaluated), self._share = secret, evaluated, share
        self._fractions = refinement_shares(share.limits, levels)
        self.outputs, self.n_looks = self._evaluated.outputs, len(self._fractions)
        self._noise = FallingNoise(self.outputs, share.limits, rule=self._request.rule)
        self._noise.begin(secret.calibration(share, purse.spent.n_releases))
        self._start = purse.spent
        self._level, self._done, self._now = 0, 0.0, share.balances
        self._last: PoolPlan | None = None

    def next_plan(self, purse: Purse) -> Plan | None:
        share = self._share
        gone = (purse.spent.mi_nats or 0.0) - (self._start.mi_nats or 0.0)
        now: Any = purse.accounts or self._now  # a metric may have made a release of its own
        for fraction in self._fractions[self._level :]:
            self._level += 1
            ceiling = self._noise.ceiling_nats
            nats = ceiling * (1.0 if share.limits.mi_nats is None else fraction) - gone
            part = _step_share(share, (self._done, fraction), nats, now)
            if part is not None:
                self._done = fraction
                return self._secret.plan(
                    self._request, self._evaluated, purse, share=part, find_noise=self._next_noise
                )
        return None

    def _next_noise(self, limit: AnyBudget, rests_on: Calibration) -> noise.NoisePlan:
        return self._noise.plan(limit, rests_on, gamma=DEFAULT_GAMMA / 2)

    def add(self, plan: Plan, observed: Any) -> Any:
        last: Any = plan  # its own
        self._last, self._now = last, last.cost.accounts
        return self.outputs.restore(self._noise.add(last.noise, observed))

    def promise(
        self, steps: list[Release], odometer: Odometer
    ) -> tuple[Certificate, ErrorBars | None]:
        """Write down the cap as the promise, and the rest as facts about this run."""
        last = steps[-1].certificate
        assert isinstance(last, PoolCertificate)  # of a pool
        nats = self._noise.ceiling_nats
        bound = membership_success(nats, last.prior)
        limit = float((last.composition or {}).get("session_success_bound", 1.0))
        longer = odometer.spent.n_releases > len(steps)  # a part of a longer session
        bound = limit if longer else min(bound, limit)
        certificate = replace(
            last,
            budget=str(self._request.budget),
            rule=f"{last.rule}, refined over {len(steps)} observations",
            log_det_nats=nats,
            information=None,
            mi_upper_nats=nats,
            any_inference={p: posterior_success(nats, float(p)) for p in last.any_inference},
            membership=None,
            membership_mean=None,
            membership_bound=bound,
            epsilon_equivalent=certificate_epsilon(bound),
            side_knowledge=(),
            noise=replace(last.noise, total_variance=self._noise.total_variance).rounded(),
            confidence=1 - len(steps) * DEFAULT_GAMMA if last.confidence < 1 else 1.0,
            composition={
                **(last.composition or {}),
                "session_success_bound": bound,
                "learned_nats": odometer.learned_nats,
                "best_guess_now": odometer.best_guess_now,
            },
        )
        bars = self._error_bars()
        return _described(certificate, bars, steps[-1]), bars

    def _error_bars(self) -> ErrorBars | None:
        assert self._last is not None  # a step was made
        bars, variance = self._last.error_bars, self._last.noise.total_variance
        if bars is None or not variance > 0:
            return bars
        bars = bars.with_noise((self._noise.total_variance / variance) ** 0.5)
        return bars.compared(self._last.outputs)


def _step_share(
    share: AccountShare, fractions: tuple[float, float], nats: float, now: Balances | None
) -> AccountShare | None:
    """Return the budget of the next step, given the steps before it."""
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


def _described(certificate: Certificate, bars: ErrorBars | None, last: Release) -> Certificate:
    """Return the certificate with the error bars of the mean in place of those of the last step."""
    if bars is None or last.error_bars is None:
        return certificate
    of_step = error_bar_notes(last.error_bars)
    published = (text for text in certificate.published if not text.startswith(NAMED))
    notes = (note for note in certificate.notes if note not in of_step)
    return replace(
        certificate,
        published=(*published, bars.sentence),
        notes=(*notes, *error_bar_notes(bars)),
    )
