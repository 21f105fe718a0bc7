"""Choice of a parameter by simulated releases; later certificates state it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pacprivacy._checks import Matrix
from pacprivacy._random import SimulatedSource, coerce_seed, public_generator
from pacprivacy.budget import BudgetLike, as_budget
from pacprivacy.errors import MechanismError
from pacprivacy.mechanism import MechanismWrapper, as_mechanism
from pacprivacy.noise import AnyRule, NoisePlan, Observation, sample_discrete_gaussian
from pacprivacy.sample import Pool, PoolStrategy
from pacprivacy.session import DryRun, SampleOptions
from pacprivacy.simulation import Outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned(MechanismWrapper):
    """A mechanism with an additional public fact."""

    note: str

    @property
    def public(self) -> tuple[str, ...]:
        return (*self.inner.public, self.note)


Make = Callable[[Any], Any]
Utility = Callable[[Any], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunePoint:
    """Worth of a release with one value of the parameter; ``no_noise``: without noise."""

    theta: Any
    utility: float
    standard_error: float
    no_noise: float
    noise_variance: float
    mi_upper_nats: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """Scores of all values, the best value, and a note about the choice."""

    points: tuple[TunePoint, ...]
    budget: str
    n_subsets: int
    make: Make

    @property
    def best_point(self) -> TunePoint:
        return max(self.points, key=lambda point: point.utility)

    @property
    def best(self) -> Any:
        """The value of the parameter to release with."""
        return self.best_point.theta

    @property
    def note(self) -> str:
        """Note on the choice for the certificate; public."""
        return (
            f"the parameter {self.best!r}, chosen among {len(self.points)} by simulated releases "
            f"from {self.n_subsets} subsets of the universe: it depends on the universe and not on "
            "the secret"
        )

    def mechanism(self) -> Tuned:
        """Return the mechanism at the best value; its certificates carry the note."""
        return Tuned(inner=as_mechanism(self.make(self.best)), note=self.note)

    def __repr__(self) -> str:
        best = self.best_point
        return (
            f"TuneResult(best={best.theta!r}, utility={best.utility:.4g} "
            f"± {best.standard_error:.1g}, {len(self.points)} values, {self.budget})"
        )


def tune(
    make_mechanism: Make,
    thetas: Sequence[Any],
    data: Any,
    budget: BudgetLike,
    utility: Utility,
    **options: Any,
) -> TuneResult:
    """Choose the value of a parameter with the best *release* at a budget.

    Takes one ``budget`` and is otherwise as :func:`tune_budgets`.

    Guarantee
    ---------
    Claim F-3. The choice is a function of the universe, and not of the secret of a later
    release: it costs that release nothing. It is computed without noise and does say something
    about the universe, to whoever does not know it: certificates have to name it, and those of
    :meth:`TuneResult.mechanism` do.
    """
    return tune_budgets(make_mechanism, thetas, data, (budget,), utility, **options)[0]


def tune_budgets(
    make_mechanism: Make,
    thetas: Sequence[Any],
    data: Any,
    budgets: Sequence[BudgetLike],
    utility: Utility,
    *,
    sample: Pool | PoolStrategy | None = None,
    n_subsets: int | None = None,
    rule: AnyRule | None = None,
    n_releases: int = 400,
    n_jobs: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> tuple[TuneResult, ...]:
    """Choose a parameter for each of several budgets; every mechanism runs once.

    Parameters
    ----------
    make_mechanism : callable
        ``make_mechanism(theta)`` returns the arguments of :func:`pacprivacy.privatize`, for each of
        ``thetas``: a penalty, a rank, a depth, a step size, a clipping bound.
    budgets : sequence of budgets
        Budget of the later release.
    utility : callable
        ``utility(value)`` of a released value, larger is better: accuracy on public rows, or on
        the universe itself. For a loss return its negative.
    data, sample, n_subsets, rule, n_jobs, rng
        As in :func:`pacprivacy.privatize`; use those of the later release.
    n_releases : int
        Simulated releases per value; all values share secrets and noise seeds.
    """
    limits = [as_budget(budget) for budget in budgets]
    if not len(thetas) or not len(limits) or n_releases < 2:
        raise MechanismError(
            f"thetas and budgets must not be empty and n_releases at least 2; got {len(thetas)}, "
            f"{len(limits)} and {n_releases}. Give a list of values to try."
        )
    options = SampleOptions(
        sample=sample, n_subsets=n_subsets, n_jobs=n_jobs, rng=coerce_seed(rng), progress=False
    )
    dry_run = DryRun(data, options)
    n_subsets = dry_run.draw(make_mechanism(thetas[0]), limits[0], rule=rule)[0].n_subsets
    curves: list[list[TunePoint]] = [[] for _ in limits]
    for theta in thetas:
        outputs = dry_run.run(as_mechanism(make_mechanism(theta)))
        no_noise, _ = _mean_utility(utility, outputs, outputs.values)
        for curve, budget in zip(curves, limits, strict=True):
            plan = dry_run.calibrate(outputs, budget, rule=rule)
            seeded = public_generator(dry_run.seed, "tune")
            released = simulate_tuned_releases(plan, n_releases, seeded)
            worth, standard_error = _mean_utility(utility, outputs, released)
            point = TunePoint(
                theta=theta,
                utility=worth,
                standard_error=standard_error,
                no_noise=no_noise,
                noise_variance=plan.total_variance,
                mi_upper_nats=plan.mi_upper,
            )
            curve.append(point)
    return tuple(
        TuneResult(points=tuple(curve), budget=limit, n_subsets=n_subsets, make=make_mechanism)
        for curve, limit in zip(curves, map(str, limits), strict=True)
    )


def _mean_utility(utility: Utility, outputs: Outputs, values: Matrix) -> tuple[float, float]:
    scores = np.array([float(utility(outputs.restore(vector))) for vector in values])
    if not np.isfinite(scores).all():
        raise MechanismError(
            "utility must return a finite number for every released value; got another. "
            "Clip it: noise can make a released value unusual."
        )
    return float(scores.mean()), float(scores.std(ddof=1) / np.sqrt(len(scores)))


def simulate_tuned_releases(plan: NoisePlan, n_releases: int, rng: np.random.Generator) -> Matrix:
    """Draw releases of a plan with seeded secrets and noise, shape (n_releases, d)."""
    secrets = rng.integers(plan.n_subsets, size=n_releases)
    units = np.broadcast_to(plan.units_per_std, (n_releases, plan.n_directions))
    noise = sample_discrete_gaussian(units, SimulatedSource(rng))
    groups = [None] * plan.n_subsets if plan.revealed is None else plan.revealed.groups.tolist()
    return np.array(
        [
            plan.value_of(Observation(integers=plan.points[k] + drawn, group=groups[k]))
            for k, drawn in zip(secrets, noise, strict=True)
        ]
    )
