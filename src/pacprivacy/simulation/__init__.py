"""Run a mechanism on every subset of a pool: in parallel, restartable, reproducible."""

from __future__ import annotations

from pacprivacy._threads import few_threads
from pacprivacy.simulation.checkpoint import read_checkpoint_seed
from pacprivacy.simulation.run import Outputs, draw_candidates, run_mechanism

__all__ = ["Outputs", "draw_candidates", "few_threads", "read_checkpoint_seed", "run_mechanism"]
