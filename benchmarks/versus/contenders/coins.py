"""PAC with a coin for every record: plans made once a seed, releases drawn from them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pacprivacy as pac
from pacprivacy._random import SimulatedSource
from pacprivacy.noise import plan_average
from pacprivacy.sample import draw_coins
from pacprivacy.statistics import LeastSquaresValue

KEEP = 0.99  # the largest that the fight allows
Draw = Callable[[int], Any]


@dataclass(frozen=True, kw_only=True)
class CoinMethod:
    """A method with coins, and the settings that are tried.

    ``plan(setting, level, seed)`` returns how a release is drawn, given a seed: its advantage is
    certified to be at most ``level``.
    """

    name: str
    settings: Sequence[Any]
    plan: Callable[[Any, float, int], Draw]
    needs: str = "nothing"


def plan_coins(
    mechanism: Any, data: Any, level: float, seed: int, *, keep: float = KEEP, clip: Any = "auto"
) -> Draw:
    """Plan a release by the library's own door, for as many draws as are wanted."""
    success = (1 + level) / 2
    with warnings.catch_warnings(action="ignore"):  # of noise, which is what is measured
        plan = pac.plan(
            mechanism, data, pac.Membership(success), sample=pac.Coins(keep=keep, clip=clip),
            rng=seed,
        )  # fmt: skip
    assert plan.certificate.membership_bound <= success + 1e-9, plan.certificate.membership_bound

    def draw(number: int) -> Any:
        source = SimulatedSource(number)
        kept = draw_coins(plan.certificate.n_units, keep, source)
        return plan.value_of(plan.observe(kept, source))

    return draw


def plan_least_squares(Z: Any, y: Any, penalty: float, level: float, seed: int) -> Draw:
    """Plan least squares, with a penalty on all weights but the last, that of the constant."""
    penalties = np.full(Z.shape[1], penalty)
    penalties[-1] = 0.0
    value = LeastSquaresValue.fit(Z, y, keep=KEEP, penalty=penalties)
    plan = plan_average(value, success=(1 + level) / 2, keep=KEEP, seed=seed)
    assert plan.risk.advantage <= level + 1e-9, plan.risk.advantage

    def draw(number: int) -> Any:
        source = SimulatedSource(number)
        return plan.release(draw_coins(len(Z), KEEP, source), source)

    return draw
