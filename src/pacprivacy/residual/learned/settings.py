"""How learned noise is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pacprivacy._checks import check_positive
from pacprivacy.errors import BudgetError

__all__ = ["FOLLOWERS", "Training"]

FOLLOWERS: Final = ("mlp", "transformer", "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Steps, rates and sizes of Algorithm 2 of [RPAC].

    Attributes
    ----------
    n_steps : int
        Most steps of the leader.
    batch : int
        Simulated releases per estimate, an even number; a leader's step uses two estimates.
    follower_steps, warm_up : int
        Steps of the decoder before each step of the leader, and rounds of them before the first.
    leader_rate, follower_rate : float
        First step sizes of Adam; both fall to nothing along a cosine.
    penalty_start, penalty_end : float
        Weight of the squared miss of the budget, relative to the budget; it grows geometrically
        over the first half of the steps. Noise is counted in units of its start.
    hidden, n_layers : int
        Size of the decoder.
    n_slices : int
        Sliced variant: the decoder sees this many random projections of the release instead of
        the release; 0 for all of it.
    chunk, patience, tolerance : int, int, float
        Training stops early when, over ``patience`` chunks after the penalty has grown, noise and
        claimed information move by less than this share.
    n_check : int
        Fresh draws on which the follower's claim is evaluated in the end.

    Examples
    --------
    >>> Training(n_steps=500).chunk
    100
    """

    n_steps: int = 2000
    batch: int = 512
    follower_steps: int = 4
    warm_up: int = 200
    leader_rate: float = 0.03
    follower_rate: float = 2e-3
    penalty_start: float = 5.0
    penalty_end: float = 200.0
    hidden: int = 64
    n_layers: int = 2
    n_slices: int = 0
    chunk: int = 100
    patience: int = 4
    tolerance: float = 2e-3
    n_check: int = 1 << 18

    def __post_init__(self) -> None:
        counts = ("n_steps", "batch", "follower_steps", "hidden", "n_layers", "chunk", "patience")
        for name in (*counts, "n_check"):
            if getattr(self, name) < 1:
                raise BudgetError(
                    f"{name} must be at least 1; got {getattr(self, name)}. Leave it out."
                )
        if self.batch % 2:
            raise BudgetError(f"batch must be even; got {self.batch}. Use {self.batch + 1}.")
        for name in ("warm_up", "n_slices"):
            if getattr(self, name) < 0:
                raise BudgetError(
                    f"{name} must be at least 0; got {getattr(self, name)}. Leave it out."
                )
        rates = ("leader_rate", "follower_rate", "penalty_start", "penalty_end", "tolerance")
        for name in rates:
            check_positive(name, getattr(self, name), advice="Leave it out.")
