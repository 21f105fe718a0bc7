"""What a decoder's word is worth: true information of noise that was calibrated to a decoder.

The pool is small enough to enumerate: 16 halves of Iris. The exact posterior is then the best
decoder there is, and what a learned one missed can be measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from pacprivacy._checks import Matrix
from pacprivacy._random import public_generator
from pacprivacy.noise import spread_of
from pacprivacy.noise.covariance import waterfill
from pacprivacy.noise.shapes import axis_shape, refine_shape
from pacprivacy.residual import Training, check_learned_noise, learn_noise_curve
from pacprivacy.residual.learned_noise import Follower
from pacprivacy.sample import Balanced
from pacprivacy.simulation import run_mechanism
from pacprivacy.statistics import Mean
from papers.alg.protocol import load_split
from papers.charts import Line, Panel, Style, draw_panels
from papers.page import Page, as_budget, as_number, write_csv
from papers.run import Job, Settings

N_SUBSETS: Final = 16
BUDGETS: Final = (1 / 128, 1 / 16, 1 / 4, 1.0, 2.0)
QUICK_BUDGETS: Final = (1 / 16, 1 / 4, 1.0)
BASE: Final = Training(n_steps=500)
QUICK_BASE: Final = Training(n_steps=300, chunk=50, batch=256, n_check=1 << 16)
DECODERS: Final[dict[str, tuple[Follower, dict[str, int]]]] = {
    "exact posterior": ("exact", {}),
    "network": ("mlp", {}),
    "network, briefly taught": ("mlp", {"warm_up": 0, "follower_steps": 1, "hidden": 16}),
    "network, two projections": ("mlp", {"n_slices": 2}),
    "network, one projection": ("mlp", {"n_slices": 1}),
}
QUICK_DECODERS: Final = ("exact posterior", "network", "network, one projection")
STYLES: Final = {
    name: Style(colour=colour, marker=marker)
    for name, colour, marker in zip(
        DECODERS,
        ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#D55E00"),
        "DovP^",
        strict=True,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundRow:
    """Gaussian noise that was learned against one decoder, seen by the exact adversary.

    ``fixed_point`` is the noise of the exact fixed point at the same budget.
    """

    decoder: str
    mi_nats: float
    claimed_nats: float
    claimed_error: float
    true_nats: float
    true_lower: float
    true_upper: float
    noise_variance: float
    fixed_point: float
    n_steps: int

    @property
    def shortfall(self) -> float:
        """What the decoder missed, in nats."""
        return self.true_nats - self.claimed_nats


def enumerable_means(seed: int) -> Matrix:
    """Return the means of 16 halves of Iris, scaled to [0, 1]."""
    universe = load_split("iris", "min-max").X_train
    rng = public_generator(seed, "iris residual soundness")
    pool = Balanced(n_subsets=N_SUBSETS).draw(len(universe), rng=rng)
    return run_mechanism(Mean(), universe, pool, rng=seed).values


def measure_decoder(
    decoder: str, budgets: Sequence[float], base: Training, seed: int
) -> Iterator[SoundRow]:
    """Learn noise against one kind of decoder and look at it with the exact adversary."""
    values = enumerable_means(seed)
    follower, changes = DECODERS[decoder]
    learned = learn_noise_curve(
        values,
        budgets,
        family="gaussian_full",
        follower=follower,
        training=replace(base, **changes),
        rng=seed,
    )
    for noise in learned:
        truth = check_learned_noise(noise, rng=seed + 1).true_nats
        yield SoundRow(
            decoder=decoder,
            mi_nats=noise.mi_nats,
            claimed_nats=noise.claimed_nats,
            claimed_error=noise.claimed_error,
            true_nats=truth.value,
            true_lower=truth.lower,
            true_upper=truth.upper,
            noise_variance=noise.total_variance,
            fixed_point=_fixed_point(values, noise.mi_nats, seed),
            n_steps=noise.n_steps,
        )


def _fixed_point(values: Matrix, mi_nats: float, seed: int) -> float:
    spread = spread_of(values, np.full(N_SUBSETS, 1 / N_SUBSETS))
    start = axis_shape(waterfill(spread.eigenvalues, mi_nats=mi_nats))
    rng = public_generator(seed, "iris residual fixed point")
    log_p = np.full(N_SUBSETS, -np.log(N_SUBSETS))
    shape = refine_shape(start, spread, log_p, mi_nats=mi_nats, rng=rng, n_steps=24)
    return shape.total_variance


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundnessFigure:
    """The section on soundness."""

    name: str = "soundness"
    title: str = "What a decoder's word is worth"
    covers: str = "no figure of the paper: its Algorithm 2, looked at by the exact adversary"
    notes: tuple[str, ...] = (
        "Mean of Iris, a pool of 16 halves, all of them enumerated: the most there is to learn is "
        "ln 16 = 2.77 nats.",
        "Noise is learned until the decoder *claims* the budget. The truth is what the posterior "
        "over all candidates learns from the same noise. A decoder can only understate (claim "
        "W-2); what it missed is the shortfall.",
        "With the exact posterior as the follower claim and truth agree and the noise is that of "
        "the exact fixed point. A good network comes close. A network that is taught too little, "
        "or sees projections only, lets the leader take the noise away: the release looks private "
        "and is not. The budget cannot tell which of these happened.",
    )

    def jobs(self, settings: Settings, *, quick: bool) -> tuple[Job, ...]:
        base, budgets = (QUICK_BASE, QUICK_BUDGETS) if quick else (BASE, BUDGETS)
        return tuple(
            Job(
                name=f"soundness, {decoder}",
                function=measure_decoder,
                arguments=(decoder, budgets, base, settings.seed),
                kind=SoundRow,
                needs=("jax", "optax"),
            )
            for decoder in (QUICK_DECODERS if quick else DECODERS)
        )

    def write(self, page: Page, rows: Sequence[Any], stem: Path) -> None:
        write_csv(stem.with_suffix(".csv"), rows)
        budgets = sorted({row.mi_nats for row in rows})
        honest = Line(
            label="the budget itself",
            style=Style(colour="#333333", marker="none", line=":"),
            x=tuple(budgets),
            y=tuple(budgets),
        )
        names = list(dict.fromkeys(row.decoder for row in rows))
        picture = draw_panels(
            stem.with_suffix(".png"),
            [
                Panel(
                    title="True information",
                    ylabel="nats",
                    lines=(*(_line(rows, name, "true_nats") for name in names), honest),
                    log_y=True,
                ),
                Panel(
                    title="Noise",
                    ylabel="total variance",
                    lines=tuple(_line(rows, name, "noise_variance") for name in names),
                    log_y=True,
                ),
            ],
            title="Noise that a decoder calls private, seen by the exact adversary",
            xlabel="budget that the decoder claims, nats",
            ticks=[(mi, as_budget(mi)) for mi in budgets],
        )
        page.image(picture, "true information and noise against the claimed budget")
        _write_table(page, rows)


def _line(rows: Sequence[SoundRow], name: str, field: str) -> Line:
    return Line.of(name, STYLES[name], [row for row in rows if row.decoder == name], field)


def _write_table(page: Page, rows: Sequence[SoundRow]) -> None:
    page.table(
        ["decoder", "budget", "claimed, nats", "true, nats", "shortfall", "noise / fixed point"],
        [
            [
                row.decoder,
                as_budget(row.mi_nats),
                f"{as_number(row.claimed_nats, 4)} ± {row.claimed_error:.1g}",
                as_number(row.true_nats, 4),
                as_number(row.shortfall, 4),
                f"{row.noise_variance / row.fixed_point:.3f}",
            ]
            for row in rows
        ],
    )


SECTION: Final = SoundnessFigure()
