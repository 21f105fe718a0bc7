"""Private hyper-parameter search: the best of a random number of private runs.

Trying many settings and keeping the best one costs more than the run that is kept. If the number
of runs is itself random, the cost stays bounded however many there happen to be (Liu and Talwar
2019; Papernot and Steinke 2022).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Vector, check_positive
from pacprivacy._random import BitSource, uniform_below
from pacprivacy.dp import descent
from pacprivacy.dp.accounting import as_dp_accounting
from pacprivacy.dp.certificate import DPRelease, Neighbours, check_neighbours
from pacprivacy.dp.descent import Batch
from pacprivacy.dp.events import ApproximateEvent, PureEvent, publish_event
from pacprivacy.dp.noise import check_epsilon_delta, dp_noise_slack, dp_noise_source
from pacprivacy.dp.records import clip_to_whole_rows
from pacprivacy.dp.sgd import LinearLoss, LinearSGDSums
from pacprivacy.errors import BudgetError, MechanismError

COUNT_SLACK: Final = 2.0**-40  # distance of the law of the drawn number from the stated one
GEOMETRIC: Final = 1.0  # the law of the number of runs, as dp-accounting numbers them
ORDERS: Final = (*range(2, 65), 80, 96, 128, 192, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomRuns:
    """How many runs there are: a geometric number, at least one, ``mean`` on average."""

    mean: float

    def __post_init__(self) -> None:
        if not 1.0 < check_positive("mean", self.mean, advice="Use about 5.") <= 1e4:
            raise BudgetError(f"mean must be above 1 and at most 10000; got {self.mean!r}. Use 5.")

    def draw(self, source: BitSource) -> int:
        """Draw the number of runs; exactly, but for the rounding of the chance to stop."""
        limit = math.floor(1.0 / self.mean * 2.0**63)
        count = 1
        while uniform_below(source, 1 << 63) >= limit:
            count += 1
        return count


def dp_search_noise(
    batch: Batch,
    n_records: int,
    *,
    n_steps: int,
    runs: RandomRuns,
    epsilon: float,
    delta: float,
) -> float:
    """Return the noise of every run, over the clipping norm, that keeps ``(ε, δ)`` for a search.

    Guarantee
    ---------
    Claim G-4. From dp-accounting's Rényi figure for repeating and selecting, for continuous noise.
    """
    import dp_accounting  # slow to import, not always needed
    from dp_accounting.rdp import RdpAccountant

    epsilon, delta = check_epsilon_delta(epsilon, delta)

    def keeps(noise: float) -> bool:
        event = descent.dp_descent_event(batch, n_records, n_steps=1, noise=noise)
        known = as_dp_accounting(event, batch.neighbours)
        if known is None:
            raise BudgetError(
                "batch must be Poisson, of fixed size without replacement, or full for a search; "
                "got draws with replacement, whose Rényi divergences are not known. Use FixedBatch."
            )
        run = dp_accounting.SelfComposedDpEvent(known[0], n_steps)
        search = dp_accounting.dp_event.RepeatAndSelectDpEvent(run, runs.mean, GEOMETRIC)
        return bool(RdpAccountant(ORDERS, known[1]).compose(search).get_epsilon(delta) <= epsilon)

    return descent.least_dp_descent_noise(keeps, 1e-4)


def dp_search(
    X: Any,
    y: Any,
    *,
    candidates: Sequence[descent.Steps],
    score: Callable[[Vector], float],
    loss: LinearLoss,
    epsilon: float,
    delta: float,
    x_bound: float,
    batch: Batch,
    runs: RandomRuns,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Train linear models with settings drawn at random, and release the one with the best score.

    The value holds ``weights``, the number of the ``candidate``, and its ``score``; other
    parameters are those of :func:`~pacprivacy.dp.dp_sgd`.

    Parameters
    ----------
    candidates : sequence of Steps, public
        Settings to draw from, uniformly, for every run; all with the same number of steps.
    score : callable, public
        Takes released weights; larger is better. It must not look at these records.
    runs : RandomRuns, public
        How many runs there will be. The number that is drawn is not released.

    Guarantee
    ---------
    Claim G-4. ``(epsilon, delta)``-differential privacy of the whole search.
    """
    rows = clip_to_whole_rows(X, x_bound)
    n_records, n_features = rows.whole.shape
    target = loss.encode(y, n_records)
    shape = (n_features,) if loss.n_scores == 1 else (loss.n_scores, n_features)
    n_steps = _same_steps(candidates)
    batch.size_for(n_records)
    left = _delta_left(epsilon, delta, n_numbers=math.prod(shape) * n_steps, runs=runs)
    noise = dp_search_noise(
        batch, n_records, n_steps=n_steps, runs=runs, epsilon=epsilon, delta=left
    )
    source = dp_noise_source(simulate)

    def run() -> tuple[dict[str, Any], float]:
        number = uniform_below(source, len(candidates))
        steps = candidates[number]
        weights, _ = descent.run_dp_descent(
            LinearSGDSums(rows, target, loss, clip_norm=steps.clip_norm),
            np.zeros(math.prod(shape)),
            batch=batch,
            steps=steps,
            noise=noise,
            source=source,
        )
        weights = weights.reshape(shape)
        reached = float(score(weights))
        return {"weights": weights, "candidate": number, "score": reached}, reached

    value = _best(run, runs.draw(source))
    about = descent.describe_dp_descent(batch, replace(candidates[0], average=False), n_records)
    return publish_event(
        value,
        (epsilon, delta, batch.neighbours),
        ApproximateEvent(epsilon=float(epsilon), delta=float(delta)),
        simulation=source.is_simulation,
        mechanism=(
            f"best of a random number of runs (mean {runs.mean:g}) with "
            f"{len(candidates)} settings drawn at random; each run {about.split(':')[0]}"
        ),
        assumptions=(
            f"Rows are clipped to norm {x_bound:g}.",
            "The score looks at released weights and public data only.",
            descent.PUBLIC,
        ),
        accounting={
            "method": "Rényi, repeat and select (dp-accounting)",
            "noise multiplier": noise,
            "steps": n_steps,
        },
        noise={"sum of gradients, in clipping norms": noise},
    )


def pure_search(
    run: Callable[[], tuple[Any, float]],
    *,
    epsilon_run: float,
    mean: float,
    neighbours: Neighbours,
    simulate: np.random.Generator | int | None = None,
) -> DPRelease:
    """Release the best of a geometric number of runs of a purely private mechanism.

    ``run`` returns a value and its score; the pair is ``(epsilon_run, 0)``-private, with fresh
    randomness in every call.

    Guarantee
    ---------
    Claim G-4. ``(3 epsilon_run, 0)``-differential privacy, whatever the ``mean`` number of runs.
    """
    check_positive("epsilon_run", epsilon_run, advice="Use a third of what the search may cost.")
    runs = RandomRuns(mean=mean)
    epsilon = math.nextafter(3.0 * epsilon_run, math.inf)
    check_neighbours(neighbours)
    return publish_event(
        _best(run, runs.draw(dp_noise_source(simulate))),
        (epsilon, 0.0, neighbours),
        PureEvent(epsilon=epsilon),
        simulation=simulate is not None,
        mechanism=f"best of a geometric number of runs (mean {mean:g})",
        assumptions=(f"One run with its score is ({epsilon_run:g}, 0)-differentially private.",),
        accounting={"method": "three times one run", "one run": float(epsilon_run)},
    )


def _best(run: Callable[[], tuple[Any, float]], n_runs: int) -> Any:
    value, best = run()
    for _ in range(n_runs - 1):
        other, score = run()
        if score > best or math.isnan(best):
            value, best = other, score
    return value


def _same_steps(candidates: Sequence[descent.Steps]) -> int:
    numbers = {steps.n_steps for steps in candidates if steps.rate}
    if len(numbers) != 1:
        raise MechanismError(
            "candidates must be at least one, all with the same number of steps, so that every run "
            f"costs the same; got {sorted(numbers)}. Search over step numbers in separate searches."
        )
    return numbers.pop()


def _delta_left(epsilon: float, delta: float, *, n_numbers: int, runs: RandomRuns) -> float:
    """Return what discrete noise in all runs, and a drawn number of runs, leave of ``δ``."""
    epsilon, delta = check_epsilon_delta(epsilon, delta)
    price = runs.mean * dp_noise_slack(epsilon, n_numbers)
    left = delta - price - (1.0 + math.exp(min(epsilon, 700.0))) * COUNT_SLACK
    if not left > 0.5 * delta:
        raise BudgetError(
            f"delta must be large enough for the grid at epsilon {epsilon:g}; got {delta:g}. "
            "Use a larger delta or a smaller epsilon."
        )
    return left
