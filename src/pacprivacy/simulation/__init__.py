"""Run a mechanism on every subset of a pool: in parallel, restartable, reproducible."""

from __future__ import annotations

from pacprivacy.simulation.candidates import draw_candidates
from pacprivacy.simulation.checkpoint import read_checkpoint_seed
from pacprivacy.simulation.outputs import Outputs
from pacprivacy.simulation.run import run_mechanism

__all__ = ["Outputs", "draw_candidates", "read_checkpoint_seed", "run_mechanism"]
