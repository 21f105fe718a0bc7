"""Run a mechanism on every subset of a pool: in parallel, restartable, reproducible."""

from __future__ import annotations

from pacprivacy.simulation.backends import train_subsets
from pacprivacy.simulation.checkpoint import read_checkpoint_seed
from pacprivacy.simulation.run import SUBSETS_BATCHED, Outputs, draw_candidates, run_mechanism

__all__ = [
    "SUBSETS_BATCHED",
    "Outputs",
    "draw_candidates",
    "read_checkpoint_seed",
    "run_mechanism",
    "train_subsets",
]
